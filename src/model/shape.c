/* shape.c: which recipe a file needs, and the numbers of its architecture. Part: model. */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const rm_recipe *const recipes[] = {&rm_recipe_llama,    &rm_recipe_qwen2,  &rm_recipe_qwen3,
                                           &rm_recipe_qwen3moe, &rm_recipe_gemma3, &rm_recipe_phi3};

/* architecture.name: long enough for every key that is looked up. */
static const char *key_of(char *key, size_t cap, const rm_shape *s, const char *name) {
    snprintf(key, cap, "%s.%s", s->architecture, name);
    return key;
}

int rm_shape_number(uint32_t *out, const rm_shape *s, const rm_gguf *g, const char *name,
                    uint32_t most, remat_error *err) {
    char key[RM_GGUF_NAME_MAX];
    RM_TRY(rm_gguf_u32(out, g, key_of(key, sizeof key, s, name), err));
    if (*out == 0 || *out > most) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: %s is %u, not 1 to %u; the file is damaged or "
                       "needs a newer remat",
                       g->file->path, key, *out, most);
    }
    return REMAT_OK;
}

int rm_shape_number_or(uint32_t *out, const rm_shape *s, const rm_gguf *g, const char *name,
                       uint32_t fallback, uint32_t most, remat_error *err) {
    char key[RM_GGUF_NAME_MAX];
    if (rm_gguf_find(g, key_of(key, sizeof key, s, name)) != NULL)
        return rm_shape_number(out, s, g, name, most, err);
    *out = fallback;
    return REMAT_OK;
}

int rm_shape_number_any(uint32_t *out, const rm_shape *s, const rm_gguf *g, const char *name,
                        uint32_t most, remat_error *err) {
    char key[RM_GGUF_NAME_MAX];
    RM_TRY(rm_gguf_u32_or(out, g, key_of(key, sizeof key, s, name), 0, err));
    return *out == 0 ? REMAT_OK : rm_shape_number(out, s, g, name, most, err);
}

static int heads(rm_shape *s, const rm_gguf *g, remat_error *err) {
    RM_TRY(rm_shape_number(&s->head_count, s, g, "attention.head_count", RM_HEADS_MAX, err));
    RM_TRY(rm_shape_number_or(&s->kv_head_count, s, g, "attention.head_count_kv", s->head_count,
                              RM_HEADS_MAX, err));
    if (s->head_count % s->kv_head_count != 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: attention.head_count %u is no multiple of "
                       "attention.head_count_kv %u; the file is damaged",
                       g->file->path, s->head_count, s->kv_head_count);
    }
    char key[RM_GGUF_NAME_MAX];
    if (rm_gguf_find(g, key_of(key, sizeof key, s, "attention.key_length")) == NULL &&
        s->dim % s->head_count != 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: embedding_length %u is no multiple of "
                       "attention.head_count %u; the file is damaged",
                       g->file->path, s->dim, s->head_count);
    }
    uint32_t value_dim;
    RM_TRY(rm_shape_number_or(&s->head_dim, s, g, "attention.key_length", s->dim / s->head_count,
                              RM_HEAD_DIM_MAX, err));
    RM_TRY(rm_shape_number_or(&value_dim, s, g, "attention.value_length", s->head_dim,
                              RM_HEAD_DIM_MAX, err));
    if (s->head_dim > RM_HEAD_DIM_MAX || value_dim != s->head_dim) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: heads of %u and %u channels; at most %u, and the "
                       "same for keys and values, are supported",
                       g->file->path, s->head_dim, value_dim, RM_HEAD_DIM_MAX);
    }
    s->head_dim_padded = (s->head_dim + 15) / 16 * 16;
    s->attention_dim = s->head_dim;
    RM_TRY(rm_shape_number_or(&s->rope_dim, s, g, "rope.dimension_count", s->head_dim,
                              RM_HEAD_DIM_MAX, err));
    if (s->rope_dim > s->head_dim || s->rope_dim % 2 != 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: rope.dimension_count %u does not fit heads of %u; "
                       "the file is damaged",
                       g->file->path, s->rope_dim, s->head_dim);
    }
    return REMAT_OK;
}

/* The vocabulary is the number of tokens; vocab_size, where given, must not be smaller. */
static int vocabulary(rm_shape *s, const rm_gguf *g, remat_error *err) {
    const rm_gguf_tensor *t = rm_gguf_tensor_find(g, "token_embd.weight");
    if (t == NULL) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: tensor token_embd.weight is missing; the file is "
                       "not a complete model",
                       g->file->path);
    }
    if (t->dims[1] == 0 || t->dims[1] > RM_VOCABULARY_MAX) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: token_embd.weight has %llu rows, not 1 to %u; the "
                       "file is damaged",
                       g->file->path, (unsigned long long)t->dims[1], RM_VOCABULARY_MAX);
    }
    s->vocabulary = (uint32_t)t->dims[1];
    uint32_t said;
    RM_TRY(rm_shape_number_or(&said, s, g, "vocab_size", s->vocabulary, RM_VOCABULARY_MAX, err));
    const rm_gguf_kv *tokens = rm_gguf_find(g, "tokenizer.ggml.tokens");
    if (said != s->vocabulary || (tokens != NULL && tokens->count > s->vocabulary)) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: vocab_size %u, tokenizer.ggml.tokens %llu and "
                       "token_embd.weight %u rows contradict each other; the file is damaged",
                       g->file->path, said, tokens ? (unsigned long long)tokens->count : 0ull,
                       s->vocabulary);
    }
    return REMAT_OK;
}

int rm_shape_common(rm_shape *s, const rm_gguf *g, remat_error *err) {
    s->embedding_scale = 1;
    RM_TRY(rm_shape_number(&s->layer_count, s, g, "block_count", RM_LAYERS_MAX, err));
    RM_TRY(rm_shape_number(&s->dim, s, g, "embedding_length", RM_WIDTH_MAX, err));
    RM_TRY(rm_shape_number(&s->feed_forward, s, g, "feed_forward_length", RM_WIDTH_MAX, err));
    RM_TRY(rm_shape_number(&s->context_count, s, g, "context_length", RM_CONTEXT_MAX, err));
    RM_TRY(heads(s, g, err));
    if ((uint64_t)s->head_count * s->head_dim > RM_WIDTH_MAX) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: %u heads of %u channels are wider than %u; the "
                       "file is damaged",
                       g->file->path, s->head_count, s->head_dim, RM_WIDTH_MAX);
    }
    RM_TRY(vocabulary(s, g, err));
    char key[RM_GGUF_NAME_MAX];
    key_of(key, sizeof key, s, "attention.layer_norm_rms_epsilon");
    RM_TRY(rm_gguf_f32(&s->norm_epsilon, g, key, err));
    if (!isfinite(s->norm_epsilon) || s->norm_epsilon < 0) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is %g; the file is damaged", g->file->path, key,
                       (double)s->norm_epsilon);
    }
    return REMAT_OK;
}

int rm_model_describe(rm_model *m, const rm_gguf *g, remat_error *err) {
    rm_shape *s = &m->shape;
    RM_TRY(rm_gguf_text(s->architecture, sizeof s->architecture, g, "general.architecture", err));
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (strcmp(recipes[i]->name, s->architecture) != 0) continue;
        m->recipe = recipes[i];
        return m->recipe->shape(s, g, err);
    }
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: architecture \"%s\" is not supported; this version runs llama, qwen2, "
                   "qwen3, qwen3moe, gemma3 and phi3",
                   g->file->path, s->architecture);
}
