/* test_cache.c: pages held, released, dropped, spilled and staged; the pool behind them. No model
 * needed. */
#include "cache/page.h"
#include "harness.h"
#include "spill_fixture.h"

enum { LAYERS = 3, COLUMNS = 5, SEQUENCES = 2, PAGE_COUNT = 8 };

static rm_ledger ledger;
static rm_cache cache;

static rm_cache_shape shape_of(uint32_t page_count, uint32_t stage_count) {
    return (rm_cache_shape){.layer_count = LAYERS,
                            .kv_head_count = 2,
                            .head_dim = 16,
                            .format = RM_KV_F16,
                            .sequence_count = SEQUENCES,
                            .column_count = COLUMNS,
                            .page_count = page_count,
                            .stage_count = stage_count};
}

static bool start(uint32_t page_count) {
    remat_error err = {0};
    const rm_cache_shape shape = shape_of(page_count, 0);
    memset(&ledger, 0, sizeof ledger);
    if (rm_ledger_open(&ledger, 4 << 20, 0, &err) != REMAT_OK) return false;
    if (rm_cache_layout(&cache, &ledger, &shape, &err) != REMAT_OK) return false;
    rm_ledger_freeze(&ledger);
    rm_cache_start(&cache, NULL);
    return true;
}

static void nothing_is_held_at_first(void) {
    REQUIRE(start(PAGE_COUNT));
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t c = 0; c < COLUMNS; c++)
                EXPECT(rm_cache_page(&cache, s, l, c) == NULL);
        }
    }
    EXPECT_EQ_U64(rm_pool_free(&cache.pool), PAGE_COUNT);
    rm_cache_drop(&cache, 1, 0, COLUMNS); /* dropping nothing is fine */
    rm_cache_release(&cache, 0, 2, 4);
    EXPECT_EQ_U64(rm_pool_free(&cache.pool), PAGE_COUNT);
    rm_ledger_close(&ledger);
}

static void layout_is_as_measured(void) {
    const rm_cache_shape shape = shape_of(PAGE_COUNT, 0);
    rm_ledger measured;
    rm_cache other;
    REQUIRE(start(PAGE_COUNT));
    rm_ledger_measure(&measured);
    EXPECT(rm_cache_layout(&other, &measured, &shape, NULL) == REMAT_OK);
    EXPECT_EQ_U64(measured.owned[RM_ACCOUNT_KV], ledger.owned[RM_ACCOUNT_KV]);
    EXPECT_EQ_U64(measured.carved, ledger.carved);
    EXPECT_EQ_U64(measured.owned[RM_ACCOUNT_KV_STAGE], 0); /* without a file */
    EXPECT_EQ_U64(rm_cache_page_bytes(&shape), 2 * rm_page_bytes(RM_KV_F16, 16));
    EXPECT_EQ_U64(rm_page_bytes(RM_KV_F32, 16), 2 * rm_page_bytes(RM_KV_F16, 16));
    rm_ledger_close(&ledger);
}

static void a_new_page_is_zero(void) {
    static const uint8_t zero[4096];
    REQUIRE(start(PAGE_COUNT));
    const size_t bytes = (size_t)rm_cache_page_bytes(&cache.shape);
    for (int round = 0; round < 3; round++) {
        REQUIRE(rm_cache_hold(&cache, 1, 2, 3, true) == RM_HELD);
        uint8_t *page = rm_cache_page(&cache, 1, 2, 3);
        REQUIRE(page != NULL && bytes >= sizeof zero);
        for (size_t at = 0; at < bytes; at += sizeof zero)
            EXPECT(memcmp(page + at, zero, sizeof zero) == 0);
        memset(page, 0xA5, bytes);
        EXPECT(rm_cache_hold(&cache, 1, 2, 3, true) == RM_HELD); /* held already: nothing changes */
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
        REQUIRE(rm_cache_hold(&cache, s, l, c, true) == RM_HELD);
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
        EXPECT(rm_cache_hold(&cache, 0, 0, c, true) == RM_HELD);
    EXPECT(rm_cache_hold(&cache, 0, 0, 4, true) == RM_HOLD_FULL);
    EXPECT(rm_cache_page(&cache, 0, 0, 4) == NULL);
    EXPECT(rm_cache_hold(&cache, 0, 0, 2, true) == RM_HELD); /* what is held needs no block */
    rm_cache_release(&cache, 0, 0, 1);
    EXPECT(rm_cache_hold(&cache, 1, 2, 4, true) == RM_HELD);
    EXPECT(rm_cache_hold(&cache, 0, 0, 1, true) == RM_HOLD_FULL);
    EXPECT_EQ_U64(cache.pool.high_water, 4);
    rm_ledger_close(&ledger);
}

static void drop_takes_all_layers(void) {
    REQUIRE(start(SEQUENCES * LAYERS * COLUMNS));
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t c = 0; c < COLUMNS; c++)
                REQUIRE(rm_cache_hold(&cache, s, l, c, true) == RM_HELD);
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
    REQUIRE(start(PAGE_COUNT));
    for (int i = 0; i < 20000; i++) {
        const uint32_t r = (uint32_t)(t_random() >> 33);
        const uint32_t s = r % SEQUENCES, l = r / 2 % LAYERS, c = r / 6 % COLUMNS;
        const uint32_t what = r / 30 % 16;
        if (what < 10) {
            const bool right = held[s][l][c] || count < PAGE_COUNT;
            EXPECT(rm_cache_hold(&cache, s, l, c, true) == (right ? RM_HELD : RM_HOLD_FULL));
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

/* --- with a spill file ------------------------------------------------------------------------ */

enum { STAGE = 4, ALL = SEQUENCES * LAYERS * COLUMNS };

static rm_spill spill;

static bool start_spilling(void) {
    remat_error err = {0};
    const rm_cache_shape shape = shape_of(PAGE_COUNT, STAGE);
    const rm_spill_shape file = {.slot_bytes = {rm_cache_page_bytes(&shape), 0},
                                 .slot_count = {rm_cache_entries(&shape), 0}};
    memset(&ledger, 0, sizeof ledger);
    if (!open_spill(&spill, "/tmp", &file)) return false;
    if (rm_ledger_open(&ledger, 4 << 20, 0, &err) != REMAT_OK) return false;
    if (rm_cache_layout(&cache, &ledger, &shape, &err) != REMAT_OK) return false;
    rm_cache_start(&cache, &spill);
    return true;
}

static void stop_spilling(void) {
    rm_cache_settle(&cache);
    rm_stage_close(&cache);
    rm_stage_forget(&cache);
    close_spill(&spill);
    rm_ledger_close(&ledger);
}

static uint8_t *page_at(uint32_t column) {
    return rm_cache_page(&cache, 0, 1, column);
}

static void put_page(uint32_t column, int mark) {
    EXPECT(rm_cache_hold(&cache, 0, 1, column, true) == RM_HELD);
    memset(page_at(column), mark, (size_t)cache.page_bytes);
}

static bool is_page(const uint8_t *page, int mark) {
    for (uint64_t i = 0; page != NULL && i < cache.page_bytes; i++) {
        if (page[i] != mark) return false;
    }
    return page != NULL;
}

/* Pool, file, both; written again; gone. */
static void a_page_spills_and_comes_back(void) {
    REQUIRE(start_spilling());
    put_page(0, 7);
    EXPECT(rm_cache_known(&cache, 0, 1, 0) && !rm_cache_spilled(&cache, 0, 1, 0));
    EXPECT(rm_cache_save(&cache, 0, 1, 0) && rm_cache_save(&cache, 0, 1, 0));
    EXPECT(rm_cache_in_pool(&cache, 0, 1, 0));
    rm_cache_release(&cache, 0, 1, 0);
    EXPECT(rm_cache_spilled(&cache, 0, 1, 0) && page_at(0) == NULL);
    EXPECT(rm_cache_hold(&cache, 0, 1, 0, false) == RM_HELD); /* also from a write in flight */
    EXPECT(is_page(page_at(0), 7) && rm_cache_file_bytes(&cache) == 0);
    rm_cache_release(&cache, 0, 1, 0); /* clean: its copy is still good */
    EXPECT_EQ_U64(rm_cache_file_bytes(&cache), cache.page_bytes);
    EXPECT_EQ_U64(rm_cache_pool_bytes(&cache), 0);
    put_page(0, 8); /* the copy is old now */
    rm_cache_release(&cache, 0, 1, 0);
    EXPECT(!rm_cache_known(&cache, 0, 1, 0));
    put_page(0, 9);
    EXPECT(rm_cache_save(&cache, 0, 1, 0));
    rm_cache_drop_page(&cache, 0, 1, 0);
    EXPECT(!rm_cache_known(&cache, 0, 1, 0));
    EXPECT(rm_cache_hold(&cache, 0, 1, 0, false) == RM_HELD && is_page(page_at(0), 0));
    stop_spilling();
}

/* A full pool waits for pages that are leaving. */
static void leaving_pages_make_room(void) {
    REQUIRE(start_spilling());
    for (uint32_t i = 0; i < ALL; i++) {
        const uint32_t q = i / LAYERS / COLUMNS, l = i / COLUMNS % LAYERS, c = i % COLUMNS;
        EXPECT(rm_cache_hold(&cache, q, l, c, true) == RM_HELD);
        memset(rm_cache_page(&cache, q, l, c), (int)i + 1, (size_t)cache.page_bytes);
        EXPECT(rm_cache_save(&cache, q, l, c));
        rm_cache_release(&cache, q, l, c);
    }
    EXPECT(cache.pool.high_water <= PAGE_COUNT);
    EXPECT_EQ_U64(rm_cache_file_bytes(&cache), ALL * cache.page_bytes);
    for (uint32_t i = ALL; i-- > 0;) {
        const uint32_t q = i / LAYERS / COLUMNS, l = i / COLUMNS % LAYERS, c = i % COLUMNS;
        EXPECT(rm_cache_hold(&cache, q, l, c, false) == RM_HELD);
        EXPECT(is_page(rm_cache_page(&cache, q, l, c), (int)i + 1));
        rm_cache_release(&cache, q, l, c);
    }
    rm_cache_drop(&cache, 1, 0, COLUMNS);
    EXPECT_EQ_U64(rm_cache_file_bytes(&cache), ALL / 2 * cache.page_bytes);
    stop_spilling();
}

static void spill_columns(uint32_t count) {
    for (uint32_t c = 0; c < count; c++) {
        put_page(c, (int)c + 1);
        EXPECT(rm_cache_save(&cache, 0, 1, c));
        rm_cache_release(&cache, 0, 1, c);
    }
}

/* Any order of looking ahead and of use: what was opened is there, and no more after the use. */
static void stage_gives_what_was_spilled(void) {
    REQUIRE(start_spilling());
    EXPECT_EQ_U64(rm_stage_band(&cache), STAGE / 2);
    spill_columns(COLUMNS);
    for (int round = 0; round < 2000; round++) {
        const uint32_t r = (uint32_t)(t_random() >> 33), first = r % COLUMNS;
        uint32_t count = 1 + r / 8 % 2;
        if (first + count > COLUMNS) count = 1;
        if (r / 16 % 3 > 0) {
            const uint32_t ahead = r / 64 % COLUMNS, most = 1 + r / 512 % (COLUMNS - ahead);
            EXPECT(rm_stage_ahead(&cache, 0, 1, ahead, most) <= most);
        }
        rm_stage_open(&cache, 0, 1, first, count);
        if (r / 4096 % 2 == 0) (void)rm_stage_ahead(&cache, 0, 1, (first + count) % COLUMNS, 1);
        EXPECT(rm_stage_settle(&cache));
        for (uint32_t c = 0; c < COLUMNS; c++) {
            const bool open = c >= first && c < first + count;
            EXPECT(open ? is_page(page_at(c), (int)c + 1) : page_at(c) == NULL);
        }
        EXPECT(!rm_cache_in_pool(&cache, 0, 1, first) && rm_cache_known(&cache, 0, 1, first));
        rm_stage_close(&cache);
        EXPECT(page_at(first) == NULL && rm_cache_spilled(&cache, 0, 1, first));
        if (r / 8192 % 7 == 0) rm_stage_forget(&cache);
    }
    EXPECT_EQ_U64(cache.lost_pages, 0);
    stop_spilling();
}

/* What does not come back as it was written is lost, at each of the three ways back. */
static void a_lost_page_is_nowhere(void) {
    for (int way = 0; way < 3; way++) {
        REQUIRE(start_spilling());
        spill_columns(3);
        rm_cache_settle(&cache);
        rm_io_fault_at(1, way == 1 ? RM_IO_FAIL : RM_IO_FLIP);
        if (way == 0) {
            EXPECT(rm_cache_hold(&cache, 0, 1, 1, false) == RM_HOLD_LOST);
        } else {
            if (way == 2) EXPECT_EQ_U64(rm_stage_ahead(&cache, 0, 1, 1, 1), 1);
            rm_stage_open(&cache, 0, 1, 1, 1);
            EXPECT(!rm_stage_settle(&cache));
            rm_stage_close(&cache);
        }
        rm_io_fault_at(0, RM_IO_FAIL);
        EXPECT(!rm_cache_known(&cache, 0, 1, 1) && page_at(1) == NULL);
        EXPECT_EQ_U64(cache.lost_pages, 1);
        EXPECT(rm_cache_hold(&cache, 0, 1, 2, false) == RM_HELD && is_page(page_at(2), 3));
        EXPECT(rm_cache_hold(&cache, 0, 1, 1, false) == RM_HELD && is_page(page_at(1), 0));
        stop_spilling();
    }
}

/* A write that fails after its block was given away: lost. Before: the page is in the pool. */
static void a_failed_write(void) {
    for (int leaving = 0; leaving < 2; leaving++) {
        REQUIRE(start_spilling());
        put_page(0, 5);
        rm_io_fault_at(1, RM_IO_FULL);
        EXPECT(rm_cache_save(&cache, 0, 1, 0));
        if (leaving) rm_cache_release(&cache, 0, 1, 0);
        rm_cache_settle(&cache);
        rm_io_fault_at(0, RM_IO_FULL);
        EXPECT(rm_cache_known(&cache, 0, 1, 0) == !leaving);
        EXPECT_EQ_U64(cache.lost_pages, leaving);
        EXPECT_EQ_U64(cache.pool.taken, !leaving);
        if (!leaving) EXPECT(is_page(page_at(0), 5) && !rm_cache_save(&cache, 0, 1, 0));
        stop_spilling();
    }
}

/* Held while it is on its way to the file: it does not arrive, and that is not an empty page. */
static void a_page_that_does_not_arrive(void) {
    REQUIRE(start_spilling());
    put_page(0, 5);
    rm_io_fault_at(1, RM_IO_BAD_WRITE);
    EXPECT(rm_cache_save(&cache, 0, 1, 0));
    rm_cache_release(&cache, 0, 1, 0);
    rm_io_fault_at(0, RM_IO_BAD_WRITE);
    EXPECT(rm_cache_hold(&cache, 0, 1, 0, false) == RM_HOLD_LOST);
    EXPECT(!rm_cache_known(&cache, 0, 1, 0) && cache.pool.taken == 0);
    EXPECT(rm_cache_hold(&cache, 0, 1, 0, true) == RM_HELD && is_page(page_at(0), 0));
    stop_spilling();
}

static void without_its_file(void) {
    REQUIRE(start_spilling());
    spill_columns(3);
    put_page(3, 4);
    EXPECT(rm_cache_save(&cache, 0, 1, 3)); /* in both places */
    (void)rm_stage_ahead(&cache, 0, 1, 0, 2);
    rm_cache_abandon_spill(&cache);
    for (uint32_t c = 0; c < 3; c++)
        EXPECT(!rm_cache_known(&cache, 0, 1, c));
    EXPECT(is_page(page_at(3), 4) && !rm_cache_save(&cache, 0, 1, 3));
    EXPECT_EQ_U64(rm_cache_file_bytes(&cache), 0);
    EXPECT(rm_cache_hold(&cache, 0, 1, 0, false) == RM_HELD && is_page(page_at(0), 0));
    EXPECT(!rm_cache_settle_one(&cache));
    rm_cache_resume_spill(&cache, &spill);
    EXPECT(!rm_cache_known(&cache, 0, 1, 1) && is_page(page_at(3), 4));
    EXPECT(rm_cache_save(&cache, 0, 1, 3)); /* its copy was forgotten */
    stop_spilling();
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(nothing_is_held_at_first), T(layout_is_as_measured),
                  T(a_new_page_is_zero), T(pages_are_distinct), T(full_is_an_answer),
                  T(drop_takes_all_layers), T(random_use_stays_in_step),
                  T(a_page_spills_and_comes_back), T(leaving_pages_make_room),
                  T(stage_gives_what_was_spilled), T(a_lost_page_is_nowhere), T(a_failed_write),
                  T(a_page_that_does_not_arrive), T(without_its_file));
}
