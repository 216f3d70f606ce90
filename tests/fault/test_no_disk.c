/*
 * test_no_disk.c: the disk under the memory engine is gone for a while, cannot be written to, or
 * may hold no more. Where memory is enough without it the answer is the same; where not, the step
 * fails, its sequences are as before, and it works when it is done again.
 */
#include "harness.h"
#include "twins.h"

#include <unistd.h>

enum { CONTEXT = 460, PROMPT = 400 };

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
    const run_config enough = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_MEMORY, 8, 16);
    const run_config little = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_CHUNK, 8, 4);
    const run_config rows = tight_config(CONTEXT, REMAT_COLD_SPILL, GIVEN_DISK, 8, 4);
    const run_config drop = tight_config(CONTEXT, REMAT_COLD_DROP, GIVEN_DISK, 8, 4);
    for (uint32_t when = 0; when < 6; when++) {
        gone_in(&enough, when, false);
        gone_in(&little, when, true);
        gone_in(&rows, when, true);
        gone_in(&drop, when, true);
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
    return RM_RUN(argc, argv, T(a_disk_that_is_gone), T(directories_that_do_not_work),
                  T(a_limited_file));
}
