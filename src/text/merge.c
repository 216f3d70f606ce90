/*
 * merge.c: see merge.h.
 *
 * The heap holds rank << 32 | index of the left symbol, so the smallest entry is the best pair, and
 * the leftmost of equals. Entries are not removed when a pair goes away: an entry counts only while
 * the rank in it is that of the pair now standing there, and then joining is right whatever put it
 * there.
 */
#include "text/merge.h"

#define NEVER ((uint32_t)RM_MERGE_NEVER)

typedef struct heap {
    uint64_t *at;
    size_t count;
} heap;

/* Four children a node: half the levels of a binary one, and a node's children share a cache
 * line. */
enum { ARITY = 4 };

static void heap_put(heap *h, uint64_t v) {
    size_t i = h->count++;
    while (i > 0 && h->at[(i - 1) / ARITY] > v) {
        h->at[i] = h->at[(i - 1) / ARITY];
        i = (i - 1) / ARITY;
    }
    h->at[i] = v;
}

static uint64_t heap_take(heap *h) {
    const uint64_t least = h->at[0], v = h->at[--h->count];
    size_t i = 0;
    for (;;) {
        const size_t first = i * ARITY + 1;
        size_t best = first;
        if (first >= h->count) break;
        for (size_t c = first + 1; c < first + ARITY && c < h->count; c++) {
            if (h->at[c] < h->at[best]) best = c;
        }
        if (h->at[best] >= v) break;
        h->at[i] = h->at[best];
        i = best;
    }
    h->at[i] = v;
    return least;
}

static void consider(heap *h, rm_symbol *s, uint32_t left, uint32_t end, rm_pair_fn *fn,
                     const void *user) {
    uint32_t rank;
    s[left].rank = NEVER;
    if (s[left].next == end || !fn(user, s, left, s[left].next, &rank, &s[left].joined)) return;
    s[left].rank = rank;
    heap_put(h, (uint64_t)rank << 32 | left);
}

void rm_merge(rm_symbol *s, uint32_t end, uint64_t *memory, rm_pair_fn *fn, const void *user) {
    heap h = {.at = memory};
    for (uint32_t i = 0; i != end; i = s[i].next) {
        consider(&h, s, i, end, fn, user);
    }
    while (h.count > 0) {
        const uint64_t entry = heap_take(&h);
        const uint32_t left = (uint32_t)entry;
        if (s[left].rank != (uint32_t)(entry >> 32)) continue;
        const uint32_t right = s[left].next;
        s[left].id = s[left].joined;
        s[left].next = s[right].next;
        s[right].rank = NEVER;
        if (s[left].next != end) s[s[left].next].prev = left;
        consider(&h, s, left, end, fn, user);
        if (s[left].prev != NEVER) consider(&h, s, s[left].prev, end, fn, user);
    }
}
