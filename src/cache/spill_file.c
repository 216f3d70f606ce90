/* spill_file.c: see spill_file.h. */
#include "cache/spill_file.h"
#include "base/dirs.h"
#include "base/io.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NAME_TRIES = 16 };

/* What cannot be done in dir, why, and what to do about it. */
static int file_failed(const char *dir, int reason, remat_error *err) {
    const char *name = rm_path_tail(dir);
    switch (reason) {
    case ENOENT:
        return rm_fail(err, REMAT_E_FAILED,
                       "spill: %s: no such directory; create it or name another", name);
    case ENOTDIR:
        return rm_fail(err, REMAT_E_FAILED, "spill: %s: is not a directory; name one", name);
    case EACCES:
    case EPERM:
    case EROFS:
        return rm_fail(err, REMAT_E_FAILED,
                       "spill: %s: no permission to write there; name another directory", name);
    case ENOSPC:
    case EDQUOT:
        return rm_fail(err, REMAT_E_FAILED,
                       "spill: %s: %s; free some space or name another directory", name,
                       strerror(reason));
    case EMFILE:
    case ENFILE:
        return rm_fail(err, REMAT_E_FAILED,
                       "spill: %s: too many open files; raise the limit (ulimit -n)", name);
    default:
        return rm_fail(err, REMAT_E_FAILED, "spill: %s: %s; name another directory", name,
                       strerror(reason));
    }
}

/* A file with a random name that loses it at once. Gives a descriptor or a negative errno. */
static int open_named(int dir_fd) {
    int fd = -1;
    for (int i = 0; i < NAME_TRIES; i++) {
        char name[40];
        snprintf(name, sizeof name, ".remat-spill-%016llx", (unsigned long long)rm_random_system());
        fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && (errno == EEXIST || errno == EINTR)) continue;
        if (fd < 0) return -errno;
        if (unlinkat(dir_fd, name, 0) == 0) return fd;
        const int reason = errno;
        close(fd);
        return -reason;
    }
    return -EEXIST;
}

static int open_unnamed(int dir_fd) {
    int fd;
    do {
        fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    if (fd >= 0) return fd;
    /* File systems that cannot, and kernels that do not know it, have several ways to say so; where
     * the reason is another one, the second way meets it as well. */
    return open_named(dir_fd);
}

int rm_spill_file_open(rm_spill_file *f, const char *dir, bool make_dir, remat_error *err) {
    *f = (rm_spill_file){.fd = -1};
    if (dir[0] == '\0') return file_failed(dir, ENOENT, err);
    if (make_dir && !rm_dirs_make(dir)) return file_failed(dir, errno, err);
    const int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0) return file_failed(dir, errno, err);
    f->fd = open_unnamed(dir_fd);
    close(dir_fd);
    if (f->fd < 0) {
        const int reason = -f->fd;
        f->fd = -1;
        return file_failed(dir, reason, err);
    }
    (void)fchmod(f->fd, 0600); /* whatever the umask is */
    f->direct = rm_io_make_direct(f->fd);
    struct statfs fs;
    f->in_memory = fstatfs(f->fd, &fs) == 0 &&
                   (fs.f_type == TMPFS_MAGIC || (unsigned)fs.f_type == RAMFS_MAGIC);
    return REMAT_OK;
}

void rm_spill_file_close(rm_spill_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

int rm_spill_file_size(const rm_spill_file *f, uint64_t bytes, uint64_t needed_bytes,
                       const char *dir, remat_error *err) {
    struct statvfs fs;
    struct rlimit most;
    if (fstatvfs(f->fd, &fs) == 0) {
        uint64_t there;
        if (__builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &there))
            there = UINT64_MAX;
        if (there < needed_bytes)
            return rm_fail(err, REMAT_E_FAILED,
                           "spill: %s: %llu MiB are free and %llu MiB needed; free some space or "
                           "name another directory",
                           rm_path_tail(dir), (unsigned long long)(there >> 20),
                           (unsigned long long)((needed_bytes + (1 << 20) - 1) >> 20));
    }
    /* To pass this limit is a signal, not an error. */
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        bytes > most.rlim_cur) {
        return rm_fail(err, REMAT_E_FAILED,
                       "spill: %s: a file of %llu MiB is over the limit for files; raise it "
                       "(ulimit -f)",
                       rm_path_tail(dir), (unsigned long long)(bytes >> 20));
    }
    int status;
    do {
        status = ftruncate(f->fd, (off_t)bytes);
    } while (status != 0 && errno == EINTR);
    return status == 0 ? REMAT_OK : file_failed(dir, errno, err);
}

int rm_spill_file_reserve(bool *reserved, const rm_spill_file *f, uint64_t offset, uint64_t bytes,
                          const char *dir, remat_error *err) {
    *reserved = true;
    if (bytes == 0) return REMAT_OK;
    int status;
    do {
        status = fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
    } while (status != 0 && errno == EINTR);
    if (status == 0) return REMAT_OK;
    *reserved = false;
    if (errno == EOPNOTSUPP || errno == ENOSYS) return REMAT_OK;
    return file_failed(dir, errno, err);
}

void rm_spill_file_punch(int fd, uint64_t offset, uint64_t bytes) {
    (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}
