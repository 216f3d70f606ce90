/* test_spill.c: the file and its directory, slots, what is lost, limits. */
#include "cache/spill.h"
#include "deny.h"
#include "spill_fixture.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

static const char *const PLACES[] = {"/tmp",
                                     "/dev/shm"}; /* the second is memory, where there is one */
enum { PLACE_COUNT = sizeof PLACES / sizeof *PLACES };

/* Slots of both regions, alone and in runs, with several transfers in flight, overwritten. */
static void fill_and_compare(rm_spill *s) {
    static _Alignas(4096) uint8_t memory[4][MEMORY];
    for (uint64_t version = 0; version < 3; version++) {
        for (int r = 0; r < RM_SPILL_REGIONS; r++) {
            const uint64_t slots = s->shape.slot_count[r];
            rm_spill_op ops[4] = {0};
            for (uint64_t slot = 0, turn = 0; slot < slots; turn++) {
                uint64_t count = t_random() % RUN_MAX + 1;
                if (count > slots - slot) count = slots - slot;
                uint8_t *at = memory[turn % 4];
                if (turn >= 4) EXPECT(rm_spill_finish(s, &ops[turn % 4]));
                for (uint64_t i = 0; i < count; i++)
                    fill(at + i * s->stride[r], (rm_spill_region)r, slot + i, version);
                EXPECT(rm_spill_write(s, &ops[turn % 4], (rm_spill_region)r, slot, count, at));
                slot += count;
            }
            for (int i = 0; i < 4; i++)
                EXPECT(rm_spill_finish(s, &ops[i]) == (ops[i].count > 0));
        }
        for (int i = 0; i < 100; i++) {
            const rm_spill_region r = t_random() % 2 ? RM_SPILL_ROWS : RM_SPILL_PAGES;
            const uint64_t slot = t_random() % s->shape.slot_count[r];
            uint64_t count = t_random() % RUN_MAX + 1;
            if (count > s->shape.slot_count[r] - slot) count = s->shape.slot_count[r] - slot;
            EXPECT(get(s, r, slot, count, version));
        }
    }
}

static void slots_come_back(void) {
    for (int place = 0; place < PLACE_COUNT; place++) {
        if (access(PLACES[place], W_OK) != 0) continue;
        for (int way = 0; way < 4; way++) {
            rm_spill s;
            rm_spill_shape shape = spill_shape();
            shape.no_ring = way & 1;
            shape.depth = way & 2 ? 64 : 1;
            shape.reserve_pages = 5;
            REQUIRE(open_spill(&s, PLACES[place], &shape));
            if (shape.no_ring) EXPECT(!rm_aio_has_ring(s.aio));
            fill_and_compare(&s);
            EXPECT_EQ_U64(s.used_slots, PAGES);
            EXPECT_EQ_U64(s.used_bytes, PAGES * 12288 + ROWS * 8192);
            EXPECT_EQ_U64(s.written_bytes, 3 * s.used_bytes);
            EXPECT(s.read_bytes > 0 && s.read_bytes % 4096 == 0);
            EXPECT_EQ_U64(s.failed_reads + s.failed_writes, 0);
            EXPECT(s.trouble[0] == '\0');
            close_spill(&s);
        }
    }
}

static void the_file_is_private(void) {
    for (int place = 0; place < PLACE_COUNT; place++) {
        if (access(PLACES[place], W_OK) != 0) continue;
        rm_spill s;
        const rm_spill_shape shape = spill_shape();
        const mode_t before = umask(0777);
        const bool opened = open_spill(&s, PLACES[place], &shape);
        umask(before);
        REQUIRE(opened);
        struct stat st;
        EXPECT(fstat(s.fd, &st) == 0);
        EXPECT_EQ_U64(st.st_mode & 07777, 0600);
        EXPECT_EQ_U64(st.st_nlink, 0);
        EXPECT_EQ_U64((uint64_t)st.st_size, PAGES * 12288 + ROWS * 8192);
        EXPECT((fcntl(s.fd, F_GETFD) & FD_CLOEXEC) != 0);
        EXPECT(((fcntl(s.fd, F_GETFL) & O_DIRECT) != 0) == s.direct);
        EXPECT(entries(spill_dir) == 0);
        if (place == 0) chmod(spill_dir, 0700);
        close_spill(&s);
    }
}

/* A child that writes when it is killed. */
static void nothing_is_left_after_a_kill(void) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(make_spill_dir("/tmp"));
    const pid_t child = fork();
    if (child == 0) {
        rm_spill s;
        rm_ledger l = {0};
        const rm_spill_shape shape = spill_shape();
        if (rm_ledger_open(&l, 1 << 20, 0, NULL) != REMAT_OK ||
            rm_spill_layout(&s, &l, &shape, NULL) != REMAT_OK ||
            rm_spill_start(&s, spill_dir, false, NULL) != REMAT_OK)
            _exit(1);
        for (uint64_t i = 0;; i++) {
            if (!put(&s, RM_SPILL_PAGES, i % PAGES, 1, i)) _exit(2);
            if (i == 10 && write(ends[1], "x", 1) != 1) _exit(3);
        }
    }
    char c = 0;
    close(ends[1]);
    EXPECT(read(ends[0], &c, 1) == 1);
    kill(child, SIGKILL);
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    close(ends[0]);
    EXPECT(entries(spill_dir) == 0);
    EXPECT(rmdir(spill_dir) == 0);
}

/* Starts in dir, which fails with a message that has both texts. */
static void refused(const rm_spill_shape *shape, const char *dir, const char *why,
                    const char *what_to_do) {
    rm_spill s;
    rm_ledger l = {0};
    remat_error err = {0};
    REQUIRE(rm_ledger_open(&l, 1 << 20, 0, &err) == REMAT_OK);
    REQUIRE(rm_spill_layout(&s, &l, shape, &err) == REMAT_OK);
    EXPECT(rm_spill_start(&s, dir, false, &err) == REMAT_E_FAILED);
    EXPECT(s.aio == NULL && s.fd == -1);
    if (strstr(err.message, why) == NULL || strstr(err.message, what_to_do) == NULL)
        t_fail("message: %s", err.message);
    rm_spill_stop(&s);
    rm_ledger_close(&l);
}

static void directories_are_checked(void) {
    rm_spill_shape shape = spill_shape();
    char path[200];
    REQUIRE(make_spill_dir("/tmp"));
    snprintf(path, sizeof path, "%s/absent", spill_dir);
    refused(&shape, path, "absent: no such directory", "create it");
    refused(&shape, "", "no such directory", "create it");
    snprintf(path, sizeof path, "%s/file", spill_dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    refused(&shape, path, "file: is not a directory", "name one");
    unlink(path);
    refused(&shape, "/proc", "spill: /proc: ", "another");
    chmod(spill_dir, 0500);
    if (geteuid() != 0) refused(&shape, spill_dir, "no permission", "another directory");
    chmod(spill_dir, 0700);
    /* Rows are promised, so that they have to fit; pages are not. */
    shape.slot_count[RM_SPILL_ROWS] = 1 << 14;
    shape.slot_bytes[RM_SPILL_ROWS] = 1ull << 44;
    refused(&shape, spill_dir, "MiB are free and", "free some space");
    shape = spill_shape();
    shape.reserve_pages = 10;
    shape.limit_bytes = 10 * 12288 + ROWS * 8192 - 1;
    refused(&shape, spill_dir, "the limit is", "raise it");
    EXPECT(entries(spill_dir) == 0);
    EXPECT(rmdir(spill_dir) == 0);
}

static void the_default_directory_is_made(void) {
    rm_spill s;
    remat_error err = {0};
    const rm_spill_shape shape = spill_shape();
    char path[200];
    REQUIRE(make_spill_dir("/tmp"));
    REQUIRE(rm_ledger_open(&spill_ledger, 1 << 20, 0, &err) == REMAT_OK);
    REQUIRE(rm_spill_layout(&s, &spill_ledger, &shape, &err) == REMAT_OK);
    snprintf(path, sizeof path, "%s/a//b/c/", spill_dir);
    for (int again = 0; again < 2; again++) {
        EXPECT(rm_spill_start(&s, path, true, &err) == REMAT_OK);
        EXPECT(put(&s, RM_SPILL_PAGES, 3, 1, again));
        rm_spill_stop(&s);
        EXPECT(!rm_spill_has(&s, RM_SPILL_PAGES, 3)); /* a new file has nothing of the old one */
    }
    struct stat st;
    static const char *const made[] = {"a/b/c", "a/b", "a"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", spill_dir, made[i]);
        EXPECT(stat(path, &st) == 0 && (st.st_mode & 07777) == 0700);
        EXPECT(rmdir(path) == 0);
    }
    snprintf(path, sizeof path, "%s/file", spill_dir);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    snprintf(path, sizeof path, "%s/file/below", spill_dir);
    EXPECT(rm_spill_start(&s, path, true, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "is not a directory") != NULL);
    snprintf(path, sizeof path, "%s/file", spill_dir);
    unlink(path);
    close_spill(&s);
}

static bool with_small_files(void) {
    const struct rlimit most = {1 << 20, 1 << 20};
    rm_spill_shape shape = spill_shape();
    shape.slot_count[RM_SPILL_PAGES] = 1000;
    if (!make_spill_dir("/tmp") || setrlimit(RLIMIT_FSIZE, &most) != 0) return false;
    refused(&shape, spill_dir, "over the limit for files", "ulimit -f");
    rmdir(spill_dir);
    return true;
}

/* File systems without unnamed files, O_DIRECT, reserved blocks or holes. */
static bool without_features(void) {
    rm_spill s;
    rm_spill_shape shape = spill_shape();
    shape.reserve_pages = PAGES;
    if (!deny(SYS_openat, 2, O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP) ||
        !deny(SYS_fcntl, 2, O_DIRECT, EINVAL) || !deny(SYS_fallocate, 0, 0, EOPNOTSUPP))
        return false;
    if (!open_spill(&s, "/tmp", &shape)) return true;
    struct stat st;
    EXPECT(fstat(s.fd, &st) == 0 && st.st_nlink == 0 && (st.st_mode & 07777) == 0600);
    EXPECT(entries(spill_dir) == 0);
    EXPECT(!s.direct && !s.reserving);
    fill_and_compare(&s);
    rm_spill_forget(&s, RM_SPILL_PAGES, 0, PAGES);
    EXPECT(put(&s, RM_SPILL_PAGES, 7, 1, 1) && get(&s, RM_SPILL_PAGES, 7, 1, 1));
    close_spill(&s);
    return true;
}

static void other_systems_do(void) {
    EXPECT(in_child(with_small_files));
    if (!in_child(without_features)) SKIP("no seccomp");
}

/* --- what a slot holds ----------------------------------------------------------------------- */

static void empty_slots_are_not_read(void) {
    rm_spill s;
    const rm_spill_shape shape = spill_shape();
    REQUIRE(open_spill(&s, "/tmp", &shape));
    EXPECT(!get(&s, RM_SPILL_PAGES, 0, 1, 0));
    EXPECT(put(&s, RM_SPILL_PAGES, 4, 4, 1));
    EXPECT(put(&s, RM_SPILL_ROWS, 15, 1, 1));
    EXPECT_EQ_U64(s.used_slots, 4);
    EXPECT_EQ_U64(s.used_bytes, 4 * 12288 + 8192);
    EXPECT(!get(&s, RM_SPILL_PAGES, 3, 2, 1));
    EXPECT(get(&s, RM_SPILL_PAGES, 4, 4, 1));
    rm_spill_forget(&s, RM_SPILL_PAGES, 5, 1);
    rm_spill_forget(&s, RM_SPILL_PAGES, 5, 0);
    EXPECT_EQ_U64(s.used_slots, 3);
    EXPECT_EQ_U64(s.used_bytes, 3 * 12288 + 8192);
    EXPECT(!rm_spill_has(&s, RM_SPILL_PAGES, 5) && rm_spill_has(&s, RM_SPILL_PAGES, 6));
    EXPECT(rm_spill_has(&s, RM_SPILL_ROWS, 15) && !rm_spill_has(&s, RM_SPILL_ROWS, 5));
    EXPECT(!get(&s, RM_SPILL_PAGES, 4, 2, 1));
    EXPECT(get(&s, RM_SPILL_PAGES, 6, 2, 1));
    EXPECT_EQ_U64(s.failed_reads, 0); /* what was never there did not fail */
    rm_spill_op never = {0};
    EXPECT(!rm_spill_finish(&s, &never));
    close_spill(&s);
}

/* Bytes of a slot's unit, changed behind the spill's back. */
static void change(const rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t at) {
    static _Alignas(4096) uint8_t unit[4096];
    const off_t offset = (off_t)(s->first[region] + slot * s->stride[region] + at / 4096 * 4096);
    EXPECT(pread(s->fd, unit, sizeof unit, offset) == sizeof unit);
    unit[at % 4096] ^= 1;
    EXPECT(pwrite(s->fd, unit, sizeof unit, offset) == sizeof unit);
}

static void a_changed_slot_is_lost_alone(void) {
    rm_spill s;
    const rm_spill_shape shape = spill_shape();
    REQUIRE(open_spill(&s, "/tmp", &shape));
    const uint64_t places[] = {0, 4095, 4096, PAGE_BYTES - 1};
    for (uint64_t k = 0; k < 4; k++) {
        EXPECT(put(&s, RM_SPILL_PAGES, 8, 8, k));
        change(&s, RM_SPILL_PAGES, 10 + k, places[k]);
        EXPECT(!get(&s, RM_SPILL_PAGES, 8, 8, k));
        for (uint64_t slot = 8; slot < 16; slot++)
            EXPECT(rm_spill_has(&s, RM_SPILL_PAGES, slot) == (slot != 10 + k));
        EXPECT(get(&s, RM_SPILL_PAGES, 8, 2 + k, k));
        EXPECT_EQ_U64(s.failed_reads, k + 1);
        EXPECT_EQ_U64(s.used_slots, 7);
    }
    EXPECT(strstr(s.trouble, "not what was written") != NULL);
    EXPECT(put(&s, RM_SPILL_PAGES, 8, 8, 9) && get(&s, RM_SPILL_PAGES, 8, 8, 9));
    change(&s, RM_SPILL_PAGES, 8, PAGE_BYTES); /* between slots: nobody's */
    EXPECT(get(&s, RM_SPILL_PAGES, 8, 8, 9));
    close_spill(&s);
}

static void a_slot_in_anothers_place_is_lost(void) {
    rm_spill s;
    const rm_spill_shape shape = spill_shape();
    REQUIRE(open_spill(&s, "/tmp", &shape));
    rm_spill_op ops[2] = {0};
    memset(slot_out, 7, sizeof slot_out);
    EXPECT(rm_spill_write(&s, &ops[0], RM_SPILL_PAGES, 0, 1, slot_out));
    EXPECT(rm_spill_write(&s, &ops[1], RM_SPILL_PAGES, 1, 1, slot_out));
    EXPECT(rm_spill_finish(&s, &ops[0]) && rm_spill_finish(&s, &ops[1]));
    const uint64_t sum = s.sums[RM_SPILL_PAGES][0];
    s.sums[RM_SPILL_PAGES][0] = s.sums[RM_SPILL_PAGES][1];
    s.sums[RM_SPILL_PAGES][1] = sum;
    EXPECT(!rm_spill_read(&s, &ops[0], RM_SPILL_PAGES, 0, 2, slot_in) ||
           !rm_spill_finish(&s, &ops[0]));
    EXPECT_EQ_U64(s.used_slots, 0);
    close_spill(&s);
}

/* --- how much -------------------------------------------------------------------------------- */

static uint64_t blocks_bytes(const rm_spill *s) {
    struct stat st;
    EXPECT(fstat(s->fd, &st) == 0);
    return (uint64_t)st.st_blocks * 512;
}

static void the_limit_is_kept(void) {
    rm_spill s;
    rm_spill_shape shape = spill_shape();
    shape.reserve_pages = 4;
    shape.limit_bytes = ROWS * 8192 + 10 * 12288 + 100; /* 6 pages more than are reserved */
    REQUIRE(open_spill(&s, "/tmp", &shape));
    EXPECT(put(&s, RM_SPILL_PAGES, 20, 4, 0));
    EXPECT(!put(&s, RM_SPILL_PAGES, 24, 3, 0)); /* two would do */
    EXPECT(put(&s, RM_SPILL_PAGES, 24, 2, 0));
    EXPECT(rm_spill_full(&s));
    EXPECT(!put(&s, RM_SPILL_PAGES, 30, 1, 0));
    EXPECT(put(&s, RM_SPILL_PAGES, 20, 6, 1)); /* again in the same place */
    EXPECT(put(&s, RM_SPILL_PAGES, 0, 4, 1));  /* reserved */
    EXPECT(put(&s, RM_SPILL_ROWS, 0, 8, 1));
    EXPECT(!put(&s, RM_SPILL_PAGES, 3, 2, 2)); /* partly; and what it held is gone */
    EXPECT(!rm_spill_has(&s, RM_SPILL_PAGES, 3));
    EXPECT(!put(&s, RM_SPILL_PAGES, 30, 1, 0));
    rm_spill_forget(&s, RM_SPILL_PAGES, 0, 3);
    EXPECT(rm_spill_full(&s)); /* reserved blocks count in any case */
    rm_spill_forget(&s, RM_SPILL_PAGES, 20, 1);
    EXPECT(!rm_spill_full(&s));
    EXPECT(put(&s, RM_SPILL_PAGES, 30, 1, 0) && get(&s, RM_SPILL_PAGES, 30, 1, 0));
    EXPECT(get(&s, RM_SPILL_PAGES, 21, 5, 1));
    EXPECT_EQ_U64(s.failed_writes, 0);
    EXPECT(s.trouble[0] == '\0'); /* the user asked for it */
    close_spill(&s);
}

static void blocks_are_reserved_and_given_back(void) {
    rm_spill s;
    rm_spill_shape shape = spill_shape();
    shape.slot_count[RM_SPILL_PAGES] = 400;
    shape.reserve_pages = 100;
    REQUIRE(open_spill(&s, "/tmp", &shape));
    const uint64_t reserved = ROWS * 8192 + 100 * 12288;
    if (!s.reserving) SKIP("a file system without fallocate");
    EXPECT(blocks_bytes(&s) >= reserved && blocks_bytes(&s) < reserved + (1 << 20));
    for (uint64_t slot = 0; slot < 400; slot += 8)
        EXPECT(put(&s, RM_SPILL_PAGES, slot, 8, 0));
    EXPECT(blocks_bytes(&s) >= ROWS * 8192 + 400 * 12288);
    rm_spill_forget(&s, RM_SPILL_PAGES, 396, 4); /* too few to bother */
    EXPECT(blocks_bytes(&s) >= ROWS * 8192 + 400 * 12288);
    rm_spill_forget(&s, RM_SPILL_PAGES, 50, 340);
    EXPECT(blocks_bytes(&s) >= reserved && blocks_bytes(&s) < reserved + (1 << 20));
    EXPECT_EQ_U64(s.used_slots, 56);
    for (uint64_t slot = 0; slot < 48; slot += 8)
        EXPECT(get(&s, RM_SPILL_PAGES, slot, 8, 0));
    EXPECT(get(&s, RM_SPILL_PAGES, 390, 6, 0));
    EXPECT(put(&s, RM_SPILL_PAGES, 200, 8, 1) && get(&s, RM_SPILL_PAGES, 200, 8, 1));
    close_spill(&s);
}

static void layout_measures_what_it_takes(void) {
    rm_spill s;
    rm_ledger l = {0};
    remat_error err = {0};
    rm_spill_shape shape = spill_shape();
    rm_ledger_measure(&l);
    EXPECT(rm_spill_layout(&s, &l, &shape, &err) == REMAT_OK);
    const uint64_t bytes = l.owned[RM_ACCOUNT_KV_STAGE];
    EXPECT_EQ_U64(bytes, l.carved);
    EXPECT(bytes >= 8 * (PAGES + ROWS) + rm_aio_bytes(RM_SPILL_DEPTH));
    EXPECT(rm_ledger_open(&l, 1 << 20, 0, &err) == REMAT_OK);
    EXPECT(rm_spill_layout(&s, &l, &shape, &err) == REMAT_OK);
    EXPECT_EQ_U64(l.carved, bytes);
    rm_spill_stop(&s); /* never started */
    const uint64_t carves = l.carve_count;
    for (uint64_t n = 1; n <= carves; n++) {
        rm_ledger_fail_at(&l, n);
        EXPECT(rm_spill_layout(&s, &l, &shape, &err) == REMAT_E_BUDGET);
    }
    rm_ledger_fail_at(&l, 0);
    shape.slot_bytes[RM_SPILL_ROWS] = 1ull << 60;
    EXPECT(rm_spill_layout(&s, &l, &shape, &err) == REMAT_E_BUDGET);
    EXPECT(strstr(err.message, "no file can be that large") != NULL);
    rm_ledger_close(&l);
    EXPECT_EQ_U64(rm_spill_stride(1), 4096);
    EXPECT_EQ_U64(rm_spill_stride(4096), 4096);
    EXPECT_EQ_U64(rm_spill_stride(4097), 8192);
}

#ifndef RM_SANITIZED
static void nothing_is_allocated(void) {
    rm_spill s;
    const rm_spill_shape shape = spill_shape();
    remat_error err = {0};
    REQUIRE(make_spill_dir("/tmp"));
    REQUIRE(rm_ledger_open(&spill_ledger, 1 << 20, 0, &err) == REMAT_OK);
    no_malloc_begin();
    (void)rm_spill_layout(&s, &spill_ledger, &shape, &err);
    (void)rm_spill_start(&s, "absent", false, &err);
    const bool started = rm_spill_start(&s, spill_dir, true, &err) == REMAT_OK;
    if (started) {
        fill_and_compare(&s);
        rm_spill_forget(&s, RM_SPILL_PAGES, 0, PAGES);
        rm_spill_stop(&s);
    }
    EXPECT_EQ_U64(no_malloc_end(), 0);
    EXPECT(started);
    close_spill(&s);
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(slots_come_back), T(the_file_is_private),
                  T(nothing_is_left_after_a_kill), T(directories_are_checked),
                  T(the_default_directory_is_made), T(other_systems_do),
                  T(empty_slots_are_not_read), T(a_changed_slot_is_lost_alone),
                  T(a_slot_in_anothers_place_is_lost), T(the_limit_is_kept),
                  T(blocks_are_reserved_and_given_back), T(layout_measures_what_it_takes),
#ifndef RM_SANITIZED
                  T(nothing_is_allocated),
#endif
    );
}
