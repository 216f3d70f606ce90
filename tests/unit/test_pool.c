/* test_pool.c: blocks are distinct, zeroed, and come back; "full" is an answer. */
#include "base/pool.h"
#include "harness.h"

#include <sys/mman.h>

enum { BLOCKS = 37, BLOCK_BYTES = 192 };

static bool make(rm_ledger *l, rm_pool *p) {
    remat_error err = {0};
    if (rm_ledger_open(l, 1 << 20, 4096, &err) != REMAT_OK) return false;
    if (rm_pool_layout(p, l, RM_ACCOUNT_KV, BLOCKS, BLOCK_BYTES, &err) != REMAT_OK) return false;
    rm_pool_start(p);
    return true;
}

static void lowest_first_then_full(void) {
    rm_ledger l = {0};
    rm_pool p;
    REQUIRE(make(&l, &p));
    EXPECT_EQ_U64(rm_pool_free(&p), BLOCKS);
    for (int32_t i = 0; i < BLOCKS; i++) {
        REQUIRE(rm_pool_take(&p) == i);
        EXPECT(rm_pool_at(&p, i) == p.blocks + i * BLOCK_BYTES);
    }
    EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
    EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
    EXPECT_EQ_U64(rm_pool_free(&p), 0);
    EXPECT_EQ_U64(p.high_water, BLOCKS);
    rm_pool_give(&p, 11);
    EXPECT_EQ_U64(rm_pool_free(&p), 1);
    EXPECT(rm_pool_take(&p) == 11);
    EXPECT_EQ_U64(p.high_water, BLOCKS);
    rm_ledger_close(&l);
}

/* Random taking and giving; each block taken holds its own number until it is given back. */
static void blocks_do_not_overlap(void) {
    rm_ledger l = {0};
    rm_pool p;
    bool held[BLOCKS] = {false};
    uint32_t count = 0, most = 0;
    REQUIRE(make(&l, &p));
    for (int step = 0; step < 5000; step++) {
        if (t_random() % 2 == 0) {
            const int32_t b = rm_pool_take(&p);
            if (b == RM_POOL_NONE) {
                EXPECT_EQ_U64(count, BLOCKS);
                continue;
            }
            REQUIRE(b >= 0 && b < BLOCKS && !held[b]);
            uint8_t *bytes = rm_pool_at(&p, b);
            for (int i = 0; i < BLOCK_BYTES; i++)
                REQUIRE(bytes[i] == 0);
            memset(bytes, b + 1, BLOCK_BYTES);
            held[b] = true;
            if (++count > most) most = count;
        } else {
            const int32_t b = (int32_t)(t_random() % BLOCKS);
            if (!held[b]) continue;
            const uint8_t *bytes = rm_pool_at(&p, b);
            for (int i = 0; i < BLOCK_BYTES; i++)
                REQUIRE(bytes[i] == b + 1);
            rm_pool_give(&p, b);
            held[b] = false;
            count--;
        }
        EXPECT_EQ_U64(rm_pool_free(&p), BLOCKS - count);
    }
    EXPECT_EQ_U64(p.high_water, most);
    rm_ledger_close(&l);
}

static void measured_and_refused(void) {
    rm_ledger plan, l = {0};
    rm_pool p;
    remat_error err = {0};
    rm_ledger_measure(&plan);
    REQUIRE(rm_pool_layout(&p, &plan, RM_ACCOUNT_KV, BLOCKS, BLOCK_BYTES, &err) == REMAT_OK);
    EXPECT(plan.owned[RM_ACCOUNT_KV] >= BLOCKS * (BLOCK_BYTES + sizeof(int32_t)));
    REQUIRE(rm_ledger_open(&l, plan.carved + 4095, 4096, &err) == REMAT_OK);
    EXPECT(rm_pool_layout(&p, &l, RM_ACCOUNT_KV, BLOCKS, BLOCK_BYTES, &err) == REMAT_E_BUDGET);
    rm_ledger_close(&l);
}

static void none_is_a_number_of_blocks_too(void) {
    rm_ledger l = {0};
    rm_pool p;
    remat_error err = {0};
    REQUIRE(rm_ledger_open(&l, 1 << 20, 4096, &err) == REMAT_OK);
    REQUIRE(rm_pool_layout(&p, &l, RM_ACCOUNT_KV, 0, 64, &err) == REMAT_OK);
    rm_pool_start(&p);
    EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
    rm_ledger_close(&l);
}

/* No more are taken than the limit says; a limit under what is taken waits until some are given. */
static void a_limit_holds(void) {
    rm_ledger l = {0};
    rm_pool p;
    REQUIRE(make(&l, &p));
    p.limit = 10;
    for (int32_t i = 0; i < 10; i++)
        REQUIRE(rm_pool_take(&p) == i);
    EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
    p.limit = 5;
    for (int32_t i = 0; i < 6; i++) {
        EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
        rm_pool_give(&p, i);
    }
    EXPECT(rm_pool_take(&p) == 5); /* given last */
    EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
    p.limit = BLOCKS;
    for (uint32_t i = p.taken; i < BLOCKS; i++)
        EXPECT(rm_pool_take(&p) != RM_POOL_NONE);
    EXPECT(rm_pool_take(&p) == RM_POOL_NONE);
    rm_ledger_close(&l);
}

static uint64_t resident(const rm_pool *p) {
    enum { PAGE = 4096 };
    unsigned char in[64];
    uint8_t *first = p->blocks - (uintptr_t)p->blocks % PAGE;
    const uint64_t pages = (p->count * p->block_bytes + PAGE - 1) / PAGE;
    uint64_t n = 0;
    if (pages > sizeof in || mincore(first, pages * PAGE, in) != 0) return UINT64_MAX;
    for (uint64_t i = 0; i < pages; i++)
        n += in[i] & 1;
    return n;
}

/* Free blocks go back to the system in whole pages, taken ones keep what they hold; and then the
 * lowest are taken first, as at the start. */
static void trimmed_blocks_are_gone(void) {
    enum { COUNT = 8 };
    static const uint64_t sizes[] = {4096, 8192, 6144, 1024};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        rm_ledger l = {0};
        rm_pool p;
        remat_error err = {0};
        const uint64_t size = sizes[k];
        REQUIRE(rm_ledger_open(&l, 1 << 20, 4096, &err) == REMAT_OK);
        REQUIRE(rm_pool_layout(&p, &l, RM_ACCOUNT_KV, COUNT, size, &err) == REMAT_OK);
        rm_pool_start(&p);
        EXPECT_EQ_U64(resident(&p), 0);
        for (int32_t i = 0; i < COUNT; i++) {
            REQUIRE(rm_pool_take(&p) == i);
            memset(rm_pool_at(&p, i), i + 1, size);
        }
        rm_pool_trim(&p, &l);
        EXPECT_EQ_U64(resident(&p), (COUNT * size + 4095) / 4096);
        for (int32_t i = COUNT - 1; i >= 0; i--) {
            if (i != 3) rm_pool_give(&p, i);
        }
        rm_pool_trim(&p, &l);
        EXPECT(resident(&p) <= (size + 4095) / 4096 + 1 + (size < 4096));
        EXPECT(resident(&p) >= size / 4096);
        const uint8_t *kept = rm_pool_at(&p, 3);
        EXPECT(kept[0] == 4 && kept[size - 1] == 4);
        static const int32_t order[] = {0, 1, 2, 4, 5, 6, 7, RM_POOL_NONE};
        for (int i = 0; i < COUNT; i++) {
            const int32_t b = rm_pool_take(&p);
            EXPECT(b == order[i]);
            const uint8_t *bytes = b != RM_POOL_NONE ? rm_pool_at(&p, b) : NULL;
            EXPECT(bytes == NULL || (bytes[0] == 0 && bytes[size - 1] == 0));
        }
        for (int32_t i = 0; i < COUNT; i++)
            rm_pool_give(&p, i);
        rm_pool_trim(&p, &l);
        EXPECT(resident(&p) <= (size % 4096 != 0)); /* the end shares a page with what is behind */
        rm_ledger_close(&l);
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(lowest_first_then_full), T(blocks_do_not_overlap),
                  T(measured_and_refused), T(none_is_a_number_of_blocks_too), T(a_limit_holds),
                  T(trimmed_blocks_are_gone));
}
