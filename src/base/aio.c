/*
 * aio.c: see aio.h. The only file that includes liburing; of it only functions without heap.
 *
 * Each request is submitted by itself, so that no more than depth entries are ever queued, and the
 * completion queue, twice as long, cannot overflow. An operation may take several requests:
 *
 *     begin -> request -> settle -> done
 *                 ^----------'  short, or interrupted
 */
#include "base/aio.h"

#include <errno.h>
#include <liburing.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum {
    UNIT = 4096,           /* of O_DIRECT */
    REQUEST_MAX = 1 << 30, /* bytes of one request: the kernel takes 2 GiB less a page */
    NO_FAULT = -1
};

struct rm_aio {
    bool ring;
    uint32_t depth, in_flight;
    struct io_uring uring;
};

size_t rm_aio_bytes(uint32_t depth) {
    RM_ASSERT(depth >= 1 && depth <= RM_AIO_DEPTH_MAX);
    return sizeof(rm_aio);
}

int rm_aio_start(rm_aio **out, void *memory, uint32_t depth, bool ring, remat_error *err) {
    RM_ASSERT(depth >= 1 && depth <= RM_AIO_DEPTH_MAX);
    (void)err;
    rm_aio *a = memory;
    memset(a, 0, sizeof *a);
    a->depth = depth;
    /* Forbidden, unknown, or no locked memory left: any refusal means the same here. */
    a->ring = ring && io_uring_queue_init(depth, &a->uring, 0) == 0;
    /* Linux 5.6: plain reads and writes; before, completions could also get lost. */
    if (a->ring && (a->uring.features & IORING_FEAT_RW_CUR_POS) == 0) {
        io_uring_queue_exit(&a->uring);
        a->ring = false;
    }
    *out = a;
    return REMAT_OK;
}

/* --- one operation -------------------------------------------------------------------------- */

typedef struct request {
    uint8_t *at;
    uint64_t offset, begin; /* begin: bytes of the operation that lie before it */
    uint32_t bytes;
} request;

/* What is to be moved next. With O_DIRECT a request begins at a whole unit, also where the one
 * before ended inside of one (at the end of a file). */
static request next_request(const rm_aio_op *op) {
    const bool units = ((op->offset | op->bytes | (uintptr_t)op->at) & (UNIT - 1)) == 0;
    const uint64_t begin = units ? op->moved & ~(uint64_t)(UNIT - 1) : op->moved;
    uint64_t bytes = op->bytes - begin;
    if (op->moved == 0 && (op->fault == RM_IO_SHORT || op->fault == RM_IO_PART)) {
        const uint64_t half = units ? bytes / 2 & ~(uint64_t)(UNIT - 1) : bytes / 2;
        if (half > 0) bytes = half;
    }
    if (bytes > REQUEST_MAX) bytes = REQUEST_MAX;
    return (request){(uint8_t *)op->at + begin, op->offset + begin, begin, (uint32_t)bytes};
}

static void finish(rm_aio_op *op, int error) {
    op->error = error;
    if (error == 0 && op->fault == RM_IO_FLIP) *(uint8_t *)op->at ^= 0x10;
    op->done = true;
}

/* Takes the result of next_request(): bytes or a negative errno. False: another one is needed. */
static bool settle(rm_aio_op *op, int64_t result) {
    if (result == -EINTR) return false;
    if (result < 0) return finish(op, (int)-result), true;
    const uint64_t reached = next_request(op).begin + (uint64_t)result;
    RM_ASSERT(reached <= op->bytes);
    if (reached <= op->moved) return finish(op, EIO), true; /* the end of the file */
    op->moved = reached;
    if (op->fault == RM_IO_SHORT) {
        if (op->moved == op->bytes) op->moved = 0; /* it was too small to be halved */
        return finish(op, EIO), true;
    }
    if (op->moved == op->bytes) return finish(op, 0), true;
    return false;
}

static void run_now(rm_aio_op *op) {
    int64_t result;
    do {
        const request r = next_request(op);
        result = op->write ? pwrite(op->fd, r.at, r.bytes, (off_t)r.offset)
                           : pread(op->fd, r.at, r.bytes, (off_t)r.offset);
        if (result < 0) result = -errno;
    } while (!settle(op, result));
}

/* --- the ring ------------------------------------------------------------------------------- */

static void submit(rm_aio *a, rm_aio_op *op);

/* Takes one completion, if there is one; wait: until there is one. */
static bool reap(rm_aio *a, bool wait) {
    struct io_uring_cqe *cqe = NULL;
    while (io_uring_peek_cqe(&a->uring, &cqe) != 0 || cqe == NULL) {
        if (!wait) return false;
        /* Interrupted or short of memory: the completion comes all the same. */
        if (io_uring_wait_cqe(&a->uring, &cqe) != 0) sched_yield();
    }
    rm_aio_op *op = io_uring_cqe_get_data(cqe);
    const int64_t result = cqe->res;
    io_uring_cqe_seen(&a->uring, cqe);
    RM_ASSERT(a->in_flight > 0);
    a->in_flight--;
    if (result == -EAGAIN) {
        run_now(op); /* the kernel cannot queue it now */
    } else if (!settle(op, result)) {
        submit(a, op);
    }
    return true;
}

/* Hands the next request of op to the kernel. Where that fails for good, there is no ring any
 * more. */
static void submit(rm_aio *a, rm_aio_op *op) {
    if (!a->ring) {
        run_now(op);
        return;
    }
    RM_ASSERT(a->in_flight < a->depth);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&a->uring);
    RM_ASSERT(sqe != NULL);
    const request r = next_request(op);
    if (op->write)
        io_uring_prep_write(sqe, op->fd, r.at, r.bytes, r.offset);
    else
        io_uring_prep_read(sqe, op->fd, r.at, r.bytes, r.offset);
    io_uring_sqe_set_data(sqe, op);
    int submitted;
    do {
        submitted = io_uring_submit(&a->uring);
    } while (submitted == -EINTR);
    if (submitted == 1) {
        a->in_flight++;
        return;
    }
    /* The kernel has not taken it. The entry goes with the ring. */
    a->ring = false;
    while (a->in_flight > 0)
        (void)reap(a, true);
    io_uring_queue_exit(&a->uring);
    run_now(op);
}

/* --- for callers ---------------------------------------------------------------------------- */

void rm_aio_begin(rm_aio *a, rm_aio_op *op) {
    RM_ASSERT(op->bytes > 0);
    RM_ASSERT(op->offset <= INT64_MAX && op->bytes <= INT64_MAX - op->offset);
    op->done = false;
    op->error = 0;
    op->moved = 0;
    op->fault = NO_FAULT;
    rm_io_fault fault;
    if (rm_io_fault_now(&fault, op->write)) {
        op->fault = (int)fault;
        if (fault == RM_IO_FAIL || fault == RM_IO_BAD_WRITE) {
            finish(op, EIO);
            return;
        }
        if (fault == RM_IO_FULL) {
            finish(op, ENOSPC);
            return;
        }
    }
    while (a->ring && a->in_flight == a->depth)
        (void)reap(a, true);
    submit(a, op);
}

void rm_aio_wait(rm_aio *a, rm_aio_op *op) {
    while (!op->done) {
        RM_ASSERT(a->in_flight > 0); /* else it was never begun */
        (void)reap(a, true);
    }
}

void rm_aio_poll(rm_aio *a) {
    while (a->in_flight > 0 && reap(a, false)) {
    }
}

uint32_t rm_aio_in_flight(const rm_aio *a) {
    return a->in_flight;
}

bool rm_aio_has_ring(const rm_aio *a) {
    return a->ring;
}

void rm_aio_stop(rm_aio **a) {
    if (*a == NULL) return;
    while ((*a)->in_flight > 0)
        (void)reap(*a, true);
    if ((*a)->ring) io_uring_queue_exit(&(*a)->uring);
    *a = NULL;
}
