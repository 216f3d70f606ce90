/*
 * kc_matmul.h: checks of matrix products and of quantizing, for kerncheck.
 *
 * Weights are random GGUF bytes, so packing is proved too: for ref the results are compared with
 * doubles computed from the definition of the GGUF block.
 */
#ifndef RM_KC_MATMUL_H
#define RM_KC_MATMUL_H

#include "kerncheck/kc_common.h"
#include "weights.h"

/* GGUF rows. extreme: every quant and every scale inside a block at its edge, of one kind in a
 * row so that sums are as large as they get. */
static void kc_weights(uint8_t *w, rm_format f, uint32_t rows, uint32_t k, int extreme) {
    static const uint8_t edges[] = {0, 0xff, 0x80, 0x88, 0x7f};
    const rm_format_info *info = &rm_formats[f];
    const size_t row_blocks = k / info->gguf_k;
    for (size_t b = 0; b < rows * row_blocks; b++, w += info->gguf_bytes) {
        const uint8_t edge = edges[b / row_blocks % 5];
        for (size_t i = 0; i < info->gguf_bytes; i++)
            w[i] = !extreme ? (uint8_t)t_random() : t_random() % 50 ? edge : edges[t_random() % 5];
        const int quantized = rm_formats[f].act != RM_ACT_F32;
        const float value = kc_random();
        w_set_scales(f, w, quantized ? value * 0.01f : value, kc_random() * 0.01f);
        if (f == RM_MXFP4 && t_random() % 8 == 0) w[0] = (uint8_t)(t_random() % 4);
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
    const uint32_t block = rm_act_block(rm_formats[f].act);
    for (uint32_t l = 0; l < RM_LANES; l++) {
        double sum = 0, size = 0, step = 0;
        for (uint32_t i = 0; l < outputs && i < k; i++) {
            const double w = w_value(f, gguf + l * rm_gguf_row_bytes(f, k), i);
            float max = 0;
            const uint32_t end = i / block * block + block;
            for (uint32_t j = end - block; j < end && j < k; j++)
                max = fmaxf(max, fabsf(x[j]));
            sum += w * (double)x[i];
            size += fabs(w * (double)x[i]);
            step += fabs(w) * (double)max / 254;
        }
        const double most =
            (rm_formats[f].act != RM_ACT_F32 ? step * 1.001 : 0) + size * 1e-5 + 1e-30;
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
    if (bad >= 0) t_fail("finite weights called bad: row %d", bad);
    for (size_t i = 0; i < (size_t)rows * k; i++)
        x[i] = !extreme         ? kc_random()
               : i / k % 3 == 0 ? 1.0f
               : i / k % 3 == 1 ? -1.0f
               : t_random() % 8 ? 1.0f
                                : -1.0f;
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
    static const uint32_t f_lengths[] = {1, 2, 5, 63, 64, 65, 128, 200, 256};
    static const uint32_t q_lengths[] = {32, 64, 96, 192, 576, 768, 800, 1536};
    static const uint32_t k_lengths[] = {256, 512, 768, 1536, 2304};
    const rm_act_kind kind = rm_formats[f].act;
    const uint32_t *lengths = kind == RM_ACT_F32   ? f_lengths
                              : kind == RM_ACT_Q8K ? k_lengths
                                                   : q_lengths;
    const size_t n = kind == RM_ACT_F32 ? 9 : kind == RM_ACT_Q8K ? 5 : 8;
    const size_t all = sizeof cuts / sizeof *cuts;
    for (size_t i = 0; i < n; i++) {
        kc_matmul_case(ref, set, f, lengths[i], 67, 0, cuts, all);
        kc_matmul_case(ref, set, f, lengths[i], 35, 1, cuts, all);
    }
    const uint32_t less = kind == RM_ACT_Q8K ? 256 : 192;
    static const uint32_t whole[] = {512, 129, 64};
    kc_matmul_case(ref, set, f, less, 512, 0, whole, 3);
    uint32_t each[48]; /* around the numbers of rows from which another kernel takes over */
    for (uint32_t i = 0; i < 48; i++)
        each[i] = i + 1;
    kc_matmul_case(ref, set, f, less, 48, 0, each, 48);
}

#define KC_MATMUL(name, f)                                                                         \
    static void check_matmul_##name(const rm_kernels *ref, const rm_kernels *set) {                \
        kc_matmul(ref, set, f);                                                                    \
    }

KC_MATMUL(f32, RM_F32)
KC_MATMUL(f16, RM_F16)
KC_MATMUL(q8_0, RM_Q8_0)
KC_MATMUL(q4_0, RM_Q4_0)
KC_MATMUL(q4_1, RM_Q4_1)
KC_MATMUL(bf16, RM_BF16)
KC_MATMUL(q5_0, RM_Q5_0)
KC_MATMUL(q5_1, RM_Q5_1)
KC_MATMUL(iq4_nl, RM_IQ4_NL)
KC_MATMUL(mxfp4, RM_MXFP4)
KC_MATMUL(q2_k, RM_Q2_K)
KC_MATMUL(q3_k, RM_Q3_K)
KC_MATMUL(q4_k, RM_Q4_K)
KC_MATMUL(q5_k, RM_Q5_K)
KC_MATMUL(q6_k, RM_Q6_K)
KC_MATMUL(iq4_xs, RM_IQ4_XS)

static int kc_same_acts(const rm_acts *x, const rm_acts *y) {
    const size_t values = (size_t)x->row_count * x->k_count,
                 blocks = values / rm_act_block(x->kind);
    if (x->kind == RM_ACT_F32) return kc_differ(x->f, y->f, values) == values;
    if (memcmp(x->q, y->q, values) != 0 || kc_differ(x->d, y->d, blocks) < blocks) return 0;
    if (x->kind == RM_ACT_Q8K)
        return memcmp(x->sums, y->sums, blocks * RM_SUMS * sizeof *x->sums) == 0;
    return memcmp(x->neg_sum, y->neg_sum, blocks * sizeof *x->neg_sum) == 0 &&
           kc_differ(x->ds, y->ds, blocks) == blocks;
}

/* The sums of blocks of 256 are what the bytes add up to. */
static void kc_sums_hold(const rm_acts *x, uint32_t row, uint32_t first, uint32_t count) {
    const uint32_t group = row / 16 * 16, n = rm_group_rows(x->row_count, group);
    for (uint32_t sb = first / 256; sb * 256 < first + count; sb++) {
        const size_t at = (size_t)group * (x->k_count / 256) + sb * n + row % 16;
        int sums[RM_SUMS] = {0};
        for (uint32_t k = sb * 256; k < sb * 256 + 256; k++) {
            const size_t in_group = (k / 64 * n + row % 16) * 64 + k % 64;
            const int q = x->q[(size_t)group * x->k_count + in_group];
            sums[k % 256 / 16] += q;
            sums[16 + k % 256 / 32] += q;
        }
        for (int i = 0; i < RM_SUMS; i++)
            if (x->sums[at * RM_SUMS + (size_t)i] != sums[i]) t_fail("sum %d of block %u", i, sb);
    }
}

/* Whole views are compared, so that a byte beside the part to write is seen as well. */
static void check_act_put(const rm_kernels *ref, const rm_kernels *set) {
    static const uint32_t ks[] = {32, 64, 96, 160, 192, 1, 31, 33, 65, 100, 576, 256, 512, 700};
    for (int round = 0; round < 600; round++) {
        const rm_act_kind kind = (rm_act_kind)(t_random() % RM_ACT_COUNT);
        const uint32_t k = ks[t_random() % (sizeof ks / sizeof *ks)];
        const uint32_t rows = 1 + (uint32_t)(t_random() % 35), row = (uint32_t)t_random() % rows;
        const uint32_t unit = kind == RM_ACT_Q8K ? 256 : 64, block = rm_act_block(kind);
        const uint32_t first = (uint32_t)(t_random() % rm_pad_k(k)) / unit * unit;
        const uint32_t full = (k - first) / unit * unit;
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
        if (!kc_same_acts(&x, &y))
            t_fail("kind %d rows %u row %u k %u + %u", kind, rows, row, first, count);
        for (uint32_t i = 0; ref == set && kind != RM_ACT_F32 && i < count; i++) {
            /* within half a step of the value, in the layout that formats.h draws */
            const uint32_t group = row / 16 * 16, n = rm_group_rows(rows, group), p = first + i;
            const float d = x.d[(size_t)group * (x.k_count / block) + p / block * n + row % 16];
            const int8_t q = x.q[(size_t)group * x.k_count + (p / 64 * n + row % 16) * 64 + p % 64];
            if (d == d && !(fabsf(f[i] - d * q) <= d * 0.5001f + 0x1p-100f))
                t_fail("%a became %d * %a", (double)f[i], q, (double)d);
        }
        if (ref == set && kind == RM_ACT_Q8K) kc_sums_hold(&x, row, first, count);
    }
}

static void check_out_row(const rm_kernels *ref, const rm_kernels *set) {
    for (int round = 0; round < 200; round++) {
        const uint32_t rows = 1 + (uint32_t)(t_random() % 40), row = (uint32_t)t_random() % rows;
        const uint32_t strips = 1 + (uint32_t)(t_random() % 20);
        const uint32_t first = (uint32_t)(t_random() % strips);
        const uint32_t count = (uint32_t)(t_random() % (strips - first + 1));
        const size_t n = (size_t)count * RM_LANES;
        const rm_out y = {kc_floats((size_t)rows * strips * RM_LANES), rows, strips};
        kc_fill(y.at, (size_t)rows * strips * RM_LANES, kc_wild);
        float *want = kc_floats(n);
        const kc_room room = kc_take(n * sizeof(float));
        ref->out_row(want, &y, row, first, count);
        set->out_row((float *)(void *)room.at, &y, row, first, count);
        if (memcmp(want, room.at, n * sizeof(float)) != 0)
            t_fail("rows %u row %u strips %u + %u of %u", rows, row, first, count, strips);
        if (!kc_guards_hold(room)) t_fail("writes outside");
    }
}

/* Rows put in parts, blocks without numbers among them; what is left is at most half a step. */
static void check_act_rest(const rm_kernels *ref, const rm_kernels *set) {
    static const uint32_t ks[] = {32, 64, 96, 160, 1, 15, 31, 33, 65, 100, 576, 256, 512, 700};
    for (int round = 0; round < 400; round++) {
        const rm_act_kind kind = t_random() % 2 ? RM_ACT_Q8 : RM_ACT_Q8K;
        const uint32_t k = ks[t_random() % (sizeof ks / sizeof *ks)];
        const uint32_t rows = 1 + (uint32_t)(t_random() % 35), row = (uint32_t)t_random() % rows;
        const uint32_t unit = kind == RM_ACT_Q8K ? 256 : 64;
        const uint32_t first = (uint32_t)(t_random() % k) / unit * unit, count = k - first;
        rm_acts x = rm_acts_view(kc_take(rm_acts_bytes(kind, rows, k)).at, kind, rows, k);
        float *f = kc_floats(count), *want = kc_floats(count);
        const kc_room room = kc_take(count * sizeof(float));
        float *got = (float *)(void *)room.at;
        kc_fill(f, count, round % 2 ? kc_wild : kc_random);
        ref->act_put(&x, row, first, count, f);
        ref->act_rest(want, &x, row, first, count, f);
        set->act_rest(got, &x, row, first, count, f);
        const size_t at = kc_differ(want, got, count);
        if (at < count)
            t_fail("kind %d rows %u row %u k %u + %zu: %a, not %a", kind, rows, row, first, at,
                   (double)got[at], (double)want[at]);
        if (!kc_guards_hold(room)) t_fail("writes outside");
        for (uint32_t i = 0; ref == set && round % 2 == 0 && i < count; i++)
            if (!(fabsf(want[i]) <= 1.001f / 254))
                t_fail("%a left of %a", (double)want[i], (double)f[i]);
    }
}

#endif /* RM_KC_MATMUL_H */
