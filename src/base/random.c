/* random.c: see random.h. */
#include "base/random.h"
#include "base/clock.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static uint64_t rotate(uint64_t x, int by) {
    return (x << by) | (x >> (64 - by));
}

void rm_random_seed(rm_random *r, uint64_t seed) {
    for (int i = 0; i < 4; i++)
        r->state[i] = splitmix(&seed);
}

uint64_t rm_random_u64(rm_random *r) {
    uint64_t *s = r->state;
    const uint64_t result = rotate(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

float rm_random_f32(rm_random *r) {
    return (float)(rm_random_u64(r) >> 40) * 0x1p-24f;
}

uint64_t rm_random_system(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed) return seed;
    /* Early in a boot, or forbidden: a sampling seed needs to differ, not to be secret. */
    const double now = rm_clock_s();
    memcpy(&seed, &now, sizeof seed);
    seed ^= (uint64_t)getpid() << 32;
    return splitmix(&seed);
}
