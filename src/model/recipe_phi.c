/*
 * recipe_phi.c: Phi 3 and 4 (dense). Part: model.
 *
 * The llama layer, with Q, K, V in one tensor and gate, up in another; rotary pairs are channel i
 * and i + half; a window where the file has one (Phi 4 files say 0: none).
 */
#include "model/model.h"

static int shape(rm_shape *s, const rm_gguf *g, remat_error *err) {
    RM_TRY(rm_shape_common(s, g, err));
    s->rope_style = RM_ROPE_HALVES;
    return REMAT_OK;
}

static int bind_layer(rm_layer *y, const rm_shape *s, const rm_gguf *g, int i, remat_error *err) {
    const uint32_t q = s->head_count * s->head_dim, kv = s->kv_head_count * s->head_dim;
    const uint32_t all = q + 2 * kv, ff = s->feed_forward;
    static const char qkv[] = "attn_qkv.weight", up[] = "ffn_up.weight";
    RM_TRY(rm_bind_vector(&y->attn_norm, g, i, "attn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_part(&y->wq, g, i, qkv, all, 0, q, s->dim, err));
    RM_TRY(rm_bind_part(&y->wk, g, i, qkv, all, q, kv, s->dim, err));
    RM_TRY(rm_bind_part(&y->wv, g, i, qkv, all, q + kv, kv, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->wo, g, i, "attn_output.weight", s->dim, q, err));
    RM_TRY(rm_bind_vector(&y->ffn_norm, g, i, "ffn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_part(&y->gate, g, i, up, 2 * ff, 0, ff, s->dim, err));
    RM_TRY(rm_bind_part(&y->up, g, i, up, 2 * ff, ff, ff, s->dim, err));
    return rm_bind_matrix(&y->down, g, i, "ffn_down.weight", s->dim, ff, err);
}

static int bind(rm_model *m, const rm_gguf *g, remat_error *err) {
    const rm_shape *s = &m->shape;
    uint32_t window;
    RM_TRY(rm_shape_number_any(&window, s, g, "attention.sliding_window", RM_CONTEXT_MAX, err));
    RM_TRY(rm_bind_ends(m, g, err));
    for (uint32_t i = 0; i < s->layer_count; i++) {
        m->layers[i].window = window;
        RM_TRY(bind_layer(&m->layers[i], s, g, (int)i, err));
    }
    return REMAT_OK;
}

const rm_recipe rm_recipe_phi3 = {.name = "phi3", .shape = shape, .bind = bind};
