/*
 * io.c: see io.h. Every read of a model file passes through read_once() or aio.c, where faults are
 * injected: RM_IO_FAIL is an I/O error, RM_IO_SHORT hands out half of what was asked for and then
 * the end of the file.
 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Most bytes of one system call: a signal or a cancellation is never far away. */
enum { READ_MAX = 1 << 26 };

/* What callers align to for O_DIRECT. */
enum { DIRECT_UNIT = 4096 };

static _Atomic int64_t fault_countdown; /* reads until the fault; 0 or less: none */
static _Atomic int fault_kind;

void rm_io_fault_at(uint64_t n, rm_io_fault fault) {
    atomic_store(&fault_kind, (int)fault);
    atomic_store(&fault_countdown, n > INT64_MAX ? INT64_MAX : (int64_t)n);
}

/* Is it this transfer's turn to fail? kinds: a bit for each that it can suffer. Costs one load
 * while no test asks for it. */
static bool fault_now(rm_io_fault *fault, unsigned kinds) {
    if (atomic_load_explicit(&fault_countdown, memory_order_relaxed) <= 0) return false;
    const int kind = atomic_load(&fault_kind);
    if ((kinds >> kind & 1) == 0 || atomic_fetch_sub(&fault_countdown, 1) != 1) return false;
    *fault = (rm_io_fault)kind;
    return true;
}

bool rm_io_fault_now(rm_io_fault *fault, bool write) {
    return fault_now(fault, write ? 1u << RM_IO_PART | 1u << RM_IO_FULL | 1u << RM_IO_BAD_WRITE
                                  : 1u << RM_IO_FAIL | 1u << RM_IO_SHORT | 1u << RM_IO_FLIP |
                                        1u << RM_IO_PART);
}

const char *rm_path_tail(const char *path) {
    enum { SHOWN = 120 };
    const size_t length = strlen(path);
    if (length <= SHOWN) return path;
    path += length - SHOWN;
    const char *slash = strchr(path, '/');
    if (slash != NULL && slash[1] != '\0') return slash + 1;
    while (((uint8_t)*path & 0xc0) == 0x80)
        path++;
    return path;
}

static int open_failed(const char *path, int reason, remat_error *err) {
    const char *name = rm_path_tail(path);
    switch (reason) {
    case ENOENT:
    case ENOTDIR:
        return rm_fail(err, REMAT_E_FAILED, "%s: no such file; check the path", name);
    case EACCES:
    case EPERM:
        return rm_fail(err, REMAT_E_FAILED,
                       "%s: no permission to read it; change its mode or its owner", name);
    case EMFILE:
    case ENFILE:
        return rm_fail(err, REMAT_E_FAILED, "%s: too many open files; raise the limit (ulimit -n)",
                       name);
    case ENXIO:
    case ENODEV:
        return rm_fail(err, REMAT_E_FAILED, "%s: is not a regular file; give a model file", name);
    default:
        return rm_fail(err, REMAT_E_FAILED, "%s: cannot open it: %s; check the path", name,
                       strerror(reason));
    }
}

int rm_file_open(rm_file *f, const char *path, remat_error *err) {
    *f = (rm_file){.fd = -1, .path = path};
    int fd;
    do {
        /* Without O_NONBLOCK, a FIFO would hold us until somebody writes to it. */
        fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return open_failed(path, errno, err);

    struct stat st;
    int status = REMAT_OK;
    if (fstat(fd, &st) != 0) {
        status = open_failed(path, errno, err);
    } else if (S_ISDIR(st.st_mode)) {
        status =
            rm_fail(err, REMAT_E_FAILED, "%s: is a directory, not a model file; name a file in it",
                    rm_path_tail(path));
    } else if (!S_ISREG(st.st_mode)) {
        status = rm_fail(err, REMAT_E_FAILED, "%s: is not a regular file; give a model file",
                         rm_path_tail(path));
    }
    if (status != REMAT_OK) {
        close(fd);
        return status;
    }
    /* A regular file is there at once; io_uring of older kernels takes the flag at its word. */
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    return REMAT_OK;
}

bool rm_io_make_direct(int fd) {
#ifdef STATX_DIOALIGN
    struct statx x;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &x) == 0 &&
        (x.stx_mask & STATX_DIOALIGN) != 0 &&
        (x.stx_dio_offset_align == 0 || x.stx_dio_offset_align > DIRECT_UNIT ||
         x.stx_dio_mem_align > DIRECT_UNIT))
        return false;
#endif
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

int rm_file_reopen_direct(rm_file *f, const rm_file *from) {
    RM_ASSERT(from->fd >= 0);
    char path[32];
    *f = (rm_file){.fd = -1, .size = from->size, .path = from->path};
    snprintf(path, sizeof path, "/proc/self/fd/%d", from->fd);
    do {
        f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    } while (f->fd < 0 && errno == EINTR);
    /* Two descriptors of one opening share their flags: this one stays buffered. */
    if (f->fd < 0)
        f->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
    else
        f->direct = rm_io_make_direct(f->fd);
    return f->fd >= 0 ? REMAT_OK : REMAT_E_FAILED;
}

void rm_file_close(rm_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

/* One pread; *short_read makes this one half as long and the next one the end of the file. */
static ssize_t read_once(const rm_file *f, uint8_t *out, uint64_t offset, uint64_t bytes,
                         bool *short_read) {
    if (*short_read) return 0;
    rm_io_fault fault;
    if (fault_now(&fault, 1u << RM_IO_FAIL | 1u << RM_IO_SHORT)) {
        if (fault == RM_IO_FAIL) {
            errno = EIO;
            return -1;
        }
        *short_read = true;
        bytes /= 2;
        if (bytes == 0) return 0;
    }
    return pread(f->fd, out, bytes < READ_MAX ? bytes : READ_MAX, (off_t)offset);
}

int rm_file_read(const rm_file *f, void *out, uint64_t offset, uint64_t bytes, remat_error *err) {
    RM_ASSERT(f->fd >= 0);
    uint8_t *to = out;
    bool short_read = false;
    if (offset > INT64_MAX || bytes > INT64_MAX - offset) {
        return rm_fail(err, REMAT_E_FAILED, "%s: read at %llu lies past any file; check the file",
                       rm_path_tail(f->path), (unsigned long long)offset);
    }
    while (bytes > 0) {
        const ssize_t got = read_once(f, to, offset, bytes, &short_read);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            return rm_fail(err, REMAT_E_FAILED, "%s: read at %llu failed: %s; check the disk",
                           rm_path_tail(f->path), (unsigned long long)offset, strerror(errno));
        }
        if (got == 0) {
            return rm_fail(err, REMAT_E_FAILED,
                           "%s: file became shorter while reading (it ends at %llu); "
                           "start again when nothing writes to it",
                           rm_path_tail(f->path), (unsigned long long)offset);
        }
        to += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return REMAT_OK;
}

void rm_reader_start(rm_reader *r, const rm_file *f, void *window, size_t window_bytes,
                     uint64_t at) {
    RM_ASSERT(window_bytes > 0);
    RM_ASSERT(at <= f->size);
    *r = (rm_reader){.file = f, .window = window, .window_bytes = window_bytes, .at = at};
}

uint64_t rm_reader_left(const rm_reader *r) {
    return r->file->size - r->at;
}

int rm_reader_read(rm_reader *r, void *out, size_t bytes, remat_error *err) {
    RM_ASSERT(bytes <= rm_reader_left(r));
    uint8_t *to = out;
    while (bytes > 0) {
        if (r->start == r->end) {
            if (bytes >= r->window_bytes) { /* the window would only be a detour */
                RM_TRY(rm_file_read(r->file, to, r->at, bytes, err));
                r->at += bytes;
                return REMAT_OK;
            }
            const uint64_t left = rm_reader_left(r);
            const size_t fill = left < r->window_bytes ? (size_t)left : r->window_bytes;
            RM_TRY(rm_file_read(r->file, r->window, r->at, fill, err));
            r->start = 0;
            r->end = fill;
        }
        const size_t held = r->end - r->start, part = bytes < held ? bytes : held;
        memcpy(to, r->window + r->start, part);
        r->start += part;
        r->at += part;
        to += part;
        bytes -= part;
    }
    return REMAT_OK;
}

void rm_reader_skip(rm_reader *r, uint64_t bytes) {
    RM_ASSERT(bytes <= rm_reader_left(r));
    const size_t held = r->end - r->start;
    r->start = bytes < held ? r->start + (size_t)bytes : r->end;
    r->at += bytes;
}

int rm_write_all(int fd, const void *bytes, size_t count, remat_error *err) {
    const uint8_t *from = bytes;
    while (count > 0) {
        const ssize_t put = write(fd, from, count);
        if (put > 0) {
            from += put;
            count -= (size_t)put;
        } else if (put < 0 && errno == EAGAIN) {
            /* Whoever gave us the descriptor may have made it non-blocking: a shell does. */
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            (void)poll(&p, 1, -1);
        } else if (put == 0 || errno != EINTR) {
            return rm_fail(err, REMAT_E_FAILED, "output: write failed: %s; check the receiver",
                           put == 0 ? "nothing was taken" : strerror(errno));
        }
    }
    return REMAT_OK;
}
