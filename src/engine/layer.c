/* layer.c: see layer.h. The phases stand in the order in which they run. Part: engine. */
#include "engine/layer.h"
#include "engine/attention.h"

#include <string.h>

/* What the phases of one call share. */
typedef struct pass {
    const rm_layer_job *job;
    const rm_layer *weights;
    rm_inputs in, mid;
    rm_product q, k, v, out; /* their results are tiles */
    bool keys, rest;
} pass;

/* Rows are handed out by groups of 16, single rows when there are few. */
static uint32_t row_items(const pass *p) {
    const uint32_t n = p->job->chunk->row_count;
    return n <= RM_GROUP ? n : (n + RM_GROUP - 1) / RM_GROUP;
}

static uint32_t item_rows(const pass *p, uint32_t item, uint32_t *first) {
    const uint32_t n = p->job->chunk->row_count;
    *first = n <= RM_GROUP ? item : item * RM_GROUP;
    return n <= RM_GROUP ? 1 : rm_group_rows(n, *first);
}

static void for_rows(pass *p, rm_task_fn *fn) {
    /* A handful of rows is less work than waking the others. */
    const uint32_t n = row_items(p);
    if (p->job->chunk->row_count <= 2) {
        for (uint32_t i = 0; i < n; i++)
            fn(p, i, 0);
    } else {
        rm_threads_for(p->job->threads, n, 1, fn, p);
    }
}

static float *hidden_of(const pass *p, uint32_t row) {
    return p->job->hidden + (size_t)p->job->chunk->hidden_row[row] * p->job->model->shape.dim;
}

static void norm_into(pass *p, uint32_t row, const rm_vector *norm, const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    p->job->kernels->rms_norm(t->row[0], hidden_of(p, row), norm->at, s->dim, s->norm_epsilon);
    rm_inputs_put(p->job->kernels, &p->in, row, 0, s->dim, t->row[0], t->row[1]);
}

static void attn_norm_rows(void *user, uint32_t item, uint32_t thread) {
    pass *p = user;
    uint32_t first;
    const uint32_t n = item_rows(p, item, &first);
    for (uint32_t r = first; r < first + n; r++)
        norm_into(p, r, &p->weights->attn_norm, &p->job->work->threads[thread]);
}

/* --- Q, K and V rows: bias, rotary, to their places ---------------------------------------- */

static void rotate(const pass *p, float *head, const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    const rm_kernels *kernels = p->job->kernels;
    (s->rope_style == RM_ROPE_PAIRS ? kernels->rope_pairs
                                    : kernels->rope_halves)(head, t->cos, t->sin, s->rope_dim / 2);
}

/* One row of results as plain floats, with its bias. */
static void plain_row(const pass *p, float *out, const rm_product *y, uint32_t row,
                      const rm_vector *bias, float *space) {
    rm_product_row(out, p->job->kernels, y, row, space);
    if (bias->at != NULL) p->job->kernels->add(out, bias->at, bias->count);
}

/* Copies a head to its padded width; the padding is zero. */
static void padded(float *out, const float *head, const rm_shape *s) {
    memcpy(out, head, s->head_dim * sizeof *out);
    memset(out + s->head_dim, 0, (s->head_dim_padded - s->head_dim) * sizeof *out);
}

static void key_row(const pass *p, uint32_t row, uint32_t sequence, const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    const rm_cache *cache = p->job->cache;
    const uint32_t position = p->job->chunk->position[row];
    float *k = t->row[0], *v = t->row[1], *space = t->row[2];
    float k_head[RM_HEAD_DIM_MAX], v_head[RM_HEAD_DIM_MAX];
    plain_row(p, k, &p->k, row, &p->weights->bk, space);
    plain_row(p, v, &p->v, row, &p->weights->bv, space);
    uint8_t *page = rm_cache_page(cache, sequence, p->job->layer, position / RM_PAGE_TOKENS);
    RM_ASSERT(page != NULL);
    for (uint32_t h = 0; h < s->kv_head_count; h++) {
        rotate(p, k + h * s->head_dim, t);
        padded(k_head, k + h * s->head_dim, s);
        padded(v_head, v + h * s->head_dim, s);
        p->job->kernels->page_put(page + h * cache->head_bytes, cache->shape.format,
                                  s->head_dim_padded, position % RM_PAGE_TOKENS, k_head, v_head);
    }
}

static void query_row(const pass *p, uint32_t row, const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    const uint32_t group = s->head_count / s->kv_head_count, rows = p->job->chunk->row_count;
    const float scale = rm_attention_scale(s->head_dim);
    float *q = t->row[0];
    plain_row(p, q, &p->q, row, &p->weights->bq, t->row[1]);
    for (uint32_t h = 0; h < s->head_count; h++) {
        float *head = q + h * s->head_dim;
        float *out = p->job->work->query +
                     (((size_t)(h / group) * rows + row) * group + h % group) * s->head_dim_padded;
        rotate(p, head, t);
        for (uint32_t i = 0; i < s->head_dim; i++)
            head[i] *= scale;
        padded(out, head, s);
    }
}

static uint32_t sequence_of(const rm_chunk *c, uint32_t row) {
    const rm_segment *g = c->segments;
    while (row >= g->first + g->count)
        g++;
    return g->sequence;
}

static void head_rows(void *user, uint32_t item, uint32_t thread) {
    const pass *p = user;
    const rm_shape *s = &p->job->model->shape;
    const rm_scratch_thread *t = &p->job->work->threads[thread];
    uint32_t first;
    const uint32_t n = item_rows(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        p->job->kernels->rope_angles(t->cos, t->sin, p->job->model->rope_frequency, s->rope_dim / 2,
                                     p->job->chunk->position[r], s->rope_scale);
        if (p->keys) key_row(p, r, sequence_of(p->job->chunk, r), t);
        if (p->rest) query_row(p, r, t);
    }
}

static void project(pass *p) {
    const rm_shape *s = &p->job->model->shape;
    const rm_work *w = p->job->work;
    const rm_layer *y = p->weights;
    const uint32_t rows = p->job->chunk->row_count;
    unsigned mask = 0;
    rm_product products[RM_PRODUCTS_MAX];
    uint32_t count = 0;
    float *at = w->heads;
    p->q = rm_product_make(&y->wq, true, rows, &at);
    p->k = rm_product_make(&y->wk, true, rows, &at);
    p->v = rm_product_make(&y->wv, true, rows, &at);
    if (p->rest) products[count++] = p->q;
    if (p->keys) products[count++] = p->k;
    if (p->keys) products[count++] = p->v;
    for (uint32_t i = 0; i < count; i++)
        mask |= 1u << products[i].input;
    p->in = rm_work_in(w, mask, rows, s->dim);
    for_rows(p, attn_norm_rows);
    rm_products_run(p->job->kernels, p->job->threads, w, &p->in, products, count);
    for_rows(p, head_rows);
}

/* --- attention's output, wo, the first residual --------------------------------------------- */

static void attended_rows(void *user, uint32_t item, uint32_t thread) {
    pass *p = user;
    const rm_shape *s = &p->job->model->shape;
    const uint32_t q = s->head_count * s->head_dim;
    uint32_t first;
    const uint32_t n = item_rows(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        rm_attention_finish(p->job, r, thread);
        rm_inputs_put(p->job->kernels, &p->mid, r, 0, q, rm_attention_out(p->job, r),
                      p->job->work->threads[thread].row[0]);
    }
}

static void add_row(const pass *p, uint32_t row, const rm_scratch_thread *t) {
    rm_product_row(t->row[0], p->job->kernels, &p->out, row, t->row[1]);
    p->job->kernels->add(hidden_of(p, row), t->row[0], p->job->model->shape.dim);
}

static void ffn_norm_rows(void *user, uint32_t item, uint32_t thread) {
    pass *p = user;
    const rm_scratch_thread *t = &p->job->work->threads[thread];
    uint32_t first;
    const uint32_t n = item_rows(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        add_row(p, r, t);
        norm_into(p, r, &p->weights->ffn_norm, t);
    }
}

static void attend(pass *p) {
    const rm_layer *y = p->weights;
    const rm_shape *s = &p->job->model->shape;
    const rm_work *w = p->job->work;
    const uint32_t rows = p->job->chunk->row_count;
    rm_attention_run(p->job);
    p->mid = rm_work_mid(w, rm_input_bit(&y->wo, true), rows, s->head_count * s->head_dim);
    for_rows(p, attended_rows);
    float *at = w->out;
    p->out = rm_product_make(&y->wo, true, rows, &at);
    rm_products_run(p->job->kernels, p->job->threads, w, &p->mid, &p->out, 1);
    p->in =
        rm_work_in(w, rm_input_bit(&y->gate, false) | rm_input_bit(&y->up, false), rows, s->dim);
    for_rows(p, ffn_norm_rows);
}

/* --- feed-forward ----------------------------------------------------------------------------- */

/* A unit of gate and up: outputs first .. first + n - 1 for some rows, a multiple of 16 of them but
 * at the end. Their product goes on as input of down at once, so the f32 results never leave this
 * core's cache. */
static void gated_rows(pass *p, uint32_t first, uint32_t n, uint32_t row, uint32_t rows,
                       const rm_scratch_thread *t) {
    const rm_matrix *const w[2] = {&p->weights->gate, &p->weights->up};
    const uint32_t strips = rm_strips(n);
    rm_out y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = (rm_out){.at = t->tile[i], .row_count = rows, .strips = strips};
        const rm_acts x = rm_acts_rows(&p->in.kind[rm_input_of(w[i], false)], row, rows);
        for (uint32_t j = 0; j < strips; j++) {
            const uint32_t strip = first / RM_LANES + j;
            p->job->kernels->matmul[w[i]->format](
                &y[i], j, w[i]->strips + (size_t)strip * w[i]->strip_bytes, &x, t->matmul);
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        float gate[RM_UNIT_SUPER], up[RM_UNIT_SUPER];
        rm_out_row(gate, &y[0], r, 0, strips);
        rm_out_row(up, &y[1], r, 0, strips);
        p->job->kernels->swiglu(gate, gate, up, n);
        rm_inputs_put(p->job->kernels, &p->mid, row + r, first, n, gate, up);
    }
}

static void gated_unit(void *user, uint32_t item, uint32_t thread) {
    pass *p = user;
    const rm_matrix *down = &p->weights->down;
    const uint32_t rows = p->job->chunk->row_count, unit = rm_unit_of(down);
    const uint32_t first = item * unit, left = p->weights->gate.outputs - first;
    const uint32_t most = rm_unit_rows(down, rows);
    for (uint32_t row = 0; row < rows; row += most)
        gated_rows(p, first, left < unit ? left : unit, row, rows - row < most ? rows - row : most,
                   &p->job->work->threads[thread]);
}

static void residual_rows(void *user, uint32_t item, uint32_t thread) {
    pass *p = user;
    uint32_t first;
    const uint32_t n = item_rows(p, item, &first);
    for (uint32_t r = first; r < first + n; r++)
        add_row(p, r, &p->job->work->threads[thread]);
}

static void feed_forward(pass *p) {
    const rm_layer *y = p->weights;
    const rm_work *w = p->job->work;
    const uint32_t rows = p->job->chunk->row_count, width = y->gate.outputs;
    p->mid = rm_work_mid(w, rm_input_bit(&y->down, false), rows, width);
    const uint32_t unit = rm_unit_of(&y->down), units = (width + unit - 1) / unit;
    rm_threads_for(p->job->threads, units, rm_batch_of(p->job->threads, units, rows), gated_unit,
                   p);
    float *at = w->out;
    p->out = rm_product_make(&y->down, false, rows, &at);
    rm_products_run(p->job->kernels, p->job->threads, w, &p->mid, &p->out, 1);
    for_rows(p, residual_rows);
}

void rm_layer_run(const rm_layer_job *job, bool keys, bool rest) {
    pass p = {.job = job, .weights = &job->model->layers[job->layer], .keys = keys, .rest = rest};
    RM_ASSERT(job->chunk->row_count > 0 && job->chunk->row_count <= job->work->chunk_rows);
    project(&p);
    if (!rest) return;
    attend(&p);
    feed_forward(&p);
}
