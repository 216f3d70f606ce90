/*
 * rates_disk.c: rates of the model file's and the spill directory's disks; see rates.h. Part:
 * engine.
 */
#include "base/aio.h"
#include "base/clock.h"
#include "cache/spill_file.h"
#include "engine/rates.h"

#include <sys/stat.h>

#define SHOT_S 0.02
#define RATE_S 0.06 /* of all shots */

enum {
    STEP = 512 << 10, /* bytes of a transfer */
    DEPTH = 8,        /* in flight: as many as the engine has of pages and weights */
    SHOTS = 3,        /* the best counts: others use the disk, too */
    SHOTS_LEAST = 2,
    LEAST = 16,            /* transfers that a file must have room for, to say anything */
    FILE_BYTES = 30 << 20, /* of which a shot writes a third */
};

_Static_assert(DEPTH *STEP < RM_RATES_DISK_BYTES, "buffers, and what aio needs");

/* A file, or the part of one that is transferred, in steps. */
typedef struct target {
    rm_aio *aio;
    uint8_t *buffers;
    int fd;
    bool write;
    uint64_t next, steps; /* in order, and round again */
    uint64_t most;        /* a shot */
} target;

/* Transfers for about 20 ms. Bytes a second; 0 when one has failed. */
static double shoot(target *t) {
    rm_aio_op ops[DEPTH] = {0};
    uint64_t begun = 0, done = 0;
    bool failed = false;
    RM_ASSERT(t->steps > 0);
    const double begin = rm_clock_s();
    double now = begin;
    do { /* one at least, however late it is */
        while (begun - done < DEPTH && begun < t->most && (begun == 0 || now - begin < SHOT_S)) {
            ops[begun % DEPTH] = (rm_aio_op){.fd = t->fd,
                                             .write = t->write,
                                             .at = t->buffers + begun % DEPTH * STEP,
                                             .offset = t->next++ % t->steps * STEP,
                                             .bytes = STEP};
            rm_aio_begin(t->aio, &ops[begun % DEPTH]);
            begun++;
            now = rm_clock_s();
        }
        rm_aio_wait(t->aio, &ops[done % DEPTH]);
        failed |= ops[done % DEPTH].error != 0;
        done++;
        now = rm_clock_s();
    } while (done < begun);
    return failed || now <= begin ? 0 : (double)done * STEP / (now - begin);
}

static double best_shot(target *t) {
    const double begin = rm_clock_s();
    double best = 0;
    for (int i = 0; i < SHOTS; i++) {
        if (i >= SHOTS_LEAST && rm_clock_s() - begin >= RATE_S) break;
        const double rate = shoot(t);
        if (rate <= 0) return 0;
        if (rate > best) best = rate;
    }
    return best;
}

static double model_rate(rm_aio *aio, uint8_t *buffers, int model_fd) {
    struct stat st;
    if (model_fd < 0 || fstat(model_fd, &st) != 0 || st.st_size < LEAST * STEP) return 0;
    const rm_file model = {.fd = model_fd, .size = (uint64_t)st.st_size, .path = ""};
    rm_file direct;
    if (rm_file_reopen_direct(&direct, &model) != REMAT_OK) return 0;
    /* From the middle: the beginning was read a moment ago, and a disk may remember it. */
    const uint64_t steps = direct.size / STEP;
    target t = {.aio = aio,
                .buffers = buffers,
                .fd = direct.fd,
                .next = steps / 2,
                .steps = steps,
                .most = UINT64_MAX};
    const double rate = best_shot(&t);
    rm_file_close(&direct);
    return rate;
}

static void spill_rates(rm_rates *out, rm_aio *aio, uint8_t *buffers, const char *dir) {
    rm_spill_file f;
    bool reserved;
    if (rm_spill_file_open(&f, dir, false, NULL) != REMAT_OK) return;
    if (rm_spill_file_size(&f, FILE_BYTES, FILE_BYTES, dir, NULL) == REMAT_OK &&
        rm_spill_file_reserve(&reserved, &f, 0, FILE_BYTES, dir, NULL) == REMAT_OK) {
        target t = {.aio = aio,
                    .buffers = buffers,
                    .fd = f.fd,
                    .write = true,
                    .steps = FILE_BYTES / STEP,
                    .most = FILE_BYTES / STEP / SHOTS};
        const double write = best_shot(&t);
        /* What was written, in the same order. */
        t.write = false;
        t.steps = t.next;
        t.next = 0;
        t.most = UINT64_MAX;
        const double read = write > 0 ? best_shot(&t) : 0;
        if (read > 0) {
            out->disk_write_s = write;
            out->spill_read_s = read;
        }
    }
    rm_spill_file_close(&f);
}

void rm_rates_measure_disks(rm_rates *out, void *memory, int model_fd, const char *spill_dir) {
    uint8_t *buffers = memory;
    rm_aio *aio;
    out->disk_read_s = out->spill_read_s = out->disk_write_s = 0;
    RM_ASSERT(rm_aio_bytes(DEPTH) <= RM_RATES_DISK_BYTES - DEPTH * STEP);
    if (rm_aio_start(&aio, buffers + DEPTH * STEP, DEPTH, true, NULL) != REMAT_OK) return;
    out->disk_read_s = model_rate(aio, buffers, model_fd);
    if (spill_dir != NULL) spill_rates(out, aio, buffers, spill_dir);
    if (out->disk_read_s <= 0) out->disk_read_s = out->spill_read_s;
    rm_aio_stop(&aio);
}
