/*
 * avx2_k_blocks.h: products by blocks of 256 on 256 bits: q2_k .. q6_k, iq4_xs. Part: kernels;
 * included by avx2_k.c and avx2_vnni_k.c only, and compiled with their flags.
 *
 * The shape of avx2_blocks.h: two halves of 8 outputs, up to 4 rows x halves, from 16 rows on a
 * block is unpacked once to scratch. The integer of a block is as in avx512_k.c.
 *
 * AVX2: vpmaddwd multiplies the 16-bit sums of vpmaddubsw by the scale, so the question is how many
 * products they hold:
 *
 *     q4_k          32 k: 8 * 2 * 15 * 127 = 30480      (one scale for 32 k)
 *     q5_k          16 k: 4 * 2 * 31 * 127 = 31496
 *     q2_k, q3_k    16 k: 4 * 2 * 7 * 127 = 7112
 *     q6_k           8 k: 2 * 2 * 63 * 127 = 32004
 *     iq4_xs         4 k: 2 * 127 * 127 = 32258, |w| times x with the sign of w: no bias
 *
 * AVX-VNNI: two chains of vpdpbusd for each 32 k. Sums of 16 k of up to 4 bits fit 16 bits, so that
 * vpdpwssd multiplies and adds them; the others take vpmulld. iq4_xs gets a bias of 128.
 */
#ifndef RM_KERNELS_AVX2_K_BLOCKS_H
#define RM_KERNELS_AVX2_K_BLOCKS_H

#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum {
    TILES = 4, /* rows x halves */
    MANY = 16, /* rows from which unpacking to scratch pays */
    RUN = 2,   /* blocks in scratch at a time: half the traffic of results */
#if defined(__AVXVNNI__)
    VNNI = 1,
#else
    VNNI = 0,
#endif
};

/* Scales of a block: a line of 16 lanes each. */
typedef struct k_scales {
    uint8_t scale[16][64]; /* (scale, scale) in 16 bits: of 16 k, or 8 of 32 k */
    uint8_t pair[8][64];   /* what meets the activations' sums, of 16 k or 4 of 32 k */
    float d[RM_LANES], dmin[RM_LANES];
} k_scales;

/* A block in scratch: bytes in order of k. */
typedef struct k_unpacked {
    uint8_t q[64][64];
    k_scales s;
} k_unpacked;

_Static_assert(RUN * sizeof(k_unpacked) <= RM_MATMUL_SCRATCH, "a run fits the scratch");

INLINE __m256i load(const void *p) {
    return _mm256_load_si256(p);
}

INLINE void store(void *p, __m256i v) {
    _mm256_store_si256(p, v);
}

INLINE __m256 load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(const void *)p));
}

INLINE __m256i bcast32(const void *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE __m256i and32(__m256i v, int mask) {
    return _mm256_and_si256(v, _mm256_set1_epi32(mask));
}

INLINE __m256i low4(__m256i v) {
    return and32(v, 0x0f0f0f0f);
}

/* a | (b & mask) */
INLINE __m256i with(__m256i a, __m256i b, int mask) {
    return _mm256_or_si256(a, and32(b, mask));
}

/* Bits from `from` on of each byte to `to`; bits of neighbours come along and are masked later. */
INLINE __m256i moved(__m256i v, int from, int to) {
    return to >= from ? _mm256_slli_epi16(v, to - from) : _mm256_srli_epi16(v, from - to);
}

/* --- weights ------------------------------------------------------------------------------- */

/* Half `half` of the vectors v and v + 4 of block b of 32 k: unsigned, iq4_xs: signed, with VNNI
 * plus 128. */
INLINE void pair_of(rm_format f, const rm_k_view *w, size_t b, int v, size_t half, __m256i *lo,
                    __m256i *hi) {
    const size_t at = 64 * (2 * b + (size_t)v / 2) + 32 * half; /* of two bits */
    const int field = v % 2 * 4;
    if (f == RM_Q2_K || f == RM_Q3_K) {
        const __m256i u = load(w->q + at);
        *lo = and32(moved(u, field, 0), 0x03030303);
        *hi = and32(moved(u, field + 2, 0), 0x03030303);
        if (f == RM_Q2_K) return;
        const __m256i h = load(w->h + 64 * b + 32 * half);
        *lo = with(*lo, moved(h, v, 2), 0x04040404);
        *hi = with(*hi, moved(h, 4 + v, 2), 0x04040404);
        return;
    }
    const __m256i q = load(w->q + 64 * (4 * b + (size_t)v) + 32 * half);
    *lo = low4(q);
    *hi = low4(_mm256_srli_epi16(q, 4));
    if (f == RM_Q5_K) {
        const __m256i h = load(w->h + 64 * b + 32 * half);
        *lo = with(*lo, moved(h, v, 4), 0x10101010);
        *hi = with(*hi, moved(h, 4 + v, 4), 0x10101010);
    } else if (f == RM_Q6_K) {
        const __m256i h = load(w->h + at);
        *lo = with(*lo, moved(h, field, 4), 0x30303030);
        *hi = with(*hi, moved(h, field + 2, 4), 0x30303030);
    } else if (f == RM_IQ4_XS) {
        const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)rm_table_iq4);
        __m256i t = _mm256_broadcastsi128_si256(table);
        if (VNNI) t = _mm256_xor_si256(t, _mm256_set1_epi8(-128));
        *lo = _mm256_shuffle_epi8(t, *lo);
        *hi = _mm256_shuffle_epi8(t, *hi);
    }
}

/* The same, or from its unpacked form, if there is one. */
INLINE void operands(rm_format f, const rm_k_view *w, const uint8_t (*bytes)[64], size_t b, int v,
                     size_t half, __m256i *lo, __m256i *hi) {
    if (bytes == NULL) {
        pair_of(f, w, b, v, half, lo, hi);
        return;
    }
    *lo = load(bytes[8 * b + (size_t)v] + 32 * half);
    *hi = load(bytes[8 * b + 4 + (size_t)v] + 32 * half);
}

/* --- scales -------------------------------------------------------------------------------- */

/* Sixteen 6-bit numbers as 8 pairs of 16 bits; six: of this half. */
INLINE void sixes(__m256i *p, const uint8_t *six) {
    const __m256i high = load(six + 128);
    UNROLL for (int g = 0; g < 4; g++) {
        const __m256i low = load(six + g / 2 * 64);
        const __m256i four =
            with(low4(g % 2 ? _mm256_srli_epi16(low, 4) : low), moved(high, 2 * g, 4), 0x30303030);
        p[2 * g] = and32(four, 0x00ff00ff);
        p[2 * g + 1] = _mm256_srli_epi16(four, 8);
    }
}

/* 8 scales of iq4_xs as 4 pairs. */
INLINE void iq4_scales(__m256i *scale, const rm_k_view *w, size_t half) {
    const __m128i h16 = _mm_load_si128((const __m128i *)(const void *)(w->high + 8 * half));
    const __m256i h = _mm256_cvtepu16_epi32(h16), low = load(w->scale + 32 * half);
    const __m256i two = with(and32(h, 0xff), _mm256_slli_epi32(h, 8), 0x00ff0000);
    UNROLL for (int i = 0; i < 4; i++) {
        const __m256i l = _mm256_srli_epi32(low, i % 2 * 8 + i / 2 * 4);
        scale[i] = _mm256_sub_epi16(with(and32(l, 0x000f000f), moved(two, 2 * i, 4), 0x00300030),
                                    _mm256_set1_epi16(32));
    }
}

/* Pairs of scales, and of mins where the format has them: 8 of 16 k, or 4 of 32 k. */
INLINE void scale_pairs(rm_format f, const rm_k_view *w, size_t half, __m256i *scale,
                        __m256i *min) {
    if (f == RM_Q4_K || f == RM_Q5_K) {
        __m256i all[8];
        sixes(all, w->scale + 32 * half);
        UNROLL for (int i = 0; i < 4; i++) {
            scale[i] = all[i];
            min[i] = all[4 + i];
        }
    } else if (f == RM_Q3_K) {
        sixes(scale, w->scale + 32 * half);
        UNROLL for (int i = 0; i < 8; i++) scale[i] =
            _mm256_sub_epi16(scale[i], _mm256_set1_epi16(32));
    } else if (f == RM_IQ4_XS) {
        iq4_scales(scale, w, half);
    } else {
        UNROLL for (int i = 0; i < 4; i++) {
            const __m256i four = load(w->scale + 64 * i + 32 * half);
            if (f == RM_Q6_K) {
                scale[2 * i] = _mm256_srai_epi16(_mm256_slli_epi16(four, 8), 8);
                scale[2 * i + 1] = _mm256_srai_epi16(four, 8);
            } else {
                scale[2 * i] = and32(four, 0x000f000f);
                scale[2 * i + 1] = and32(_mm256_srli_epi16(four, 8), 0x000f000f);
                min[2 * i] = and32(_mm256_srli_epi16(four, 4), 0x000f000f);
                min[2 * i + 1] = _mm256_srli_epi16(four, 12);
            }
        }
    }
}

INLINE void scales_of(rm_format f, k_scales *s, const rm_k_view *w, size_t half) {
    const int pairs = rm_k_sixteen(f) ? 8 : 4;
    __m256i scale[8], min[8];
    scale_pairs(f, w, half, scale, min);
    UNROLL for (int i = 0; i < pairs; i++) {
        const __m256i a = _mm256_slli_epi32(scale[i], 16), b = _mm256_srli_epi32(scale[i], 16);
        store(s->pair[i] + 32 * half, rm_k_mins(f) ? min[i] : scale[i]);
        store(s->scale[2 * i] + 32 * half, _mm256_or_si256(a, _mm256_srli_epi32(a, 16)));
        store(s->scale[2 * i + 1] + 32 * half, _mm256_or_si256(b, _mm256_slli_epi32(b, 16)));
    }
    _mm256_store_ps(s->d + 8 * half, load_f16(w->d + 8 * half));
    if (rm_k_mins(f)) _mm256_store_ps(s->dmin + 8 * half, load_f16(w->dmin + 8 * half));
}

/* --- a block ------------------------------------------------------------------------------- */

#if defined(__AVXVNNI__)

/* sum + dot * scale, dot: 16 or (two_of) 32 k of a lane; scale: in both halves of it. Sums of 16 k
 * of up to 4 bits fit 16 bits, the lower half of what vpdpbusd made. */
INLINE __m256i add_scaled(rm_format f, __m256i sum, __m256i dot, __m256i scale) {
    if (f == RM_Q2_K || f == RM_Q3_K || f == RM_Q4_K)
        return _mm256_dpwssd_avx_epi32(sum, dot, and32(scale, 0xffff));
    return _mm256_add_epi32(sum, _mm256_mullo_epi32(dot, _mm256_srai_epi32(scale, 16)));
}

/* sum[r * halves + h] += block b of 32 k. bytes: its unpacked form, or NULL. */
INLINE void add_sums(int rows, int halves, rm_format f, __m256i *sum, const rm_k_view *w,
                     const uint8_t (*bytes)[64], const k_scales *s, size_t half, size_t b,
                     const int8_t *q) {
    const bool one_scale =
        f == RM_Q5_K || f == RM_IQ4_XS; /* of 32 k, whose sum is multiplied once */
    const uint8_t *sl = s->scale[rm_k_sixteen(f) ? 2 * b : b] + 32 * half;
    const uint8_t *sh = rm_k_sixteen(f) ? s->scale[2 * b + 1] + 32 * half : sl;
    __m256i lo[TILES], hi[TILES];
    UNROLL for (int t = 0; t < rows * halves; t++) lo[t] = hi[t] = _mm256_setzero_si256();
    UNROLL for (int v = 0; v < 4; v++) UNROLL for (int h = 0; h < halves; h++) {
        __m256i wl, wh;
        operands(f, w, bytes, b, v, half + (size_t)h, &wl, &wh);
        UNROLL for (int r = 0; r < rows; r++) {
            const int8_t *x = q + r * 64 + 4 * v;
            const int t = r * halves + h;
            lo[t] = _mm256_dpbusd_avx_epi32(lo[t], wl, bcast32(x));
            hi[t] = _mm256_dpbusd_avx_epi32(hi[t], wh, bcast32(x + 16));
        }
    }
    UNROLL for (int t = 0; t < rows * halves; t++) {
        const __m256i low = load(sl + 32 * (t % halves)), high = load(sh + 32 * (t % halves));
        if (one_scale) {
            sum[t] = add_scaled(f, sum[t], _mm256_add_epi32(lo[t], hi[t]), low);
        } else {
            sum[t] = add_scaled(f, add_scaled(f, sum[t], lo[t], low), hi[t], high);
        }
    }
}

#else

/* How many vectors of 4 k a 16-bit sum holds. */
INLINE int room_of(rm_format f) {
    return f == RM_IQ4_XS ? 1 : f == RM_Q6_K ? 2 : 4;
}

/* 16-bit sums of 4 k of a lane. */
INLINE __m256i dot4(rm_format f, __m256i w, __m256i x) {
    if (f == RM_IQ4_XS) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

/* sum[r * halves + h] += block b of 32 k. bytes: its unpacked form, or NULL. */
INLINE void add_sums(int rows, int halves, rm_format f, __m256i *sum, const rm_k_view *w,
                     const uint8_t (*bytes)[64], const k_scales *s, size_t half, size_t b,
                     const int8_t *q) {
    const int room = room_of(f);
    const uint8_t *sl = s->scale[rm_k_sixteen(f) ? 2 * b : b] + 32 * half;
    const uint8_t *sh = rm_k_sixteen(f) ? s->scale[2 * b + 1] + 32 * half : sl;
    __m256i lo[TILES], hi[TILES];
    UNROLL for (int v = 0; v < 4; v++) UNROLL for (int h = 0; h < halves; h++) {
        __m256i wl, wh;
        operands(f, w, bytes, b, v, half + (size_t)h, &wl, &wh);
        UNROLL for (int r = 0; r < rows; r++) {
            const int8_t *x = q + r * 64 + 4 * v;
            const int t = r * halves + h;
            const __m256i a = dot4(f, wl, bcast32(x)), c = dot4(f, wh, bcast32(x + 16));
            if (f == RM_Q4_K) {
                const __m256i both = _mm256_add_epi16(a, c);
                lo[t] = v == 0 ? both : _mm256_add_epi16(lo[t], both);
                if (v < 3) continue;
                sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(lo[t], load(sl + 32 * h)));
                continue;
            }
            lo[t] = v % room == 0 ? a : _mm256_add_epi16(lo[t], a);
            hi[t] = v % room == 0 ? c : _mm256_add_epi16(hi[t], c);
            if (v % room < room - 1) continue;
            sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(lo[t], load(sl + 32 * h)));
            sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(hi[t], load(sh + 32 * h)));
        }
    }
}

#endif

/* acc[r * halves + h] += a block; see kernels.h for the order. */
INLINE void add_block(int rows, int halves, rm_format f, __m256 *acc, const rm_k_view *w,
                      const uint8_t (*bytes)[64], const k_scales *s, const rm_k_group *x, size_t sb,
                      size_t half) {
    const int pairs = rm_k_sixteen(f) ? 8 : 4;
    const int8_t *q = x->q + sb * 4 * x->q_step;
    const float *xd = x->d + sb * x->step;
    const int16_t *sums = x->sums + sb * x->step * RM_SUMS + (pairs == 8 ? 0 : 16);
    __m256i sum[TILES];
    UNROLL for (int t = 0; t < rows * halves; t++) sum[t] = _mm256_setzero_si256();
    for (size_t b = 0; b < 8; b++) { /* an eighth at a time: see avx512_k.c */
        if (bytes == NULL && half == 0)
            rm_ahead(w->scale + b * (rm_k_bytes(f) / 8), rm_k_bytes(f) / 8);
        add_sums(rows, halves, f, sum, w, bytes, s, half, b, q + b / 2 * x->q_step + b % 2 * 32);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < halves; h++) {
        const size_t at = half + (size_t)h;
        const int t = r * halves + h;
        const __m256 d = _mm256_set1_ps(xd[r]);
        __m256i c = _mm256_setzero_si256();
        if (VNNI || f != RM_IQ4_XS) {
            UNROLL for (int i = 0; i < pairs; i++) c =
                _mm256_add_epi32(c, _mm256_madd_epi16(load(s->pair[i] + 32 * at),
                                                      bcast32(sums + r * RM_SUMS + 2 * i)));
        }
        if (f == RM_Q3_K || f == RM_Q6_K || (VNNI && f == RM_IQ4_XS))
            sum[t] = _mm256_sub_epi32(sum[t], _mm256_slli_epi32(c, rm_k_shift(f)));
        acc[t] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(s->d + 8 * at), d),
                                 _mm256_cvtepi32_ps(sum[t]), acc[t]);
        if (rm_k_mins(f))
            acc[t] = _mm256_fnmadd_ps(_mm256_mul_ps(_mm256_load_ps(s->dmin + 8 * at), d),
                                      _mm256_cvtepi32_ps(c), acc[t]);
    }
}

/* Halves from `half` on. */
INLINE void few_rows(int rows, int halves, rm_format f, float *y, const void *strip,
                     const rm_k_group *x, size_t sb_count, size_t half) {
    __m256 acc[TILES];
    UNROLL for (int t = 0; t < rows * halves; t++) acc[t] = _mm256_setzero_ps();
    for (size_t sb = 0; sb < sb_count; sb++) {
        const rm_k_view w = rm_k_at(f, strip, sb_count, sb);
        _Alignas(64) k_scales s;
        UNROLL for (int h = 0; h < halves; h++) scales_of(f, &s, &w, half + (size_t)h);
        add_block(rows, halves, f, acc, &w, NULL, &s, x, sb, half);
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < halves; h++)
        _mm256_storeu_ps(y + r * RM_LANES + 8 * half + 8 * h, acc[r * halves + h]);
}

INLINE void unpack(rm_format f, k_unpacked *out, const void *strip, size_t sb_count, size_t sb) {
    const rm_k_view w = rm_k_at(f, strip, sb_count, sb);
    rm_ahead(w.scale, rm_k_bytes(f));
    for (size_t h = 0; h < 2; h++) {
        scales_of(f, &out->s, &w, h);
        for (size_t b = 0; b < 8; b++)
            UNROLL for (int v = 0; v < 4; v++) {
                __m256i lo, hi;
                pair_of(f, &w, b, v, h, &lo, &hi);
                store(out->q[8 * b + (size_t)v] + 32 * h, lo);
                store(out->q[8 * b + 4 + (size_t)v] + 32 * h, hi);
            }
    }
}

/* Adds a run to the results of some rows, which wait in y between runs. */
INLINE void many_rows(int rows, rm_format f, float *y, const k_unpacked *w, const rm_k_group *x,
                      size_t sb_count, bool from_zero, size_t half) {
    __m256 acc[TILES];
    UNROLL for (int r = 0; r < rows; r++) acc[r] =
        from_zero ? _mm256_setzero_ps() : _mm256_loadu_ps(y + r * RM_LANES + 8 * half);
    for (size_t sb = 0; sb < sb_count; sb++)
        add_block(rows, 1, f, acc, NULL, (const uint8_t(*)[64])w[sb].q, &w[sb].s, x, sb, half);
    UNROLL for (int r = 0; r < rows; r++) _mm256_storeu_ps(y + r * RM_LANES + 8 * half, acc[r]);
}

/* --- formats ------------------------------------------------------------------------------- */

/* A function of its own for each number of rows: their variables would add up in one. */
typedef struct format_fns {
    void (*few[3])(float *y, const void *strip, const rm_k_group *x, size_t sb_count);
    void (*unpack)(k_unpacked *out, const void *strip, size_t sb_count, size_t sb);
    void (*many[3])(float *y, const k_unpacked *w, const rm_k_group *x, size_t sb_count,
                    bool from_zero);
} format_fns;

static unsigned widest(uint32_t left) {
    return left >= 4 ? 2 : left >= 2 ? 1 : 0;
}

static void matmul_few(const format_fns *f, const rm_out *y, uint32_t strip,
                       const void *strip_bytes, const rm_acts *x) {
    for (uint32_t first = 0; first < x->row_count; first += RM_GROUP) {
        const uint32_t n = rm_group_rows(x->row_count, first);
        for (uint32_t r = 0; r < n;) {
            const unsigned i = widest(n - r);
            const rm_k_group g = rm_k_group_at(x, first, r, n, 0);
            f->few[i](rm_out_at(y, first + r, strip), strip_bytes, &g, x->k_count / RM_SUPER_K);
            r += 1u << i;
        }
    }
}

static void matmul_many(const format_fns *f, const rm_out *y, uint32_t strip,
                        const void *strip_bytes, const rm_acts *x, k_unpacked *run) {
    const size_t sb_count = x->k_count / RM_SUPER_K;
    for (size_t sb = 0; sb < sb_count; sb += RUN) {
        const size_t count = sb_count - sb < RUN ? sb_count - sb : RUN;
        for (size_t i = 0; i < count; i++)
            f->unpack(&run[i], strip_bytes, sb_count, sb + i);
        for (uint32_t first = 0; first < x->row_count; first += RM_GROUP) {
            const uint32_t n = rm_group_rows(x->row_count, first);
            for (uint32_t r = 0; r < n;) {
                const unsigned i = widest(n - r);
                const rm_k_group g = rm_k_group_at(x, first, r, n, sb);
                f->many[i](rm_out_at(y, first + r, strip), run, &g, count, sb == 0);
                r += 1u << i;
            }
        }
    }
}

#define MANY_FN(name, f, rows)                                                                     \
    static void name##_many_##rows(float *y, const k_unpacked *w, const rm_k_group *x,             \
                                   size_t sb_count, bool from_zero) {                              \
        for (size_t half = 0; half < 2; half++)                                                    \
            many_rows(rows, f, y, w, x, sb_count, from_zero, half);                                \
    }

#define FORMAT(name, f)                                                                            \
    static void name##_few_1(float *y, const void *strip, const rm_k_group *x, size_t sb_count) {  \
        few_rows(1, 2, f, y, strip, x, sb_count, 0);                                               \
    }                                                                                              \
    static void name##_few_2(float *y, const void *strip, const rm_k_group *x, size_t sb_count) {  \
        few_rows(2, 2, f, y, strip, x, sb_count, 0);                                               \
    }                                                                                              \
    static void name##_few_4(float *y, const void *strip, const rm_k_group *x, size_t sb_count) {  \
        for (size_t half = 0; half < 2; half++)                                                    \
            few_rows(4, 1, f, y, strip, x, sb_count, half);                                        \
    }                                                                                              \
    MANY_FN(name, f, 1)                                                                            \
    MANY_FN(name, f, 2)                                                                            \
    MANY_FN(name, f, 4)                                                                            \
    static void name##_unpack(k_unpacked *out, const void *strip, size_t sb_count, size_t sb) {    \
        unpack(f, out, strip, sb_count, sb);                                                       \
    }                                                                                              \
    static const format_fns name##_fns = {                                                         \
        {name##_few_1, name##_few_2, name##_few_4},                                                \
        name##_unpack,                                                                             \
        {name##_many_1, name##_many_2, name##_many_4},                                             \
    };                                                                                             \
    static void matmul_##name(const rm_out *y, uint32_t strip, const void *strip_bytes,            \
                              const rm_acts *x, void *scratch) {                                   \
        if (x->row_count < MANY)                                                                   \
            matmul_few(&name##_fns, y, strip, strip_bytes, x);                                     \
        else                                                                                       \
            matmul_many(&name##_fns, y, strip, strip_bytes, x, scratch);                           \
    }

FORMAT(q2_k, RM_Q2_K)
FORMAT(q3_k, RM_Q3_K)
FORMAT(q4_k, RM_Q4_K)
FORMAT(q5_k, RM_Q5_K)
FORMAT(q6_k, RM_Q6_K)
FORMAT(iq4_xs, RM_IQ4_XS)

static void set_k_blocks(rm_kernels *t) {
    t->matmul[RM_Q2_K] = matmul_q2_k;
    t->matmul[RM_Q3_K] = matmul_q3_k;
    t->matmul[RM_Q4_K] = matmul_q4_k;
    t->matmul[RM_Q5_K] = matmul_q5_k;
    t->matmul[RM_Q6_K] = matmul_q6_k;
    t->matmul[RM_IQ4_XS] = matmul_iq4_xs;
}

#endif /* RM_KERNELS_AVX2_K_BLOCKS_H */
