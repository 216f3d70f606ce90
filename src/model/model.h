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
typedef enum rm_gate { RM_GATE_SILU, RM_GATE_GELU } rm_gate;

/* Rotary tables: what most layers use, and what layers with a window use where that differs. */
typedef enum rm_rope_table { RM_ROPE_MAIN, RM_ROPE_LOCAL, RM_ROPE_TABLES } rm_rope_table;

typedef struct rm_shape {
    char architecture[64];
    uint32_t layer_count, dim, feed_forward, vocabulary, context_count;
    uint32_t head_count, kv_head_count, head_dim;
    uint32_t head_dim_padded; /* to 16: the width of heads in pages and queries */
    float norm_epsilon;
    float embedding_scale; /* of rows of the embedding; 1 */
    rm_gate gate;
    rm_rope_style rope_style;
    uint32_t rope_dim;      /* rotated channels of a head, from the first on */
    uint32_t attention_dim; /* scores are divided by its root; head_dim for most */
    /* Values cached of a token in place of heads (multi-head latent attention, DeepSeek-V2, 2024);
     * 0: none. Only described models have it. */
    uint32_t latent_dim;
    double rope_local_base; /* base of RM_ROPE_LOCAL; 0: no layer uses it */
    /* Mixture of experts: each row goes through expert_used of expert_count (0: dense), weighted
     * by a softmax over the chosen. */
    uint32_t expert_count, expert_used;
} rm_shape;

/* outputs rows of k weights, in strips. Without a source the model has no such matrix. */
typedef struct rm_matrix {
    const rm_gguf_tensor *source;
    rm_format format;
    uint32_t outputs, k;
    uint32_t row_first; /* in the tensor: some files fuse matrices that are read apart */
    uint32_t count;     /* equal matrices one after the other: experts; else 1 */
    bool streamed;      /* stays in the file: strips is NULL but while stream.h lends it memory */
    size_t strip_bytes;
    uint8_t *strips; /* count x rm_strips(outputs) x strip_bytes */
} rm_matrix;

/* Matrix `index` of the count in w. */
static inline rm_matrix rm_matrix_at(const rm_matrix *w, uint32_t index) {
    rm_matrix one = *w;
    one.count = 1;
    one.strips += (size_t)index * rm_strips(w->outputs) * w->strip_bytes;
    return one;
}

typedef struct rm_vector {
    const rm_gguf_tensor *source; /* NULL: none */
    uint32_t count;
    float *at;
} rm_vector;

typedef struct rm_layer {
    uint32_t window; /* tokens that attention sees, the newest included; 0: all */
    rm_rope_table rope;
    rm_vector attn_norm, ffn_norm;           /* dim */
    rm_vector post_attn_norm, post_ffn_norm; /* dim, of what is added to the residual; or none */
    rm_vector q_norm, k_norm;                /* head_dim, of each head before rotary; or none */
    rm_matrix wq, wk, wv;                    /* heads * head_dim x dim */
    rm_vector bq, bk, bv;                    /* their biases, or none */
    rm_matrix wo;                            /* dim x heads * head_dim */
    rm_matrix router;                        /* expert_count x dim, or none */
    rm_matrix gate, up;                      /* feed_forward x dim, of each expert */
    rm_matrix down;                          /* dim x feed_forward */
    rm_matrix beside; /* of a described model: parameters that none of these has; else none */
} rm_layer;

/* Angles of a rotary table: position * frequency, cos and sin times scale. */
typedef struct rm_rope {
    double *frequency; /* rope_dim / 2: radians a position; NULL: the table is not used */
    float scale;       /* yarn's attention factor, else 1 */
} rm_rope;

typedef struct rm_model {
    rm_shape shape;
    const struct rm_recipe *recipe;
    rm_layer *layers;
    rm_matrix embedding, output; /* output.source == embedding.source: tied, one copy */
    rm_vector output_norm;
    rm_vector rope_factors; /* divisors of frequencies, or none */
    rm_rope rope[RM_ROPE_TABLES];
    uint8_t *resident;     /* a flag for each unit, as the last layout was told */
    uint64_t weight_bytes; /* of all resident strips and vectors */
    void *weights;         /* where they begin in the arena; NULL while measuring */
} rm_model;

/* One architecture. */
typedef struct rm_recipe {
    const char *name; /* general.architecture */
    int (*shape)(rm_shape *s, const rm_gguf *g, remat_error *err);
    int (*bind)(rm_model *m, const rm_gguf *g, remat_error *err);
} rm_recipe;

extern const rm_recipe rm_recipe_llama, rm_recipe_qwen2, rm_recipe_qwen3, rm_recipe_qwen3moe,
    rm_recipe_gemma3, rm_recipe_phi3;

/* Reads the numbers and checks them against each other and the limits.
 * Errors: REMAT_E_MODEL (an unsupported architecture, a key that contradicts another: named). */
int rm_model_describe(rm_model *m, const rm_gguf *g, remat_error *err);

/* Carves the table of layers (account text), binds every tensor by name and checks its shape and
 * type. A tensor of the file that nothing here would use is an error: it would be an answer from
 * another model. */
int rm_model_bind(rm_model *m, rm_ledger *l, const rm_gguf *g, remat_error *err);

/* A model that there is no file of, from its numbers: rm_model_describe() and rm_model_bind() in
 * one. It can be laid out, and so be planned for, but not loaded. *parameter_count: what its
 * matrices and vectors come to. Errors: REMAT_E_USAGE naming the number. */
int rm_model_from_shape(rm_model *m, rm_ledger *l, const remat_shape *numbers,
                        uint64_t *parameter_count, remat_error *err);

/* Calls fn for every matrix and vector once, in the order of the arena: exactly one of w and v is
 * given. Absent ones are left out; so is a tied output, which is the embedding. */
typedef int rm_visit_fn(void *user, rm_matrix *w, rm_vector *v, remat_error *err);
int rm_model_visit(rm_model *m, rm_visit_fn *fn, void *user, remat_error *err);

/* UNITS are what stays in memory or passes through it (stream.h), each as a whole:
 *
 *     0        the embedding, and the output when it is tied
 *     1        the output; nothing when it is tied
 *     2 + 2l   attention of layer l: wq wk wv wo
 *     3 + 2l   feed-forward of layer l: router gate up down, and what is beside
 *
 * Vectors and rotary tables belong to none: they are always resident. */
enum { RM_UNIT_EMBEDDING, RM_UNIT_OUTPUT, RM_UNIT_LAYERS, RM_UNIT_MATRICES = 5 };

uint32_t rm_unit_count(const rm_model *m);

/* Bytes of its strips. */
uint64_t rm_unit_bytes(const rm_model *m, uint32_t unit);

/* Its matrices, in the order of the arena; absent ones are left out. Returns how many. */
uint32_t rm_unit_matrices(rm_matrix *out[RM_UNIT_MATRICES], rm_model *m, uint32_t unit);

/* Carves the weights of the units whose flag in `resident` is set (NULL: all of them), all vectors
 * and the rotary tables. The others have no strips until a stream lends them. */
int rm_model_layout(rm_model *m, rm_ledger *l, const uint8_t *resident, remat_error *err);

/* Bytes of staging memory a thread needs to load what is resident. */
uint64_t rm_model_stage_bytes(const rm_model *m);

typedef struct rm_load {
    rm_threads *threads;
    uint8_t *stage;       /* thread count x stage_bytes */
    uint64_t stage_bytes; /* rm_model_stage_bytes() or more */
    void (*progress)(void *user, uint64_t done, uint64_t total); /* or NULL; from any thread */
    bool (*canceled)(void *user);
    void *user;
} rm_load;

/* Reads all resident weights, interleaving them on the way. A value that is not finite is an error.
 * Errors: REMAT_E_MODEL, REMAT_E_FAILED, REMAT_E_CANCELED. */
int rm_model_load(rm_model *m, const rm_gguf *g, const rm_load *how, remat_error *err);

/* Neighbouring strips of a matrix, and the rows of the file that they are made of. */
typedef struct rm_run {
    const rm_matrix *matrix;
    const rm_file *file;
    uint32_t index;       /* which matrix of the stack */
    uint32_t first, last; /* strips first .. last - 1 */
    uint64_t at, bytes;   /* where the rows are in the file */
} rm_run;

rm_run rm_run_of(const rm_matrix *w, const rm_gguf *g, uint32_t index, uint32_t first,
                 uint32_t last);

/* Interleaves strips first .. last - 1 of the run, so that threads can share it. rows are all its
 * bytes, and strips is where its first strip goes. Errors: REMAT_E_MODEL, a weight that is not
 * finite. */
int rm_run_pack(uint8_t *strips, const rm_run *run, const uint8_t *rows, uint32_t first,
                uint32_t last, remat_error *err);

/* For recipes: binds layer tensor blk.LAYER.NAME (layer >= 0) or NAME. The matrix has `outputs`
 * rows of k. Errors: REMAT_E_MODEL naming the tensor; a missing optional one is no error. */
int rm_bind_matrix(rm_matrix *w, const rm_gguf *g, int layer, const char *name, uint32_t outputs,
                   uint32_t k, remat_error *err);
int rm_bind_vector(rm_vector *v, const rm_gguf *g, int layer, const char *name, uint32_t count,
                   bool optional, remat_error *err);

/* Rows row_first .. row_first + outputs - 1 of a tensor of row_count rows. */
int rm_bind_part(rm_matrix *w, const rm_gguf *g, int layer, const char *name, uint32_t row_count,
                 uint32_t row_first, uint32_t outputs, uint32_t k, remat_error *err);

/* count matrices of outputs rows each: a tensor of three dimensions. */
int rm_bind_stack(rm_matrix *w, const rm_gguf *g, int layer, const char *name, uint32_t count,
                  uint32_t outputs, uint32_t k, remat_error *err);

/* For recipes: what the families here have in common. Attention: norm, wq, wk, wv, biases where the
 * file has them, wo. Dense feed-forward: norm, gate, up, down. Ends: embedding, norm, output or
 * tied. */
int rm_bind_attention(rm_layer *y, const rm_shape *s, const rm_gguf *g, int layer,
                      remat_error *err);
int rm_bind_dense(rm_layer *y, const rm_shape *s, const rm_gguf *g, int layer, remat_error *err);
int rm_bind_experts(rm_layer *y, const rm_shape *s, const rm_gguf *g, int layer, remat_error *err);
int rm_bind_ends(rm_model *m, const rm_gguf *g, remat_error *err);

/* For recipes: the numbers that all of this family share, under the architecture's own prefix;
 * and one number more, which must be 1 to most (`_or`: the fallback when it is missing; `_any`: 0
 * when it is missing or 0, which is how files say "none"). */
int rm_shape_common(rm_shape *s, const rm_gguf *g, remat_error *err);
int rm_shape_number(uint32_t *out, const rm_shape *s, const rm_gguf *g, const char *name,
                    uint32_t most, remat_error *err);
int rm_shape_number_or(uint32_t *out, const rm_shape *s, const rm_gguf *g, const char *name,
                       uint32_t fallback, uint32_t most, remat_error *err);
int rm_shape_number_any(uint32_t *out, const rm_shape *s, const rm_gguf *g, const char *name,
                        uint32_t most, remat_error *err);

/* Fills m->rope from the file's base and scaling (none, linear, yarn, llama3, longrope) and the
 * factors tensor. context_count: what a sequence may hold (longrope has two sets). See rope.c. */
int rm_rope_load(rm_model *m, const rm_gguf *g, remat_error *err);

#endif /* RM_MODEL_MODEL_H */
