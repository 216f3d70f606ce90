/* test_cache.c: pages held, released, dropped; the pool behind them. No model needed. */
#include "cache/page.h"
#include "harness.h"

enum { LAYERS = 3, COLUMNS = 5, SEQUENCES = 2, PAGES = 8 };

static rm_ledger ledger;
static rm_cache cache;

static bool start(uint32_t page_count) {
    remat_error err = {0};
    const rm_cache_shape shape = {.layer_count = LAYERS,
                                  .kv_head_count = 2,
                                  .head_dim = 16,
                                  .format = RM_KV_F16,
                                  .sequence_count = SEQUENCES,
                                  .column_count = COLUMNS,
                                  .page_count = page_count};
    memset(&ledger, 0, sizeof ledger);
    if (rm_ledger_open(&ledger, 4 << 20, 0, &err) != REMAT_OK) return false;
    if (rm_cache_layout(&cache, &ledger, &shape, &err) != REMAT_OK) return false;
    rm_ledger_freeze(&ledger);
    rm_cache_start(&cache);
    return true;
}

static void nothing_is_held_at_first(void) {
    REQUIRE(start(PAGES));
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t c = 0; c < COLUMNS; c++)
                EXPECT(rm_cache_page(&cache, s, l, c) == NULL);
        }
    }
    EXPECT_EQ_U64(rm_pool_free(&cache.pool), PAGES);
    rm_cache_drop(&cache, 1, 0, COLUMNS); /* dropping nothing is fine */
    rm_cache_release(&cache, 0, 2, 4);
    EXPECT_EQ_U64(rm_pool_free(&cache.pool), PAGES);
    rm_ledger_close(&ledger);
}

static void layout_is_as_measured(void) {
    const rm_cache_shape shape = {.layer_count = LAYERS,
                                  .kv_head_count = 2,
                                  .head_dim = 16,
                                  .format = RM_KV_F16,
                                  .sequence_count = SEQUENCES,
                                  .column_count = COLUMNS,
                                  .page_count = PAGES};
    rm_ledger measured;
    rm_cache other;
    REQUIRE(start(PAGES));
    rm_ledger_measure(&measured);
    EXPECT(rm_cache_layout(&other, &measured, &shape, NULL) == REMAT_OK);
    EXPECT_EQ_U64(measured.owned[RM_ACCOUNT_KV], ledger.owned[RM_ACCOUNT_KV]);
    EXPECT_EQ_U64(measured.carved, ledger.owned[RM_ACCOUNT_KV]); /* all of it is kv */
    EXPECT_EQ_U64(rm_cache_page_bytes(&shape), 2 * rm_page_bytes(RM_KV_F16, 16));
    EXPECT_EQ_U64(rm_page_bytes(RM_KV_F32, 16), 2 * rm_page_bytes(RM_KV_F16, 16));
    rm_ledger_close(&ledger);
}

static void a_new_page_is_zero(void) {
    static const uint8_t zero[4096];
    REQUIRE(start(PAGES));
    const size_t bytes = (size_t)rm_cache_page_bytes(&cache.shape);
    for (int round = 0; round < 3; round++) {
        REQUIRE(rm_cache_hold(&cache, 1, 2, 3));
        uint8_t *page = rm_cache_page(&cache, 1, 2, 3);
        REQUIRE(page != NULL && bytes >= sizeof zero);
        for (size_t at = 0; at < bytes; at += sizeof zero)
            EXPECT(memcmp(page + at, zero, sizeof zero) == 0);
        memset(page, 0xA5, bytes);
        EXPECT(rm_cache_hold(&cache, 1, 2, 3)); /* held already: nothing changes */
        EXPECT(rm_cache_page(&cache, 1, 2, 3) == page && page[bytes - 1] == 0xA5);
        EXPECT_EQ_U64(cache.pool.taken, 1);
        rm_cache_release(&cache, 1, 2, 3);
        EXPECT(rm_cache_page(&cache, 1, 2, 3) == NULL);
    }
    rm_ledger_close(&ledger);
}

static void pages_are_distinct(void) {
    REQUIRE(start(SEQUENCES * LAYERS * COLUMNS));
    const size_t bytes = (size_t)rm_cache_page_bytes(&cache.shape);
    uint8_t mark = 0;
    for (uint32_t i = 0; i < SEQUENCES * LAYERS * COLUMNS; i++) {
        const uint32_t s = i % SEQUENCES, l = i / SEQUENCES % LAYERS, c = i / SEQUENCES / LAYERS;
        REQUIRE(rm_cache_hold(&cache, s, l, c));
        memset(rm_cache_page(&cache, s, l, c), ++mark, bytes);
    }
    mark = 0;
    for (uint32_t i = 0; i < SEQUENCES * LAYERS * COLUMNS; i++) {
        const uint32_t s = i % SEQUENCES, l = i / SEQUENCES % LAYERS, c = i / SEQUENCES / LAYERS;
        const uint8_t *page = rm_cache_page(&cache, s, l, c);
        mark++;
        EXPECT(page[0] == mark && page[bytes - 1] == mark);
        EXPECT((uintptr_t)page % 64 == 0);
    }
    rm_ledger_close(&ledger);
}

static void full_is_an_answer(void) {
    REQUIRE(start(4));
    for (uint32_t c = 0; c < 4; c++)
        EXPECT(rm_cache_hold(&cache, 0, 0, c));
    EXPECT(!rm_cache_hold(&cache, 0, 0, 4));
    EXPECT(rm_cache_page(&cache, 0, 0, 4) == NULL);
    EXPECT(rm_cache_hold(&cache, 0, 0, 2)); /* what is held needs no block */
    rm_cache_release(&cache, 0, 0, 1);
    EXPECT(rm_cache_hold(&cache, 1, 2, 4));
    EXPECT(!rm_cache_hold(&cache, 0, 0, 1));
    EXPECT_EQ_U64(cache.pool.high_water, 4);
    rm_ledger_close(&ledger);
}

static void drop_takes_all_layers(void) {
    REQUIRE(start(SEQUENCES * LAYERS * COLUMNS));
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t c = 0; c < COLUMNS; c++)
                REQUIRE(rm_cache_hold(&cache, s, l, c));
        }
    }
    rm_cache_drop(&cache, 1, 1, 3);
    rm_cache_drop(&cache, 1, 3, 3);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t c = 0; c < COLUMNS; c++) {
            EXPECT((rm_cache_page(&cache, 1, l, c) == NULL) == (c == 1 || c == 2));
            EXPECT(rm_cache_page(&cache, 0, l, c) != NULL);
        }
    }
    EXPECT_EQ_U64(rm_pool_free(&cache.pool), 2 * LAYERS);
    rm_ledger_close(&ledger);
}

/* Any order of holds, releases and drops keeps table and pool in step. */
static void random_use_stays_in_step(void) {
    bool held[SEQUENCES][LAYERS][COLUMNS] = {{{false}}};
    uint32_t count = 0;
    REQUIRE(start(PAGES));
    for (int i = 0; i < 20000; i++) {
        const uint32_t r = (uint32_t)(t_random() >> 33);
        const uint32_t s = r % SEQUENCES, l = r / 2 % LAYERS, c = r / 6 % COLUMNS;
        const uint32_t what = r / 30 % 16;
        if (what < 10) {
            const bool right = held[s][l][c] || count < PAGES;
            EXPECT(rm_cache_hold(&cache, s, l, c) == right);
            count += right && !held[s][l][c];
            held[s][l][c] = held[s][l][c] || right;
        } else if (what < 15) {
            rm_cache_release(&cache, s, l, c);
            count -= held[s][l][c];
            held[s][l][c] = false;
        } else {
            rm_cache_drop(&cache, s, c, COLUMNS);
            for (uint32_t y = 0; y < LAYERS; y++) {
                for (uint32_t x = c; x < COLUMNS; x++) {
                    count -= held[s][y][x];
                    held[s][y][x] = false;
                }
            }
        }
        EXPECT_EQ_U64(cache.pool.taken, count);
        EXPECT((rm_cache_page(&cache, s, l, c) != NULL) == held[s][l][c]);
    }
    rm_ledger_close(&ledger);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(nothing_is_held_at_first), T(layout_is_as_measured),
                  T(a_new_page_is_zero), T(pages_are_distinct), T(full_is_an_answer),
                  T(drop_takes_all_layers), T(random_use_stays_in_step));
}
