/*
 * recipe_llama.c: the llama family (Llama 1 to 3, SmolLM2, TinyLlama, ...), and what files call so
 * besides: Mistral with its window, Mixtral with its experts. Part: model.
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
    RM_TRY(rm_shape_number_any(&s->expert_count, s, g, "expert_count", RM_EXPERTS_MAX, err));
    if (s->expert_count == 0) return REMAT_OK;
    return rm_shape_number(&s->expert_used, s, g, "expert_used_count", s->expert_count, err);
}

static int bind(rm_model *m, const rm_gguf *g, remat_error *err) {
    const rm_shape *s = &m->shape;
    uint32_t window;
    RM_TRY(rm_shape_number_or(&window, s, g, "attention.sliding_window", 0, RM_CONTEXT_MAX, err));
    RM_TRY(rm_bind_ends(m, g, err));
    RM_TRY(
        rm_bind_vector(&m->rope_factors, g, -1, "rope_freqs.weight", s->rope_dim / 2, true, err));
    for (uint32_t i = 0; i < s->layer_count; i++) {
        m->layers[i].window = window;
        RM_TRY(rm_bind_attention(&m->layers[i], s, g, (int)i, err));
        RM_TRY((s->expert_count > 0 ? rm_bind_experts : rm_bind_dense)(&m->layers[i], s, g, (int)i,
                                                                       err));
    }
    return REMAT_OK;
}

const rm_recipe rm_recipe_llama = {.name = "llama", .shape = shape, .bind = bind};
