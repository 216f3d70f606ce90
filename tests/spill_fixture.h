/* spill_fixture.h: a spill file in a directory of its own, and slots whose contents are known. */
#ifndef RM_TESTS_SPILL_FIXTURE_H
#define RM_TESTS_SPILL_FIXTURE_H

#include "harness.h"

#include "cache/spill.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE_BYTES = 10000, /* 3 units in the file */
    ROW_BYTES = 8192,
    PAGES = 64,
    ROWS = 16,
    RUN_MAX = 8, /* slots of one transfer */
    MEMORY = RUN_MAX * 12288
};

static _Alignas(4096) uint8_t slot_out[MEMORY], slot_in[MEMORY];
static char spill_dir[128];
static rm_ledger spill_ledger;

static inline rm_spill_shape spill_shape(void) {
    return (rm_spill_shape){.slot_bytes = {PAGE_BYTES, ROW_BYTES}, .slot_count = {PAGES, ROWS}};
}

/* What slot contains in its version-th writing. */
static inline void fill(uint8_t *at, rm_spill_region region, uint64_t slot, uint64_t version) {
    const uint64_t bytes = region == RM_SPILL_PAGES ? PAGE_BYTES : ROW_BYTES;
    uint64_t x = (slot * 2 + region) * 1000003 + version + 1;
    for (uint64_t i = 0; i < bytes; i += sizeof x) { /* both sizes are whole words */
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(at + i, &x, sizeof x);
    }
}

static inline bool is_slot(const uint8_t *at, rm_spill_region region, uint64_t slot,
                           uint64_t version) {
    static uint8_t want[12288];
    fill(want, region, slot, version);
    return memcmp(at, want, region == RM_SPILL_PAGES ? PAGE_BYTES : ROW_BYTES) == 0;
}

static inline bool make_spill_dir(const char *above) {
    snprintf(spill_dir, sizeof spill_dir, "%.100s/remat_spill_XXXXXX", above);
    return mkdtemp(spill_dir) != NULL;
}

/* Entries of a directory; -1: none there. */
static inline int entries(const char *path) {
    DIR *d = opendir(path);
    if (d == NULL) return -1;
    int count = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

/* Lays out and starts a spill in a new directory below above. */
static inline bool open_spill(rm_spill *s, const char *above, const rm_spill_shape *shape) {
    remat_error err = {0};
    if (!make_spill_dir(above)) return false;
    if (rm_ledger_open(&spill_ledger, 1 << 20, 0, &err) == REMAT_OK &&
        rm_spill_layout(s, &spill_ledger, shape, &err) == REMAT_OK &&
        rm_spill_start(s, spill_dir, false, &err) == REMAT_OK)
        return true;
    t_fail("%s", err.message);
    return false;
}

static inline void close_spill(rm_spill *s) {
    rm_spill_stop(s);
    EXPECT(s->fd == -1 && s->aio == NULL);
    rm_spill_stop(s);
    rm_ledger_close(&spill_ledger);
    EXPECT(entries(spill_dir) == 0);
    EXPECT(rmdir(spill_dir) == 0);
}

/* Writes slots of a version and waits. */
static inline bool put(rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count,
                       uint64_t version) {
    rm_spill_op op = {0};
    for (uint64_t i = 0; i < count; i++)
        fill(slot_out + i * s->stride[region], region, slot + i, version);
    const bool begun = rm_spill_write(s, &op, region, slot, count, slot_out);
    const bool ok = rm_spill_finish(s, &op);
    EXPECT(begun || !ok);
    EXPECT(rm_spill_finish(s, &op) == ok);
    return ok;
}

/* Reads slots; true when they came, and then they are right. */
static inline bool get(rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count,
                       uint64_t version) {
    rm_spill_op op = {0};
    memset(slot_in, 0, sizeof slot_in);
    const bool begun = rm_spill_read(s, &op, region, slot, count, slot_in);
    const bool ok = rm_spill_finish(s, &op);
    EXPECT(begun || !ok);
    for (uint64_t i = 0; ok && i < count; i++)
        EXPECT(is_slot(slot_in + i * s->stride[region], region, slot + i, version));
    return ok;
}

#endif /* RM_TESTS_SPILL_FIXTURE_H */
