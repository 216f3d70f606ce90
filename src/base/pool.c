/* pool.c: see pool.h. */
#include "base/pool.h"
#include "base/poison.h"

#include <string.h>

enum { TAKEN = -2 };

int rm_pool_layout(rm_pool *p, rm_ledger *l, rm_account account, uint32_t count,
                   uint64_t block_bytes, remat_error *err) {
    RM_ASSERT(count <= INT32_MAX);
    RM_ASSERT(block_bytes > 0);
    memset(p, 0, sizeof *p);
    p->count = count;
    p->block_bytes = block_bytes;
    p->first_free = RM_POOL_NONE;
    RM_TRY(rm_ledger_carve_pages(&p->blocks, l, account, count, block_bytes, err));
    RM_TRY(rm_ledger_carve(&p->next, l, account, count, sizeof *p->next, err));
    return REMAT_OK;
}

void rm_pool_start(rm_pool *p) {
    RM_ASSERT(p->count == 0 || p->next != NULL);
    for (uint32_t i = 0; i < p->count; i++)
        p->next[i] = i + 1 < p->count ? (int32_t)(i + 1) : RM_POOL_NONE;
    p->first_free = p->count > 0 ? 0 : RM_POOL_NONE;
    p->taken = p->high_water = 0;
    p->limit = p->count;
    /* A free block that somebody still reads is seen by the sanitizer. */
    rm_poison(p->blocks, p->count * p->block_bytes);
}

void *rm_pool_at(const rm_pool *p, int32_t block) {
    RM_ASSERT(block >= 0 && (uint32_t)block < p->count);
    RM_ASSERT(p->next[block] == TAKEN);
    return p->blocks + (uint64_t)block * p->block_bytes;
}

int32_t rm_pool_take(rm_pool *p) {
    const int32_t block = p->first_free;
    if (p->taken >= p->limit) return RM_POOL_NONE;
    if (block == RM_POOL_NONE) {
        RM_ASSERT(p->taken == p->count);
        return RM_POOL_NONE;
    }
    p->first_free = p->next[block];
    p->next[block] = TAKEN;
    p->taken++;
    if (p->taken > p->high_water) p->high_water = p->taken;
    void *bytes = rm_pool_at(p, block);
    rm_unpoison(bytes, p->block_bytes);
    memset(bytes, 0, p->block_bytes);
    return block;
}

void rm_pool_give(rm_pool *p, int32_t block) {
    void *bytes = rm_pool_at(p, block); /* asserts that it is taken: giving twice is a bug */
    rm_poison(bytes, p->block_bytes);
    RM_ASSERT(p->taken > 0);
    p->taken--;
    p->next[block] = p->first_free;
    p->first_free = block;
}

void rm_pool_trim(rm_pool *p, const rm_ledger *l) {
    int32_t *link = &p->first_free;
    for (uint32_t first = 0, end; first < p->count; first = end) {
        for (end = first; end < p->count && p->next[end] != TAKEN; end++) {
            *link = (int32_t)end; /* in the order of addresses again */
            link = &p->next[end];
        }
        if (end > first)
            rm_ledger_discard(l, p->blocks + first * p->block_bytes,
                              (end - first) * p->block_bytes);
        while (end < p->count && p->next[end] == TAKEN)
            end++;
    }
    *link = RM_POOL_NONE;
}

uint32_t rm_pool_free(const rm_pool *p) {
    return p->count - p->taken;
}
