/*
 * test_spill_fault.c: every transfer of a busy spill file fails once in each way, and a disk is
 * really full. What comes back is right, or it is known to be lost; the file goes on being of use.
 */
#include "cache/spill.h"
#include "deny.h"
#include "spill_fixture.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

enum { STEPS = 40, FLIGHT = 3 };

/* What a slot should hold, and whether the last thing known of it is that it holds it. */
typedef struct model {
    uint64_t version[RM_SPILL_REGIONS][PAGES];
    bool held[RM_SPILL_REGIONS][PAGES];
    uint64_t failed; /* transfers that were begun and failed */
} model;

static void follow(model *m, const rm_spill *s, const rm_spill_op *op, bool ok) {
    if (!ok) m->failed++;
    for (uint64_t slot = op->slot; slot < op->slot + op->count; slot++) {
        const bool has = rm_spill_has(s, op->region, slot);
        if (ok) EXPECT(has);
        if (!ok && op->io.write) EXPECT(!has);
        EXPECT(m->held[op->region][slot] || op->io.write || !has);
        m->held[op->region][slot] = has;
    }
}

/* Every slot: held as the model says, and then right. */
static void compare(model *m, rm_spill *s) {
    uint64_t used = 0;
    for (int r = 0; r < RM_SPILL_REGIONS; r++) {
        for (uint64_t slot = 0; slot < s->shape.slot_count[r]; slot++) {
            const rm_spill_region region = (rm_spill_region)r;
            EXPECT(rm_spill_has(s, region, slot) == m->held[r][slot]);
            EXPECT(get(s, region, slot, 1, m->version[r][slot]) == m->held[r][slot]);
            used += m->held[r][slot] && region == RM_SPILL_PAGES;
        }
    }
    EXPECT_EQ_U64(s->used_slots, used);
}

/* Writes and reads of random slots, always the same ones, up to FLIGHT at once on slots apart. */
static void work(model *m, rm_spill *s) {
    static _Alignas(4096) uint8_t memory[FLIGHT][MEMORY];
    rm_spill_op ops[FLIGHT];
    bool begun[FLIGHT];
    uint64_t x = 88172645463325252u;
    for (int step = 0; step < STEPS; step++) {
        for (int k = 0; k < FLIGHT; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            const rm_spill_region r = x >> 20 & 1 ? RM_SPILL_ROWS : RM_SPILL_PAGES;
            const uint64_t part = s->shape.slot_count[r] / FLIGHT, count = (x >> 24) % 2 + 1;
            const uint64_t slot = (uint64_t)k * part + (x >> 32) % (part - count + 1);
            if ((x >> 28) % 5 < 2) {
                for (uint64_t i = 0; i < count; i++) {
                    m->version[r][slot + i] = x + i;
                    fill(memory[k] + i * s->stride[r], r, slot + i, x + i);
                }
                begun[k] = rm_spill_write(s, &ops[k], r, slot, count, memory[k]);
                for (uint64_t i = 0; !begun[k] && i < count; i++)
                    m->held[r][slot + i] = false;
            } else {
                memset(memory[k], 0, MEMORY);
                begun[k] = rm_spill_read(s, &ops[k], r, slot, count, memory[k]);
                bool all = true;
                for (uint64_t i = 0; i < count; i++)
                    all = all && m->held[r][slot + i];
                EXPECT(begun[k] == all);
            }
        }
        for (int k = 0; k < FLIGHT; k++) {
            const bool ok = rm_spill_finish(s, &ops[k]);
            if (!begun[k]) EXPECT(!ok);
            if (begun[k]) follow(m, s, &ops[k], ok);
            for (uint64_t i = 0; ok && i < ops[k].count; i++) {
                const rm_spill_region r = ops[k].region;
                const uint64_t slot = ops[k].slot + i;
                EXPECT(is_slot(memory[k] + i * s->stride[r], r, slot, m->version[r][slot]));
            }
        }
    }
}

/* The n-th transfer suffers the fault, n = 1, 2, .. until none is left. One fault costs one
 * transfer, or none where it only cuts it in two. */
static void each_transfer(rm_io_fault fault, bool no_ring) {
    rm_spill_shape shape = spill_shape();
    shape.no_ring = no_ring;
    const bool reading = fault == RM_IO_FAIL || fault == RM_IO_SHORT || fault == RM_IO_FLIP;
    /* Memory is faster, a disk is what really is in flight. */
    const char *place = no_ring && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    uint64_t n = 1;
    for (bool left = true; left; n++) {
        rm_spill s;
        model m = {.failed = 0};
        REQUIRE(open_spill(&s, place, &shape));
        rm_io_fault_at(n, fault);
        work(&m, &s);
        rm_io_fault_at(0, fault);
        left = m.failed > 0 || (fault == RM_IO_PART && n < 100);
        EXPECT(m.failed <= 1);
        EXPECT_EQ_U64(s.failed_reads, reading ? m.failed : 0);
        EXPECT_EQ_U64(s.failed_writes, reading ? 0 : m.failed);
        EXPECT((s.trouble[0] != '\0') == (m.failed > 0));
        EXPECT(strchr(s.trouble, '\n') == NULL && strlen(s.trouble) < sizeof s.trouble - 1);
        EXPECT(rm_spill_full(&s) == (!reading && m.failed > 0));
        compare(&m, &s);
        if (!s.broken) {
            /* Forgetting heals a full disk, if there was something to forget. */
            const bool something = s.used_slots > 0;
            rm_spill_forget(&s, RM_SPILL_PAGES, 0, PAGES);
            EXPECT(!rm_spill_full(&s) || !something);
            memset(m.held[RM_SPILL_PAGES], 0, sizeof m.held[RM_SPILL_PAGES]);
            work(&m, &s);
            compare(&m, &s);
        } else {
            rm_spill_forget(&s, RM_SPILL_PAGES, 0, PAGES);
            EXPECT(rm_spill_full(&s) && !put(&s, RM_SPILL_ROWS, 0, 1, 0));
        }
        close_spill(&s);
        REQUIRE(n < 1000);
    }
    printf("     %" PRIu64 " transfers\n", n - 2);
    EXPECT(n > (reading ? 20 : 40));
}

static void nth_read_fails(void) {
    each_transfer(RM_IO_FAIL, false);
    each_transfer(RM_IO_FAIL, true);
}

static void nth_read_is_short(void) {
    each_transfer(RM_IO_SHORT, false);
    each_transfer(RM_IO_SHORT, true);
}

static void nth_read_has_a_flipped_bit(void) {
    each_transfer(RM_IO_FLIP, false);
    each_transfer(RM_IO_FLIP, true);
}

static void nth_write_finds_no_space(void) {
    each_transfer(RM_IO_FULL, false);
    each_transfer(RM_IO_FULL, true);
}

static void nth_write_fails(void) {
    each_transfer(RM_IO_BAD_WRITE, false);
    each_transfer(RM_IO_BAD_WRITE, true);
}

static void nth_transfer_comes_in_two(void) {
    each_transfer(RM_IO_PART, false);
    each_transfer(RM_IO_PART, true);
}

/* After "no space": reserved slots are written, others are not, without I/O; forgetting heals. */
static void a_full_disk_refuses_at_once(void) {
    rm_spill s;
    rm_spill_shape shape = spill_shape();
    shape.reserve_pages = 8;
    REQUIRE(open_spill(&s, "/tmp", &shape));
    EXPECT(put(&s, RM_SPILL_PAGES, 20, 2, 0));
    rm_io_fault_at(1, RM_IO_FULL);
    EXPECT(!put(&s, RM_SPILL_PAGES, 30, 1, 0));
    EXPECT(rm_spill_full(&s));
    EXPECT(strstr(s.trouble, "No space left") != NULL);
    const uint64_t written = s.written_bytes;
    rm_io_fault_at(1, RM_IO_BAD_WRITE); /* stays unused: nothing is tried */
    EXPECT(!put(&s, RM_SPILL_PAGES, 31, 1, 0));
    EXPECT(!put(&s, RM_SPILL_PAGES, 7, 2, 0));
    EXPECT_EQ_U64(s.written_bytes, written);
    EXPECT_EQ_U64(s.failed_writes, 1);
    rm_io_fault_at(0, RM_IO_BAD_WRITE);
    EXPECT(get(&s, RM_SPILL_PAGES, 20, 2, 0));
    if (s.reserving) {
        EXPECT(put(&s, RM_SPILL_PAGES, 0, 8, 0) && get(&s, RM_SPILL_PAGES, 0, 8, 0));
        EXPECT(put(&s, RM_SPILL_ROWS, 0, 8, 0) && get(&s, RM_SPILL_ROWS, 0, 8, 0));
    }
    rm_spill_forget(&s, RM_SPILL_PAGES, 40, 4); /* there was nothing */
    EXPECT(rm_spill_full(&s));
    rm_spill_forget(&s, RM_SPILL_PAGES, 20, 1);
    EXPECT(!rm_spill_full(&s));
    EXPECT(put(&s, RM_SPILL_PAGES, 20, 1, 1) && get(&s, RM_SPILL_PAGES, 20, 1, 1));
    close_spill(&s);
}

/* A file system of 512 KiB in memory: 42 pages at most. */
static bool on_a_small_disk(void) {
    char place[100];
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    if (!make_spill_dir("/tmp")) return false;
    snprintf(place, sizeof place, "%.90s", spill_dir);
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("spill", place, "tmpfs", 0, "size=512k,mode=0700") != 0) {
        rmdir(place);
        return false;
    }
    rm_spill s;
    rm_spill_shape shape = spill_shape();
    shape.reserve_pages = 50; /* more than there is */
    remat_error err = {0};
    EXPECT(rm_ledger_open(&spill_ledger, 1 << 20, 0, &err) == REMAT_OK);
    EXPECT(rm_spill_layout(&s, &spill_ledger, &shape, &err) == REMAT_OK);
    EXPECT(rm_spill_start(&s, place, false, &err) == REMAT_E_FAILED);
    if (strstr(err.message, "MiB are free") == NULL) t_fail("message: %s", err.message);
    rm_ledger_close(&spill_ledger);

    shape.reserve_pages = 4;
    if (open_spill(&s, place, &shape)) {
        EXPECT(s.in_memory);
        uint64_t taken = 0;
        for (uint64_t slot = 4; slot < PAGES; slot++)
            taken += put(&s, RM_SPILL_PAGES, slot, 1, 0);
        EXPECT(taken > 10 && taken < 43);
        EXPECT(rm_spill_full(&s));
        EXPECT_EQ_U64(s.failed_writes, 1);
        EXPECT_EQ_U64(s.used_slots, taken);
        EXPECT(put(&s, RM_SPILL_PAGES, 0, 4, 0)); /* was reserved */
        EXPECT(put(&s, RM_SPILL_ROWS, 0, 8, 0) && put(&s, RM_SPILL_ROWS, 8, 8, 0));
        EXPECT(get(&s, RM_SPILL_PAGES, 0, 4, 0) && get(&s, RM_SPILL_ROWS, 8, 8, 0));
        for (uint64_t slot = 4; slot < 4 + taken; slot++)
            EXPECT(get(&s, RM_SPILL_PAGES, slot, 1, 0));
        rm_spill_forget(&s, RM_SPILL_PAGES, 4, 1);
        EXPECT(put(&s, RM_SPILL_PAGES, 4, 1, 1) && get(&s, RM_SPILL_PAGES, 4, 1, 1));
        close_spill(&s);
    }
    umount(place);
    rmdir(place);
    return true;
}

static void a_small_disk_fills(void) {
    if (!in_child(on_a_small_disk)) SKIP("nothing may be mounted here");
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(nth_read_fails), T(nth_read_is_short),
                  T(nth_read_has_a_flipped_bit), T(nth_write_finds_no_space), T(nth_write_fails),
                  T(nth_transfer_comes_in_two), T(a_full_disk_refuses_at_once),
                  T(a_small_disk_fills));
}
