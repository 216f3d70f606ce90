/*
 * route.h: which tokens of the past have to run again, and through which layers. Part: engine.
 *
 * New tokens see pages of the past in every layer. Where a page is nowhere (dropped, or lost on
 * disk), its tokens pass the layers up to it again, and there leave their keys and values:
 *
 *     layer 3                 new             columns whose pages are missing up to layer 2:
 *     layer 2   keys   keys   new             whole layers 0 and 1, keys of layer 2
 *     layer 1   row    row    new
 *     layer 0   row    row    new             Those rows see pages too, which may be missing as
 *             column 0  1      2              well: the walk from the top layer down finds all.
 *
 * A column whose hidden states before some layer are kept (a checkpoint) comes in there, unless a
 * page below is missing, too.
 */
#ifndef RM_ENGINE_ROUTE_H
#define RM_ENGINE_ROUTE_H

#include "engine/sweep.h"

enum { RM_ROUTE_NONE = UINT16_MAX };

typedef struct rm_route {
    const rm_model *model;
    const rm_cache *cache;
    const rm_kept *checkpoints; /* NULL: there are none */
    uint32_t checkpoint_layer;
    uint16_t *enter, *leave; /* of each column: where its rows come in and leave; RM_ROUTE_NONE */
} rm_route;

/* Fills route->leave for tokens `count` .. total - 1 being appended to a sequence of count tokens.
 * logits_first: the first position whose logits are wanted. Returns how many columns run again. */
uint32_t rm_route_make(rm_route *route, uint32_t sequence, uint32_t count, uint32_t logits_first);

#endif /* RM_ENGINE_ROUTE_H */
