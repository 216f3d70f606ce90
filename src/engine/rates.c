/*
 * rates.c: see rates.h.
 *
 * Each rate is a LOOP of items over the lent memory, the way the engine runs it: strips of a
 * product, some pages of attention. In a PASS each thread runs its part of them, or what it gets
 * done in 2 ms (one item at least), so that a slow kernel set is bounded by the clock. A pass
 * counts items for the time that the threads really had, since what other programs take is not the
 * machine's rate; the fastest pass of 30 ms is taken. (On two cores at a load of 3 to 5,
 * figures by the clock on the wall were wrong by up to 40 times; these stay within a factor of 2.)
 *
 *     memory   [ lanes: one thread's results and scratch each | shared: strips, rows, pages ]
 */
#include "engine/rates.h"
#include "base/clock.h"
#include "base/machine.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define RATE_S 0.030
#define PASS_S 0.002

enum {
    BYTES = 8 << 20,
    PAGE = 4096, /* of memory: alignment of disk transfers */
    LINE = 64,

    K = 2048,
    ROWS = 256,

    DIM = 128,
    STATE = RM_STATE_HEAD + DIM, /* floats */
    TILE_QUERIES = 192,          /* what the engine does at once; fewer where threads are many */
    ONE_ROW_QUERIES = 4,         /* query heads of a KV head */
    TILE_PAGES = 4,              /* pages of an item */
    ONE_ROW_PAGES = 2,
};

typedef struct lane {
    double time_s;  /* that this thread had in this pass */
    uint32_t items; /* done in it */
    uint8_t *scratch;
    float *results;
} lane;

typedef struct loop loop;
typedef void item_fn(const loop *l, const lane *own, uint32_t item);

struct loop {
    const rm_kernels *kernels;
    rm_threads *threads;
    rm_format format;
    item_fn *item;
    uint32_t items, processors; /* processors: that the threads can have at once */
    double unit;                /* what an item counts */
    uint8_t *flush;             /* these bytes come from memory */
    size_t flush_bytes;         /* 0: from wherever they are */
    double end_s;
    lane *lanes;
    uint8_t *shared;
    size_t shared_bytes;

    /* products and packing */
    size_t strip_bytes;
    uint8_t *strips, *raw;
    rm_acts x;
    /* attention */
    size_t page_bytes;
    uint32_t page_count, item_pages, query_count;
    uint8_t *pages;
    float *q;
    uint32_t *from, *seen;
};

_Static_assert(sizeof(lane) <= LINE, "a lane's counter has a line of its own");
_Static_assert(RM_RATES_DISK_BYTES + PAGE <= BYTES, "disks use the same memory");

uint64_t rm_rates_bytes(void) {
    return BYTES;
}

static size_t round_up(size_t n, size_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* --- a loop ---------------------------------------------------------------------------------- */

static lane *lane_at(const loop *l, uint32_t thread) {
    return (lane *)(void *)((uint8_t *)l->lanes + (size_t)thread * LINE);
}

static uint32_t processors(uint32_t threads) {
    const uint32_t cores = rm_machine_cores();
    return threads < cores ? threads : cores;
}

/* Divides the memory: every thread gets scratch and results, the rest is shared. */
static loop divide(const rm_rates_job *job, size_t scratch_bytes, size_t result_bytes) {
    uint8_t *memory = (uint8_t *)job->memory + (-(uintptr_t)job->memory & (PAGE - 1));
    const uint32_t count = rm_threads_count(job->threads);
    loop l = {.kernels = job->kernels,
              .threads = job->threads,
              .format = job->format,
              .processors = processors(count),
              .lanes = (lane *)(void *)memory};
    uint8_t *at = memory + (size_t)count * LINE;
    scratch_bytes = round_up(scratch_bytes, LINE);
    result_bytes = round_up(result_bytes, LINE);
    for (uint32_t t = 0; t < count; t++) {
        *lane_at(&l, t) = (lane){.scratch = at, .results = (float *)(void *)(at + scratch_bytes)};
        at += scratch_bytes + result_bytes;
    }
    l.shared = at;
    l.shared_bytes = (size_t)(memory + BYTES - PAGE - at);
    return l;
}

/* The next bytes of what is shared. */
static void *share(loop *l, size_t bytes) {
    uint8_t *at = l->shared;
    bytes = round_up(bytes, LINE);
    RM_ASSERT(bytes <= l->shared_bytes);
    l->shared += bytes;
    l->shared_bytes -= bytes;
    return at;
}

/* Of this thread, on a processor. */
static double thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A thread's part of a pass. One that comes late may find it done by another. */
static void run_part(void *user, uint32_t part, uint32_t thread) {
    const loop *l = user;
    lane *own = lane_at(l, thread);
    const uint64_t parts = rm_threads_count(l->threads);
    const uint32_t end = (uint32_t)((part + 1) * (uint64_t)l->items / parts);
    const double begin = thread_time();
    for (uint32_t i = (uint32_t)(part * (uint64_t)l->items / parts); i < end; i++) {
        l->item(l, own, i);
        own->items++;
        if (rm_clock_s() >= l->end_s) break;
    }
    own->time_s += thread_time() - begin;
}

static void flush_part(void *user, uint32_t item, uint32_t thread) {
    const loop *l = user;
    (void)thread;
#if defined(__x86_64__)
    const size_t first = (size_t)item * PAGE;
    for (size_t i = first; i < first + PAGE && i < l->flush_bytes; i += LINE)
        __builtin_ia32_clflush(l->flush + i);
    __builtin_ia32_mfence();
#else
    (void)l, (void)item;
#endif
}

/* One pass; units a second, 0 when no item was done. */
static double run_pass(loop *l) {
    const uint32_t count = rm_threads_count(l->threads);
    if (l->flush_bytes > 0)
        rm_threads_for(l->threads, (uint32_t)(l->flush_bytes / PAGE + 1), 0, flush_part, l);
    for (uint32_t t = 0; t < count; t++) {
        lane_at(l, t)->items = 0;
        lane_at(l, t)->time_s = 0;
    }
    l->end_s = rm_clock_s() + PASS_S;
    rm_threads_for(l->threads, count, 1, run_part, l);
    uint64_t items = 0;
    double time_s = 0;
    for (uint32_t t = 0; t < count; t++) {
        items += lane_at(l, t)->items;
        time_s += lane_at(l, t)->time_s;
    }
    return time_s > 0 ? (double)items * l->unit / time_s * l->processors : 0;
}

static double run_loop(loop *l) {
    const double begin = rm_clock_s();
    double best = 0;
    do {
        const double rate = run_pass(l);
        if (rate > best) best = rate;
    } while (rm_clock_s() - begin < RATE_S);
    return best;
}

/* --- weights --------------------------------------------------------------------------------- */

/* Any weights: a product takes the same time for all that are finite. */
static void make_raw(uint8_t *raw, rm_format f) {
    const size_t bytes = RM_LANES * rm_gguf_row_bytes(f, K);
    for (size_t i = 0; i < bytes; i++)
        raw[i] =
            (uint8_t)(0x2c + (i * 37 + i / 251) % 16); /* a small number in every float format */
}

/* Rows of activations, from a pattern. */
static void make_rows(loop *l, uint32_t rows, float *space) {
    const rm_act_kind kind = rm_formats[l->format].act;
    l->x = rm_acts_view(share(l, rm_acts_bytes(kind, rows, K)), kind, rows, K);
    for (uint32_t k = 0; k < K; k++)
        space[k] = (float)((int)(k * 29 % 255) - 127) * 0.01f;
    for (uint32_t r = 0; r < rows; r++)
        l->kernels->act_put(&l->x, r, 0, K, space);
}

static void product_item(const loop *l, const lane *own, uint32_t item) {
    const rm_out y = {.at = own->results, .row_count = l->x.row_count, .strips = 1};
    l->kernels->matmul[l->format](&y, 0, l->strips + item * l->strip_bytes, &l->x, own->scratch);
}

/* Products of so many rows with all strips that there is room for. */
static loop make_products(const rm_rates_job *job, uint32_t rows) {
    const size_t result_bytes = (size_t)rows * RM_LANES * sizeof(float);
    loop l = divide(job, RM_MATMUL_SCRATCH, result_bytes);
    l.item = product_item;
    l.strip_bytes = rm_strip_bytes(l.format, K);
    make_rows(&l, rows, share(&l, K * sizeof(float)));
    uint8_t *raw = share(&l, RM_LANES * rm_gguf_row_bytes(l.format, K));
    make_raw(raw, l.format);
    l.items = (uint32_t)(l.shared_bytes / l.strip_bytes);
    RM_ASSERT(l.items > 0);
    l.strips = share(&l, l.items * l.strip_bytes);
    (void)rm_pack_strip(l.strips, l.format, raw, RM_LANES, K);
    for (uint32_t i = 1; i < l.items; i++)
        memcpy(l.strips + i * l.strip_bytes, l.strips, l.strip_bytes);
    return l;
}

static double products_rate(const rm_rates_job *job) {
    loop l = make_products(job, ROWS);
    l.unit = (double)ROWS * RM_LANES * K;
    return run_loop(&l);
}

static double weights_rate(const rm_rates_job *job) {
    loop l = make_products(job, 1);
    l.unit = (double)l.strip_bytes;
    l.flush = l.strips;
    l.flush_bytes = l.items * l.strip_bytes;
    return run_loop(&l);
}

static void pack_item(const loop *l, const lane *own, uint32_t item) {
    (void)own;
    const size_t raw_bytes = RM_LANES * rm_gguf_row_bytes(l->format, K);
    (void)rm_pack_strip(l->strips + item * l->strip_bytes, l->format, l->raw + item * raw_bytes,
                        RM_LANES, K);
}

static double pack_rate(const rm_rates_job *job) {
    const size_t raw_bytes = RM_LANES * rm_gguf_row_bytes(job->format, K);
    loop l = divide(job, 0, 0);
    l.item = pack_item;
    l.unit = (double)raw_bytes;
    l.strip_bytes = rm_strip_bytes(l.format, K);
    l.items = (uint32_t)(l.shared_bytes / (l.strip_bytes + raw_bytes + 2 * LINE));
    l.strips = share(&l, l.items * l.strip_bytes);
    l.raw = share(&l, l.items * raw_bytes);
    for (uint32_t i = 0; i < l.items; i++)
        make_raw(l.raw + i * raw_bytes, l.format);
    l.flush = l.strips; /* both: they lie side by side */
    l.flush_bytes = l.items * (l.strip_bytes + raw_bytes);
    return run_loop(&l);
}

/* --- attention ------------------------------------------------------------------------------- */

static void attention_item(const loop *l, const lane *own, uint32_t item) {
    const void *pages[RM_SPAN_PAGES] = {NULL};
    for (uint32_t i = 0; i < l->item_pages; i++)
        pages[i] = l->pages + (item * l->item_pages + i) % l->page_count * l->page_bytes;
    const rm_attn_job job = {.q = l->q,
                             .from = l->from,
                             .seen = l->seen,
                             .state = own->results,
                             .pages = pages,
                             .scratch = own->scratch,
                             .query_count = l->query_count,
                             .dim = DIM,
                             .format = RM_KV_F16};
    l->kernels->attn_span(&job);
}

/* Attention of so many queries over all pages that there is room for, some pages an item. */
static loop make_attention(const rm_rates_job *job, uint32_t query_count, uint32_t item_pages) {
    loop l = divide(job, rm_attn_scratch_bytes(DIM), (size_t)query_count * STATE * sizeof(float));
    l.item = attention_item;
    l.query_count = query_count;
    l.item_pages = item_pages;
    l.q = share(&l, (size_t)query_count * DIM * sizeof(float));
    l.from = share(&l, query_count * sizeof *l.from);
    l.seen = share(&l, query_count * sizeof *l.seen);
    for (uint32_t i = 0; i < query_count; i++) {
        l.from[i] = 0;
        l.seen[i] = item_pages * RM_PAGE_TOKENS;
        for (uint32_t d = 0; d < DIM; d++)
            l.q[i * DIM + d] = (float)((int)((i * 31 + d * 17) % 64) - 32) * 0.002f;
    }
    l.page_bytes = rm_page_bytes(RM_KV_F16, DIM);
    l.page_count = (uint32_t)(l.shared_bytes / l.page_bytes) / item_pages * item_pages;
    RM_ASSERT(l.page_count > 0);
    l.items = l.page_count / item_pages;
    l.pages = share(&l, l.page_count * l.page_bytes);
    uint16_t *f = (uint16_t *)(void *)l.pages;
    for (size_t i = 0; i < l.page_bytes / sizeof *f; i++)
        f[i] = rm_f16_from_f32((float)((int)(i * 13 % 101) - 50) * 0.02f);
    for (uint32_t i = 1; i < l.page_count; i++)
        memcpy(l.pages + i * l.page_bytes, l.pages, l.page_bytes);
    return l;
}

static double attention_rate(const rm_rates_job *job) {
    /* Scratch and states of all threads take at most three quarters. */
    uint32_t queries = TILE_QUERIES;
    const size_t scratch = rm_attn_scratch_bytes(DIM), most = BYTES / 4 * 3;
    while (rm_threads_count(job->threads) * (scratch + queries * STATE * sizeof(float)) > most)
        queries /= 2;
    loop l = make_attention(job, queries, TILE_PAGES);
    l.unit = 2.0 * queries * TILE_PAGES * RM_PAGE_TOKENS * DIM; /* scores, then values */
    return run_loop(&l);
}

static double pages_rate(const rm_rates_job *job) {
    loop l = make_attention(job, ONE_ROW_QUERIES, ONE_ROW_PAGES);
    l.unit = (double)ONE_ROW_PAGES * (double)l.page_bytes;
    l.flush = l.pages;
    l.flush_bytes = l.page_count * l.page_bytes;
    return run_loop(&l);
}

int rm_rates_measure(rm_rates *out, double *had, const rm_rates_job *job) {
    uint8_t *at = job->memory;
    const double begin = rm_clock_s(), own = thread_time();
    at += -(uintptr_t)at & (PAGE - 1);
    *out = job->known != NULL
               ? *job->known
               : (rm_rates){.attention_s = attention_rate(job), .pages_s = pages_rate(job)};
    out->products_s = products_rate(job);
    out->weights_s = weights_rate(job);
    out->pack_s = pack_rate(job);
    const uint32_t count = rm_threads_count(job->threads);
    *had = (thread_time() - own) / (rm_clock_s() - begin) * count / processors(count);
    if (job->known == NULL) rm_rates_measure_disks(out, at, job->model_fd, job->spill_dir);
    const double arithmetic[] = {out->products_s, out->weights_s, out->attention_s, out->pages_s,
                                 out->pack_s};
    for (size_t i = 0; i < sizeof arithmetic / sizeof *arithmetic; i++)
        if (!(arithmetic[i] > 0) || !isfinite(arithmetic[i])) return REMAT_E_FAILED;
    return REMAT_OK;
}
