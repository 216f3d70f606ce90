/*
 * aio.h: reads and writes that are in flight while the caller computes. Part: base.
 *
 *     rm_aio_begin(a, &op);  ...work...  rm_aio_wait(a, &op);  if (op.error != 0) ...
 *
 * Through io_uring (liburing) where the kernel allows it; elsewhere the same operations run at
 * once, inside rm_aio_begin(), with the same results. Nobody needs to know which. An operation is
 * whole or it has an error: short transfers are continued here. The order among operations in
 * flight is not defined: who reads what it wrote waits between.
 *
 * One thread uses an rm_aio. No heap; the kernel maps the rings (a few pages, outside the ledger).
 */
#ifndef RM_BASE_AIO_H
#define RM_BASE_AIO_H

#include "base/io.h"

enum { RM_AIO_DEPTH_MAX = 64 };

typedef struct rm_aio rm_aio; /* lives in the caller's memory */

/* One transfer. It and its memory are the caller's and stay where they are until it is done. */
typedef struct rm_aio_op {
    int fd;
    bool write;
    void *at;
    uint64_t offset, bytes; /* with O_DIRECT, these and at are multiples of 4096 */

    /* Set here: */
    bool done;
    int error;      /* 0, or an errno; a file that ends before the last byte is EIO */
    uint64_t moved; /* bytes from the first on, also after an error: up to the end of the file */
    void *user;     /* the caller's */

    /* Of aio: */
    int fault; /* what a test wants to happen to it: rm_io_fault, or -1 */
} rm_aio_op;

/* Bytes of an rm_aio for up to depth operations in flight. */
size_t rm_aio_bytes(uint32_t depth);

/* Starts in memory of rm_aio_bytes(depth) bytes, 64-byte aligned; depth is 1 to RM_AIO_DEPTH_MAX.
 * ring false: never io_uring. A kernel that refuses io_uring is no error.
 * Errors: none at present. */
int rm_aio_start(rm_aio **out, void *memory, uint32_t depth, bool ring, remat_error *err);

/* Waits for what is in flight, gives the rings back and sets *a to NULL. NULL is allowed. */
void rm_aio_stop(rm_aio **a);

/* Starts op; when depth operations are in flight, it waits for one of them first. It may be done on
 * return. */
void rm_aio_begin(rm_aio *a, rm_aio_op *op);

/* Returns when op, which was begun here, is done. Others may become done as well. */
void rm_aio_wait(rm_aio *a, rm_aio_op *op);

/* Marks what has completed, without waiting. */
void rm_aio_poll(rm_aio *a);

uint32_t rm_aio_in_flight(const rm_aio *a);

/* Is it io_uring? For reports and tests. */
bool rm_aio_has_ring(const rm_aio *a);

#endif /* RM_BASE_AIO_H */
