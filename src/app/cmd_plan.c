/* cmd_plan.c: remat plan: what a context will take, before it takes it. Part: app. */
#include "app/app.h"
#include "app/plan_view.h"
#include "app/plot.h"
#include "app/preset.h"
#include "base/check.h"

#include <string.h>

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

static int show(const app_plan_view *v, const app_args *args, remat_error *err) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json *to = args->json ? &j : NULL;
    if (args->json) {
        rm_json_open(&j, NULL, '{');
        app_plan_json(&j, v);
    } else {
        app_plan_text(v);
    }
    int status = args->task != NULL ? app_plan_task(to, v, args->task, err) : REMAT_OK;
    if (status == REMAT_OK && args->cost)
        status = app_plan_cost(to, v, &args->costs, args->plot, err);
    if (status == REMAT_OK && args->plot != NULL && !args->cost)
        status = app_plan_plot(v, args->plot, err);
    if (args->json) {
        rm_json_close(&j, '}');
        app_printf("\n");
    }
    return status;
}

/* The view is larger than a stack frame may be. */
static int plan_of(remat_engine *e, const app_args *args, remat_error *err) {
    app_plan_view *v;
    RM_TRY(app_alloc(&v, NULL, 1, sizeof *v, err));
    RM_TRY(app_plan_view_make(v, e, args, err));
    return show(v, args, err);
}

int app_plan(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    if (args->list_shapes) return list_shapes(args);
    if (args->plot != NULL) RM_TRY(app_plot_check(args->plot, err));
    if (args->model_shape != NULL) {
        remat_shape shape;
        RM_TRY(app_shape(&shape, args, err));
        RM_TRY(app_open_shape(&e, &shape, args, err));
    } else {
        RM_TRY(app_open(&e, args, false, err));
    }
    const int status = plan_of(e, args, err);
    app_close(&e);
    return status;
}
