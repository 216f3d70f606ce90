/*
 * kc_peak.h: what the machine can do at most, for the figures of kerncheck -b: fused steps and
 * integer products of one core with the instructions of a kernel set, and bytes read from memory.
 *
 * An operation is a multiplication or an addition. Loops of independent chains that touch no
 * memory; the fastest of many short runs.
 */
#ifndef RM_KC_PEAK_H
#define RM_KC_PEAK_H

#include "kc_common.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

static inline double kc_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#if defined(__clang__)
#define KC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KC_UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct kc_peak {
    double fused, integer; /* operations per nanosecond: billions a second; 0: not known */
} kc_peak;

#if defined(__x86_64__)
#include <immintrin.h>

enum { KC_STEPS = 4000, KC_CHAINS = 12 };

#define KC_TARGET(names) __attribute__((target(names), noinline))

/* KC_STEPS steps in each of KC_CHAINS chains of a vector type: c becomes `step`, of c and the
 * constant a. The asm may have changed c, as far as the compiler knows: it keeps each step. */
#define KC_LOOP(name, names, vector, constant, step)                                               \
    KC_TARGET(names) static void name(void) {                                                      \
        const vector a = constant;                                                                 \
        vector chains[KC_CHAINS];                                                                  \
        KC_UNROLL for (int i = 0; i < KC_CHAINS; i++) chains[i] = a;                               \
        for (int k = 0; k < KC_STEPS; k++) {                                                       \
            KC_UNROLL for (int i = 0; i < KC_CHAINS; i++) {                                        \
                const vector c = chains[i];                                                        \
                chains[i] = step;                                                                  \
                __asm__ volatile("" : "+v"(chains[i]));                                            \
            }                                                                                      \
        }                                                                                          \
    }

KC_LOOP(kc_fused_256, "avx2,fma", __m256, _mm256_set1_ps(0.5f), _mm256_fmadd_ps(a, a, c))
KC_LOOP(kc_integer_256, "avx2", __m256i, _mm256_set1_epi8(1),
        _mm256_add_epi16(_mm256_maddubs_epi16(a, a), c))
KC_LOOP(kc_integer_vnni_256, "avx2,avxvnni", __m256i, _mm256_set1_epi8(1),
        _mm256_dpbusd_avx_epi32(c, a, a))
KC_LOOP(kc_fused_512, "avx512f", __m512, _mm512_set1_ps(0.5f), _mm512_fmadd_ps(a, a, c))
KC_LOOP(kc_integer_512, "avx512f,avx512vnni", __m512i, _mm512_set1_epi8(1),
        _mm512_dpbusd_epi32(c, a, a))

/* Four tiles of sums, one of activations, one of weights, all 16 x 64 bytes. */
KC_TARGET("amx-tile,amx-int8") static void kc_integer_tiles(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    __asm__ volatile("" ::"r"(&config) : "memory");
    _tile_loadconfig(&config);
    _tile_zero(6);
    _tile_zero(7);
    for (int i = 0; i < KC_STEPS; i++) {
        _tile_dpbssd(0, 6, 7);
        _tile_dpbssd(1, 6, 7);
        _tile_dpbssd(2, 6, 7);
        _tile_dpbssd(3, 6, 7);
    }
    _tile_release();
}

static inline double kc_best(void (*fn)(void), double operations) {
    double best = 1e30;
    for (int run = 0; run < 400; run++) {
        const double from = kc_now_ns();
        fn();
        const double ns = kc_now_ns() - from;
        best = ns < best ? ns : best;
    }
    return operations / best;
}

static inline kc_peak kc_peak_of(const char *set) {
    const double chains = (double)KC_STEPS * KC_CHAINS;
    const bool wide = strcmp(set, "avx512") == 0, tiles = strcmp(set, "amx") == 0;
    const bool vnni = strcmp(set, "avxvnni") == 0;
    if (vnni || strcmp(set, "avx2") == 0) {
        void (*integer)(void) = vnni ? kc_integer_vnni_256 : kc_integer_256;
        return (kc_peak){.fused = kc_best(kc_fused_256, chains * 8 * 2),
                         .integer = kc_best(integer, chains * 32 * 2)};
    }
    if (!wide && !tiles) return (kc_peak){0};
    return (kc_peak){.fused = kc_best(kc_fused_512, chains * 16 * 2),
                     .integer = tiles ? kc_best(kc_integer_tiles, KC_STEPS * 4.0 * 16 * 16 * 64 * 2)
                                      : kc_best(kc_integer_512, chains * 64 * 2)};
}

#else
static inline kc_peak kc_peak_of(const char *set) {
    (void)set;
    return (kc_peak){0};
}
#endif

/* --- memory ----------------------------------------------------------------------------------- */

enum { KC_MEMORY = 96 << 20, KC_READERS_MAX = 64 };

/* That many bytes on huge pages, filled. */
static inline uint8_t *kc_memory(int fill) {
    uint8_t *p = mmap(NULL, KC_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    (void)madvise(p, KC_MEMORY, MADV_HUGEPAGE);
    memset(p, fill, KC_MEMORY);
    return p;
}

/* 64 bytes; the compiler makes of them what the CPU has. */
typedef uint64_t kc_line __attribute__((vector_size(64), may_alias));

/* Adds up all words, asking for each line a page ahead as the kernels do. */
static inline uint64_t kc_read(const uint8_t *p, size_t bytes) {
    const kc_line *line = (const kc_line *)(const void *)p;
    kc_line sum = {0};
    for (size_t i = 0; i < bytes / sizeof *line; i++) {
        __builtin_prefetch(p + i * sizeof *line + 4096);
        sum += line[i];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

typedef struct kc_reader {
    const uint8_t *at;
    size_t bytes;
    pthread_barrier_t *start, *end;
    volatile uint64_t sink;
} kc_reader;

enum { KC_READS = 24 };

static inline void *kc_reader_main(void *user) {
    kc_reader *r = user;
    for (int i = 0; i < KC_READS; i++) {
        pthread_barrier_wait(r->start);
        r->sink = kc_read(r->at, r->bytes);
        pthread_barrier_wait(r->end);
    }
    return NULL;
}

/* Bytes a nanosecond that so many threads read together, each its share: the fastest pass. */
static inline double kc_read_rate(const uint8_t *memory, unsigned threads) {
    pthread_barrier_t start, end;
    pthread_t handles[KC_READERS_MAX];
    kc_reader readers[KC_READERS_MAX];
    double best = 1e30;
    pthread_barrier_init(&start, NULL, threads + 1);
    pthread_barrier_init(&end, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++) {
        const size_t share = KC_MEMORY / threads / 4096 * 4096;
        readers[i] =
            (kc_reader){.at = memory + i * share, .bytes = share, .start = &start, .end = &end};
        if (pthread_create(&handles[i], NULL, kc_reader_main, &readers[i]) != 0) abort();
    }
    for (int i = 0; i < KC_READS; i++) {
        const double from = kc_now_ns();
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        const double ns = kc_now_ns() - from;
        best = ns < best ? ns : best;
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    pthread_barrier_destroy(&start);
    pthread_barrier_destroy(&end);
    return KC_MEMORY / best;
}

#endif /* RM_KC_PEAK_H */
