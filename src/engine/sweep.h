/*
 * sweep.h: rows through the layers. Prefill, decode, recompute, scoring and batches are all this.
 *
 *     for each layer:
 *         its weights are there, or arrive                                    (model/stream.h)
 *         for each chunk of rows that run in it:
 *             its hidden states, from memory or read ahead                     (rows.h)
 *             its pages are in the pool
 *             keys; and the rest, attention bringing in spilled pages          (layer.h)
 *             pages that are cold now go to disk; those that no row will see any more are dropped
 *         dropped pages that were here for this layer only are given back
 *     logits of the rows that want them
 *
 * RUNS, not rows, are what a sweep is told: rows of one sequence in one column of pages. A run goes
 * through whole layers enter .. leave - 1 and makes the keys and values of layer `leave`:
 *
 *     leave == layer_count       all of it; every row gives logits
 *     leave == layer_count - 1   new tokens whose logits nobody wants
 *     leave below that           tokens whose pages are dropped up to that layer, and no further
 *
 * Runs of one sequence stand together with rising positions; every page that one of their rows sees
 * belongs to a run of this sweep, or the cache has it. Only one layer's pages of dropped tokens are
 * in memory at a time: this is what makes a cache that does not fit the budget work.
 */
#ifndef RM_ENGINE_SWEEP_H
#define RM_ENGINE_SWEEP_H

#include "engine/layer.h"
#include "engine/rows.h"
#include "model/stream.h"
#include "remat.h"

typedef struct rm_row_run {
    uint32_t sequence, first, count; /* positions first .. first + count - 1, in one column */
    uint32_t row_first;              /* number of its first row in the sweep */
    uint16_t enter, leave;           /* enter above 0: from the column's checkpoint */
    const uint32_t *tokens;          /* count ids */
} rm_row_run;

typedef struct rm_sweep_shape {
    uint32_t run_max;
    uint32_t row_max; /* rows whose hidden states are in memory; 0: they are spilled */
    uint32_t chunk_rows, thread_count, context_count, logits_rows;
    bool staged; /* attention may meet spilled pages */
} rm_sweep_shape;

/* Rows of a run that belong to a chunk. */
typedef struct rm_piece {
    uint32_t run, first, count;
} rm_piece;

/* Chunks are taken in order; a look ahead has a cursor of its own. */
typedef struct rm_cursor {
    uint32_t layer, run, row;
} rm_cursor;

typedef struct rm_pieces {
    rm_piece *at; /* chunk_rows */
    uint32_t count, rows;
    bool rest;   /* the whole layer, or only keys */
    bool enters; /* it is their first layer */
} rm_pieces;

/* Called with the logits of rows that want them, in order. Finite, all of them. */
typedef int rm_logits_fn(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                         remat_error *err);

typedef struct rm_sweep {
    rm_sweep_shape shape;
    const rm_model *model;
    const rm_kernels *kernels;
    rm_threads *threads;
    rm_cache *cache;
    rm_stream *stream;
    rm_work work;
    rm_rows rows;
    rm_row_run *runs; /* run_max; filled by the caller */
    uint32_t run_count;
    /* [sequence][column]: pages of so many lowest layers are cold, and leave memory after their
     * layer: to the spill file, or dropped. */
    const uint16_t *cold;
    float
        *uses; /* by place in the cache's table: how often it is read, lately; NULL: not counted */
    remat_cold cold_kind;      /* what happens to them then */
    uint32_t spill_from;       /* column from which on cold pages are spilled; before: dropped */
    uint32_t checkpoint_layer; /* cold pages are those from this layer on; 0 without checkpoints */
    rm_kept kept;              /* inputs by place in the cache's table, or checkpoints by column */
    uint32_t layer;            /* the one in work */
    rm_pieces now, next;       /* the chunk in work; the one that pages are read for */
    rm_cursor ahead;           /* behind `next` */
    uint32_t ahead_segment, ahead_column;
    uint32_t *hidden_row, *position; /* of a chunk */
    rm_segment *segments;            /* of a chunk */
    float *hidden;                   /* what hidden_row counts from */
    uint8_t *logit_in;               /* activations of logits_rows rows */
    float *logit_tiles;              /* of each thread: a strip's results for logits_rows rows */
    float *logits;                   /* logits_rows rows */
    uint8_t *embed_space;            /* of each thread, when embeddings are read row by row */
    bool (*canceled)(void *user);
    void (*pause)(void *user); /* before each chunk: pages may come and go (policy.h) */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* rows times layers; or NULL */
    void *user;
    /* Test hook: a row's hidden state after a layer, from the calling thread. NULL: none. */
    void (*tap)(void *user, uint32_t layer, const rm_row_run *run, uint32_t position,
                const float *hidden);
    void *tap_user;
} rm_sweep;

/* What rm_sweep_run() returns when a page or a hidden state could not be read back as it was
 * written: the cache counts it as dropped, and the sweep has to run again. */
enum { RM_SWEEP_LOST = 1 };

/* Carves work, rows and logits. */
int rm_sweep_layout(rm_sweep *s, rm_ledger *l, const rm_model *m, const rm_sweep_shape *shape,
                    remat_error *err);

/* Runs s->runs[0 .. run_count - 1].
 * Errors: REMAT_E_FAILED (a logit is not finite; weights cannot be read), REMAT_E_CANCELED, what fn
 * returns, and RM_SWEEP_LOST. Pages may then stay held. */
int rm_sweep_run(rm_sweep *s, uint32_t run_count, rm_logits_fn *fn, void *user, remat_error *err);

/* REMAT_E_CANCELED when the caller wants an end. */
int rm_sweep_check(const rm_sweep *s, remat_error *err);

/* What a chunk in a layer needs, for layer.h. */
rm_layer_job rm_sweep_job(rm_sweep *s, uint32_t layer, const rm_chunk *chunk);

/* Last run of the sequence that run i belongs to. */
static inline uint32_t rm_sweep_last(const rm_sweep *s, uint32_t i) {
    while (i + 1 < s->run_count && s->runs[i + 1].sequence == s->runs[i].sequence)
        i++;
    return i;
}

static inline uint32_t rm_run_column(const rm_row_run *r) {
    return r->first / RM_PAGE_TOKENS;
}

/* Whether a page leaves memory after its layer. */
static inline bool rm_sweep_cold(const rm_sweep *s, uint32_t sequence, uint32_t layer,
                                 uint32_t column) {
    return layer >= s->checkpoint_layer &&
           layer < s->cold[(size_t)sequence * s->cache->shape.column_count + column];
}

/* Logits of the rows that want them (logits.c): how many rows; floats of a thread's logit_tiles;
 * and fn called for each row, in order. */
uint32_t rm_sweep_wanted(const rm_sweep *s);
size_t rm_sweep_logit_tile(const rm_model *m, uint32_t logits_rows);
int rm_sweep_logits(rm_sweep *s, rm_logits_fn *fn, void *user, remat_error *err);

/* Look ahead for pages (chunk.c): begins reads of spilled pages in the order of use, for the chunk
 * in work and those after it, as far as the stage has room. Attention calls it whenever it has
 * taken or given back some. */
void rm_sweep_read_ahead(rm_sweep *s);

/* The next chunk of the cursor's layer; false when the layer has no more. */
bool rm_sweep_take(const rm_sweep *s, rm_pieces *out, rm_cursor *at);

/* Place of a column's checkpoint in kept. */
static inline uint64_t rm_checkpoint_place(const rm_cache *c, uint32_t sequence, uint32_t column) {
    return (uint64_t)sequence * c->shape.column_count + column;
}

#endif /* RM_ENGINE_SWEEP_H */
