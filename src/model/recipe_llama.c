/*
 * recipe_llama.c: the llama family (Llama 1 to 3, SmolLM2, TinyLlama, ...). Part: model.
 *
 *     x += wo . attention(rope(wq . n), rope(wk . n), wv . n)      n = norm(x)
 *     x += down . (silu(gate . n) * (up . n))                      n = norm(x)
 *
 * Files of this architecture have Q and K permuted so that rotary pairs are neighbours.
 */
#include "model/model.h"

static int shape(rm_shape *s, const rm_gguf *g, remat_error *err) {
    RM_TRY(rm_shape_common(s, g, err));
    s->rope_style = RM_ROPE_PAIRS;
    return REMAT_OK;
}

static int bind_layer(rm_layer *y, const rm_shape *s, const rm_gguf *g, int i, remat_error *err) {
    const uint32_t q = s->head_count * s->head_dim, kv = s->kv_head_count * s->head_dim;
    RM_TRY(rm_bind_vector(&y->attn_norm, g, i, "attn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_matrix(&y->wq, g, i, "attn_q.weight", q, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->wk, g, i, "attn_k.weight", kv, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->wv, g, i, "attn_v.weight", kv, s->dim, err));
    RM_TRY(rm_bind_vector(&y->bq, g, i, "attn_q.bias", q, true, err));
    RM_TRY(rm_bind_vector(&y->bk, g, i, "attn_k.bias", kv, true, err));
    RM_TRY(rm_bind_vector(&y->bv, g, i, "attn_v.bias", kv, true, err));
    RM_TRY(rm_bind_matrix(&y->wo, g, i, "attn_output.weight", s->dim, q, err));
    RM_TRY(rm_bind_vector(&y->ffn_norm, g, i, "ffn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_matrix(&y->gate, g, i, "ffn_gate.weight", s->feed_forward, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->up, g, i, "ffn_up.weight", s->feed_forward, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->down, g, i, "ffn_down.weight", s->dim, s->feed_forward, err));
    return REMAT_OK;
}

static int bind(rm_model *m, const rm_gguf *g, remat_error *err) {
    const rm_shape *s = &m->shape;
    RM_TRY(rm_bind_matrix(&m->embedding, g, -1, "token_embd.weight", s->vocabulary, s->dim, err));
    RM_TRY(rm_bind_vector(&m->output_norm, g, -1, "output_norm.weight", s->dim, false, err));
    if (rm_gguf_tensor_find(g, "output.weight") != NULL) {
        RM_TRY(rm_bind_matrix(&m->output, g, -1, "output.weight", s->vocabulary, s->dim, err));
    } else {
        m->output = m->embedding;
    }
    RM_TRY(
        rm_bind_vector(&m->rope_factors, g, -1, "rope_freqs.weight", s->rope_dim / 2, true, err));
    for (uint32_t i = 0; i < s->layer_count; i++)
        RM_TRY(bind_layer(&m->layers[i], s, g, (int)i, err));
    return REMAT_OK;
}

const rm_recipe rm_recipe_llama = {.name = "llama", .shape = shape, .bind = bind};
