/*
 * rates_file.c: rates kept between runs; see rates.h. Part: engine.
 *
 * The file is the user's, and may hold anything: it is read line by line through a small buffer,
 * and what is not a line of ours is passed over.
 */
#include "base/dirs.h"
#include "base/io.h"
#include "base/machine.h"
#include "base/random.h"
#include "engine/rates.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum {
    VERSION = 2, /* of the file and of what is measured: a change makes all keys new */
    LINES = 64,
    RATES = 8,
    LINE_BYTES = 512,
    FILE_BYTES = 1 << 18, /* beyond, nothing is read */
    DAY_S = 24 * 3600,
    KEEP_S = 30 * DAY_S,
};

/* A smaller share of the processors' time makes rates that are not kept: they can be wrong by
 * more than ten times, and would be believed for 30 days. */
#define BUSY 0.1

static const uint64_t rate_most = 1000000000000000;

/* --- lines ----------------------------------------------------------------------------------- */

/* The numbers of a line, in its order. */
static void rate_list(double *list[RATES], rm_rates *r) {
    double *const all[RATES] = {&r->products_s,   &r->weights_s,   &r->attention_s,
                                &r->pages_s,      &r->pack_s,      &r->disk_read_s,
                                &r->spill_read_s, &r->disk_write_s};
    memcpy(list, all, sizeof all);
}

enum { ARITHMETIC = 5 }; /* the first rates of the list, which are never 0 */

/* Digits and one blank; moves past them. */
static bool take_number(uint64_t *out, const char **p) {
    uint64_t v = 0;
    const char *begin = *p;
    for (; **p >= '0' && **p <= '9'; ++*p) {
        v = v * 10 + (unsigned)(**p - '0');
        if (v > rate_most) return false;
    }
    if (*p == begin || **p != ' ') return false;
    ++*p;
    *out = v;
    return true;
}

bool rm_rates_parse(rm_rates *out, uint64_t *time_s, const char **key, const char *line) {
    double *list[RATES];
    rm_rates r = {0};
    uint64_t when, rate;
    const char *p = line;
    rate_list(list, &r);
    if (!take_number(&when, &p)) return false;
    for (int i = 0; i < RATES; i++) {
        if (!take_number(&rate, &p) || (rate == 0 && i < ARITHMETIC)) return false;
        *list[i] = (double)rate;
    }
    const size_t length = strlen(p);
    if (length == 0 || length >= RM_RATES_KEY_MAX) return false;
    for (size_t i = 0; i < length; i++)
        if (p[i] < ' ' || p[i] > '~') return false;
    *out = r;
    *time_s = when;
    *key = p;
    return true;
}

typedef struct lines {
    int fd;
    size_t start, end, total;
    char bytes[1024];
} lines;

static bool lines_open(lines *l, const char *path) {
    struct stat st;
    *l = (lines){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (l->fd < 0) return false;
    if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode)) return true;
    close(l->fd);
    return false;
}

/* The next byte, or -1 at the end. */
static int lines_byte(lines *l) {
    if (l->start == l->end) {
        if (l->total >= FILE_BYTES) return -1;
        const ssize_t got = read(l->fd, l->bytes, sizeof l->bytes);
        if (got <= 0) return -1;
        l->start = 0;
        l->end = (size_t)got;
        l->total += l->end;
    }
    return (unsigned char)l->bytes[l->start++];
}

/* The next line that is one of ours; false at the end of the file. A line without an end was not
 * written whole. */
static bool lines_next(rm_rates *r, uint64_t *time_s, const char **key, char line[LINE_BYTES],
                       lines *l) {
    for (;;) {
        size_t count = 0;
        bool good = true;
        int c;
        while ((c = lines_byte(l)) != '\n') {
            if (c < 0) return false;
            good = good && c != 0 && count < LINE_BYTES - 1;
            if (good) line[count++] = (char)c;
        }
        line[count] = '\0';
        if (good && rm_rates_parse(r, time_s, key, line)) return true;
    }
}

static void lines_close(lines *l) {
    close(l->fd);
}

/* --- the file -------------------------------------------------------------------------------- */

static uint64_t seconds_now(void) {
    const time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

bool rm_rates_load(rm_rates *out, const char *path, const char *key) {
    lines l;
    char line[LINE_BYTES];
    rm_rates r;
    uint64_t when;
    const char *its;
    bool found = false;
    if (!lines_open(&l, path)) return false;
    const uint64_t now = seconds_now();
    while (lines_next(&r, &when, &its, line, &l)) {
        if (strcmp(its, key) != 0) continue;
        found = when <= now && now - when <= KEEP_S;
        *out = r;
    }
    lines_close(&l);
    return found;
}

/* Copies the lines of path that are not the key's, but no more than the last `most` of them. */
static bool copy_lines(int to, const char *path, const char *key, uint32_t most) {
    lines l;
    char line[LINE_BYTES];
    rm_rates r;
    uint64_t when;
    const char *its;
    uint32_t count = 0;
    if (!lines_open(&l, path)) return true; /* there is none yet */
    while (lines_next(&r, &when, &its, line, &l))
        count += strcmp(its, key) != 0;
    lines_close(&l);
    if (!lines_open(&l, path)) return false;
    bool written = true;
    while (written && lines_next(&r, &when, &its, line, &l)) {
        if (strcmp(its, key) == 0) continue;
        if (count > most) {
            count--;
            continue;
        }
        const size_t length = strlen(line);
        line[length] = '\n';
        written = rm_write_all(to, line, length + 1, NULL) == REMAT_OK;
    }
    lines_close(&l);
    return written;
}

static bool write_line(int to, const rm_rates *rates, const char *key) {
    char line[LINE_BYTES + 1];
    double *list[RATES];
    rm_rates r = *rates;
    rate_list(list, &r);
    int used = snprintf(line, sizeof line, "%llu", (unsigned long long)seconds_now());
    for (int i = 0; i < RATES; i++) {
        const double rate = *list[i];
        const unsigned long long whole = rate >= (double)rate_most ? rate_most
                                         : rate >= 1               ? (unsigned long long)rate
                                                                   : rate > 0;
        used += snprintf(line + used, sizeof line - (size_t)used, " %llu", whole);
    }
    /* Numbers are at most 9 * 21 bytes, a key is shorter than RM_RATES_KEY_MAX. */
    used += snprintf(line + used, sizeof line - (size_t)used, " %s\n", key);
    return (size_t)used < sizeof line && rm_write_all(to, line, (size_t)used, NULL) == REMAT_OK;
}

_Static_assert(9 * 21 + RM_RATES_KEY_MAX + 2 < LINE_BYTES, "a line of ours fits");

void rm_rates_save(const rm_rates *r, const char *path, const char *key) {
    char name[PATH_MAX];
    const int length =
        snprintf(name, sizeof name, "%s.%016llx", path, (unsigned long long)rm_random_system());
    if (length < 0 || (size_t)length >= sizeof name) return;
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    bool written = copy_lines(fd, path, key, LINES - 1) && write_line(fd, r, key);
    written = close(fd) == 0 && written;
    if (!written || rename(name, path) != 0) unlink(name);
}

/* --- the usual way --------------------------------------------------------------------------- */

static bool usable(const char *spill_dir) {
    struct stat st;
    return spill_dir != NULL && stat(spill_dir, &st) == 0 && S_ISDIR(st.st_mode) &&
           access(spill_dir, W_OK | X_OK) == 0;
}

static void device_of(char out[24], bool known, const struct stat *st) {
    if (known)
        snprintf(out, 24, "%u:%u", major(st->st_dev), minor(st->st_dev));
    else
        snprintf(out, 24, "-");
}

void rm_rates_key(char out[RM_RATES_KEY_MAX], const rm_rates_job *job) {
    char name[96], model[24], spill[24];
    struct stat st = {0};
    (void)rm_machine_cpu_name(name, sizeof name);
    device_of(model, fstat(job->model_fd, &st) == 0, &st);
    device_of(spill, usable(job->spill_dir) && stat(job->spill_dir, &st) == 0, &st);
    snprintf(out, RM_RATES_KEY_MAX, "%d %.16s threads %u %s model %s spill %s cpu %s", VERSION,
             job->kernels->name, job->thread_count, rm_formats[job->format].name, model, spill,
             name);
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* A disk that seemed slow may have been at work for others: it is looked at again, and the best
 * that it ever did counts. False: it is the same. */
static bool look_again(rm_rates *r, const rm_rates_job *job) {
    static const double slow = 4e8; /* bytes a second */
    const bool slow_write = job->spill_dir != NULL && r->disk_write_s < slow;
    /* It was looked at with the first format. */
    if (job->known != NULL || job->threads == NULL) return false;
    if (r->disk_read_s >= slow && r->spill_read_s >= slow && !slow_write) return false;
    rm_rates now = {0};
    uint8_t *aligned = (uint8_t *)job->memory + (-(uintptr_t)job->memory & 4095);
    rm_rates_measure_disks(&now, aligned, job->model_fd, job->spill_dir);
    if (now.disk_read_s <= r->disk_read_s && now.spill_read_s <= r->spill_read_s &&
        now.disk_write_s <= r->disk_write_s)
        return false;
    r->disk_read_s = larger(r->disk_read_s, now.disk_read_s);
    r->spill_read_s = larger(r->spill_read_s, now.spill_read_s);
    r->disk_write_s = larger(r->disk_write_s, now.disk_write_s);
    return true;
}

int rm_rates_get(rm_rates *out, bool *measured, const rm_rates_job *job) {
    char path[PATH_MAX], key[RM_RATES_KEY_MAX];
    rm_rates_key(key, job);
    bool keeps = rm_dirs_cache(path, sizeof path - sizeof "/rates");
    const size_t folder = keeps ? strlen(path) : 0;
    if (keeps) memcpy(path + folder, "/rates", sizeof "/rates");
    if (measured != NULL) *measured = false;
    if (keeps && rm_rates_load(out, path, key)) {
        if (look_again(out, job)) rm_rates_save(out, path, key);
        return REMAT_OK;
    }
    if (job->threads == NULL) return REMAT_E_FAILED;
    if (measured != NULL) *measured = true;
    double had;
    RM_TRY(rm_rates_measure(out, &had, job));
    if (!keeps || had < BUSY || (usable(job->spill_dir) && out->disk_write_s <= 0)) return REMAT_OK;
    path[folder] = '\0';
    if (!rm_dirs_make(path)) return REMAT_OK;
    path[folder] = '/';
    rm_rates_save(out, path, key);
    return REMAT_OK;
}
