/* layer.c: see layer.h. The phases stand in the order in which they run. Part: engine. */
#include "engine/layer.h"
#include "engine/attention.h"
#include "engine/pass.h"

#include <string.h>

uint32_t rm_pass_item(const rm_pass *p, uint32_t item, uint32_t *first) {
    const uint32_t n = p->job->chunk->row_count;
    *first = n <= RM_GROUP ? item : item * RM_GROUP;
    return n <= RM_GROUP ? 1 : rm_group_rows(n, *first);
}

void rm_pass_rows(rm_pass *p, rm_task_fn *fn) {
    const uint32_t rows = p->job->chunk->row_count;
    const uint32_t items = rows <= RM_GROUP ? rows : (rows + RM_GROUP - 1) / RM_GROUP;
    if (rows > 2) {
        rm_threads_for(p->job->threads, items, 1, fn, p);
        return;
    }
    for (uint32_t i = 0; i < items; i++) /* less work than waking the others */
        fn(p, i, 0);
}

float *rm_pass_hidden(const rm_pass *p, uint32_t row) {
    return p->job->hidden + (size_t)p->job->chunk->hidden_row[row] * p->job->model->shape.dim;
}

void rm_pass_norm(rm_pass *p, uint32_t row, uint32_t to, const rm_vector *norm,
                  const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    p->job->kernels->rms_norm(t->row[0], rm_pass_hidden(p, row), norm->at, s->dim, s->norm_epsilon);
    rm_inputs_put(p->job->kernels, &p->in, to, 0, s->dim, t->row[0], t->row[1]);
}

void rm_pass_add(const rm_pass *p, uint32_t row, const rm_vector *norm,
                 const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    const rm_kernels *kernels = p->job->kernels;
    float *out = t->row[0];
    rm_product_row(out, kernels, &p->out, row, t->row[1]);
    if (norm->at != NULL) kernels->rms_norm(out, out, norm->at, s->dim, s->norm_epsilon);
    kernels->add(rm_pass_hidden(p, row), out, s->dim);
}

static void attn_norm_rows(void *user, uint32_t item, uint32_t thread) {
    rm_pass *p = user;
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    for (uint32_t r = first; r < first + n; r++)
        rm_pass_norm(p, r, r, &p->weights->attn_norm, &p->job->work->threads[thread]);
}

/* --- Q, K and V rows: bias, rotary, to their places ---------------------------------------- */

/* A head of Q or K as attention wants it: its norm, where the model has one, and rotary. */
static void shape_head(const rm_pass *p, float *head, const rm_vector *norm,
                       const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    const rm_kernels *kernels = p->job->kernels;
    if (norm->at != NULL) kernels->rms_norm(head, head, norm->at, s->head_dim, s->norm_epsilon);
    (s->rope_style == RM_ROPE_PAIRS ? kernels->rope_pairs
                                    : kernels->rope_halves)(head, t->cos, t->sin, s->rope_dim / 2);
}

/* One row of results as plain floats, with its bias. */
static void plain_row(const rm_pass *p, float *out, const rm_product *y, uint32_t row,
                      const rm_vector *bias, float *space) {
    rm_product_row(out, p->job->kernels, y, row, space);
    if (bias->at != NULL) p->job->kernels->add(out, bias->at, bias->count);
}

/* Copies a head to its padded width; the padding is zero. */
static void padded(float *out, const float *head, const rm_shape *s) {
    memcpy(out, head, s->head_dim * sizeof *out);
    memset(out + s->head_dim, 0, (s->head_dim_padded - s->head_dim) * sizeof *out);
}

static void key_row(const rm_pass *p, uint32_t row, uint32_t sequence, const rm_scratch_thread *t) {
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
        shape_head(p, k + h * s->head_dim, &p->weights->k_norm, t);
        padded(k_head, k + h * s->head_dim, s);
        padded(v_head, v + h * s->head_dim, s);
        p->job->kernels->page_put(page + h * cache->head_bytes, cache->shape.format,
                                  s->head_dim_padded, position % RM_PAGE_TOKENS, k_head, v_head);
    }
}

static void query_row(const rm_pass *p, uint32_t row, const rm_scratch_thread *t) {
    const rm_shape *s = &p->job->model->shape;
    const uint32_t group = s->head_count / s->kv_head_count, rows = p->job->chunk->row_count;
    const float scale = rm_attention_scale(s->attention_dim);
    float *q = t->row[0];
    plain_row(p, q, &p->q, row, &p->weights->bq, t->row[1]);
    for (uint32_t h = 0; h < s->head_count; h++) {
        float *head = q + h * s->head_dim;
        float *out = p->job->work->query +
                     (((size_t)(h / group) * rows + row) * group + h % group) * s->head_dim_padded;
        shape_head(p, head, &p->weights->q_norm, t);
        for (uint32_t i = 0; i < s->head_dim; i++)
            head[i] *= scale;
        padded(out, head, s);
    }
}

/* Leaves the row's inputs of K and V in the block of its page, if it has one. */
static void keep_inputs(const rm_pass *p, uint32_t row, uint32_t sequence) {
    const uint32_t position = p->job->chunk->position[row];
    const uint64_t place =
        rm_cache_index(p->job->cache, sequence, p->job->layer, position / RM_PAGE_TOKENS);
    void *block = rm_kept_at(p->job->inputs, place);
    if (block == NULL) return;
    rm_inputs kept = rm_kept_inputs(block, p->weights, p->job->model->shape.dim);
    for (int i = 0; i < RM_INPUT_COUNT; i++) {
        const uint32_t each = rm_input_rows((rm_input_kind)i);
        for (uint32_t k = 0; (kept.mask >> i & 1) && k < each; k++)
            rm_acts_copy_row(&kept.kind[i], each * (position % RM_PAGE_TOKENS) + k, &p->in.kind[i],
                             each * row + k);
    }
}

static uint32_t sequence_of(const rm_chunk *c, uint32_t row) {
    const rm_segment *g = c->segments;
    while (row >= g->first + g->count)
        g++;
    return g->sequence;
}

static void head_rows(void *user, uint32_t item, uint32_t thread) {
    const rm_pass *p = user;
    const rm_shape *s = &p->job->model->shape;
    const rm_scratch_thread *t = &p->job->work->threads[thread];
    const rm_rope *rope = &p->job->model->rope[p->weights->rope];
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        p->job->kernels->rope_angles(t->cos, t->sin, rope->frequency, s->rope_dim / 2,
                                     p->job->chunk->position[r], rope->scale);
        const uint32_t sequence = sequence_of(p->job->chunk, r);
        key_row(p, r, sequence, t);
        if (p->keep) keep_inputs(p, r, sequence);
        if (p->rest) query_row(p, r, t);
    }
}

static void project(rm_pass *p) {
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
    products[count++] = p->k;
    products[count++] = p->v;
    for (uint32_t i = 0; i < count; i++)
        mask |= 1u << products[i].input;
    p->in = rm_work_in(w, mask, rows, s->dim);
    rm_pass_rows(p, attn_norm_rows);
    rm_products_run(p->job->kernels, p->job->threads, w, &p->in, products, count);
    rm_pass_rows(p, head_rows);
}

uint64_t rm_kept_inputs_bytes(const rm_model *m) {
    uint64_t most = 0;
    for (uint32_t l = 0; l < m->shape.layer_count; l++) {
        const unsigned mask =
            rm_input_bit(&m->layers[l].wk, true) | rm_input_bit(&m->layers[l].wv, true);
        uint64_t bytes = 0;
        for (int i = 0; i < RM_INPUT_COUNT; i++) {
            if (mask >> i & 1)
                bytes += rm_input_bytes((rm_input_kind)i, RM_PAGE_TOKENS, m->shape.dim);
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

rm_inputs rm_kept_inputs(void *block, const rm_layer *y, uint32_t dim) {
    rm_inputs in = {.mask = rm_input_bit(&y->wk, true) | rm_input_bit(&y->wv, true)};
    uint8_t *at = block;
    for (int i = 0; i < RM_INPUT_COUNT; i++) {
        if (!(in.mask >> i & 1)) continue;
        in.kind[i] = rm_input_view(at, (rm_input_kind)i, RM_PAGE_TOKENS, dim);
        at += rm_input_bytes((rm_input_kind)i, RM_PAGE_TOKENS, dim);
    }
    return in;
}

/* Products of the whole block, since its rows lie in groups of all of it; those of tokens that are
 * not there yet are not looked at. */
void rm_layer_rebuild(const rm_layer_job *job, void *block) {
    rm_pass p = {.job = job, .weights = &job->model->layers[job->layer]};
    float *at = job->work->heads;
    RM_ASSERT(job->work->chunk_rows >= RM_PAGE_TOKENS);
    p.in = rm_kept_inputs(block, p.weights, job->model->shape.dim);
    p.k = rm_product_make(&p.weights->wk, true, RM_PAGE_TOKENS, &at);
    p.v = rm_product_make(&p.weights->wv, true, RM_PAGE_TOKENS, &at);
    const rm_product products[] = {p.k, p.v};
    rm_products_run(job->kernels, job->threads, job->work, &p.in, products, 2);
    rm_pass_rows(&p, head_rows);
}

/* --- attention's output, wo, the first residual --------------------------------------------- */

static void attended_rows(void *user, uint32_t item, uint32_t thread) {
    rm_pass *p = user;
    const rm_shape *s = &p->job->model->shape;
    const uint32_t q = s->head_count * s->head_dim;
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        rm_attention_finish(p->job, r, thread);
        rm_inputs_put(p->job->kernels, &p->mid, r, 0, q, rm_attention_out(p->job, r),
                      p->job->work->threads[thread].row[0]);
    }
}

static void ffn_norm_rows(void *user, uint32_t item, uint32_t thread) {
    rm_pass *p = user;
    const rm_scratch_thread *t = &p->job->work->threads[thread];
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        rm_pass_add(p, r, &p->weights->post_attn_norm, t);
        rm_pass_norm(p, r, r, &p->weights->ffn_norm, t);
    }
}

static bool attend(rm_pass *p) {
    const rm_layer *y = p->weights;
    const rm_shape *s = &p->job->model->shape;
    const rm_work *w = p->job->work;
    const uint32_t rows = p->job->chunk->row_count;
    if (!rm_attention_run(p->job)) return false;
    p->mid = rm_work_mid(w, rm_input_bit(&y->wo, true), rows, s->head_count * s->head_dim);
    rm_pass_rows(p, attended_rows);
    float *at = w->out;
    p->out = rm_product_make(&y->wo, true, rows, &at);
    rm_products_run(p->job->kernels, p->job->threads, w, &p->mid, &p->out, 1);
    p->in = rm_work_in(w, rm_feed_forward_mask(y), rows, s->dim);
    rm_pass_rows(p, ffn_norm_rows);
    return true;
}

bool rm_layer_run(const rm_layer_job *job, bool rest) {
    rm_pass p = {.job = job,
                 .weights = &job->model->layers[job->layer],
                 .rest = rest,
                 .keep = job->inputs != NULL};
    RM_ASSERT(job->chunk->row_count > 0 && job->chunk->row_count <= job->work->chunk_rows);
    project(&p);
    if (!rest) return true;
    if (!attend(&p)) return false;
    rm_feed_forward(&p);
    return true;
}
