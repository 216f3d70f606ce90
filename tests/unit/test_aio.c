/* test_aio.c: transfers in flight are the same with io_uring and without; ends of files; faults. */
#include "base/aio.h"
#include "deny.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { UNIT = 4096, UNITS = 96, BYTES = UNITS * UNIT };

static _Alignas(64) uint8_t memory[1 << 16];
static _Alignas(4096) uint8_t data[BYTES], back[BYTES];

static const struct {
    bool ring;
    uint32_t depth;
} WAYS[] = {{false, 1}, {false, 64}, {true, 1}, {true, 3}, {true, 64}};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };

/* A file without a name, of size bytes out of data[]. */
static int make_file(uint64_t size, bool direct) {
    char path[] = "/tmp/remat_aio_XXXXXX";
    remat_error err = {0};
    for (uint64_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)t_random();
    const int fd = mkstemp(path);
    if (fd < 0) return -1;
    unlink(path);
    if (rm_write_all(fd, data, size, &err) != REMAT_OK) return close(fd), -1;
    if (direct) (void)rm_io_make_direct(fd);
    return fd;
}

static rm_aio *start(bool ring, uint32_t depth) {
    rm_aio *a = NULL;
    remat_error err = {0};
    if (rm_aio_bytes(depth) > sizeof memory) return NULL;
    EXPECT(rm_aio_start(&a, memory, depth, ring, &err) == REMAT_OK);
    EXPECT(!rm_aio_has_ring(a) || ring);
    return a;
}

static rm_aio_op op_of(int fd, bool write, void *at, uint64_t offset, uint64_t bytes) {
    return (rm_aio_op){.fd = fd, .write = write, .at = at, .offset = offset, .bytes = bytes};
}

/* Writes pieces in any order, reads others back in any order: the file is what was written. */
static void write_and_read(rm_aio *a, uint32_t depth, int fd, uint64_t unit) {
    static rm_aio_op ops[UNITS];
    uint64_t count = 0, most = 0;
    for (uint64_t at = 0; at < BYTES; count++) {
        uint64_t bytes = (t_random() % 5 + 1) * (UNIT - (unit == 1 ? 7 : 0));
        if (bytes > BYTES - at || count == UNITS - 1) bytes = BYTES - at;
        ops[count] = op_of(fd, true, data + at, at, bytes);
        at += bytes;
    }
    for (uint64_t i = 0; i < BYTES; i++)
        data[i] ^= (uint8_t)t_random();
    const uint64_t first = t_random() % count;
    for (int write = 1; write >= 0; write--) {
        memset(back, 0, sizeof back);
        for (uint64_t i = 0; i < count; i++) {
            rm_aio_op *op = &ops[(first + i) % count];
            op->write = write;
            if (!write) op->at = back + op->offset;
            rm_aio_begin(a, op);
            const uint32_t now = rm_aio_in_flight(a);
            most = now > most ? now : most;
            if (i % 5 == 0) rm_aio_poll(a);
        }
        for (uint64_t i = count; i-- > 0;) {
            rm_aio_wait(a, &ops[i]);
            EXPECT(ops[i].done && ops[i].error == 0);
            EXPECT_EQ_U64(ops[i].moved, ops[i].bytes);
        }
        EXPECT_EQ_U64(rm_aio_in_flight(a), 0);
    }
    EXPECT(most <= depth);
    EXPECT(memcmp(back, data, BYTES) == 0);
    EXPECT(pread(fd, back, BYTES, 0) == BYTES && memcmp(back, data, BYTES) == 0);
}

static void every_way_gives_the_same(void) {
    for (int direct = 0; direct < 2; direct++) {
        const int fd = make_file(BYTES, direct);
        REQUIRE(fd >= 0);
        for (int w = 0; w < WAY_COUNT; w++) {
            rm_aio *a = start(WAYS[w].ring, WAYS[w].depth);
            REQUIRE(a != NULL);
            for (int i = 0; i < 10; i++)
                write_and_read(a, WAYS[w].depth, fd, direct ? UNIT : 1);
            rm_aio_stop(&a);
            EXPECT(a == NULL);
            rm_aio_stop(&a);
        }
        close(fd);
    }
}

static void a_file_that_ends_is_an_error(void) {
    static const uint64_t sizes[] = {0, 1, 5000, 2 * UNIT, BYTES - 1};
    for (int direct = 0; direct < 2; direct++) {
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            const uint64_t size = sizes[k];
            const int fd = make_file(size, direct);
            REQUIRE(fd >= 0);
            for (int w = 0; w < WAY_COUNT; w++) {
                rm_aio *a = start(WAYS[w].ring, WAYS[w].depth);
                memset(back, 0, sizeof back);
                rm_aio_op op = op_of(fd, false, back, 0, BYTES);
                rm_aio_begin(a, &op);
                rm_aio_wait(a, &op);
                EXPECT_EQ_U64((uint64_t)op.error, EIO);
                EXPECT_EQ_U64(op.moved, size);
                EXPECT(memcmp(back, data, size) == 0);
                op = op_of(fd, false, back, BYTES, UNIT); /* wholly behind the end */
                rm_aio_begin(a, &op);
                rm_aio_wait(a, &op);
                EXPECT(op.error == EIO && op.moved == 0);
                rm_aio_stop(&a);
            }
            close(fd);
        }
    }
}

static void errors_are_the_kernels(void) {
    const int fd = make_file(UNIT, false), read_only = open("/dev/null", O_RDONLY);
    REQUIRE(fd >= 0 && read_only >= 0);
    for (int w = 0; w < WAY_COUNT; w++) {
        rm_aio *a = start(WAYS[w].ring, WAYS[w].depth);
        rm_aio_op closed = op_of(-1, false, back, 0, UNIT);
        rm_aio_op forbidden = op_of(read_only, true, data, 0, UNIT);
        rm_aio_op good = op_of(fd, false, back, 0, UNIT);
        rm_aio_begin(a, &closed);
        rm_aio_begin(a, &good);
        rm_aio_begin(a, &forbidden);
        rm_aio_wait(a, &forbidden);
        rm_aio_wait(a, &closed);
        rm_aio_wait(a, &good);
        EXPECT_EQ_U64((uint64_t)closed.error, EBADF);
        EXPECT_EQ_U64((uint64_t)forbidden.error, EBADF);
        EXPECT(good.error == 0 && memcmp(back, data, UNIT) == 0);
        rm_aio_stop(&a);
    }
    close(fd);
    close(read_only);
}

/* --- what only io_uring can show ------------------------------------------------------------- */

static int pipe_ends[2];

static void on_alarm(int number) {
    (void)number;
    if (write(pipe_ends[1], data, 10) != 10) _exit(9);
}

/* A pipe: its read is in flight as long as we like, is interrupted, and comes in pieces. */
static void a_read_is_in_flight(void) {
    rm_aio *a = start(true, 2);
    REQUIRE(a != NULL && pipe(pipe_ends) == 0);
    if (!rm_aio_has_ring(a)) SKIP("the kernel refuses io_uring");
    for (int i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i + 1);
    rm_aio_op op = op_of(pipe_ends[0], false, back, 0, 20);
    rm_aio_begin(a, &op);
    rm_aio_poll(a);
    EXPECT(!op.done);
    EXPECT_EQ_U64(rm_aio_in_flight(a), 1);
    EXPECT(write(pipe_ends[1], data, 10) == 10);
    for (int i = 0; i < 10000 && op.moved == 0; i++) {
        rm_aio_poll(a);
        usleep(100);
    }
    EXPECT_EQ_U64(op.moved, 10);
    EXPECT(!op.done);
    struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    ualarm(20000, 0);
    rm_aio_wait(a, &op); /* nothing comes but from the handler */
    EXPECT(op.done && op.error == 0);
    EXPECT_EQ_U64(op.moved, 20);
    EXPECT(memcmp(back, data, 10) == 0 && memcmp(back + 10, data, 10) == 0);
    /* Stopping waits. */
    op.bytes = 10;
    rm_aio_begin(a, &op);
    EXPECT(!op.done);
    ualarm(20000, 0);
    rm_aio_stop(&a);
    EXPECT(op.done && op.error == 0 && op.moved == 10);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    signal(SIGALRM, SIG_DFL);
}

static bool without_setup(void) {
    if (!deny(SYS_io_uring_setup, 0, 0, ENOSYS)) return false;
    const int fd = make_file(BYTES, false);
    rm_aio *a = start(true, 8);
    EXPECT(!rm_aio_has_ring(a));
    write_and_read(a, 8, fd, 1);
    rm_aio_stop(&a);
    return true;
}

/* Forbidden after the start: operations go on without. */
static bool without_enter(void) {
    const int fd = make_file(BYTES, false);
    rm_aio *a = start(true, 8);
    if (!rm_aio_has_ring(a) || !deny(SYS_io_uring_enter, 0, 0, EPERM)) return false;
    write_and_read(a, 8, fd, 1);
    EXPECT(!rm_aio_has_ring(a));
    rm_aio_stop(&a);
    return true;
}

static void a_kernel_may_refuse(void) {
    if (!in_child(without_setup) || !in_child(without_enter)) SKIP("no seccomp or no io_uring");
}

/* --- faults ---------------------------------------------------------------------------------- */

/* Three transfers, of which the second suffers the fault. */
static void three(rm_aio_op *ops, rm_aio *a, int fd, bool write, rm_io_fault fault) {
    memset(back, 0, sizeof back);
    rm_io_fault_at(2, fault);
    for (uint64_t i = 0; i < 3; i++) {
        ops[i] = op_of(fd, write, (write ? data : back) + i * 4 * UNIT, i * 4 * UNIT, 4 * UNIT);
        rm_aio_begin(a, &ops[i]);
    }
    for (int i = 0; i < 3; i++)
        rm_aio_wait(a, &ops[i]);
    rm_io_fault_at(0, fault);
    EXPECT(ops[0].error == 0 && ops[0].moved == 4 * UNIT);
    EXPECT(ops[2].error == 0 && ops[2].moved == 4 * UNIT);
}

static void faults_come_when_asked(void) {
    rm_aio_op ops[3];
    rm_file f = {.fd = make_file(BYTES, true), .size = BYTES, .path = "test"};
    REQUIRE(f.fd >= 0);
    for (int w = 0; w < WAY_COUNT; w++) {
        rm_aio *a = start(WAYS[w].ring, WAYS[w].depth);
        three(ops, a, f.fd, false, RM_IO_FAIL);
        EXPECT(ops[1].error == EIO && ops[1].moved == 0);
        three(ops, a, f.fd, false, RM_IO_SHORT);
        EXPECT(ops[1].error == EIO && ops[1].moved == 2 * UNIT);
        EXPECT(memcmp(back, data, 6 * UNIT) == 0);
        three(ops, a, f.fd, false, RM_IO_FLIP);
        EXPECT(ops[1].error == 0);
        uint64_t differing = 0;
        for (uint64_t i = 0; i < 12 * UNIT; i++)
            differing += (uint64_t)__builtin_popcount(back[i] ^ data[i]);
        EXPECT_EQ_U64(differing, 1);
        EXPECT(memcmp(back + 4 * UNIT, data + 4 * UNIT, 4 * UNIT) != 0);
        three(ops, a, f.fd, false, RM_IO_PART);
        EXPECT(ops[1].error == 0 && memcmp(back, data, 12 * UNIT) == 0);

        data[5 * UNIT] ^= 1;
        three(ops, a, f.fd, true, RM_IO_FULL);
        EXPECT(ops[1].error == ENOSPC && ops[1].moved == 0);
        three(ops, a, f.fd, true, RM_IO_BAD_WRITE);
        EXPECT(ops[1].error == EIO && ops[1].moved == 0);
        three(ops, a, f.fd, true, RM_IO_FAIL); /* is about reads */
        EXPECT(ops[1].error == 0);
        data[7 * UNIT] ^= 1;
        three(ops, a, f.fd, true, RM_IO_PART);
        EXPECT(ops[1].error == 0);
        three(ops, a, f.fd, false, RM_IO_FULL); /* is about writes */
        EXPECT(ops[1].error == 0 && memcmp(back, data, 12 * UNIT) == 0);
        rm_aio_stop(&a);
    }
    rm_file_close(&f);
}

/* One countdown for reads here and in rm_file_read(); kinds that it cannot suffer pass it by. */
static void faults_count_with_io(void) {
    rm_file f = {.fd = make_file(BYTES, false), .size = BYTES, .path = "test"};
    remat_error err = {0};
    REQUIRE(f.fd >= 0);
    rm_aio *a = start(true, 4);
    rm_aio_op op = op_of(f.fd, false, back, 0, UNIT), put = op_of(f.fd, true, data, 0, UNIT);
    rm_io_fault_at(3, RM_IO_FAIL);
    rm_aio_begin(a, &op);
    rm_aio_begin(a, &put);
    rm_aio_wait(a, &op);
    rm_aio_wait(a, &put);
    EXPECT(op.error == 0);
    EXPECT(rm_file_read(&f, back, 0, UNIT, &err) == REMAT_OK);
    rm_aio_begin(a, &op);
    EXPECT(op.done && op.error == EIO);
    rm_io_fault_at(2, RM_IO_FAIL);
    rm_aio_begin(a, &op);
    rm_aio_wait(a, &op);
    EXPECT(rm_file_read(&f, back, 0, UNIT, &err) == REMAT_E_FAILED);
    for (rm_io_fault fault = RM_IO_FLIP; fault <= RM_IO_BAD_WRITE; fault++) {
        rm_io_fault_at(1, fault);
        EXPECT(rm_file_read(&f, back, 0, UNIT, &err) == REMAT_OK);
        EXPECT(memcmp(back, data, UNIT) == 0);
        rm_io_fault_at(0, fault);
    }
    rm_aio_stop(&a);
    rm_file_close(&f);
}

/* --- a second descriptor --------------------------------------------------------------------- */

static void a_file_opens_once_more(void) {
    rm_file f = {.fd = make_file(BYTES, false), .size = BYTES, .path = "test"}, second;
    REQUIRE(f.fd >= 0);
    REQUIRE(rm_file_reopen_direct(&second, &f) == REMAT_OK); /* it has no name any more */
    EXPECT(second.fd >= 0 && second.fd != f.fd);
    EXPECT(second.size == f.size && second.path == f.path);
    const int flags = fcntl(second.fd, F_GETFL), before = fcntl(f.fd, F_GETFL);
    EXPECT(((flags & O_DIRECT) != 0) == second.direct);
    EXPECT((flags & O_ACCMODE) == O_RDONLY);
    EXPECT((before & O_DIRECT) == 0);
    EXPECT((fcntl(second.fd, F_GETFD) & FD_CLOEXEC) != 0);
    rm_aio *a = start(true, 4);
    rm_aio_op op = op_of(second.fd, false, back, 0, BYTES);
    rm_aio_begin(a, &op);
    rm_aio_wait(a, &op);
    EXPECT(op.error == 0 && memcmp(back, data, BYTES) == 0);
    rm_aio_stop(&a);
    rm_file_close(&second);
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    const struct rlimit none = {3, most.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    EXPECT(rm_file_reopen_direct(&second, &f) == REMAT_E_FAILED);
    EXPECT(second.fd == -1);
    setrlimit(RLIMIT_NOFILE, &most);
    rm_file_close(&f);
}

/* Without /proc and without O_DIRECT there is a buffered one. */
static bool without_proc(void) {
    rm_file f = {.fd = make_file(BYTES, false), .size = BYTES, .path = "test"}, second;
    if (!deny(SYS_openat, 0, 0, ENOENT)) return false;
    EXPECT(rm_file_reopen_direct(&second, &f) == REMAT_OK);
    EXPECT(second.fd != f.fd && !second.direct);
    EXPECT(pread(second.fd, back, BYTES, 0) == BYTES && memcmp(back, data, BYTES) == 0);
    return true;
}

static bool without_direct(void) {
    rm_file f = {.fd = make_file(BYTES, false), .size = BYTES, .path = "test"}, second;
    if (!deny(SYS_fcntl, 2, O_DIRECT, EINVAL)) return false;
    EXPECT(rm_file_reopen_direct(&second, &f) == REMAT_OK);
    EXPECT(second.fd != f.fd && !second.direct);
    EXPECT((fcntl(second.fd, F_GETFL) & O_DIRECT) == 0);
    EXPECT(pread(second.fd, back, 100, 3) == 100 && memcmp(back, data + 3, 100) == 0);
    return true;
}

static void a_second_one_may_be_buffered(void) {
    if (!in_child(without_proc) || !in_child(without_direct)) SKIP("no seccomp");
}

/* Regular files are opened for ever after without O_NONBLOCK. */
static void opened_files_block(void) {
    rm_file f;
    remat_error err = {0};
    REQUIRE(rm_file_open(&f, "/proc/self/exe", &err) == REMAT_OK);
    EXPECT((fcntl(f.fd, F_GETFL) & O_NONBLOCK) == 0);
    EXPECT(!f.direct);
    rm_file_close(&f);
}

#ifndef RM_SANITIZED
static void nothing_is_allocated(void) {
    const int fd = make_file(BYTES, false);
    REQUIRE(fd >= 0);
    no_malloc_begin();
    for (int w = 0; w < WAY_COUNT; w++) {
        rm_aio *a = start(WAYS[w].ring, WAYS[w].depth);
        write_and_read(a, WAYS[w].depth, fd, 1);
        rm_aio_stop(&a);
    }
    EXPECT_EQ_U64(no_malloc_end(), 0);
    close(fd);
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(every_way_gives_the_same), T(a_file_that_ends_is_an_error),
                  T(errors_are_the_kernels), T(a_read_is_in_flight), T(a_kernel_may_refuse),
                  T(faults_come_when_asked), T(faults_count_with_io), T(a_file_opens_once_more),
                  T(a_second_one_may_be_buffered), T(opened_files_block),
#ifndef RM_SANITIZED
                  T(nothing_is_allocated),
#endif
    );
}
