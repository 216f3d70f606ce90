/* bind.c: finds every tensor of a model and checks it against the shape; carves the weights. */
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

static int wrong_shape(const rm_gguf *g, const rm_gguf_tensor *t, uint64_t k, uint64_t rows,
                       remat_error *err) {
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: tensor %s is %llu x %llu, not %llu x %llu as the "
                   "metadata says; the file is damaged",
                   g->file->path, t->name, (unsigned long long)t->dims[0],
                   (unsigned long long)t->dims[1], (unsigned long long)k, (unsigned long long)rows);
}

int rm_bind_matrix(rm_matrix *w, const rm_gguf *g, int layer, const char *part, uint32_t outputs,
                   uint32_t k, remat_error *err) {
    char name[RM_GGUF_NAME_MAX + 1];
    const rm_gguf_tensor *t = find(name, sizeof name, g, layer, part);
    if (t == NULL) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: tensor %s is missing; the file is not a complete "
                       "model",
                       g->file->path, name);
    }
    if (t->dims[0] != k || t->dims[1] != outputs || t->dims[2] != 1 || t->dims[3] != 1)
        return wrong_shape(g, t, k, outputs, err);
    const rm_format f = rm_format_of_gguf(t->type);
    if (f == RM_FORMAT_COUNT) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: tensor %s has type %s (%u), which this version does "
                       "not run; use F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, "
                       "IQ4_NL, IQ4_XS or MXFP4",
                       g->file->path, name, rm_gguf_type_name(t->type), t->type);
    }
    *w = (rm_matrix){.source = t, .format = f, .outputs = outputs, .k = k};
    w->strip_bytes = rm_strip_bytes(f, k);
    return REMAT_OK;
}

int rm_bind_vector(rm_vector *v, const rm_gguf *g, int layer, const char *part, uint32_t count,
                   bool optional, remat_error *err) {
    char name[RM_GGUF_NAME_MAX + 1];
    const rm_gguf_tensor *t = find(name, sizeof name, g, layer, part);
    *v = (rm_vector){0};
    if (t == NULL && optional) return REMAT_OK;
    if (t == NULL) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: tensor %s is missing; the file is not a complete "
                       "model",
                       g->file->path, name);
    }
    if (t->dims[0] != count || t->dims[1] != 1 || t->dims[2] != 1 || t->dims[3] != 1)
        return wrong_shape(g, t, count, 1, err);
    const rm_format f = rm_format_of_gguf(t->type);
    if (f != RM_F32 && f != RM_F16) {
        return rm_fail(err, REMAT_E_MODEL, "%s: tensor %s has type %s; a vector is F32 or F16",
                       g->file->path, name, rm_gguf_type_name(t->type));
    }
    *v = (rm_vector){.source = t, .count = count};
    return REMAT_OK;
}

static int visit_vector(rm_visit_fn *fn, void *user, rm_vector *v, remat_error *err) {
    return v->source == NULL ? REMAT_OK : fn(user, NULL, v, err);
}

int rm_model_visit(rm_model *m, rm_visit_fn *fn, void *user, remat_error *err) {
    RM_TRY(fn(user, &m->embedding, NULL, err));
    RM_TRY(visit_vector(fn, user, &m->output_norm, err));
    RM_TRY(visit_vector(fn, user, &m->rope_factors, err));
    if (m->output.source != m->embedding.source) RM_TRY(fn(user, &m->output, NULL, err));
    for (uint32_t i = 0; i < m->shape.layer_count; i++) {
        rm_layer *y = &m->layers[i];
        rm_vector *const vectors[] = {&y->attn_norm, &y->ffn_norm, &y->bq, &y->bk, &y->bv};
        rm_matrix *const matrices[] = {&y->wq, &y->wk, &y->wv, &y->wo, &y->gate, &y->up, &y->down};
        for (size_t j = 0; j < sizeof vectors / sizeof *vectors; j++)
            RM_TRY(visit_vector(fn, user, vectors[j], err));
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++)
            RM_TRY(fn(user, matrices[j], NULL, err));
    }
    return REMAT_OK;
}

static int count_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    (void)w;
    (void)v;
    (void)err;
    ++*(uint32_t *)user;
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
    return refuse_unused(m, g, err);
}

typedef struct carving {
    rm_model *model;
    rm_ledger *ledger;
} carving;

static int carve_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    carving *c = user;
    if (v != NULL) {
        c->model->weight_bytes += v->count * sizeof(float);
        return rm_ledger_carve(&v->at, c->ledger, RM_ACCOUNT_WEIGHTS, v->count, sizeof(float), err);
    }
    const uint64_t strips = rm_strips(w->outputs);
    c->model->weight_bytes += strips * w->strip_bytes;
    return rm_ledger_carve(&w->strips, c->ledger, RM_ACCOUNT_WEIGHTS, strips, w->strip_bytes, err);
}

int rm_model_layout(rm_model *m, rm_ledger *l, remat_error *err) {
    carving c = {.model = m, .ledger = l};
    m->weight_bytes = 0;
    RM_TRY(rm_model_visit(m, carve_one, &c, err));
    if (m->output.source == m->embedding.source) m->output.strips = m->embedding.strips;
    return rm_ledger_carve(&m->rope_frequency, l, RM_ACCOUNT_WEIGHTS, m->shape.rope_dim / 2 + 1,
                           sizeof *m->rope_frequency, err);
}

static int widest_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    uint64_t *most = user;
    (void)err;
    const uint64_t bytes =
        v != NULL ? v->count * 4ull : (uint64_t)RM_LANES * rm_gguf_row_bytes(w->format, w->k);
    if (bytes > *most) *most = bytes;
    return REMAT_OK;
}

uint64_t rm_model_stage_bytes(const rm_model *m) {
    uint64_t most = 256 << 10; /* several strips a read: fewer system calls */
    rm_model copy = *m;        /* visiting writes nothing here */
    (void)rm_model_visit(&copy, widest_one, &most, NULL);
    return (most + 63) / 64 * 64;
}
