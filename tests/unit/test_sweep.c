/*
 * test_sweep.c: rows by hand: which run, which keep their pages, which give logits; rows that start
 * from a hidden state or end in one.
 */
#include "base/hash.h"
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <unistd.h>

enum { COUNT = 150, LAYERS = 3, DIM = 64, VOCABULARY = 300, LOGIT_ROWS = 4 };

static int fd = -1;
static char path[64];
static uint32_t tokens[COUNT];

/* Logits in the order in which they came. */
typedef struct caught {
    uint32_t count, row[COUNT];
    uint64_t hash[COUNT];
    uint32_t fail_at; /* the n-th row is refused; 0: none */
} caught;

static int catch_row(void *user, uint32_t row, const float *logits, remat_error *err) {
    caught *c = user;
    if (c->count + 1 == c->fail_at) return rm_fail(err, REMAT_E_FAILED, "refused");
    c->row[c->count] = row;
    c->hash[c->count++] = rm_hash(logits, VOCABULARY * sizeof *logits, 0);
    return REMAT_OK;
}

static bool open_engine(remat_engine **e, uint32_t chunk) {
    const tiny_spec spec = tiny_spec_default();
    remat_error err = {0};
    if (fd < 0) fd = tiny_model_open(path, &spec);
    tiny_tokens(tokens, COUNT, spec.vocabulary, 1);
    run_config c = run_config_default(COUNT);
    c.limits.resident_count = 0; /* so that a sweep may hold all rows */
    c.limits.chunk_rows = chunk;
    c.limits.logits_rows = LOGIT_ROWS;
    if (engine_start(e, path, &c, &err) == REMAT_OK) return true;
    t_fail("%s", err.message);
    return false;
}

static void set_rows(remat_engine *e, uint32_t first, uint32_t count, bool keep, bool logits) {
    for (uint32_t i = 0; i < count; i++)
        e->sweep.rows[i] = (rm_row){.position = first + i,
                                    .token = tokens[first + i],
                                    .last_layer = LAYERS - 1,
                                    .keep_kv = keep,
                                    .want_logits = logits};
}

static void logits_come_in_order_of_rows(void) {
    static const uint32_t chunks[] = {1, 7, 64, 512};
    caught all = {0};
    for (size_t k = 0; k < 4; k++) {
        remat_engine *e;
        caught now = {0};
        remat_error err = {0};
        REQUIRE(open_engine(&e, chunks[k]));
        set_rows(e, 0, COUNT, false, true);
        EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, k == 0 ? &all : &now, &err) == REMAT_OK);
        EXPECT_EQ_U64(k == 0 ? all.count : now.count, COUNT);
        for (uint32_t i = 0; k > 0 && i < COUNT; i++)
            EXPECT(now.row[i] == i && now.hash[i] == all.hash[i]);
        EXPECT_EQ_U64(e->cache.pool.taken, 0); /* no row keeps its page */
        EXPECT(e->cache.pool.high_water == (COUNT + 63) / 64);
        now = (caught){0};
        set_rows(e, 0, COUNT, false, false); /* some of them only */
        for (uint32_t i = 5; i < COUNT; i += 9)
            e->sweep.rows[i].want_logits = true;
        EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &now, &err) == REMAT_OK);
        EXPECT_EQ_U64(now.count, (COUNT - 5 + 8) / 9);
        for (uint32_t i = 0; i < now.count; i++)
            EXPECT(now.row[i] == 5 + 9 * i && now.hash[i] == all.hash[now.row[i]]);
        remat_close(&e);
    }
}

/* Transient rows before kept ones: the page of a kept row is there afterwards, and only that. */
static void kept_pages_stay(void) {
    remat_engine *e;
    caught all = {0}, now = {0};
    remat_error err = {0};
    REQUIRE(open_engine(&e, 64));
    set_rows(e, 0, COUNT, false, true);
    EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &all, &err) == REMAT_OK);
    remat_close(&e);

    /* A pool that may keep the first two columns. */
    const run_config c = run_config_default(COUNT);
    REQUIRE(engine_start(&e, path, &c, &err) == REMAT_OK);
    for (uint32_t first = 0; first < 128; first += 64) {
        set_rows(e, first, 64, true, false);
        EXPECT(rm_sweep_run(&e->sweep, 64, catch_row, &now, &err) == REMAT_OK);
    }
    EXPECT_EQ_U64(now.count, 0);
    EXPECT_EQ_U64(e->cache.pool.taken, 2 * LAYERS);
    set_rows(e, 128, COUNT - 128, false, true); /* upon kept ones */
    EXPECT(rm_sweep_run(&e->sweep, COUNT - 128, catch_row, &now, &err) == REMAT_OK);
    EXPECT_EQ_U64(e->cache.pool.taken, 2 * LAYERS);
    for (uint32_t i = 0; i < COUNT - 128; i++)
        EXPECT(now.hash[i] == all.hash[128 + i]);
    remat_close(&e);
}

typedef struct saved {
    uint32_t layer;
    float *hidden; /* COUNT x DIM */
} saved;

static void save(void *user, uint32_t layer, uint32_t row, const float *hidden) {
    const saved *s = user;
    if (layer == s->layer) memcpy(s->hidden + (size_t)row * DIM, hidden, DIM * sizeof *hidden);
}

/* A kept hidden state is as good as the layers below it: what checkpoints will rest on. */
static void rows_from_a_hidden_state(void) {
    static float hidden[COUNT * DIM];
    remat_engine *e;
    caught all = {0};
    remat_error err = {0};
    REQUIRE(open_engine(&e, 64));
    for (uint32_t depth = 1; depth < LAYERS; depth++) {
        saved s = {.layer = depth - 1, .hidden = hidden};
        caught now = {0};
        all = (caught){0};
        e->sweep.tap = save;
        e->sweep.tap_user = &s;
        set_rows(e, 0, COUNT, false, true);
        EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &all, &err) == REMAT_OK);
        e->sweep.tap = NULL;
        set_rows(e, 0, COUNT, false, true);
        for (uint32_t i = 0; i < COUNT; i++) {
            e->sweep.rows[i].first_layer = (uint16_t)depth;
            e->sweep.rows[i].token = 0; /* is not looked at */
        }
        memcpy(e->sweep.hidden, hidden, sizeof hidden);
        EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &now, &err) == REMAT_OK);
        for (uint32_t i = 0; i < COUNT; i++)
            EXPECT(now.hash[i] == all.hash[i]);
    }
    remat_close(&e);
}

/* Rows that end early leave the hidden state after their last layer. */
static void rows_to_a_hidden_state(void) {
    static float hidden[COUNT * DIM];
    remat_engine *e;
    caught none = {0};
    remat_error err = {0};
    saved s = {.layer = 0, .hidden = hidden};
    REQUIRE(open_engine(&e, 7));
    e->sweep.tap = save;
    e->sweep.tap_user = &s;
    set_rows(e, 0, COUNT, false, true);
    EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &none, &err) == REMAT_OK);
    e->sweep.tap = NULL;
    none = (caught){0};
    set_rows(e, 0, COUNT, false, false);
    for (uint32_t i = 0; i < COUNT; i++)
        e->sweep.rows[i].last_layer = 0;
    EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &none, &err) == REMAT_OK);
    EXPECT_EQ_U64(none.count, 0);
    EXPECT(memcmp(e->sweep.hidden, hidden, sizeof hidden) == 0);
    remat_close(&e);
}

/* An error of the receiver ends the sweep, and transient pages are free again. */
static void a_refused_row_ends_the_sweep(void) {
    remat_engine *e;
    remat_error err = {0};
    REQUIRE(open_engine(&e, 64));
    for (uint32_t n = 1; n <= COUNT; n += 37) {
        caught now = {.fail_at = n};
        set_rows(e, 0, COUNT, false, true);
        EXPECT(rm_sweep_run(&e->sweep, COUNT, catch_row, &now, &err) == REMAT_E_FAILED);
        EXPECT_EQ_U64(now.count, n - 1);
        EXPECT(strcmp(err.message, "refused") == 0);
        EXPECT_EQ_U64(e->cache.pool.taken, 0);
    }
    remat_close(&e);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(logits_come_in_order_of_rows), T(kept_pages_stay),
                  T(rows_from_a_hidden_state), T(rows_to_a_hidden_state),
                  T(a_refused_row_ends_the_sweep));
}
