/* sort.h: sorting in place: libc's qsort() takes heap in secret. Part: base. */
#ifndef RM_BASE_SORT_H
#define RM_BASE_SORT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a has to stand before b. */
typedef bool rm_before_fn(const void *a, const void *b);

/* Sorts count items of item_bytes (at most 64) each by a heap: n log n steps, not stable. */
void rm_sort(void *items, size_t count, size_t item_bytes, rm_before_fn *before);

#endif /* RM_BASE_SORT_H */
