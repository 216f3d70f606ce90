/* work.c: see work.h. */
#include "engine/work.h"

/* The largest k of each kind of input that matrices read after a norm, and in the middle of a
 * layer; 0: none does. */
typedef struct input_widths {
    uint32_t in[RM_INPUT_COUNT], mid[RM_INPUT_COUNT];
} input_widths;

static void widen(uint32_t *k, const rm_matrix *w, bool fine) {
    if (w->source == NULL) return;
    const rm_input_kind kind = rm_input_of(w, fine);
    k[kind] = rm_most(k[kind], w->k);
}

static input_widths widths_of(const rm_model *m) {
    input_widths k = {0};
    for (uint32_t i = 0; i < m->shape.layer_count; i++) {
        const rm_layer *y = &m->layers[i];
        widen(k.in, &y->wq, true);
        widen(k.in, &y->wk, true);
        widen(k.in, &y->wv, true);
        widen(k.in, &y->gate, false);
        widen(k.in, &y->up, false);
        widen(k.in, &y->router, true);
        widen(k.mid, &y->wo, true);
        widen(k.mid, &y->down, false);
    }
    return k;
}

uint64_t rm_input_bytes(rm_input_kind kind, uint32_t row_count, uint32_t k) {
    const uint64_t bytes = rm_acts_bytes(rm_input_act(kind), row_count * rm_input_rows(kind), k);
    return (bytes + 63) / 64 * 64;
}

rm_acts rm_input_view(void *memory, rm_input_kind kind, uint32_t row_count, uint32_t k) {
    return rm_acts_view(memory, rm_input_act(kind), row_count * rm_input_rows(kind), k);
}

/* Carves the arrays of the kinds with a k, one after the other. */
static int inputs_layout(uint8_t **memory, uint64_t *at, rm_ledger *l, uint32_t rows,
                         const uint32_t *k, remat_error *err) {
    uint64_t sum = 0;
    for (int i = 0; i < RM_INPUT_COUNT; i++) {
        at[i] = sum;
        if (k[i] > 0) sum += rm_input_bytes((rm_input_kind)i, rows, k[i]);
    }
    return rm_ledger_carve(memory, l, RM_ACCOUNT_WORK, 1, sum, err);
}

/* Floats of a tile of gate or up: of the layer that needs most. */
static uint64_t tile_floats(const rm_model *m, uint32_t chunk_rows) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->shape.layer_count; i++) {
        const rm_matrix *down = &m->layers[i].down;
        const uint64_t n = (uint64_t)rm_unit_rows(down, chunk_rows) * rm_unit_of(down);
        most = n > most ? n : most;
    }
    return most;
}

static int thread_layout(rm_scratch_thread *t, rm_ledger *l, const rm_work *w, const rm_model *m,
                         uint32_t widest, remat_error *err) {
    const rm_shape *s = &m->shape;
    const uint64_t state = RM_STATE_HEAD + s->head_dim_padded;
    const rm_account a = RM_ACCOUNT_WORK;
    RM_TRY(rm_ledger_carve(&t->matmul, l, a, 1, RM_MATMUL_SCRATCH, err));
    RM_TRY(rm_ledger_carve(&t->attn, l, a, 1, rm_attn_scratch_bytes(s->head_dim_padded), err));
    RM_TRY(rm_ledger_carve(&t->from, l, a, w->tile_queries, sizeof *t->from, err));
    RM_TRY(rm_ledger_carve(&t->seen, l, a, w->tile_queries, sizeof *t->seen, err));
    RM_TRY(rm_ledger_carve(&t->cos, l, a, s->rope_dim / 2 + 1, sizeof *t->cos, err));
    RM_TRY(rm_ledger_carve(&t->sin, l, a, s->rope_dim / 2 + 1, sizeof *t->sin, err));
    for (int i = 0; i < 2; i++) {
        RM_TRY(rm_ledger_carve(&t->state[i], l, a, w->tile_queries * state, sizeof(float), err));
        RM_TRY(
            rm_ledger_carve(&t->tile[i], l, a, tile_floats(m, w->chunk_rows), sizeof(float), err));
    }
    for (int i = 0; i < 3; i++)
        RM_TRY(rm_ledger_carve(&t->row[i], l, a, widest, sizeof(float), err));
    return REMAT_OK;
}

int rm_work_layout(rm_work *w, rm_ledger *l, const rm_model *m, uint32_t chunk_rows,
                   uint32_t thread_count, uint32_t context_count, bool staged, remat_error *err) {
    const rm_shape *s = &m->shape;
    const uint32_t group = s->head_count / s->kv_head_count, q = s->head_count * s->head_dim;
    const uint32_t kv = s->kv_head_count * s->head_dim;
    const uint64_t rows = chunk_rows, state = RM_STATE_HEAD + s->head_dim_padded;
    const rm_account a = RM_ACCOUNT_WORK;
    *w = (rm_work){.chunk_rows = chunk_rows, .thread_count = thread_count};
    w->tile_queries = rm_most(RM_TILE_QUERIES, RM_SPLIT_ROWS * group);
    w->span_count = (context_count + RM_SPAN_TOKENS - 1) / RM_SPAN_TOKENS;
    const input_widths k = widths_of(m);
    RM_TRY(inputs_layout(&w->in, w->in_at, l, chunk_rows, k.in, err));
    RM_TRY(inputs_layout(&w->mid, w->mid_at, l, chunk_rows, k.mid, err));

    /* Tiles are padded to 16 outputs and may be of two rows for one (RM_INPUT_FINE); attention's
     * output is narrower than the three together. */
    const uint64_t heads = 2 * (uint64_t)RM_LANES * (rm_strips(q) + 2ull * rm_strips(kv));
    const uint32_t most = rm_most(rm_most(s->dim, q), rm_most(kv, s->feed_forward));
    const uint32_t widest = rm_pad_k(rm_most(most, s->expert_count));
    const uint32_t out = rm_strips(rm_most(s->dim, s->expert_count));
    const uint64_t routed = s->expert_count > 0 ? rows : 0;
    w->heads_bytes = rows * heads * sizeof(float);
    RM_TRY(rm_ledger_carve(&w->heads, l, a, 1, w->heads_bytes, err));
    RM_TRY(rm_ledger_carve(&w->out, l, a, 2 * rows * RM_LANES * out, sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->query, l, a, rows * s->head_count * s->head_dim_padded,
                           sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->split, l, a, state * w->span_count * s->head_count * RM_SPLIT_ROWS,
                           sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->totals, l, a, staged ? rows * s->head_count * state : 0,
                           sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->choices, l, a, routed * s->expert_used, sizeof *w->choices, err));
    RM_TRY(rm_ledger_carve(&w->expert_rows, l, a, routed, sizeof *w->expert_rows, err));
    RM_TRY(rm_ledger_carve(&w->expert_sum, l, a, routed * s->dim, sizeof(float), err));
    RM_TRY(rm_ledger_carve(&w->threads, l, a, thread_count, sizeof *w->threads, err));
    for (uint32_t i = 0; i < thread_count; i++) {
        rm_scratch_thread measured; /* while measuring there is no array to write to */
        RM_TRY(
            thread_layout(w->threads != NULL ? &w->threads[i] : &measured, l, w, m, widest, err));
    }
    return REMAT_OK;
}

static rm_inputs view(uint8_t *memory, const uint64_t *at, unsigned mask, uint32_t rows,
                      uint32_t k) {
    rm_inputs in = {.mask = mask};
    for (int i = 0; i < RM_INPUT_COUNT; i++) {
        if (mask >> i & 1) in.kind[i] = rm_input_view(memory + at[i], (rm_input_kind)i, rows, k);
    }
    return in;
}

rm_inputs rm_work_in(const rm_work *w, unsigned mask, uint32_t row_count, uint32_t k) {
    return view(w->in, w->in_at, mask, row_count, k);
}

rm_inputs rm_work_mid(const rm_work *w, unsigned mask, uint32_t row_count, uint32_t k) {
    return view(w->mid, w->mid_at, mask, row_count, k);
}
