/* split_model.c: see split_model.h. */
#include "split_model.h"
#include "gguf/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void split_path(char out[256], const char *stem, uint32_t number, uint32_t part_count) {
    snprintf(out, 256, "%s-%05u-of-%05u.gguf", stem, number, part_count);
}

static void put(FILE *f, const void *bytes, size_t count) {
    if (fwrite(bytes, 1, count, f) != count) abort();
}

static void put_u32(FILE *f, uint32_t v) {
    put(f, &v, 4);
}

static void put_u64(FILE *f, uint64_t v) {
    put(f, &v, 8);
}

static void put_text(FILE *f, const char *text) {
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}

static void put_key(FILE *f, const char *key, rm_gguf_type type, uint32_t value) {
    put_text(f, key);
    put_u32(f, type);
    put(f, &value, type == RM_GGUF_U16 ? 2 : 4);
}

static void put_zeros(FILE *f) {
    while (ftell(f) % 32 != 0)
        put(f, "", 1);
}

static void copy(FILE *to, const rm_file *from, uint64_t at, uint64_t bytes) {
    remat_error err = {0};
    void *p = malloc(bytes + 1);
    if (p == NULL || rm_file_read(from, p, at, bytes, &err) != REMAT_OK) abort();
    put(to, p, bytes);
    free(p);
}

/* Tensors first .. last - 1 of g as part number `index`. */
static bool write_part(const char *stem, const rm_gguf *g, uint32_t index, uint32_t part_count,
                       uint32_t first, uint32_t last) {
    char path[256];
    split_path(path, stem, index + 1, part_count);
    FILE *f = fopen(path, "wb");
    if (f == NULL) return false;
    const rm_gguf_kv *end = &g->kv[g->kv_count - 1];
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, last - first);
    put_u64(f, 3 + (index == 0 ? g->kv_count : 0));
    if (index == 0) copy(f, g->file, 24, end->value_at + end->value_bytes - 24);
    put_key(f, "split.no", RM_GGUF_U16, index);
    put_key(f, "split.count", RM_GGUF_U16, part_count);
    put_key(f, "split.tensors.count", RM_GGUF_I32, g->tensor_count);
    uint64_t offset = 0;
    for (uint32_t i = first; i < last; i++) {
        const rm_gguf_tensor *t = &g->tensors[i];
        put_text(f, t->name);
        put_u32(f, t->dim_count);
        put(f, t->dims, 8 * (size_t)t->dim_count);
        put_u32(f, t->type);
        put_u64(f, offset);
        offset += (t->bytes + 31) / 32 * 32;
    }
    put_zeros(f);
    for (uint32_t i = first; i < last; i++) {
        copy(f, g->file, g->tensors[i].at, g->tensors[i].bytes);
        put_zeros(f);
    }
    return fclose(f) == 0;
}

bool split_model(const char *stem, const char *path, uint32_t part_count) {
    rm_file file;
    rm_gguf g;
    rm_ledger ledger = {0};
    remat_error err = {0};
    if (rm_file_open(&file, path, &err) != REMAT_OK) return false;
    bool good = rm_ledger_open(&ledger, 16u << 20, 4096, &err) == REMAT_OK &&
                rm_gguf_header(&g, &file, &err) == REMAT_OK &&
                rm_gguf_layout(&g, &ledger, &err) == REMAT_OK &&
                rm_gguf_parse(&g, &err) == REMAT_OK;
    const uint32_t shares = part_count - 1;
    good = good && write_part(stem, &g, 0, part_count, 0, 0);
    for (uint32_t i = 0; good && i < shares; i++)
        good = write_part(stem, &g, i + 1, part_count, g.tensor_count * i / shares,
                          g.tensor_count * (i + 1) / shares);
    rm_ledger_close(&ledger);
    rm_file_close(&file);
    return good;
}

bool split_patch(const char *path, const char *key, uint32_t value, uint32_t bytes) {
    static char head[1 << 16];
    FILE *f = fopen(path, "r+b");
    if (f == NULL) return false;
    const size_t n = fread(head, 1, sizeof head, f), length = strlen(key);
    bool found = false;
    for (size_t i = 0; !found && i + length + 8 < n; i++) {
        if (memcmp(head + i, key, length) != 0) continue;
        found = fseek(f, (long)(i + length + 4), SEEK_SET) == 0;
        put(f, &value, bytes);
    }
    return fclose(f) == 0 && found;
}
