/*
 * formats.h: weights and activations in memory. Part: kernels.
 *
 * A STRIP is 16 output rows over all of k. Inside, a 32-bit lane belongs to one output row and
 * holds 4 consecutive k: the operand of vpdpbusd and vpmaddubsw, unchanged.
 *
 *     one 64-byte vector       lane 0          lane 1               lane 15
 *     of 8-bit weights     [k k+1 k+2 k+3 | k k+1 k+2 k+3 | ... | k k+1 k+2 k+3]
 *                            output row 0    output row 1          output row 15
 *     of 4-bit weights       low nibbles: k .. k+3; high nibbles: k+16 .. k+19
 *     of single bits         of 32 k: bit v of byte j is k = 4v + j, bit 4 + v is 16 + 4v + j
 *     of pairs of bits       of 2 x 8 k, vector i: from bit 0 the fields of byte j are
 *                            8i + j, 16 + 8i + j, 4 + 8i + j, 20 + 8i + j
 *     of f16, bf16 and f32   [k of output row 0 | k of output row 1 | ...]
 *
 * A strip is a run of packed blocks of 64, 128 or 256 k, each a multiple of 64 bytes: as many bytes
 * as in GGUF. (The scales d of q3_k and q6_k would not fill a line: they stand together at the head
 * of the strip.) Output rows are padded to 16 and k to whole packed blocks with zeros.
 *
 * ACTIVATIONS are in groups of up to 16 rows. For quantized weights they are 8-bit; the same bytes
 * then serve tiles (16 rows x 64 bytes, 1 KiB in a run) and a broadcast of 4 k of one row:
 *
 *     q[group][k / 64][row in group][k % 64]
 *     RM_ACT_Q8   d, ds, neg_sum: [group][k / 32][row in group]
 *     RM_ACT_Q8K  d, sums:        [group][k / 256][row in group]
 *
 * The last group has row_count % 16 rows; one row alone is therefore plain contiguous k.
 * For f16, bf16 and f32 weights they stay f32, row-major: f[row][k_padded].
 *
 * RESULTS are tiles too: at[group][strip][row in group][16]. (Row-major results of 512 rows put
 * each 64-byte line on a page of its own, and writing them took longer than the products.)
 */
#ifndef RM_KERNELS_FORMATS_H
#define RM_KERNELS_FORMATS_H

#include "base/check.h"

#include <stddef.h>

enum {
    RM_LANES = 16, /* output rows of a strip */
    RM_GROUP = 16, /* rows of a group of activations */
    RM_PACK_K = 64,
    RM_SUPER_K = 256, /* k of a block of RM_ACT_Q8K, of the K formats and of iq4_xs */
    RM_SUMS = 24,     /* sums of such a block: 16 of 16 k, then 8 of 32 k */
};

/* In the order of remat's own table; the GGUF type numbers are in rm_formats[]. */
typedef enum rm_format {
    RM_F32,
    RM_F16,
    RM_Q8_0,
    RM_Q4_0,
    RM_Q4_1,
    RM_BF16,
    RM_Q5_0,
    RM_Q5_1,
    RM_IQ4_NL,
    RM_MXFP4,
    RM_Q2_K,
    RM_Q3_K,
    RM_Q4_K,
    RM_Q5_K,
    RM_Q6_K,
    RM_IQ4_XS,
    RM_FORMAT_COUNT
} rm_format;

/* What a matrix product reads on the other side: 8 bits with a scale per 32 or per 256, or f32. */
typedef enum rm_act_kind { RM_ACT_F32, RM_ACT_Q8, RM_ACT_Q8K, RM_ACT_COUNT } rm_act_kind;

typedef struct rm_format_info {
    const char *name;
    uint32_t gguf_type;          /* its number in a GGUF file */
    uint32_t gguf_k, gguf_bytes; /* values and bytes of a block there */
    uint32_t pack_k, pack_bytes; /* k and bytes of 16 rows in a packed block */
    uint32_t head_bytes;         /* bytes of a packed block that stand at the strip's head */
    rm_act_kind act;
} rm_format_info;

extern const rm_format_info rm_formats[RM_FORMAT_COUNT];

/* The format of a GGUF type number, or RM_FORMAT_COUNT when it is not supported. */
rm_format rm_format_of_gguf(uint32_t gguf_type);

/* The name of any GGUF type number, supported or not ("type 99" becomes "unknown"). */
const char *rm_gguf_type_name(uint32_t gguf_type);

/* Packed blocks: 64 k of 16 rows. */
typedef struct rm_pack_q8_0 {
    uint16_t d[2][RM_LANES];
    int8_t q[2][8][RM_LANES][4]; /* [block of 32][k / 4][lane][k % 4] */
} rm_pack_q8_0;

typedef struct rm_pack_q4_0 {
    uint16_t d[2][RM_LANES];
    uint8_t q[2][4][RM_LANES][4]; /* weight = (q - 8) * d */
} rm_pack_q4_0;

typedef struct rm_pack_q4_1 {
    struct {
        uint16_t d[RM_LANES], m[RM_LANES];
        uint8_t q[4][RM_LANES][4]; /* weight = q * d + m */
    } b[2];
} rm_pack_q4_1;

typedef struct rm_pack_q5_0 {
    uint16_t d[2][RM_LANES];
    struct {
        uint8_t q[4][RM_LANES][4], h[RM_LANES][4]; /* weight = (q + 16 h - 16) * d */
    } b[2];
} rm_pack_q5_0;

typedef struct rm_pack_q5_1 {
    struct {
        uint16_t d[RM_LANES], m[RM_LANES];
        uint8_t q[4][RM_LANES][4], h[RM_LANES][4]; /* weight = (q + 16 h) * d + m */
    } b[2];
} rm_pack_q5_1;

typedef rm_pack_q4_0 rm_pack_iq4_nl; /* weight = rm_table_iq4[q] * d */

/* 128 k of 16 rows. */
typedef struct rm_pack_mxfp4 {
    uint8_t e[4][RM_LANES];       /* d = 2^(e - 128) */
    uint8_t q[4][4][RM_LANES][4]; /* weight = rm_table_mxfp4[q] * d */
} rm_pack_mxfp4;

/* --- packed blocks of 256 k of 16 rows ------------------------------------------------------ */

/* Four numbers of a group stand in the order 0 2 1 3: (word & 0x00ff00ff) is a 16-bit pair. */
static inline unsigned rm_place(unsigned i) {
    return i % 4 == 1 ? i + 1 : i % 4 == 2 ? i - 1 : i;
}

/* Sixteen 6-bit numbers in 12 bytes of a lane. Group g are the numbers 4g .. 4g + 3. Vector 0: low
 * 4 bits of groups 0 and 1 (in the high nibbles); vector 1: of groups 2 and 3; vector 2: the upper
 * 2 bits of all, group g from bit 2g on. */
typedef uint8_t rm_six[3][RM_LANES][4];

typedef struct rm_pack_q2_k {
    uint16_t d[RM_LANES], dmin[RM_LANES];
    uint8_t scale[4][RM_LANES][4]; /* of 16 k: low nibble; min: high nibble */
    uint8_t q[8][2][RM_LANES][4];  /* weight = d * scale * q - dmin * min */
} rm_pack_q2_k;

typedef struct rm_pack_q3_k {     /* d: [k / 256][16] at the strip's head */
    rm_six six;                   /* scales of 16 k, + 32 */
    uint8_t q[8][2][RM_LANES][4]; /* weight = d * (scale - 32) * (q + 4 h - 4) */
    uint8_t h[8][RM_LANES][4];
} rm_pack_q3_k;

typedef struct rm_pack_q4_k {
    uint16_t d[RM_LANES], dmin[RM_LANES];
    rm_six six;                   /* 8 scales of 32 k, then 8 mins */
    uint8_t q[8][4][RM_LANES][4]; /* weight = d * scale * q - dmin * min */
} rm_pack_q4_k;

typedef struct rm_pack_q5_k {
    uint16_t d[RM_LANES], dmin[RM_LANES];
    rm_six six;
    uint8_t q[8][4][RM_LANES][4]; /* weight = d * scale * (q + 16 h) - dmin * min */
    uint8_t h[8][RM_LANES][4];
} rm_pack_q5_k;

typedef struct rm_pack_q6_k {     /* d: [k / 256][16] at the strip's head */
    int8_t scale[4][RM_LANES][4]; /* of 16 k */
    uint8_t q[8][4][RM_LANES][4]; /* weight = d * scale * (q + 16 h - 32) */
    uint8_t h[8][2][RM_LANES][4];
} rm_pack_q6_k;

typedef struct rm_pack_iq4_xs {
    uint16_t d[RM_LANES];
    uint16_t high[RM_LANES];      /* upper 2 bits of the scales: bits 2i of both bytes, pair i */
    uint8_t low[RM_LANES][4];     /* lower 4 bits: blocks of 32 k 0 .. 3, high nibbles 4 .. 7 */
    uint8_t q[8][4][RM_LANES][4]; /* weight = d * (scale - 32) * rm_table_iq4[q] */
} rm_pack_iq4_xs;

_Static_assert(sizeof(rm_pack_q8_0) == 2 * 16 * 34, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q4_0) == 2 * 16 * 18, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q4_1) == 2 * 16 * 20, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q5_0) == 2 * 16 * 22, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q5_1) == 2 * 16 * 24, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_mxfp4) == 4 * 16 * 17, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q2_k) == 16 * 84, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q3_k) == 16 * 108, "same bytes as GGUF without d");
_Static_assert(sizeof(rm_pack_q4_k) == 16 * 144, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q5_k) == 16 * 176, "same bytes as GGUF");
_Static_assert(sizeof(rm_pack_q6_k) == 16 * 208, "same bytes as GGUF without d");
_Static_assert(sizeof(rm_pack_iq4_xs) == 16 * 136, "same bytes as GGUF");

static inline uint32_t rm_pad_k(uint32_t k) {
    return (k + RM_PACK_K - 1) / RM_PACK_K * RM_PACK_K;
}

/* k of a row of activations of this kind: whole blocks. */
static inline uint32_t rm_pad_k_of(rm_act_kind kind, uint32_t k) {
    return kind == RM_ACT_Q8K ? (k + RM_SUPER_K - 1) / RM_SUPER_K * RM_SUPER_K : rm_pad_k(k);
}

static inline uint32_t rm_strips(uint32_t outputs) {
    return (outputs + RM_LANES - 1) / RM_LANES;
}

/* Bytes of a strip of k_count (not padded) values a row. */
size_t rm_strip_bytes(rm_format f, uint32_t k_count);

/* Bytes of one row in a GGUF file. k_count is a multiple of the format's gguf_k. */
size_t rm_gguf_row_bytes(rm_format f, uint32_t k_count);

/* Interleaves row_count (1 .. 16) consecutive GGUF rows; missing rows and k become zero.
 * strip: rm_strip_bytes(), 64-byte aligned, all of it is written.
 * Returns the index of the first row that holds an infinite or NaN value or scale, or -1. */
int rm_pack_strip(void *strip, rm_format f, const void *gguf_rows, uint32_t row_count,
                  uint32_t k_count);

/* Row `lane` (0 .. 15) of a strip of k_count values a row as floats: an embedding. Rounded as the
 * field does: d * scale first, then times q, then minus dmin * min. */
void rm_unpack_row(float *out, rm_format f, const void *strip, uint32_t lane, uint32_t k_count);

/* Quantized or plain activations of row_count rows. Arrays of the other kind are NULL. */
typedef struct rm_acts {
    rm_act_kind kind;
    uint32_t row_count, k_count; /* k_count is padded: rm_pad_k_of() */
    int8_t *q;                   /* RM_ACT_Q8, RM_ACT_Q8K */
    float *d;                    /* scale of a block of 32, or of 256 */
    float *ds;                   /* RM_ACT_Q8: scale * (float)sum: one rounding */
    int32_t *neg_sum;            /* RM_ACT_Q8: -sum of q: kernels start from a multiple of it */
    int16_t *sums;               /* RM_ACT_Q8K: RM_SUMS sums of q: at most 32 * 127 */
    float *f;                    /* RM_ACT_F32: [row_count][k_count] */
} rm_acts;

/* k of a block with one scale. */
static inline uint32_t rm_act_block(rm_act_kind kind) {
    return kind == RM_ACT_Q8K ? RM_SUPER_K : 32;
}

/* Copies row `from` of x to row `to` of out: the same kind and k_count. */
void rm_acts_copy_row(rm_acts *out, uint32_t to, const rm_acts *x, uint32_t from);

/* Bytes that rm_acts_view() needs for so many rows: the arrays one after the other. */
size_t rm_acts_bytes(rm_act_kind kind, uint32_t row_count, uint32_t k_count);

/* Lays the arrays for row_count rows into memory (64-byte aligned, rm_acts_bytes()). */
rm_acts rm_acts_view(void *memory, rm_act_kind kind, uint32_t row_count, uint32_t k_count);

/* Rows in the group that starts at row `first` (a multiple of 16). */
static inline uint32_t rm_group_rows(uint32_t row_count, uint32_t first) {
    const uint32_t left = row_count - first;
    return left < RM_GROUP ? left : RM_GROUP;
}

/* Rows first .. first + count - 1 of x as activations of their own; first is a multiple of 16, and
 * so is count unless it reaches the end. */
rm_acts rm_acts_rows(const rm_acts *x, uint32_t first, uint32_t count);

/* Where a product puts its results: `strips` strips of 16 outputs for each row. */
typedef struct rm_out {
    float *at;
    uint32_t row_count, strips;
} rm_out;

/* The 16 results of one row and strip. */
static inline float *rm_out_at(const rm_out *y, uint32_t row, uint32_t strip) {
    const uint32_t first = row / RM_GROUP * RM_GROUP;
    const size_t in_group = (size_t)strip * rm_group_rows(y->row_count, first) + (row - first);
    return y->at + ((size_t)first * y->strips + in_group) * RM_LANES;
}

/* Copies strip_count strips of one row, from strip_first on, into contiguous floats. */
void rm_out_row(float *out, const rm_out *y, uint32_t row, uint32_t strip_first,
                uint32_t strip_count);

float rm_f16_to_f32(uint16_t h);   /* exact */
uint16_t rm_f16_from_f32(float f); /* to nearest even */

#endif /* RM_KERNELS_FORMATS_H */
