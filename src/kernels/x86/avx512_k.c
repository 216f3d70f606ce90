/*
 * avx512_k.c: products by blocks of 256 with AVX-512 (F, BW, DQ, VL, VNNI): q2_k .. q6_k, iq4_xs.
 * Part: kernels.
 *
 * As in avx512.c a register holds 16 outputs and a vector of weights meets up to 8 rows; from 9
 * rows on a block is unpacked once to scratch. The integer of a block is
 *
 *     sum over its parts of scale * sum(stored weight * x)  -  2^shift * sum of scale * sum(x)
 *
 * where the stored weight is unsigned. Each 16 k are two chains of vpdpbusd (lo, hi of 32 k). A
 * sum of 16 k of up to 4 bits is within 16 * 15 * 127 = 30480, so that vpdpwssd by (scale, 0)
 * multiplies and adds it in one instruction; wider weights take vpmulld. The second sum, and that
 * of the mins, are vpdpwssd of pairs of scales by pairs of the activations' own sums. All of it
 * stays below 256 * 127 * 63 * 128 < 2^28 (q6_k), or 256 * 127 * 255 * 32 (iq4_xs).
 */
#include "kernels/x86/avx512_k_weights.h"

enum {
    ROWS = 8,
    MANY = 9, /* rows from which unpacking to scratch pays */
    RUN = 2,  /* blocks in scratch at a time: half the traffic of results */
};

/* Scales of a block. */
typedef struct k_scales {
    __m512i scale[16]; /* 32 bits each: of 16 k, or 8 of 32 k */
    __m512i pair[8];   /* 16 bits: what meets the activations' sums, of 16 k or 4 of 32 k */
    __m512 d, dmin;
} k_scales;

/* A block in scratch: bytes in order of k. */
typedef struct k_unpacked {
    uint8_t q[64][64];
    k_scales s;
} k_unpacked;

_Static_assert(RUN * sizeof(k_unpacked) <= RM_MATMUL_SCRATCH, "a run fits the scratch");

INLINE __m512i dot4(__m512i acc, __m512i w, const int8_t *x) {
    return _mm512_dpbusd_epi32(acc, w, bcast32(x));
}

/* --- scales -------------------------------------------------------------------------------- */

/* A sum of 16 k fits 16 bits. */
INLINE bool fits16(rm_format f) {
    return f == RM_Q2_K || f == RM_Q3_K || f == RM_Q4_K;
}

INLINE void scales_of(rm_format f, k_scales *s, const rm_k_view *w) {
    const int pairs = rm_k_sixteen(f) ? 8 : 4;
    __m512i scale[8], min[8];
    scale_pairs(f, w, scale, min);
    UNROLL for (int i = 0; i < pairs; i++) {
        s->pair[i] = rm_k_mins(f) ? min[i] : scale[i];
        if (fits16(f)) { /* as (scale, 0) */
            s->scale[2 * i] = and32(scale[i], 0xffff);
            s->scale[2 * i + 1] = _mm512_srli_epi32(scale[i], 16);
        } else {
            s->scale[2 * i] = _mm512_srai_epi32(_mm512_slli_epi32(scale[i], 16), 16);
            s->scale[2 * i + 1] = _mm512_srai_epi32(scale[i], 16);
        }
    }
    s->d = load_f16(w->d);
    if (rm_k_mins(f)) s->dmin = load_f16(w->dmin);
}

/* --- a block ------------------------------------------------------------------------------- */

/* sum[r] of the scaled stored weights: w, or (bytes != NULL) their unpacked form. The stream of w
 * is asked for an eighth of a block at a time: all at once is more than a core has in flight. */
INLINE void block_sums(int rows, rm_format f, __m512i *sum, const rm_k_view *w,
                       const uint8_t (*bytes)[64], const k_scales *s, const int8_t *q,
                       size_t q_step) {
    UNROLL for (int r = 0; r < rows; r++) sum[r] = _mm512_setzero_si512();
    for (size_t b = 0; b < 8; b++) {
        const int8_t *x = q + b / 2 * q_step + b % 2 * 32;
        __m512i lo[ROWS], hi[ROWS];
        if (bytes == NULL) rm_ahead(w->scale + b * (rm_k_bytes(f) / 8), rm_k_bytes(f) / 8);
        UNROLL for (int r = 0; r < rows; r++) lo[r] = hi[r] = _mm512_setzero_si512();
        UNROLL for (int v = 0; v < 4; v++) {
            __m512i wl, wh;
            if (bytes != NULL) {
                wl = load(bytes[8 * b + (size_t)v]);
                wh = load(bytes[8 * b + 4 + (size_t)v]);
            } else if (shifts_sums(f, rows)) {
                wl = low4(load(w->q + 64 * (4 * b + (size_t)v)));
                wh = high4_by_16(load(w->q + 64 * (4 * b + (size_t)v)));
            } else {
                pair_of(f, w, b, v, &wl, &wh);
            }
            UNROLL for (int r = 0; r < rows; r++) lo[r] = dot4(lo[r], wl, x + r * 64 + 4 * v);
            UNROLL for (int r = 0; r < rows; r++) hi[r] = dot4(hi[r], wh, x + r * 64 + 16 + 4 * v);
        }
        if (bytes == NULL && shifts_sums(f, rows))
            UNROLL for (int r = 0; r < rows; r++) hi[r] = _mm512_srai_epi32(hi[r], 4);
        const __m512i sl = s->scale[rm_k_sixteen(f) ? 2 * b : b];
        const __m512i sh = rm_k_sixteen(f) ? s->scale[2 * b + 1] : sl;
        UNROLL for (int r = 0; r < rows; r++) {
            if (fits16(f)) {
                sum[r] = _mm512_dpwssd_epi32(sum[r], lo[r], sl);
                sum[r] = _mm512_dpwssd_epi32(sum[r], hi[r], sh);
            } else if (rm_k_sixteen(f)) {
                sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(lo[r], sl));
                sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(hi[r], sh));
            } else {
                const __m512i both = _mm512_add_epi32(lo[r], hi[r]);
                sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(both, sl));
            }
        }
    }
}

/* acc[r] += a block; see kernels.h for the order. */
INLINE void add_block(int rows, rm_format f, __m512 *acc, const rm_k_view *w,
                      const uint8_t (*bytes)[64], const k_scales *s, const rm_k_group *x,
                      size_t sb) {
    const int pairs = rm_k_sixteen(f) ? 8 : 4;
    const float *xd = x->d + sb * x->step;
    const int16_t *sums = x->sums + sb * x->step * RM_SUMS + (pairs == 8 ? 0 : 16);
    __m512i sum[ROWS];
    block_sums(rows, f, sum, w, bytes, s, x->q + sb * 4 * x->q_step, x->q_step);
    UNROLL for (int r = 0; r < rows; r++) {
        __m512i c = _mm512_setzero_si512();
        UNROLL for (int i = 0; i < pairs; i++) c =
            _mm512_dpwssd_epi32(c, s->pair[i], bcast32(sums + r * RM_SUMS + 2 * i));
        if (!rm_k_mins(f))
            sum[r] = _mm512_sub_epi32(sum[r], _mm512_slli_epi32(c, (unsigned)rm_k_shift(f)));
        const __m512 d = _mm512_mul_ps(s->d, _mm512_set1_ps(xd[r]));
        acc[r] = _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(sum[r]), acc[r]);
        if (rm_k_mins(f)) {
            const __m512 m = _mm512_mul_ps(s->dmin, _mm512_set1_ps(xd[r]));
            acc[r] = _mm512_fnmadd_ps(m, _mm512_cvtepi32_ps(c), acc[r]);
        }
    }
}

INLINE void few_rows(int rows, rm_format f, float *y, const void *strip, const rm_k_group *x,
                     size_t sb_count) {
    __m512 acc[ROWS];
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();
    for (size_t sb = 0; sb < sb_count; sb++) {
        const rm_k_view w = rm_k_at(f, strip, sb_count, sb);
        k_scales s;
        scales_of(f, &s, &w);
        add_block(rows, f, acc, &w, NULL, &s, x, sb);
    }
    UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(y + r * RM_LANES, acc[r]);
}

INLINE void unpack(rm_format f, k_unpacked *out, const void *strip, size_t sb_count, size_t sb) {
    const rm_k_view w = rm_k_at(f, strip, sb_count, sb);
    scales_of(f, &out->s, &w);
    for (size_t b = 0; b < 8; b++)
        UNROLL for (int v = 0; v < 4; v++) {
            __m512i lo, hi;
            pair_of(f, &w, b, v, &lo, &hi);
            _mm512_store_si512(out->q[8 * b + (size_t)v], lo);
            _mm512_store_si512(out->q[8 * b + 4 + (size_t)v], hi);
        }
}

/* Adds a run to the results of some rows, which wait in y between runs. */
INLINE void many_rows(int rows, rm_format f, float *y, const k_unpacked *w, const rm_k_group *x,
                      size_t sb_count, bool from_zero) {
    __m512 acc[ROWS];
    UNROLL for (int r = 0; r < rows; r++) acc[r] =
        from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * RM_LANES);
    for (size_t sb = 0; sb < sb_count; sb++)
        add_block(rows, f, acc, NULL, (const uint8_t(*)[64])w[sb].q, &w[sb].s, x, sb);
    UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(y + r * RM_LANES, acc[r]);
}

/* --- formats ------------------------------------------------------------------------------- */

/* A function of its own for each number of rows: see avx512.c. */
typedef struct format_fns {
    void (*few[4])(float *y, const void *strip, const rm_k_group *x, size_t sb_count);
    void (*unpack)(k_unpacked *out, const void *strip, size_t sb_count, size_t sb);
    void (*many[4])(float *y, const k_unpacked *w, const rm_k_group *x, size_t sb_count,
                    bool from_zero);
} format_fns;

static unsigned widest(uint32_t left) {
    return left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
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

#define ROWS_FNS(name, f, rows)                                                                    \
    static void name##_few_##rows(float *y, const void *strip, const rm_k_group *x,                \
                                  size_t sb_count) {                                               \
        few_rows(rows, f, y, strip, x, sb_count);                                                  \
    }                                                                                              \
    static void name##_many_##rows(float *y, const k_unpacked *w, const rm_k_group *x,             \
                                   size_t sb_count, bool from_zero) {                              \
        many_rows(rows, f, y, w, x, sb_count, from_zero);                                          \
    }

#define FORMAT(name, f)                                                                            \
    ROWS_FNS(name, f, 1)                                                                           \
    ROWS_FNS(name, f, 2)                                                                           \
    ROWS_FNS(name, f, 4)                                                                           \
    ROWS_FNS(name, f, 8)                                                                           \
    static void name##_unpack(k_unpacked *out, const void *strip, size_t sb_count, size_t sb) {    \
        unpack(f, out, strip, sb_count, sb);                                                       \
    }                                                                                              \
    static const format_fns name##_fns = {                                                         \
        {name##_few_1, name##_few_2, name##_few_4, name##_few_8},                                  \
        name##_unpack,                                                                             \
        {name##_many_1, name##_many_2, name##_many_4, name##_many_8},                              \
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

void rm_kernels_init_avx512_k(rm_kernels *t) {
    t->matmul[RM_Q2_K] = matmul_q2_k;
    t->matmul[RM_Q3_K] = matmul_q3_k;
    t->matmul[RM_Q4_K] = matmul_q4_k;
    t->matmul[RM_Q5_K] = matmul_q5_k;
    t->matmul[RM_Q6_K] = matmul_q6_k;
    t->matmul[RM_IQ4_XS] = matmul_iq4_xs;
}
