/* bench_plot.c: the rows of remat bench as a picture. See bench.h, plot.h. Part: app. */
#include "app/bench.h"
#include "app/plot.h"
#include "base/io.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BARS = 24, MIB = 1 << 20 }; /* more of them nobody reads */

/* What panels point to. */
typedef struct numbers {
    char label[APP_BENCH_ROWS][64], series[APP_PLOT_SERIES][64];
    const char *name[APP_BENCH_ROWS];
    double peak[APP_BENCH_ROWS], planned[APP_BENCH_ROWS];
    double prompt[APP_BENCH_ROWS], prompt_planned[APP_BENCH_ROWS];
    double answer[APP_BENCH_ROWS], answer_planned[APP_BENCH_ROWS];
    double again[APP_BENCH_ROWS];
    double x[APP_PLOT_SERIES][APP_BENCH_ROWS], y[APP_PLOT_SERIES][APP_BENCH_ROWS];
    size_t count;
} numbers;

static double above_zero(double v) {
    return v > 0 ? v : NAN;
}

static void gather(numbers *n, const app_benchmark *b) {
    for (size_t i = 0; i < b->row_count; i++) {
        const app_bench_row *r = &b->rows[i];
        double deviation;
        app_bench_label(n->label[i], b, r);
        n->name[i] = n->label[i];
        n->peak[i] = above_zero((double)r->peak_bytes / MIB);
        n->planned[i] = above_zero((double)r->predicted_peak_bytes / MIB);
        n->prompt[i] = above_zero(app_bench_mean(r, &r->prompt, &deviation));
        n->answer[i] = above_zero(app_bench_mean(r, &r->answer, &deviation));
        n->prompt_planned[i] = above_zero(r->prompt.planned);
        n->answer_planned[i] = above_zero(r->answer.planned);
        n->again[i] = r->state == APP_BENCH_DONE ? (double)r->recomputed_tokens : NAN;
    }
    n->count = b->row_count < BARS ? b->row_count : BARS;
    if (b->row_count > BARS)
        app_warn("--plot: bars for the first %d of %zu rows", BARS, b->row_count);
}

static app_plot_panel bars(const numbers *n, const char *title, const char *unit,
                           const double *first, const double *second) {
    app_plot_panel p = {
        .kind = APP_PLOT_BARS,
        .title = title,
        .y_label = unit,
        .series = {{"measured", NULL, first, n->count}, {"planned", NULL, second, n->count}},
        .series_count = second != NULL ? 2 : 1,
        .names = n->name,
        .name_count = n->count};
    return p;
}

/* Whether values differ so much that small ones could not be seen beside large ones. */
static bool wide(const double *v, size_t count) {
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < count; i++) {
        if (v[i] > 0 && v[i] < low) low = v[i];
        if (v[i] > high) high = v[i];
    }
    return high > 20 * low;
}

/* The rows of a mode, the smallest peak first: a line of the frontier. */
static void add_line(numbers *n, app_plot_panel *p, const app_benchmark *b, const char *name) {
    app_plot_series *s = &p->series[p->series_count];
    double *x = n->x[p->series_count], *y = n->y[p->series_count];
    size_t count = 0;
    for (size_t i = 0; i < b->row_count; i++) {
        char mode[32];
        app_bench_mode(mode, &b->rows[i]);
        if (strcmp(mode, name) != 0 || isnan(n->answer[i]) || isnan(n->peak[i])) continue;
        size_t at = count++;
        for (; at > 0 && x[at - 1] > n->peak[i]; at--) {
            x[at] = x[at - 1];
            y[at] = y[at - 1];
        }
        x[at] = n->peak[i];
        y[at] = n->answer[i];
    }
    snprintf(n->series[p->series_count], sizeof n->series[0], "%s", name);
    *s = (app_plot_series){n->series[p->series_count], x, y, count};
    p->series_count++;
}

static app_plot_panel frontier(numbers *n, const app_benchmark *b) {
    app_plot_panel p = {.kind = APP_PLOT_LINES,
                        .title = "memory against speed",
                        .x_label = "peak memory, MiB",
                        .y_label = "answer, tokens a second",
                        .y_log = wide(n->answer, b->row_count)};
    for (size_t i = 0; i < b->row_count; i++) {
        char mode[32];
        size_t k = 0;
        app_bench_mode(mode, &b->rows[i]);
        while (k < p.series_count && strcmp(n->series[k], mode) != 0)
            k++;
        if (k < p.series_count) continue;
        if (p.series_count == APP_PLOT_SERIES) {
            app_warn("--plot: lines for the first %d modes", APP_PLOT_SERIES);
            break;
        }
        add_line(n, &p, b, mode);
    }
    return p;
}

static bool several_budgets(const app_benchmark *b) {
    for (size_t i = 1; i < b->row_count; i++) {
        if (strcmp(b->rows[i].budget, b->rows[0].budget) != 0) return b->rows[0].name == NULL;
    }
    return false;
}

int app_bench_plot(const app_benchmark *b, remat_error *err) {
    static numbers n;
    app_plot_panel panels[APP_PLOT_PANELS];
    char caption[256], test[64];
    size_t count = 0;
    gather(&n, b);
    panels[count++] = bars(&n, "peak memory", "MiB", n.peak, n.planned);
    panels[count++] = bars(&n, "reading the prompt", "tokens a second", n.prompt, n.prompt_planned);
    panels[count] = bars(&n, "answering", "tokens a second", n.answer, n.answer_planned);
    panels[count++].y_log = wide(n.answer, n.count);
    if (several_budgets(b)) panels[count++] = frontier(&n, b);
    if (b->rows[0].name != NULL)
        panels[count++] = bars(&n, "computed again", "tokens", n.again, NULL);
    app_bench_test(test, &b->rows[0]);
    const char *slash = strrchr(b->args->model, '/');
    snprintf(caption, sizeof caption, "%s, %s; %s, %u threads",
             slash != NULL ? slash + 1 : b->args->model, test, b->cpu, b->thread_count);
    return app_plot_write(b->args->plot, caption, panels, count, err);
}
