/*
 * sequence.c: tokens are appended. Part: engine.
 *
 * A step is: the policy makes room (policy.c); the route finds which tokens of the past have to run
 * again (route.c); they and the new ones become runs of a sweep. A page that turns out to be lost
 * in the middle of it makes the step start again, with the page counted as dropped.
 */
#include "engine/policy.h"

#include <string.h>

/* --- steps ------------------------------------------------------------------------------------ */

typedef struct advance {
    remat_engine *e;
    const remat_step *steps;
    uint32_t step_count;
    rm_rows_wanted rows;
    uint32_t run_count, row_count; /* waiting in the sweep */
    uint32_t given, seen;          /* rows of logits: given to fn; of this try */
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

/* --- runs ------------------------------------------------------------------------------------- */

/* What remat_logits() is going to show: the row after the last token of a step. */
static void keep_logits(const advance *a, const rm_row_run *run, uint32_t position,
                        const float *logits) {
    for (uint32_t i = 0; i < a->step_count; i++) {
        const remat_sequence *s = a->steps[i].sequence;
        if (s->index == run->sequence && position + 1 == total_of(&a->steps[i]))
            memcpy(s->logits, logits, a->e->model.shape.vocabulary * sizeof *logits);
    }
}

/* A step that begins again gives each row once. */
static int give_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                    remat_error *err) {
    advance *a = user;
    if (a->seen++ < a->given) return REMAT_OK;
    a->given++;
    keep_logits(a, run, position, logits);
    return a->rows.fn != NULL ? a->rows.fn(a->rows.user, run, position, logits, err) : REMAT_OK;
}

/* Checkpoints of columns first .. end - 1. (Inputs go with their pages.) */
static void drop_checkpoints(const remat_sequence *s, uint32_t first, uint32_t end) {
    remat_engine *e = s->engine;
    for (uint32_t c = first; e->route.checkpoints != NULL && c < end; c++)
        rm_kept_give(&e->sweep.kept, rm_checkpoint_place(&e->cache, s->index, c));
}

/* After a sweep that did not end: pages and checkpoints of tokens that were running again may be
 * there in part, and nobody could tell. (Those of new tokens are going to be written again.) */
static void drop_unfinished(const advance *a, uint32_t run_count) {
    for (uint32_t i = 0; i < run_count; i++) {
        const rm_row_run *r = &a->e->sweep.runs[i];
        const remat_sequence *s = &a->e->sequences[r->sequence];
        const uint32_t column = r->first / RM_PAGE_TOKENS;
        if (r->first >= s->count) continue;
        for (uint32_t l = r->enter; l <= r->leave && l < a->e->model.shape.layer_count; l++)
            rm_cache_drop_page(&a->e->cache, r->sequence, l, column);
        if (r->enter == 0) drop_checkpoints(s, column, column + 1);
    }
}

static int flush(advance *a, remat_error *err) {
    if (a->run_count == 0) return REMAT_OK;
    const uint32_t n = a->run_count;
    a->e->sweep_count++;
    a->e->row_count += a->row_count;
    a->run_count = a->row_count = 0;
    const int status = rm_sweep_run(&a->e->sweep, n, give_row, a, err);
    if (status != REMAT_OK) drop_unfinished(a, n);
    return status;
}

/* Rows first .. end - 1 of a step, from layer `enter` to `leave`: a run for each column. With a
 * whole cache a sweep may be full before the rows are: the next one goes on from the pages. */
static int add_rows(advance *a, const remat_step *step, uint32_t first, uint32_t end,
                    uint32_t enter, uint32_t leave, remat_error *err) {
    const remat_sequence *s = step->sequence;
    const rm_sweep_shape *shape = &a->e->sweep.shape;
    while (first < end) {
        uint32_t n = rm_least(end - first, RM_PAGE_TOKENS - first % RM_PAGE_TOKENS);
        if (a->run_count == shape->run_max ||
            (shape->row_max > 0 && a->row_count == shape->row_max))
            RM_TRY(flush(a, err));
        if (shape->row_max > 0) n = rm_least(n, shape->row_max - a->row_count);
        const bool fresh = first >= s->count;
        a->e->sweep.runs[a->run_count++] =
            (rm_row_run){.sequence = s->index,
                         .first = first,
                         .count = n,
                         .row_first = a->row_count,
                         .enter = (uint16_t)enter,
                         .leave = (uint16_t)leave,
                         .tokens = fresh ? step->tokens + (first - s->count) : s->tokens + first};
        if (!fresh) a->e->recomputed_tokens += n;
        a->row_count += n;
        first += n;
    }
    return REMAT_OK;
}

static int add_step(advance *a, const remat_step *step, remat_error *err) {
    const remat_sequence *s = step->sequence;
    const uint32_t total = total_of(step), layers = a->e->model.shape.layer_count;
    /* The first token whose logits are wanted, and the first after it whose are not. */
    const uint32_t logits_first = a->rows.fn != NULL ? s->count + a->rows.first : total - 1;
    const uint32_t logits_end = a->rows.forget ? total - 1 : total;
    rm_route *route = &a->e->route;
    (void)rm_route_make(route, s->index, s->count, logits_first);
    for (uint32_t c = 0; c < rm_columns(s->count); c++) {
        if (route->leave[c] == RM_ROUTE_NONE) continue;
        RM_TRY(add_rows(a, step, c * RM_PAGE_TOKENS, rm_least((c + 1) * RM_PAGE_TOKENS, s->count),
                        route->enter[c], route->leave[c], err));
    }
    RM_TRY(add_rows(a, step, s->count, logits_first, 0, layers - 1, err));
    RM_TRY(add_rows(a, step, logits_first, logits_end, 0, layers, err));
    return add_rows(a, step, logits_end, total, 0, layers - 1, err);
}

/* One try. RM_SWEEP_LOST: what was lost is known to be now. */
static int run_steps(advance *a, bool healing, remat_error *err) {
    a->run_count = a->row_count = a->seen = 0;
    if (a->e->cache.spill != NULL || a->e->sweep.rows.spilled) rm_spill_pardon(&a->e->spill);
    rm_allowance_begin(a->e, a->steps, a->step_count, healing);
    RM_TRY(rm_policy_make_room(a->e, a->steps, a->step_count, healing, err));
    for (uint32_t i = 0; i < a->step_count; i++)
        RM_TRY(add_step(a, &a->steps[i], err));
    return flush(a, err);
}

/* What was read back wrong is computed again. A disk that goes on like that is given up. */
static int run_healing(advance *a, remat_error *err) {
    enum { TRIES = 4 };
    int status = run_steps(a, false, err);
    for (int i = 1; status == RM_SWEEP_LOST; i++) {
        a->e->healed_count++;
        rm_engine_warn_spill(a->e);
        if (i == TRIES / 2) rm_cache_abandon_spill(&a->e->cache);
        if (i == TRIES) {
            return rm_fail(err, REMAT_E_FAILED,
                           "spill: what was written cannot be read back: the disk is failing; give "
                           "another --spill directory, or more memory");
        }
        status = run_steps(a, true, err);
    }
    return status;
}

/* --- results ---------------------------------------------------------------------------------- */

/* The sequence as it was before the step. */
static void take_back(remat_sequence *s, uint32_t total) {
    const uint32_t keep = rm_columns(s->count);
    rm_cache_drop(&s->engine->cache, s->index, keep, rm_columns(total));
    drop_checkpoints(s, keep, rm_columns(total));
    for (uint32_t c = keep; c < rm_columns(total); c++)
        s->cold[c] = 0;
    rm_policy_forget(s, keep, rm_columns(total));
}

/* After numbers that were not finite: the kept page of the last tokens may hold some of them, and
 * even unseen they would spoil sums (0 x NaN). All of it is recomputed when it is needed. */
static void forget(remat_sequence *s) {
    rm_cache_drop(&s->engine->cache, s->index, 0, rm_columns(s->count));
    drop_checkpoints(s, 0, rm_columns(s->count));
}

/* A disk that was given up is tried again by the next step; what it held is forgotten. */
static void try_disk_again(remat_engine *e) {
    if (rm_setup_spills(&e->setup) && e->cache.spill == NULL)
        rm_cache_resume_spill(&e->cache, &e->spill);
}

void rm_sequence_empty(remat_sequence *s) {
    take_back(s, s->engine->setup.context_count);
}

static void take_over(const remat_step *step) {
    remat_sequence *s = step->sequence;
    memcpy(s->tokens + s->count, step->tokens, step->count * sizeof *s->tokens);
    s->count += step->count;
}

int rm_engine_advance(remat_engine *e, const remat_step *steps, uint32_t step_count,
                      const rm_rows_wanted *rows, remat_error *err) {
    advance a = {.e = e, .steps = steps, .step_count = step_count};
    if (rows != NULL) a.rows = *rows;
    RM_TRY(check(&a, err));
    const int status = run_healing(&a, err);
    rm_allowance_end(e);
    rm_engine_warn_spill(e);
    rm_policy_age(e);
    for (uint32_t i = 0; i < step_count; i++) {
        if (status == REMAT_OK && !a.rows.forget) {
            take_over(&steps[i]);
        } else {
            take_back(steps[i].sequence, total_of(&steps[i]));
            if (status == REMAT_E_FAILED) forget(steps[i].sequence);
        }
    }
    if (status == REMAT_E_FAILED) try_disk_again(e);
    if (status == REMAT_E_CANCELED) atomic_store(&e->cancel, false);
    return status;
}

void remat_sequence_truncate(remat_sequence *s, uint32_t count) {
    RM_ASSERT(count <= s->count);
    const uint32_t before = s->count;
    s->count = count;
    take_back(s, before);
}
