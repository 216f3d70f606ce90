/* test_io.c: what can be opened, whole reads, the window, injected faults. */
#include "base/io.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 300000 };

static char dir[64];

static const char *path_of(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static bool make_dir(void) {
    snprintf(dir, sizeof dir, "/tmp/remat_io_XXXXXX");
    return mkdtemp(dir) != NULL;
}

static void remove_dir(void) {
    unlink(path_of("fifo"));
    unlink(path_of("file"));
    rmdir(dir);
}

static uint8_t byte_at(uint64_t i) {
    return (uint8_t)(i * 7 + (i >> 8) * 13);
}

/* A file in memory whose bytes are byte_at(). */
static bool make_file(rm_file *f, uint64_t bytes) {
    static uint8_t data[FILE_BYTES];
    remat_error err = {0};
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = byte_at(i);
    *f = (rm_file){.fd = memfd_create("test", MFD_CLOEXEC), .size = bytes, .path = "dir/test"};
    return f->fd >= 0 && rm_write_all(f->fd, data, bytes, &err) == REMAT_OK;
}

static void refused(const char *path, const char *reason) {
    rm_file f;
    remat_error err = {0};
    EXPECT(rm_file_open(&f, path, &err) == REMAT_E_FAILED);
    EXPECT(f.fd == -1);
    if (strstr(err.message, reason) == NULL || strstr(err.message, rm_path_tail(path)) == NULL)
        t_fail("message: %s", err.message);
    rm_file_close(&f); /* allowed on what never opened */
}

static void only_regular_files_open(void) {
    REQUIRE(make_dir());
    REQUIRE(mkfifo(path_of("fifo"), 0600) == 0);
    refused(path_of("fifo"), "not a regular file"); /* and does not wait for a writer */
    refused(dir, "is a directory, not a model file");
    refused("/dev/zero", "not a regular file");
    refused(path_of("absent"), "no such file; check the path");
    refused(path_of("absent/below"), "no such file");
    refused("", "no such file");
    const int fd = open(path_of("file"), O_CREAT | O_WRONLY, 0200);
    REQUIRE(fd >= 0);
    if (geteuid() != 0) refused(path_of("file"), "no permission");
    chmod(path_of("file"), 0600);
    rm_file f;
    remat_error err = {0};
    EXPECT(rm_file_open(&f, path_of("file"), &err) == REMAT_OK);
    EXPECT_EQ_U64(f.size, 0);
    EXPECT((fcntl(f.fd, F_GETFD) & FD_CLOEXEC) != 0);
    rm_file_close(&f);
    close(fd);
    remove_dir();
}

static void long_paths_keep_the_reason(void) {
    char path[3000];
    memset(path, 'd', sizeof path);
    for (size_t i = 0; i < sizeof path; i += 100)
        path[i] = '/';
    snprintf(path + sizeof path - 11, 11, "model.gguf");
    refused(path, "no such file");
    memset(path, 'd', sizeof path - 1);
    refused(path, "cannot open it"); /* a name too long for any file system */
    EXPECT(strcmp(rm_path_tail("short/path"), "short/path") == 0);
    EXPECT(strlen(rm_path_tail(path)) == 120);
}

static void ranges_are_read_whole(void) {
    static uint8_t out[FILE_BYTES];
    rm_file f;
    remat_error err = {0};
    REQUIRE(make_file(&f, FILE_BYTES));
    for (int i = 0; i < 200; i++) {
        const uint64_t at = t_random() % FILE_BYTES, bytes = t_random() % (FILE_BYTES - at + 1);
        REQUIRE(rm_file_read(&f, out, at, bytes, &err) == REMAT_OK);
        for (uint64_t k = 0; k < bytes; k += 97)
            REQUIRE(out[k] == byte_at(at + k));
    }
    EXPECT(rm_file_read(&f, out, FILE_BYTES, 0, &err) == REMAT_OK);
    EXPECT(rm_file_read(&f, out, FILE_BYTES - 1, 2, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "became shorter while reading") != NULL);
    EXPECT(rm_file_read(&f, out, UINT64_MAX - 1, 4, &err) == REMAT_E_FAILED);
    EXPECT(rm_file_read(&f, out, INT64_MAX, 4, &err) == REMAT_E_FAILED);
    REQUIRE(ftruncate(f.fd, 1000) == 0);
    EXPECT(rm_file_read(&f, out, 0, 2000, &err) == REMAT_E_FAILED);
    rm_file_close(&f);
    EXPECT(f.fd == -1);
}

static void a_window_reads_what_a_range_reads(void) {
    static const size_t windows[] = {1, 7, 64, 4096, 65536, 400000};
    static uint8_t window[400000], out[FILE_BYTES];
    rm_file f;
    remat_error err = {0};
    REQUIRE(make_file(&f, FILE_BYTES));
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        rm_reader r;
        const uint64_t from = w * 1001;
        rm_reader_start(&r, &f, window, windows[w], from);
        for (uint64_t at = from; at < FILE_BYTES;) {
            const uint64_t left = FILE_BYTES - at;
            EXPECT_EQ_U64(rm_reader_left(&r), left);
            EXPECT_EQ_U64(r.at, at);
            /* Mostly short, sometimes longer than the window. */
            uint64_t n = t_random() % (t_random() % 4 == 0 ? 30000 : 300);
            if (n > left) n = left;
            if (t_random() % 3 == 0) {
                rm_reader_skip(&r, n);
            } else {
                REQUIRE(rm_reader_read(&r, out, n, &err) == REMAT_OK);
                for (uint64_t k = 0; k < n; k++)
                    REQUIRE(out[k] == byte_at(at + k));
            }
            at += n;
        }
        EXPECT_EQ_U64(rm_reader_left(&r), 0);
        EXPECT(rm_reader_read(&r, out, 0, &err) == REMAT_OK);
    }
    rm_file_close(&f);
}

static void faults_come_when_asked(void) {
    uint8_t out[1000];
    rm_file f;
    remat_error err = {0};
    REQUIRE(make_file(&f, 1000));
    rm_io_fault_at(2, RM_IO_FAIL);
    EXPECT(rm_file_read(&f, out, 0, 1000, &err) == REMAT_OK);
    EXPECT(rm_file_read(&f, out, 0, 1000, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "dir/test: read at 0 failed") != NULL);
    EXPECT(rm_file_read(&f, out, 0, 1000, &err) == REMAT_OK);
    rm_io_fault_at(1, RM_IO_SHORT);
    EXPECT(rm_file_read(&f, out, 0, 1000, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "became shorter while reading (it ends at 500)") != NULL);
    rm_io_fault_at(1, RM_IO_SHORT);
    EXPECT(rm_file_read(&f, out, 3, 1, &err) == REMAT_E_FAILED);
    rm_io_fault_at(1, RM_IO_FAIL);
    rm_io_fault_at(0, RM_IO_FAIL); /* taken back */
    EXPECT(rm_file_read(&f, out, 0, 1000, NULL) == REMAT_OK);
    rm_file_close(&f);
}

/* A slow reader of a non-blocking pipe, and signals: writing must come through all of it. */
typedef struct {
    int fd;
    uint64_t bytes, wrong;
} drain;

static void *drain_main(void *user) {
    drain *d = user;
    uint8_t part[4096];
    for (;;) {
        const ssize_t got = read(d->fd, part, sizeof part);
        if (got <= 0) return NULL;
        for (ssize_t i = 0; i < got; i++)
            d->wrong += part[i] != byte_at(d->bytes + (uint64_t)i);
        d->bytes += (uint64_t)got;
        const struct timespec t = {0, 100000};
        nanosleep(&t, NULL);
    }
}

static void on_signal(int number) {
    (void)number;
}

static void writing_goes_through(void) {
    static uint8_t data[FILE_BYTES];
    int ends[2];
    remat_error err = {0};
    pthread_t handle;
    for (uint64_t i = 0; i < FILE_BYTES; i++)
        data[i] = byte_at(i);
    REQUIRE(pipe(ends) == 0);
    REQUIRE(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART */
    sigaction(SIGALRM, &action, NULL);
    drain d = {.fd = ends[0]};
    REQUIRE(pthread_create(&handle, NULL, drain_main, &d) == 0);
    ualarm(1000, 1000);
    EXPECT(rm_write_all(ends[1], data, FILE_BYTES, &err) == REMAT_OK);
    ualarm(0, 0);
    close(ends[1]);
    pthread_join(handle, NULL);
    close(ends[0]);
    EXPECT_EQ_U64(d.bytes, FILE_BYTES);
    EXPECT_EQ_U64(d.wrong, 0);

    signal(SIGPIPE, SIG_IGN);
    REQUIRE(pipe(ends) == 0);
    close(ends[0]);
    EXPECT(rm_write_all(ends[1], data, 10, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "output: write failed") != NULL);
    close(ends[1]);
    const int full = open("/dev/full", O_WRONLY);
    if (full >= 0) EXPECT(rm_write_all(full, data, 10, &err) == REMAT_E_FAILED);
    close(full);
}

#ifndef RM_SANITIZED
static void nothing_is_allocated(void) {
    static uint8_t window[4096], out[8192];
    rm_file f;
    rm_reader r;
    remat_error err = {0};
    REQUIRE(make_file(&f, FILE_BYTES));
    no_malloc_begin();
    rm_reader_start(&r, &f, window, sizeof window, 0);
    (void)rm_reader_read(&r, out, sizeof out, &err);
    (void)rm_file_read(&f, out, FILE_BYTES, 1, &err);
    rm_file missing;
    (void)rm_file_open(&missing, "absent", &err);
    rm_io_fault_at(1, RM_IO_FAIL);
    (void)rm_file_read(&f, out, 0, 1, &err);
    EXPECT_EQ_U64(no_malloc_end(), 0);
    rm_file_close(&f);
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(only_regular_files_open), T(long_paths_keep_the_reason),
                  T(ranges_are_read_whole), T(a_window_reads_what_a_range_reads),
                  T(faults_come_when_asked), T(writing_goes_through),
#ifndef RM_SANITIZED
                  T(nothing_is_allocated),
#endif
    );
}
