/*
 * amx_k.c: products by blocks of 256 with AMX tiles, for whole groups of 16 rows; other rows go to
 * the set below. Part: kernels.
 *
 * Scales inside a block would need a step for each 16 or 32 k. They are folded into the weights
 * instead: scale * weight has 10 bits (q4_k: 63 * 15) to 14 with its sign (q6_k: 128 * 32), so
 *
 *     scale * weight = low byte (unsigned) + 256 * high byte       two products of 64 k
 *
 * and all 256 k are summed before anything leaves the tiles. For q2_k (15 * 3) a byte is enough;
 * for q3_k (32 * 4 = 128, but -124) it is when the sign is turned. A block is folded once, to
 * scratch in L1, and used by all groups.
 */
#include "kernels/x86/amx_tiles.h"
#include "kernels/x86/avx512_k_weights.h"

enum { ROWS_FROM = 16 /* fewer go to the set below */ };

/* A block with its scales folded in: vectors in order of k. */
typedef struct k_folded {
    uint8_t low[64][64], high[64][64];
    __m512i min[8]; /* pairs of 16 bits */
    __m512 d, dmin;
} k_folded;

/* Sums of two groups on their way to the float step. */
typedef struct k_sums {
    int32_t low[2][TILE][RM_LANES], high[2][TILE][RM_LANES];
} k_sums;

typedef struct k_run {
    k_folded w;
    k_sums sums[2];
} k_run;

_Static_assert(sizeof(k_run) <= RM_MATMUL_SCRATCH, "a block fits the scratch");

static rm_matmul_fn *below[RM_FORMAT_COUNT];

INLINE bool one_byte(rm_format f) {
    return f == RM_Q2_K || f == RM_Q3_K;
}

/* --- folding ------------------------------------------------------------------------------- */

/* 64 stored weights times the scales of their lanes (in both halves of each). */
INLINE void fold(rm_format f, uint8_t *low, uint8_t *high, __m512i w, __m512i scale) {
    const __m512i byte = _mm512_set1_epi16(0x00ff);
    const short shift = (short)(rm_k_shift(f) > 0 ? 1 << rm_k_shift(f) : 0);
    const __m512i bias = _mm512_set1_epi16(shift);
    __m512i even = _mm512_and_si512(w, byte), odd = _mm512_srli_epi16(w, 8);
    if (f == RM_Q3_K) { /* turned */
        even = _mm512_sub_epi16(bias, even);
        odd = _mm512_sub_epi16(bias, odd);
    } else if (shift > 0) {
        even = _mm512_sub_epi16(even, bias);
        odd = _mm512_sub_epi16(odd, bias);
    }
    even = _mm512_mullo_epi16(even, scale);
    odd = _mm512_mullo_epi16(odd, scale);
    /* 0xca: first ? second : third */
    _mm512_store_si512(low, _mm512_ternarylogic_epi32(byte, even, _mm512_slli_epi16(odd, 8), 0xca));
    if (one_byte(f)) return;
    _mm512_store_si512(high,
                       _mm512_ternarylogic_epi32(byte, _mm512_srli_epi16(even, 8), odd, 0xca));
}

/* One of a pair of 16-bit numbers, in both halves. */
INLINE __m512i both(__m512i pair, size_t second) {
    const __m512i kept = second ? _mm512_srli_epi32(pair, 16) : and32(pair, 0xffff);
    return _mm512_or_si512(kept, _mm512_slli_epi32(kept, 16));
}

INLINE void fold_block(rm_format f, k_folded *out, const rm_k_view *w) {
    __m512i scale[8], min[8];
    scale_pairs(f, w, scale, min);
    UNROLL for (size_t b = 0; b < 8; b++) {
        const bool each = rm_k_sixteen(f);
        const __m512i lo_scale = each ? both(scale[b], 0) : both(scale[b / 2], b % 2);
        const __m512i hi_scale = each ? both(scale[b], 1) : lo_scale;
        UNROLL for (int v = 0; v < 4; v++) {
            const size_t at = 8 * b + (size_t)v;
            __m512i lo, hi;
            pair_of(f, w, b, v, &lo, &hi);
            fold(f, out->low[at], out->high[at], lo, lo_scale);
            fold(f, out->low[at + 4], out->high[at + 4], hi, hi_scale);
        }
    }
    out->d = load_f16(w->d);
    if (rm_k_mins(f)) {
        const int pairs = rm_k_sixteen(f) ? 8 : 4;
        UNROLL for (int i = 0; i < pairs; i++) out->min[i] = min[i];
        out->dmin = load_f16(w->dmin);
    }
}

/* --- products ------------------------------------------------------------------------------ */

/* A block's scales in registers: read from memory they cost loads for each row, and the load ports
 * are what this runs out of. */
typedef struct k_values {
    __m512i min[8];
    __m512 d, dmin;
} k_values;

/* The float step of a block for rows from .. from + 7 of a group. before: which results of the
 * blocks before it count: all, or none. */
INLINE void finish(rm_format f, float *y, const int32_t (*low)[RM_LANES],
                   const int32_t (*high)[RM_LANES], const k_values *v, const rm_k_group *x,
                   int from, __mmask16 before) {
    const int pairs = rm_k_sixteen(f) ? 8 : 4;
    UNROLL for (int r = from; r < from + 8; r++) {
        const __m512 xd = _mm512_set1_ps(x->d[r]);
        __m512i sum = load(low[r]);
        if (f == RM_Q3_K) sum = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
        if (!one_byte(f)) sum = _mm512_add_epi32(sum, _mm512_slli_epi32(load(high[r]), 8));
        __m512 acc = _mm512_maskz_loadu_ps(before, y + r * RM_LANES);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(v->d, xd), _mm512_cvtepi32_ps(sum), acc);
        if (rm_k_mins(f)) {
            const int16_t *sums = x->sums + r * RM_SUMS + (pairs == 8 ? 0 : 16);
            __m512i c = _mm512_setzero_si512();
            UNROLL for (int i = 0; i < pairs; i++) c =
                _mm512_dpwssd_epi32(c, v->min[i], bcast32(sums + 2 * i));
            acc = _mm512_fnmadd_ps(_mm512_mul_ps(v->dmin, xd), _mm512_cvtepi32_ps(c), acc);
        }
        _mm512_storeu_ps(y + r * RM_LANES, acc);
    }
}

/* A quarter of a block: 64 k of one or two groups. */
INLINE void quarter(rm_format f, const k_folded *w, const int8_t *q0, const int8_t *q1, int i) {
    const bool is_signed = !rm_k_mins(f);
    _tile_loadd(4, q0 + i * 1024, 64);
    _tile_loadd(5, w->low[16 * i], 64);
    if (f == RM_Q3_K) {
        _tile_dpbssd(0, 4, 5);
    } else {
        _tile_dpbsud(0, 4, 5);
    }
    if (q1 != NULL) {
        _tile_loadd(6, q1 + i * 1024, 64);
        if (f == RM_Q3_K) {
            _tile_dpbssd(2, 6, 5);
        } else {
            _tile_dpbsud(2, 6, 5);
        }
    }
    if (one_byte(f)) return;
    _tile_loadd(7, w->high[16 * i], 64);
    if (is_signed) {
        _tile_dpbssd(1, 4, 7);
        if (q1 != NULL) _tile_dpbssd(3, 6, 7);
    } else {
        _tile_dpbsud(1, 4, 7);
        if (q1 != NULL) _tile_dpbsud(3, 6, 7);
    }
}

/* A block for all groups, two of which share the tiles of weights. Each quarter of their products
 * is followed by a quarter of the float steps of the two groups before, so that both are in the
 * processor's window together: one after the other they do not overlap. Results wait in y between
 * blocks. */
INLINE void block(rm_format f, const rm_out *y, uint32_t strip, k_run *run, const rm_acts *x,
                  uint32_t row_count, size_t sb) {
    const uint32_t pairs = (row_count + 2 * TILE - 1) / (2 * TILE);
    k_values v = {.d = run->w.d};
    if (rm_k_mins(f)) {
        const int pairs_of_mins = rm_k_sixteen(f) ? 8 : 4;
        v.dmin = run->w.dmin;
        UNROLL for (int i = 0; i < pairs_of_mins; i++) v.min[i] = run->w.min[i];
    }
    for (uint32_t p = 0; p <= pairs; p++) {
        const uint32_t row = p * 2 * TILE, before = row - 2 * TILE;
        const int8_t *q0 = x->q + (size_t)row * x->k_count + sb * RM_SUPER_K * TILE;
        const int8_t *q1 = row + TILE < row_count ? q0 + (size_t)TILE * x->k_count : NULL;
        if (p < pairs) {
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
        }
        UNROLL for (int i = 0; i < 4; i++) {
            if (p < pairs) quarter(f, &run->w, q0, q1, i);
            const uint32_t first = before + (uint32_t)i / 2 * TILE;
            if (p > 0 && first < row_count) {
                const k_sums *from = &run->sums[(p - 1) % 2];
                const rm_k_group g = rm_k_group_at(x, first, 0, TILE, sb);
                finish(f, rm_out_at(y, first, strip), from->low[i / 2], from->high[i / 2], &v, &g,
                       i % 2 * 8, sb > 0 ? 0xffff : 0);
            }
        }
        if (p < pairs) {
            k_sums *to = &run->sums[p % 2];
            _tile_stored(0, to->low[0], 64);
            if (!one_byte(f)) _tile_stored(1, to->high[0], 64);
            if (q1 != NULL) _tile_stored(2, to->low[1], 64);
            if (q1 != NULL && !one_byte(f)) _tile_stored(3, to->high[1], 64);
        }
    }
}

/* Functions of their own: see avx512.c. */
typedef void fold_fn(k_folded *out, const rm_k_view *w);
typedef void block_fn(const rm_out *y, uint32_t strip, k_run *run, const rm_acts *x,
                      uint32_t row_count, size_t sb);

INLINE void matmul(rm_format f, fold_fn *fold_one, block_fn *run_block, const rm_out *y,
                   uint32_t strip, const void *strip_bytes, const rm_acts *x, k_run *run) {
    const uint32_t whole = x->row_count < ROWS_FROM ? 0 : x->row_count / TILE * TILE;
    const size_t sb_count = x->k_count / RM_SUPER_K;
    if (whole > 0) {
        tiles_configure(64);
        for (size_t sb = 0; sb < sb_count; sb++) {
            const rm_k_view w = rm_k_at(f, strip_bytes, sb_count, sb);
            rm_ahead(w.scale, rm_k_bytes(f));
            fold_one(&run->w, &w);
            tiles_written();
            run_block(y, strip, run, x, whole, sb);
        }
        tiles_release();
    }
    if (whole == x->row_count) return;
    const rm_acts rest = rm_acts_rows(x, whole, x->row_count - whole);
    const rm_out to = rows_from(y, whole);
    below[f](&to, strip, strip_bytes, &rest, run);
}

#define FORMAT(name, f)                                                                            \
    static void name##_fold(k_folded *out, const rm_k_view *w) {                                   \
        fold_block(f, out, w);                                                                     \
    }                                                                                              \
    static void name##_block(const rm_out *y, uint32_t strip, k_run *run, const rm_acts *x,        \
                             uint32_t row_count, size_t sb) {                                      \
        block(f, y, strip, run, x, row_count, sb);                                                 \
    }                                                                                              \
    static void matmul_##name(const rm_out *y, uint32_t strip, const void *strip_bytes,            \
                              const rm_acts *x, void *scratch) {                                   \
        matmul(f, name##_fold, name##_block, y, strip, strip_bytes, x, scratch);                   \
    }

FORMAT(q2_k, RM_Q2_K)
FORMAT(q3_k, RM_Q3_K)
FORMAT(q4_k, RM_Q4_K)
FORMAT(q5_k, RM_Q5_K)
FORMAT(q6_k, RM_Q6_K)
FORMAT(iq4_xs, RM_IQ4_XS)

void rm_kernels_init_amx_k(rm_kernels *t) {
    memcpy(below, t->matmul, sizeof below);
    t->matmul[RM_Q2_K] = matmul_q2_k;
    t->matmul[RM_Q3_K] = matmul_q3_k;
    t->matmul[RM_Q4_K] = matmul_q4_k;
    t->matmul[RM_Q5_K] = matmul_q5_k;
    t->matmul[RM_Q6_K] = matmul_q6_k;
    t->matmul[RM_IQ4_XS] = matmul_iq4_xs;
}
