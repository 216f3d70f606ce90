/*
 * test_cancel.c: remat_cancel() at the k-th call of the progress function, for every k, while
 * loading, in a prompt, and while decoding: REMAT_E_CANCELED, sequences as they were, and what
 * follows has the same bits as if nothing had happened. A cancel ends one call and no other.
 */
#include "engine_fixture.h"
#include "harness.h"
#include "tiny_model.h"

#include <pthread.h>
#include <unistd.h>

enum { FIRST = 200, MORE = 150, COUNT = FIRST + MORE, LAYERS = 3 };

static const uint32_t ONE_PIECE[] = {0}, ONE_BY_ONE[] = {1, 0};

static int fd = -1;
static char path[64];
static uint32_t tokens[COUNT];

static bool have_model(void) {
    (void)engine_spill_dir();
    const tiny_spec spec = tiny_spec_default();
    if (fd < 0) fd = tiny_model_open(path, &spec);
    tiny_tokens(tokens, COUNT, spec.vocabulary, 1);
    return fd >= 0;
}

/* Cancels at the k-th progress call of a stage. */
typedef struct canceler {
    remat_engine *engine;
    remat_stage stage;
    uint64_t at, calls; /* at 0: never */
    uint64_t last_done, last_total;
} canceler;

static void progress(void *user, remat_stage stage, uint64_t done, uint64_t total) {
    canceler *c = user;
    if (stage != c->stage) return;
    c->last_done = done;
    c->last_total = total;
    if (++c->calls == c->at) remat_cancel(c->engine);
}

static int open_with(remat_engine **e, canceler *c, uint32_t threads, remat_error *err) {
    remat_options o = remat_options_default();
    o.memory_bytes = 256u << 20;
    o.thread_count = threads;
    o.progress = progress;
    o.progress_user = c;
    const int status = remat_open(e, path, &o, err);
    c->engine = *e;
    return status;
}

static remat_limits limits(uint32_t resident, uint32_t chunk) {
    remat_limits l = remat_limits_default();
    l.context_count = COUNT;
    l.resident_count = resident;
    l.chunk_rows = chunk;
    l.sequence_count = 2;
    return l;
}

/* remat.h: "the call in progress, or the next one". When the canceled call has returned, the
 * engine is free again; if it is not, say so once and go on by hand. */
static void check_cancel_is_over(remat_engine *e) {
    if (!atomic_load(&e->cancel)) return;
    t_fail("the cancel is still there after the call that it ended");
    atomic_store(&e->cancel, false);
}

static void cancel_while_loading(void) {
    REQUIRE(have_model());
    const unsigned before = open_descriptors();
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        uint64_t k = 1;
        for (;; k++) {
            canceler c = {.stage = REMAT_STAGE_LOAD, .at = k};
            remat_engine *e = NULL;
            remat_error err = {0};
            REQUIRE(open_with(&e, &c, threads, &err) == REMAT_OK);
            const remat_limits l = limits(REMAT_ALL, 0);
            const int status = remat_start(e, &l, &err);
            const bool fired = c.calls >= k;
            if (status != REMAT_OK) {
                remat_sequence *s = NULL;
                EXPECT(status == REMAT_E_CANCELED && fired);
                EXPECT(err.status == REMAT_E_CANCELED && err.message[0] != '\0');
                EXPECT(remat_sequence_open(&s, e, NULL) == REMAT_E_USAGE);
            }
            remat_close(&e);
            EXPECT_EQ_U64(open_descriptors(), before);
            /* A cancel in the last moments may find nothing left to end. */
            if (!fired || k > 1000) break;
        }
        EXPECT(k > (threads == 1 ? 10u : 1u) && k < 1000);
    }
}

/* Progress rises to the total: what a bar shows. */
static void progress_reaches_its_total(void) {
    REQUIRE(have_model());
    for (int stage = 0; stage < REMAT_STAGE_COUNT; stage++) {
        canceler c = {.stage = (remat_stage)stage};
        remat_engine *e = NULL;
        remat_sequence *s = NULL;
        remat_error err = {0};
        REQUIRE(open_with(&e, &c, 1, &err) == REMAT_OK);
        const remat_limits l = limits(REMAT_ALL, 512);
        REQUIRE(remat_start(e, &l, &err) == REMAT_OK);
        REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
        EXPECT(feed(e, s, NULL, tokens, 0, FIRST, ONE_PIECE, &err) == REMAT_OK);
        EXPECT(c.calls > 0 && c.last_total > 0);
        EXPECT_EQ_U64(c.last_done, c.last_total);
        remat_close(&e);
    }
}

/* The k-th progress call while `pieces` of the second part are appended. True when it fired. */
static bool cancel_at(uint64_t k, const record *first, const remat_limits *l, uint32_t threads,
                      bool one_by_one) {
    canceler c = {.stage = REMAT_STAGE_PROMPT};
    remat_engine *e = NULL;
    remat_sequence *s = NULL, *idle = NULL;
    remat_error err = {0};
    recorder r;
    record now;
    record_open(&now, LAYERS, COUNT);
    bool fired = false;
    if (open_with(&e, &c, threads, &err) != REMAT_OK || remat_start(e, l, &err) != REMAT_OK ||
        remat_sequence_open(&s, e, &err) != REMAT_OK ||
        remat_sequence_open(&idle, e, &err) != REMAT_OK) {
        t_fail("%s", err.message);
        goto done;
    }
    recorder_attach(&r, e);
    recorder_follow(&r, s, &now);
    EXPECT(feed(e, s, &now, tokens, 0, FIRST, ONE_PIECE, &err) == REMAT_OK);
    EXPECT(feed(e, idle, NULL, tokens, 0, 10, ONE_PIECE, &err) == REMAT_OK);
    c.calls = 0;
    c.at = k;
    const uint32_t last = one_by_one ? FIRST + 70 : COUNT;
    const int status =
        feed(e, s, &now, tokens, FIRST, last, one_by_one ? ONE_BY_ONE : ONE_PIECE, &err);
    fired = c.calls >= k;
    c.at = 0;
    if (status != REMAT_OK) {
        EXPECT(status == REMAT_E_CANCELED && fired);
        EXPECT(err.message[0] != '\0');
        const uint32_t have = remat_sequence_count(s);
        EXPECT(one_by_one ? have >= FIRST && have < last : have == FIRST);
        /* The logits of the last token are still there. */
        record_logits(&now, have - 1, remat_logits(s), e->model.shape.vocabulary);
        EXPECT(remat_sequence_count(idle) == 10);
    }
    if (status == REMAT_OK && fired && remat_sequence_count(s) < COUNT) {
        /* It came too late for its call: the next one ends. */
        EXPECT(feed(e, s, &now, tokens, last, COUNT, ONE_PIECE, &err) == REMAT_E_CANCELED);
    }
    check_cancel_is_over(e);
    if (feed(e, s, &now, tokens, remat_sequence_count(s), COUNT, ONE_PIECE, &err) != REMAT_OK)
        t_fail("canceled at %" PRIu64 ", then: %s", k, err.message);
    const difference d = record_compare(first, &now);
    if (d.found) t_fail("canceled at %" PRIu64 ": %s", k, d.text);
    EXPECT(d.compared >= COUNT * (LAYERS - 1));
done:
    remat_close(&e);
    record_close(&now);
    return fired;
}

static void cancel_all(const remat_limits *l, uint32_t threads, bool one_by_one, uint64_t step) {
    record first;
    record_open(&first, LAYERS, COUNT);
    canceler none = {0};
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    recorder r;
    EXPECT(open_with(&e, &none, 1, &err) == REMAT_OK && remat_start(e, l, &err) == REMAT_OK);
    EXPECT(remat_sequence_open(&s, e, &err) == REMAT_OK);
    recorder_attach(&r, e);
    recorder_follow(&r, s, &first);
    EXPECT(feed(e, s, &first, tokens, 0, COUNT, ONE_PIECE, &err) == REMAT_OK);
    remat_close(&e);
    REQUIRE(open_with(&e, &none, 1, &err) == REMAT_OK && remat_start(e, l, &err) == REMAT_OK);
    EXPECT(remat_sequence_open(&s, e, &err) == REMAT_OK);
    EXPECT(feed_scored(e, s, &first, tokens, COUNT, &err) == REMAT_OK);
    remat_close(&e);
    EXPECT(!cancel_at(UINT64_MAX, &first, l, threads, one_by_one)); /* never canceled */
    uint64_t k = 1;
    while (k < 2000 && cancel_at(k, &first, l, threads, one_by_one))
        k += step;
    EXPECT(k > 2 && k < 2000);
    printf("     %" PRIu64 " places\n", k - 1);
    record_close(&first);
}

static void cancel_in_a_prompt(void) {
    REQUIRE(have_model());
    const remat_limits l = limits(REMAT_ALL, 16);
    cancel_all(&l, 1, false, 1);
}

static void cancel_in_a_prompt_with_dropped_tokens(void) {
    REQUIRE(have_model());
    const remat_limits some = limits(64, 64), none = limits(0, 64);
    cancel_all(&some, 2, false, 1);
    cancel_all(&none, 1, false, 1);
}

static void cancel_while_decoding(void) {
    REQUIRE(have_model());
    const remat_limits all = limits(REMAT_ALL, 64), some = limits(64, 64);
    cancel_all(&all, 2, true, 7);
    cancel_all(&some, 1, true, 101);
}

/* A cancel before a call ends the next one, and only that. */
static void cancel_before_a_call(void) {
    REQUIRE(have_model());
    canceler c = {0};
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    const remat_limits l = limits(REMAT_ALL, 64);
    REQUIRE(open_with(&e, &c, 1, &err) == REMAT_OK && remat_start(e, &l, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    remat_cancel(e);
    EXPECT(feed(e, s, NULL, tokens, 0, 10, ONE_PIECE, &err) == REMAT_E_CANCELED);
    EXPECT(remat_sequence_count(s) == 0);
    check_cancel_is_over(e);
    EXPECT(feed(e, s, NULL, tokens, 0, 10, ONE_PIECE, &err) == REMAT_OK);
    EXPECT(remat_sequence_count(s) == 10);
    remat_cancel(e);
    EXPECT(remat_score(s, tokens, 10, 0, NULL, NULL, &err) != REMAT_OK); /* not empty */
    atomic_store(&e->cancel, false);
    remat_close(&e);
}

/* From another thread, at any moment. */
static void *cancel_soon(void *user) {
    usleep(3000);
    remat_cancel(user);
    return NULL;
}

static void cancel_from_another_thread(void) {
    REQUIRE(have_model());
    canceler c = {0};
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    const remat_limits l = limits(REMAT_ALL, 1);
    REQUIRE(open_with(&e, &c, 2, &err) == REMAT_OK && remat_start(e, &l, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, cancel_soon, e) == 0);
    int status = REMAT_OK;
    for (int i = 0; i < 100000 && status == REMAT_OK; i++) {
        if (remat_sequence_count(s) == COUNT) {
            remat_sequence_close(&s);
            REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
        }
        const uint32_t have = remat_sequence_count(s);
        status = feed(e, s, NULL, tokens, have, have + 1, ONE_PIECE, &err);
    }
    EXPECT(status == REMAT_E_CANCELED);
    pthread_join(thread, NULL);
    remat_close(&e);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(cancel_while_loading), T(progress_reaches_its_total),
                  T(cancel_in_a_prompt), T(cancel_in_a_prompt_with_dropped_tokens),
                  T(cancel_while_decoding), T(cancel_before_a_call), T(cancel_from_another_thread));
}
