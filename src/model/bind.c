/* bind.c: finds every tensor of a model and checks it against the shape. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

static const rm_gguf_tensor *find(char *name, size_t cap, const rm_gguf *g, int layer,
                                  const char *part) {
    if (layer >= 0) {
        snprintf(name, cap, "blk.%d.%s", layer, part);
    } else {
        snprintf(name, cap, "%s", part);
    }
    return rm_gguf_tensor_find(g, name);
}

static int missing(const rm_gguf *g, const char *name, remat_error *err) {
    return rm_fail(err, REMAT_E_MODEL, "%s: tensor %s is missing; the file is no complete model",
                   g->file->path, name);
}

static int check_dims(const rm_gguf *g, const rm_gguf_tensor *t, uint64_t k, uint64_t rows,
                      uint64_t count, remat_error *err) {
    if (t->dims[0] == k && t->dims[1] == rows && t->dims[2] == count && t->dims[3] == 1)
        return REMAT_OK;
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: tensor %s is %llu x %llu x %llu, not %llu x %llu x %llu as the metadata "
                   "says; the file is damaged",
                   g->file->path, t->name, (unsigned long long)t->dims[0],
                   (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                   (unsigned long long)k, (unsigned long long)rows, (unsigned long long)count);
}

/* The tensor's dims are k x row_count x count. */
static int bind(rm_matrix *w, const rm_gguf *g, int layer, const char *part, uint32_t row_count,
                remat_error *err) {
    char name[RM_GGUF_NAME_MAX + 1];
    const rm_gguf_tensor *t = find(name, sizeof name, g, layer, part);
    if (t == NULL) return missing(g, name, err);
    RM_TRY(check_dims(g, t, w->k, row_count, w->count, err));
    w->format = rm_format_of_gguf(t->type);
    if (w->format == RM_FORMAT_COUNT) {
        return rm_fail(
            err, REMAT_E_MODEL,
            "%s: tensor %s has type %s (%u), which this version does not run; use F32, F16, "
            "BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4",
            g->file->path, name, rm_gguf_type_name(t->type), t->type);
    }
    w->source = t;
    w->strip_bytes = rm_strip_bytes(w->format, w->k);
    return REMAT_OK;
}

int rm_bind_matrix(rm_matrix *w, const rm_gguf *g, int layer, const char *part, uint32_t outputs,
                   uint32_t k, remat_error *err) {
    *w = (rm_matrix){.outputs = outputs, .k = k, .count = 1};
    return bind(w, g, layer, part, outputs, err);
}

int rm_bind_part(rm_matrix *w, const rm_gguf *g, int layer, const char *part, uint32_t row_count,
                 uint32_t row_first, uint32_t outputs, uint32_t k, remat_error *err) {
    *w = (rm_matrix){.outputs = outputs, .k = k, .count = 1, .row_first = row_first};
    return bind(w, g, layer, part, row_count, err);
}

int rm_bind_stack(rm_matrix *w, const rm_gguf *g, int layer, const char *part, uint32_t count,
                  uint32_t outputs, uint32_t k, remat_error *err) {
    *w = (rm_matrix){.outputs = outputs, .k = k, .count = count};
    return bind(w, g, layer, part, outputs, err);
}

int rm_bind_vector(rm_vector *v, const rm_gguf *g, int layer, const char *part, uint32_t count,
                   bool optional, remat_error *err) {
    char name[RM_GGUF_NAME_MAX + 1];
    const rm_gguf_tensor *t = find(name, sizeof name, g, layer, part);
    *v = (rm_vector){0};
    if (t == NULL) return optional ? REMAT_OK : missing(g, name, err);
    RM_TRY(check_dims(g, t, count, 1, 1, err));
    const rm_format f = rm_format_of_gguf(t->type);
    if (f != RM_F32 && f != RM_F16) {
        return rm_fail(err, REMAT_E_MODEL, "%s: tensor %s has type %s; a vector is F32 or F16",
                       g->file->path, name, rm_gguf_type_name(t->type));
    }
    *v = (rm_vector){.source = t, .count = count};
    return REMAT_OK;
}

int rm_bind_attention(rm_layer *y, const rm_shape *s, const rm_gguf *g, int i, remat_error *err) {
    const uint32_t q = s->head_count * s->head_dim, kv = s->kv_head_count * s->head_dim;
    RM_TRY(rm_bind_vector(&y->attn_norm, g, i, "attn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_matrix(&y->wq, g, i, "attn_q.weight", q, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->wk, g, i, "attn_k.weight", kv, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->wv, g, i, "attn_v.weight", kv, s->dim, err));
    RM_TRY(rm_bind_vector(&y->bq, g, i, "attn_q.bias", q, true, err));
    RM_TRY(rm_bind_vector(&y->bk, g, i, "attn_k.bias", kv, true, err));
    RM_TRY(rm_bind_vector(&y->bv, g, i, "attn_v.bias", kv, true, err));
    return rm_bind_matrix(&y->wo, g, i, "attn_output.weight", s->dim, q, err);
}

int rm_bind_dense(rm_layer *y, const rm_shape *s, const rm_gguf *g, int i, remat_error *err) {
    RM_TRY(rm_bind_vector(&y->ffn_norm, g, i, "ffn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_matrix(&y->gate, g, i, "ffn_gate.weight", s->feed_forward, s->dim, err));
    RM_TRY(rm_bind_matrix(&y->up, g, i, "ffn_up.weight", s->feed_forward, s->dim, err));
    return rm_bind_matrix(&y->down, g, i, "ffn_down.weight", s->dim, s->feed_forward, err);
}

int rm_bind_experts(rm_layer *y, const rm_shape *s, const rm_gguf *g, int i, remat_error *err) {
    const uint32_t n = s->expert_count, ff = s->feed_forward;
    RM_TRY(rm_bind_vector(&y->ffn_norm, g, i, "ffn_norm.weight", s->dim, false, err));
    RM_TRY(rm_bind_matrix(&y->router, g, i, "ffn_gate_inp.weight", n, s->dim, err));
    RM_TRY(rm_bind_stack(&y->gate, g, i, "ffn_gate_exps.weight", n, ff, s->dim, err));
    RM_TRY(rm_bind_stack(&y->up, g, i, "ffn_up_exps.weight", n, ff, s->dim, err));
    return rm_bind_stack(&y->down, g, i, "ffn_down_exps.weight", n, s->dim, ff, err);
}

int rm_bind_ends(rm_model *m, const rm_gguf *g, remat_error *err) {
    const rm_shape *s = &m->shape;
    RM_TRY(rm_bind_matrix(&m->embedding, g, -1, "token_embd.weight", s->vocabulary, s->dim, err));
    RM_TRY(rm_bind_vector(&m->output_norm, g, -1, "output_norm.weight", s->dim, false, err));
    if (rm_gguf_tensor_find(g, "output.weight") != NULL)
        return rm_bind_matrix(&m->output, g, -1, "output.weight", s->vocabulary, s->dim, err);
    m->output = m->embedding;
    return REMAT_OK;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int visit_vector(rm_visit_fn *fn, void *user, rm_vector *v, remat_error *err) {
    return v->source == NULL ? REMAT_OK : fn(user, NULL, v, err);
}

static int visit_matrix(rm_visit_fn *fn, void *user, rm_matrix *w, remat_error *err) {
    return w->source == NULL ? REMAT_OK : fn(user, w, NULL, err);
}

int rm_model_visit(rm_model *m, rm_visit_fn *fn, void *user, remat_error *err) {
    RM_TRY(fn(user, &m->embedding, NULL, err));
    RM_TRY(visit_vector(fn, user, &m->output_norm, err));
    RM_TRY(visit_vector(fn, user, &m->rope_factors, err));
    if (m->output.source != m->embedding.source) RM_TRY(fn(user, &m->output, NULL, err));
    for (uint32_t i = 0; i < m->shape.layer_count; i++) {
        rm_layer *y = &m->layers[i];
        rm_vector *const vectors[] = {&y->attn_norm,
                                      &y->ffn_norm,
                                      &y->post_attn_norm,
                                      &y->post_ffn_norm,
                                      &y->q_norm,
                                      &y->k_norm,
                                      &y->bq,
                                      &y->bk,
                                      &y->bv};
        rm_matrix *const matrices[] = {&y->wq,   &y->wk, &y->wv,   &y->wo,    &y->router,
                                       &y->gate, &y->up, &y->down, &y->beside};
        for (size_t j = 0; j < sizeof vectors / sizeof *vectors; j++)
            RM_TRY(visit_vector(fn, user, vectors[j], err));
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++)
            RM_TRY(visit_matrix(fn, user, matrices[j], err));
    }
    return REMAT_OK;
}

/* A fused tensor counts once, with its first part. */
static int count_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    (void)v;
    (void)err;
    *(uint32_t *)user += w == NULL || w->row_first == 0;
    return REMAT_OK;
}

typedef struct search {
    const rm_gguf_tensor *want;
    bool found;
} search;

static int search_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    search *s = user;
    (void)err;
    s->found = s->found || (w != NULL ? w->source : v->source) == s->want;
    return REMAT_OK;
}

/* Counting first keeps this linear for a sound file; the name is searched for only to report it. */
static int refuse_unused(rm_model *m, const rm_gguf *g, remat_error *err) {
    uint32_t bound = 0;
    RM_TRY(rm_model_visit(m, count_one, &bound, err));
    if (bound == g->tensor_count) return REMAT_OK;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        search s = {.want = &g->tensors[i]};
        RM_TRY(rm_model_visit(m, search_one, &s, err));
        if (!s.found) {
            return rm_fail(err, REMAT_E_MODEL,
                           "%s: tensor %s has no place in a %s model of this "
                           "version; without it the answer would be another",
                           g->file->path, s.want->name, m->shape.architecture);
        }
    }
    return REMAT_OK;
}

int rm_model_bind(rm_model *m, rm_ledger *l, const rm_gguf *g, remat_error *err) {
    if (m->shape.layer_count > g->tensor_count) { /* before the table is sized by it */
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: block_count %u, but only %u tensors; the file is "
                       "damaged",
                       g->file->path, m->shape.layer_count, g->tensor_count);
    }
    RM_TRY(rm_ledger_carve(&m->layers, l, RM_ACCOUNT_TEXT, m->shape.layer_count, sizeof *m->layers,
                           err));
    RM_TRY(m->recipe->bind(m, g, err));
    RM_TRY(rm_ledger_carve(&m->resident, l, RM_ACCOUNT_TEXT, rm_unit_count(m), 1, err));
    memset(m->resident, 1, rm_unit_count(m));
    return refuse_unused(m, g, err);
}
