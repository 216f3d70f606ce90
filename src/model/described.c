/*
 * described.c: a model from its numbers, without a file. Part: model.
 *
 * Matrices and vectors are the ones that a file of such a model would have, so that what plans for
 * files plans for these. Multi-head latent attention (DeepSeek-V2, 2024) has wq from the query's
 * own latent, wk to the latent that is cached, wv from there to keys and values of heads.
 */
#include "model/model.h"

#include <string.h>
#include <strings.h>

enum { CONTEXT_DEFAULT = 4096, VOCABULARY_LEAST = 1 };

/* Where a file's tensors would be: there is one, or there is none. */
static const rm_gguf_tensor somewhere, output_somewhere;

static int out_of_range(const char *name, uint64_t value, uint64_t least, uint64_t most,
                        remat_error *err) {
    return rm_fail(err, REMAT_E_USAGE, "shape: %s is %llu, not %llu to %llu", name,
                   (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

typedef struct range {
    const char *name;
    uint64_t value, least, most;
} range;

static int check_ranges(const remat_shape *n, remat_error *err) {
    const uint64_t latent = (uint64_t)n->kv_rank + n->rope_dim, q = (uint64_t)n->head_count;
    const bool experts = n->expert_count > 0;
    const range all[] = {
        {"layers", n->layer_count, 1, RM_LAYERS_MAX},
        {"hidden", n->dim, 1, RM_WIDTH_MAX},
        {"heads", n->head_count, 1, RM_HEADS_MAX},
        {"kv_heads", n->kv_head_count, 1, n->head_count},
        {"head_dim", n->head_dim, 1, RM_HEAD_DIM_MAX},
        {"heads x head_dim", q * (n->head_dim + n->rope_dim), 1, RM_WIDTH_MAX},
        {"feed_forward", n->feed_forward, experts ? 0 : 1, RM_WIDTH_MAX},
        {"vocabulary", n->vocabulary, VOCABULARY_LEAST, RM_VOCABULARY_MAX},
        {"context", n->context_count, 0, RM_CONTEXT_MAX},
        {"window", n->window, 0, RM_CONTEXT_MAX},
        {"window_period", n->window_period, 0, n->layer_count},
        {"kv_rank + rope_dim", latent, 0, RM_WIDTH_MAX},
        {"rope_dim", n->rope_dim, n->kv_rank > 0 ? 1 : 0, n->kv_rank > 0 ? RM_HEAD_DIM_MAX : 0},
        {"query_rank", n->query_rank, 0, n->kv_rank > 0 ? RM_WIDTH_MAX : 0},
        {"experts", n->expert_count, 0, RM_EXPERTS_MAX},
        {"experts_used", n->expert_used, experts ? 1 : 0, n->expert_count},
        {"expert_feed_forward", n->expert_feed_forward, experts ? 1 : 0,
         experts ? RM_WIDTH_MAX : 0},
        {"shared_feed_forward", n->shared_feed_forward, 0, experts ? RM_WIDTH_MAX : 0},
        {"dense_layers", n->dense_layer_count, 0, experts ? n->layer_count : 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const range *r = &all[i];
        if (r->value < r->least || r->value > r->most)
            return out_of_range(r->name, r->value, r->least, r->most, err);
    }
    if (n->head_count % n->kv_head_count != 0) {
        return rm_fail(err, REMAT_E_USAGE, "shape: heads %u are no multiple of kv_heads %u",
                       n->head_count, n->kv_head_count);
    }
    if (n->dense_layer_count > 0 && n->feed_forward == 0)
        return out_of_range("feed_forward", 0, 1, RM_WIDTH_MAX, err);
    return REMAT_OK;
}

static int format_of(rm_format *out, const char *name, remat_error *err) {
    for (int f = 0; name != NULL && f < RM_FORMAT_COUNT; f++) {
        if (strcasecmp(rm_formats[f].name, name) != 0) continue;
        *out = (rm_format)f;
        return REMAT_OK;
    }
    return rm_fail(err, REMAT_E_USAGE,
                   "shape: there is no type of weights \"%.20s\"; use f32, f16, bf16, q8_0, q4_0, "
                   "q4_1, q5_0, q5_1, q2_k to q6_k, iq4_nl, iq4_xs or mxfp4",
                   name != NULL ? name : "");
}

/* --- building --------------------------------------------------------------------------------- */

typedef struct building {
    const remat_shape *numbers;
    rm_format format;
    uint64_t parameters;
} building;

static void matrix(rm_matrix *w, building *b, uint32_t count, uint64_t outputs, uint32_t k) {
    *w = (rm_matrix){.source = &somewhere,
                     .format = b->format,
                     .outputs = (uint32_t)outputs,
                     .k = k,
                     .count = count,
                     .strip_bytes = rm_strip_bytes(b->format, k)};
    b->parameters += count * outputs * k;
}

static void vector(rm_vector *v, building *b, uint32_t count) {
    *v = (rm_vector){.source = &somewhere, .count = count};
    b->parameters += count;
}

static void attention(rm_layer *y, building *b) {
    const remat_shape *n = b->numbers;
    const uint64_t q = (uint64_t)n->head_count * (n->head_dim + n->rope_dim);
    const uint64_t kv = (uint64_t)n->kv_head_count * n->head_dim;
    vector(&y->attn_norm, b, n->dim);
    if (n->kv_rank > 0) {
        const uint64_t heads = (uint64_t)n->head_count * n->head_dim;
        matrix(&y->wq, b, 1, q, n->query_rank > 0 ? n->query_rank : n->dim);
        matrix(&y->wk, b, 1, n->kv_rank + n->rope_dim, n->dim);
        matrix(&y->wv, b, 1, 2 * heads, n->kv_rank);
        matrix(&y->wo, b, 1, n->dim, (uint32_t)heads);
        vector(&y->k_norm, b, n->kv_rank);
        if (n->query_rank > 0) vector(&y->q_norm, b, n->query_rank);
        return;
    }
    matrix(&y->wq, b, 1, q, n->dim);
    matrix(&y->wk, b, 1, kv, n->dim);
    matrix(&y->wv, b, 1, kv, n->dim);
    matrix(&y->wo, b, 1, n->dim, (uint32_t)q);
    if (n->head_norms) {
        vector(&y->q_norm, b, n->head_dim);
        vector(&y->k_norm, b, n->head_dim);
    }
    if (!n->biases) return;
    vector(&y->bq, b, (uint32_t)q);
    vector(&y->bk, b, (uint32_t)kv);
    vector(&y->bv, b, (uint32_t)kv);
}

/* Parameters of a layer that have no matrix of their own here. */
static void beside(rm_layer *y, building *b, uint64_t count) {
    const uint32_t dim = b->numbers->dim;
    if (count >= dim) matrix(&y->beside, b, 1, count / dim, dim);
}

static void layer(rm_layer *y, building *b, uint32_t index) {
    const remat_shape *n = b->numbers;
    const bool experts = n->expert_count > 0 && index >= n->dense_layer_count;
    const uint32_t ff = experts ? n->expert_feed_forward : n->feed_forward;
    const uint32_t count = experts ? n->expert_count : 1;
    *y = (rm_layer){0};
    if (n->window_period == 0 || (index + 1) % n->window_period != 0) y->window = n->window;
    attention(y, b);
    vector(&y->ffn_norm, b, n->dim);
    if (n->post_norms) {
        vector(&y->post_attn_norm, b, n->dim);
        vector(&y->post_ffn_norm, b, n->dim);
    }
    if (experts) matrix(&y->router, b, 1, n->expert_count, n->dim);
    matrix(&y->gate, b, count, ff, n->dim);
    matrix(&y->up, b, count, ff, n->dim);
    matrix(&y->down, b, count, n->dim, ff);
    const uint64_t shared = experts ? 3ull * n->shared_feed_forward : 0;
    beside(y, b, (shared + n->query_rank) * n->dim);
}

static rm_shape shape_of(const remat_shape *n) {
    const uint32_t head = n->head_dim + n->rope_dim;
    const uint32_t ff = n->feed_forward;
    return (rm_shape){
        .architecture = "described",
        .layer_count = n->layer_count,
        .dim = n->dim,
        .feed_forward = ff > n->expert_feed_forward ? ff : n->expert_feed_forward,
        .vocabulary = n->vocabulary,
        .context_count = n->context_count > 0 ? n->context_count : CONTEXT_DEFAULT,
        .head_count = n->head_count,
        .kv_head_count = n->kv_head_count,
        .head_dim = head,
        .head_dim_padded = (head + 15) / 16 * 16,
        .attention_dim = head,
        .latent_dim = n->kv_rank > 0 ? (n->kv_rank + n->rope_dim + 15) / 16 * 16 : 0,
        .rope_dim = n->rope_dim > 0 ? n->rope_dim : n->head_dim / 2 * 2,
        .expert_count = n->expert_count,
        .expert_used = n->expert_used,
    };
}

/* What parameter_count has more than the numbers come to, in equal parts. */
static int spread(rm_model *m, building *b, remat_error *err) {
    enum { PERCENT = 2 }; /* a round number may be a little small */
    const uint64_t given = b->numbers->parameter_count, sum = b->parameters;
    if (given == 0) return REMAT_OK;
    if (given < sum - sum / 100 * PERCENT) {
        return rm_fail(err, REMAT_E_USAGE,
                       "shape: its numbers come to %llu parameters, more than the %llu given; "
                       "leave parameters out, or say that the output is tied",
                       (unsigned long long)sum, (unsigned long long)given);
    }
    if (given <= sum) return REMAT_OK;
    const uint64_t each = (given - sum) / m->shape.layer_count, dim = m->shape.dim;
    if (each / dim > UINT32_MAX / 2) return out_of_range("parameters", given, 0, 1ull << 50, err);
    for (uint32_t i = 0; i < m->shape.layer_count; i++) {
        rm_matrix *w = &m->layers[i].beside;
        const uint64_t before = w->source != NULL ? (uint64_t)w->outputs * w->k : 0;
        b->parameters -= before;
        beside(&m->layers[i], b, before + each);
    }
    return REMAT_OK;
}

int rm_model_from_shape(rm_model *m, rm_ledger *l, const remat_shape *numbers,
                        uint64_t *parameter_count, remat_error *err) {
    building b = {.numbers = numbers};
    RM_TRY(check_ranges(numbers, err));
    RM_TRY(format_of(&b.format, numbers->weights, err));
    m->shape = shape_of(numbers);
    RM_TRY(rm_ledger_carve(&m->layers, l, RM_ACCOUNT_TEXT, m->shape.layer_count, sizeof *m->layers,
                           err));
    for (uint32_t i = 0; i < m->shape.layer_count; i++)
        layer(&m->layers[i], &b, i);
    matrix(&m->embedding, &b, 1, numbers->vocabulary, numbers->dim);
    vector(&m->output_norm, &b, numbers->dim);
    m->output = m->embedding;
    if (!numbers->tied) {
        matrix(&m->output, &b, 1, numbers->vocabulary, numbers->dim);
        m->output.source = &output_somewhere;
    }
    RM_TRY(spread(m, &b, err));
    RM_TRY(rm_ledger_carve(&m->resident, l, RM_ACCOUNT_TEXT, rm_unit_count(m), 1, err));
    memset(m->resident, 1, rm_unit_count(m));
    *parameter_count = b.parameters;
    return REMAT_OK;
}
