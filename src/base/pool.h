/*
 * pool.h: equal blocks inside a section. Part: base.
 *
 * Free blocks form a list through an index array beside the blocks, so that a block's own bytes
 * are never touched by the pool (a free block need not be resident). "Full" is an ordinary answer.
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
} rm_pool;

/* Carves count blocks of block_bytes for the account, and the index beside them. */
int rm_pool_layout(rm_pool *p, rm_ledger *l, rm_account account, uint32_t count,
                   uint64_t block_bytes, remat_error *err);

/* Call once after the carve on a real ledger. Blocks are handed out from the lowest address. */
void rm_pool_start(rm_pool *p);

/* Index of a block, its bytes zeroed, or RM_POOL_NONE. */
int32_t rm_pool_take(rm_pool *p);
void rm_pool_give(rm_pool *p, int32_t block);
void *rm_pool_at(const rm_pool *p, int32_t block);
uint32_t rm_pool_free(const rm_pool *p);

#endif /* RM_BASE_POOL_H */
