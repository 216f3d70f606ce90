/* test_rates.c: lines and the file of rates, whatever it holds; and that measuring measures. */
#include "engine/rates.h"
#include "base/io.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 64 };

static const rm_rates some = {3e11, 1.5e10, 1e11, 1.4e10, 2e9, 1.1e9, 1.2e9, 9e8};
static char folder[] = "/tmp/remat-rates-XXXXXX";
static char path[64];

static bool same(const rm_rates *a, const rm_rates *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static void put(const char *text, size_t bytes) {
    FILE *f = fopen(path, "w");
    if (f == NULL || fwrite(text, 1, bytes, f) != bytes || fclose(f) != 0)
        t_fail("%s: not written", path);
}

static size_t get(char *text, size_t cap) {
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    const size_t bytes = fread(text, 1, cap - 1, f);
    fclose(f);
    text[bytes] = '\0';
    return bytes;
}

static uint32_t files_in_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *f = popen(command, "r");
    unsigned count = 99;
    if (f == NULL || fscanf(f, "%u", &count) != 1) t_fail("ls");
    if (f != NULL) pclose(f);
    return count;
}

static void lines(void) {
    rm_rates r = {.products_s = 7};
    uint64_t when = 7;
    const char *key = "unset";
    EXPECT(rm_rates_parse(&r, &when, &key, "1700000000 11 12 13 14 15 0 0 0 a key: 8:1"));
    EXPECT(when == 1700000000 && strcmp(key, "a key: 8:1") == 0);
    EXPECT(same(&r, &(rm_rates){11, 12, 13, 14, 15, 0, 0, 0}));
    EXPECT(rm_rates_parse(&r, &when, &key, "0 1000000000000000 2 3 4 5 6 7 8 k"));
    EXPECT(same(&r, &(rm_rates){1e15, 2, 3, 4, 5, 6, 7, 8}));
    static const char *const bad[] = {
        "",
        " ",
        "key",
        "1 2 3 4 5 6 7 8 9",
        "1 2 3 4 5 6 7 8 9 ",
        "1 2 3 4 5 6 7 8 key",
        "1 0 3 4 5 6 7 8 9 key",
        "1 2 3 4 5 0 7 8 9 key",
        "-1 2 3 4 5 6 7 8 9 key",
        "1 2 3 4 5 6 7 8 -9 key",
        "1 2.5 3 4 5 6 7 8 9 key",
        "1 2e9 3 4 5 6 7 8 9 key",
        "1 inf 3 4 5 6 7 8 9 key",
        "1 nan 3 4 5 6 7 8 9 key",
        "1 2 3 4 5 6 7 8  9 key",
        " 1 2 3 4 5 6 7 8 9 key",
        "1\t2 3 4 5 6 7 8 9 key",
        "1 1000000000000001 3 4 5 6 7 8 9 key",
        "1 99999999999999999999999999 3 4 5 6 7 8 9 key",
        "99999999999999999999 2 3 4 5 6 7 8 9 key",
        "1 2 3 4 5 6 7 8 9 k\x01y",
        "1 2 3 4 5 6 7 8 9 k\xc3\xa4y",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (rm_rates_parse(&r, &when, &key, bad[i])) t_fail("taken: \"%s\"", bad[i]);
    char text[RM_RATES_KEY_MAX + 64] = "1 2 3 4 5 6 7 8 9 ";
    memset(text + 18, 'k', RM_RATES_KEY_MAX);
    EXPECT(!rm_rates_parse(&r, &when, &key, text));
    text[18 + RM_RATES_KEY_MAX - 1] = '\0';
    EXPECT(rm_rates_parse(&r, &when, &key, text));
}

/* Whatever bytes a line has: what is taken is a line by the rules. */
static void any_line(void) {
    static const char alphabet[] = "0123456789  .-+exnaif\t\x7f\xff";
    uint32_t taken = 0;
    for (int round = 0; round < 200000; round++) {
        char line[96] = "1700000000 31 1 10 9999999999999 2 11 0 5 the key of it";
        size_t length = strlen(line);
        for (uint64_t n = t_random() % 4; n > 0; n--) {
            const size_t at = t_random() % length;
            const char c = alphabet[t_random() % (sizeof alphabet - 1)];
            if (t_random() % 2) {
                line[at] = c;
            } else if (t_random() % 2) {
                memmove(line + at, line + at + 1, length - at);
                length--;
            } else {
                memmove(line + at + 1, line + at, length - at + 1);
                line[at] = c;
                length++;
            }
        }
        rm_rates r;
        uint64_t when;
        const char *key;
        if (!rm_rates_parse(&r, &when, &key, line)) continue;
        taken++;
        const double all[] = {r.products_s, r.weights_s,   r.attention_s,  r.pages_s,
                              r.pack_s,     r.disk_read_s, r.spill_read_s, r.disk_write_s};
        for (int i = 0; i < 8; i++)
            EXPECT(isfinite(all[i]) && all[i] <= 1e15 && all[i] >= (i < 5 ? 1 : 0));
        EXPECT(key > line && key < line + length && when <= (uint64_t)1e15);
    }
    EXPECT(taken > 0);
}

static void kept_and_found(void) {
    rm_rates r;
    unlink(path);
    EXPECT(!rm_rates_load(&r, path, "key a"));
    rm_rates_save(&some, path, "key a");
    EXPECT(rm_rates_load(&r, path, "key a") && same(&r, &some));
    EXPECT(!rm_rates_load(&r, path, "key") && !rm_rates_load(&r, path, "key a ") &&
           !rm_rates_load(&r, path, "KEY a"));
    rm_rates other = some;
    other.disk_write_s = 0;
    other.products_s = 0.25; /* is kept as 1: never as 0 */
    rm_rates_save(&other, path, "key b");
    other.products_s = 1;
    EXPECT(rm_rates_load(&r, path, "key b") && same(&r, &other));
    EXPECT(rm_rates_load(&r, path, "key a") && same(&r, &some));
    other.products_s = 1e30; /* no machine has that */
    rm_rates_save(&other, path, "key a");
    EXPECT(rm_rates_load(&r, path, "key a") && r.products_s == 1e15);
    char text[4096];
    (void)get(text, sizeof text);
    uint32_t count = 0;
    for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++)
        count++;
    EXPECT_EQ_U64(count, 2); /* in place of the older one */
    struct stat st;
    EXPECT(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    EXPECT_EQ_U64(files_in_folder(), 1);
}

static void old_ones_do_not_count(void) {
    static const struct {
        int64_t age_s;
        bool good;
    } cases[] = {{0, true}, {29 * 86400, true}, {31 * 86400, false}, {-86400, false}};
    rm_rates r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        const int bytes = snprintf(text, sizeof text, "%lld 1 2 3 4 5 6 7 8 key\n",
                                   (long long)((int64_t)time(NULL) - cases[i].age_s));
        put(text, (size_t)bytes);
        EXPECT(rm_rates_load(&r, path, "key") == cases[i].good);
    }
    /* The last one counts, also where it is the older one. */
    char text[256];
    const int bytes =
        snprintf(text, sizeof text, "%lld 1 2 3 4 5 6 7 8 key\n5 9 2 3 4 5 6 7 8 key\n",
                 (long long)time(NULL));
    put(text, (size_t)bytes);
    EXPECT(!rm_rates_load(&r, path, "key"));
}

static void the_oldest_go(void) {
    char key[32];
    rm_rates r;
    unlink(path);
    for (int i = 0; i < 70; i++) {
        snprintf(key, sizeof key, "key %d", i);
        rm_rates_save(&some, path, key);
    }
    for (int i = 0; i < 70; i++) {
        snprintf(key, sizeof key, "key %d", i);
        EXPECT(rm_rates_load(&r, path, key) == (i >= 6));
    }
    rm_rates_save(&some, path, "key 6"); /* no more lines than before: none goes */
    EXPECT(rm_rates_load(&r, path, "key 7"));
    rm_rates_save(&some, path, "new");
    EXPECT(!rm_rates_load(&r, path, "key 7") && rm_rates_load(&r, path, "key 6"));
}

/* Foreign lines are passed over, and are gone after the next save. */
static void foreign_files(void) {
    rm_rates r;
    char text[4096], good[128];
    snprintf(good, sizeof good, "%lld 1 2 3 4 5 6 7 8 key\n", (long long)time(NULL));
    size_t n = 0;
    memset(text, 'x', 1500); /* longer than a line may be, and than a buffer */
    n += 1500;
    text[n++] = '\n';
    n += (size_t)sprintf(text + n, "%s", good);
    memcpy(text + n, "1 2\0003 4\n", 8); /* a zero byte */
    n += 8;
    n += (size_t)sprintf(text + n, "\n\n# comment\r\n%.*s", (int)strlen(good) - 1, good);
    text[n - 1] = 'z'; /* "kez", and no end of the line */
    put(text, n);
    EXPECT(rm_rates_load(&r, path, "key") && r.products_s == 1);
    EXPECT(!rm_rates_load(&r, path, "kez"));
    rm_rates_save(&some, path, "other");
    EXPECT(rm_rates_load(&r, path, "key") && rm_rates_load(&r, path, "other"));
    EXPECT(get(text, sizeof text) < 300 && strchr(text, 'x') == NULL && strchr(text, '#') == NULL);
    for (int round = 0; round < 300; round++) { /* noise, with and without a line inside */
        n = t_random() % 3000;
        for (size_t i = 0; i < n; i++)
            text[i] = t_random() % 8 ? "0123456789 \n"[t_random() % 12] : (char)t_random();
        put(text, n);
        (void)rm_rates_load(&r, path, "key");
        rm_rates_save(&some, path, "key");
        EXPECT(rm_rates_load(&r, path, "key") && same(&r, &some));
    }
    EXPECT_EQ_U64(files_in_folder(), 1);
}

/* A folder, a pipe, a device, no permission: false or nothing, and no hanging. */
static void what_is_no_file(void) {
    rm_rates r;
    unlink(path);
    EXPECT(mkfifo(path, 0600) == 0);
    EXPECT(!rm_rates_load(&r, path, "key"));
    unlink(path);
    EXPECT(!rm_rates_load(&r, folder, "key"));
    EXPECT(!rm_rates_load(&r, "/dev/zero", "key"));
    rm_rates_save(&some, "/proc/remat/rates", "key");
    EXPECT(mkdir(path, 0700) == 0); /* cannot be replaced */
    rm_rates_save(&some, path, "key");
    EXPECT_EQ_U64(files_in_folder(), 1);
    rmdir(path);
}

/* --- measuring ------------------------------------------------------------------------------- */

typedef struct lent {
    rm_threads *threads;
    uint8_t *pool, *memory;
} lent;

static lent lend(uint32_t count) {
    lent l = {.pool = aligned_alloc(64, rm_threads_bytes(count)),
              .memory = aligned_alloc(64, rm_rates_bytes() + GUARD)};
    memset(l.pool, 0, rm_threads_bytes(count));
    memset(l.memory, 0x5a, rm_rates_bytes() + GUARD);
    EXPECT(rm_threads_start(&l.threads, l.pool, count, NULL) == REMAT_OK);
    return l;
}

static void give_back(lent *l) {
    for (int i = 0; i < GUARD; i++)
        EXPECT(l->memory[rm_rates_bytes() + (uint64_t)i] == 0x5a);
    rm_threads_stop(&l->threads);
    free(l->pool);
    free(l->memory);
}

static int open_model(uint64_t bytes) {
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) t_fail("%s: not made", path);
    unlink(path);
    return fd;
}

static void every_set_and_thread_count(void) {
    static const rm_format formats[] = {RM_Q4_K, RM_Q4_1, RM_F16, RM_Q6_K, RM_MXFP4, RM_F32};
    enum { FORMATS = sizeof formats / sizeof *formats };
    static const uint32_t counts[] = {1, 2, 3, 17, RM_THREADS_MAX};
    const rm_kernels *const *all = rm_kernels_all();
    const int fd = open_model(16 << 20);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        lent l = lend(counts[i]);
        for (size_t k = 0; all[k] != NULL; k++) {
            if (rm_kernels_select(all[k]->name, rm_cpu_features()) == NULL) continue;
            if (k == 0 && i > 1) continue; /* slow */
            rm_rates r;
            double had = -1;
            EXPECT(rm_rates_measure(&r, &had,
                                    &(rm_rates_job){all[k], counts[i], l.threads, l.memory,
                                                    formats[k % FORMATS], NULL, fd, folder}) ==
                   REMAT_OK);
            EXPECT(had > 0 && had < 1.5 * counts[i]);
            EXPECT(r.products_s > 0 && r.weights_s > 0 && r.attention_s > 0 && r.pages_s > 0);
            EXPECT(r.pack_s > 0 && r.disk_read_s > 0);
            EXPECT(r.spill_read_s > 0 && r.disk_write_s > 0);
            EXPECT(r.products_s < 1e15 && r.weights_s < 1e13 && r.pack_s < 1e13);
            EXPECT_EQ_U64(files_in_folder(), 0);
        }
        give_back(&l);
    }
    close(fd);
}

static void disks_that_do_not_work(void) {
    lent l = lend(1);
    uint8_t *memory = (uint8_t *)(((uintptr_t)l.memory + 4095) / 4096 * 4096);
    rm_rates r;
    const int model = open_model(16 << 20), small = open_model(100);
    rm_rates_measure_disks(&r, memory, model, NULL);
    EXPECT(r.disk_read_s > 0 && r.spill_read_s == 0 && r.disk_write_s == 0);
    rm_rates_measure_disks(&r, memory, model, "/proc/remat");
    EXPECT(r.disk_read_s > 0 && r.spill_read_s == 0 && r.disk_write_s == 0);
    rm_rates_measure_disks(&r, memory, small, folder);
    EXPECT(r.disk_read_s > 0 && r.disk_read_s == r.spill_read_s && r.disk_write_s > 0);
    rm_rates_measure_disks(&r, memory, -1, "");
    EXPECT(r.disk_read_s == 0 && r.spill_read_s == 0 && r.disk_write_s == 0);
    rm_io_fault_at(2, RM_IO_FULL);
    rm_rates_measure_disks(&r, memory, -1, folder);
    EXPECT(r.disk_read_s == 0 && r.spill_read_s == 0 && r.disk_write_s == 0);
    rm_io_fault_at(3, RM_IO_FAIL);
    rm_rates_measure_disks(&r, memory, model, folder);
    EXPECT(r.disk_read_s == r.spill_read_s && r.spill_read_s > 0);
    rm_io_fault_at(0, RM_IO_FAIL);
    close(model);
    close(small);
    give_back(&l);
}

static void measured_once(void) {
    lent l = lend(2);
    const rm_kernels *k = rm_kernels_select(NULL, rm_cpu_features());
    const int fd = open_model(16 << 20);
    rm_rates first, again;
    bool measured = false;
    char cache[96];
    snprintf(cache, sizeof cache, "%s/cache", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    EXPECT(rm_rates_get(&first, &measured,
                        &(rm_rates_job){k, 2, l.threads, l.memory, RM_Q4_K, NULL, fd, folder}) ==
           REMAT_OK);
    EXPECT(measured);
    /* From the file alone, without anything to measure with. */
    EXPECT(rm_rates_get(&again, &measured,
                        &(rm_rates_job){k, 2, NULL, NULL, RM_Q4_K, NULL, fd, folder}) == REMAT_OK);
    EXPECT(!measured && fabs(again.products_s / first.products_s - 1) < 1e-6);
    EXPECT(rm_rates_get(&again, &measured,
                        &(rm_rates_job){k, 3, NULL, NULL, RM_Q4_K, NULL, fd, folder}) ==
           REMAT_E_FAILED);
#ifndef RM_SANITIZED
    no_malloc_begin();
#endif
    EXPECT(rm_rates_get(&again, &measured,
                        &(rm_rates_job){k, 2, l.threads, l.memory, RM_Q4_K, NULL, fd, folder}) ==
           REMAT_OK);
    EXPECT(!measured && fabs(again.products_s / first.products_s - 1) < 1e-6);
    EXPECT(fabs(again.disk_write_s / first.disk_write_s - 1) < 1e-6);
    /* Another key: no spill directory. */
    EXPECT(rm_rates_get(&again, &measured,
                        &(rm_rates_job){k, 2, l.threads, l.memory, RM_Q4_K, NULL, fd, NULL}) ==
           REMAT_OK);
    EXPECT(measured && again.disk_write_s == 0);
    EXPECT(rm_rates_get(&again, &measured,
                        &(rm_rates_job){k, 2, l.threads, l.memory, RM_Q4_K, NULL, fd, NULL}) ==
           REMAT_OK);
    EXPECT(!measured && again.disk_write_s == 0);
#ifndef RM_SANITIZED
    EXPECT_EQ_U64(no_malloc_end(), 0);
#endif
    /* A disk that should work and did not is asked again. */
    char other[96];
    snprintf(other, sizeof other, "%s/cache/remat", folder);
    setenv("XDG_CACHE_HOME", other, 1);
    for (int i = 0; i < 2; i++) {
        rm_io_fault_at(1, RM_IO_FULL);
        EXPECT(rm_rates_get(&again, &measured,
                            &(rm_rates_job){k, 2, l.threads, l.memory, RM_Q4_K, NULL, fd,
                                            folder}) == REMAT_OK);
        EXPECT(measured && again.disk_write_s == 0);
    }
    rm_io_fault_at(0, RM_IO_FULL);
    /* Nowhere to keep them. */
    for (int i = 0; i < 2; i++) {
        setenv("XDG_CACHE_HOME", i == 0 ? "/proc/remat" : "", 1);
        unsetenv("HOME");
        EXPECT(rm_rates_get(&again, &measured,
                            &(rm_rates_job){k, 2, l.threads, l.memory, RM_Q4_K, NULL, fd,
                                            folder}) == REMAT_OK);
        EXPECT(measured && again.products_s > 0);
    }
    close(fd);
    give_back(&l);
}

/* A child that another program leaves a thirtieth of one processor: exit code 0 when it measured
 * and kept nothing. */
static void measure_beside_another(int fd) {
    const rm_kernels *k = rm_kernels_select(NULL, rm_cpu_features());
    const pid_t other = fork();
    if (other == 0)
        for (;;)
            continue;
    if (other < 0 || setpriority(PRIO_PROCESS, 0, 16) != 0) _exit(2);
    lent l = lend(1);
    rm_rates_job job = {k, 1, l.threads, l.memory, RM_Q4_K, NULL, fd, folder};
    rm_rates r;
    bool measured = false;
    const bool good = rm_rates_get(&r, &measured, &job) == REMAT_OK;
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    job.threads = NULL;
    const bool kept = rm_rates_get(&r, NULL, &job) == REMAT_OK;
    _exit(good && measured && !kept ? 0 : 1);
}

static void a_busy_machine(void) {
    char cache[96];
    cpu_set_t before, one;
    int status = 0;
    const int fd = open_model(16 << 20);
    snprintf(cache, sizeof cache, "%s/busy", folder);
    setenv("XDG_CACHE_HOME", cache, 1);
    EXPECT(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
    EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
    const pid_t child = fork();
    if (child == 0) measure_beside_another(fd);
    EXPECT(sched_setaffinity(0, sizeof before, &before) == 0);
    EXPECT(child > 0 && waitpid(child, &status, 0) == child);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd);
}

static void keys(void) {
    const rm_kernels *const *all = rm_kernels_all();
    char a[RM_RATES_KEY_MAX], b[RM_RATES_KEY_MAX];
    const int fd = open_model(1);
    const rm_rates_job job = {all[0], 2, NULL, NULL, RM_Q4_K, NULL, fd, folder};
    rm_rates_key(a, &job);
    rm_rates_key(b, &job);
    EXPECT(strcmp(a, b) == 0 && strlen(a) > 20 && strchr(a, '\n') == NULL);
    rm_rates_job other = job;
    other.kernels = all[1];
    rm_rates_key(b, &other);
    EXPECT(strcmp(a, b) != 0);
    other = job;
    other.thread_count = 3;
    rm_rates_key(b, &other);
    EXPECT(strcmp(a, b) != 0);
    other = job;
    other.format = RM_Q6_K;
    rm_rates_key(b, &other);
    EXPECT(strcmp(a, b) != 0);
    other = job;
    other.spill_dir = NULL;
    rm_rates_key(b, &other);
    EXPECT(strcmp(a, b) != 0);
    other.spill_dir = "/nowhere/at/all";
    rm_rates_key(a, &other);
    EXPECT(strcmp(a, b) == 0);
    other.model_fd = -1;
    rm_rates_key(b, &other);
    EXPECT(strcmp(a, b) != 0);
    close(fd);
}

int main(int argc, char **argv) {
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(path, sizeof path, "%s/rates", folder);
    const int status = RM_RUN(
        argc, argv, T(lines), T(any_line), T(kept_and_found), T(old_ones_do_not_count),
        T(the_oldest_go), T(foreign_files), T(what_is_no_file), T(every_set_and_thread_count),
        T(disks_that_do_not_work), T(measured_once), T(a_busy_machine), T(keys));
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? status : 1;
}
