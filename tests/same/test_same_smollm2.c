/*
 * test_same_smollm2.c: one answer, on a real model: SmolLM2-135M-Instruct in Q4_1, 30 layers, heads
 * of 64, 49,152 tokens. Skipped when the file is not under models/.
 *
 * 700 tokens of a seed as the prompt, then four more one at a time; every row of every layer and
 * the logits must have the same bits in every run.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

enum { PROMPT = 700, LAST = 4, COUNT = PROMPT + LAST, LAYERS = 30, VOCABULARY = 49152 };

static const uint32_t ONE_PIECE[] = {0}, ONE_BY_ONE[] = {1, 0}, ODD[] = {333, 1, 64, 0};

static uint32_t tokens[COUNT];
static record first;

static run_config config(uint32_t threads, uint32_t chunk, const char *kernels, uint32_t resident) {
    run_config c = run_config_default(COUNT);
    c.threads = threads;
    c.kernels = kernels;
    c.limits.chunk_rows = chunk;
    c.limits.resident_count = resident;
    return c;
}

/* last: tokens that are appended alone. */
static void run_into(record *to, const run_config *c, const uint32_t *pieces, uint32_t last) {
    remat_error err = {0};
    remat_engine *e = NULL;
    remat_sequence *q = NULL;
    recorder r;
    int status = engine_start(&e, smollm2_path(), c, &err);
    if (status == REMAT_OK) status = remat_sequence_open(&q, e, &err);
    if (status == REMAT_OK) {
        recorder_attach(&r, e);
        recorder_follow(&r, q, to);
        status = feed(e, q, to, tokens, 0, PROMPT, pieces, &err);
        if (status == REMAT_OK)
            status = feed(e, q, to, tokens, PROMPT, PROMPT + last, ONE_BY_ONE, &err);
        remat_stats stats;
        remat_stats_get(&stats, e);
        EXPECT((stats.recomputed_tokens > 0) == (c->limits.cold == REMAT_COLD_DROP));
        EXPECT((stats.spill_read_bytes > 0) == (c->limits.cold == REMAT_COLD_SPILL));
        EXPECT((stats.weight_read_bytes > 0) == (c->limits.weights == REMAT_WEIGHTS_STREAM));
    }
    char text[CONFIG_TEXT];
    run_config_text(text, c);
    if (status != REMAT_OK) t_fail("%s: %s", text, err.message);
    remat_close(&e);
}

static void run_same(run_config c, const uint32_t *pieces, uint32_t last) {
    record now;
    char text[CONFIG_TEXT];
    run_config_text(text, &c);
    record_open(&now, LAYERS, COUNT);
    run_into(&now, &c, pieces, last);
    const difference d = record_compare(&first, &now);
    if (d.found) t_fail("%s: %s", text, d.text);
    EXPECT(d.compared >= PROMPT * (LAYERS - 1) + 1 + last);
    record_close(&now);
}

static bool have_first(void) {
    if (smollm2_path() == NULL) return false;
    if (first.hidden != NULL) return true;
    tiny_tokens(tokens, COUNT, VOCABULARY, 42);
    record_open(&first, LAYERS, COUNT);
    const run_config c = config(1, 512, NULL, REMAT_ALL);
    run_into(&first, &c, ONE_PIECE, LAST);
    EXPECT(record_hash(&first, PROMPT - 1, COUNT) != 0);
    printf("     %016" PRIx64 "\n", record_hash(&first, PROMPT - 1, COUNT));
    return true;
}

#define NEED_MODEL()                                                                               \
    if (!have_first()) SKIP("no SmolLM2 file of 98362432 bytes under models/")

static void threads_and_chunks(void) {
    NEED_MODEL();
    run_same(config(2, 64, NULL, REMAT_ALL), ONE_PIECE, LAST);
    run_same(config(2, 512, NULL, REMAT_ALL), ODD, LAST);
}

static void kernel_sets_agree(void) {
    NEED_MODEL();
    const char *const *sets = kernel_sets();
    for (size_t i = 1; sets[i] != NULL; i++) {
        if (strcmp(sets[i], "ref") != 0)
            run_same(config(2, 512, sets[i], REMAT_ALL), ONE_PIECE, LAST);
    }
}

static void cold(remat_cold how, remat_weights weights, uint32_t chunk, uint32_t resident) {
    run_config c = config(2, chunk, NULL, resident);
    c.limits.cold = how;
    c.limits.weights = weights;
    run_same(c, ONE_PIECE, how == REMAT_COLD_DROP ? 1 : LAST);
}

static void dropped_and_recomputed(void) {
    NEED_MODEL();
    cold(REMAT_COLD_DROP, REMAT_WEIGHTS_RESIDENT, 64, 256);
    cold(REMAT_COLD_DROP, REMAT_WEIGHTS_RESIDENT, 512, 0);
}

static void spilled_and_streamed(void) {
    NEED_MODEL();
    cold(REMAT_COLD_SPILL, REMAT_WEIGHTS_RESIDENT, 64, 256);
    cold(REMAT_COLD_SPILL, REMAT_WEIGHTS_STREAM, 128, 0);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(threads_and_chunks), T(kernel_sets_agree),
                  T(dropped_and_recomputed), T(spilled_and_streamed));
}
