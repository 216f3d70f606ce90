/*
 * test_cancel_setups.c: a cancel at any moment, in setups that keep, spill and drop. What was on
 * its way stays right, what was half done is done again.
 */
#include "harness.h"
#include "twins.h"

enum { CONTEXT = 460 };

/* How many steps ended by a cancel in this many rounds. */
static uint32_t canceled(const tiny_spec *spec, const run_config *c, uint32_t rounds) {
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
    twins_close(&t);
    return ended;
}

/* One sequence has taken all blocks for checkpoints, or inputs, and gives them back; the other
 * takes some while its tokens run again, and is canceled at the k-th chunk. */
static void canceled_keeping(const tiny_spec *spec) {
    twins t;
    uint32_t ended = 0;
    if (!twins_open(&t, spec, 2, CONTEXT, REMAT_KV_F16)) t_fail("%s", t.why);
    for (uint32_t k = 1; k <= (SANITIZED ? 8 : 60) && t.free != NULL && t.why[0] == '\0'; k++) {
        run_config c = tight_config(CONTEXT, k % 3 == 0 ? REMAT_COLD_INPUTS : REMAT_COLD_CHECKPOINT,
                                    GIVEN_MEMORY, 1, k % 4);
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
    enum { SETUPS = 18, ROUNDS = SANITIZED ? 1 : 6 };
    uint32_t ended = 0;
    for (uint32_t i = 0; i < SETUPS; i++) {
        run_config c = tight_config(CONTEXT, i % 2 == 0 ? REMAT_COLD_DROP : REMAT_COLD_SPILL,
                                    (given_rows)(i % 3), i % 4 == 0 ? 3 : 8, i % 5 * 7);
        c.limits.chunk_rows = c.setup.rows == GIVEN_DISK ? 64 : chunks[i / 2 % 3];
        c.limits.recompute = (remat_recompute)(i % 5);
        if (c.limits.cold == REMAT_COLD_INPUTS) c.limits.chunk_rows = 64;
        if (c.limits.cold == REMAT_COLD_SPILL && i % 8 == 5) c.setup.drop_columns = 2;
        if (c.setup.rows == GIVEN_CHUNK &&
            (c.limits.cold != REMAT_COLD_SPILL || c.setup.drop_columns > 0))
            c.setup.rows = GIVEN_MEMORY;
        ended += canceled(models[i / 3 % 2], &c, ROUNDS);
    }
    EXPECT(ended > SETUPS * ROUNDS); /* one moment may come too late; not most of them */
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(canceled_at_any_moment), T(canceled_while_keeping));
}
