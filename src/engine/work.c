/* work.c: see work.h. */
#include "engine/work.h"

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static unsigned layer_mask(const rm_layer *y) {
    return rm_act_bit(&y->wq) | rm_act_bit(&y->wk) | rm_act_bit(&y->wv) | rm_act_bit(&y->wo) |
           rm_act_bit(&y->gate) | rm_act_bit(&y->up) | rm_act_bit(&y->down);
}

/* The largest of the kinds in use: each kind then has its place at a multiple of this. */
static uint64_t kind_bytes(unsigned mask, uint32_t rows, uint32_t k) {
    uint64_t most = 0;
    for (int i = 0; i < RM_ACT_COUNT; i++) {
        const uint64_t bytes = mask >> i & 1 ? rm_acts_bytes((rm_act_kind)i, rows, rm_pad_k(k)) : 0;
        if (bytes > most) most = bytes;
    }
    return (most + 63) / 64 * 64;
}

static int thread_layout(rm_scratch_thread *t, rm_ledger *l, const rm_work *w, const rm_shape *s,
                         uint32_t widest, remat_error *err) {
    const uint64_t state = RM_STATE_HEAD + s->head_dim_padded;
    const rm_account a = RM_ACCOUNT_WORK;
    RM_TRY(rm_ledger_carve(&t->matmul, l, a, 1, RM_MATMUL_SCRATCH, err));
    RM_TRY(rm_ledger_carve(&t->attn, l, a, 1, rm_attn_scratch_bytes(s->head_dim_padded), err));
    RM_TRY(rm_ledger_carve(&t->seen, l, a, w->tile_queries, sizeof *t->seen, err));
    RM_TRY(rm_ledger_carve(&t->cos, l, a, s->rope_dim / 2 + 1, sizeof *t->cos, err));
    RM_TRY(rm_ledger_carve(&t->sin, l, a, s->rope_dim / 2 + 1, sizeof *t->sin, err));
    for (int i = 0; i < 2; i++) {
        RM_TRY(rm_ledger_carve(&t->state[i], l, a, w->tile_queries * state, sizeof(float), err));
        RM_TRY(rm_ledger_carve(&t->tile[i], l, a, (uint64_t)w->chunk_rows * RM_UNIT, sizeof(float),
                               err));
        RM_TRY(rm_ledger_carve(&t->row[i], l, a, widest, sizeof(float), err));
    }
    return REMAT_OK;
}

int rm_work_layout(rm_work *w, rm_ledger *l, const rm_model *m, uint32_t chunk_rows,
                   uint32_t thread_count, uint32_t context_count, remat_error *err) {
    const rm_shape *s = &m->shape;
    const uint32_t group = s->head_count / s->kv_head_count, q = s->head_count * s->head_dim;
    const uint32_t kv = s->kv_head_count * s->head_dim;
    const uint64_t rows = chunk_rows, state = RM_STATE_HEAD + s->head_dim_padded;
    const rm_account a = RM_ACCOUNT_WORK;
    *w = (rm_work){.chunk_rows = chunk_rows, .thread_count = thread_count};
    w->tile_queries = larger(RM_TILE_QUERIES, RM_SPLIT_ROWS * group);
    w->span_count = (context_count + RM_SPAN_TOKENS - 1) / RM_SPAN_TOKENS;
    w->act_mask = rm_act_bit(&m->output);
    for (uint32_t i = 0; i < s->layer_count; i++)
        w->act_mask |= layer_mask(&m->layers[i]);
    w->in_bytes = kind_bytes(w->act_mask, chunk_rows, s->dim);
    w->mid_bytes = kind_bytes(w->act_mask, chunk_rows, larger(q, s->feed_forward));

    /* Tiles are padded to 16 outputs; attention's output is narrower than the three together. */
    const uint64_t heads = (uint64_t)RM_LANES * (rm_strips(q) + 2ull * rm_strips(kv));
    const uint32_t widest = rm_pad_k(larger(larger(s->dim, q), larger(kv, s->feed_forward)));
    const uint32_t kinds = (uint32_t)__builtin_popcount(w->act_mask);
    RM_TRY(rm_ledger_carve(&w->in, l, a, kinds, w->in_bytes, err));
    RM_TRY(rm_ledger_carve(&w->mid, l, a, kinds, w->mid_bytes, err));
    RM_TRY(rm_ledger_carve(&w->heads, l, a, rows * heads, sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->out, l, a, rows * RM_LANES * rm_strips(s->dim), sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->query, l, a, rows * s->head_count * s->head_dim_padded,
                           sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->split, l, a, state * w->span_count * s->head_count * RM_SPLIT_ROWS,
                           sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->threads, l, a, thread_count, sizeof *w->threads, err));
    for (uint32_t i = 0; i < thread_count; i++) {
        rm_scratch_thread measured; /* while measuring there is no array to write to */
        RM_TRY(
            thread_layout(w->threads != NULL ? &w->threads[i] : &measured, l, w, s, widest, err));
    }
    return REMAT_OK;
}

static rm_inputs view(const rm_work *w, uint8_t *memory, uint64_t kind_bytes_each, unsigned mask,
                      uint32_t rows, uint32_t k) {
    rm_inputs in = {.mask = mask};
    RM_ASSERT((mask & ~w->act_mask) == 0);
    for (int i = 0; i < RM_ACT_COUNT; i++) {
        if ((mask >> i & 1) == 0) continue;
        const int before = __builtin_popcount(w->act_mask & ((1u << i) - 1));
        in.kind[i] = rm_acts_view(memory + (uint64_t)before * kind_bytes_each, (rm_act_kind)i, rows,
                                  rm_pad_k(k));
    }
    return in;
}

rm_inputs rm_work_in(const rm_work *w, unsigned mask, uint32_t row_count, uint32_t k) {
    return view(w, w->in, w->in_bytes, mask, row_count, k);
}

rm_inputs rm_work_mid(const rm_work *w, unsigned mask, uint32_t row_count, uint32_t k) {
    return view(w, w->mid, w->mid_bytes, mask, row_count, k);
}
