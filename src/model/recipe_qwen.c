/*
 * recipe_qwen.c: Qwen 2 and 2.5 (biases on Q, K, V), Qwen 3 (a norm on each head of Q and K
 * instead), Qwen 3 with experts. Part: model.
 *
 * Rotary pairs are channel i and i + half. These files carry no window: their models have it off.
 */
#include "model/model.h"

#include <stdio.h>

static int shape(rm_shape *s, const rm_gguf *g, remat_error *err) {
    uint32_t window;
    RM_TRY(rm_shape_common(s, g, err));
    s->rope_style = RM_ROPE_HALVES;
    RM_TRY(rm_shape_number_or(&window, s, g, "attention.sliding_window", 0, RM_CONTEXT_MAX, err));
    if (window == 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: %s.attention.sliding_window is %u; this version runs "
                   "these models without a window only",
                   g->file->path, s->architecture, window);
}

static int shape_moe(rm_shape *s, const rm_gguf *g, remat_error *err) {
    RM_TRY(shape(s, g, err));
    RM_TRY(rm_shape_number(&s->expert_count, s, g, "expert_count", RM_EXPERTS_MAX, err));
    RM_TRY(rm_shape_number(&s->expert_used, s, g, "expert_used_count", s->expert_count, err));
    return rm_shape_number_or(&s->feed_forward, s, g, "expert_feed_forward_length", s->feed_forward,
                              RM_WIDTH_MAX, err);
}

static int bind_head_norms(rm_layer *y, const rm_shape *s, const rm_gguf *g, int i,
                           remat_error *err) {
    RM_TRY(rm_bind_vector(&y->q_norm, g, i, "attn_q_norm.weight", s->head_dim, false, err));
    return rm_bind_vector(&y->k_norm, g, i, "attn_k_norm.weight", s->head_dim, false, err);
}

/* They are no option of these models, as they are elsewhere. */
static int check_biases(const rm_layer *y, const rm_gguf *g, int i, remat_error *err) {
    const rm_vector *const biases[] = {&y->bq, &y->bk, &y->bv};
    for (int k = 0; k < 3; k++) {
        if (biases[k]->source != NULL) continue;
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: tensor blk.%d.attn_%c.bias is missing; the file is no complete model",
                       g->file->path, i, "qkv"[k]);
    }
    return REMAT_OK;
}

static int bind(rm_model *m, const rm_gguf *g, bool head_norms, remat_error *err) {
    const rm_shape *s = &m->shape;
    RM_TRY(rm_bind_ends(m, g, err));
    for (uint32_t i = 0; i < s->layer_count; i++) {
        rm_layer *y = &m->layers[i];
        RM_TRY(rm_bind_attention(y, s, g, (int)i, err));
        RM_TRY(
            (head_norms ? bind_head_norms(y, s, g, (int)i, err) : check_biases(y, g, (int)i, err)));
        RM_TRY((s->expert_count > 0 ? rm_bind_experts : rm_bind_dense)(y, s, g, (int)i, err));
    }
    return REMAT_OK;
}

static int bind_2(rm_model *m, const rm_gguf *g, remat_error *err) {
    return bind(m, g, false, err);
}

static int bind_3(rm_model *m, const rm_gguf *g, remat_error *err) {
    return bind(m, g, true, err);
}

const rm_recipe rm_recipe_qwen2 = {.name = "qwen2", .shape = shape, .bind = bind_2};
const rm_recipe rm_recipe_qwen3 = {.name = "qwen3", .shape = shape, .bind = bind_3};
const rm_recipe rm_recipe_qwen3moe = {.name = "qwen3moe", .shape = shape_moe, .bind = bind_3};
