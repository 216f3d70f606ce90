/*
 * test_sample.c: the sampler against a slow one in double precision that is written here from the
 * definitions, and the cases that other engines got wrong: filters that are off or as tight as can
 * be, temperatures near zero and far from it, windows of the penalties, biases, seeds.
 */
#include "engine/sample.h"
#include "harness.h"

#include <float.h>
#include <math.h>

enum { V = 500, RECENT = 100 };

static float logits[V];
static uint32_t recent[RECENT];
static rm_candidate candidates[V];
static uint32_t counts[V];
static rm_sample_space space = {.candidates = candidates, .counts = counts};

static uint32_t below(uint32_t n) {
    return (uint32_t)(t_random() >> 33) % n;
}

static float uniform(void) {
    return (float)(t_random() >> 40) * 0x1p-24f;
}

/* Logits of a model's kind: most are low, a few stand out; some are equal. */
static void draw_logits(void) {
    for (uint32_t i = 0; i < V; i++)
        logits[i] = 6 * (uniform() + uniform() + uniform() - 1.5f);
    for (int i = 0; i < 10; i++)
        logits[below(V)] += 5 * uniform();
    for (int i = 0; i < 20; i++)
        logits[below(V)] = logits[below(V)];
    for (uint32_t i = 0; i < RECENT; i++)
        recent[i] = below(i % 3 == 0 ? V : 12);
}

static remat_sampling plain(void) {
    remat_sampling s = remat_sampling_default();
    s.temperature = 1;
    s.top_k = 0;
    s.top_p = 1;
    s.min_p = 0;
    return s;
}

static uint32_t sample(const remat_sampling *s, uint64_t seed) {
    rm_random random;
    rm_random_seed(&random, seed);
    for (uint32_t i = 0; i < V; i++) { /* others work there between two calls */
        candidates[i] = (rm_candidate){.id = below(2 * V), .logit = uniform()};
        counts[i] = below(9);
    }
    return rm_sample(logits, V, s, recent, RECENT, &space, &random);
}

static uint32_t greedy(void) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < V; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* --- the slow sampler ------------------------------------------------------------------------- */

typedef struct scored {
    uint32_t id;
    double logit, weight;
} scored;

/* How near a decision was to falling the other way: float and double may then differ. */
static double margin;

static void decided_by(double left, double right) {
    const double size = fabs(left) > fabs(right) ? fabs(left) : fabs(right);
    const double distance = size > 0 ? fabs(left - right) / size : 1;
    margin = distance < margin ? distance : margin;
}

static int by_logit(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void slow_penalties(scored *c, const remat_sampling *s) {
    uint32_t n = s->penalty_last < 0 ? RECENT : (uint32_t)s->penalty_last;
    if (n > RECENT) n = RECENT;
    for (uint32_t id = 0; id < V; id++) {
        uint32_t times = 0;
        for (uint32_t i = RECENT - n; i < RECENT; i++)
            times += recent[i] == id;
        if (times == 0) continue;
        if (c[id].logit > 0)
            c[id].logit /= (double)s->repeat_penalty;
        else
            c[id].logit *= (double)s->repeat_penalty;
        c[id].logit -= times * (double)s->frequency_penalty;
        c[id].logit -= (double)s->presence_penalty;
    }
}

/* The set that may be drawn, best first; returns its size. */
static uint32_t slow_set(scored *c, const remat_sampling *s) {
    for (uint32_t i = 0; i < V; i++)
        c[i] = (scored){.id = i, .logit = (double)logits[i]};
    for (uint32_t i = 0; i < s->bias_count; i++)
        c[s->bias[i].id].logit += (double)s->bias[i].bias;
    slow_penalties(c, s);
    qsort(c, V, sizeof *c, by_logit);
    uint32_t n = s->top_k > 0 && s->top_k < V ? (uint32_t)s->top_k : V;
    double all = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        all += c[i].weight = exp(c[i].logit - c[0].logit);
    if (s->top_p < 1) { /* the fewest whose share is at least top_p */
        for (uint32_t i = 0; i < n; i++) {
            sum += c[i].weight;
            decided_by(sum, (double)s->top_p * all);
            if (sum >= (double)s->top_p * all) n = i + 1;
        }
    }
    for (uint32_t i = 1; i < n; i++) {
        decided_by(c[i].weight, (double)s->min_p);
        if (c[i].weight < (double)s->min_p) n = i;
    }
    for (uint32_t i = 1; i < n; i++) /* the order of near equals is float's to choose */
        if (c[i].logit != c[i - 1].logit) decided_by(c[i].logit + 1000, c[i - 1].logit + 1000);
    return n;
}

static uint32_t slow_sample(const remat_sampling *s, uint64_t seed) {
    static scored c[V];
    rm_random random;
    margin = 1;
    const uint32_t n = slow_set(c, s);
    if (s->temperature <= 0) return c[0].id;
    double all = 0, at = 0;
    for (uint32_t i = 0; i < n; i++)
        all += c[i].weight = exp((c[i].logit - c[0].logit) / (double)s->temperature);
    rm_random_seed(&random, seed);
    const double want = (double)rm_random_f32(&random) * all;
    for (uint32_t i = 0; i < n; i++) {
        at += c[i].weight;
        decided_by(want, at);
        if (want < at) return c[i].id;
    }
    return c[n - 1].id;
}

/* Of 6,000 random settings all that are not decided by a rounding must agree. */
static void equals_the_slow_sampler(void) {
    uint32_t compared = 0, not_best = 0;
    for (uint64_t i = 0; i < 6000; i++) {
        if (i % 50 == 0) draw_logits();
        remat_sampling s = plain();
        remat_bias bias[3];
        for (int j = 0; j < 3; j++)
            bias[j] = (remat_bias){.id = below(V), .bias = 10 * uniform() - 5};
        s.temperature = below(8) == 0 ? 0 : 2 * uniform() + 0.05f;
        /* Shares of values that the sampler adds in another order when all are kept. */
        s.top_k = below(4) == 0 ? 0 : (int32_t)(1 + below(below(2) ? 60 : V + 50));
        s.top_p = below(2) ? 1 : uniform();
        s.min_p = below(2) ? 0 : uniform() * 0.3f;
        if (below(2)) s.repeat_penalty = 0.8f + uniform();
        if (below(2)) s.frequency_penalty = 2 * uniform() - 0.5f;
        if (below(2)) s.presence_penalty = 2 * uniform() - 0.5f;
        s.penalty_last = (int32_t)below(RECENT + 20) - 1;
        s.bias = bias;
        s.bias_count = below(4);
        if (s.top_k == 0 && s.top_p >= 1 && s.min_p <= 0) s.top_k = V - 1; /* see below */
        const uint32_t right = slow_sample(&s, i);
        if (margin < 1e-5 && s.temperature > 0) continue;
        const uint32_t got = sample(&s, i);
        compared++;
        not_best += got != greedy();
        if (got != right)
            t_fail("case %" PRIu64 ": %u, not %u: temperature %g, top_k %d, top_p %g, min_p %g", i,
                   got, right, (double)s.temperature, s.top_k, (double)s.top_p, (double)s.min_p);
    }
    EXPECT(compared > 1500 && not_best > 500);
}

/* Without any filter nothing is sorted, so a seed draws another token; the shares are the same. */
static void shares_without_filters(void) {
    static uint32_t times[V];
    enum { DRAWS = 20000 };
    draw_logits();
    remat_sampling s = plain();
    memset(times, 0, sizeof times);
    for (uint64_t i = 0; i < DRAWS; i++)
        times[sample(&s, i)]++;
    static scored c[V];
    slow_set(c, &s);
    double all = 0;
    for (uint32_t i = 0; i < V; i++)
        all += c[i].weight;
    for (uint32_t i = 0; i < V; i++) {
        const double p = c[i].weight / all, mean = p * DRAWS;
        if (fabs(times[c[i].id] - mean) > 6 * sqrt(mean * (1 - p)) + 6)
            t_fail("token %u: %u times, not about %.0f", c[i].id, times[c[i].id], mean);
    }
}

/* --- limits of the settings ------------------------------------------------------------------- */

static void expect_greedy(const remat_sampling *s, const char *what) {
    for (uint64_t seed = 0; seed < 20; seed++) {
        const uint32_t got = sample(s, seed);
        if (got != greedy()) t_fail("%s: %u, not %u", what, got, greedy());
    }
}

/* The best by more than a rounding, so that every way of cutting must leave it. */
static void clear_best(void) {
    draw_logits();
    const uint32_t best = greedy();
    logits[best] += 0.25f;
}

static void tiny_temperatures_are_greedy(void) {
    static const float tiny[] = {0, -1, -1e30f, 1e-3f, 1e-5f, 1e-9f, 1e-38f, FLT_MIN / 1024};
    for (int round = 0; round < 20; round++) {
        clear_best();
        for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++) {
            remat_sampling s = plain();
            s.temperature = tiny[i];
            expect_greedy(&s, "a tiny temperature");
            s.top_k = 40;
            s.top_p = 0.95f;
            s.min_p = 0.05f;
            expect_greedy(&s, "a tiny temperature with filters");
        }
    }
}

static void tight_filters_are_greedy(void) {
    for (int round = 0; round < 20; round++) {
        clear_best();
        remat_sampling s = plain();
        s.top_k = 1;
        expect_greedy(&s, "top_k 1");
        s.top_p = 0.8f;
        expect_greedy(&s, "top_k 1, top_p 0.8");
        s = plain();
        s.top_p = 0;
        expect_greedy(&s, "top_p 0");
        s = plain();
        s.min_p = 1;
        expect_greedy(&s, "min_p 1");
        s.temperature = 1e6f;
        expect_greedy(&s, "min_p 1, temperature 1e6");
    }
}

static void top_k_that_is_off(void) {
    static const int32_t off[] = {0, -1, V, V + 1, 1000000000, INT32_MIN, INT32_MAX};
    draw_logits();
    for (int filters = 0; filters < 2; filters++) {
        remat_sampling s = plain();
        if (filters) s.top_p = 0.9f;
        for (uint64_t seed = 0; seed < 200; seed++) {
            s.top_k = 0;
            const uint32_t right = sample(&s, seed);
            for (size_t i = 1; i < sizeof off / sizeof *off; i++) {
                s.top_k = off[i];
                EXPECT_EQ_U64(sample(&s, seed), right);
            }
        }
    }
}

static void ties_go_to_the_lowest_id(void) {
    for (uint32_t i = 0; i < V; i++)
        logits[i] = i % 7 == 3 ? 2.0f : 1.0f;
    remat_sampling s = plain();
    s.temperature = 0;
    EXPECT_EQ_U64(sample(&s, 1), 3);
    s = plain();
    s.top_k = 1;
    EXPECT_EQ_U64(sample(&s, 1), 3);
    s.top_k = 2;
    for (uint64_t seed = 0; seed < 50; seed++) {
        const uint32_t id = sample(&s, seed);
        EXPECT(id == 3 || id == 10);
    }
}

static void large_temperatures_apply(void) {
    draw_logits();
    remat_sampling s = plain();
    s.temperature = 1e6f;
    bool seen[V] = {false};
    uint32_t different = 0;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const uint32_t id = sample(&s, seed);
        different += !seen[id];
        seen[id] = true;
    }
    EXPECT(different >= 28);
    s.top_k = 40;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        const uint32_t id = sample(&s, seed);
        uint32_t better = 0;
        for (uint32_t i = 0; i < V; i++)
            better += logits[i] > logits[id];
        EXPECT(better < 40);
    }
}

static void seeds(void) {
    static const uint64_t odd[] = {0, 42, 43, 1ull << 32, UINT64_MAX};
    draw_logits();
    remat_sampling s = plain();
    s.temperature = 10;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        rm_random a, b;
        rm_random_seed(&a, odd[i]);
        rm_random_seed(&b, odd[i]);
        uint32_t first[32];
        bool other = false;
        for (int j = 0; j < 32; j++) {
            first[j] = rm_sample(logits, V, &s, recent, RECENT, &space, &a);
            EXPECT_EQ_U64(rm_sample(logits, V, &s, recent, RECENT, &space, &b), first[j]);
        }
        rm_random_seed(&b, odd[i] + 1);
        for (int j = 0; j < 32; j++)
            other = other || rm_sample(logits, V, &s, recent, RECENT, &space, &b) != first[j];
        EXPECT(other);
    }
}

/* --- penalties and biases --------------------------------------------------------------------- */

static void windows_of_the_penalties(void) {
    draw_logits();
    for (uint32_t i = 0; i < RECENT; i++)
        recent[i] = i; /* each token once, the newest is 99 */
    for (uint32_t i = 0; i < V; i++)
        logits[i] = i < RECENT ? 5 + 0.01f * (float)i : -1;
    remat_sampling s = plain();
    s.temperature = 0;
    EXPECT_EQ_U64(sample(&s, 0), 99);
    s.repeat_penalty = 1.3f;
    s.frequency_penalty = s.presence_penalty = 2;
    s.penalty_last = 0; /* none */
    EXPECT_EQ_U64(sample(&s, 0), 99);
    s.penalty_last = 1; /* the last, not the first */
    EXPECT_EQ_U64(sample(&s, 0), 98);
    s.penalty_last = 10;
    EXPECT_EQ_U64(sample(&s, 0), 89);
    s.penalty_last = 99;
    EXPECT_EQ_U64(sample(&s, 0), 0);
    s.penalty_last = -1; /* all: the order is as before */
    EXPECT_EQ_U64(sample(&s, 0), 99);
    s.penalty_last = 1000;
    EXPECT_EQ_U64(sample(&s, 0), 99);
    s.frequency_penalty = 10; /* now all of them fall below the others */
    EXPECT_EQ_U64(sample(&s, 0), RECENT);
}

static void a_repeated_token_is_penalized_once(void) {
    for (uint32_t i = 0; i < V; i++)
        logits[i] = 0;
    logits[7] = 10;
    logits[8] = 5.1f;
    for (uint32_t i = 0; i < RECENT; i++)
        recent[i] = 7;
    remat_sampling s = plain();
    s.temperature = 0;
    s.penalty_last = -1;
    s.repeat_penalty = 1.9f; /* 10 / 1.9 = 5.26; twice would be 2.8 */
    EXPECT_EQ_U64(sample(&s, 0), 7);
    s.repeat_penalty = 2; /* 5 */
    EXPECT_EQ_U64(sample(&s, 0), 8);
    s.repeat_penalty = 1;
    s.presence_penalty = 4.8f; /* once */
    EXPECT_EQ_U64(sample(&s, 0), 7);
    s.presence_penalty = 0;
    s.frequency_penalty = 0.048f; /* a hundred times */
    EXPECT_EQ_U64(sample(&s, 0), 7);
    s.frequency_penalty = 0.05f;
    EXPECT_EQ_U64(sample(&s, 0), 8);
    logits[7] = -1; /* a negative logit gets worse, not better */
    logits[8] = -1.5f;
    for (uint32_t i = 0; i < V; i++)
        logits[i] = i == 7 || i == 8 ? logits[i] : -50;
    s.frequency_penalty = 0;
    s.repeat_penalty = 2;
    EXPECT_EQ_U64(sample(&s, 0), 8);
}

static void biases_ban_and_force(void) {
    static remat_bias many[300];
    draw_logits();
    const uint32_t best = greedy();
    const remat_bias ban[] = {{.id = best, .bias = -100}}, force[] = {{.id = 5, .bias = 100}};
    const remat_bias huge[] = {{.id = 5, .bias = 1e30f}, {.id = 6, .bias = -1e30f}};
    remat_sampling s = plain();
    s.bias_count = 1;
    for (uint64_t seed = 0; seed < 200; seed++) {
        s.bias = ban;
        EXPECT(sample(&s, seed) != best);
        s.bias = force;
        EXPECT_EQ_U64(sample(&s, seed), 5);
    }
    s.temperature = 0;
    EXPECT_EQ_U64(sample(&s, 0), 5);
    s.bias = ban;
    EXPECT(sample(&s, 0) != best);
    s.bias = huge;
    s.bias_count = 2;
    for (uint64_t seed = 0; seed < 20; seed++) {
        s.temperature = (float)seed;
        EXPECT_EQ_U64(sample(&s, seed), 5);
    }
    /* All banned but one: penalties and filters cannot empty the set. */
    for (uint32_t i = 0; i < 300; i++)
        many[i] = (remat_bias){.id = i, .bias = -1e30f};
    s = plain();
    s.bias = many;
    s.bias_count = 300;
    for (uint64_t seed = 0; seed < 200; seed++)
        EXPECT(sample(&s, seed) >= 300);
    /* Twice the same id: both count. */
    const remat_bias twice[] = {{.id = 9, .bias = 60}, {.id = 9, .bias = 60}};
    s.bias = twice;
    s.bias_count = 2;
    EXPECT_EQ_U64(sample(&s, 3), 9);
}

static void settings_out_of_range(void) {
    const remat_bias outside[] = {{.id = V, .bias = 1}}, not_a_number[] = {{.id = 1, .bias = NAN}};
    remat_sampling bad[14];
    remat_error err;
    for (int i = 0; i < 14; i++)
        bad[i] = plain();
    bad[0].temperature = NAN;
    bad[1].temperature = INFINITY;
    bad[2].top_p = 1.5f;
    bad[3].top_p = -0.1f;
    bad[4].min_p = 1.1f;
    bad[5].min_p = NAN;
    bad[6].repeat_penalty = 0;
    bad[7].repeat_penalty = INFINITY;
    bad[8].frequency_penalty = 101;
    bad[9].presence_penalty = -101;
    bad[10].penalty_last = -2;
    bad[11].bias = outside;
    bad[11].bias_count = 1;
    bad[12].bias = not_a_number;
    bad[12].bias_count = 1;
    bad[13].bias = outside;
    bad[13].bias_count = REMAT_BIAS_MAX + 1;
    for (int i = 0; i < 14; i++) {
        err = (remat_error){0};
        if (rm_sampling_check(&bad[i], V, &err) != REMAT_E_USAGE || err.message[0] == '\0')
            t_fail("case %d is taken", i);
    }
    remat_sampling good = remat_sampling_default();
    EXPECT(rm_sampling_check(&good, V, &err) == REMAT_OK);
    good = plain();
    EXPECT(rm_sampling_check(&good, V, &err) == REMAT_OK);
}

int main(int argc, char **argv) {
    space.kernels = rm_kernels_all()[0];
    return RM_RUN(argc, argv, T(equals_the_slow_sampler), T(shares_without_filters),
                  T(tiny_temperatures_are_greedy), T(tight_filters_are_greedy),
                  T(top_k_that_is_off), T(ties_go_to_the_lowest_id), T(large_temperatures_apply),
                  T(seeds), T(windows_of_the_penalties), T(a_repeated_token_is_penalized_once),
                  T(biases_ban_and_force), T(settings_out_of_range));
}
