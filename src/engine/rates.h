/*
 * rates.h: what this machine does in a second: the numbers behind the planner's cost model.
 * Part: engine.
 *
 * Measured once, in half a second, and kept in the user's cache folder for 30 days. They are
 * estimates for choosing among ways to the same answer: no result ever depends on them.
 */
#ifndef RM_ENGINE_RATES_H
#define RM_ENGINE_RATES_H

#include "base/threads.h"
#include "kernels/kernels.h"

/*
 * Weights are 2048 wide, in each format that a model has much of: formats differ by a factor of two
 * in products of many rows, and more with tiles.
 * Attention is taken as heads of 128 channels in f16 pages, 4 query heads for a KV head. Rates of
 * bytes are from memory: lines are flushed from the caches before each pass where the processor
 * lets us (x86); elsewhere, from the level of cache that holds rm_rates_bytes(). A model or a
 * context that fits a large last-level cache does better than they say.
 */
typedef struct rm_rates {
    double products_s;   /* 8-bit multiply-adds of products of many rows (256), all threads */
    double weights_s;    /* bytes of packed weights that products of one row go through, all */
    double attention_s;  /* multiply-adds of attention of many rows (f16 pages), all threads */
    double pages_s;      /* bytes of f16 pages that attention of one row goes through, all */
    double pack_s;       /* GGUF bytes that are packed into strips, all threads */
    double disk_read_s;  /* bytes read in order from the model file, past the page cache, 512 KiB
                          * a read, 8 in flight; a file too small to tell: as spill_read_s */
    double spill_read_s; /* the same of a file in the spill directory; 0: no such file */
    double disk_write_s; /* and written there; 0: it cannot be written */
} rm_rates;

/* Memory that measuring borrows, 64-byte aligned, whatever it holds: 8 MiB. */
uint64_t rm_rates_bytes(void);

typedef struct rm_rates_job {
    const rm_kernels *kernels;
    uint32_t thread_count;
    rm_threads *threads;   /* so many; NULL: nothing is measured, the file has to know */
    void *memory;          /* rm_rates_bytes(), or NULL with threads */
    rm_format format;      /* of the weights */
    const rm_rates *known; /* of another format: only what depends on it is measured; or NULL */
    int model_fd;          /* or -1 */
    const char *spill_dir; /* an existing directory, or NULL */
} rm_rates_job;

/* Measures. Each rate has about 30 ms, a slow disk or kernel set as long as one of its transfers
 * or items takes; the file in spill_dir has at most 32 MiB and no name. A file or directory that
 * does not work leaves its rates 0. *had: the share of the time that the calling thread had of a
 * processor, times threads for a processor: about 1 on an idle machine; the less, the less the
 * rates say.
 * Errors: REMAT_E_FAILED, without a message, when the clocks do not move; *out is undefined. */
int rm_rates_measure(rm_rates *out, double *had, const rm_rates_job *job);

/* The rates of disks alone: a part of rm_rates_measure(). memory is 4096-byte aligned and has
 * RM_RATES_DISK_BYTES. */
enum { RM_RATES_DISK_BYTES = 5 << 20 };
void rm_rates_measure_disks(rm_rates *out, void *memory, int model_fd, const char *spill_dir);

/* -------------------------------------------------------------------------
 * The file of rates: a line each, oldest first, at most 64
 *     SECONDS_SINCE_1970 RATE_1 .. RATE_8 KEY
 * Rates are whole numbers, in the order of the struct. Lines that are not like that are ignored,
 * and left out when the file is written again.
 * ------------------------------------------------------------------------- */

enum { RM_RATES_KEY_MAX = 256 };

/* What the rates depend on: processor, kernel set, threads, format, the devices of the model file
 * and of the spill directory, and the version of all this. One line of printable ASCII. */
void rm_rates_key(char out[RM_RATES_KEY_MAX], const rm_rates_job *job);

/* Reads a line (without its end); *key points into it. False for anything else than a line as
 * above, and for rates of arithmetic that are 0 or any that is above 10^15. */
bool rm_rates_parse(rm_rates *out, uint64_t *time_s, const char **key, const char *line);

/* The last line of the file for this key, unless it is older than 30 days or from the future.
 * *out is undefined when it gives false. */
bool rm_rates_load(rm_rates *out, const char *path, const char *key);

/* Puts a line for the key at the end of the file, in place of older ones. The file is replaced as
 * a whole: who reads it meanwhile sees the old or the new one. What cannot be written is not. */
void rm_rates_save(const rm_rates *r, const char *path, const char *key);

/* The usual way: from the file in the user's cache folder, else measured, and kept there. Rates of
 * a spill directory that should work and did not are not kept, nor those of a machine so busy that
 * measuring got less than a tenth of the processors' time. *measured may be NULL.
 * Errors: as rm_rates_measure(), and REMAT_E_FAILED where nothing is to be measured and no file
 * knows them. */
int rm_rates_get(rm_rates *out, bool *measured, const rm_rates_job *job);

#endif /* RM_ENGINE_RATES_H */
