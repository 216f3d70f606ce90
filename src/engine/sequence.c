/*
 * sequence.c: tokens are appended; who keeps a cache and who is recomputed. Part: engine.
 *
 *     tokens    0 ............ 64 d ................ count ......... total
 *               | dropped       | held in all layers  | new           |
 *     rows      transient, if the step needs them      keep_kv
 *
 * A run from the start is dropped, in whole columns: it needs nothing but itself to be recomputed,
 * and the first tokens are the cheapest (their attention is the shortest). The columns of a
 * sequence are symmetrical for decoding (each is read once a token), so a pinned subset is as good
 * as any; an LRU would never hit.
 */
#include "engine/engine.h"

#include <string.h>

static uint32_t columns(uint32_t tokens) {
    return (tokens + RM_PAGE_TOKENS - 1) / RM_PAGE_TOKENS;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* --- steps ------------------------------------------------------------------------------------ */

typedef struct advance {
    remat_engine *e;
    const remat_step *steps;
    uint32_t step_count;
    bool scoring; /* logits of every token but the last, and nothing is kept */
    rm_logits_fn *fn;
    void *user;
    uint32_t row_count; /* rows waiting in the sweep */
} advance;

static uint32_t total_of(const remat_step *s) {
    return s->sequence->count + s->count;
}

static int check(const advance *a, remat_error *err) {
    const uint32_t vocabulary = a->e->model.shape.vocabulary, most = a->e->setup.context_count;
    for (uint32_t i = 0; i < a->step_count; i++) {
        const remat_step *s = &a->steps[i];
        if (s->sequence == NULL || s->sequence->engine != a->e || !s->sequence->open ||
            s->count == 0) {
            return rm_fail(err, REMAT_E_USAGE,
                           "step %u: an open sequence of this engine and at "
                           "least one token are needed",
                           i);
        }
        for (uint32_t j = 0; j < i; j++) {
            if (a->steps[j].sequence == s->sequence)
                return rm_fail(err, REMAT_E_USAGE, "step %u: its sequence is in step %u too", i, j);
        }
        if (s->count > most - s->sequence->count) {
            return rm_fail(err, REMAT_E_CONTEXT,
                           "context: %u tokens and %u more do not fit the "
                           "context of %u; give a larger -c or a shorter text",
                           s->sequence->count, s->count, most);
        }
        for (uint32_t j = 0; j < s->count; j++) {
            if (s->tokens[j] >= vocabulary) {
                return rm_fail(err, REMAT_E_FAILED,
                               "token %u at place %u is outside the vocabulary "
                               "of %u; use ids of this model",
                               s->tokens[j], j, vocabulary);
            }
        }
    }
    return REMAT_OK;
}

/* --- who is dropped --------------------------------------------------------------------------- */

static const remat_step *step_of(const advance *a, const remat_sequence *s) {
    for (uint32_t i = 0; i < a->step_count; i++) {
        if (a->steps[i].sequence == s) return &a->steps[i];
    }
    return NULL;
}

/* Columns that a sequence holds, or will hold, in all layers. */
static uint32_t held(const advance *a, const remat_sequence *s) {
    const remat_step *step = step_of(a, s);
    return columns(step != NULL ? total_of(step) : s->count) - s->dropped_columns;
}

/* Pages that the sweep needs at most at a time. */
static uint64_t pages_needed(const advance *a) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < a->e->setup.sequence_count; i++) {
        const remat_sequence *s = &a->e->sequences[i];
        if (!s->open) continue;
        sum += (uint64_t)held(a, s) * a->e->model.shape.layer_count;
        if (step_of(a, s) != NULL) sum += s->dropped_columns; /* passing through a layer */
    }
    return sum;
}

static void drop_to(remat_sequence *s, uint32_t dropped) {
    if (dropped <= s->dropped_columns) return;
    rm_cache_drop(&s->engine->cache, s->index, s->dropped_columns, dropped);
    s->dropped_columns = dropped;
}

/* Idle sequences give way first, the largest of them; then those of the step. */
static remat_sequence *victim(const advance *a) {
    remat_sequence *best = NULL;
    for (uint32_t i = 0; i < a->e->setup.sequence_count; i++) {
        remat_sequence *s = &a->e->sequences[i];
        if (!s->open || held(a, s) == 0) continue;
        const bool idle = step_of(a, s) == NULL, best_idle = best && step_of(a, best) == NULL;
        if (best == NULL || idle > best_idle || (idle == best_idle && held(a, s) > held(a, best)))
            best = s;
    }
    return best;
}

static void make_room(const advance *a) {
    const rm_setup *setup = &a->e->setup;
    for (uint32_t i = 0; i < a->step_count; i++) {
        const uint32_t all = columns(total_of(&a->steps[i]));
        if (all > setup->resident_columns)
            drop_to(a->steps[i].sequence, all - setup->resident_columns);
    }
    while (pages_needed(a) > setup->page_count) {
        remat_sequence *s = victim(a);
        RM_ASSERT(s != NULL); /* the pool holds one layer of all contexts: plan.c */
        drop_to(s, s->dropped_columns + 1);
    }
}

/* --- rows ------------------------------------------------------------------------------------- */

static int flush_rows(advance *a, remat_error *err) {
    if (a->row_count == 0) return REMAT_OK;
    const uint32_t n = a->row_count;
    a->row_count = 0;
    a->e->sweep_count++;
    a->e->row_count += n;
    return rm_sweep_run(&a->e->sweep, n, a->fn, a->user, err);
}

static int add_row(advance *a, const remat_step *step, uint32_t position, remat_error *err) {
    const remat_sequence *s = step->sequence;
    const uint32_t total = total_of(step);
    const bool transient = position / RM_PAGE_TOKENS < s->dropped_columns;
    const bool fresh = position >= s->count;
    if (a->row_count == a->e->sweep.shape.row_max) RM_TRY(flush_rows(a, err));
    if (!fresh) a->e->recomputed_tokens++;
    a->e->sweep.rows[a->row_count++] =
        (rm_row){.sequence = s->index,
                 .position = position,
                 .token = fresh ? step->tokens[position - s->count] : s->tokens[position],
                 .first_layer = 0,
                 .last_layer = (uint16_t)(a->e->model.shape.layer_count - 1),
                 .keep_kv = !transient,
                 .want_logits = a->scoring ? position + 1 < total : position + 1 == total};
    return REMAT_OK;
}

static int run_steps(advance *a, remat_error *err) {
    for (uint32_t i = 0; i < a->step_count; i++) {
        const remat_step *step = &a->steps[i];
        const remat_sequence *s = step->sequence;
        const uint32_t total = total_of(step);
        const uint32_t again = least(s->dropped_columns * RM_PAGE_TOKENS, total);
        for (uint32_t p = 0; p < again; p++)
            RM_TRY(add_row(a, step, p, err));
        for (uint32_t p = again > s->count ? again : s->count; p < total; p++)
            RM_TRY(add_row(a, step, p, err));
    }
    return flush_rows(a, err);
}

/* --- results ---------------------------------------------------------------------------------- */

/* Without a scorer the only rows with logits are the last of each step. */
static int keep_logits(void *user, uint32_t row, const float *logits, remat_error *err) {
    remat_engine *e = user;
    const remat_sequence *s = &e->sequences[e->sweep.rows[row].sequence];
    (void)err;
    memcpy(s->logits, logits, e->model.shape.vocabulary * sizeof *logits);
    return REMAT_OK;
}

/* The sequence as it was before the step. */
static void take_back(remat_sequence *s, uint32_t total) {
    const uint32_t keep = columns(s->count);
    rm_cache_drop(&s->engine->cache, s->index, keep, columns(total));
    s->dropped_columns = least(s->dropped_columns, keep);
}

/* After numbers that were not finite: the kept page of the last tokens may hold some of them, and
 * even unseen they would spoil sums (0 x NaN). All of it is recomputed when it is needed. */
static void forget(remat_sequence *s) {
    drop_to(s, columns(s->count));
}

static void take_over(const remat_step *step) {
    remat_sequence *s = step->sequence;
    memcpy(s->tokens + s->count, step->tokens, step->count * sizeof *s->tokens);
    s->count += step->count;
}

int rm_engine_advance(remat_engine *e, const remat_step *steps, uint32_t step_count,
                      rm_logits_fn *score, void *user, remat_error *err) {
    advance a = {.e = e, .steps = steps, .step_count = step_count, .scoring = score != NULL};
    a.fn = a.scoring ? score : keep_logits;
    a.user = a.scoring ? user : e;
    RM_TRY(check(&a, err));
    make_room(&a);
    const int status = run_steps(&a, err);
    for (uint32_t i = 0; i < step_count; i++) {
        if (status == REMAT_OK && !a.scoring) {
            take_over(&steps[i]);
        } else {
            take_back(steps[i].sequence, total_of(&steps[i]));
            if (status == REMAT_E_FAILED) forget(steps[i].sequence);
        }
    }
    if (status == REMAT_E_CANCELED) atomic_store(&e->cancel, false);
    return status;
}

void remat_sequence_truncate(remat_sequence *s, uint32_t count) {
    RM_ASSERT(count <= s->count);
    const uint32_t before = s->count;
    s->count = count;
    take_back(s, before);
}
