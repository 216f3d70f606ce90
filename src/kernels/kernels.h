/*
 * kernels.h: the arithmetic, behind one table. Part: kernels.
 *
 * A kernel set is a complete table. `ref` is plain C and defines the answer; every other set
 * starts as a copy of one below it and overrides what it does better:
 * ref < avx2 < avxvnni, avx512 < amx.
 * The set is chosen once, in rm_kernels_select(), and is constant afterwards.
 *
 * RULE: lanes never share a sum. A SIMD lane owns one output and walks the reduction index in
 * order; where a single sum is needed it has 16 virtual lanes and a fixed tree, at any width. So
 * all sets, any number of rows and any number of threads give the same bits, and
 * tests/kerncheck asks for exactly that.
 *
 * Nothing here calls libm but fmaf and sqrtf, which are exact: exp, sin and cos are our own.
 */
#ifndef RM_KERNELS_KERNELS_H
#define RM_KERNELS_KERNELS_H

#include "kernels/attn.h"

#include <stdbool.h>

/* Scratch of a matmul call, 64-byte aligned. */
enum { RM_MATMUL_SCRATCH = 20 << 10 };

/* y(row, strip) = products of all rows of x (at most RM_CHUNK_ROWS_MAX) with one strip.
 * For row r and output lane l, all steps in f32, in this order:
 *   32 a block   q8_0, q4_0, q4_1, q5_0, q5_1, iq4_nl, mxfp4; per block, from acc = 0:
 *                acc = fma(d[l] * xd, (float)sum(q * x), acc)      q: the signed weight
 *   q4_1, q5_1   and after it
 *                acc = fma(m[l], xds, acc)                  xds = xd * (float)sum(x)
 *   256 a block  q2_k .. q6_k, iq4_xs; per block, from acc = 0:
 *                acc = fma(d[l] * xd, (float)sum(scale * q * x), acc)
 *   q2_k, q4_k, q5_k  and after it
 *                acc = fma(-(dmin[l] * xd), (float)sum(min * x), acc)
 *   f16, bf16, f32  four chains, c[j] over k = j, j + 4, ..: c[j] = fma(w[k][l], x[k], c[j])
 *                   from 0;
 *                acc = (c[0] + c[1]) + (c[2] + c[3])
 * x->k_count is the strip's padded k; x->kind fits the format. */
typedef void rm_matmul_fn(const rm_out *y, uint32_t strip, const void *strip_bytes,
                          const rm_acts *x, void *scratch);

typedef struct rm_kernels {
    const char *name;

    rm_matmul_fn *matmul[RM_FORMAT_COUNT];

    /* Writes k_first .. k_first + k_count - 1 of one row of x from f (k_count floats). k_first is a
     * multiple of 64 (RM_ACT_Q8K: of 256, since a block needs its whole range at once); k_count
     * too, unless it reaches the end of the unpadded row: what is missing to a multiple becomes
     * zero.
     * RM_ACT_Q8, per block of 32, and RM_ACT_Q8K, per block of 256: d = max|f| / 127, q = round(f
     * * (127 / max|f|)) to nearest even; d and q are 0 when max|f| is below 2^-100. A block with a
     * NaN or an infinity gets d = NaN and q = 0, so that the products say so.
     * RM_ACT_F32: a copy. */
    void (*act_put)(rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count, const float *f);

    /* rm_out_row(): results of one row as contiguous floats. What reads them next reads whole
     * vectors, and gets them from the store buffer only if they were written as such. */
    void (*out_row)(float *out, const rm_out *y, uint32_t row, uint32_t strip_first,
                    uint32_t strip_count);

    /* What act_put lost of f: out[i] = f[i] - d * q[i] of a quantized row, both steps rounded.
     * k_first and k_count as for act_put; out is not f. */
    void (*act_rest)(float *out, const rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count,
                     const float *f);

    /* out[i] = x[i] * (1 / sqrt(sum(x^2) / n + epsilon)) * weight[i], rounded after each product.
     * The sum: element i belongs to virtual lane i % 16 (fused steps, in order), then the tree
     * 16 -> 8 -> 4 -> 2 -> 1 (lane j += lane j + half). out may be x. Any n > 0. */
    void (*rms_norm)(float *out, const float *x, const float *weight, size_t n, float epsilon);

    /* out[i] = silu(gate[i]) * up[i]: SiLU (Elfwing et al., 2017) as the gate of a linear unit.
     * With e = exp(-|g|): g / (1 + e) for g >= 0, else g * e / (1 + e). out may be gate or up. */
    void (*swiglu)(float *out, const float *gate, const float *up, size_t n);

    /* The same with GELU in its tanh form (Hendrycks and Gimpel, 2016), which is g * sigmoid(u):
     * u = g * (RM_GELU_A + RM_GELU_B * (g * g)), e = exp(-|u|), then as above, with u's sign. */
    void (*geglu)(float *out, const float *gate, const float *up, size_t n);

    /* x[i] += y[i]. */
    void (*add)(float *x, const float *y, size_t n);

    /* cos_out[i] = scale * cos(position * frequency[i]), and sin. Angles are reduced in double. */
    void (*rope_angles)(float *cos_out, float *sin_out, const double *frequency, size_t n,
                        uint32_t position, float scale);

    /* Rotates pairs by angle i (Su et al., RoFormer, 2021): x[a], x[b] = x[a]*c - x[b]*s,
     * x[a]*s + x[b]*c, each product rounded. rope_pairs: a = 2i, b = 2i + 1 (llama files);
     * rope_halves: a = i, b = i + n (NeoX order). n pairs, x has 2n floats. */
    void (*rope_pairs)(float *x, const float *cos_in, const float *sin_in, size_t n);
    void (*rope_halves)(float *x, const float *cos_in, const float *sin_in, size_t n);

    /* Attention of all queries of a job over one span; see attn.h for the answer. */
    void (*attn_span)(const rm_attn_job *job);

    /* Writes token t of a page; see rm_page_put(). Same bytes from every set. */
    void (*page_put)(void *page, rm_kv_format f, uint32_t dim, uint32_t t, const float *k,
                     const float *v);

    /* Largest of n > 0 floats; its index is the lowest that has it. NaN gives index n. */
    size_t (*argmax)(const float *x, size_t n);

    /* Sum over i of exp(x[i] - max), for log-softmax: 16 virtual lanes, then the tree. */
    float (*sum_exp)(const float *x, size_t n, float max);

    /* Whether every one of n floats is finite. */
    bool (*all_finite)(const float *x, size_t n);
} rm_kernels;

enum {
    RM_CPU_AVX2 = 1 << 0,
    RM_CPU_AVX_VNNI = 1 << 1,
    RM_CPU_AVX512 = 1 << 2,
    RM_CPU_AMX = 1 << 3
};

/* What this CPU and this operating system can run. Asks the system for the use of tiles, once for
 * the whole process: their state makes what is saved of a thread 8 KiB larger. */
unsigned rm_cpu_features(void);

/* Every set this binary has, best last; NULL ends the list. For tests. */
const rm_kernels *const *rm_kernels_all(void);

/* Returns the best set that features allow, or the one called name (REMAT_KERNELS, tests);
 * NULL when there is no such set or the machine cannot run it. */
const rm_kernels *rm_kernels_select(const char *name, unsigned features);

/* exp(x), the polynomial that the kernels use; 0 below -80, at most exp(88). For sampling. */
float rm_exp(float x);

#endif /* RM_KERNELS_KERNELS_H */
