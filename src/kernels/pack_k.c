/*
 * pack_k.c: GGUF rows to strips: the formats with blocks of 256. Part: kernels. Baseline CPU.
 *
 * All moves are of 4 bytes of one row, which are 4 neighbouring k; fields of bits move by shifts of
 * whole words, since a field never leaves its byte. In GGUF the nibbles of 32 bytes are two blocks
 * of 32 k (q4_k, q5_k), or four fields of 2 bits of 32 bytes four blocks (q2_k, q3_k, q6_k).
 */
#include "kernels/kernels_impl.h"

#define NIBBLES 0x0f0f0f0fu
#define PAIRS   0x03030303u
#define ONES    0x01010101u

/* Low or high nibbles of a word of 4 k. */
static inline uint32_t nibbles(const uint8_t *s, unsigned shift) {
    return rm_get_u32(s) >> shift & NIBBLES;
}

/* 32 k in nibbles (at `shift`) of 32 bytes. */
static inline void pack_nibbles(uint8_t (*q)[RM_LANES][4], uint32_t l, const uint8_t *s,
                                unsigned shift) {
    UNROLL for (int v = 0; v < 4; v++)
        rm_put_u32(q[v][l], nibbles(s + 4 * v, shift) | nibbles(s + 16 + 4 * v, shift) << 4);
}

/* 32 k in bit `bit` of 32 bytes. */
static inline void pack_bits(uint8_t *h, const uint8_t *s, unsigned bit) {
    uint32_t out = 0;
    UNROLL for (int v = 0; v < 8; v++) out |= (rm_get_u32(s + 4 * v) >> bit & ONES) << v;
    rm_put_u32(h, out);
}

/* 32 k in two bits (at `shift`) of 32 bytes. */
static inline void pack_pairs(uint8_t (*q)[RM_LANES][4], uint32_t l, const uint8_t *s,
                              unsigned shift) {
    UNROLL for (int i = 0; i < 2; i++) {
        const uint8_t *a = s + 8 * i;
        const uint32_t w0 = rm_get_u32(a) >> shift & PAIRS,
                       w1 = rm_get_u32(a + 16) >> shift & PAIRS;
        const uint32_t w2 = rm_get_u32(a + 4) >> shift & PAIRS;
        const uint32_t w3 = rm_get_u32(a + 20) >> shift & PAIRS;
        rm_put_u32(q[i][l], w0 | w1 << 2 | w2 << 4 | w3 << 6);
    }
}

static void pack_six(uint8_t (*six)[RM_LANES][4], uint32_t l, const unsigned *number) {
    uint32_t low[2] = {0}, high = 0;
    for (unsigned i = 0; i < 16; i++) {
        const unsigned byte = 8 * (rm_place(i) % 4), group = i / 4;
        low[group / 2] |= (number[i] & 15) << (byte + group % 2 * 4);
        high |= number[i] >> 4 << (byte + 2 * group);
    }
    rm_put_u32(six[0][l], low[0]);
    rm_put_u32(six[1][l], low[1]);
    rm_put_u32(six[2][l], high);
}

/* 8 scales and 8 mins of q4_k and q5_k in 12 bytes. */
static void pack_scales_and_mins(uint8_t (*six)[RM_LANES][4], uint32_t l, const uint8_t *s) {
    unsigned number[16];
    for (unsigned b = 0; b < 4; b++) {
        number[b] = s[b] & 63u;
        number[8 + b] = s[b + 4] & 63u;
        number[4 + b] = (s[b + 8] & 15u) | (unsigned)(s[b] >> 6) << 4;
        number[12 + b] = (unsigned)(s[b + 8] >> 4) | (unsigned)(s[b + 4] >> 6) << 4;
    }
    pack_six(six, l, number);
}

static uint32_t pack_q2_k(rm_pack_q2_k *p, const uint8_t *s, uint32_t l) {
    const uint16_t d = rm_copy_u16(&p->d[l], s + 80), m = rm_copy_u16(&p->dmin[l], s + 82);
    for (unsigned i = 0; i < 16; i++)
        p->scale[i / 4][l][rm_place(i) % 4] = s[i];
    for (unsigned b = 0; b < 8; b++)
        pack_pairs(p->q[b], l, s + 16 + b / 4 * 32, b % 4 * 2);
    return rm_f16_bad(d, l) | rm_f16_bad(m, l);
}

static uint32_t pack_q3_k(rm_pack_q3_k *p, uint16_t *head, const uint8_t *s, uint32_t l) {
    unsigned number[16];
    for (unsigned i = 0; i < 16; i++)
        number[i] = (s[96 + i % 8] >> i / 8 * 4 & 15u) | (s[104 + i % 4] >> i / 4 * 2 & 3u) << 4;
    pack_six(p->six, l, number);
    for (unsigned b = 0; b < 8; b++) {
        pack_pairs(p->q[b], l, s + 32 + b / 4 * 32, b % 4 * 2);
        pack_bits(p->h[b][l], s, b);
    }
    return rm_f16_bad(rm_copy_u16(&head[l], s + 108), l);
}

static uint32_t pack_q4_k(rm_pack_q4_k *p, const uint8_t *s, uint32_t l) {
    const uint16_t d = rm_copy_u16(&p->d[l], s), m = rm_copy_u16(&p->dmin[l], s + 2);
    pack_scales_and_mins(p->six, l, s + 4);
    for (unsigned b = 0; b < 8; b++)
        pack_nibbles(p->q[b], l, s + 16 + b / 2 * 32, b % 2 * 4);
    return rm_f16_bad(d, l) | rm_f16_bad(m, l);
}

static uint32_t pack_q5_k(rm_pack_q5_k *p, const uint8_t *s, uint32_t l) {
    const uint16_t d = rm_copy_u16(&p->d[l], s), m = rm_copy_u16(&p->dmin[l], s + 2);
    pack_scales_and_mins(p->six, l, s + 4);
    for (unsigned b = 0; b < 8; b++) {
        pack_nibbles(p->q[b], l, s + 48 + b / 2 * 32, b % 2 * 4);
        pack_bits(p->h[b][l], s + 16, b);
    }
    return rm_f16_bad(d, l) | rm_f16_bad(m, l);
}

static uint32_t pack_q6_k(rm_pack_q6_k *p, uint16_t *head, const uint8_t *s, uint32_t l) {
    for (unsigned i = 0; i < 16; i++)
        memcpy(&p->scale[i / 4][l][rm_place(i) % 4], s + 192 + i, 1);
    for (unsigned b = 0; b < 8; b++) {
        const unsigned half = b / 4, quarter = b % 4;
        pack_nibbles(p->q[b], l, s + 64 * half + 32 * (quarter % 2), quarter / 2 * 4);
        pack_pairs(p->h[b], l, s + 128 + 32 * half, 2 * quarter);
    }
    return rm_f16_bad(rm_copy_u16(&head[l], s + 208), l);
}

/* The nibbles of 16 bytes are k and k + 16 here, as in the packed form. */
static uint32_t pack_iq4_xs(rm_pack_iq4_xs *p, const uint8_t *s, uint32_t l) {
    const uint16_t d = rm_copy_u16(&p->d[l], s);
    const unsigned high = s[2] | (unsigned)s[3] << 8;
    uint32_t low = 0, upper = 0;
    for (unsigned b = 0; b < 8; b++) {
        low |= (s[4 + b / 2] >> b % 2 * 4 & 15u) << (8 * (rm_place(b) % 4) + b / 4 * 4);
        upper |= (high >> 2 * b & 3u) << (b / 2 * 2 + b % 2 * 8);
    }
    rm_put_u32(p->low[l], low);
    p->high[l] = (uint16_t)upper;
    for (unsigned i = 0; i < 32; i++)
        rm_copy_u32(p->q[i / 4][i % 4][l], s + 8 + 4 * i);
    return rm_f16_bad(d, l);
}

uint32_t rm_pack_k(void *strip, rm_format f, const uint8_t *in, uint32_t rows, size_t blocks) {
    const size_t head_bytes = rm_head_bytes(f, blocks), bytes = rm_formats[f].gguf_bytes;
    uint16_t *head = strip;
    void *const first = (char *)strip + head_bytes;
    uint32_t bad = 0;
    if (head_bytes > 0) memset(head, 0, head_bytes);
    for (size_t sb = 0; sb<blocks; sb++, head += head_bytes> 0 ? RM_LANES : 0) {
        for (uint32_t l = 0; l < rows; l++) {
            const uint8_t *s = in + (l * blocks + sb) * bytes;
            switch (f) {
            case RM_Q2_K:
                bad |= pack_q2_k((rm_pack_q2_k *)first + sb, s, l);
                break;
            case RM_Q3_K:
                bad |= pack_q3_k((rm_pack_q3_k *)first + sb, head, s, l);
                break;
            case RM_Q4_K:
                bad |= pack_q4_k((rm_pack_q4_k *)first + sb, s, l);
                break;
            case RM_Q5_K:
                bad |= pack_q5_k((rm_pack_q5_k *)first + sb, s, l);
                break;
            case RM_Q6_K:
                bad |= pack_q6_k((rm_pack_q6_k *)first + sb, head, s, l);
                break;
            default:
                bad |= pack_iq4_xs((rm_pack_iq4_xs *)first + sb, s, l);
                break;
            }
        }
    }
    return bad;
}
