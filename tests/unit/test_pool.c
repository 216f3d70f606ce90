/* test_pool.c: blocks are distinct, zeroed, and come back; "full" is an answer. */
#include "base/pool.h"
#include "harness.h"

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

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(lowest_first_then_full), T(blocks_do_not_overlap),
                  T(measured_and_refused), T(none_is_a_number_of_blocks_too));
}
