/* tiny_model.c: see tiny_model.h. */
#include "tiny_model.h"
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- bytes ------------------------------------------------------------------------------------ */

typedef struct bytes {
    uint8_t *at;
    size_t count, cap;
} bytes;

static void *grow(bytes *b, size_t count) {
    if (b->cap - b->count < count) {
        b->cap = (b->cap + count) * 2;
        b->at = realloc(b->at, b->cap);
        if (b->at == NULL) abort();
    }
    uint8_t *p = b->at + b->count;
    b->count += count;
    return p;
}

static void put(bytes *b, const void *from, size_t count) {
    memcpy(grow(b, count), from, count);
}
static void put_u32(bytes *b, uint32_t v) {
    put(b, &v, sizeof v);
}
static void put_u64(bytes *b, uint64_t v) {
    put(b, &v, sizeof v);
}
static void put_text(bytes *b, const char *text) {
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}
static void pad(bytes *b) {
    while (b->count % 32 != 0)
        memset(grow(b, 1), 0, 1);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* xorshift, as in harness.h; the state is never 0. */
static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Uniform in [-1, 1), 24 bits. */
static float uniform(uint64_t *state) {
    return (float)(next(state) >> 40) * 0x1p-23f - 1;
}

static uint64_t seeded(uint64_t seed) {
    uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 8; i++)
        next(&state);
    return state;
}

void tiny_tokens(uint32_t *out, uint32_t count, uint32_t vocabulary, uint64_t seed) {
    uint64_t state = seeded(seed);
    for (uint32_t i = 0; i < count; i++)
        out[i] = 3 + (uint32_t)(next(&state) >> 33) % (vocabulary - 3);
}

/* --- tensors ---------------------------------------------------------------------------------- */

typedef struct file {
    const tiny_spec *spec;
    bytes keys, infos, data;
    uint32_t key_count;
    uint64_t tensor_count, random;
} file;

static void put_half(bytes *b, float f) {
    const uint16_t h = rm_f16_from_f32(f);
    put(b, &h, sizeof h);
}

/* Any bytes with scales that give about this deviation. Mins are as random as scales: together they
 * shift a part of the block by as much as its weights vary. */
static void put_other_block(bytes *b, rm_format f, float scale, uint64_t *random) {
    static const float deviation[RM_FORMAT_COUNT] = {
        [RM_Q5_0] = 9.2f, [RM_Q5_1] = 9.2f, [RM_IQ4_NL] = 68, [RM_MXFP4] = 8,   [RM_Q2_K] = 14,
        [RM_Q3_K] = 43,   [RM_Q4_K] = 255,  [RM_Q5_K] = 527,  [RM_Q6_K] = 1369, [RM_IQ4_XS] = 1258,
    };
    const float d = scale / deviation[f];
    const float m = f == RM_Q5_1   ? -15.5f * d
                    : f == RM_Q2_K ? 1.5f * d
                    : f == RM_Q4_K ? 7.5f * d
                                   : 15.5f * d;
    uint8_t block[256];
    for (uint32_t i = 0; i < rm_formats[f].gguf_bytes; i++)
        block[i] = (uint8_t)(next(random) >> 40);
    w_set_scales(f, block, d, m);
    put(b, block, rm_formats[f].gguf_bytes);
}

/* A block of a quantized format whose weights have a deviation near `scale`. */
static void put_block(bytes *b, rm_format f, float scale, uint64_t *random) {
    const float vary = 1 + 0.4f * uniform(random), sign = next(random) >> 63 ? 1.0f : -1.0f;
    if (f == RM_Q8_0) {
        put_half(b, sign * vary * scale / 73);
        for (int i = 0; i < 32; i++) {
            const int8_t q = (int8_t)((int)(next(random) >> 33) % 255 - 127);
            put(b, &q, 1);
        }
        return;
    }
    if (f != RM_Q4_0 && f != RM_Q4_1) {
        put_other_block(b, f, sign * vary * scale, random);
        return;
    }
    const float d = sign * vary * scale / 4.6f;
    put_half(b, d);
    if (f == RM_Q4_1) put_half(b, -7.5f * d + 0.1f * scale * uniform(random));
    for (int i = 0; i < 16; i++) {
        const uint8_t q = (uint8_t)(next(random) >> 40);
        put(b, &q, 1);
    }
}

static void put_values(file *f, rm_format format, uint64_t count, float mean, float scale) {
    const uint32_t block = rm_formats[format].gguf_k;
    for (uint64_t i = 0; i < count; i += block) {
        if (block > 1) {
            put_block(&f->data, format, scale, &f->random);
            continue;
        }
        const float v = mean + 1.7f * scale * uniform(&f->random);
        if (format == RM_F16) put_half(&f->data, v);
        if (format == RM_BF16) {
            uint8_t value[2];
            w_set_scales(RM_BF16, value, v, 0);
            put(&f->data, value, sizeof value);
        }
        if (format == RM_F32) put(&f->data, &v, sizeof v);
    }
    pad(&f->data);
}

static void info(file *f, const char *name, rm_format format, const uint32_t dims[3]) {
    const uint32_t count = dims[2] > 0 ? 3 : dims[1] > 0 ? 2 : 1;
    put_text(&f->infos, name);
    put_u32(&f->infos, count);
    for (uint32_t i = 0; i < count; i++)
        put_u64(&f->infos, dims[i]);
    put_u32(&f->infos, rm_formats[format].gguf_type);
    put_u64(&f->infos, f->data.count);
    f->tensor_count++;
}

/* k x rows x count; what is 0 is no dimension of the tensor. */
static void tensor(file *f, const char *name, rm_format format, uint32_t k, uint32_t rows,
                   uint32_t count, float mean, float scale) {
    const tiny_flaw *flaw = &f->spec->flaw;
    const bool flawed = flaw->tensor != NULL && strcmp(flaw->tensor, name) == 0;
    uint32_t dims[3] = {k, rows, count};
    if (flawed) memcpy(dims, flaw->dims, sizeof dims);
    if (dims[0] == 0) return;
    info(f, name, format, dims);
    const uint64_t per_row = (uint64_t)dims[0] * (dims[1] > 0 ? dims[1] : 1);
    put_values(f, format, per_row * (dims[2] > 0 ? dims[2] : 1), mean, scale);
}

static void matrix(file *f, const char *name, rm_format format, uint32_t k, uint32_t rows,
                   float scale) {
    tensor(f, name, format, k, rows, 0, 0, scale);
}

static void vector(file *f, const char *name, uint32_t count, float mean, float scale) {
    tensor(f, name, f->spec->vectors, count, 0, 0, mean, scale);
}

static const char *part(char name[64], uint32_t layer, const char *what) {
    snprintf(name, 64, "blk.%u.%s", layer, what);
    return name;
}

static void feed_forward(file *f, uint32_t i) {
    const tiny_spec *s = f->spec;
    const uint32_t ff = s->feed_forward, n = s->expert_count;
    char name[64];
    if (n > 0) {
        matrix(f, part(name, i, "ffn_gate_inp.weight"), s->gate, s->dim, n, 0.3f);
        tensor(f, part(name, i, "ffn_gate_exps.weight"), s->gate, s->dim, ff, n, 0, 0.15f);
        tensor(f, part(name, i, "ffn_up_exps.weight"), s->up, s->dim, ff, n, 0, 0.15f);
        tensor(f, part(name, i, "ffn_down_exps.weight"), s->down, ff, s->dim, n, 0, 0.1f);
        return;
    }
    if (s->fused) {
        matrix(f, part(name, i, "ffn_up.weight"), s->up, s->dim, 2 * ff, 0.15f);
    } else {
        matrix(f, part(name, i, "ffn_gate.weight"), s->gate, s->dim, ff, 0.15f);
        matrix(f, part(name, i, "ffn_up.weight"), s->up, s->dim, ff, 0.15f);
    }
    matrix(f, part(name, i, "ffn_down.weight"), s->down, ff, s->dim, 0.1f);
}

static void layer(file *f, uint32_t i) {
    const tiny_spec *s = f->spec;
    const uint32_t q = s->head_count * s->head_dim, kv = s->kv_head_count * s->head_dim;
    char n[64];
    vector(f, part(n, i, "attn_norm.weight"), s->dim, 1, 0.2f);
    if (s->fused) {
        matrix(f, part(n, i, "attn_qkv.weight"), s->qkv, s->dim, q + 2 * kv, 0.2f);
    } else {
        matrix(f, part(n, i, "attn_q.weight"), s->qkv, s->dim, q, 0.2f);
        matrix(f, part(n, i, "attn_k.weight"), s->qkv, s->dim, kv, 0.2f);
        matrix(f, part(n, i, "attn_v.weight"), s->qkv, s->dim, kv, 0.15f);
    }
    if (s->biases) {
        vector(f, part(n, i, "attn_q.bias"), q, 0, 0.5f);
        vector(f, part(n, i, "attn_k.bias"), kv, 0, 0.5f);
        vector(f, part(n, i, "attn_v.bias"), kv, 0, 0.2f);
    }
    if (s->head_norms) { /* large, as Q and K are elsewhere: attention then depends on positions */
        vector(f, part(n, i, "attn_q_norm.weight"), s->head_dim, 1.6f, 0.3f);
        vector(f, part(n, i, "attn_k_norm.weight"), s->head_dim, 1.6f, 0.3f);
    }
    matrix(f, part(n, i, "attn_output.weight"), s->wo, q, s->dim, 0.15f);
    if (s->post_norms) vector(f, part(n, i, "post_attention_norm.weight"), s->dim, 1, 0.3f);
    vector(f, part(n, i, "ffn_norm.weight"), s->dim, 1, 0.2f);
    feed_forward(f, i);
    if (s->post_norms) vector(f, part(n, i, "post_ffw_norm.weight"), s->dim, 1, 0.3f);
}

static void tensors(file *f) {
    const tiny_spec *s = f->spec;
    matrix(f, "token_embd.weight", s->embedding, s->dim, s->vocabulary, 0.6f);
    vector(f, "output_norm.weight", s->dim, 1, 0.2f);
    if (!s->tied) matrix(f, "output.weight", s->output, s->dim, s->vocabulary, 0.25f);
    if (s->rope_factors > 0) {
        info(f, "rope_freqs.weight", RM_F32, (const uint32_t[3]){s->head_dim / 2});
        for (uint32_t i = 0; i < s->head_dim / 2; i++) {
            const float v = 1 + (s->rope_factors - 1) * (float)i / ((float)s->head_dim / 2 - 1);
            put(&f->data, &v, sizeof v);
        }
        pad(&f->data);
    }
    for (uint32_t i = 0; i < s->layer_count; i++)
        layer(f, i);
}

/* --- metadata --------------------------------------------------------------------------------- */

enum { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_TEXT = 8, GGUF_LIST = 9 };

static void put_key(file *f, const tiny_key *k) {
    if (k->kind == TINY_ABSENT) return;
    put_text(&f->keys, k->name);
    if (k->kind == TINY_TEXT) {
        put_u32(&f->keys, GGUF_TEXT);
        put_text(&f->keys, k->text);
    } else {
        put_u32(&f->keys, k->kind == TINY_U32 ? GGUF_U32 : GGUF_F32);
        put(&f->keys, k->kind == TINY_U32 ? (const void *)&k->u32 : &k->f32, 4);
    }
    f->key_count++;
}

static const char *architecture_of(const tiny_spec *s) {
    return s->architecture != NULL ? s->architecture : "llama";
}

/* The key, unless the specification has its own. */
static void usual(file *f, tiny_key k) {
    for (const tiny_key *own = f->spec->keys; own->name != NULL; own++) {
        if (strcmp(own->name, k.name) == 0) return;
    }
    put_key(f, &k);
}

static void usual_u32(file *f, const char *name, uint32_t v) {
    usual(f, (tiny_key){.name = name, .kind = TINY_U32, .u32 = v});
}
static void usual_text(file *f, const char *name, const char *v) {
    usual(f, (tiny_key){.name = name, .kind = TINY_TEXT, .text = v});
}

/* The same under the architecture's own prefix. */
static void own_u32(file *f, const char *name, uint32_t v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", architecture_of(f->spec), name);
    usual_u32(f, key, v);
}
static void own_f32(file *f, const char *name, float v) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", architecture_of(f->spec), name);
    usual(f, (tiny_key){.name = key, .kind = TINY_F32, .f32 = v});
}

static void list(file *f, const char *name, uint32_t element, uint64_t count) {
    put_text(&f->keys, name);
    put_u32(&f->keys, GGUF_LIST);
    put_u32(&f->keys, element);
    put_u64(&f->keys, count);
    f->key_count++;
}

typedef struct token {
    char text[16];
    int32_t type;
    float score;
} token;

#define BLANK "\xE2\x96\x81" /* U+2581 */

static token spm_token(uint32_t id) {
    static const char *const control[] = {"<unk>", "<s>", "</s>"};
    static const char *const pieces[] = {BLANK, BLANK "a",  BLANK "the", "he", "th",
                                         "in",  "er",       "an",        "on", "ing",
                                         "the", BLANK "to", BLANK "he",  ".",  ","};
    const uint32_t piece_count = sizeof pieces / sizeof *pieces;
    token t = {.type = 1};
    if (id < 3) {
        snprintf(t.text, sizeof t.text, "%s", control[id]);
        t.type = id == 0 ? 2 : 3;
    } else if (id < 259) {
        snprintf(t.text, sizeof t.text, "<0x%02X>", id - 3);
        t.type = 6;
    } else if (id < 285) {
        snprintf(t.text, sizeof t.text, "%c", 'a' + (int)(id - 259));
        t.score = -100;
    } else if (id < 285 + piece_count) {
        snprintf(t.text, sizeof t.text, "%s", pieces[id - 285]);
        t.score = -(float)(id - 284);
    } else {
        snprintf(t.text, sizeof t.text, "<pad%u>", id);
        t.type = 4;
    }
    return t;
}

/* A byte's character in gpt2's alphabet: printable ones stand for themselves. */
static uint32_t gpt2_character(uint32_t byte) {
    uint32_t other = 256;
    for (uint32_t b = 0; b <= byte; b++) {
        const bool plain = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte) return plain ? b : other;
        if (!plain) other++;
    }
    return byte;
}

static token bpe_token(uint32_t id) {
    static const char *const merged[] = {"th", "he", "the", "in", "\xC4\xA0t", "\xC4\xA0the"};
    token t = {.type = 1};
    if (id < 3) {
        snprintf(t.text, sizeof t.text, "<|%u|>", id);
        t.type = 3;
    } else if (id < 259) {
        const uint32_t c = gpt2_character(id - 3);
        if (c < 128) {
            snprintf(t.text, sizeof t.text, "%c", (int)c);
        } else {
            snprintf(t.text, sizeof t.text, "%c%c", (int)(0xC0 | c >> 6), (int)(0x80 | (c & 63)));
        }
    } else if (id < 259 + sizeof merged / sizeof *merged) {
        snprintf(t.text, sizeof t.text, "%s", merged[id - 259]);
    } else {
        snprintf(t.text, sizeof t.text, "<pad%u>", id);
        t.type = 4;
    }
    return t;
}

static void tokenizer(file *f) {
    static const char *const merges[] = {"t h", "h e", "th e", "i n", "\xC4\xA0 t", "\xC4\xA0t he"};
    const tiny_spec *s = f->spec;
    const uint32_t n = s->vocabulary;
    usual_text(f, "tokenizer.ggml.model", s->bpe ? "gpt2" : "llama");
    usual_u32(f, "tokenizer.ggml.bos_token_id", 1);
    usual_u32(f, "tokenizer.ggml.eos_token_id", 2);
    list(f, "tokenizer.ggml.tokens", GGUF_TEXT, n);
    for (uint32_t i = 0; i < n; i++) {
        const token t = s->bpe ? bpe_token(i) : spm_token(i);
        put_text(&f->keys, t.text);
    }
    list(f, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (uint32_t i = 0; i < n; i++) {
        const token t = s->bpe ? bpe_token(i) : spm_token(i);
        put(&f->keys, &t.type, sizeof t.type);
    }
    if (s->bpe) {
        list(f, "tokenizer.ggml.merges", GGUF_TEXT, sizeof merges / sizeof *merges);
        for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
            put_text(&f->keys, merges[i]);
        return;
    }
    list(f, "tokenizer.ggml.scores", GGUF_F32, n);
    for (uint32_t i = 0; i < n; i++) {
        const token t = spm_token(i);
        put(&f->keys, &t.score, sizeof t.score);
    }
}

static void metadata(file *f) {
    const tiny_spec *s = f->spec;
    usual_text(f, "general.architecture", architecture_of(s));
    usual_text(f, "general.name", s->name);
    own_u32(f, "block_count", s->layer_count);
    own_u32(f, "context_length", s->context_count);
    own_u32(f, "embedding_length", s->dim);
    if (s->expert_count > 0 && strcmp(architecture_of(s), "llama") != 0) {
        own_u32(f, "feed_forward_length", 3 * s->feed_forward); /* of a layer that is not there */
        own_u32(f, "expert_feed_forward_length", s->feed_forward);
    } else {
        own_u32(f, "feed_forward_length", s->feed_forward);
    }
    if (s->expert_count > 0) {
        own_u32(f, "expert_count", s->expert_count);
        own_u32(f, "expert_used_count", s->expert_used);
    }
    own_u32(f, "attention.head_count", s->head_count);
    own_u32(f, "attention.head_count_kv", s->kv_head_count);
    own_u32(f, "attention.key_length", s->head_dim);
    own_u32(f, "attention.value_length", s->head_dim);
    if (s->window > 0) own_u32(f, "attention.sliding_window", s->window);
    if (s->window_pattern > 0) own_u32(f, "attention.sliding_window_pattern", s->window_pattern);
    own_u32(f, "rope.dimension_count", s->rope_dim > 0 ? s->rope_dim : s->head_dim);
    own_u32(f, "vocab_size", s->vocabulary);
    own_f32(f, "rope.freq_base", s->rope_base > 0 ? s->rope_base : 10000);
    own_f32(f, "attention.layer_norm_rms_epsilon", 1e-5f);
    for (const tiny_key *k = s->keys; k->name != NULL; k++)
        put_key(f, k);
    tokenizer(f);
}

/* --- specifications --------------------------------------------------------------------------- */

tiny_spec tiny_spec_default(void) {
    tiny_spec s = {.name = "q8_0",
                   .layer_count = 3,
                   .dim = 64,
                   .head_count = 4,
                   .kv_head_count = 2,
                   .head_dim = 16,
                   .feed_forward = 160,
                   .vocabulary = 300,
                   .context_count = 4096,
                   .vectors = RM_F32,
                   .seed = 1};
    tiny_spec_format(&s, RM_Q8_0);
    return s;
}

void tiny_spec_format(tiny_spec *s, rm_format f) {
    s->embedding = s->output = s->qkv = s->wo = s->gate = s->up = s->down = f;
}

static void scaling(tiny_spec *s, const char *type, float factor) {
    s->keys[0] = (tiny_key){.name = "llama.rope.scaling.type", .kind = TINY_TEXT, .text = type};
    s->keys[1] = (tiny_key){.name = "llama.rope.scaling.factor", .kind = TINY_F32, .f32 = factor};
    s->keys[2] = (tiny_key){
        .name = "llama.rope.scaling.original_context_length", .kind = TINY_U32, .u32 = 256};
}

static void shape(tiny_spec *s, uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
                  uint32_t feed_forward) {
    s->head_count = heads;
    s->kv_head_count = kv_heads;
    s->head_dim = head_dim;
    s->feed_forward = feed_forward;
}

/* Shapes whose rows are whole blocks of 256. */
static void super_shape(tiny_spec *s, uint32_t feed_forward) {
    shape(s, 4, 2, 64, feed_forward);
    s->dim = 256;
    s->layer_count = 2;
}

static void fill_later_types(tiny_spec *s) {
    s[0].name = "q4_k and q6_k";
    super_shape(&s[0], 512);
    tiny_spec_format(&s[0], RM_Q4_K);
    s[0].embedding = s[0].output = s[0].down = RM_Q6_K;

    s[1].name = "q2_k, q3_k, q5_k, iq4_xs, biases";
    super_shape(&s[1], 256);
    s[1].embedding = s[1].up = RM_Q5_K;
    s[1].output = s[1].gate = RM_Q3_K;
    s[1].qkv = s[1].down = RM_IQ4_XS;
    s[1].wo = RM_Q2_K;
    s[1].biases = true;

    s[2].name = "bf16, q5_0, q5_1, iq4_nl, mxfp4";
    s[2].embedding = s[2].gate = RM_BF16;
    s[2].output = s[2].up = RM_Q5_1;
    s[2].qkv = RM_Q5_0;
    s[2].wo = RM_MXFP4;
    s[2].down = RM_IQ4_NL;

    s[3].name = "blocks of 32 and of 256, ff 768"; /* each phase reads several kinds of input */
    super_shape(&s[3], 768);
    s[3].embedding = RM_IQ4_NL;
    s[3].output = RM_Q2_K;
    s[3].qkv = RM_Q8_0;
    s[3].wo = RM_Q3_K;
    s[3].gate = RM_F16;
    s[3].up = RM_Q6_K;
    s[3].down = RM_Q5_K;
}

enum { SPECS = 11 };

static void fill(tiny_spec list[SPECS]) {
    for (int i = 0; i < SPECS; i++) {
        list[i] = tiny_spec_default();
        list[i].seed = 1 + (uint64_t)i;
    }
    list[1].name = "f32, MHA, biases, ff 100, tied";
    tiny_spec_format(&list[1], RM_F32);
    shape(&list[1], 4, 4, 16, 100);
    list[1].biases = list[1].tied = true;

    list[2].name = "f16, MQA, heads of 20, ff 90, llama3, f16 vectors";
    tiny_spec_format(&list[2], RM_F16);
    shape(&list[2], 3, 1, 20, 90);
    list[2].vectors = RM_F16;
    list[2].vocabulary = 299;
    scaling(&list[2], "llama3", 8);

    list[3].name = "q4_0, heads of 32, linear, gpt2";
    tiny_spec_format(&list[3], RM_Q4_0);
    shape(&list[3], 4, 2, 32, 192);
    list[3].bpe = true;
    scaling(&list[3], "linear", 4);

    list[4].name = "q4_1, heads of 64, yarn, tied, biases";
    tiny_spec_format(&list[4], RM_Q4_1);
    shape(&list[4], 2, 1, 64, 160);
    list[4].tied = list[4].biases = true;
    scaling(&list[4], "yarn", 4);

    list[5].name = "mixed formats, 2 layers, rope_freqs";
    shape(&list[5], 6, 2, 16, 224);
    list[5].layer_count = 2;
    list[5].embedding = RM_Q4_1;
    list[5].output = RM_Q8_0;
    list[5].qkv = RM_Q4_0;
    list[5].wo = RM_F16;
    list[5].gate = RM_Q4_1;
    list[5].up = RM_F32; /* gate and up read different kinds of input */
    list[5].down = RM_Q8_0;
    list[5].rope_factors = 6;

    list[6].name = "q8_0, heads of 20, dim 96, one layer";
    shape(&list[6], 8, 4, 20, 96);
    list[6].dim = 96;
    list[6].layer_count = 1;
    list[6].vocabulary = 333;

    fill_later_types(&list[7]);
}

const tiny_spec *tiny_spec_all(size_t index) {
    static tiny_spec list[SPECS];
    if (list[0].name == NULL) fill(list);
    return index < SPECS ? &list[index] : NULL;
}

static void experts(tiny_spec *s, uint32_t count, uint32_t used, uint32_t feed_forward) {
    s->expert_count = count;
    s->expert_used = used;
    s->feed_forward = feed_forward;
}

enum { ARCHITECTURES = 10 };

static void fill_architectures(tiny_spec list[ARCHITECTURES]) {
    for (int i = 0; i < ARCHITECTURES; i++) {
        list[i] = tiny_spec_default();
        list[i].seed = 20 + (uint64_t)i;
        tiny_spec_format(&list[i], RM_F32);
    }
    list[0].name = "llama";

    list[1].name = "mistral: llama with a window";
    list[1].window = 40;

    list[2].name = "mixtral: llama with experts";
    experts(&list[2], 4, 2, 96);

    list[3].name = "qwen2: biases";
    list[3].architecture = "qwen2";
    list[3].biases = true;
    list[3].rope_base = 1e6f;

    list[4].name = "qwen3: norms of heads";
    list[4].architecture = "qwen3";
    list[4].head_norms = true;
    list[4].rope_base = 1e6f;
    list[4].head_dim = 32;

    list[5].name = "qwen3moe: norms of heads, experts";
    list[5].architecture = "qwen3moe";
    list[5].head_norms = true;
    list[5].kv_head_count = 1;
    experts(&list[5], 8, 2, 40);

    list[6].name = "gemma3: windows in two of three layers";
    list[6].architecture = "gemma3";
    list[6].layer_count = 5;
    list[6].head_norms = list[6].post_norms = list[6].tied = true;
    list[6].window = 32;
    list[6].window_pattern = 3;
    list[6].rope_base = 1e6f;

    list[7].name = "gemma3: window over a page, global layers stretched";
    list[7].architecture = "gemma3";
    list[7].layer_count = 4;
    list[7].head_norms = list[7].post_norms = list[7].tied = true;
    list[7].window = 100;
    list[7].window_pattern = 2;
    list[7].rope_base = 1e6f;
    list[7].keys[0] =
        (tiny_key){.name = "gemma3.rope.scaling.type", .kind = TINY_TEXT, .text = "linear"};
    list[7].keys[1] = (tiny_key){.name = "gemma3.rope.scaling.factor", .kind = TINY_F32, .f32 = 8};
    list[7].keys[2] =
        (tiny_key){.name = "gemma3.rope.freq_base_swa", .kind = TINY_F32, .f32 = 5000};

    /* Fused matrices whose parts do not begin on a multiple of 16 rows. */
    list[8].name = "phi3: fused, heads of 20";
    list[8].architecture = "phi3";
    list[8].fused = true;
    shape(&list[8], 3, 3, 20, 90);

    list[9].name = "phi3: fused, a window, part of a head rotated";
    list[9].architecture = "phi3";
    list[9].fused = true;
    list[9].window = 65;
    list[9].rope_dim = 12;
}

const tiny_spec *tiny_spec_architecture(size_t index) {
    static tiny_spec list[ARCHITECTURES];
    if (list[0].name == NULL) fill_architectures(list);
    return index < ARCHITECTURES ? &list[index] : NULL;
}

/* --- the file --------------------------------------------------------------------------------- */

static bool write_all(int fd, const bytes *b) {
    return write(fd, b->at, b->count) == (ssize_t)b->count;
}

int tiny_model_open(char path[64], const tiny_spec *s) {
    file f = {.spec = s, .random = seeded(s->seed)};
    bytes head = {0};
    metadata(&f);
    tensors(&f);
    put(&head, "GGUF", 4);
    put_u32(&head, 3);
    put_u64(&head, f.tensor_count);
    put_u64(&head, f.key_count);
    put(&head, f.keys.at, f.keys.count);
    put(&head, f.infos.at, f.infos.count);
    pad(&head);
    const int fd = memfd_create("tiny.gguf", 0);
    const bool good = fd >= 0 && write_all(fd, &head) && write_all(fd, &f.data);
    if (good) snprintf(path, 64, "/proc/self/fd/%d", fd);
    if (!good && fd >= 0) close(fd);
    free(head.at);
    free(f.keys.at);
    free(f.infos.at);
    free(f.data.at);
    return good ? fd : -1;
}
