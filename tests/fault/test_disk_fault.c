/*
 * test_disk_fault.c: a transfer of the memory engine fails: a read, a write, a bit; the disk is
 * full. The answer is the same as that of an engine with all memory, or, where memory is not
 * enough without the disk, the step fails, its sequences are as before, and it works when it is
 * done again.
 */
#include "harness.h"
#include "twins.h"

enum { CONTEXT = 460, PROMPT = 400 };

static const char *const fault_names[] = {"read fails",      "read is short", "bit flips",
                                          "transfer in two", "no space",      "write fails"};

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

/* The n-th transfer, n = 1, 2, .., 8 and then every step-th, until nothing is left to fail. */
static void every_transfer(const tiny_spec *spec, const run_config *c, moment when,
                           rm_io_fault fault, uint32_t step) {
    twins t;
    uint64_t n = 1;
    uint32_t hits = 0, failures = 0;
    if (!twins_open(&t, spec, 2, CONTEXT, REMAT_KV_F16)) t_fail("%s", t.why);
    for (bool hit = true; hit && t.free != NULL && n < 5000; n += n < 8 ? 1 : step) {
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
        const uint32_t step = SANITIZED ? 97 : 7;
        const rm_io_fault kind = writes ? writing[when % 2] : reading[when % 3];
        every_transfer(spec, c, (moment)when, kind, step);
        if (writes && !SANITIZED)
            every_transfer(spec, c, (moment)when, writing[(when + 1) % 2], step);
    }
}

/* Pages in the file, few in memory; hidden rows of a chunk: what is lost runs again in pieces. */
static void pages(bool writes) {
    const tiny_spec spec = wide_spec();
    const run_config chunk = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_CHUNK, 8, 10);
    const run_config rows = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_MEMORY, 8, 0);
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
    const run_config drop = tight_config(CONTEXT, REMAT_COLD_DROP, GIVEN_DISK, 8, 12);
    const run_config spill = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_DISK, 8, 0);
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
    const run_config spill = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_CHUNK, 8, 5);
    const run_config rows = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_DISK, 8, 12);
    faults(spec, &spill, false);
    faults(spec, &rows, true);
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
        run_config c = tight_config(CONTEXT, REMAT_COLD_DROP, GIVEN_MEMORY, i % 4, 40);
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

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(reads_of_pages), T(writes_of_pages), T(reads_of_hidden_rows),
                  T(writes_of_hidden_rows), T(windows), T(reads_of_weights));
}
