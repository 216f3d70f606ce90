/* kc_attn.h: checks of attention and of pages, for kerncheck. */
#ifndef RM_KC_ATTN_H
#define RM_KC_ATTN_H

#include "kerncheck/kc_common.h"

enum { KC_QUERIES = 31 };

typedef struct kc_span {
    const void *pages[RM_SPAN_PAGES];
    float *q;
    float *k, *v; /* tokens x dim, as the pages hold them */
    uint32_t from[KC_QUERIES], seen[KC_QUERIES], tokens, dim;
    rm_kv_format format;
} kc_span;

/* Random tokens; what lies beyond the last is zero, as in a page that was just taken. */
static kc_span kc_span_make(rm_kv_format f, uint32_t dim, uint32_t tokens) {
    kc_span s = {.tokens = tokens, .dim = dim, .format = f};
    s.q = kc_floats((size_t)KC_QUERIES * dim);
    s.k = kc_floats((size_t)tokens * dim);
    s.v = kc_floats((size_t)tokens * dim);
    for (size_t i = 0; i < (size_t)KC_QUERIES * dim; i++)
        s.q[i] = kc_random() * 4 / sqrtf((float)dim);
    kc_fill(s.k, (size_t)tokens * dim, kc_random);
    kc_fill(s.v, (size_t)tokens * dim, kc_random);
    for (size_t i = 0; f == RM_KV_F16 && i < (size_t)tokens * dim; i++) {
        s.k[i] = rm_f16_to_f32(rm_f16_from_f32(s.k[i]));
        s.v[i] = rm_f16_to_f32(rm_f16_from_f32(s.v[i]));
    }
    for (uint32_t page = 0; page * RM_PAGE_TOKENS < tokens; page++) {
        char *p = kc_take(rm_page_bytes(f, dim)).at;
        memset(p, 0, rm_page_bytes(f, dim));
        for (uint32_t t = page * RM_PAGE_TOKENS; t < tokens && t / RM_PAGE_TOKENS == page; t++)
            rm_page_put(p, f, dim, t % RM_PAGE_TOKENS, s.k + (size_t)t * dim,
                        s.v + (size_t)t * dim);
        s.pages[page] = p;
    }
    for (uint32_t i = 0; i < KC_QUERIES; i++) {
        s.seen[i] = t_random() % 3 ? (uint32_t)(t_random() % (tokens + 1)) : tokens;
        s.from[i] = t_random() % 2 ? (uint32_t)(t_random() % (s.seen[i] + 1)) : 0;
    }
    return s;
}

/* Queries first .. first + count - 1 in calls of `cut`. */
static void kc_span_run(const rm_kernels *set, const kc_span *s, float *state, uint32_t cut,
                        void *scratch) {
    for (uint32_t first = 0; first < KC_QUERIES; first += cut) {
        const uint32_t left = KC_QUERIES - first;
        const rm_attn_job job = {.q = s->q + (size_t)first * s->dim,
                                 .from = s->from + first,
                                 .seen = s->seen + first,
                                 .state = state + (size_t)first * (RM_STATE_HEAD + s->dim),
                                 .pages = s->pages,
                                 .scratch = scratch,
                                 .query_count = left < cut ? left : cut,
                                 .dim = s->dim,
                                 .format = s->format};
        set->attn_span(&job);
    }
}

/* ref, cut into two merged states, against a softmax in doubles. */
static void kc_attn_doubles(const kc_span *s, const float *state, uint32_t query) {
    const uint32_t dim = s->dim, from = s->from[query], seen = s->seen[query];
    static float total[RM_STATE_HEAD + RM_HEAD_DIM_MAX], out[RM_HEAD_DIM_MAX];
    static double p[RM_SPAN_TOKENS];
    double max = -1e30, sum = 0;
    rm_attn_state_clear(total, dim);
    rm_attn_merge(total, state + (size_t)query * (RM_STATE_HEAD + dim), dim);
    rm_attn_finish(out, total, dim);
    for (uint32_t t = from; t < seen; t++) {
        p[t] = 0;
        for (uint32_t d = 0; d < dim; d++)
            p[t] += (double)s->q[(size_t)query * dim + d] * (double)s->k[(size_t)t * dim + d];
        max = fmax(max, p[t]);
    }
    for (uint32_t t = from; t < seen; t++)
        sum += p[t] = exp2(p[t] - max);
    for (uint32_t d = 0; from < seen && d < dim; d++) {
        double o = 0;
        for (uint32_t t = from; t < seen; t++)
            o += p[t] * (double)s->v[(size_t)t * dim + d];
        if (!(fabs(o / sum - (double)out[d]) < 1e-5))
            t_fail("dim %u query %u channel %u: %g, by definition %g", dim, query, d,
                   (double)out[d], o / sum);
    }
}

/* More queries than share a tile: the same ones again and again. */
static void kc_attn_crowd(const rm_kernels *set, const kc_span *s, const float *want,
                          void *scratch) {
    enum { CROWD = RM_ATTN_QUERIES + 40 };
    const size_t dim = s->dim, stride = RM_STATE_HEAD + dim;
    uint32_t from[CROWD], seen[CROWD];
    float *q = kc_floats(CROWD * dim);
    const kc_room room = kc_take(CROWD * stride * sizeof(float));
    float *got = (float *)(void *)room.at;
    for (size_t i = 0; i < CROWD; i++) {
        memcpy(q + i * dim, s->q + i % KC_QUERIES * dim, dim * sizeof *q);
        from[i] = s->from[i % KC_QUERIES];
        seen[i] = s->seen[i % KC_QUERIES];
    }
    const rm_attn_job job = {q, from, seen, got, s->pages, scratch, CROWD, s->dim, s->format};
    set->attn_span(&job);
    for (size_t i = 0; i < CROWD; i++) {
        const size_t at = kc_differ(want + i % KC_QUERIES * stride, got + i * stride, stride);
        if (at < stride) {
            t_fail("dim %zu format %d query %zu of many: float %zu differs", dim, s->format, i, at);
            return;
        }
    }
    if (!kc_guards_hold(room)) t_fail("writes outside");
}

static void check_attn_span(const rm_kernels *ref, const rm_kernels *set) {
    static const uint32_t dims[] = {16, 32, 48, 64, 80, 96, 112, 128, 256};
    static const uint32_t cuts[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 18, 31};
    static const uint32_t tokens[] = {1, 64, 65, 150, 321};
    for (size_t i = 0; i < sizeof dims / sizeof *dims * RM_KV_COUNT; i++) {
        const uint32_t dim = dims[i / RM_KV_COUNT];
        const uint32_t n = i == 0 ? RM_SPAN_TOKENS : tokens[t_random() % 5];
        kc_span s = kc_span_make((rm_kv_format)(i % RM_KV_COUNT), dim, n);
        const size_t floats = (size_t)KC_QUERIES * (RM_STATE_HEAD + dim);
        void *scratch = kc_take(rm_attn_scratch_bytes(dim)).at;
        float *want = kc_floats(floats);
        kc_span_run(ref, &s, want, KC_QUERIES, scratch);
        for (uint32_t query = 0; ref == set && query < 4; query++)
            kc_attn_doubles(&s, want, query);
        /* from here on odd queries too: no number, and scores that overflow */
        s.q[4 * dim + t_random() % dim] = NAN;
        s.q[9 * dim + t_random() % dim] = 1e38f;
        s.q[17 * dim + t_random() % dim] = INFINITY;
        s.q[20 * dim] = -1e30f;
        kc_span_run(ref, &s, want, KC_QUERIES, scratch);
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            if (ref == set && c > 0) break;
            const kc_room room = kc_take(floats * sizeof(float));
            float *got = (float *)(void *)room.at;
            memset(scratch, 0xff, rm_attn_scratch_bytes(dim)); /* NaNs */
            kc_span_run(set, &s, got, cuts[c], scratch);
            const size_t at = kc_differ(want, got, floats), stride = RM_STATE_HEAD + dim;
            if (at < floats)
                t_fail("dim %u format %d tokens %u cut %u: query %zu float %zu: %a, not %a", dim,
                       s.format, n, cuts[c], at / stride, at % stride, (double)got[at],
                       (double)want[at]);
            if (!kc_guards_hold(room)) t_fail("writes outside");
            if (t_failures > 0) return; /* one is enough */
        }
        if (dim <= 96) kc_attn_crowd(set, &s, want, scratch);
    }
}

static void check_page_put(const rm_kernels *ref, const rm_kernels *set) {
    static const uint32_t dims[] = {16, 32, 64, 80, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims * RM_KV_COUNT; i++) {
        const rm_kv_format f = (rm_kv_format)(i % RM_KV_COUNT);
        const uint32_t dim = dims[i / RM_KV_COUNT];
        const size_t bytes = rm_page_bytes(f, dim);
        const kc_room a = kc_take(bytes), b = kc_take(bytes);
        float *k = kc_floats(dim), *v = kc_floats(dim);
        for (uint32_t t = 0; t < RM_PAGE_TOKENS; t++) {
            if (t % 7 == 3) continue; /* what is not written stays */
            kc_fill(k, dim, kc_wild);
            kc_fill(v, dim, kc_wild);
            ref->page_put(a.at, f, dim, t, k, v);
            set->page_put(b.at, f, dim, t, k, v);
        }
        if (memcmp(a.at, b.at, bytes) != 0) t_fail("format %d dim %u", f, dim);
        if (!kc_guards_hold(b)) t_fail("writes outside");
    }
}

#endif /* RM_KC_ATTN_H */
