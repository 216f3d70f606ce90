/* route.c: see route.h. */
#include "engine/route.h"

/* One layer. Rows that go on past it (new ones, from position `new_first`; and columns that leave
 * above it) see pages from some column on, down to the lowest of them all. A column that new tokens
 * are added to has to be whole, seen or not. */
static void walk_layer(rm_route *r, uint32_t sequence, uint32_t count, uint32_t new_first,
                       uint32_t layer) {
    const rm_layer *y = &r->model->layers[layer];
    const uint32_t columns = rm_columns(count);
    uint32_t low = rm_least(rm_first_column(y, new_first), count / RM_PAGE_TOKENS);
    for (uint32_t c = columns; c-- > 0;) {
        const bool runs = r->leave[c] != RM_ROUTE_NONE;
        if (runs && r->leave[c] > layer && r->enter[c] <= layer)
            low = rm_least(low, rm_first_column(y, c * RM_PAGE_TOKENS));
        if (c < low || (runs && r->enter[c] <= layer && layer <= r->leave[c])) continue;
        if (rm_cache_known(r->cache, sequence, layer, c)) continue;
        /* In a second walk a column may have to go further than the first one found. */
        if (!runs || r->leave[c] < layer) r->leave[c] = (uint16_t)layer;
        const bool kept =
            !runs && r->checkpoints != NULL && layer >= r->checkpoint_layer &&
            rm_kept_at(r->checkpoints, rm_checkpoint_place(r->cache, sequence, c)) != NULL;
        r->enter[c] = kept ? (uint16_t)r->checkpoint_layer : 0;
    }
}

/* True when a column that was to come in at its checkpoint has to come in below: then its rows see
 * pages of layers that have been walked through without them. */
static bool walk(rm_route *r, uint32_t sequence, uint32_t count, uint32_t logits_first) {
    const uint32_t columns = rm_columns(count);
    const uint32_t layers = r->model->shape.layer_count;
    uint32_t kept = 0, left = 0;
    for (uint32_t layer = layers; layer-- > 0;) {
        walk_layer(r, sequence, count, layer + 1 == layers ? logits_first : count, layer);
        if (layer != r->checkpoint_layer) continue;
        for (uint32_t c = 0; c < columns; c++)
            kept += r->leave[c] != RM_ROUTE_NONE && r->enter[c] > 0;
    }
    for (uint32_t c = 0; c < columns; c++)
        left += r->leave[c] != RM_ROUTE_NONE && r->enter[c] > 0;
    return left < kept;
}

uint32_t rm_route_make(rm_route *r, uint32_t sequence, uint32_t count, uint32_t logits_first) {
    const uint32_t columns = rm_columns(count);
    uint32_t again = 0;
    for (uint32_t c = 0; c < columns; c++) {
        r->leave[c] = RM_ROUTE_NONE;
        r->enter[c] = 0;
    }
    /* What the first walk has found stays; a second one knows all rows from the top on. */
    while (walk(r, sequence, count, logits_first)) {
    }
    for (uint32_t c = 0; c < columns; c++)
        again += r->leave[c] != RM_ROUTE_NONE;
    return again;
}
