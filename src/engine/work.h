/*
 * work.h: the memory one chunk of rows needs on its way through a layer. Part: engine.
 *
 * Bounded by the chunk and the model's width, never by the context (but for a few pointers and the
 * spans of a single row's attention). Sections that are not alive together share their bytes:
 *
 *     in       8-bit or f32 copies of a norm's output: what Q, K, V and gate, up read
 *     mid      the same of attention's output (wo reads it), then of the gated rows (down reads it)
 *     heads    tiles of Q, K, V; then attention's output, row-major
 *     out      tiles of wo's and down's results
 *     query    rotated, scaled queries [kv head][row][query head of the group][head_dim_padded]
 */
#ifndef RM_ENGINE_WORK_H
#define RM_ENGINE_WORK_H

#include "base/ledger.h"
#include "base/number.h"
#include "model/model.h"

enum {
    RM_SPLIT_ROWS = 4, /* a chunk of so many rows cuts attention by spans, a larger one by rows */
    RM_TILE_QUERIES = 192, /* queries of an attention item: reuse of K and V against scratch */
    RM_UNIT = 64, /* outputs of gate and up that a thread turns into input of down at once */
    RM_UNIT_SUPER = RM_SUPER_K, /* the same where down reads RM_ACT_Q8K: a block needs them all */
    RM_UNIT_ROWS = 256,         /* rows that such a unit does at a time: bounds its tiles */
};

/*
 * How a product reads its input. FINE is for the few matrices where the error of 8-bit inputs costs
 * most for what it saves (docs/kernels.md): two rows of 8-bit values for one row of input, the
 * second the rounding error of the first. A product is linear, so the sum of its two results is
 * the product with about 15 bits; no kernel knows of it.
 */
typedef enum rm_input_kind {
    RM_INPUT_F32 = RM_ACT_F32,
    RM_INPUT_Q8 = RM_ACT_Q8,
    RM_INPUT_Q8K = RM_ACT_Q8K,
    RM_INPUT_FINE,   /* of RM_ACT_Q8 */
    RM_INPUT_FINE_K, /* of RM_ACT_Q8K */
    RM_INPUT_COUNT
} rm_input_kind;

/* What a product reads, in each kind that some matrix of the phase wants. */
typedef struct rm_inputs {
    rm_acts kind[RM_INPUT_COUNT];
    unsigned mask; /* bit k: kind[k] is filled */
} rm_inputs;

typedef struct rm_scratch_thread {
    void *matmul;          /* RM_MATMUL_SCRATCH */
    void *attn;            /* rm_attn_scratch_bytes() */
    float *state[2];       /* RM_TILE_QUERIES attention states, or one query more than a group */
    uint32_t *from, *seen; /* as many: what queries see of a span */
    float *tile[2];        /* gate and up: rows of a unit x its outputs */
    float *row[3];         /* widest row of floats, padded to 64 */
    float *cos, *sin;      /* rope_dim / 2 */
} rm_scratch_thread;

/* An expert of a row, or a row of an expert, and what its output counts there. */
typedef struct rm_choice {
    uint32_t index;
    float weight;
} rm_choice;

typedef struct rm_work {
    uint32_t chunk_rows, thread_count, tile_queries, span_count;
    uint8_t *in, *mid;
    uint64_t in_at[RM_INPUT_COUNT]; /* where each kind's arrays begin in `in` */
    uint64_t mid_at[RM_INPUT_COUNT];
    uint64_t heads_bytes;
    float *heads, *out, *query;
    float *split;       /* [span][query head][row < RM_SPLIT_ROWS] states */
    float *totals;      /* chunk x query heads: states between two bands of attention; or NULL */
    rm_choice *choices; /* chunk x expert_used: experts */
    rm_choice *expert_rows; /* rows gathered for one expert */
    float *expert_sum;      /* chunk x dim */
    rm_scratch_thread *threads;
} rm_work;

/* Carves everything for chunks of chunk_rows rows in contexts of context_count tokens. staged:
 * attention may have to take the past in bands. */
int rm_work_layout(rm_work *w, rm_ledger *l, const rm_model *m, uint32_t chunk_rows,
                   uint32_t thread_count, uint32_t context_count, bool staged, remat_error *err);

/* Views of `in` and `mid` for row_count rows of k values, in the kinds of mask. */
rm_inputs rm_work_in(const rm_work *w, unsigned mask, uint32_t row_count, uint32_t k);
rm_inputs rm_work_mid(const rm_work *w, unsigned mask, uint32_t row_count, uint32_t k);

/* How a matrix reads its input; fine: where its format has a choice. */
static inline rm_input_kind rm_input_of(const rm_matrix *w, bool fine) {
    const rm_act_kind act = rm_formats[w->format].act;
    if (!fine || act == RM_ACT_F32) return (rm_input_kind)act;
    return act == RM_ACT_Q8K ? RM_INPUT_FINE_K : RM_INPUT_FINE;
}

static inline unsigned rm_input_bit(const rm_matrix *w, bool fine) {
    return 1u << rm_input_of(w, fine);
}

/* The activations that an input is made of. */
static inline rm_act_kind rm_input_act(rm_input_kind kind) {
    return kind == RM_INPUT_FINE     ? RM_ACT_Q8
           : kind == RM_INPUT_FINE_K ? RM_ACT_Q8K
                                     : (rm_act_kind)kind;
}

/* Rows that a product with this input has for each row of the chunk. */
static inline uint32_t rm_input_rows(rm_input_kind kind) {
    return kind == RM_INPUT_FINE || kind == RM_INPUT_FINE_K ? 2 : 1;
}

/* Outputs of gate and up that are turned into input of down at once, and rows at a time. */
static inline uint32_t rm_unit_of(const rm_matrix *down) {
    return rm_formats[down->format].act == RM_ACT_Q8K ? RM_UNIT_SUPER : RM_UNIT;
}

static inline uint32_t rm_unit_rows(const rm_matrix *down, uint32_t row_count) {
    return rm_unit_of(down) == RM_UNIT || row_count < RM_UNIT_ROWS ? row_count : RM_UNIT_ROWS;
}

/* Bytes of the arrays of one kind for so many rows of the chunk. */
uint64_t rm_input_bytes(rm_input_kind kind, uint32_t row_count, uint32_t k);

/* Arrays of one kind in memory of rm_input_bytes(). */
rm_acts rm_input_view(void *memory, rm_input_kind kind, uint32_t row_count, uint32_t k);

#endif /* RM_ENGINE_WORK_H */
