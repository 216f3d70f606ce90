/* cmd_plan.c: remat plan: what a context will take, before it takes it. Part: app. */
#include "app/app.h"
#include "app/plan_view.h"
#include "app/plot.h"
#include "app/preset.h"
#include "base/check.h"

#include <string.h>

enum { OWN_BYTES = 64 << 20 };

static int list_shapes(const app_args *args) {
    size_t count;
    const app_preset *p = app_presets(&count);
    rm_json j;
    rm_json_start(&j, app_out());
    if (args->json) rm_json_open(&j, NULL, '[');
    for (size_t i = 0; i < count; i++) {
        if (args->json)
            rm_json_string(&j, NULL, p[i].name);
        else
            app_printf("%s\n", p[i].name);
    }
    if (args->json) {
        rm_json_close(&j, ']');
        app_printf("\n");
    }
    return REMAT_OK;
}

static void show(const app_plan_view *v, const app_args *args) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json *to = args->json ? &j : NULL;
    if (args->json) {
        rm_json_open(&j, NULL, '{');
        app_plan_json(&j, v);
    } else {
        app_plan_text(v);
    }
    if (args->task != NULL) app_plan_task(to, v, args->task);
    if (args->cost) app_plan_cost(to, v, &args->costs);
    if (args->json) {
        rm_json_close(&j, '}');
        app_printf("\n");
    }
}

/* The view is larger than a stack frame may be. */
static int plan_of(remat_engine *e, const app_args *args, remat_error *err) {
    app_plan_view *v;
    RM_TRY(app_alloc(&v, NULL, 1, sizeof *v, err));
    RM_TRY(app_plan_view_make(v, e, args, err));
    if (args->plot != NULL)
        RM_TRY(args->cost ? app_plan_cost_plot(v, &args->costs, args->plot, err)
                          : app_plan_plot(v, args->plot, err));
    show(v, args);
    return REMAT_OK;
}

int app_plan(const app_args *args, remat_error *err) {
    static app_args free_args; /* too large for the stack */
    remat_engine *e = NULL;
    if (args->list_shapes) return list_shapes(args);
    if (args->plot != NULL) RM_TRY(app_plot_check(args->plot, err));
    if (args->task != NULL) RM_TRY(app_plan_task_check(args->task, err));
    if (args->cost) RM_TRY(app_plan_cost_check(&args->costs, err));
    free_args = *args;
    /* The plan's budget may be smaller than what planning itself takes. */
    if (args->memory_bytes > 0 && args->memory_bytes < OWN_BYTES)
        free_args.memory_bytes = OWN_BYTES;
    if (args->model_shape != NULL) {
        remat_shape shape;
        RM_TRY(app_shape(&shape, args, err));
        RM_TRY(app_open_shape(&e, &shape, &free_args, err));
    } else {
        RM_TRY(app_open(&e, &free_args, false, err));
    }
    const int status = plan_of(e, args, err);
    app_close(&e);
    return status;
}
