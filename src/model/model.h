/*
 * model.h: an architecture's numbers and weights. Part: model.
 *
 * A model is described (numbers from metadata, tensors bound and checked: no weights read), then
 * laid out (memory for the weights carved), then loaded. What differs between architectures is in
 * a recipe (recipe_llama.c): how the numbers are called and which tensors there are; the layer
 * itself is run by engine/layer.c from the numbers and weights given here.
 */
#ifndef RM_MODEL_MODEL_H
#define RM_MODEL_MODEL_H

#include "base/threads.h"
#include "gguf/file.h"
#include "kernels/kernels.h"

typedef enum rm_rope_style { RM_ROPE_PAIRS, RM_ROPE_HALVES } rm_rope_style;

typedef struct rm_shape {
    char architecture[64];
    uint32_t layer_count, dim, feed_forward, vocabulary, context_count;
    uint32_t head_count, kv_head_count, head_dim;
    uint32_t head_dim_padded; /* to 16: the width of heads in pages and queries */
    float norm_epsilon;
    rm_rope_style rope_style;
    uint32_t rope_dim; /* rotated channels of a head, from the first on */
    float rope_scale;  /* of cos and sin: yarn's attention factor, else 1 */
} rm_shape;

/* outputs rows of k weights, in strips. Without a source the model has no such matrix. */
typedef struct rm_matrix {
    const rm_gguf_tensor *source;
    rm_format format;
    uint32_t outputs, k;
    size_t strip_bytes;
    uint8_t *strips; /* rm_strips(outputs) x strip_bytes */
} rm_matrix;

typedef struct rm_vector {
    const rm_gguf_tensor *source; /* NULL: none */
    uint32_t count;
    float *at;
} rm_vector;

typedef struct rm_layer {
    uint32_t window;               /* tokens that attention sees, the newest included; 0: all */
    rm_vector attn_norm, ffn_norm; /* dim */
    rm_matrix wq, wk, wv;          /* heads * head_dim x dim */
    rm_vector bq, bk, bv;          /* their biases, or none */
    rm_matrix wo;                  /* dim x heads * head_dim */
    rm_matrix gate, up;            /* feed_forward x dim */
    rm_matrix down;                /* dim x feed_forward */
} rm_layer;

typedef struct rm_model {
    rm_shape shape;
    const struct rm_recipe *recipe;
    rm_layer *layers;
    rm_matrix embedding, output; /* output.source == embedding.source: tied, one copy */
    rm_vector output_norm;
    rm_vector rope_factors; /* rope_freqs.weight, or none */
    double *rope_frequency; /* rope_dim / 2: radians a position */
    uint64_t weight_bytes;  /* of all strips and vectors */
} rm_model;

/* One architecture. */
typedef struct rm_recipe {
    const char *name; /* general.architecture */
    int (*shape)(rm_shape *s, const rm_gguf *g, remat_error *err);
    int (*bind)(rm_model *m, const rm_gguf *g, remat_error *err);
} rm_recipe;

extern const rm_recipe rm_recipe_llama;

/* Reads the numbers and checks them against each other and the limits.
 * Errors: REMAT_E_MODEL (an unsupported architecture, a key that contradicts another: named). */
int rm_model_describe(rm_model *m, const rm_gguf *g, remat_error *err);

/* Carves the table of layers (account text), binds every tensor by name and checks its shape and
 * type. A tensor of the file that nothing here would use is an error: it would be an answer from
 * another model. */
int rm_model_bind(rm_model *m, rm_ledger *l, const rm_gguf *g, remat_error *err);

/* Calls fn for every matrix and vector once, in the order of the arena: exactly one of w and v is
 * given. Absent ones are left out; so is a tied output, which is the embedding. */
typedef int rm_visit_fn(void *user, rm_matrix *w, rm_vector *v, remat_error *err);
int rm_model_visit(rm_model *m, rm_visit_fn *fn, void *user, remat_error *err);

/* Carves the weights. */
int rm_model_layout(rm_model *m, rm_ledger *l, remat_error *err);

/* Bytes of staging memory a thread needs to load. */
uint64_t rm_model_stage_bytes(const rm_model *m);

typedef struct rm_load {
    rm_threads *threads;
    uint8_t *stage;       /* thread count x stage_bytes */
    uint64_t stage_bytes; /* rm_model_stage_bytes() or more */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* or NULL; from any thread */
    bool (*canceled)(void *user);
    void *user;
} rm_load;

/* Reads all weights, interleaving them on the way. A value that is not finite is an error.
 * Errors: REMAT_E_MODEL, REMAT_E_FAILED, REMAT_E_CANCELED. */
int rm_model_load(rm_model *m, const rm_gguf *g, const rm_load *how, remat_error *err);

/* For recipes: binds layer tensor blk.LAYER.NAME (layer >= 0) or NAME. The matrix has `outputs`
 * rows of k. Errors: REMAT_E_MODEL naming the tensor; a missing optional one is no error. */
int rm_bind_matrix(rm_matrix *w, const rm_gguf *g, int layer, const char *name, uint32_t outputs,
                   uint32_t k, remat_error *err);
int rm_bind_vector(rm_vector *v, const rm_gguf *g, int layer, const char *name, uint32_t count,
                   bool optional, remat_error *err);

/* For recipes: the numbers that all of this family share, under the architecture's own prefix. */
int rm_shape_common(rm_shape *s, const rm_gguf *g, remat_error *err);

/* Fills m->rope_frequency from the file's base and scaling (none, linear, yarn, llama3) and the
 * factors tensor; sets shape.rope_scale. See rope.c. */
int rm_rope_load(rm_model *m, const rm_gguf *g, remat_error *err);

#endif /* RM_MODEL_MODEL_H */
