/* twins.c: see twins.h. */
#include "twins.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static bool wrong(twins *t, const char *form, ...) {
    if (t->why[0] != '\0') return false;
    va_list list;
    const int n = snprintf(t->why, sizeof t->why, "%s; %s: ", t->spec->name, t->config);
    va_start(list, form);
    vsnprintf(t->why + n, sizeof t->why - (size_t)n, form, list);
    va_end(list);
    return false;
}

static void progress(void *user, remat_stage stage, uint64_t done, uint64_t total) {
    twins *t = user;
    (void)done;
    (void)total;
    if (stage == REMAT_STAGE_PROMPT && ++t->calls == t->cancel_at) remat_cancel(t->tight);
}

static void warning(void *user, const char *message) {
    twins *t = user;
    t->warnings++;
    if (message[0] == '\0' || strchr(message, '\n') != NULL)
        wrong(t, "a warning is no line: \"%s\"", message);
}

bool twins_open(twins *t, const tiny_spec *spec, uint32_t sequences, uint32_t context,
                remat_kv kv) {
    remat_error err = {0};
    memset(t, 0, sizeof *t);
    t->spec = spec;
    t->sequences = sequences;
    t->context = context;
    t->fd = tiny_model_open(t->path, spec);
    if (t->fd < 0) return wrong(t, "no file");
    run_config c = run_config_default(context);
    c.threads = 2;
    c.limits.sequence_count = sequences;
    c.limits.logits_rows = 16;
    c.limits.kv = kv;
    if (engine_start(&t->free, t->path, &c, &err) != REMAT_OK) return wrong(t, "%s", err.message);
    recorder_attach(&t->ra, t->free);
    for (uint32_t i = 0; i < sequences; i++) {
        if (remat_sequence_open(&t->a[i], t->free, &err) != REMAT_OK)
            return wrong(t, "%s", err.message);
        record_open(&t->of_a[i], spec->layer_count, context);
        record_open(&t->of_b[i], spec->layer_count, context);
        recorder_follow(&t->ra, t->a[i], &t->of_a[i]);
    }
    return true;
}

void twins_close(twins *t) {
    remat_close(&t->tight);
    remat_close(&t->free);
    for (uint32_t i = 0; i < t->sequences; i++) {
        record_close(&t->of_a[i]);
        record_close(&t->of_b[i]);
    }
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}

/* Forgets what is known of positions from `first` on. */
static void forget(record *r, uint32_t first) {
    for (uint32_t l = 0; l < r->layer_count; l++)
        memset(r->hidden + (size_t)l * r->position_count + first, 0,
               (r->position_count - first) * sizeof *r->hidden);
    memset(r->logits + first, 0, (r->position_count - first) * sizeof *r->logits);
}

bool twins_start(twins *t, const run_config *c) {
    remat_error err = {0};
    run_config tight = *c;
    t->why[0] = t->last_error[0] = '\0';
    t->canceled = t->failed = t->warnings = 0;
    t->cancel_at = t->fault_at = t->compared = 0;
    t->no_disk = false;
    t->stream = 1;
    run_config_text(t->config, c);
    tight.limits.sequence_count = t->sequences;
    tight.limits.context_count = t->context;
    tight.limits.kv = t->free->setup.kv;
    tight.warning = warning;
    tight.progress = progress;
    tight.user = t;
    remat_close(&t->tight);
    memset(t->b, 0, sizeof t->b);
    if (engine_start(&t->tight, t->path, &tight, &err) != REMAT_OK)
        return wrong(t, "%s", err.message);
    recorder_attach(&t->rb, t->tight);
    for (uint32_t i = 0; i < t->sequences; i++) {
        twins_truncate(t, i, 0);
        forget(&t->of_a[i], 0);
        forget(&t->of_b[i], 0);
        t->of_a[i].repeated_differently = t->of_b[i].repeated_differently = false;
        if (remat_sequence_open(&t->b[i], t->tight, &err) != REMAT_OK)
            return wrong(t, "%s", err.message);
        recorder_follow(&t->rb, t->b[i], &t->of_b[i]);
    }
    return true;
}

uint32_t twins_count(const twins *t, uint32_t sequence) {
    return remat_sequence_count(t->a[sequence]);
}

remat_stats twins_stats(const twins *t) {
    remat_stats s;
    remat_stats_get(&s, t->tight);
    return s;
}

void twins_truncate(twins *t, uint32_t sequence, uint32_t count) {
    if (count < remat_sequence_count(t->a[sequence]))
        remat_sequence_truncate(t->a[sequence], count);
    if (t->b[sequence] != NULL && count < remat_sequence_count(t->b[sequence]))
        remat_sequence_truncate(t->b[sequence], count);
    if (count < t->context) {
        forget(&t->of_a[sequence], count);
        forget(&t->of_b[sequence], count);
    }
}

bool twins_reopen(twins *t, uint32_t sequence) {
    remat_error err = {0};
    twins_truncate(t, sequence, 0);
    remat_sequence_close(&t->b[sequence]);
    if (remat_sequence_open(&t->b[sequence], t->tight, &err) != REMAT_OK)
        return wrong(t, "%s", err.message);
    recorder_follow(&t->rb, t->b[sequence], &t->of_b[sequence]);
    return true;
}

/* --- a step ----------------------------------------------------------------------------------- */

static bool compare(twins *t, uint32_t sequence) {
    const difference d = record_compare(&t->of_a[sequence], &t->of_b[sequence]);
    t->compared += d.compared;
    if (!d.found) return true;
    return wrong(t, "sequence %u of %u tokens: %s", sequence, twins_count(t, sequence), d.text);
}

static bool same_logits(twins *t, uint32_t sequence) {
    const float *a = remat_logits(t->a[sequence]), *b = remat_logits(t->b[sequence]);
    if (twins_count(t, sequence) == 0 || memcmp(a, b, t->spec->vocabulary * sizeof *a) == 0)
        return true;
    return wrong(t, "sequence %u: other logits after %u tokens", sequence,
                 twins_count(t, sequence));
}

/* What a call of the tight engine returned, when it failed. False: it may not fail like that. */
static bool note_failure(twins *t, int status, const remat_error *err) {
    snprintf(t->last_error, sizeof t->last_error, "%s", err->message);
    if (status == REMAT_E_CANCELED && t->cancel_at > 0) {
        t->canceled++;
    } else if (status == REMAT_E_FAILED && (t->fault_at > 0 || t->no_disk)) {
        t->failed++;
    } else {
        return wrong(t, "status %d: %s", status, err->message);
    }
    if (err->message[0] == '\0' || strchr(err->message, '\n') != NULL)
        return wrong(t, "a failure says \"%s\"", err->message);
    return true;
}

/* Puts a device in the place of the spill file: writing says "no space", reading gives zeros. */
static void swap_disk(const twins *t, bool on) {
    static int kept = -1;
    const int full = open("/dev/full", O_RDWR | O_CLOEXEC), fd = t->tight->spill.fd;
    if (on) kept = dup(fd);
    if (full < 0 || kept < 0 || dup2(on ? full : kept, fd) != fd) abort();
    close(full);
    if (!on) close(kept);
}

static void disturb(const twins *t, bool on) {
    if (t->fault_at > 0) rm_io_fault_at(on ? t->fault_at : 0, t->fault);
    if (t->no_disk) swap_disk(t, on);
}

static void calm(twins *t) {
    t->fault_at = t->cancel_at = 0;
    t->no_disk = false;
}

/* Tokens of a step, and who gets how many. */
typedef struct wanted {
    remat_step a[TWINS], b[TWINS];
    uint32_t count, sequence[TWINS];
} wanted;

static bool unchanged(twins *t, const wanted *w, const uint32_t before[TWINS]) {
    for (uint32_t i = 0; i < w->count; i++) {
        const uint32_t q = w->sequence[i];
        if (remat_sequence_count(t->b[q]) != before[q])
            return wrong(t, "after a failure sequence %u has %u tokens, not %u", q,
                         remat_sequence_count(t->b[q]), before[q]);
    }
    return true;
}

static bool tight_step(twins *t, const wanted *w) {
    remat_error err = {0};
    uint32_t before[TWINS] = {0};
    for (uint32_t i = 0; i < t->sequences; i++)
        before[i] = remat_sequence_count(t->b[i]);
    t->calls = 0;
    disturb(t, true);
    int status = remat_advance(t->tight, w->b, w->count, &err);
    disturb(t, false);
    if (status != REMAT_OK) {
        if (!note_failure(t, status, &err) || !unchanged(t, w, before)) return false;
        for (uint32_t i = 0; i < t->sequences; i++)
            forget(&t->of_b[i], before[i] < t->context ? before[i] : t->context - 1);
        calm(t);
        err = (remat_error){0};
        status = remat_advance(t->tight, w->b, w->count, &err);
        if (status != REMAT_OK) return wrong(t, "again, undisturbed: %s", err.message);
    } else if (t->cancel_at > 0 && t->calls >= t->cancel_at) {
        atomic_store(&t->tight->cancel, false); /* it came after the last look */
    }
    calm(t);
    return true;
}

/* Nobody will see pages again that a window has passed: none stays in the pool. */
static bool windows_are_left(twins *t) {
    const remat_engine *e = t->tight;
    for (uint32_t q = 0; q < t->sequences; q++) {
        for (uint32_t l = 0; l < e->model.shape.layer_count; l++) {
            const uint32_t count = remat_sequence_count(t->b[q]);
            for (uint32_t c = rm_first_column(&e->model.layers[l], count); c-- > 0;) {
                if (rm_cache_in_pool(&e->cache, t->b[q]->index, l, c))
                    return wrong(t, "sequence %u of %u tokens holds page %u of layer %u", q, count,
                                 c, l);
            }
        }
    }
    return true;
}

bool twins_step(twins *t, const uint32_t counts[TWINS]) {
    remat_error err = {0};
    wanted w = {.count = 0};
    bool good = t->why[0] == '\0';
    for (uint32_t i = 0; i < t->sequences; i++) {
        const uint32_t have = twins_count(t, i), left = t->context - have;
        const uint32_t n = counts[i] < left ? counts[i] : left;
        if (n == 0) continue;
        uint32_t *tokens = calloc(n, sizeof *tokens);
        if (tokens == NULL) abort();
        tiny_tokens(tokens, n, t->spec->vocabulary, t->stream++);
        w.a[w.count] = (remat_step){.sequence = t->a[i], .tokens = tokens, .count = n};
        w.b[w.count] = (remat_step){.sequence = t->b[i], .tokens = tokens, .count = n};
        w.sequence[w.count++] = i;
    }
    if (good && w.count > 0 && remat_advance(t->free, w.a, w.count, &err) != REMAT_OK)
        good = wrong(t, "the free one: %s", err.message);
    good = good && (w.count == 0 || tight_step(t, &w));
    for (uint32_t i = 0; good && i < w.count; i++) {
        const uint32_t q = w.sequence[i], have = twins_count(t, q);
        if (remat_sequence_count(t->b[q]) != have ||
            memcmp(remat_sequence_tokens(t->a[q]), remat_sequence_tokens(t->b[q]),
                   have * sizeof(uint32_t)) != 0)
            good = wrong(t, "sequence %u has other tokens", q);
        record_logits(&t->of_a[q], have - 1, remat_logits(t->a[q]), t->spec->vocabulary);
        record_logits(&t->of_b[q], have - 1, remat_logits(t->b[q]), t->spec->vocabulary);
        good = good && compare(t, q);
    }
    good = good && windows_are_left(t);
    for (uint32_t i = 0; good && i < w.count; i++)
        good = same_logits(t, w.sequence[i]);
    for (uint32_t i = 0; i < w.count; i++)
        free((void *)(uintptr_t)w.a[i].tokens);
    return good;
}

/* --- scoring ---------------------------------------------------------------------------------- */

typedef struct scored {
    record *to;
    uint32_t next, vocabulary;
    bool in_order;
} scored;

static int score_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                     remat_error *err) {
    scored *s = user;
    (void)run;
    (void)err;
    s->in_order = s->in_order && position == s->next;
    s->next++;
    record_logits(s->to, position, logits, s->vocabulary);
    return REMAT_OK;
}

static int score(scored *s, record *to, remat_engine *e, remat_sequence *q, const uint32_t *tokens,
                 uint32_t count, remat_error *err) {
    const remat_step step = {.sequence = q, .tokens = tokens, .count = count};
    *s = (scored){.to = to, .vocabulary = e->model.shape.vocabulary, .in_order = true};
    const rm_rows_wanted rows = {.fn = score_row, .user = s, .forget = true};
    return rm_engine_advance(e, &step, 1, &rows, err);
}

static bool score_tight(twins *t, scored *s, uint32_t q, const uint32_t *tokens, uint32_t count) {
    remat_error err = {0};
    t->calls = 0;
    disturb(t, true);
    int status = score(s, &t->of_b[q], t->tight, t->b[q], tokens, count, &err);
    disturb(t, false);
    if (status != REMAT_OK) {
        if (!note_failure(t, status, &err)) return false;
        forget(&t->of_b[q], 0);
        calm(t);
        status = score(s, &t->of_b[q], t->tight, t->b[q], tokens, count, &err);
        if (status != REMAT_OK) return wrong(t, "scored again, undisturbed: %s", err.message);
    } else if (t->cancel_at > 0 && t->calls >= t->cancel_at) {
        atomic_store(&t->tight->cancel, false);
    }
    calm(t);
    return true;
}

bool twins_score(twins *t, uint32_t q, uint32_t count) {
    remat_error err = {0};
    scored a, b;
    if (t->why[0] != '\0') return false;
    uint32_t *tokens = calloc(count, sizeof *tokens);
    if (tokens == NULL) abort();
    tiny_tokens(tokens, count, t->spec->vocabulary, t->stream++);
    twins_truncate(t, q, 0);
    bool good = score(&a, &t->of_a[q], t->free, t->a[q], tokens, count, &err) == REMAT_OK;
    if (!good) wrong(t, "the free one: %s", err.message);
    good = good && score_tight(t, &b, q, tokens, count);
    if (good && (!b.in_order || b.next != count - 1 || a.next != count - 1))
        good = wrong(t, "%u tokens scored: %u rows, in order: %d", count, b.next, b.in_order);
    if (good && record_hash(&t->of_b[q], 0, count - 1) != record_hash(&t->of_a[q], 0, count - 1))
        good = wrong(t, "%u tokens scored: other logits", count);
    good = good && compare(t, q);
    if (good && remat_sequence_count(t->b[q]) != 0) good = wrong(t, "scoring kept tokens");
    twins_truncate(t, q, 0);
    forget(&t->of_a[q], 0);
    forget(&t->of_b[q], 0);
    free(tokens);
    return good;
}

run_config tight_config(uint32_t context, remat_cold cold, given_rows rows, uint32_t units,
                        uint32_t pages) {
    run_config c = run_config_default(context);
    c.threads = 2;
    c.limits.cold = cold;
    c.limits.chunk_rows = 64;
    c.limits.weights = REMAT_WEIGHTS_AUTO;
    c.setup = (given_setup){.given = true, .rows = rows, .more_pages = pages, .units = units};
    return c;
}

tiny_spec wide_spec(void) {
    tiny_spec spec = tiny_spec_default();
    spec.layer_count = 4;
    spec.kv_head_count = 4;
    return spec;
}
