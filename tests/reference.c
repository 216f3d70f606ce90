/* reference.c: see reference.h. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the file --------------------------------------------------------------------------------- */

enum { NAME = 128, KEYS = 64, TENSORS = 256 };

typedef struct key {
    char name[NAME];
    uint32_t type;
    double number;   /* of numbers */
    char text[NAME]; /* of texts */
} key;

typedef struct tensor {
    char name[NAME];
    uint64_t dims[4], at;
    uint32_t type;
    double *values; /* rows of dims[0] */
} tensor;

/* Numbers of the model under names of its own; a head's rotation is one table. */
struct reference {
    uint8_t *bytes;
    uint64_t size, at, data_at;
    bool broken;
    key keys[KEYS];
    tensor tensors[TENSORS];
    uint32_t key_count, tensor_count;
    char family[NAME];
    uint32_t layers, dim, heads, kv_heads, head, feed_forward, vocabulary, rotated, window, pattern;
    uint32_t experts, used;
    double epsilon, base, local_base, linear;
};

static void *room(uint64_t count, size_t size) {
    void *p = calloc(count > 0 ? count : 1, size);
    if (p == NULL) abort();
    return p;
}

static const uint8_t *take(reference *r, uint64_t count) {
    static const uint8_t nothing[8];
    if (count > r->size - r->at) {
        r->broken = true;
        return nothing;
    }
    r->at += count;
    return r->bytes + r->at - count;
}

static uint64_t take_number(reference *r, int bytes) {
    const uint8_t *p = take(r, (uint64_t)bytes);
    uint64_t v = 0;
    for (int i = 0; i < bytes && !r->broken; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static void take_text(reference *r, char out[NAME]) {
    const uint64_t n = take_number(r, 8);
    const uint8_t *p = take(r, n);
    if (r->broken) return;
    const uint64_t most = n < NAME - 1 ? n : NAME - 1;
    memcpy(out, p, most);
    out[most] = '\0';
}

static double float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

/* GGUF's types: 4 u32, 5 i32, 6 f32, 8 text, 9 list. Others do not occur in tests. */
static void take_value(reference *r, uint32_t type, key *k) {
    if (type == 4 || type == 5 || type == 6) {
        const uint32_t bits = (uint32_t)take_number(r, 4);
        k->number = type == 6 ? float_of(bits) : type == 4 ? (double)bits : (double)(int32_t)bits;
    } else if (type == 8) {
        take_text(r, k->text);
    } else if (type == 9) {
        const uint32_t element = (uint32_t)take_number(r, 4);
        const uint64_t n = take_number(r, 8);
        key skipped;
        r->broken = r->broken || element == 9;
        for (uint64_t i = 0; i < n && !r->broken; i++)
            take_value(r, element, &skipped);
    } else {
        r->broken = true;
    }
}

/* --- numbers of the formats ------------------------------------------------------------------- */

static double half(const uint8_t *p) {
    const uint32_t h = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    const double v =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);
    return h >> 15 ? -v : v;
}

/* 32 values of a block: q8_0 is a half and 32 signed bytes; q4_0 a half and 16 bytes, the low
 * nibbles first, less 8; q4_1 has a second half that is added. */
static void block(double out[32], uint32_t type, const uint8_t *p) {
    const double d = half(p), m = type == 3 ? half(p + 2) : 0;
    const uint8_t *q = p + (type == 3 ? 4 : 2);
    for (int i = 0; i < 32; i++) {
        const int nibble = i < 16 ? q[i] & 15 : type == 8 ? 0 : q[i - 16] >> 4;
        out[i] = type == 8 ? d * (int8_t)q[i] : type == 2 ? d * (nibble - 8) : d * nibble + m;
    }
}

static void read_values(reference *r, tensor *t) {
    const uint64_t n = t->dims[0] * t->dims[1] * t->dims[2];
    t->values = room(n, sizeof *t->values);
    r->at = r->data_at + t->at;
    for (uint64_t i = 0; i < n && !r->broken;) {
        if (t->type == 0)
            t->values[i++] = float_of((uint32_t)take_number(r, 4));
        else if (t->type == 1)
            t->values[i++] = half(take(r, 2));
        else {
            const uint64_t bytes = t->type == 8 ? 34 : t->type == 2 ? 18 : t->type == 3 ? 20 : 0;
            const uint8_t *p = take(r, bytes);
            r->broken = r->broken || bytes == 0 || n - i < 32;
            if (!r->broken) block(t->values + i, t->type, p);
            i += 32;
        }
    }
}

static void parse(reference *r) {
    r->broken = memcmp(take(r, 4), "GGUF", 4) != 0 || take_number(r, 4) != 3;
    r->tensor_count = (uint32_t)take_number(r, 8);
    r->key_count = (uint32_t)take_number(r, 8);
    r->broken = r->broken || r->tensor_count > TENSORS || r->key_count > KEYS;
    for (uint32_t i = 0; i < r->key_count && !r->broken; i++) {
        take_text(r, r->keys[i].name);
        r->keys[i].type = (uint32_t)take_number(r, 4);
        take_value(r, r->keys[i].type, &r->keys[i]);
    }
    for (uint32_t i = 0; i < r->tensor_count && !r->broken; i++) {
        tensor *t = &r->tensors[i];
        take_text(r, t->name);
        const uint64_t count = take_number(r, 4);
        r->broken = r->broken || count > 3;
        for (uint64_t d = 0; d < 4 && !r->broken; d++)
            t->dims[d] = d < count ? take_number(r, 8) : 1;
        t->type = (uint32_t)take_number(r, 4);
        t->at = take_number(r, 8);
    }
    r->data_at = (r->at + 31) / 32 * 32;
    for (uint32_t i = 0; i < r->tensor_count && !r->broken; i++)
        read_values(r, &r->tensors[i]);
}

static const key *key_of(const reference *r, const char *name) {
    char whole[2 * NAME];
    snprintf(whole, sizeof whole, "%s.%s", r->family, name);
    for (uint32_t i = 0; i < r->key_count; i++) {
        if (strcmp(r->keys[i].name, name) == 0 || strcmp(r->keys[i].name, whole) == 0)
            return &r->keys[i];
    }
    return NULL;
}

static double number_of(const reference *r, const char *name, double otherwise) {
    const key *k = key_of(r, name);
    return k != NULL ? k->number : otherwise;
}

static uint32_t count_of(const reference *r, const char *name, uint32_t otherwise) {
    return (uint32_t)number_of(r, name, otherwise);
}

/* A tensor's values, or NULL. layer < 0: not of a layer. */
static const double *values_of(const reference *r, int layer, const char *name) {
    char whole[2 * NAME];
    if (layer < 0) snprintf(whole, sizeof whole, "%s", name);
    if (layer >= 0) snprintf(whole, sizeof whole, "blk.%d.%s", layer, name);
    for (uint32_t i = 0; i < r->tensor_count; i++) {
        if (strcmp(r->tensors[i].name, whole) == 0) return r->tensors[i].values;
    }
    return NULL;
}

static bool is(const reference *r, const char *family) {
    return strcmp(r->family, family) == 0;
}

static void describe(reference *r) {
    const key *family = key_of(r, "general.architecture"), *scaling;
    snprintf(r->family, sizeof r->family, "%s", family != NULL ? family->text : "");
    r->layers = count_of(r, "block_count", 0);
    r->dim = count_of(r, "embedding_length", 0);
    r->heads = count_of(r, "attention.head_count", 0);
    r->kv_heads = count_of(r, "attention.head_count_kv", r->heads);
    r->head = count_of(r, "attention.key_length", 0);
    r->rotated = count_of(r, "rope.dimension_count", r->head);
    r->window = count_of(r, "attention.sliding_window", 0);
    r->pattern = count_of(r, "attention.sliding_window_pattern", is(r, "gemma3") ? 6 : 0);
    r->vocabulary = count_of(r, "vocab_size", 0);
    r->experts = count_of(r, "expert_count", 0);
    r->used = count_of(r, "expert_used_count", 0);
    r->feed_forward = count_of(r, "feed_forward_length", 0);
    if (is(r, "qwen3moe")) r->feed_forward = count_of(r, "expert_feed_forward_length", 0);
    r->epsilon = number_of(r, "attention.layer_norm_rms_epsilon", 0);
    r->base = number_of(r, "rope.freq_base", 10000);
    r->local_base = number_of(r, "rope.freq_base_swa", 10000);
    r->linear = number_of(r, "rope.scaling.factor", 1);
    scaling = key_of(r, "rope.scaling.type");
    r->broken = r->broken || r->layers == 0 || r->dim == 0 || r->heads == 0 || r->kv_heads == 0 ||
                r->head == 0 || r->vocabulary == 0 || values_of(r, -1, "rope_freqs.weight") != NULL;
    r->broken = r->broken || (scaling != NULL && strcmp(scaling->text, "linear") != 0);
}

reference *reference_open(const char *path) {
    reference *r = room(1, sizeof *r);
    FILE *f = fopen(path, "rb");
    if (f != NULL) {
        enum { MOST = 64 << 20 };
        r->bytes = room(MOST, 1);
        r->size = fread(r->bytes, 1, MOST, f);
        fclose(f);
        parse(r);
        if (!r->broken) describe(r);
    }
    if (f != NULL && !r->broken) return r;
    fprintf(stderr, "reference: %s: not a model for here\n", path);
    reference_close(r);
    return NULL;
}

void reference_close(reference *r) {
    if (r == NULL) return;
    for (uint32_t i = 0; i < TENSORS; i++)
        free(r->tensors[i].values);
    free(r->bytes);
    free(r);
}

uint32_t reference_vocabulary(const reference *r) {
    return r->vocabulary;
}

/* --- the pieces ------------------------------------------------------------------------------- */

static void product(double *y, const double *w, const double *x, uint32_t rows, uint32_t k) {
    for (uint32_t i = 0; i < rows; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < k; j++)
            sum += w[(uint64_t)i * k + j] * x[j];
        y[i] = sum;
    }
}

static void add(double *x, const double *y, uint32_t n) {
    for (uint32_t i = 0; y != NULL && i < n; i++)
        x[i] += y[i];
}

/* Zhang and Sennrich, 2019. Without a weight: x as it is. */
static void norm(const reference *r, double *y, const double *x, const double *weight, uint32_t n) {
    double mean = 0;
    for (uint32_t i = 0; i < n; i++)
        mean += x[i] * x[i] / n;
    for (uint32_t i = 0; i < n; i++)
        y[i] = weight != NULL ? x[i] / sqrt(mean + r->epsilon) * weight[i] : x[i];
}

static void softmax(double *x, uint32_t n) {
    double max = x[0], sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = fmax(max, x[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - max);
    for (uint32_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* Layers with a window see it, the newest token included; gemma3 has one without after each
 * pattern - 1 of them. */
static uint32_t window_of(const reference *r, uint32_t layer) {
    return r->pattern > 0 && layer % r->pattern == r->pattern - 1 ? 0 : r->window;
}

/* Su et al., 2021. Files of llama have the two channels of a plane side by side; in the others
 * they are half of what is rotated apart. In gemma3 layers with a window have a base of their own,
 * and are not stretched. */
static void rotate(const reference *r, double *x, uint32_t layer, uint32_t position) {
    const bool local = is(r, "gemma3") && window_of(r, layer) > 0, pairs = is(r, "llama");
    const double base = local ? r->local_base : r->base, stretched = local ? 1 : r->linear;
    const uint32_t planes = r->rotated / 2;
    for (uint32_t i = 0; i < planes; i++) {
        const double angle = position / stretched * pow(base, -2.0 * i / r->rotated);
        double *a = x + (pairs ? 2 * i : i), *b = x + (pairs ? 2 * i + 1 : i + planes);
        const double was = *a;
        *a = was * cos(angle) - *b * sin(angle);
        *b = was * sin(angle) + *b * cos(angle);
    }
}

/* --- attention -------------------------------------------------------------------------------- */

typedef struct rows {
    const reference *r;
    uint32_t count;
    double *x;          /* count x dim */
    double *q, *k, *v;  /* count x heads (or kv_heads) x head */
    double *n, *y, *up; /* of one position */
    double *weights;    /* count, or experts */
} rows;

static void project_one(const rows *s, uint32_t layer, uint32_t position) {
    const reference *r = s->r;
    const int i = (int)layer;
    const uint32_t q_count = r->heads * r->head, kv_count = r->kv_heads * r->head;
    double *q = s->q + (uint64_t)position * q_count, *k = s->k + (uint64_t)position * kv_count;
    double *v = s->v + (uint64_t)position * kv_count;
    const double *fused = values_of(r, i, "attn_qkv.weight");
    const double *wq = fused, *wk, *wv;
    if (fused != NULL) {
        wk = wq + (uint64_t)q_count * r->dim;
        wv = wk + (uint64_t)kv_count * r->dim;
    } else {
        wq = values_of(r, i, "attn_q.weight");
        wk = values_of(r, i, "attn_k.weight");
        wv = values_of(r, i, "attn_v.weight");
    }
    norm(r, s->n, s->x + (uint64_t)position * r->dim, values_of(r, i, "attn_norm.weight"), r->dim);
    product(q, wq, s->n, q_count, r->dim);
    product(k, wk, s->n, kv_count, r->dim);
    product(v, wv, s->n, kv_count, r->dim);
    add(q, values_of(r, i, "attn_q.bias"), q_count);
    add(k, values_of(r, i, "attn_k.bias"), kv_count);
    add(v, values_of(r, i, "attn_v.bias"), kv_count);
    for (uint32_t h = 0; h < r->heads; h++) {
        norm(r, q + h * r->head, q + h * r->head, values_of(r, i, "attn_q_norm.weight"), r->head);
        rotate(r, q + h * r->head, layer, position);
    }
    for (uint32_t h = 0; h < r->kv_heads; h++) {
        norm(r, k + h * r->head, k + h * r->head, values_of(r, i, "attn_k_norm.weight"), r->head);
        rotate(r, k + h * r->head, layer, position);
    }
}

/* Vaswani et al., 2017; heads in groups over one K and V: Ainslie et al., 2023. */
static void attend_one(const rows *s, uint32_t layer, uint32_t position) {
    const reference *r = s->r;
    const uint32_t window = window_of(r, layer), group = r->heads / r->kv_heads;
    const uint32_t first = window > 0 && position >= window ? position - window + 1 : 0;
    for (uint32_t h = 0; h < r->heads; h++) {
        const double *q = s->q + ((uint64_t)position * r->heads + h) * r->head;
        double *out = s->n + h * r->head;
        for (uint32_t t = first; t <= position; t++) {
            const double *k = s->k + ((uint64_t)t * r->kv_heads + h / group) * r->head;
            double score;
            product(&score, k, q, 1, r->head);
            s->weights[t - first] = score / sqrt(r->head);
        }
        softmax(s->weights, position - first + 1);
        memset(out, 0, r->head * sizeof *out);
        for (uint32_t t = first; t <= position; t++) {
            const double *v = s->v + ((uint64_t)t * r->kv_heads + h / group) * r->head;
            for (uint32_t i = 0; i < r->head; i++)
                out[i] += s->weights[t - first] * v[i];
        }
    }
    product(s->y, values_of(r, (int)layer, "attn_output.weight"), s->n, r->dim, r->heads * r->head);
    norm(r, s->y, s->y, values_of(r, (int)layer, "post_attention_norm.weight"), r->dim);
    add(s->x + (uint64_t)position * r->dim, s->y, r->dim);
}

/* --- feed-forward ----------------------------------------------------------------------------- */

/* y += c * (down . (f(gate . n) * (up . n))), Shazeer, 2020; f: SiLU, or GELU in its tanh form. */
static void gated(const rows *s, double *y, double c, const double *gate, const double *up,
                  const double *down) {
    const reference *r = s->r;
    const uint32_t ff = r->feed_forward;
    double *a = s->up, *b = s->up + ff, *out = s->up + 2 * ff;
    product(a, gate, s->n, ff, r->dim);
    product(b, up, s->n, ff, r->dim);
    for (uint32_t i = 0; i < ff; i++) {
        const double g = a[i];
        const double gelu = 0.5 * g * (1 + tanh(sqrt(2 / acos(-1.0)) * (g + 0.044715 * g * g * g)));
        a[i] = (is(r, "gemma3") ? gelu : g / (1 + exp(-g))) * b[i];
    }
    product(out, down, a, r->dim, ff);
    for (uint32_t i = 0; i < r->dim; i++)
        y[i] += c * out[i];
}

/* Mixtral: a softmax over the best logits. Qwen 3: over all, then the best sum to 1. The weights of
 * experts that are not used become 0. */
static void route(const rows *s, uint32_t layer) {
    const reference *r = s->r;
    double *p = s->weights, kept = 0;
    product(p, values_of(r, (int)layer, "ffn_gate_inp.weight"), s->n, r->experts, r->dim);
    if (is(r, "qwen3moe")) softmax(p, r->experts);
    for (uint32_t dropped = r->used; dropped < r->experts;
         dropped++) { /* the least of those left */
        uint32_t least = 0;
        for (uint32_t e = 1; e < r->experts; e++) {
            if (p[e] < p[least]) least = e;
        }
        p[least] = INFINITY;
    }
    for (uint32_t e = 0; e < r->experts; e++) {
        p[e] = isinf(p[e]) ? 0 : is(r, "qwen3moe") ? p[e] : exp(p[e]);
        kept += p[e];
    }
    for (uint32_t e = 0; e < r->experts; e++)
        p[e] /= kept;
}

static void feed_one(const rows *s, uint32_t layer, uint32_t position) {
    const reference *r = s->r;
    const int i = (int)layer;
    const uint64_t matrix = (uint64_t)r->feed_forward * r->dim;
    norm(r, s->n, s->x + (uint64_t)position * r->dim, values_of(r, i, "ffn_norm.weight"), r->dim);
    memset(s->y, 0, r->dim * sizeof *s->y);
    if (r->experts > 0) {
        route(s, layer);
        for (uint32_t e = 0; e < r->experts; e++) {
            if (s->weights[e] > 0)
                gated(s, s->y, s->weights[e], values_of(r, i, "ffn_gate_exps.weight") + e * matrix,
                      values_of(r, i, "ffn_up_exps.weight") + e * matrix,
                      values_of(r, i, "ffn_down_exps.weight") + e * matrix);
        }
    } else {
        const double *gate = values_of(r, i, "ffn_gate.weight"),
                     *up = values_of(r, i, "ffn_up.weight");
        if (gate == NULL) { /* fused: gate comes first */
            gate = up;
            up += matrix;
        }
        gated(s, s->y, 1, gate, up, values_of(r, i, "ffn_down.weight"));
    }
    norm(r, s->y, s->y, values_of(r, i, "post_ffw_norm.weight"), r->dim);
    add(s->x + (uint64_t)position * r->dim, s->y, r->dim);
}

/* --- all of it -------------------------------------------------------------------------------- */

void reference_logits(double *out, const reference *r, const uint32_t *tokens, uint32_t count) {
    const uint64_t q = (uint64_t)r->heads * r->head, kv = (uint64_t)r->kv_heads * r->head;
    const double *embedding = values_of(r, -1, "token_embd.weight");
    const double *output = values_of(r, -1, "output.weight");
    rows s = {.r = r, .count = count};
    s.x = room((uint64_t)count * r->dim, sizeof(double));
    s.q = room(count * q, sizeof(double));
    s.k = room(count * kv, sizeof(double));
    s.v = room(count * kv, sizeof(double));
    s.n = room(q + r->dim, sizeof(double));
    s.y = room(r->dim, sizeof(double));
    s.up = room(2ull * r->feed_forward + r->dim, sizeof(double));
    s.weights = room(count + r->experts, sizeof(double));
    for (uint64_t i = 0; i < (uint64_t)count * r->dim; i++) {
        s.x[i] = embedding[(uint64_t)tokens[i / r->dim] * r->dim + i % r->dim];
        if (is(r, "gemma3")) s.x[i] *= sqrt(r->dim);
    }
    for (uint32_t layer = 0; layer < r->layers; layer++) {
        for (uint32_t p = 0; p < count; p++)
            project_one(&s, layer, p);
        for (uint32_t p = 0; p < count; p++) {
            attend_one(&s, layer, p);
            feed_one(&s, layer, p);
        }
    }
    for (uint32_t p = 0; p < count; p++) {
        norm(r, s.n, s.x + (uint64_t)p * r->dim, values_of(r, -1, "output_norm.weight"), r->dim);
        product(out + (uint64_t)p * r->vocabulary, output != NULL ? output : embedding, s.n,
                r->vocabulary, r->dim);
    }
    double *const all[] = {s.x, s.q, s.k, s.v, s.n, s.y, s.up, s.weights};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
