/*
 * pool.h: equal blocks inside a section. Part: base.
 *
 * Free blocks form a list through an index array beside the blocks, so that a block's own bytes
 * are never touched by the pool (a free block need not be resident). "Full" is an ordinary answer.
 * Blocks that were given back last are taken first: so no more blocks are resident than were taken
 * at a time since the start, or since the last rm_pool_trim().
 */
#ifndef RM_BASE_POOL_H
#define RM_BASE_POOL_H

#include "base/ledger.h"

enum { RM_POOL_NONE = -1 };

typedef struct rm_pool {
    uint8_t *blocks;
    int32_t *next; /* free list; -2 marks a block that is taken */
    uint64_t block_bytes;
    int32_t first_free;
    uint32_t count, taken, high_water;
    uint32_t limit; /* blocks that may be taken now; from the start: count */
} rm_pool;

/* Carves count blocks of block_bytes for the account, and the index beside them. */
int rm_pool_layout(rm_pool *p, rm_ledger *l, rm_account account, uint32_t count,
                   uint64_t block_bytes, remat_error *err);

/* Call once after the carve on a real ledger. Blocks are handed out from the lowest address. */
void rm_pool_start(rm_pool *p);

/* Index of a block, its bytes zeroed, or RM_POOL_NONE: all are taken, or as many as the limit says
 * (a limit below what is taken already is fine). */
int32_t rm_pool_take(rm_pool *p);
void rm_pool_give(rm_pool *p, int32_t block);
void *rm_pool_at(const rm_pool *p, int32_t block);
uint32_t rm_pool_free(const rm_pool *p);

/* Gives the memory of free blocks back to the system, as far as it is whole pages. A call for each
 * run of free blocks. l: the ledger that the pool was carved from. */
void rm_pool_trim(rm_pool *p, const rm_ledger *l);

#endif /* RM_BASE_POOL_H */
