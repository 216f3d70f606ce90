/*
 * test_setups.c: one answer, over the memory engine: where pages, hidden rows and weights are, how
 * they go and come back, chunks and threads; several sequences, turns that are taken back, scoring.
 * Every setup is given the same kind of conversation as an engine with all memory (twins.h), and
 * every logit and hidden state has to be the same.
 *
 * All settings with all others are some ten thousand setups: each run takes a sample, always the
 * same one (SETUPS=n: so many for each model, from number FIRST=n on).
 */
#include "harness.h"
#include "twins.h"

enum { SAMPLE = SANITIZED ? 3 : 24, LONG_SAMPLE = SANITIZED ? 2 : 16 };

/* --- setups ----------------------------------------------------------------------------------- */

/* Numbers from a run's number: the same on every machine, whatever the test's seed is. */
typedef struct dice {
    uint64_t state;
} dice;

static uint32_t roll(dice *d, uint32_t n) {
    uint64_t x = d->state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((x ^ x >> 31) % n);
}

#define PICK(d, list) (list)[roll(d, sizeof(list) / sizeof *(list))]

static run_config setup_of(dice *d, const tiny_spec *spec) {
    static const uint32_t chunks[] = {16, 32, 64, 512, 64, 128, 7, 100, 1};
    static const remat_recompute ways[] = {REMAT_RECOMPUTE_AUTO, REMAT_RECOMPUTE_BLOCK,
                                           REMAT_RECOMPUTE_LAYER, REMAT_RECOMPUTE_SELECTIVE,
                                           REMAT_RECOMPUTE_FULL};
    static const uint32_t residents[] = {REMAT_ALL, REMAT_ALL, REMAT_ALL, 0, 128};
    static const uint32_t keeps[] = {0, 0, 100, REMAT_ALL}, pages[] = {0, 2, 9, 25, 60, 200};
    static const uint32_t units[] = {0, 3, 5, 8, 8};
    run_config c = run_config_default(0);
    remat_limits *l = &c.limits;
    c.threads = 1 + roll(d, 3);
    static const remat_cold colds[] = {REMAT_COLD_DROP, REMAT_COLD_SPILL, REMAT_COLD_SPILL,
                                       REMAT_COLD_INPUTS, REMAT_COLD_CHECKPOINT};
    static const uint32_t drops[] = {0, 0, 1, 3, 100};
    l->cold = PICK(d, colds);
    l->recompute = PICK(d, ways);
    l->chunk_rows = PICK(d, chunks);
    l->logits_rows = roll(d, 2) == 0 ? 1 : 16;
    l->resident_count = PICK(d, residents);
    l->keep_count = PICK(d, keeps);
    c.setup = (given_setup){.given = true,
                            .rows = (given_rows)roll(d, 3),
                            .more_pages = PICK(d, pages),
                            .units = PICK(d, units),
                            .roomy = roll(d, 2) == 0};
    c.setup.drop_columns = PICK(d, drops);
    if (l->cold == REMAT_COLD_INPUTS && l->chunk_rows < 64) l->chunk_rows = 64;
    const bool again = l->cold != REMAT_COLD_SPILL || c.setup.drop_columns > 0;
    if (c.setup.rows == GIVEN_CHUNK && again) c.setup.rows = GIVEN_MEMORY;
    if (c.setup.rows == GIVEN_DISK && !rm_rows_can_spill(spec->dim)) c.setup.rows = GIVEN_MEMORY;
    if (c.setup.rows == GIVEN_DISK && l->chunk_rows % 64 != 0) l->chunk_rows = 64;
    return c;
}

/* --- a conversation --------------------------------------------------------------------------- */

static void run_step(twins *t, uint32_t a, uint32_t b, uint32_t c) {
    (void)twins_step(t, (const uint32_t[TWINS]){a, b, c});
}

/* Prompts, tokens one by one, turns that are taken back, a sequence that waits and one that begins
 * again; scoring in between. */
static void talk(twins *t, dice *d) {
    const uint32_t all = t->context;
    run_step(t, all / 2 + roll(d, 64), 70, 0);
    run_step(t, 1, 0, 0); /* the second one waits */
    run_step(t, 1, 1, 0);
    run_step(t, roll(d, 150), 1, roll(d, 100));
    run_step(t, 1, roll(d, 90), 1);
    twins_truncate(t, 0, all / 4 + roll(d, all / 4));
    run_step(t, 1 + roll(d, 3), 0, 0);
    run_step(t, 1, 1, 1);
    twins_truncate(t, 0, roll(d, all / 4));
    if (t->sequences > 1) (void)twins_reopen(t, 1);
    run_step(t, all, 33, 0); /* all that fit */
    twins_truncate(t, 0, twins_count(t, 0) - 3);
    run_step(t, 1, 2, 0);
    run_step(t, 1, 1, 1);
    if (roll(d, 3) == 0) (void)twins_score(t, 0, 1 + roll(d, all));
}

static uint32_t number(const char *name, uint32_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

/* What the runs of a model have shown, all together. */
typedef struct seen {
    uint64_t recomputed, spilled, rows, streamed, compared;
} seen;

static void run_setups(const tiny_spec *spec, uint32_t sequences, uint32_t context, remat_kv kv,
                       uint32_t sample, seen *shown) {
    twins t;
    const uint32_t first = number("FIRST", 0), runs = number("SETUPS", sample);
    if (!twins_open(&t, spec, sequences, context, kv)) t_fail("%s", t.why);
    for (uint32_t i = first; i < first + runs && t.free != NULL; i++) {
        dice d = {.state = spec->seed * 1000003 + i};
        const run_config c = setup_of(&d, spec);
        if (twins_start(&t, &c)) {
            talk(&t, &d);
            const remat_stats s = twins_stats(&t);
            shown->recomputed += s.recomputed_tokens;
            shown->spilled += s.spill_read_bytes;
            shown->rows += t.tight->setup.row_max == 0;
            shown->streamed += s.weight_read_bytes;
            shown->compared += t.compared;
            if (s.healed_count > 0 || t.warnings > 0)
                t_fail("setup %u; %s; %s: healed %" PRIu64 " times, %u warnings: %s", i, spec->name,
                       t.config, s.healed_count, t.warnings, t.tight->spill.trouble);
        }
        if (t.why[0] != '\0') t_fail("setup %u: %s", i, t.why);
    }
    twins_close(&t);
}

static void model(const tiny_spec *spec, uint32_t sequences, uint32_t context, remat_kv kv,
                  uint32_t sample) {
    seen s = {0};
    run_setups(spec, sequences, context, kv, sample, &s);
    printf("     %s: %" PRIu64 " cells; %" PRIu64 " tokens again, %" PRIu64
           " KiB read back, %" PRIu64 " KiB of weights\n",
           spec->name, s.compared, s.recomputed, s.spilled >> 10, s.streamed >> 10);
    EXPECT(s.compared > 100);
    if (sample < 10) return; /* some ways may not be among them */
    EXPECT(s.recomputed > 0 && s.spilled > 0 && s.streamed > 0);
    EXPECT(s.rows > 0 || !rm_rows_can_spill(spec->dim));
}

static void llama(void) {
    tiny_spec spec = tiny_spec_default();
    model(&spec, 2, 420, REMAT_KV_F16, SAMPLE);
}

/* Attention in several bands: the past is longer than the stage. */
static void long_contexts(void) {
    tiny_spec spec = tiny_spec_default();
    spec.seed = 77;
    spec.name = "q8_0, long";
    model(&spec, 1, 2600, REMAT_KV_F16, LONG_SAMPLE);
}

static void long_contexts_with_windows(void) {
    tiny_spec spec = *tiny_spec_architecture(7);
    spec.name = "gemma3, long";
    model(&spec, 2, 2300, REMAT_KV_F16, LONG_SAMPLE / 2);
}

static void wide_caches(void) {
    tiny_spec spec = tiny_spec_default();
    spec.name = "6 layers, MHA, heads of 32, f32 cache";
    spec.layer_count = 6;
    spec.kv_head_count = 4;
    spec.head_dim = 32;
    model(&spec, 3, 500, REMAT_KV_F32, SAMPLE);
}

/* 64 rows of it are no whole pages of 4096 bytes: they cannot be spilled. */
static void odd_width(void) {
    tiny_spec spec = tiny_spec_default();
    tiny_spec_format(&spec, RM_F16);
    spec.name = "f16, dim 72";
    spec.dim = 72;
    spec.head_dim = 18;
    spec.kv_head_count = 1;
    EXPECT(!rm_rows_can_spill(spec.dim));
    model(&spec, 2, 400, REMAT_KV_F16, SAMPLE);
}

static void gemma3(void) {
    model(tiny_spec_architecture(6), 2, 500, REMAT_KV_F16, SAMPLE);
    model(tiny_spec_architecture(7), 3, 600, REMAT_KV_F32, SAMPLE);
}

static void windows_everywhere(void) {
    model(tiny_spec_architecture(1), 2, 400, REMAT_KV_F16, SAMPLE);
    model(tiny_spec_architecture(9), 2, 400, REMAT_KV_F32, SAMPLE / 2 + 1);
}

static void experts(void) {
    tiny_spec spec = *tiny_spec_architecture(5);
    spec.name = "qwen3moe, q8_0";
    tiny_spec_format(&spec, RM_Q8_0);
    spec.feed_forward = 96;
    model(&spec, 2, 400, REMAT_KV_F16, SAMPLE);
    model(tiny_spec_architecture(2), 2, 400, REMAT_KV_F16, SAMPLE / 2 + 1);
}

/* Formats, untied outputs, biases: what streams goes through the same strips. */
static void formats(void) {
    for (size_t i = 1; tiny_spec_all(i) != NULL; i++)
        model(tiny_spec_all(i), 1 + (uint32_t)i % 2, 300, REMAT_KV_F16, SAMPLE / 4 + 1);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(llama), T(long_contexts), T(long_contexts_with_windows),
                  T(wide_caches), T(odd_width), T(gemma3), T(windows_everywhere), T(experts),
                  T(formats));
}
