/* test_threads.c: every item once, on any number of threads, also when the machine is busy. */
#include "base/threads.h"
#include "base/clock.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS_MAX = 5000 };

static _Alignas(64) uint8_t memory[64 << 10];

static rm_threads *start(uint32_t count) {
    rm_threads *t = NULL;
    remat_error err = {0};
    if (rm_threads_bytes(count) > sizeof memory) abort();
    memset(memory, 0, sizeof memory);
    if (rm_threads_start(&t, memory, count, &err) != REMAT_OK) {
        t_fail("%s", err.message);
        abort();
    }
    return t;
}

/* How often each item ran. Plain memory on purpose: the pool itself must order what the items of
 * one loop write before what the next loop and the caller read. */
typedef struct {
    uint32_t runs[ITEMS_MAX];
    uint32_t thread_count;
    atomic_uint bad_thread;
} record;

static void note(void *user, uint32_t item, uint32_t thread) {
    record *r = user;
    r->runs[item]++;
    if (thread >= r->thread_count) atomic_fetch_add(&r->bad_thread, 1);
}

static void every_item_runs_once(void) {
    static record r;
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 16};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        rm_threads *t = start(counts[c]);
        EXPECT_EQ_U64(rm_threads_count(t), counts[c]);
        memset(&r, 0, sizeof r);
        r.thread_count = counts[c];
        uint32_t expected[ITEMS_MAX / 1000 + 1] = {0}; /* runs of item 0, 1000, 2000 .. */
        for (int loop = 0; loop < 300; loop++) {
            const uint32_t items = (uint32_t)(t_random() % (loop % 10 == 0 ? ITEMS_MAX : 40));
            const uint32_t batch = (uint32_t)(t_random() % 5);
            uint32_t before_last = items > 0 ? r.runs[items - 1] : 0;
            rm_threads_for(t, items, batch, note, &r);
            if (items > 0) EXPECT_EQ_U64(r.runs[items - 1], before_last + 1);
            for (uint32_t i = 0; i * 1000 < items; i++)
                expected[i]++;
        }
        for (uint32_t i = 0; i * 1000 < ITEMS_MAX; i++)
            EXPECT_EQ_U64(r.runs[i * 1000], expected[i]);
        for (uint32_t i = 1; i < ITEMS_MAX; i++)
            REQUIRE(r.runs[i] <= r.runs[i - 1]);
        EXPECT_EQ_U64(r.bad_thread, 0);
        rm_threads_stop(&t);
        EXPECT(t == NULL);
        rm_threads_stop(&t);
    }
}

/* One item, or one batch, is run by the caller. */
static void mark_thread(void *user, uint32_t item, uint32_t thread) {
    (void)item;
    *(uint32_t *)user += thread + 1;
}

static void small_loops_wake_nobody(void) {
    rm_threads *t = start(4);
    for (int i = 0; i < 1000; i++) {
        uint32_t sum = 0;
        rm_threads_for(t, 0, 0, mark_thread, &sum);
        EXPECT_EQ_U64(sum, 0);
        rm_threads_for(t, 1, 0, mark_thread, &sum);
        EXPECT_EQ_U64(sum, 1);
        rm_threads_for(t, 8, 8, mark_thread, &sum);
        EXPECT_EQ_U64(sum, 9);
    }
    rm_threads_stop(&t);
}

/* Gaps longer than the spinning send everybody to sleep; each loop must wake them again. */
static void slow(void *user, uint32_t item, uint32_t thread) {
    (void)thread;
    if (item % 3 == 0) usleep(300); /* longer than the caller spins */
    ((uint32_t *)user)[item]++;
}

static void sleepers_wake_again(void) {
    static uint32_t runs[16];
    rm_threads *t = start(3);
    memset(runs, 0, sizeof runs);
    for (int i = 0; i < 60; i++) {
        rm_threads_for(t, 16, 1, slow, runs);
        usleep(i % 2 == 0 ? 500 : 30);
    }
    for (int i = 0; i < 16; i++)
        EXPECT_EQ_U64(runs[i], 60);
    rm_threads_stop(&t);
}

static void use_stack(void *user, uint32_t item, uint32_t thread) {
    volatile uint8_t frame[7000];
    for (size_t i = 0; i < sizeof frame; i += 512)
        frame[i] = (uint8_t)item;
    ((volatile uint8_t *)user)[thread] = frame[512]; /* each thread its own byte */
}

static atomic_uint handled_elsewhere;
static atomic_ulong caller_id;

static void handler(int number) {
    (void)number;
    if ((unsigned long)pthread_self() != atomic_load(&caller_id))
        atomic_fetch_add(&handled_elsewhere, 1);
}

static void workers_get_no_signals(void) {
    static uint8_t sink[64];
    atomic_store(&caller_id, (unsigned long)pthread_self());
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    rm_threads *t = start(4);
    for (int i = 0; i < 200; i++) {
        kill(getpid(), SIGUSR1);
        rm_threads_for(t, 64, 1, use_stack, sink);
    }
    rm_threads_stop(&t);
    EXPECT_EQ_U64(atomic_load(&handled_elsewhere), 0);
}

static void nothing_to_do(void *user, uint32_t item, uint32_t thread) {
    (void)user;
    (void)item;
    (void)thread;
}

/* More threads than cores and another busy process: a loop must not cost time slices. */
static void a_busy_machine_is_survived(void) {
    const pid_t child = fork();
    if (child == 0) {
        for (;;) {
        }
    }
    REQUIRE(child > 0);
    enum { LOOPS = 2000 };
    rm_threads *t = start(16);
    const double begin = rm_clock_s();
    for (int i = 0; i < LOOPS; i++)
        rm_threads_for(t, 64, 1, nothing_to_do, NULL);
    const double each = (rm_clock_s() - begin) / LOOPS;
    rm_threads_stop(&t);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("     16 threads, busy machine: %.1f us a loop\n", each * 1e6);
    /* A time slice is 3 ms and more; waiting for one in every loop would be seen. */
    EXPECT(each < 2e-3);
}

static void a_loop_is_cheap(void) {
    rm_threads *t = start(2);
    double best = 1;
    for (int round = 0; round < 20; round++) {
        const double begin = rm_clock_s();
        for (int i = 0; i < 500; i++)
            rm_threads_for(t, 16, 1, nothing_to_do, NULL);
        const double each = (rm_clock_s() - begin) / 500;
        if (each < best) best = each;
    }
    rm_threads_stop(&t);
    printf("     2 threads, 16 empty items: %.2f us a loop\n", best * 1e6);
    EXPECT(best < 1e-3); /* loose: this is not the place to fail on a slow machine */
}

#ifndef RM_SANITIZED
static void nothing_is_allocated(void) {
    static record r;
    rm_threads *t = start(3);
    r.thread_count = 3;
    no_malloc_begin();
    for (int i = 0; i < 200; i++)
        rm_threads_for(t, 100, 0, note, &r);
    EXPECT_EQ_U64(no_malloc_end(), 0);
    rm_threads_stop(&t);
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(every_item_runs_once), T(small_loops_wake_nobody),
                  T(sleepers_wake_again), T(workers_get_no_signals), T(a_busy_machine_is_survived),
                  T(a_loop_is_cheap),
#ifndef RM_SANITIZED
                  T(nothing_is_allocated),
#endif
    );
}
