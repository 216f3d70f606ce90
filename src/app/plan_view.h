/*
 * plan_view.h: everything that `remat plan` says about a model and a context, as numbers. Part:
 * app.
 *
 * All of it comes from remat_plan_for() and the weights as the engine lays them out; what is
 * computed here is differences and searches.
 */
#ifndef RM_APP_PLAN_VIEW_H
#define RM_APP_PLAN_VIEW_H

#include "app/args.h"
#include "app/output.h"

enum {
    APP_PLAN_POINTS = 16, /* budgets of the frontier */
    APP_PLAN_ROWS = 4,    /* budgets that have a name */
    APP_PLAN_TYPES = 16,
    APP_PLAN_SAVINGS = 24,
    APP_PLAN_LAYERS = 1024,
};

typedef struct app_plan_point {
    const char *name; /* "smallest", "comfortable", "given", "full"; NULL on the frontier */
    uint64_t budget_bytes;
    remat_plan plan;
} app_plan_point;

typedef struct app_plan_type {
    char type[12];
    uint64_t bytes;
} app_plan_type;

/* What a measure would leave of the memory with everything resident. */
typedef struct app_plan_saving {
    char measure[64];
    uint64_t
        full_bytes;   /* with it; the most that one of the machines takes, where there are some */
    double token_s;   /* a token then; 0: as before */
    const char *cost; /* what it costs beside time */
} app_plan_saving;

typedef struct app_plan_view {
    const char *name; /* of the file, or of the shape */
    remat_model_info info;
    remat_limits limits;
    remat_plan plan;       /* for the budget, or without one */
    remat_plan full;       /* without one */
    uint64_t budget_bytes; /* 0: none was given */
    uint64_t free_bytes;   /* what `auto` would take here now */
    app_plan_point rows[APP_PLAN_ROWS], frontier[APP_PLAN_POINTS];
    uint32_t row_count, point_count;
    /* Of the budget: tokens of a sequence, and sequences of this context, that are wholly in
     * memory; and that work at all. 0: none. */
    uint32_t context_resident, context_most, sequences_resident, sequences_most;
    app_plan_type types[APP_PLAN_TYPES];
    uint32_t type_count;
    uint64_t embedding_bytes, output_bytes, attention_bytes, feed_forward_bytes, expert_bytes,
        norm_bytes;
    uint64_t layer_bytes[APP_PLAN_LAYERS];
    app_plan_saving savings[APP_PLAN_SAVINGS];
    uint32_t saving_count;
} app_plan_view;

/* Fills all of it. Errors: REMAT_E_BUDGET when the budget given is too small, REMAT_E_USAGE. */
int app_plan_view_make(app_plan_view *out, remat_engine *e, const app_args *args, remat_error *err);

void app_plan_text(const app_plan_view *v);
/* Members of the JSON document. */
void app_plan_json(rm_json *j, const app_plan_view *v);

/* The frontier, and where memory goes, as a picture. */
int app_plan_plot(const app_plan_view *v, const char *path, remat_error *err);

/* What suits a kind of work (--task), and what it costs beside an API (--cost): as members of j, or
 * with NULL as text. The checks come before any work. Errors: REMAT_E_USAGE. */
int app_plan_task_check(const char *task, remat_error *err);
void app_plan_task(rm_json *j, const app_plan_view *v, const char *task);
int app_plan_cost_check(const app_costs *how, remat_error *err);
void app_plan_cost(rm_json *j, const app_plan_view *v, const app_costs *how);

/* What has been spent here and there, month by month. */
int app_plan_cost_plot(const app_plan_view *v, const app_costs *how, const char *path,
                       remat_error *err);

#endif /* RM_APP_PLAN_VIEW_H */
