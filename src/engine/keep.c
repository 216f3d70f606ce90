/* keep.c: see keep.h. */
#include "engine/keep.h"

#include <string.h>

/* Hidden states of a chunk of rows that begin in the middle of the model. Without checkpoints the
 * caller has put them in place. */
void rm_keep_load(rm_sweep *s) {
    const size_t dim = s->model->shape.dim;
    uint32_t row = 0;
    if (s->cold_kind != REMAT_COLD_CHECKPOINT) return;
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const rm_row_run *r = &s->runs[p->run];
        const float *from = rm_kept_at(
            &s->kept, rm_checkpoint_place(s->cache, r->sequence, r->first / RM_PAGE_TOKENS));
        RM_ASSERT(from != NULL); /* route.c */
        for (uint32_t k = 0; k < p->count; k++, row++)
            memcpy(s->hidden + s->hidden_row[row] * dim,
                   from + (r->first % RM_PAGE_TOKENS + p->first + k) * dim, dim * sizeof *from);
    }
}

/* A block is begun with the first row of its column, or not at all. */
static void *kept_block(rm_sweep *s, const rm_row_run *r, const rm_piece *p, uint64_t place) {
    if ((r->first + p->first) % RM_PAGE_TOKENS == 0) return rm_kept_take(&s->kept, place);
    return rm_kept_at(&s->kept, place);
}

void rm_keep_inputs(rm_sweep *s, uint32_t layer) {
    for (uint32_t i = 0; s->cold_kind == REMAT_COLD_INPUTS && i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const rm_row_run *r = &s->runs[p->run];
        const uint64_t place = rm_cache_index(s->cache, r->sequence, layer, rm_run_column(r));
        if (rm_sweep_cold(s, r->sequence, layer, rm_run_column(r))) {
            (void)kept_block(s, r, p, place);
        } else {
            rm_kept_give(&s->kept, place); /* it would lack these rows */
        }
    }
}

/* After the last layer below checkpoint_layer. */
void rm_keep_checkpoints(rm_sweep *s, uint32_t layer) {
    const size_t dim = s->model->shape.dim;
    uint32_t row = 0;
    if (s->cold_kind != REMAT_COLD_CHECKPOINT || layer + 1 != s->checkpoint_layer || !s->now.rest)
        return;
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const rm_row_run *r = &s->runs[p->run];
        const uint64_t place = rm_checkpoint_place(s->cache, r->sequence, rm_run_column(r));
        float *to = NULL;
        if (rm_sweep_cold(s, r->sequence, s->checkpoint_layer, rm_run_column(r)))
            to = kept_block(s, r, p, place);
        for (uint32_t k = 0; k < p->count; k++, row++) {
            if (to != NULL)
                memcpy(to + (r->first % RM_PAGE_TOKENS + p->first + k) * dim,
                       s->hidden + s->hidden_row[row] * dim, dim * sizeof *to);
        }
    }
}

/* A column that stays in memory and has new rows: its checkpoint would lack them. Older rows of it
 * may have come in at the checkpoint in this very layer. */
void rm_keep_forget(rm_sweep *s, uint32_t layer) {
    for (uint32_t i = 0; s->cold_kind == REMAT_COLD_CHECKPOINT && i < s->run_count; i++) {
        const rm_row_run *r = &s->runs[i];
        if (layer == s->checkpoint_layer && r->enter < layer &&
            !rm_sweep_cold(s, r->sequence, layer, rm_run_column(r)))
            rm_kept_give(&s->kept, rm_checkpoint_place(s->cache, r->sequence, rm_run_column(r)));
    }
}

/* One page from its inputs. */
static void rebuild_page(rm_sweep *s, uint32_t layer, uint32_t sequence, uint32_t column,
                         void *block) {
    const rm_segment segment = {.sequence = sequence, .count = RM_PAGE_TOKENS};
    rm_chunk chunk = {.row_count = RM_PAGE_TOKENS,
                      .segment_count = 1,
                      .position = s->position,
                      .segments = &segment};
    for (uint32_t i = 0; i < RM_PAGE_TOKENS; i++)
        s->position[i] = column * RM_PAGE_TOKENS + i;
    const rm_layer_job job = rm_sweep_job(s, layer, &chunk);
    rm_layer_rebuild(&job, block);
}

/* Pages of the past that the layer's rows see, of the sequences that have rows in it. */
int rm_keep_rebuild(rm_sweep *s, uint32_t layer, remat_error *err) {
    for (uint32_t i = 0; s->cold_kind == REMAT_COLD_INPUTS && i < s->run_count; i++) {
        const rm_row_run *r = &s->runs[i];
        if (i > 0 && r[-1].sequence == r->sequence) continue;
        const uint32_t end = rm_run_column(&s->runs[rm_sweep_last(s, i)]) + 1;
        for (uint32_t c = rm_first_column(&s->model->layers[layer], r->first); c < end; c++) {
            void *block = rm_kept_at(&s->kept, rm_cache_index(s->cache, r->sequence, layer, c));
            if (block == NULL || rm_cache_in_pool(s->cache, r->sequence, layer, c)) continue;
            if (rm_cache_hold(s->cache, r->sequence, layer, c, true) != RM_HELD)
                return rm_fail(err, REMAT_E_FAILED, "cache: no room for a layer of the past");
            rebuild_page(s, layer, r->sequence, c, block);
        }
    }
    return REMAT_OK;
}

void rm_keep_release(rm_sweep *s, uint32_t layer) {
    for (uint32_t i = 0; s->cold_kind == REMAT_COLD_INPUTS && i < s->run_count; i++) {
        const rm_row_run *r = &s->runs[i];
        if (i > 0 && r[-1].sequence == r->sequence) continue;
        for (uint32_t c = 0; c < s->cache->shape.column_count; c++) {
            if (rm_sweep_cold(s, r->sequence, layer, c))
                rm_cache_release(s->cache, r->sequence, layer, c);
        }
    }
}
