/*
 * kerncheck.c: compares every kernel of every set with the reference, then times it.
 *
 *     kerncheck [-s SEED] [-b] [PATTERN..]      -b: time as well
 *
 * Times are those of one thread, beside what ref takes and, where a kernel is bound by arithmetic,
 * the share of the peak of the set's instructions (kc_peak.h). Then products of one row with
 * weights out of memory, as an answer needs them, beside a plain read of as many bytes.
 *
 * Each (set, kernel) runs in a child, so that a crash or an illegal instruction is one red line
 * and not the end of the run. Results are compared bit for bit (any NaN equals any NaN) between
 * guard bytes, over lengths around the vector widths, denormals, and all ways to cut the rows;
 * `ref` itself is compared with doubles computed from the definitions. A pointer that a set
 * inherits is not run again. The checks are in kc_*.h.
 */
#include "kerncheck/kc_attn.h"
#include "kerncheck/kc_matmul.h"
#include "kerncheck/kc_peak.h"
#include "kerncheck/kc_rows.h"

#include <sys/wait.h>
#include <unistd.h>

/* --- what is timed: ordinary numbers, sizes of a small model ------------------------------- */

enum { ROWS = 512, K = 768, N = 1536, DIM = 64, LOGITS = 49152 };

typedef struct bench {
    float *a, *b, *c;
    double *frequency;
    void *strip, *scratch, *page;
    rm_acts x;
    rm_out y;
} bench;

static bench bench_make(rm_format f) {
    bench b = {.a = kc_floats(LOGITS), .b = kc_floats(LOGITS), .c = kc_floats(LOGITS)};
    for (size_t i = 0; i < LOGITS; i++) {
        b.a[i] = (float)(i % 37) / 37 - 0.5f;
        b.b[i] = b.c[i] = 1.0f / (float)(i % 5 + 1);
    }
    b.frequency = (double *)(void *)kc_take(DIM * sizeof(double)).at;
    for (size_t i = 0; i < DIM; i++)
        b.frequency[i] = 1.0 / (double)(i + 1);
    b.page = kc_take(rm_page_bytes(RM_KV_F16, DIM)).at;
    memset(b.page, 0, rm_page_bytes(RM_KV_F16, DIM));
    b.strip = kc_take(rm_strip_bytes(f, K)).at;
    memset(b.strip, 0x11, rm_strip_bytes(f, K)); /* scales are small normal numbers */
    b.scratch = kc_take(rm_attn_scratch_bytes(DIM) + RM_MATMUL_SCRATCH).at;
    void *memory = kc_take(rm_acts_bytes(rm_formats[f].act, ROWS, K)).at;
    memset(memory, 0, rm_acts_bytes(rm_formats[f].act, ROWS, K));
    b.x = rm_acts_view(memory, rm_formats[f].act, ROWS, K);
    b.y = (rm_out){kc_floats((size_t)ROWS * RM_LANES), ROWS, 1};
    return b;
}

static void time_matmul(const rm_kernels *set, bench *b, rm_format f) {
    set->matmul[f](&b->y, 0, b->strip, &b->x, b->scratch);
}
#define TIME(name, f)                                                                              \
    static void time_##name(const rm_kernels *set, bench *b) {                                     \
        time_matmul(set, b, f);                                                                    \
    }

TIME(f32, RM_F32)
TIME(f16, RM_F16)
TIME(q8_0, RM_Q8_0)
TIME(q4_0, RM_Q4_0)
TIME(q4_1, RM_Q4_1)
TIME(bf16, RM_BF16)
TIME(q5_0, RM_Q5_0)
TIME(q5_1, RM_Q5_1)
TIME(iq4_nl, RM_IQ4_NL)
TIME(mxfp4, RM_MXFP4)
TIME(q2_k, RM_Q2_K)
TIME(q3_k, RM_Q3_K)
TIME(q4_k, RM_Q4_K)
TIME(q5_k, RM_Q5_K)
TIME(q6_k, RM_Q6_K)
TIME(iq4_xs, RM_IQ4_XS)

static void time_act_put(const rm_kernels *set, bench *b) {
    set->act_put(&b->x, 0, 0, K, b->a);
}
static void time_out_row(const rm_kernels *set, bench *b) {
    const rm_out y = {b->a, RM_GROUP, K / RM_LANES};
    set->out_row(b->c, &y, 3, 0, K / RM_LANES);
}
static void time_act_rest(const rm_kernels *set, bench *b) {
    set->act_rest(b->c, &b->x, 0, 0, K, b->a);
}
static void time_rms_norm(const rm_kernels *set, bench *b) {
    set->rms_norm(b->c, b->a, b->b, K, 1e-5f);
}
static void time_swiglu(const rm_kernels *set, bench *b) {
    set->swiglu(b->c, b->a, b->b, N);
}

static void time_geglu(const rm_kernels *set, bench *b) {
    set->geglu(b->c, b->a, b->b, N);
}
static void time_add(const rm_kernels *set, bench *b) {
    set->add(b->c, b->a, K);
}
static void time_rope_angles(const rm_kernels *set, bench *b) {
    set->rope_angles(b->b, b->c, b->frequency, DIM / 2, 1000, 1);
}
static void time_rope_pairs(const rm_kernels *set, bench *b) {
    set->rope_pairs(b->a, b->b, b->c, DIM / 2);
}
static void time_rope_halves(const rm_kernels *set, bench *b) {
    set->rope_halves(b->a, b->b, b->c, DIM / 2);
}
static void time_attn_span(const rm_kernels *set, bench *b) {
    static const uint32_t from[3], seen[3] = {RM_SPAN_TOKENS, RM_SPAN_TOKENS, RM_SPAN_TOKENS};
    const void *pages[RM_SPAN_PAGES];
    for (int i = 0; i < RM_SPAN_PAGES; i++)
        pages[i] = b->page;
    const rm_attn_job job = {b->a, from, seen, b->c, pages, b->scratch, 3, DIM, RM_KV_F16};
    set->attn_span(&job);
}
static void time_page_put(const rm_kernels *set, bench *b) {
    set->page_put(b->page, RM_KV_F16, DIM, 20, b->a, b->b);
}
static void time_argmax(const rm_kernels *set, bench *b) {
    volatile size_t sink = set->argmax(b->a, LOGITS);
    (void)sink;
}
static void time_sum_exp(const rm_kernels *set, bench *b) {
    volatile float sink = set->sum_exp(b->a, LOGITS, 0.5f);
    (void)sink;
}
static void time_all_finite(const rm_kernels *set, bench *b) {
    volatile bool sink = set->all_finite(b->a, LOGITS);
    (void)sink;
}

/* --- the table ----------------------------------------------------------------------------- */

/* One row per pointer of rm_kernels: a pointer without a row here fails the lint. work: floating
 * or integer operations of a timed call, 0 where only the time is of interest. */
#define MATMUL(name, f)                                                                            \
    check_matmul_##name, time_##name, 2.0 * ROWS * 16 * K,                                         \
        offsetof(rm_kernels, matmul) + (f) * sizeof(rm_matmul_fn *), f
#define ROW(name) offsetof(rm_kernels, name), RM_F32
static const struct {
    const char *name;
    void (*check)(const rm_kernels *ref, const rm_kernels *set);
    void (*once)(const rm_kernels *set, bench *b);
    double work;
    size_t pointer;
    rm_format format;
} kernels[] = {
    {"matmul_f32", MATMUL(f32, RM_F32)},
    {"matmul_f16", MATMUL(f16, RM_F16)},
    {"matmul_q8_0", MATMUL(q8_0, RM_Q8_0)},
    {"matmul_q4_0", MATMUL(q4_0, RM_Q4_0)},
    {"matmul_q4_1", MATMUL(q4_1, RM_Q4_1)},
    {"matmul_bf16", MATMUL(bf16, RM_BF16)},
    {"matmul_q5_0", MATMUL(q5_0, RM_Q5_0)},
    {"matmul_q5_1", MATMUL(q5_1, RM_Q5_1)},
    {"matmul_iq4_nl", MATMUL(iq4_nl, RM_IQ4_NL)},
    {"matmul_mxfp4", MATMUL(mxfp4, RM_MXFP4)},
    {"matmul_q2_k", MATMUL(q2_k, RM_Q2_K)},
    {"matmul_q3_k", MATMUL(q3_k, RM_Q3_K)},
    {"matmul_q4_k", MATMUL(q4_k, RM_Q4_K)},
    {"matmul_q5_k", MATMUL(q5_k, RM_Q5_K)},
    {"matmul_q6_k", MATMUL(q6_k, RM_Q6_K)},
    {"matmul_iq4_xs", MATMUL(iq4_xs, RM_IQ4_XS)},
    {"act_put", check_act_put, time_act_put, 0, offsetof(rm_kernels, act_put), RM_Q8_0},
    {"out_row", check_out_row, time_out_row, 0, ROW(out_row)},
    {"act_rest", check_act_rest, time_act_rest, 0, offsetof(rm_kernels, act_rest), RM_Q8_0},
    {"rms_norm", check_rms_norm, time_rms_norm, 0, ROW(rms_norm)},
    {"swiglu", check_swiglu, time_swiglu, 0, ROW(swiglu)},
    {"geglu", check_geglu, time_geglu, 0, ROW(geglu)},
    {"add", check_add, time_add, 0, ROW(add)},
    {"rope_angles", check_rope_angles, time_rope_angles, 0, ROW(rope_angles)},
    {"rope_pairs", check_rope_pairs, time_rope_pairs, 0, ROW(rope_pairs)},
    {"rope_halves", check_rope_halves, time_rope_halves, 0, ROW(rope_halves)},
    {"attn_span", check_attn_span, time_attn_span, 4.0 * 3 * RM_SPAN_TOKENS *DIM, ROW(attn_span)},
    {"page_put", check_page_put, time_page_put, 0, ROW(page_put)},
    {"argmax", check_argmax, time_argmax, 0, ROW(argmax)},
    {"sum_exp", check_sum_exp, time_sum_exp, 0, ROW(sum_exp)},
    {"all_finite", check_all_finite, time_all_finite, 0, ROW(all_finite)},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* The fastest of many short runs, in nanoseconds per call: noise only ever adds.
 * On ordinary numbers: a denormal operand costs over a hundred cycles and would be all we saw. */
static double best_ns(size_t k, const rm_kernels *set) {
    bench b = bench_make(kernels[k].format);
    double best = 1e30, spent = 0;
    for (int run = 0; run < 2000 && spent < 0.2e9; run++) {
        const double from = kc_now_ns();
        const int calls = kernels[k].work > 0 ? 1 : 20;
        for (int i = 0; i < calls; i++)
            kernels[k].once(set, &b);
        const double ns = kc_now_ns() - from;
        spent += ns;
        if (ns / calls < best) best = ns / calls;
    }
    return best;
}

/* What pairs leave for those after them: children write it. */
typedef struct figures {
    double ref_ns[KERNELS];
    kc_peak peak; /* of the set in work */
} figures;

static void print_time(size_t k, const rm_kernels *ref, const rm_kernels *set, figures *f) {
    const double ns = best_ns(k, set), rate = kernels[k].work / ns;
    printf(" %12.1f ns", ns);
    if (set == ref) f->ref_ns[k] = ns;
    if (f->ref_ns[k] > 0) printf(" %7.1f x ref", f->ref_ns[k] / ns);
    if (kernels[k].work == 0) return;
    const bool matmul = kernels[k].once != time_attn_span;
    const bool integer = matmul && rm_formats[kernels[k].format].act != RM_ACT_F32;
    const double peak = integer ? f->peak.integer : f->peak.fused;
    printf(" %8.1f G/s", rate);
    if (peak > 0) printf(" %5.1f %% of peak", 100 * rate / peak);
}

/* One row by weights out of memory: bytes of strips a nanosecond, and of a plain read, in turn. */
static void print_one_row(const rm_kernels *set, rm_format f, const char *name, uint8_t *memory) {
    enum { WIDTH = 1536, ROUNDS = 12 };
    const size_t bytes = rm_strip_bytes(f, WIDTH), strips = KC_MEMORY / bytes;
    bench b = bench_make(f);
    b.x = rm_acts_view(kc_take(rm_acts_bytes(rm_formats[f].act, 1, WIDTH)).at, rm_formats[f].act, 1,
                       WIDTH);
    set->act_put(&b.x, 0, 0, WIDTH, b.a);
    b.y.row_count = 1;
    double best = 1e30, read = 1e30;
    volatile uint64_t sink = 0;
    memset(memory, 0x11, KC_MEMORY);
    for (int i = 0; i < ROUNDS; i++) {
        const double from = kc_now_ns();
        for (size_t s = 0; s < strips; s++)
            set->matmul[f](&b.y, 0, memory + s * bytes, &b.x, b.scratch);
        const double middle = kc_now_ns();
        sink = sink + kc_read(memory, strips * bytes);
        const double end = kc_now_ns();
        best = middle - from < best ? middle - from : best;
        read = end - middle < read ? end - middle : read;
    }
    const double all = (double)(strips * bytes);
    printf("one row %-8s %-14s %6.1f GB/s of %5.1f: %3.0f %%\n", set->name, name, all / best,
           all / read, 100 * read / best);
}

/* Runs one pair in a child. Returns 0 when it passed. */
static int run_pair(size_t k, const rm_kernels *ref, const rm_kernels *set, figures *f) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(300); /* sanitizers are slow */
        t_state = t_seed * 2654435761u + 1;
        kernels[k].check(ref, set);
        printf("%-4s %-8s %-14s", t_failures ? "FAIL" : "ok", set->name, kernels[k].name);
        if (f != NULL && !t_failures) print_time(k, ref, set, f);
        putchar('\n');
        fflush(stdout);
        _exit(t_failures ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("FAIL %-8s %-14s signal %d\n", set->name, kernels[k].name, WTERMSIG(status));
    return status != 0;
}

static int same_pointer(const rm_kernels *a, const rm_kernels *b, size_t at) {
    return memcmp((const char *)a + at, (const char *)b + at, sizeof(rm_matmul_fn *)) == 0;
}

static void print_memory(int argc, char **argv, const rm_kernels *const *all) {
    uint8_t *memory = kc_memory(1);
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned most = cpus < 1 ? 1 : cpus < KC_READERS_MAX ? (unsigned)cpus : KC_READERS_MAX;
    for (unsigned threads = 1; threads <= most; threads = threads < most ? most : most + 1)
        printf("read %d MiB, %u threads: %.1f GB/s\n", KC_MEMORY >> 20, threads,
               kc_read_rate(memory, threads));
    for (size_t s = 1; all[s] != NULL; s++) {
        if (rm_kernels_select(all[s]->name, rm_cpu_features()) == NULL) continue;
        if (strcmp(all[s]->name, "amx") == 0) continue; /* one row is the set's below */
        for (size_t k = 0; k < KERNELS; k++) {
            const size_t at = kernels[k].pointer;
            const bool matmul = at < offsetof(rm_kernels, matmul) + sizeof all[s]->matmul &&
                                at >= offsetof(rm_kernels, matmul);
            if (matmul && t_selected(argc, argv, kernels[k].name))
                print_one_row(all[s], kernels[k].format, kernels[k].name, memory);
        }
    }
}

int main(int argc, char **argv) {
    int timed = 0, failed = 0, passed = 0;
    t_seed = (uint64_t)time(NULL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-b") == 0) timed = 1;
        if (strcmp(argv[i], "-s") == 0 && i + 1 < argc) t_seed = strtoull(argv[i + 1], NULL, 10);
    }
    printf("seed %" PRIu64 "\n", t_seed);
    figures *f = NULL;
    if (timed) {
        f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (f == MAP_FAILED) abort();
    }
    const rm_kernels *const *all = rm_kernels_all();
    for (size_t s = 0; all[s] != NULL; s++) {
        if (rm_kernels_select(all[s]->name, rm_cpu_features()) == NULL) {
            printf("skip %s: this machine cannot run it\n", all[s]->name);
            continue;
        }
        if (timed) f->peak = kc_peak_of(all[s]->name);
        if (timed && f->peak.integer > 0) {
            printf("peak %-8s fused steps %.0f G/s, integer products %.0f G/s\n", all[s]->name,
                   f->peak.fused, f->peak.integer);
        }
        for (size_t k = 0; k < KERNELS; k++) {
            if (s > 0 && same_pointer(all[s], all[s - 1], kernels[k].pointer)) continue;
            if (!t_selected(argc, argv, kernels[k].name)) continue;
            const int bad = run_pair(k, all[0], all[s], f);
            failed += bad;
            passed += !bad;
        }
    }
    if (timed) print_memory(argc, argv, all);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
