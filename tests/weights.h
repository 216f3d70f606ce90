/*
 * weights.h: GGUF blocks by the definition of their formats, for tests. Nothing is shared with the
 * code that packs and unpacks.
 *
 * Values are doubles and exact: a product of scales and codes has at most 25 bits. So the float of
 * a value is what a program gets that rounds once.
 */
#ifndef RM_TESTS_WEIGHTS_H
#define RM_TESTS_WEIGHTS_H

#include "kernels/formats.h"

#include <math.h>
#include <string.h>

static inline double w_half(const uint8_t *at) {
    uint16_t h;
    memcpy(&h, at, sizeof h);
    return rm_f16_to_f32(h);
}

static inline int w_iq4(unsigned code) {
    static const int values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
    return values[code];
}

/* The scale and min of block j of 32 in the 12 bytes of q4_k and q5_k. */
static inline void w_scale_min(const uint8_t *s, unsigned j, int *scale, int *min) {
    *scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
    *min = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4;
}

/* Weight i of a block of 256. */
static inline double w_super_value(rm_format f, const uint8_t *b, unsigned i) {
    const unsigned half = i / 128, quarter = i / 32 % 4, l = i % 32, sub = i / 16, j = i / 32;
    int scale, min, q;
    switch (f) {
    case RM_Q2_K:
        q = b[16 + 32 * half + l] >> 2 * quarter & 3;
        return w_half(b + 80) * (b[sub] & 15) * q - w_half(b + 82) * (b[sub] >> 4);
    case RM_Q3_K:
        q = (b[32 + 32 * half + l] >> 2 * quarter & 3) - (b[l] >> j & 1 ? 0 : 4);
        scale = (b[96 + sub % 8] >> sub / 8 * 4 & 15) | (b[104 + sub % 4] >> sub / 4 * 2 & 3) << 4;
        return w_half(b + 108) * (scale - 32) * q;
    case RM_Q4_K:
        w_scale_min(b + 4, j, &scale, &min);
        q = b[16 + 32 * (j / 2) + l] >> j % 2 * 4 & 15;
        return w_half(b) * scale * q - w_half(b + 2) * min;
    case RM_Q5_K:
        w_scale_min(b + 4, j, &scale, &min);
        q = (b[48 + 32 * (j / 2) + l] >> j % 2 * 4 & 15) | (b[16 + l] >> j & 1) << 4;
        return w_half(b) * scale * q - w_half(b + 2) * min;
    case RM_Q6_K:
        q = b[64 * half + 32 * (quarter % 2) + l] >> quarter / 2 * 4 & 15;
        q |= (b[128 + 32 * half + l] >> 2 * quarter & 3) << 4;
        return w_half(b + 208) * (int8_t)b[192 + sub] * (q - 32);
    default: /* iq4_xs */
        scale = (b[4 + j / 2] >> j % 2 * 4 & 15) | ((b[2] | b[3] << 8) >> 2 * j & 3) << 4;
        return w_half(b) * (scale - 32) * w_iq4(b[8 + 16 * j + l % 16] >> l / 16 * 4 & 15);
    }
}

/* Weight k of a GGUF row. */
static inline double w_value(rm_format f, const uint8_t *row, uint32_t k) {
    static const int e2m1[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    const rm_format_info *info = &rm_formats[f];
    const uint8_t *b = row + (size_t)(k / info->gguf_k) * info->gguf_bytes;
    const unsigned i = k % info->gguf_k, shift = i / 16 % 2 * 4;
    uint32_t u;
    float value;
    if (info->gguf_k == 256) return w_super_value(f, b, i);
    switch (f) {
    case RM_F32:
        memcpy(&value, b, sizeof value);
        return value;
    case RM_F16:
        return w_half(b);
    case RM_BF16:
        u = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 24;
        memcpy(&value, &u, sizeof value);
        return value;
    case RM_Q8_0:
        return w_half(b) * (int8_t)b[2 + i];
    case RM_Q4_0:
        return w_half(b) * ((b[2 + i % 16] >> shift & 15) - 8);
    case RM_Q4_1:
        return w_half(b) * (b[4 + i % 16] >> shift & 15) + w_half(b + 2);
    case RM_Q5_0:
        memcpy(&u, b + 2, sizeof u);
        return w_half(b) * (int)((b[6 + i % 16] >> shift & 15u) | (u >> i & 1) << 4) -
               w_half(b) * 16;
    case RM_Q5_1:
        memcpy(&u, b + 4, sizeof u);
        return w_half(b) * ((b[8 + i % 16] >> shift & 15u) | (u >> i & 1) << 4) + w_half(b + 2);
    case RM_IQ4_NL:
        return w_half(b) * w_iq4(b[2 + i % 16] >> shift & 15);
    default: /* mxfp4 */
        u = b[1 + i % 16] >> shift & 15u;
        return ldexp((u & 8 ? -1 : 1) * e2m1[u & 7], b[0] - 128);
    }
}

/* Where the f16 scales of a block are: their number, 0 .. 2. */
static inline unsigned w_scales(rm_format f, unsigned *at) {
    const unsigned end = rm_formats[f].gguf_bytes;
    at[0] = 0;
    at[1] = 2;
    switch (f) {
    case RM_F32:
    case RM_BF16:
    case RM_MXFP4:
        return 0;
    case RM_Q2_K:
        at[0] = end - 4;
        at[1] = end - 2;
        return 2;
    case RM_Q3_K:
    case RM_Q6_K:
        at[0] = end - 2;
        return 1;
    case RM_Q4_1:
    case RM_Q5_1:
    case RM_Q4_K:
    case RM_Q5_K:
        return 2;
    default:
        return 1;
    }
}

/* Gives a block of any bytes the scales (or, f32, f16, bf16, the value) d and m. mxfp4: the power
 * of two below |d|. */
static inline void w_set_scales(rm_format f, uint8_t *block, float d, float m) {
    unsigned at[2];
    const unsigned n = w_scales(f, at);
    for (unsigned i = 0; i < n; i++) {
        const uint16_t h = rm_f16_from_f32(i == 0 ? d : m);
        memcpy(block + at[i], &h, sizeof h);
    }
    if (f == RM_F32) memcpy(block, &d, sizeof d);
    if (f == RM_BF16) {
        uint32_t u;
        memcpy(&u, &d, sizeof u);
        block[0] = (uint8_t)(u >> 16);
        block[1] = (uint8_t)(u >> 24);
    }
    if (f == RM_MXFP4) block[0] = (uint8_t)(d == 0 ? 0 : 127 + ilogbf(d) < 0 ? 0 : 127 + ilogbf(d));
}

#endif /* RM_TESTS_WEIGHTS_H */
