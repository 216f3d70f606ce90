/*
 * test_plan.c: what fits, and what of it is chosen. The planner is asked directly, with budgets, a
 * program size, a disk and rates of our own, so that nothing depends on the machine.
 */
#include "engine/policy.h"
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
    (void)engine_spill_dir();
    return engine != NULL || remat_open(&engine, path, &o, &err) == REMAT_OK;
}

static remat_limits limits(void) {
    remat_limits l = remat_limits_default();
    l.context_count = CONTEXT;
    return l;
}

static rm_means means_of(rm_disk disk, uint64_t budget) {
    static rm_rate_table guess;
    guess = rm_rates_guess();
    return (rm_means){.disk = disk,
                      .rates = &guess,
                      .budget_bytes = budget,
                      .program_bytes = PROGRAM,
                      .follows = engine->allowance.follows};
}

static rm_planned plan_on(const remat_limits *l, rm_disk disk, uint64_t budget) {
    rm_planned p;
    remat_error err = {0};
    const rm_means means = means_of(disk, budget);
    if (rm_plan(&p, engine, l, &means, &err) != REMAT_OK) t_fail("%s", err.message);
    return p;
}

static rm_planned plan(const remat_limits *l, uint64_t budget) {
    return plan_on(l, RM_DISK_WHOLE, budget);
}

/* What makes a setup one that works; see setup_of() in plan.c. */
static void check_setup(const rm_planned *p, const remat_limits *l, rm_disk disk) {
    const rm_setup *s = &p->setup;
    const uint32_t units = rm_unit_count(&engine->model);
    EXPECT(s->chunk_rows > 0 && (l->chunk_rows == 0 || s->chunk_rows == l->chunk_rows));
    EXPECT(s->unit_count <= units);
    if (l->weights == REMAT_WEIGHTS_RESIDENT) EXPECT_EQ_U64(s->unit_count, units);
    if (l->weights == REMAT_WEIGHTS_STREAM) EXPECT_EQ_U64(s->unit_count, 0);
    EXPECT((s->stage_count > 0) == (s->cold == REMAT_COLD_SPILL));
    EXPECT(s->stage_count <= RM_STAGE_READS);
    if (disk == RM_DISK_NONE) EXPECT(!rm_setup_spills(s));
    if (disk != RM_DISK_WHOLE) EXPECT(s->row_max > 0);
    const uint64_t all = rm_policy_pages(&engine->model, s->column_count * RM_PAGE_TOKENS);
    const bool whole = s->page_count >= s->sequence_count * all;
    if (l->cold == REMAT_COLD_SPILL && !whole) EXPECT(s->cold == REMAT_COLD_SPILL);
    if (l->cold == REMAT_COLD_DROP) EXPECT(s->cold == REMAT_COLD_DROP);
    /* Without a disk to rely on, a layer of the context fits. */
    if (s->cold == REMAT_COLD_DROP || disk != RM_DISK_WHOLE)
        EXPECT(s->page_count >= s->sequence_count * s->column_count);
    /* Tokens that run again are in one sweep with those that see them. */
    if (s->row_max > 0 && s->row_max < s->sequence_count * s->context_count)
        EXPECT(whole || (s->cold == REMAT_COLD_SPILL && disk == RM_DISK_WHOLE));
    if (s->row_max == 0) EXPECT(s->chunk_rows % RM_PAGE_TOKENS == 0);
    EXPECT(p->prefill_s > 0 && p->token_s > 0);
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

/* Seconds that a plan is chosen by. */
static double seconds(const rm_planned *p) {
    return p->prefill_s + 256 * p->token_s;
}

/* Every budget from nothing to plenty: never over it, never slower with more. */
static void budgets(const remat_limits *l, rm_disk disk, uint64_t step) {
    const rm_planned plenty = plan_on(l, disk, 1u << 30);
    uint32_t works = 0;
    double before = 0;
    for (uint64_t budget = PROGRAM; budget < plenty.full_bytes + 2 * MIB; budget += step) {
        const rm_planned p = plan_on(l, disk, budget);
        EXPECT_EQ_U64(p.minimum_bytes, plenty.minimum_bytes);
        EXPECT_EQ_U64(p.full_bytes, plenty.full_bytes);
        if (p.total_bytes == 0) {
            EXPECT(works == 0);
            EXPECT(budget < p.minimum_bytes);
            continue;
        }
        EXPECT(p.total_bytes <= budget);
        /* Of those nearly as fast, by a fiftieth, one is taken that leaves the disk alone. */
        if (works > 0 && seconds(&p) > before * 1.02)
            t_fail("disk %d, %" PRIu64 " KiB: %g s, and %g s with less", disk, budget >> 10,
                   seconds(&p), before);
        if (works == 0 || seconds(&p) < before) before = seconds(&p);
        works++;
        check_setup(&p, l, disk);
        check_sum(&p);
    }
    EXPECT(works > 2);
}

static void more_budget_is_never_worse(void) {
    REQUIRE(have_engine());
    remat_limits l = limits();
    static const rm_disk disks[] = {RM_DISK_NONE, RM_DISK_SMALL, RM_DISK_WHOLE};
    for (int i = 0; i < 3; i++)
        budgets(&l, disks[i], 61 << 10);
    const rm_planned plenty = plan(&l, 1u << 30);
    EXPECT_EQ_U64(plenty.setup.page_count, 6 * plenty.setup.column_count);
    EXPECT_EQ_U64(plenty.setup.unit_count, rm_unit_count(&engine->model));
    EXPECT(plenty.total_bytes <= plenty.full_bytes);
    EXPECT(!rm_setup_spills(&plenty.setup));
}

/* Each choice that a caller may make is kept, in every budget. */
static void forced_limits_are_kept(void) {
    REQUIRE(have_engine());
    static const remat_cold colds[] = {REMAT_COLD_AUTO, REMAT_COLD_SPILL, REMAT_COLD_DROP};
    static const remat_weights weights[] = {REMAT_WEIGHTS_AUTO, REMAT_WEIGHTS_RESIDENT,
                                            REMAT_WEIGHTS_STREAM};
    static const uint32_t chunks[] = {0, 1, 7, 64, 512};
    for (int i = 0; i < 3 * 3 * 5; i++) {
        remat_limits l = limits();
        l.cold = colds[i % 3];
        l.weights = weights[i / 3 % 3];
        l.chunk_rows = chunks[i / 9];
        l.recompute = (remat_recompute)(i % 5);
        if (i % 4 == 0) l.resident_count = 300;
        budgets(&l, i % 2 == 0 || l.cold == REMAT_COLD_SPILL ? RM_DISK_WHOLE : RM_DISK_NONE,
                511 << 10);
    }
}

static void the_minimum_works_and_less_does_not(void) {
    REQUIRE(have_engine());
    const remat_limits l = limits();
    uint64_t before = 0;
    for (int disk = RM_DISK_WHOLE; disk >= RM_DISK_NONE; disk--) {
        const uint64_t minimum = plan_on(&l, (rm_disk)disk, 1u << 30).minimum_bytes;
        EXPECT(plan_on(&l, (rm_disk)disk, minimum).total_bytes > 0);
        EXPECT(plan_on(&l, (rm_disk)disk, minimum - MIB).total_bytes == 0);
        EXPECT(plan_on(&l, (rm_disk)disk, 1).total_bytes == 0);
        EXPECT(plan_on(&l, (rm_disk)disk, UINT64_MAX).total_bytes > 0);
        EXPECT(minimum >= before); /* a disk saves memory */
        before = minimum;
    }
}

/* A context of any length takes next to nothing when a disk holds it. */
static void long_contexts_need_a_disk(void) {
    REQUIRE(have_engine());
    remat_limits l = limits(), longer = l;
    longer.context_count = 20 * CONTEXT;
    const uint64_t more = 19ull * CONTEXT;
    const rm_planned a = plan(&l, 1u << 30), b = plan(&longer, 1u << 30);
    EXPECT(b.minimum_bytes - a.minimum_bytes < 32 * more); /* tokens, tables, checksums */
    const rm_planned c = plan_on(&l, RM_DISK_NONE, 1u << 30),
                     d = plan_on(&longer, RM_DISK_NONE, 1u << 30);
    EXPECT(d.minimum_bytes - c.minimum_bytes > 500 * more); /* a layer of pages, and rows */
}

static void a_whole_cache_needs_no_more_rows_than_a_chunk(void) {
    REQUIRE(have_engine());
    remat_limits l = limits();
    const rm_planned all = plan(&l, 1u << 30);
    EXPECT_EQ_U64(all.setup.column_count, (CONTEXT + 63) / 64);
    EXPECT_EQ_U64(all.setup.row_max, all.setup.chunk_rows);
    l.resident_count = 640;
    l.cold = REMAT_COLD_DROP;
    const rm_planned some = plan(&l, 1u << 30);
    EXPECT_EQ_U64(some.setup.row_max, CONTEXT);
    EXPECT_EQ_U64(some.setup.resident_columns, 10);
    EXPECT_EQ_U64(some.setup.page_count, 10 * 6 + (all.setup.column_count - 10));
    l.resident_count = 63; /* whole pages only */
    EXPECT_EQ_U64(plan(&l, 1u << 30).setup.resident_columns, 0);
    l.resident_count = 1u << 30; /* more than the context is all of it */
    EXPECT_EQ_U64(plan(&l, 1u << 30).setup.page_count, all.setup.page_count);
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

/* Every unit once, whatever the number of layers. */
static void units_are_made_resident_once(void) {
    for (uint32_t layers = 1; layers <= 70; layers++) {
        rm_model m = engine->model;
        m.shape.layer_count = layers;
        uint8_t seen[RM_UNIT_LAYERS + 140] = {0};
        for (uint32_t i = 0; i < rm_unit_count(&m); i++) {
            const uint32_t unit = rm_plan_unit(&m, i);
            REQUIRE(unit < rm_unit_count(&m));
            EXPECT(seen[unit] == 0);
            seen[unit] = 1;
        }
    }
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
        const rm_means means = means_of(RM_DISK_WHOLE, 1u << 30);
        EXPECT(rm_plan(&p, engine, &bad[i], &means, &err) == REMAT_E_USAGE);
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
    const rm_planned p = plan_on(&l, RM_DISK_NONE, 1ull << 36);
    EXPECT(p.total_bytes == 0);
    EXPECT(p.minimum_bytes > 60ull * RM_CONTEXT_MAX * 64 * 4); /* the rows alone */
    const rm_planned disk = plan(&l, 1ull << 30);
    EXPECT(disk.total_bytes == 0 && disk.full_bytes > p.minimum_bytes);
    EXPECT(disk.minimum_bytes > 60ull * RM_CONTEXT_MAX * 4); /* the tokens alone */
}

static void the_public_plan(void) {
    REQUIRE(have_engine());
    const remat_limits l = limits();
    remat_plan p;
    remat_error err = {0};
    REQUIRE(remat_plan_make(&p, engine, &l, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.resident_count, CONTEXT);
    EXPECT(p.predicted_peak_bytes > p.minimum_bytes && p.predicted_peak_bytes <= p.full_bytes);
    EXPECT(p.streamed_weight_bytes == 0 && p.resident_weight_bytes > 0);
    EXPECT(p.spill_file_bytes == 0 && !p.rows_spilled);
    EXPECT(p.minimum_bytes < p.full_bytes);
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++)
        EXPECT(strcmp(remat_account_name(i), "unknown") != 0);
    EXPECT(strcmp(remat_account_name(REMAT_ACCOUNTS), "unknown") == 0);
    remat_limits some = l;
    some.context_count = 1; /* the smallest is the whole, and its margin */
    some.weights = REMAT_WEIGHTS_RESIDENT;
    some.chunk_rows = 1;
    REQUIRE(remat_plan_make(&p, engine, &some, &err) == REMAT_OK);
    EXPECT(p.minimum_bytes <= p.full_bytes);
    some = l;
    some.resident_count = 700;
    REQUIRE(remat_plan_make(&p, engine, &some, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.resident_count, 640);
    some.resident_count = 0;
    REQUIRE(remat_plan_make(&p, engine, &some, &err) == REMAT_OK);
    EXPECT_EQ_U64(p.resident_count, 0);
    some.weights = REMAT_WEIGHTS_STREAM;
    some.cold = REMAT_COLD_SPILL;
    REQUIRE(remat_plan_make(&p, engine, &some, &err) == REMAT_OK);
    EXPECT(p.streamed_weight_bytes > 0 && p.resident_weight_bytes == 0);
    EXPECT(p.cold == REMAT_COLD_SPILL && p.spill_file_bytes > 0);
    some.no_spill = true;
    EXPECT(remat_plan_make(&p, engine, &some, &err) == REMAT_E_USAGE);
}

int main(int argc, char **argv) {
    const int status =
        RM_RUN(argc, argv, T(more_budget_is_never_worse), T(forced_limits_are_kept),
               T(the_minimum_works_and_less_does_not), T(long_contexts_need_a_disk),
               T(a_whole_cache_needs_no_more_rows_than_a_chunk), T(what_costs_more_takes_more),
               T(units_are_made_resident_once), T(limits_out_of_range),
               T(huge_is_refused_not_wrapped), T(the_public_plan));
    remat_close(&engine);
    return status;
}
