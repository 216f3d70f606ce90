/*
 * ref.c: the reference set. It defines the answer: plain C, clear before fast. Part: kernels.
 *
 * fmaf is a fused step and nothing else is one (the build has -ffp-contract=off), so the order of
 * roundings is what is written here. Attention is in ref_attn.c.
 */
#include "kernels/kernels_impl.h"

#include <math.h>

/* --- matrix products ---------------------------------------------------------------------- */

static void clear(const rm_out *y, uint32_t strip, uint32_t row_count) {
    for (uint32_t r = 0; r < row_count; r++)
        memset(rm_out_at(y, r, strip), 0, RM_LANES * sizeof(float));
}

static void matmul_q(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                     const rm_acts *x) {
    clear(y, strip, x->row_count);
    for (size_t kb = 0; kb < x->k_count / 32; kb++) {
        for (size_t l = 0; l < RM_LANES; l++) {
            rm_block_numbers w;
            rm_block_numbers_of(&w, f, strip_bytes, kb, l);
            for (uint32_t r = 0; r < x->row_count; r++) {
                const int8_t *q = rm_acts_q(x, r, kb);
                const size_t at = rm_acts_block(x, r, kb);
                int32_t sum = 0;
                for (size_t k = 0; k < 32; k++)
                    sum += w.q[k] * q[k];
                float *acc = rm_out_at(y, r, strip) + l;
                *acc = fmaf(w.d * x->d[at], (float)sum, *acc);
                if (f == RM_Q4_1 || f == RM_Q5_1) *acc = fmaf(w.m, x->ds[at], *acc);
            }
        }
    }
}

/* Sums are below 2^27.1 in size: 256 k of 127 times 32 * 128 (q6_k) or 127 * 32 (iq4_xs), the
 * others less. Sets that add 2^shift to the weights stay below 256 * 127 * 63 * 128 < 2^28. */
static void matmul_k(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                     const rm_acts *x) {
    const size_t sb_count = x->k_count / RM_SUPER_K;
    clear(y, strip, x->row_count);
    for (size_t sb = 0; sb < sb_count; sb++) {
        for (size_t l = 0; l < RM_LANES; l++) {
            rm_k_numbers w;
            rm_k_numbers_of(&w, f, strip_bytes, sb_count, sb, l);
            for (uint32_t r = 0; r < x->row_count; r++) {
                const size_t at = rm_acts_block(x, r, sb);
                const int16_t *sums = x->sums + at * RM_SUMS;
                int32_t sum = 0, min_sum = 0;
                for (size_t k = 0; k < RM_SUPER_K; k++)
                    sum += w.scale[k / 16] * w.q[k] * rm_acts_q(x, r, sb * 8 + k / 32)[k % 32];
                for (size_t i = 0; i < 16; i++)
                    min_sum += w.min[i] * sums[i];
                float *acc = rm_out_at(y, r, strip) + l;
                *acc = fmaf(w.d * x->d[at], (float)sum, *acc);
                if (rm_k_mins(f)) *acc = fmaf(-(w.dmin * x->d[at]), (float)min_sum, *acc);
            }
        }
    }
}

static void matmul_f(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                     const rm_acts *x) {
    const float *w32 = strip_bytes;
    const uint16_t *w16 = strip_bytes;
    for (uint32_t r = 0; r < x->row_count; r++) {
        const float *row = x->f + (size_t)r * x->k_count;
        for (size_t l = 0; l < RM_LANES; l++) {
            float c[4] = {0};
            for (size_t k = 0; k < x->k_count; k++) {
                const size_t i = k * RM_LANES + l;
                const float w = f == RM_F32   ? w32[i]
                                : f == RM_F16 ? rm_f16_to_f32(w16[i])
                                              : rm_from_bits((uint32_t)w16[i] << 16);
                c[k % 4] = fmaf(w, row[k], c[k % 4]);
            }
            rm_out_at(y, r, strip)[l] = (c[0] + c[1]) + (c[2] + c[3]);
        }
    }
}

#define MATMUL(name, f, by)                                                                        \
    static void matmul_##name(const rm_out *y, uint32_t strip, const void *strip_bytes,            \
                              const rm_acts *x, void *scratch) {                                   \
        (void)scratch;                                                                             \
        by(f, y, strip, strip_bytes, x);                                                           \
    }

MATMUL(f32, RM_F32, matmul_f)
MATMUL(f16, RM_F16, matmul_f)
MATMUL(bf16, RM_BF16, matmul_f)
MATMUL(q8_0, RM_Q8_0, matmul_q)
MATMUL(q4_0, RM_Q4_0, matmul_q)
MATMUL(q4_1, RM_Q4_1, matmul_q)
MATMUL(q5_0, RM_Q5_0, matmul_q)
MATMUL(q5_1, RM_Q5_1, matmul_q)
MATMUL(iq4_nl, RM_IQ4_NL, matmul_q)
MATMUL(mxfp4, RM_MXFP4, matmul_q)
MATMUL(q2_k, RM_Q2_K, matmul_k)
MATMUL(q3_k, RM_Q3_K, matmul_k)
MATMUL(q4_k, RM_Q4_K, matmul_k)
MATMUL(q5_k, RM_Q5_K, matmul_k)
MATMUL(q6_k, RM_Q6_K, matmul_k)
MATMUL(iq4_xs, RM_IQ4_XS, matmul_k)

/* --- activations -------------------------------------------------------------------------- */

/* The largest |f| of a block as an integer, so that NaN and infinity are the largest of all. */
static uint32_t top_bits(const float *f, uint32_t count) {
    uint32_t top = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t u = rm_bits(f[i]) & 0x7fffffff;
        top = u > top ? u : top;
    }
    return top;
}

static int8_t quantized(float f, float inverse) {
    const float shifted = f * inverse + RM_EXP2_ROUND; /* rounds to an integer */
    return (int8_t)(int32_t)(shifted - RM_EXP2_ROUND);
}

static void quantize_block(rm_acts *x, uint32_t row, size_t kb, const float *f, uint32_t count) {
    int8_t *q = rm_acts_q(x, row, kb);
    const size_t at = rm_acts_block(x, row, kb);
    float inverse;
    x->d[at] = rm_quant_scale(&inverse, top_bits(f, count));
    int32_t sum = 0;
    memset(q, 0, 32);
    for (uint32_t i = 0; i < count && inverse > 0; i++) {
        q[i] = quantized(f[i], inverse);
        sum += q[i];
    }
    x->neg_sum[at] = -sum;
    x->ds[at] = x->d[at] * (float)sum;
}

static void quantize_super(rm_acts *x, uint32_t row, size_t sb, const float *f, uint32_t count) {
    const size_t at = rm_acts_block(x, row, sb);
    int16_t *sums = x->sums + at * RM_SUMS;
    float inverse;
    x->d[at] = rm_quant_scale(&inverse, top_bits(f, count));
    memset(sums, 0, RM_SUMS * sizeof *sums);
    for (uint32_t i = 0; i < RM_SUPER_K; i++) {
        const int8_t q = i < count && inverse > 0 ? quantized(f[i], inverse) : 0;
        rm_acts_q(x, row, sb * 8 + i / 32)[i % 32] = q;
        sums[i / 16] = (int16_t)(sums[i / 16] + q);
        sums[16 + i / 32] = (int16_t)(sums[16 + i / 32] + q);
    }
}

static void act_put(rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count, const float *f) {
    const uint32_t padded = rm_pad_k_of(x->kind, k_count), block = rm_act_block(x->kind);
    RM_DASSERT(k_first % rm_pad_k_of(x->kind, 1) == 0);
    RM_DASSERT(k_first + padded <= x->k_count);
    if (x->kind == RM_ACT_F32) {
        float *out = x->f + (size_t)row * x->k_count + k_first;
        memcpy(out, f, k_count * sizeof *f);
        memset(out + k_count, 0, (padded - k_count) * sizeof *f);
        return;
    }
    for (uint32_t k = 0; k < padded; k += block) {
        const uint32_t left = k < k_count ? k_count - k : 0, n = left < block ? left : block;
        const float *from = f + (left > 0 ? k : 0);
        if (x->kind == RM_ACT_Q8K)
            quantize_super(x, row, (k_first + k) / block, from, n);
        else
            quantize_block(x, row, (k_first + k) / block, from, n);
    }
}

static void act_rest(float *out, const rm_acts *x, uint32_t row, uint32_t k_first, uint32_t k_count,
                     const float *f) {
    const uint32_t block = rm_act_block(x->kind);
    for (uint32_t i = 0; i < k_count; i++) {
        const uint32_t k = k_first + i;
        const float kept =
            x->d[rm_acts_block(x, row, k / block)] * (float)rm_acts_q(x, row, k / 32)[k % 32];
        out[i] = f[i] - kept;
    }
}

/* --- rows --------------------------------------------------------------------------------- */

static void rms_norm(float *out, const float *x, const float *weight, size_t n, float epsilon) {
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] = fmaf(x[i], x[i], lanes[i % 16]);
    const float scale = 1.0f / sqrtf(rm_tree16(lanes) / (float)n + epsilon);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

/* exp(x), saturating at exp(88); 0 below -80; NaN stays NaN. x * log2(e) = n + r, |r| <= 0.5. */
float rm_exp(float x) {
    if (x < RM_EXP_LEAST) return 0;
    if (x > RM_EXP_MOST) x = RM_EXP_MOST;
    const float z = fmaf(x, RM_LOG2E, RM_EXP2_ROUND), n = z - RM_EXP2_ROUND;
    const float r = fmaf(x, RM_LOG2E_LOW, fmaf(x, RM_LOG2E, -n));
    float p = rm_exp2_c[5];
    for (int i = 4; i >= 0; i--)
        p = fmaf(p, r, rm_exp2_c[i]);
    return p * rm_from_bits((rm_bits(z) << 23) + 0x3f800000); /* times 2^n: exact */
}

/* With e = exp(-|g|) neither a large nor a small gate can overflow:
 * g >= 0: g / (1 + e); g < 0: g * e / (1 + e). */
static void swiglu(float *out, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float g = gate[i], e = rm_exp(-fabsf(g));
        out[i] = (g < 0 ? g * e : g) / (1.0f + e) * up[i];
    }
}

static void geglu(float *out, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float g = gate[i], u = g * (RM_GELU_A + RM_GELU_B * (g * g)), e = rm_exp(-fabsf(u));
        out[i] = (u < 0 ? g * e : g) / (1.0f + e) * up[i];
    }
}

static void add(float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* --- rotation ----------------------------------------------------------------------------- */

/* pi/2 in two parts. The first has 28 bits, so that its product with a quadrant below 2^25 is
 * exact. */
#define TWO_OVER_PI  0x1.45f306dc9c883p-1
#define HALF_PI_HIGH 0x1.921fb54p+0
#define HALF_PI_LOW  0x1.10b4611a62633p-30
#define ROUND_DOUBLE 0x1.8p52 /* the adder rounds to an integer, whose low bits end the number */

/* Taylor series on -pi/4 .. pi/4: the first terms left out are below 2e-9 and 2e-10. */
static double sine(double r) {
    const double s = r * r;
    return r + r * s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880))));
}

static double cosine(double r) {
    const double s = r * r;
    return 1 + s * (-1.0 / 2 +
                    s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320 + s * (-1.0 / 3628800)))));
}

static void rope_angles(float *cos_out, float *sin_out, const double *frequency, size_t n,
                        uint32_t position, float scale) {
    for (size_t i = 0; i < n; i++) {
        const double theta = (double)position * frequency[i];
        const double shifted = theta * TWO_OVER_PI + ROUND_DOUBLE, q = shifted - ROUND_DOUBLE;
        const double r = (theta - q * HALF_PI_HIGH) - q * HALF_PI_LOW;
        const float c = (float)cosine(r), s = (float)sine(r);
        uint64_t quadrant;
        memcpy(&quadrant, &shifted, sizeof quadrant);
        const float turned_c = quadrant & 1 ? s : c, turned_s = quadrant & 1 ? c : s;
        cos_out[i] = scale * ((quadrant + 1) & 2 ? -turned_c : turned_c);
        sin_out[i] = scale * (quadrant & 2 ? -turned_s : turned_s);
    }
}

static void rope_pairs(float *x, const float *cos_in, const float *sin_in, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos_in[i] - b * sin_in[i];
        x[2 * i + 1] = a * sin_in[i] + b * cos_in[i];
    }
}

static void rope_halves(float *x, const float *cos_in, const float *sin_in, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float a = x[i], b = x[i + n];
        x[i] = a * cos_in[i] - b * sin_in[i];
        x[i + n] = a * sin_in[i] + b * cos_in[i];
    }
}

/* --- logits ------------------------------------------------------------------------------- */

static size_t argmax(const float *x, size_t n) {
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != x[i]) return n;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

static float sum_exp(const float *x, size_t n, float max) {
    float lanes[16] = {0};
    for (size_t i = 0; i < n; i++)
        lanes[i % 16] += rm_exp(x[i] - max);
    return rm_tree16(lanes);
}

static bool all_finite(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if ((rm_bits(x[i]) & 0x7f800000) == 0x7f800000) return false;
    }
    return true;
}

void rm_kernels_init_ref(rm_kernels *t) {
    *t = (rm_kernels){
        .name = "ref",
        .matmul = {[RM_F32] = matmul_f32,
                   [RM_F16] = matmul_f16,
                   [RM_Q8_0] = matmul_q8_0,
                   [RM_Q4_0] = matmul_q4_0,
                   [RM_Q4_1] = matmul_q4_1,
                   [RM_BF16] = matmul_bf16,
                   [RM_Q5_0] = matmul_q5_0,
                   [RM_Q5_1] = matmul_q5_1,
                   [RM_IQ4_NL] = matmul_iq4_nl,
                   [RM_MXFP4] = matmul_mxfp4,
                   [RM_Q2_K] = matmul_q2_k,
                   [RM_Q3_K] = matmul_q3_k,
                   [RM_Q4_K] = matmul_q4_k,
                   [RM_Q5_K] = matmul_q5_k,
                   [RM_Q6_K] = matmul_q6_k,
                   [RM_IQ4_XS] = matmul_iq4_xs},
        .act_put = act_put,
        .out_row = rm_out_row,
        .act_rest = act_rest,
        .rms_norm = rms_norm,
        .swiglu = swiglu,
        .geglu = geglu,
        .add = add,
        .rope_angles = rope_angles,
        .rope_pairs = rope_pairs,
        .rope_halves = rope_halves,
        .argmax = argmax,
        .sum_exp = sum_exp,
        .all_finite = all_finite,
    };
}
