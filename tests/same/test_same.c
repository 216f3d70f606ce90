/*
 * test_same.c: one answer. Whatever the threads, the kernel set, the chunks, the budget, what was
 * dropped, how the prompt was cut and who shared the batch: the same bits, for every row of every
 * layer and for every logit. Equality only. On small models; test_same_smollm2.c has a real one.
 *
 * Each run appends the same tokens, LAST of them one at a time, beyond a page (64 tokens) and a
 * span (1,024). The records of two runs are compared; see engine_fixture.h.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <unistd.h>

/* Tokens of a run, how many of them are appended alone at the end, and runs of several settings at
 * once. Sanitizers are slow, and look for something else than another bit: pages without a second
 * span, and the whole matrix for the first model only. */
#if defined(RM_SANITIZED)
enum { SANITIZED = 1, COUNT = 340, LAST = 2, TOGETHER = 1 };
#else
enum { SANITIZED = 0, COUNT = 1104, LAST = 4, TOGETHER = 4 };
#endif
enum { PROMPT = COUNT - LAST, SHORT = SANITIZED ? 70 : 140 };

static const uint32_t ONE_PIECE[] = {0}, ONE_BY_ONE[] = {1, 0};
static const uint32_t ODD[] = {1, 63, 64, 65, 100, 7, 513, 3, 0};
static const uint32_t MANY[] = {5, 16, 17, 2, 4, 31, 0};
static const uint32_t *const CUTS[] = {ONE_PIECE, ODD, MANY, ONE_BY_ONE};
static const char *const CUT_NAMES[] = {"one piece", "odd pieces", "small pieces", "one by one"};
enum { CUT_COUNT = 4 };

/* One model, its tokens, and the record of the first run. */
typedef struct subject {
    const tiny_spec *spec;
    char path[64];
    int fd;
    uint32_t *tokens; /* COUNT */
    record first;
    uint32_t runs;
} subject;

static bool subject_open(subject *s, const tiny_spec *spec, uint64_t stream) {
    *s = (subject){.spec = spec};
    s->fd = tiny_model_open(s->path, spec);
    s->tokens = calloc(COUNT, sizeof *s->tokens);
    if (s->tokens == NULL) return false;
    tiny_tokens(s->tokens, COUNT, spec->vocabulary, stream);
    record_open(&s->first, spec->layer_count, COUNT);
    return s->fd >= 0;
}

static void subject_close(subject *s) {
    record_close(&s->first);
    free(s->tokens);
    close(s->fd);
}

/* What a run has to show beside the same bits. */
typedef struct expectation {
    bool recomputes;
} expectation;

/* One engine, one sequence: the tokens up to `count` in pieces, the last alone; then scored. */
static void run_into(record *to, subject *s, const run_config *c, const uint32_t *cuts,
                     uint32_t count, bool score, expectation expected) {
    remat_error err = {0};
    remat_engine *e = NULL;
    remat_sequence *q = NULL;
    recorder r;
    char text[160];
    run_config_text(text, c);
    s->runs++;
    if (engine_start(&e, s->path, c, &err) != REMAT_OK) {
        t_fail("%s; %s: %s", s->spec->name, text, err.message);
        return;
    }
    recorder_attach(&r, e);
    int status = remat_sequence_open(&q, e, &err);
    if (status == REMAT_OK) {
        recorder_follow(&r, q, to);
        const uint32_t alone = count - LAST;
        status = feed(e, q, to, s->tokens, 0, alone, cuts, &err);
        if (status == REMAT_OK) status = feed(e, q, to, s->tokens, alone, count, ONE_BY_ONE, &err);
    }
    remat_stats stats;
    remat_stats_get(&stats, e);
    if (status == REMAT_OK && score) {
        remat_sequence_close(&q);
        status = remat_sequence_open(&q, e, &err);
        recorder_follow(&r, q, to);
        if (status == REMAT_OK) status = feed_scored(e, q, to, s->tokens, count, &err);
        EXPECT(status != REMAT_OK || remat_sequence_count(q) == 0);
    }
    if (status != REMAT_OK) t_fail("%s; %s: %s", s->spec->name, text, err.message);
    if (expected.recomputes && stats.recomputed_tokens == 0)
        t_fail("%s; %s: nothing was recomputed", s->spec->name, text);
    remat_close(&e);
}

static void run_same(subject *s, const run_config *c, int cut, uint32_t count, bool score,
                     expectation expected) {
    record now;
    record_open(&now, s->spec->layer_count, COUNT);
    run_into(&now, s, c, CUTS[cut], count, score, expected);
    const difference d = record_compare(&s->first, &now);
    char text[160];
    run_config_text(text, c);
    if (d.found) t_fail("%s; %s; %s: %s", s->spec->name, text, CUT_NAMES[cut], d.text);
    /* All rows of all layers but the last one's, and the logits of the last tokens. */
    EXPECT(d.compared >= (uint64_t)count * (s->spec->layer_count - 1) + LAST);
    if (count == COUNT && !d.found)
        EXPECT_EQ_U64(record_hash(&now, PROMPT, COUNT), record_hash(&s->first, PROMPT, COUNT));
    record_close(&now);
}

static run_config base(void) {
    run_config c = run_config_default(COUNT);
    c.limits.chunk_rows = 512;
    return c;
}

/* The run all others are compared with: it knows the logits of every position. */
static void run_first(subject *s, remat_kv kv) {
    run_config c = base();
    c.limits.kv = kv;
    run_into(&s->first, s, &c, ONE_PIECE, COUNT, true, (expectation){0});
    EXPECT(!s->first.repeated_differently); /* scoring and generating: the same logits */
    EXPECT(record_hash(&s->first, 0, COUNT) != 0);
}

/* Logits that do not depend on the token would make every comparison true. */
static void varied(const subject *s) {
    for (uint32_t p = 1; p < COUNT; p++) {
        if (s->first.logits[p] == s->first.logits[p - 1]) {
            t_fail("%s: the same logits after positions %u and %u", s->spec->name, p - 1, p);
            return;
        }
    }
}

static void print_hash(const subject *s, const char *what) {
    printf("     %s%s: %016" PRIx64 " in %u runs\n", s->spec->name, what,
           record_hash(&s->first, 0, COUNT), s->runs);
}

/* --- the matrix ------------------------------------------------------------------------------- */

static const uint32_t RESIDENT[] = {REMAT_ALL, 0, 64, 128};
static const uint32_t CHUNKS[] = {1, 7, 64, 512};

static uint32_t pick(uint32_t n) {
    return (uint32_t)(t_random() >> 33) % n;
}

/* A budget between the smallest that works and the one that holds everything. */
static void give_budget(run_config *c, const subject *s, uint32_t quarter) {
    remat_plan plan;
    remat_error err = {0};
    if (engine_plan(&plan, s->path, c, &err) != REMAT_OK) {
        t_fail("%s: plan: %s", s->spec->name, err.message);
        return;
    }
    const uint64_t more = plan.full_bytes > plan.minimum_bytes
                              ? (plan.full_bytes - plan.minimum_bytes) / 4 * quarter
                              : 0;
    c->memory = plan.minimum_bytes + more;
}

/* Each dimension moved alone, so that a failure has one suspect. */
static void each_alone(subject *s, remat_kv kv) {
    const char *const *sets = kernel_sets();
    run_config c = base();
    c.limits.kv = kv;
    for (uint32_t t = 2; t <= 3; t++) {
        c.threads = t;
        run_same(s, &c, 0, COUNT, false, (expectation){0});
    }
    c.threads = 1;
    for (size_t i = 0; i < 3; i++) {
        c.limits.chunk_rows = CHUNKS[i];
        run_same(s, &c, 0, COUNT, false, (expectation){0});
    }
    c.limits.chunk_rows = 512;
    for (size_t i = 1; sets[i] != NULL; i++) {
        c.kernels = sets[i];
        if (strcmp(sets[i], "ref") != 0) run_same(s, &c, 0, COUNT, true, (expectation){0});
    }
    c.kernels = NULL;
    for (size_t i = 1; i < sizeof RESIDENT / sizeof *RESIDENT; i++) {
        c.limits.resident_count = RESIDENT[i];
        run_same(s, &c, 0, COUNT, false, (expectation){.recomputes = true});
    }
    c.limits.resident_count = REMAT_ALL;
    for (int i = 1; i < CUT_COUNT; i++)
        run_same(s, &c, i, COUNT, false, (expectation){0});
    c.limits.logits_rows = 16;
    run_same(s, &c, 0, COUNT, true, (expectation){0});
    c.limits.logits_rows = 1;
    for (uint32_t quarter = 0; quarter < 3; quarter++) {
        give_budget(&c, s, quarter);
        run_same(s, &c, 0, COUNT, false, (expectation){0});
    }
}

/* Several moved together, by the seed. */
static void some_together(subject *s, remat_kv kv, uint32_t runs) {
    const char *const *sets = kernel_sets();
    uint32_t set_count = 0;
    while (sets[set_count] != NULL && strcmp(sets[set_count], "ref") != 0)
        set_count++;
    for (uint32_t i = 0; i < runs; i++) {
        run_config c = base();
        c.limits.kv = kv;
        c.threads = 1 + pick(3);
        c.kernels = set_count > 0 ? sets[pick(set_count)] : NULL;
        c.limits.chunk_rows = CHUNKS[pick(4)];
        c.limits.resident_count = RESIDENT[pick(4)];
        c.limits.logits_rows = 1 + pick(16);
        const bool all = c.limits.resident_count == REMAT_ALL;
        if (pick(2) == 0) {
            /* A pool given by the budget instead of a limit; chunks as the planner likes. */
            c.limits.chunk_rows = 0;
            give_budget(&c, s, pick(4));
        }
        /* Many sweeps over dropped tokens cost their square: few pieces there. */
        const int cut = (int)(all && c.memory == 0 ? pick(CUT_COUNT) : pick(2));
        run_same(s, &c, cut, COUNT, pick(3) == 0, (expectation){.recomputes = !all});
    }
}

static void matrix_of(size_t index) {
    subject s;
    REQUIRE(subject_open(&s, tiny_spec_all(index), 7 + index));
    run_first(&s, REMAT_KV_F16);
    varied(&s);
    if (!SANITIZED || index == 0) each_alone(&s, REMAT_KV_F16);
    some_together(&s, REMAT_KV_F16, TOGETHER);
    print_hash(&s, "");
    subject_close(&s);
}

static void matrix_q8_0(void) {
    matrix_of(0);
}
static void matrix_f32(void) {
    matrix_of(1);
}
static void matrix_f16(void) {
    matrix_of(2);
}
static void matrix_q4_0(void) {
    matrix_of(3);
}
static void matrix_q4_1(void) {
    matrix_of(4);
}
static void matrix_mixed(void) {
    matrix_of(5);
}
static void matrix_one_layer(void) {
    matrix_of(6);
}
static void matrix_k(void) {
    matrix_of(7);
}
static void matrix_both_blocks(void) {
    matrix_of(10);
    EXPECT(tiny_spec_all(11) == NULL);
}

/* Types that differ from those above in a kernel only: several knobs together. */
static void matrix_other_types(void) {
    for (size_t i = 8; i < 10; i++) {
        subject s;
        REQUIRE(subject_open(&s, tiny_spec_all(i), 7 + i));
        run_first(&s, REMAT_KV_F16);
        some_together(&s, REMAT_KV_F16, 6);
        print_hash(&s, "");
        subject_close(&s);
    }
}

/* A cache of full precision is another answer, and one answer as well. */
static void kv_f32(void) {
    subject s, half;
    REQUIRE(subject_open(&s, tiny_spec_all(0), 7));
    REQUIRE(subject_open(&half, tiny_spec_all(0), 7));
    run_first(&s, REMAT_KV_F32);
    run_first(&half, REMAT_KV_F16);
    if (!SANITIZED) each_alone(&s, REMAT_KV_F32);
    some_together(&s, REMAT_KV_F32, TOGETHER);
    EXPECT(record_compare(&s.first, &half.first).found);
    print_hash(&s, ", kv f32");
    subject_close(&s);
    subject_close(&half);
}

/* `ref` defines the answer; it is slow, so it gets the short run of every model and one long. */
static void reference_set(void) {
    for (size_t i = 0; tiny_spec_all(i) != NULL; i += SANITIZED ? 3 : 1) {
        subject s;
        REQUIRE(subject_open(&s, tiny_spec_all(i), 7 + i));
        run_first(&s, REMAT_KV_F16);
        run_config c = base();
        c.kernels = "ref";
        c.threads = 2;
        run_same(&s, &c, 0, SHORT, true, (expectation){0});
        c.limits.resident_count = 64;
        run_same(&s, &c, 1, SHORT, false, (expectation){.recomputes = true});
        subject_close(&s);
    }
}

static void reference_set_beyond_a_span(void) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 2;
    spec.head_count = 2;
    spec.kv_head_count = 1;
    subject s;
    REQUIRE(subject_open(&s, &spec, 3));
    run_first(&s, REMAT_KV_F16);
    run_config c = base();
    c.kernels = "ref";
    c.threads = 2;
    run_same(&s, &c, 0, COUNT, false, (expectation){0});
    subject_close(&s);
}

/* The budget alone decides here: the cache is much larger than all the rest. */
static void budgets_that_drop(void) {
    tiny_spec spec = tiny_spec_default();
    spec.name = "6 layers, MHA, heads of 32";
    spec.layer_count = 6;
    spec.kv_head_count = 4;
    spec.head_dim = 32;
    subject s;
    REQUIRE(subject_open(&s, &spec, 5));
    run_first(&s, REMAT_KV_F16);
    for (uint32_t quarter = 0; quarter < 4; quarter += SANITIZED ? 2 : 1) {
        for (uint32_t threads = SANITIZED ? 3 : 1; threads <= 3; threads += 2) {
            run_config c = base();
            c.threads = threads;
            c.limits.chunk_rows = 16; /* else the largest chunk's work outweighs the cache */
            give_budget(&c, &s, quarter);
            run_same(&s, &c, quarter % 2 == 0 ? 0 : 1, COUNT, false,
                     (expectation){.recomputes = quarter < 3});
        }
    }
    print_hash(&s, "");
    subject_close(&s);
}

/* --- batches ---------------------------------------------------------------------------------- */

enum { STREAMS = 4 };
static const uint32_t STREAM_COUNT[STREAMS] = {COUNT, 330, 70, 200};

typedef struct batch {
    subject s[STREAMS];
    record now[STREAMS];
    remat_engine *e;
    recorder r;
    remat_sequence *q[STREAMS];
    uint32_t done[STREAMS];
    remat_error err;
} batch;

static bool batch_open(batch *b, const tiny_spec *spec, const run_config *c) {
    memset(b, 0, sizeof *b);
    for (uint64_t i = 0; i < STREAMS; i++) {
        if (!subject_open(&b->s[i], spec, 100 + i)) return false;
        record_open(&b->now[i], spec->layer_count, COUNT);
        run_first(&b->s[i], REMAT_KV_F16);
    }
    if (engine_start(&b->e, b->s[0].path, c, &b->err) != REMAT_OK) {
        t_fail("batch: %s", b->err.message);
        return false;
    }
    recorder_attach(&b->r, b->e);
    return true;
}

static void batch_sequence(batch *b, int stream) {
    if (remat_sequence_open(&b->q[stream], b->e, &b->err) != REMAT_OK) {
        t_fail("batch: %s", b->err.message);
        return;
    }
    b->done[stream] = 0;
    recorder_follow(&b->r, b->q[stream], &b->now[stream]);
}

/* Up to n[i] tokens more for each stream, in one call. False when nothing was left to do. */
static bool batch_step(batch *b, const uint32_t n[STREAMS]) {
    remat_step steps[STREAMS];
    int stream_of[STREAMS];
    uint32_t count = 0;
    for (int i = 0; i < STREAMS; i++) {
        const uint32_t left = b->q[i] != NULL ? STREAM_COUNT[i] - b->done[i] : 0;
        if (left == 0 || n[i] == 0) continue;
        steps[count] = (remat_step){.sequence = b->q[i],
                                    .tokens = b->s[i].tokens + b->done[i],
                                    .count = n[i] < left ? n[i] : left};
        stream_of[count++] = i;
    }
    if (count == 0) return false;
    if (remat_advance(b->e, steps, count, &b->err) != REMAT_OK) {
        t_fail("batch: %s", b->err.message);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const int stream = stream_of[i];
        b->done[stream] += steps[i].count;
        EXPECT_EQ_U64(remat_sequence_count(b->q[stream]), b->done[stream]);
        record_logits(&b->now[stream], b->done[stream] - 1, remat_logits(b->q[stream]),
                      b->s[stream].spec->vocabulary);
    }
    return true;
}

static void batch_compare(const batch *b, const char *what) {
    for (int i = 0; i < STREAMS; i++) {
        const difference d = record_compare(&b->s[i].first, &b->now[i]);
        if (d.found) t_fail("%s: sequence %d: %s", what, i, d.text);
        if (b->done[i] > 0) EXPECT(d.compared >= b->done[i]);
    }
}

static void batch_close(batch *b) {
    remat_close(&b->e);
    for (int i = 0; i < STREAMS; i++) {
        subject_close(&b->s[i]);
        record_close(&b->now[i]);
    }
}

static run_config batch_config(uint32_t threads, uint32_t chunk) {
    run_config c = base();
    c.threads = threads;
    c.limits.chunk_rows = chunk;
    c.limits.sequence_count = 3;
    return c;
}

/* Two and three sequences of different length in one call, then decoding side by side. */
static void batch_mates(void) {
    static const uint32_t threads[] = {1, 2, 3}, chunks[] = {512, 7, 64};
    for (int k = 0; k < 3; k++) {
        batch b;
        run_config c = batch_config(threads[k], chunks[k]);
        if (k == 2) c.limits.resident_count = 128;
        REQUIRE(batch_open(&b, tiny_spec_all(k == 1 ? 4 : 0), &c));
        for (int i = 0; i < 3; i++)
            batch_sequence(&b, i);
        batch_step(&b, (const uint32_t[STREAMS]){SANITIZED ? 150 : 600, 50, 0, 0});
        batch_step(&b, (const uint32_t[STREAMS]){SANITIZED ? 80 : 400, 200, 60, 0});
        for (int i = 0; i < 12; i++)
            batch_step(&b, (const uint32_t[STREAMS]){1, 1, 1, 0});
        batch_step(&b, (const uint32_t[STREAMS]){85, 3, 1, 0});
        while (batch_step(&b, (const uint32_t[STREAMS]){1, 17, 2, 0}))
            continue;
        EXPECT(b.done[0] == COUNT && b.done[1] == 330 && b.done[2] == 70);
        batch_compare(&b, "batch");
        batch_close(&b);
    }
}

/* A sequence ends and another takes its place, while a third goes on. */
static void batch_comings_and_goings(void) {
    batch b;
    const run_config c = batch_config(2, 64);
    REQUIRE(batch_open(&b, tiny_spec_all(5), &c));
    batch_sequence(&b, 0);
    batch_sequence(&b, 1);
    batch_step(&b, (const uint32_t[STREAMS]){SANITIZED ? 100 : 300, 100, 0, 0});
    batch_sequence(&b, 2);
    batch_step(&b, (const uint32_t[STREAMS]){SANITIZED ? 50 : 200, 1, 33, 0});
    remat_sequence_close(&b.q[1]);
    batch_sequence(&b, 3); /* in the place of 1, whose pages hold old numbers */
    EXPECT(b.q[3]->index == 1);
    batch_step(&b, (const uint32_t[STREAMS]){1, 0, 1, 150});
    remat_sequence_close(&b.q[2]);
    while (batch_step(&b, (const uint32_t[STREAMS]){90, 0, 0, 1}))
        continue;
    EXPECT(b.done[0] == COUNT && b.done[3] == 200);
    batch_compare(&b, "comings and goings");
    batch_close(&b);
}

/* Under a small budget an idle sequence loses its pages, and resumes as if it had not. */
static void idle_sequence_is_evicted(void) {
    /* Its budget is cut closer than a sanitizer's own memory is steady. */
    if (SANITIZED) SKIP("sanitizers bring memory of their own");
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 6;
    spec.kv_head_count = 4;
    spec.head_dim = 32;
    batch b;
    subject s;
    REQUIRE(subject_open(&s, &spec, 1));
    run_config c = batch_config(1, 16);
    give_budget(&c, &s, 1);
    subject_close(&s);
    REQUIRE(batch_open(&b, &spec, &c));
    batch_sequence(&b, 0);
    batch_sequence(&b, 1);
    batch_step(&b, (const uint32_t[STREAMS]){0, 320, 0, 0});
    batch_step(&b, (const uint32_t[STREAMS]){COUNT - 104, 0, 0, 0});
    remat_stats stats;
    remat_stats_get(&stats, b.e);
    EXPECT(stats.dropped_tokens > 0);
    EXPECT(b.q[1]->dropped_columns > 0); /* the idle one gave way */
    batch_step(&b, (const uint32_t[STREAMS]){0, 5, 0, 0});
    batch_step(&b, (const uint32_t[STREAMS]){5, 5, 0, 0});
    batch_step(&b, (const uint32_t[STREAMS]){1, 0, 0, 0});
    remat_stats_get(&stats, b.e);
    EXPECT(stats.recomputed_tokens > 0);
    batch_compare(&b, "idle sequence");
    batch_close(&b);
}

/* --- the comparison itself -------------------------------------------------------------------- */

/* Sets with one mistake each: the sums are right, their order is not. */
static rm_kernels broken;
static rm_attn_job split_job;
static void (*sound_attn)(const rm_attn_job *job);
static const uint8_t *broken_from, *broken_to;
static rm_matmul_fn *sound_matmul;

/* One chain over k instead of four. */
static void matmul_in_another_order(const rm_out *y, uint32_t strip, const void *strip_bytes,
                                    const rm_acts *x, void *scratch) {
    const uint8_t *at = strip_bytes;
    sound_matmul(y, strip, strip_bytes, x, scratch);
    if (at < broken_from || at >= broken_to) return;
    const float *w = strip_bytes;
    for (uint32_t r = 0; r < x->row_count; r++) {
        float *out = rm_out_at(y, r, strip);
        for (int l = 0; l < RM_LANES; l++) {
            float sum = 0;
            for (uint32_t k = 0; k < x->k_count; k++)
                sum = __builtin_fmaf(w[k * RM_LANES + l], x->f[(size_t)r * x->k_count + k], sum);
            out[l] = sum;
        }
    }
}

/* Spans of 5 pages instead of 16, for queries that see more. */
static void spans_cut_elsewhere(const rm_attn_job *job) {
    enum { CUT = 5 * RM_PAGE_TOKENS };
    sound_attn(job);
    const size_t stride = RM_STATE_HEAD + job->dim;
    const uint32_t none = 0; /* these models have no window */
    for (uint32_t i = 0; i < job->query_count; i++) {
        float part[RM_STATE_HEAD + RM_HEAD_DIM_MAX], *total = job->state + i * stride;
        if (job->seen[i] <= CUT) continue;
        rm_attn_state_clear(total, job->dim);
        for (uint32_t first = 0; first < job->seen[i]; first += CUT) {
            const uint32_t left = job->seen[i] - first, seen = left < CUT ? left : CUT;
            split_job = *job;
            split_job.q += (size_t)i * job->dim;
            split_job.from = &none;
            split_job.seen = &seen;
            split_job.state = part;
            split_job.pages += first / RM_PAGE_TOKENS;
            split_job.query_count = 1;
            sound_attn(&split_job);
            rm_attn_merge(total, part, job->dim);
        }
    }
}

typedef void break_fn(remat_engine *e);

static void break_matmul(remat_engine *e) {
    const rm_matrix *w = &e->model.layers[1].down;
    broken_from = w->strips;
    broken_to = w->strips + rm_strips(w->outputs) * w->strip_bytes;
    sound_matmul = e->kernels->matmul[RM_F32];
    broken.matmul[RM_F32] = matmul_in_another_order;
}

static void break_attention(remat_engine *e) {
    sound_attn = e->kernels->attn_span;
    broken.attn_span = spans_cut_elsewhere;
}

static difference break_and_compare(break_fn *fn) {
    difference d = {0};
    subject s;
    record now;
    remat_engine *e = NULL;
    remat_sequence *q = NULL;
    remat_error err = {0};
    recorder r;
    if (!subject_open(&s, tiny_spec_all(1), 8)) return d;
    const run_config c = base();
    run_first(&s, REMAT_KV_F16);
    record_open(&now, s.spec->layer_count, COUNT);
    if (engine_start(&e, s.path, &c, &err) == REMAT_OK &&
        remat_sequence_open(&q, e, &err) == REMAT_OK) {
        recorder_attach(&r, e);
        recorder_follow(&r, q, &now);
        broken = *e->kernels;
        fn(e);
        e->sweep.kernels = &broken;
        EXPECT(feed(e, q, &now, s.tokens, 0, COUNT, ODD, &err) == REMAT_OK);
        d = record_compare(&s.first, &now);
        EXPECT(record_hash(&now, COUNT - 1, COUNT) !=
               record_hash(&s.first, COUNT - 1, COUNT)); /* it reaches the logits */
    }
    remat_close(&e);
    record_close(&now);
    subject_close(&s);
    return d;
}

static void another_order_in_a_product_is_seen(void) {
    const difference d = break_and_compare(break_matmul);
    EXPECT(d.found);
    EXPECT(d.layer == 1 && d.position == 0);
    printf("     seen at %s\n", d.text);
}

static void another_cut_of_spans_is_seen(void) {
    const difference d = break_and_compare(break_attention);
    EXPECT(d.found);
    EXPECT(d.layer == 0); /* the first position that sees more than five pages, or soon after */
    EXPECT(d.position >= 5 * RM_PAGE_TOKENS && d.position < 5 * RM_PAGE_TOKENS + 8);
    printf("     seen at %s\n", d.text);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(another_order_in_a_product_is_seen),
                  T(another_cut_of_spans_is_seen), T(matrix_q8_0), T(matrix_f32), T(matrix_f16),
                  T(matrix_q4_0), T(matrix_q4_1), T(matrix_mixed), T(matrix_one_layer), T(matrix_k),
                  T(matrix_both_blocks), T(matrix_other_types), T(kv_f32), T(budgets_that_drop),
                  T(batch_mates), T(batch_comings_and_goings), T(idle_sequence_is_evicted),
                  T(reference_set), T(reference_set_beyond_a_span));
}
