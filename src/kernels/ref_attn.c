/*
 * ref_attn.c: the reference of attention; pages and the merge of spans, which all sets use.
 * Part: kernels. The answer is written in attn.h.
 *
 * NaN: a maximum passes over it, its exponential does not. So one NaN among the scores makes the
 * query's l and o NaN, and nothing else depends on where it was. An infinite score does the same
 * (inf - inf), and the state keeps the largest float as its m: with an infinite m the next c would
 * be NaN even for a page that the query does not see.
 */
#include "kernels/kernels_impl.h"

#include <math.h>

static size_t value_bytes(rm_kv_format f) {
    return f == RM_KV_F16 ? sizeof(uint16_t) : sizeof(float);
}

size_t rm_page_bytes(rm_kv_format f, uint32_t dim) {
    return 2 * (size_t)RM_PAGE_TOKENS * dim * value_bytes(f);
}

/* AVX2: f32 copies of K and V, and the scores of a block of queries (at most 8). AVX-512: a tile of
 * 64 channels, scores of all queries, their m and c. */
size_t rm_attn_scratch_bytes(uint32_t dim) {
    const size_t copies = (2 * (size_t)RM_PAGE_TOKENS * dim + 8 * (size_t)RM_PAGE_TOKENS);
    const size_t tile = (size_t)RM_PAGE_TOKENS * 64 + RM_ATTN_QUERIES * (RM_PAGE_TOKENS + 2);
    return (copies > tile ? copies : tile) * sizeof(float);
}

void rm_page_put(void *page, rm_kv_format f, uint32_t dim, uint32_t t, const float *k,
                 const float *v) {
    const size_t k_at = (size_t)(t / 16) * dim * 16 + t % 16; /* of d = 0; 16 further per d */
    const size_t v_at = (size_t)(RM_PAGE_TOKENS + t) * dim;
    if (f == RM_KV_F32) {
        float *p = page;
        for (uint32_t d = 0; d < dim; d++)
            p[k_at + d * 16] = k[d];
        memcpy(p + v_at, v, dim * sizeof *v);
        return;
    }
    uint16_t *p = page;
    for (uint32_t d = 0; d < dim; d++) {
        p[k_at + d * 16] = rm_f16_from_f32(k[d]);
        p[v_at + d] = rm_f16_from_f32(v[d]);
    }
}

static float value_at(const void *page, rm_kv_format f, size_t i) {
    return f == RM_KV_F32 ? ((const float *)page)[i] : rm_f16_to_f32(((const uint16_t *)page)[i]);
}

/* 2^x; 0 below -100. x is at most 0 here. */
static float exp2n(float x) {
    if (x < RM_EXP2_LEAST) return 0;
    const float z = x + RM_EXP2_ROUND, r = x - (z - RM_EXP2_ROUND);
    float p = rm_exp2_c[5];
    for (int i = 4; i >= 0; i--)
        p = fmaf(p, r, rm_exp2_c[i]);
    return p * rm_from_bits((rm_bits(z) << 23) + 0x3f800000); /* times 2^n: exact, and keeps NaN */
}

static void page_of_query(float *state, const rm_attn_job *job, const float *q, const void *page,
                          uint32_t from, uint32_t seen) {
    const uint32_t dim = job->dim;
    const size_t v_first = (size_t)RM_PAGE_TOKENS * dim;
    float s[RM_PAGE_TOKENS], m = state[0], *l = state + 16, *o = state + RM_STATE_HEAD;
    for (uint32_t t = 0; t < RM_PAGE_TOKENS; t++) {
        const size_t at = (size_t)(t / 16) * dim * 16 + t % 16;
        s[t] = 0;
        for (uint32_t d = 0; d < dim; d++)
            s[t] = fmaf(q[d], value_at(page, job->format, at + d * 16), s[t]);
        if (t < from || t >= seen) s[t] = RM_S_UNSEEN;
        if (s[t] > m) m = s[t];
    }
    const float c = exp2n(state[0] - m);
    state[0] = m > RM_M_MOST ? RM_M_MOST : m;
    for (uint32_t j = 0; j < 16; j++)
        l[j] *= c;
    for (uint32_t t = 0; t < RM_PAGE_TOKENS; t++) {
        s[t] = exp2n(s[t] - m);
        l[t % 16] += s[t];
    }
    for (uint32_t d = 0; d < dim; d++) {
        o[d] = o[d] * c + 0.0f; /* + 0: never -0, so that an unseen token changes no bit */
        for (uint32_t t = 0; t < RM_PAGE_TOKENS; t++)
            o[d] = fmaf(s[t], value_at(page, job->format, v_first + (size_t)t * dim + d), o[d]);
    }
}

static void attn_span(const rm_attn_job *job) {
    for (uint32_t i = 0; i < job->query_count; i++) {
        float *state = job->state + (size_t)i * (RM_STATE_HEAD + job->dim);
        rm_attn_state_clear(state, job->dim);
        const uint32_t from = job->from[i], seen = job->seen[i];
        for (uint32_t page = from / RM_PAGE_TOKENS; page * RM_PAGE_TOKENS < seen; page++) {
            const uint32_t first = page * RM_PAGE_TOKENS;
            page_of_query(state, job, job->q + (size_t)i * job->dim, job->pages[page],
                          from > first ? from - first : 0, seen - first);
        }
    }
}

void rm_attn_state_clear(float *state, uint32_t dim) {
    memset(state, 0, sizeof(float) * (RM_STATE_HEAD + dim));
    state[0] = RM_M_START;
}

/* dim is a multiple of 16, and loops of 16 are what a compiler makes vectors of. */
void rm_attn_merge(float *restrict total, const float *restrict span, uint32_t dim) {
    const float m = span[0] > total[0] ? span[0] : total[0];
    const float a = exp2n(total[0] - m), b = exp2n(span[0] - m);
    total[0] = m;
    for (size_t i = 16; i < RM_STATE_HEAD + dim; i += 16) {
        for (size_t j = 0; j < 16; j++)
            total[i + j] = total[i + j] * a + span[i + j] * b;
    }
}

void rm_attn_finish(float *restrict out, const float *restrict state, uint32_t dim) {
    float l[16];
    memcpy(l, state + 16, sizeof l);
    const float inverse = 1.0f / rm_tree16(l);
    for (size_t d = 0; d < dim; d += 16) {
        for (size_t j = 0; j < 16; j++)
            out[d + j] = state[RM_STATE_HEAD + d + j] * inverse;
    }
}

void rm_kernels_init_ref_attn(rm_kernels *t) {
    t->attn_span = attn_span;
    t->page_put = rm_page_put;
}
