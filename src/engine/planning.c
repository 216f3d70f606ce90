/* planning.c: what a context will take and how fast it will be: the public functions. Part: engine.
 */
#include "base/dirs.h"
#include "base/machine.h"
#include "engine/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What the process takes beside the arena, now and later. Never less than before the arena was.
 * Measured once, so that a plan and the start after it agree, unless the caller has grown since. */
static uint64_t program_bytes(remat_engine *e) {
    const uint64_t now = rm_machine_resident_bytes(), ours = e->ledger.carved;
    uint64_t program = now > ours ? now - ours : 0;
    const uint64_t least = e->open_resident_bytes + e->claimed_bytes;
    if (program < least) program = least;
    if (e->program_bytes == 0 || program > e->program_bytes + RM_NOISE_BYTES)
        e->program_bytes = program;
    return e->program_bytes + RM_GROWTH_BYTES + (uint64_t)e->thread_count * RM_GROWTH_THREAD_BYTES;
}

/* limits.spill_dir, or the user's cache directory. "" when there is none. */
static int choose_spill_dir(remat_engine *e, const remat_limits *limits, remat_error *err) {
    e->spill_dir[0] = '\0';
    e->spill_dir_make = limits->spill_dir == NULL;
    if (limits->no_spill && limits->cold == REMAT_COLD_SPILL)
        return rm_fail(err, REMAT_E_USAGE, "limits: nothing can be spilled without a disk");
    if (limits->no_spill) return REMAT_OK;
    if (limits->spill_dir == NULL) {
        if (!rm_dirs_cache(e->spill_dir, sizeof e->spill_dir)) e->spill_dir[0] = '\0';
        return REMAT_OK;
    }
    if (strlen(limits->spill_dir) >= sizeof e->spill_dir)
        return rm_fail(err, REMAT_E_USAGE, "%s: the path of the spill directory is too long",
                       rm_path_tail(limits->spill_dir));
    snprintf(e->spill_dir, sizeof e->spill_dir, "%s", limits->spill_dir);
    return REMAT_OK;
}

/* Finds what the model's formats ask for; others are taken as the main one. threads and memory: to
 * measure what no file knows; or NULL. */
static bool rates_by_format(rm_rate_table *out, remat_engine *e, rm_threads *threads, void *memory,
                            const char *dir) {
    rm_format formats[RM_MAIN_FORMATS];
    const uint32_t count = rm_main_formats(formats, &e->model);
    rm_rates first;
    rm_rates_job job = {.kernels = e->kernels,
                        .thread_count = e->thread_count,
                        .threads = threads,
                        .memory = memory,
                        .model_fd = e->file.fd,
                        .spill_dir = dir};
    for (uint32_t i = 0; i < count; i++) {
        rm_rates r;
        job.format = formats[i];
        job.known = i > 0 ? &first : NULL;
        if (rm_rates_get(&r, NULL, &job) != REMAT_OK) return false;
        if (i == 0) {
            first = r;
            if (e->file.fd < 0) first.disk_read_s = r.disk_read_s = r.spill_read_s; /* no file */
            for (int f = 0; f < RM_FORMAT_COUNT; f++)
                out->of[f] = first;
        }
        out->of[formats[i]] = r;
    }
    return true;
}

/* What is known of the machine without measuring; or measured now, in memory that is free yet. */
static void find_rates(remat_engine *e) {
    uint8_t *memory;
    rm_threads *threads = NULL;
    const uint64_t thread_bytes = (rm_threads_bytes(e->thread_count) + 63) / 64 * 64;
    const char *dir = e->spill_dir[0] != '\0' ? e->spill_dir : NULL;
    const char *test = getenv("REMAT_RATES"); /* tests choose without a clock */
    if (e->rates_known) return;
    e->rates = rm_rates_guess();
    if (test != NULL && strcmp(test, "guess") == 0) return;
    e->rates_known = rates_by_format(&e->rates, e, NULL, NULL, dir);
    if (e->rates_known) return;
    e->rates = rm_rates_guess();
    const uint64_t bytes = thread_bytes + rm_rates_bytes();
    if (rm_machine_resident_bytes() + bytes + RM_GROWTH_BYTES > e->options.memory_bytes) return;
    if (rm_ledger_borrow(&memory, &e->ledger, bytes, NULL) != REMAT_OK) return;
    memset(memory, 0, thread_bytes);
    if (dir != NULL && e->spill_dir_make) (void)rm_dirs_make(dir);
    if (rm_threads_start(&threads, memory, e->thread_count, NULL) == REMAT_OK) {
        e->rates_known = rates_by_format(&e->rates, e, threads, memory + thread_bytes, dir);
        if (!e->rates_known) e->rates = rm_rates_guess();
        rm_threads_stop(&threads);
    }
    rm_ledger_return(&e->ledger);
}

int rm_engine_plan(rm_planned *out, remat_engine *e, const remat_limits *limits,
                   const rm_want *want, remat_error *err) {
    if (e->started || e->options.index_only)
        return rm_fail(err, REMAT_E_USAGE, "start: the engine is started already, or index_only");
    RM_TRY(choose_spill_dir(e, limits, err));
    const rm_rate_table guess = rm_rates_guess();
    rm_means means = {.disk = e->spill_dir[0] != '\0' ? RM_DISK_WHOLE : RM_DISK_NONE,
                      .rates = &guess,
                      .budget_bytes = want->budget_bytes,
                      .program_bytes = program_bytes(e),
                      .follows = want->follows};
    remat_limits rest = *limits;
    if (means.disk == RM_DISK_NONE && rest.cold == REMAT_COLD_SPILL) {
        rest.cold = REMAT_COLD_DROP;
        if (want->start)
            rm_engine_warn(e, "spill: there is no directory to spill to; what does not fit is "
                              "computed again; name one");
    }
    RM_TRY(rm_plan(out, e, &rest, &means, err));
    if (out->total_bytes == 0) return REMAT_OK;
    const bool whole = out->setup.elastic && rm_setup_whole(&out->setup, &e->model);
    if (!whole && out->total_bytes != out->full_bytes) { /* There is something to choose. */
        find_rates(e);
        means.rates = &e->rates;
        RM_TRY(rm_plan(out, e, &rest, &means, err));
    } else if (!want->start) {
        find_rates(e);
        const rm_cost cost = rm_cost_of(&out->setup, &e->model, &e->rates);
        out->prefill_s = cost.prefill_s;
        out->token_s = cost.token_s;
    }
    if (!want->start || out->total_bytes == 0 || !rm_setup_spills(&out->setup)) return REMAT_OK;
    const rm_spill_shape shape = rm_setup_spill(&out->setup, &e->model);
    remat_error why = {0};
    const rm_spill_room room = rm_spill_probe(&shape, e->spill_dir, e->spill_dir_make, &why);
    if (room == RM_SPILL_ROOM_ALL) return REMAT_OK;
    if (!whole) rm_engine_warn(e, why.message); /* else it is for hard times only */
    means.disk = room == RM_SPILL_ROOM_SOME ? RM_DISK_SMALL : RM_DISK_NONE;
    if (means.disk == RM_DISK_NONE) rest.cold = REMAT_COLD_DROP;
    return rm_plan(out, e, &rest, &means, err);
}

/* --- the public functions --------------------------------------------------------------------- */

/* Tokens of all sequences that can stay, when they are full. */
static uint32_t resident_tokens(const remat_engine *e, const rm_setup *s) {
    const rm_model *m = &e->model;
    const uint32_t all = s->column_count;
    uint32_t hot = s->resident_columns < all ? s->resident_columns : all;
    const bool spill = s->cold == REMAT_COLD_SPILL;
    while (hot > 0 && s->sequence_count * rm_policy_pages(m, hot * RM_PAGE_TOKENS) +
                              rm_policy_passing(m, (uint64_t)s->sequence_count * (all - hot), 1,
                                                s->sequence_count, spill) >
                          s->page_count)
        hot--;
    const uint64_t tokens = (uint64_t)hot * RM_PAGE_TOKENS;
    return (uint32_t)(tokens < s->context_count ? tokens : s->context_count);
}

/* What rows of activations take that pass together, in all buffers for them. */
static int activations(uint64_t *out, remat_engine *e, const rm_setup *s, remat_error *err) {
    static const rm_account accounts[] = {RM_ACCOUNT_ROWS, RM_ACCOUNT_WORK, RM_ACCOUNT_LOGITS};
    rm_ledger l;
    uint64_t total;
    RM_TRY(rm_plan_measure(&total, &l, e, s, err));
    *out = 0;
    for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++)
        *out += l.owned[accounts[i]];
    return REMAT_OK;
}

/* What is known of a setup that fits. */
static int describe_plan(remat_plan *out, remat_engine *e, const rm_planned *plan,
                         remat_error *err) {
    const rm_setup *s = &plan->setup;
    rm_setup row = *s;
    out->resident_count = resident_tokens(e, s);
    out->cold = s->cold;
    out->rows_spilled = s->row_max == 0;
    out->prefill_s = plan->prefill_s;
    out->token_s = plan->token_s;
    for (uint32_t i = 0; i < rm_unit_count(&e->model); i++) {
        uint64_t *to =
            i < s->unit_count ? &out->resident_weight_bytes : &out->streamed_weight_bytes;
        *to += rm_unit_bytes(&e->model, rm_plan_unit(&e->model, i));
    }
    if (rm_setup_spills(s)) {
        const rm_spill_shape shape = rm_setup_spill(s, &e->model);
        for (int i = 0; i < RM_SPILL_REGIONS; i++)
            out->spill_file_bytes += rm_spill_stride(shape.slot_bytes[i]) * shape.slot_count[i];
    }
    RM_TRY(activations(&out->prefill_bytes, e, s, err));
    row.chunk_rows = 1;
    row.row_max = row.sequence_count;
    return activations(&out->decode_bytes, e, &row, err);
}

static int public_plan(remat_plan *out, remat_engine *e, const rm_planned *plan, remat_error *err) {
    const rm_cache_shape cache = rm_setup_cache(&plan->setup, &e->model);
    const uint64_t page = rm_cache_page_bytes(&cache);
    const uint64_t pages = rm_policy_pages(&e->model, plan->setup.column_count * RM_PAGE_TOKENS);
    /* Both have a margin, so that they work as budgets. */
    const uint64_t full = plan->full_bytes + RM_PLAN_MARGIN_BYTES;
    const bool more = full > plan->minimum_bytes;
    *out = (remat_plan){.minimum_bytes = plan->minimum_bytes,
                        .full_bytes = more ? full : plan->minimum_bytes,
                        .predicted_peak_bytes = plan->total_bytes,
                        .chunk_rows = plan->setup.chunk_rows,
                        .kv_token_bytes = page * cache.layer_count / RM_PAGE_TOKENS,
                        .kv_bytes = page * pages * cache.sequence_count};
    memcpy(out->account_bytes, plan->account_bytes, sizeof out->account_bytes);
    return plan->total_bytes > 0 ? describe_plan(out, e, plan, err) : REMAT_OK;
}

int remat_plan_for(remat_plan *out, remat_engine *e, const remat_limits *limits,
                   uint64_t budget_bytes, remat_error *err) {
    rm_planned plan;
    const rm_want want = {budget_bytes == 0 ? UINT64_MAX / 2 : budget_bytes, false, false};
    RM_TRY(rm_engine_plan(&plan, e, limits, &want, err));
    return public_plan(out, e, &plan, err);
}

int remat_plan_make(remat_plan *out, remat_engine *e, const remat_limits *limits,
                    remat_error *err) {
    rm_planned plan;
    const rm_want want = {e->options.memory_bytes, e->allowance.follows, false};
    RM_TRY(rm_engine_plan(&plan, e, limits, &want, err));
    return public_plan(out, e, &plan, err);
}

/* --- weights ---------------------------------------------------------------------------------- */

typedef struct listing {
    uint64_t vector_bytes, matrix_bytes;
    rm_format as;
} listing;

static int list_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    listing *l = user;
    (void)err;
    if (v != NULL) l->vector_bytes += (uint64_t)v->count * sizeof(float);
    if (w != NULL)
        l->matrix_bytes += (uint64_t)w->count * rm_strips(w->outputs) * rm_strip_bytes(l->as, w->k);
    return REMAT_OK;
}

static listing list(const remat_engine *e, rm_format as) {
    rm_model copy = e->model; /* visiting writes nothing here */
    listing l = {.as = as};
    (void)rm_model_visit(&copy, list_one, &l, NULL);
    return l;
}

static const char *part_of(uint32_t unit, const rm_matrix *w) {
    if (unit == RM_UNIT_EMBEDDING) return "embedding";
    if (unit == RM_UNIT_OUTPUT) return "output";
    if (unit % 2 == RM_UNIT_LAYERS % 2) return "attention";
    return w->count > 1 ? "experts" : "feed_forward";
}

void remat_each_weight(const remat_engine *e, remat_weight_fn *fn, void *user) {
    rm_model copy = e->model;
    if (e->model.layers == NULL) return; /* index_only */
    for (uint32_t unit = 0; unit < rm_unit_count(&copy); unit++) {
        rm_matrix *w[RM_UNIT_MATRICES];
        const uint32_t count = rm_unit_matrices(w, &copy, unit);
        const int32_t layer = unit < RM_UNIT_LAYERS ? -1 : (int32_t)(unit - RM_UNIT_LAYERS) / 2;
        for (uint32_t i = 0; i < count; i++)
            fn(user, part_of(unit, w[i]), layer,
               rm_gguf_type_name(rm_formats[w[i]->format].gguf_type),
               (uint64_t)w[i]->count * rm_strips(w[i]->outputs) * w[i]->strip_bytes);
    }
    fn(user, "norms", -1, "F32", list(e, RM_F32).vector_bytes);
}

uint64_t remat_weight_bytes_as(const remat_engine *e, const char *type) {
    for (int f = 0; e->model.layers != NULL && f < RM_FORMAT_COUNT; f++) {
        if (strcasecmp(rm_formats[f].name, type) != 0) continue;
        const listing l = list(e, (rm_format)f);
        return l.matrix_bytes + l.vector_bytes;
    }
    return 0;
}
