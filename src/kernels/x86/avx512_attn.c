/*
 * avx512_attn.c: attention with 16 tokens or 16 channels to a register. Part: kernels.
 *
 * One micro-kernel does both products: 6 queries x 4 vectors, 24 chains, which hides the latency
 * of the fused step twice over. Few queries read f16 pages as they are and ask for the next page
 * meanwhile. Many meet an f32 copy of 64 channels of K, then of V, all of them before the next 64:
 * those 16 KiB stay in L1, while queries, scores and states pass by. Scores wait between two parts
 * of K as they are.
 */
#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum {
    QUERIES = 6,
    VECTORS = 4,
    COPY_FROM = 13, /* queries from which an f32 copy of the page pays */
    CHANNELS = 64,  /* of K or V in a copy, at most */
};

INLINE __m512 exp2n(__m512 x) {
    const __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(RM_EXP2_LEAST), _CMP_NLT_UQ);
    const __m512 r = _mm512_reduce_ps(x, 8), n = _mm512_sub_ps(x, r); /* x to nearest even: n */
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
                _mm_prefetch(b->ahead + s * (size_t)step_bytes + j, _MM_HINT_T1);
        }
        UNROLL for (int i = 0; i < n; i++) {
            const __m512 x = _mm512_set1_ps(a[(size_t)i * a_row + s]);
            UNROLL for (int j = 0; j < vectors; j++) acc[i][j] =
                _mm512_fmadd_ps(x, v[j], acc[i][j]);
        }
    }
}

/* Scores of tokens that the query does not see become RM_S_UNSEEN. */
INLINE void mask_scores(__m512 *s, uint32_t first, uint32_t from, uint32_t seen) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (seen >= first + RM_PAGE_TOKENS && from <= first) return;
    UNROLL for (int j = 0; j < VECTORS; j++) {
        const __m512i t = _mm512_add_epi32(lane, _mm512_set1_epi32((int)first + 16 * j));
        const __mmask16 see = _mm512_cmplt_epu32_mask(t, _mm512_set1_epi32((int)seen)) &
                              _mm512_cmpge_epu32_mask(t, _mm512_set1_epi32((int)from));
        s[j] = _mm512_mask_blend_ps(see, _mm512_set1_ps(RM_S_UNSEEN), s[j]);
    }
}

/* The larger of two halves: those of a, then those of b. */
INLINE __m512 fold(__m512 a, __m512 b) {
    return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* The same of two quarters to each half. */
INLINE __m512 fold_halves(__m512 a, __m512 b) {
    return _mm512_max_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

/* Lane i: the largest number of t[i]. No NaNs. */
INLINE __m512 largest(int n, const __m512 *t) {
    const int last = n - 1;
#define T(i) t[(i) < last ? (i) : last]
    const __m512 abcd = fold_halves(fold(T(0), T(1)), n > 2 ? fold(T(2), T(3)) : T(0));
    const __m512 ef = n > 4 ? fold(T(4), T(5)) : T(0);
    const __m512 efef = n > 4 ? fold_halves(ef, ef) : abcd;
#undef T
    const __m512 two =
        _mm512_max_ps(_mm512_shuffle_ps(abcd, efef, 0x88), _mm512_shuffle_ps(abcd, efef, 0xdd));
    const __m512 one = _mm512_max_ps(two, _mm512_permute_ps(two, 0xb1));
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 2, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
                                 one);
}

/* Exponentials of the scores of n queries, their sums, and c. m and c: of these queries. */
INLINE void soften(int n, float (*p)[RM_PAGE_TOKENS], float *st, size_t stride, float *m, float *c,
                   __m512 s[QUERIES][VECTORS]) {
    const __mmask16 these = (__mmask16)((1 << n) - 1);
    __m512 top[QUERIES];
    /* maxps gives the second operand when one is NaN: a NaN score is passed over */
    UNROLL for (int i = 0; i < n; i++) {
        top[i] = _mm512_max_ps(s[i][0], _mm512_set1_ps(m[i]));
        UNROLL for (int j = 1; j < VECTORS; j++) top[i] = _mm512_max_ps(s[i][j], top[i]);
    }
    const __m512 old = _mm512_maskz_loadu_ps(these, m), now = largest(n, top);
    float all[16];
    _mm512_storeu_ps(all, now);
    _mm512_mask_storeu_ps(c, these, exp2n(_mm512_sub_ps(old, now)));
    _mm512_mask_storeu_ps(m, these, _mm512_min_ps(now, _mm512_set1_ps(RM_M_MOST)));
    UNROLL for (int i = 0; i < n; i++) {
        const __m512 mv = _mm512_set1_ps(all[i]);
        float *l = st + (size_t)i * stride + 16;
        __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(l), _mm512_set1_ps(c[i]));
        UNROLL for (int j = 0; j < VECTORS; j++) {
            const __m512 e = exp2n(_mm512_sub_ps(s[i][j], mv));
            sum = _mm512_add_ps(sum, e);
            _mm512_storeu_ps(p[i] + 16 * j, e);
        }
        _mm512_storeu_ps(l, sum);
    }
}

/* o = o * c + p.v of n queries for 16 * vectors channels, over as many tokens. */
INLINE void values(int n, int vectors, float *o, size_t stride, const float *c, const float *p,
                   source_kind kind, const source *v, uint32_t tokens) {
    __m512 acc[QUERIES][VECTORS];
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < vectors; j++) acc[i][j] =
        _mm512_add_ps(
            _mm512_mul_ps(_mm512_loadu_ps(o + (size_t)i * stride + 16 * j), _mm512_set1_ps(c[i])),
            _mm512_setzero_ps());
    chains(n, vectors, acc, p, RM_PAGE_TOKENS, kind, v, tokens);
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < vectors; j++)
        _mm512_storeu_ps(o + (size_t)i * stride + 16 * j, acc[i][j]);
}

/* What all queries of a job have in common while a page is read. */
typedef struct page_view {
    const rm_attn_job *job;
    float (*p)[RM_PAGE_TOKENS]; /* scores, then their exponentials, a row for each query */
    float *m, *c;               /* the maximum of each query; what its old state is worth */
    uint32_t first;             /* token of the span */
    uint32_t query;             /* whose p, m and c come first */
} page_view;

/* Scores of n queries over channels d .. d + steps - 1 of K, where they go on from p if d > 0; with
 * the last channel they are softened. */
INLINE void scores_of(int n, source_kind kind, const page_view *v, uint32_t query, const source *k,
                      uint32_t d, uint32_t steps) {
    const rm_attn_job *job = v->job;
    const size_t stride = RM_STATE_HEAD + job->dim;
    const size_t at = query - v->query;
    float(*p)[RM_PAGE_TOKENS] = v->p + at;
    __m512 acc[QUERIES][VECTORS];
    UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < VECTORS; j++) acc[i][j] =
        d == 0 ? _mm512_setzero_ps() : _mm512_load_ps(p[i] + 16 * j);
    chains(n, VECTORS, acc, job->q + (size_t)query * job->dim + d, job->dim, kind, k, steps);
    if (d + steps < job->dim) {
        UNROLL for (int i = 0; i < n; i++) UNROLL for (int j = 0; j < VECTORS; j++)
            _mm512_store_ps(p[i] + 16 * j, acc[i][j]);
        return;
    }
    UNROLL for (int i = 0; i < n; i++)
        mask_scores(acc[i], v->first, job->from[query + i], job->seen[query + i]);
    soften(n, p, job->state + query * stride, stride, v->m + at, v->c + at, acc);
}

/* Channels d .. d + 16 * vectors - 1 of n queries' o. */
INLINE void values_of(int n, int vectors, source_kind kind, const page_view *w, uint32_t query,
                      const source *v, uint32_t d, uint32_t tokens) {
    const rm_attn_job *job = w->job;
    const size_t stride = RM_STATE_HEAD + job->dim, at = query - w->query;
    values(n, vectors, job->state + query * stride + RM_STATE_HEAD + d, stride, w->c + at, w->p[at],
           kind, v, tokens);
}

/* A function of its own for each number of queries: inlined into one, their variables would add up
 * to more stack than a frame may have in sanitizer builds. */
typedef struct kind_fns {
    void (*scores[QUERIES])(const page_view *w, uint32_t query, const source *k, uint32_t d,
                            uint32_t steps);
    void (*values[QUERIES])(const page_view *w, uint32_t query, const source *v, uint32_t d,
                            uint32_t channels, uint32_t tokens);
} kind_fns;

#define QUERY_FNS(name, kind, n)                                                                   \
    static void name##_scores_##n(const page_view *w, uint32_t query, const source *k, uint32_t d, \
                                  uint32_t steps) {                                                \
        scores_of(n, kind, w, query, k, d, steps);                                                 \
    }                                                                                              \
    static void name##_values_##n(const page_view *w, uint32_t query, const source *v, uint32_t d, \
                                  uint32_t channels, uint32_t tokens) {                            \
        if (channels == 64) values_of(n, 4, kind, w, query, v, d, tokens);                         \
        if (channels == 32) values_of(n, 2, kind, w, query, v, d, tokens);                         \
        if (channels == 16) values_of(n, 1, kind, w, query, v, d, tokens);                         \
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

/* Channels d .. d + n - 1 of K in f32: out[n][64 tokens]. */
static source copy_k(float *out, const uint16_t *k, uint32_t dim, uint32_t d, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        UNROLL for (uint32_t tile = 0; tile < 4; tile++)
            _mm512_store_ps(out + i * 64 + 16 * tile, f16x16(k + (tile * dim + d + i) * 16));
    return (source){out, RM_PAGE_TOKENS, 16, NULL};
}

/* The same of V: out[64 tokens][n]. */
static source copy_v(float *out, const uint16_t *v, uint32_t dim, uint32_t d, uint32_t n) {
    for (uint32_t t = 0; t < RM_PAGE_TOKENS; t++)
        for (uint32_t i = 0; i < n; i += 16)
            _mm512_store_ps(out + t * n + i, f16x16(v + t * dim + d + i));
    return (source){out, n, 16, NULL};
}

/* Blocks of queries that see something of a page, and up to which token. Beyond it p is 0, and
 * fma(0, v, o) is o: o is never -0. */
typedef struct block_list {
    struct {
        uint32_t query, count, tokens;
    } at[RM_ATTN_QUERIES / QUERIES];
    uint32_t count;
} block_list;

_Static_assert(RM_ATTN_QUERIES % QUERIES == 0, "blocks are whole, but the last");

static void list_blocks(block_list *l, const page_view *w, uint32_t count) {
    l->count = 0;
    for (uint32_t i = 0; i < count; i += QUERIES) {
        const uint32_t query = w->query + i, n = count - i < QUERIES ? count - i : QUERIES;
        uint32_t seen = 0;
        if (!rm_any_sees(w->job, query, n, w->first)) continue;
        for (uint32_t q = query; q < query + n; q++)
            seen = w->job->seen[q] > seen ? w->job->seen[q] : seen;
        l->at[l->count].query = query;
        l->at[l->count].count = n;
        l->at[l->count++].tokens =
            seen - w->first < RM_PAGE_TOKENS ? seen - w->first : RM_PAGE_TOKENS;
    }
}

/* One page and the listed queries: all of them meet one tile of K or V before the next. */
static void page_of_all(const page_view *w, const block_list *l, const char *page, const char *next,
                        float *tile, bool few) {
    const uint32_t dim = w->job->dim;
    const bool f16 = w->job->format == RM_KV_F16, copy = f16 && !few;
    const size_t value = f16 ? 2 : 4, part = RM_PAGE_TOKENS * dim * value;
    const kind_fns *f = f16 && few ? &f16_fns : &f32_fns;
    const char *const v = page + part, *ahead = next + part;
    for (uint32_t d = 0, n; d < dim; d += n) {
        n = few || dim - d < CHANNELS ? dim - d : CHANNELS;
        const source k = copy ? copy_k(tile, (const uint16_t *)(const void *)page, dim, d, n)
                              : (source){page + d * 16 * value, 16, (size_t)dim * 16, next};
        for (uint32_t i = 0; i < l->count; i++)
            f->scores[l->at[i].count - 1](w, l->at[i].query, &k, d, n);
    }
    for (uint32_t d = 0, n; d < dim; d += n) {
        n = dim - d >= 64 ? 64 : dim - d >= 32 ? 32 : 16;
        const source s = copy
                             ? copy_v(tile, (const uint16_t *)(const void *)v, dim, d, n)
                             : (source){v + d * value, dim, 16, ahead + RM_PAGE_TOKENS * d * value};
        for (uint32_t i = 0; i < l->count; i++)
            f->values[l->at[i].count - 1](w, l->at[i].query, &s, d, n, l->at[i].tokens);
    }
}

/* All pages for some queries. */
static void some_queries(page_view *w, uint32_t count, uint32_t least, uint32_t most, float *tile) {
    const rm_attn_job *job = w->job;
    const size_t stride = RM_STATE_HEAD + job->dim;
    float *state = job->state + w->query * stride;
    block_list list;
    for (uint32_t i = 0; i < count; i++) {
        rm_attn_state_clear(state + i * stride, job->dim);
        w->m[i] = RM_M_START;
    }
    for (uint32_t page = least / RM_PAGE_TOKENS; page * RM_PAGE_TOKENS < most; page++) {
        w->first = page * RM_PAGE_TOKENS;
        const char *next = job->pages[w->first + RM_PAGE_TOKENS < most ? page + 1 : page];
        list_blocks(&list, w, count);
        if (list.count > 0)
            page_of_all(w, &list, job->pages[page], next, tile, job->query_count < COPY_FROM);
    }
    for (uint32_t i = 0; i < count; i++)
        state[i * stride] = w->m[i];
}

static void attn_span(const rm_attn_job *job) {
    float *tile = job->scratch;
    page_view w = {.job = job, .p = (float(*)[RM_PAGE_TOKENS])(tile + CHANNELS * RM_PAGE_TOKENS)};
    w.m = w.p[RM_ATTN_QUERIES];
    w.c = w.m + RM_ATTN_QUERIES;
    uint32_t least, most;
    rm_job_range(job, &least, &most);
    for (w.query = 0; w.query < job->query_count; w.query += RM_ATTN_QUERIES) {
        const uint32_t left = job->query_count - w.query;
        some_queries(&w, left < RM_ATTN_QUERIES ? left : RM_ATTN_QUERIES, least, most, tile);
    }
}

void rm_kernels_init_avx512_attn(rm_kernels *t) {
    t->attn_span = attn_span;
}
