/*
 * avx512_attn.c: attention with 16 tokens or 16 channels to a register. Part: kernels.
 *
 * One micro-kernel does both products: 6 queries x 4 vectors, 24 chains, which hides the latency
 * of the fused step twice over. Few queries read f16 pages as they are and ask for the next page
 * meanwhile; many queries get an f32 copy of the page in scratch first (L1/L2), shared by all
 * queries of the call. f32 pages are always read as they are.
 */
#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum {
    QUERIES = 6,
    VECTORS = 4,
    COPY_FROM = 13, /* queries from which an f32 copy of the page pays */
};

INLINE __m512 exp2n(__m512 x) {
    const __m512 round = _mm512_set1_ps(RM_EXP2_ROUND);
    const __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(RM_EXP2_LEAST), _CMP_NLT_UQ);
    const __m512 n = _mm512_sub_ps(_mm512_add_ps(x, round), round), r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(rm_exp2_c[5]);
    UNROLL for (int i = 4; i >= 0; i--) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(rm_exp2_c[i]));
    return _mm512_maskz_scalef_ps(keep, p, n);
}

INLINE __m512 f16x16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* What a chain reads: a step is a channel of K or a token of V. Vector j of step s starts at
 * s * step + j * next_vector. */
typedef struct source {
    const void *data;
    size_t step, next_vector; /* in values */
    const char *ahead;        /* F16: asked for while this is read, as many bytes */
} source;

typedef enum source_kind { F32, F16 } source_kind;

/* acc[i][j] = chain over step of fma(a[i][step], b[step][j], acc). */
INLINE void chains(int n, int vectors, __m512 acc[QUERIES][VECTORS], const float *a, size_t a_row,
                   source_kind kind, const source *b, uint32_t steps) {
    const float *f = b->data;
    const uint16_t *h = b->data;
    const int step_bytes = vectors * 32;
    for (uint32_t s = 0; s < steps; s++) {
        __m512 v[VECTORS];
        UNROLL for (int j = 0; j < vectors; j++) {
            const size_t at = s * b->step + (size_t)j * b->next_vector;
            v[j] = kind == F16 ? f16x16(h + at) : _mm512_loadu_ps(f + at);
        }
        if (kind == F16) {
            UNROLL for (int j = 0; j < step_bytes; j += 64)
                _mm_prefetch(b->ahead + s * (size_t)step_bytes + j, _MM_HINT_T0);
        }
        UNROLL for (int i = 0; i < n; i++) {
            const __m512 x = _mm512_set1_ps(a[(size_t)i * a_row + s]);
            UNROLL for (int j = 0; j < vectors; j++) acc[i][j] =
                _mm512_fmadd_ps(x, v[j], acc[i][j]);
        }
    }
}

/* Masks, maximum, exponentials and their sum for one query. Returns c. */
INLINE float soften(float *p, float *st, __m512 *s, uint32_t first, uint32_t from, uint32_t seen) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 old = _mm512_set1_ps(st[0]);
    __m512 top = old;
    if (seen < first + RM_PAGE_TOKENS || from > first) {
        UNROLL for (int j = 0; j < VECTORS; j++) {
            const __m512i t = _mm512_add_epi32(lane, _mm512_set1_epi32((int)first + 16 * j));
            const __mmask16 see = _mm512_cmplt_epu32_mask(t, _mm512_set1_epi32((int)seen)) &
                                  _mm512_cmpge_epu32_mask(t, _mm512_set1_epi32((int)from));
            s[j] = _mm512_mask_blend_ps(see, _mm512_set1_ps(RM_S_UNSEEN), s[j]);
        }
    }
    /* maxps gives the second operand when one is NaN: a NaN score is passed over */
    UNROLL for (int j = 0; j < VECTORS; j++) top = _mm512_max_ps(s[j], top);
    const float m = _mm512_reduce_max_ps(top);
    const __m512 mv = _mm512_set1_ps(m), cv = exp2n(_mm512_sub_ps(old, mv));
    __m512 l = _mm512_mul_ps(_mm512_loadu_ps(st + 16), cv);
    UNROLL for (int j = 0; j < VECTORS; j++) {
        const __m512 e = exp2n(_mm512_sub_ps(s[j], mv));
        l = _mm512_add_ps(l, e);
        _mm512_storeu_ps(p + 16 * j, e);
    }
    _mm512_storeu_ps(st + 16, l);
    st[0] = m > RM_M_MOST ? RM_M_MOST : m;
    return _mm512_cvtss_f32(cv);
}

/* o = o * c + p.v of n queries for 16 * vectors channels. */
INLINE void values(int n, int vectors, float *o, size_t stride, const float *c, const float *p,
                   source_kind kind, const source *v) {
    __m512 acc[QUERIES][VECTORS];
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < vectors; j++) acc[i][j] =
        _mm512_add_ps(
            _mm512_mul_ps(_mm512_loadu_ps(o + (size_t)i * stride + 16 * j), _mm512_set1_ps(c[i])),
            _mm512_setzero_ps());
    chains(n, vectors, acc, p, RM_PAGE_TOKENS, kind, v, RM_PAGE_TOKENS);
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < vectors; j++)
        _mm512_storeu_ps(o + (size_t)i * stride + 16 * j, acc[i][j]);
}

/* Scores of n queries with a page, softened into p; c: what the old state is worth. */
INLINE void scores_of(int n, source_kind kind, const rm_attn_job *job, uint32_t query,
                      const source *k, uint32_t first, float *c, float (*p)[RM_PAGE_TOKENS]) {
    const size_t stride = RM_STATE_HEAD + job->dim;
    float *state = job->state + query * stride;
    __m512 acc[QUERIES][VECTORS];
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] =
        _mm512_setzero_ps();
    chains(n, VECTORS, acc, job->q + (size_t)query * job->dim, job->dim, kind, k, job->dim);
    UNROLL for (int i = 0; i < n; i++) c[i] =
        soften(p[i], state + (size_t)i * stride, acc[i], first, job->from[query + i],
               job->seen[query + i]);
}

INLINE void values_of(int n, source_kind kind, const rm_attn_job *job, uint32_t query,
                      const source *v, const float *c, float (*p)[RM_PAGE_TOKENS]) {
    const size_t stride = RM_STATE_HEAD + job->dim, value = kind == F16 ? 2 : 4;
    float *o = job->state + query * stride + RM_STATE_HEAD;
    source at = *v;
    uint32_t left = job->dim;
#define VALUES(count)                                                                              \
    values(n, count, o, stride, c, p[0], kind, &at);                                               \
    at.data = (const char *)at.data + (count)*16 * value;                                          \
    if (kind == F16) at.ahead += RM_PAGE_TOKENS * (count)*16 * value;                              \
    o += (count)*16;                                                                               \
    left -= (count)*16
    while (left >= 64) {
        VALUES(4);
    }
    if (left >= 32) {
        VALUES(2);
    }
    if (left > 0) {
        VALUES(1);
    }
#undef VALUES
}

/* A function of its own for each number of queries: inlined into one, their variables would add up
 * to more stack than a frame may have in sanitizer builds. */
typedef struct kind_fns {
    void (*scores[QUERIES])(const rm_attn_job *job, uint32_t query, const source *k, uint32_t first,
                            float *c, float (*p)[RM_PAGE_TOKENS]);
    void (*values[QUERIES])(const rm_attn_job *job, uint32_t query, const source *v, const float *c,
                            float (*p)[RM_PAGE_TOKENS]);
} kind_fns;

#define QUERY_FNS(name, kind, n)                                                                   \
    static void name##_scores_##n(const rm_attn_job *job, uint32_t query, const source *k,         \
                                  uint32_t first, float *c, float(*p)[RM_PAGE_TOKENS]) {           \
        scores_of(n, kind, job, query, k, first, c, p);                                            \
    }                                                                                              \
    static void name##_values_##n(const rm_attn_job *job, uint32_t query, const source *v,         \
                                  const float *c, float(*p)[RM_PAGE_TOKENS]) {                     \
        values_of(n, kind, job, query, v, c, p);                                                   \
    }

#define KIND(name, kind)                                                                           \
    QUERY_FNS(name, kind, 1)                                                                       \
    QUERY_FNS(name, kind, 2)                                                                       \
    QUERY_FNS(name, kind, 3)                                                                       \
    QUERY_FNS(name, kind, 4)                                                                       \
    QUERY_FNS(name, kind, 5)                                                                       \
    QUERY_FNS(name, kind, 6)                                                                       \
    static const kind_fns name##_fns = {                                                           \
        {name##_scores_1, name##_scores_2, name##_scores_3, name##_scores_4, name##_scores_5,      \
         name##_scores_6},                                                                         \
        {name##_values_1, name##_values_2, name##_values_3, name##_values_4, name##_values_5,      \
         name##_values_6},                                                                         \
    };

KIND(f32, F32)
KIND(f16, F16)

/* All queries of the job, by blocks; a block none of whose queries see the page is left out. */
static void page_of_all(const kind_fns *f, const rm_attn_job *job, const source *k, const source *v,
                        uint32_t first, float (*p)[RM_PAGE_TOKENS]) {
    for (uint32_t i = 0; i < job->query_count; i += QUERIES) {
        const uint32_t left = job->query_count - i, n = left < QUERIES ? left : QUERIES;
        float c[QUERIES];
        const bool any = rm_any_sees(job, i, n, first);
        if (!any) continue;
        f->scores[n - 1](job, i, k, first, c, p);
        f->values[n - 1](job, i, v, c, p);
    }
}

/* f32 copies: kf[d][64 tokens], vf[64 tokens][dim]. */
static void copy_page(float *kf, float *vf, const uint16_t *page, uint32_t dim) {
    const uint16_t *v = page + (size_t)RM_PAGE_TOKENS * dim;
    for (uint32_t d = 0; d < dim; d++)
        UNROLL for (uint32_t tile = 0; tile < 4; tile++)
            _mm512_storeu_ps(kf + d * 64 + 16 * tile, f16x16(page + (tile * dim + d) * 16));
    for (uint32_t i = 0; i < RM_PAGE_TOKENS * dim; i += 16)
        _mm512_storeu_ps(vf + i, f16x16(v + i));
}

static void attn_span(const rm_attn_job *job) {
    const uint32_t dim = job->dim;
    const size_t part = (size_t)RM_PAGE_TOKENS * dim; /* values of K, and of V, in a page */
    const bool f16 = job->format == RM_KV_F16, few = job->query_count < COPY_FROM;
    const size_t part_bytes = part * (f16 ? 2 : 4);
    float *kf = job->scratch, *vf = kf + part;
    float(*p)[RM_PAGE_TOKENS] = (float(*)[RM_PAGE_TOKENS])(vf + part);
    uint32_t least, most;
    for (uint32_t i = 0; i < job->query_count; i++)
        rm_attn_state_clear(job->state + (size_t)i * (RM_STATE_HEAD + dim), dim);
    rm_job_range(job, &least, &most);
    for (uint32_t page = least / RM_PAGE_TOKENS; page * RM_PAGE_TOKENS < most; page++) {
        const uint32_t first = page * RM_PAGE_TOKENS;
        const char *at = job->pages[page];
        const char *next = job->pages[first + RM_PAGE_TOKENS < most ? page + 1 : page];
        const source k = {at, 16, (size_t)dim * 16, next};
        const source v = {at + part_bytes, dim, 16, next + part_bytes};
        if (f16 && few) {
            page_of_all(&f16_fns, job, &k, &v, first, p);
        } else if (f16) {
            copy_page(kf, vf, (const uint16_t *)(const void *)at, dim);
            const source kc = {kf, RM_PAGE_TOKENS, 16, NULL}, vc = {vf, dim, 16, NULL};
            page_of_all(&f32_fns, job, &kc, &vc, first, p);
        } else {
            page_of_all(&f32_fns, job, &k, &v, first, p);
        }
    }
}

void rm_kernels_init_avx512_attn(rm_kernels *t) {
    t->attn_span = attn_span;
}
