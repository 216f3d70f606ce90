/* plan.c: see plan.h. */
#include "engine/plan.h"
#include "engine/engine.h"

#include <string.h>

/* Chunks to try, best first. From 128 rows on a larger one gains little (docs/speed.md). */
static const uint32_t chunks[] = {512, 256, 128, 64, 32, 16};

enum {
    CHUNK_COUNT = sizeof chunks / sizeof *chunks,
    CHUNK_DROPPING = 64,
    /* The resident size of the program differs by this much from run to run. */
    MINIMUM_MARGIN_BYTES = 256 << 10,
};

typedef struct planner {
    remat_engine *engine;
    const remat_limits *limits;
    uint64_t base_bytes; /* program, and what is carved already */
    rm_setup common;     /* what all setups share */
} planner;

/* What a setup takes in all; *l is left with its accounts. */
static int measure(uint64_t *out, rm_ledger *l, const planner *p, const rm_setup *setup,
                   remat_error *err) {
    rm_ledger_measure(l);
    RM_TRY(rm_engine_layout(p->engine, l, setup, err));
    *out = p->base_bytes + l->carved;
    return REMAT_OK;
}

static uint32_t resident_columns(const rm_setup *s) {
    return s->resident_columns < s->column_count ? s->resident_columns : s->column_count;
}

/* Pages with `columns` of each sequence cached and the others passing through a layer at a time. */
static uint64_t pages(const planner *p, uint32_t columns) {
    const rm_setup *s = &p->common;
    const uint64_t layers = p->engine->model.shape.layer_count;
    return s->sequence_count * (columns * layers + (s->column_count - columns));
}

static rm_setup dropping(const planner *p, uint32_t chunk, uint64_t page_count) {
    rm_setup s = p->common;
    s.chunk_rows = chunk;
    s.page_count = (uint32_t)page_count;
    s.row_max = s.sequence_count * s.context_count;
    return s;
}

/* All that the limits allow to be cached; a whole cache needs no more rows than a chunk. */
static rm_setup full(const planner *p, uint32_t chunk) {
    const uint32_t columns = resident_columns(&p->common);
    rm_setup s = dropping(p, chunk, pages(p, columns));
    if (columns == s.column_count && s.row_max > chunk) s.row_max = chunk;
    return s;
}

static int common_setup(planner *p, remat_error *err) {
    const remat_limits *l = p->limits;
    const rm_shape *shape = &p->engine->model.shape;
    rm_setup *s = &p->common;
    s->context_count = l->context_count > 0 ? l->context_count : shape->context_count;
    s->sequence_count = l->sequence_count;
    s->logits_rows = l->logits_rows;
    s->kv = l->kv;
    s->text_bytes = l->text_bytes;
    if (s->context_count > RM_CONTEXT_MAX || l->sequence_count == 0 ||
        l->sequence_count > RM_SEQUENCES_MAX || l->chunk_rows > RM_CHUNK_ROWS_MAX ||
        l->logits_rows == 0 || l->logits_rows > RM_GROUP) {
        return rm_fail(err, REMAT_E_USAGE,
                       "limits: %u tokens, %u sequences, chunks of %u rows, %u "
                       "rows of logits; at most %u, %u, %u, %u",
                       s->context_count, l->sequence_count, l->chunk_rows, l->logits_rows,
                       RM_CONTEXT_MAX, RM_SEQUENCES_MAX, RM_CHUNK_ROWS_MAX, RM_GROUP);
    }
    s->column_count = (s->context_count + RM_PAGE_TOKENS - 1) / RM_PAGE_TOKENS;
    s->resident_columns =
        l->resident_count == REMAT_ALL ? s->column_count : l->resident_count / RM_PAGE_TOKENS;
    const uint64_t most = pages(p, s->column_count);
    const uint64_t rows = (uint64_t)s->sequence_count * s->context_count;
    if (most > INT32_MAX || rows > INT32_MAX) {
        return rm_fail(err, REMAT_E_USAGE, "limits: %u sequences of %u tokens are too many",
                       s->sequence_count, s->context_count);
    }
    return REMAT_OK;
}

/* The pool takes what the budget leaves. */
static int fill(rm_setup *s, uint64_t *total, rm_ledger *l, const planner *p, uint64_t budget,
                remat_error *err) {
    const uint64_t least = pages(p, 0), most = pages(p, resident_columns(&p->common));
    RM_TRY(measure(total, l, p, s, err));
    RM_ASSERT(*total <= budget);
    const uint64_t page = rm_cache_page_bytes(&p->engine->cache.shape) + sizeof(int32_t);
    const uint64_t slack = 2 * 64; /* sections are rounded up to 64 bytes */
    uint64_t more = budget - *total > slack ? (budget - *total - slack) / page : 0;
    if (more > most - least) more = most - least;
    s->page_count = (uint32_t)(least + more);
    RM_TRY(measure(total, l, p, s, err));
    RM_ASSERT(*total <= budget);
    return REMAT_OK;
}

static int choose(rm_planned *out, rm_ledger *l, const planner *p, uint64_t budget,
                  remat_error *err) {
    const uint32_t forced = p->limits->chunk_rows;
    for (int i = 0; i < (forced > 0 ? 1 : CHUNK_COUNT); i++) {
        out->setup = full(p, forced > 0 ? forced : chunks[i]);
        RM_TRY(measure(&out->total_bytes, l, p, &out->setup, err));
        if (out->total_bytes <= budget) return REMAT_OK;
    }
    for (int i = 0; i < (forced > 0 ? 1 : CHUNK_COUNT); i++) {
        /* Where tokens are dropped, a page more is worth more than a larger chunk. */
        if (forced == 0 && chunks[i] > CHUNK_DROPPING) continue;
        out->setup = dropping(p, forced > 0 ? forced : chunks[i], pages(p, 0));
        RM_TRY(measure(&out->total_bytes, l, p, &out->setup, err));
        if (out->total_bytes <= budget)
            return fill(&out->setup, &out->total_bytes, l, p, budget, err);
    }
    out->total_bytes = 0;
    return REMAT_OK;
}

int rm_plan(rm_planned *out, remat_engine *e, const remat_limits *limits, uint64_t budget,
            uint64_t program_bytes, remat_error *err) {
    planner p = {.engine = e, .limits = limits, .base_bytes = program_bytes + e->ledger.carved};
    rm_ledger l;
    uint64_t small;
    memset(out, 0, sizeof *out);
    RM_TRY(common_setup(&p, err));
    const uint32_t forced = limits->chunk_rows,
                   least = forced > 0 ? forced : chunks[CHUNK_COUNT - 1];
    out->setup = full(&p, forced > 0 ? forced : chunks[0]);
    RM_TRY(measure(&out->full_bytes, &l, &p, &out->setup, err));
    out->setup = full(&p, least);
    RM_TRY(measure(&small, &l, &p, &out->setup, err));
    out->setup = dropping(&p, least, pages(&p, 0));
    RM_TRY(measure(&out->minimum_bytes, &l, &p, &out->setup, err));
    if (small < out->minimum_bytes) out->minimum_bytes = small;
    out->minimum_bytes += MINIMUM_MARGIN_BYTES;

    RM_TRY(choose(out, &l, &p, budget, err));
    for (int i = 0; i < RM_ACCOUNT_COUNT && out->total_bytes > 0; i++)
        out->account_bytes[i] = l.owned[i] + e->ledger.owned[i];
    if (out->total_bytes > 0) out->account_bytes[RM_ACCOUNT_PROGRAM] = program_bytes;
    return REMAT_OK;
}
