/* input.c: see input.h. */
#include "app/input.h"
#include "app/output.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW_BYTES = 64 << 10 };

int app_alloc(void *out, remat_engine *e, size_t count, size_t size, remat_error *err) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > INT64_MAX) bytes = INT64_MAX;
    if (e != NULL) RM_TRY(remat_claim(e, (int64_t)bytes, err));
    void *p = calloc(bytes > 0 ? bytes : 1, 1);
    if (p == NULL) return rm_fail(err, REMAT_E_BUDGET, "memory: no room for %zu bytes", bytes);
    memcpy(out, &p, sizeof p);
    return REMAT_OK;
}

/* Everything a descriptor gives until its end: a pipe, a terminal. */
static int read_stream(app_text *out, remat_engine *e, int fd, const char *name, remat_error *err) {
    size_t cap = 0;
    *out = (app_text){0};
    for (;;) {
        if (app_interrupted()) return rm_fail(err, REMAT_E_CANCELED, "interrupted");
        if (out->count == cap) {
            const size_t more = cap == 0 ? WINDOW_BYTES : cap;
            if (e != NULL) RM_TRY(remat_claim(e, (int64_t)more, err));
            char *p = realloc(out->bytes, cap + more);
            if (p == NULL) return rm_fail(err, REMAT_E_BUDGET, "memory: no room for %s", name);
            out->bytes = p;
            cap += more;
        }
        const ssize_t n = read(fd, out->bytes + out->count, cap - out->count);
        if (n == 0) return REMAT_OK;
        if (n < 0 && errno != EINTR)
            return rm_fail(err, REMAT_E_FAILED, "%s: %s", name, strerror(errno));
        if (n > 0) out->count += (size_t)n;
    }
}

int app_read_file(app_text *out, remat_engine *e, const char *path, remat_error *err) {
    struct stat st;
    const char *name = rm_path_tail(path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return rm_fail(err, REMAT_E_FAILED, "%s: %s; check the path", name, strerror(errno));
    int status = REMAT_OK;
    if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode)) {
        status = rm_fail(err, REMAT_E_FAILED, "%s: is a directory; name a file", name);
    } else if (!S_ISREG(st.st_mode)) {
        status = read_stream(out, e, fd, name, err);
    } else {
        const rm_file f = {.fd = fd, .size = (uint64_t)st.st_size, .path = name};
        status = app_alloc(&out->bytes, e, f.size, 1, err);
        if (status == REMAT_OK) status = rm_file_read(&f, out->bytes, 0, f.size, err);
        out->count = f.size;
    }
    close(fd);
    return status;
}

int app_read_text(app_text *out, remat_engine *e, const app_args *args, remat_error *err) {
    *out = (app_text){0};
    if (args->prompt != NULL) {
        out->count = strlen(args->prompt);
        RM_TRY(app_alloc(&out->bytes, e, out->count, 1, err));
        memcpy(out->bytes, args->prompt, out->count);
        return REMAT_OK;
    }
    if (args->file != NULL) return app_read_file(out, e, args->file, err);
    if (args->from_stdin || !isatty(STDIN_FILENO))
        return read_stream(out, e, STDIN_FILENO, "standard input", err);
    return rm_fail(err, REMAT_E_USAGE,
                   "input: no text given; use -p TEXT, -f FILE or - for "
                   "standard input");
}

/* --- token ids -------------------------------------------------------------------------------- */

/* Reads the list once; ids may be NULL: then they are only counted. */
static int scan(size_t *count, uint32_t *ids, const rm_file *f, uint8_t *window, remat_error *err) {
    rm_reader r;
    uint64_t id = 0;
    bool inside = false;
    *count = 0;
    rm_reader_start(&r, f, window, WINDOW_BYTES, 0);
    for (uint64_t at = 0; at <= f->size; at++) {
        uint8_t c = ' '; /* the end is a blank */
        if (at < f->size) RM_TRY(rm_reader_read(&r, &c, 1, err));
        const bool digit = c >= '0' && c <= '9';
        if (digit) id = (inside ? id * 10 : 0) + (uint64_t)(c - '0');
        if ((!digit && c != ' ' && (c < '\t' || c > '\r')) || id > UINT32_MAX) {
            return rm_fail(err, REMAT_E_FAILED, "%s: byte %llu is not part of a list of token ids",
                           f->path, (unsigned long long)at);
        }
        if (inside && !digit) {
            if (ids != NULL) ids[*count] = (uint32_t)id;
            ++*count;
        }
        inside = digit;
    }
    return REMAT_OK;
}

static int read_ids(app_tokens *out, remat_engine *e, const rm_file *f, remat_error *err) {
    static uint8_t window[WINDOW_BYTES];
    RM_TRY(scan(&out->count, NULL, f, window, err));
    if (out->count == 0) return rm_fail(err, REMAT_E_FAILED, "%s: there are no token ids", f->path);
    RM_TRY(app_alloc(&out->ids, e, out->count, sizeof *out->ids, err));
    return scan(&out->count, out->ids, f, window, err);
}

int app_read_tokens(app_tokens *out, remat_engine *e, const char *path, remat_error *err) {
    rm_file f;
    RM_TRY(rm_file_open(&f, path, err));
    f.path = rm_path_tail(path);
    const int status = read_ids(out, e, &f, err);
    rm_file_close(&f);
    return status;
}
