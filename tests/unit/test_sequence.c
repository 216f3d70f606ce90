/*
 * test_sequence.c: who keeps a cache. Counts, intervals, pages of the pool and rows run, as tokens
 * are appended, dropped, recomputed, spilled and given back. (That the numbers stay the same is
 * same/'s.)
 */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <math.h>
#include <unistd.h>

enum { CONTEXT = 400, LAYERS = 3 };

static int fd = -1;
static char path[64];
static uint32_t tokens[CONTEXT];

typedef struct bench {
    remat_engine *e;
    remat_sequence *s[3];
    remat_error err;
} bench;

static bool open_with(bench *b, uint32_t sequences, const run_config *how) {
    const tiny_spec spec = tiny_spec_default();
    if (fd < 0) fd = tiny_model_open(path, &spec);
    tiny_tokens(tokens, CONTEXT, spec.vocabulary, 1);
    *b = (bench){0};
    run_config c = *how;
    c.limits.sequence_count = sequences;
    if (engine_start(&b->e, path, &c, &b->err) != REMAT_OK) return false;
    for (uint32_t i = 0; i < sequences; i++) {
        if (remat_sequence_open(&b->s[i], b->e, &b->err) != REMAT_OK) return false;
    }
    return true;
}

/* resident: tokens that stay; the others are dropped. */
static bool open_bench(bench *b, uint32_t sequences, uint32_t resident) {
    run_config c = run_config_default(CONTEXT);
    c.limits.resident_count = resident;
    c.limits.cold = REMAT_COLD_DROP;
    return open_with(b, sequences, &c);
}

static int append(bench *b, int i, uint32_t count) {
    const remat_step step = {
        .sequence = b->s[i], .tokens = tokens + remat_sequence_count(b->s[i]), .count = count};
    return remat_advance(b->e, &step, 1, &b->err);
}

static remat_stats stats_of(const bench *b) {
    remat_stats s;
    remat_stats_get(&s, b->e);
    return s;
}

static uint64_t pages_held(const bench *b) {
    return b->e->cache.pool.taken;
}

typedef struct interval {
    uint32_t first, last, layer_first, layer_last;
    char state[12];
} interval;

typedef struct intervals {
    uint32_t count;
    interval at[16];
} intervals;

static void note(void *user, uint32_t first, uint32_t last, const char *state, uint32_t layer_first,
                 uint32_t layer_last) {
    intervals *v = user;
    EXPECT(first <= last && layer_first <= layer_last && v->count < 16);
    if (v->count == 16) return;
    v->at[v->count] = (interval){first, last, layer_first, layer_last, ""};
    snprintf(v->at[v->count++].state, sizeof v->at->state, "%s", state);
}

/* "0-63 dropped 0-2; 64-99 resident 0-2": tokens, state, layers. */
static void check_text(const remat_sequence *s, const char *right) {
    char text[512] = "";
    intervals v = {0};
    remat_each_interval(s, note, &v);
    for (uint32_t i = 0, n = 0; i < v.count; i++)
        n += (uint32_t)snprintf(text + n, sizeof text - n, "%s%u-%u %s %u-%u", i > 0 ? "; " : "",
                                v.at[i].first, v.at[i].last, v.at[i].state, v.at[i].layer_first,
                                v.at[i].layer_last);
    if (strcmp(text, right) != 0) t_fail("intervals are %s, not %s", text, right);
}

/* dropped tokens, then cached ones; their sum is the count. */
static void check_intervals(const remat_sequence *s, uint32_t dropped, uint32_t cached) {
    char text[128] = "";
    int n = 0;
    if (dropped > 0)
        n = snprintf(text, sizeof text, "0-%u dropped 0-%d%s", dropped - 1, LAYERS - 1,
                     cached > 0 ? "; " : "");
    if (cached > 0)
        snprintf(text + n, sizeof text - (size_t)n, "%u-%u resident 0-%d", dropped,
                 dropped + cached - 1, LAYERS - 1);
    check_text(s, text);
}

static void all_stays_cached(void) {
    bench b;
    REQUIRE(open_bench(&b, 1, REMAT_ALL));
    check_intervals(b.s[0], 0, 0);
    static const uint32_t counts[] = {1, 62, 1, 1, 63, 72, 200};
    uint32_t sum = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        EXPECT(append(&b, 0, counts[i]) == REMAT_OK);
        sum += counts[i];
        EXPECT_EQ_U64(remat_sequence_count(b.s[0]), sum);
        EXPECT_EQ_U64(pages_held(&b), (sum + 63) / 64 * LAYERS);
        check_intervals(b.s[0], 0, sum);
        EXPECT_EQ_U64(stats_of(&b).row_count, sum); /* each token runs once */
    }
    EXPECT_EQ_U64(sum, CONTEXT);
    EXPECT(append(&b, 0, 1) == REMAT_E_CONTEXT);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 0);
    EXPECT_EQ_U64(stats_of(&b).kv_resident_bytes, 7 * LAYERS * b.e->cache.pool.block_bytes);
    remat_sequence_close(&b.s[0]);
    EXPECT_EQ_U64(pages_held(&b), 0);
    remat_close(&b.e);
}

/* 128 tokens stay: whole pages from the start are dropped, and run again with every step. */
static void a_limit_drops_the_first_pages(void) {
    bench b;
    REQUIRE(open_bench(&b, 1, 130)); /* two pages */
    EXPECT(append(&b, 0, 128) == REMAT_OK);
    check_intervals(b.s[0], 0, 128);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 0);
    EXPECT(append(&b, 0, 1) == REMAT_OK); /* a third page begins: the first one goes */
    check_intervals(b.s[0], 64, 65);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 64);
    EXPECT_EQ_U64(stats_of(&b).dropped_tokens, 64);
    EXPECT_EQ_U64(pages_held(&b), 2 * LAYERS);
    EXPECT(append(&b, 0, 1) == REMAT_OK);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 128);
    EXPECT_EQ_U64(stats_of(&b).row_count, 130 + 128);
    EXPECT(append(&b, 0, 200) == REMAT_OK);
    check_intervals(b.s[0], 256, 74);
    EXPECT_EQ_U64(pages_held(&b), 2 * LAYERS);
    remat_close(&b.e);
}

static void nothing_stays_cached(void) {
    bench b;
    REQUIRE(open_bench(&b, 1, 0));
    EXPECT(append(&b, 0, 100) == REMAT_OK);
    EXPECT_EQ_U64(pages_held(&b), 0);
    check_intervals(b.s[0], 100, 0);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 0);
    EXPECT(append(&b, 0, 1) == REMAT_OK);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 100);
    EXPECT_EQ_U64(pages_held(&b), 0);
    EXPECT(b.e->cache.pool.high_water <= 2); /* one layer's pages at a time */
    remat_close(&b.e);
}

/* The same with a disk: nothing runs again, and what is not in memory is in the file. */
static void a_limit_spills_the_first_pages(void) {
    bench b;
    run_config c = run_config_default(CONTEXT);
    c.limits.resident_count = 130;
    c.limits.cold = REMAT_COLD_SPILL;
    REQUIRE(open_with(&b, 1, &c));
    EXPECT(append(&b, 0, 128) == REMAT_OK);
    check_text(b.s[0], "0-127 resident 0-2");
    EXPECT_EQ_U64(stats_of(&b).spill_written_bytes, 0);
    EXPECT(append(&b, 0, 1) == REMAT_OK);
    check_text(b.s[0], "0-63 spilled 0-2; 64-128 resident 0-2");
    EXPECT_EQ_U64(stats_of(&b).kv_spilled_bytes, LAYERS * b.e->cache.page_bytes);
    EXPECT_EQ_U64(stats_of(&b).kv_resident_bytes, 2 * LAYERS * b.e->cache.page_bytes);
    EXPECT(append(&b, 0, 200) == REMAT_OK);
    check_text(b.s[0], "0-255 spilled 0-2; 256-328 resident 0-2");
    EXPECT(append(&b, 0, 1) == REMAT_OK);
    EXPECT(stats_of(&b).spill_read_bytes >= 4 * LAYERS * b.e->cache.page_bytes);
    EXPECT_EQ_U64(stats_of(&b).recomputed_tokens, 0);
    EXPECT_EQ_U64(stats_of(&b).dropped_tokens, 0);
    EXPECT_EQ_U64(stats_of(&b).row_count, 330);
    remat_sequence_truncate(b.s[0], 100); /* what is left is in the file, until the next step */
    check_text(b.s[0], "0-99 spilled 0-2");
    EXPECT_EQ_U64(stats_of(&b).kv_spilled_bytes, 2 * LAYERS * b.e->cache.page_bytes);
    EXPECT(append(&b, 0, 1) == REMAT_OK);
    check_text(b.s[0], "0-100 resident 0-2");
    remat_sequence_close(&b.s[0]);
    EXPECT_EQ_U64(stats_of(&b).kv_spilled_bytes + stats_of(&b).kv_resident_bytes, 0);
    remat_close(&b.e);
}

/* By layer: the lowest ones of all columns go first; by block: the oldest columns. */
static void what_goes_first(void) {
    static const struct {
        remat_recompute how;
        const char *right;
    } cases[] = {
        {REMAT_RECOMPUTE_BLOCK, "0-63 dropped 0-2; 64-199 resident 0-2"},
        {REMAT_RECOMPUTE_LAYER, "0-191 dropped 0-1; 0-191 resident 2-2; 192-199 resident 0-2"},
        {REMAT_RECOMPUTE_FULL, "0-199 dropped 0-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        run_config c = run_config_default(CONTEXT);
        c.limits.cold = REMAT_COLD_DROP;
        c.limits.recompute = cases[i].how;
        c.setup = (given_setup){.given = true, .rows = GIVEN_MEMORY, .units = 8};
        c.setup.more_pages = 4; /* 7 columns may pass: 11 pages, and 12 would be all of it */
        REQUIRE(open_with(&b, 1, &c));
        EXPECT(append(&b, 0, 200) == REMAT_OK);
        check_text(b.s[0], cases[i].right);
        remat_close(&b.e);
    }
}

/* One sequence has waited for long, a larger one not so long: by block the larger one gives way,
 * and selectively what has not been read for longest. */
static void who_gives_way(void) {
    static const struct {
        remat_recompute how;
        const char *first, *second;
    } cases[] = {
        {REMAT_RECOMPUTE_BLOCK, "0-63 resident 0-2", "0-63 dropped 0-2; 64-127 resident 0-2"},
        {REMAT_RECOMPUTE_SELECTIVE, "0-63 dropped 0-0; 0-63 resident 1-2", "0-127 resident 0-2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        run_config c = run_config_default(CONTEXT);
        c.limits.cold = REMAT_COLD_DROP;
        c.limits.recompute = cases[i].how;
        c.setup = (given_setup){.given = true, .rows = GIVEN_MEMORY, .units = 8};
        c.setup.more_pages = 8; /* 21 columns may pass: 29 pages, and 30 would be all of it */
        REQUIRE(open_with(&b, 3, &c));
        EXPECT(append(&b, 1, 64) == REMAT_OK);
        EXPECT(append(&b, 0, 100) == REMAT_OK);
        for (int k = 0; k < 28; k++)
            EXPECT(append(&b, 0, 1) == REMAT_OK);
        EXPECT(append(&b, 2, 385) == REMAT_OK);
        check_text(b.s[1], cases[i].first);
        check_text(b.s[0], cases[i].second);
        check_text(b.s[2], "0-384 resident 0-2");
        remat_close(&b.e);
    }
}

/* Scoring leaves a sequence empty, and its pages free. */
static void count_score(void *user, uint32_t index, float logprob, const remat_top *top,
                        uint32_t top_count) {
    uint32_t *next = user;
    EXPECT_EQ_U64(index, *next);
    ++*next;
    EXPECT(logprob < 0);
    for (uint32_t i = 1; i < top_count; i++)
        EXPECT(top[i].logprob < top[i - 1].logprob ||
               (top[i].logprob == top[i - 1].logprob && top[i].id > top[i - 1].id));
}

static void scoring_keeps_nothing(void) {
    for (uint32_t resident = 0; resident < 2; resident++) {
        bench b;
        REQUIRE(open_bench(&b, 1, resident ? REMAT_ALL : 64));
        uint32_t next = 1;
        EXPECT(remat_score(b.s[0], tokens, 300, 5, count_score, &next, &b.err) == REMAT_OK);
        EXPECT_EQ_U64(next, 300);
        EXPECT_EQ_U64(remat_sequence_count(b.s[0]), 0);
        EXPECT_EQ_U64(pages_held(&b), 0);
        next = 1;
        EXPECT(remat_score(b.s[0], tokens, 1, 5, count_score, &next, &b.err) == REMAT_OK);
        EXPECT_EQ_U64(next, 1); /* one token has nothing before it */
        EXPECT(remat_score(b.s[0], tokens, CONTEXT + 1, 0, count_score, &next, &b.err) ==
               REMAT_E_CONTEXT);
        EXPECT(remat_score(b.s[0], tokens, 10, REMAT_TOP_MAX + 1, count_score, &next, &b.err) ==
               REMAT_E_USAGE);
        EXPECT(append(&b, 0, 10) == REMAT_OK);
        remat_close(&b.e);
    }
}

/* Rows of logits on the way are those that remat_logits() shows when the text ends there, and their
 * sum is what makes probabilities of them. */
enum { ROWS_FIRST = 250, ROWS = 100 };

typedef struct seen_rows {
    uint32_t next, vocabulary; /* index of the call that is expected */
    float logits[ROWS][300];
    uint32_t count;
} seen_rows;

static void see_row(void *user, uint32_t index, const float *logits, float log_sum) {
    seen_rows *r = user;
    double sum = 0;
    EXPECT_EQ_U64(index, r->next);
    r->next = index + 1;
    for (uint32_t i = 0; i < r->vocabulary; i++)
        sum += exp((double)(logits[i] - log_sum));
    EXPECT(fabs(sum - 1) < 1e-5);
    if (r->count < ROWS) memcpy(r->logits[r->count], logits, r->vocabulary * sizeof *logits);
    r->count++;
}

static void rows_on_the_way(void) {
    static seen_rows r;
    for (uint32_t resident = 0; resident < 2; resident++) {
        bench a, b;
        REQUIRE(open_bench(&a, 1, resident ? REMAT_ALL : 64));
        REQUIRE(open_bench(&b, 1, REMAT_ALL));
        r = (seen_rows){.next = ROWS_FIRST, .vocabulary = tiny_spec_default().vocabulary};
        REQUIRE(r.vocabulary <= 300);
        /* In two calls: the second one's rows count from its own tokens. */
        EXPECT(remat_advance_rows(a.s[0], tokens, 300, ROWS_FIRST, see_row, &r, &a.err) ==
               REMAT_OK);
        EXPECT_EQ_U64(r.count, 50);
        r.next = 0;
        EXPECT(remat_advance_rows(a.s[0], tokens + 300, 50, 0, see_row, &r, &a.err) == REMAT_OK);
        EXPECT_EQ_U64(r.count, ROWS);
        EXPECT_EQ_U64(remat_sequence_count(a.s[0]), 350);
        EXPECT(append(&b, 0, ROWS_FIRST) == REMAT_OK);
        for (uint32_t i = 0; i < ROWS; i++) {
            EXPECT(append(&b, 0, 1) == REMAT_OK);
            EXPECT(memcmp(r.logits[i], remat_logits(b.s[0]), r.vocabulary * sizeof(float)) == 0);
        }
        EXPECT(memcmp(remat_logits(a.s[0]), remat_logits(b.s[0]), r.vocabulary * sizeof(float)) ==
               0);
        EXPECT(remat_advance_rows(a.s[0], tokens, 5, 5, see_row, &r, &a.err) == REMAT_E_USAGE);
        EXPECT(remat_advance_rows(a.s[0], tokens, 51, 0, see_row, &r, &a.err) == REMAT_E_CONTEXT);
        EXPECT_EQ_U64(remat_sequence_count(a.s[0]), 350);
        remat_close(&a.e);
        remat_close(&b.e);
    }
}

/* Sequences come and go without touching each other's pages. */
static void sequences_are_apart(void) {
    bench b;
    REQUIRE(open_bench(&b, 3, REMAT_ALL));
    EXPECT(append(&b, 0, 100) == REMAT_OK);
    EXPECT(append(&b, 1, 65) == REMAT_OK);
    EXPECT(append(&b, 2, 64) == REMAT_OK);
    EXPECT_EQ_U64(pages_held(&b), (2 + 2 + 1) * LAYERS);
    const float kept = remat_logits(b.s[0])[7];
    remat_sequence_close(&b.s[1]);
    EXPECT_EQ_U64(pages_held(&b), (2 + 1) * LAYERS);
    EXPECT(remat_sequence_count(b.s[0]) == 100 && remat_logits(b.s[0])[7] == kept);
    remat_sequence *again = NULL;
    EXPECT(remat_sequence_open(&again, b.e, &b.err) == REMAT_OK);
    EXPECT(remat_sequence_count(again) == 0);
    check_intervals(again, 0, 0);
    EXPECT(remat_sequence_open(&b.s[1], b.e, &b.err) == REMAT_E_FAILED);
    EXPECT(b.err.message[0] != '\0');
    remat_close(&b.e);
}

static void generation_says_why_it_ended(void) {
    bench b;
    remat_result r;
    REQUIRE(open_bench(&b, 1, REMAT_ALL));
    remat_generation how = {
        .token_count = 5, .ignore_end = true, .sampling = remat_sampling_default()};
    EXPECT(remat_generate(&r, b.s[0], tokens, 100, &how, &b.err) == REMAT_OK);
    EXPECT(r.finish == REMAT_FINISH_LENGTH && r.token_count == 5 && r.prompt_count == 100);
    EXPECT_EQ_U64(remat_sequence_count(b.s[0]), 104); /* the last one's logits are for nobody */
    how.token_count = 1000;
    EXPECT(remat_generate(&r, b.s[0], tokens, 200, &how, &b.err) == REMAT_OK);
    EXPECT(r.finish == REMAT_FINISH_CONTEXT);
    EXPECT_EQ_U64(remat_sequence_count(b.s[0]), CONTEXT);
    EXPECT_EQ_U64(r.token_count, CONTEXT - 304 + 1); /* the last does not need a place */
    EXPECT(remat_generate(&r, b.s[0], tokens, 1, &how, &b.err) == REMAT_E_CONTEXT);
    how.sampling.top_p = 2;
    EXPECT(remat_generate(&r, b.s[0], tokens, 1, &how, &b.err) == REMAT_E_USAGE);
    EXPECT_EQ_U64(remat_sequence_count(b.s[0]), CONTEXT);
    remat_close(&b.e);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(all_stays_cached), T(a_limit_drops_the_first_pages),
                  T(nothing_stays_cached), T(a_limit_spills_the_first_pages), T(what_goes_first),
                  T(who_gives_way), T(scoring_keeps_nothing), T(rows_on_the_way),
                  T(sequences_are_apart), T(generation_says_why_it_ended));
}
