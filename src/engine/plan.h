/*
 * plan.h: what fits. Part: engine.
 *
 * A setup is every number that sizes a section. The planner tries setups on a measuring ledger
 * with the same layout code that later takes the memory, so the two cannot drift apart.
 *
 *     full      every token of every sequence cached; a sweep is one chunk
 *     dropping  the pool holds what is left; a sweep may hold all rows of all sequences, and one
 *               layer's pages of those that are recomputed
 */
#ifndef RM_ENGINE_PLAN_H
#define RM_ENGINE_PLAN_H

#include "remat.h"

#include <stdint.h>

typedef struct rm_setup {
    uint32_t context_count, sequence_count;
    uint32_t column_count; /* pages of a sequence's context, in one layer */
    uint32_t page_count;
    uint32_t resident_columns; /* of a sequence at most: limits.resident_count */
    uint32_t row_max, chunk_rows, logits_rows;
    remat_kv kv;
    uint64_t text_bytes;
} rm_setup;

typedef struct rm_planned {
    rm_setup setup;
    uint64_t minimum_bytes; /* with a margin: another process may be a little larger */
    uint64_t full_bytes;
    uint64_t total_bytes; /* of setup; 0 when the budget is too small */
    uint64_t account_bytes[REMAT_ACCOUNTS];
} rm_planned;

/* Chooses a setup for the budget. Errors: REMAT_E_USAGE (a limit out of range). A budget that is
 * too small is no error here: total_bytes is 0 and minimum_bytes says what would do. */
int rm_plan(rm_planned *out, remat_engine *e, const remat_limits *limits, uint64_t budget,
            uint64_t program_bytes, remat_error *err);

#endif /* RM_ENGINE_PLAN_H */
