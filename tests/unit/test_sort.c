/* test_sort.c: order, with equal items and of all small counts; nothing is lost. */
#include "base/sort.h"
#include "harness.h"

typedef struct item {
    uint32_t key, twice; /* twice: of the key, so that a torn item shows */
    uint64_t more[3];
} item;

static bool before(const void *a, const void *b) {
    const item *x = a, *y = b;
    return x->key < y->key;
}

static void any_count(void) {
    enum { MOST = 160 };
    item items[MOST];
    for (size_t n = 0; n <= MOST; n += n < 20 ? 1 : 35) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++) {
            const uint32_t key = (uint32_t)(t_random() % (n / 2 + 1));
            items[i] = (item){.key = key, .twice = 2 * key, .more = {key, key, key}};
            sum += key;
        }
        rm_sort(items, n, sizeof *items, before);
        for (size_t i = 0; i < n; i++) {
            EXPECT(i == 0 || items[i - 1].key <= items[i].key);
            EXPECT(items[i].twice == 2 * items[i].key && items[i].more[2] == items[i].key);
            sum -= items[i].key;
        }
        EXPECT_EQ_U64(sum, 0);
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(any_count));
}
