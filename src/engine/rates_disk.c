/*
 * rates_disk.c: rates of the model file's and the spill directory's disks; see rates.h. Part:
 * engine.
 */
#include "base/aio.h"
#include "base/clock.h"
#include "cache/spill_file.h"
#include "engine/rates.h"

#include <sys/stat.h>

#define READ_S  0.03
#define WRITE_S 0.06 /* disks with a cache of their own are fast at first */

enum {
    STEP = 1 << 20, /* bytes of a transfer */
    DEPTH = 4,      /* in flight */
    LEAST = 8,      /* transfers that a file must have room for, to say anything */
    FILE_BYTES = 32 << 20,
};

_Static_assert(DEPTH *STEP < RM_RATES_DISK_BYTES, "buffers, and what aio needs");

/* Transfers the file's whole steps in order, from one on and round again, for about so long.
 * Returns how many were done in *steps, and bytes a second: 0 when one has failed. */
static double transfer(uint32_t *steps, rm_aio *aio, uint8_t *buffers, int fd, bool write,
                       uint64_t file_steps, uint64_t first, uint64_t most, double seconds) {
    rm_aio_op ops[DEPTH] = {0};
    uint64_t begun = 0, done = 0;
    bool failed = false;
    const double begin = rm_clock_s();
    double now = begin;
    for (;;) {
        while (!failed && begun - done < DEPTH && begun < most && now - begin < seconds) {
            rm_aio_op *op = &ops[begun % DEPTH];
            *op = (rm_aio_op){.fd = fd,
                              .write = write,
                              .at = buffers + begun % DEPTH * STEP,
                              .offset = (first + begun) % file_steps * STEP,
                              .bytes = STEP};
            rm_aio_begin(aio, op);
            begun++;
            now = rm_clock_s();
        }
        if (done == begun) break;
        rm_aio_wait(aio, &ops[done % DEPTH]);
        failed |= ops[done % DEPTH].error != 0;
        done++;
        now = rm_clock_s();
    }
    *steps = (uint32_t)done;
    return failed || now <= begin ? 0 : (double)done * STEP / (now - begin);
}

static double model_rate(rm_aio *aio, uint8_t *buffers, int model_fd) {
    struct stat st;
    if (model_fd < 0 || fstat(model_fd, &st) != 0 || st.st_size < LEAST * STEP) return 0;
    const rm_file model = {.fd = model_fd, .size = (uint64_t)st.st_size, .path = ""};
    rm_file direct;
    if (rm_file_reopen_direct(&direct, &model) != REMAT_OK) return 0;
    /* From the middle: the beginning was read a moment ago, and a disk may remember it. */
    const uint64_t steps = direct.size / STEP;
    uint32_t done;
    const double rate =
        transfer(&done, aio, buffers, direct.fd, false, steps, steps / 2, UINT64_MAX, READ_S);
    rm_file_close(&direct);
    return rate;
}

static void spill_rates(rm_rates *out, rm_aio *aio, uint8_t *buffers, const char *dir) {
    rm_spill_file f;
    bool reserved;
    if (rm_spill_file_open(&f, dir, false, NULL) != REMAT_OK) return;
    if (rm_spill_file_size(&f, FILE_BYTES, FILE_BYTES, dir, NULL) == REMAT_OK &&
        rm_spill_file_reserve(&reserved, &f, 0, FILE_BYTES, dir, NULL) == REMAT_OK) {
        uint32_t steps, done;
        const double write = transfer(&steps, aio, buffers, f.fd, true, FILE_BYTES / STEP, 0,
                                      FILE_BYTES / STEP, WRITE_S);
        const double read =
            write > 0 ? transfer(&done, aio, buffers, f.fd, false, steps, 0, UINT64_MAX, READ_S)
                      : 0;
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
