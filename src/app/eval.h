/*
 * eval.h: remat eval, and its parts. Part: app.
 *
 *     cmd_eval.c     what is asked for; a text cut into windows
 *     perplexity.c   runs the windows; logprobs.[ch] divergence.[ch]: against a reference
 *     ppl_report.c   what came out, in JSON and for people
 *     needle.c       retrieval over depth and length; haystack.[ch]: the texts for it
 *     eval_plot.c    pictures of both
 *
 * A window of n tokens is text[start .. start + n); with a begin-of-text token, where the model has
 * one, in place of its first:
 *
 *     | BOS | context, not counted | predictions that count |
 *     0                            first                    n
 *
 * Windows follow each other every `stride` tokens. These are the windows of llama.cpp's perplexity:
 * stride = n and first = n / 2 + 1; or with a stride of its own, the last `stride` predictions.
 */
#ifndef RM_APP_EVAL_H
#define RM_APP_EVAL_H

#include "app/app.h"
#include "app/divergence.h"
#include "app/logprobs.h"

typedef struct app_windows {
    app_tokens text;
    app_logprobs_shape shape;
    uint32_t bos; /* UINT32_MAX: none */
    bool compared;
    app_logprobs_reader base; /* when compared */
} app_windows;

typedef struct app_ppl {
    const app_args *args;
    remat_engine *engine;
    remat_sequence *sequence;
    app_windows windows;
    uint32_t *ids; /* of a window */
    uint8_t *row;  /* of a file of log-probabilities; or NULL */
    app_logprobs_writer saved;
    app_divergence divergence;
    /* sums of negative log-likelihoods */
    double nll, squares;
    uint64_t scored;
    double *of_window, *of_place; /* of_place: of each prediction of a window, over all windows */
    double *kld_of_window;        /* or NULL */
    double *plotted;              /* four of each window; NULL without --plot */
    uint32_t done;                /* windows */
    uint32_t piece_at;            /* where in the window the tokens begin that are being appended */
    remat_error err;              /* of a callback; the first */
} app_ppl;

/* Perplexity, and divergence from a reference. */
int app_ppl_run(remat_engine *e, const app_args *args, app_windows *w, remat_error *err);
void app_ppl_print(app_ppl *p);
int app_ppl_plot(const app_ppl *p, remat_error *err);

enum { APP_NEEDLE_CELLS = APP_LIST_MAX * APP_LIST_MAX };

/* Results of retrieval: a cell for each depth and length, depth by depth. */
typedef struct app_needle_table {
    const uint32_t *lengths, *depths;
    uint32_t length_count, depth_count, repeat;
    double found[APP_NEEDLE_CELLS];   /* the part of the answers that were right */
    double logprob[APP_NEEDLE_CELLS]; /* mean of the right answers' tokens */
} app_needle_table;

int app_needle_run(remat_engine *e, const app_args *args, remat_error *err);
int app_needle_plot(const char *path, const char *model, const app_needle_table *t,
                    remat_error *err);

#endif /* RM_APP_EVAL_H */
