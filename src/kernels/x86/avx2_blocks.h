/*
 * avx2_blocks.h: products by blocks of 32 on 256 bits. Part: kernels; included by avx2.c and
 * avx2_vnni.c only, and compiled with their flags: they differ in how a block's integer is made.
 *
 * The 16 outputs of a strip are two halves of 8. One vector of weights meets up to 4 rows: one row
 * takes both halves at once (each line of the stream is read once), four rows take one half after
 * the other (16 registers).
 *
 * AVX2: vpmaddubsw sums two products to 16 bits. 4-bit weights leave room for the 8 products of a
 * block that meet there (8 * 2 * 15 * 127 = 30480); vpmaddwd adds the pairs. 5-bit weights, and
 * mxfp4's with 16 added, leave room for half of them (4 * 2 * 31 * 127 = 31496). 8-bit weights and
 * iq4_nl's fit once (2 * 128 * 127) when they are unsigned: |w| times x with the sign of w.
 *
 * AVX-VNNI: vpdpbusd sums four products to 32 bits; signed weights get a bias of 128.
 */
#ifndef RM_KERNELS_AVX2_BLOCKS_H
#define RM_KERNELS_AVX2_BLOCKS_H

#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum {
    TILES = 4, /* rows x halves: sums and results in 8 registers */
    MANY = 16, /* rows from which unpacking 4 and 5-bit weights to scratch pays */
#if defined(__AVXVNNI__)
    VNNI = 1,
#else
    VNNI = 0,
#endif
};

INLINE __m256i load(const void *p) {
    return _mm256_load_si256(p);
}

INLINE __m256 load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p));
}

INLINE __m256i bcast32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE __m256i low4(__m256i v) {
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

INLINE __m256i high4(__m256i v) {
    return low4(_mm256_srli_epi16(v, 4));
}

INLINE __m256 scaled(__m256 acc, __m256 d, float xd, __m256i sum) {
    return _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(xd)), _mm256_cvtepi32_ps(sum), acc);
}

INLINE bool has_mins(rm_format f) {
    return f == RM_Q4_1 || f == RM_Q5_1;
}

/* Weights are signed bytes. */
INLINE bool is_signed(rm_format f) {
    return f == RM_Q8_0 || f == RM_IQ4_NL;
}

/* What stored bytes are turned by, so that they are the weights plus 128. */
INLINE __m256i flip(void) {
    return _mm256_set1_epi8(VNNI ? -128 : 0);
}

/* Half h of the vectors v and v + 4 of a block. Unsigned and biased, but for the signed formats,
 * which have a bias with VNNI only. */
INLINE void pair(rm_format f, const rm_block_view *w, int v, size_t half, __m256i *lo,
                 __m256i *hi) {
    if (f == RM_Q8_0) {
        *lo = _mm256_xor_si256(load(w->q + 64 * v + 32 * half), flip());
        *hi = _mm256_xor_si256(load(w->q + 64 * (v + 4) + 32 * half), flip());
        return;
    }
    const __m256i b = load(w->q + 64 * v + 32 * half);
    *lo = low4(b);
    *hi = high4(b);
    if (f == RM_Q5_0 || f == RM_Q5_1) { /* bits v and 4 + v become bit 4 */
        const __m256i h = load(w->h + 32 * half), bit = _mm256_set1_epi8(16);
        *lo = _mm256_or_si256(*lo, _mm256_and_si256(_mm256_slli_epi16(h, 4 - v), bit));
        *hi = _mm256_or_si256(*hi, _mm256_and_si256(_mm256_srli_epi16(h, v), bit));
    }
    if (f == RM_IQ4_NL || f == RM_MXFP4) {
        const int8_t *table = f == RM_MXFP4 ? rm_table_mxfp4 : rm_table_iq4;
        const __m128i t = _mm_add_epi8(_mm_loadu_si128((const __m128i *)(const void *)table),
                                       _mm_set1_epi8(f == RM_MXFP4 ? 16 : 0));
        __m256i wide = _mm256_broadcastsi128_si256(t);
        if (f == RM_IQ4_NL) wide = _mm256_xor_si256(wide, flip());
        *lo = _mm256_shuffle_epi8(wide, *lo);
        *hi = _mm256_shuffle_epi8(wide, *hi);
    }
}

/* Eight scales; mxfp4: 2^(e - 128), of which e = 0 and 1 are denormal. */
INLINE __m256 scales(rm_format f, const rm_block_view *w, size_t half) {
    if (f != RM_MXFP4) return load_f16(w->d + 8 * half);
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(w->e + 8 * half));
    const __m256i e = _mm256_cvtepu8_epi32(bytes), one = _mm256_set1_epi32(1);
    const __m256i least = _mm256_sllv_epi32(_mm256_set1_epi32(0x200000), e);
    const __m256i d = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(least, d, _mm256_cmpgt_epi32(e, one)));
}

/* --- blocks ------------------------------------------------------------------------------- */

/* Half h of vectors v and v + 4: from the strip, or (bytes != NULL) from scratch. */
INLINE void operands(rm_format f, const rm_block_view *w, const uint8_t *bytes, int v, size_t half,
                     __m256i *lo, __m256i *hi) {
    if (bytes == NULL) {
        pair(f, w, v, half, lo, hi);
    } else {
        *lo = load(bytes + 64 * v + 32 * half);
        *hi = load(bytes + 64 * (v + 4) + 32 * half);
    }
}

#if defined(__AVXVNNI__)

/* sum[r * halves + h] of 32 k, from half `half` on: two chains each, since one would wait for the
 * five cycles of vpdpbusd. */
INLINE void sums_of(int rows, int halves, rm_format f, __m256i *sum, const rm_block_view *w,
                    const uint8_t *bytes, size_t half, const int8_t *q) {
    __m256i high[TILES];
    UNROLL for (int t = 0; t < rows * halves; t++) sum[t] = high[t] = _mm256_setzero_si256();
    UNROLL for (int v = 0; v < 4; v++) UNROLL for (int h = 0; h < halves; h++) {
        __m256i lo, hi;
        operands(f, w, bytes, v, half + (size_t)h, &lo, &hi);
        UNROLL for (int r = 0; r < rows; r++) {
            const int8_t *x = q + r * 64 + 4 * v;
            const int t = r * halves + h;
            sum[t] = _mm256_dpbusd_avx_epi32(sum[t], lo, bcast32(x));
            high[t] = _mm256_dpbusd_avx_epi32(high[t], hi, bcast32(x + 16));
        }
    }
    UNROLL for (int t = 0; t < rows * halves; t++) sum[t] = _mm256_add_epi32(sum[t], high[t]);
}

#else

/* |w| times x with the sign of w, 4 k of a lane. */
INLINE __m256i signed4(__m256i w, __m256i size, const int8_t *x) {
    const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(bcast32(x), w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

/* sum[r * halves + h] of 32 k, from half `half` on. */
INLINE void sums_signed(int rows, int halves, rm_format f, __m256i *sum, const rm_block_view *w,
                        const uint8_t *bytes, size_t half, const int8_t *q) {
    UNROLL for (int t = 0; t < rows * halves; t++) sum[t] = _mm256_setzero_si256();
    UNROLL for (int v = 0; v < 4; v++) {
        UNROLL for (int h = 0; h < halves; h++) {
            __m256i lo, hi;
            operands(f, w, bytes, v, half + (size_t)h, &lo, &hi);
            const __m256i lo_size = _mm256_abs_epi8(lo), hi_size = _mm256_abs_epi8(hi);
            UNROLL for (int r = 0; r < rows; r++) {
                const int8_t *x = q + r * 64 + 4 * v;
                __m256i *s = &sum[r * halves + h];
                *s = _mm256_add_epi32(*s, signed4(lo, lo_size, x));
                *s = _mm256_add_epi32(*s, signed4(hi, hi_size, x + 16));
            }
        }
    }
}

/* The same of 4-bit weights (both halves of k in one 16-bit sum) and of 5-bit weights (in two). */
INLINE void sums_unsigned(int rows, int halves, rm_format f, __m256i *sum, const rm_block_view *w,
                          const uint8_t *bytes, size_t half, const int8_t *q) {
    const bool wide = f != RM_Q4_0 && f != RM_Q4_1;
    const __m256i one = _mm256_set1_epi16(1);
    __m256i high[TILES];
    UNROLL for (int v = 0; v < 4; v++) {
        UNROLL for (int h = 0; h < halves; h++) {
            __m256i lo, hi;
            operands(f, w, bytes, v, half + (size_t)h, &lo, &hi);
            UNROLL for (int r = 0; r < rows; r++) {
                const int8_t *x = q + r * 64 + 4 * v;
                const int t = r * halves + h;
                const __m256i a = _mm256_maddubs_epi16(lo, bcast32(x));
                const __m256i c = _mm256_maddubs_epi16(hi, bcast32(x + 16));
                if (wide) {
                    sum[t] = v == 0 ? a : _mm256_add_epi16(sum[t], a);
                    high[t] = v == 0 ? c : _mm256_add_epi16(high[t], c);
                } else {
                    const __m256i both = _mm256_add_epi16(a, c);
                    sum[t] = v == 0 ? both : _mm256_add_epi16(sum[t], both);
                }
            }
        }
    }
    UNROLL for (int t = 0; t < rows * halves; t++) {
        sum[t] = _mm256_madd_epi16(sum[t], one);
        if (wide) sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(high[t], one));
    }
}

INLINE void sums_of(int rows, int halves, rm_format f, __m256i *sum, const rm_block_view *w,
                    const uint8_t *bytes, size_t half, const int8_t *q) {
    (is_signed(f) ? sums_signed : sums_unsigned)(rows, halves, f, sum, w, bytes, half, q);
}

#endif

/* The weight is the stored one less a bias, 2^shift: that times sum(x) goes. */
INLINE void take_bias(int rows, int halves, int shift, __m256i *sum, const int32_t *neg_sum) {
    UNROLL for (int r = 0; r < rows; r++) {
        const __m256i bias = _mm256_slli_epi32(bcast32(neg_sum + r), shift);
        UNROLL for (int h = 0; h < halves; h++) sum[r * halves + h] =
            _mm256_add_epi32(sum[r * halves + h], bias);
    }
}

INLINE void block_sums(int rows, int halves, rm_format f, __m256i *sum, const rm_block_view *w,
                       const uint8_t *bytes, size_t half, const int8_t *q, const int32_t *neg_sum) {
    sums_of(rows, halves, f, sum, w, bytes, half, q);
    if (f == RM_Q4_0) take_bias(rows, halves, 3, sum, neg_sum);
    if (f == RM_Q5_0 || f == RM_MXFP4) take_bias(rows, halves, 4, sum, neg_sum);
    if (VNNI && is_signed(f)) take_bias(rows, halves, 7, sum, neg_sum);
}

INLINE void add_block(int rows, int halves, bool mins, __m256 *acc, const __m256i *sum,
                      const __m256 *d, const __m256 *m, const float *xd, const float *xds) {
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < halves; h++) {
        const int t = r * halves + h;
        acc[t] = scaled(acc[t], d[h], xd[r], sum[t]);
        if (mins) acc[t] = _mm256_fmadd_ps(m[h], _mm256_set1_ps(xds[r]), acc[t]);
    }
}

/* --- few rows: unpacked in registers ------------------------------------------------------- */

/* Halves from `half` on. */
INLINE void few_rows(int rows, int halves, rm_format f, float *y, const void *strip,
                     rm_group_view x, size_t kb_count, size_t half) {
    __m256 acc[TILES];
    UNROLL for (int t = 0; t < rows * halves; t++) acc[t] = _mm256_setzero_ps();
    for (size_t kb = 0; kb < kb_count; kb++) {
        const rm_block_view w = rm_block_at(f, strip, kb);
        const int8_t *q = x.q + kb / 2 * x.q_step + kb % 2 * 32;
        const size_t at = kb * x.step;
        __m256i sum[TILES];
        __m256 d[2], m[2];
        if (half == 0) rm_ahead(w.q, w.bytes);
        block_sums(rows, halves, f, sum, &w, NULL, half, q, x.neg_sum + at);
        UNROLL for (int h = 0; h < halves; h++) {
            d[h] = scales(f, &w, half + (size_t)h);
            m[h] = has_mins(f) ? load_f16(w.m + 8 * half + 8 * h) : d[h];
        }
        add_block(rows, halves, has_mins(f), acc, sum, d, m, x.d + at, x.ds + at);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < halves; h++)
        _mm256_storeu_ps(y + r * RM_LANES + 8 * half + 8 * h, acc[r * halves + h]);
}

INLINE void few(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                const rm_acts *x) {
    const size_t kb_count = x->k_count / 32;
    for (uint32_t first = 0; first < x->row_count; first += RM_GROUP) {
        const uint32_t n = rm_group_rows(x->row_count, first);
        uint32_t r = 0;
        for (; n - r >= 4; r += 4) {
            for (size_t half = 0; half < 2; half++)
                few_rows(4, 1, f, rm_out_at(y, first + r, strip), strip_bytes,
                         rm_group_at(x, first, r, n, 0), kb_count, half);
        }
        for (; n - r >= 2; r += 2)
            few_rows(2, 2, f, rm_out_at(y, first + r, strip), strip_bytes,
                     rm_group_at(x, first, r, n, 0), kb_count, 0);
        if (r < n)
            few_rows(1, 2, f, rm_out_at(y, first + r, strip), strip_bytes,
                     rm_group_at(x, first, r, n, 0), kb_count, 0);
    }
}

/* --- many rows of 4 and 5-bit weights: unpacked once ------------------------------------------ */

INLINE void unpack_run(rm_format f, rm_unpacked *out, const void *strip, size_t first,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        const rm_block_view w = rm_block_at(f, strip, first + i);
        rm_ahead(w.q, w.bytes);
        UNROLL for (int v = 0; v < 4; v++) UNROLL for (size_t h = 0; h < 2; h++) {
            __m256i lo, hi;
            pair(f, &w, v, h, &lo, &hi);
            _mm256_store_si256((__m256i *)(void *)(out[i].q[v] + 32 * h), lo);
            _mm256_store_si256((__m256i *)(void *)(out[i].q[v + 4] + 32 * h), hi);
        }
        UNROLL for (size_t h = 0; h < 2; h++) {
            _mm256_store_ps(out[i].d + 8 * h, scales(f, &w, h));
            if (has_mins(f)) _mm256_store_ps(out[i].m + 8 * h, load_f16(w.m + 8 * h));
        }
    }
}

/* Adds a run to the results of some rows, which wait in y between runs. */
INLINE void many_rows(int rows, rm_format f, float *y, const rm_unpacked *w, rm_group_view x,
                      size_t kb_count, bool from_zero, size_t half) {
    __m256 acc[TILES];
    UNROLL for (int r = 0; r < rows; r++) acc[r] =
        from_zero ? _mm256_setzero_ps() : _mm256_loadu_ps(y + r * RM_LANES + 8 * half);
    for (size_t kb = 0; kb < kb_count; kb++) {
        const int8_t *q = x.q + kb / 2 * x.q_step + kb % 2 * 32;
        const size_t at = kb * x.step;
        const __m256 d = _mm256_load_ps(w[kb].d + 8 * half);
        const __m256 m = has_mins(f) ? _mm256_load_ps(w[kb].m + 8 * half) : d;
        __m256i sum[TILES];
        block_sums(rows, 1, f, sum, NULL, w[kb].q[0], half, q, x.neg_sum + at);
        add_block(rows, 1, has_mins(f), acc, sum, &d, &m, x.d + at, x.ds + at);
    }
    UNROLL for (int r = 0; r < rows; r++) _mm256_storeu_ps(y + r * RM_LANES + 8 * half, acc[r]);
}

INLINE void many(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                 const rm_acts *x, rm_unpacked *run) {
    const size_t kb_count = x->k_count / 32;
    for (size_t kb = 0; kb < kb_count; kb += RM_RUN_BLOCKS) {
        const size_t count = kb_count - kb < RM_RUN_BLOCKS ? kb_count - kb : RM_RUN_BLOCKS;
        unpack_run(f, run, strip_bytes, kb, count);
        for (uint32_t first = 0; first < x->row_count; first += RM_GROUP) {
            const uint32_t n = rm_group_rows(x->row_count, first);
            for (uint32_t r = 0; r < n;) {
                const rm_group_view g = rm_group_at(x, first, r, n, kb);
                float *out = rm_out_at(y, first + r, strip);
                const uint32_t rows = n - r >= 4 ? 4 : 1;
                for (size_t half = 0; half < 2; half++) {
                    if (rows == 4)
                        many_rows(4, f, out, run, g, count, kb == 0, half);
                    else
                        many_rows(1, f, out, run, g, count, kb == 0, half);
                }
                r += rows;
            }
        }
    }
}

static void matmul_q8_0(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                        void *scratch) {
    (void)scratch;
    few(RM_Q8_0, y, strip, strip_bytes, x);
}

#define FORMAT(name, f)                                                                            \
    static void matmul_##name(const rm_out *y, uint32_t strip, const void *strip_bytes,            \
                              const rm_acts *x, void *scratch) {                                   \
        if (x->row_count < MANY)                                                                   \
            few(f, y, strip, strip_bytes, x);                                                      \
        else                                                                                       \
            many(f, y, strip, strip_bytes, x, scratch);                                            \
    }

FORMAT(q4_0, RM_Q4_0)
FORMAT(q4_1, RM_Q4_1)
FORMAT(q5_0, RM_Q5_0)
FORMAT(q5_1, RM_Q5_1)
FORMAT(iq4_nl, RM_IQ4_NL)
FORMAT(mxfp4, RM_MXFP4)

static void set_blocks(rm_kernels *t) {
    t->matmul[RM_Q8_0] = matmul_q8_0;
    t->matmul[RM_Q4_0] = matmul_q4_0;
    t->matmul[RM_Q4_1] = matmul_q4_1;
    t->matmul[RM_Q5_0] = matmul_q5_0;
    t->matmul[RM_Q5_1] = matmul_q5_1;
    t->matmul[RM_IQ4_NL] = matmul_iq4_nl;
    t->matmul[RM_MXFP4] = matmul_mxfp4;
}

#endif /* RM_KERNELS_AVX2_BLOCKS_H */
