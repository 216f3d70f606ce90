/*
 * gguf.c: fuzz target. The input is a model file; it goes through header, layout and parse, and
 * what has been accepted is read: values of every key by every getter, all arrays, all lookups.
 *
 * Built by libFuzzer's compiler, or with standalone.c, which replays files.
 */
#include "gguf/file.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each failure has a reason, in one line that a terminal survives. */
static void check_message(const remat_error *err) {
    RM_ASSERT(err->message[0] != '\0');
    for (const char *p = err->message; *p != '\0'; p++)
        RM_ASSERT(*p >= 0x20 && *p < 0x7f);
}

static void checked(int status, remat_error *err) {
    RM_ASSERT(status == REMAT_OK || status == REMAT_E_MODEL || status == REMAT_E_FAILED);
    if (status != REMAT_OK) check_message(err);
    memset(err, 0, sizeof *err);
}

static void walk_array(const rm_gguf *g, const rm_gguf_kv *kv) {
    remat_error err = {0};
    rm_gguf_walk w;
    char text[24];
    const bool words =
        kv->element == RM_GGUF_F32 || kv->element == RM_GGUF_I32 || kv->element == RM_GGUF_U32;
    if (!words && kv->element != RM_GGUF_STRING) return;
    rm_gguf_walk_start(&w, g, kv);
    for (uint64_t i = 0; i < kv->count; i++) {
        uint64_t bytes = 0;
        uint32_t word = 0;
        /* The file does not change: what was parsed can be read. */
        if (words) {
            RM_ASSERT(rm_gguf_walk_word(&w, &word, &err) == REMAT_OK);
        } else {
            RM_ASSERT(rm_gguf_walk_string(&w, text, sizeof text, &bytes, &err) == REMAT_OK);
        }
    }
    RM_ASSERT(w.reader.at == kv->value_at + kv->value_bytes);
}

static void read_key(const rm_gguf *g, const rm_gguf_kv *kv) {
    remat_error err = {0};
    char key[RM_GGUF_NAME_MAX + 1] = "", text[100];
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    RM_ASSERT(kv->value_at <= g->file->size);
    RM_ASSERT(kv->value_bytes <= g->file->size - kv->value_at);
    if (kv->type == RM_GGUF_ARRAY) walk_array(g, kv);
    if (kv->key_bytes > RM_GGUF_NAME_MAX) return;
    RM_ASSERT(rm_file_read(g->file, key, kv->key_at, kv->key_bytes, &err) == REMAT_OK);
    if (strlen(key) != kv->key_bytes) return;
    for (const char *p = key; *p != '\0'; p++) {
        if (*p < 0x20 || *p >= 0x7f) return; /* no program looks for such a key */
    }
    RM_ASSERT(rm_gguf_find(g, key) == kv);
    checked(rm_gguf_u32(&u, g, key, &err), &err);
    checked(rm_gguf_f32(&f, g, key, &err), &err);
    checked(rm_gguf_bool_or(&b, g, key, false, &err), &err);
    checked(rm_gguf_text(text, sizeof text, g, key, &err), &err);
}

static void read_all(const rm_gguf *g) {
    for (uint32_t i = 0; i < g->kv_count; i++)
        read_key(g, &g->kv[i]);
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const rm_gguf_tensor *t = &g->tensors[i];
        RM_ASSERT(rm_gguf_tensor_find(g, t->name) == t);
        RM_ASSERT(t->at >= g->data_at && t->at <= g->file->size);
        RM_ASSERT(t->bytes <= g->file->size - t->at);
        RM_ASSERT((t->at - g->data_at) % g->alignment == 0);
    }
    RM_ASSERT(rm_gguf_find(g, "no such key") == NULL);
}

static void load(const rm_file *f, remat_error *err) {
    rm_gguf g;
    rm_ledger plan, ledger = {0};
    int status = rm_gguf_header(&g, f, err);
    if (status != REMAT_OK) {
        checked(status, err);
        return;
    }
    rm_ledger_measure(&plan);
    RM_ASSERT(rm_gguf_layout(&g, &plan, err) == REMAT_OK);
    const uint64_t bytes = rm_ledger_total(&plan);
    /* Memory follows from the file's size: about eight index bytes for one of a record. */
    RM_ASSERT(bytes <= 16 * f->size + 2 * RM_GGUF_WINDOW);
    RM_ASSERT(rm_ledger_open(&ledger, bytes + 4096, 4096, err) == REMAT_OK);
    RM_ASSERT(rm_gguf_layout(&g, &ledger, err) == REMAT_OK);
    status = rm_gguf_parse(&g, err);
    if (status == REMAT_OK) read_all(&g);
    checked(status, err);
    rm_ledger_close(&ledger);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1; /* one file for all inputs */
    remat_error err = {0};
    if (fd < 0) fd = memfd_create("input", MFD_CLOEXEC);
    RM_ASSERT(fd >= 0);
    RM_ASSERT(ftruncate(fd, 0) == 0);
    RM_ASSERT(lseek(fd, 0, SEEK_SET) == 0);
    RM_ASSERT(rm_write_all(fd, data, size, &err) == REMAT_OK);
    const rm_file f = {.fd = fd, .size = size, .path = "input"};
    load(&f, &err);
    return 0;
}
