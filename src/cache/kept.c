/* kept.c: see kept.h. */
#include "cache/kept.h"

int rm_kept_layout(rm_kept *k, rm_ledger *l, uint64_t place_count, uint32_t block_count,
                   uint64_t block_bytes, remat_error *err) {
    *k = (rm_kept){.place_count = block_count > 0 ? place_count : 0};
    if (block_count == 0) return REMAT_OK;
    RM_TRY(rm_ledger_carve(&k->table, l, RM_ACCOUNT_KV, place_count, sizeof *k->table, err));
    return rm_pool_layout(&k->pool, l, RM_ACCOUNT_KV, block_count, (block_bytes + 63) / 64 * 64,
                          err);
}

void rm_kept_start(rm_kept *k) {
    if (k->place_count == 0) return;
    rm_pool_start(&k->pool);
    for (uint64_t i = 0; i < k->place_count; i++)
        k->table[i] = RM_POOL_NONE;
}

void *rm_kept_at(const rm_kept *k, uint64_t place) {
    if (place >= k->place_count || k->table[place] == RM_POOL_NONE) return NULL;
    return rm_pool_at(&k->pool, k->table[place]);
}

void *rm_kept_take(rm_kept *k, uint64_t place) {
    if (place >= k->place_count) return NULL;
    if (k->table[place] == RM_POOL_NONE) k->table[place] = rm_pool_take(&k->pool);
    return rm_kept_at(k, place);
}

void rm_kept_give(rm_kept *k, uint64_t place) {
    if (place >= k->place_count || k->table[place] == RM_POOL_NONE) return;
    rm_pool_give(&k->pool, k->table[place]);
    k->table[place] = RM_POOL_NONE;
}
