/*
 * policy.h: who stays in memory. Part: engine.
 *
 * For every column of a sequence there is a number: how many of its lowest layers' pages are COLD.
 * Cold pages are in memory only while a sweep is in their layer; afterwards they are in the spill
 * file, or dropped. The others are HOT: they stay in the pool.
 *
 *     layer 3   hot    hot    hot      by block       whole columns, the oldest first
 *     layer 2   cold   hot    hot      by layer       the same lowest layers of all columns
 *     layer 1   cold   hot    hot      selectively    what costs least to bring back for what it
 *     layer 0   cold   cold   hot                     frees, by measured use
 *           column 0    1      2
 *
 * The lowest layers go first, since what is dropped is computed again from the tokens: bringing
 * back layer k of a column takes all layers below it. Decoding reads every page once a token, so a
 * pinned part is as good as any choice of equal cost, and an LRU would never hit.
 */
#ifndef RM_ENGINE_POLICY_H
#define RM_ENGINE_POLICY_H

#include "engine/engine.h"

/* Sets the pool's limit: what e->allowance says, but at least what the step cannot do without.
 * Chooses what is cold in every open sequence, so that the pool has room for what stays and for
 * what passes through a layer in the step, and sends away what has become cold. Pages that may come
 * back into memory do: read back now, or kept by the sweep that computes them.
 * healing: lost pages may have to be computed again besides.
 * With a spill file also between two chunks of the step's sweep.
 * Errors: REMAT_E_FAILED, when not even a layer of the past fits (the spill disk is broken). */
int rm_policy_make_room(remat_engine *e, const remat_step *steps, uint32_t step_count, bool healing,
                        remat_error *err);

/* After a step: what was counted of the uses of pages fades, by a sixteenth. Nobody forgets a page
 * that is used in every step; one that no step has used for long is cheap to give up. */
void rm_policy_age(remat_engine *e);

/* Columns first .. end - 1 will have other tokens: their uses are not known yet. */
void rm_policy_forget(const remat_sequence *s, uint32_t first, uint32_t end);

/* Pages of so many tokens of one sequence, all hot: with windows, what is left of the past. */
uint64_t rm_policy_pages(const rm_model *m, uint32_t tokens);

/* Pages that a layer may need beside the hot ones while a sweep is in it: the cold columns; with a
 * spill file never more than a chunk needs, since the others can leave meanwhile. */
uint64_t rm_policy_passing(const rm_model *m, uint64_t cold_columns, uint64_t chunk_rows,
                           uint32_t sequences, bool spill);

#endif /* RM_ENGINE_POLICY_H */
