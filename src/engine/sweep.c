/* sweep.c: see sweep.h. */
#include "engine/sweep.h"

#include <string.h>

int rm_sweep_layout(rm_sweep *s, rm_ledger *l, const rm_model *m, const rm_sweep_shape *shape,
                    remat_error *err) {
    const uint64_t width = (uint64_t)RM_LANES * rm_strips(m->shape.vocabulary);
    const rm_account work = RM_ACCOUNT_WORK, rows = RM_ACCOUNT_ROWS, logits = RM_ACCOUNT_LOGITS;
    const rm_input_kind kind = rm_input_of(&m->output, true);
    s->shape = *shape;
    s->model = m;
    RM_TRY(rm_work_layout(&s->work, l, m, shape->chunk_rows, shape->thread_count,
                          shape->context_count, err));
    const uint32_t listed =
        shape->chunk_rows > shape->logits_rows ? shape->chunk_rows : shape->logits_rows;
    RM_TRY(rm_ledger_carve(&s->hidden_row, l, work, listed, sizeof *s->hidden_row, err));
    RM_TRY(rm_ledger_carve(&s->position, l, work, shape->chunk_rows, sizeof *s->position, err));
    RM_TRY(rm_ledger_carve(&s->segments, l, work, shape->chunk_rows, sizeof *s->segments, err));
    RM_TRY(rm_ledger_carve(&s->rows, l, rows, shape->row_max, sizeof *s->rows, err));
    RM_TRY(rm_ledger_carve(&s->hidden, l, rows, (uint64_t)shape->row_max * m->shape.dim,
                           sizeof(float), err));
    RM_TRY(rm_ledger_carve(&s->logit_in, l, logits, 1,
                           rm_input_bytes(kind, shape->logits_rows, m->shape.dim), err));
    RM_TRY(rm_ledger_carve(&s->logits, l, logits, 2, width * sizeof(float), err));
    return rm_ledger_carve(&s->logit_tiles, l, logits,
                           (uint64_t)shape->logits_rows * rm_input_rows(kind) * width,
                           sizeof(float), err);
}

/* --- pages ------------------------------------------------------------------------------------ */

static uint32_t column_of(const rm_row *row) {
    return row->position / RM_PAGE_TOKENS;
}

static bool runs_in(const rm_row *row, uint32_t layer) {
    return row->first_layer <= layer && layer <= row->last_layer;
}

static void hold_pages(rm_sweep *s, uint32_t row_count, uint32_t layer) {
    for (uint32_t i = 0; i < row_count; i++) {
        const rm_row *r = &s->rows[i];
        const bool same =
            i > 0 && r[-1].sequence == r->sequence && column_of(r - 1) == column_of(r);
        if (same || !runs_in(r, layer)) continue;
        const bool held = rm_cache_hold(s->cache, r->sequence, layer, column_of(r));
        RM_ASSERT(held); /* the planner's promise */
    }
}

static void release_pages(rm_sweep *s, uint32_t row_count, uint32_t layer) {
    for (uint32_t i = 0; i < row_count; i++) {
        const rm_row *r = &s->rows[i];
        if (!r->keep_kv) rm_cache_release(s->cache, r->sequence, layer, column_of(r));
    }
}

/* --- the way in, the layers, the way out ------------------------------------------------------ */

typedef struct embedding {
    rm_sweep *sweep;
    uint32_t row_count;
} embedding;

static void embed_item(void *user, uint32_t item, uint32_t thread) {
    const embedding *e = user;
    const rm_sweep *s = e->sweep;
    const rm_matrix *w = &s->model->embedding;
    const uint32_t first = item * RM_GROUP, n = rm_group_rows(e->row_count, first);
    (void)thread;
    for (uint32_t i = first; i < first + n; i++) {
        const uint32_t token = s->rows[i].token;
        if (s->rows[i].first_layer > 0) continue;
        float *x = s->hidden + (size_t)i * w->k;
        rm_unpack_row(x, w->format, w->strips + (size_t)(token / RM_LANES) * w->strip_bytes,
                      token % RM_LANES, w->k);
        for (uint32_t k = 0; s->model->shape.embedding_scale != 1 && k < w->k; k++)
            x[k] *= s->model->shape.embedding_scale;
    }
}

/* Takes rows from *next on that run in this layer; `wanted`: only those that want logits. */
static rm_chunk take_chunk(rm_sweep *s, uint32_t *next, uint32_t row_count, uint32_t layer,
                           bool wanted) {
    rm_chunk c = {.hidden_row = s->hidden_row, .position = s->position, .segments = s->segments};
    for (; *next < row_count && c.row_count < s->shape.chunk_rows; ++*next) {
        const rm_row *r = &s->rows[*next];
        if (!runs_in(r, layer) || (wanted && !r->want_logits)) continue;
        rm_segment *g = &s->segments[c.segment_count];
        if (c.segment_count == 0 || g[-1].sequence != r->sequence) {
            *g = (rm_segment){.sequence = r->sequence, .first = c.row_count};
            c.segment_count++;
        }
        s->segments[c.segment_count - 1].count++;
        s->hidden_row[c.row_count] = *next;
        s->position[c.row_count] = r->position;
        c.row_count++;
    }
    return c;
}

static int check_canceled(const rm_sweep *s, remat_error *err) {
    return s->canceled(s->user) ? rm_fail(err, REMAT_E_CANCELED, "interrupted") : REMAT_OK;
}

static int run_layer(rm_sweep *s, uint32_t row_count, uint32_t layer, remat_error *err) {
    const bool last = layer + 1 == s->model->shape.layer_count;
    rm_chunk chunk;
    rm_layer_job job = {.model = s->model,
                        .kernels = s->kernels,
                        .threads = s->threads,
                        .work = &s->work,
                        .cache = s->cache,
                        .hidden = s->hidden,
                        .layer = layer,
                        .chunk = &chunk};
    for (uint32_t next = 0; next < row_count;) {
        RM_TRY(check_canceled(s, err));
        chunk = take_chunk(s, &next, row_count, layer, false);
        if (chunk.row_count > 0) rm_layer_run(&job, true, !last);
        if (s->progress != NULL)
            s->progress(s->user, (uint64_t)layer * row_count + next,
                        (uint64_t)row_count * s->model->shape.layer_count);
    }
    /* Past the last layer's keys go only rows whose logits somebody wants. */
    for (uint32_t next = 0; last && next < row_count;) {
        RM_TRY(check_canceled(s, err));
        chunk = take_chunk(s, &next, row_count, layer, true);
        if (chunk.row_count > 0) rm_layer_run(&job, false, true);
    }
    if (s->tap != NULL) {
        for (uint32_t i = 0; i < row_count; i++)
            s->tap(s->tap_user, layer, i, s->hidden + (size_t)i * s->model->shape.dim);
    }
    return REMAT_OK;
}

/* Logits of `count` rows whose indices are in hidden_row. */
static int logits_of(rm_sweep *s, uint32_t count, rm_logits_fn *fn, void *user, remat_error *err) {
    const rm_model *m = s->model;
    float *at = s->logit_tiles, *const *space = s->work.threads[0].row;
    const rm_product out = rm_product_make(&m->output, true, count, &at);
    rm_inputs in = {.mask = 1u << out.input};
    in.kind[out.input] = rm_input_view(s->logit_in, out.input, count, m->shape.dim);
    for (uint32_t i = 0; i < count; i++) {
        const float *x = s->hidden + (size_t)s->hidden_row[i] * m->shape.dim;
        s->kernels->rms_norm(space[0], x, m->output_norm.at, m->shape.dim, m->shape.norm_epsilon);
        rm_inputs_put(s->kernels, &in, i, 0, m->shape.dim, space[0], space[1]);
    }
    rm_products_run(s->kernels, s->threads, &s->work, &in, &out, 1);
    for (uint32_t i = 0; i < count; i++) {
        const size_t width = (size_t)out.y.strips * RM_LANES;
        const float *logits = s->logits;
        rm_product_row(s->logits, s->kernels, &out, i, s->logits + width);
        if (!s->kernels->all_finite(logits, m->shape.vocabulary)) {
            return rm_fail(err, REMAT_E_FAILED,
                           "logits after position %u are not finite numbers: "
                           "the model's weights or its type are unsound; try another file",
                           s->rows[s->hidden_row[i]].position);
        }
        RM_TRY(fn(user, s->hidden_row[i], logits, err));
    }
    return REMAT_OK;
}

static int all_logits(rm_sweep *s, uint32_t row_count, rm_logits_fn *fn, void *user,
                      remat_error *err) {
    for (uint32_t next = 0; next < row_count;) {
        uint32_t count = 0;
        for (; next < row_count && count < s->shape.logits_rows; next++) {
            if (s->rows[next].want_logits) s->hidden_row[count++] = next;
        }
        RM_TRY(check_canceled(s, err));
        if (count > 0) RM_TRY(logits_of(s, count, fn, user, err));
    }
    return REMAT_OK;
}

int rm_sweep_run(rm_sweep *s, uint32_t row_count, rm_logits_fn *fn, void *user, remat_error *err) {
    RM_ASSERT(row_count > 0 && row_count <= s->shape.row_max);
    embedding e = {.sweep = s, .row_count = row_count};
    rm_threads_for(s->threads, (row_count + RM_GROUP - 1) / RM_GROUP, 0, embed_item, &e);
    for (uint32_t layer = 0; layer < s->model->shape.layer_count; layer++) {
        hold_pages(s, row_count, layer);
        const int status = run_layer(s, row_count, layer, err);
        release_pages(s, row_count, layer);
        RM_TRY(status);
    }
    return all_logits(s, row_count, fn, user, err);
}
