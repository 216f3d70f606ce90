/* sample.c: see sample.h. */
#include "engine/sample.h"

#include <math.h>

int rm_sampling_check(const remat_sampling *s, uint32_t vocabulary, remat_error *err) {
    const struct {
        const char *name;
        float value, low, high;
    } numbers[] = {
        {"temperature", s->temperature, -1e30f, 1e30f},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"repeat_penalty", s->repeat_penalty, 1e-3f, 1e3f},
        {"frequency_penalty", s->frequency_penalty, -100, 100},
        {"presence_penalty", s->presence_penalty, -100, 100},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!(numbers[i].value >= numbers[i].low && numbers[i].value <= numbers[i].high)) {
            return rm_fail(err, REMAT_E_USAGE, "sampling: %s is %g; use %g to %g", numbers[i].name,
                           (double)numbers[i].value, (double)numbers[i].low,
                           (double)numbers[i].high);
        }
    }
    if (s->penalty_last < -1)
        return rm_fail(err, REMAT_E_USAGE, "sampling: penalty_last is %d; use -1 or more",
                       s->penalty_last);
    if (s->bias_count > REMAT_BIAS_MAX)
        return rm_fail(err, REMAT_E_USAGE, "sampling: %u biases; at most %d", s->bias_count,
                       REMAT_BIAS_MAX);
    for (uint32_t i = 0; i < s->bias_count; i++) {
        if (s->bias[i].id >= vocabulary || !isfinite(s->bias[i].bias)) {
            return rm_fail(err, REMAT_E_USAGE, "sampling: bias %g of token %u; ids are below %u",
                           (double)s->bias[i].bias, s->bias[i].id, vocabulary);
        }
    }
    return REMAT_OK;
}

/* Better first: the larger logit, then the lower id. */
static bool better(const rm_candidate *a, const rm_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void swap(rm_candidate *a, rm_candidate *b) {
    const rm_candidate t = *a;
    *a = *b;
    *b = t;
}

/* Heapsort's sift: the worst of c[0 .. n - 1] is at c[0]. */
static void sift(rm_candidate *c, uint32_t at, uint32_t n) {
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && better(&c[child], &c[child + 1])) child++;
        if (!better(&c[at], &c[child])) return;
        swap(&c[at], &c[child]);
    }
}

/* Moves the best `keep` of n candidates to the front, best first: a heap of the best so far whose
 * root is the worst of them; most of the vocabulary loses against the root at once. */
static void select_best(rm_candidate *c, uint32_t n, uint32_t keep) {
    for (uint32_t i = keep / 2; i-- > 0;)
        sift(c, i, keep);
    for (uint32_t i = keep; i < n; i++) {
        if (!better(&c[i], &c[0])) continue;
        swap(&c[i], &c[0]);
        sift(c, 0, keep);
    }
    for (uint32_t end = keep; end-- > 1;) {
        swap(&c[0], &c[end]);
        sift(c, 0, end);
    }
}

static bool penalizes(const remat_sampling *s) {
    return s->repeat_penalty != 1 || s->frequency_penalty != 0 || s->presence_penalty != 0;
}

/* Applies the penalties once to each distinct token of the window. */
static void penalize(const rm_sample_space *space, const remat_sampling *s, const uint32_t *recent,
                     uint32_t count) {
    uint32_t n = s->penalty_last < 0 ? count : (uint32_t)s->penalty_last;
    if (n > count) n = count;
    const uint32_t *window = recent + (count - n);
    for (uint32_t i = 0; i < n; i++)
        space->counts[window[i]] = 0;
    for (uint32_t i = 0; i < n; i++)
        space->counts[window[i]]++;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t times = space->counts[window[i]];
        if (times == 0) continue; /* handled already */
        float *l = &space->candidates[window[i]].logit;
        *l = *l > 0 ? *l / s->repeat_penalty : *l * s->repeat_penalty;
        *l -= (float)times * s->frequency_penalty + s->presence_penalty;
        space->counts[window[i]] = 0;
    }
}

/* The best candidate without sorting; the lowest id among equals. */
static uint32_t greedy(const rm_candidate *c, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (better(&c[i], &c[best])) best = i;
    }
    return c[best].id;
}

/* How many of n candidates top-p and min-p leave: both keep a run of the best. The first `sorted`
 * are in order, the others all worse; returns 0 when the run goes on beyond those. Probabilities
 * are relative to the best. */
static uint32_t filtered(const rm_candidate *c, uint32_t n, uint32_t sorted,
                         const remat_sampling *s) {
    double all = 0, sum = 0;
    for (uint32_t i = 0; s->top_p < 1 && i < n; i++)
        all += (double)rm_exp(c[i].logit - c[0].logit);
    for (uint32_t i = 0; i < sorted; i++) {
        const float p = rm_exp(c[i].logit - c[0].logit);
        if (i > 0 && p < s->min_p) return i;
        sum += (double)p;
        if (s->top_p < 1 && sum >= (double)s->top_p * all) return i + 1;
    }
    return sorted == n ? n : 0;
}

static uint32_t draw(rm_candidate *c, uint32_t n, float temperature, rm_random *random) {
    const float best = c[0].logit;
    double all = 1, at = 0;
    c[0].logit = 1; /* the best, whatever the temperature: 0 / tiny is 0 */
    for (uint32_t i = 1; i < n; i++) {
        c[i].logit = rm_exp((c[i].logit - best) / temperature);
        all += (double)c[i].logit;
    }
    const double want = (double)rm_random_f32(random) * all;
    for (uint32_t i = 0; i < n; i++) {
        at += (double)c[i].logit;
        if (want < at) return c[i].id;
    }
    return c[0].id;
}

/* Brings the best to the front and returns how many may be drawn. */
static uint32_t filter(rm_candidate *c, uint32_t n, const remat_sampling *s) {
    uint32_t keep = s->top_k > 0 && (uint32_t)s->top_k < n ? (uint32_t)s->top_k : n;
    if (keep < n) {
        select_best(c, n, keep);
        n = keep;
        return filtered(c, n, n, s);
    }
    if (s->top_p >= 1 && s->min_p <= 0) {
        select_best(c, n, 1); /* draw() wants the best in front */
        return n;
    }
    for (uint32_t sorted = n < 256 ? n : 256;; sorted = sorted < n / 4 ? sorted * 4 : n) {
        select_best(c, n, sorted);
        const uint32_t left = filtered(c, n, sorted, s);
        if (left > 0) return left;
    }
}

uint32_t rm_sample(const float *logits, uint32_t vocabulary, const remat_sampling *s,
                   const uint32_t *recent, uint32_t recent_count, const rm_sample_space *space,
                   rm_random *random) {
    rm_candidate *c = space->candidates;
    const bool as_they_are = s->bias_count == 0 && !penalizes(s);
    if (s->temperature <= 0 && as_they_are)
        return (uint32_t)space->kernels->argmax(logits, vocabulary);
    for (uint32_t i = 0; i < vocabulary; i++)
        c[i] = (rm_candidate){.id = i, .logit = logits[i]};
    for (uint32_t i = 0; i < s->bias_count; i++)
        c[s->bias[i].id].logit += s->bias[i].bias;
    if (penalizes(s)) penalize(space, s, recent, recent_count);
    if (s->temperature <= 0) return greedy(c, vocabulary);
    return draw(c, filter(c, vocabulary, s), s->temperature, random);
}
