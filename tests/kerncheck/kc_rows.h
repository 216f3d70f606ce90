/* kc_rows.h: checks of norms, gates, rotation and logits, for kerncheck. */
#ifndef RM_KC_ROWS_H
#define RM_KC_ROWS_H

#include "kerncheck/kc_common.h"

/* A float operand at an odd address of 4 bytes, n long. */
static float *kc_operand(size_t n, float (*of)(void)) {
    float *p = kc_floats(n + 1) + t_random() % 2;
    kc_fill(p, n, of);
    return p;
}

#define KC_FOR_LENGTHS(n)                                                                          \
    for (size_t kc_i = 0, n; kc_i < 3 * KC_LENGTHS && (n = kc_lengths[kc_i / 3], 1); kc_i++)

static void kc_expect_same(const char *what, size_t n, const float *got, const float *want) {
    const size_t at = kc_differ(got, want, n);
    if (at < n)
        t_fail("%s n %zu at %zu: %a, not %a", what, n, at, (double)got[at], (double)want[at]);
}

static void check_rms_norm(const rm_kernels *ref, const rm_kernels *set) {
    KC_FOR_LENGTHS(n) {
        const float *w = kc_operand(n, kc_random);
        float *x = kc_operand(n, kc_i % 3 == 2 ? kc_wild : kc_random), *want = kc_floats(n);
        const kc_room room = kc_take(n * sizeof(float));
        float *got = (float *)(void *)room.at;
        ref->rms_norm(want, x, w, n, 1e-5f);
        set->rms_norm(got, x, w, n, 1e-5f);
        kc_expect_same("rms_norm", n, got, want);
        if (!kc_guards_hold(room)) t_fail("writes outside");
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += (double)x[i] * (double)x[i];
        for (size_t i = 0; ref == set && kc_i % 3 != 2 && i < n; i++) {
            const double y = (double)x[i] / sqrt(sum / (double)n + 1e-5) * (double)w[i];
            if (!(fabs(y - (double)got[i]) <= 1e-6 * fabs(y) + 1e-40)) t_fail("far at %zu", i);
        }
        set->rms_norm(x, x, w, n, 1e-5f); /* in place */
        kc_expect_same("in place", n, x, want);
    }
}

static float kc_gate(void) {
    static const float some[] = {1e30f, -1e30f, 3e38f, -3e38f, 0,  -0.0f, 80,
                                 -80,   -80.1f, 87.9f, 88,     89, -104};
    return t_random() % 4 ? kc_random() * 40 : some[t_random() % 13];
}

typedef void kc_gated_fn(float *out, const float *gate, const float *up, size_t n);

static double kc_silu(double g) {
    return g / (1 + exp(-g));
}

static double kc_gelu(double g) {
    return 0.5 * g * (1 + tanh(0.79788456080286536 * (g + 0.044715 * g * g * g)));
}

/* bound: of the relative error; absolute below 1e-32 and in gelu's tail, where 1 + tanh cancels. */
static void kc_check_gated(kc_gated_fn *ref, kc_gated_fn *set, double (*exact)(double),
                           double bound) {
    KC_FOR_LENGTHS(n) {
        const int wild = kc_i % 3 == 2;
        float *g = kc_operand(n, wild ? kc_wild : kc_gate), *want = kc_floats(n);
        float *up = kc_operand(n, wild ? kc_wild : kc_random);
        const kc_room room = kc_take(n * sizeof(float));
        float *got = (float *)(void *)room.at;
        ref(want, g, up, n);
        set(got, g, up, n);
        kc_expect_same("gated", n, got, want);
        if (!kc_guards_hold(room)) t_fail("writes outside");
        for (size_t i = 0; ref == set && !wild && i < n; i++) {
            const double y = exact((double)g[i]) * (double)up[i];
            if (!(fabs(y - (double)got[i]) <= bound * fabs(y) + (bound > 1e-6 ? 1e-12 : 1e-32)))
                t_fail("gate %g: %g, by definition %g", (double)g[i], (double)got[i], y);
        }
        float *in_place = kc_i % 2 ? g : up;
        set(in_place, g, up, n);
        kc_expect_same("in place", n, in_place, want);
    }
}

static void check_swiglu(const rm_kernels *ref, const rm_kernels *set) {
    kc_check_gated(ref->swiglu, set->swiglu, kc_silu, 5e-7);
}

static void check_geglu(const rm_kernels *ref, const rm_kernels *set) {
    kc_check_gated(ref->geglu, set->geglu, kc_gelu, 1e-5);
}

static void check_add(const rm_kernels *ref, const rm_kernels *set) {
    KC_FOR_LENGTHS(n) {
        const float *y = kc_operand(n, kc_wild);
        float *x = kc_operand(n, kc_wild), *want = kc_floats(n);
        const kc_room room = kc_take(n * sizeof(float));
        memcpy(want, x, n * sizeof *x);
        memcpy(room.at, x, n * sizeof *x);
        ref->add(want, y, n);
        set->add((float *)(void *)room.at, y, n);
        kc_expect_same("add", n, (float *)(void *)room.at, want);
        if (!kc_guards_hold(room)) t_fail("writes outside");
    }
}

static void check_rope_angles(const rm_kernels *ref, const rm_kernels *set) {
    for (int round = 0; round < 200; round++) {
        const size_t n = kc_lengths[t_random() % 16];
        const uint32_t position = (uint32_t)(t_random() % (round % 2 ? 4096 : RM_CONTEXT_MAX));
        const float scale = round % 3 ? 1 : 1.25f;
        double *frequency = (double *)(void *)kc_take(n * sizeof(double)).at;
        for (size_t i = 0; i < n; i++)
            frequency[i] = pow(10000, -(double)(t_random() % 64) / 64);
        const kc_room c = kc_take(n * sizeof(float)), s = kc_take(n * sizeof(float));
        float *cg = (float *)(void *)c.at, *sg = (float *)(void *)s.at;
        float *cw = kc_floats(n), *sw = kc_floats(n);
        ref->rope_angles(cw, sw, frequency, n, position, scale);
        set->rope_angles(cg, sg, frequency, n, position, scale);
        kc_expect_same("cos", n, cg, cw);
        kc_expect_same("sin", n, sg, sw);
        if (!kc_guards_hold(c) || !kc_guards_hold(s)) t_fail("writes outside");
        for (size_t i = 0; i < n; i++) {
            const double theta = position * frequency[i];
            if (!(fabs(cos(theta) * (double)scale - (double)cg[i]) < 1.5e-7) ||
                !(fabs(sin(theta) * (double)scale - (double)sg[i]) < 1.5e-7))
                t_fail("far at angle %g: %g %g", theta, (double)cg[i], (double)sg[i]);
        }
    }
}

static void kc_rope(void (*ref)(float *, const float *, const float *, size_t),
                    void (*set)(float *, const float *, const float *, size_t)) {
    KC_FOR_LENGTHS(n) {
        const float *c = kc_operand(n, kc_random), *s = kc_operand(n, kc_random);
        float *want = kc_operand(2 * n, kc_i % 3 == 2 ? kc_wild : kc_random);
        const kc_room room = kc_take(2 * n * sizeof(float));
        memcpy(room.at, want, 2 * n * sizeof(float));
        ref(want, c, s, n);
        set((float *)(void *)room.at, c, s, n);
        kc_expect_same("rope", 2 * n, (float *)(void *)room.at, want);
        if (!kc_guards_hold(room)) t_fail("writes outside");
    }
}

/* The two orders hold the same pairs. */
static void kc_rope_orders(const rm_kernels *set) {
    enum { N = 40 };
    float pairs[2 * N], halves[2 * N], c[N], s[N];
    for (int i = 0; i < N; i++) {
        pairs[2 * i] = halves[i] = kc_random();
        pairs[2 * i + 1] = halves[i + N] = kc_random();
        c[i] = cosf((float)i);
        s[i] = sinf((float)i);
    }
    const float a = pairs[2], b = pairs[3];
    set->rope_pairs(pairs, c, s, N);
    set->rope_halves(halves, c, s, N);
    for (int i = 0; i < N; i++)
        EXPECT(kc_same(pairs[2 * i], halves[i]) && kc_same(pairs[2 * i + 1], halves[i + N]));
    EXPECT(fabsf(pairs[2] - (a * c[1] - b * s[1])) < 1e-6f);
    EXPECT(fabsf(pairs[3] - (a * s[1] + b * c[1])) < 1e-6f);
}

static void check_rope_pairs(const rm_kernels *ref, const rm_kernels *set) {
    kc_rope(ref->rope_pairs, set->rope_pairs);
    kc_rope_orders(set);
}

static void check_rope_halves(const rm_kernels *ref, const rm_kernels *set) {
    kc_rope(ref->rope_halves, set->rope_halves);
    kc_rope_orders(set);
}

static void check_argmax(const rm_kernels *ref, const rm_kernels *set) {
    KC_FOR_LENGTHS(n) {
        float *x = kc_operand(n, kc_random);
        if (kc_i % 3 == 1) {
            for (size_t i = 0; i < n; i++)
                x[i] = (float)(t_random() % 3) - 2; /* many equals; zeros of both signs */
        }
        for (size_t i = 0; kc_i % 3 == 2 && i < n; i++)
            x[i] = t_random() % 2 ? -INFINITY : t_random() % 9 ? -1e38f : INFINITY;
        size_t best = 0;
        for (size_t i = 0; i < n; i++)
            best = x[i] > x[best] ? i : best;
        EXPECT_EQ_U64(ref->argmax(x, n), best);
        EXPECT_EQ_U64(set->argmax(x, n), best);
        x[t_random() % n] = NAN;
        EXPECT_EQ_U64(ref->argmax(x, n), n);
        EXPECT_EQ_U64(set->argmax(x, n), n);
    }
}

static void check_sum_exp(const rm_kernels *ref, const rm_kernels *set) {
    KC_FOR_LENGTHS(n) {
        float *x = kc_operand(n, kc_i % 3 == 2 ? kc_wild : kc_random), max = -INFINITY;
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            if (kc_i % 3 == 1) x[i] *= 100;
            max = x[i] > max ? x[i] : max;
        }
        if (kc_i % 5 == 4) max = x[0]; /* not the largest: saturates alike */
        const float want = ref->sum_exp(x, n, max), got = set->sum_exp(x, n, max);
        if (!kc_same(got, want)) t_fail("n %zu: %a, not %a", n, (double)got, (double)want);
        for (size_t i = 0; i < n; i++)
            sum += exp((double)x[i] - (double)max);
        if (ref == set && kc_i % 3 != 2 && sum < 1e30 && !(fabs(sum - (double)got) <= 1e-5 * sum))
            t_fail("n %zu: %g, by definition %g", n, (double)got, sum);
    }
    for (float x = -79.9f; ref == set && x < 88; x += 0.0137f) {
        const double e = exp((double)x);
        if (!(fabs((double)rm_exp(x) - e) <= 2e-7 * e))
            t_fail("exp(%g): %g, error %g", (double)x, (double)rm_exp(x),
                   (double)rm_exp(x) / e - 1);
    }
    EXPECT(rm_exp(0) == 1 && rm_exp(-1e30f) == 0 && rm_exp(1e30f) < INFINITY);
    EXPECT(rm_exp(-INFINITY) == 0 && rm_exp(NAN) != rm_exp(NAN));
}

static void check_all_finite(const rm_kernels *ref, const rm_kernels *set) {
    KC_FOR_LENGTHS(n) {
        static const float bad[] = {INFINITY, -INFINITY, NAN};
        float *x = kc_operand(n, kc_random);
        x[t_random() % n] = 3.4e38f;
        EXPECT(ref->all_finite(x, n) && set->all_finite(x, n));
        for (size_t i = 0; i < n; i += 1 + n / 50) {
            const float kept = x[i];
            x[i] = bad[i % 3];
            if (ref->all_finite(x, n) || set->all_finite(x, n)) t_fail("n %zu misses %zu", n, i);
            x[i] = kept;
        }
    }
}

#endif /* RM_KC_ROWS_H */
