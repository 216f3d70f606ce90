/* kc_common.h: numbers, rooms with guard bytes and comparison of bits, for kerncheck. */
#ifndef RM_KC_COMMON_H
#define RM_KC_COMMON_H

#include "harness.h"
#include "kernels/kernels.h"

#include <math.h>

enum { KC_GUARD = 128 };

/* A 64-byte aligned block between guards of 0x99, filled with 0x55. Never given back: each check
 * is a process of its own. */
typedef struct kc_room {
    char *at;
    size_t bytes;
} kc_room;

static inline kc_room kc_take(size_t bytes) {
    const size_t all = (bytes + 63) / 64 * 64 + 2 * KC_GUARD;
    char *p = aligned_alloc(64, all);
    if (p == NULL) abort();
    memset(p, 0x99, all);
    memset(p + KC_GUARD, 0x55, bytes);
    return (kc_room){p + KC_GUARD, bytes};
}

static inline float *kc_floats(size_t count) {
    return (float *)(void *)kc_take(count * sizeof(float)).at;
}

static inline int kc_guards_hold(kc_room r) {
    for (size_t i = 1; i <= KC_GUARD; i++) {
        if ((unsigned char)r.at[-(ptrdiff_t)i] != 0x99) return 0;
    }
    for (size_t i = 0; i < KC_GUARD; i++) {
        if ((unsigned char)r.at[r.bytes + i] != 0x99) return 0;
    }
    return 1;
}

/* Within +-1; one in 16 is denormal: nothing may be flushed to zero. */
static inline float kc_random(void) {
    const float f = (float)((int64_t)(t_random() >> 20) - (1ll << 43)) * 0x1p-43f;
    return t_random() % 16 == 0 ? f * 0x1p-130f : f;
}

/* Now and then anything at all: infinities, NaNs, the largest and the smallest. */
static inline float kc_wild(void) {
    static const float some[] = {INFINITY, -INFINITY, NAN,   3e38f, -3e38f,   1e30f,
                                 -1e30f,   65504,     65519, 65520, 0x1p-24f, 0x1p-25f,
                                 1e-38f,   -0.0f,     88,    -104};
    const uint64_t r = t_random();
    if (r % 8 != 0) return kc_random() * 4;
    if (r / 8 % 4 != 0) return some[r / 64 % (sizeof some / sizeof *some)];
    const uint32_t u = (uint32_t)(r >> 32);
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t kc_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline int kc_same(float a, float b) {
    return kc_bits(a) == kc_bits(b) || (a != a && b != b);
}

/* Index of the first difference, or n. */
static inline size_t kc_differ(const float *a, const float *b, size_t n) {
    size_t i = 0;
    while (i < n && kc_same(a[i], b[i]))
        i++;
    return i;
}

static inline void kc_fill(float *x, size_t n, float (*of)(void)) {
    for (size_t i = 0; i < n; i++)
        x[i] = of();
}

/* Around 1, 4, 8, 16, 32, 64 lanes, and long ones. */
static const size_t kc_lengths[] = {1,  2,  3,  4,  5,  7,  8,  9,  12, 15,  16,  17,   23,
                                    24, 31, 32, 33, 47, 48, 63, 64, 65, 576, 999, 1536, 4097};
enum { KC_LENGTHS = sizeof kc_lengths / sizeof *kc_lengths, KC_LONGEST = 4097 };

#endif /* RM_KC_COMMON_H */
