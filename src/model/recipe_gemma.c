/*
 * recipe_gemma.c: Gemma 3 text models. Part: model.
 *
 *     x = sqrt(dim) * embedding
 *     x += norm(wo . attention(rope(norm(wq . n)), rope(norm(wk . n)), wv . n))    n = norm(x)
 *     x += norm(down . (gelu(gate . n) * (up . n)))                                n = norm(x)
 *
 * Five layers with a window, then one without, and so on; the two kinds have rotary bases of their
 * own, and only the layers without a window are scaled for long contexts. The weights of norms in
 * the file have their 1 added already.
 */
#include "model/model.h"

#include <math.h>

enum { PATTERN = 6, LAYERS_27B = 62 };

/* The base of layers with a window: newer files carry it, the models so far have the same. */
static int local_base(rm_shape *s, const rm_gguf *g, remat_error *err) {
    static const char key[] = "gemma3.rope.freq_base_swa";
    float base;
    RM_TRY(rm_gguf_f32_or(&base, g, key, 10000, err));
    if (!isfinite(base) || !(base > 1)) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is %g; the file is damaged", g->file->path, key,
                       (double)base);
    }
    s->rope_local_base = (double)base;
    return REMAT_OK;
}

static int shape(rm_shape *s, const rm_gguf *g, remat_error *err) {
    RM_TRY(rm_shape_common(s, g, err));
    float cap;
    RM_TRY(rm_gguf_f32_or(&cap, g, "gemma3.final_logit_softcapping", 0, err));
    if (cap != 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: gemma3.final_logit_softcapping is %g; this version does not cap logits",
                       g->file->path, (double)cap);
    }
    s->rope_style = RM_ROPE_HALVES;
    RM_TRY(local_base(s, g, err));
    s->gate = RM_GATE_GELU;
    s->embedding_scale = sqrtf((float)s->dim);
    /* The largest model divides by the root of the embedding's share of a head. */
    if (s->layer_count == LAYERS_27B) s->attention_dim = s->dim / s->head_count;
    return REMAT_OK;
}

static int bind(rm_model *m, const rm_gguf *g, remat_error *err) {
    const rm_shape *s = &m->shape;
    uint32_t window, pattern;
    RM_TRY(rm_shape_number(&window, s, g, "attention.sliding_window", RM_CONTEXT_MAX, err));
    RM_TRY(rm_shape_number_or(&pattern, s, g, "attention.sliding_window_pattern", PATTERN,
                              RM_LAYERS_MAX, err));
    RM_TRY(rm_bind_ends(m, g, err));
    for (uint32_t i = 0; i < s->layer_count; i++) {
        rm_layer *y = &m->layers[i];
        const bool global = (i + 1) % pattern == 0;
        y->window = global ? 0 : window;
        y->rope = global ? RM_ROPE_MAIN : RM_ROPE_LOCAL;
        RM_TRY(rm_bind_attention(y, s, g, (int)i, err));
        RM_TRY(
            rm_bind_vector(&y->q_norm, g, (int)i, "attn_q_norm.weight", s->head_dim, false, err));
        RM_TRY(
            rm_bind_vector(&y->k_norm, g, (int)i, "attn_k_norm.weight", s->head_dim, false, err));
        RM_TRY(rm_bind_vector(&y->post_attn_norm, g, (int)i, "post_attention_norm.weight", s->dim,
                              false, err));
        RM_TRY(rm_bind_dense(y, s, g, (int)i, err));
        RM_TRY(rm_bind_vector(&y->post_ffn_norm, g, (int)i, "post_ffw_norm.weight", s->dim, false,
                              err));
    }
    return REMAT_OK;
}

const rm_recipe rm_recipe_gemma3 = {.name = "gemma3", .shape = shape, .bind = bind};
