/*
 * pack_k.c: GGUF rows to strips: the formats with blocks of 256. Part: kernels. Baseline CPU.
 *
 * Four rows at a time: 16 bytes of each are turned, so that a vector holds the same word (4
 * neighbouring k) of four rows, which is how it is stored. Fields of bits move by shifts of whole
 * words, since a field never leaves its byte. In GGUF the nibbles of 32 bytes are two blocks of 32
 * k (q4_k, q5_k), or four fields of 2 bits of 32 bytes four blocks (q2_k, q3_k, q6_k).
 *
 * Weights that are streamed pass here in every sweep. One word of one row at a time this took 0.9
 * to 1.5 GB/s a core, no more than a disk gives.
 */
#include "kernels/kernels_impl.h"

#define NIBBLES 0x0f0f0f0fu
#define PAIRS   0x03030303u
#define ONES    0x01010101u

/* The same block of four rows. */
typedef const uint8_t *const rows4[4];

/* Words 0 .. 3 at byte `at` of four rows. */
INLINE void get_words(rm_words *w, rows4 s, unsigned at) {
    UNROLL for (int i = 0; i < 4; i++) memcpy(&w[i], s[i] + at, sizeof *w);
    rm_turn_words(w);
}

/* One word; and one half, zero-extended. */
INLINE rm_words get_word(rows4 s, unsigned at) {
    return (rm_words){rm_get_u32(s[0] + at), rm_get_u32(s[1] + at), rm_get_u32(s[2] + at),
                      rm_get_u32(s[3] + at)};
}
INLINE rm_words get_half(rows4 s, unsigned at) {
    uint16_t h[4];
    UNROLL for (int i = 0; i < 4; i++) memcpy(&h[i], s[i] + at, sizeof *h);
    return (rm_words){h[0], h[1], h[2], h[3]};
}

INLINE void put_words(void *out, rm_words w) {
    memcpy(out, &w, sizeof w);
}

/* The low halves of four words. */
INLINE void put_halves(uint16_t *out, rm_words w) {
    UNROLL for (int i = 0; i < 4; i++) out[i] = (uint16_t)w[i];
}

/* All bits of a word are set where its low half is an infinity or NaN. */
INLINE rm_words bad_half(rm_words h) {
    return (rm_words)((h & 0x7c00) == 0x7c00);
}

/* rm_place() for the bytes of a word. */
INLINE rm_words place(rm_words w) {
    return (w & 0xff0000ff) | (w >> 8 & 0xff00) | (w & 0xff00) << 8;
}

/* 32 k in the nibbles (at `shift`) of 32 bytes. */
INLINE void pack_nibbles(uint8_t (*q)[RM_LANES][4], uint32_t l, const rm_words *w, unsigned shift) {
    UNROLL for (int v = 0; v < 4; v++)
        put_words(&q[v][l], (w[v] >> shift & NIBBLES) | (w[4 + v] >> shift & NIBBLES) << 4);
}

/* 32 k in bit `bit` of 32 bytes. */
INLINE void pack_bits(uint8_t (*h)[4], const rm_words *w, unsigned bit) {
    rm_words out = {0};
    UNROLL for (int v = 0; v < 8; v++) out |= (w[v] >> bit & ONES) << v;
    put_words(h, out);
}

/* 32 k in two bits (at `shift`) of 32 bytes. */
INLINE void pack_pairs(uint8_t (*q)[RM_LANES][4], uint32_t l, const rm_words *w, unsigned shift) {
    UNROLL for (int i = 0; i < 2; i++) {
        const rm_words *a = w + 2 * i;
        put_words(&q[i][l], (a[0] >> shift & PAIRS) | (a[4] >> shift & PAIRS) << 2 |
                                (a[1] >> shift & PAIRS) << 4 | (a[5] >> shift & PAIRS) << 6);
    }
}

/* Sixteen scales of 8 bits. scale: [4][RM_LANES][4] */
INLINE void pack_scales(void *scale, uint32_t l, rows4 s, unsigned at) {
    rm_words w[4];
    get_words(w, s, at);
    UNROLL for (uint32_t i = 0; i < 4; i++)
        put_words((uint8_t *)scale + (i * RM_LANES + l) * 4, place(w[i]));
}

/* d, dmin, and 8 scales and 8 mins of 6 bits in 12 bytes: q4_k and q5_k. */
INLINE rm_words pack_head(uint16_t *d, uint16_t *dmin, uint8_t (*six)[RM_LANES][4], uint32_t l,
                          rows4 s) {
    rm_words w[4];
    get_words(w, s, 0);
    const rm_words low = w[1], min = w[2], both = w[3];
    put_halves(&d[l], w[0]);
    put_halves(&dmin[l], w[0] >> 16);
    put_words(&six[0][l], place((low & NIBBLES) | (both & NIBBLES) << 4));
    put_words(&six[1][l], place((min & NIBBLES) | (both & ~NIBBLES)));
    put_words(&six[2][l], place((low >> 4 & PAIRS) | (low >> 6 & PAIRS) << 2 |
                                (min >> 4 & PAIRS) << 4 | (min >> 6 & PAIRS) << 6));
    return bad_half(w[0]) | bad_half(w[0] >> 16);
}

static rm_words pack_q2_k(rm_pack_q2_k *p, rows4 s, uint32_t l) {
    const rm_words d = get_word(s, 80);
    put_halves(&p->d[l], d);
    put_halves(&p->dmin[l], d >> 16);
    pack_scales(p->scale, l, s, 0);
    for (unsigned half = 0; half < 2; half++) {
        rm_words w[8];
        get_words(w, s, 16 + 32 * half);
        get_words(w + 4, s, 32 + 32 * half);
        UNROLL for (unsigned b = 0; b < 4; b++) pack_pairs(p->q[4 * half + b], l, w, 2 * b);
    }
    return bad_half(d) | bad_half(d >> 16);
}

/* Low 4 bits of the scales in 8 bytes, then the upper 2 of all in 4, which is their packed form. */
static rm_words pack_q3_k(rm_pack_q3_k *p, uint16_t *head, rows4 s, uint32_t l) {
    const rm_words d = get_half(s, 108), a = get_word(s, 96), b = get_word(s, 100);
    rm_words w[8];
    put_halves(&head[l], d);
    put_words(&p->six[0][l], place((a & NIBBLES) | (b & NIBBLES) << 4));
    put_words(&p->six[1][l], place((a >> 4 & NIBBLES) | (b & ~NIBBLES)));
    put_words(&p->six[2][l], place(get_word(s, 104)));
    for (unsigned half = 0; half < 2; half++) {
        get_words(w, s, 32 + 32 * half);
        get_words(w + 4, s, 48 + 32 * half);
        UNROLL for (unsigned i = 0; i < 4; i++) pack_pairs(p->q[4 * half + i], l, w, 2 * i);
    }
    get_words(w, s, 0);
    get_words(w + 4, s, 16);
    UNROLL for (unsigned i = 0; i < 8; i++) pack_bits(&p->h[i][l], w, i);
    return bad_half(d);
}

static rm_words pack_q4_k(rm_pack_q4_k *p, rows4 s, uint32_t l) {
    const rm_words bad = pack_head(p->d, p->dmin, p->six, l, s);
    for (unsigned i = 0; i < 4; i++) {
        rm_words w[8];
        get_words(w, s, 16 + 32 * i);
        get_words(w + 4, s, 32 + 32 * i);
        pack_nibbles(p->q[2 * i], l, w, 0);
        pack_nibbles(p->q[2 * i + 1], l, w, 4);
    }
    return bad;
}

static rm_words pack_q5_k(rm_pack_q5_k *p, rows4 s, uint32_t l) {
    const rm_words bad = pack_head(p->d, p->dmin, p->six, l, s);
    rm_words w[8];
    for (unsigned i = 0; i < 4; i++) {
        get_words(w, s, 48 + 32 * i);
        get_words(w + 4, s, 64 + 32 * i);
        pack_nibbles(p->q[2 * i], l, w, 0);
        pack_nibbles(p->q[2 * i + 1], l, w, 4);
    }
    get_words(w, s, 16);
    get_words(w + 4, s, 32);
    UNROLL for (unsigned i = 0; i < 8; i++) pack_bits(&p->h[i][l], w, i);
    return bad;
}

static rm_words pack_q6_k(rm_pack_q6_k *p, uint16_t *head, rows4 s, uint32_t l) {
    const rm_words d = get_half(s, 208);
    put_halves(&head[l], d);
    pack_scales(p->scale, l, s, 192);
    for (unsigned half = 0; half < 2; half++) {
        rm_words w[8];
        for (unsigned i = 0; i < 2; i++) {
            get_words(w, s, 64 * half + 32 * i);
            get_words(w + 4, s, 64 * half + 32 * i + 16);
            pack_nibbles(p->q[4 * half + i], l, w, 0);
            pack_nibbles(p->q[4 * half + 2 + i], l, w, 4);
        }
        get_words(w, s, 128 + 32 * half);
        get_words(w + 4, s, 144 + 32 * half);
        UNROLL for (unsigned i = 0; i < 4; i++) pack_pairs(p->h[4 * half + i], l, w, 2 * i);
    }
    return bad_half(d);
}

/* The nibbles of 16 bytes are k and k + 16 here, as in the packed form. */
static rm_words pack_iq4_xs(rm_pack_iq4_xs *p, rows4 s, uint32_t l) {
    const rm_words d = get_word(s, 0), nibbles = get_word(s, 4);
    rm_words low = {0}, upper = {0};
    UNROLL for (unsigned b = 0; b < 8; b++) {
        low |= (nibbles >> 4 * b & 15) << (8 * (rm_place(b) % 4) + b / 4 * 4);
        upper |= (d >> (16 + 2 * b) & 3) << (b / 2 * 2 + b % 2 * 8);
    }
    put_halves(&p->d[l], d);
    put_halves(&p->high[l], upper);
    put_words(&p->low[l], low);
    for (unsigned i = 0; i < 8; i++) {
        rm_words w[4];
        get_words(w, s, 8 + 16 * i);
        UNROLL for (int v = 0; v < 4; v++) put_words(&p->q[i][v][l], w[v]);
    }
    return bad_half(d);
}

/* Block sb of rows l .. l + 3. */
static rm_words pack_block(void *first, uint16_t *head, rm_format f, size_t sb, rows4 s,
                           uint32_t l) {
    switch (f) {
    case RM_Q2_K:
        return pack_q2_k((rm_pack_q2_k *)first + sb, s, l);
    case RM_Q3_K:
        return pack_q3_k((rm_pack_q3_k *)first + sb, head, s, l);
    case RM_Q4_K:
        return pack_q4_k((rm_pack_q4_k *)first + sb, s, l);
    case RM_Q5_K:
        return pack_q5_k((rm_pack_q5_k *)first + sb, s, l);
    case RM_Q6_K:
        return pack_q6_k((rm_pack_q6_k *)first + sb, head, s, l);
    default:
        return pack_iq4_xs((rm_pack_iq4_xs *)first + sb, s, l);
    }
}

uint32_t rm_pack_k(void *strip, rm_format f, const uint8_t *in, uint32_t rows, size_t blocks) {
    static const uint8_t zeros[256]; /* a missing row: the largest block has 210 bytes */
    const size_t head_bytes = rm_head_bytes(f, blocks), bytes = rm_formats[f].gguf_bytes;
    uint16_t *head = strip;
    void *const first = (char *)strip + head_bytes;
    rm_words bad[RM_LANES / 4] = {0};
    uint32_t found = 0;
    if (head_bytes > 0) memset(head, 0, head_bytes);
    for (size_t sb = 0; sb < blocks; sb++) {
        uint16_t *d = head_bytes > 0 ? head + sb * RM_LANES : NULL;
        for (uint32_t l = 0; l < rows; l += 4) {
            const uint8_t *s[4];
            UNROLL for (uint32_t i = 0; i < 4; i++) s[i] =
                l + i < rows ? in + ((l + i) * blocks + sb) * bytes : zeros;
            bad[l / 4] |= pack_block(first, d, f, sb, s, l);
        }
    }
    for (uint32_t l = 0; l < rows; l++)
        found |= (uint32_t)(bad[l / 4][l % 4] != 0) << l;
    return found;
}
