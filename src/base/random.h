/* random.h: xoshiro256++ (Blackman and Vigna, 2019), seeded by splitmix64. Part: base. */
#ifndef RM_BASE_RANDOM_H
#define RM_BASE_RANDOM_H

#include <stdint.h>

typedef struct rm_random {
    uint64_t state[4];
} rm_random;

void rm_random_seed(rm_random *r, uint64_t seed);
uint64_t rm_random_u64(rm_random *r);

/* Uniform in [0, 1), 24 bits. */
float rm_random_f32(rm_random *r);

/* A seed from the system. */
uint64_t rm_random_system(void);

#endif /* RM_BASE_RANDOM_H */
