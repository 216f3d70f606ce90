/* sort.c: see sort.h. */
#include "base/sort.h"
#include "base/check.h"

#include <string.h>

enum { ITEM_MAX = 64 };

static void swap(char *a, char *b, size_t bytes) {
    char held[ITEM_MAX];
    memcpy(held, a, bytes);
    memcpy(a, b, bytes);
    memcpy(b, held, bytes);
}

/* Lets item i of a heap of count items go down until nothing below it belongs behind it. */
static void sift(char *items, size_t i, size_t count, size_t bytes, rm_before_fn *before) {
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && before(items + child * bytes, items + (child + 1) * bytes))
            child++;
        if (!before(items + i * bytes, items + child * bytes)) return;
        swap(items + i * bytes, items + child * bytes, bytes);
    }
}

void rm_sort(void *items, size_t count, size_t item_bytes, rm_before_fn *before) {
    char *at = items;
    RM_ASSERT(item_bytes > 0 && item_bytes <= ITEM_MAX);
    for (size_t i = count / 2; i-- > 0;)
        sift(at, i, count, item_bytes, before);
    for (size_t end = count; end-- > 1;) {
        swap(at, at + end * item_bytes, item_bytes);
        sift(at, 0, end, item_bytes, before);
    }
}
