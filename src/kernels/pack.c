/*
 * pack.c: numbers in files and numbers in strips. Part: kernels.
 *
 * GGUF rows to strips (the load path: 4-byte moves, each source byte read once), a strip's lane
 * back to floats, half precision both ways, and where activations and results lie. Baseline CPU.
 */
#include "kernels/formats.h"
#include "kernels/kernels_impl.h"

const rm_format_info rm_formats[RM_FORMAT_COUNT] = {
    [RM_F32] = {"f32", 0, 1, 4, RM_PACK_K *RM_LANES * 4, RM_ACT_F32},
    [RM_F16] = {"f16", 1, 1, 2, RM_PACK_K *RM_LANES * 2, RM_ACT_F32},
    [RM_Q8_0] = {"q8_0", 8, 32, 34, sizeof(rm_pack_q8_0), RM_ACT_Q8},
    [RM_Q4_0] = {"q4_0", 2, 32, 18, sizeof(rm_pack_q4_0), RM_ACT_Q8},
    [RM_Q4_1] = {"q4_1", 3, 32, 20, sizeof(rm_pack_q4_1), RM_ACT_Q8},
};

rm_format rm_format_of_gguf(uint32_t gguf_type) {
    int f = 0;
    while (f < RM_FORMAT_COUNT && rm_formats[f].gguf_type != gguf_type)
        f++;
    return (rm_format)f;
}

const char *rm_gguf_type_name(uint32_t gguf_type) {
    static const char *const names[] = {
        [0] = "F32",     [1] = "F16",      [2] = "Q4_0",   [3] = "Q4_1",    [6] = "Q5_0",
        [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",   [10] = "Q2_K",   [11] = "Q3_K",
        [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
        [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
        [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
        [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
        [35] = "TQ2_0",  [39] = "MXFP4",
    };
    const bool known = gguf_type < sizeof names / sizeof *names && names[gguf_type] != NULL;
    return known ? names[gguf_type] : "unknown";
}

size_t rm_strip_bytes(rm_format f, uint32_t k_count) {
    return (size_t)(rm_pad_k(k_count) / RM_PACK_K) * rm_formats[f].pack_bytes;
}

size_t rm_gguf_row_bytes(rm_format f, uint32_t k_count) {
    return (size_t)(k_count / rm_formats[f].gguf_k) * rm_formats[f].gguf_bytes;
}

/* --- half precision ----------------------------------------------------------------------- */

/* NaNs as F16C converts them: quiet, the upper payload kept. So all sets store the same bytes. */
float rm_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag > 0x7c00) return rm_from_bits(sign | 0x7fc00000 | (mag & 0x3ff) << 13);
    if (mag == 0x7c00) return rm_from_bits(sign | 0x7f800000);
    if (mag >= 0x400) return rm_from_bits(sign | ((mag << 13) + (112u << 23)));
    return rm_from_bits(sign | rm_bits((float)mag * 0x1p-24f)); /* denormal halves: exact */
}

uint16_t rm_f16_from_f32(float f) {
    const uint32_t u = rm_bits(f), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and up round to infinity */
    if (mag < 0x38800000) {
        /* below 2^-14, a denormal half: the adder rounds to a multiple of 2^-24, nearest even */
        return (uint16_t)(sign | (rm_bits(rm_from_bits(mag) + 0.5f) - 0x3f000000));
    }
    const uint32_t odd = mag >> 13 & 1;
    return (uint16_t)(sign | (mag - (112u << 23) + 0xfff + odd) >> 13);
}

/* --- strips ------------------------------------------------------------------------------- */

/* Bit l of the result: row l has an infinity or NaN. */
static inline uint32_t f16_bad(const uint16_t *h, uint32_t lane) {
    return (uint32_t)((*h & 0x7c00) == 0x7c00) << lane;
}

static inline uint16_t copy_u16(void *out, const void *in) {
    uint16_t v;
    memcpy(&v, in, sizeof v);
    memcpy(out, &v, sizeof v);
    return v;
}

static inline void copy_u32(void *out, const void *in) {
    memcpy(out, in, 4);
}

static uint32_t pack_q8_0(rm_pack_q8_0 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_q8_0 *p = &out[b / 2];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 34;
            const uint16_t d = copy_u16(&p->d[b % 2][l], s);
            bad |= f16_bad(&d, l);
            UNROLL for (int v = 0; v < 8; v++) copy_u32(p->q[b % 2][v][l], s + 2 + 4 * v);
        }
    }
    return bad;
}

/* GGUF pairs k (low nibble) with k + 16 (high) too: bytes move as they are. */
static uint32_t pack_q4_0(rm_pack_q4_0 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_q4_0 *p = &out[b / 2];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 18;
            const uint16_t d = copy_u16(&p->d[b % 2][l], s);
            bad |= f16_bad(&d, l);
            UNROLL for (int v = 0; v < 4; v++) copy_u32(p->q[b % 2][v][l], s + 2 + 4 * v);
        }
    }
    return bad;
}

static uint32_t pack_q4_1(rm_pack_q4_1 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_q4_1 *p = &out[b / 2];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 20;
            const uint16_t d = copy_u16(&p->b[b % 2].d[l], s);
            const uint16_t m = copy_u16(&p->b[b % 2].m[l], s + 2);
            bad |= f16_bad(&d, l) | f16_bad(&m, l);
            UNROLL for (int v = 0; v < 4; v++) copy_u32(p->b[b % 2].q[v][l], s + 4 + 4 * v);
        }
    }
    return bad;
}

/* 16 k at a time, so that both sides of the transposition stay in L1. */
enum { TURN = 16 };

static uint32_t pack_f16(uint16_t (*out)[RM_LANES], const uint8_t *in, uint32_t rows, size_t k) {
    uint32_t bad = 0;
    for (size_t first = 0; first < k; first += TURN) {
        const size_t end = first + TURN < k ? first + TURN : k;
        for (uint32_t l = 0; l < rows; l++) {
            for (size_t i = first; i < end; i++) {
                const uint16_t h = copy_u16(&out[i][l], in + (l * k + i) * 2);
                bad |= f16_bad(&h, l);
            }
        }
    }
    return bad;
}

static uint32_t pack_f32(float (*out)[RM_LANES], const uint8_t *in, uint32_t rows, size_t k) {
    uint32_t bad = 0;
    for (size_t first = 0; first < k; first += TURN) {
        const size_t end = first + TURN < k ? first + TURN : k;
        for (uint32_t l = 0; l < rows; l++) {
            for (size_t i = first; i < end; i++) {
                uint32_t u;
                memcpy(&u, in + (l * k + i) * 4, sizeof u);
                memcpy(&out[i][l], &u, sizeof u);
                bad |= (uint32_t)((u & 0x7f800000) == 0x7f800000) << l;
            }
        }
    }
    return bad;
}

int rm_pack_strip(void *strip, rm_format f, const void *gguf_rows, uint32_t row_count,
                  uint32_t k_count) {
    RM_ASSERT(row_count >= 1 && row_count <= RM_LANES);
    RM_ASSERT(k_count % rm_formats[f].gguf_k == 0);
    const size_t blocks = k_count / rm_formats[f].gguf_k;
    uint32_t bad = 0;
    if (row_count < RM_LANES || k_count % RM_PACK_K != 0)
        memset(strip, 0, rm_strip_bytes(f, k_count));
    switch (f) {
    case RM_F32:
        bad = pack_f32(strip, gguf_rows, row_count, blocks);
        break;
    case RM_F16:
        bad = pack_f16(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q8_0:
        bad = pack_q8_0(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q4_0:
        bad = pack_q4_0(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q4_1:
        bad = pack_q4_1(strip, gguf_rows, row_count, blocks);
        break;
    case RM_FORMAT_COUNT:
        break;
    }
    return bad == 0 ? -1 : __builtin_ctz(bad);
}

/* 32 weights of 4 bits: out = q * d + m, one rounding (q * d is exact). */
static void unpack_nibbles(float *out, const uint8_t (*q)[RM_LANES][4], uint32_t lane, int bias,
                           float d, float m) {
    for (uint32_t k = 0; k < 16; k++) {
        const int byte = q[k / 4][lane][k % 4];
        out[k] = (float)((byte & 15) - bias) * d + m;
        out[k + 16] = (float)((byte >> 4) - bias) * d + m;
    }
}

void rm_unpack_row(float *out, rm_format f, const void *strip, uint32_t lane, uint32_t k_count) {
    const rm_pack_q8_0 *q8_0 = strip;
    const rm_pack_q4_0 *q4_0 = strip;
    const rm_pack_q4_1 *q4_1 = strip;
    RM_ASSERT(lane < RM_LANES);
    if (f == RM_F32 || f == RM_F16) {
        for (size_t k = 0; k < k_count; k++)
            out[k] = f == RM_F32 ? ((const float *)strip)[k * RM_LANES + lane]
                                 : rm_f16_to_f32(((const uint16_t *)strip)[k * RM_LANES + lane]);
        return;
    }
    for (size_t b = 0; b < k_count / 32; b++, out += 32) {
        if (f == RM_Q8_0) {
            const float d = rm_f16_to_f32(q8_0[b / 2].d[b % 2][lane]);
            for (size_t k = 0; k < 32; k++)
                out[k] = (float)q8_0[b / 2].q[b % 2][k / 4][lane][k % 4] * d;
        } else if (f == RM_Q4_0) {
            const float d = rm_f16_to_f32(q4_0[b / 2].d[b % 2][lane]);
            unpack_nibbles(out, q4_0[b / 2].q[b % 2], lane, 8, d, 0);
        } else {
            const float d = rm_f16_to_f32(q4_1[b / 2].b[b % 2].d[lane]);
            const float m = rm_f16_to_f32(q4_1[b / 2].b[b % 2].m[lane]);
            unpack_nibbles(out, q4_1[b / 2].b[b % 2].q, lane, 0, d, m);
        }
    }
}

/* --- activations and results --------------------------------------------------------------- */

static size_t take(size_t *used, size_t bytes) {
    const size_t at = *used;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

/* One layout, for the size and for the view. */
static size_t lay_out(rm_acts *x, char *memory, rm_act_kind kind, uint32_t row_count,
                      uint32_t k_count) {
    const uint32_t k = rm_pad_k(k_count);
    const size_t values = (size_t)row_count * k, blocks = values / 32;
    size_t used = 0;
    *x = (rm_acts){.kind = kind, .row_count = row_count, .k_count = k};
    if (kind == RM_ACT_F32) {
        const size_t f = take(&used, values * sizeof *x->f);
        if (memory != NULL) x->f = (float *)(void *)(memory + f);
        return used;
    }
    const size_t q = take(&used, values), d = take(&used, blocks * sizeof *x->d);
    const size_t ds = take(&used, blocks * sizeof *x->ds);
    const size_t neg_sum = take(&used, blocks * sizeof *x->neg_sum);
    if (memory != NULL) {
        x->q = (int8_t *)(memory + q);
        x->d = (float *)(void *)(memory + d);
        x->ds = (float *)(void *)(memory + ds);
        x->neg_sum = (int32_t *)(void *)(memory + neg_sum);
    }
    return used;
}

size_t rm_acts_bytes(rm_act_kind kind, uint32_t row_count, uint32_t k_count) {
    rm_acts x;
    return lay_out(&x, NULL, kind, row_count, k_count);
}

rm_acts rm_acts_view(void *memory, rm_act_kind kind, uint32_t row_count, uint32_t k_count) {
    rm_acts x;
    lay_out(&x, memory, kind, row_count, k_count);
    return x;
}

rm_acts rm_acts_rows(const rm_acts *x, uint32_t first, uint32_t count) {
    RM_ASSERT(first % RM_GROUP == 0);
    RM_ASSERT(first + count == x->row_count ||
              (first + count < x->row_count && count % RM_GROUP == 0));
    const size_t values = (size_t)first * x->k_count;
    rm_acts v = *x;
    v.row_count = count;
    if (x->kind == RM_ACT_F32) {
        v.f = x->f + values;
        return v;
    }
    v.q = x->q + values;
    v.d = x->d + values / 32;
    v.ds = x->ds + values / 32;
    v.neg_sum = x->neg_sum + values / 32;
    return v;
}

void rm_out_row(float *out, const rm_out *y, uint32_t row, uint32_t strip_first,
                uint32_t strip_count) {
    for (uint32_t s = 0; s < strip_count; s++)
        memcpy(out + (size_t)s * RM_LANES, rm_out_at(y, row, strip_first + s),
               RM_LANES * sizeof *out);
}
