/*
 * avx512_rows.c: row operations with AVX-512: quantizing, norms, gates, logits. Part: kernels.
 *
 * Virtual lane i % 16 is lane i % 16 of the register. Ends of rows use masks: the lanes left out
 * add +0 to sums that are never -0.
 */
#include "kernels/kernels_impl.h"

#include <immintrin.h>

INLINE __mmask16 tail_mask(size_t n) {
    return (__mmask16)((1u << (n % 16)) - 1);
}

INLINE float tree16(__m512 v) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* rm_exp() of 16; x may be anything. */
INLINE __m512 exp16(__m512 x) {
    const __m512 round = _mm512_set1_ps(RM_EXP2_ROUND), log2e = _mm512_set1_ps(RM_LOG2E);
    const __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(RM_EXP_LEAST), _CMP_NLT_UQ);
    const __m512 b = _mm512_min_ps(_mm512_set1_ps(RM_EXP_MOST), x); /* NaN: the second operand */
    const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(b, log2e, round), round);
    const __m512 r = _mm512_fmadd_ps(b, _mm512_set1_ps(RM_LOG2E_LOW), _mm512_fmsub_ps(b, log2e, n));
    __m512 p = _mm512_set1_ps(rm_exp2_c[5]);
    UNROLL for (int i = 4; i >= 0; i--) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(rm_exp2_c[i]));
    return _mm512_maskz_scalef_ps(keep, p, n);
}

/* --- activations -------------------------------------------------------------------------- */

/* The larger, and the sum, of each half of v: in all lanes of that half. */
INLINE __m512i max_of_halves(__m512i v) {
    v = _mm512_max_epu32(v, _mm512_shuffle_i64x2(v, v, _MM_PERM_CDAB));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
    return _mm512_max_epu32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
}

INLINE __m512i sum_of_halves(__m512i v) {
    v = _mm512_add_epi32(v, _mm512_shuffle_i64x2(v, v, _MM_PERM_CDAB));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
    return _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
}

/* A number of the lower half, one of the upper, and both again. */
INLINE __m128i one_of_halves(__m512i v) {
    return _mm_unpacklo_epi32(_mm512_castsi512_si128(v), _mm512_extracti32x4_epi32(v, 2));
}

/* rm_quant_scale() of two blocks: their scales, then what multiplies their values. */
INLINE __m128 quant_scales(__m128i top) {
    const __m128 f = _mm_castsi128_ps(top), most = _mm_set1_ps(RM_QUANT_TOP);
    const __mmask8 finite = _mm_cmplt_epi32_mask(top, _mm_set1_epi32(0x7f800000));
    const __mmask8 large = _mm_cmp_ps_mask(f, _mm_set1_ps(RM_QUANT_LEAST), _CMP_GE_OQ);
    const __m128 four = _mm_div_ps(_mm_blend_ps(f, most, 12), _mm_blend_ps(most, f, 12));
    const __m128 nan = _mm_castsi128_ps(_mm_setr_epi32(0x7fc00000, 0x7fc00000, 0, 0));
    return _mm_mask_mov_ps(nan, finite, _mm_maskz_mov_ps(large, four));
}

/* 64 numbers of -127 .. 127 as bytes. */
INLINE __m512i to_bytes(const __m512i *v) {
    const __m512i in_order =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(in_order, _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]),
                                                                 _mm512_packs_epi32(v[2], v[3])));
}

/* Two blocks of 32 side by side; the second's scale and sums are `step` further. */
INLINE void quantize64(rm_acts *x, int8_t *q, size_t at, size_t step, const float *f) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 v[4];
    __m512i m[4], n[4];
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = _mm512_loadu_ps(f + 16 * i);
        m[i] = _mm512_and_si512(_mm512_castps_si512(v[i]), magnitude);
    }
    const __m512i a = _mm512_max_epu32(m[0], m[1]), b = _mm512_max_epu32(m[2], m[3]);
    const __m512i ab = _mm512_max_epu32(_mm512_shuffle_i64x2(a, b, _MM_PERM_BABA),
                                        _mm512_shuffle_i64x2(a, b, _MM_PERM_DCDC));
    const __m128 scales = quant_scales(one_of_halves(max_of_halves(ab)));
    /* converts to nearest even, as the addition of 1.5 * 2^23 does; a factor of 0 takes all lanes
     * out, since infinity * 0 is no number */
    UNROLL for (int i = 0; i < 4; i++) {
        const __m128 one =
            i < 2 ? _mm_movehl_ps(scales, scales) : _mm_shuffle_ps(scales, scales, 3);
        const __m512 inverse = _mm512_broadcastss_ps(one);
        const __mmask16 all = _mm512_cmp_ps_mask(inverse, _mm512_setzero_ps(), _CMP_GT_OQ);
        n[i] = _mm512_maskz_cvtps_epi32(all, _mm512_mul_ps(v[i], inverse));
    }
    const __m512i bytes = to_bytes(n);
    _mm512_storeu_si512(q, bytes);
    const __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
    const __m128i sums = one_of_halves(sum_of_halves(fours));
    const __m128i neg = _mm_sub_epi32(_mm_setzero_si128(), sums);
    const __m128 ds = _mm_mul_ps(scales, _mm_cvtepi32_ps(sums));
    _mm_store_ss(x->d + at, scales);
    _mm_store_ss(x->d + at + step, _mm_movehdup_ps(scales));
    _mm_store_ss(x->ds + at, ds);
    _mm_store_ss(x->ds + at + step, _mm_movehdup_ps(ds));
    x->neg_sum[at] = _mm_cvtsi128_si32(neg);
    x->neg_sum[at + step] = _mm_extract_epi32(neg, 1);
}

/* One block of 256; q: its first 64 bytes, the next are q_step further. */
INLINE void quantize256(rm_acts *x, int8_t *q, size_t q_step, size_t at, const float *f) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i top = _mm512_setzero_si512();
    for (int i = 0; i < RM_SUPER_K; i += 16)
        top = _mm512_max_epu32(top, _mm512_and_si512(_mm512_loadu_si512(f + i), magnitude));
    float inverse;
    x->d[at] = rm_quant_scale(&inverse, _mm512_reduce_max_epu32(top));
    const __m512 inv = _mm512_set1_ps(inverse);
    const __mmask16 all = inverse > 0 ? 0xffff : 0;
    int16_t *sums = x->sums + at * RM_SUMS;
    for (int i = 0; i < 4; i++, q += q_step) {
        __m512i n[4];
        UNROLL for (int j = 0; j < 4; j++) n[j] =
            _mm512_maskz_cvtps_epi32(all, _mm512_mul_ps(_mm512_loadu_ps(f + 64 * i + 16 * j), inv));
        const __m512i bytes = to_bytes(n);
        _mm512_storeu_si512(q, bytes);
        /* sums of 4 k, then of the four in each quarter: 16 k */
        __m512i s = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
        s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_BADC));
        s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_CDAB));
        const __m128i four = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, s));
        const __m128i two = _mm_hadd_epi32(four, four);
        _mm_storel_epi64((__m128i *)(void *)(sums + 4 * i), _mm_packs_epi32(four, four));
        const int32_t pair = _mm_cvtsi128_si32(_mm_packs_epi32(two, two));
        memcpy(sums + 16 + 2 * i, &pair, sizeof pair);
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
    for (; k + 64 <= k_count; k += 64, q += (size_t)n * 64, at += 2 * n)
        quantize64(x, q, at, n, f + k);
    if (k == k_count) return;
    float last[64] = {0};
    memcpy(last, f + k, (k_count - k) * sizeof *f);
    quantize64(x, q, at, n, last);
}

static void out_row(float *out, const rm_out *y, uint32_t row, uint32_t strip_first,
                    uint32_t strip_count) {
    const size_t step = (size_t)rm_group_rows(y->row_count, row / RM_GROUP * RM_GROUP) * RM_LANES;
    const float *at = rm_out_at(y, row, strip_first);
    for (uint32_t s = 0; s < strip_count; s++, at += step, out += RM_LANES)
        _mm512_storeu_ps(out, _mm512_loadu_ps(at));
}

INLINE __m512 rest16(__m512 f, float d, const int8_t *q) {
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)q);
    const __m512 whole = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
    return _mm512_sub_ps(f, _mm512_mul_ps(_mm512_set1_ps(d), whole));
}

static void act_rest(float *out, const rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count,
                     const float *f) {
    const size_t n = rm_group_rows(x->row_count, row / RM_GROUP * RM_GROUP);
    const uint32_t block = rm_act_block(x->kind);
    const int8_t *q = rm_acts_q(x, row, k_first / 32);
    const float *d = x->d + rm_acts_block(x, row, k_first / block);
    uint32_t k = 0;
    for (; k + 16 <= k_count; k += 16)
        _mm512_storeu_ps(out + k, rest16(_mm512_loadu_ps(f + k), d[k / block * n],
                                         q + k / 64 * n * 64 + k % 64));
    if (k == k_count) return;
    const __mmask16 tail = tail_mask(k_count); /* q is padded: 16 bytes are there */
    _mm512_mask_storeu_ps(
        out + k, tail,
        rest16(_mm512_maskz_loadu_ps(tail, f + k), d[k / block * n], q + k / 64 * n * 64 + k % 64));
}

/* --- rows --------------------------------------------------------------------------------- */

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float epsilon) {
    __m512 lanes = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 v = _mm512_loadu_ps(x + i);
        lanes = _mm512_fmadd_ps(v, v, lanes);
    }
    const __mmask16 tail = tail_mask(n);
    const __m512 last = _mm512_maskz_loadu_ps(tail, x + i);
    lanes = _mm512_fmadd_ps(last, last, lanes);
    const __m128 mean = _mm_set_ss(tree16(lanes) / (float)n + epsilon);
    const __m512 scale = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(mean)));
    for (i = 0; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), scale),
                                                _mm512_loadu_ps(weight + i)));
    _mm512_mask_storeu_ps(
        out + i, tail,
        _mm512_mul_ps(_mm512_mul_ps(last, scale), _mm512_maskz_loadu_ps(tail, weight + i)));
}

INLINE __m512 swiglu16(__m512 g, __m512 up) {
    const __m512 sign = _mm512_set1_ps(-0.0f), e = exp16(_mm512_or_ps(g, sign));
    const __mmask16 negative = _mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 top = _mm512_mask_mul_ps(g, negative, g, e);
    return _mm512_mul_ps(_mm512_div_ps(top, _mm512_add_ps(_mm512_set1_ps(1), e)), up);
}

INLINE __m512 geglu16(__m512 g, __m512 up) {
    const __m512 a = _mm512_set1_ps(RM_GELU_A), b = _mm512_set1_ps(RM_GELU_B);
    const __m512 u = _mm512_mul_ps(g, _mm512_add_ps(a, _mm512_mul_ps(b, _mm512_mul_ps(g, g))));
    const __m512 e = exp16(_mm512_or_ps(u, _mm512_set1_ps(-0.0f)));
    const __mmask16 negative = _mm512_cmp_ps_mask(u, _mm512_setzero_ps(), _CMP_LT_OQ);
    const __m512 top = _mm512_mask_mul_ps(g, negative, g, e);
    return _mm512_mul_ps(_mm512_div_ps(top, _mm512_add_ps(_mm512_set1_ps(1), e)), up);
}

#define GATED(name)                                                                                \
    static void name(float *out, const float *gate, const float *up, size_t n) {                   \
        size_t i = 0;                                                                              \
        for (; i + 16 <= n; i += 16)                                                               \
            _mm512_storeu_ps(out + i,                                                              \
                             name##16(_mm512_loadu_ps(gate + i), _mm512_loadu_ps(up + i)));        \
        const __mmask16 tail = tail_mask(n);                                                       \
        _mm512_mask_storeu_ps(                                                                     \
            out + i, tail,                                                                         \
            name##16(_mm512_maskz_loadu_ps(tail, gate + i), _mm512_maskz_loadu_ps(tail, up + i))); \
    }

GATED(swiglu)
GATED(geglu)

static void add(float *x, const float *y, size_t n) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(x + i, _mm512_add_ps(_mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
    const __mmask16 tail = tail_mask(n);
    _mm512_mask_storeu_ps(
        x + i, tail,
        _mm512_add_ps(_mm512_maskz_loadu_ps(tail, x + i), _mm512_maskz_loadu_ps(tail, y + i)));
}

/* --- logits ------------------------------------------------------------------------------- */

/* The largest value first, then where it is: two passes over L2 are faster than keeping indices. */
static size_t argmax(const float *x, size_t n) {
    const __m512 least = _mm512_set1_ps(-__builtin_inff());
    const __mmask16 tail = tail_mask(n);
    __m512 max = least;
    __mmask16 nan = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 v = _mm512_loadu_ps(x + i);
        nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        max = _mm512_max_ps(v, max);
    }
    const __m512 last = _mm512_mask_loadu_ps(least, tail, x + i);
    nan |= _mm512_cmp_ps_mask(last, last, _CMP_UNORD_Q);
    if (nan != 0) return n;
    const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(_mm512_max_ps(last, max)));
    for (i = 0; i + 16 <= n; i += 16) {
        const __mmask16 same = _mm512_cmp_ps_mask(_mm512_loadu_ps(x + i), top, _CMP_EQ_OQ);
        if (same != 0) return i + (size_t)__builtin_ctz(same);
    }
    return i + (size_t)__builtin_ctz(_mm512_mask_cmp_ps_mask(tail, last, top, _CMP_EQ_OQ));
}

static float sum_exp(const float *x, size_t n, float max) {
    const __m512 m = _mm512_set1_ps(max);
    const __mmask16 tail = tail_mask(n);
    __m512 lanes = _mm512_setzero_ps();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        lanes = _mm512_add_ps(lanes, exp16(_mm512_sub_ps(_mm512_loadu_ps(x + i), m)));
    const __m512 last = exp16(_mm512_sub_ps(_mm512_maskz_loadu_ps(tail, x + i), m));
    return tree16(_mm512_mask_add_ps(lanes, tail, lanes, last));
}

static bool all_finite(const float *x, size_t n) {
    const __m512i exponent = _mm512_set1_epi32(0x7f800000);
    __mmask16 bad = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512i v = _mm512_and_si512(_mm512_loadu_si512(x + i), exponent);
        bad |= _mm512_cmpeq_epi32_mask(v, exponent);
    }
    const __m512i last = _mm512_maskz_loadu_epi32(tail_mask(n), x + i);
    bad |= _mm512_cmpeq_epi32_mask(_mm512_and_si512(last, exponent), exponent);
    return bad == 0;
}

void rm_kernels_init_avx512_rows(rm_kernels *t) {
    t->act_put = act_put;
    t->out_row = out_row;
    t->act_rest = act_rest;
    t->rms_norm = rms_norm;
    t->swiglu = swiglu;
    t->geglu = geglu;
    t->add = add;
    t->argmax = argmax;
    t->sum_exp = sum_exp;
    t->all_finite = all_finite;
}
