/* account.c: sequences, and where the bytes are: the rest of the public functions. Part: engine. */
#include "base/machine.h"
#include "engine/engine.h"

#include <string.h>

const char *remat_account_name(uint32_t account) {
    return account < RM_ACCOUNT_COUNT ? rm_account_name((rm_account)account) : "unknown";
}

int remat_sequence_open(remat_sequence **out, remat_engine *e, remat_error *err) {
    if (!e->ready) return rm_fail(err, REMAT_E_USAGE, "sequence: the engine is not started");
    for (uint32_t i = 0; i < e->setup.sequence_count; i++) {
        remat_sequence *s = &e->sequences[i];
        if (s->open) continue;
        s->open = true;
        s->count = s->dropped_columns = 0;
        *out = s;
        return REMAT_OK;
    }
    return rm_fail(err, REMAT_E_FAILED, "sequence: all %u are in use; close one",
                   e->setup.sequence_count);
}

void remat_sequence_close(remat_sequence **s) {
    if (s == NULL || *s == NULL) return;
    remat_sequence *q = *s;
    rm_cache_drop(&q->engine->cache, q->index, 0, q->engine->setup.column_count);
    q->open = false;
    *s = NULL;
}

uint32_t remat_sequence_count(const remat_sequence *s) {
    return s->count;
}

const uint32_t *remat_sequence_tokens(const remat_sequence *s) {
    return s->tokens;
}

const float *remat_logits(const remat_sequence *s) {
    return s->logits;
}

int remat_advance(remat_engine *e, const remat_step *steps, uint32_t step_count, remat_error *err) {
    if (step_count == 0) return rm_fail(err, REMAT_E_USAGE, "advance: no steps");
    return rm_engine_advance(e, steps, step_count, NULL, NULL, err);
}

static uint32_t dropped_tokens(const remat_sequence *s) {
    const uint32_t dropped = s->dropped_columns * RM_PAGE_TOKENS;
    return dropped < s->count ? dropped : s->count;
}

void remat_each_interval(const remat_sequence *s, remat_interval_fn *fn, void *user) {
    const uint32_t dropped = dropped_tokens(s), last = s->engine->model.shape.layer_count - 1;
    if (dropped > 0) fn(user, 0, dropped - 1, "dropped", 0, last);
    if (dropped < s->count) fn(user, dropped, s->count - 1, "resident", 0, last);
}

void remat_stats_get(remat_stats *out, const remat_engine *e) {
    *out = (remat_stats){.budget_bytes = e->options.memory_bytes,
                         .peak_bytes = rm_machine_peak_bytes(),
                         .predicted_peak_bytes = e->predicted_peak_bytes,
                         .recomputed_tokens = e->recomputed_tokens,
                         .sweep_count = e->sweep_count,
                         .row_count = e->row_count,
                         .load_s = e->load_s,
                         .kernels = e->kernels->name,
                         .thread_count = e->thread_count};
    memcpy(out->account_bytes, e->ledger.owned, sizeof out->account_bytes);
    if (!e->started) return;
    out->kv_resident_bytes = e->cache.pool.taken * e->cache.pool.block_bytes;
    for (uint32_t i = 0; i < e->setup.sequence_count; i++) {
        if (e->sequences[i].open) out->dropped_tokens += dropped_tokens(&e->sequences[i]);
    }
}
