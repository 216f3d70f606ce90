/* describe.c: what a model file says about itself, as readable text. Part: engine. */
#include "base/buf.h"
#include "engine/engine.h"

#include <string.h>

enum { VALUE_CAP = 512, FIRST_ELEMENTS = 4, PIECE_CAP = 96 };

void remat_info(remat_model_info *out, const remat_engine *e) {
    const rm_gguf *g = &e->gguf;
    uint64_t by_type[64] = {0}, most = 0;
    *out = (remat_model_info){.file_bytes = e->file.size,
                              .gguf_version = g->version,
                              .key_count = g->kv_count,
                              .tensor_count = g->tensor_count,
                              .context_count = e->model.shape.context_count,
                              .vocabulary_count = e->model.shape.vocabulary,
                              .layer_count = e->model.shape.layer_count};
    if (e->parameter_count > 0) { /* no file */
        out->parameter_count = e->parameter_count;
        memcpy(out->architecture, e->model.shape.architecture, sizeof out->architecture);
        const uint32_t type = rm_formats[e->model.embedding.format].gguf_type;
        strncpy(out->quantization, rm_gguf_type_name(type), sizeof out->quantization - 1);
        return;
    }
    if (rm_gguf_text_or(out->architecture, sizeof out->architecture, g, "general.architecture", "",
                        NULL) != REMAT_OK)
        out->architecture[0] = '\0';
    for (uint32_t i = 1; i < g->part_count; i++)
        out->file_bytes += g->parts[i].size;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const rm_gguf_tensor *t = &g->tensors[i];
        uint64_t values = 1;
        for (uint32_t d = 0; d < t->dim_count; d++)
            values *= t->dims[d]; /* the parser has checked that this does not wrap */
        out->parameter_count += values;
        out->tensor_bytes += t->bytes;
        if (t->type < 64) by_type[t->type] += values;
    }
    for (uint32_t i = 0; i < 64; i++) {
        if (by_type[i] <= most) continue;
        most = by_type[i];
        strncpy(out->quantization, rm_gguf_type_name(i), sizeof out->quantization - 1);
    }
}

static const char *type_name(uint32_t type) {
    static const char *const names[RM_GGUF_TYPE_COUNT] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                                          "i32", "f32", "bool", "string", "array",
                                                          "u64", "i64", "f64"};
    return type < RM_GGUF_TYPE_COUNT ? names[type] : "unknown";
}

static size_t type_bytes(uint32_t type) {
    static const uint8_t bytes[RM_GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < RM_GGUF_TYPE_COUNT ? bytes[type] : 0;
}

static void put_number(rm_buf *b, uint32_t type, const uint8_t *at) {
    union {
        uint8_t bytes[8];
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } v;
    memcpy(v.bytes, at, type_bytes(type));
    switch (type) {
    case RM_GGUF_U8:
        rm_buf_format(b, "%u", v.u8);
        break;
    case RM_GGUF_I8:
        rm_buf_format(b, "%d", v.i8);
        break;
    case RM_GGUF_U16:
        rm_buf_format(b, "%u", v.u16);
        break;
    case RM_GGUF_I16:
        rm_buf_format(b, "%d", v.i16);
        break;
    case RM_GGUF_U32:
        rm_buf_format(b, "%u", v.u32);
        break;
    case RM_GGUF_I32:
        rm_buf_format(b, "%d", v.i32);
        break;
    case RM_GGUF_F32:
        rm_buf_format(b, "%.9g", (double)v.f32);
        break;
    case RM_GGUF_BOOL:
        rm_buf_text(b, v.u8 != 0 ? "true" : "false");
        break;
    case RM_GGUF_U64:
        rm_buf_format(b, "%llu", (unsigned long long)v.u64);
        break;
    case RM_GGUF_I64:
        rm_buf_format(b, "%lld", (long long)v.i64);
        break;
    case RM_GGUF_F64:
        rm_buf_format(b, "%.17g", v.f64);
        break;
    default:
        break;
    }
}

/* A string's first bytes; the dots say that there is more. */
static int put_text(rm_buf *b, const rm_file *f, uint64_t at, uint64_t bytes, size_t most,
                    remat_error *err) {
    char text[VALUE_CAP];
    const uint64_t n = bytes < most ? bytes : most;
    RM_TRY(rm_file_read(f, text, at, n, err));
    rm_buf_put(b, text, n);
    if (n < bytes) rm_buf_text(b, "...");
    return REMAT_OK;
}

static int put_array(rm_buf *b, const rm_gguf *g, const rm_gguf_kv *kv, remat_error *err) {
    const uint64_t shown = kv->count < FIRST_ELEMENTS ? kv->count : FIRST_ELEMENTS;
    uint64_t at = kv->value_at;
    rm_buf_format(b, "%llu x %s [", (unsigned long long)kv->count, type_name(kv->element));
    for (uint64_t i = 0; i < shown && kv->element != RM_GGUF_ARRAY; i++) {
        uint8_t raw[8];
        if (i > 0) rm_buf_text(b, ", ");
        const bool text = kv->element == RM_GGUF_STRING;
        const size_t bytes = text ? 8 : type_bytes(kv->element);
        RM_TRY(rm_file_read(g->file, raw, at, bytes, err));
        at += bytes;
        if (text) {
            uint64_t length;
            memcpy(&length, raw, sizeof length);
            RM_TRY(put_text(b, g->file, at, length, PIECE_CAP, err));
            at += length;
        } else {
            put_number(b, kv->element, raw);
        }
    }
    rm_buf_text(b, shown < kv->count ? ", ...]" : "]");
    return REMAT_OK;
}

int remat_each_key(const remat_engine *e, remat_key_fn *fn, void *user, remat_error *err) {
    const rm_gguf *g = &e->gguf;
    char key[RM_GGUF_NAME_MAX + 1], value[2 * VALUE_CAP];
    for (uint32_t i = 0; i < g->kv_count; i++) {
        const rm_gguf_kv *kv = &g->kv[i];
        rm_buf b;
        const size_t key_bytes = kv->key_bytes < sizeof key ? kv->key_bytes : sizeof key;
        RM_TRY(rm_file_read(g->file, key, kv->key_at, key_bytes, err));
        rm_buf_start(&b, value, sizeof value, NULL, NULL);
        if (kv->type == RM_GGUF_STRING) {
            RM_TRY(put_text(&b, g->file, kv->value_at, kv->value_bytes, VALUE_CAP, err));
        } else if (kv->type == RM_GGUF_ARRAY) {
            RM_TRY(put_array(&b, g, kv, err));
        } else {
            uint8_t raw[8];
            RM_TRY(rm_file_read(g->file, raw, kv->value_at, type_bytes(kv->type), err));
            put_number(&b, kv->type, raw);
        }
        fn(user, key, key_bytes, type_name(kv->type), b.at, b.used);
    }
    return REMAT_OK;
}

void remat_each_tensor(const remat_engine *e, remat_tensor_fn *fn, void *user) {
    for (uint32_t i = 0; i < e->gguf.tensor_count; i++) {
        const rm_gguf_tensor *t = &e->gguf.tensors[i];
        fn(user, t->name, rm_gguf_type_name(t->type), t->dims, t->dim_count, t->bytes);
    }
}
