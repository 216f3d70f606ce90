/* cmd_eval.c: remat eval: what is asked for, and the text's windows. See eval.h. Part: app. */
#include "app/eval.h"
#include "app/plot.h"
#include "base/io.h"

#include <string.h>

enum { WINDOW_DEFAULT = 512, WINDOW_LEAST = 3, TEXT_MAX = 1 << 28 };

/* --- windows ---------------------------------------------------------------------------------- */

/* Control tokens written in a text stay text here, as in llama.cpp. */
static int text_tokens(app_tokens *out, remat_engine *e, const app_args *args, remat_error *err) {
    app_text text;
    if (args->tokens != NULL) return app_read_tokens(out, e, args->tokens, err);
    RM_TRY(app_read_text(&text, e, args, err));
    if (text.count == 0)
        return rm_fail(err, REMAT_E_USAGE, "eval: the text is empty; give one of a window or more");
    RM_TRY(app_alloc(&out->ids, e, text.count + 2, sizeof *out->ids, err));
    return remat_tokenize(out->ids, text.count + 2, &out->count, e, text.bytes, text.count,
                          REMAT_BOS, err);
}

/* How many tokens a window has, how many apart they are, and what of them counts. */
static int window_shape(app_logprobs_shape *out, const app_args *args, remat_error *err) {
    const bool given = args->context != APP_UNSET_U32 && args->context > 0;
    out->window = given ? args->context : WINDOW_DEFAULT;
    out->stride = args->stride > 0 ? args->stride : out->window;
    if (out->window < WINDOW_LEAST)
        return rm_fail(err, REMAT_E_USAGE,
                       "-c: a window of %u tokens predicts nothing; at least %d", out->window,
                       WINDOW_LEAST);
    if (args->stride >= out->window && args->stride > 0)
        return rm_fail(err, REMAT_E_USAGE,
                       "--ppl-stride: %u tokens leave some out between windows of %u; give fewer",
                       args->stride, out->window);
    out->first = args->stride > 0 ? out->window - args->stride : out->window / 2 + 1;
    return REMAT_OK;
}

static int cut(app_windows *w, remat_engine *e, const app_args *args, remat_error *err) {
    app_logprobs_shape *s = &w->shape;
    RM_TRY(window_shape(s, args, err));
    RM_TRY(text_tokens(&w->text, e, args, err));
    if (w->text.count > TEXT_MAX)
        return rm_fail(err, REMAT_E_CONTEXT, "eval: %zu tokens; at most %d", w->text.count,
                       TEXT_MAX);
    if (w->text.count < s->window)
        return rm_fail(
            err, REMAT_E_CONTEXT,
            "eval: the text has %zu tokens, less than a window of %u; give a longer text "
            "or a smaller -c",
            w->text.count, s->window);
    for (size_t i = 0; i < w->text.count; i++) {
        if (w->text.ids[i] >= s->vocabulary)
            return rm_fail(err, REMAT_E_FAILED,
                           "token %u at place %zu is outside the vocabulary of %u; use ids of this "
                           "model",
                           w->text.ids[i], i, s->vocabulary);
    }
    s->window_count = (uint32_t)((w->text.count - s->window) / s->stride) + 1;
    return REMAT_OK;
}

/* The windows of a file that --save-base has made, and of its text. */
static int windows_of_base(app_windows *w, remat_engine *e, const app_args *args,
                           remat_error *err) {
    const uint32_t vocabulary = w->shape.vocabulary;
    if (args->file != NULL || args->prompt != NULL || args->tokens != NULL || args->from_stdin)
        return rm_fail(err, REMAT_E_USAGE, "--base: its file has the text; give no other");
    RM_TRY(app_logprobs_open(&w->base, args->base, err));
    w->compared = true;
    w->shape = w->base.shape;
    if (w->shape.vocabulary != vocabulary)
        return rm_fail(
            err, REMAT_E_FAILED,
            "%s: it is of a vocabulary of %u, the model's has %u; compare models with the "
            "same tokens",
            w->base.file.path, w->shape.vocabulary, vocabulary);
    if ((args->context != APP_UNSET_U32 && args->context > 0 && args->context != w->shape.window) ||
        (args->stride > 0 && args->stride != w->shape.stride))
        return rm_fail(err, REMAT_E_USAGE,
                       "--base: its windows have %u tokens, one every %u; leave out -c and "
                       "--ppl-stride",
                       w->shape.window, w->shape.stride);
    w->text.count = app_logprobs_tokens(&w->shape);
    RM_TRY(app_alloc(&w->text.ids, e, w->text.count, sizeof *w->text.ids, err));
    return app_logprobs_read_tokens(w->text.ids, &w->base, err);
}

/* The begin-of-text token that the model wants; UINT32_MAX: none. */
static int find_bos(uint32_t *out, remat_engine *e, remat_error *err) {
    size_t count;
    uint32_t ids[4];
    *out = UINT32_MAX;
    RM_TRY(remat_tokenize(ids, 4, &count, e, "", 0, REMAT_BOS, err));
    if (count > 0) *out = ids[0];
    return REMAT_OK;
}

static int text_windows(app_windows *w, remat_engine *e, const app_args *args, remat_error *err) {
    remat_model_info info;
    remat_info(&info, e);
    w->shape.vocabulary = info.vocabulary_count;
    RM_TRY(find_bos(&w->bos, e, err));
    RM_TRY((args->base != NULL ? windows_of_base : cut)(w, e, args, err));
    if (args->chunks > 0 && args->chunks < w->shape.window_count)
        w->shape.window_count = args->chunks;
    if (w->shape.window > info.context_count)
        app_warn("windows of %u tokens: the model was made for %u; what it says beyond may be poor",
                 w->shape.window, info.context_count);
    return REMAT_OK;
}

/* --- the command ------------------------------------------------------------------------------ */

static int check(const app_args *args, remat_error *err) {
    const bool needle = args->lengths.count > 0 || args->depths.count > 0 || args->repeat > 0;
    const bool text = args->base != NULL || args->save_base != NULL || args->chunks > 0 ||
                      args->stride > 0 || args->piece > 0 || args->ppl != NULL ||
                      args->tokens != NULL;
    if (args->needle && text)
        return rm_fail(
            err, REMAT_E_USAGE,
            "--needle: --ppl, --tokens, --base, --save-base, --chunks, --ppl-stride and --step are "
            "for perplexity");
    if (!args->needle && needle)
        return rm_fail(err, REMAT_E_USAGE,
                       "--lengths, --depths, --repeat: give --needle with them");
    if (args->base != NULL && args->save_base != NULL)
        return rm_fail(err, REMAT_E_USAGE, "--base, --save-base: give one of them");
    return args->plot != NULL ? app_plot_check(args->plot, err) : REMAT_OK;
}

static int eval(remat_engine *e, const app_args *args, remat_error *err) {
    app_windows w = {.bos = UINT32_MAX};
    if (args->needle) return app_needle_run(e, args, err);
    int status = text_windows(&w, e, args, err);
    if (status == REMAT_OK) status = app_ppl_run(e, args, &w, err);
    if (w.compared) app_logprobs_close(&w.base);
    return status;
}

int app_eval(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    RM_TRY(check(args, err));
    RM_TRY(app_open(&e, args, false, err));
    const int status = eval(e, args, err);
    app_close(&e);
    return status;
}
