/*
 * kernels_impl.h: what the kernel sets share. Part: kernels; included by its .c files only.
 *
 * Everything here is static and compiled with the flags of the file that includes it. Constants
 * are part of the answer: a change here changes bits in every set.
 */
#ifndef RM_KERNELS_IMPL_H
#define RM_KERNELS_IMPL_H

#include "kernels/kernels.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16") /* keeps arrays with constant indices in registers */
#endif

/* Each fills in or replaces the pointers that its file improves. */
void rm_kernels_init_ref(rm_kernels *t);
void rm_kernels_init_ref_attn(rm_kernels *t);
void rm_kernels_init_avx2(rm_kernels *t);
void rm_kernels_init_avx2_attn(rm_kernels *t);
void rm_kernels_init_avx2_rows(rm_kernels *t);
void rm_kernels_init_avx512(rm_kernels *t);
void rm_kernels_init_avx512_attn(rm_kernels *t);
void rm_kernels_init_avx512_rows(rm_kernels *t);

/* --- exponentials ------------------------------------------------------------------------- */

/* 2^r for -0.5 <= r <= 0.5: minimax, relative error below 1e-7. */
#define RM_EXP2_C                                                                                  \
    { 0x1p+0f, 0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea88p-7f, 0x1.5bba1ep-10f }
static const float rm_exp2_c[6] = RM_EXP2_C;

#define RM_EXP2_ROUND 12582912.0f /* 1.5 * 2^23: the adder rounds to an integer, nearest even */
#define RM_EXP2_LEAST (-100.0f)   /* exp2n is 0 below: no denormals in the sums of attention */
#define RM_EXP_LEAST  (-80.0f)    /* the same for base e */
#define RM_EXP_MOST   88.0f       /* exp(88) is below the largest float */
/* log2(e) as two floats: x * log2(e) - n then is good to 2^-26 for every x above. */
#define RM_LOG2E     0x1.715476p+0f
#define RM_LOG2E_LOW 0x1.4ae0cp-26f

#define RM_M_START  (-1e30f) /* no infinities: inf - inf cannot occur in finite attention */
#define RM_S_UNSEEN (-3e38f)
#define RM_M_MOST   0x1.fffffep127f /* what a state keeps of an infinite m: see ref_attn.c */

/* --- quantizing --------------------------------------------------------------------------- */

#define RM_QUANT_TOP   127.0f
#define RM_QUANT_LEAST 0x1p-100f /* a block below this is zero: 127 / max stays finite */

static inline uint32_t rm_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float rm_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Scale of a block whose largest |f| has these bits; *inverse multiplies the values. A block with
 * a NaN or an infinity gets a NaN as its scale, so that every product of it is NaN. */
static inline float rm_quant_scale(float *inverse, uint32_t top_bits) {
    const float top = rm_from_bits(top_bits);
    *inverse = 0;
    if (top_bits >= 0x7f800000) return rm_from_bits(0x7fc00000);
    if (top < RM_QUANT_LEAST) return 0;
    *inverse = RM_QUANT_TOP / top;
    return top / RM_QUANT_TOP;
}

/* --- activations in groups ---------------------------------------------------------------- */

/* The 32 bytes of block kb of a row; the next block of 64 k is rm_group_rows() * 64 further. */
static inline int8_t *rm_acts_q(const rm_acts *x, uint32_t row, size_t kb) {
    const uint32_t first = row / RM_GROUP * RM_GROUP, n = rm_group_rows(x->row_count, first);
    return x->q + (size_t)first * x->k_count + (kb / 2 * n + (row - first)) * 64 + kb % 2 * 32;
}

/* Index of a row's block kb in d, ds and neg_sum; the next block is rm_group_rows() further. */
static inline size_t rm_acts_block(const rm_acts *x, uint32_t row, size_t kb) {
    const uint32_t first = row / RM_GROUP * RM_GROUP, n = rm_group_rows(x->row_count, first);
    return (size_t)first * (x->k_count / 32) + kb * n + (row - first);
}

/* --- operands of a quantized product ------------------------------------------------------ */

/* Activations of some rows of a group, from a block on. */
typedef struct rm_group_view {
    const int8_t *q;
    const float *d, *ds;
    const int32_t *neg_sum;
    size_t q_step, step; /* to the next 64 k; to the next block */
} rm_group_view;

/* Row r of the group of n rows that starts at row `first`, from block kb on. */
static inline rm_group_view rm_group_at(const rm_acts *x, uint32_t first, uint32_t r, uint32_t n,
                                        size_t kb) {
    const size_t at = rm_acts_block(x, first + r, kb);
    return (rm_group_view){.q = rm_acts_q(x, first + r, kb),
                           .d = x->d + at,
                           .ds = x->ds + at,
                           .neg_sum = x->neg_sum + at,
                           .q_step = (size_t)n * 64,
                           .step = n};
}

/* Block kb of a strip: its vectors of weights and its scales. */
typedef struct rm_block_view {
    const uint8_t *q;
    const uint16_t *d, *m; /* m: q4_1 */
    size_t bytes;
} rm_block_view;

static inline rm_block_view rm_block_at(rm_format f, const void *strip, size_t kb) {
    const rm_pack_q8_0 *q8_0 = strip;
    const rm_pack_q4_0 *q4_0 = strip;
    const rm_pack_q4_1 *q4_1 = strip;
    const size_t p = kb / 2, h = kb % 2;
    const size_t bytes = f == RM_Q8_0   ? sizeof *q8_0 / 2
                         : f == RM_Q4_0 ? sizeof *q4_0 / 2
                                        : sizeof *q4_1 / 2;
    const void *q = f == RM_Q8_0   ? (const void *)q8_0[p].q[h]
                    : f == RM_Q4_0 ? (const void *)q4_0[p].q[h]
                                   : (const void *)q4_1[p].b[h].q;
    if (f == RM_Q8_0) return (rm_block_view){q, q8_0[p].d[h], NULL, bytes};
    if (f == RM_Q4_0) return (rm_block_view){q, q4_0[p].d[h], NULL, bytes};
    return (rm_block_view){q, q4_1[p].b[h].d, q4_1[p].b[h].m, bytes};
}

/* A block in scratch: bytes in order of k, scales in f32. */
typedef struct rm_unpacked {
    uint8_t q[8][64];
    float d[RM_LANES], m[RM_LANES];
} rm_unpacked;

enum { RM_RUN_BLOCKS = 24 }; /* blocks in scratch at a time: 15 KiB, a third of L1 */

_Static_assert(RM_RUN_BLOCKS * sizeof(rm_unpacked) <= RM_MATMUL_SCRATCH, "a run fits the scratch");
_Static_assert(RM_RUN_BLOCKS % 2 == 0, "a run is whole packed blocks");

/* Asks for bytes that lie 4 KiB ahead in the stream of strips (2 to 8 KiB were equally good). The
 * hardware's own stream stops at each page: this gave 25 % at one thread and at two. */
INLINE void rm_ahead(const void *p, size_t bytes) {
    const char *c = (const char *)p + 4096;
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(c + i);
}

/* --- attention ---------------------------------------------------------------------------- */

/* Whether one of the queries first .. first + count - 1 sees a token of the page `page_first`. */
INLINE bool rm_any_sees(const rm_attn_job *job, uint32_t first, uint32_t count,
                        uint32_t page_first) {
    bool any = false;
    for (uint32_t i = first; i < first + count; i++)
        any = any || (job->seen[i] > page_first && job->from[i] < page_first + RM_PAGE_TOKENS &&
                      job->from[i] < job->seen[i]);
    return any;
}

/* Tokens that some query of the job sees lie in from .. seen - 1. */
INLINE void rm_job_range(const rm_attn_job *job, uint32_t *from, uint32_t *seen) {
    *from = RM_SPAN_TOKENS;
    *seen = 0;
    for (uint32_t i = 0; i < job->query_count; i++) {
        if (job->from[i] >= job->seen[i]) continue;
        *from = job->from[i] < *from ? job->from[i] : *from;
        *seen = job->seen[i] > *seen ? job->seen[i] : *seen;
    }
}

/* 2 sqrt(2 / pi), and that times 0.044715. */
#define RM_GELU_A 1.5957691216057308f
#define RM_GELU_B 0.0713548162726009f

/* --- sums --------------------------------------------------------------------------------- */

/* 16 -> 8 -> 4 -> 2 -> 1. Destroys v. */
static inline float rm_tree16(float *v) {
    for (int half = 8; half > 0; half /= 2) {
        for (int j = 0; j < half; j++)
            v[j] += v[j + half];
    }
    return v[0];
}

#endif /* RM_KERNELS_IMPL_H */
