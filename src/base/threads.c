/*
 * threads.c: see threads.h.
 *
 * One word, `left`, holds the items nobody has taken yet; whoever finds it above zero takes some by
 * compare-and-swap, then reads what the loop is. That is safe because a loop cannot end while an
 * item that was taken is not done: a thread that comes late finds nothing, or takes part in the
 * next loop, and the caller never waits for a worker that has taken nothing.
 *
 *     caller   loop fields, left = n | takes items | waits until done = n
 *     worker   waits until left > 0  | takes items | done += how many, wakes the caller
 *
 * Waiting is spinning, then a futex. Against a lost wake-up both sides announce first and look
 * second, in sequentially consistent order: the sleeper counts itself and looks at the word again,
 * the other changes the word and looks at the count.
 */
#include "base/threads.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LINE = 64, /* bytes that one core owns at a time */
    /* Looks before going to sleep: a pause takes 10 to 60 ns, so this is some tens of
     * microseconds, less than the two system calls and the wake-up that sleeping costs. */
    SPINS = 1000,
    BATCHES_PER_THREAD = 8, /* a late thread delays the end by 1/8 of its share */
};

typedef struct worker {
    rm_threads *pool;
    pthread_t handle;
    uint32_t index;
} worker;

struct rm_threads {
    /* Changed for every batch. */
    _Alignas(LINE) _Atomic uint32_t left; /* items not taken */

    /* Changed when a thread is through. */
    _Alignas(LINE) _Atomic uint32_t done; /* items finished; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps;

    /* Changed for every loop. */
    _Alignas(LINE) _Atomic uint32_t loops; /* workers sleep on it */
    _Atomic uint32_t batch;
    _Atomic uint32_t stopping;
    uint32_t item_count;
    rm_task_fn *fn;
    void *user;

    _Alignas(LINE) _Atomic uint32_t sleepers;
    uint32_t count; /* threads, the caller included */
    bool busy;      /* a loop is running; only the caller's */
    worker workers[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t count) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline void pause_a_little(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield is a nop on most cores */
#endif
}

/* Takes batches until none is left; returns how many items that were. */
static uint32_t take_items(rm_threads *t, uint32_t thread) {
    uint32_t finished = 0;
    uint32_t left = atomic_load_explicit(&t->left, memory_order_acquire);
    while (left > 0) {
        const uint32_t batch = atomic_load_explicit(&t->batch, memory_order_relaxed);
        const uint32_t take = batch < left ? batch : left;
        /* Acquire: from here on the loop's fields are those of the loop whose items these are. */
        if (!atomic_compare_exchange_weak_explicit(&t->left, &left, left - take,
                                                   memory_order_acquire, memory_order_acquire)) {
            continue;
        }
        const uint32_t first = t->item_count - left;
        for (uint32_t i = 0; i < take; i++)
            t->fn(t->user, first + i, thread);
        finished += take;
        left = atomic_load_explicit(&t->left, memory_order_acquire);
    }
    return finished;
}

static bool something_to_do(rm_threads *t) {
    return atomic_load(&t->left) > 0 || atomic_load(&t->stopping) != 0;
}

static void wait_for_work(rm_threads *t) {
    for (uint32_t i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&t->left, memory_order_relaxed) > 0) return;
        pause_a_little();
    }
    atomic_fetch_add(&t->sleepers, 1);
    for (;;) {
        const uint32_t loops = atomic_load(&t->loops);
        if (something_to_do(t)) break;
        futex_wait(&t->loops, loops);
    }
    atomic_fetch_sub(&t->sleepers, 1);
}

static void *worker_main(void *user) {
    const worker *w = user;
    rm_threads *t = w->pool;
    while (atomic_load_explicit(&t->stopping, memory_order_relaxed) == 0) {
        const uint32_t finished = take_items(t, w->index);
        if (finished > 0) {
            atomic_fetch_add(&t->done, finished);
            if (atomic_load(&t->caller_sleeps) != 0) futex_wake(&t->done, 1);
        } else {
            wait_for_work(t);
        }
    }
    return NULL;
}

static void wait_for_workers(rm_threads *t, uint32_t expected) {
    for (uint32_t i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&t->done, memory_order_acquire) == expected) return;
        pause_a_little();
    }
    atomic_store(&t->caller_sleeps, 1);
    for (;;) {
        const uint32_t done = atomic_load(&t->done);
        if (done == expected) break;
        futex_wait(&t->done, done);
    }
    atomic_store(&t->caller_sleeps, 0);
}

void rm_threads_for(rm_threads *t, uint32_t item_count, uint32_t batch, rm_task_fn *fn,
                    void *user) {
    RM_ASSERT(!t->busy); /* a loop inside a loop */
    t->busy = true;
    if (batch == 0) {
        batch = item_count / (t->count * BATCHES_PER_THREAD);
        if (batch == 0) batch = 1;
    }
    if (t->count == 1 || item_count <= batch) {
        for (uint32_t i = 0; i < item_count; i++)
            fn(user, i, 0);
        t->busy = false;
        return;
    }

    t->item_count = item_count;
    t->fn = fn;
    t->user = user;
    atomic_store_explicit(&t->batch, batch, memory_order_relaxed);
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    atomic_store(&t->left, item_count); /* from here on workers take part */
    atomic_fetch_add(&t->loops, 1);
    const uint32_t asleep = atomic_load(&t->sleepers);
    if (asleep > 0) {
        const uint32_t useful = (item_count - 1) / batch; /* the first batch is the caller's */
        futex_wake(&t->loops, asleep < useful ? asleep : useful);
    }
    const uint32_t own = take_items(t, 0);
    wait_for_workers(t, item_count - own);
    t->busy = false;
}

size_t rm_threads_bytes(uint32_t count) {
    RM_ASSERT(count >= 1 && count <= RM_THREADS_MAX);
    const size_t bytes = sizeof(rm_threads) + (count - 1) * sizeof(worker);
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Signals belong to the program around the library: a worker must not run its handlers. */
static int start_workers(rm_threads *t, uint32_t count) {
    sigset_t all, before;
    pthread_attr_t attr;
    int reason = pthread_attr_init(&attr);
    if (reason != 0) return reason;
    reason = pthread_attr_setstacksize(&attr, RM_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 1; reason == 0 && i < count; i++) {
        worker *w = &t->workers[i - 1];
        *w = (worker){.pool = t, .index = i};
        reason = pthread_create(&w->handle, &attr, worker_main, w);
        if (reason == 0) t->count = i + 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return reason;
}

int rm_threads_start(rm_threads **out, void *memory, uint32_t count, remat_error *err) {
    RM_ASSERT(count >= 1 && count <= RM_THREADS_MAX);
    RM_ASSERT(((uintptr_t)memory & (LINE - 1)) == 0);
    rm_threads *t = memory;
    t->count = 1;
    const int reason = start_workers(t, count);
    if (reason != 0) {
        const uint32_t running = t->count;
        rm_threads_stop(&t);
        return rm_fail(err, REMAT_E_FAILED, "threads: cannot start thread %u of %u: %s; use fewer",
                       running + 1, count, strerror(reason));
    }
    *out = t;
    return REMAT_OK;
}

void rm_threads_stop(rm_threads **pool) {
    rm_threads *t = *pool;
    if (t == NULL) return;
    RM_ASSERT(!t->busy);
    atomic_store(&t->stopping, 1);
    atomic_fetch_add(&t->loops, 1);
    futex_wake(&t->loops, INT_MAX);
    for (uint32_t i = 1; i < t->count; i++)
        pthread_join(t->workers[i - 1].handle, NULL);
    *pool = NULL;
}

uint32_t rm_threads_count(const rm_threads *t) {
    return t->count;
}
