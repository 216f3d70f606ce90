/* plan_view.c: see plan_view.h. */
#include "app/plan_view.h"
#include "app/input.h"
#include "base/check.h"

#include <stdio.h>
#include <string.h>

enum { MIB = 1 << 20, CONTEXT_STEP = 64 };

/* The fewest seconds that are given up for less memory: comfortable is within a tenth of them. */
static const double COMFORT = 1.1;

static double mib(uint64_t bytes) {
    return (double)bytes / MIB;
}

/* --- weights ---------------------------------------------------------------------------------- */

static void add_weight(void *user, const char *part, int32_t layer, const char *type,
                       uint64_t bytes) {
    app_plan_view *v = user;
    uint32_t i = 0;
    while (i < v->type_count && strcmp(v->types[i].type, type) != 0)
        i++;
    if (i < APP_PLAN_TYPES) {
        if (i == v->type_count) snprintf(v->types[v->type_count++].type, 12, "%s", type);
        v->types[i].bytes += bytes;
    }
    if (layer >= 0 && layer < APP_PLAN_LAYERS) v->layer_bytes[layer] += bytes;
    uint64_t *to = strcmp(part, "embedding") == 0   ? &v->embedding_bytes
                   : strcmp(part, "output") == 0    ? &v->output_bytes
                   : strcmp(part, "attention") == 0 ? &v->attention_bytes
                   : strcmp(part, "experts") == 0   ? &v->expert_bytes
                   : strcmp(part, "norms") == 0     ? &v->norm_bytes
                                                    : &v->feed_forward_bytes;
    *to += bytes;
}

/* --- budgets ---------------------------------------------------------------------------------- */

static int add_row(app_plan_view *v, remat_engine *e, const char *name, uint64_t budget,
                   remat_error *err) {
    app_plan_point *p = &v->rows[v->row_count];
    *p = (app_plan_point){.name = name, .budget_bytes = budget};
    RM_TRY(remat_plan_for(&p->plan, e, &v->limits, budget, err));
    v->row_count += p->plan.predicted_peak_bytes > 0;
    return REMAT_OK;
}

/* From the smallest budget to everything in memory; where memory is scarce in small steps. */
static int make_frontier(app_plan_view *v, remat_engine *e, uint64_t least, uint64_t full,
                         remat_error *err) {
    for (uint32_t i = 0; i < APP_PLAN_POINTS; i++) {
        const double t = (double)i / (APP_PLAN_POINTS - 1);
        const uint64_t budget = least + (uint64_t)((double)(full - least) * t * (0.25 + 0.75 * t));
        app_plan_point *p = &v->frontier[v->point_count];
        *p = (app_plan_point){.budget_bytes = i + 1 == APP_PLAN_POINTS ? full : budget};
        RM_TRY(remat_plan_for(&p->plan, e, &v->limits, p->budget_bytes, err));
        v->point_count += p->plan.predicted_peak_bytes > 0;
    }
    return REMAT_OK;
}

static double seconds(const remat_plan *p) {
    return p->prefill_s + 256 * p->token_s;
}

/* The smallest of the frontier that is nearly as fast as its end. */
static uint64_t comfortable(const app_plan_view *v, uint64_t full) {
    const app_plan_point *last = &v->frontier[v->point_count - 1];
    for (uint32_t i = 0; i < v->point_count; i++) {
        const remat_plan *p = &v->frontier[i].plan;
        if (p->token_s <= COMFORT * last->plan.token_s &&
            seconds(p) <= COMFORT * seconds(&last->plan))
            return v->frontier[i].budget_bytes;
    }
    return full;
}

static int make_budgets(app_plan_view *v, remat_engine *e, remat_error *err) {
    const uint64_t least = v->plan.minimum_bytes, full = v->plan.full_bytes;
    RM_TRY(make_frontier(v, e, least, full, err));
    RM_TRY(add_row(v, e, "smallest", least, err));
    if (v->point_count > 0) RM_TRY(add_row(v, e, "comfortable", comfortable(v, full), err));
    if (v->budget_bytes > 0) RM_TRY(add_row(v, e, "given", v->budget_bytes, err));
    return add_row(v, e, "full", full, err);
}

/* --- what fits a budget ----------------------------------------------------------------------- */

typedef struct search {
    remat_engine *engine;
    remat_limits limits;
    uint64_t budget;
    bool sequences, resident; /* what is searched for; wholly in memory, or at all */
} search;

static bool fits(const search *s, uint32_t n) {
    remat_limits l = s->limits;
    remat_plan p;
    remat_error err = {0};
    if (s->sequences)
        l.sequence_count = n;
    else
        l.context_count = n;
    /* Under a budget that nothing fits only the smallest and the largest are worked out. */
    if (remat_plan_for(&p, s->engine, &l, 1, &err) != REMAT_OK) return false;
    return (s->resident ? p.full_bytes : p.minimum_bytes) <= s->budget;
}

/* The largest multiple of step up to most that fits; 0: not even one step. */
static uint32_t largest(const search *s, uint32_t step, uint32_t most) {
    uint32_t low = 0, high = most / step;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (fits(s, middle * step))
            low = middle;
        else
            high = middle - 1;
    }
    return low * step;
}

static void make_limits(app_plan_view *v, remat_engine *e) {
    enum { SEQUENCES_MOST = 256 };
    /* A model is good for the context that it was made for. */
    const uint32_t made_for = v->info.context_count, wanted = v->limits.context_count;
    const uint32_t most = (made_for > wanted ? made_for : wanted) + CONTEXT_STEP - 1;
    const uint64_t budget = v->budget_bytes > 0 ? v->budget_bytes : v->free_bytes;
    search s = {.engine = e, .limits = v->limits, .budget = budget};
    v->context_most = largest(&s, CONTEXT_STEP, most);
    s.resident = true;
    v->context_resident = largest(&s, CONTEXT_STEP, most);
    s.sequences = true;
    v->sequences_resident = largest(&s, 1, SEQUENCES_MOST);
    s.resident = false;
    v->sequences_most = largest(&s, 1, SEQUENCES_MOST);
}

/* --- savings ---------------------------------------------------------------------------------- */

static app_plan_saving *add_saving(app_plan_view *v, const char *measure, uint64_t full_bytes,
                                   double token_s, const char *cost) {
    RM_ASSERT(v->saving_count < APP_PLAN_SAVINGS);
    app_plan_saving *s = &v->savings[v->saving_count++];
    *s = (app_plan_saving){.full_bytes = full_bytes, .token_s = token_s, .cost = cost};
    snprintf(s->measure, sizeof s->measure, "%s", measure);
    return s;
}

static void save_weights(app_plan_view *v, const remat_engine *e) {
    static const struct {
        const char *type, *cost;
    } types[] = {{"q8_0", "next to no quality"},
                 {"q6_k", "hardly any quality"},
                 {"q4_k", "a little quality"},
                 {"q3_k", "quality"},
                 {"q2_k", "much quality"}};
    uint64_t now = 0;
    for (uint32_t i = 0; i < v->type_count; i++)
        now += v->types[i].bytes;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[64];
        const uint64_t then = remat_weight_bytes_as(e, types[i].type);
        if (then == 0 || then >= now) continue;
        snprintf(name, sizeof name, "weights as %s", types[i].type);
        add_saving(v, name, v->full.predicted_peak_bytes - (now - then), 0, types[i].cost);
    }
}

static int save_cache(app_plan_view *v, remat_engine *e, remat_error *err) {
    remat_limits l = v->limits;
    remat_plan p;
    if (v->limits.kv == REMAT_KV_F32) {
        l.kv = REMAT_KV_F16;
        RM_TRY(remat_plan_for(&p, e, &l, 0, err));
        add_saving(v, "--kv f16", p.predicted_peak_bytes, 0, "rounding of keys and values");
    }
    static const uint32_t windows[] = {4096, 1024};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        char name[64];
        l = v->limits;
        if (windows[i] >= l.context_count) continue;
        l.context_count = windows[i];
        RM_TRY(remat_plan_for(&p, e, &l, 0, err));
        snprintf(name, sizeof name, "a window of %u tokens", windows[i]);
        add_saving(v, name, v->full.predicted_peak_bytes - (v->full.kv_bytes - p.kv_bytes), 0,
                   "what is older is forgotten; not in this version");
    }
    /* Requests that begin alike, with half of the context. */
    const uint32_t n = v->limits.sequence_count;
    if (n > 1 && v->limits.context_count >= 2 * CONTEXT_STEP) {
        char name[64];
        l = v->limits;
        l.context_count /= 2;
        RM_TRY(remat_plan_for(&p, e, &l, 0, err));
        snprintf(name, sizeof name, "%u requests that share their first %u tokens", n,
                 l.context_count);
        add_saving(v, name, v->full.predicted_peak_bytes - p.kv_bytes / n * (n - 1), 0,
                   "nothing; not in this version");
    }
    return REMAT_OK;
}

/* The smallest budget of each way to do without cached tokens. */
static int save_by_recompute(app_plan_view *v, remat_engine *e, remat_error *err) {
    static const struct {
        const char *name;
        remat_cold cold;
        remat_recompute recompute;
    } ways[] = {
        {"--recompute block, nothing kept but the newest", REMAT_COLD_DROP, REMAT_RECOMPUTE_BLOCK},
        {"--recompute layer, the same", REMAT_COLD_DROP, REMAT_RECOMPUTE_LAYER},
        {"--recompute selective, the same", REMAT_COLD_DROP, REMAT_RECOMPUTE_SELECTIVE},
        {"--recompute full", REMAT_COLD_DROP, REMAT_RECOMPUTE_FULL},
        {"--cold spill, nothing kept in memory", REMAT_COLD_SPILL, REMAT_RECOMPUTE_AUTO},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        remat_limits l = v->limits;
        remat_plan p;
        l.cold = ways[i].cold;
        l.recompute = ways[i].recompute;
        l.weights = REMAT_WEIGHTS_RESIDENT;
        if (l.no_spill && l.cold == REMAT_COLD_SPILL) continue;
        RM_TRY(remat_plan_for(&p, e, &l, 0, err));
        RM_TRY(remat_plan_for(&p, e, &l, p.minimum_bytes, err));
        if (p.predicted_peak_bytes == 0) continue;
        add_saving(v, ways[i].name, p.predicted_peak_bytes, p.token_s, "time");
    }
    remat_limits l = v->limits;
    remat_plan p;
    l.weights = REMAT_WEIGHTS_STREAM;
    RM_TRY(remat_plan_for(&p, e, &l, 0, err));
    if (p.predicted_peak_bytes > 0)
        add_saving(v, "--weights stream", p.predicted_peak_bytes, p.token_s, "time");
    return REMAT_OK;
}

/* Layers in equal runs over machines: the most that one of them holds. */
static void save_by_machines(app_plan_view *v) {
    const uint32_t layers = v->info.layer_count;
    for (uint32_t n = 2; n <= 4 && n <= layers; n += 2) {
        uint64_t most = 0;
        const remat_plan *full = &v->full;
        const uint64_t rest =
            full->predicted_peak_bytes - full->resident_weight_bytes - full->kv_bytes;
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t first = layers * i / n, last = layers * (i + 1) / n;
            uint64_t bytes = full->kv_bytes / layers * (last - first);
            for (uint32_t l = first; l < last && l < APP_PLAN_LAYERS; l++)
                bytes += v->layer_bytes[l];
            if (i == 0) bytes += v->embedding_bytes;
            if (i + 1 == n) bytes += v->output_bytes > 0 ? v->output_bytes : v->embedding_bytes;
            most = bytes > most ? bytes : most;
        }
        char name[64];
        snprintf(name, sizeof name, "layers over %u machines (the fullest one)", n);
        add_saving(v, name, rest + most, 0, "a network; not in this version");
    }
}

int app_plan_view_make(app_plan_view *out, remat_engine *e, const app_args *args,
                       remat_error *err) {
    const char *path = args->model_shape != NULL ? args->model_shape : args->model;
    const char *name = strrchr(path, '/');
    *out =
        (app_plan_view){.name = name != NULL ? name + 1 : path, .budget_bytes = args->memory_bytes};
    app_plan_view *v = out;
    remat_stats stats;
    remat_info(&v->info, e);
    remat_stats_get(&stats, e);
    v->free_bytes = stats.budget_bytes;
    RM_TRY(app_args_limits(&v->limits, args, err));
    const bool given = args->context != APP_UNSET_U32 && args->context > 0;
    v->limits.context_count = given ? args->context : v->info.context_count;
    RM_TRY(remat_plan_for(&v->full, e, &v->limits, 0, err));
    RM_TRY(remat_plan_for(&v->plan, e, &v->limits, v->budget_bytes, err));
    if (v->plan.predicted_peak_bytes == 0) {
        err->minimum_bytes = v->plan.minimum_bytes;
        return rm_fail(err, REMAT_E_BUDGET,
                       "budget: %.1f MiB are too little for a context of %u tokens; the smallest "
                       "that works is %.1f MiB",
                       mib(v->budget_bytes), v->limits.context_count,
                       mib(v->plan.minimum_bytes + MIB / 10));
    }
    remat_each_weight(e, add_weight, v);
    RM_TRY(make_budgets(v, e, err));
    make_limits(v, e);
    save_weights(v, e);
    RM_TRY(save_cache(v, e, err));
    RM_TRY(save_by_recompute(v, e, err));
    save_by_machines(v);
    return REMAT_OK;
}
