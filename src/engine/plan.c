/* plan.c: see plan.h. */
#include "engine/plan.h"
#include "engine/policy.h"

#include <string.h>

/* Chunks to try. From 128 rows on a larger one gains little (docs/speed.md). */
static const uint32_t chunks[] = {512, 256, 128, 64, 32, 16};

enum {
    CHUNK_COUNT = sizeof chunks / sizeof *chunks,
    ANSWER_DEFAULT = 256,      /* tokens that a prompt's cost is weighed against */
    RAW_BYTES = 8 << 20,       /* of weights in flight: keeps a disk busy while a layer computes */
    RAW_BYTES_TIGHT = 4 << 20, /* with less it waits for us (docs/speed.md) */
    TILE_BYTES = 4 << 20,      /* of a streamed output matrix */
    TILE_BYTES_TIGHT = 1 << 20,
};

typedef enum rows_kind { ROWS_CHUNK, ROWS_ALL, ROWS_SPILLED, ROWS_KINDS } rows_kind;

/* A way to set things up, before the budget says how much of it. */
typedef struct candidate {
    uint32_t chunk;
    bool stream, whole, tight;
    rows_kind rows;
    remat_cold cold; /* where not whole */
} candidate;

typedef struct planner {
    remat_engine *engine;
    const remat_limits *limits;
    const rm_rate_table *rates;
    rm_disk disk;
    bool follows;
    uint64_t base_bytes;   /* program, and what is carved already */
    uint32_t keep_columns; /* that have room in the pool in any case */
    rm_setup common;       /* what all setups share */
} planner;

uint32_t rm_plan_unit(const rm_model *m, uint32_t index) {
    const uint32_t layers = m->shape.layer_count;
    if (index == 2 * layers) return RM_UNIT_OUTPUT;
    if (index > 2 * layers) return RM_UNIT_EMBEDDING;
    /* A step that shares no divisor with the count visits all layers, far from each other. */
    uint32_t step = (uint32_t)(layers * 0.618) + 1;
    for (;; step++) {
        uint32_t a = step, b = layers;
        while (b != 0) {
            const uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) break;
    }
    const uint32_t layer = (uint32_t)((uint64_t)(index / 2) * step % layers);
    return RM_UNIT_LAYERS + 2 * layer + (index % 2 == 0 ? 1 : 0);
}

bool rm_setup_spills(const rm_setup *s) {
    return s->stage_count > 0 || s->row_max == 0;
}

bool rm_setup_whole(const rm_setup *s, const rm_model *m) {
    const uint64_t pages = s->sequence_count * rm_policy_pages(m, s->column_count * RM_PAGE_TOKENS);
    return s->unit_count == rm_unit_count(m) && s->page_count >= pages &&
           s->resident_columns >= s->column_count;
}

bool rm_setup_holds_rows(const rm_setup *s) {
    return s->row_max == 0 || s->row_max >= (uint64_t)s->sequence_count * s->context_count;
}

/* Whether pages can leave later. */
static bool can_shrink(const rm_setup *s) {
    return s->stage_count > 0 || rm_setup_holds_rows(s);
}

rm_cache_shape rm_setup_cache(const rm_setup *setup, const rm_model *m) {
    const rm_shape *s = &m->shape;
    return (rm_cache_shape){.layer_count = s->layer_count,
                            .kv_head_count = s->kv_head_count,
                            .head_dim = s->head_dim_padded,
                            .latent_dim = s->latent_dim,
                            .format = setup->kv == REMAT_KV_F32 ? RM_KV_F32 : RM_KV_F16,
                            .sequence_count = setup->sequence_count,
                            .column_count = setup->column_count,
                            .page_count = setup->page_count,
                            .stage_count = setup->stage_count};
}

rm_spill_shape rm_setup_spill(const rm_setup *s, const rm_model *m) {
    const rm_cache_shape cache = rm_setup_cache(s, m);
    rm_spill_shape shape = {.limit_bytes = s->spill_bytes, .depth = RM_AIO_DEPTH_MAX};
    shape.slot_bytes[RM_SPILL_PAGES] = rm_cache_page_bytes(&cache);
    shape.slot_count[RM_SPILL_PAGES] = s->stage_count > 0 ? rm_cache_entries(&cache) : 0;
    shape.slot_bytes[RM_SPILL_ROWS] = rm_rows_slot_bytes(m->shape.dim);
    shape.slot_count[RM_SPILL_ROWS] = s->row_max == 0 ? s->run_max : 0;
    shape.reserve_pages = s->spill_reserved ? shape.slot_count[RM_SPILL_PAGES] : 0;
    return shape;
}

uint64_t rm_setup_kept(uint64_t *block_bytes, const rm_setup *s, const rm_model *m) {
    const rm_cache_shape cache = rm_setup_cache(s, m);
    const bool inputs = s->cold == REMAT_COLD_INPUTS;
    *block_bytes = inputs ? rm_kept_inputs_bytes(m) : rm_rows_slot_bytes(m->shape.dim);
    return inputs ? rm_cache_entries(&cache) : (uint64_t)s->sequence_count * s->column_count;
}

int rm_plan_measure(uint64_t *out, rm_ledger *l, remat_engine *e, const rm_setup *s,
                    remat_error *err) {
    rm_ledger_measure(l);
    RM_TRY(rm_engine_layout(e, l, s, err));
    *out = l->carved + e->ledger.carved;
    for (int i = 0; i < RM_ACCOUNT_COUNT; i++)
        l->owned[i] += e->ledger.owned[i];
    return REMAT_OK;
}

/* What a setup takes in all; *l is left with its accounts. */
static int measure(uint64_t *out, rm_ledger *l, const planner *p, const rm_setup *setup,
                   remat_error *err) {
    RM_TRY(rm_plan_measure(out, l, p->engine, setup, err));
    *out += p->base_bytes - p->engine->ledger.carved;
    return REMAT_OK;
}

/* --- setups ----------------------------------------------------------------------------------- */

/* Pages with `columns` of each sequence hot. */
static uint64_t pages(const planner *p, uint32_t columns, uint32_t chunk, bool spill) {
    const rm_setup *s = &p->common;
    const rm_model *m = &p->engine->model;
    const uint64_t cold = (uint64_t)s->sequence_count * (s->column_count - columns);
    return s->sequence_count * rm_policy_pages(m, columns * RM_PAGE_TOKENS) +
           rm_policy_passing(m, cold, chunk, s->sequence_count, spill);
}

static uint32_t resident_columns(const rm_setup *s) {
    return rm_least(s->resident_columns, s->column_count);
}

/* The least that a candidate takes; false when it makes no sense here. */
static bool setup_of(rm_setup *out, const planner *p, const candidate *c) {
    const rm_model *m = &p->engine->model;
    const uint64_t rows = (uint64_t)p->common.sequence_count * p->common.context_count;
    const uint32_t hot = c->whole ? resident_columns(&p->common) : p->keep_columns;
    const bool all_hot = hot == p->common.column_count;
    const bool spill = (!all_hot || p->common.elastic) && c->cold == REMAT_COLD_SPILL;
    rm_setup s = p->common;
    if (c->whole && !all_hot) return false;
    if (c->rows == ROWS_SPILLED && (p->disk != RM_DISK_WHOLE || c->chunk % RM_PAGE_TOKENS != 0 ||
                                    !rm_rows_can_spill(m->shape.dim)))
        return false;
    if (spill && (p->disk == RM_DISK_NONE || (all_hot && p->disk != RM_DISK_WHOLE))) return false;
    /* Tokens that run again need their rows in one sweep with those that made them. */
    if (c->rows == ROWS_CHUNK && !all_hot && (!spill || p->disk != RM_DISK_WHOLE)) return false;
    /* Streamed weights are read once for a prompt, however long it is. */
    if (c->rows == ROWS_CHUNK && c->stream && rows > c->chunk) return false;
    s.chunk_rows = c->chunk;
    s.cold = spill || c->cold != REMAT_COLD_SPILL ? c->cold : REMAT_COLD_DROP;
    s.page_count = (uint32_t)pages(p, hot, c->chunk, spill && p->disk == RM_DISK_WHOLE);
    if (c->cold == REMAT_COLD_INPUTS && c->chunk < RM_PAGE_TOKENS) return false;
    if (c->cold == REMAT_COLD_CHECKPOINT) {
        /* Half of the layers stay as pages, or an eighth. */
        s.checkpoint_layer = 1 + m->shape.layer_count / (c->tight ? 8 : 2);
        if (s.checkpoint_layer >= m->shape.layer_count) return false;
        s.kept_count = s.sequence_count * s.column_count;
        s.page_count += s.sequence_count * s.column_count * s.checkpoint_layer;
    }
    if (spill) {
        const uint32_t band = rm_least(s.column_count, RM_SPAN_PAGES);
        s.stage_count = c->tight ? 2 * band : RM_STAGE_READS;
        if (s.stage_count < 2) s.stage_count = 2;
    }
    const uint64_t one = rm_least(c->chunk, (uint32_t)rows);
    s.row_max = c->rows == ROWS_SPILLED ? 0 : (uint32_t)(c->rows == ROWS_ALL ? rows : one);
    s.run_max = 3 * s.sequence_count + (c->rows == ROWS_CHUNK ? c->chunk / RM_PAGE_TOKENS + 2
                                                              : s.sequence_count * s.column_count);
    s.unit_count = c->stream ? 0 : rm_unit_count(m);
    s.raw_bytes = c->tight ? RAW_BYTES_TIGHT : RAW_BYTES;
    s.output_strips =
        1 + (uint32_t)((c->tight ? TILE_BYTES_TIGHT : TILE_BYTES) / m->output.strip_bytes);
    *out = s;
    return true;
}

/* --- what the budget leaves ------------------------------------------------------------------- */

/* Units in their order, as many as fit. An embedding of its own is worth its memory only when all
 * else is there, and so comes last by itself. */
static void add_units(rm_setup *s, uint64_t *left, const planner *p) {
    const rm_model *m = &p->engine->model;
    if (p->limits->weights != REMAT_WEIGHTS_AUTO) return;
    while (s->unit_count < rm_unit_count(m)) {
        const uint64_t bytes =
            rm_unit_bytes(m, rm_plan_unit(m, s->unit_count)) + 64 * RM_UNIT_MATRICES;
        if (bytes > *left) return;
        *left -= bytes;
        s->unit_count++;
    }
}

static void add_pages(rm_setup *s, uint64_t *left, const planner *p) {
    const rm_cache_shape cache = rm_setup_cache(s, &p->engine->model);
    const uint64_t page = rm_cache_page_bytes(&cache) + sizeof(int32_t);
    const bool spill = s->cold == REMAT_COLD_SPILL;
    const uint64_t most = pages(p, resident_columns(&p->common), s->chunk_rows, spill) +
                          (spill ? rm_policy_passing(&p->engine->model, s->column_count,
                                                     s->chunk_rows, s->sequence_count, true)
                                 : 0);
    uint64_t more = *left / page;
    if (s->page_count >= most) return;
    if (more > most - s->page_count) more = most - s->page_count;
    s->page_count += (uint32_t)more;
    *left -= more * page;
}

/* Blocks for the inputs of all pages that could be cold, as far as there is room. */
static void add_inputs(rm_setup *s, uint64_t *left, const planner *p) {
    uint64_t bytes;
    const uint64_t places = rm_setup_kept(&bytes, s, &p->engine->model);
    const uint64_t table = places * sizeof(int32_t) + 4096 + 64;
    if (s->cold != REMAT_COLD_INPUTS || *left < table) return;
    uint64_t count = (*left - table) / (bytes + 64 + sizeof(int32_t));
    if (count > places) count = places;
    if (count == 0) return;
    s->kept_count = (uint32_t)count;
    *left -= table + count * (bytes + 64 + sizeof(int32_t));
}

/* Hands out what the budget leaves, to weights and pages in one order or the other. */
static void fill(rm_setup *s, uint64_t left, const planner *p, bool weights_first) {
    const uint64_t slack = 16 * 64; /* sections are rounded up to 64 bytes */
    left = left > slack ? left - slack : 0;
    if (weights_first) add_units(s, &left, p);
    add_inputs(s, &left, p);
    if (s->stage_count > 0 || s->cold != REMAT_COLD_SPILL) add_pages(s, &left, p);
    if (!weights_first) add_units(s, &left, p);
}

/* --- choosing --------------------------------------------------------------------------------- */

static int common_setup(planner *p, remat_error *err) {
    const remat_limits *l = p->limits;
    const rm_shape *shape = &p->engine->model.shape;
    rm_setup *s = &p->common;
    s->context_count = l->context_count > 0 ? l->context_count : shape->context_count;
    s->sequence_count = l->sequence_count;
    s->logits_rows = l->logits_rows;
    s->kv = l->kv;
    s->keep_count = l->keep_count;
    s->recompute = l->recompute;
    s->text_bytes = l->text_bytes;
    s->spill_bytes = l->spill_bytes;
    s->spill_reserved = p->disk == RM_DISK_WHOLE;
    s->elastic = p->follows;
    if (s->context_count > RM_CONTEXT_MAX || l->sequence_count == 0 ||
        l->sequence_count > RM_SEQUENCES_MAX || l->chunk_rows > RM_CHUNK_ROWS_MAX ||
        l->logits_rows == 0 || l->logits_rows > RM_GROUP) {
        return rm_fail(err, REMAT_E_USAGE,
                       "limits: %u tokens, %u sequences, chunks of %u rows, %u "
                       "rows of logits; at most %u, %u, %u, %u",
                       s->context_count, l->sequence_count, l->chunk_rows, l->logits_rows,
                       RM_CONTEXT_MAX, RM_SEQUENCES_MAX, RM_CHUNK_ROWS_MAX, RM_GROUP);
    }
    s->column_count = rm_columns(s->context_count);
    s->resident_columns =
        l->resident_count == REMAT_ALL ? s->column_count : l->resident_count / RM_PAGE_TOKENS;
    if (l->recompute == REMAT_RECOMPUTE_FULL) s->resident_columns = 0;
    const uint64_t most = (uint64_t)s->sequence_count * s->column_count * (shape->layer_count + 1);
    const uint64_t rows = (uint64_t)s->sequence_count * s->context_count;
    if (most > INT32_MAX || rows > INT32_MAX) {
        return rm_fail(err, REMAT_E_USAGE, "limits: %u sequences of %u tokens are too many",
                       s->sequence_count, s->context_count);
    }
    return REMAT_OK;
}

static bool allowed(const planner *p, const candidate *c) {
    const remat_limits *l = p->limits;
    const bool drop = l->cold == REMAT_COLD_DROP ||
                      (l->cold == REMAT_COLD_AUTO && l->recompute != REMAT_RECOMPUTE_AUTO);
    if (l->weights != REMAT_WEIGHTS_AUTO && c->stream != (l->weights == REMAT_WEIGHTS_STREAM))
        return false;
    /* Nothing leaves a whole cache, but for hard times. */
    const bool leaves = p->common.elastic && p->disk == RM_DISK_WHOLE;
    if (c->whole && (!leaves || c->cold > REMAT_COLD_DROP)) return c->cold == REMAT_COLD_DROP;
    if (c->whole && c->cold == REMAT_COLD_DROP) return l->cold != REMAT_COLD_SPILL;
    if (drop) return c->cold == REMAT_COLD_DROP;
    if (l->cold != REMAT_COLD_AUTO) return c->cold == l->cold;
    if (c->cold == REMAT_COLD_SPILL && p->disk == RM_DISK_SMALL) return false;
    return c->cold != REMAT_COLD_CHECKPOINT; /* dropping the lowest layers costs less */
}

/* No chunk has more rows than there are tokens. */
static uint32_t chunk_of(const planner *p, uint32_t size) {
    const uint64_t rows = (uint64_t)p->common.sequence_count * p->common.column_count;
    return rows * RM_PAGE_TOKENS < size ? (uint32_t)rows * RM_PAGE_TOKENS : size;
}

/* Calls for every candidate that the limits allow; returns false at the end. */
static bool next_candidate(candidate *c, uint32_t *index, const planner *p) {
    const uint32_t forced = p->limits->chunk_rows;
    static const remat_cold colds[] = {REMAT_COLD_DROP, REMAT_COLD_SPILL, REMAT_COLD_INPUTS,
                                       REMAT_COLD_CHECKPOINT};
    const uint32_t sizes = forced > 0 ? 1 : CHUNK_COUNT;
    for (; *index < sizes * 2 * 2 * 2 * 4 * ROWS_KINDS; ++*index) {
        uint32_t i = *index;
        const uint32_t size = i % sizes;
        c->chunk = chunk_of(p, forced > 0 ? forced : chunks[size]);
        if (size > 0 && c->chunk == chunk_of(p, chunks[size - 1])) continue;
        i /= sizes;
        c->stream = i % 2 == 1;
        c->whole = i / 2 % 2 == 0;
        c->tight = i / 4 % 2 == 1;
        c->cold = colds[i / 8 % 4];
        c->rows = (rows_kind)(i / 32);
        if (!allowed(p, c)) continue;
        ++*index;
        return true;
    }
    return false;
}

static double score(const planner *p, const rm_cost *c) {
    const uint32_t answer = p->limits->answer_count;
    return c->prefill_s + c->token_s * (answer > 0 ? answer : ANSWER_DEFAULT);
}

/* What of a setup is touched as long as nothing has to leave: the rest is for hard times, when
 * pages have left. */
static rm_setup touched(const planner *p, const rm_setup *s) {
    rm_setup calm = *s;
    if (!s->elastic || s->stage_count == 0 || !rm_setup_whole(s, &p->engine->model)) return calm;
    calm.stage_count = 0;
    calm.page_count = (uint32_t)pages(p, s->column_count, s->chunk_rows, false);
    return calm;
}

/* Whether there is always something in the spill file. */
static bool works_on_disk(const planner *p, const rm_setup *s) {
    return rm_setup_spills(s) && !(s->elastic && rm_setup_whole(s, &p->engine->model));
}

/* Setups are weighed twice: first for the fewest seconds, then for what is taken: of those that are
 * nearly as fast, where memory may have to be given back, one that can; then one that leaves the
 * disk alone before one that does not. */
typedef struct choice {
    double fewest; /* seconds; below 0: none fits */
    bool taking, taken, again;
    double seconds; /* of what is taken; and whether tokens run again for each token */
} choice;

static bool better(const choice *c, const planner *p, double seconds, bool again, const rm_setup *s,
                   const rm_setup *than) {
    enum { NEARLY = 50 }; /* a fiftieth */
    if (seconds > c->fewest * (1 + 1.0 / NEARLY)) return false;
    if (!c->taken) return true;
    if (again != c->again) return c->again;
    if (s->elastic && can_shrink(s) != can_shrink(than)) return can_shrink(s);
    const bool spills = works_on_disk(p, s), before = works_on_disk(p, than);
    return spills != before ? before : seconds < c->seconds;
}

/* A setup that fits. The memory is measured again only for one that is taken: what its predicted
 * peak is made of. */
static int try_setup(rm_planned *out, choice *best, const planner *p, const rm_setup *s,
                     remat_error *err) {
    const rm_cost cost = rm_cost_of(s, &p->engine->model, p->rates);
    const double seconds = score(p, &cost);
    if (!best->taking) {
        if (best->fewest < 0 || seconds < best->fewest) best->fewest = seconds;
        return REMAT_OK;
    }
    if (!better(best, p, seconds, cost.again, s, &out->setup)) return REMAT_OK;
    const rm_setup calm = touched(p, s);
    rm_ledger l;
    RM_TRY(measure(&out->total_bytes, &l, p, &calm, err));
    best->taken = true;
    best->again = cost.again;
    best->seconds = seconds;
    out->setup = *s;
    out->prefill_s = cost.prefill_s;
    out->token_s = cost.token_s;
    for (int i = 0; i < RM_ACCOUNT_COUNT; i++)
        out->account_bytes[i] = l.owned[i];
    return REMAT_OK;
}

/* Of what is spilled, the oldest tokens may be dropped: then disk and arithmetic both bring pages
 * back. Shares of the context are tried, from none on. */
static int try_both_ends(rm_planned *out, choice *best, const planner *p, const rm_setup *s,
                         remat_error *err) {
    enum { SHARES = 8 };
    rm_setup t = *s;
    /* Who asks for the disk gets it. */
    const bool spill = p->limits->cold == REMAT_COLD_SPILL && p->limits->drop_count == REMAT_ALL;
    const uint32_t forced = spill ? 0 : p->limits->drop_count;
    if (s->cold != REMAT_COLD_SPILL || !rm_setup_holds_rows(s))
        return try_setup(out, best, p, s, err);
    if (forced != REMAT_ALL) {
        t.drop_columns = rm_least(forced / RM_PAGE_TOKENS, s->column_count);
        return try_setup(out, best, p, &t, err);
    }
    for (uint32_t i = 0; i < SHARES; i++) {
        t.drop_columns = (uint32_t)((uint64_t)s->column_count * i / SHARES);
        RM_TRY(try_setup(out, best, p, &t, err));
    }
    return REMAT_OK;
}

static int weigh(rm_planned *out, choice *best, const planner *p, uint64_t budget,
                 remat_error *err) {
    rm_ledger l;
    candidate c;
    for (uint32_t index = 0; next_candidate(&c, &index, p);) {
        rm_setup s;
        uint64_t total;
        if (!setup_of(&s, p, &c)) continue;
        RM_TRY(measure(&total, &l, p, &s, err));
        if (total < out->minimum_bytes) out->minimum_bytes = total;
        if (total > budget) continue;
        for (int order = 0; order < 2; order++) {
            rm_setup filled = s;
            uint64_t all;
            fill(&filled, budget - total, p, order == 0);
            RM_TRY(measure(&all, &l, p, &filled, err));
            if (all <= budget) RM_TRY(try_both_ends(out, best, p, &filled, err));
        }
    }
    return REMAT_OK;
}

static int choose_with(rm_planned *out, const planner *p, uint64_t budget, remat_error *err) {
    choice best = {.fewest = -1};
    RM_TRY(weigh(out, &best, p, budget, err));
    best.taking = true;
    return best.fewest < 0 ? REMAT_OK : weigh(out, &best, p, budget, err);
}

/* With room for the newest tokens, if there is any way; else without. */
static int choose(rm_planned *out, planner *p, uint64_t budget, remat_error *err) {
    const rm_setup *s = &p->common;
    const uint32_t keep = s->keep_count / RM_PAGE_TOKENS + (s->keep_count > 0 ? 2 : 0);
    p->keep_columns = rm_least(keep, s->column_count);
    out->minimum_bytes = UINT64_MAX;
    RM_TRY(choose_with(out, p, budget, err));
    if (p->keep_columns == 0) return REMAT_OK;
    p->keep_columns = 0;
    const rm_planned kept = *out;
    RM_TRY(choose_with(out, p, budget, err));
    const uint64_t minimum = out->minimum_bytes;
    if (kept.total_bytes > 0) *out = kept;
    out->minimum_bytes = minimum;
    return REMAT_OK;
}

int rm_plan(rm_planned *out, remat_engine *e, const remat_limits *limits, const rm_means *means,
            remat_error *err) {
    planner p = {.engine = e,
                 .limits = limits,
                 .rates = means->rates,
                 .disk = means->disk,
                 .follows = means->follows,
                 .base_bytes = means->program_bytes + e->ledger.carved};
    rm_ledger l;
    memset(out, 0, sizeof *out);
    RM_TRY(common_setup(&p, err));
    out->setup = p.common; /* what nothing fits is told with */
    const bool stream = limits->weights == REMAT_WEIGHTS_STREAM;
    const bool hot = p.common.resident_columns >= p.common.column_count;
    const uint32_t chunk = limits->chunk_rows > 0 ? limits->chunk_rows : chunks[0];
    const candidate full = {.chunk = chunk_of(&p, chunk),
                            .whole = true,
                            .stream = stream,
                            .cold = REMAT_COLD_DROP,
                            .rows = hot && !stream ? ROWS_CHUNK : ROWS_ALL};
    rm_setup all;
    const bool possible = setup_of(&all, &p, &full);
    if (!possible) {
        candidate some = full;
        some.whole = false;
        RM_ASSERT(setup_of(&all, &p, &some));
        all.page_count = (uint32_t)pages(&p, resident_columns(&p.common), some.chunk, false);
    }
    RM_TRY(measure(&out->full_bytes, &l, &p, &all, err));
    RM_TRY(choose(out, &p, means->budget_bytes, err));
    if (out->minimum_bytes == UINT64_MAX) {
        return rm_fail(err, REMAT_E_USAGE,
                       "limits: no way does all that is asked for: inputs need chunks of 64 rows, "
                       "checkpoints two layers, the spill file a directory");
    }
    out->minimum_bytes += RM_PLAN_MARGIN_BYTES;
    if (out->total_bytes > 0) out->account_bytes[RM_ACCOUNT_PROGRAM] = means->program_bytes;
    return REMAT_OK;
}
