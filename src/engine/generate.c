/* generate.c: prompt, sample, append, until something ends it; and scoring. Part: engine. */
#include "base/clock.h"
#include "engine/engine.h"
#include "text/detok.h"

#include <math.h>
#include <string.h>

_Static_assert((int)RM_STOPS_MAX == (int)REMAT_STOPS_MAX, "one limit");
_Static_assert((int)RM_STOP_BYTES_MAX == (int)REMAT_STOP_BYTES_MAX, "one limit");

remat_sampling remat_sampling_default(void) {
    return (remat_sampling){.temperature = 0.8f,
                            .top_k = 40,
                            .top_p = 0.95f,
                            .min_p = 0.05f,
                            .repeat_penalty = 1,
                            .penalty_last = 64};
}

int remat_sampling_check(const remat_engine *e, const remat_sampling *s, remat_error *err) {
    return rm_sampling_check(s, e->model.shape.vocabulary, err);
}

typedef struct generation {
    remat_engine *e;
    remat_sequence *s;
    const remat_generation *how;
    rm_detok detok;
    rm_random random;
    uint32_t made;
} generation;

static bool show(const generation *g, const char *text, size_t bytes) {
    return bytes == 0 || g->how->on_text == NULL || g->how->on_text(g->how->user, text, bytes);
}

/* Hands a token out. False: the generation ends, for the reason in *finish. */
static bool hand_out(generation *g, uint32_t id, remat_finish *finish) {
    const char *text;
    size_t bytes;
    g->made++;
    if (g->how->on_token != NULL && !g->how->on_token(g->how->user, id, g->s->logits)) {
        *finish = REMAT_FINISH_CALLER;
        return false;
    }
    if (rm_token_is_end(g->e->tokenizer, id) && !g->how->ignore_end) {
        *finish = REMAT_FINISH_STOP;
        return false;
    }
    rm_detok_put(&g->detok, id, &text, &bytes);
    if (!show(g, text, bytes)) {
        *finish = REMAT_FINISH_CALLER;
        return false;
    }
    if (g->detok.stopped) {
        *finish = REMAT_FINISH_STOP;
        return false;
    }
    return true;
}

static int run(generation *g, remat_finish *finish, remat_error *err) {
    const remat_generation *how = g->how;
    for (;;) {
        if (g->made == how->token_count) {
            *finish = REMAT_FINISH_LENGTH;
            return REMAT_OK;
        }
        const uint32_t id = rm_sample(g->s->logits, g->e->model.shape.vocabulary, &how->sampling,
                                      g->s->tokens, g->s->count, &g->e->sample_space, &g->random);
        if (!hand_out(g, id, finish)) return REMAT_OK;
        if (g->made == how->token_count) continue; /* its logits would be for nobody */
        if (g->s->count == g->e->setup.context_count) {
            *finish = REMAT_FINISH_CONTEXT;
            return REMAT_OK;
        }
        const remat_step step = {.sequence = g->s, .tokens = &id, .count = 1};
        RM_TRY(rm_engine_advance(g->e, &step, 1, NULL, err));
    }
}

int remat_generate(remat_result *out, remat_sequence *s, const uint32_t *prompt,
                   uint32_t prompt_count, const remat_generation *how, remat_error *err) {
    remat_engine *e = s->engine;
    generation g = {.e = e, .s = s, .how = how};
    remat_result result = {.prompt_count = prompt_count};
    RM_TRY(rm_sampling_check(&how->sampling, e->model.shape.vocabulary, err));
    if (how->stop_count > REMAT_STOPS_MAX)
        return rm_fail(err, REMAT_E_USAGE, "stops: %u are too many; at most %d", how->stop_count,
                       REMAT_STOPS_MAX);
    rm_detok_start(&g.detok, e->tokenizer, e->detok_memory, false);
    g.detok.first = s->count == 0 && prompt_count == 0;
    for (uint32_t i = 0; i < how->stop_count; i++)
        RM_TRY(rm_detok_add_stop(&g.detok, how->stops[i], strlen(how->stops[i]), err));
    rm_random_seed(&g.random, how->sampling.seed);

    const double start = rm_clock_s();
    const remat_step step = {.sequence = s, .tokens = prompt, .count = prompt_count};
    RM_TRY(rm_engine_advance(e, &step, 1, NULL, err));
    const double prefilled = rm_clock_s();
    const int status = run(&g, &result.finish, err);
    const char *text;
    size_t bytes;
    rm_detok_end(&g.detok, &text, &bytes);
    (void)show(&g, text, bytes); /* also after an error: what was made is the caller's */
    RM_TRY(status);
    result.token_count = g.made;
    result.prefill_s = prefilled - start;
    result.decode_s = rm_clock_s() - prefilled;
    *out = result;
    return REMAT_OK;
}

/* --- scoring ---------------------------------------------------------------------------------- */

typedef struct scoring {
    remat_engine *e;
    const uint32_t *tokens;
    uint32_t top_count;
    remat_score_fn *fn;
    void *user;
} scoring;

/* Keeps the best `count` of the logits seen so far, best first; later ids lose ties. */
static void best_of(remat_top *top, uint32_t count, const float *logits, uint32_t n) {
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (have == count && !(logits[i] > top[have - 1].logprob)) continue;
        uint32_t at = have < count ? have++ : have - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (remat_top){.id = i, .logprob = logits[i]};
    }
}

/* The natural logarithm of the sum of exponentials. The sum is relative to the largest. */
static float log_sum(const remat_engine *e, const float *logits) {
    const uint32_t n = e->model.shape.vocabulary;
    const float max = logits[e->kernels->argmax(logits, n)];
    return max + (float)log((double)e->kernels->sum_exp(logits, n, max));
}

static int score_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                     remat_error *err) {
    const scoring *c = user;
    const uint32_t n = c->e->model.shape.vocabulary;
    const uint32_t next = position + 1;
    const uint32_t top_count = c->top_count < n ? c->top_count : n;
    remat_top top[REMAT_TOP_MAX] = {0};
    (void)run;
    (void)err;
    const float lse = log_sum(c->e, logits);
    if (top_count > 0) best_of(top, top_count, logits, n);
    for (uint32_t i = 0; i < top_count; i++)
        top[i].logprob -= lse;
    c->fn(c->user, next, logits[c->tokens[next]] - lse, top, top_count);
    return REMAT_OK;
}

int remat_score(remat_sequence *s, const uint32_t *tokens, uint32_t count, uint32_t top_count,
                remat_score_fn *fn, void *user, remat_error *err) {
    scoring c = {.e = s->engine, .tokens = tokens, .top_count = top_count, .fn = fn, .user = user};
    if (top_count > REMAT_TOP_MAX)
        return rm_fail(err, REMAT_E_USAGE, "score: top %u; at most %d", top_count, REMAT_TOP_MAX);
    if (s->count != 0) return rm_fail(err, REMAT_E_USAGE, "score: the sequence is not empty");
    const remat_step step = {.sequence = s, .tokens = tokens, .count = count};
    const rm_rows_wanted rows = {.fn = score_row, .user = &c, .forget = true};
    return rm_engine_advance(s->engine, &step, 1, &rows, err);
}

typedef struct giving {
    remat_engine *e;
    uint32_t before; /* tokens of the sequence */
    remat_row_fn *fn;
    void *user;
} giving;

static int give_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                    remat_error *err) {
    const giving *g = user;
    (void)run;
    (void)err;
    g->fn(g->user, position - g->before, logits, log_sum(g->e, logits));
    return REMAT_OK;
}

int remat_advance_rows(remat_sequence *s, const uint32_t *tokens, uint32_t count, uint32_t first,
                       remat_row_fn *fn, void *user, remat_error *err) {
    giving g = {.e = s->engine, .before = s->count, .fn = fn, .user = user};
    if (first >= count)
        return rm_fail(err, REMAT_E_USAGE, "rows: from token %u on there are none of %u", first,
                       count);
    const remat_step step = {.sequence = s, .tokens = tokens, .count = count};
    const rm_rows_wanted rows = {.fn = give_row, .user = &g, .first = first};
    return rm_engine_advance(s->engine, &step, 1, &rows, err);
}
