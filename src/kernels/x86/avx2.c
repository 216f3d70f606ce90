/*
 * avx2.c: matrix products with AVX2, FMA and F16C: by blocks of 32 (avx2_blocks.h), and of f16,
 * bf16 and f32. Part: kernels.
 */
#include "kernels/x86/avx2_blocks.h"

enum { F_ROWS = 3 }; /* f16, bf16, f32: 3 rows x 4 chains */

/* 8 weights from index i on. */
INLINE __m256 floats(rm_format f, const void *w, size_t i) {
    const uint16_t *h = (const uint16_t *)w + i;
    if (f == RM_F32) return _mm256_load_ps((const float *)w + i);
    if (f == RM_F16) return load_f16(h);
    const __m128i b = _mm_load_si128((const __m128i *)(const void *)h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
}

/* Four chains of each row and half. */
INLINE void float_rows(int rows, int halves, rm_format f, const rm_out *y, uint32_t strip,
                       const void *strip_bytes, const rm_acts *x, uint32_t row, size_t half) {
    const size_t k_count = x->k_count;
    const float *xf = x->f + row * k_count;
    __m256 c[F_ROWS][4];
    UNROLL for (int t = 0; t < rows * halves; t++) UNROLL for (int j = 0; j < 4; j++) c[t][j] =
        _mm256_setzero_ps();
    for (size_t k = 0; k < k_count; k += 4) {
        const size_t bytes = f == RM_F32 ? 256 : 128; /* of 4 k */
        if (halves == 2) rm_ahead((const char *)strip_bytes + k / 4 * bytes, bytes);
        UNROLL for (int j = 0; j < 4; j++) UNROLL for (int h = 0; h < halves; h++) {
            const size_t at = (k + (size_t)j) * RM_LANES + 8 * (half + (size_t)h);
            const __m256 w = floats(f, strip_bytes, at);
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

static void matmul_bf16(const rm_out *y, uint32_t strip, const void *strip_bytes, const rm_acts *x,
                        void *scratch) {
    (void)scratch;
    matmul_f(RM_BF16, y, strip, strip_bytes, x);
}

void rm_kernels_init_avx2(rm_kernels *t) {
    t->name = "avx2";
    t->matmul[RM_F32] = matmul_f32;
    t->matmul[RM_F16] = matmul_f16;
    t->matmul[RM_BF16] = matmul_bf16;
    set_blocks(t);
}
