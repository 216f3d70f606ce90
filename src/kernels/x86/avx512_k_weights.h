/*
 * avx512_k_weights.h: weights with blocks of 256 as bytes, and their scales, in AVX-512 registers.
 * Part: kernels; included by avx512_k.c and amx_k.c only.
 */
#ifndef RM_KERNELS_AVX512_K_WEIGHTS_H
#define RM_KERNELS_AVX512_K_WEIGHTS_H

#include "kernels/x86/avx512_weights.h"

INLINE __m512i and32(__m512i v, int mask) {
    return _mm512_and_si512(v, _mm512_set1_epi32(mask));
}

/* a | (b & mask) */
INLINE __m512i with(__m512i a, __m512i b, int mask) {
    return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi32(mask), 0xf8);
}

/* --- weights ------------------------------------------------------------------------------- */

/* Fields of two bits: vectors v of 32 k and of the k 16 further, at bits `to` of each byte. */
INLINE void two_bits(__m512i u, int v, int to, __m512i *lo, __m512i *hi) {
    const int from = v % 2 * 4;
    *lo = to >= from ? _mm512_slli_epi16(u, (unsigned)(to - from))
                     : _mm512_srli_epi16(u, (unsigned)(from - to));
    *hi = to >= from + 2 ? _mm512_slli_epi16(u, (unsigned)(to - from - 2))
                         : _mm512_srli_epi16(u, (unsigned)(from + 2 - to));
}

/* Single bits v and 4 + v, to bit `to`. */
INLINE void one_bit(__m512i h, int v, int to, __m512i *lo, __m512i *hi) {
    *lo = to >= v ? _mm512_slli_epi16(h, (unsigned)(to - v))
                  : _mm512_srli_epi16(h, (unsigned)(v - to));
    *hi = _mm512_srli_epi16(h, (unsigned)(4 + v - to));
}

/* Vectors v and v + 4 of block b of 32 k, as unsigned bytes. */
INLINE void pair_of(rm_format f, const rm_k_view *w, size_t b, int v, __m512i *lo, __m512i *hi) {
    const size_t half = 2 * b + (size_t)v / 2;
    __m512i l, h;
    if (f == RM_Q2_K || f == RM_Q3_K) {
        two_bits(load(w->q + 64 * half), v, 0, &l, &h);
        *lo = and32(l, 0x03030303);
        *hi = and32(h, 0x03030303);
        if (f == RM_Q2_K) return;
        one_bit(load(w->h + 64 * b), v, 2, &l, &h);
        *lo = with(*lo, l, 0x04040404);
        *hi = with(*hi, h, 0x04040404);
        return;
    }
    const __m512i q = load(w->q + 64 * (4 * b + (size_t)v));
    *lo = low4(q);
    *hi = low4(_mm512_srli_epi16(q, 4));
    if (f == RM_Q5_K) {
        one_bit(load(w->h + 64 * b), v, 4, &l, &h);
        *lo = with(*lo, l, 0x10101010);
        *hi = with(*hi, h, 0x10101010);
    } else if (f == RM_Q6_K) {
        two_bits(load(w->h + 64 * half), v, 4, &l, &h);
        *lo = with(*lo, l, 0x30303030);
        *hi = with(*hi, h, 0x30303030);
    } else if (f == RM_IQ4_XS) {
        const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)rm_table_iq4);
        const __m512i t = _mm512_broadcast_i32x4(_mm_xor_si128(table, _mm_set1_epi8(-128)));
        *lo = _mm512_shuffle_epi8(t, *lo);
        *hi = _mm512_shuffle_epi8(t, *hi);
    }
}

/* --- scales -------------------------------------------------------------------------------- */

/* Sixteen 6-bit numbers as 8 pairs of 16 bits. */
INLINE void sixes(__m512i *p, const uint8_t *six) {
    const __m512i high = load(six + 128);
    UNROLL for (int g = 0; g < 4; g++) {
        const __m512i low = load(six + g / 2 * 64);
        const __m512i up = g < 2 ? _mm512_slli_epi16(high, (unsigned)(4 - 2 * g))
                                 : _mm512_srli_epi16(high, (unsigned)(2 * g - 4));
        const __m512i four = with(low4(g % 2 ? _mm512_srli_epi16(low, 4) : low), up, 0x30303030);
        p[2 * g] = and32(four, 0x00ff00ff);
        p[2 * g + 1] = _mm512_srli_epi16(four, 8);
    }
}

/* Pairs of scales, and of mins where the format has them: 8 of 16 k, or 4 of 32 k. */
INLINE void scale_pairs(rm_format f, const rm_k_view *w, __m512i *scale, __m512i *min) {
    if (f == RM_Q4_K || f == RM_Q5_K) {
        __m512i all[8];
        sixes(all, w->scale);
        UNROLL for (int i = 0; i < 4; i++) {
            scale[i] = all[i];
            min[i] = all[4 + i];
        }
    } else if (f == RM_Q3_K) {
        sixes(scale, w->scale);
        UNROLL for (int i = 0; i < 8; i++) scale[i] =
            _mm512_sub_epi16(scale[i], _mm512_set1_epi16(32));
    } else if (f == RM_IQ4_XS) {
        const __m256i h16 = _mm256_load_si256((const __m256i *)(const void *)w->high);
        const __m512i h = _mm512_cvtepu16_epi32(h16), low = load(w->scale);
        const __m512i two = with(and32(h, 0xff), _mm512_slli_epi32(h, 8), 0x00ff0000);
        UNROLL for (int i = 0; i < 4; i++) {
            const __m512i l = _mm512_srli_epi32(low, (unsigned)(i % 2 * 8 + i / 2 * 4));
            const __m512i up = i < 2 ? _mm512_slli_epi32(two, (unsigned)(4 - 2 * i))
                                     : _mm512_srli_epi32(two, (unsigned)(2 * i - 4));
            scale[i] =
                _mm512_sub_epi16(with(and32(l, 0x000f000f), up, 0x00300030), _mm512_set1_epi16(32));
        }
    } else {
        UNROLL for (int i = 0; i < 4; i++) {
            const __m512i four = load(w->scale + 64 * i);
            if (f == RM_Q6_K) {
                scale[2 * i] = _mm512_srai_epi16(_mm512_slli_epi16(four, 8), 8);
                scale[2 * i + 1] = _mm512_srai_epi16(four, 8);
            } else {
                scale[2 * i] = and32(four, 0x000f000f);
                scale[2 * i + 1] = and32(_mm512_srli_epi16(four, 8), 0x000f000f);
                min[2 * i] = and32(_mm512_srli_epi16(four, 4), 0x000f000f);
                min[2 * i + 1] = _mm512_srli_epi16(four, 12);
            }
        }
    }
}

#endif /* RM_KERNELS_AVX512_K_WEIGHTS_H */
