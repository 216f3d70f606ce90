/* plan_plot.c: a plan as a picture: memory against speed, and where memory goes. Part: app. */
#include "app/plan_view.h"
#include "app/plot.h"

#include <stdio.h>

enum { MIB = 1 << 20, PARTS = REMAT_ACCOUNTS };

int app_plan_plot(const app_plan_view *v, const char *path, remat_error *err) {
    double memory[APP_PLAN_POINTS], prompt[APP_PLAN_POINTS], answer[APP_PLAN_POINTS];
    double smallest[PARTS], full[PARTS];
    const char *names[PARTS];
    size_t parts = 0;
    const double all = (double)v->limits.context_count * v->limits.sequence_count;
    for (uint32_t i = 0; i < v->point_count; i++) {
        const app_plan_point *p = &v->frontier[i];
        memory[i] = (double)p->plan.predicted_peak_bytes / MIB;
        prompt[i] = all / p->plan.prefill_s;
        answer[i] = v->limits.sequence_count / p->plan.token_s;
    }
    const remat_plan *first = &v->frontier[0].plan, *last = &v->full;
    for (uint32_t i = 0; i < PARTS; i++) {
        if (first->account_bytes[i] == 0 && last->account_bytes[i] == 0) continue;
        names[parts] = remat_account_name(i);
        smallest[parts] = (double)first->account_bytes[i] / MIB;
        full[parts++] = (double)last->account_bytes[i] / MIB;
    }
    const app_plot_panel panels[] = {
        {.kind = APP_PLOT_LINES,
         .title = "answer",
         .x_label = "memory, MiB",
         .y_label = "predicted tokens a second",
         .series = {{"answer", memory, answer, v->point_count}},
         .series_count = 1,
         .y_log = true},
        {.kind = APP_PLOT_LINES,
         .title = "prompt",
         .x_label = "memory, MiB",
         .y_label = "predicted tokens a second",
         .series = {{"prompt", memory, prompt, v->point_count}},
         .series_count = 1},
        {.kind = APP_PLOT_BARS,
         .title = "where memory goes",
         .x_label = "",
         .y_label = "MiB",
         .series = {{"smallest budget", NULL, smallest, parts},
                    {"everything in memory", NULL, full, parts}},
         .series_count = 2,
         .names = names,
         .name_count = parts},
    };
    char caption[160];
    snprintf(caption, sizeof caption, "%.90s, %s, %u x %u tokens", v->name, v->info.quantization,
             v->limits.sequence_count, v->limits.context_count);
    return app_plot_write(path, caption, panels, sizeof panels / sizeof *panels, err);
}
