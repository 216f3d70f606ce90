/* cmd_score.c: remat score: log-probabilities of a text, one prefill. Part: app. */
#include "app/choices.h"
#include "base/check.h"

#include <math.h>
#include <string.h>

enum { SCORE_MAX = 1 << 24 };

typedef struct scores {
    float *logprobs;
    remat_top *top; /* top_count for each place */
    uint32_t top_count;
} scores;

static void on_score(void *user, uint32_t index, float logprob, const remat_top *top,
                     uint32_t top_count) {
    scores *s = user;
    s->logprobs[index] = logprob;
    memcpy(s->top + (size_t)index * s->top_count, top, top_count * sizeof *top);
    for (uint32_t i = top_count; i < s->top_count; i++) /* a tiny vocabulary has no more */
        s->top[(size_t)index * s->top_count + i] = (remat_top){.id = UINT32_MAX};
}

static void print_top(rm_json *j, const remat_top *top, uint32_t count) {
    rm_json_open(j, NULL, '[');
    for (uint32_t i = 0; i < count && top[i].id != UINT32_MAX; i++) {
        rm_json_open(j, NULL, '[');
        rm_json_u64(j, NULL, top[i].id);
        rm_json_f64(j, NULL, (double)top[i].logprob, 9);
        rm_json_close(j, ']');
    }
    rm_json_close(j, ']');
}

static void print_json(const scores *s, const app_tokens *tokens, const remat_engine *e) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_open(&j, "tokens", '[');
    for (size_t i = 0; i < tokens->count; i++)
        rm_json_u64(&j, NULL, tokens->ids[i]);
    rm_json_close(&j, ']');
    rm_json_open(&j, "logprobs", '[');
    for (size_t i = 0; i < tokens->count; i++) {
        if (i == 0) {
            rm_json_null(&j, NULL);
        } else {
            rm_json_f64(&j, NULL, (double)s->logprobs[i], 9);
        }
    }
    rm_json_close(&j, ']');
    if (s->top_count > 0) {
        rm_json_open(&j, "top", '[');
        rm_json_null(&j, NULL);
        for (size_t i = 1; i < tokens->count; i++)
            print_top(&j, s->top + i * s->top_count, s->top_count);
        rm_json_close(&j, ']');
    }
    app_json_memory(&j, e, NULL);
    rm_json_close(&j, '}');
    app_printf("\n");
}

static void print_text(const scores *s, const app_tokens *tokens, const remat_engine *e) {
    double sum = 0;
    for (size_t i = 1; i < tokens->count; i++) {
        char text[256];
        const size_t n = remat_token_text(text, sizeof text, e, tokens->ids[i], true, false);
        app_printf("%8u %10.5f  ", tokens->ids[i], (double)s->logprobs[i]);
        for (size_t k = 0; k < n && k < sizeof text; k++) { /* a line is a token */
            const unsigned char c = (unsigned char)text[k];
            if (c < 32 || c == 127) {
                app_printf("\\x%02x", c);
            } else {
                rm_buf_put(app_out(), text + k, 1);
            }
        }
        app_printf("\n");
        sum += (double)s->logprobs[i];
    }
    const double count = tokens->count > 1 ? (double)(tokens->count - 1) : 1;
    app_printf("mean log-probability %.5f, perplexity %.3f over %.0f tokens\n", sum / count,
               exp(-sum / count), tokens->count > 1 ? count : 0.0);
}

static int score(remat_engine *e, const app_args *args, remat_error *err) {
    const unsigned flags = (args->no_special ? 0u : (unsigned)REMAT_SPECIAL) |
                           (args->no_bos ? 0u : (unsigned)REMAT_BOS);
    app_tokens tokens;
    remat_limits limits;
    remat_model_info info;
    remat_sequence *s = NULL;
    scores all = {.top_count = args->top};
    if (args->choices != NULL || args->choices_file != NULL)
        return app_choices_run(e, args, flags, err);
    RM_TRY(app_args_limits(&limits, args, err));
    remat_info(&info, e);
    RM_TRY(app_input_tokens(&tokens, e, args, flags, err));
    if (tokens.count > SCORE_MAX || tokens.count == 0)
        return rm_fail(err, REMAT_E_CONTEXT, "score: %zu tokens; give 1 to %d", tokens.count,
                       SCORE_MAX);
    limits.context_count = (uint32_t)tokens.count;
    if (args->context != APP_UNSET_U32 && args->context > 0) limits.context_count = args->context;
    if (tokens.count > info.context_count)
        app_warn("%zu tokens: the model was made for %u; what it says beyond may be poor",
                 tokens.count, info.context_count);
    RM_TRY(app_alloc(&all.logprobs, e, tokens.count, sizeof *all.logprobs, err));
    RM_TRY(app_alloc(&all.top, e, tokens.count * all.top_count, sizeof *all.top, err));
    RM_TRY(app_start_scoring(e, &limits, false, err));
    RM_TRY(remat_sequence_open(&s, e, err));
    RM_TRY(remat_score(s, tokens.ids, (uint32_t)tokens.count, all.top_count, on_score, &all, err));
    app_progress_end();
    (args->json ? print_json : print_text)(&all, &tokens, e);
    if (args->stats) app_print_stats(e);
    return REMAT_OK;
}

int app_score(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    if (args->top > REMAT_TOP_MAX)
        return rm_fail(err, REMAT_E_USAGE, "--top: %u; at most %d", args->top, REMAT_TOP_MAX);
    if (args->top > 0 && !args->json)
        return rm_fail(err, REMAT_E_USAGE, "--top: the most likely tokens are for --json");
    if (args->choices != NULL && args->choices_file != NULL)
        return rm_fail(err, REMAT_E_USAGE, "--choices, --choices-file: give one of them");
    const bool choices = args->choices != NULL || args->choices_file != NULL;
    if (choices && (args->tokens != NULL || args->top > 0))
        return rm_fail(err, REMAT_E_USAGE, "--choices: --tokens and --top are not for choices");
    RM_TRY(app_open(&e, args, false, err));
    const int status = score(e, args, err);
    app_close(&e);
    return status;
}
