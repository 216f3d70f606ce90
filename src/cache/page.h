/*
 * page.h: which tokens' keys and values are in memory, and where. Part: cache.
 *
 * A PAGE holds K and V of one layer for 64 tokens of one sequence, all KV heads one after the
 * other (kernels/attn.h has a head's layout). A COLUMN is the same 64 tokens in all layers.
 *
 *               column 0   column 1   column 2  ..
 *     layer 0   dropped    dropped    page
 *     layer 1   page(*)    page(*)    page          (*) transient: held while a sweep is in this
 *     layer 2   dropped    dropped    page              layer, for tokens that are recomputed
 *
 * Pages come from one pool of equal blocks. The cache knows no model and no policy: who is dropped
 * is the engine's decision (engine/sequence.c), and the rules are in the README beside this file.
 */
#ifndef RM_CACHE_PAGE_H
#define RM_CACHE_PAGE_H

#include "base/pool.h"
#include "kernels/attn.h"

typedef struct rm_cache_shape {
    uint32_t layer_count, kv_head_count, head_dim; /* head_dim padded to 16 */
    rm_kv_format format;
    uint32_t sequence_count;
    uint32_t column_count; /* of a sequence: its context in pages */
    uint32_t page_count;   /* blocks of the pool */
} rm_cache_shape;

typedef struct rm_cache {
    rm_cache_shape shape;
    size_t head_bytes; /* K and V of one head in a page */
    rm_pool pool;
    int32_t *table; /* [sequence][layer][column]: a block or RM_POOL_NONE */
} rm_cache;

/* Bytes of a page: all KV heads. */
uint64_t rm_cache_page_bytes(const rm_cache_shape *s);

/* Carves the pool and the table (account kv). */
int rm_cache_layout(rm_cache *c, rm_ledger *l, const rm_cache_shape *s, remat_error *err);
void rm_cache_start(rm_cache *c);

/* The page, or NULL when it is not held. */
void *rm_cache_page(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* Makes sure that the page is held; a new one is zeroed. False when the pool is full. */
bool rm_cache_hold(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* Gives the page back, if it is held. */
void rm_cache_release(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* Releases all layers of columns first .. last - 1. */
void rm_cache_drop(rm_cache *c, uint32_t sequence, uint32_t first, uint32_t last);

/* Copies a page's bytes (rm_cache_page_bytes()) out of the cache. False when it is not held. */
bool rm_cache_copy_out(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column, void *to);

/* Holds the page and gives it these bytes. False when there is no room: it is recomputed then, when
 * it is needed. */
bool rm_cache_put_in(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                     const void *from);

#endif /* RM_CACHE_PAGE_H */
