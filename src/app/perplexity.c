/*
 * perplexity.c: how well a model predicts a text, window by window. See eval.h. Part: app.
 *
 * A window is one sweep, after which nothing of it is needed; or, with --step N, N tokens at a time
 * that find the past in the cache, as an answer does: the same figures, unless the cache changes
 * them.
 */
#include "app/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A row of logits: the prediction of the token behind. */
static void on_row(void *user, uint32_t index, const float *logits, float log_sum) {
    app_ppl *p = user;
    const app_logprobs_shape *s = &p->windows.shape;
    const uint32_t place = p->piece_at + index + 1; /* of the window */
    const uint32_t token = p->ids[place];
    const double nll = -(double)(logits[token] - log_sum);
    p->nll += nll;
    p->squares += nll * nll;
    p->of_window[p->done] += nll;
    p->of_place[place - s->first] += nll;
    const uint64_t number = p->scored++;
    if (p->row == NULL || p->err.status != REMAT_OK) return;
    float *values = (float *)(void *)(p->row + sizeof(uint64_t));
    if (!p->windows.compared) {
        for (uint32_t i = 0; i < s->vocabulary; i++)
            values[i] = logits[i] - log_sum;
        app_logprobs_put(&p->saved, p->row);
        p->err = p->saved.err;
    } else if (app_logprobs_read_row(p->row, &p->windows.base, number, &p->err) == REMAT_OK) {
        p->kld_of_window[p->done] +=
            app_divergence_add(&p->divergence, values, logits, log_sum, s->vocabulary, token);
    }
}

/* Appends tokens from..end - 1 of the window; predictions that count are looked at. */
static int append(app_ppl *p, uint32_t from, uint32_t end, remat_error *err) {
    const remat_step step = {.sequence = p->sequence, .tokens = p->ids + from, .count = end - from};
    const uint32_t first =
        p->windows.shape.first - 1; /* the row of a prediction is one before it */
    p->piece_at = from;
    if (end <= first) return remat_advance(p->engine, &step, 1, err);
    RM_TRY(remat_advance_rows(p->sequence, step.tokens, step.count, first > from ? first - from : 0,
                              on_row, p, err));
    if (p->err.status == REMAT_OK) return REMAT_OK;
    *err = p->err;
    return err->status;
}

static int run_window(app_ppl *p, remat_error *err) {
    const app_windows *w = &p->windows;
    const uint32_t last = w->shape.window - 1; /* what follows it is not predicted */
    const uint32_t most = p->args->piece > 0 ? p->args->piece : last;
    memcpy(p->ids, w->text.ids + (size_t)p->done * w->shape.stride,
           w->shape.window * sizeof *p->ids);
    if (w->bos != UINT32_MAX) p->ids[0] = w->bos;
    remat_sequence_truncate(p->sequence, 0);
    for (uint32_t at = 0; at < last; at += most)
        RM_TRY(append(p, at, last - at < most ? last : at + most, err));
    p->done++;
    return REMAT_OK;
}

static int run_windows(app_ppl *p, remat_error *err) {
    const app_logprobs_shape *s = &p->windows.shape;
    while (p->done < s->window_count) {
        char so_far[48] = "";
        if (p->done > 0)
            snprintf(so_far, sizeof so_far, ", perplexity %.4f", exp(p->nll / (double)p->scored));
        app_progress_name("window %u of %u%s", p->done + 1, s->window_count, so_far);
        RM_TRY(run_window(p, err));
    }
    app_progress_end();
    return REMAT_OK;
}

/* All memory: before remat_start(). */
static int allocate(app_ppl *p, remat_error *err) {
    const app_logprobs_shape *s = &p->windows.shape;
    remat_engine *e = p->engine;
    RM_TRY(app_alloc(&p->ids, e, s->window, sizeof *p->ids, err));
    RM_TRY(app_alloc(&p->of_window, e, s->window_count, sizeof(double), err));
    RM_TRY(app_alloc(&p->of_place, e, s->window - s->first, sizeof(double), err));
    if (p->args->plot != NULL)
        RM_TRY(app_alloc(&p->plotted, e, (size_t)s->window_count * 4, sizeof(double), err));
    if (p->args->base == NULL && p->args->save_base == NULL) return REMAT_OK;
    RM_TRY(app_alloc(&p->row, e, app_logprobs_row_bytes(s), 1, err));
    if (!p->windows.compared) return REMAT_OK;
    RM_TRY(app_alloc(&p->kld_of_window, e, s->window_count, sizeof(double), err));
    return app_alloc(&p->divergence.each, e, app_logprobs_rows(s), sizeof(double), err);
}

/* A window in one sweep needs no cache. */
static int start(app_ppl *p, remat_error *err) {
    remat_limits limits;
    RM_TRY(app_args_limits(&limits, p->args, err));
    limits.context_count = p->windows.shape.window;
    RM_TRY(app_start_scoring(p->engine, &limits, p->args->piece > 0, err));
    return remat_sequence_open(&p->sequence, p->engine, err);
}

int app_ppl_run(remat_engine *e, const app_args *args, app_windows *w, remat_error *err) {
    app_ppl p = {.args = args, .engine = e, .windows = *w, .saved.fd = -1};
    if (args->save_base != NULL && app_logprobs_bytes(&w->shape) == 0)
        return rm_fail(err, REMAT_E_USAGE, "--save-base: %u windows are too many for a file",
                       w->shape.window_count);
    RM_TRY(allocate(&p, err));
    RM_TRY(start(&p, err));
    int status = REMAT_OK;
    if (args->save_base != NULL)
        status = app_logprobs_create(&p.saved, args->save_base, &w->shape, w->text.ids, err);
    if (status == REMAT_OK) status = run_windows(&p, err);
    if (status == REMAT_OK && args->save_base != NULL) status = app_logprobs_finish(&p.saved, err);
    app_logprobs_abandon(&p.saved);
    RM_TRY(status);
    app_ppl_print(&p);
    if (args->stats) app_print_stats(e);
    return args->plot != NULL ? app_ppl_plot(&p, err) : REMAT_OK;
}
