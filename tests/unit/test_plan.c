/*
 * test_plan.c: what fits. The planner is asked directly, with budgets and a program size of our
 * own, so that nothing depends on the machine.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <unistd.h>

enum { MIB = 1 << 20, PROGRAM = 4 * MIB, CONTEXT = 1500 };

static int fd = -1;
static char path[64];
static remat_engine *engine;

/* 6 layers, wide heads: the cache outweighs a chunk's work. */
static bool have_engine(void) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 6;
    spec.kv_head_count = 4;
    spec.head_dim = 32;
    if (fd < 0) fd = tiny_model_open(path, &spec);
    remat_options o = remat_options_default();
    o.memory_bytes = 256u << 20;
    o.thread_count = 2;
    remat_error err = {0};
    return engine != NULL || remat_open(&engine, path, &o, &err) == REMAT_OK;
}

static remat_limits limits(void) {
    remat_limits l = remat_limits_default();
    l.context_count = CONTEXT;
    return l;
}

static rm_planned plan(const remat_limits *l, uint64_t budget) {
    rm_planned p;
    remat_error err = {0};
    if (rm_plan(&p, engine, l, budget, PROGRAM, &err) != REMAT_OK) t_fail("%s", err.message);
    return p;
}

/* The numbers of a setup are those that the layout takes. */
static void check_sum(const rm_planned *p) {
    rm_ledger l;
    rm_ledger_measure(&l);
    EXPECT(rm_engine_layout(engine, &l, &p->setup, NULL) == REMAT_OK);
    EXPECT_EQ_U64(PROGRAM + engine->ledger.carved + l.carved, p->total_bytes);
    uint64_t sum = 0;
    for (int i = 0; i < RM_ACCOUNT_COUNT; i++)
        sum += p->account_bytes[i];
    EXPECT_EQ_U64(sum, p->total_bytes);
    EXPECT_EQ_U64(p->account_bytes[RM_ACCOUNT_PROGRAM], PROGRAM);
}

/* Every budget from nothing to plenty: never over it, never worse with more. */
static void more_budget_is_never_worse(void) {
    REQUIRE(have_engine());
    const remat_limits l = limits();
    const rm_planned plenty = plan(&l, 1u << 30);
    uint32_t pages = 0, chunk = 0, works = 0;
    for (uint64_t budget = PROGRAM; budget < plenty.full_bytes + MIB; budget += 37 << 10) {
        const rm_planned p = plan(&l, budget);
        EXPECT_EQ_U64(p.minimum_bytes, plenty.minimum_bytes);
        EXPECT_EQ_U64(p.full_bytes, plenty.full_bytes);
        if (p.total_bytes == 0) {
            EXPECT(works == 0);
            EXPECT(budget < p.minimum_bytes);
            continue;
        }
        works++;
        EXPECT(p.total_bytes <= budget);
        /* Room for cached tokens only grows, but where a larger chunk takes its place. */
        EXPECT(p.setup.page_count >= pages || p.setup.chunk_rows > chunk);
        EXPECT(p.setup.chunk_rows >= chunk || p.setup.page_count > pages);
        EXPECT(p.setup.page_count >= p.setup.column_count); /* one layer of the context */
        pages = p.setup.page_count;
        chunk = p.setup.chunk_rows;
        check_sum(&p);
    }
    EXPECT(works > 20);
    EXPECT_EQ_U64(pages, 6 * plenty.setup.column_count);
    EXPECT_EQ_U64(plenty.total_bytes, plenty.full_bytes);
}

static void the_minimum_works_and_less_does_not(void) {
    REQUIRE(have_engine());
    const remat_limits l = limits();
    const uint64_t minimum = plan(&l, 1u << 30).minimum_bytes;
    EXPECT(plan(&l, minimum).total_bytes > 0);
    EXPECT(plan(&l, minimum - MIB).total_bytes == 0);
    EXPECT(plan(&l, 1).total_bytes == 0);
    EXPECT(plan(&l, UINT64_MAX).total_bytes > 0);
}

static void a_whole_cache_needs_no_more_rows_than_a_chunk(void) {
    REQUIRE(have_engine());
    remat_limits l = limits();
    const rm_planned all = plan(&l, 1u << 30);
    EXPECT_EQ_U64(all.setup.column_count, (CONTEXT + 63) / 64);
    EXPECT_EQ_U64(all.setup.row_max, all.setup.chunk_rows);
    EXPECT_EQ_U64(all.setup.chunk_rows, 512);
    l.resident_count = 640;
    const rm_planned some = plan(&l, 1u << 30);
    EXPECT_EQ_U64(some.setup.row_max, CONTEXT);
    EXPECT_EQ_U64(some.setup.resident_columns, 10);
    EXPECT_EQ_U64(some.setup.page_count, 10 * 6 + (all.setup.column_count - 10));
    l.resident_count = 63; /* whole pages only */
    EXPECT_EQ_U64(plan(&l, 1u << 30).setup.resident_columns, 0);
    l.resident_count = 1u << 30; /* more than the context is all of it */
    EXPECT_EQ_U64(plan(&l, 1u << 30).setup.page_count, all.setup.page_count);
}

static void a_forced_chunk_is_kept(void) {
    REQUIRE(have_engine());
    remat_limits l = limits();
    static const uint32_t chunks[] = {1, 7, 64, 512};
    for (size_t i = 0; i < 4; i++) {
        l.chunk_rows = chunks[i];
        const rm_planned most = plan(&l, 1u << 30), least = plan(&l, most.minimum_bytes);
        EXPECT_EQ_U64(most.setup.chunk_rows, chunks[i]);
        EXPECT_EQ_U64(least.setup.chunk_rows, chunks[i]);
        EXPECT(least.total_bytes > 0 && least.total_bytes <= most.minimum_bytes);
        check_sum(&most);
        check_sum(&least);
    }
}

static void what_costs_more_takes_more(void) {
    REQUIRE(have_engine());
    remat_limits l = limits(), more = l;
    const rm_planned one = plan(&l, 1u << 30);
    more.kv = REMAT_KV_F32;
    EXPECT(plan(&more, 1u << 30).account_bytes[RM_ACCOUNT_KV] >
           one.account_bytes[RM_ACCOUNT_KV] / 10 * 19);
    more = l;
    more.sequence_count = 3;
    EXPECT_EQ_U64(plan(&more, 1u << 30).setup.page_count, 3 * one.setup.page_count);
    EXPECT(plan(&more, 1u << 30).minimum_bytes > one.minimum_bytes);
    more = l;
    more.logits_rows = 16;
    EXPECT(plan(&more, 1u << 30).account_bytes[RM_ACCOUNT_LOGITS] >
           one.account_bytes[RM_ACCOUNT_LOGITS]);
    more = l;
    more.context_count = 0; /* the model's */
    EXPECT_EQ_U64(plan(&more, 1u << 30).setup.context_count, 4096);
}

static void limits_out_of_range(void) {
    REQUIRE(have_engine());
    remat_limits bad[8];
    for (int i = 0; i < 8; i++)
        bad[i] = limits();
    bad[0].sequence_count = 0;
    bad[1].sequence_count = RM_SEQUENCES_MAX + 1;
    bad[2].chunk_rows = RM_CHUNK_ROWS_MAX + 1;
    bad[3].logits_rows = 0;
    bad[4].logits_rows = 17;
    bad[5].context_count = RM_CONTEXT_MAX + 1;
    bad[6].context_count = RM_CONTEXT_MAX; /* rows of all sequences do not fit 31 bits */
    bad[6].sequence_count = RM_SEQUENCES_MAX;
    bad[7].context_count = UINT32_MAX;
    for (int i = 0; i < 8; i++) {
        rm_planned p;
        remat_plan public;
        remat_error err = {0};
        EXPECT(rm_plan(&p, engine, &bad[i], 1u << 30, PROGRAM, &err) == REMAT_E_USAGE);
        EXPECT(err.status == REMAT_E_USAGE && err.message[0] != '\0');
        EXPECT(remat_plan_make(&public, engine, &bad[i], NULL) == REMAT_E_USAGE);
        EXPECT(remat_start(engine, &bad[i], &err) == REMAT_E_USAGE);
    }
}

/* Huge limits are sums that stay sums: refused for the budget, not wrapped around. */
static void huge_is_refused_not_wrapped(void) {
    REQUIRE(have_engine());
    remat_limits l = limits();
    l.context_count = RM_CONTEXT_MAX;
    l.sequence_count = 60;
    const rm_planned p = plan(&l, 1ull << 36);
    EXPECT(p.total_bytes == 0);
    EXPECT(p.minimum_bytes > 60ull * RM_CONTEXT_MAX * 64 * 4); /* the rows alone */
}

static void the_public_plan(void) {
    REQUIRE(have_engine());
    const remat_limits l = limits();
    remat_plan p;
    remat_error err = {0};
    REQUIRE(remat_plan_make(&p, engine, &l, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.resident_count, CONTEXT);
    EXPECT_EQ_U64(p.predicted_peak_bytes, p.full_bytes);
    EXPECT(p.minimum_bytes < p.full_bytes);
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++)
        EXPECT(strcmp(remat_account_name(i), "unknown") != 0);
    EXPECT(strcmp(remat_account_name(REMAT_ACCOUNTS), "unknown") == 0);
    remat_limits some = l;
    some.resident_count = 700;
    REQUIRE(remat_plan_make(&p, engine, &some, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.resident_count, 640);
    some.resident_count = 0;
    REQUIRE(remat_plan_make(&p, engine, &some, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.resident_count, 0);
}

int main(int argc, char **argv) {
    const int status =
        RM_RUN(argc, argv, T(more_budget_is_never_worse), T(the_minimum_works_and_less_does_not),
               T(a_whole_cache_needs_no_more_rows_than_a_chunk), T(a_forced_chunk_is_kept),
               T(what_costs_more_takes_more), T(limits_out_of_range),
               T(huge_is_refused_not_wrapped), T(the_public_plan));
    remat_close(&engine);
    return status;
}
