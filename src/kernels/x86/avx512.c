/*
 * avx512.c: matrix products with AVX-512 (F, BW, DQ, VL, VNNI). Part: kernels.
 *
 * A register holds 16 outputs. One vector of weights meets up to 8 rows of activations, which are
 * broadcasts of 4 k as memory operands.
 *
 *   few rows    weights are unpacked in registers and the stream of strips is prefetched: the
 *               memory is the bound
 *   many rows   runs of 768 k are unpacked once, to bytes and f32 scales in scratch (L1), which
 *               all rows read: the two ports of arithmetic are the bound, and unpacking again for
 *               each 8 rows would take a seventh of them
 *
 * vpdpbusd takes unsigned weights. Where they are signed the stored byte is weight + bias, and the
 * integer sum starts at -bias * sum(x): 8 for q4_0, 16 for q5_0 and mxfp4, 128 for q8_0 and
 * iq4_nl. Sums stay exact.
 */
#include "kernels/x86/avx512_weights.h"

enum {
    ROWS = 8,   /* 8 rows x (sums of two blocks and the result) and weights fit 32 registers */
    MANY = 9,   /* rows from which unpacking to scratch pays (12: +5 to +18 %) */
    F_ROWS = 6, /* f16, bf16, f32: 6 rows x 4 chains */
};

/* acc + u8 weights . s8 activations, 4 k per lane */
INLINE __m512i dot4(__m512i acc, __m512i w, const int8_t *x) {
    return _mm512_dpbusd_epi32(acc, w, bcast32(x));
}

INLINE __m512 scaled(__m512 acc, __m512 d, float xd, __m512i sum) {
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(xd)), _mm512_cvtepi32_ps(sum), acc);
}

/* -bias * sum(x) of one row, bias = 2^shift, or 0. */
INLINE __m512i start_of(int shift, const int32_t *neg_sum) {
    return shift == 0 ? _mm512_setzero_si512()
                      : _mm512_slli_epi32(bcast32(neg_sum), (unsigned)shift);
}

/* --- few rows: unpacked in registers ------------------------------------------------------- */

INLINE void few_rows(int rows, rm_format f, float *y, const void *strip, const rm_group_view *x,
                     size_t kb_count) {
    __m512 acc[ROWS];
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();
    for (size_t kb = 0; kb < kb_count; kb++) {
        const rm_block_view w = rm_block_at(f, strip, kb);
        const int8_t *q = x->q + kb / 2 * x->q_step + kb % 2 * 32;
        const size_t at = kb * x->step;
        __m512i sum[ROWS], high[ROWS];
        rm_ahead(w.q, w.bytes);
        UNROLL for (int r = 0; r < rows; r++) {
            sum[r] = start_of(shift_of(f), x->neg_sum + at + r);
            high[r] = _mm512_setzero_si512();
        }
        UNROLL for (int v = 0; v < 4; v++) {
            __m512i lo, hi;
            if (shifts_sums(f, rows)) {
                lo = low4(load(w.q + 64 * v));
                hi = high4_by_16(load(w.q + 64 * v));
            } else {
                pair(f, &w, v, &lo, &hi);
            }
            UNROLL for (int r = 0; r < rows; r++) sum[r] = dot4(sum[r], lo, q + r * 64 + 4 * v);
            UNROLL for (int r = 0; r < rows; r++) {
                __m512i *to = shifts_sums(f, rows) ? &high[r] : &sum[r];
                *to = dot4(*to, hi, q + r * 64 + 16 + 4 * v);
            }
        }
        if (shifts_sums(f, rows))
            UNROLL for (int r = 0; r < rows; r++) sum[r] =
                _mm512_add_epi32(sum[r], _mm512_srai_epi32(high[r], 4));
        const __m512 d = scales(f, &w);
        UNROLL for (int r = 0; r < rows; r++) acc[r] = scaled(acc[r], d, x->d[at + r], sum[r]);
        if (has_mins(f)) {
            const __m512 m = load_f16(w.m);
            UNROLL for (int r = 0; r < rows; r++) acc[r] =
                _mm512_fmadd_ps(m, _mm512_set1_ps(x->ds[at + r]), acc[r]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(y + r * RM_LANES, acc[r]);
}

/* --- many rows: unpacked once ------------------------------------------------------------- */

INLINE void unpack_run(rm_format f, rm_unpacked *out, const void *strip, size_t first,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        const rm_block_view w = rm_block_at(f, strip, first + i);
        rm_ahead(w.q, w.bytes);
        UNROLL for (int v = 0; v < 4; v++) {
            __m512i lo, hi;
            pair(f, &w, v, &lo, &hi);
            _mm512_store_si512(out[i].q[v], lo);
            _mm512_store_si512(out[i].q[v + 4], hi);
        }
        _mm512_store_ps(out[i].d, scales(f, &w));
        if (has_mins(f)) _mm512_store_ps(out[i].m, load_f16(w.m));
    }
}

/* Adds a run to the results of some rows, which wait in y between runs. Two blocks at a time: 16
 * chains of integers, so that the latency of vpdpbusd (5 cycles, two a cycle) is hidden. */
INLINE void many_rows(int rows, rm_format f, float *y, const rm_unpacked *w, const rm_group_view *x,
                      size_t kb_count, bool from_zero) {
    __m512 acc[ROWS];
    UNROLL for (int r = 0; r < rows; r++) acc[r] =
        from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * RM_LANES);
    for (size_t kb = 0; kb < kb_count; kb += 2) {
        const int8_t *q = x->q + kb / 2 * x->q_step;
        const size_t at[2] = {kb * x->step, kb * x->step + x->step};
        __m512i sum[2][ROWS];
        UNROLL for (int h = 0; h < 2; h++) UNROLL for (int r = 0; r < rows; r++) sum[h][r] =
            start_of(shift_of(f), x->neg_sum + at[h] + r);
        UNROLL for (int v = 0; v < 8; v++) UNROLL for (int h = 0; h < 2; h++) {
            const __m512i b = load(w[kb + (size_t)h].q[v]);
            UNROLL for (int r = 0; r < rows; r++) sum[h][r] =
                dot4(sum[h][r], b, q + r * 64 + 32 * h + 4 * v);
        }
        UNROLL for (int h = 0; h < 2; h++) {
            const __m512 d = _mm512_load_ps(w[kb + (size_t)h].d);
            UNROLL for (int r = 0; r < rows; r++) acc[r] =
                scaled(acc[r], d, x->d[at[h] + r], sum[h][r]);
            if (has_mins(f)) {
                const __m512 m = _mm512_load_ps(w[kb + (size_t)h].m);
                UNROLL for (int r = 0; r < rows; r++) acc[r] =
                    _mm512_fmadd_ps(m, _mm512_set1_ps(x->ds[at[h] + r]), acc[r]);
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(y + r * RM_LANES, acc[r]);
}

/* --- formats ------------------------------------------------------------------------------- */

/* A format's functions, each a function of its own for 1, 2, 4 and 8 rows: inlined into one, their
 * variables would add up to more stack than a frame may have in sanitizer builds. */
typedef struct format_fns {
    void (*few[4])(float *y, const void *strip, const rm_group_view *x, size_t kb_count);
    void (*unpack)(rm_unpacked *out, const void *strip, size_t first, size_t count);
    void (*many[4])(float *y, const rm_unpacked *w, const rm_group_view *x, size_t kb_count,
                    bool from_zero);
} format_fns;

/* Index of the widest function for the rows that are left. */
static unsigned widest(uint32_t left) {
    return left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
}

static void matmul_few(const format_fns *f, const rm_out *y, uint32_t strip,
                       const void *strip_bytes, const rm_acts *x) {
    for (uint32_t first = 0; first < x->row_count; first += RM_GROUP) {
        const uint32_t n = rm_group_rows(x->row_count, first);
        for (uint32_t r = 0; r < n;) {
            const unsigned i = widest(n - r);
            const rm_group_view v = rm_group_at(x, first, r, n, 0);
            f->few[i](rm_out_at(y, first + r, strip), strip_bytes, &v, x->k_count / 32);
            r += 1u << i;
        }
    }
}

static void matmul_many(const format_fns *f, const rm_out *y, uint32_t strip,
                        const void *strip_bytes, const rm_acts *x, rm_unpacked *run) {
    const size_t kb_count = x->k_count / 32;
    for (size_t kb = 0; kb < kb_count; kb += RM_RUN_BLOCKS) {
        const size_t count = kb_count - kb < RM_RUN_BLOCKS ? kb_count - kb : RM_RUN_BLOCKS;
        f->unpack(run, strip_bytes, kb, count);
        for (uint32_t first = 0; first < x->row_count; first += RM_GROUP) {
            const uint32_t n = rm_group_rows(x->row_count, first);
            for (uint32_t r = 0; r < n;) {
                const unsigned i = widest(n - r);
                const rm_group_view v = rm_group_at(x, first, r, n, kb);
                f->many[i](rm_out_at(y, first + r, strip), run, &v, count, kb == 0);
                r += 1u << i;
            }
        }
    }
}

#define ROWS_FNS(name, f, rows)                                                                    \
    static void name##_few_##rows(float *y, const void *strip, const rm_group_view *x,             \
                                  size_t kb_count) {                                               \
        few_rows(rows, f, y, strip, x, kb_count);                                                  \
    }                                                                                              \
    static void name##_many_##rows(float *y, const rm_unpacked *w, const rm_group_view *x,         \
                                   size_t kb_count, bool from_zero) {                              \
        many_rows(rows, f, y, w, x, kb_count, from_zero);                                          \
    }

#define FORMAT(name, f)                                                                            \
    ROWS_FNS(name, f, 1)                                                                           \
    ROWS_FNS(name, f, 2)                                                                           \
    ROWS_FNS(name, f, 4)                                                                           \
    ROWS_FNS(name, f, 8)                                                                           \
    static void name##_unpack(rm_unpacked *out, const void *strip, size_t first, size_t count) {   \
        unpack_run(f, out, strip, first, count);                                                   \
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

FORMAT(q8_0, RM_Q8_0)
FORMAT(q4_0, RM_Q4_0)
FORMAT(q4_1, RM_Q4_1)
FORMAT(q5_0, RM_Q5_0)
FORMAT(q5_1, RM_Q5_1)
FORMAT(iq4_nl, RM_IQ4_NL)
FORMAT(mxfp4, RM_MXFP4)

/* --- f16, bf16 and f32 ------------------------------------------------------------------------ */

/* 16 weights from index i on. */
INLINE __m512 floats(rm_format f, const void *w, size_t i) {
    const uint16_t *h = (const uint16_t *)w + i;
    if (f == RM_F32) return _mm512_load_ps((const float *)w + i);
    if (f == RM_F16) return load_f16(h);
    const __m256i b = _mm256_load_si256((const __m256i *)(const void *)h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

INLINE void float_rows(int rows, rm_format f, bool fetch, const rm_out *y, uint32_t strip,
                       const void *strip_bytes, const rm_acts *x, uint32_t row) {
    const size_t k_count = x->k_count;
    const float *xf = x->f + row * k_count;
    __m512 c[F_ROWS][4];
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int j = 0; j < 4; j++) c[r][j] =
        _mm512_setzero_ps();
    for (size_t k = 0; k < k_count; k += 4) {
        const size_t bytes = f == RM_F32 ? 256 : 128; /* of 4 k */
        if (fetch) rm_ahead((const char *)strip_bytes + k / 4 * bytes, bytes);
        UNROLL for (int j = 0; j < 4; j++) {
            const __m512 w = floats(f, strip_bytes, (k + (size_t)j) * RM_LANES);
            UNROLL for (int r = 0; r < rows; r++) c[r][j] =
                _mm512_fmadd_ps(w, _mm512_set1_ps(xf[r * k_count + k + j]), c[r][j]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) _mm512_storeu_ps(
        rm_out_at(y, row + r, strip),
        _mm512_add_ps(_mm512_add_ps(c[r][0], c[r][1]), _mm512_add_ps(c[r][2], c[r][3])));
}

INLINE void matmul_f(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                     const rm_acts *x) {
    const uint32_t n = x->row_count;
    uint32_t r = 0;
    for (; n - r >= F_ROWS; r += F_ROWS)
        float_rows(F_ROWS, f, false, y, strip, strip_bytes, x, r);
    for (; n - r >= 3; r += 3)
        float_rows(3, f, true, y, strip, strip_bytes, x, r);
    for (; n - r >= 1; r += 1)
        float_rows(1, f, true, y, strip, strip_bytes, x, r);
}

static void matmul_f32(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                       void *scratch) {
    (void)scratch;
    matmul_f(RM_F32, y, strip, strip_bytes, x);
}

static void matmul_f16(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                       void *scratch) {
    (void)scratch;
    matmul_f(RM_F16, y, strip, strip_bytes, x);
}

static void matmul_bf16(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                        void *scratch) {
    (void)scratch;
    matmul_f(RM_BF16, y, strip, strip_bytes, x);
}

void rm_kernels_init_avx512(rm_kernels *t) {
    t->name = "avx512";
    t->matmul[RM_F32] = matmul_f32;
    t->matmul[RM_F16] = matmul_f16;
    t->matmul[RM_Q8_0] = matmul_q8_0;
    t->matmul[RM_Q4_0] = matmul_q4_0;
    t->matmul[RM_Q4_1] = matmul_q4_1;
    t->matmul[RM_BF16] = matmul_bf16;
    t->matmul[RM_Q5_0] = matmul_q5_0;
    t->matmul[RM_Q5_1] = matmul_q5_1;
    t->matmul[RM_IQ4_NL] = matmul_iq4_nl;
    t->matmul[RM_MXFP4] = matmul_mxfp4;
}
