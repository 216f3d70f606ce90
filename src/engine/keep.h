/*
 * keep.h: what a sweep keeps in place of pages, and makes of it (cache/kept.h). Part: engine; for
 * sweep.c alone. Each does nothing unless the sweep's cold pages are of its kind.
 *
 *     inputs         begin a block before a chunk, which layer.c fills; make pages of blocks before
 *                    the layer's chunks; give the pages back after them
 *     checkpoints    fill blocks after the layer below checkpoint_layer; load them where rows enter
 *
 * A block is begun with the first row of its column, or not at all; a column that is not cold and
 * has new rows loses it, since it would lack them.
 */
#ifndef RM_ENGINE_KEEP_H
#define RM_ENGINE_KEEP_H

#include "engine/sweep.h"

/* Before a chunk: blocks for the inputs of its cold pages. */
void rm_keep_inputs(rm_sweep *s, uint32_t layer);

/* Before a layer: pages of the past that its rows see, from their inputs.
 * Errors: REMAT_E_FAILED, when the pool has no room for them. */
int rm_keep_rebuild(rm_sweep *s, uint32_t layer, remat_error *err);

/* After a layer: gives cold pages back whose inputs are kept, or lost. */
void rm_keep_release(rm_sweep *s, uint32_t layer);

/* Before a chunk of rows that come in in the middle of the model: their hidden states. Without
 * checkpoints the caller has put them in place. */
void rm_keep_load(rm_sweep *s);

/* After a chunk; after a layer. */
void rm_keep_checkpoints(rm_sweep *s, uint32_t layer);
void rm_keep_forget(rm_sweep *s, uint32_t layer);

#endif /* RM_ENGINE_KEEP_H */
