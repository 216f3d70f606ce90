/*
 * logprobs.c: any bytes as a file of log-probabilities. The hashes of header, tokens and rows are
 * made right first (but for one in eight inputs), or nothing behind them would ever be reached.
 */
#include "app/logprobs.h"
#include "base/hash.h"
#include "fuzz/reason.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES_MAX = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void repair(uint8_t *bytes, size_t size) {
    app_logprobs_header h;
    memcpy(&h, bytes, sizeof h);
    const app_logprobs_shape s = {h.vocabulary, h.window, h.stride, h.first, h.window_count};
    const bool sane = app_logprobs_bytes(&s) == size;
    if (sane) {
        const uint64_t tokens = app_logprobs_tokens(&s) * 4, row = app_logprobs_row_bytes(&s);
        uint8_t *at = bytes + sizeof h + (tokens + 7) / 8 * 8;
        h.token_count = tokens / 4;
        h.token_hash = rm_hash(bytes + sizeof h, tokens, 0);
        for (uint64_t i = 0; i < app_logprobs_rows(&s); i++, at += row) {
            const uint64_t hash = rm_hash(at + sizeof hash, row - sizeof hash, i);
            memcpy(at, &hash, sizeof hash);
        }
    }
    h.own_hash = rm_hash(&h, offsetof(app_logprobs_header, own_hash), 0);
    memcpy(bytes, &h, sizeof h);
}

static void read_all(const app_logprobs_reader *r, size_t size) {
    static uint32_t tokens[BYTES_MAX / 4];
    static uint64_t row[BYTES_MAX / 8];
    const app_logprobs_shape *s = &r->shape;
    remat_error err = {0};
    RM_ASSERT(app_logprobs_tokens(s) <= size / 4 && app_logprobs_row_bytes(s) <= size);
    int status = app_logprobs_read_tokens(tokens, r, &err);
    checked(status, &err);
    for (uint64_t i = 0; status == REMAT_OK && i < app_logprobs_tokens(s); i++)
        RM_ASSERT(tokens[i] < s->vocabulary);
    for (uint64_t i = 0; i < app_logprobs_rows(s); i++) {
        err = (remat_error){0};
        status = app_logprobs_read_row((uint8_t *)row, r, i, &err);
        checked(status, &err);
        const float *values = (const float *)(const void *)(row + 1);
        for (uint32_t k = 0; status == REMAT_OK && k < s->vocabulary; k++)
            RM_ASSERT(values[k] < 1e-3f && isfinite(values[k]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[BYTES_MAX];
    static int fd = -1; /* one file for all inputs */
    char path[32];
    app_logprobs_reader r;
    remat_error err = {0};
    if (size > sizeof bytes) return 0;
    if (size > 0) memcpy(bytes, data, size);
    if (size >= sizeof(app_logprobs_header) && data[size - 1] % 8 != 7) repair(bytes, size);
    if (fd < 0) fd = memfd_create("input", MFD_CLOEXEC);
    RM_ASSERT(fd >= 0);
    RM_ASSERT(ftruncate(fd, 0) == 0);
    RM_ASSERT(lseek(fd, 0, SEEK_SET) == 0);
    RM_ASSERT(rm_write_all(fd, bytes, size, &err) == REMAT_OK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int status = app_logprobs_open(&r, path, &err);
    checked(status, &err);
    if (status != REMAT_OK) return 0;
    read_all(&r, size);
    app_logprobs_close(&r);
    return 0;
}
