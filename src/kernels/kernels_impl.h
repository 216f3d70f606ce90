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
void rm_kernels_init_avx2_k(rm_kernels *t);
void rm_kernels_init_avx2_attn(rm_kernels *t);
void rm_kernels_init_avx2_rows(rm_kernels *t);
void rm_kernels_init_avx2_vnni(rm_kernels *t);
void rm_kernels_init_avx2_vnni_k(rm_kernels *t);
void rm_kernels_init_avx512(rm_kernels *t);
void rm_kernels_init_avx512_k(rm_kernels *t);
void rm_kernels_init_avx512_attn(rm_kernels *t);
void rm_kernels_init_avx512_rows(rm_kernels *t);
void rm_kernels_init_amx(rm_kernels *t);
void rm_kernels_init_amx_k(rm_kernels *t);

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
    return (size_t)first * (x->k_count / rm_act_block(x->kind)) + kb * n + (row - first);
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
    const uint8_t *q, *h;  /* h: the fifth bits of q5_0 and q5_1 */
    const uint16_t *d, *m; /* m: q4_1, q5_1 */
    const uint8_t *e;      /* mxfp4 */
    size_t bytes;
} rm_block_view;

INLINE rm_block_view rm_block_at(rm_format f, const void *strip, size_t kb) {
    const size_t p = kb / 2, i = kb % 2;
    if (f == RM_Q8_0) {
        const rm_pack_q8_0 *w = (const rm_pack_q8_0 *)strip + p;
        return (rm_block_view){
            .q = (const uint8_t *)w->q[i][0][0], .d = w->d[i], .bytes = sizeof *w / 2};
    }
    if (f == RM_Q4_0 || f == RM_IQ4_NL) {
        const rm_pack_q4_0 *w = (const rm_pack_q4_0 *)strip + p;
        return (rm_block_view){.q = w->q[i][0][0], .d = w->d[i], .bytes = sizeof *w / 2};
    }
    if (f == RM_Q5_0) {
        const rm_pack_q5_0 *w = (const rm_pack_q5_0 *)strip + p;
        return (rm_block_view){
            .q = w->b[i].q[0][0], .h = w->b[i].h[0], .d = w->d[i], .bytes = sizeof *w / 2};
    }
    if (f == RM_Q5_1) {
        const rm_pack_q5_1 *w = (const rm_pack_q5_1 *)strip + p;
        return (rm_block_view){.q = w->b[i].q[0][0],
                               .h = w->b[i].h[0],
                               .d = w->b[i].d,
                               .m = w->b[i].m,
                               .bytes = sizeof *w / 2};
    }
    if (f == RM_MXFP4) {
        const rm_pack_mxfp4 *w = (const rm_pack_mxfp4 *)strip + kb / 4;
        return (rm_block_view){.q = w->q[kb % 4][0][0], .e = w->e[kb % 4], .bytes = sizeof *w / 4};
    }
    const rm_pack_q4_1 *w = (const rm_pack_q4_1 *)strip + p;
    return (rm_block_view){
        .q = w->b[i].q[0][0], .d = w->b[i].d, .m = w->b[i].m, .bytes = sizeof *w / 2};
}

/* A block in scratch: bytes in order of k, scales in f32. */
typedef struct rm_unpacked {
    uint8_t q[8][64];
    float d[RM_LANES], m[RM_LANES];
} rm_unpacked;

enum { RM_RUN_BLOCKS = 24 }; /* blocks in scratch at a time: 15 KiB, a third of L1 */

_Static_assert(RM_RUN_BLOCKS * sizeof(rm_unpacked) <= RM_MATMUL_SCRATCH, "a run fits the scratch");
_Static_assert(RM_RUN_BLOCKS % 2 == 0, "a run is whole packed blocks");

/* --- operands of a product by blocks of 256 ------------------------------------------------ */

/* Bytes of the scales d that stand together at the head of a strip (q3_k, q6_k). */
static inline size_t rm_head_bytes(rm_format f, size_t blocks) {
    return (blocks * rm_formats[f].head_bytes + 63) / 64 * 64;
}

/* Block sb of a strip; vectors as formats.h draws them. */
typedef struct rm_k_view {
    const uint16_t *d, *dmin;
    const uint8_t *scale; /* six, scale or low */
    const uint16_t *high; /* iq4_xs */
    const uint8_t *q, *h;
} rm_k_view;

#define RM_VECTORS(a) ((const uint8_t *)(const void *)(a))

INLINE rm_k_view rm_k_at(rm_format f, const void *strip, size_t sb_count, size_t sb) {
    if (f == RM_Q3_K || f == RM_Q6_K) {
        const uint16_t *d = (const uint16_t *)strip + sb * RM_LANES;
        const size_t head = (sb_count * 2 * RM_LANES + 63) / 64 * 64;
        const void *blocks = (const char *)strip + head;
        if (f == RM_Q3_K) {
            const rm_pack_q3_k *w = (const rm_pack_q3_k *)blocks + sb;
            return (rm_k_view){
                .d = d, .scale = RM_VECTORS(w->six), .q = RM_VECTORS(w->q), .h = RM_VECTORS(w->h)};
        }
        const rm_pack_q6_k *w = (const rm_pack_q6_k *)blocks + sb;
        return (rm_k_view){
            .d = d, .scale = RM_VECTORS(w->scale), .q = RM_VECTORS(w->q), .h = RM_VECTORS(w->h)};
    }
    if (f == RM_Q2_K) {
        const rm_pack_q2_k *w = (const rm_pack_q2_k *)strip + sb;
        return (rm_k_view){
            .d = w->d, .dmin = w->dmin, .scale = RM_VECTORS(w->scale), .q = RM_VECTORS(w->q)};
    }
    if (f == RM_Q4_K) {
        const rm_pack_q4_k *w = (const rm_pack_q4_k *)strip + sb;
        return (rm_k_view){
            .d = w->d, .dmin = w->dmin, .scale = RM_VECTORS(w->six), .q = RM_VECTORS(w->q)};
    }
    if (f == RM_Q5_K) {
        const rm_pack_q5_k *w = (const rm_pack_q5_k *)strip + sb;
        return (rm_k_view){.d = w->d,
                           .dmin = w->dmin,
                           .scale = RM_VECTORS(w->six),
                           .q = RM_VECTORS(w->q),
                           .h = RM_VECTORS(w->h)};
    }
    const rm_pack_iq4_xs *w = (const rm_pack_iq4_xs *)strip + sb;
    return (rm_k_view){
        .d = w->d, .scale = RM_VECTORS(w->low), .high = w->high, .q = RM_VECTORS(w->q)};
}

/* Bytes of a packed block. */
INLINE size_t rm_k_bytes(rm_format f) {
    return f == RM_Q2_K   ? sizeof(rm_pack_q2_k)
           : f == RM_Q3_K ? sizeof(rm_pack_q3_k)
           : f == RM_Q4_K ? sizeof(rm_pack_q4_k)
           : f == RM_Q5_K ? sizeof(rm_pack_q5_k)
           : f == RM_Q6_K ? sizeof(rm_pack_q6_k)
                          : sizeof(rm_pack_iq4_xs);
}

/* Scales of 16 k, not of 32. */
INLINE bool rm_k_sixteen(rm_format f) {
    return f == RM_Q2_K || f == RM_Q3_K || f == RM_Q6_K;
}

/* Weights have a min of their own. */
INLINE bool rm_k_mins(rm_format f) {
    return f == RM_Q2_K || f == RM_Q4_K || f == RM_Q5_K;
}

/* The stored weight is the weight + 2^shift (0: as it is). */
INLINE int rm_k_shift(rm_format f) {
    return f == RM_Q3_K ? 2 : f == RM_Q6_K ? 5 : f == RM_IQ4_XS ? 7 : 0;
}

/* Activations of some rows of a group, from a block of 256 on. */
typedef struct rm_k_group {
    const int8_t *q;
    const float *d;
    const int16_t *sums;
    size_t q_step, step; /* to the next 64 k; to the next block, in blocks */
} rm_k_group;

static inline rm_k_group rm_k_group_at(const rm_acts *x, uint32_t first, uint32_t r, uint32_t n,
                                       size_t sb) {
    const size_t at = rm_acts_block(x, first + r, sb);
    return (rm_k_group){.q = rm_acts_q(x, first + r, sb * 8),
                        .d = x->d + at,
                        .sums = x->sums + at * RM_SUMS,
                        .q_step = (size_t)n * 64,
                        .step = n};
}

/* --- weights as plain numbers: unpack.c ---------------------------------------------------- */

/* Values of 4-bit codes (times the scale). */
extern const int8_t rm_table_iq4[16], rm_table_mxfp4[16];

/* weight = q * d + m */
typedef struct rm_block_numbers {
    float d, m;
    int q[32];
} rm_block_numbers;

/* weight k = d * scale[k / 16] * q[k] - dmin * min[k / 16] */
typedef struct rm_k_numbers {
    float d, dmin;
    int scale[16], min[16], q[RM_SUPER_K];
} rm_k_numbers;

void rm_block_numbers_of(rm_block_numbers *out, rm_format f, const void *strip, size_t kb,
                         size_t lane);
void rm_k_numbers_of(rm_k_numbers *out, rm_format f, const void *strip, size_t sb_count, size_t sb,
                     size_t lane);

/* --- packing: pack.c, pack_k.c -------------------------------------------------------------- */

static inline uint16_t rm_copy_u16(void *out, const void *in) {
    uint16_t v;
    memcpy(&v, in, sizeof v);
    memcpy(out, &v, sizeof v);
    return v;
}

static inline uint32_t rm_get_u32(const void *in) {
    uint32_t v;
    memcpy(&v, in, sizeof v);
    return v;
}

static inline void rm_put_u32(void *out, uint32_t v) {
    memcpy(out, &v, sizeof v);
}

static inline void rm_copy_u32(void *out, const void *in) {
    memcpy(out, in, 4);
}

/* Bit l of the result: row l has an infinity or NaN. */
static inline uint32_t rm_f16_bad(uint16_t h, uint32_t lane) {
    return (uint32_t)((h & 0x7c00) == 0x7c00) << lane;
}

/* Four 32-bit words in a vector that every CPU here has. */
typedef uint32_t rm_words __attribute__((vector_size(16)));
typedef uint16_t rm_halves __attribute__((vector_size(16)));

/* Word j of vector i becomes word i of vector j. */
INLINE void rm_turn_words(rm_words *w) {
    const rm_words a = __builtin_shufflevector(w[0], w[1], 0, 4, 1, 5);
    const rm_words b = __builtin_shufflevector(w[0], w[1], 2, 6, 3, 7);
    const rm_words c = __builtin_shufflevector(w[2], w[3], 0, 4, 1, 5);
    const rm_words d = __builtin_shufflevector(w[2], w[3], 2, 6, 3, 7);
    w[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    w[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    w[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    w[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/* The formats with blocks of 256; returns a bit per row with a scale that is not finite. */
uint32_t rm_pack_k(void *strip, rm_format f, const uint8_t *in, uint32_t rows, size_t blocks);

/* --- the stream of strips ------------------------------------------------------------------- */

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
