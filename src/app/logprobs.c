/* logprobs.c: see logprobs.h. */
#include "app/logprobs.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, COUNT_MAX = 1 << 30 };
static const char magic[8] = "rematlp";

/* --- sizes ------------------------------------------------------------------------------------ */

uint64_t app_logprobs_tokens(const app_logprobs_shape *s) {
    return (uint64_t)(s->window_count - 1) * s->stride + s->window;
}

uint64_t app_logprobs_rows(const app_logprobs_shape *s) {
    return (uint64_t)s->window_count * (s->window - s->first);
}

uint64_t app_logprobs_row_bytes(const app_logprobs_shape *s) {
    return sizeof(uint64_t) + (uint64_t)s->vocabulary * sizeof(float);
}

static uint64_t rows_at(const app_logprobs_shape *s) {
    const uint64_t tokens = app_logprobs_tokens(s) * sizeof(uint32_t);
    return sizeof(app_logprobs_header) + (tokens + 7) / 8 * 8;
}

uint64_t app_logprobs_bytes(const app_logprobs_shape *s) {
    uint64_t bytes;
    const bool sane = s->vocabulary > 0 && s->vocabulary < COUNT_MAX && s->window < COUNT_MAX &&
                      s->first > 0 && s->first < s->window && s->stride > 0 &&
                      s->stride <= s->window && s->window_count > 0 && s->window_count < COUNT_MAX;
    if (!sane || app_logprobs_tokens(s) >= COUNT_MAX ||
        __builtin_mul_overflow(app_logprobs_rows(s), app_logprobs_row_bytes(s), &bytes) ||
        __builtin_add_overflow(bytes, rows_at(s), &bytes) || bytes > INT64_MAX)
        return 0;
    return bytes;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_head(app_logprobs_writer *w, const uint32_t *tokens, remat_error *err) {
    static const char zeros[8] = {0};
    const app_logprobs_shape *s = &w->shape;
    const uint64_t count = app_logprobs_tokens(s), bytes = count * sizeof *tokens;
    app_logprobs_header h = {.version = VERSION,
                             .vocabulary = s->vocabulary,
                             .window = s->window,
                             .stride = s->stride,
                             .first = s->first,
                             .window_count = s->window_count,
                             .token_count = count,
                             .token_hash = rm_hash(tokens, bytes, 0)};
    memcpy(h.magic, magic, sizeof magic);
    h.own_hash = rm_hash(&h, offsetof(app_logprobs_header, own_hash), 0);
    RM_TRY(rm_write_all(w->fd, &h, sizeof h, err));
    RM_TRY(rm_write_all(w->fd, tokens, bytes, err));
    return rm_write_all(w->fd, zeros, rows_at(s) - sizeof h - bytes, err);
}

static int not_written(const app_logprobs_writer *w, int reason, remat_error *err) {
    return rm_fail(err, REMAT_E_FAILED, "%s: not saved: %s; name another place",
                   rm_path_tail(w->path), strerror(reason));
}

int app_logprobs_create(app_logprobs_writer *w, const char *path, const app_logprobs_shape *shape,
                        const uint32_t *tokens, remat_error *err) {
    struct stat st;
    RM_ASSERT(app_logprobs_bytes(shape) > 0);
    *w = (app_logprobs_writer){.shape = *shape, .fd = -1};
    if (strlen(path) + 8 > sizeof w->path)
        return rm_fail(err, REMAT_E_FAILED, "%s: its name is too long", rm_path_tail(path));
    memcpy(w->path, path, strlen(path) + 1);
    /* A rename would replace a device or a pipe by a file. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return rm_fail(err, REMAT_E_FAILED, "%s: it is there and no file; name another",
                       rm_path_tail(path));
    }
    snprintf(w->fresh, sizeof w->fresh, "%.*s.XXXXXX", APP_LOGPROBS_PATH - 8, path);
    w->fd = mkostemp(w->fresh, O_CLOEXEC);
    if (w->fd < 0) return not_written(w, errno, err);
    const int status = write_head(w, tokens, err);
    if (status != REMAT_OK) app_logprobs_abandon(w);
    return status;
}

void app_logprobs_put(app_logprobs_writer *w, uint8_t *row) {
    const uint64_t bytes = app_logprobs_row_bytes(&w->shape);
    const uint64_t hash = rm_hash(row + sizeof hash, bytes - sizeof hash, w->rows);
    memcpy(row, &hash, sizeof hash);
    if (w->err.status == REMAT_OK) (void)rm_write_all(w->fd, row, bytes, &w->err);
    w->rows++;
}

int app_logprobs_finish(app_logprobs_writer *w, remat_error *err) {
    if (w->err.status != REMAT_OK) {
        *err = w->err;
        return err->status;
    }
    RM_ASSERT(w->rows == app_logprobs_rows(&w->shape));
    /* mkostemp() made it for its owner alone; a reference is for whoever may read files. */
    const mode_t mask = umask(0);
    (void)umask(mask);
    if (fsync(w->fd) != 0 || fchmod(w->fd, 0666 & ~mask) != 0) return not_written(w, errno, err);
    const int closed = close(w->fd);
    w->fd = -1;
    if (closed == 0 && rename(w->fresh, w->path) == 0) return REMAT_OK;
    const int reason = errno;
    (void)unlink(w->fresh);
    return not_written(w, reason, err);
}

void app_logprobs_abandon(app_logprobs_writer *w) {
    if (w->fd < 0) return;
    close(w->fd);
    (void)unlink(w->fresh);
    w->fd = -1;
}

/* --- reading ---------------------------------------------------------------------------------- */

static int damaged(const app_logprobs_reader *r, const char *what, remat_error *err) {
    return rm_fail(err, REMAT_E_FAILED, "%s: %s; make it again with --save-base", r->file.path,
                   what);
}

static int read_head(app_logprobs_reader *r, remat_error *err) {
    app_logprobs_header h;
    if (r->file.size < sizeof h)
        return rm_fail(err, REMAT_E_FAILED,
                       "%s: this is no file of --save-base; give one to --base", r->file.path);
    RM_TRY(rm_file_read(&r->file, &h, 0, sizeof h, err));
    if (memcmp(h.magic, magic, sizeof magic) != 0)
        return rm_fail(err, REMAT_E_FAILED,
                       "%s: this is no file of --save-base; give one to --base", r->file.path);
    if (h.version != VERSION)
        return rm_fail(err, REMAT_E_FAILED,
                       "%s: its format is of version %u, this program's is %d; make it again with "
                       "--save-base",
                       r->file.path, h.version, VERSION);
    if (h.own_hash != rm_hash(&h, offsetof(app_logprobs_header, own_hash), 0))
        return damaged(r, "its header is damaged", err);
    r->shape = (app_logprobs_shape){.vocabulary = h.vocabulary,
                                    .window = h.window,
                                    .stride = h.stride,
                                    .first = h.first,
                                    .window_count = h.window_count};
    const uint64_t bytes = app_logprobs_bytes(&r->shape);
    if (bytes == 0 || h.token_count != app_logprobs_tokens(&r->shape))
        return damaged(r, "the numbers in its header contradict each other", err);
    if (bytes != r->file.size)
        return damaged(r, bytes > r->file.size ? "it is cut off" : "it is longer than it says",
                       err);
    r->token_hash = h.token_hash;
    r->rows_at = rows_at(&r->shape);
    return REMAT_OK;
}

int app_logprobs_open(app_logprobs_reader *r, const char *path, remat_error *err) {
    *r = (app_logprobs_reader){.file.fd = -1};
    RM_TRY(rm_file_open(&r->file, path, err));
    r->file.path = rm_path_tail(path);
    const int status = read_head(r, err);
    if (status != REMAT_OK) app_logprobs_close(r);
    return status;
}

void app_logprobs_close(app_logprobs_reader *r) {
    rm_file_close(&r->file);
}

int app_logprobs_read_tokens(uint32_t *out, const app_logprobs_reader *r, remat_error *err) {
    const uint64_t count = app_logprobs_tokens(&r->shape), bytes = count * sizeof *out;
    RM_TRY(rm_file_read(&r->file, out, sizeof(app_logprobs_header), bytes, err));
    if (rm_hash(out, bytes, 0) != r->token_hash) return damaged(r, "its tokens are damaged", err);
    for (uint64_t i = 0; i < count; i++) {
        if (out[i] >= r->shape.vocabulary)
            return damaged(r, "it has tokens outside of its vocabulary", err);
    }
    return REMAT_OK;
}

int app_logprobs_read_row(uint8_t *row, const app_logprobs_reader *r, uint64_t number,
                          remat_error *err) {
    const uint64_t bytes = app_logprobs_row_bytes(&r->shape);
    uint64_t hash;
    double sum = 0;
    RM_TRY(rm_file_read(&r->file, row, r->rows_at + number * bytes, bytes, err));
    memcpy(&hash, row, sizeof hash);
    if (hash != rm_hash(row + sizeof hash, bytes - sizeof hash, number))
        return damaged(r, "a row of it is damaged", err);
    const float *values = (const float *)(const void *)(row + sizeof hash);
    /* A sum of at most 1 + 1e-3 leaves no value above 0 by more than that. */
    for (uint32_t i = 0; i < r->shape.vocabulary; i++)
        sum += exp((double)values[i]);
    if (!(fabs(sum - 1) < 1e-3)) return damaged(r, "a row of it holds no probabilities", err);
    for (uint32_t i = 0; i < r->shape.vocabulary; i++) {
        if (!isfinite(values[i])) return damaged(r, "a row of it holds no probabilities", err);
    }
    return REMAT_OK;
}
