/*
 * layer.h: one chunk of rows through one layer. Part: engine.
 *
 * A chunk is up to chunk_rows rows; rows of one sequence stand together, positions rising. They
 * go through a layer in two halves; rows that are there for their keys only leave out the second:
 *
 *     keys    norm, K, V, rotary, written to the row's page
 *     rest    Q, rotary, attention over the pages, wo, residual, norm, gate, up, down, residual
 *
 * Between two products there is one barrier; what rows do on their own is done by whoever is free.
 * No result depends on how rows are cut into chunks or work into threads.
 */
#ifndef RM_ENGINE_LAYER_H
#define RM_ENGINE_LAYER_H

#include "cache/page.h"
#include "engine/work.h"

/* Rows first .. first + count - 1 of the chunk belong to this sequence, one behind the other: in a
 * layer with a window nobody may see the pages of a gap, and they may be nowhere. */
typedef struct rm_segment {
    uint32_t sequence, first, count;
} rm_segment;

typedef struct rm_chunk {
    uint32_t row_count, segment_count;
    const uint32_t *hidden_row; /* of each row: which row of the hidden states */
    const uint32_t *position;
    const rm_segment *segments;
} rm_chunk;

typedef struct rm_layer_job {
    const rm_model *model;
    const rm_kernels *kernels;
    rm_threads *threads;
    const rm_work *work;
    rm_cache *cache;
    float *hidden; /* rows of shape.dim floats */
    uint32_t layer;
    const rm_chunk *chunk;
    rm_kept *inputs; /* by place in the cache's table: rows leave a copy where there is a block */
    void (*read_ahead)(void *user); /* the stage has room: see rm_sweep_read_ahead() */
    void *read_user;
} rm_layer_job;

/* First column that a row at this position sees in a layer. */
static inline uint32_t rm_first_column(const rm_layer *y, uint32_t position) {
    return y->window == 0 || position < y->window ? 0 : (position + 1 - y->window) / RM_PAGE_TOKENS;
}

/* rest: the whole layer, else keys only. The rows' own pages are in the pool; those before them in
 * memory or in the spill file. False: one of these was lost. */
bool rm_layer_run(const rm_layer_job *job, bool rest);

/* Inputs of K and V of a layer for 64 tokens, in a block of rm_kept (engine/kept.c). */
uint64_t rm_kept_inputs_bytes(const rm_model *m);
rm_inputs rm_kept_inputs(void *block, const rm_layer *y, uint32_t dim);

/* Makes K and V of the job's chunk again from them: rows of one column, from its first on. */
void rm_layer_rebuild(const rm_layer_job *job, void *block);

/* Work shared with the ends of the model (sweep.c). */

/* A product of the inputs of a phase: y = w . in, all strips. */
typedef struct rm_product {
    const rm_matrix *w;
    rm_input_kind input;
    rm_out y; /* rm_input_rows(input) rows for each row of the chunk */
} rm_product;

/* The product of w with row_count rows, its results at `at`; *at moves on behind them. */
rm_product rm_product_make(const rm_matrix *w, bool fine, uint32_t row_count, float **at);

/* One row of results as plain floats: y.strips * 16 of them. space has as many. */
void rm_product_row(float *out, const rm_kernels *kernels, const rm_product *p, uint32_t row,
                    float *space);

enum { RM_PRODUCTS_MAX = 3 };

/* Runs up to RM_PRODUCTS_MAX products of the same inputs in one phase. */
void rm_products_run(const rm_kernels *kernels, rm_threads *threads, const rm_work *work,
                     const rm_inputs *in, const rm_product *products, uint32_t count);

/* Items that a thread takes at a time in a loop over strips. With few rows the weights' memory is
 * what counts: long runs of neighbouring strips keep the prefetch going (docs/speed.md). */
uint32_t rm_batch_of(const rm_threads *threads, uint32_t items, uint32_t rows);

/* Puts k_count floats of one row into every kind of the inputs; see act_put in kernels.h. space has
 * room for as many floats. */
void rm_inputs_put(const rm_kernels *kernels, rm_inputs *in, uint32_t row, uint32_t k_first,
                   uint32_t k_count, const float *f, float *space);

#endif /* RM_ENGINE_LAYER_H */
