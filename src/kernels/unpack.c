/*
 * unpack.c: weights of a strip as plain numbers, one output row at a time. Part: kernels.
 *
 * What a packed block means, written once: the reference products and the embeddings read this.
 * Baseline CPU; clear before fast.
 */
#include "kernels/kernels_impl.h"

/* iq4_nl, iq4_xs: levels that are nearer to each other around zero. */
const int8_t rm_table_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

/* mxfp4: e2m1 (OCP MX, 2023), twice the value, so that it is an integer; the scale is halved. */
const int8_t rm_table_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128); the two smallest are denormal. */
static float e8m0_half(uint8_t e) {
    return rm_from_bits(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

void rm_block_numbers_of(rm_block_numbers *out, rm_format f, const void *strip, size_t kb,
                         size_t lane) {
    const rm_block_view w = rm_block_at(f, strip, kb);
    const int bias = f == RM_Q4_0 ? 8 : f == RM_Q5_0 ? 16 : 0;
    *out = (rm_block_numbers){.d = w.d != NULL ? rm_f16_to_f32(w.d[lane]) : e8m0_half(w.e[lane])};
    if (w.m != NULL) out->m = rm_f16_to_f32(w.m[lane]);
    for (size_t k = 0; k < 32; k++) {
        const size_t j = k % 4, v = k % 16 / 4, upper = k / 16;
        if (f == RM_Q8_0) {
            out->q[k] = (int8_t)w.q[k / 4 * 64 + lane * 4 + j];
            continue;
        }
        int q = w.q[v * 64 + lane * 4 + j] >> 4 * upper & 15;
        if (w.h != NULL) q |= (w.h[lane * 4 + j] >> (4 * upper + v) & 1) << 4;
        if (f == RM_IQ4_NL) q = rm_table_iq4[q];
        if (f == RM_MXFP4) q = rm_table_mxfp4[q];
        out->q[k] = q - bias;
    }
}

/* Number i of sixteen with 6 bits. */
static int six_of(const uint8_t *six, size_t lane, unsigned i) {
    const size_t at = lane * 4 + rm_place(i) % 4;
    return (six[i / 8 * 64 + at] >> i / 4 % 2 * 4 & 15) | (six[2 * 64 + at] >> i / 4 * 2 & 3) << 4;
}

static void k_scales_of(rm_k_numbers *out, rm_format f, const rm_k_view *w, size_t lane) {
    for (unsigned i = 0; i < 16; i++) {
        const unsigned b = i / 2;
        const uint8_t byte = f == RM_Q2_K || f == RM_Q6_K
                                 ? w->scale[i / 4 * 64 + lane * 4 + rm_place(i) % 4]
                                 : w->scale[lane * 4 + rm_place(b) % 4];
        out->min[i] = 0;
        if (f == RM_Q2_K) {
            out->scale[i] = byte & 15;
            out->min[i] = byte >> 4;
        } else if (f == RM_Q3_K) {
            out->scale[i] = six_of(w->scale, lane, i) - 32;
        } else if (f == RM_Q6_K) {
            out->scale[i] = (int8_t)byte;
        } else if (f == RM_IQ4_XS) {
            const int upper = w->high[lane] >> (b / 2 * 2 + b % 2 * 8) & 3;
            out->scale[i] = ((byte >> b / 4 * 4 & 15) | upper << 4) - 32;
        } else {
            out->scale[i] = six_of(w->scale, lane, b);
            out->min[i] = six_of(w->scale, lane, 8 + b);
        }
    }
}

void rm_k_numbers_of(rm_k_numbers *out, rm_format f, const void *strip, size_t sb_count, size_t sb,
                     size_t lane) {
    const rm_k_view w = rm_k_at(f, strip, sb_count, sb);
    out->d = rm_f16_to_f32(w.d[lane]);
    out->dmin = rm_k_mins(f) ? rm_f16_to_f32(w.dmin[lane]) : 0;
    k_scales_of(out, f, &w, lane);
    for (size_t k = 0; k < RM_SUPER_K; k++) {
        const size_t b = k / 32, at = lane * 4 + k % 4, v = k % 16 / 4, upper = k / 16 % 2;
        const size_t pair = 4 * (v % 2) + 2 * upper; /* where a field of 2 bits is */
        int q;
        if (f == RM_Q2_K || f == RM_Q3_K)
            q = w.q[(2 * b + v / 2) * 64 + at] >> pair & 3;
        else
            q = w.q[(4 * b + v) * 64 + at] >> 4 * upper & 15;
        if (f == RM_Q3_K) q = (q | (w.h[b * 64 + at] >> (4 * upper + v) & 1) << 2) - 4;
        if (f == RM_Q5_K) q |= (w.h[b * 64 + at] >> (4 * upper + v) & 1) << 4;
        if (f == RM_Q6_K) q = (q | (w.h[(2 * b + v / 2) * 64 + at] >> pair & 3) << 4) - 32;
        out->q[k] = f == RM_IQ4_XS ? rm_table_iq4[q] : q;
    }
}

static void unpack_floats(float *out, rm_format f, const void *strip, uint32_t lane,
                          uint32_t k_count) {
    const float *w32 = strip;
    const uint16_t *w16 = strip;
    for (size_t k = 0; k < k_count; k++) {
        const size_t at = k * RM_LANES + lane;
        out[k] = f == RM_F32   ? w32[at]
                 : f == RM_F16 ? rm_f16_to_f32(w16[at])
                               : rm_from_bits((uint32_t)w16[at] << 16);
    }
}

void rm_unpack_row(float *out, rm_format f, const void *strip, uint32_t lane, uint32_t k_count) {
    RM_ASSERT(lane < RM_LANES);
    if (rm_formats[f].act == RM_ACT_F32) {
        unpack_floats(out, f, strip, lane, k_count);
        return;
    }
    if (rm_formats[f].act == RM_ACT_Q8) {
        const bool mins = f == RM_Q4_1 || f == RM_Q5_1;
        for (size_t kb = 0; kb < k_count / 32; kb++, out += 32) {
            rm_block_numbers n;
            rm_block_numbers_of(&n, f, strip, kb, lane);
            for (size_t k = 0; k < 32; k++)
                out[k] = mins ? (float)n.q[k] * n.d + n.m : (float)n.q[k] * n.d;
        }
        return;
    }
    const size_t sb_count = k_count / RM_SUPER_K;
    for (size_t sb = 0; sb < sb_count; sb++, out += RM_SUPER_K) {
        rm_k_numbers n;
        rm_k_numbers_of(&n, f, strip, sb_count, sb, lane);
        for (size_t k = 0; k < RM_SUPER_K; k++) {
            const float product = n.d * (float)n.scale[k / 16] * (float)n.q[k];
            out[k] = rm_k_mins(f) ? product - n.dmin * (float)n.min[k / 16] : product;
        }
    }
}
