/*
 * value.c: types, lookup and values of a parsed GGUF file: see file.h. Positions and lengths in
 * the index have been checked against the file's size by file.c; what is read here is checked for
 * type and range only, and once more against the index where the file may have changed.
 */
#include "gguf/file.h"
#include "base/hash.h"

#include <math.h>
#include <string.h>

#define BAD(g, err, fmt, ...)                                                                      \
    rm_fail(err, REMAT_E_MODEL, "%s: key " fmt "; use another file",                               \
            rm_path_tail((g)->file->path), __VA_ARGS__)

typedef unsigned long long ull; /* for messages */

bool rm_gguf_block(uint32_t type, uint32_t *k, uint32_t *bytes) {
    static const struct {
        uint16_t k, bytes; /* k 0: no such type; the gaps are types that were withdrawn */
    } blocks[] = {
        [0] = {1, 4},      /* F32 */
        [1] = {1, 2},      /* F16 */
        [2] = {32, 18},    /* Q4_0 */
        [3] = {32, 20},    /* Q4_1 */
        [6] = {32, 22},    /* Q5_0 */
        [7] = {32, 24},    /* Q5_1 */
        [8] = {32, 34},    /* Q8_0 */
        [9] = {32, 36},    /* Q8_1: two halves and 32 bytes (until 2024 two floats; never stored) */
        [10] = {256, 84},  /* Q2_K */
        [11] = {256, 110}, /* Q3_K */
        [12] = {256, 144}, /* Q4_K */
        [13] = {256, 176}, /* Q5_K */
        [14] = {256, 210}, /* Q6_K */
        [15] = {256, 292}, /* Q8_K */
        [16] = {256, 66},  /* IQ2_XXS */
        [17] = {256, 74},  /* IQ2_XS */
        [18] = {256, 98},  /* IQ3_XXS */
        [19] = {256, 50},  /* IQ1_S */
        [20] = {32, 18},   /* IQ4_NL */
        [21] = {256, 110}, /* IQ3_S */
        [22] = {256, 82},  /* IQ2_S */
        [23] = {256, 136}, /* IQ4_XS */
        [24] = {1, 1},     /* I8 */
        [25] = {1, 2},     /* I16 */
        [26] = {1, 4},     /* I32 */
        [27] = {1, 8},     /* I64 */
        [28] = {1, 8},     /* F64 */
        [29] = {256, 56},  /* IQ1_M */
        [30] = {1, 2},     /* BF16 */
        [34] = {256, 54},  /* TQ1_0 */
        [35] = {256, 66},  /* TQ2_0 */
        [39] = {32, 17},   /* MXFP4 */
        [40] = {64, 36},   /* NVFP4 */
        [41] = {128, 18},  /* Q1_0 */
    };
    if (type >= sizeof blocks / sizeof *blocks || blocks[type].k == 0) return false;
    *k = blocks[type].k;
    *bytes = blocks[type].bytes;
    return true;
}

/* ------------------------------------------------------------------------- lookup */

/* Index of the name with this hash, or -1. */
static int64_t find(const rm_gguf_slot *slots, uint32_t count, uint64_t hash) {
    uint32_t low = 0, high = count; /* the slot is in [low, high) */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (slots[middle].hash == hash) return slots[middle].index;
        if (slots[middle].hash < hash) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

const rm_gguf_kv *rm_gguf_find(const rm_gguf *g, const char *key) {
    const size_t bytes = strlen(key);
    /* Part of the key may come from the file (the architecture's name): too long is not a bug. */
    if (bytes > RM_GGUF_NAME_MAX) return NULL;
    const int64_t i = find(g->kv_order, g->kv_count, rm_hash(key, bytes, 0));
    return i >= 0 && g->kv[i].key_bytes == bytes ? &g->kv[i] : NULL;
}

const rm_gguf_tensor *rm_gguf_tensor_find(const rm_gguf *g, const char *name) {
    const int64_t i = find(g->tensor_order, g->tensor_count, rm_hash(name, strlen(name), 0));
    return i >= 0 && strcmp(g->tensors[i].name, name) == 0 ? &g->tensors[i] : NULL;
}

/* ------------------------------------------------------------------------- values */

static const char *type_name(const rm_gguf_kv *kv) {
    static const char *const names[RM_GGUF_TYPE_COUNT] = {
        "u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
        "bool", "string", "array", "u64", "i64", "f64",
    };
    return names[kv->type];
}

static int missing(const rm_gguf *g, const char *key, remat_error *err) {
    return BAD(g, err, "%s is missing", key);
}

static int wrong_type(const rm_gguf *g, const char *key, const rm_gguf_kv *kv, const char *wanted,
                      remat_error *err) {
    return BAD(g, err, "%s is of type %s, not %s", key, type_name(kv), wanted);
}

/* Reads an integer of any type. *negative: it is signed and below zero, *out is then no number. */
static int read_integer(uint64_t *out, bool *negative, const rm_gguf *g, const char *key,
                        const rm_gguf_kv *kv, remat_error *err) {
    switch (kv->type) {
    case RM_GGUF_U8:
    case RM_GGUF_U16:
    case RM_GGUF_U32:
    case RM_GGUF_U64:
    case RM_GGUF_I8:
    case RM_GGUF_I16:
    case RM_GGUF_I32:
    case RM_GGUF_I64:
        break;
    default:
        return wrong_type(g, key, kv, "a whole number", err);
    }
    const bool is_signed = kv->type == RM_GGUF_I8 || kv->type == RM_GGUF_I16 ||
                           kv->type == RM_GGUF_I32 || kv->type == RM_GGUF_I64;
    uint64_t v = 0;
    RM_TRY(rm_file_read(g->file, &v, kv->value_at, kv->value_bytes, err));
    *negative = is_signed && (v >> (8 * kv->value_bytes - 1)) != 0;
    *out = v;
    return REMAT_OK;
}

static int read_u32(uint32_t *out, const rm_gguf *g, const char *key, const rm_gguf_kv *kv,
                    remat_error *err) {
    uint64_t v = 0;
    bool negative = false;
    RM_TRY(read_integer(&v, &negative, g, key, kv, err));
    if (negative) return BAD(g, err, "%s is negative", key);
    if (v > UINT32_MAX) return BAD(g, err, "%s is %llu, which is too large", key, (ull)v);
    *out = (uint32_t)v;
    return REMAT_OK;
}

int rm_gguf_u32(uint32_t *out, const rm_gguf *g, const char *key, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    return kv != NULL ? read_u32(out, g, key, kv, err) : missing(g, key, err);
}

int rm_gguf_u32_or(uint32_t *out, const rm_gguf *g, const char *key, uint32_t fallback,
                   remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    if (kv != NULL) return read_u32(out, g, key, kv, err);
    *out = fallback;
    return REMAT_OK;
}

static int read_f32(float *out, const rm_gguf *g, const char *key, const rm_gguf_kv *kv,
                    remat_error *err) {
    float v;
    if (kv->type == RM_GGUF_F32) {
        RM_TRY(rm_file_read(g->file, &v, kv->value_at, sizeof v, err));
    } else if (kv->type == RM_GGUF_F64) {
        double wide;
        RM_TRY(rm_file_read(g->file, &wide, kv->value_at, sizeof wide, err));
        v = fabs(wide) <= (double)__FLT_MAX__ ? (float)wide : INFINITY; /* NaN too */
    } else {
        return wrong_type(g, key, kv, "f32", err);
    }
    if (!isfinite(v)) return BAD(g, err, "%s is not a finite f32 number", key);
    *out = v;
    return REMAT_OK;
}

int rm_gguf_f32(float *out, const rm_gguf *g, const char *key, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    return kv != NULL ? read_f32(out, g, key, kv, err) : missing(g, key, err);
}

int rm_gguf_f32_or(float *out, const rm_gguf *g, const char *key, float fallback,
                   remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    if (kv != NULL) return read_f32(out, g, key, kv, err);
    *out = fallback;
    return REMAT_OK;
}

int rm_gguf_bool_or(bool *out, const rm_gguf *g, const char *key, bool fallback, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    if (kv == NULL) {
        *out = fallback;
        return REMAT_OK;
    }
    if (kv->type != RM_GGUF_BOOL) return wrong_type(g, key, kv, "bool", err);
    uint8_t v;
    RM_TRY(rm_file_read(g->file, &v, kv->value_at, sizeof v, err));
    if (v > 1) return BAD(g, err, "%s is %u, neither true nor false", key, v);
    *out = v == 1;
    return REMAT_OK;
}

static int read_text(char *out, size_t cap, const rm_gguf *g, const char *key, const rm_gguf_kv *kv,
                     remat_error *err) {
    RM_ASSERT(cap > 0);
    if (kv->type != RM_GGUF_STRING) return wrong_type(g, key, kv, "string", err);
    if (kv->value_bytes > cap - 1) {
        return BAD(g, err, "%s has %llu bytes, at most %llu are supported", key,
                   (ull)kv->value_bytes, (ull)(cap - 1));
    }
    const size_t bytes = (size_t)kv->value_bytes;
    out[0] = '\0';
    RM_TRY(rm_file_read(g->file, out, kv->value_at, bytes, err));
    const bool zero = memchr(out, '\0', bytes) != NULL;
    out[zero ? 0 : bytes] = '\0';
    if (zero) return BAD(g, err, "%s has a zero in its text", key);
    return REMAT_OK;
}

int rm_gguf_text(char *out, size_t cap, const rm_gguf *g, const char *key, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    return kv != NULL ? read_text(out, cap, g, key, kv, err) : missing(g, key, err);
}

int rm_gguf_text_or(char *out, size_t cap, const rm_gguf *g, const char *key, const char *fallback,
                    remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    if (kv != NULL) return read_text(out, cap, g, key, kv, err);
    const size_t bytes = strlen(fallback);
    RM_ASSERT(bytes < cap);
    memcpy(out, fallback, bytes + 1);
    return REMAT_OK;
}

/* ------------------------------------------------------------------------- arrays */

void rm_gguf_walk_start(rm_gguf_walk *w, const rm_gguf *g, const rm_gguf_kv *kv) {
    RM_ASSERT(kv->type == RM_GGUF_ARRAY);
    *w = (rm_gguf_walk){.kv = kv};
    rm_reader_start(&w->reader, g->file, g->window, RM_GGUF_WINDOW, kv->value_at);
}

int rm_gguf_walk_string(rm_gguf_walk *w, char *out, size_t cap, uint64_t *bytes, remat_error *err) {
    RM_ASSERT(w->kv->element == RM_GGUF_STRING);
    RM_ASSERT(w->index < w->kv->count);
    const uint64_t end = w->kv->value_at + w->kv->value_bytes;
    uint64_t length = 0;
    bool whole = end - w->reader.at >= sizeof length;
    if (whole) RM_TRY(rm_reader_read(&w->reader, &length, sizeof length, err));
    whole = whole && length <= end - w->reader.at;
    if (!whole) { /* the parser has seen other lengths here */
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: a list of strings changed while it was read; "
                       "start again when nothing writes to the file",
                       rm_path_tail(w->reader.file->path));
    }
    const size_t copied = length < cap ? (size_t)length : cap;
    RM_TRY(rm_reader_read(&w->reader, out, copied, err));
    rm_reader_skip(&w->reader, length - copied);
    w->index++;
    *bytes = length;
    return REMAT_OK;
}

int rm_gguf_walk_word(rm_gguf_walk *w, uint32_t *out, remat_error *err) {
    const uint8_t element = w->kv->element;
    RM_ASSERT(element == RM_GGUF_F32 || element == RM_GGUF_I32 || element == RM_GGUF_U32);
    RM_ASSERT(w->index < w->kv->count);
    RM_TRY(rm_reader_read(&w->reader, out, sizeof *out, err));
    w->index++;
    return REMAT_OK;
}
