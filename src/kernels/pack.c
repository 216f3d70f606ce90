/*
 * pack.c: GGUF rows to strips, but for blocks of 256 (pack_k.c). Part: kernels. Baseline CPU.
 *
 * The table of formats, half precision both ways, and the load path: moves of 4 bytes, or turning
 * several rows at a time; each source byte is read once. The way back, from a lane to numbers, is
 * unpack.c.
 */
#include "kernels/formats.h"
#include "kernels/kernels_impl.h"

#define PACKED(name, k) k, sizeof(rm_pack_##name)

const rm_format_info rm_formats[RM_FORMAT_COUNT] = {
    [RM_F32] = {"f32", 0, 1, 4, RM_PACK_K, RM_PACK_K *RM_LANES * 4, 0, RM_ACT_F32},
    [RM_F16] = {"f16", 1, 1, 2, RM_PACK_K, RM_PACK_K *RM_LANES * 2, 0, RM_ACT_F32},
    [RM_Q8_0] = {"q8_0", 8, 32, 34, PACKED(q8_0, 64), 0, RM_ACT_Q8},
    [RM_Q4_0] = {"q4_0", 2, 32, 18, PACKED(q4_0, 64), 0, RM_ACT_Q8},
    [RM_Q4_1] = {"q4_1", 3, 32, 20, PACKED(q4_1, 64), 0, RM_ACT_Q8},
    [RM_BF16] = {"bf16", 30, 1, 2, RM_PACK_K, RM_PACK_K *RM_LANES * 2, 0, RM_ACT_F32},
    [RM_Q5_0] = {"q5_0", 6, 32, 22, PACKED(q5_0, 64), 0, RM_ACT_Q8},
    [RM_Q5_1] = {"q5_1", 7, 32, 24, PACKED(q5_1, 64), 0, RM_ACT_Q8},
    [RM_IQ4_NL] = {"iq4_nl", 20, 32, 18, PACKED(iq4_nl, 64), 0, RM_ACT_Q8},
    [RM_MXFP4] = {"mxfp4", 39, 32, 17, PACKED(mxfp4, 128), 0, RM_ACT_Q8},
    [RM_Q2_K] = {"q2_k", 10, 256, 84, PACKED(q2_k, 256), 0, RM_ACT_Q8K},
    [RM_Q3_K] = {"q3_k", 11, 256, 110, PACKED(q3_k, 256), 2 * RM_LANES, RM_ACT_Q8K},
    [RM_Q4_K] = {"q4_k", 12, 256, 144, PACKED(q4_k, 256), 0, RM_ACT_Q8K},
    [RM_Q5_K] = {"q5_k", 13, 256, 176, PACKED(q5_k, 256), 0, RM_ACT_Q8K},
    [RM_Q6_K] = {"q6_k", 14, 256, 210, PACKED(q6_k, 256), 2 * RM_LANES, RM_ACT_Q8K},
    [RM_IQ4_XS] = {"iq4_xs", 23, 256, 136, PACKED(iq4_xs, 256), 0, RM_ACT_Q8K},
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
    const rm_format_info *i = &rm_formats[f];
    const size_t blocks = (k_count + i->pack_k - 1) / i->pack_k;
    return rm_head_bytes(f, blocks) + blocks * i->pack_bytes;
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

static uint32_t pack_q8_0(rm_pack_q8_0 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_q8_0 *p = &out[b / 2];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 34;
            const uint16_t d = rm_copy_u16(&p->d[b % 2][l], s);
            bad |= rm_f16_bad(d, l);
            UNROLL for (int v = 0; v < 8; v++) rm_copy_u32(p->q[b % 2][v][l], s + 2 + 4 * v);
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
            const uint16_t d = rm_copy_u16(&p->d[b % 2][l], s);
            bad |= rm_f16_bad(d, l);
            UNROLL for (int v = 0; v < 4; v++) rm_copy_u32(p->q[b % 2][v][l], s + 2 + 4 * v);
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
            const uint16_t d = rm_copy_u16(&p->b[b % 2].d[l], s);
            const uint16_t m = rm_copy_u16(&p->b[b % 2].m[l], s + 2);
            bad |= rm_f16_bad(d, l) | rm_f16_bad(m, l);
            UNROLL for (int v = 0; v < 4; v++) rm_copy_u32(p->b[b % 2].q[v][l], s + 4 + 4 * v);
        }
    }
    return bad;
}

/* Exchanges bits p and p + distance of a word, for all p in mask. */
static inline uint32_t swap_bits(uint32_t w, unsigned distance, uint32_t mask) {
    const uint32_t t = (w ^ w >> distance) & mask;
    return w ^ t ^ t << distance;
}

/* Bits j of the nibbles of 32 bits, to the order of formats.h: bit 4v + j to bit 8j + v. The number
 * of a bit is v2 v1 v0 j1 j0 and becomes j1 j0 v2 v1 v0: four exchanges of two places. */
static inline uint32_t bit_bytes(uint32_t h) {
    h = swap_bits(h, 3, 0x0a0a0a0a);
    h = swap_bits(h, 6, 0x00cc00cc);
    h = swap_bits(h, 12, 0x0000f0f0);
    return swap_bits(h, 8, 0x0000ff00);
}

static uint32_t pack_q5_0(rm_pack_q5_0 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_q5_0 *p = &out[b / 2];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 22;
            const uint16_t d = rm_copy_u16(&p->d[b % 2][l], s);
            bad |= rm_f16_bad(d, l);
            rm_put_u32(p->b[b % 2].h[l], bit_bytes(rm_get_u32(s + 2)));
            UNROLL for (int v = 0; v < 4; v++) rm_copy_u32(p->b[b % 2].q[v][l], s + 6 + 4 * v);
        }
    }
    return bad;
}

static uint32_t pack_q5_1(rm_pack_q5_1 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_q5_1 *p = &out[b / 2];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 24;
            const uint16_t d = rm_copy_u16(&p->b[b % 2].d[l], s);
            const uint16_t m = rm_copy_u16(&p->b[b % 2].m[l], s + 2);
            bad |= rm_f16_bad(d, l) | rm_f16_bad(m, l);
            rm_put_u32(p->b[b % 2].h[l], bit_bytes(rm_get_u32(s + 4)));
            UNROLL for (int v = 0; v < 4; v++) rm_copy_u32(p->b[b % 2].q[v][l], s + 8 + 4 * v);
        }
    }
    return bad;
}

/* e = 255 is NaN in the definition of the scale (OCP MX, 2023). */
static uint32_t pack_mxfp4(rm_pack_mxfp4 *out, const uint8_t *in, uint32_t rows, size_t blocks) {
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        rm_pack_mxfp4 *p = &out[b / 4];
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + b) * 17;
            p->e[b % 4][l] = s[0];
            bad |= (uint32_t)(s[0] == 255) << l;
            UNROLL for (int v = 0; v < 4; v++) rm_copy_u32(p->q[b % 4][v][l], s + 1 + 4 * v);
        }
    }
    return bad;
}

/* k at a time: both sides of the turn stay in L1, also where rows are a power of two apart. */
enum { TURN = 32 };

static const uint8_t missing[16]; /* what a row gives that is not there */

/* 8 k of 8 rows. Interleaving the first half of the rows with the second turns them when it is done
 * three times. */
INLINE void turn_halves(rm_halves *h) {
    for (int step = 0; step < 3; step++) {
        rm_halves t[8];
        UNROLL for (int i = 0; i < 4; i++) {
            const rm_halves a = h[i], b = h[i + 4];
            t[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
            t[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        }
        UNROLL for (int i = 0; i < 8; i++) h[i] = t[i];
    }
}

/* exponent: the bits that are all set in an infinity or NaN. */
static uint32_t pack_16(uint16_t (*out)[RM_LANES], const uint8_t *in, uint32_t rows, size_t k,
                        uint16_t exponent) {
    rm_halves bad[RM_LANES / 8] = {0};
    uint32_t found = 0;
    for (size_t first = 0; first < k / 8 * 8; first += TURN) {
        const size_t end = first + TURN < k ? first + TURN : k;
        for (uint32_t l = 0; l < rows; l += 8) {
            for (size_t at = first; at + 8 <= end; at += 8) {
                rm_halves h[8];
                UNROLL for (uint32_t i = 0; i < 8; i++)
                    memcpy(&h[i], l + i < rows ? in + ((l + i) * k + at) * 2 : missing, sizeof *h);
                turn_halves(h);
                UNROLL for (uint32_t i = 0; i < 8; i++) {
                    memcpy(&out[at + i][l], &h[i], sizeof *h);
                    bad[l / 8] |= (rm_halves)((h[i] & exponent) == exponent);
                }
            }
        }
    }
    for (uint32_t l = 0; l < rows; l++) {
        for (size_t i = k / 8 * 8; i < k; i++) {
            const uint16_t h = rm_copy_u16(&out[i][l], in + (l * k + i) * 2);
            found |= (uint32_t)((h & exponent) == exponent) << l;
        }
        found |= (uint32_t)(bad[l / 8][l % 8] != 0) << l;
    }
    return found;
}

static uint32_t pack_f32(float (*out)[RM_LANES], const uint8_t *in, uint32_t rows, size_t k) {
    const uint32_t exponent = 0x7f800000;
    rm_words bad[RM_LANES / 4] = {0};
    uint32_t found = 0;
    for (size_t first = 0; first < k / 4 * 4; first += TURN) {
        const size_t end = first + TURN < k ? first + TURN : k;
        for (uint32_t l = 0; l < rows; l += 4) {
            for (size_t i = first; i + 4 <= end; i += 4) {
                rm_words w[4];
                UNROLL for (uint32_t j = 0; j < 4; j++)
                    memcpy(&w[j], l + j < rows ? in + ((l + j) * k + i) * 4 : missing, sizeof *w);
                rm_turn_words(w);
                UNROLL for (size_t j = 0; j < 4; j++) {
                    memcpy(&out[i + j][l], &w[j], sizeof *w);
                    bad[l / 4] |= (rm_words)((w[j] & exponent) == exponent);
                }
            }
        }
    }
    for (uint32_t l = 0; l < rows; l++) {
        for (size_t i = k / 4 * 4; i < k; i++) {
            const uint32_t u = rm_get_u32(in + (l * k + i) * 4);
            rm_put_u32(&out[i][l], u);
            found |= (uint32_t)((u & exponent) == exponent) << l;
        }
        found |= (uint32_t)(bad[l / 4][l % 4] != 0) << l;
    }
    return found;
}

int rm_pack_strip(void *strip, rm_format f, const void *gguf_rows, uint32_t row_count,
                  uint32_t k_count) {
    RM_ASSERT(row_count >= 1 && row_count <= RM_LANES);
    RM_ASSERT(k_count % rm_formats[f].gguf_k == 0);
    const size_t blocks = k_count / rm_formats[f].gguf_k;
    uint32_t bad = 0;
    if (row_count < RM_LANES || k_count % rm_formats[f].pack_k != 0)
        memset(strip, 0, rm_strip_bytes(f, k_count));
    switch (f) {
    case RM_F32:
        bad = pack_f32(strip, gguf_rows, row_count, blocks);
        break;
    case RM_F16:
        bad = pack_16(strip, gguf_rows, row_count, blocks, 0x7c00);
        break;
    case RM_BF16:
        bad = pack_16(strip, gguf_rows, row_count, blocks, 0x7f80);
        break;
    case RM_Q8_0:
        bad = pack_q8_0(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q4_0:
        bad = pack_q4_0(strip, gguf_rows, row_count, blocks);
        break;
    case RM_IQ4_NL:
        bad = pack_q4_0(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q4_1:
        bad = pack_q4_1(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q5_0:
        bad = pack_q5_0(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q5_1:
        bad = pack_q5_1(strip, gguf_rows, row_count, blocks);
        break;
    case RM_MXFP4:
        bad = pack_mxfp4(strip, gguf_rows, row_count, blocks);
        break;
    case RM_Q2_K:
    case RM_Q3_K:
    case RM_Q4_K:
    case RM_Q5_K:
    case RM_Q6_K:
    case RM_IQ4_XS:
        bad = rm_pack_k(strip, f, gguf_rows, row_count, blocks);
        break;
    case RM_FORMAT_COUNT:
        break;
    }
    return bad == 0 ? -1 : __builtin_ctz(bad);
}
