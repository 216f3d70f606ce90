/*
 * session.c: any bytes as a session file. The checksums of header, tokens and entries are made
 * right first (but for one in eight inputs), or nothing behind them would ever be reached.
 */
#include "base/hash.h"
#include "cache/session_file.h"
#include "fuzz/reason.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LAYERS = 2, VOCABULARY = 300, PAGE_BYTES = 256, BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(uint8_t *bytes, size_t size, const rm_session_kind *kind) {
    rm_session_header h;
    memcpy(&h, bytes, sizeof h);
    h.model = kind->model;
    h.token_hash = kind->model;
    const size_t room = (size - sizeof h) / 4, count = h.token_count < room ? h.token_count : room;
    for (size_t i = 0; i < count; i += RM_SESSION_WINDOW / 4) {
        const size_t n = count - i < RM_SESSION_WINDOW / 4 ? count - i : RM_SESSION_WINDOW / 4;
        h.token_hash = rm_hash(bytes + sizeof h + i * 4, n * 4, h.token_hash);
    }
    h.own_hash = rm_hash(&h, offsetof(rm_session_header, own_hash), 0);
    memcpy(bytes, &h, sizeof h);
    for (uint64_t i = 0; i < h.page_count; i++) {
        rm_session_entry e;
        if (h.table_at < sizeof h + count * 4 || h.table_at > size ||
            (size - h.table_at) / sizeof e <= i)
            break;
        uint8_t *at = bytes + h.table_at + i * sizeof e;
        memcpy(&e, at, sizeof e);
        if (e.at < size && size - e.at >= PAGE_BYTES)
            e.page_hash = rm_hash(bytes + e.at, PAGE_BYTES, 0);
        e.own_hash = rm_hash(&e, offsetof(rm_session_entry, own_hash), h.token_hash + i);
        memcpy(at, &e, sizeof e);
    }
}

static void read_all(rm_session_reader *r, size_t size, remat_error *err) {
    static uint32_t tokens[BYTES_MAX / 4];
    static uint8_t page[PAGE_BYTES];
    uint32_t last = 0;
    RM_ASSERT(r->head.token_count <= size / 4);
    const int status = rm_session_read_tokens(tokens, &last, r, err);
    checked(status, err);
    for (uint32_t i = 0; status == REMAT_OK && i < r->head.token_count; i++)
        RM_ASSERT(tokens[i] < VOCABULARY);
    const uint32_t columns = (r->head.cached_count + RM_PAGE_TOKENS - 1) / RM_PAGE_TOKENS;
    RM_ASSERT(rm_session_pages(r) <= columns * LAYERS);
    for (uint32_t i = 0; i < rm_session_pages(r); i++) {
        rm_session_entry e;
        if (rm_session_entry_at(&e, r, i) != RM_SESSION_SAVED) continue;
        RM_ASSERT(e.layer < LAYERS);
        RM_ASSERT(e.column < columns);
        (void)rm_session_read_page(page, r, &e);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[BYTES_MAX];
    static int fd = -1; /* one file for all inputs */
    const rm_session_kind kind = {.model = 1,
                                  .cache = 2,
                                  .page_bytes = PAGE_BYTES,
                                  .layer_count = LAYERS,
                                  .vocabulary = VOCABULARY};
    uint64_t window[RM_SESSION_WINDOW / sizeof(uint64_t)];
    char path[32];
    rm_session_reader r;
    remat_error err = {0};
    if (size > sizeof bytes) return 0;
    if (size > 0) memcpy(bytes, data, size);
    if (size >= sizeof(rm_session_header) && data[size - 1] % 8 != 0) repair(bytes, size, &kind);
    if (fd < 0) fd = memfd_create("input", MFD_CLOEXEC);
    RM_ASSERT(fd >= 0);
    RM_ASSERT(ftruncate(fd, 0) == 0);
    RM_ASSERT(lseek(fd, 0, SEEK_SET) == 0);
    RM_ASSERT(rm_write_all(fd, bytes, size, &err) == REMAT_OK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int status = rm_session_open(&r, path, &kind, window, &err);
    checked(status, &err);
    if (status != REMAT_OK) return 0;
    read_all(&r, size, &err);
    rm_session_close(&r);
    return 0;
}
