/*
 * page.h: where each token's keys and values are. Part: cache.
 *
 * A PAGE holds K and V of one layer for 64 tokens of one sequence, all KV heads one after the
 * other (kernels/attn.h has a head's layout). A COLUMN is the same 64 tokens in all layers.
 *
 *               column 0   column 1   column 2  ..
 *     layer 0   spilled    dropped    page
 *     layer 1   staged(*)  page(*)    page          (*) in memory while a sweep is in this layer:
 *     layer 2   spilled    dropped    page              read back, or computed again
 *
 *     in the pool   equal blocks; may be written to
 *     spilled       in a slot of the spill file; a page may be in both places (it is CLEAN then)
 *     staged        a copy of a spilled page in a slot of the stage, to be read by attention
 *     inputs        not there, but what K and V are products of is (kept.h)
 *     dropped       nowhere: its tokens are computed again
 *
 * The cache knows no model and no policy: who goes where is the engine's decision
 * (engine/policy.c), and the rules are in the README beside this file.
 */
#ifndef RM_CACHE_PAGE_H
#define RM_CACHE_PAGE_H

#include "cache/kept.h"
#include "cache/spill.h"
#include "kernels/attn.h"

typedef struct rm_cache_shape {
    uint32_t layer_count, kv_head_count, head_dim; /* head_dim padded to 16 */
    uint32_t latent_dim;                           /* in place of heads; 0: none */
    rm_kv_format format;
    uint32_t sequence_count;
    uint32_t column_count; /* of a sequence: its context in pages */
    uint32_t page_count;   /* blocks of the pool */
    uint32_t stage_count;  /* slots of the stage; 0: nothing is ever spilled */
} rm_cache_shape;

enum {
    RM_CACHE_WRITES = 16, /* pages on their way to the spill file at a time */
    RM_STAGE_READS = 64,  /* runs of pages on their way from it; at most so many slots, too */
};

/* A page that is being written. `leaving`: its block is free when the write is done. */
typedef struct rm_page_write {
    rm_spill_op op;
    uint64_t page; /* index in the table, which is the slot in the file */
    int32_t block;
    bool busy, leaving;
} rm_page_write;

/* A run of pages of one layer that is being read, or has been: pages page .. page + count - 1. */
typedef struct rm_page_read {
    rm_spill_op op;
    uint64_t page;
    uint32_t count, slot;
    bool done, failed;
} rm_page_read;

/* Slots are taken and given back in order: a ring. Reads 0 .. opened - 1 of the queue are in use by
 * attention, the others are read ahead. */
typedef struct rm_stage {
    uint8_t *slots;
    uint32_t slot_first, slot_used;
    uint32_t read_first, read_count, opened;
    rm_page_read *reads;
} rm_stage;

typedef struct rm_cache {
    rm_cache_shape shape;
    size_t head_bytes; /* K and V of one head in a page */
    uint64_t page_bytes;
    rm_pool pool;
    int32_t *table;  /* [sequence][layer][column]: a block, pool.count + a slot of the stage, or
                     * RM_POOL_NONE */
    rm_spill *spill; /* NULL: there is none */
    rm_kept *inputs; /* by place in the table; NULL: none are kept */
    rm_page_write *writes;
    uint32_t oldest_write;
    rm_stage stage;
    uint64_t lost_pages; /* spilled pages that could not be read back as they were */
} rm_cache;

/* Bytes of a page: all KV heads. A multiple of 4096. */
uint64_t rm_cache_page_bytes(const rm_cache_shape *s);

/* Pages that a sequence's tables know, all sequences: slots that a spill file has for them. */
uint64_t rm_cache_entries(const rm_cache_shape *s);

/* Carves the pool and the table (account kv), the stage (account kv_stage). */
int rm_cache_layout(rm_cache *c, rm_ledger *l, const rm_cache_shape *s, remat_error *err);

/* spill: NULL, or a started one that has rm_cache_entries() slots for pages. */
void rm_cache_start(rm_cache *c, rm_spill *spill);

/* The page, in the pool or staged; NULL when it is neither. */
void *rm_cache_page(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* Whether it is in the pool; whether it is there, can be read back, or be made from its inputs. */
bool rm_cache_in_pool(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);
bool rm_cache_known(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);
bool rm_cache_spilled(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

typedef enum rm_hold { RM_HELD, RM_HOLD_FULL, RM_HOLD_LOST } rm_hold;

/* Makes sure that the page is in the pool. A page that is nowhere is zeroed; a spilled one is read
 * back (lost: it could not be, and is dropped now). `to_write`: the copy in the file is forgotten,
 * since it is going to be an old one. */
rm_hold rm_cache_hold(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                      bool to_write);

/* Begins to copy a page of the pool to the file; a clean one is left as it is. False: there is no
 * file, or it takes no more. */
bool rm_cache_save(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* Gives the page's block back, if it is in the pool: at once, or when its copy has been written. */
void rm_cache_release(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* Gives back the block, the copy and the inputs. */
void rm_cache_drop_page(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column);

/* The same for all layers of columns first .. last - 1. */
void rm_cache_drop(rm_cache *c, uint32_t sequence, uint32_t first, uint32_t last);

/* Stops using the file: pages that are only there are lost. */
void rm_cache_abandon_spill(rm_cache *c);

/* Begins to use a file again after that; nothing is in it. */
void rm_cache_resume_spill(rm_cache *c, rm_spill *spill);

/* Waits until the oldest write is done; false when there is none. */
bool rm_cache_settle_one(rm_cache *c);
void rm_cache_settle(rm_cache *c);

/* At most so many pages are in the pool from now on: when there are more, none is added until
 * others have left. What a lower limit frees goes back to the system. */
void rm_cache_limit(rm_cache *c, const rm_ledger *l, uint32_t pages);

/* Bytes of pages in the pool, and of pages that are in the file only. */
uint64_t rm_cache_pool_bytes(const rm_cache *c);
uint64_t rm_cache_file_bytes(const rm_cache *c);

/* --- the stage (stage.c) ---------------------------------------------------------------------- */

/* Pages of the stage that one band of attention may use; the others are read ahead. */
uint32_t rm_stage_band(const rm_cache *c);

/* Begins to read pages column .. column + count - 1 ahead, in the order of use. Returns how many of
 * them found a place. Pages that are in memory already are not to be asked for. */
uint32_t rm_stage_ahead(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                        uint32_t count);

/* Takes pages column .. column + count - 1 into use: what was read ahead, or what is read now. At
 * most rm_stage_band() pages are in use at a time. */
void rm_stage_open(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column, uint32_t count);

/* Waits for all that is in use, and puts it into the table. False: a page is lost (dropped). */
bool rm_stage_settle(rm_cache *c);

/* Ends the use; the pages are spilled again, and no more. */
void rm_stage_close(rm_cache *c);

/* Gives up what was read ahead. */
void rm_stage_forget(rm_cache *c);

/* For cache/: index of a page in the table. */
static inline uint64_t rm_cache_index(const rm_cache *c, uint32_t sequence, uint32_t layer,
                                      uint32_t column) {
    const rm_cache_shape *s = &c->shape;
    RM_ASSERT(sequence < s->sequence_count);
    RM_ASSERT(layer < s->layer_count);
    RM_ASSERT(column < s->column_count);
    return ((uint64_t)sequence * s->layer_count + layer) * s->column_count + column;
}

/* For stage.c: waits for writes of these pages. */
void rm_cache_settle_pages(rm_cache *c, uint64_t page, uint32_t count);
/* Copies a page's bytes out of the cache, to memory aligned to 4096. False when it is nowhere. */
bool rm_cache_copy_out(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column, void *to);

/* Gives the page these bytes, in the pool or, when that is getting full, in the file. False when
 * there is no room: it is recomputed then, when it is needed. */
bool rm_cache_put_in(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                     const void *from);

#endif /* RM_CACHE_PAGE_H */
