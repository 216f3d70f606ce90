/*
 * test_allowance.c: memory that follows the machine. The pages that may be in memory change at
 * random, between steps and in the middle of a sweep: the answer stays the same, no more of the
 * pool is resident than may be, and what left comes back.
 */
#include "engine_fixture.h"
#include "harness.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPECT_MSG(c, ...) ((c) ? (void)0 : (void)t_fail(__VA_ARGS__))

enum { COUNT = 1500, ALONE = 40, PAGE = 4096 };

/* The machine: so many pages of the pool are allowed. */
typedef struct machine {
    remat_engine *e;
    uint32_t pages;
    bool wild; /* another number at every look */
    uint64_t looks, most_over;
} machine;

static uint64_t look(void *user) {
    machine *m = user;
    const rm_cache *c = &m->e->cache;
    m->looks++;
    if (m->wild) m->pages = (uint32_t)(t_random() % (c->pool.count + 1u));
    return rm_ledger_total(&m->e->ledger) - (c->pool.count - (uint64_t)m->pages) * c->page_bytes;
}

static uint64_t resident_bytes(const rm_pool *p) {
    static unsigned char in[1 << 16];
    const uint64_t pages = p->count * p->block_bytes / PAGE;
    uint64_t n = 0;
    if (pages > sizeof in || mincore(p->blocks, pages * PAGE, in) != 0) return UINT64_MAX;
    for (uint64_t i = 0; i < pages; i++)
        n += in[i] & 1;
    return n * PAGE;
}

/* Says it once: it is called for every chunk. */
static void check_pool(const remat_engine *e) {
    static bool said;
    const rm_pool *p = &e->cache.pool;
    const uint64_t resident = resident_bytes(p);
    const bool good =
        p->limit == e->page_limit && p->taken <= p->limit && resident <= p->limit * p->block_bytes;
    if (!good && !said)
        t_fail("limit %u, the engine's %llu; %u pages taken, %llu resident", p->limit,
               (unsigned long long)e->page_limit, p->taken,
               (unsigned long long)(resident / p->block_bytes));
    said = said || !good;
}

/* Before each chunk of a sweep. */
static void pause_and_check(void *user) {
    remat_engine *e = user;
    rm_allowance_in_sweep(e);
    check_pool(e);
}

static bool start(remat_engine **out, machine *m, const subject *s, uint32_t sequences,
                  remat_cold cold) {
    remat_error err = {0};
    remat_options o = remat_options_default();
    remat_limits l = remat_limits_default();
    o.memory_bytes = 256u << 20;
    o.thread_count = 2;
    l.context_count = s->count;
    l.sequence_count = sequences;
    l.chunk_rows = 64;
    l.cold = cold;
    l.spill_dir = engine_spill_dir();
    l.no_spill = cold == REMAT_COLD_DROP;
    int status = remat_open(out, s->path, &o, &err);
    if (status == REMAT_OK) {
        *m = (machine){.e = *out, .pages = UINT32_MAX};
        (*out)->allowance.follows = true;
        (*out)->allowance.source = look;
        (*out)->allowance.source_user = m;
        status = remat_start(*out, &l, &err);
    }
    if (status != REMAT_OK) {
        t_fail("%s", err.message);
        remat_close(out);
        return false;
    }
    (*out)->sweep.pause = pause_and_check;
    m->pages = (*out)->setup.page_count;
    EXPECT(rm_setup_whole(&(*out)->setup, &(*out)->model));
    EXPECT(rm_allowance_can_give(*out));
    EXPECT(((*out)->setup.stage_count > 0) == (cold == REMAT_COLD_SPILL));
    return true;
}

static void compare(const subject *s, const record *now, uint32_t count) {
    const difference d = record_compare(&s->first, now);
    EXPECT_MSG(!d.found, "%s: %s", s->spec->name, d.text);
    EXPECT(d.compared >= (uint64_t)count * (s->spec->layer_count - 1));
}

/* A window beside whole contexts; and without. */
static const tiny_spec *spec_at(uint32_t index) {
    static tiny_spec plain;
    if (index == 0) {
        plain = tiny_spec_default();
        return &plain;
    }
    for (size_t i = 0; tiny_spec_architecture(i) != NULL; i++) {
        const tiny_spec *s = tiny_spec_architecture(i);
        if (s->window > 0 && s->window_pattern > 1) return s;
    }
    return NULL;
}

static void follow_wildly(uint32_t spec, remat_cold cold) {
    static const uint32_t pieces[] = {300, 1, 1, 64, 1, 127, 5, 0};
    subject s;
    record now;
    machine m;
    recorder r;
    remat_engine *e = NULL;
    remat_sequence *q = NULL;
    remat_error err = {0};
    char why[WHY_MAX];
    REQUIRE(subject_open(&s, spec_at(spec), COUNT, ALONE, 1));
    const bool first = same_first(why, &s, REMAT_KV_F16);
    EXPECT_MSG(first, "%s", why);
    record_open(&now, s.spec->layer_count, COUNT);
    if (first && start(&e, &m, &s, 1, cold)) {
        recorder_attach(&r, e);
        m.wild = true;
        EXPECT(remat_sequence_open(&q, e, &err) == REMAT_OK);
        recorder_follow(&r, q, &now);
        int status = feed(e, q, &now, s.tokens, 0, COUNT - ALONE, pieces, &err);
        if (status == REMAT_OK)
            status = feed(e, q, &now, s.tokens, COUNT - ALONE, COUNT, cuts[CUT_ONE_BY_ONE], &err);
        EXPECT_MSG(status == REMAT_OK, "%s", err.message);
        check_pool(e);
        compare(&s, &now, COUNT);
        remat_stats st;
        remat_stats_get(&st, e);
        EXPECT(st.shrunk_count > 10 && st.grown_count > 10);
        EXPECT((st.spill_read_bytes > 0) == (cold == REMAT_COLD_SPILL));
        EXPECT((st.recomputed_tokens > 0) == (cold == REMAT_COLD_DROP));
        /* A look before each chunk of each layer, where pages may leave in a sweep. */
        EXPECT((m.looks > COUNT / 64 * s.spec->layer_count) == (cold == REMAT_COLD_SPILL));
    }
    remat_close(&e);
    record_close(&now);
    subject_close(&s);
}

static void pages_come_and_go_by_disk(void) {
    follow_wildly(0, REMAT_COLD_SPILL);
}
static void pages_come_and_go_by_recomputing(void) {
    follow_wildly(0, REMAT_COLD_DROP);
}
static void with_windows_by_disk(void) {
    follow_wildly(1, REMAT_COLD_SPILL);
}
static void with_windows_by_recomputing(void) {
    follow_wildly(1, REMAT_COLD_DROP);
}

/* --- one step after the other ----------------------------------------------------------------- */

typedef struct bench {
    subject s;
    machine m;
    record now;
    recorder r;
    remat_engine *e;
    remat_sequence *q[3];
    remat_error err;
} bench;

static bool open_bench(bench *b, uint32_t sequences, remat_cold cold) {
    char why[WHY_MAX];
    *b = (bench){0};
    if (!subject_open(&b->s, spec_at(0), COUNT, ALONE, 1)) return false;
    if (!same_first(why, &b->s, REMAT_KV_F16)) return false;
    record_open(&b->now, b->s.spec->layer_count, COUNT);
    if (!start(&b->e, &b->m, &b->s, sequences, cold)) return false;
    recorder_attach(&b->r, b->e);
    for (uint32_t i = 0; i < sequences; i++) {
        if (remat_sequence_open(&b->q[i], b->e, &b->err) != REMAT_OK) return false;
        recorder_follow(&b->r, b->q[i], &b->now); /* all have the same tokens */
    }
    return true;
}

static void close_bench(bench *b) {
    compare(&b->s, &b->now, remat_sequence_count(b->q[0]));
    remat_close(&b->e);
    record_close(&b->now);
    subject_close(&b->s);
}

static void append(bench *b, uint32_t i, uint32_t count) {
    static const uint32_t whole[] = {0};
    const uint32_t first = remat_sequence_count(b->q[i]);
    const int status =
        feed(b->e, b->q[i], &b->now, b->s.tokens, first, first + count, whole, &b->err);
    EXPECT_MSG(status == REMAT_OK, "%s", b->err.message);
    check_pool(b->e);
}

static remat_stats stats_of(const bench *b) {
    remat_stats s;
    remat_stats_get(&s, b->e);
    return s;
}

/* Down to the floor: nearly nothing of the pool is resident, and each step brings all of it back
 * for a moment. Up again: one step restores it, the next ones are as cheap as ever. */
static void memory_comes_back(void) {
    for (remat_cold cold = REMAT_COLD_SPILL; cold <= REMAT_COLD_DROP; cold++) {
        bench b;
        REQUIRE(open_bench(&b, 1, cold));
        append(&b, 0, COUNT - ALONE);
        const uint64_t all = stats_of(&b).kv_resident_bytes;
        EXPECT(all >= (COUNT - ALONE) / 64 * 3 * b.e->cache.page_bytes);
        EXPECT(resident_bytes(&b.e->cache.pool) >= all);
        EXPECT_EQ_U64(stats_of(&b).limit_bytes, rm_ledger_total(&b.e->ledger));
        b.m.pages = 0;
        append(&b, 0, 1);
        EXPECT(stats_of(&b).kv_resident_bytes <= 4 * b.e->cache.page_bytes); /* being written */
        EXPECT(resident_bytes(&b.e->cache.pool) <= all / 3 + 4 * b.e->cache.page_bytes);
        EXPECT_EQ_U64(stats_of(&b).shrunk_count, 1);
        append(&b, 0, 1);
        EXPECT(stats_of(&b).kv_resident_bytes <= 4 * b.e->cache.page_bytes); /* being written */
        b.m.pages = b.e->setup.page_count;
        append(&b, 0, 1);
        EXPECT_EQ_U64(stats_of(&b).grown_count, 1);
        EXPECT(stats_of(&b).kv_resident_bytes >= all - 3 * b.e->cache.page_bytes);
        const remat_stats before = stats_of(&b);
        append(&b, 0, 1);
        append(&b, 0, 1);
        EXPECT(stats_of(&b).recomputed_tokens <= before.recomputed_tokens + 2 * 64);
        EXPECT(stats_of(&b).spill_read_bytes <=
               before.spill_read_bytes + 6 * b.e->cache.page_bytes);
        close_bench(&b);
    }
}

/* The sequences that have nothing to do give way before the one in the step. */
static void idle_sequences_go_first(void) {
    bench b;
    REQUIRE(open_bench(&b, 3, REMAT_COLD_SPILL));
    for (uint32_t i = 0; i < 3; i++)
        append(&b, i, 640);
    EXPECT_EQ_U64(stats_of(&b).kv_spilled_bytes, 0);
    b.m.pages = 3 * 11 + 8; /* what the third holds, and what passes */
    append(&b, 2, 1);
    for (uint32_t i = 0; i < 3; i++)
        EXPECT(rm_cache_in_pool(&b.e->cache, b.q[i]->index, 0, 3) == (i == 2));
    append(&b, 0, 1);
    for (uint32_t i = 0; i < 60; i++)
        append(&b, i % 3, 1);
    close_bench(&b);
}

/* The disk fails when pages are only there: they are computed again, and memory is taken as if it
 * were there, since nothing can leave any more. */
static void a_failing_disk_ends_it(void) {
    bench b;
    REQUIRE(open_bench(&b, 1, REMAT_COLD_SPILL));
    EXPECT(!rm_setup_holds_rows(&b.e->setup));
    append(&b, 0, 900);
    b.m.pages = 0;
    append(&b, 0, 1);
    EXPECT(stats_of(&b).kv_spilled_bytes > 0);
    const int null = open("/dev/null", O_RDWR);
    REQUIRE(null >= 0 && dup2(null, b.e->spill.fd) >= 0);
    close(null);
    append(&b, 0, 1);
    append(&b, 0, 1);
    EXPECT(stats_of(&b).healed_count > 0);
    EXPECT_EQ_U64(b.e->page_limit, b.e->setup.page_count);
    EXPECT(!rm_allowance_can_give(b.e));
    append(&b, 0, 200);
    EXPECT_EQ_U64(b.e->page_limit, b.e->setup.page_count);
    close_bench(&b);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(pages_come_and_go_by_disk), T(pages_come_and_go_by_recomputing),
                  T(with_windows_by_disk), T(with_windows_by_recomputing), T(memory_comes_back),
                  T(idle_sequences_go_first), T(a_failing_disk_ends_it));
}
