/*
 * amx.c: products by blocks of 32 with AMX tiles, for whole groups of 16 rows; other rows go to the
 * set below. Part: kernels.
 *
 * A product of 32 k gives the integers of 16 rows and 16 outputs at once; they leave the tiles
 * through memory (L1) and meet their scales in AVX-512, in the order that kernels.h says. Runs of
 * 768 k are unpacked once, to signed bytes and f32 scales in scratch, which all groups read.
 */
#include "kernels/x86/amx_tiles.h"
#include "kernels/x86/avx512_weights.h"

enum {
    ROWS_FROM = 16, /* fewer go to the set below */
    RING = 4,       /* blocks whose sums are in memory: two written, two read */
};

/* Scratch of a call. */
typedef struct tile_run {
    rm_unpacked w[RM_RUN_BLOCKS];
    int32_t sums[RING][TILE][RM_LANES];
} tile_run;

_Static_assert(sizeof(tile_run) <= RM_MATMUL_SCRATCH, "a run fits the scratch");

/* The set under this one. */
static rm_matmul_fn *below[RM_FORMAT_COUNT];

/* A block's weights as signed bytes: the stored byte minus its bias. */
INLINE void unpack_run(rm_format f, rm_unpacked *out, const void *strip, size_t first,
                       size_t count) {
    const __m512i bias = _mm512_set1_epi8((char)(shift_of(f) > 0 ? 1 << shift_of(f) : 0));
    for (size_t i = 0; i < count; i++) {
        const rm_block_view w = rm_block_at(f, strip, first + i);
        rm_ahead(w.q, w.bytes);
        UNROLL for (int v = 0; v < 4; v++) {
            __m512i lo, hi;
            pair(f, &w, v, &lo, &hi);
            _mm512_store_si512(out[i].q[v], _mm512_sub_epi8(lo, bias));
            _mm512_store_si512(out[i].q[v + 4], _mm512_sub_epi8(hi, bias));
        }
        _mm512_store_ps(out[i].d, scales(f, &w));
        if (has_mins(f)) _mm512_store_ps(out[i].m, load_f16(w.m));
    }
    tiles_written();
}

/* Half a float step of a block: rows from .. from + 7. */
INLINE void finish(bool mins, __m512 *acc, const int32_t (*sums)[RM_LANES], const rm_unpacked *w,
                   const float *xd, const float *ds, int from) {
    const __m512 d = _mm512_load_ps(w->d), m = mins ? _mm512_load_ps(w->m) : d;
    UNROLL for (int r = from; r < from + 8; r++) {
        const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(xd[r]));
        acc[r] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(load(sums[r])), acc[r]);
        if (mins) acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(ds[r]), acc[r]);
    }
    tiles_written(); /* keeps the halves where they stand */
}

/* The sums of blocks kb and kb + 1 (tiles), and the float steps of the two before (floats). Both in
 * one stream, since the processor's window does not reach from one to the other: 27 % faster than
 * one after the other. */
INLINE void two_blocks(bool tiles, bool floats, bool mins, __m512 *acc, tile_run *run,
                       const rm_group_view *x, size_t kb) {
    const size_t done = floats ? kb - 2 : 0;
    const rm_unpacked *w = &run->w[tiles ? kb : 0], *before = &run->w[done];
    const int8_t *q = x->q + kb / 2 * x->q_step;
    int32_t(*to)[TILE][RM_LANES] = &run->sums[kb % RING];
    int32_t(*from)[TILE][RM_LANES] = &run->sums[done % RING];
    const int32_t(*s0)[RM_LANES] = (const int32_t(*)[RM_LANES])from[0];
    const int32_t(*s1)[RM_LANES] = (const int32_t(*)[RM_LANES])from[1];
    const float *d0 = x->d + done * TILE, *d1 = d0 + TILE;
    const float *ds0 = x->ds + done * TILE, *ds1 = ds0 + TILE;
    if (tiles) {
        _tile_loadd(5, w[0].q, 64);
        _tile_loadd(4, q, 64);
        _tile_zero(0);
        _tile_dpbssd(0, 4, 5);
    }
    if (floats) finish(mins, acc, s0, &before[0], d0, ds0, 0);
    if (tiles) {
        _tile_loadd(7, w[1].q, 64);
        _tile_loadd(6, q + 32, 64);
        _tile_zero(1);
        _tile_dpbssd(1, 6, 7);
    }
    if (floats) finish(mins, acc, s0, &before[0], d0, ds0, 8);
    if (tiles) _tile_stored(0, to[0], 64);
    if (floats) finish(mins, acc, s1, &before[1], d1, ds1, 0);
    if (tiles) _tile_stored(1, to[1], 64);
    if (floats) finish(mins, acc, s1, &before[1], d1, ds1, 8);
}

/* Adds a run to the results of a group, which wait in y between runs. */
INLINE void group(bool mins, float *y, tile_run *run, const rm_group_view *x, size_t kb_count,
                  bool from_zero) {
    __m512 acc[TILE];
    UNROLL for (int r = 0; r < TILE; r++) acc[r] =
        from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(y + r * RM_LANES);
    two_blocks(true, false, mins, acc, run, x, 0);
    for (size_t kb = 2; kb < kb_count; kb += 2)
        two_blocks(true, true, mins, acc, run, x, kb);
    two_blocks(false, true, mins, acc, run, x, kb_count);
    UNROLL for (int r = 0; r < TILE; r++) _mm512_storeu_ps(y + r * RM_LANES, acc[r]);
}

static void group_mins(float *y, tile_run *run, const rm_group_view *x, size_t kb_count,
                       bool from_zero) {
    group(true, y, run, x, kb_count, from_zero);
}

static void group_plain(float *y, tile_run *run, const rm_group_view *x, size_t kb_count,
                        bool from_zero) {
    group(false, y, run, x, kb_count, from_zero);
}

INLINE void matmul(rm_format f, const rm_out *y, uint32_t strip, const void *strip_bytes,
                   const rm_acts *x, tile_run *run) {
    const uint32_t whole = x->row_count < ROWS_FROM ? 0 : x->row_count / TILE * TILE;
    const size_t kb_count = x->k_count / 32;
    if (whole > 0) tiles_configure(32);
    for (size_t kb = 0; whole > 0 && kb < kb_count; kb += RM_RUN_BLOCKS) {
        const size_t count = kb_count - kb < RM_RUN_BLOCKS ? kb_count - kb : RM_RUN_BLOCKS;
        unpack_run(f, run->w, strip_bytes, kb, count);
        for (uint32_t first = 0; first < whole; first += TILE) {
            const rm_group_view v = rm_group_at(x, first, 0, TILE, kb);
            (has_mins(f) ? group_mins : group_plain)(rm_out_at(y, first, strip), run, &v, count,
                                                     kb == 0);
        }
    }
    if (whole > 0) tiles_release();
    if (whole == x->row_count) return;
    const rm_acts rest = rm_acts_rows(x, whole, x->row_count - whole);
    const rm_out to = rows_from(y, whole);
    below[f](&to, strip, strip_bytes, &rest, run);
}

#define FORMAT(name, f)                                                                            \
    static void matmul_##name(const rm_out *y, uint32_t strip, const void *strip_bytes,            \
                              const rm_acts *x, void *scratch) {                                   \
        matmul(f, y, strip, strip_bytes, x, scratch);                                              \
    }

FORMAT(q8_0, RM_Q8_0)
FORMAT(q4_0, RM_Q4_0)
FORMAT(q4_1, RM_Q4_1)
FORMAT(q5_0, RM_Q5_0)
FORMAT(q5_1, RM_Q5_1)
FORMAT(iq4_nl, RM_IQ4_NL)
FORMAT(mxfp4, RM_MXFP4)

void rm_kernels_init_amx(rm_kernels *t) {
    t->name = "amx";
    memcpy(below, t->matmul, sizeof below);
    t->matmul[RM_Q8_0] = matmul_q8_0;
    t->matmul[RM_Q4_0] = matmul_q4_0;
    t->matmul[RM_Q4_1] = matmul_q4_1;
    t->matmul[RM_Q5_0] = matmul_q5_0;
    t->matmul[RM_Q5_1] = matmul_q5_1;
    t->matmul[RM_IQ4_NL] = matmul_iq4_nl;
    t->matmul[RM_MXFP4] = matmul_mxfp4;
}
