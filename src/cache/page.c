/* page.c: see page.h. */
#include "cache/page.h"

#include <string.h>

uint64_t rm_cache_page_bytes(const rm_cache_shape *s) {
    return (uint64_t)s->kv_head_count * rm_page_bytes(s->format, s->head_dim);
}

static uint64_t entries(const rm_cache_shape *s) {
    return (uint64_t)s->sequence_count * s->layer_count * s->column_count;
}

static int32_t *entry(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const rm_cache_shape *s = &c->shape;
    RM_ASSERT(sequence < s->sequence_count);
    RM_ASSERT(layer < s->layer_count);
    RM_ASSERT(column < s->column_count);
    return &c->table[((size_t)sequence * s->layer_count + layer) * s->column_count + column];
}

int rm_cache_layout(rm_cache *c, rm_ledger *l, const rm_cache_shape *s, remat_error *err) {
    *c = (rm_cache){.shape = *s, .head_bytes = rm_page_bytes(s->format, s->head_dim)};
    RM_TRY(rm_ledger_carve(&c->table, l, RM_ACCOUNT_KV, entries(s), sizeof *c->table, err));
    return rm_pool_layout(&c->pool, l, RM_ACCOUNT_KV, s->page_count, rm_cache_page_bytes(s), err);
}

void rm_cache_start(rm_cache *c) {
    rm_pool_start(&c->pool);
    for (uint64_t i = 0; i < entries(&c->shape); i++)
        c->table[i] = RM_POOL_NONE;
}

void *rm_cache_page(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const int32_t block = *entry(c, sequence, layer, column);
    return block == RM_POOL_NONE ? NULL : rm_pool_at(&c->pool, block);
}

bool rm_cache_hold(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    int32_t *e = entry(c, sequence, layer, column);
    if (*e == RM_POOL_NONE) *e = rm_pool_take(&c->pool);
    return *e != RM_POOL_NONE;
}

void rm_cache_release(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    int32_t *e = entry(c, sequence, layer, column);
    if (*e != RM_POOL_NONE) rm_pool_give(&c->pool, *e);
    *e = RM_POOL_NONE;
}

void rm_cache_drop(rm_cache *c, uint32_t sequence, uint32_t first, uint32_t last) {
    for (uint32_t layer = 0; layer < c->shape.layer_count; layer++) {
        for (uint32_t column = first; column < last; column++)
            rm_cache_release(c, sequence, layer, column);
    }
}

bool rm_cache_copy_out(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column, void *to) {
    const void *page = rm_cache_page(c, sequence, layer, column);
    if (page == NULL) return false;
    memcpy(to, page, rm_cache_page_bytes(&c->shape));
    return true;
}

bool rm_cache_put_in(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                     const void *from) {
    if (!rm_cache_hold(c, sequence, layer, column)) return false;
    memcpy(rm_cache_page(c, sequence, layer, column), from, rm_cache_page_bytes(&c->shape));
    return true;
}
