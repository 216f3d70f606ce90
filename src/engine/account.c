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
        s->count = 0;
        memset(s->cold, 0, e->setup.column_count * sizeof *s->cold);
        *out = s;
        return REMAT_OK;
    }
    return rm_fail(err, REMAT_E_FAILED, "sequence: all %u are in use; close one",
                   e->setup.sequence_count);
}

void remat_sequence_close(remat_sequence **s) {
    if (s == NULL || *s == NULL) return;
    remat_sequence *q = *s;
    q->count = 0;
    rm_sequence_empty(q);
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
    return rm_engine_advance(e, steps, step_count, NULL, err);
}

/* --- where the tokens are --------------------------------------------------------------------- */

typedef enum state { RESIDENT, SPILLED, INPUTS, CHECKPOINTED, DROPPED, UNSEEN } state;

static state state_of(const remat_sequence *s, uint32_t layer, uint32_t column) {
    const rm_cache *c = &s->engine->cache;
    if (column < rm_first_column(&s->engine->model.layers[layer], s->count)) return UNSEEN;
    if (rm_cache_in_pool(c, s->index, layer, column)) return RESIDENT;
    if (rm_cache_spilled(c, s->index, layer, column)) return SPILLED;
    if (rm_cache_known(c, s->index, layer, column)) return INPUTS;
    const rm_route *r = &s->engine->route;
    const bool kept = r->checkpoints != NULL && layer >= r->checkpoint_layer &&
                      rm_kept_at(r->checkpoints, rm_checkpoint_place(c, s->index, column)) != NULL;
    return kept ? CHECKPOINTED : DROPPED;
}

/* Layers from `layer` on that are in the state of `layer`; where it is UNSEEN, that is no state:
 * the layers around it are taken together. */
static uint32_t layers_alike(const remat_sequence *s, uint32_t layer, uint32_t column, state *is) {
    const uint32_t layers = s->engine->model.shape.layer_count;
    uint32_t n = 0;
    *is = UNSEEN;
    for (; layer + n < layers; n++) {
        const state next = state_of(s, layer + n, column);
        if (next == UNSEEN) continue;
        if (*is != UNSEEN && next != *is) break;
        *is = next;
    }
    return n;
}

static bool columns_equal(const remat_sequence *s, uint32_t a, uint32_t b) {
    for (uint32_t l = 0; l < s->engine->model.shape.layer_count; l++) {
        if (state_of(s, l, a) != state_of(s, l, b)) return false;
    }
    return true;
}

void remat_each_interval(const remat_sequence *s, remat_interval_fn *fn, void *user) {
    static const char *const names[] = {"resident", "spilled", "inputs", "checkpointed", "dropped"};
    const uint32_t layers = s->engine->model.shape.layer_count;
    const uint32_t columns = rm_columns(s->count);
    for (uint32_t c = 0, end; c < columns; c = end) {
        for (end = c + 1; end < columns && columns_equal(s, c, end); end++) {
        }
        const uint32_t first = c * RM_PAGE_TOKENS, after = end * RM_PAGE_TOKENS;
        for (uint32_t l = 0, n; l < layers; l += n) {
            state is;
            n = layers_alike(s, l, c, &is);
            if (is != UNSEEN)
                fn(user, first, (after < s->count ? after : s->count) - 1, names[is], l, l + n - 1);
        }
    }
}

/* Tokens with a page that is wanted and nowhere. */
static uint32_t dropped_tokens(const remat_sequence *s) {
    uint32_t n = 0;
    for (uint32_t first = 0; first < s->count; first += RM_PAGE_TOKENS) {
        const uint32_t left = s->count - first;
        for (uint32_t l = 0; l < s->engine->model.shape.layer_count; l++) {
            if (state_of(s, l, first / RM_PAGE_TOKENS) != DROPPED) continue;
            n += left < RM_PAGE_TOKENS ? left : RM_PAGE_TOKENS;
            break;
        }
    }
    return n;
}

void remat_stats_get(remat_stats *out, const remat_engine *e) {
    *out = (remat_stats){.budget_bytes = e->options.memory_bytes,
                         .peak_bytes = rm_machine_peak_bytes(),
                         .predicted_peak_bytes = e->predicted_peak_bytes,
                         .limit_bytes = e->options.memory_bytes,
                         .recomputed_tokens = e->recomputed_tokens,
                         .healed_count = e->healed_count,
                         .sweep_count = e->sweep_count,
                         .row_count = e->row_count,
                         .load_s = e->load_s,
                         .kernels = e->kernels->name,
                         .thread_count = e->thread_count};
    memcpy(out->account_bytes, e->ledger.owned, sizeof out->account_bytes);
    if (!e->started) return;
    out->limit_bytes = e->allowance.bytes;
    out->shrunk_count = e->allowance.shrunk;
    out->grown_count = e->allowance.grown;
    out->kv_resident_bytes = rm_cache_pool_bytes(&e->cache);
    out->kv_spilled_bytes = rm_cache_file_bytes(&e->cache);
    out->kept_bytes = e->sweep.kept.pool.taken * e->sweep.kept.pool.block_bytes;
    out->spill_read_bytes = e->spill.read_bytes;
    out->spill_written_bytes = e->spill.written_bytes;
    out->weight_read_bytes = atomic_load(&e->stream.read_bytes);
    for (uint32_t i = 0; i < e->setup.sequence_count; i++) {
        if (e->sequences[i].open) out->dropped_tokens += dropped_tokens(&e->sequences[i]);
    }
}
