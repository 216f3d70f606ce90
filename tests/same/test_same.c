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
enum { COUNT = SANITIZED ? 340 : 1104, LAST = SANITIZED ? 2 : 4, TOGETHER = SANITIZED ? 1 : 4 };
enum { PROMPT = COUNT - LAST, SHORT = SANITIZED ? 70 : 140 };

static bool open_subject(subject *s, const tiny_spec *spec, uint64_t stream) {
    return subject_open(s, spec, COUNT, LAST, stream);
}

static void run_first(subject *s, remat_kv kv) {
    char why[WHY_MAX];
    if (!same_first(why, s, kv)) t_fail("%s", why);
}

static void run_same(subject *s, const same_run *run) {
    char why[WHY_MAX];
    if (!same_check(why, s, run)) t_fail("%s", why);
}

static void print_hash(const subject *s, const char *what) {
    printf("     %s%s: %016" PRIx64 " in %u runs\n", s->spec->name, what,
           record_hash(&s->first, 0, s->count), s->runs);
}

/* --- the matrix ------------------------------------------------------------------------------- */

static uint32_t pick(uint32_t n) {
    return (uint32_t)(t_random() >> 33) % n;
}

/* Each setting moved alone, so that a failure has one suspect. */
static void each_alone(subject *s, remat_kv kv) {
    same_run run;
    for (uint32_t i = 0; same_way(&run, s, kv, i); i++)
        run_same(s, &run);
}

/* Several moved together, by the seed. */
static void some_together(subject *s, remat_kv kv, uint32_t runs) {
    static const uint32_t resident[] = {REMAT_ALL, 0, 64, 128}, chunks[] = {1, 7, 64, 512};
    const char *const *sets = kernel_sets();
    uint32_t set_count = 0;
    while (sets[set_count] != NULL && strcmp(sets[set_count], "ref") != 0)
        set_count++;
    for (uint32_t i = 0; i < runs; i++) {
        same_run run = {.config = same_config(s, kv)};
        run_config *c = &run.config;
        c->threads = 1 + pick(3);
        c->kernels = set_count > 0 ? sets[pick(set_count)] : NULL;
        c->limits.chunk_rows = chunks[pick(4)];
        c->limits.resident_count = resident[pick(4)];
        c->limits.logits_rows = 1 + pick(16);
        if (c->limits.resident_count != REMAT_ALL) {
            c->limits.cold = pick(2) == 0 ? REMAT_COLD_DROP : REMAT_COLD_SPILL;
            run.saves = c->limits.cold == REMAT_COLD_DROP ? BY_DROPPING : BY_SPILLING;
        }
        if (pick(2) == 0) {
            /* A pool given by the budget instead of a limit; chunks as the planner likes. */
            c->limits.chunk_rows = 0;
            give_budget(c, s, pick(4));
        }
        /* Many sweeps over dropped tokens cost their square: few pieces there. */
        run.cut = run.saves == 0 && c->memory == 0 ? pick(CUT_COUNT) : pick(2);
        run.score = pick(3) == 0;
        run_same(s, &run);
    }
}

static void matrix_of(size_t index) {
    subject s;
    REQUIRE(open_subject(&s, tiny_spec_all(index), 7 + index));
    run_first(&s, REMAT_KV_F16);
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
        REQUIRE(open_subject(&s, tiny_spec_all(i), 7 + i));
        run_first(&s, REMAT_KV_F16);
        some_together(&s, REMAT_KV_F16, 6);
        print_hash(&s, "");
        subject_close(&s);
    }
}

/* A cache of full precision is another answer, and one answer as well. */
static void kv_f32(void) {
    subject s, half;
    REQUIRE(open_subject(&s, tiny_spec_all(0), 7));
    REQUIRE(open_subject(&half, tiny_spec_all(0), 7));
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
        REQUIRE(open_subject(&s, tiny_spec_all(i), 7 + i));
        run_first(&s, REMAT_KV_F16);
        same_run run = {.config = same_config(&s, REMAT_KV_F16), .count = SHORT, .score = true};
        run.config.kernels = "ref";
        run.config.threads = 2;
        run_same(&s, &run);
        run.config.limits.resident_count = 64;
        run.config.limits.cold = i % 2 == 0 ? REMAT_COLD_DROP : REMAT_COLD_SPILL;
        run.cut = CUT_ODD;
        run.score = false;
        run.saves = i % 2 == 0 ? BY_DROPPING : BY_SPILLING;
        run_same(&s, &run);
        subject_close(&s);
    }
}

static void reference_set_beyond_a_span(void) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 2;
    spec.head_count = 2;
    spec.kv_head_count = 1;
    subject s;
    REQUIRE(open_subject(&s, &spec, 3));
    run_first(&s, REMAT_KV_F16);
    same_run run = {.config = same_config(&s, REMAT_KV_F16)};
    run.config.kernels = "ref";
    run.config.threads = 2;
    run_same(&s, &run);
    subject_close(&s);
}

/* The budget alone decides here: the cache is much larger than all the rest. */
static void budgets_that_are_small(void) {
    tiny_spec spec = tiny_spec_default();
    spec.name = SANITIZED ? "6 layers, MHA, heads of 128" : "6 layers, MHA, heads of 32";
    spec.layer_count = 6;
    spec.kv_head_count = 4;
    spec.head_dim = SANITIZED ? 128 : 32; /* for fewer tokens */
    subject s;
    REQUIRE(open_subject(&s, &spec, 5));
    run_first(&s, REMAT_KV_F16);
    for (uint32_t quarter = 0; quarter < 4; quarter += SANITIZED ? 2 : 1) {
        for (uint32_t threads = SANITIZED ? 3 : 1; threads <= 3; threads += 2) {
            same_run run = {.config = same_config(&s, REMAT_KV_F16)};
            run.config.threads = threads;
            run.config.limits.chunk_rows = 16; /* else a large chunk's work outweighs the cache */
            give_budget(&run.config, &s, quarter);
            run.cut = quarter % 2 == 0 ? CUT_ONE_PIECE : CUT_ODD;
            run.saves = quarter < 3 ? BY_ANY : 0;
            run_same(&s, &run);
        }
    }
    print_hash(&s, "");
    subject_close(&s);
}

/* --- batches ---------------------------------------------------------------------------------- */

static const uint32_t STREAMS[BATCH_STREAMS] = {COUNT, 330, 70, 200};

static void batch_end(batch *b, const char *what) {
    if (!batch_compare(b)) t_fail("%s: %s", what, b->why);
    batch_close(b);
}

static run_config batch_config(uint32_t threads, uint32_t chunk) {
    run_config c = run_config_default(COUNT);
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
        if (batch_open(&b, tiny_spec_all(k == 1 ? 4 : 0), &c, STREAMS)) {
            for (int i = 0; i < 3; i++)
                batch_sequence(&b, i);
            batch_step(&b, (const uint32_t[BATCH_STREAMS]){SANITIZED ? 150 : 600, 50, 0, 0});
            batch_step(&b, (const uint32_t[BATCH_STREAMS]){SANITIZED ? 80 : 400, 200, 60, 0});
            for (int i = 0; i < 12; i++)
                batch_step(&b, (const uint32_t[BATCH_STREAMS]){1, 1, 1, 0});
            batch_step(&b, (const uint32_t[BATCH_STREAMS]){85, 3, 1, 0});
            while (batch_step(&b, (const uint32_t[BATCH_STREAMS]){1, 17, 2, 0}))
                continue;
        }
        EXPECT(b.done[0] == COUNT && b.done[1] == 330 && b.done[2] == 70);
        batch_end(&b, "batch");
    }
}

/* A sequence ends and another takes its place, while a third goes on. */
static void batch_comings_and_goings(void) {
    batch b;
    const run_config c = batch_config(2, 64);
    if (batch_open(&b, tiny_spec_all(5), &c, STREAMS)) {
        batch_sequence(&b, 0);
        batch_sequence(&b, 1);
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){SANITIZED ? 100 : 300, 100, 0, 0});
        batch_sequence(&b, 2);
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){SANITIZED ? 50 : 200, 1, 33, 0});
        remat_sequence_close(&b.q[1]);
        batch_sequence(&b, 3); /* in the place of 1, whose pages hold old numbers */
        EXPECT(b.q[3] != NULL && b.q[3]->index == 1);
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){1, 0, 1, 150});
        remat_sequence_close(&b.q[2]);
        while (batch_step(&b, (const uint32_t[BATCH_STREAMS]){90, 0, 0, 1}))
            continue;
    }
    EXPECT(b.done[0] == COUNT && b.done[3] == 200);
    batch_end(&b, "comings and goings");
}

/* Under a small budget an idle sequence loses its pages, and resumes as if it had not. */
static void idle_sequence_gives_way(remat_cold cold) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 6;
    spec.kv_head_count = 4;
    spec.head_dim = 32;
    batch b;
    run_config c = batch_config(1, 16);
    c.limits.cold = cold;
    c.setup = (given_setup){.given = true,
                            .rows = cold == REMAT_COLD_SPILL ? GIVEN_CHUNK : GIVEN_MEMORY,
                            .more_pages = SANITIZED ? 8 : 60,
                            .units = 8};
    if (batch_open(&b, &spec, &c, STREAMS)) {
        remat_stats stats;
        batch_sequence(&b, 0);
        batch_sequence(&b, 1);
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){0, 320, 0, 0});
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){COUNT - 104, 0, 0, 0});
        remat_stats_get(&stats, b.e);
        EXPECT((stats.dropped_tokens > 0) == (cold == REMAT_COLD_DROP));
        EXPECT((stats.kv_spilled_bytes > 0) == (cold == REMAT_COLD_SPILL));
        EXPECT(b.q[1]->cold[0] > 0); /* the idle one gave way */
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){0, 5, 0, 0});
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){5, 5, 0, 0});
        batch_step(&b, (const uint32_t[BATCH_STREAMS]){1, 0, 0, 0});
        remat_stats_get(&stats, b.e);
        EXPECT((stats.recomputed_tokens > 0) == (cold == REMAT_COLD_DROP));
        EXPECT((stats.spill_read_bytes > 0) == (cold == REMAT_COLD_SPILL));
    }
    batch_end(&b, "idle sequence");
}

static void idle_sequence_is_dropped(void) {
    idle_sequence_gives_way(REMAT_COLD_DROP);
}

static void idle_sequence_is_spilled(void) {
    idle_sequence_gives_way(REMAT_COLD_SPILL);
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
    if (!open_subject(&s, tiny_spec_all(1), 8)) return d;
    const run_config c = same_config(&s, REMAT_KV_F16);
    run_first(&s, REMAT_KV_F16);
    record_open(&now, s.spec->layer_count, COUNT);
    if (engine_start(&e, s.path, &c, &err) == REMAT_OK &&
        remat_sequence_open(&q, e, &err) == REMAT_OK) {
        recorder_attach(&r, e);
        recorder_follow(&r, q, &now);
        broken = *e->kernels;
        fn(e);
        e->sweep.kernels = &broken;
        EXPECT(feed(e, q, &now, s.tokens, 0, COUNT, cuts[CUT_ODD], &err) == REMAT_OK);
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
                  T(matrix_both_blocks), T(matrix_other_types), T(kv_f32),
                  T(budgets_that_are_small), T(batch_mates), T(batch_comings_and_goings),
                  T(idle_sequence_is_dropped), T(idle_sequence_is_spilled), T(reference_set),
                  T(reference_set_beyond_a_span));
}
