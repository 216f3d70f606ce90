/*
 * stream.c: how fast weights pass through memory.
 *
 *     build/bench/stream MODEL [THREADS [RING_MIB [ROUNDS]]]
 *
 * Per format, how fast one core interleaves rows that lie in its cache; the file read in sequence
 * past the page cache, one request at a time as dd does and several as the stream does; then whole
 * sweeps with nothing resident and no arithmetic. Rates are bytes of the file, medians of ROUNDS, in
 * which all take turns.
 */
#include "base/clock.h"
#include "gguf/split.h"
#include "model/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    TILE_STRIPS = 512,
    REQUEST = 1 << 20,
    FLIGHT = 8,
    ROUNDS_MAX = 99,
    UNITS_MAX = 2 + 2 * RM_LAYERS_MAX
};

static uint8_t nothing[UNITS_MAX];

static void die(const remat_error *err) {
    fprintf(stderr, "stream: %s\n", err->message);
    exit(1);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != REMAT_OK) die(&err);                                                         \
    } while (0)

static double cpu_s(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double median(double *x, int count) {
    for (int i = 1; i < count; i++) {
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            const double t = x[j];
            x[j] = x[j - 1];
            x[j - 1] = t;
        }
    }
    return x[count / 2];
}

/* --- one core --------------------------------------------------------------------------------- */

/* Packs strips of real rows again and again. */
static void time_pack(const rm_matrix *w, const rm_gguf *g, uint8_t *rows, uint8_t *strip) {
    remat_error err = {0};
    const uint64_t bytes = RM_LANES * (uint64_t)rm_gguf_row_bytes(w->format, w->k);
    double best = 1e9;
    TRY(rm_file_read(rm_gguf_file(g, w->source), rows, w->source->at, bytes, &err));
    for (int round = 0; round < 20; round++) {
        const double begin = rm_clock_s();
        uint64_t done = 0;
        for (; done < 16 << 20; done += bytes)
            (void)rm_pack_strip(strip, w->format, rows, RM_LANES, w->k);
        const double rate = (rm_clock_s() - begin) / (double)done;
        if (rate < best) best = rate;
    }
    printf("pack     %-8s %7.2f GB/s a core\n", rm_formats[w->format].name, 1e-9 / best);
}

static void time_packs(rm_model *m, const rm_gguf *g) {
    bool seen[RM_FORMAT_COUNT] = {false};
    for (uint32_t unit = 0; unit < rm_unit_count(m); unit++) {
        rm_matrix *w[RM_UNIT_MATRICES];
        const uint32_t count = rm_unit_matrices(w, m, unit);
        for (uint32_t i = 0; i < count; i++) {
            if (seen[w[i]->format] || w[i]->outputs < RM_LANES) continue;
            seen[w[i]->format] = true;
            uint8_t *rows = aligned_alloc(4096, (w[i]->strip_bytes + 8191) / 4096 * 4096);
            uint8_t *strip = aligned_alloc(4096, (w[i]->strip_bytes + 8191) / 4096 * 4096);
            time_pack(w[i], g, rows, strip);
            free(rows);
            free(strip);
        }
    }
}

/* --- the disk --------------------------------------------------------------------------------- */

static double read_file(const rm_file *file, uint32_t flight) {
    remat_error err = {0};
    rm_file direct;
    rm_aio *a;
    rm_aio_op ops[FLIGHT] = {0};
    uint8_t *memory = aligned_alloc(4096, (rm_aio_bytes(FLIGHT) + 4095) / 4096 * 4096);
    uint8_t *ring = aligned_alloc(4096, (size_t)FLIGHT * REQUEST);
    if (rm_file_reopen_direct(&direct, file) != REMAT_OK || !direct.direct)
        printf("(the disk allows no direct reads)\n");
    TRY(rm_aio_start(&a, memory, FLIGHT, true, &err));
    const double begin = rm_clock_s();
    const uint64_t requests = (file->size + REQUEST - 1) / REQUEST;
    for (uint64_t i = 0; i < requests + flight; i++) {
        rm_aio_op *op = &ops[i % flight];
        if (i >= flight) rm_aio_wait(a, op);
        if (i >= requests) continue;
        *op = (rm_aio_op){.fd = direct.fd,
                          .at = ring + i % flight * REQUEST,
                          .offset = i * REQUEST,
                          .bytes = REQUEST};
        rm_aio_begin(a, op);
    }
    const double s = rm_clock_s() - begin;
    rm_aio_stop(&a);
    rm_file_close(&direct);
    free(memory);
    free(ring);
    return (double)file->size * 1e-9 / s;
}

/* --- sweeps ----------------------------------------------------------------------------------- */

static double sweep(rm_stream *s, const rm_model *m) {
    remat_error err = {0};
    rm_matrix tile;
    uint32_t first;
    const uint64_t before = atomic_load(&s->read_bytes);
    const double begin = rm_clock_s();
    rm_stream_begin(s, 0, m->shape.layer_count - 1, 1);
    for (uint32_t layer = 0; layer < m->shape.layer_count; layer++)
        TRY(rm_stream_layer(s, layer, &err));
    do {
        TRY(rm_stream_output(s, &tile, &first, &err));
    } while (tile.outputs > 0);
    rm_stream_end(s);
    return (double)(atomic_load(&s->read_bytes) - before) * 1e-9 / (rm_clock_s() - begin);
}

int main(int argc, char **argv) {
    static rm_ledger ledger;
    static rm_file file;
    static rm_gguf g;
    static rm_model m;
    static rm_stream s;
    rm_threads *threads;
    void *memory;
    remat_error err = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: stream MODEL [THREADS [RING_MIB [ROUNDS]]]\n");
        return 2;
    }
    const uint32_t thread_count = argc > 2 ? (uint32_t)atoi(argv[2]) : 2;
    const uint64_t ring = argc > 3 ? (uint64_t)(atof(argv[3]) * (1 << 20)) : 8 << 20;
    const int asked = argc > 4 ? atoi(argv[4]) : 5;
    const int rounds = asked < 1 ? 1 : asked < ROUNDS_MAX ? asked : ROUNDS_MAX;
    const rm_stream_shape shape = {.raw_bytes = ring / 4096 * 4096, .output_strips = TILE_STRIPS};
    TRY(rm_ledger_open(&ledger, 8ull << 30, 1 << 20, &err));
    TRY(rm_file_open(&file, argv[1], &err));
    TRY(rm_gguf_header(&g, &file, &err));
    TRY(rm_gguf_layout(&g, &ledger, &err));
    TRY(rm_gguf_parse(&g, &err));
    TRY(rm_split_open(&g, &ledger, argv[1], &err));
    TRY(rm_model_describe(&m, &g, &err));
    TRY(rm_model_bind(&m, &ledger, &g, &err));
    TRY(rm_model_layout(&m, &ledger, nothing, &err));
    TRY(rm_stream_layout(&s, &ledger, &m, &shape, &err));
    TRY(rm_ledger_carve(&memory, &ledger, RM_ACCOUNT_WORK, 1, rm_threads_bytes(thread_count),
                        &err));
    TRY(rm_threads_start(&threads, memory, thread_count, &err));
    TRY(rm_stream_start(&s, &m, &g, threads, &err));
    time_packs(&m, &g);
    double one[ROUNDS_MAX], several[ROUNDS_MAX], passing[ROUNDS_MAX], share[ROUNDS_MAX], busy = 1e9;
    for (int i = 0; i < rounds; i++) {
        one[i] = read_file(&file, 1);
        several[i] = read_file(&file, FLIGHT);
        const double before = cpu_s();
        passing[i] = sweep(&s, &m);
        const double cpu = cpu_s() - before;
        busy = cpu < busy ? cpu : busy;
        share[i] = passing[i] / (one[i] > several[i] ? one[i] : several[i]);
    }
    printf("read     1 at a time %7.2f GB/s\n", median(one, rounds));
    printf("read     %d at a time %7.2f GB/s\n", FLIGHT, median(several, rounds));
    printf("stream   %7.2f GB/s, %.2f of the faster read; %.2f s of CPU\n", median(passing, rounds),
           median(share, rounds), busy);
    printf("         %u threads, ring %.1f MiB, slot %.1f MiB\n", thread_count,
           (double)s.ring_bytes / (1 << 20), (double)s.slot_bytes / (1 << 20));
    rm_stream_stop(&s);
    rm_threads_stop(&threads);
    rm_split_close(&g);
    rm_file_close(&file);
    rm_ledger_close(&ledger);
    return 0;
}
