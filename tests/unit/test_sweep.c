/*
 * test_sweep.c: runs by hand: how far they go, which give logits, what stays of their pages; runs
 * that start from a hidden state.
 */
#include "base/hash.h"
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <unistd.h>

enum { COUNT = 150, LAYERS = 3, DIM = 64, VOCABULARY = 300, LOGIT_ROWS = 4, COLUMNS = 3 };

static int fd = -1;
static char path[64];
static uint32_t tokens[COUNT];

/* Logits in the order in which they came. */
typedef struct caught {
    uint32_t count, position[COUNT];
    uint64_t hash[COUNT];
    uint32_t fail_at; /* the n-th row is refused; 0: none */
} caught;

static int catch_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                     remat_error *err) {
    caught *c = user;
    EXPECT(position >= run->first && position < run->first + run->count);
    if (c->count + 1 == c->fail_at) return rm_fail(err, REMAT_E_FAILED, "refused");
    c->position[c->count] = position;
    c->hash[c->count++] = rm_hash(logits, VOCABULARY * sizeof *logits, 0);
    return REMAT_OK;
}

static bool open_engine(remat_engine **e, remat_cold cold, uint32_t chunk) {
    const tiny_spec spec = tiny_spec_default();
    remat_error err = {0};
    if (fd < 0) fd = tiny_model_open(path, &spec);
    tiny_tokens(tokens, COUNT, spec.vocabulary, 1);
    run_config c = run_config_default(COUNT);
    c.limits.cold = cold;
    c.limits.chunk_rows = chunk;
    c.limits.logits_rows = LOGIT_ROWS;
    c.setup = (given_setup){.given = true, .rows = GIVEN_MEMORY, .more_pages = 20, .units = 8};
    if (engine_start(e, path, &c, &err) == REMAT_OK) return true;
    t_fail("%s", err.message);
    return false;
}

static rm_row_run run_of(uint32_t first, uint32_t count, uint32_t row, uint32_t leave) {
    return (rm_row_run){.first = first,
                        .count = count,
                        .row_first = row,
                        .leave = (uint16_t)leave,
                        .tokens = tokens + first};
}

/* Runs of positions first .. COUNT - 1, a column each. Returns how many. */
static uint32_t set_runs(remat_engine *e, uint32_t first, uint32_t leave) {
    uint32_t n = 0;
    for (uint32_t at = first; at < COUNT; n++) {
        const uint32_t end = (at / 64 + 1) * 64 < COUNT ? (at / 64 + 1) * 64 : COUNT;
        e->sweep.runs[n] = run_of(at, end - at, at - first, leave);
        at = end;
    }
    return n;
}

/* Lowest layers of a column that are cold. */
static void set_cold(remat_engine *e, uint32_t column, uint32_t layers) {
    uint16_t *cold;
    const uint16_t *read = e->sweep.cold;
    memcpy(&cold, &read, sizeof cold); /* the sequence's, which nobody has opened */
    cold[column] = (uint16_t)layers;
}

static void logits_come_in_order_of_rows(void) {
    static const uint32_t chunks[] = {1, 7, 64, 512};
    caught all = {0};
    for (size_t k = 0; k < 4; k++) {
        remat_engine *e;
        caught now = {0};
        remat_error err = {0};
        REQUIRE(open_engine(&e, REMAT_COLD_DROP, chunks[k]));
        for (uint32_t c = 0; c < COLUMNS; c++)
            set_cold(e, c, LAYERS);
        uint32_t n = set_runs(e, 0, LAYERS);
        EXPECT(rm_sweep_run(&e->sweep, n, catch_row, k == 0 ? &all : &now, &err) == REMAT_OK);
        EXPECT_EQ_U64(k == 0 ? all.count : now.count, COUNT);
        for (uint32_t i = 0; k > 0 && i < COUNT; i++)
            EXPECT(now.position[i] == i && now.hash[i] == all.hash[i]);
        EXPECT_EQ_U64(e->cache.pool.taken, 0); /* all of it is cold */
        EXPECT_EQ_U64(e->cache.pool.high_water, COLUMNS);
        now = (caught){0};
        n = 0; /* some of them only: rows 5, 14, 23, .. */
        for (uint32_t at = 0; at < COUNT;) {
            const bool wanted = at % 9 == 5;
            uint32_t end = wanted ? at + 1 : at + (5 + 9 - at % 9) % 9;
            if (end > (at / 64 + 1) * 64) end = (at / 64 + 1) * 64;
            if (end > COUNT) end = COUNT;
            e->sweep.runs[n++] = run_of(at, end - at, at, wanted ? LAYERS : LAYERS - 1);
            at = end;
            if (n == e->sweep.shape.run_max) break;
        }
        const rm_row_run *last = &e->sweep.runs[n - 1];
        const uint32_t end = last->first + last->count;
        EXPECT(rm_sweep_run(&e->sweep, n, catch_row, &now, &err) == REMAT_OK);
        EXPECT(n > 3 && now.count == (end - 5 + 8) / 9);
        for (uint32_t i = 0; i < now.count; i++)
            EXPECT(now.position[i] == 5 + 9 * i && now.hash[i] == all.hash[now.position[i]]);
        remat_close(&e);
    }
}

/* Hot pages stay, cold ones go: to nowhere, or to the file. */
static void cold_pages_leave(remat_cold cold, uint32_t chunk) {
    remat_engine *e;
    caught all = {0}, now = {0};
    remat_error err = {0};
    REQUIRE(open_engine(&e, cold, chunk));
    set_cold(e, 0, LAYERS);
    set_cold(e, 1, 1);
    EXPECT(rm_sweep_run(&e->sweep, set_runs(e, 0, LAYERS), catch_row, &all, &err) == REMAT_OK);
    EXPECT_EQ_U64(all.count, COUNT);
    rm_cache_settle(&e->cache);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t c = 0; c < COLUMNS; c++) {
            const bool hot = c == 2 || (c == 1 && l > 0);
            EXPECT(rm_cache_in_pool(&e->cache, 0, l, c) == hot);
            EXPECT(rm_cache_known(&e->cache, 0, l, c) == (hot || cold == REMAT_COLD_SPILL));
        }
    }
    EXPECT_EQ_U64(e->cache.pool.taken, 2 * LAYERS - 1);
    /* The last column again, upon what is there; what is nowhere runs again as far as needed. */
    uint32_t n = 0;
    if (cold == REMAT_COLD_DROP) {
        e->sweep.runs[n++] = run_of(0, 64, 0, LAYERS - 1);
        e->sweep.runs[n++] = run_of(64, 64, 64, 0);
    }
    e->sweep.runs[n] = run_of(128, COUNT - 128, n * 64, LAYERS);
    EXPECT(rm_sweep_run(&e->sweep, n + 1, catch_row, &now, &err) == REMAT_OK);
    EXPECT_EQ_U64(now.count, COUNT - 128);
    for (uint32_t i = 0; i < now.count; i++)
        EXPECT(now.hash[i] == all.hash[128 + i]);
    EXPECT_EQ_U64(e->cache.pool.taken, 2 * LAYERS - 1);
    remat_close(&e);
}

static void dropped_pages_leave(void) {
    cold_pages_leave(REMAT_COLD_DROP, 64);
    cold_pages_leave(REMAT_COLD_DROP, 7);
}

static void spilled_pages_leave(void) {
    cold_pages_leave(REMAT_COLD_SPILL, 64);
    cold_pages_leave(REMAT_COLD_SPILL, 7);
    cold_pages_leave(REMAT_COLD_SPILL, 1);
}

typedef struct saved {
    uint32_t layer;
    float *hidden; /* COUNT x DIM */
    uint32_t rows;
} saved;

static void save(void *user, uint32_t layer, const rm_row_run *run, uint32_t position,
                 const float *hidden) {
    saved *s = user;
    (void)run;
    if (layer != s->layer) return;
    memcpy(s->hidden + (size_t)position * DIM, hidden, DIM * sizeof *hidden);
    s->rows++;
}

/* A kept hidden state is as good as the layers below it: what checkpoints will rest on. */
static void runs_from_a_hidden_state(void) {
    static float hidden[COUNT * DIM];
    remat_engine *e;
    caught all = {0};
    remat_error err = {0};
    REQUIRE(open_engine(&e, REMAT_COLD_DROP, 64));
    for (uint32_t depth = 1; depth < LAYERS; depth++) {
        saved s = {.layer = depth - 1, .hidden = hidden};
        caught now = {0};
        all = (caught){0};
        e->sweep.tap = save;
        e->sweep.tap_user = &s;
        uint32_t n = set_runs(e, 0, LAYERS);
        EXPECT(rm_sweep_run(&e->sweep, n, catch_row, &all, &err) == REMAT_OK);
        EXPECT_EQ_U64(s.rows, COUNT);
        e->sweep.tap = NULL;
        rm_cache_drop(&e->cache, 0, 0, COLUMNS);
        n = set_runs(e, 0, LAYERS);
        for (uint32_t i = 0; i < n; i++) {
            e->sweep.runs[i].enter = (uint16_t)depth;
            e->sweep.runs[i].tokens = NULL; /* are not looked at */
        }
        memcpy(e->sweep.rows.memory, hidden, sizeof hidden);
        EXPECT(rm_sweep_run(&e->sweep, n, catch_row, &now, &err) == REMAT_OK);
        EXPECT_EQ_U64(now.count, COUNT);
        for (uint32_t i = 0; i < COUNT; i++)
            EXPECT(now.hash[i] == all.hash[i]);
    }
    remat_close(&e);
}

/* Runs that leave early make the keys of their last layer, and nothing above it. */
static void runs_that_leave_early(void) {
    static float hidden[COUNT * DIM];
    remat_engine *e;
    caught none = {0};
    remat_error err = {0};
    for (uint32_t leave = 0; leave < LAYERS; leave++) {
        saved s = {.layer = leave, .hidden = hidden};
        REQUIRE(open_engine(&e, REMAT_COLD_DROP, 7));
        e->sweep.tap = save;
        e->sweep.tap_user = &s;
        const uint32_t n = set_runs(e, 0, leave);
        EXPECT(rm_sweep_run(&e->sweep, n, catch_row, &none, &err) == REMAT_OK);
        EXPECT_EQ_U64(none.count, 0);
        EXPECT_EQ_U64(s.rows, 0);
        EXPECT_EQ_U64(e->cache.pool.taken, (leave + 1) * COLUMNS);
        remat_close(&e);
    }
}

/* An error of the receiver ends the sweep, and the next one works. */
static void a_refused_row_ends_the_sweep(void) {
    remat_engine *e;
    remat_error err = {0};
    REQUIRE(open_engine(&e, REMAT_COLD_SPILL, 64));
    for (uint32_t c = 0; c < COLUMNS; c++)
        set_cold(e, c, LAYERS);
    for (uint32_t n = 1; n <= COUNT; n += 37) {
        caught now = {.fail_at = n};
        EXPECT(rm_sweep_run(&e->sweep, set_runs(e, 0, LAYERS), catch_row, &now, &err) ==
               REMAT_E_FAILED);
        EXPECT_EQ_U64(now.count, n - 1);
        EXPECT(strcmp(err.message, "refused") == 0);
        rm_cache_settle(&e->cache);
        EXPECT_EQ_U64(e->cache.pool.taken, 0);
    }
    remat_close(&e);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(logits_come_in_order_of_rows), T(dropped_pages_leave),
                  T(spilled_pages_leave), T(runs_from_a_hidden_state), T(runs_that_leave_early),
                  T(a_refused_row_ends_the_sweep));
}
