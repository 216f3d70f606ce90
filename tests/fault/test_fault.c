/*
 * test_fault.c: the n-th carve fails, the n-th read fails or comes back short, for every n until
 * nothing is left to fail. Each failure is one line with the right status; nothing leaks, nothing
 * crashes, and the engine that follows gives the same answer as ever.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include "base/hash.h"
#include "engine/sweep.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CONTEXT = 96, PROMPT = 80, NEW_TOKENS = 3 };

static const uint32_t ODD[] = {33, 47, 0};

static int fd = -1;
static char path[64];
static uint32_t tokens[PROMPT];

static bool have_model(void) {
    (void)engine_spill_dir();
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 2;
    spec.bpe = true;
    spec.biases = true;
    spec.rope_factors = 2;
    if (fd < 0) fd = tiny_model_open(path, &spec);
    tiny_tokens(tokens, PROMPT, spec.vocabulary, 1);
    return fd >= 0;
}

static run_config config(uint32_t threads) {
    run_config c = run_config_default(CONTEXT);
    c.threads = threads;
    c.memory = 64u << 20;
    return c;
}

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

/* Opens, starts, generates. The hash of the logits goes to *hash. */
static int whole_run(uint64_t *hash, const run_config *c, remat_error *err) {
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_result result;
    int status = engine_start(&e, path, c, err);
    if (status == REMAT_OK) status = remat_sequence_open(&s, e, err);
    if (status == REMAT_OK) {
        hashing h = {.vocabulary = e->model.shape.vocabulary};
        const remat_generation how = {.token_count = NEW_TOKENS,
                                      .ignore_end = true,
                                      .sampling = remat_sampling_default(),
                                      .on_token = hash_logits,
                                      .user = &h};
        status = remat_generate(&result, s, tokens, PROMPT, &how, err);
        *hash = h.hash;
    }
    remat_close(&e);
    return status;
}

/* What every failure owes to its reader. */
static void check_message(const remat_error *err, int status, const char *what, uint64_t n) {
    if (status != (int)err->status)
        t_fail("%s %" PRIu64 ": %d, not %d", what, n, err->status, status);
    if (err->message[0] == '\0') t_fail("%s %" PRIu64 ": no message", what, n);
    if (strchr(err->message, '\n') != NULL)
        t_fail("%s %" PRIu64 ": more than a line: %s", what, n, err->message);
}

/* The n-th read fails, n = 1, 2, ..: each time the run ends with REMAT_E_FAILED. */
static void read_faults(rm_io_fault fault, uint32_t threads) {
    const run_config c = config(threads);
    uint64_t sound = 0, hash = 0, n = 1;
    REQUIRE(have_model());
    remat_error err = {0};
    REQUIRE(whole_run(&sound, &c, &err) == REMAT_OK);
    EXPECT(sound != 0);
    const unsigned before = open_descriptors();
    for (;; n++) {
        err = (remat_error){0};
        rm_io_fault_at(n, fault);
        const int status = whole_run(&hash, &c, &err);
        rm_io_fault_at(0, fault);
        EXPECT_EQ_U64(open_descriptors(), before);
        if (status == REMAT_OK || n > 1000) break;
        EXPECT_EQ_U64((uint64_t)-status, (uint64_t)-REMAT_E_FAILED);
        check_message(&err, status, "read", n);
        EXPECT_EQ_U64(err.minimum_bytes, 0);
    }
    EXPECT_EQ_U64(hash, sound);
    EXPECT(n > 20 && n < 1000); /* metadata and every tensor are read */
    printf("     %" PRIu64 " reads\n", n - 1);
}

static void nth_read_fails(void) {
    read_faults(RM_IO_FAIL, 1);
}

static void nth_read_fails_with_threads(void) {
    read_faults(RM_IO_FAIL, 3);
}

static void nth_read_is_short(void) {
    read_faults(RM_IO_SHORT, 1);
}

/* An engine whose weights did not arrive must not compute with what is there. */
static void half_loaded_engine_is_refused(void) {
    REQUIRE(have_model());
    for (uint64_t n = 1; n <= 5; n += 2) {
        remat_options o = remat_options_default();
        remat_engine *e = NULL;
        remat_sequence *s = NULL;
        remat_error err = {0};
        o.memory_bytes = 64u << 20;
        o.thread_count = 2;
        REQUIRE(remat_open(&e, path, &o, &err) == REMAT_OK);
        remat_limits l = remat_limits_default();
        l.context_count = CONTEXT;
        rm_io_fault_at(n, RM_IO_FAIL);
        EXPECT(remat_start(e, &l, &err) == REMAT_E_FAILED);
        rm_io_fault_at(0, RM_IO_FAIL);
        err = (remat_error){0};
        EXPECT(remat_sequence_open(&s, e, &err) == REMAT_E_USAGE);
        EXPECT(err.message[0] != '\0');
        /* Once per engine: it cannot be started again either. */
        EXPECT(remat_start(e, &l, &err) == REMAT_E_USAGE);
        remat_close(&e);
    }
}

/* The path is not kept by pointer: messages after remat_open() still name the file. */
static void path_may_go_away(void) {
    REQUIRE(have_model());
    char *mine = strdup(path);
    remat_options o = remat_options_default();
    remat_engine *e = NULL;
    remat_error err = {0};
    o.memory_bytes = 64u << 20;
    o.thread_count = 1;
    REQUIRE(mine != NULL && remat_open(&e, mine, &o, &err) == REMAT_OK);
    memset(mine, 'x', strlen(mine));
    remat_limits l = remat_limits_default();
    l.context_count = CONTEXT;
    rm_io_fault_at(1, RM_IO_FAIL);
    EXPECT(remat_start(e, &l, &err) == REMAT_E_FAILED);
    rm_io_fault_at(0, RM_IO_FAIL);
    if (strstr(err.message, path) == NULL) t_fail("the message is: %s", err.message);
    remat_close(&e);
    free(mine);
}

/* --- carves ----------------------------------------------------------------------------------- */

/* Between opening and starting, the engine's ledger can be told to fail. */
static void nth_carve_of_start_fails(void) {
    REQUIRE(have_model());
    const unsigned before = open_descriptors();
    uint64_t n = 1;
    for (;; n++) {
        remat_options o = remat_options_default();
        remat_engine *e = NULL;
        remat_error err = {0};
        o.memory_bytes = 64u << 20;
        o.thread_count = 2;
        REQUIRE(remat_open(&e, path, &o, &err) == REMAT_OK);
        remat_limits l = remat_limits_default();
        l.context_count = CONTEXT;
        rm_ledger_fail_at(&e->ledger, n);
        const int status = remat_start(e, &l, &err);
        if (status != REMAT_OK) {
            remat_sequence *s = NULL;
            EXPECT_EQ_U64((uint64_t)-status, (uint64_t)-REMAT_E_BUDGET);
            check_message(&err, status, "carve", n);
            EXPECT(remat_sequence_open(&s, e, NULL) == REMAT_E_USAGE);
        }
        remat_close(&e);
        EXPECT_EQ_U64(open_descriptors(), before);
        if (status == REMAT_OK || n > 1000) break;
    }
    EXPECT(n > 30 && n < 1000);
    printf("     %" PRIu64 " carves\n", n - 1);
}

/* The borrowed end of the ledger: tokenizing says so and leaves the engine whole. */
static void borrowing_fails(void) {
    REQUIRE(have_model());
    remat_options o = remat_options_default();
    remat_engine *e = NULL;
    remat_error err = {0};
    uint32_t out[16], again[16];
    size_t count = 0, again_count = 0;
    o.memory_bytes = 64u << 20;
    o.thread_count = 1;
    REQUIRE(remat_open(&e, path, &o, &err) == REMAT_OK);
    EXPECT(remat_tokenize(out, 16, &count, e, "the thin", 8, 0, &err) == REMAT_OK);
    rm_ledger_fail_at(&e->ledger, 1);
    EXPECT(remat_tokenize(again, 16, &again_count, e, "the thin", 8, 0, &err) == REMAT_E_BUDGET);
    check_message(&err, REMAT_E_BUDGET, "borrow", 1);
    EXPECT(err.minimum_bytes > 0);
    EXPECT(remat_tokenize(again, 16, &again_count, e, "the thin", 8, 0, &err) == REMAT_OK);
    EXPECT(again_count == count && memcmp(out, again, count * sizeof *out) == 0);
    remat_close(&e);
}

/*
 * remat_open() makes its own ledger, so its carves are failed part by part, on a ledger of ours:
 * the same layout functions in the same order.
 */
typedef struct parts {
    rm_ledger ledger;
    rm_file file;
    rm_gguf gguf;
    rm_model model;
    rm_tokenizer *tokenizer;
    rm_cache cache;
    rm_sweep sweep;
} parts;

static int build_parts(parts *p, uint64_t fail_at, remat_error *err) {
    const rm_cache_shape cache = {.layer_count = 2,
                                  .kv_head_count = 2,
                                  .head_dim = 16,
                                  .sequence_count = 1,
                                  .column_count = 2,
                                  .page_count = 4};
    const rm_sweep_shape sweep = {.run_max = 3,
                                  .row_max = 64,
                                  .chunk_rows = 64,
                                  .thread_count = 2,
                                  .context_count = CONTEXT,
                                  .logits_rows = 2};
    RM_TRY(rm_ledger_open(&p->ledger, 64u << 20, 1 << 20, err));
    rm_ledger_fail_at(&p->ledger, fail_at);
    RM_TRY(rm_file_open(&p->file, path, err));
    RM_TRY(rm_gguf_header(&p->gguf, &p->file, err));
    RM_TRY(rm_gguf_layout(&p->gguf, &p->ledger, err));
    RM_TRY(rm_gguf_parse(&p->gguf, err));
    RM_TRY(rm_model_describe(&p->model, &p->gguf, err));
    RM_TRY(rm_model_bind(&p->model, &p->ledger, &p->gguf, err));
    RM_TRY(
        rm_ledger_carve(&p->tokenizer, &p->ledger, RM_ACCOUNT_TEXT, 1, rm_tokenizer_bytes(), err));
    RM_TRY(rm_tokenizer_layout(p->tokenizer, &p->ledger, &p->gguf, err));
    RM_TRY(rm_tokenizer_load(p->tokenizer, &p->gguf, err));
    RM_TRY(rm_model_layout(&p->model, &p->ledger, NULL, err));
    RM_TRY(rm_cache_layout(&p->cache, &p->ledger, &cache, err));
    return rm_sweep_layout(&p->sweep, &p->ledger, &p->model, &sweep, err);
}

static void nth_carve_of_a_part_fails(void) {
    REQUIRE(have_model());
    const unsigned before = open_descriptors();
    parts *p = malloc(sizeof *p);
    REQUIRE(p != NULL);
    uint64_t n = 1;
    for (;; n++) {
        remat_error err = {0};
        memset(p, 0, sizeof *p);
        p->file.fd = -1;
        const int status = build_parts(p, n, &err);
        if (status != REMAT_OK) {
            EXPECT_EQ_U64((uint64_t)-status, (uint64_t)-REMAT_E_BUDGET);
            check_message(&err, status, "carve", n);
        }
        if (p->tokenizer != NULL) rm_tokenizer_close(p->tokenizer);
        rm_file_close(&p->file);
        rm_ledger_close(&p->ledger);
        EXPECT_EQ_U64(open_descriptors(), before);
        if (status == REMAT_OK || n > 1000) break;
    }
    EXPECT(n > 40 && n < 1000);
    printf("     %" PRIu64 " carves\n", n - 1);
    free(p);
}

/* --- files that are no model ------------------------------------------------------------------ */

static void check_refused(const char *what, const char *file, int right) {
    const unsigned before = open_descriptors();
    remat_engine *e = NULL;
    remat_error err = {0};
    const run_config c = config(1);
    const int status = engine_start(&e, file, &c, &err);
    if (status != right) t_fail("%s: %d, not %d (%s)", what, status, right, err.message);
    if (status != REMAT_OK) check_message(&err, status, what, 0);
    EXPECT(e == NULL);
    EXPECT_EQ_U64(open_descriptors(), before);
}

static void weights_that_are_not_finite(void) {
    if (access("tests/golden/toys/toy_nan.gguf", R_OK) != 0) SKIP("no toys; start in the tree");
    check_refused("a NaN in a norm", "tests/golden/toys/toy_nan.gguf", REMAT_E_MODEL);
    check_refused("an infinity in the output", "tests/golden/toys/toy_inf.gguf", REMAT_E_MODEL);
}

/* Sound weights can overflow; here one in memory does: an error, not a token, and when it is sound
 * again the sequence goes on. */
static void logits_that_are_not_finite(void) {
    REQUIRE(have_model());
    const run_config c = config(1);
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    REQUIRE(engine_start(&e, path, &c, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    float *norm = &e->model.output_norm.at[0], sound = *norm;
    *norm = INFINITY;
    EXPECT(feed(e, s, NULL, tokens, 0, 33, ODD, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "not finite numbers") != NULL);
    *norm = sound;
    EXPECT(feed(e, s, NULL, tokens, remat_sequence_count(s), PROMPT, ODD, &err) == REMAT_OK);
    remat_close(&e);
}

/* A sound file, cut at every 997th byte: refused while opening, never later. */
static void cut_files(void) {
    REQUIRE(have_model());
    const off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = malloc((size_t)size);
    REQUIRE(size > 0 && bytes != NULL && pread(fd, bytes, (size_t)size, 0) == size);
    const int cut = memfd_create("cut.gguf", 0);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", cut);
    for (off_t at = 0; at < size; at += 997) {
        REQUIRE(ftruncate(cut, 0) == 0 && pwrite(cut, bytes, (size_t)at, 0) == at);
        check_refused("a cut file", name, REMAT_E_MODEL);
    }
    REQUIRE(pwrite(cut, bytes, (size_t)size, 0) == size);
    remat_engine *e = NULL;
    remat_error err = {0};
    const run_config c = config(1);
    EXPECT(engine_start(&e, name, &c, &err) == REMAT_OK);
    remat_close(&e);
    close(cut);
    free(bytes);
}

/* --- wrong calls ------------------------------------------------------------------------------ */

typedef struct step_case {
    const char *what;
    const uint32_t *tokens;
    uint32_t count;
    int right;
} step_case;

/* A refused step leaves the sequence as it was: its count, its logits, and what follows. */
static void refused_steps_change_nothing(void) {
    static uint32_t many[CONTEXT + 1];
    static const uint32_t outside[] = {5, 300, 6}, far_outside[] = {UINT32_MAX};
    REQUIRE(have_model());
    const step_case cases[] = {
        {"beyond the context", many, CONTEXT + 1 - 33, REMAT_E_CONTEXT},
        {"far beyond the context", many, UINT32_MAX, REMAT_E_CONTEXT},
        {"a token out of range", outside, 3, REMAT_E_FAILED},
        {"a token far out of range", far_outside, 1, REMAT_E_FAILED},
        {"no tokens", many, 0, REMAT_E_USAGE},
    };
    for (uint32_t resident = 0; resident < 2; resident++) {
        record first, now;
        record_open(&first, 2, PROMPT);
        record_open(&now, 2, PROMPT);
        run_config c = config(2);
        if (resident == 0) c.limits.resident_count = 0;
        for (int refuse = 0; refuse < 2; refuse++) {
            remat_engine *e = NULL;
            remat_sequence *s = NULL;
            recorder r;
            remat_error err = {0};
            REQUIRE(engine_start(&e, path, &c, &err) == REMAT_OK);
            REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
            recorder_attach(&r, e);
            recorder_follow(&r, s, refuse ? &now : &first);
            EXPECT(feed(e, s, refuse ? &now : &first, tokens, 0, 33, ODD, &err) == REMAT_OK);
            for (size_t i = 0; refuse && i < sizeof cases / sizeof *cases; i++) {
                const remat_step step = {
                    .sequence = s, .tokens = cases[i].tokens, .count = cases[i].count};
                err = (remat_error){0};
                const int status = remat_advance(e, &step, 1, &err);
                if (status != cases[i].right)
                    t_fail("%s: %d, not %d", cases[i].what, status, cases[i].right);
                check_message(&err, status, cases[i].what, 0);
                EXPECT_EQ_U64(remat_sequence_count(s), 33);
                record_logits(&now, 32, remat_logits(s), e->model.shape.vocabulary);
            }
            EXPECT(feed(e, s, refuse ? &now : &first, tokens, 33, PROMPT, ODD, &err) == REMAT_OK);
            remat_close(&e);
        }
        const difference d = record_compare(&first, &now);
        if (d.found) t_fail("after refused steps: %s", d.text);
        EXPECT(d.compared >= PROMPT);
        record_close(&first);
        record_close(&now);
    }
}

static void wrong_use_is_refused(void) {
    REQUIRE(have_model());
    remat_engine *e = NULL;
    remat_sequence *s = NULL, *more = NULL;
    remat_error err = {0};
    const run_config c = config(1);
    REQUIRE(engine_start(&e, path, &c, &err) == REMAT_OK);
    EXPECT(remat_start(e, &c.limits, &err) == REMAT_E_USAGE); /* once per engine */
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    EXPECT(remat_sequence_open(&more, e, &err) == REMAT_E_FAILED); /* all are open */
    EXPECT(more == NULL);
    const remat_step twice[] = {{.sequence = s, .tokens = tokens, .count = 1},
                                {.sequence = s, .tokens = tokens, .count = 1}};
    EXPECT(remat_advance(e, twice, 2, &err) == REMAT_E_USAGE);
    EXPECT(remat_advance(e, twice, 0, &err) == REMAT_E_USAGE);
    EXPECT(remat_sequence_count(s) == 0);
    EXPECT(remat_advance(e, twice, 1, NULL) == REMAT_OK);                    /* err may be NULL */
    EXPECT(remat_score(s, tokens, 4, 0, NULL, NULL, &err) == REMAT_E_USAGE); /* not empty */
    EXPECT(remat_sequence_count(s) == 1);
    remat_sequence_close(&s);
    EXPECT(s == NULL);
    remat_sequence_close(&s);
    EXPECT(remat_sequence_open(&s, e, &err) == REMAT_OK && remat_sequence_count(s) == 0);
    remat_close(&e);
    EXPECT(e == NULL);
    remat_close(&e);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(nth_read_fails), T(nth_read_fails_with_threads),
                  T(nth_read_is_short), T(half_loaded_engine_is_refused), T(path_may_go_away),
                  T(nth_carve_of_start_fails), T(borrowing_fails), T(nth_carve_of_a_part_fails),
                  T(weights_that_are_not_finite), T(logits_that_are_not_finite), T(cut_files),
                  T(refused_steps_change_nothing), T(wrong_use_is_refused));
}
