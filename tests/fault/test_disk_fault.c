/*
 * test_disk_fault.c: the disk under the memory engine fails: a read, a write, a bit; it is full; it
 * is not there. The answer is the same as that of an engine with all memory, or, where memory is
 * not enough without the disk, the step fails, its sequences are as before, and it works when it
 * is done again.
 */
#include "harness.h"
#include "twins.h"

#include <sys/stat.h>
#include <unistd.h>

#if defined(RM_SANITIZED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
enum { CONTEXT = 460, PROMPT = 400 };

static const char *const fault_names[] = {"read fails",      "read is short", "bit flips",
                                          "transfer in two", "no space",      "write fails"};

static run_config config(remat_cold cold, given_rows rows, uint32_t units, uint32_t pages) {
    run_config c = run_config_default(CONTEXT);
    c.threads = 2;
    c.limits.cold = cold;
    c.limits.chunk_rows = 64;
    c.limits.weights = REMAT_WEIGHTS_AUTO;
    c.setup = (given_setup){.given = true, .rows = rows, .more_pages = pages, .units = units};
    return c;
}

static tiny_spec wide_spec(void) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 4;
    spec.kv_head_count = 4;
    return spec;
}

/* Where the fault happens. */
typedef enum moment { IN_PROMPT, IN_DECODE, IN_BATCH, IN_SCORING, MOMENTS } moment;
static const char *const moment_names[] = {"prompt", "decode", "batch", "scoring"};

/* One conversation with one fault; sets *hit when it happened. False after a failed test. */
static bool one_fault(twins *t, const run_config *c, moment when, rm_io_fault fault, uint64_t n,
                      bool *hit, bool *failed) {
    if (!twins_start(t, c)) return false;
    (void)twins_step(t, (const uint32_t[TWINS]){when == IN_PROMPT ? 130 : PROMPT, 90, 0});
    t->fault = fault;
    t->fault_at = n;
    if (when == IN_PROMPT)
        (void)twins_step(t, (const uint32_t[TWINS]){PROMPT - 130, 0, 0});
    else if (when == IN_DECODE)
        (void)twins_step(t, (const uint32_t[TWINS]){1, 0, 0});
    else if (when == IN_BATCH)
        (void)twins_step(t, (const uint32_t[TWINS]){2, 100, 0});
    else
        (void)twins_score(t, 0, PROMPT);
    const remat_stats s = twins_stats(t);
    const rm_spill *spill = &t->tight->spill;
    const bool lost = spill->failed_reads + spill->failed_writes > 0;
    *failed = t->failed > 0;
    *hit = lost || *failed;
    for (int i = 0; i < 3; i++)
        (void)twins_step(t, (const uint32_t[TWINS]){1, 1, 0});
    (void)twins_step(t, (const uint32_t[TWINS]){30, 0, 0});
    if (t->why[0] != '\0') return false;
    if (lost && t->warnings != 1) {
        snprintf(t->why, sizeof t->why, "%u warnings: %s", t->warnings, spill->trouble);
        return false;
    }
    if (spill->failed_reads > 0 && s.healed_count == 0 && s.recomputed_tokens == 0 && !*failed) {
        snprintf(t->why, sizeof t->why, "a read failed and nothing was healed");
        return false;
    }
    return true;
}

/* The n-th transfer, n = 1, 2, .., 8 and then every step-th, until nothing is left to fail; a few
 * of them under sanitizers. */
static void every_transfer(const tiny_spec *spec, const run_config *c, moment when,
                           rm_io_fault fault, uint32_t step) {
    twins t;
    const uint32_t few = SANITIZED ? 5 : 1;
    uint64_t n = 1;
    uint32_t hits = 0, failures = 0;
    if (!twins_open(&t, spec, 2, CONTEXT, REMAT_KV_F16)) t_fail("%s", t.why);
    for (bool hit = true; hit && t.free != NULL && n < 5000; n += n < 8 ? few : step) {
        bool failed = false;
        if (!one_fault(&t, c, when, fault, n, &hit, &failed)) {
            t_fail("%s, %s %" PRIu64 ": %s", moment_names[when], fault_names[fault], n, t.why);
            break;
        }
        hits += hit;
        failures += failed;
        if (failed)
            t_fail("%s, %s %" PRIu64 ": %s", moment_names[when], fault_names[fault], n,
                   t.last_error);
    }
    printf("     %s, %s: %u places, %u failures\n", moment_names[when], fault_names[fault], hits,
           failures);
    twins_close(&t);
}

static void faults(const tiny_spec *spec, const run_config *c, bool writes) {
    static const rm_io_fault reading[] = {RM_IO_FLIP, RM_IO_FAIL, RM_IO_SHORT};
    static const rm_io_fault writing[] = {RM_IO_FULL, RM_IO_BAD_WRITE};
    for (int when = 0; when < MOMENTS; when++) {
        const uint32_t step = SANITIZED ? 197 : 7;
        const rm_io_fault kind = writes ? writing[when % 2] : reading[when % 3];
        every_transfer(spec, c, (moment)when, kind, step);
        if (writes && !SANITIZED)
            every_transfer(spec, c, (moment)when, writing[(when + 1) % 2], step);
    }
}

/* Pages in the file, few in memory; hidden rows of a chunk: what is lost runs again in pieces. */
static void pages(bool writes) {
    const tiny_spec spec = wide_spec();
    const run_config chunk = config(REMAT_COLD_SPILL, GIVEN_CHUNK, 8, 10);
    const run_config rows = config(REMAT_COLD_SPILL, GIVEN_MEMORY, 8, 0);
    faults(&spec, &chunk, writes);
    faults(&spec, &rows, writes);
}

static void reads_of_pages(void) {
    pages(false);
}

static void writes_of_pages(void) {
    pages(true);
}

static void hidden_rows(bool writes) {
    const tiny_spec spec = wide_spec();
    const run_config drop = config(REMAT_COLD_DROP, GIVEN_DISK, 8, 12);
    const run_config spill = config(REMAT_COLD_SPILL, GIVEN_DISK, 8, 0);
    faults(&spec, &drop, writes);
    faults(&spec, &spill, writes);
}

static void reads_of_hidden_rows(void) {
    hidden_rows(false);
}

static void writes_of_hidden_rows(void) {
    hidden_rows(true);
}

static void windows(void) {
    const tiny_spec *spec = tiny_spec_architecture(7);
    const run_config spill = config(REMAT_COLD_SPILL, GIVEN_CHUNK, 8, 5);
    const run_config rows = config(REMAT_COLD_SPILL, GIVEN_DISK, 8, 12);
    faults(spec, &spill, false);
    faults(spec, &rows, true);
}

/* --- a disk that is gone ---------------------------------------------------------------------- */

/* During the step number `when`, and then it is there again. */
static void gone_in(const run_config *c, uint32_t when, bool may_fail) {
    const tiny_spec spec = wide_spec();
    twins t;
    if (!twins_open(&t, &spec, 2, CONTEXT, REMAT_KV_F16) || !twins_start(&t, c)) {
        t_fail("%s", t.why);
        twins_close(&t);
        return;
    }
    static const uint32_t steps[][TWINS] = {{130, 90}, {250, 0}, {1, 0}, {1, 1}, {2, 60}, {1, 0}};
    for (uint32_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        t.no_disk = i == when;
        (void)twins_step(&t, steps[i]);
    }
    (void)twins_score(&t, 1, 300);
    if (t.why[0] != '\0') t_fail("gone in step %u: %s", when, t.why);
    if (t.failed > 0 && !may_fail) t_fail("gone in step %u: %s: %s", when, t.config, t.last_error);
    EXPECT(t.warnings <= 1);
    printf("     gone in step %u: %u failed, healed %" PRIu64 ", %s\n", when, t.failed,
           twins_stats(&t).healed_count, t.last_error);
    twins_close(&t);
}

static void a_disk_that_is_gone(void) {
    /* Memory for a layer of both sequences, which is all that dropping needs. */
    const run_config enough = config(REMAT_COLD_SPILL, GIVEN_MEMORY, 8, 16);
    const run_config little = config(REMAT_COLD_SPILL, GIVEN_CHUNK, 8, 4);
    const run_config rows = config(REMAT_COLD_SPILL, GIVEN_DISK, 8, 4);
    const run_config drop = config(REMAT_COLD_DROP, GIVEN_DISK, 8, 4);
    for (uint32_t when = 0; when < 6; when += SANITIZED ? 2 : 1) {
        gone_in(&enough, when, false);
        gone_in(&little, when, true);
        gone_in(&rows, when, true);
        gone_in(&drop, when, true);
    }
}

/* --- weights ---------------------------------------------------------------------------------- */

/* A read of streamed weights, or of an embedding's row, that fails is done once more. */
static void reads_of_weights(void) {
    static const rm_io_fault kinds[] = {RM_IO_FAIL, RM_IO_SHORT, RM_IO_PART};
    tiny_spec spec = *tiny_spec_architecture(5);
    spec.seed = 3;
    twins t;
    if (!twins_open(&t, &spec, 2, CONTEXT, REMAT_KV_F16)) t_fail("%s", t.why);
    for (uint32_t i = 0; i < (SANITIZED ? 6 : 60) && t.free != NULL; i++) {
        run_config c = config(REMAT_COLD_DROP, GIVEN_MEMORY, i % 4, 40);
        c.threads = 1 + i % 3;
        c.setup.roomy = i / 3 % 2 == 0;
        if (!twins_start(&t, &c)) break;
        (void)twins_step(&t, (const uint32_t[TWINS]){100, 3, 0});
        t.fault = kinds[i % 3];
        t.fault_at = 1 + (i < 20 ? i : i * i / 20);
        (void)twins_step(&t, (const uint32_t[TWINS]){i % 2 == 0 ? 1 : 90, 1, 0});
        (void)twins_step(&t, (const uint32_t[TWINS]){1, 70, 0});
        EXPECT(t.failed == 0 && t.warnings == 0);
        if (t.why[0] != '\0') break;
    }
    if (t.why[0] != '\0') t_fail("%s", t.why);
    twins_close(&t);
}

/* --- a cancel --------------------------------------------------------------------------------- */

/* At any moment: what was on its way stays right, what was half done is done again. */
static void canceled(const tiny_spec *spec, const run_config *c, uint32_t rounds) {
    twins t;
    uint32_t ended = 0;
    if (!twins_open(&t, spec, 2, CONTEXT, REMAT_KV_F16)) t_fail("%s", t.why);
    for (uint32_t i = 0; i < rounds && t.free != NULL && t.why[0] == '\0'; i++) {
        if (!twins_start(&t, c)) break;
        static const uint32_t steps[][TWINS] = {{300, 90}, {1, 0}, {100, 1}, {1, 1}, {20, 40}};
        for (uint32_t k = 0; k < 10; k++) {
            const uint32_t r = (uint32_t)(t_random() >> 40);
            if (r % 5 == 0) twins_truncate(&t, 0, 40 + r / 8 % 200);
            if (r % 3 != 0) t.cancel_at = 1 + r / 64 % 24;
            (void)twins_step(&t, steps[k % 5]);
            t.cancel_at = 0;
        }
        t.cancel_at = 1 + i % 9;
        (void)twins_score(&t, 1, 200);
        ended += t.canceled;
    }
    if (t.why[0] != '\0') t_fail("%s", t.why);
    EXPECT(ended > rounds);
    twins_close(&t);
}

/* One sequence has taken all blocks for checkpoints, or inputs, and gives them back; the other
 * takes some while its tokens run again, and is canceled at the k-th chunk. */
static void canceled_keeping(const tiny_spec *spec) {
    twins t;
    uint32_t ended = 0;
    if (!twins_open(&t, spec, 2, CONTEXT, REMAT_KV_F16)) t_fail("%s", t.why);
    for (uint32_t k = 1; k <= (SANITIZED ? 8 : 60) && t.free != NULL && t.why[0] == '\0'; k++) {
        run_config c =
            config(k % 3 == 0 ? REMAT_COLD_INPUTS : REMAT_COLD_CHECKPOINT, GIVEN_MEMORY, 1, k % 4);
        c.limits.resident_count = 0;
        c.limits.chunk_rows = k % 3 == 0 ? 64 : k % 2 == 0 ? 16 : 7;
        if (!twins_start(&t, &c)) break;
        (void)twins_step(&t, (const uint32_t[TWINS]){400, 0, 0});
        (void)twins_step(&t, (const uint32_t[TWINS]){0, 290, 0});
        twins_truncate(&t, 0, 10);
        t.cancel_at = k;
        (void)twins_step(&t, (const uint32_t[TWINS]){0, 1, 0});
        (void)twins_step(&t, (const uint32_t[TWINS]){1, 1, 0});
        ended += t.canceled;
    }
    if (t.why[0] != '\0') t_fail("%s", t.why);
    EXPECT(SANITIZED || ended > 20);
    twins_close(&t);
}

static void canceled_while_keeping(void) {
    const tiny_spec wide = wide_spec();
    canceled_keeping(&wide);
    canceled_keeping(tiny_spec_architecture(7));
}

static void canceled_at_any_moment(void) {
    static const uint32_t chunks[] = {64, 16, 7};
    const tiny_spec wide = wide_spec();
    const tiny_spec *models[] = {&wide, tiny_spec_architecture(7)};
    for (uint32_t i = 0; i < (SANITIZED ? 9 : 18); i++) {
        run_config c = config(i % 2 == 0 ? REMAT_COLD_DROP : REMAT_COLD_SPILL, (given_rows)(i % 3),
                              i % 4 == 0 ? 3 : 8, i % 5 * 7);
        c.limits.chunk_rows = c.setup.rows == GIVEN_DISK ? 64 : chunks[i / 2 % 3];
        c.limits.recompute = (remat_recompute)(i % 5);
        if (c.limits.cold == REMAT_COLD_INPUTS) c.limits.chunk_rows = 64;
        if (c.limits.cold == REMAT_COLD_SPILL && i % 8 == 5) c.setup.drop_columns = 2;
        if (c.setup.rows == GIVEN_CHUNK &&
            (c.limits.cold != REMAT_COLD_SPILL || c.setup.drop_columns > 0))
            c.setup.rows = GIVEN_MEMORY;
        canceled(models[i / 3 % 2], &c, SANITIZED ? 1 : 6);
    }
}

/* --- directories and limits ------------------------------------------------------------------- */

/* A conversation in a budget that makes the engine spill, if it can. */
static void converse(run_config c, const char *what, bool warned, bool again) {
    const tiny_spec spec = wide_spec();
    twins t;
    if (!twins_open(&t, &spec, 2, CONTEXT, REMAT_KV_F16) || !twins_start(&t, &c)) {
        t_fail("%s: %s", what, t.why);
        twins_close(&t);
        return;
    }
    (void)twins_step(&t, (const uint32_t[TWINS]){PROMPT, 100, 0});
    (void)twins_step(&t, (const uint32_t[TWINS]){1, 0, 0});
    (void)twins_step(&t, (const uint32_t[TWINS]){1, 90, 0});
    twins_truncate(&t, 0, 200);
    (void)twins_step(&t, (const uint32_t[TWINS]){100, 1, 0});
    (void)twins_step(&t, (const uint32_t[TWINS]){1, 1, 0});
    (void)twins_score(&t, 1, 350);
    if (t.why[0] != '\0') t_fail("%s: %s", what, t.why);
    EXPECT(t.warnings == (warned ? 1u : 0u));
    const remat_stats s = twins_stats(&t);
    printf("     %s: %u warnings, %" PRIu64 " KiB read back, %" PRIu64 " tokens again\n", what,
           t.warnings, s.spill_read_bytes >> 10, s.recomputed_tokens);
    EXPECT((s.recomputed_tokens > 0) == again);
    twins_close(&t);
}

static run_config resident_64(void) {
    run_config c = run_config_default(CONTEXT);
    c.threads = 2;
    c.limits.cold = REMAT_COLD_SPILL;
    c.limits.resident_count = 64;
    return c;
}

static void directories_that_do_not_work(void) {
    char file[] = "/tmp/remat_no_dir_XXXXXX";
    const int fd = mkstemp(file);
    REQUIRE(fd >= 0);
    run_config c = resident_64();
    converse(c, "a directory", false, false);
    c.limits.spill_dir = "/nonexistent/remat/spill";
    converse(c, "no directory", true, true);
    c.limits.spill_dir = file;
    converse(c, "a file", true, true);
    c.limits.spill_dir = "/proc";
    converse(c, "a directory that takes no files", true, true);
    c.limits.spill_dir = "";
    converse(c, "no name", true, true);
    close(fd);
    unlink(file);
}

/* A limit that is reached in the middle: the rest is computed again. */
static void a_limited_file(void) {
    static const uint64_t limits_kib[] = {1, 100, 300, 600, 1200, 4000};
    for (size_t i = 0; i < sizeof limits_kib / sizeof *limits_kib; i++) {
        char what[64];
        run_config c = resident_64();
        snprintf(what, sizeof what, "%u KiB", (unsigned)limits_kib[i]);
        c.limits.spill_bytes = limits_kib[i] << 10;
        converse(c, what, limits_kib[i] < 1000, limits_kib[i] < 500);
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(reads_of_pages), T(writes_of_pages), T(reads_of_hidden_rows),
                  T(writes_of_hidden_rows), T(windows), T(a_disk_that_is_gone), T(reads_of_weights),
                  T(canceled_at_any_moment), T(canceled_while_keeping),
                  T(directories_that_do_not_work), T(a_limited_file));
}
