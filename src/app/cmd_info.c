/* cmd_info.c: remat info: what a model file says. Part: app. */
#include "app/app.h"
#include "base/check.h"

#include <string.h>

enum { TYPES_MAX = 64, MIB = 1 << 20 };

/* Bytes and tensors of each type, in order of appearance. */
typedef struct by_type {
    const char *name[TYPES_MAX];
    uint64_t bytes[TYPES_MAX];
    uint32_t tensors[TYPES_MAX], count;
} by_type;

static void add_type(void *user, const char *name, const char *type, const uint64_t *dims,
                     uint32_t dim_count, uint64_t bytes) {
    by_type *t = user;
    uint32_t i = 0;
    (void)name;
    (void)dims;
    (void)dim_count;
    while (i < t->count && strcmp(t->name[i], type) != 0)
        i++;
    if (i == TYPES_MAX) return;
    if (i == t->count) t->name[t->count++] = type;
    t->bytes[i] += bytes;
    t->tensors[i]++;
}

static void print_key(void *user, const char *key, size_t key_bytes, const char *type,
                      const char *value, size_t value_bytes) {
    (void)user;
    app_printf("  %-44.*s %-7s ", (int)key_bytes, key, type);
    for (size_t i = 0; i < value_bytes && i < 100; i++) { /* one line each */
        const unsigned char c = (unsigned char)value[i];
        rm_buf_put(app_out(), c < 32 ? " " : value + i, 1);
    }
    app_printf("%s\n", value_bytes > 100 ? " .." : "");
}

static void print_tensor(void *user, const char *name, const char *type, const uint64_t *dims,
                         uint32_t dim_count, uint64_t bytes) {
    (void)user;
    app_printf("  %-44s %-7s ", name, type);
    for (uint32_t i = 0; i < dim_count; i++)
        app_printf("%s%llu", i > 0 ? " x " : "", (unsigned long long)dims[i]);
    app_printf("   %llu bytes\n", (unsigned long long)bytes);
}

static int print_text(const remat_engine *e, const remat_model_info *info, const by_type *types,
                      remat_error *err) {
    app_printf("architecture %s, %.1f M parameters, mostly %s, GGUF %u, %.1f MiB\n",
               info->architecture, (double)info->parameter_count / 1e6, info->quantization,
               info->gguf_version, (double)info->file_bytes / MIB);
    for (uint32_t i = 0; i < types->count; i++)
        app_printf("  %-8s %4u tensors %10.1f MiB\n", types->name[i], types->tensors[i],
                   (double)types->bytes[i] / MIB);
    app_printf("metadata, %u keys\n", info->key_count);
    RM_TRY(remat_each_key(e, print_key, NULL, err));
    app_printf("tensors, %u\n", info->tensor_count);
    remat_each_tensor(e, print_tensor, NULL);
    return REMAT_OK;
}

static void json_key(void *user, const char *key, size_t key_bytes, const char *type,
                     const char *value, size_t value_bytes) {
    rm_json *j = user;
    rm_json_open(j, NULL, '{');
    rm_json_text(j, "key", key, key_bytes);
    rm_json_string(j, "type", type);
    rm_json_text(j, "value", value, value_bytes);
    rm_json_close(j, '}');
}

static void json_tensor(void *user, const char *name, const char *type, const uint64_t *dims,
                        uint32_t dim_count, uint64_t bytes) {
    rm_json *j = user;
    rm_json_open(j, NULL, '{');
    rm_json_string(j, "name", name);
    rm_json_string(j, "type", type);
    rm_json_open(j, "shape", '[');
    for (uint32_t i = 0; i < dim_count; i++)
        rm_json_u64(j, NULL, dims[i]);
    rm_json_close(j, ']');
    rm_json_u64(j, "bytes", bytes);
    rm_json_close(j, '}');
}

static int print_json(const remat_engine *e, const remat_model_info *info, const by_type *types,
                      remat_error *err) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_string(&j, "architecture", info->architecture);
    rm_json_string(&j, "quantization", info->quantization);
    rm_json_u64(&j, "parameters", info->parameter_count);
    rm_json_u64(&j, "gguf_version", info->gguf_version);
    rm_json_u64(&j, "file_bytes", info->file_bytes);
    rm_json_u64(&j, "tensor_bytes", info->tensor_bytes);
    rm_json_open(&j, "types", '[');
    for (uint32_t i = 0; i < types->count; i++) {
        rm_json_open(&j, NULL, '{');
        rm_json_string(&j, "type", types->name[i]);
        rm_json_u64(&j, "tensors", types->tensors[i]);
        rm_json_u64(&j, "bytes", types->bytes[i]);
        rm_json_close(&j, '}');
    }
    rm_json_close(&j, ']');
    rm_json_open(&j, "metadata", '[');
    RM_TRY(remat_each_key(e, json_key, &j, err));
    rm_json_close(&j, ']');
    rm_json_open(&j, "tensors", '[');
    remat_each_tensor(e, json_tensor, &j);
    rm_json_close(&j, ']');
    rm_json_close(&j, '}');
    app_printf("\n");
    return REMAT_OK;
}

int app_info(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    remat_model_info info;
    by_type types = {.count = 0};
    RM_TRY(app_open(&e, args, true, err));
    remat_info(&info, e);
    remat_each_tensor(e, add_type, &types);
    int status = remat_check_open(e, err);
    if (status == REMAT_OK) status = (args->json ? print_json : print_text)(e, &info, &types, err);
    app_close(&e);
    return status;
}
