/*
 * unit.c: which weights stay in memory; carves them. Part: model.
 */
#include "model/model.h"

#include <string.h>

static bool tied(const rm_model *m) {
    return m->output.source == m->embedding.source;
}

uint32_t rm_unit_count(const rm_model *m) {
    return RM_UNIT_LAYERS + 2 * m->shape.layer_count;
}

uint32_t rm_unit_matrices(rm_matrix *out[RM_UNIT_MATRICES], rm_model *m, uint32_t unit) {
    rm_matrix *all[RM_UNIT_MATRICES] = {0};
    uint32_t count = 0;
    RM_ASSERT(unit < rm_unit_count(m));
    if (unit == RM_UNIT_EMBEDDING) {
        all[0] = &m->embedding;
    } else if (unit == RM_UNIT_OUTPUT) {
        if (!tied(m)) all[0] = &m->output;
    } else {
        rm_layer *y = &m->layers[(unit - RM_UNIT_LAYERS) / 2];
        const bool attention = unit % 2 == 0;
        all[0] = attention ? &y->wq : &y->router;
        all[1] = attention ? &y->wk : &y->gate;
        all[2] = attention ? &y->wv : &y->up;
        all[3] = attention ? &y->wo : &y->down;
        all[4] = attention ? NULL : &y->beside;
    }
    for (uint32_t i = 0; i < RM_UNIT_MATRICES; i++) {
        if (all[i] != NULL && all[i]->source != NULL) out[count++] = all[i];
    }
    return count;
}

static uint64_t matrix_bytes(const rm_matrix *w) {
    return (uint64_t)w->count * rm_strips(w->outputs) * w->strip_bytes;
}

uint64_t rm_unit_bytes(const rm_model *m, uint32_t unit) {
    rm_matrix *w[RM_UNIT_MATRICES];
    rm_model copy = *m; /* nothing is written */
    const uint32_t count = rm_unit_matrices(w, &copy, unit);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += matrix_bytes(w[i]);
    return bytes;
}

/* --- layout ----------------------------------------------------------------------------------- */

typedef struct carving {
    rm_model *model;
    rm_ledger *ledger;
} carving;

static int carve_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    carving *c = user;
    void **first = &c->model->weights, *at = NULL;
    if (w != NULL && w->streamed) return REMAT_OK;
    if (v != NULL) {
        c->model->weight_bytes += v->count * sizeof(float);
        RM_TRY(
            rm_ledger_carve(&v->at, c->ledger, RM_ACCOUNT_WEIGHTS, v->count, sizeof(float), err));
        at = v->at;
    } else {
        c->model->weight_bytes += matrix_bytes(w);
        RM_TRY(rm_ledger_carve(&w->strips, c->ledger, RM_ACCOUNT_WEIGHTS,
                               (uint64_t)w->count * rm_strips(w->outputs), w->strip_bytes, err));
        at = w->strips;
    }
    if (*first == NULL) *first = at;
    return REMAT_OK;
}

static void choose(rm_model *m, const uint8_t *resident) {
    for (uint32_t unit = 0; unit < rm_unit_count(m); unit++) {
        rm_matrix *w[RM_UNIT_MATRICES];
        const uint32_t count = rm_unit_matrices(w, m, unit);
        m->resident[unit] = resident == NULL || resident[unit] != 0;
        for (uint32_t i = 0; i < count; i++) {
            w[i]->streamed = !m->resident[unit];
            w[i]->strips = NULL;
        }
    }
}

int rm_model_layout(rm_model *m, rm_ledger *l, const uint8_t *resident, remat_error *err) {
    carving c = {.model = m, .ledger = l};
    m->weight_bytes = 0;
    m->weights = NULL;
    choose(m, resident);
    RM_TRY(rm_model_visit(m, carve_one, &c, err));
    if (tied(m)) m->output = m->embedding;
    const uint64_t pairs = m->shape.rope_dim / 2 + 1;
    for (int i = 0; i < RM_ROPE_TABLES; i++)
        RM_TRY(rm_ledger_carve(&m->rope[i].frequency, l, RM_ACCOUNT_WEIGHTS, pairs,
                               sizeof *m->rope[i].frequency, err));
    return REMAT_OK;
}

static int widest_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    uint64_t *most = user;
    (void)err;
    if (w != NULL && w->streamed) return REMAT_OK;
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
