/* test_pressure.c: when the budget shrinks and grows, from given numbers; and on this machine. */
#include "base/pressure.h"
#include "base/clock.h"
#include "harness.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static rm_pressure_sources left(uint64_t limit, uint64_t bytes) {
    return (rm_pressure_sources){.levels = {{limit, bytes}}, .level_count = 1};
}

static void reserves(void) {
    EXPECT_EQ_U64(rm_pressure_reserve(64 * GIB), GIB);
    EXPECT_EQ_U64(rm_pressure_reserve(5000 * MIB), 500 * MIB);
    EXPECT_EQ_U64(rm_pressure_reserve(400 * MIB), 64 * MIB);
    EXPECT_EQ_U64(rm_pressure_reserve(100 * MIB), 25 * MIB);
    EXPECT_EQ_U64(rm_pressure_reserve(0), 0);
}

/* Each level has a reserve of its own; the tightest decides. */
static void room_is_the_tightest_levels(void) {
    rm_pressure p;
    rm_pressure_start(&p, UINT64_MAX);
    rm_pressure_sources s = {
        .levels = {{64 * GIB, 20 * GIB}, {1000 * MIB, 600 * MIB}, {2000 * MIB, 800 * MIB}},
        .level_count = 3};
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 300 * MIB, 0), 800 * MIB);
    s.levels[0].left_bytes = GIB + 100 * MIB;
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 300 * MIB, 0.3), 400 * MIB);
    s.levels[2].left_bytes = 0;
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 300 * MIB, 0.6), 100 * MIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 10 * MIB, 0.9), 0);
}

static void never_above_most(void) {
    rm_pressure p;
    rm_pressure_start(&p, 500 * MIB);
    rm_pressure_sources s = left(64 * GIB, 60 * GIB);
    for (double now = 0; now < 60; now += 0.25)
        EXPECT_EQ_U64(rm_pressure_step(&p, &s, 400 * MIB, now), 500 * MIB);
    rm_pressure_start(&p, 500 * MIB);
    s.level_count = 0; /* nothing can be read */
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 400 * MIB, 0), 500 * MIB);
    rm_pressure_start(&p, UINT64_MAX);
    s = left(UINT64_MAX, UINT64_MAX);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 400 * MIB, 0), UINT64_MAX - GIB);
}

/* Down at once; up after five seconds, in eighths, and not past what there is. */
static void shrinks_at_once_and_grows_slowly(void) {
    rm_pressure p;
    rm_pressure_start(&p, UINT64_MAX);
    rm_pressure_sources s = left(64 * GIB, 9 * GIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 0, 0), 8 * GIB);
    s = left(64 * GIB, 2 * GIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 0, 1), GIB);
    s = left(64 * GIB, 9 * GIB);
    uint64_t before = GIB;
    for (double now = 1.25; now < 5.9; now += 0.25)
        EXPECT_EQ_U64(rm_pressure_step(&p, &s, 0, now), GIB);
    uint32_t polls = 0;
    for (double now = 6; before < 8 * GIB && polls < 100; now += 0.25, polls++) {
        const uint64_t allowed = rm_pressure_step(&p, &s, 0, now);
        EXPECT(allowed > before && allowed <= before + before / 8 && allowed <= 8 * GIB);
        before = allowed;
    }
    EXPECT(polls == 18); /* 1.125^18 is the first above 8 */
}

/* Each dip starts the five seconds anew; what is between the dips is not taken. */
static void does_not_swing(void) {
    rm_pressure p;
    rm_pressure_start(&p, UINT64_MAX);
    rm_pressure_sources high = left(64 * GIB, 5 * GIB), low = left(64 * GIB, 3 * GIB);
    (void)rm_pressure_step(&p, &high, 0, 0);
    uint32_t changes = 0;
    uint64_t before = p.allowed;
    for (uint32_t i = 1; i < 400; i++) {
        low.levels[0].left_bytes -= i % 12 == 0; /* a dip of a byte every three seconds */
        const uint64_t allowed = rm_pressure_step(&p, i % 12 == 0 ? &low : &high, 0, i * 0.25);
        changes += allowed > before;
        before = allowed;
    }
    EXPECT_EQ_U64(changes, 0);
    /* Room that moves by less than a part in 32 is not followed upwards. */
    rm_pressure_start(&p, UINT64_MAX);
    for (uint32_t i = 0; i < 400; i++) {
        const rm_pressure_sources s = left(64 * GIB, 5 * GIB + t_random() % (100 * MIB));
        const uint64_t allowed = rm_pressure_step(&p, &s, 0, i * 0.25);
        EXPECT(i == 0 || allowed <= before);
        before = allowed;
    }
}

/* Growth of the process itself leaves room where it is. */
static void own_memory_is_not_pressure(void) {
    rm_pressure p;
    rm_pressure_start(&p, UINT64_MAX);
    for (uint64_t i = 0; i < 40; i++) {
        const rm_pressure_sources s = left(64 * GIB, (50 - i) * 100 * MIB);
        EXPECT_EQ_U64(rm_pressure_step(&p, &s, i * 100 * MIB, (double)i), 5000 * MIB - GIB);
    }
}

/* A tenth of what is held, once for each new figure that has not fallen. */
static void waiting_tasks_squeeze(void) {
    rm_pressure p;
    rm_pressure_start(&p, 2000 * MIB);
    rm_pressure_sources s = left(64 * GIB, 32 * GIB);
    s.pressure.some = 1500;
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, MIB, 0), 2000 * MIB); /* nothing is held yet */
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 1000 * MIB, 0.25), 900 * MIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 950 * MIB, 0.5), 900 * MIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 900 * MIB, 2.0), 900 * MIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 900 * MIB, 2.25), 810 * MIB); /* no better */
    s.pressure.some = 1200;
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 810 * MIB, 4.5), 810 * MIB);  /* better */
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 810 * MIB, 6.75), 729 * MIB); /* but not for long */
    s.pressure.some = 900;
    s.pressure.full = 201;
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 700 * MIB, 9), 630 * MIB);
    s.pressure.full = 200;
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 630 * MIB, 9.25), 630 * MIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 630 * MIB, 13.75), 630 * MIB);
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 630 * MIB, 14), 630 * MIB + 630 * MIB / 8);
    s.pressure.some = 1001; /* a new wave is answered at once */
    EXPECT_EQ_U64(rm_pressure_step(&p, &s, 600 * MIB, 14.25), 540 * MIB);
}

/* A burst that is over costs little, although its mean takes 11 seconds to fall. */
static void a_burst_is_forgotten(void) {
    rm_pressure p;
    rm_pressure_start(&p, 1000 * MIB);
    rm_pressure_sources s = left(64 * GIB, 32 * GIB);
    uint64_t held = 1000 * MIB;
    (void)rm_pressure_step(&p, &s, held, 0);
    double some = 3000;
    for (uint32_t i = 1; i < 60; i++) {
        if (i % 8 == 0) some *= 0.82;
        s.pressure.some = (uint32_t)some;
        const uint64_t allowed = rm_pressure_step(&p, &s, held, i * 0.25);
        if (allowed < held) held = allowed;
    }
    EXPECT_EQ_U64(held, 900 * MIB);
}

static void polls_are_rare(void) {
    rm_pressure p;
    rm_pressure_start(&p, 64 * MIB);
    EXPECT(rm_pressure_due(&p, 0));
    const uint64_t first = rm_pressure_poll(&p, 10 * MIB, 100);
    EXPECT(first <= 64 * MIB);
    EXPECT(!rm_pressure_due(&p, 100) && !rm_pressure_due(&p, 100.2));
    p.allowed = 12345; /* not asked again: the answer is repeated */
    EXPECT_EQ_U64(rm_pressure_poll(&p, 10 * MIB, 100.2), 12345);
    EXPECT(rm_pressure_due(&p, 100.25));
}

static void this_machine(void) {
    rm_pressure p;
    rm_pressure_start(&p, UINT64_MAX);
    const uint64_t resident = rm_machine_resident_bytes();
    if (resident == 0) SKIP("no /proc/self/status");
    const uint64_t allowed = rm_pressure_poll(&p, resident, rm_clock_s());
    EXPECT(allowed < resident + rm_machine_available_bytes());
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(reserves), T(room_is_the_tightest_levels), T(never_above_most),
                  T(shrinks_at_once_and_grows_slowly), T(does_not_swing),
                  T(own_memory_is_not_pressure), T(waiting_tasks_squeeze), T(a_burst_is_forgotten),
                  T(polls_are_rare), T(this_machine));
}
