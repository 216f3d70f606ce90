/*
 * acts.c: where activations and results lie. Part: kernels. Baseline CPU.
 *
 * The drawing is in formats.h; what is written there is the business of act_put and matmul.
 */
#include "kernels/formats.h"
#include "kernels/kernels_impl.h"

static size_t take(size_t *used, size_t bytes) {
    const size_t at = *used;
    *used += (bytes + 63) / 64 * 64;
    return at;
}

/* One layout, for the size and for the view. */
static size_t lay_out(rm_acts *x, char *memory, rm_act_kind kind, uint32_t row_count,
                      uint32_t k_count) {
    const uint32_t k = rm_pad_k_of(kind, k_count);
    const size_t values = (size_t)row_count * k, blocks = values / rm_act_block(kind);
    size_t used = 0;
    *x = (rm_acts){.kind = kind, .row_count = row_count, .k_count = k};
    if (kind == RM_ACT_F32) {
        const size_t f = take(&used, values * sizeof *x->f);
        if (memory != NULL) x->f = (float *)(void *)(memory + f);
        return used;
    }
    const size_t q = take(&used, values), d = take(&used, blocks * sizeof *x->d);
    if (memory != NULL) {
        x->q = (int8_t *)(memory + q);
        x->d = (float *)(void *)(memory + d);
    }
    if (kind == RM_ACT_Q8K) {
        const size_t sums = take(&used, blocks * RM_SUMS * sizeof *x->sums);
        if (memory != NULL) x->sums = (int16_t *)(void *)(memory + sums);
        return used;
    }
    const size_t ds = take(&used, blocks * sizeof *x->ds);
    const size_t neg_sum = take(&used, blocks * sizeof *x->neg_sum);
    if (memory != NULL) {
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
    v.d = x->d + values / rm_act_block(x->kind);
    if (x->kind == RM_ACT_Q8K) {
        v.sums = x->sums + values / RM_SUPER_K * RM_SUMS;
        return v;
    }
    v.ds = x->ds + values / 32;
    v.neg_sum = x->neg_sum + values / 32;
    return v;
}

void rm_acts_copy_row(rm_acts *out, uint32_t to, const rm_acts *x, uint32_t from) {
    RM_ASSERT(out->kind == x->kind && out->k_count == x->k_count);
    if (x->kind == RM_ACT_F32) {
        memcpy(out->f + (size_t)to * x->k_count, x->f + (size_t)from * x->k_count,
               x->k_count * sizeof *x->f);
        return;
    }
    for (uint32_t k = 0; k < x->k_count; k += RM_PACK_K)
        memcpy(rm_acts_q(out, to, k / 32), rm_acts_q(x, from, k / 32), RM_PACK_K);
    for (uint32_t b = 0; b < x->k_count / rm_act_block(x->kind); b++) {
        const size_t o = rm_acts_block(out, to, b), i = rm_acts_block(x, from, b);
        out->d[o] = x->d[i];
        if (x->kind == RM_ACT_Q8K) {
            memcpy(out->sums + o * RM_SUMS, x->sums + i * RM_SUMS, RM_SUMS * sizeof *x->sums);
        } else {
            out->ds[o] = x->ds[i];
            out->neg_sum[o] = x->neg_sum[i];
        }
    }
}

void rm_out_row(float *out, const rm_out *y, uint32_t row, uint32_t strip_first,
                uint32_t strip_count) {
    for (uint32_t s = 0; s < strip_count; s++)
        memcpy(out + (size_t)s * RM_LANES, rm_out_at(y, row, strip_first + s),
               RM_LANES * sizeof *out);
}
