/*
 * kept.h: what is kept of tokens in place of their pages: less than a page, and enough to make it
 * again with the same bits and less work than from the token ids. Part: cache.
 *
 *     inputs       of a page: the 8-bit rows that the K and V projections read. One product gives
 *                  the page back; no attention, no feed-forward
 *     checkpoint   of a column: the hidden states before some layer. The layers from there on run
 *                  again, those below it do not
 *
 * Equal blocks, and a table that says which place has one. What is in a block is the engine's.
 */
#ifndef RM_CACHE_KEPT_H
#define RM_CACHE_KEPT_H

#include "base/pool.h"

typedef struct rm_kept {
    rm_pool pool;
    uint64_t place_count;
    int32_t *table; /* of each place: a block or RM_POOL_NONE */
} rm_kept;

/* Carves block_count blocks for place_count places (account kv); without blocks, nothing. */
int rm_kept_layout(rm_kept *k, rm_ledger *l, uint64_t place_count, uint32_t block_count,
                   uint64_t block_bytes, remat_error *err);
void rm_kept_start(rm_kept *k);

/* What is kept at a place; NULL: nothing. */
void *rm_kept_at(const rm_kept *k, uint64_t place);

/* The same, or a new block, zeroed; NULL when there is none left. */
void *rm_kept_take(rm_kept *k, uint64_t place);
void rm_kept_give(rm_kept *k, uint64_t place);

#endif /* RM_CACHE_KEPT_H */
