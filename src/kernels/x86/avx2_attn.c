/*
 * avx2_attn.c: attention and page writing with AVX2. Part: kernels.
 *
 * 6 queries x 2 vectors: 12 chains, 2 values and 1 broadcast fill the 16 registers. 2 vectors are
 * 16 tokens of a K tile or 16 channels of V, so any dim that is a multiple of 16 comes out even.
 */
#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum {
    QUERIES = 6,
    VECTORS = 2,
    COPY_FROM = 13, /* queries from which an f32 copy of an f16 page pays */
};

INLINE __m256 exp2n(__m256 x) {
    const __m256 round = _mm256_set1_ps(RM_EXP2_ROUND);
    const __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(RM_EXP2_LEAST), _CMP_NLT_UQ);
    const __m256 z = _mm256_add_ps(x, round), r = _mm256_sub_ps(x, _mm256_sub_ps(z, round));
    __m256 p = _mm256_set1_ps(rm_exp2_c[5]);
    UNROLL for (int i = 4; i >= 0; i--) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(rm_exp2_c[i]));
    const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(z), 23),
                                           _mm256_set1_epi32(0x3f800000));
    return _mm256_and_ps(keep, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

INLINE __m256 f16x8(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* What a chain reads: 16 values a step. */
typedef struct source {
    const void *data;
    const char *ahead; /* f16: asked for while this is read, as many bytes */
    size_t step;       /* in values */
} source;

/* acc[i][j] = chain over step of fma(a[i][step], b[step][8 j ..], acc). */
INLINE void chains(int n, __m256 acc[QUERIES][VECTORS], const float *a, size_t a_row, bool f16,
                   const source *b, uint32_t steps) {
    const uint16_t *h = b->data;
    const float *f = b->data;
    for (uint32_t s = 0; s < steps; s++) {
        __m256 v[VECTORS];
        UNROLL for (int j = 0; j < VECTORS; j++) v[j] =
            f16 ? f16x8(h + s * b->step + 8 * j) : _mm256_loadu_ps(f + s * b->step + 8 * j);
        if (f16) _mm_prefetch(b->ahead + s * 32, _MM_HINT_T0);
        UNROLL for (int i = 0; i < n; i++) {
            const __m256 x = _mm256_broadcast_ss(a + (size_t)i * a_row + s);
            UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] =
                _mm256_fmadd_ps(x, v[j], acc[i][j]);
        }
    }
}

/* The larger of m and 64 scores. maxps gives the second operand when one is NaN, so a NaN score
 * is passed over. */
INLINE float max64(const float *s, float m) {
    __m256 v = _mm256_set1_ps(m);
    UNROLL for (int j = 0; j < 8; j++) v = _mm256_max_ps(_mm256_loadu_ps(s + 8 * j), v);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

/* Masks, maximum, exponentials and their sum for one query. Returns c. */
INLINE float soften(float *p, float *st, uint32_t first, uint32_t from, uint32_t seen) {
    for (uint32_t t = 0; t < RM_PAGE_TOKENS && first + t < from; t++)
        p[t] = RM_S_UNSEEN;
    for (uint32_t t = seen > first ? seen - first : 0; t < RM_PAGE_TOKENS; t++)
        p[t] = RM_S_UNSEEN;
    const float m = max64(p, st[0]);
    const __m256 mv = _mm256_set1_ps(m), cv = exp2n(_mm256_sub_ps(_mm256_set1_ps(st[0]), mv));
    for (int h = 0; h < 2; h++) { /* lanes 0-7, then 8-15 */
        __m256 l = _mm256_mul_ps(_mm256_loadu_ps(st + 16 + 8 * h), cv);
        UNROLL for (int j = 0; j < 4; j++) {
            float *s = p + 16 * j + 8 * h;
            const __m256 e = exp2n(_mm256_sub_ps(_mm256_loadu_ps(s), mv));
            l = _mm256_add_ps(l, e);
            _mm256_storeu_ps(s, e);
        }
        _mm256_storeu_ps(st + 16 + 8 * h, l);
    }
    st[0] = m > RM_M_MOST ? RM_M_MOST : m;
    return _mm256_cvtss_f32(cv);
}

/* One page for n queries from `query` on. */
INLINE void page_of_queries(int n, const rm_attn_job *job, uint32_t query, bool f16,
                            const source *k, const source *v, uint32_t first,
                            float (*p)[RM_PAGE_TOKENS]) {
    const uint32_t dim = job->dim;
    const size_t stride = RM_STATE_HEAD + dim, value = f16 ? 2 : 4;
    float *state = job->state + query * stride;
    __m256 acc[QUERIES][VECTORS];
    float c[QUERIES];
    source at = *k;
    for (uint32_t tile = 0; tile < 4; tile++) {
        UNROLL for (int i = 0; i < n; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
        chains(n, acc, job->q + (size_t)query * dim, dim, f16, &at, dim);
        UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < VECTORS; j++)
            _mm256_storeu_ps(p[i] + tile * 16 + 8 * j, acc[i][j]);
        at.data = (const char *)at.data + (size_t)dim * 16 * value;
        if (f16) at.ahead += (size_t)dim * 32;
    }
    for (int i = 0; i < n; i++)
        c[i] = soften(p[i], state + (size_t)i * stride, first, job->from[query + i],
                      job->seen[query + i]);
    at = *v;
    for (uint32_t d = 0; d < dim; d += 8 * VECTORS) {
        float *o = state + RM_STATE_HEAD + d;
        UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] =
            _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(o + (size_t)i * stride + 8 * j),
                                        _mm256_set1_ps(c[i])),
                          _mm256_setzero_ps());
        chains(n, acc, p[0], RM_PAGE_TOKENS, f16, &at, RM_PAGE_TOKENS);
        UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < VECTORS; j++)
            _mm256_storeu_ps(o + (size_t)i * stride + 8 * j, acc[i][j]);
        at.data = (const char *)at.data + 8 * VECTORS * value;
        if (f16) at.ahead += RM_PAGE_TOKENS * 32;
    }
}

/* All queries of the job, by blocks; a block none of whose queries see the page is left out. */
INLINE void page_any(const rm_attn_job *job, bool f16, const source *k, const source *v,
                     uint32_t first, float (*p)[RM_PAGE_TOKENS]) {
    for (uint32_t i = 0; i < job->query_count;) {
        const uint32_t left = job->query_count - i;
        const uint32_t take = left >= QUERIES ? QUERIES : left >= 4 ? 4 : left >= 3 ? 3 : 1;
        const bool any = rm_any_sees(job, i, take, first);
#define CASE(count)                                                                                \
    case count:                                                                                    \
        page_of_queries(count, job, i, f16, k, v, first, p);                                       \
        break
        if (any) {
            switch (take) {
                CASE(1);
                CASE(3);
                CASE(4);
                CASE(6);
            }
        }
#undef CASE
        i += take;
    }
}

static void page_f16(const rm_attn_job *job, const source *k, const source *v, uint32_t first,
                     float (*p)[RM_PAGE_TOKENS]) {
    page_any(job, true, k, v, first, p);
}

static void page_f32(const rm_attn_job *job, const source *k, const source *v, uint32_t first,
                     float (*p)[RM_PAGE_TOKENS]) {
    page_any(job, false, k, v, first, p);
}

static void attn_span(const rm_attn_job *job) {
    const uint32_t dim = job->dim;
    const size_t part = (size_t)RM_PAGE_TOKENS * dim; /* values of K, and of V, in a page */
    const bool f16 = job->format == RM_KV_F16, few = job->query_count < COPY_FROM;
    float *copy = job->scratch;
    float(*p)[RM_PAGE_TOKENS] = (float(*)[RM_PAGE_TOKENS])(copy + 2 * part);
    uint32_t least, most;
    for (uint32_t i = 0; i < job->query_count; i++)
        rm_attn_state_clear(job->state + (size_t)i * (RM_STATE_HEAD + dim), dim);
    rm_job_range(job, &least, &most);
    for (uint32_t page = least / RM_PAGE_TOKENS; page * RM_PAGE_TOKENS < most; page++) {
        const uint32_t first = page * RM_PAGE_TOKENS;
        const void *at = job->pages[page];
        if (f16 && few) {
            const char *next = job->pages[first + RM_PAGE_TOKENS < most ? page + 1 : page];
            const source k = {at, next, 16};
            const source v = {(const uint16_t *)at + part, next + part * 2, dim};
            page_f16(job, &k, &v, first, p);
            continue;
        }
        const float *values = at;
        if (f16) {
            for (size_t i = 0; i < 2 * part; i += 8)
                _mm256_storeu_ps(copy + i, f16x8((const uint16_t *)at + i));
            values = copy;
        }
        const source k = {values, NULL, 16}, v = {values + part, NULL, dim};
        page_f32(job, &k, &v, first, p);
    }
}

/* As rm_page_put(): F16C rounds to nearest even and keeps NaNs as rm_f16_from_f32() does. */
static void page_put(void *page, rm_kv_format f, uint32_t dim, uint32_t t, const float *k,
                     const float *v) {
    if (f != RM_KV_F16) {
        rm_page_put(page, f, dim, t, k, v);
        return;
    }
    uint16_t *k_at = (uint16_t *)page + (size_t)(t / 16) * dim * 16 + t % 16;
    uint16_t *v_at = (uint16_t *)page + (size_t)(RM_PAGE_TOKENS + t) * dim;
    for (uint32_t d = 0; d < dim; d += 8) {
        uint16_t h[8];
        _mm_storeu_si128((__m128i *)(void *)h,
                         _mm256_cvtps_ph(_mm256_loadu_ps(k + d), _MM_FROUND_TO_NEAREST_INT));
        UNROLL for (int j = 0; j < 8; j++) k_at[(d + (uint32_t)j) * 16] = h[j];
        _mm_storeu_si128((__m128i *)(void *)(v_at + d),
                         _mm256_cvtps_ph(_mm256_loadu_ps(v + d), _MM_FROUND_TO_NEAREST_INT));
    }
}

void rm_kernels_init_avx2_attn(rm_kernels *t) {
    t->attn_span = attn_span;
    t->page_put = page_put;
}
