/*
 * avx512_weights.h: weights with blocks of 32 as bytes in AVX-512 registers. Part: kernels;
 * included by avx512*.c and amx*.c only.
 */
#ifndef RM_KERNELS_AVX512_WEIGHTS_H
#define RM_KERNELS_AVX512_WEIGHTS_H

#include "kernels/kernels_impl.h"

#include <immintrin.h>

INLINE __m512i load(const void *p) {
    return _mm512_load_si512(p);
}

INLINE __m512 load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}

INLINE __m512i bcast32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE __m512i low4(__m512i v) {
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

INLINE __m512i high4(__m512i v) {
    return low4(_mm512_srli_epi16(v, 4));
}

/* 16 times the high nibbles, an instruction less. */
INLINE __m512i high4_by_16(__m512i v) {
    return _mm512_andnot_si512(_mm512_set1_epi8(15), v);
}

/* Plain nibbles and one or two rows: 16 k of high nibbles are summed so, and the sum is shifted. */
INLINE bool shifts_sums(rm_format f, int rows) {
    return (f == RM_Q4_0 || f == RM_Q4_1 || f == RM_Q4_K) && rows <= 2;
}

INLINE int shift_of(rm_format f) {
    return f == RM_Q8_0 || f == RM_IQ4_NL  ? 7
           : f == RM_Q4_0                  ? 3
           : f == RM_Q5_0 || f == RM_MXFP4 ? 4
                                           : 0;
}

INLINE bool has_mins(rm_format f) {
    return f == RM_Q4_1 || f == RM_Q5_1;
}

/* 16 levels plus the bias, in each quarter of a register. */
INLINE __m512i levels(const int8_t *table, int bias) {
    const __m128i t = _mm_loadu_si128((const __m128i *)(const void *)table);
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8((char)bias)));
}

/* Vectors v and v + 4 of a block: k = 4v .. and k = 16 + 4v .., unsigned. */
INLINE void pair(rm_format f, const rm_block_view *w, int v, __m512i *lo, __m512i *hi) {
    if (f == RM_Q8_0) {
        const __m512i bias = _mm512_set1_epi8(-128);
        *lo = _mm512_xor_si512(load(w->q + 64 * v), bias);
        *hi = _mm512_xor_si512(load(w->q + 64 * (v + 4)), bias);
        return;
    }
    const __m512i b = load(w->q + 64 * v);
    *lo = low4(b);
    *hi = high4(b);
    if (f == RM_Q5_0 || f == RM_Q5_1) { /* bits v and 4 + v become bit 4; 0xf8: a | (b & c) */
        const __m512i h = load(w->h), bit = _mm512_set1_epi8(16);
        const __m512i up = _mm512_slli_epi16(h, (unsigned)(4 - v));
        const __m512i down = _mm512_srli_epi16(h, (unsigned)v);
        *lo = _mm512_ternarylogic_epi32(*lo, up, bit, 0xf8);
        *hi = _mm512_ternarylogic_epi32(*hi, down, bit, 0xf8);
    }
    if (f == RM_IQ4_NL || f == RM_MXFP4) {
        const __m512i t = f == RM_MXFP4 ? levels(rm_table_mxfp4, 16) : levels(rm_table_iq4, -128);
        *lo = _mm512_shuffle_epi8(t, *lo);
        *hi = _mm512_shuffle_epi8(t, *hi);
    }
}

/* The scales; mxfp4: 2^(e - 128), of which e = 0 and 1 are denormal. */
INLINE __m512 scales(rm_format f, const rm_block_view *w) {
    if (f != RM_MXFP4) return load_f16(w->d);
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)w->e));
    const __m512i one = _mm512_set1_epi32(1), least = _mm512_set1_epi32(0x200000);
    const __m512i d = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    const __mmask16 denormal = _mm512_cmple_epi32_mask(e, one);
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(d, denormal, least, e));
}

#endif /* RM_KERNELS_AVX512_WEIGHTS_H */
