/* remat.c: opening, starting and closing an engine. The public functions, thin. Part: engine. */
#include "base/clock.h"
#include "base/dirs.h"
#include "base/machine.h"
#include "engine/policy.h"
#include "gguf/split.h"
#include "text/detok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)REMAT_ACCOUNTS == (int)RM_ACCOUNT_COUNT, "one row per account");

enum {
    MIB = 1 << 20,
    /* A file's index and vocabulary may be read up to this much before a smaller budget is refused
     * (without them there is no telling what would be enough). */
    BOOT_BYTES = 24 * MIB,
    OPEN_ROOM_BYTES = MIB,
};

/* Half of the addresses that x86-64 gives. */
static const uint64_t ADDRESSES_MOST = 1ull << 46;

const char *remat_version(void) {
    return REMAT_VERSION;
}

remat_options remat_options_default(void) {
    return (remat_options){0};
}

remat_limits remat_limits_default(void) {
    return (remat_limits){.sequence_count = 1,
                          .logits_rows = 1,
                          .resident_count = REMAT_ALL,
                          .drop_count = REMAT_ALL};
}

static int open_file(remat_engine *e, const char *path, remat_error *err) {
    RM_TRY(rm_file_open(&e->file, path, err));
    snprintf(e->path, sizeof e->path, "%s", rm_path_tail(path));
    e->file.path = e->path;
    RM_TRY(rm_gguf_header(&e->gguf, &e->file, err));
    RM_TRY(rm_gguf_layout(&e->gguf, &e->ledger, err));
    RM_TRY(rm_gguf_parse(&e->gguf, err));
    RM_TRY(rm_split_open(&e->gguf, &e->ledger, path, err));
    if (e->options.index_only) return REMAT_OK;
    RM_TRY(rm_model_describe(&e->model, &e->gguf, err));
    RM_TRY(rm_model_bind(&e->model, &e->ledger, &e->gguf, err));
    RM_TRY(
        rm_ledger_carve(&e->units, &e->ledger, RM_ACCOUNT_TEXT, rm_unit_count(&e->model), 1, err));
    RM_TRY(
        rm_ledger_carve(&e->tokenizer, &e->ledger, RM_ACCOUNT_TEXT, 1, rm_tokenizer_bytes(), err));
    const rm_tokenizer_options how = {.pre = e->options.pre};
    RM_TRY(rm_tokenizer_layout_with(e->tokenizer, &e->ledger, &e->gguf, &how, err));
    return rm_tokenizer_load(e->tokenizer, &e->gguf, err);
}

/* A described model: all that a file would bring but its weights and its texts. */
static int open_numbers(remat_engine *e, const remat_shape *shape, remat_error *err) {
    enum { TEXT_BYTES = 52 }; /* of a tokenizer, an entry of the vocabulary: 51 to 53 in three */
    uint8_t *text;
    snprintf(e->path, sizeof e->path, "described");
    e->file.path = e->path;
    e->gguf.file = &e->file;
    RM_TRY(rm_model_from_shape(&e->model, &e->ledger, shape, &e->parameter_count, err));
    RM_TRY(
        rm_ledger_carve(&e->units, &e->ledger, RM_ACCOUNT_TEXT, rm_unit_count(&e->model), 1, err));
    return rm_ledger_carve(&text, &e->ledger, RM_ACCOUNT_TEXT, shape->vocabulary, TEXT_BYTES, err);
}

static int choose_kernels(remat_engine *e, remat_error *err) {
    const char *name = e->options.kernels != NULL ? e->options.kernels : getenv("REMAT_KERNELS");
    e->kernels =
        rm_kernels_select(name != NULL && name[0] != '\0' ? name : NULL, rm_cpu_features());
    if (e->kernels != NULL) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE,
                   "kernels: there is no set \"%.40s\", or this CPU cannot run it; "
                   "use ref, avx2, avxvnni, avx512 or amx, or leave the choice to remat",
                   name);
}

/* Of path, or of shape. */
static int open_either(remat_engine **out, const char *path, const remat_shape *shape,
                       const remat_options *opt, remat_error *err) {
    rm_ledger ledger = {0};
    remat_engine *e = NULL;
    const uint64_t resident = rm_machine_resident_bytes();
    const uint64_t asked =
        opt->memory_bytes > 0 ? opt->memory_bytes : rm_allowance_budget(resident);
    const uint64_t budget = asked < ADDRESSES_MOST ? asked : ADDRESSES_MOST;
    if (opt->thread_count > RM_THREADS_MAX) {
        return rm_fail(err, REMAT_E_USAGE, "threads: %u are too many; at most %d",
                       opt->thread_count, RM_THREADS_MAX);
    }
    const uint64_t least = resident + BOOT_BYTES;
    RM_TRY(rm_ledger_open(&ledger, budget > least ? budget : least, resident, err));
    int status = rm_ledger_carve(&e, &ledger, RM_ACCOUNT_TEXT, 1, sizeof *e, err);
    if (status != REMAT_OK) {
        rm_ledger_close(&ledger);
        return status;
    }
    e->ledger = ledger;
    e->options = *opt;
    e->options.memory_bytes = budget;
    e->allowance.follows = opt->memory_bytes == 0;
    e->open_resident_bytes = resident;
    e->file.fd = -1;
    const uint32_t cores = rm_machine_cores();
    e->thread_count = opt->thread_count > 0 ? opt->thread_count
                                            : (cores < RM_THREADS_MAX ? cores : RM_THREADS_MAX);
    status = choose_kernels(e, err);
    if (status == REMAT_OK)
        status = shape != NULL ? open_numbers(e, shape, err) : open_file(e, path, err);
    if (status != REMAT_OK) {
        remat_close(&e);
        return status;
    }
    /* From here on a budget that is enough at all is kept to; a smaller one has a little room, in
     * which a prompt can be counted before remat_start() says what it would take. */
    const uint64_t open_bytes = rm_ledger_total(&e->ledger) + OPEN_ROOM_BYTES;
    e->ledger.budget = budget > open_bytes ? budget : open_bytes;
    if (e->ledger.budget > e->ledger.reserved) e->ledger.budget = e->ledger.reserved;
    *out = e;
    return REMAT_OK;
}

int remat_open(remat_engine **out, const char *path, const remat_options *opt, remat_error *err) {
    return open_either(out, path, NULL, opt, err);
}

int remat_open_shape(remat_engine **out, const remat_shape *shape, const remat_options *opt,
                     remat_error *err) {
    return open_either(out, NULL, shape, opt, err);
}

void remat_close(remat_engine **engine) {
    if (engine == NULL || *engine == NULL) return;
    remat_engine *e = *engine;
    if (e->cache.spill != NULL) rm_cache_abandon_spill(&e->cache);
    rm_spill_stop(&e->spill);
    rm_stream_stop(&e->stream);
    rm_threads_stop(&e->threads);
    if (e->tokenizer != NULL) rm_tokenizer_close(e->tokenizer);
    rm_split_close(&e->gguf);
    rm_file_close(&e->file);
    rm_ledger ledger = e->ledger; /* the engine lies in its own ledger */
    rm_ledger_close(&ledger);
    *engine = NULL;
}

int remat_claim(remat_engine *e, int64_t bytes, remat_error *err) {
    RM_ASSERT(bytes >= 0 || (uint64_t)-bytes <= e->claimed_bytes);
    if (e->started) return rm_fail(err, REMAT_E_USAGE, "claim: the engine is started already");
    const uint64_t claimed = e->claimed_bytes + (uint64_t)bytes;
    if (bytes > 0 && (uint64_t)bytes > e->ledger.budget) {
        if (err != NULL) err->minimum_bytes = rm_ledger_total(&e->ledger) + (uint64_t)bytes;
        return rm_fail(err, REMAT_E_BUDGET, "budget: no room for %.1f MiB of input; give more",
                       (double)bytes / MIB);
    }
    RM_TRY(rm_ledger_set_program(&e->ledger, e->open_resident_bytes + claimed, err));
    e->claimed_bytes = claimed;
    return REMAT_OK;
}

int remat_check_open(const remat_engine *e, remat_error *err) {
    const uint64_t now = rm_machine_resident_bytes(), all = now + RM_GROWTH_BYTES;
    if (all <= e->options.memory_bytes) return REMAT_OK;
    if (err != NULL) err->minimum_bytes = all + RM_NOISE_BYTES;
    return rm_fail(err, REMAT_E_BUDGET,
                   "budget: %.1f MiB are too little to open this model; the "
                   "smallest that works is %.1f MiB",
                   (double)e->options.memory_bytes / MIB,
                   (double)(all + RM_NOISE_BYTES + MIB / 10) / MIB);
}

void remat_cancel(remat_engine *e) {
    atomic_store_explicit(&e->cancel, true, memory_order_relaxed);
}

/* --- start ------------------------------------------------------------------------------------ */

static bool canceled(void *user) {
    remat_engine *e = user;
    return atomic_load_explicit(&e->cancel, memory_order_relaxed);
}

static void pause_sweep(void *user) {
    rm_allowance_in_sweep(user);
}

static void load_progress(void *user, uint64_t done, uint64_t total) {
    const remat_engine *e = user;
    if (e->options.progress != NULL)
        e->options.progress(e->options.progress_user, REMAT_STAGE_LOAD, done, total);
}

static void sweep_progress(void *user, uint64_t done, uint64_t total) {
    const remat_engine *e = user;
    if (e->options.progress != NULL)
        e->options.progress(e->options.progress_user, REMAT_STAGE_PROMPT, done, total);
}

static int load(remat_engine *e, remat_error *err) {
    const rm_load how = {.threads = e->threads,
                         .stage = e->stage,
                         .stage_bytes = rm_model_stage_bytes(&e->model),
                         .progress = load_progress,
                         .canceled = canceled,
                         .user = e};
    return rm_model_load(&e->model, &e->gguf, &how, err);
}

/* --- the spill directory and the machine's rates ---------------------------------------------- */

void rm_engine_warn(const remat_engine *e, const char *message) {
    if (e->options.warning != NULL) e->options.warning(e->options.warning_user, message);
}

void rm_engine_warn_spill(remat_engine *e) {
    if (e->spill_warned || e->spill.trouble[0] == '\0') return;
    e->spill_warned = true;
    rm_engine_warn(e, e->spill.trouble);
}

/* --- start ------------------------------------------------------------------------------------ */

static int start_parts(remat_engine *e, remat_error *err) {
    const rm_setup *setup = &e->setup;
    RM_TRY(rm_threads_start(&e->threads, e->thread_memory, e->thread_count, err));
    RM_TRY(rm_stream_start(&e->stream, &e->model, &e->gguf, e->threads, err));
    rm_spill *spill = NULL;
    if (rm_setup_spills(setup)) {
        RM_TRY(rm_spill_start(&e->spill, e->spill_dir, e->spill_dir_make, err));
        spill = &e->spill;
    }
    rm_cache_start(&e->cache, spill);
    rm_rows_start(&e->sweep.rows, spill);
    e->route.model = &e->model;
    e->route.cache = &e->cache;
    e->page_limit = setup->page_count;
    rm_allowance_start(e);
    e->sweep.kernels = e->kernels;
    e->sample_space.kernels = e->kernels;
    e->sweep.threads = e->threads;
    e->sweep.cache = &e->cache;
    e->sweep.stream = &e->stream;
    e->sweep.cold_kind = setup->cold;
    e->sweep.spill_from = setup->drop_columns;
    e->sweep.checkpoint_layer = setup->checkpoint_layer;
    rm_kept_start(&e->sweep.kept);
    e->cache.inputs = setup->cold == REMAT_COLD_INPUTS ? &e->sweep.kept : NULL;
    e->route.checkpoints = setup->cold == REMAT_COLD_CHECKPOINT ? &e->sweep.kept : NULL;
    e->route.checkpoint_layer = setup->checkpoint_layer;
    e->sweep.canceled = canceled;
    e->sweep.pause = pause_sweep;
    e->sweep.progress = sweep_progress;
    e->sweep.user = e;
    return REMAT_OK;
}

int rm_engine_start(remat_engine *e, const rm_planned *plan, remat_error *err) {
    const double begin = rm_clock_s();
    e->ledger.budget = e->options.memory_bytes;
    RM_TRY(rm_ledger_set_program(&e->ledger, plan->account_bytes[RM_ACCOUNT_PROGRAM], err));
    RM_TRY(rm_engine_layout(e, &e->ledger, &plan->setup, err));
    if (e->model.weights != NULL)
        rm_ledger_huge_pages(&e->ledger, e->model.weights, e->model.weight_bytes);
    /* A part of a huge page that is given back stays the program's until all of it is. */
    if (!e->allowance.follows)
        rm_ledger_huge_pages(&e->ledger, e->cache.pool.blocks,
                             e->cache.pool.count * e->cache.pool.block_bytes);
    /* A cache that is whole takes its pages as it grows; one that is not needs all it has. */
    const bool whole = plan->setup.elastic && rm_setup_whole(&plan->setup, &e->model);
    if (!whole && plan->total_bytes != plan->full_bytes) rm_ledger_populate(&e->ledger);
    rm_ledger_freeze(&e->ledger);
    e->started = true;
    e->setup = plan->setup;
    e->predicted_peak_bytes = plan->total_bytes;
    RM_TRY(start_parts(e, err));
    const int status = load(e, err);
    if (status == REMAT_E_CANCELED) atomic_store(&e->cancel, false);
    RM_TRY(status);
    e->ready = true;
    e->load_s = rm_clock_s() - begin;
    return REMAT_OK;
}

int remat_start(remat_engine *e, const remat_limits *limits, remat_error *err) {
    rm_planned plan;
    if (e->tokenizer == NULL) {
        return rm_fail(err, REMAT_E_USAGE,
                       "start: the engine was opened with index_only, or described");
    }
    const rm_want want = {e->options.memory_bytes, e->allowance.follows, .start = true};
    RM_TRY(rm_engine_plan(&plan, e, limits, &want, err));
    if (plan.total_bytes == 0) {
        if (err != NULL) err->minimum_bytes = plan.minimum_bytes;
        return rm_fail(err, REMAT_E_BUDGET,
                       "budget: %.1f MiB are too little for this model and a "
                       "context of %u tokens; the smallest that works is %.1f MiB",
                       (double)e->options.memory_bytes / MIB, plan.setup.context_count,
                       (double)(plan.minimum_bytes + MIB / 10) / MIB);
    }
    return rm_engine_start(e, &plan, err);
}
