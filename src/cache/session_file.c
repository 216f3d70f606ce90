/* session_file.c: see session_file.h. */
#include "cache/session_file.h"
#include "base/hash.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is written as memory has it");
_Static_assert(sizeof(rm_session_header) == 128, "on disk");
_Static_assert(offsetof(rm_session_header, own_hash) == 120, "the hash covers all before it");
_Static_assert(sizeof(rm_session_entry) == 32, "on disk");
_Static_assert(offsetof(rm_session_entry, own_hash) == 24, "the hash covers all before it");

enum {
    TOKENS_AT = sizeof(rm_session_header),
    WINDOW_TOKENS = RM_SESSION_WINDOW / sizeof(uint32_t),
    WINDOW_ENTRIES = RM_SESSION_WINDOW / sizeof(rm_session_entry),
    PAGES_ALIGN = 4096,
    NAMES_TRIED = 16,
};

static const char magic[8] = {'r', 'e', 'm', 'a', 't', '\r', '\n', 's'};

static uint64_t up(uint64_t x, uint64_t to) {
    return (x + to - 1) / to * to;
}

static uint64_t table_at(uint32_t token_count) {
    return up(TOKENS_AT + (uint64_t)token_count * sizeof(uint32_t), 64);
}

static uint64_t header_hash(const rm_session_header *h) {
    return rm_hash(h, offsetof(rm_session_header, own_hash), 0);
}

/* An entry that was moved, or comes from another session's file, does not pass. */
static uint64_t entry_hash(const rm_session_entry *e, const rm_session_header *h, uint32_t index) {
    return rm_hash(e, offsetof(rm_session_entry, own_hash), h->token_hash + index);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int refuse(const rm_session_reader *r, remat_error *err, const char *why) {
    return rm_fail(err, REMAT_E_FAILED, "session %s: %s", rm_path_tail(r->file.path), why);
}

static int damaged(const rm_session_reader *r, remat_error *err, const char *what) {
    return rm_fail(err, REMAT_E_FAILED,
                   "session %s: %s damaged or cut off; restore it from a copy, or remove it to "
                   "start anew",
                   rm_path_tail(r->file.path), what);
}

static int check_header(const rm_session_reader *r, remat_error *err) {
    const rm_session_header *h = &r->head;
    const uint64_t size = r->file.size;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return refuse(r, err, "is no session file; name another, or remove it to start anew");
    if (h->version != RM_SESSION_VERSION) {
        return rm_fail(err, REMAT_E_FAILED,
                       "session %s: is version %u of the format, this remat reads %d; use the "
                       "remat that wrote it, or remove it to start anew",
                       rm_path_tail(r->file.path), h->version, RM_SESSION_VERSION);
    }
    if (h->own_hash != header_hash(h)) return damaged(r, err, "its header is");
    if (h->model != r->kind.model) {
        return refuse(r, err,
                      "was made with another model; give that model, or another session file");
    }
    if (h->token_count > RM_CONTEXT_MAX || h->cached_count > h->token_count ||
        h->table_at != table_at(h->token_count))
        return damaged(r, err, "its header is");
    if (h->token_count > (size - TOKENS_AT) / sizeof(uint32_t))
        return damaged(r, err, "its tokens are");
    const uint64_t columns = rm_columns(h->cached_count);
    if (h->cache == r->kind.cache &&
        (h->page_bytes != r->kind.page_bytes || h->page_count > columns * r->kind.layer_count))
        return damaged(r, err, "its header is");
    return REMAT_OK;
}

static int read_header(rm_session_reader *r, remat_error *err) {
    if (r->file.size == 0) return refuse(r, err, "is empty; remove it to start anew");
    if (r->file.size < sizeof r->head)
        return refuse(r, err, "is no session file; name another, or remove it to start anew");
    RM_TRY(rm_file_read(&r->file, &r->head, 0, sizeof r->head, err));
    return check_header(r, err);
}

/* As rm_file_open() has it, in words that speak of sessions. */
static int check_kind(const char *path, const struct stat *st, remat_error *err) {
    if (S_ISREG(st->st_mode)) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED, "session %s: is %s; name a file", rm_path_tail(path),
                   S_ISDIR(st->st_mode) ? "a directory" : "not a regular file");
}

int rm_session_open(rm_session_reader *r, const char *path, const rm_session_kind *kind,
                    void *window, remat_error *err) {
    struct stat st;
    *r = (rm_session_reader){.kind = *kind, .window = window};
    r->file.fd = -1;
    if (stat(path, &st) == 0) RM_TRY(check_kind(path, &st, err));
    RM_TRY(rm_file_open(&r->file, path, err));
    const int status = read_header(r, err);
    if (status != REMAT_OK) rm_file_close(&r->file);
    return status;
}

void rm_session_close(rm_session_reader *r) {
    /* Read once: whatever else is cached is worth more. */
    if (r->file.fd >= 0) (void)posix_fadvise(r->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    rm_file_close(&r->file);
}

int rm_session_read_tokens(uint32_t *out, uint32_t *last, rm_session_reader *r, remat_error *err) {
    uint32_t *window = (uint32_t *)(void *)r->window;
    uint64_t hash = r->kind.model;
    bool known = true;
    r->window_count = 0;
    for (uint32_t first = 0; first < r->head.token_count; first += WINDOW_TOKENS) {
        const uint32_t left = r->head.token_count - first,
                       n = left < WINDOW_TOKENS ? left : WINDOW_TOKENS;
        RM_TRY(rm_file_read(&r->file, window, TOKENS_AT + (uint64_t)first * sizeof *window,
                            n * sizeof *window, err));
        hash = rm_hash(window, n * sizeof *window, hash);
        for (uint32_t i = 0; i < n; i++)
            known = known && window[i] < r->kind.vocabulary;
        if (out != NULL) memcpy(out + first, window, n * sizeof *window);
        *last = window[n - 1];
    }
    if (hash != r->head.token_hash || !known) return damaged(r, err, "its tokens are");
    return REMAT_OK;
}

uint32_t rm_session_pages(const rm_session_reader *r) {
    return r->head.cache == r->kind.cache ? r->head.page_count : 0;
}

/* The part of the table around index; false when the file has no such place. */
static bool fill_window(rm_session_reader *r, uint32_t index) {
    const uint64_t at = r->head.table_at + (uint64_t)index * sizeof(rm_session_entry);
    r->window_count = 0;
    if (at >= r->file.size) return false;
    uint64_t n = (r->file.size - at) / sizeof(rm_session_entry);
    if (n > WINDOW_ENTRIES) n = WINDOW_ENTRIES;
    if (n == 0 ||
        rm_file_read(&r->file, r->window, at, n * sizeof(rm_session_entry), NULL) != REMAT_OK)
        return false;
    r->window_first = index;
    r->window_count = (uint32_t)n;
    return true;
}

rm_session_state rm_session_entry_at(rm_session_entry *out, rm_session_reader *r, uint32_t index) {
    RM_ASSERT(index < rm_session_pages(r));
    const bool there = index >= r->window_first && index - r->window_first < r->window_count;
    if (!there && !fill_window(r, index)) return RM_SESSION_LOST;
    memcpy(out, r->window + (size_t)(index - r->window_first) * sizeof *out, sizeof *out);
    if (out->own_hash != entry_hash(out, &r->head, index)) return RM_SESSION_LOST;
    const uint32_t columns = rm_columns(r->head.cached_count);
    if (out->layer >= r->kind.layer_count || out->column >= columns) return RM_SESSION_LOST;
    if (out->at == 0) return RM_SESSION_ABSENT;
    if (out->at > r->file.size || r->kind.page_bytes > r->file.size - out->at)
        return RM_SESSION_LOST;
    return RM_SESSION_SAVED;
}

bool rm_session_read_page(void *out, const rm_session_reader *r, const rm_session_entry *entry) {
    return rm_file_read(&r->file, out, entry->at, r->kind.page_bytes, NULL) == REMAT_OK &&
           rm_hash(out, r->kind.page_bytes, 0) == entry->page_hash;
}

/* --- writing ---------------------------------------------------------------------------------- */

static int write_failed(rm_session_writer *w, int reason, remat_error *err) {
    rm_session_abort(w);
    return rm_fail(err, REMAT_E_FAILED,
                   "session %s: not saved: %s; what was there is as it was; make room, or name "
                   "another place",
                   rm_path_tail(w->path), strerror(reason));
}

static int write_at(rm_session_writer *w, const void *bytes, uint64_t count, uint64_t at,
                    remat_error *err) {
    const uint8_t *from = bytes;
    while (count > 0) {
        const ssize_t put = pwrite(w->fd, from, count, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return write_failed(w, put < 0 ? errno : ENOSPC, err);
        from += put;
        at += (uint64_t)put;
        count -= (uint64_t)put;
    }
    return REMAT_OK;
}

/* A new file beside path, its name in w->fresh. */
static int open_fresh(rm_session_writer *w, remat_error *err) {
    for (int i = 0; i < NAMES_TRIED; i++) {
        const int n = snprintf(w->fresh, sizeof w->fresh, "%s.tmp-%08x", w->path,
                               (unsigned)rm_random_system());
        if (n < 0 || (size_t)n >= sizeof w->fresh) {
            w->fresh[0] = '\0';
            return write_failed(w, ENAMETOOLONG, err);
        }
        w->fd = open(w->fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0600);
        if (w->fd >= 0) return REMAT_OK;
        if (errno != EEXIST && errno != EINTR) break;
    }
    const int reason = errno;
    w->fresh[0] = '\0';
    return write_failed(w, reason, err);
}

int rm_session_create(rm_session_writer *w, const char *path, const rm_session_kind *kind,
                      uint32_t token_count, uint32_t cached_count, uint32_t page_count,
                      void *window, remat_error *err) {
    struct stat st;
    RM_ASSERT(token_count <= RM_CONTEXT_MAX);
    RM_ASSERT(cached_count <= token_count);
    memset(w, 0, sizeof *w);
    w->fd = -1;
    w->path = path;
    w->window = window;
    w->head = (rm_session_header){.version = RM_SESSION_VERSION,
                                  .token_count = token_count,
                                  .cached_count = cached_count,
                                  .page_count = page_count,
                                  .model = kind->model,
                                  .cache = kind->cache,
                                  .page_bytes = kind->page_bytes,
                                  .token_hash = kind->model,
                                  .table_at = table_at(token_count)};
    memcpy(w->head.magic, magic, sizeof magic);
    w->at = up(w->head.table_at + (uint64_t)page_count * sizeof(rm_session_entry), PAGES_ALIGN);
    /* A rename would replace a device or a pipe by a file. */
    if (stat(path, &st) == 0) RM_TRY(check_kind(path, &st, err));
    return open_fresh(w, err);
}

static int flush_tokens(rm_session_writer *w, remat_error *err) {
    const uint64_t first = w->token_count - w->window_used / sizeof(uint32_t);
    w->head.token_hash = rm_hash(w->window, w->window_used, w->head.token_hash);
    RM_TRY(write_at(w, w->window, w->window_used, TOKENS_AT + first * sizeof(uint32_t), err));
    w->window_used = 0;
    return REMAT_OK;
}

int rm_session_put_tokens(rm_session_writer *w, const uint32_t *tokens, uint32_t count,
                          remat_error *err) {
    RM_ASSERT(count <= w->head.token_count - w->token_count);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(w->window + w->window_used, &tokens[i], sizeof tokens[i]);
        w->window_used += (uint32_t)sizeof tokens[i];
        w->token_count++;
        if (w->window_used == RM_SESSION_WINDOW || w->token_count == w->head.token_count)
            RM_TRY(flush_tokens(w, err));
    }
    return REMAT_OK;
}

static int flush_entries(rm_session_writer *w, remat_error *err) {
    const uint64_t first = w->page_count - w->window_used / sizeof(rm_session_entry);
    RM_TRY(write_at(w, w->window, w->window_used,
                    w->head.table_at + first * sizeof(rm_session_entry), err));
    w->window_used = 0;
    return REMAT_OK;
}

int rm_session_put_page(rm_session_writer *w, uint32_t layer, uint32_t column, const void *page,
                        remat_error *err) {
    RM_ASSERT(w->token_count == w->head.token_count);
    RM_ASSERT(w->page_count < w->head.page_count);
    rm_session_entry e = {.layer = layer, .column = column};
    if (page != NULL) {
        e.at = w->at;
        e.page_hash = rm_hash(page, w->head.page_bytes, 0);
        RM_TRY(write_at(w, page, w->head.page_bytes, w->at, err));
        w->at += w->head.page_bytes;
    }
    e.own_hash = entry_hash(&e, &w->head, w->page_count);
    memcpy(w->window + w->window_used, &e, sizeof e);
    w->window_used += (uint32_t)sizeof e;
    w->page_count++;
    if (w->window_used == RM_SESSION_WINDOW || w->page_count == w->head.page_count)
        return flush_entries(w, err);
    return REMAT_OK;
}

/* The directory of path, to be synchronized; "." without one. */
static int open_directory(rm_session_writer *w) {
    char *slash = strrchr(w->fresh, '/');
    if (slash == NULL) {
        w->fresh[0] = '.';
        slash = w->fresh;
    }
    slash[1] = '\0';
    return open(w->fresh, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int rm_session_commit(uint64_t *bytes, rm_session_writer *w, remat_error *err) {
    RM_ASSERT(w->token_count == w->head.token_count);
    RM_ASSERT(w->page_count == w->head.page_count);
    w->head.own_hash = header_hash(&w->head);
    RM_TRY(write_at(w, &w->head, sizeof w->head, 0, err));
    if (fsync(w->fd) != 0) return write_failed(w, errno, err);
    (void)posix_fadvise(w->fd, 0, 0, POSIX_FADV_DONTNEED);
    struct stat st;
    const uint64_t size = fstat(w->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    const int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 || rename(w->fresh, w->path) != 0) return write_failed(w, errno, err);
    /* From here on the new file is there; a directory that cannot be synchronized (some network
     * file systems) is no reason to call it unsaved. */
    const int directory = open_directory(w);
    if (directory >= 0) {
        (void)fsync(directory);
        close(directory);
    }
    w->fresh[0] = '\0';
    *bytes = size;
    return REMAT_OK;
}

void rm_session_abort(rm_session_writer *w) {
    if (w->fd >= 0) close(w->fd);
    if (w->fresh[0] != '\0') (void)unlink(w->fresh);
    w->fd = -1;
    w->fresh[0] = '\0';
}

int rm_session_check_path(bool *exists, const char *path, remat_error *err) {
    char directory[RM_SESSION_PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/'), *name = rm_path_tail(path);
    if (path[0] == '\0')
        return rm_fail(err, REMAT_E_FAILED, "session: its name is empty; name a file");
    *exists = stat(path, &st) == 0;
    if (*exists) RM_TRY(check_kind(path, &st, err));
    if (*exists ? access(path, R_OK) != 0 : errno != ENOENT)
        return rm_fail(err, REMAT_E_FAILED, "session %s: cannot be read: %s; check name and mode",
                       name, strerror(errno));
    const int bytes = slash != NULL ? (int)(slash - path) + 1 : 2;
    const int n = snprintf(directory, sizeof directory, "%.*s", bytes, slash != NULL ? path : "./");
    const bool fits = n > 0 && (size_t)n < sizeof directory;
    if (!fits) errno = ENAMETOOLONG;
    if (fits && access(directory, W_OK | X_OK) == 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED,
                   "session %s: cannot be saved in its directory: %s; name another place", name,
                   strerror(errno));
}
