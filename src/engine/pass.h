/*
 * pass.h: what the phases of one chunk in one layer share. Part: engine; included by layer.c and
 * feed_forward.c only.
 */
#ifndef RM_ENGINE_PASS_H
#define RM_ENGINE_PASS_H

#include "engine/layer.h"

typedef struct rm_pass {
    const rm_layer_job *job;
    const rm_layer *weights;
    rm_inputs in, mid;
    rm_product q, k, v, out; /* their results are tiles */
    bool rest, keep;         /* all of the layer; leaves inputs of K and V where they are wanted */
} rm_pass;

/* Runs fn over the rows of the chunk: items of 16 rows, of single rows when there are few. */
void rm_pass_rows(rm_pass *p, rm_task_fn *fn);

/* The rows of an item: returns how many, from *first on. */
uint32_t rm_pass_item(const rm_pass *p, uint32_t item, uint32_t *first);

/* The hidden state of a row of the chunk. */
float *rm_pass_hidden(const rm_pass *p, uint32_t row);

/* Puts the norm of a row's hidden state into row `to` of p->in. */
void rm_pass_norm(rm_pass *p, uint32_t row, uint32_t to, const rm_vector *norm,
                  const rm_scratch_thread *t);

/* Adds row `from` of p->out to a row's hidden state, through the layer's norm for it, if any. */
void rm_pass_add(const rm_pass *p, uint32_t row, const rm_vector *norm, const rm_scratch_thread *t);

/* Residual += feed-forward of the norm: dense, or each row through its experts. ffn_norm of every
 * row is in p->in for the dense kind. */
void rm_feed_forward(rm_pass *p);

/* Kinds of input that the feed-forward reads from the norm. */
unsigned rm_feed_forward_mask(const rm_layer *y);

#endif /* RM_ENGINE_PASS_H */
