/*
 * allowance.h: how many pages may be in memory follows the machine: `--memory auto`. Part: engine.
 *
 *     bytes that the process may take now        base/pressure.h
 *   - all that is no page: it never changes      the ledger
 *   = pages that may be in the pool              policy.c: at least what the step cannot do without
 *
 * The machine is looked at before each step and before each chunk of a sweep, at most four times a
 * second. Pages leave before a step; within a sweep they do where they go to the spill file, since
 * attention brings them back. One that is dropped in a sweep might be one that the sweep still
 * needs. More pages are taken before a step only.
 */
#ifndef RM_ENGINE_ALLOWANCE_H
#define RM_ENGINE_ALLOWANCE_H

#include "base/pressure.h"
#include "remat.h"

typedef struct rm_allowance {
    bool follows;   /* else the budget is fixed */
    uint64_t bytes; /* of the process, now */
    uint32_t pages; /* of the pool, for that */
    uint32_t shrunk, grown;
    rm_pressure pressure;
    /* Test hook: bytes, in place of the machine's. NULL: none. */
    uint64_t (*source)(void *user);
    void *source_user;
    /* The step in work; NULL: none. */
    const remat_step *steps;
    uint32_t step_count;
    bool healing;
} rm_allowance;

/* A budget for `auto`: what is there now, less what is kept free for others. */
uint64_t rm_allowance_budget(uint64_t resident_bytes);

/* After the cache has been started. */
void rm_allowance_start(remat_engine *e);

/* Whether the engine could do with fewer pages than it has: what leaves can come back. */
bool rm_allowance_can_give(const remat_engine *e);

/* Before a step: looks, and remembers the step for rm_allowance_in_sweep(). */
void rm_allowance_begin(remat_engine *e, const remat_step *steps, uint32_t step_count,
                        bool healing);
void rm_allowance_end(remat_engine *e);

/* Before a chunk of a sweep: no page is in use. Sends pages away when there are too many now. */
void rm_allowance_in_sweep(remat_engine *e);

#endif /* RM_ENGINE_ALLOWANCE_H */
