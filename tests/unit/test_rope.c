/*
 * test_rope.c: rotary position embedding and its scalings: what must be the same, bit for bit; the
 * frequencies against the formulas in the C library's own arithmetic; and whole models against the
 * numbers of an outside engine (tests/golden/toys: llama.cpp through xllamacpp, f16 KV).
 */
#include "base/hash.h"
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <math.h>
#include <unistd.h>

/* --- toys ------------------------------------------------------------------------------------- */

enum { TOP = 3, TOKENS_MAX = 128 };

/* Logits after the toys' prompt: their hash, and the best tokens. */
typedef struct toy_answer {
    uint64_t hash;
    remat_top top[TOP];
} toy_answer;

static void best_three(remat_top top[TOP], const float *logits, uint32_t vocabulary) {
    double sum = 0;
    for (uint32_t i = 0; i < vocabulary; i++)
        sum += exp((double)logits[i]);
    for (int k = 0; k < TOP; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < vocabulary; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++)
                taken = taken || top[j].id == i;
            if (!taken && (best == UINT32_MAX || logits[i] > logits[best])) best = i;
        }
        top[k] = (remat_top){.id = best, .logprob = (float)((double)logits[best] - log(sum))};
    }
}

static bool ask_toy(toy_answer *out, const char *name) {
    static const char half[] = "the thing he an on the to in her the then ";
    char path[128], text[2 * sizeof half];
    snprintf(path, sizeof path, "tests/golden/toys/toy_%s.gguf", name);
    snprintf(text, sizeof text, "%s%s", half, half);
    remat_options o = remat_options_default();
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    uint32_t tokens[TOKENS_MAX];
    size_t count = 0;
    o.memory_bytes = 64u << 20;
    o.thread_count = 1;
    const remat_limits l = remat_limits_default();
    if (remat_open(&e, path, &o, &err) != REMAT_OK ||
        remat_tokenize(tokens, TOKENS_MAX, &count, e, text, strlen(text), REMAT_BOS, &err) !=
            REMAT_OK ||
        remat_start(e, &l, &err) != REMAT_OK || remat_sequence_open(&s, e, &err) != REMAT_OK) {
        t_fail("%s: %s", name, err.message);
        remat_close(&e);
        return false;
    }
    const remat_step step = {.sequence = s, .tokens = tokens, .count = (uint32_t)count};
    const int status = remat_advance(e, &step, 1, &err);
    if (status == REMAT_OK) {
        const uint32_t v = e->model.shape.vocabulary;
        out->hash = rm_hash(remat_logits(s), v * sizeof(float), 0);
        best_three(out->top, remat_logits(s), v);
    } else {
        t_fail("%s: %s", name, err.message);
    }
    remat_close(&e);
    return status == REMAT_OK;
}

#define NEED_TOYS()                                                                                \
    if (access("tests/golden/toys/toy_base.gguf", R_OK) != 0) SKIP("no toys; start in the tree")

static void toys_that_are_equal(void) {
    static const char *const same[] = {"freqs1", "linear1", "yarn1", "none8"};
    NEED_TOYS();
    toy_answer base, a, linear8, yarn4;
    REQUIRE(ask_toy(&base, "base"));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        REQUIRE(ask_toy(&a, same[i]));
        if (a.hash != base.hash) t_fail("toy_%s is not toy_base", same[i]);
    }
    REQUIRE(ask_toy(&linear8, "linear8") && ask_toy(&a, "freqs8") && ask_toy(&yarn4, "yarn4"));
    EXPECT(a.hash == linear8.hash);
    EXPECT(a.hash != base.hash && yarn4.hash != base.hash && yarn4.hash != a.hash);
}

static void toys_against_an_outside_engine(void) {
    static const struct {
        const char *name;
        remat_top top[TOP];
    } known[] = {
        {"base", {{294, -4.78102f}, {126, -5.00665f}, {68, -5.05013f}}},
        {"linear8", {{184, -4.84698f}, {294, -4.85164f}, {30, -5.04495f}}},
        {"freqs8", {{184, -4.84698f}, {294, -4.85164f}, {30, -5.04495f}}},
        {"yarn4", {{171, -4.80914f}, {248, -4.85118f}, {126, -4.87313f}}},
    };
    NEED_TOYS();
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        toy_answer a;
        REQUIRE(ask_toy(&a, known[i].name));
        for (int k = 0; k < TOP; k++) {
            const remat_top right = known[i].top[k];
            if (a.top[k].id != right.id || fabsf(a.top[k].logprob - right.logprob) > 0.02f)
                t_fail("toy_%s: (%u, %.5f), not (%u, %.5f)", known[i].name, a.top[k].id,
                       (double)a.top[k].logprob, right.id, (double)right.logprob);
        }
    }
}

/* --- frequencies ------------------------------------------------------------------------------ */

static tiny_key text_key(const char *name, const char *text) {
    return (tiny_key){.name = name, .kind = TINY_TEXT, .text = text};
}
static tiny_key f32_key(const char *name, float v) {
    return (tiny_key){.name = name, .kind = TINY_F32, .f32 = v};
}
static tiny_key u32_key(const char *name, uint32_t v) {
    return (tiny_key){.name = name, .kind = TINY_U32, .u32 = v};
}

static tiny_spec one_layer(void) {
    tiny_spec s = tiny_spec_default();
    s.layer_count = 1;
    s.head_dim = 64;
    s.head_count = 2;
    s.kv_head_count = 1;
    return s;
}

enum { PAIRS = 32 };

/* The frequencies a model computes with; status of opening and starting otherwise. */
static int frequencies(double out[PAIRS], float *scale, const tiny_spec *spec, remat_error *err) {
    char path[64];
    remat_engine *e = NULL;
    const int fd = tiny_model_open(path, spec);
    const run_config c = run_config_default(64);
    const int status = engine_start(&e, path, &c, err);
    if (status == REMAT_OK) {
        memcpy(out, e->model.rope[RM_ROPE_MAIN].frequency, PAIRS * sizeof *out);
        *scale = e->model.rope[RM_ROPE_MAIN].scale;
    }
    remat_close(&e);
    close(fd);
    return status;
}

static void expect_frequencies(const tiny_spec *spec, const double right[PAIRS], double scale) {
    double got[PAIRS];
    float got_scale = 0;
    remat_error err = {0};
    if (frequencies(got, &got_scale, spec, &err) != REMAT_OK) {
        t_fail("%s", err.message);
        return;
    }
    for (int i = 0; i < PAIRS; i++) {
        if (!(fabs(got[i] / right[i] - 1) < 1e-12))
            t_fail("pair %d: %.17g, not %.17g", i, got[i], right[i]);
    }
    EXPECT(fabs((double)got_scale / scale - 1) < 1e-6);
}

static double plain(int pair, double base) {
    return pow(base, -2.0 * pair / (2 * PAIRS));
}

static void none_and_linear(void) {
    static const float bases[] = {10000, 500000, 1e6f, 100};
    double right[PAIRS];
    for (size_t b = 0; b < 4; b++) {
        tiny_spec s = one_layer();
        s.keys[0] = f32_key("llama.rope.freq_base", bases[b]);
        for (int i = 0; i < PAIRS; i++)
            right[i] = plain(i, (double)bases[b]);
        expect_frequencies(&s, right, 1);
        s.keys[1] = text_key("llama.rope.scaling.type", "linear");
        s.keys[2] = f32_key("llama.rope.scaling.factor", 8);
        for (int i = 0; i < PAIRS; i++)
            right[i] /= 8;
        expect_frequencies(&s, right, 1);
        s.keys[1] = f32_key("llama.rope.scale_linear", 8); /* older files */
        s.keys[2] = (tiny_key){0};
        expect_frequencies(&s, right, 1);
    }
}

static void factors_divide(void) {
    tiny_spec s = one_layer();
    double right[PAIRS];
    s.rope_factors = 9;
    for (int i = 0; i < PAIRS; i++)
        right[i] = plain(i, 10000) / (double)(1 + 8 * (float)i / (PAIRS - 1));
    expect_frequencies(&s, right, 1);
}

/* Llama 3.1: by wavelength, with its own numbers and a context of 8,192. */
static void llama3(void) {
    const double factor = 8, low = 1, high = 4, original = 8192, pi = acos(-1);
    double right[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        const double f = plain(i, 500000), wavelength = 2 * pi / f;
        const double smooth = (original / wavelength - low) / (high - low);
        right[i] = wavelength < original / high  ? f
                   : wavelength > original / low ? f / factor
                                                 : (1 - smooth) * f / factor + smooth * f;
    }
    tiny_spec s = one_layer();
    s.keys[0] = f32_key("llama.rope.freq_base", 500000);
    s.keys[1] = text_key("llama.rope.scaling.type", "llama3");
    s.keys[2] = f32_key("llama.rope.scaling.factor", 8);
    s.keys[3] = u32_key("llama.rope.scaling.original_context_length", 8192);
    expect_frequencies(&s, right, 1);
    EXPECT(right[0] == plain(0, 500000) && right[PAIRS - 1] < plain(PAIRS - 1, 500000) / 7.9);
}

static void yarn(void) {
    const double factor = 4, original = 256, base = 10000, pi = acos(-1);
    const double low = fmax(0, floor(PAIRS * log(original / (32 * 2 * pi)) / log(base)));
    const double high = fmin(2 * PAIRS - 1, ceil(PAIRS * log(original / (1 * 2 * pi)) / log(base)));
    double right[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        const double ramp = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        right[i] = plain(i, base) * (ramp / factor + 1 - ramp);
    }
    tiny_spec s = one_layer();
    s.keys[0] = text_key("llama.rope.scaling.type", "yarn");
    s.keys[1] = f32_key("llama.rope.scaling.factor", 4);
    s.keys[2] = u32_key("llama.rope.scaling.original_context_length", 256);
    expect_frequencies(&s, right, 1 + 0.1 * log(factor));
}

/* On long positions too: equal scalings give equal bits, others do not. */
static uint64_t long_hash(const tiny_spec *spec) {
    enum { COUNT = 1200 };
    static uint32_t tokens[COUNT];
    static const uint32_t one_piece[] = {0};
    char path[64];
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    uint64_t hash = 0;
    const int fd = tiny_model_open(path, spec);
    const run_config c = run_config_default(COUNT);
    tiny_tokens(tokens, COUNT, spec->vocabulary, 4);
    if (engine_start(&e, path, &c, &err) == REMAT_OK &&
        remat_sequence_open(&s, e, &err) == REMAT_OK &&
        feed(e, s, NULL, tokens, 0, COUNT, one_piece, &err) == REMAT_OK)
        hash = rm_hash(remat_logits(s), spec->vocabulary * sizeof(float), 0);
    else
        t_fail("%s", err.message);
    remat_close(&e);
    close(fd);
    return hash;
}

static tiny_spec scaled(const char *type, float factor) {
    tiny_spec s = one_layer();
    s.keys[0] = text_key("llama.rope.scaling.type", type);
    s.keys[1] = f32_key("llama.rope.scaling.factor", factor);
    return s;
}

static void identities(void) {
    const tiny_spec none = one_layer(), linear1 = scaled("linear", 1), yarn1 = scaled("yarn", 1),
                    none8 = scaled("none", 8), linear4 = scaled("linear", 4),
                    yarn4 = scaled("yarn", 4);
    tiny_spec factors1 = one_layer();
    factors1.rope_factors = 1;
    const uint64_t h = long_hash(&none);
    EXPECT_EQ_U64(long_hash(&linear1), h);
    EXPECT_EQ_U64(long_hash(&yarn1), h);
    EXPECT_EQ_U64(long_hash(&none8), h);
    EXPECT_EQ_U64(long_hash(&factors1), h);
    EXPECT(long_hash(&linear4) != h);
    EXPECT(long_hash(&yarn4) != h);
}

static void damaged_numbers(void) {
    static const struct {
        tiny_key key[3];
        const char *named;
    } bad[] = {
        {{{.name = "llama.rope.freq_base", .kind = TINY_F32, .f32 = 1}}, "freq_base"},
        {{{.name = "llama.rope.freq_base", .kind = TINY_F32, .f32 = NAN}}, "freq_base"},
        {{{.name = "llama.rope.scaling.type", .kind = TINY_TEXT, .text = "longrope"}}, "longrope"},
        {{{.name = "llama.rope.scaling.factor", .kind = TINY_F32, .f32 = -1}}, "factor"},
        {{{.name = "llama.rope.scaling.original_context_length", .kind = TINY_U32, .u32 = 0}},
         "original_context_length"},
        {{{.name = "llama.rope.scaling.high_freq_factor", .kind = TINY_F32, .f32 = 1}}, "scaling"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tiny_spec s = one_layer();
        double got[PAIRS];
        float scale;
        remat_error err = {0};
        memcpy(s.keys, bad[i].key, sizeof bad[i].key);
        if (frequencies(got, &scale, &s, &err) != REMAT_E_MODEL ||
            strstr(err.message, bad[i].named) == NULL)
            t_fail("%s: %s", bad[i].named, err.message);
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(toys_that_are_equal), T(toys_against_an_outside_engine),
                  T(none_and_linear), T(factors_divide), T(llama3), T(yarn), T(identities),
                  T(damaged_numbers));
}
