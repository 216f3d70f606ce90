/* input.c: see input.h. */
#include "app/input.h"
#include "base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int app_alloc_lazy(void *out, size_t bytes, remat_error *err) {
    void *p = calloc(bytes > 0 ? bytes : 1, 1);
    if (p == NULL) return rm_fail(err, REMAT_E_BUDGET, "memory: no room for %zu bytes", bytes);
    memcpy(out, &p, sizeof p);
    return REMAT_OK;
}

int app_alloc(void *out, size_t count, size_t size, remat_error *err) {
    size_t bytes;
    char *p = NULL;
    if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
    RM_TRY(app_alloc_lazy(&p, bytes, err));
    memset(p, 0, bytes); /* resident from now on */
    memcpy(out, &p, sizeof p);
    return REMAT_OK;
}

int app_read_file(app_text *out, const char *path, uint64_t most, remat_error *err) {
    rm_file f;
    RM_TRY(rm_file_open(&f, path, err));
    int status = REMAT_OK;
    if (f.size > most) {
        status = rm_fail(err, REMAT_E_CONTEXT,
                         "%s: %llu bytes of text do not fit the memory; give "
                         "a shorter text or more --memory",
                         path, (unsigned long long)f.size);
    }
    if (status == REMAT_OK) status = app_alloc(&out->bytes, f.size, 1, err);
    if (status == REMAT_OK) status = rm_file_read(&f, out->bytes, 0, f.size, err);
    out->count = f.size;
    rm_file_close(&f);
    return status;
}

static int read_stdin(app_text *out, uint64_t most, remat_error *err) {
    size_t cap = 0;
    out->bytes = NULL;
    for (;;) {
        if (out->count == cap) {
            cap = cap == 0 ? 64 << 10 : 2 * cap;
            char *more = cap <= most ? realloc(out->bytes, cap) : NULL;
            if (more == NULL)
                return rm_fail(err, REMAT_E_CONTEXT,
                               "standard input: over %zu bytes of text do not "
                               "fit the memory; give a shorter text",
                               out->count);
            out->bytes = more;
        }
        const ssize_t n = read(STDIN_FILENO, out->bytes + out->count, cap - out->count);
        if (n == 0) return REMAT_OK;
        if (n < 0 && errno != EINTR)
            return rm_fail(err, REMAT_E_FAILED, "standard input: %s", strerror(errno));
        if (n > 0) out->count += (size_t)n;
    }
}

int app_read_text(app_text *out, const app_args *args, uint64_t most_bytes, remat_error *err) {
    *out = (app_text){0};
    if (args->prompt != NULL) {
        out->count = strlen(args->prompt);
        RM_TRY(app_alloc(&out->bytes, out->count, 1, err));
        memcpy(out->bytes, args->prompt, out->count);
        return REMAT_OK;
    }
    if (args->file != NULL) return app_read_file(out, args->file, most_bytes, err);
    if (args->from_stdin || !isatty(STDIN_FILENO)) return read_stdin(out, most_bytes, err);
    return rm_fail(err, REMAT_E_USAGE,
                   "input: no text given; use -p TEXT, -f FILE or - for "
                   "standard input");
}

int app_read_tokens(app_tokens *out, const char *path, uint64_t most_bytes, remat_error *err) {
    app_text text = {0};
    RM_TRY(app_read_file(&text, path, most_bytes, err));
    RM_TRY(app_alloc(&out->ids, text.count / 2 + 1, sizeof *out->ids, err));
    out->count = 0;
    for (size_t i = 0; i < text.count;) {
        uint64_t id = 0;
        const size_t first = i;
        while (i < text.count && text.bytes[i] >= '0' && text.bytes[i] <= '9' && id <= UINT32_MAX)
            id = id * 10 + (uint64_t)(text.bytes[i++] - '0');
        const bool end = i == text.count || strchr(" \t\r\n", text.bytes[i]) != NULL;
        if (!end || id > UINT32_MAX || (i < text.count && text.bytes[i] == '\0')) {
            free(text.bytes);
            return rm_fail(err, REMAT_E_FAILED, "%s: byte %zu is not part of a list of token ids",
                           path, i);
        }
        if (i > first) out->ids[out->count++] = (uint32_t)id;
        if (i < text.count) i++;
    }
    free(text.bytes);
    if (out->count == 0) return rm_fail(err, REMAT_E_FAILED, "%s: there are no token ids", path);
    return REMAT_OK;
}
