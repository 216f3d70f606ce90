/*
 * kc_matmul.h: checks of matrix products and of quantizing, for kerncheck.
 *
 * Weights are random GGUF bytes, so packing is proved too: for ref the results are compared with
 * doubles computed from the definition of the GGUF block.
 */
#ifndef RM_KC_MATMUL_H
#define RM_KC_MATMUL_H

#include "kerncheck/kc_common.h"

/* GGUF rows. extreme: every quant at its edge. */
static void kc_weights(uint8_t *w, rm_format f, uint32_t rows, uint32_t k, int extreme) {
    const rm_format_info *info = &rm_formats[f];
    const size_t blocks = (size_t)rows * (k / info->gguf_k);
    for (size_t b = 0; b < blocks; b++, w += info->gguf_bytes) {
        for (size_t i = 0; i < info->gguf_bytes; i++)
            w[i] = extreme ? (f == RM_Q8_0     ? 0x80
                              : t_random() % 2 ? 0xff
                                               : 0)
                           : (uint8_t)t_random();
        const float value = kc_random();
        const uint16_t d = rm_f16_from_f32(f == RM_F16 ? value : value * 0.01f);
        const uint16_t m = rm_f16_from_f32(kc_random() * 0.01f);
        if (f == RM_F32) {
            memcpy(w, &value, sizeof value);
        } else {
            memcpy(w, &d, sizeof d);
            if (f == RM_Q4_1) memcpy(w + 2, &m, sizeof m);
        }
    }
}

/* Weight k of a GGUF row by the definition of its format. */
static double kc_weight_at(const uint8_t *row, rm_format f, uint32_t k) {
    const uint8_t *b = row + (size_t)(k / rm_formats[f].gguf_k) * rm_formats[f].gguf_bytes;
    const uint32_t i = k % rm_formats[f].gguf_k;
    uint16_t d, m;
    float value;
    memcpy(&d, b, sizeof d);
    switch (f) {
    case RM_F32:
        memcpy(&value, b, sizeof value);
        return value;
    case RM_F16:
        return rm_f16_to_f32(d);
    case RM_Q8_0:
        return (double)rm_f16_to_f32(d) * (int8_t)b[2 + i];
    case RM_Q4_0:
        return (double)rm_f16_to_f32(d) * ((i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4) - 8);
    default:
        memcpy(&m, b + 2, sizeof m);
        return (double)rm_f16_to_f32(d) * (i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4) +
               (double)rm_f16_to_f32(m);
    }
}

/* Rows first .. first + count - 1 of f32 rows as activations, by the set's act_put. */
static rm_acts kc_acts(const rm_kernels *set, rm_format f, const float *rows, uint32_t first,
                       uint32_t count, uint32_t k) {
    static char *memory; /* one place, used again: a check holds one view of it at a time */
    static size_t room;
    const rm_act_kind kind = rm_formats[f].act;
    const size_t bytes = rm_acts_bytes(kind, count, k);
    if (bytes > room) {
        room = bytes;
        memory = kc_take(bytes).at;
    }
    memset(memory, 0x55, bytes);
    rm_acts x = rm_acts_view(memory, kind, count, k);
    for (uint32_t r = 0; r < count; r++)
        set->act_put(&x, r, 0, k, rows + (size_t)(first + r) * k);
    return x;
}

enum { KC_STRIPS = 2, KC_STRIP = 1 }; /* results go to the second strip of two */

/* ref against doubles. Allowed: half a step of the quantized activations, and roundings. */
static void kc_against_doubles(rm_format f, const uint8_t *gguf, uint32_t outputs, const float *x,
                               const float *y, uint32_t row, uint32_t k) {
    for (uint32_t l = 0; l < RM_LANES; l++) {
        double sum = 0, size = 0, step = 0;
        for (uint32_t i = 0; l < outputs && i < k; i++) {
            const double w = kc_weight_at(gguf + l * rm_gguf_row_bytes(f, k), f, i);
            float max = 0;
            for (uint32_t j = i / 32 * 32; j < i / 32 * 32 + 32 && j < k; j++)
                max = fmaxf(max, fabsf(x[j]));
            sum += w * (double)x[i];
            size += fabs(w * (double)x[i]);
            step += fabs(w) * (double)max / 254;
        }
        const double most =
            (rm_formats[f].act == RM_ACT_Q8 ? step * 1.001 : 0) + size * 1e-5 + 1e-30;
        if (!(fabs(sum - (double)y[l]) <= most))
            t_fail("%s k %u row %u lane %u: %g, by definition %g", rm_formats[f].name, k, row, l,
                   (double)y[l], sum);
    }
}

static void kc_matmul_case(const rm_kernels *ref, const rm_kernels *set, rm_format f, uint32_t k,
                           uint32_t rows, int extreme, const uint32_t *cuts, size_t cut_count) {
    const uint32_t outputs = t_random() % 2 ? 16 : 1 + (uint32_t)(t_random() % 16);
    const size_t out_floats = (size_t)rows * KC_STRIPS * RM_LANES;
    uint8_t *gguf = (uint8_t *)kc_take(outputs * rm_gguf_row_bytes(f, k)).at;
    void *strip = kc_take(rm_strip_bytes(f, k)).at;
    void *scratch = kc_take(RM_MATMUL_SCRATCH).at;
    float *x = kc_floats((size_t)rows * k), *want = kc_floats(out_floats);
    kc_weights(gguf, f, outputs, k, extreme);
    const int bad = rm_pack_strip(strip, f, gguf, outputs, k);
    if (bad >= 0 && f != RM_F32 && f != RM_F16) t_fail("finite weights called bad: row %d", bad);
    for (size_t i = 0; i < (size_t)rows * k; i++)
        x[i] = extreme ? (t_random() % 8 ? 1.0f : -1.0f) : kc_random();
    if (rows > 4) {
        x[(size_t)(rows - 2) * k + t_random() % k] = NAN;
        x[(size_t)(rows - 3) * k + t_random() % k] = INFINITY;
    }
    rm_acts all = kc_acts(ref, f, x, 0, rows, k);
    const rm_out wanted = {want, rows, KC_STRIPS};
    ref->matmul[f](&wanted, KC_STRIP, strip, &all, scratch);
    if (ref == set) {
        for (uint32_t r = 0; r < rows && r < 3; r++)
            kc_against_doubles(f, gguf, outputs, x + (size_t)r * k, rm_out_at(&wanted, r, KC_STRIP),
                               r, k);
    }
    for (size_t c = 0; c < cut_count; c++) {
        for (uint32_t first = 0; first < rows; first += cuts[c]) {
            const uint32_t count = rows - first < cuts[c] ? rows - first : cuts[c];
            const kc_room room = kc_take((size_t)count * KC_STRIPS * RM_LANES * sizeof(float));
            const rm_out y = {(float *)(void *)room.at, count, KC_STRIPS};
            const rm_acts part = kc_acts(set, f, x, first, count, k);
            memset(scratch, 0x99, RM_MATMUL_SCRATCH);
            set->matmul[f](&y, KC_STRIP, strip, &part, scratch);
            for (uint32_t r = 0; r < count; r++) {
                const size_t lane = kc_differ(rm_out_at(&y, r, KC_STRIP),
                                              rm_out_at(&wanted, first + r, KC_STRIP), RM_LANES);
                if (lane < RM_LANES) {
                    t_fail("%s k %u rows %u + %u, row %u lane %zu: %a, not %a", rm_formats[f].name,
                           k, first, count, r, lane, (double)rm_out_at(&y, r, KC_STRIP)[lane],
                           (double)rm_out_at(&wanted, first + r, KC_STRIP)[lane]);
                    return;
                }
                if (kc_bits(*rm_out_at(&y, r, 0)) != 0x55555555 ||
                    kc_bits(rm_out_at(&y, r, 0)[15]) != 0x55555555)
                    t_fail("writes to another strip");
            }
            if (!kc_guards_hold(room)) t_fail("writes outside");
            free(room.at - KC_GUARD);
        }
    }
    free((char *)strip - KC_GUARD);
}

static void kc_matmul(const rm_kernels *ref, const rm_kernels *set, rm_format f) {
    static const uint32_t cuts[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 67};
    static const uint32_t q_lengths[] = {32, 64, 96, 192, 576, 768, 800, 1536};
    static const uint32_t f_lengths[] = {1, 2, 5, 63, 64, 65, 128, 200, 256};
    const uint32_t *lengths = rm_formats[f].act == RM_ACT_Q8 ? q_lengths : f_lengths;
    const size_t n = rm_formats[f].act == RM_ACT_Q8 ? 8 : 9;
    const size_t all = sizeof cuts / sizeof *cuts;
    for (size_t i = 0; i < n; i++) {
        kc_matmul_case(ref, set, f, lengths[i], 67, 0, cuts, all);
        kc_matmul_case(ref, set, f, lengths[i], 35, 1, cuts, all);
    }
    static const uint32_t whole[] = {512, 129};
    kc_matmul_case(ref, set, f, 192, 512, 0, whole, 2);
}

static void check_matmul_f32(const rm_kernels *ref, const rm_kernels *set) {
    kc_matmul(ref, set, RM_F32);
}
static void check_matmul_f16(const rm_kernels *ref, const rm_kernels *set) {
    kc_matmul(ref, set, RM_F16);
}
static void check_matmul_q8_0(const rm_kernels *ref, const rm_kernels *set) {
    kc_matmul(ref, set, RM_Q8_0);
}
static void check_matmul_q4_0(const rm_kernels *ref, const rm_kernels *set) {
    kc_matmul(ref, set, RM_Q4_0);
}
static void check_matmul_q4_1(const rm_kernels *ref, const rm_kernels *set) {
    kc_matmul(ref, set, RM_Q4_1);
}

/* Whole views are compared, so that a byte beside the part to write is seen as well. */
static void check_act_put(const rm_kernels *ref, const rm_kernels *set) {
    static const uint32_t ks[] = {32, 64, 96, 160, 192, 1, 31, 33, 65, 100, 576};
    for (int round = 0; round < 400; round++) {
        const rm_act_kind kind = (rm_act_kind)(t_random() % RM_ACT_COUNT);
        const uint32_t k = ks[t_random() % (sizeof ks / sizeof *ks)];
        const uint32_t rows = 1 + (uint32_t)(t_random() % 35);
        const uint32_t row = (uint32_t)(t_random() % rows);
        const uint32_t first = (uint32_t)(t_random() % rm_pad_k(k)) / 64 * 64;
        const uint32_t full = (k - first) / 64 * 64;
        const uint32_t count = t_random() % 2 && full > 0 ? full : k - first;
        const size_t bytes = rm_acts_bytes(kind, rows, k);
        const kc_room a = kc_take(bytes), b = kc_take(bytes);
        rm_acts x = rm_acts_view(a.at, kind, rows, k), y = rm_acts_view(b.at, kind, rows, k);
        float *f = kc_floats(count);
        kc_fill(f, count, round % 2 ? kc_wild : kc_random);
        if (round % 5 == 0) memset(f, 0, count * sizeof *f);
        ref->act_put(&x, row, first, count, f);
        set->act_put(&y, row, first, count, f);
        if (!kc_guards_hold(b)) t_fail("writes outside");
        const size_t blocks = (size_t)rows * x.k_count / 32;
        const int same = kind == RM_ACT_F32 ? kc_differ(x.f, y.f, blocks * 32) == blocks * 32
                                            : memcmp(x.q, y.q, blocks * 32) == 0 &&
                                                  memcmp(x.neg_sum, y.neg_sum, blocks * 4) == 0 &&
                                                  kc_differ(x.d, y.d, blocks) == blocks &&
                                                  kc_differ(x.ds, y.ds, blocks) == blocks;
        if (!same) t_fail("kind %d rows %u row %u k %u + %u", kind, rows, row, first, count);
        for (uint32_t i = 0; ref == set && kind == RM_ACT_Q8 && i < count; i++) {
            /* within half a step of the value, in the layout that formats.h draws */
            const uint32_t group = row / 16 * 16, n = rm_group_rows(rows, group), p = first + i;
            const float d = x.d[(size_t)group * (x.k_count / 32) + p / 32 * n + row % 16];
            const int8_t q = x.q[(size_t)group * x.k_count + (p / 64 * n + row % 16) * 64 + p % 64];
            if (d == d && !(fabsf(f[i] - d * q) <= d * 0.5001f + 0x1p-100f))
                t_fail("%a became %d * %a", (double)f[i], q, (double)d);
        }
    }
}

#endif /* RM_KC_MATMUL_H */
