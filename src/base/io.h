/*
 * io.h: files, and the one place where I/O faults are injected. Part: base.
 *
 * Reading goes through rm_file (whole ranges at an offset) or rm_reader (in sequence, through a
 * window of fixed size). A model path may be anything a user types: a directory, a FIFO nobody
 * writes to, /dev/zero. Opening never blocks and accepts regular files only.
 */
#ifndef RM_BASE_IO_H
#define RM_BASE_IO_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct rm_file {
    int fd;           /* -1: closed */
    bool direct;      /* opened with O_DIRECT: offsets, sizes and memory are multiples of 4096 */
    uint64_t size;    /* bytes, when it was opened */
    const char *path; /* the caller's; for messages */
} rm_file;

/* Opens a regular file for reading. Errors: REMAT_E_FAILED naming path and reason. */
int rm_file_open(rm_file *f, const char *path, remat_error *err);
void rm_file_close(rm_file *f);

/* A second descriptor for the same open file, past the system's page cache where the file system
 * can (f->direct); where it cannot, a buffered one: who reads much and once then gives the cache
 * back with posix_fadvise(POSIX_FADV_DONTNEED). Works for a file that has no name any more.
 * REMAT_E_FAILED without a message, f->fd being -1, when there is no descriptor to be had: the
 * first one still serves. */
int rm_file_reopen_direct(rm_file *f, const rm_file *from);

/* Turns O_DIRECT on for a descriptor; false, and nothing changed, where the file system cannot or
 * wants more than multiples of 4096. */
bool rm_io_make_direct(int fd);

/* Reads bytes at offset, all of them. A file that has become shorter is an error too.
 * Any thread may call it. Errors: REMAT_E_FAILED. */
int rm_file_read(const rm_file *f, void *out, uint64_t offset, uint64_t bytes, remat_error *err);

/* Sequential reading through a window. at is the position of the next byte. */
typedef struct rm_reader {
    const rm_file *file;
    uint8_t *window;                 /* the caller's memory */
    size_t window_bytes, start, end; /* unread bytes are window[start .. end) */
    uint64_t at;
} rm_reader;

void rm_reader_start(rm_reader *r, const rm_file *f, void *window, size_t window_bytes,
                     uint64_t at);

/* Bytes between the position and the end of the file. */
uint64_t rm_reader_left(const rm_reader *r);

/* Copies the next bytes; the caller has compared with rm_reader_left(). */
int rm_reader_read(rm_reader *r, void *out, size_t bytes, remat_error *err);

/* Moves on without reading; bytes may be at most rm_reader_left(). */
void rm_reader_skip(rm_reader *r, uint64_t bytes);

/* What of a path is shown in a message: its end when it is long, so that the reason is not cut. */
const char *rm_path_tail(const char *path);

/* Test hooks, process-wide: the n-th transfer from now on that the kind is about goes wrong (0 =
 * none). Transfers of other sorts are not counted. */
typedef enum rm_io_fault {
    RM_IO_FAIL,      /* a read, here or in aio: EIO */
    RM_IO_SHORT,     /* a read, here or in aio: half of it, then the end of the file */
    RM_IO_FLIP,      /* a read in aio: comes back with one bit flipped */
    RM_IO_PART,      /* a read or write in aio: is cut in two, and must be whole nevertheless */
    RM_IO_FULL,      /* a write in aio: ENOSPC */
    RM_IO_BAD_WRITE, /* a write in aio: EIO */
} rm_io_fault;
void rm_io_fault_at(uint64_t n, rm_io_fault fault);

/* For who transfers by itself (aio.c): counts a transfer; true when it is to suffer *fault. */
bool rm_io_fault_now(rm_io_fault *fault, bool write);

/* Writes all bytes to a descriptor, through interruptions. Errors: REMAT_E_FAILED. */
int rm_write_all(int fd, const void *bytes, size_t count, remat_error *err);

#endif /* RM_BASE_IO_H */
