/*
 * test_architectures.c: every architecture computes what its authors defined, and always the same.
 *
 * What: logits against tests/reference.c (double precision, from the papers) on small f32 models,
 * at positions beyond windows, pages and spans; looser with a cache of f16 and quantized weights.
 * Same: as test_same.c does it, with one setting moved at a time; `ref`; sequences side by side.
 * And what is refused: a file that lacks something, or contradicts itself, is told what.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "reference.h"

#include <math.h>
#include <unistd.h>

/* Of the ways to run, a cache of f32 takes the even ones and one of f16 the odd ones. COUNT is
 * beyond two pages, LONG beyond a span. Sanitizers are slow, and look for something else. */
enum {
    WAYS_STEP = SANITIZED ? 6 : 2,
    LONG_WAYS_STEP = SANITIZED ? 9 : 4,
    WINDOWS_FROM = SANITIZED ? 2 : 0,
    THOROUGH = !SANITIZED,
};
enum { COUNT = 160, ALONE = 3, SHORT = 72, LONG = 1120 };

/* --- the definition --------------------------------------------------------------------------- */

/* Logits of all positions by definition. */
typedef struct definition {
    double *logits; /* count x vocabulary; NULL: none */
    uint32_t vocabulary;
    double range;
} definition;

static definition define(const subject *s) {
    definition d = {0};
    double least = INFINITY, most = -INFINITY;
    reference *r = reference_open(s->path);
    if (r == NULL) return d;
    d.vocabulary = reference_vocabulary(r);
    const size_t all = (size_t)s->count * d.vocabulary;
    d.logits = calloc(all, sizeof *d.logits);
    if (d.logits == NULL) abort();
    reference_logits(d.logits, r, s->tokens, s->count);
    reference_close(r);
    for (size_t i = 0; i < all; i++) {
        least = fmin(least, d.logits[i]);
        most = fmax(most, d.logits[i]);
    }
    d.range = most - least;
    return d;
}

/* How far a run's logits are from them. */
typedef struct comparison {
    const definition *right;
    double worst, squares;       /* largest difference; sum of their squares */
    uint32_t position, id, rows; /* of the worst; rows compared */
} comparison;

static int compare_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                       remat_error *err) {
    comparison *c = user;
    const uint32_t n = c->right->vocabulary;
    (void)run;
    (void)err;
    for (uint32_t i = 0; i < n; i++) {
        const double off = fabs((double)logits[i] - c->right->logits[(size_t)position * n + i]);
        c->squares += off * off;
        if (off <= c->worst) continue;
        c->worst = off;
        c->position = position;
        c->id = i;
    }
    c->rows++;
    return REMAT_OK;
}

/* Scores all tokens but the last. */
static int score(comparison *c, const subject *s, remat_kv kv, remat_error *err) {
    remat_engine *e = NULL;
    remat_sequence *q = NULL;
    const run_config config = same_config(s, kv);
    int status = engine_start(&e, s->path, &config, err);
    if (status == REMAT_OK) status = remat_sequence_open(&q, e, err);
    if (status == REMAT_OK && e->model.shape.vocabulary == c->right->vocabulary) {
        const remat_step step = {.sequence = q, .tokens = s->tokens, .count = s->count};
        const rm_rows_wanted rows = {.fn = compare_row, .user = c, .forget = true};
        status = rm_engine_advance(e, &step, 1, &rows, err);
    }
    remat_close(&e);
    return status;
}

/* worst, mean (root of the mean square): parts of the range of logits. The limits are about ten
 * times what was measured; see the printed lines. */
static void near_definition(const subject *s, const definition *right, remat_kv kv, double worst,
                            double mean) {
    remat_error err = {0};
    comparison c = {.right = right};
    const char *format = kv == REMAT_KV_F32 ? "f32" : "f16";
    const double range = right->range;
    if (score(&c, s, kv, &err) != REMAT_OK || c.rows + 1 != s->count) {
        t_fail("%s: %u rows compared; %s", s->spec->name, c.rows, err.message);
        return;
    }
    const double is_worst = c.worst / range;
    const double is_mean = sqrt(c.squares / ((double)c.rows * right->vocabulary)) / range;
    if (!(range > 2)) t_fail("%s: logits within %g tell nothing", s->spec->name, range);
    if (!(is_worst <= worst && is_mean <= mean))
        t_fail("%s, kv %s: logits are %g of their range from the definition (position %u, id %u), "
               "%g in the mean; %g and %g are allowed",
               s->spec->name, format, is_worst, c.position, c.id, is_mean, worst, mean);
    printf("     %s, kv %s: %.1e of %.1f at most, %.1e in the mean\n", s->spec->name, format,
           is_worst, range, is_mean);
}

/* --- one answer ------------------------------------------------------------------------------- */

static void check(subject *s, const same_run *run) {
    char why[WHY_MAX];
    if (!same_check(why, s, run)) t_fail("%s", why);
}

static void first(subject *s, remat_kv kv) {
    char why[WHY_MAX];
    if (!same_first(why, s, kv)) t_fail("%s", why);
}

static void every_way(subject *s, remat_kv kv, uint32_t from, uint32_t step) {
    same_run run;
    for (uint32_t i = from; same_way(&run, s, kv, i); i += step)
        check(s, &run);
    printf("     %s: %016" PRIx64 " in %u runs\n", s->spec->name,
           record_hash(&s->first, 0, s->count), s->runs);
}

/* The set `ref`: slow, and defines the answer; a few tokens, beyond a page and most windows. */
static void by_ref(subject *s, remat_kv kv) {
    same_run run = {.config = same_config(s, kv), .count = SHORT, .score = true};
    run.config.kernels = "ref";
    run.config.threads = 2;
    check(s, &run);
}

/* Three sequences of different length in one call, then side by side; dropping on top. */
static void batch_mates(const tiny_spec *spec) {
    static const uint32_t counts[BATCH_STREAMS] = {200, 130, 67, 3};
    batch b;
    run_config c = run_config_default(200);
    c.threads = 2;
    c.limits.chunk_rows = 48;
    c.limits.sequence_count = 3;
    c.limits.resident_count = 64;
    if (batch_open(&b, spec, &c, counts)) {
        for (int i = 0; i < 3; i++)
            batch_sequence(&b, i);
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){100, 30, 50, 0});
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){1, 1, 1, 0});
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){70, 1, 9, 0});
        while (batch_step(&b, (const uint32_t[BATCH_STREAMS]){1, 40, 1, 0}))
            continue;
    }
    EXPECT(b.done[0] == 200 && b.done[1] == 130 && b.done[2] == 67);
    if (!batch_compare(&b)) t_fail("%s: batch: %s", spec->name, b.why);
    batch_close(&b);
}

static void architecture(size_t index) {
    const tiny_spec *spec = tiny_spec_architecture(index);
    subject s, half;
    REQUIRE(spec != NULL);
    REQUIRE(subject_open(&s, spec, COUNT, ALONE, 50 + index));
    REQUIRE(subject_open(&half, spec, COUNT, ALONE, 50 + index));
    const definition right = define(&s);
    REQUIRE(right.logits != NULL);
    near_definition(&s, &right, REMAT_KV_F32, 1e-5, 1e-6);
    near_definition(&s, &right, REMAT_KV_F16, 1e-2, 1e-3);
    free(right.logits);
    first(&s, REMAT_KV_F32);
    every_way(&s, REMAT_KV_F32, 0, WAYS_STEP);
    by_ref(&s, REMAT_KV_F32);
    if (THOROUGH) {
        first(&half, REMAT_KV_F16);
        every_way(&half, REMAT_KV_F16, 1, WAYS_STEP);
    }
    batch_mates(spec);
    subject_close(&s);
    subject_close(&half);
}

static void llama(void) {
    architecture(0);
}
static void mistral(void) {
    architecture(1);
}
static void mixtral(void) {
    architecture(2);
}
static void qwen2(void) {
    architecture(3);
}
static void qwen3(void) {
    architecture(4);
}
static void qwen3moe(void) {
    architecture(5);
}
static void gemma3(void) {
    architecture(6);
}
static void gemma3_stretched(void) {
    architecture(7);
}
static void phi3(void) {
    architecture(8);
}
static void phi3_window(void) {
    architecture(9);
    EXPECT(tiny_spec_architecture(10) == NULL);
}

/* Windows that begin before a span, at its edge, and such that are wider than one. */
static void windows_and_spans(void) {
    static const uint32_t windows[] = {2, 1024, 1060};
    for (size_t i = WINDOWS_FROM; i < sizeof windows / sizeof *windows; i++) {
        tiny_spec spec = *tiny_spec_architecture(1);
        char name[64];
        subject s;
        snprintf(name, sizeof name, "mistral, window %u", windows[i]);
        spec.name = name;
        spec.layer_count = 2;
        spec.head_count = 2;
        spec.kv_head_count = 1;
        spec.window = windows[i];
        REQUIRE(subject_open(&s, &spec, LONG, ALONE, 80 + i));
        const definition right = define(&s);
        REQUIRE(right.logits != NULL);
        near_definition(&s, &right, REMAT_KV_F32, 1e-5, 1e-6);
        free(right.logits);
        first(&s, REMAT_KV_F16);
        every_way(&s, REMAT_KV_F16, (uint32_t)i, LONG_WAYS_STEP);
        subject_close(&s);
    }
}

/* Weights in 8 bits, and with them inputs of products: not the definition any more, but near. */
static void quantized_one(tiny_spec spec, double worst, double mean) {
    char name[96];
    subject s;
    snprintf(name, sizeof name, "q8_0, %u of %u experts, %s", spec.expert_used, spec.expert_count,
             spec.name);
    spec.name = name;
    tiny_spec_format(&spec, RM_Q8_0);
    spec.feed_forward = 96;
    if (spec.fused) spec.wo = RM_F16; /* its rows are no whole blocks */
    REQUIRE(subject_open(&s, &spec, COUNT, ALONE, 90));
    const definition right = define(&s);
    REQUIRE(right.logits != NULL);
    near_definition(&s, &right, REMAT_KV_F16, worst, mean);
    free(right.logits);
    first(&s, REMAT_KV_F16);
    every_way(&s, REMAT_KV_F16, 0, 4);
    by_ref(&s, REMAT_KV_F16);
    subject_close(&s);
}

static void quantized(void) {
    static const size_t dense[] = {6, 8};
    for (size_t i = 0; THOROUGH && i < sizeof dense / sizeof *dense; i++)
        quantized_one(*tiny_spec_architecture(dense[i]), 0.04, 0.004);
    tiny_spec spec = *tiny_spec_architecture(5);
    quantized_one(spec, 0.5, 0.015); /* some rows take other experts than by definition */
    spec.expert_used = spec.expert_count;
    quantized_one(spec, 0.04, 0.004); /* here they cannot */
}

/* --- what is refused -------------------------------------------------------------------------- */

static int open_spec(const tiny_spec *spec, remat_error *err) {
    char path[64];
    remat_engine *e = NULL;
    const int fd = tiny_model_open(path, spec);
    const run_config c = run_config_default(64);
    *err = (remat_error){0};
    const int status = engine_start(&e, path, &c, err);
    remat_close(&e);
    close(fd);
    return status;
}

static void refused(const tiny_spec *spec, const char *what, const char *named) {
    remat_error err;
    const int status = open_spec(spec, &err);
    if (status != REMAT_E_MODEL || strstr(err.message, named) == NULL)
        t_fail("%s, %s: status %d, \"%s\" does not name %s", spec->name, what, status, err.message,
               named);
}

enum { DIM = 64, FF = 160, MIXTRAL = 2, QWEN2 = 3, QWEN3 = 4, MOE = 5, GEMMA = 6, PHI = 8 };

/* A tensor is missing, or of another shape: the message says which. */
static void flawed_tensors_are_named(void) {
    static const struct {
        size_t index;
        tiny_flaw flaw;
    } bad[] = {
        {0, {"output_norm.weight", {0}}},
        {0, {"blk.1.attn_k.weight", {0}}},
        {0, {"blk.2.ffn_gate.weight", {DIM, FF + 16}}},
        {MIXTRAL, {"blk.0.ffn_gate_inp.weight", {0}}},
        {MIXTRAL, {"blk.0.ffn_gate_inp.weight", {DIM, 5}}},
        {MIXTRAL, {"blk.1.ffn_gate_exps.weight", {0}}},
        {MIXTRAL, {"blk.1.ffn_up_exps.weight", {DIM, 96, 3}}},
        {MIXTRAL, {"blk.2.ffn_down_exps.weight", {0}}},
        {MIXTRAL, {"blk.2.ffn_down_exps.weight", {96, DIM}}},
        {MIXTRAL, {"blk.2.ffn_down_exps.weight", {DIM, 96, 4}}},
        {QWEN2, {"blk.0.attn_q.bias", {DIM - 1}}},
        {QWEN2, {"blk.0.attn_k.bias", {DIM}}},
        {QWEN2, {"blk.0.attn_v.bias", {16, 2}}},
        {QWEN2, {"blk.0.attn_q.bias", {0}}},
        {QWEN2, {"blk.1.attn_k.bias", {0}}},
        {QWEN2, {"blk.2.attn_v.bias", {0}}},
        {QWEN3, {"blk.0.attn_q_norm.weight", {0}}},
        {QWEN3, {"blk.2.attn_k_norm.weight", {DIM}}},
        {MOE, {"blk.0.ffn_gate_exps.weight", {DIM, 120, 8}}},
        {MOE, {"blk.1.ffn_down_exps.weight", {40, DIM, 9}}},
        {MOE, {"blk.1.attn_k_norm.weight", {0}}},
        {GEMMA, {"blk.0.post_attention_norm.weight", {0}}},
        {GEMMA, {"blk.4.post_ffw_norm.weight", {0}}},
        {GEMMA, {"blk.3.post_ffw_norm.weight", {DIM, 2}}},
        {GEMMA, {"blk.3.attn_q_norm.weight", {0}}},
        {PHI, {"blk.0.attn_qkv.weight", {0}}},
        {PHI, {"blk.0.attn_qkv.weight", {DIM, 179}}},
        {PHI, {"blk.1.attn_qkv.weight", {DIM, 60}}},
        {PHI, {"blk.1.ffn_up.weight", {DIM, 90}}},
        {PHI, {"blk.2.ffn_up.weight", {DIM, 181}}},
        {PHI, {"blk.2.ffn_up.weight", {0}}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_spec spec = *tiny_spec_architecture(bad[i].index);
        char what[96];
        spec.flaw = bad[i].flaw;
        snprintf(what, sizeof what, "%s %s", spec.flaw.tensor,
                 spec.flaw.dims[0] == 0 ? "left out" : "of another shape");
        refused(&spec, what, spec.flaw.tensor);
    }
}

static tiny_key number(const char *name, uint32_t v) {
    return (tiny_key){.name = name, .kind = TINY_U32, .u32 = v};
}
static tiny_key absent(const char *name) {
    return (tiny_key){.name = name, .kind = TINY_ABSENT};
}
static tiny_key real(const char *name, float v) {
    return (tiny_key){.name = name, .kind = TINY_F32, .f32 = v};
}

static void contradicting_keys_are_named(void) {
    const struct {
        size_t index;
        tiny_key key;
        const char *named; /* NULL: the key */
    } bad[] = {
        {1, number("llama.attention.sliding_window", 0), NULL},
        {1, number("llama.attention.sliding_window", 1u << 25), NULL},
        {1, real("llama.attention.sliding_window", 40), NULL},
        {MIXTRAL, number("llama.expert_used_count", 0), NULL},
        {MIXTRAL, number("llama.expert_used_count", 5), NULL},
        {MIXTRAL, absent("llama.expert_used_count"), NULL},
        {MIXTRAL, number("llama.expert_count", 1u << 20), NULL},
        {MIXTRAL, number("llama.expert_count", 3), "ffn_gate_inp.weight"},
        {MIXTRAL, absent("llama.expert_count"), "ffn_gate.weight"},
        {MIXTRAL, number("llama.expert_count", 0), "ffn_gate.weight"},
        {QWEN2, number("qwen2.attention.sliding_window", 64), NULL},
        {MOE, number("qwen3moe.expert_used_count", 0), NULL},
        {MOE, number("qwen3moe.expert_used_count", 9), NULL},
        {MOE, absent("qwen3moe.expert_used_count"), NULL},
        {MOE, number("qwen3moe.expert_count", 0), NULL},
        {MOE, absent("qwen3moe.expert_count"), NULL},
        {MOE, number("qwen3moe.expert_feed_forward_length", 0), NULL},
        {MOE, number("qwen3moe.expert_feed_forward_length", 48), "ffn_gate_exps.weight"},
        {MOE, absent("qwen3moe.expert_feed_forward_length"), "ffn_gate_exps.weight"},
        {GEMMA, number("gemma3.attention.sliding_window", 0), NULL},
        {GEMMA, absent("gemma3.attention.sliding_window"), NULL},
        {GEMMA, number("gemma3.attention.sliding_window_pattern", 0), NULL},
        {GEMMA, real("gemma3.rope.freq_base_swa", 0.5f), NULL},
        {PHI, number("phi3.attention.head_count_kv", 1), "attn_qkv.weight"},
        {PHI, number("phi3.feed_forward_length", 180), "ffn_up.weight"},
        {PHI, number("phi3.rope.dimension_count", 22), "rope.dimension_count"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_spec spec = *tiny_spec_architecture(bad[i].index);
        spec.keys[0] = bad[i].key;
        refused(&spec, bad[i].key.name, bad[i].named != NULL ? bad[i].named : bad[i].key.name);
    }
}

/* What one architecture has is not quietly left out in another. */
static void tensors_of_others_are_named(void) {
    tiny_spec spec = *tiny_spec_architecture(0);
    spec.head_norms = true;
    refused(&spec, "norms of heads", "attn_q_norm.weight");
    spec.head_norms = false;
    spec.post_norms = true;
    refused(&spec, "norms behind", "post_attention_norm.weight");
}

/* Keys that say "none", as files in use have them. */
static void zero_means_none(void) {
    tiny_spec spec = *tiny_spec_architecture(PHI);
    remat_error err;
    spec.keys[0] = number("phi3.attention.sliding_window", 0); /* Phi 4 */
    if (open_spec(&spec, &err) != REMAT_OK) t_fail("%s: %s", spec.name, err.message);
    spec = *tiny_spec_architecture(0);
    spec.keys[0] = number("llama.expert_count", 0);
    spec.keys[1] = number("llama.expert_used_count", 0);
    if (open_spec(&spec, &err) != REMAT_OK) t_fail("%s: %s", spec.name, err.message);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(llama), T(mistral), T(mixtral), T(qwen2), T(qwen3), T(qwen3moe),
                  T(gemma3), T(gemma3_stretched), T(phi3), T(phi3_window), T(windows_and_spans),
                  T(quantized), T(flawed_tensors_are_named), T(contradicting_keys_are_named),
                  T(tensors_of_others_are_named), T(zero_means_none));
}
