/* test_random.c: known numbers, range, and hashes (too small for a program of their own). */
#include "base/hash.h"
#include "base/random.h"
#include "base/clock.h"
#include "harness.h"

/* Of the state 1 2 3 4, what other implementations of the authors' code test for. */
static void known_numbers(void) {
    rm_random r;
    rm_random_seed(&r, 0);
    EXPECT_EQ_U64(r.state[0], 0xe220a8397b1dcdafu); /* splitmix64's published first output */
    EXPECT_EQ_U64(r.state[1], 0x6e789e6aa1b965f4u);
    EXPECT_EQ_U64(rm_random_u64(&r), 0x53175d61490b23dfu);
    EXPECT_EQ_U64(rm_random_u64(&r), 0x61da6f3dc380d507u);
    r = (rm_random){{1, 2, 3, 4}};
    EXPECT_EQ_U64(rm_random_u64(&r), 41943041);
    EXPECT_EQ_U64(rm_random_u64(&r), 58720359);
    EXPECT_EQ_U64(rm_random_u64(&r), 3588806011781223u);
    EXPECT_EQ_U64(rm_random_u64(&r), 3591011842654386u);
}

static void floats_are_uniform(void) {
    rm_random r;
    uint32_t bins[16] = {0};
    rm_random_seed(&r, 7);
    for (int i = 0; i < 160000; i++) {
        const float f = rm_random_f32(&r);
        REQUIRE(f >= 0.0f && f < 1.0f);
        bins[(int)(f * 16)]++;
    }
    for (int i = 0; i < 16; i++)
        EXPECT(bins[i] > 9500 && bins[i] < 10500); /* five standard deviations */
    r = (rm_random){{0, 0, 0, 0}};
    EXPECT(rm_random_f32(&r) == 0.0f);
}

static void system_seeds_differ(void) {
    EXPECT(rm_random_system() != rm_random_system());
}

static void hashes(void) {
    /* XXH3's published values of the empty input. */
    EXPECT_EQ_U64(rm_hash(NULL, 0, 0), 0x2d06800538d394c2u);
    static uint8_t bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)t_random();
    const uint64_t h = rm_hash(bytes, sizeof bytes, 1);
    EXPECT(h == rm_hash(bytes, sizeof bytes, 1));
    EXPECT(h != rm_hash(bytes, sizeof bytes, 2));
    bytes[1500] ^= 1;
    EXPECT(h != rm_hash(bytes, sizeof bytes, 1));
}

static void time_goes_on(void) {
    const double a = rm_clock_s();
    const double b = rm_clock_s();
    EXPECT(b >= a && b - a < 10);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(known_numbers), T(floats_are_uniform), T(system_seeds_differ),
                  T(hashes), T(time_goes_on));
}
