/*
 * attn.h: attention of queries over pages of K and V of one KV head. Part: kernels.
 *
 * A PAGE here is RM_PAGE_TOKENS (64) tokens of one KV head of one layer, one block of the online
 * softmax (Milakov and Gimelshein, 2018); a SPAN is 16 pages at fixed token positions.
 *
 *     K: 4 tiles of 16 tokens, transposed                         V: row-major
 *     tile 0            tile 1
 *     d=0  [t0 .. t15]  d=0  [t16 .. t31]  ...                    t=0  [d0 d1 ... d(dim-1)]
 *     d=1  [t0 .. t15]  ...                                       t=1  [d0 d1 ... ]
 *     a lane is a token: one chain over d                         a lane is a channel: over t
 *
 * dim is the head's width padded to 16 with zeros. K comes first, V follows at once. Elements are
 * f16 or f32.
 *
 * THE ANSWER of a span, for one query (f32; q was multiplied by log2(e)/sqrt(dim) before):
 *     m = -1e30, l[16] = 0, o[dim] = 0;  per page, in order:
 *       s[t]  = chain over d of fma(q[d], k[d][t], s), from 0;  -3e38 where t is not seen
 *       m'    = max(m, s[..]);  c = exp2n(m - m');  p[t] = exp2n(s[t] - m')
 *       l[j]  = l[j] * c + p[j] + p[16+j] + p[32+j] + p[48+j]     one rounding per step, in order
 *       o[d]  = chain over t of fma(p[t], v[t][d], o), from o[d] * c + 0
 *     The state keeps min(m', largest float), so that no later page meets an infinite m.
 *     Spans are combined in order by rm_attn_merge().
 * Tokens not seen have p = 0 and change nothing (o is never -0), so a query may share a call with
 * any others. Pages must hold finite numbers in every token: they are zeroed when taken.
 */
#ifndef RM_KERNELS_ATTN_H
#define RM_KERNELS_ATTN_H

#include "base/limits.h"
#include "kernels/formats.h"

enum {
    RM_STATE_HEAD = 32,    /* floats before o in a state: m, 15 unused, l[16] */
    RM_ATTN_QUERIES = 192, /* queries that share a tile of K or V; more take turns */
};

typedef enum rm_kv_format { RM_KV_F16, RM_KV_F32, RM_KV_COUNT } rm_kv_format;

typedef struct rm_attn_job {
    const float *q; /* query_count x dim */
    /* A query sees tokens from[i] .. seen[i] - 1 of this span; 0 <= from <= seen <=
     * RM_SPAN_TOKENS. Pages that no query sees are not touched and may be NULL. */
    const uint32_t *from, *seen;
    float *state;             /* query_count x (RM_STATE_HEAD + dim), written */
    const void *const *pages; /* of the span: K part, then V part */
    void *scratch;            /* rm_attn_scratch_bytes(), 64-byte aligned */
    uint32_t query_count, dim;
    rm_kv_format format;
} rm_attn_job;

/* Scratch of a call of attn_span. */
size_t rm_attn_scratch_bytes(uint32_t dim);

/* Bytes of a page of one KV head: K and V. */
size_t rm_page_bytes(rm_kv_format f, uint32_t dim);

/* Writes token t (0 .. 63) of a page from f32 rows of dim. */
void rm_page_put(void *page, rm_kv_format f, uint32_t dim, uint32_t t, const float *k,
                 const float *v);

void rm_attn_state_clear(float *state, uint32_t dim);

/* total = total and then span. The first merge starts from a cleared state. */
void rm_attn_merge(float *total, const float *span, uint32_t dim);

/* out[dim] = o / sum of l. */
void rm_attn_finish(float *out, const float *state, uint32_t dim);

#endif /* RM_KERNELS_ATTN_H */
