/*
 * merge.h: joins neighbours of a list, the best pair first, the leftmost of equal ones. Part: text.
 *
 * Shared by both tokenizers: they differ in what a pair is worth. A list of n symbols takes
 * O(n log n), memory is the caller's, nothing is recursive.
 */
#ifndef RM_TEXT_MERGE_H
#define RM_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RM_MERGE_NEVER = -1 }; /* a rank no pair has (as uint32_t), and "no neighbour" */

/* A symbol stands at the index of its first byte; next is the index where it ends. */
typedef struct rm_symbol {
    uint32_t id, prev, next;
    uint32_t rank, joined; /* of the pair with the next symbol: RM_MERGE_NEVER, and its id */
} rm_symbol;

/* What the pair at left and right is worth: a lower rank goes first; and the id of both joined.
 * False when they do not join. */
typedef bool rm_pair_fn(const void *user, const rm_symbol *s, uint32_t left, uint32_t right,
                        uint32_t *rank, uint32_t *joined);

/* Entries of the heap for text of so many bytes: a pair each, and one more for each join. */
static inline size_t rm_merge_heap_count(size_t bytes) {
    return 2 * bytes;
}

/* s[0] is the first symbol; the list ends where next is `end`. */
void rm_merge(rm_symbol *s, uint32_t end, uint64_t *heap, rm_pair_fn *fn, const void *user);

#endif /* RM_TEXT_MERGE_H */
