/* eval_plot.c: what remat eval has found, as pictures. See eval.h. Part: app. */
#include "app/eval.h"
#include "app/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the model's path its last part. */
static void caption_of(char out[160], const char *model, const char *rest) {
    const char *slash = strrchr(model, '/');
    snprintf(out, 160, "%.80s, %s", slash != NULL ? slash + 1 : model, rest);
}

/* --- perplexity ------------------------------------------------------------------------------- */

enum { BINS = 32 };

typedef struct lines {
    double *x, *window, *all, *divergence; /* one for each window */
    double bin_x[BINS], bin[BINS];
    uint32_t bin_count;
} lines;

static void by_window(lines *out, const app_ppl *p) {
    const app_logprobs_shape *s = &p->windows.shape;
    const double each = s->window - s->first;
    double sum = 0;
    for (uint32_t i = 0; i < s->window_count; i++) {
        sum += p->of_window[i];
        out->x[i] = (double)i * s->stride + s->window;
        out->window[i] = exp(p->of_window[i] / each);
        out->all[i] = exp(sum / (each * (i + 1)));
        if (p->kld_of_window != NULL) out->divergence[i] = p->kld_of_window[i] / each;
    }
}

/* Places of a window that count, in at most BINS parts. */
static void by_place(lines *out, const app_ppl *p) {
    const app_logprobs_shape *s = &p->windows.shape;
    const uint32_t places = s->window - s->first;
    out->bin_count = places < BINS ? places : BINS;
    for (uint32_t b = 0; b < out->bin_count; b++) {
        const uint32_t from = (uint32_t)((uint64_t)places * b / out->bin_count);
        const uint32_t end = (uint32_t)((uint64_t)places * (b + 1) / out->bin_count);
        double sum = 0;
        for (uint32_t i = from; i < end; i++)
            sum += p->of_place[i];
        out->bin_x[b] = s->first + (from + end - 1) / 2.0;
        out->bin[b] = exp(sum / ((double)(end - from) * s->window_count));
    }
}

int app_ppl_plot(const app_ppl *p, remat_error *err) {
    const size_t n = p->windows.shape.window_count;
    char rest[64], caption[160];
    lines l = {.x = p->plotted,
               .window = p->plotted + n,
               .all = p->plotted + 2 * n,
               .divergence = p->plotted + 3 * n};
    by_window(&l, p);
    by_place(&l, p);
    const app_plot_panel panels[] = {
        {.kind = APP_PLOT_LINES,
         .title = "Along the text",
         .x_label = "end of the window (tokens of the text)",
         .y_label = "perplexity",
         .series = {{"window", l.x, l.window, n}, {"all so far", l.x, l.all, n}},
         .series_count = 2},
        {.kind = APP_PLOT_LINES,
         .title = "Inside a window",
         .x_label = "tokens before the predicted one",
         .y_label = "perplexity",
         .series = {{"all windows", l.bin_x, l.bin, l.bin_count}},
         .series_count = 1},
        {.kind = APP_PLOT_LINES,
         .title = "From the reference",
         .x_label = "end of the window (tokens of the text)",
         .y_label = "KL divergence (nats)",
         .series = {{"window", l.x, l.divergence, n}},
         .series_count = 1},
    };
    snprintf(rest, sizeof rest, "%zu windows of %u tokens", n, p->windows.shape.window);
    caption_of(caption, p->args->model, rest);
    return app_plot_write(p->args->plot, caption, panels, p->windows.compared ? 3 : 2, err);
}

/* --- retrieval -------------------------------------------------------------------------------- */

int app_needle_plot(const char *path, const char *model, const app_needle_table *t,
                    remat_error *err) {
    char text[2 * APP_LIST_MAX][16], rest[64], caption[160];
    const char *lengths[APP_LIST_MAX], *depths[APP_LIST_MAX];
    double percent[APP_NEEDLE_CELLS], worst = 0;
    const size_t count = (size_t)t->length_count * t->depth_count;
    for (uint32_t i = 0; i < t->length_count; i++) {
        snprintf(text[i], sizeof text[i], "%u", t->lengths[i]);
        lengths[i] = text[i];
    }
    for (uint32_t i = 0; i < t->depth_count; i++) {
        snprintf(text[APP_LIST_MAX + i], sizeof text[0], "%u %%", t->depths[i]);
        depths[i] = text[APP_LIST_MAX + i];
    }
    for (size_t i = 0; i < count; i++) {
        percent[i] = 100 * t->found[i];
        worst = t->logprob[i] < worst ? t->logprob[i] : worst;
    }
    const app_plot_panel both = {.kind = APP_PLOT_HEAT,
                                 .x_label = "length of the prompt (tokens)",
                                 .y_label = "depth of the fact in the text",
                                 .series_count = 1,
                                 .names = lengths,
                                 .y_names = depths,
                                 .name_count = t->length_count,
                                 .y_name_count = t->depth_count};
    app_plot_panel panels[] = {both, both};
    panels[0].title = "Facts found (%)";
    panels[0].series[0] = (app_plot_series){.name = "found (%)", .y = percent, .count = count};
    panels[0].heat_to = 100;
    panels[1].title = "Right answer (mean ln p of a token)";
    panels[1].series[0] =
        (app_plot_series){.name = "mean ln p of a token", .y = t->logprob, .count = count};
    panels[1].heat_from = worst < 0 ? worst : -1;
    snprintf(rest, sizeof rest, "%u prompt%s a cell", t->repeat, t->repeat == 1 ? "" : "s");
    caption_of(caption, model, rest);
    return app_plot_write(path, caption, panels, 2, err);
}
