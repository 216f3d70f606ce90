/*
 * split.c: fuzz target. The input is the parts of a split model: a byte with their number (2 to 4),
 * two bytes of length for each but the last, and their contents. They are joined, and what has been
 * accepted is looked up and read.
 */
#include "gguf/split.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARTS_MAX = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tensors(const rm_gguf *g) {
    uint8_t last;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const rm_gguf_tensor *t = &g->tensors[i];
        RM_ASSERT(rm_gguf_tensor_find(g, t->name) == t);
        RM_ASSERT(t->part < g->part_count);
        const rm_file *f = rm_gguf_file(g, t);
        RM_ASSERT(t->at <= f->size && t->bytes <= f->size - t->at);
        if (t->bytes > 0)
            RM_ASSERT(rm_file_read(f, &last, t->at + t->bytes - 1, 1, NULL) == REMAT_OK);
    }
}

static int load(rm_gguf *g, rm_ledger *l, rm_file *parts, uint32_t count, remat_error *err) {
    uint32_t said = 0;
    RM_TRY(rm_gguf_header(g, &parts[0], err));
    RM_TRY(rm_ledger_open(l, 64u << 20, 4096, err));
    RM_TRY(rm_gguf_layout(g, l, err));
    RM_TRY(rm_gguf_parse(g, err));
    RM_TRY(rm_split_count(&said, g, "input-00001-of-00002.gguf", err));
    g->parts = parts;
    g->part_count = count; /* also where split.count says something else */
    return rm_split_join(g, l, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fds[PARTS_MAX] = {-1, -1, -1, -1}; /* the same files for all inputs */
    rm_file parts[PARTS_MAX];
    rm_gguf g;
    rm_ledger ledger = {0};
    remat_error err = {0};
    if (size < 1) return 0;
    const uint32_t count = 2 + data[0] % (PARTS_MAX - 1);
    size_t at = 1 + 2 * (size_t)(count - 1);
    if (size < at) return 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = size - at;
        uint16_t length = UINT16_MAX;
        if (i < count - 1) memcpy(&length, data + 1 + 2 * (size_t)i, sizeof length);
        if (i < count - 1 && length < bytes) bytes = length;
        if (fds[i] < 0) fds[i] = memfd_create("part", MFD_CLOEXEC);
        RM_ASSERT(fds[i] >= 0 && ftruncate(fds[i], 0) == 0 && lseek(fds[i], 0, SEEK_SET) == 0);
        RM_ASSERT(rm_write_all(fds[i], data + at, bytes, &err) == REMAT_OK);
        parts[i] = (rm_file){.fd = fds[i], .size = bytes, .path = "part"};
        at += bytes;
    }
    const int status = load(&g, &ledger, parts, count, &err);
    if (status == REMAT_OK) {
        check_tensors(&g);
    } else {
        RM_ASSERT(status == REMAT_E_MODEL || status == REMAT_E_FAILED);
        for (const char *p = err.message; p == err.message || *p != '\0'; p++)
            RM_ASSERT(*p >= 0x20 && *p < 0x7f);
    }
    rm_ledger_close(&ledger);
    return 0;
}
