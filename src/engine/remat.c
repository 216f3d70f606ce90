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
    /* What the process will still touch after the measurement at start: code not yet run, the
     * command's output, stacks. Measured: under 0.5 MiB, and 40 KiB a thread. */
    GROWTH_BYTES = 768 << 10,
    GROWTH_THREAD_BYTES = 64 << 10,
    NOISE_BYTES = 256 << 10, /* differences between two measurements that mean nothing */
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

/* What the process takes beside the arena, now and later. Never less than before the arena was.
 * Measured once, so that a plan and the start after it agree, unless the caller has grown since. */
static uint64_t program_bytes(remat_engine *e) {
    const uint64_t now = rm_machine_resident_bytes(), ours = e->ledger.carved;
    uint64_t program = now > ours ? now - ours : 0;
    const uint64_t least = e->open_resident_bytes + e->claimed_bytes;
    if (program < least) program = least;
    if (e->program_bytes == 0 || program > e->program_bytes + NOISE_BYTES)
        e->program_bytes = program;
    return e->program_bytes + GROWTH_BYTES + (uint64_t)e->thread_count * GROWTH_THREAD_BYTES;
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

int remat_open(remat_engine **out, const char *path, const remat_options *opt, remat_error *err) {
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
    if (status == REMAT_OK) status = open_file(e, path, err);
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
    const uint64_t now = rm_machine_resident_bytes(), all = now + GROWTH_BYTES;
    if (all <= e->options.memory_bytes) return REMAT_OK;
    if (err != NULL) err->minimum_bytes = all + NOISE_BYTES;
    return rm_fail(err, REMAT_E_BUDGET,
                   "budget: %.1f MiB are too little to open this model; the "
                   "smallest that works is %.1f MiB",
                   (double)e->options.memory_bytes / MIB,
                   (double)(all + NOISE_BYTES + MIB / 10) / MIB);
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

static void warn(const remat_engine *e, const char *message) {
    if (e->options.warning != NULL) e->options.warning(e->options.warning_user, message);
}

void rm_engine_warn_spill(remat_engine *e) {
    if (e->spill_warned || e->spill.trouble[0] == '\0') return;
    e->spill_warned = true;
    warn(e, e->spill.trouble);
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

/* What is known of the machine without measuring; or measured now, in memory that is free yet. */
static rm_rates rates_of(remat_engine *e) {
    rm_rates rates = rm_rates_guess();
    uint8_t *memory;
    rm_threads *threads = NULL;
    const uint64_t thread_bytes = (rm_threads_bytes(e->thread_count) + 63) / 64 * 64;
    const char *dir = e->spill_dir[0] != '\0' ? e->spill_dir : NULL;
    const char *test = getenv("REMAT_RATES"); /* tests choose without a clock */
    if (test != NULL && strcmp(test, "guess") == 0) return rates;
    const uint64_t bytes = thread_bytes + rm_rates_bytes();
    if (rm_machine_resident_bytes() + bytes + GROWTH_BYTES > e->options.memory_bytes) return rates;
    if (rm_ledger_borrow(&memory, &e->ledger, bytes, NULL) != REMAT_OK) return rates;
    memset(memory, 0, thread_bytes);
    if (dir != NULL && e->spill_dir_make) (void)rm_dirs_make(dir);
    if (rm_threads_start(&threads, memory, e->thread_count, NULL) == REMAT_OK) {
        rm_rates measured;
        if (rm_rates_get(&measured, NULL, e->kernels, threads, memory + thread_bytes, e->file.fd,
                         dir) == REMAT_OK)
            rates = measured;
        rm_threads_stop(&threads);
    }
    rm_ledger_return(&e->ledger);
    return rates;
}

static int plan_with(rm_planned *out, remat_engine *e, const remat_limits *limits, rm_disk disk,
                     const rm_rates *rates, remat_error *err) {
    return rm_plan(out, e, limits, disk, rates, e->options.memory_bytes, program_bytes(e), err);
}

/* Plans with the disk that there is. `start`: the file is going to be made, so look closely. */
static int plan_for(rm_planned *out, remat_engine *e, const remat_limits *limits, bool start,
                    remat_error *err) {
    if (e->started || e->options.index_only)
        return rm_fail(err, REMAT_E_USAGE, "start: the engine is started already, or index_only");
    RM_TRY(choose_spill_dir(e, limits, err));
    rm_disk disk = e->spill_dir[0] != '\0' ? RM_DISK_WHOLE : RM_DISK_NONE;
    rm_rates rates = rm_rates_guess();
    remat_limits rest = *limits;
    if (disk == RM_DISK_NONE && rest.cold == REMAT_COLD_SPILL) {
        rest.cold = REMAT_COLD_DROP;
        if (start)
            warn(e, "spill: there is no directory to spill to; what does not fit is computed "
                    "again; name one");
    }
    RM_TRY(plan_with(out, e, &rest, disk, &rates, err));
    if (out->total_bytes == 0) return REMAT_OK;
    const bool whole = out->setup.elastic && rm_setup_whole(&out->setup, &e->model);
    if (!whole && out->total_bytes != out->full_bytes) { /* There is something to choose. */
        rates = rates_of(e);
        RM_TRY(plan_with(out, e, &rest, disk, &rates, err));
    }
    if (!start || out->total_bytes == 0 || !rm_setup_spills(&out->setup)) return REMAT_OK;
    const rm_spill_shape shape = rm_setup_spill(&out->setup, &e->model);
    remat_error why = {0};
    const rm_spill_room room = rm_spill_probe(&shape, e->spill_dir, e->spill_dir_make, &why);
    if (room == RM_SPILL_ROOM_ALL) return REMAT_OK;
    if (!whole) warn(e, why.message); /* else it is for hard times only */
    disk = room == RM_SPILL_ROOM_SOME ? RM_DISK_SMALL : RM_DISK_NONE;
    if (disk == RM_DISK_NONE) rest.cold = REMAT_COLD_DROP;
    return plan_with(out, e, &rest, disk, &rates, err);
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
    RM_TRY(plan_for(&plan, e, limits, true, err));
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

int remat_plan_make(remat_plan *out, remat_engine *e, const remat_limits *limits,
                    remat_error *err) {
    rm_planned plan;
    RM_TRY(plan_for(&plan, e, limits, false, err));
    /* The smallest has a margin, which may be more than a short context's cache. */
    const bool more = plan.full_bytes > plan.minimum_bytes;
    *out = (remat_plan){.minimum_bytes = plan.minimum_bytes,
                        .full_bytes = more ? plan.full_bytes : plan.minimum_bytes,
                        .predicted_peak_bytes = plan.total_bytes,
                        .chunk_rows = plan.setup.chunk_rows};
    memcpy(out->account_bytes, plan.account_bytes, sizeof out->account_bytes);
    if (plan.total_bytes == 0) return REMAT_OK;
    out->resident_count = resident_tokens(e, &plan.setup);
    out->cold = plan.setup.cold;
    out->rows_spilled = plan.setup.row_max == 0;
    out->prefill_s = plan.prefill_s;
    out->token_s = plan.token_s;
    for (uint32_t i = 0; i < rm_unit_count(&e->model); i++) {
        uint64_t *to =
            i < plan.setup.unit_count ? &out->resident_weight_bytes : &out->streamed_weight_bytes;
        *to += rm_unit_bytes(&e->model, rm_plan_unit(&e->model, i));
    }
    if (rm_setup_spills(&plan.setup)) {
        const rm_spill_shape shape = rm_setup_spill(&plan.setup, &e->model);
        for (int i = 0; i < RM_SPILL_REGIONS; i++)
            out->spill_file_bytes += rm_spill_stride(shape.slot_bytes[i]) * shape.slot_count[i];
    }
    return REMAT_OK;
}
