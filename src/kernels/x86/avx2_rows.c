/*
 * avx2_rows.c: row operations with AVX2: quantizing, norms, gates, rotation, logits. Part: kernels.
 *
 * The 16 virtual lanes are two registers. Ends of rows go through a buffer of 16 that is zero
 * beyond the end: zeros add nothing to sums that are never -0.
 */
#include "kernels/kernels_impl.h"

#include <immintrin.h>

typedef struct lanes {
    __m256 a, b; /* lanes 0 .. 7, 8 .. 15 */
} lanes;

INLINE lanes load16(const float *p) {
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

INLINE void store16(float *p, lanes v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}

INLINE float tree8(__m256 a) {
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* rm_exp() of 8; x may be anything. */
INLINE __m256 exp8(__m256 x) {
    const __m256 round = _mm256_set1_ps(RM_EXP2_ROUND), log2e = _mm256_set1_ps(RM_LOG2E);
    const __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(RM_EXP_LEAST), _CMP_NLT_UQ);
    const __m256 b = _mm256_min_ps(_mm256_set1_ps(RM_EXP_MOST), x); /* NaN: the second operand */
    const __m256 z = _mm256_fmadd_ps(b, log2e, round), n = _mm256_sub_ps(z, round);
    const __m256 r = _mm256_fmadd_ps(b, _mm256_set1_ps(RM_LOG2E_LOW), _mm256_fmsub_ps(b, log2e, n));
    __m256 p = _mm256_set1_ps(rm_exp2_c[5]);
    UNROLL for (int i = 4; i >= 0; i--) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(rm_exp2_c[i]));
    const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(z), 23),
                                           _mm256_set1_epi32(0x3f800000));
    return _mm256_and_ps(keep, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

/* --- activations -------------------------------------------------------------------------- */

INLINE __m256i magnitude(__m256 v) {
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

INLINE uint32_t max8(__m256i v) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

INLINE int32_t sum8(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

/* One block of 32. */
INLINE void quantize32(rm_acts *x, int8_t *q, size_t at, const float *f) {
    __m256 v[4];
    __m256i i[4];
    UNROLL for (int j = 0; j < 4; j++) v[j] = _mm256_loadu_ps(f + 8 * j);
    const __m256i top = _mm256_max_epu32(_mm256_max_epu32(magnitude(v[0]), magnitude(v[1])),
                                         _mm256_max_epu32(magnitude(v[2]), magnitude(v[3])));
    float inverse;
    x->d[at] = rm_quant_scale(&inverse, max8(top));
    /* converts to nearest even, as the addition of 1.5 * 2^23 does; inverse 0 clears all lanes,
     * since infinity * 0 is no number */
    const __m256 inv = _mm256_set1_ps(inverse);
    const __m256i all = _mm256_set1_epi32(inverse > 0 ? -1 : 0);
    UNROLL for (int j = 0; j < 4; j++) i[j] =
        _mm256_and_si256(all, _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inv)));
    const int32_t sum =
        sum8(_mm256_add_epi32(_mm256_add_epi32(i[0], i[1]), _mm256_add_epi32(i[2], i[3])));
    /* the packs work on 128-bit halves: the last step puts the fours in order */
    const __m256i b =
        _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
    _mm256_storeu_si256((__m256i *)(void *)q,
                        _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
    x->neg_sum[at] = -sum;
    x->ds[at] = x->d[at] * (float)sum;
}

/* One block of 256; q: its first 64 bytes, the next are q_step further. */
INLINE void quantize256(rm_acts *x, int8_t *q, size_t q_step, size_t at, const float *f) {
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < RM_SUPER_K; i += 8)
        top = _mm256_max_epu32(top, magnitude(_mm256_loadu_ps(f + i)));
    float inverse;
    x->d[at] = rm_quant_scale(&inverse, max8(top));
    const __m256 inv = _mm256_set1_ps(inverse);
    const __m256i all = _mm256_set1_epi32(inverse > 0 ? -1 : 0);
    int16_t *sums = x->sums + at * RM_SUMS;
    for (int b = 0; b < 8; b++, f += 32) {
        __m256i i[4];
        UNROLL for (int j = 0; j < 4; j++) i[j] = _mm256_and_si256(
            all, _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(f + 8 * j), inv)));
        const int32_t low = sum8(_mm256_add_epi32(i[0], i[1]));
        const int32_t high = sum8(_mm256_add_epi32(i[2], i[3]));
        const __m256i w =
            _mm256_packs_epi16(_mm256_packs_epi32(i[0], i[1]), _mm256_packs_epi32(i[2], i[3]));
        _mm256_storeu_si256(
            (__m256i *)(void *)(q + (size_t)(b / 2) * q_step + b % 2 * 32),
            _mm256_permutevar8x32_epi32(w, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        sums[2 * b] = (int16_t)low;
        sums[2 * b + 1] = (int16_t)high;
        sums[16 + b] = (int16_t)(low + high);
    }
}

static void act_put_q8k(rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count,
                        const float *f) {
    const uint32_t n = rm_group_rows(x->row_count, row / RM_GROUP * RM_GROUP);
    int8_t *q = rm_acts_q(x, row, k_first / 32);
    size_t at = rm_acts_block(x, row, k_first / RM_SUPER_K);
    uint32_t k = 0;
    for (; k + RM_SUPER_K <= k_count; k += RM_SUPER_K, q += (size_t)n * RM_SUPER_K, at += n)
        quantize256(x, q, (size_t)n * 64, at, f + k);
    if (k == k_count) return;
    float last[RM_SUPER_K] = {0};
    memcpy(last, f + k, (k_count - k) * sizeof *f);
    quantize256(x, q, (size_t)n * 64, at, last);
}

static void act_put(rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count, const float *f) {
    RM_DASSERT(k_first % rm_pad_k_of(x->kind, 1) == 0);
    RM_DASSERT(k_first + rm_pad_k_of(x->kind, k_count) <= x->k_count);
    if (x->kind == RM_ACT_Q8K) {
        act_put_q8k(x, row, k_first, k_count, f);
        return;
    }
    if (x->kind == RM_ACT_F32) {
        float *out = x->f + (size_t)row * x->k_count + k_first;
        memcpy(out, f, k_count * sizeof *f);
        memset(out + k_count, 0, (rm_pad_k(k_count) - k_count) * sizeof *f);
        return;
    }
    const uint32_t n = rm_group_rows(x->row_count, row / RM_GROUP * RM_GROUP);
    int8_t *q = rm_acts_q(x, row, k_first / 32);
    size_t at = rm_acts_block(x, row, k_first / 32);
    uint32_t k = 0;
    for (; k + 64 <= k_count; k += 64, q += (size_t)n * 64, at += 2 * n) {
        quantize32(x, q, at, f + k);
        quantize32(x, q + 32, at + n, f + k + 32);
    }
    if (k == k_count) return;
    float last[64] = {0};
    memcpy(last, f + k, (k_count - k) * sizeof *f);
    quantize32(x, q, at, last);
    quantize32(x, q + 32, at + n, last + 32);
}

static void out_row(float *out, const rm_out *y, uint32_t row, uint32_t strip_first,
                    uint32_t strip_count) {
    const size_t step = (size_t)rm_group_rows(y->row_count, row / RM_GROUP * RM_GROUP) * RM_LANES;
    const float *at = rm_out_at(y, row, strip_first);
    for (uint32_t s = 0; s < strip_count; s++, at += step, out += RM_LANES) {
        _mm256_storeu_ps(out, _mm256_loadu_ps(at));
        _mm256_storeu_ps(out + 8, _mm256_loadu_ps(at + 8));
    }
}

static void act_rest(float *out, const rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count,
                     const float *f) {
    const size_t n = rm_group_rows(x->row_count, row / RM_GROUP * RM_GROUP);
    const uint32_t block = rm_act_block(x->kind);
    const int8_t *q = rm_acts_q(x, row, k_first / 32);
    const float *d = x->d + rm_acts_block(x, row, k_first / block);
    uint32_t k = 0;
    for (; k + 8 <= k_count; k += 8) {
        const void *at = q + k / 64 * n * 64 + k % 64;
        const __m256i eight = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)at));
        const __m256 kept =
            _mm256_mul_ps(_mm256_set1_ps(d[k / block * n]), _mm256_cvtepi32_ps(eight));
        _mm256_storeu_ps(out + k, _mm256_sub_ps(_mm256_loadu_ps(f + k), kept));
    }
    for (; k < k_count; k++) {
        const float kept = d[k / block * n] * (float)q[k / 64 * n * 64 + k % 64];
        out[k] = f[k] - kept;
    }
}

/* --- rows --------------------------------------------------------------------------------- */

INLINE lanes add_squares(lanes sum, lanes v) {
    return (lanes){_mm256_fmadd_ps(v.a, v.a, sum.a), _mm256_fmadd_ps(v.b, v.b, sum.b)};
}

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float epsilon) {
    lanes sum = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    float last[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        sum = add_squares(sum, load16(x + i));
    memcpy(last, x + i, (n - i) * sizeof *x);
    sum = add_squares(sum, load16(last));
    const __m128 mean = _mm_set_ss(tree8(_mm256_add_ps(sum.a, sum.b)) / (float)n + epsilon);
    const float scale = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean));
    const __m256 s = _mm256_set1_ps(scale);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s),
                                                _mm256_loadu_ps(weight + i)));
    for (; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

INLINE __m256 swiglu8(__m256 g, __m256 up) {
    const __m256 e = exp8(_mm256_or_ps(g, _mm256_set1_ps(-0.0f)));
    const __m256 negative = _mm256_cmp_ps(g, _mm256_setzero_ps(), _CMP_LT_OQ);
    const __m256 top = _mm256_blendv_ps(g, _mm256_mul_ps(g, e), negative);
    return _mm256_mul_ps(_mm256_div_ps(top, _mm256_add_ps(_mm256_set1_ps(1), e)), up);
}

INLINE __m256 geglu8(__m256 g, __m256 up) {
    const __m256 a = _mm256_set1_ps(RM_GELU_A), b = _mm256_set1_ps(RM_GELU_B);
    const __m256 u = _mm256_mul_ps(g, _mm256_add_ps(a, _mm256_mul_ps(b, _mm256_mul_ps(g, g))));
    const __m256 e = exp8(_mm256_or_ps(u, _mm256_set1_ps(-0.0f)));
    const __m256 negative = _mm256_cmp_ps(u, _mm256_setzero_ps(), _CMP_LT_OQ);
    const __m256 top = _mm256_blendv_ps(g, _mm256_mul_ps(g, e), negative);
    return _mm256_mul_ps(_mm256_div_ps(top, _mm256_add_ps(_mm256_set1_ps(1), e)), up);
}

#define GATED(name)                                                                                \
    static void name(float *out, const float *gate, const float *up, size_t n) {                   \
        size_t i = 0;                                                                              \
        for (; i + 8 <= n; i += 8)                                                                 \
            _mm256_storeu_ps(out + i,                                                              \
                             name##8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));         \
        if (i == n) return;                                                                        \
        float g[8] = {0}, u[8] = {0};                                                              \
        memcpy(g, gate + i, (n - i) * sizeof *g);                                                  \
        memcpy(u, up + i, (n - i) * sizeof *u);                                                    \
        _mm256_storeu_ps(g, name##8(_mm256_loadu_ps(g), _mm256_loadu_ps(u)));                      \
        memcpy(out + i, g, (n - i) * sizeof *g);                                                   \
    }

GATED(swiglu)
GATED(geglu)

static void add(float *x, const float *y, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    for (; i < n; i++)
        x[i] += y[i];
}

/* Four pairs at a time: [a b a b ..] * [c c ..] -+ [b a b a ..] * [s s ..]. */
static void rope_pairs(float *x, const float *cos_in, const float *sin_in, size_t n) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m256 v = _mm256_loadu_ps(x + 2 * i), swapped = _mm256_permute_ps(v, 0xb1);
        const __m256 c = _mm256_castps128_ps256(_mm_loadu_ps(cos_in + i));
        const __m256 s = _mm256_castps128_ps256(_mm_loadu_ps(sin_in + i));
        _mm256_storeu_ps(
            x + 2 * i,
            _mm256_addsub_ps(_mm256_mul_ps(v, _mm256_permutevar8x32_ps(c, twice)),
                             _mm256_mul_ps(swapped, _mm256_permutevar8x32_ps(s, twice))));
    }
    for (; i < n; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos_in[i] - b * sin_in[i];
        x[2 * i + 1] = a * sin_in[i] + b * cos_in[i];
    }
}

static void rope_halves(float *x, const float *cos_in, const float *sin_in, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + n + i);
        const __m256 c = _mm256_loadu_ps(cos_in + i), s = _mm256_loadu_ps(sin_in + i);
        _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(x + n + i, _mm256_add_ps(_mm256_mul_ps(a, s), _mm256_mul_ps(b, c)));
    }
    for (; i < n; i++) {
        const float a = x[i], b = x[i + n];
        x[i] = a * cos_in[i] - b * sin_in[i];
        x[i + n] = a * sin_in[i] + b * cos_in[i];
    }
}

/* --- logits ------------------------------------------------------------------------------- */

/* The largest value first, then where it is: two passes over L2 are faster than keeping indices. */
static size_t argmax(const float *x, size_t n) {
    __m256 max = _mm256_set1_ps(-__builtin_inff()), nan = _mm256_setzero_ps();
    float eight[8], top = -__builtin_inff();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 v = _mm256_loadu_ps(x + i);
        nan = _mm256_or_ps(nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        max = _mm256_max_ps(v, max);
    }
    if (_mm256_movemask_ps(nan) != 0) return n;
    for (; i < n; i++) {
        if (x[i] != x[i]) return n;
        top = x[i] > top ? x[i] : top;
    }
    _mm256_storeu_ps(eight, max);
    for (int j = 0; j < 8; j++)
        top = eight[j] > top ? eight[j] : top;
    const __m256 tops = _mm256_set1_ps(top);
    for (i = 0; i + 8 <= n; i += 8) {
        const __m256 same = _mm256_cmp_ps(_mm256_loadu_ps(x + i), tops, _CMP_EQ_OQ);
        const int mask = _mm256_movemask_ps(same);
        if (mask != 0) return i + (size_t)__builtin_ctz((unsigned)mask);
    }
    while (x[i] != top)
        i++;
    return i;
}

INLINE lanes exp_less(lanes x, __m256 max) {
    return (lanes){exp8(_mm256_sub_ps(x.a, max)), exp8(_mm256_sub_ps(x.b, max))};
}

static float sum_exp(const float *x, size_t n, float max) {
    const __m256 m = _mm256_set1_ps(max);
    float sum[16] = {0}, last[16] = {0};
    lanes s = load16(sum);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const lanes e = exp_less(load16(x + i), m);
        s = (lanes){_mm256_add_ps(s.a, e.a), _mm256_add_ps(s.b, e.b)};
    }
    memcpy(last, x + i, (n - i) * sizeof *x);
    store16(last, exp_less(load16(last), m));
    store16(sum, s);
    for (size_t j = 0; i + j < n; j++)
        sum[j] += last[j];
    return rm_tree16(sum);
}

static bool all_finite(const float *x, size_t n) {
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i v = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        bad = _mm256_or_si256(bad, _mm256_cmpeq_epi32(_mm256_and_si256(v, exponent), exponent));
    }
    for (; i < n; i++) {
        if ((rm_bits(x[i]) & 0x7f800000) == 0x7f800000) return false;
    }
    return _mm256_testz_si256(bad, bad);
}

void rm_kernels_init_avx2_rows(rm_kernels *t) {
    t->act_put = act_put;
    t->out_row = out_row;
    t->act_rest = act_rest;
    t->rms_norm = rms_norm;
    t->swiglu = swiglu;
    t->geglu = geglu;
    t->add = add;
    t->rope_pairs = rope_pairs;
    t->rope_halves = rope_halves;
    t->argmax = argmax;
    t->sum_exp = sum_exp;
    t->all_finite = all_finite;
}
