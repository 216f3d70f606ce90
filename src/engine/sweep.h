/*
 * sweep.h: rows through the layers. Prefill, decode, recompute, scoring and batches are all this.
 *
 *     for each layer:
 *         hold the pages of the layer's rows
 *         for each chunk of rows that run in it:   keys, and the rest      (layer.h)
 *         give back the pages of rows that keep no KV
 *     logits of the rows that want them
 *
 * Only one layer's pages of rows that keep no KV are in memory at a time: this is what makes a
 * cache that does not fit the budget work. Rows of one sequence stand together with rising
 * positions; every position below one of them is a row of this sweep, or its page is held.
 */
#ifndef RM_ENGINE_SWEEP_H
#define RM_ENGINE_SWEEP_H

#include "engine/layer.h"

typedef struct rm_row {
    uint32_t sequence, position, token;
    uint16_t first_layer; /* above 0: the caller has put the row's hidden state in place */
    uint16_t last_layer;  /* below the last: the hidden state is what the row is for */
    bool keep_kv;         /* its column stays held after each layer */
    bool want_logits;     /* with last_layer the model's last */
} rm_row;

typedef struct rm_sweep_shape {
    uint32_t row_max, chunk_rows, thread_count, context_count, logits_rows;
} rm_sweep_shape;

/* Called with the logits of rows that want them, in order. Finite, all of them. */
typedef int rm_logits_fn(void *user, uint32_t row, const float *logits, remat_error *err);

typedef struct rm_sweep {
    rm_sweep_shape shape;
    const rm_model *model;
    const rm_kernels *kernels;
    rm_threads *threads;
    rm_cache *cache;
    rm_work work;
    rm_row *rows;                    /* row_max; filled by the caller */
    float *hidden;                   /* row_max x dim */
    uint32_t *hidden_row, *position; /* of a chunk */
    rm_segment *segments;            /* of a chunk */
    uint8_t *logit_in;               /* activations of logits_rows rows */
    float *logit_tiles;              /* logits_rows x vocabulary, padded */
    float *logits;                   /* one row, when tiles hold several */
    bool (*canceled)(void *user);
    void (*progress)(void *user, uint64_t done, uint64_t total); /* rows times layers; or NULL */
    void *user;
    /* Test hook: a row's hidden state after a layer, from the calling thread. NULL: none. */
    void (*tap)(void *user, uint32_t layer, uint32_t row, const float *hidden);
    void *tap_user;
} rm_sweep;

/* Carves work, rows and logits. */
int rm_sweep_layout(rm_sweep *s, rm_ledger *l, const rm_model *m, const rm_sweep_shape *shape,
                    remat_error *err);

/* Runs s->rows[0 .. row_count - 1]. The pool has room for the pages (asserted).
 * Errors: REMAT_E_FAILED (a logit is not finite), REMAT_E_CANCELED, and what fn returns; pages of
 * rows that keep KV may then stay held. */
int rm_sweep_run(rm_sweep *s, uint32_t row_count, rm_logits_fn *fn, void *user, remat_error *err);

#endif /* RM_ENGINE_SWEEP_H */
