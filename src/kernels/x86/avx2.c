/*
 * avx2.c: matrix products with AVX2, FMA and F16C. Part: kernels.
 *
 * The 16 outputs of a strip are two halves of 8. One vector of weights meets up to 4 rows: one row
 * takes both halves at once (each line of the stream is read once), four rows take one half after
 * the other (16 registers).
 *
 * vpmaddubsw sums two products to 16 bits. 4-bit weights leave room for the 8 products of a block
 * that meet there (8 * 2 * 15 * 127 = 30480); vpmaddwd adds the pairs. 8-bit weights fit once
 * (2 * 128 * 127) when they are unsigned: |w| times x with the sign of w.
 */
#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum {
    TILES = 4,  /* rows x halves: sums and results in 8 registers */
    MANY = 16,  /* rows from which unpacking 4-bit weights to scratch pays */
    F_ROWS = 3, /* f16, f32: 3 rows x 4 chains */
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

/* --- blocks ------------------------------------------------------------------------------- */

/* sum[r * halves + h] of 32 k of 8-bit weights. */
INLINE void sums_q8(int rows, int halves, __m256i *sum, const uint8_t *w, const int8_t *q) {
    const __m256i one = _mm256_set1_epi16(1);
    UNROLL for (int t = 0; t < rows * halves; t++) sum[t] = _mm256_setzero_si256();
    UNROLL for (int v = 0; v < 8; v++) {
        UNROLL for (int h = 0; h < halves; h++) {
            const __m256i b = load(w + 64 * v + 32 * h), size = _mm256_abs_epi8(b);
            UNROLL for (int r = 0; r < rows; r++) {
                const __m256i x = _mm256_sign_epi8(bcast32(q + r * 64 + 4 * v), b);
                const __m256i pairs = _mm256_maddubs_epi16(size, x);
                __m256i *s = &sum[r * halves + h];
                *s = _mm256_add_epi32(*s, _mm256_madd_epi16(pairs, one));
            }
        }
    }
}

/* The same of 4-bit weights: nibbles, or (bytes) their unpacked form. */
INLINE void sums_q4(int rows, int halves, bool bytes, __m256i *sum, const uint8_t *w,
                    const int8_t *q) {
    const __m256i one = _mm256_set1_epi16(1);
    UNROLL for (int v = 0; v < 4; v++) {
        UNROLL for (int h = 0; h < halves; h++) {
            const __m256i b = load(w + 64 * v + 32 * h), lo = bytes ? b : low4(b);
            const __m256i hi = bytes ? load(w + 64 * (v + 4) + 32 * h) : high4(b);
            UNROLL for (int r = 0; r < rows; r++) {
                const int8_t *x = q + r * 64 + 4 * v;
                __m256i *s = &sum[r * halves + h];
                const __m256i a = _mm256_maddubs_epi16(lo, bcast32(x));
                const __m256i c = _mm256_maddubs_epi16(hi, bcast32(x + 16));
                *s = v == 0 ? _mm256_add_epi16(a, c) : _mm256_add_epi16(*s, _mm256_add_epi16(a, c));
            }
        }
    }
    UNROLL for (int t = 0; t < rows * halves; t++) sum[t] = _mm256_madd_epi16(sum[t], one);
}

/* q - 8: 8 * sum(x) goes. */
INLINE void take_bias(int rows, int halves, __m256i *sum, const int32_t *neg_sum) {
    UNROLL for (int r = 0; r < rows; r++) {
        const __m256i bias = _mm256_slli_epi32(bcast32(neg_sum + r), 3);
        UNROLL for (int h = 0; h < halves; h++) sum[r * halves + h] =
            _mm256_add_epi32(sum[r * halves + h], bias);
    }
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
        if (f == RM_Q8_0)
            sums_q8(rows, halves, sum, w.q + 32 * half, q);
        else
            sums_q4(rows, halves, false, sum, w.q + 32 * half, q);
        if (f == RM_Q4_0) take_bias(rows, halves, sum, x.neg_sum + at);
        UNROLL for (int h = 0; h < halves; h++) {
            d[h] = load_f16(w.d + 8 * half + 8 * h);
            m[h] = f == RM_Q4_1 ? load_f16(w.m + 8 * half + 8 * h) : d[h];
        }
        add_block(rows, halves, f == RM_Q4_1, acc, sum, d, m, x.d + at, x.ds + at);
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

/* --- many rows of 4-bit weights: unpacked once ---------------------------------------------- */

INLINE void unpack_run(rm_format f, rm_unpacked *out, const void *strip, size_t first,
                       size_t count) {
    for (size_t i = 0; i < count; i++) {
        const rm_block_view w = rm_block_at(f, strip, first + i);
        rm_ahead(w.q, w.bytes);
        UNROLL for (int v = 0; v < 4; v++) UNROLL for (int h = 0; h < 2; h++) {
            const __m256i b = load(w.q + 64 * v + 32 * h);
            _mm256_store_si256((__m256i *)(void *)(out[i].q[v] + 32 * h), low4(b));
            _mm256_store_si256((__m256i *)(void *)(out[i].q[v + 4] + 32 * h), high4(b));
        }
        UNROLL for (int h = 0; h < 2; h++) {
            _mm256_store_ps(out[i].d + 8 * h, load_f16(w.d + 8 * h));
            if (f == RM_Q4_1) _mm256_store_ps(out[i].m + 8 * h, load_f16(w.m + 8 * h));
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
        const __m256 m = f == RM_Q4_1 ? _mm256_load_ps(w[kb].m + 8 * half) : d;
        __m256i sum[TILES];
        sums_q4(rows, 1, true, sum, w[kb].q[0] + 32 * half, q);
        if (f == RM_Q4_0) take_bias(rows, 1, sum, x.neg_sum + at);
        add_block(rows, 1, f == RM_Q4_1, acc, sum, &d, &m, x.d + at, x.ds + at);
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

static void matmul_q4_0(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                        void *scratch) {
    if (x->row_count < MANY)
        few(RM_Q4_0, y, strip, strip_bytes, x);
    else
        many(RM_Q4_0, y, strip, strip_bytes, x, scratch);
}

static void matmul_q4_1(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                        void *scratch) {
    if (x->row_count < MANY)
        few(RM_Q4_1, y, strip, strip_bytes, x);
    else
        many(RM_Q4_1, y, strip, strip_bytes, x, scratch);
}

/* --- f16 and f32 -------------------------------------------------------------------------- */

/* Four chains of each row and half. */
INLINE void float_rows(int rows, int halves, rm_format f, const rm_out *y, uint32_t strip,
                       const void *strip_bytes, const rm_acts *x, uint32_t row, size_t half) {
    const size_t k_count = x->k_count;
    const float *xf = x->f + row * k_count;
    __m256 c[F_ROWS][4];
    UNROLL for (int t = 0; t < rows * halves; t++) UNROLL for (int j = 0; j < 4; j++) c[t][j] =
        _mm256_setzero_ps();
    for (size_t k = 0; k < k_count; k += 4) {
        const float *w32 = (const float *)strip_bytes + k * RM_LANES + 8 * half;
        const uint16_t *w16 = (const uint16_t *)strip_bytes + k * RM_LANES + 8 * half;
        if (halves == 2 && f == RM_F32) rm_ahead(w32, 256);
        if (halves == 2 && f == RM_F16) rm_ahead(w16, 128);
        UNROLL for (int j = 0; j < 4; j++) UNROLL for (int h = 0; h < halves; h++) {
            const size_t at = (size_t)j * RM_LANES + 8 * (size_t)h;
            const __m256 w = f == RM_F32 ? _mm256_load_ps(w32 + at) : load_f16(w16 + at);
            UNROLL for (int r = 0; r < rows; r++) c[r * halves + h][j] = _mm256_fmadd_ps(
                w, _mm256_broadcast_ss(xf + r * k_count + k + j), c[r * halves + h][j]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int h = 0; h < halves; h++) {
        const __m256 *t = c[r * halves + h];
        _mm256_storeu_ps(rm_out_at(y, row + r, strip) + 8 * half + 8 * h,
                         _mm256_add_ps(_mm256_add_ps(t[0], t[1]), _mm256_add_ps(t[2], t[3])));
    }
}

INLINE void matmul_f(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                     const rm_acts *x) {
    const uint32_t n = x->row_count;
    uint32_t r = 0;
    for (; n - r >= F_ROWS; r += F_ROWS) {
        for (size_t half = 0; half < 2; half++)
            float_rows(F_ROWS, 1, f, y, strip, strip_bytes, x, r, half);
    }
    for (; r < n; r++)
        float_rows(1, 2, f, y, strip, strip_bytes, x, r, 0);
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

void rm_kernels_init_avx2(rm_kernels *t) {
    t->name = "avx2";
    t->matmul[RM_F32] = matmul_f32;
    t->matmul[RM_F16] = matmul_f16;
    t->matmul[RM_Q8_0] = matmul_q8_0;
    t->matmul[RM_Q4_0] = matmul_q4_0;
    t->matmul[RM_Q4_1] = matmul_q4_1;
}
