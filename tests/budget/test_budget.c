/*
 * test_budget.c: the process never holds more than its budget; what is planned is what is taken; a
 * budget that cannot work is refused with the smallest that can, and that one works; with less
 * memory the answer is the same; while generating, nothing touches the heap.
 *
 * Each case runs in a process of its own: this program again, with --child. It prints one line.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "no_malloc.h"
#include "tiny_model.h"

#include "base/hash.h"
#include "base/machine.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, NEW_TOKENS = 3 };

/* no_malloc.c is not linked where a sanitizer takes the same names. */
void no_malloc_begin(void) __attribute__((weak));
unsigned no_malloc_end(void) __attribute__((weak));

/* What a child is asked for, and what it says. */
typedef struct request {
    const char *path;
    uint64_t memory;
    uint32_t context, prompt, threads, resident, chunk, kv_f32;
    uint32_t cold, weights; /* remat_cold, remat_weights */
} request;

typedef struct answer {
    int status;
    uint64_t minimum, full, hash, peak, predicted, reported_peak;
    uint32_t accounts_differ, heap_calls, recomputed, resident;
    uint64_t ledger;                  /* sum of the accounts taken */
    uint64_t spill_read, weight_read; /* bytes */
    long max_rss_bytes;
    int exit_code;
} answer;

#define ANSWER_FORMAT                                                                              \
    "%d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %u %u %u "      \
    "%" PRIu64 " %" PRIu64 " %" PRIu64

/* --- the child -------------------------------------------------------------------------------- */

typedef struct hashing {
    uint64_t hash;
    uint32_t vocabulary;
} hashing;

static bool hash_logits(void *user, uint32_t id, const float *logits) {
    hashing *h = user;
    (void)id;
    h->hash = rm_hash(logits, h->vocabulary * sizeof *logits, h->hash);
    return true;
}

/* All accounts but `program`, which is a measurement, are taken to the byte as planned. */
static uint32_t accounts_differ(const remat_plan *plan, const remat_stats *stats) {
    uint32_t count = 0;
    for (int i = 0; i < REMAT_ACCOUNTS; i++)
        count += i != RM_ACCOUNT_PROGRAM && plan->account_bytes[i] != stats->account_bytes[i];
    return count;
}

static int generate(answer *a, remat_engine *e, const request *r, remat_error *err) {
    static uint32_t prompt[8192];
    remat_model_info info;
    remat_sequence *s = NULL;
    remat_result result;
    remat_info(&info, e);
    tiny_tokens(prompt, r->prompt, info.vocabulary_count, 9);
    RM_TRY(remat_sequence_open(&s, e, err));
    hashing h = {.vocabulary = info.vocabulary_count};
    const remat_generation how = {.token_count = NEW_TOKENS,
                                  .ignore_end = true,
                                  .sampling = remat_sampling_default(),
                                  .on_token = hash_logits,
                                  .user = &h};
    if (no_malloc_begin != NULL) no_malloc_begin();
    const int status = remat_generate(&result, s, prompt, r->prompt, &how, err);
    if (no_malloc_end != NULL) a->heap_calls = no_malloc_end();
    a->hash = h.hash;
    return status;
}

static int child_run(answer *a, const request *r, remat_error *err) {
    remat_engine *e = NULL;
    remat_plan plan;
    remat_stats stats;
    remat_options o = remat_options_default();
    o.memory_bytes = r->memory;
    o.thread_count = r->threads;
    remat_limits l = remat_limits_default();
    l.context_count = r->context;
    l.resident_count = r->resident;
    l.chunk_rows = r->chunk;
    l.kv = r->kv_f32 ? REMAT_KV_F32 : REMAT_KV_F16;
    l.cold = (remat_cold)r->cold;
    l.weights = (remat_weights)r->weights;
    int status = remat_open(&e, r->path, &o, err);
    if (status == REMAT_OK) status = remat_plan_make(&plan, e, &l, err);
    if (status == REMAT_OK) {
        a->minimum = plan.minimum_bytes;
        a->full = plan.full_bytes;
        a->resident = plan.resident_count;
        status = remat_start(e, &l, err);
    }
    if (status == REMAT_OK) {
        remat_stats_get(&stats, e);
        a->accounts_differ = accounts_differ(&plan, &stats);
        for (int i = 0; i < REMAT_ACCOUNTS; i++)
            a->ledger += stats.account_bytes[i];
        status = generate(a, e, r, err);
        remat_stats_get(&stats, e);
        a->recomputed = (uint32_t)stats.recomputed_tokens;
        a->spill_read = stats.spill_read_bytes;
        a->weight_read = stats.weight_read_bytes;
        if (stats.healed_count > 0) status = REMAT_E_FAILED;
        a->predicted = stats.predicted_peak_bytes;
        a->reported_peak = stats.peak_bytes;
    }
    if (status == REMAT_E_BUDGET) a->minimum = err->minimum_bytes;
    remat_close(&e);
    return status;
}

static int child_main(char **argv) {
    const request r = {.path = argv[2],
                       .memory = strtoull(argv[3], NULL, 10),
                       .context = (uint32_t)strtoul(argv[4], NULL, 10),
                       .prompt = (uint32_t)strtoul(argv[5], NULL, 10),
                       .threads = (uint32_t)strtoul(argv[6], NULL, 10),
                       .resident = (uint32_t)strtoul(argv[7], NULL, 10),
                       .chunk = (uint32_t)strtoul(argv[8], NULL, 10),
                       .kv_f32 = (uint32_t)strtoul(argv[9], NULL, 10),
                       .cold = (uint32_t)strtoul(argv[10], NULL, 10),
                       .weights = (uint32_t)strtoul(argv[11], NULL, 10)};
    answer a = {0};
    remat_error err = {0};
    char line[400];
    a.status = child_run(&a, &r, &err);
    if (a.status != REMAT_OK && a.status != REMAT_E_BUDGET)
        fprintf(stderr, "  child: %s\n", err.message);
    a.peak = rm_machine_peak_bytes();
    const int n =
        snprintf(line, sizeof line, ANSWER_FORMAT "\n", a.status, a.minimum, a.full, a.hash, a.peak,
                 a.predicted, a.reported_peak, a.accounts_differ, a.heap_calls, a.recomputed,
                 a.resident, a.ledger, a.spill_read, a.weight_read);
    return write(STDOUT_FILENO, line, (size_t)n) == n ? 0 : 1;
}

/* --- the parent ------------------------------------------------------------------------------- */

/* Runs argv and waits; at most cap - 1 bytes of its output go to out. */
static void run_process(answer *a, char *out, size_t cap, char *const argv[], bool quiet) {
    int ends[2];
    struct rusage usage;
    int status = 0;
    if (pipe(ends) != 0) abort();
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        if (quiet) dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    size_t have = 0;
    ssize_t got;
    while (have + 1 < cap && (got = read(ends[0], out + have, cap - 1 - have)) > 0)
        have += (size_t)got;
    out[have] = '\0';
    close(ends[0]);
    if (wait4(pid, &status, 0, &usage) != pid) abort();
    a->max_rss_bytes = usage.ru_maxrss * 1024;
    a->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static answer ask(const request *r) {
    answer a = {0};
    char n[9][24], line[512];
    snprintf(n[0], sizeof n[0], "%" PRIu64, r->memory);
    const uint32_t rest[] = {r->context, r->prompt, r->threads, r->resident,
                             r->chunk,   r->kv_f32, r->cold,    r->weights};
    for (int i = 0; i < 8; i++)
        snprintf(n[i + 1], sizeof n[i + 1], "%u", rest[i]);
    char self[] = "/proc/self/exe", flag[] = "--child", path[512];
    snprintf(path, sizeof path, "%s", r->path);
    char *const argv[] = {self, flag, path, n[0], n[1], n[2], n[3],
                          n[4], n[5], n[6], n[7], n[8], NULL};
    (void)engine_spill_dir(); /* the child spills to where it does by default, beside it */
    run_process(&a, line, sizeof line, argv, false);
    if (a.exit_code != 0 ||
        sscanf(line, ANSWER_FORMAT, &a.status, &a.minimum, &a.full, &a.hash, &a.peak, &a.predicted,
               &a.reported_peak, &a.accounts_differ, &a.heap_calls, &a.recomputed, &a.resident,
               &a.ledger, &a.spill_read, &a.weight_read) != 14) {
        t_fail("the child ended with %d and said \"%s\"", a.exit_code, line);
        a.status = 1;
    }
    return a;
}

/* A run that must work, inside its budget and exactly as planned. */
static answer ask_good(const request *r) {
    const answer a = ask(r);
    if (a.status != REMAT_OK) {
        t_fail("%" PRIu64 " KiB: status %d", r->memory / 1024, a.status);
        return a;
    }
    /* Two measurements of `program` may not give two plans: see plan_for() in remat.c. */
    EXPECT(SANITIZED || a.accounts_differ == 0);
    EXPECT_EQ_U64(a.heap_calls, 0);
    EXPECT(a.ledger <= r->memory);
    EXPECT(a.predicted <= r->memory);
    EXPECT_EQ_U64(a.ledger, a.predicted);
    if (!SANITIZED) {
        if (a.peak > r->memory || (uint64_t)a.max_rss_bytes > r->memory)
            t_fail("budget %" PRIu64 " KiB: peak %" PRIu64 ", maximal resident size %ld KiB",
                   r->memory / 1024, a.peak / 1024, a.max_rss_bytes / 1024);
        EXPECT(a.peak <= a.predicted); /* not only under the budget: as predicted */
        EXPECT(a.reported_peak > 0 && a.reported_peak <= r->memory);
    }
    return a;
}

static request request_of(const char *path, uint64_t memory, uint32_t prompt) {
    return (request){.path = path,
                     .memory = memory,
                     .context = prompt + NEW_TOKENS,
                     .prompt = prompt,
                     .threads = 1,
                     .resident = REMAT_ALL};
}

/* 6 layers with a wide cache: it outweighs the rest, so that budgets matter. */
static int wide_cache(char path[64]) {
    tiny_spec s = tiny_spec_default();
    s.name = "wide cache";
    s.layer_count = 6;
    s.kv_head_count = 4;
    s.head_dim = 64;
    return tiny_model_open(path, &s);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* From the smallest to plenty: inside the budget, the same bits, less recomputed with more. */
static void budgets_are_kept(void) {
    char path[64];
    const int fd = wide_cache(path);
    REQUIRE(fd >= 0);
    request r = request_of(path, 6ull << 30, 1200);
    r.chunk = 16;
    r.cold = REMAT_COLD_DROP;
    r.weights = REMAT_WEIGHTS_RESIDENT;
    const answer most = ask_good(&r);
    EXPECT(most.hash != 0 && most.recomputed == 0);
    const uint64_t step = (most.full - most.minimum) / 4;
    uint32_t before = UINT32_MAX;
    for (uint64_t i = 0; i <= 5; i++) {
        r.memory = most.minimum + i * step;
        if (i == 5) r.memory += MIB; /* surely all of it */
        r.threads = i % 2 == 0 ? 1 : 3;
        if (r.threads == 3) r.memory += MIB / 2; /* what two threads more take */
        const answer a = ask_good(&r);
        EXPECT_EQ_U64(a.hash, most.hash);
        EXPECT(a.recomputed <= before);
        EXPECT(SANITIZED || i > 0 || a.recomputed > 0);
        EXPECT(i < 5 || a.recomputed == 0);
        before = a.recomputed;
    }
    close(fd);
}

/* A model whose parts are large enough to tell: 7 MiB of weights, a vocabulary, a wide cache. */
static int telling_model(char path[64]) {
    tiny_spec s = tiny_spec_default();
    s.name = "telling";
    s.layer_count = 5;
    s.dim = 256;
    s.head_count = 8;
    s.kv_head_count = 4;
    s.head_dim = 32;
    s.feed_forward = 1024;
    s.vocabulary = 4000;
    return tiny_model_open(path, &s);
}

/* From the smallest budget to all: inside it, the same bits, and the peak is what was predicted. */
static void the_peak_is_as_predicted(void) {
    if (SANITIZED) SKIP("sanitizers bring memory of their own");
    char path[64];
    const int fd = telling_model(path);
    REQUIRE(fd >= 0);
    request r = request_of(path, 6ull << 30, 2000);
    const answer most = ask_good(&r);
    /* Of which 1.5 MiB are what a process may still grow by, and this one does not. */
    enum { STEPS = 12, NEAR_BYTES = 3 * MIB };
    unsigned ways = 0;
    uint64_t worst = 0;
    for (uint64_t i = 0; i <= STEPS; i++) {
        r.memory = most.minimum + (most.full - most.minimum) * i / STEPS;
        r.threads = 1 + (uint32_t)i % 2;
        if (r.threads == 2) r.memory += MIB / 2;
        const answer a = ask_good(&r);
        EXPECT_EQ_U64(a.hash, most.hash);
        ways |= (a.recomputed > 0 ? BY_DROPPING : 0u) | (a.spill_read > 0 ? BY_SPILLING : 0u) |
                (a.weight_read > 0 ? BY_STREAMING : 0u);
        const uint64_t off = a.predicted > a.peak ? a.predicted - a.peak : 0;
        if (off > worst) worst = off;
        EXPECT(off <= NEAR_BYTES || off <= a.predicted / 100);
        if (getenv("SHOW") != NULL)
            printf("     %" PRIu64 " KiB: predicted %" PRIu64 ", peak %" PRIu64 ": %" PRIu64
                   "; again %u, spill %" PRIu64 ", weights %" PRIu64 "\n",
                   r.memory >> 10, a.predicted >> 10, a.peak >> 10, off >> 10, a.recomputed,
                   a.spill_read >> 10, a.weight_read >> 10);
    }
    printf("     %" PRIu64 " KiB under what was predicted, at most\n", worst >> 10);
    EXPECT(ways & (BY_SPILLING | BY_STREAMING));
    close(fd);
}

/* Every model of the list: planned is taken, at the smallest budget and at a large one. */
static void planned_is_taken(void) {
    for (size_t i = 0; tiny_spec_all(i) != NULL; i++) {
        char path[64];
        const int fd = tiny_model_open(path, tiny_spec_all(i));
        REQUIRE(fd >= 0);
        request r = request_of(path, 1ull << 30, 300);
        r.threads = 1 + (uint32_t)i % 3;
        r.kv_f32 = i % 2 == 1;
        const answer plenty = ask_good(&r);
        r.memory = plenty.minimum;
        const answer least = ask_good(&r);
        EXPECT_EQ_U64(least.hash, plenty.hash);
        r.resident = 64;
        r.memory = 1ull << 30;
        r.cold = REMAT_COLD_DROP;
        const answer dropped = ask_good(&r);
        EXPECT_EQ_U64(dropped.hash, plenty.hash);
        EXPECT(dropped.recomputed > 0);
        r.cold = REMAT_COLD_SPILL;
        r.weights = REMAT_WEIGHTS_STREAM;
        const answer spilled = ask_good(&r);
        EXPECT_EQ_U64(spilled.hash, plenty.hash);
        EXPECT(spilled.recomputed == 0 && spilled.spill_read > 0 && spilled.weight_read > 0);
        close(fd);
    }
}

/* One MiB less than the smallest is refused, and the named number is true. The number has a margin,
 * since a process may be smaller than the one before: one that takes such a budget after all has to
 * be so by its own number, and less is tried then. */
static void too_small_is_refused(void) {
    char path[64];
    const int fd = wide_cache(path);
    REQUIRE(fd >= 0);
    /* A sanitizer's own memory grows with the budget, and differs by more than 1 MiB. */
    request r = request_of(path, SANITIZED ? 128 * MIB : 1ull << 30, 700);
    const answer plenty = ask_good(&r);
    r.memory = SANITIZED ? plenty.minimum / 2 : plenty.minimum - MIB;
    answer refused = ask(&r);
    for (int i = 0; i < 3 && refused.status == REMAT_OK; i++) {
        EXPECT(refused.minimum - RM_PLAN_MARGIN_BYTES <= r.memory);
        r.memory -= MIB / 8;
        refused = ask(&r);
    }
    EXPECT_EQ_U64((uint64_t)-refused.status, (uint64_t)-REMAT_E_BUDGET);
    EXPECT(refused.minimum > r.memory);
    EXPECT(SANITIZED || refused.minimum <= plenty.minimum + MIB / 2);
    r.memory = refused.minimum;
    const answer named = ask_good(&r);
    EXPECT_EQ_U64(named.hash, plenty.hash);
    r.memory = 64 << 10; /* less than any program takes: said before anything is read */
    const answer nothing = ask(&r);
    EXPECT_EQ_U64((uint64_t)-nothing.status, (uint64_t)-REMAT_E_BUDGET);
    EXPECT(nothing.minimum > MIB);
    close(fd);
}

/* 2,000 tokens of a real model: all cached in 176 MiB, dropped in 128 MiB, streamed in 64. */
static void smollm2(void) {
    const char *path = smollm2_path();
    if (path == NULL) SKIP("no SmolLM2 file of 98362432 bytes under models/");
    request r = request_of(path, 6ull << 30, 2000 - NEW_TOKENS);
    r.threads = 2;
    const answer plenty = ask_good(&r);
    EXPECT(plenty.recomputed == 0);
    r.memory = 176 * MIB;
    const answer all = ask_good(&r);
    EXPECT_EQ_U64(all.hash, plenty.hash);
    EXPECT(all.recomputed == 0);
    EXPECT_EQ_U64(all.resident, r.context);
    r.memory = 128 * MIB;
    r.cold = REMAT_COLD_DROP;
    r.weights = REMAT_WEIGHTS_RESIDENT;
    const answer dropped = ask_good(&r);
    EXPECT_EQ_U64(dropped.hash, plenty.hash);
    EXPECT(dropped.recomputed > 0);
    r.weights = REMAT_WEIGHTS_AUTO;
    r.memory = 64 * MIB; /* less than its weights */
    r.cold = REMAT_COLD_AUTO;
    const answer small = ask_good(&r);
    EXPECT_EQ_U64(small.hash, plenty.hash);
    EXPECT(small.weight_read > 0);
}

/* --- the command ------------------------------------------------------------------------------ */

static const char *command; /* the remat program, or NULL */

/* REMAT_BIN, else the program of the build folder that this test was built in. */
static void find_command(const char *self) {
    static char path[512];
    const char *given = getenv("REMAT_BIN"), *part = strstr(self, "tests/budget/");
    snprintf(path, sizeof path, "%s", given != NULL ? given : self);
    if (given == NULL && part != NULL)
        snprintf(path, sizeof path, "%.*sremat", (int)(part - self), self);
    if ((given != NULL || part != NULL) && access(path, X_OK) == 0) command = path;
}

/* The output of the command in a budget; its peak is that of the whole program. */
static answer run_command(char *out, size_t cap, const char *model, uint64_t memory) {
    static char text[2500];
    answer a = {0};
    char program[512], path[512], budget[32];
    snprintf(program, sizeof program, "%s", command);
    snprintf(path, sizeof path, "%s", model);
    snprintf(budget, sizeof budget, "%" PRIu64 "K", memory / 1024);
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "the thing he "[i % 13];
    char run[] = "run", m[] = "-m", b[] = "--memory", n[] = "-n", four[] = "4", p[] = "-p",
         raw[] = "--raw", temp[] = "--temp", zero[] = "0", t[] = "-t", one[] = "1",
         ignore[] = "--ignore-eos", ub[] = "-ub", rows[] = "16";
    char *const argv[] = {program, run,  m,    path, b,   budget, n,  four, p,   text,
                          raw,     temp, zero, t,    one, ignore, ub, rows, NULL};
    run_process(&a, out, cap, argv, true); /* a refusal says so on stderr */
    return a;
}

static void the_command_keeps_its_budget(void) {
    if (command == NULL) SKIP("no remat program beside the tests; set REMAT_BIN");
    if (SANITIZED) SKIP("sanitizers bring memory of their own");
    char path[64], most[2048], now[2048];
    const int fd = wide_cache(path);
    REQUIRE(fd >= 0);
    const answer plenty = run_command(most, sizeof most, path, 1u << 30);
    EXPECT_EQ_U64((uint64_t)plenty.exit_code, 0);
    EXPECT(most[0] != '\0');
    uint32_t works = 0;
    static const uint64_t budgets[] = {5, 6, 7, 8, 9, 10, 12, 15, 30};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        const uint64_t memory = budgets[i] * MIB;
        const answer a = run_command(now, sizeof now, path, memory);
        if (a.exit_code == 4) {
            EXPECT(works == 0); /* what is enough stays enough */
            EXPECT(now[0] == '\0');
            continue;
        }
        works++;
        EXPECT_EQ_U64((uint64_t)a.exit_code, 0);
        EXPECT(strcmp(now, most) == 0);
        if ((uint64_t)a.max_rss_bytes > memory)
            t_fail("--memory %" PRIu64 "K: %ld KiB", memory / 1024, a.max_rss_bytes / 1024);
    }
    EXPECT(works >= 3);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc == 12 && strcmp(argv[1], "--child") == 0) return child_main(argv);
    find_command(argv[0]);
    return RM_RUN(argc, argv, T(budgets_are_kept), T(the_peak_is_as_predicted), T(planned_is_taken),
                  T(too_small_is_refused), T(the_command_keeps_its_budget), T(smollm2));
}
