/*
 * machine.c: see machine.h.
 *
 * In a container the path in /proc/self/cgroup may be the host's and not exist under our mount, so
 * a level that cannot be read is passed over; the walk ends at the mount itself, where a container
 * finds its own limit.
 */
#include "base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_MAX = 4096, /* bytes read of a file in /proc or /sys; the longest used is about 2 KiB */
    PATH_MAX_BYTES = 512,
    CPU_MAX = 8192, /* the kernel's own largest setting */
};

/* Reads the beginning of a file as text; false when there is nothing. */
static bool slurp(char text[TEXT_MAX], const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t used = 0;
    while (used < TEXT_MAX - 1) {
        const ssize_t got = read(fd, text + used, TEXT_MAX - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    return used > 0;
}

/* ------------------------------------------------------------------------- text formats */

static const char *skip_blanks(const char *p) {
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* Decimal digits at *p; moves past them. Too large a number is UINT64_MAX. */
static bool number(uint64_t *out, const char **p) {
    if (**p < '0' || **p > '9') return false;
    uint64_t v = 0;
    for (; **p >= '0' && **p <= '9'; ++*p) {
        const unsigned digit = (unsigned)(**p - '0');
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, digit, &v)) {
            v = UINT64_MAX;
            while (**p >= '0' && **p <= '9')
                ++*p;
            break;
        }
    }
    *out = v;
    return true;
}

bool rm_machine_parse_number(uint64_t *out, const char *text) {
    const char *p = skip_blanks(text);
    if (strncmp(p, "max", 3) == 0) {
        *out = UINT64_MAX;
        return true;
    }
    return number(out, &p);
}

bool rm_machine_parse_field(uint64_t *out, const char *text, const char *name) {
    const size_t length = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, length) == 0 &&
            (line[length] == ':' || line[length] == ' ' || line[length] == '\t')) {
            const char *p = skip_blanks(line + length + (line[length] == ':'));
            uint64_t v;
            if (!number(&v, &p)) return false;
            if (strncmp(skip_blanks(p), "kB", 2) == 0 && __builtin_mul_overflow(v, 1024, &v))
                return false;
            *out = v;
            return true;
        }
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return false;
}

/* "1.25" as 125; digits after the second are dropped. */
static bool hundredths(uint32_t *out, const char *p) {
    uint64_t whole;
    if (!number(&whole, &p)) return false;
    uint32_t part = 0;
    if (*p == '.') {
        p++;
        for (uint32_t unit = 10; unit > 0 && *p >= '0' && *p <= '9'; unit /= 10)
            part += (uint32_t)(*p++ - '0') * unit;
    }
    *out = whole > 100 ? 10000 : (uint32_t)whole * 100 + part;
    return true;
}

/* The rest of the line that begins with these words; NULL when there is none. */
static const char *line_after(const char *text, const char *words) {
    const size_t length = strlen(words);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, words, length) == 0) return line + length;
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return NULL;
}

bool rm_machine_parse_pressure(rm_machine_pressure *out, const char *text) {
    const char *some = line_after(text, "some avg10="), *full = line_after(text, "full avg10=");
    rm_machine_pressure p = {0};
    const bool has_some = some != NULL && hundredths(&p.some, some);
    const bool has_full = full != NULL && hundredths(&p.full, full);
    if (!has_some && !has_full) return false;
    *out = p;
    return true;
}

bool rm_machine_parse_value(char *out, size_t cap, const char *text, const char *name) {
    const char *p = line_after(text, name);
    if (p == NULL) return false;
    p = skip_blanks(p);
    if (*p != ':') return false;
    p = skip_blanks(p + 1);
    size_t count = strcspn(p, "\n");
    while (count > 0 && (p[count - 1] == ' ' || p[count - 1] == '\t'))
        count--;
    if (count == 0 || cap == 0) return false;
    if (count >= cap) count = cap - 1;
    for (size_t i = 0; i < count; i++)
        out[i] = p[i] >= ' ' && p[i] <= '~' ? p[i] : '?';
    out[count] = '\0';
    return true;
}

bool rm_machine_parse_quota(uint32_t *out, const char *text) {
    const char *p = skip_blanks(text);
    uint64_t quota, period;
    if (!number(&quota, &p)) return false; /* "max", or -1 */
    p = skip_blanks(p);
    if (!number(&period, &p) || period == 0) return false;
    /* Rounded down: a thread more than the quota pays for makes all of them wait when the period's
     * time is used up. */
    const uint64_t cores = quota / period;
    *out = cores < 1 ? 1 : cores > UINT32_MAX ? UINT32_MAX : (uint32_t)cores;
    return true;
}

bool rm_machine_parse_lowest(uint32_t *out, const char *list, const uint64_t *allowed,
                             uint32_t cpu_count) {
    bool found = false;
    uint64_t lowest = 0;
    const char *p = skip_blanks(list);
    for (;;) {
        uint64_t from, to;
        if (!number(&from, &p)) break;
        to = from;
        if (*p == '-') {
            p++;
            if (!number(&to, &p)) break;
        }
        for (uint64_t cpu = from; cpu <= to && cpu < cpu_count; cpu++) {
            if ((allowed[cpu / 64] >> (cpu % 64) & 1) == 0) continue;
            if (!found || cpu < lowest) lowest = cpu;
            found = true;
            break; /* a range ascends */
        }
        if (*p != ',') break;
        p++;
    }
    if (found) *out = (uint32_t)lowest;
    return found;
}

/* Is `name` one of the comma-separated words of text[0 .. count)? */
static bool has_word(const char *text, size_t count, const char *name) {
    const size_t length = strlen(name);
    for (size_t at = 0; at <= count;) {
        const char *comma = at < count ? memchr(text + at, ',', count - at) : NULL;
        const size_t end = comma != NULL ? (size_t)(comma - text) : count;
        if (end - at == length && memcmp(text + at, name, length) == 0) return true;
        at = end + 1;
    }
    return false;
}

bool rm_machine_parse_cgroup(char *out, size_t cap, const char *text, const char *controller) {
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        /* number : controllers : path */
        const char *names = memchr(line, ':', length);
        const char *path = NULL;
        if (names != NULL) {
            names++;
            path = memchr(names, ':', length - (size_t)(names - line));
        }
        if (path != NULL && has_word(names, (size_t)(path - names), controller)) {
            path++;
            const size_t count = length - (size_t)(path - line);
            if (count == 0 || path[0] != '/' || count >= cap) return false;
            memcpy(out, path, count);
            out[count] = '\0';
            if (strstr(out, "/..") != NULL) out[1] = '\0';
            return true;
        }
        line += length;
        if (*line == '\n') line++;
    }
    return false;
}

/* ------------------------------------------------------------------------- control groups */

/* Reads mount + path + "/" + file. */
static bool slurp_at(char text[TEXT_MAX], const char *mount, const char *path, const char *file) {
    char full[PATH_MAX_BYTES + 128];
    const int length = snprintf(full, sizeof full, "%s%s/%s", mount, path, file);
    return length > 0 && (size_t)length < sizeof full && slurp(text, full);
}

/* "/a/b" -> "/a" -> "" -> false. */
static bool parent(char *path) {
    char *slash = strrchr(path, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return true;
}

/* Where a version keeps its files, and what it calls them. */
typedef struct hierarchy {
    const char *controller, *mount;
    const char *limit, *usage;
    const char *inactive, *active; /* file pages in memory.stat */
} hierarchy;

/* The group's path, "" for the mount itself; false when there is no such hierarchy. */
static bool group_path(char path[PATH_MAX_BYTES], char text[TEXT_MAX], const char *controller) {
    if (!slurp(text, "/proc/self/cgroup")) return false;
    if (!rm_machine_parse_cgroup(path, PATH_MAX_BYTES, text, controller)) return false;
    if (strcmp(path, "/") == 0) path[0] = '\0';
    return true;
}

/* Limit of one level and what is left of it; false when it has none. */
static bool read_level(rm_machine_level *out, char text[TEXT_MAX], const hierarchy *h,
                       const char *path) {
    uint64_t usage, inactive = 0, active = 0;
    if (!slurp_at(text, h->mount, path, h->limit)) return false;
    /* Version 1 writes "no limit" as the largest number of whole pages. */
    if (!rm_machine_parse_number(&out->limit_bytes, text) || out->limit_bytes >= INT64_MAX / 2)
        return false;
    out->left_bytes = out->limit_bytes;
    if (!slurp_at(text, h->mount, path, h->usage)) return true;
    if (!rm_machine_parse_number(&usage, text)) return true;
    /* Pages of files count as usage, but are dropped before anything fails. */
    if (slurp_at(text, h->mount, path, "memory.stat")) {
        (void)rm_machine_parse_field(&inactive, text, h->inactive);
        (void)rm_machine_parse_field(&active, text, h->active);
    }
    uint64_t files;
    if (__builtin_add_overflow(inactive, active, &files) || files > usage) files = usage;
    usage -= files;
    out->left_bytes = usage < out->limit_bytes ? out->limit_bytes - usage : 0;
    return true;
}

static uint32_t add_level(rm_machine_level *out, uint32_t count, const rm_machine_level *level) {
    if (count < RM_MACHINE_LEVELS) {
        out[count] = *level;
        return count + 1;
    }
    uint32_t most = 0;
    for (uint32_t i = 1; i < count; i++)
        if (out[i].left_bytes > out[most].left_bytes) most = i;
    if (level->left_bytes < out[most].left_bytes) out[most] = *level;
    return count;
}

uint32_t rm_machine_levels(rm_machine_level out[RM_MACHINE_LEVELS]) {
    static const hierarchy kinds[] = {
        {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
        {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
         "total_inactive_file", "total_active_file"},
    };
    char text[TEXT_MAX], path[PATH_MAX_BYTES];
    rm_machine_level level;
    uint32_t count = 0;
    if (slurp(text, "/proc/meminfo") &&
        rm_machine_parse_field(&level.left_bytes, text, "MemAvailable") &&
        rm_machine_parse_field(&level.limit_bytes, text, "MemTotal"))
        count = add_level(out, count, &level);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!group_path(path, text, kinds[i].controller)) continue;
        do {
            if (read_level(&level, text, &kinds[i], path)) count = add_level(out, count, &level);
        } while (parent(path));
    }
    return count;
}

uint64_t rm_machine_available_bytes(void) {
    rm_machine_level levels[RM_MACHINE_LEVELS];
    const uint32_t count = rm_machine_levels(levels);
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (levels[i].left_bytes < least) least = levels[i].left_bytes;
    return count == 0 ? 0 : least;
}

static void add_pressure(rm_machine_pressure *sum, const char *text) {
    rm_machine_pressure p;
    if (!rm_machine_parse_pressure(&p, text)) return;
    if (p.some > sum->some) sum->some = p.some;
    if (p.full > sum->full) sum->full = p.full;
}

void rm_machine_pressure_now(rm_machine_pressure *out) {
    /* Beside version 1, version 2 is mounted without controllers, but tells of pressure. */
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char text[TEXT_MAX], path[PATH_MAX_BYTES];
    *out = (rm_machine_pressure){0};
    if (slurp(text, "/proc/pressure/memory")) add_pressure(out, text);
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        if (!group_path(path, text, "")) return;
        do {
            if (!slurp_at(text, mounts[i], path, "memory.pressure")) continue;
            add_pressure(out, text);
            return; /* a level above tells of its other groups as well */
        } while (parent(path));
    }
}

/* The smallest CPU quota of all levels, in whole cores; UINT32_MAX when there is none. Kept out of
 * line, like allowed_cpus: together their buffers would be above the limit of a frame. */
__attribute__((noinline)) static uint32_t quota_cores(char text[TEXT_MAX]) {
    char path[PATH_MAX_BYTES];
    uint32_t least = UINT32_MAX, cores;
    if (group_path(path, text, "")) {
        do {
            if (slurp_at(text, "/sys/fs/cgroup", path, "cpu.max") &&
                rm_machine_parse_quota(&cores, text) && cores < least)
                least = cores;
        } while (parent(path));
    }
    if (group_path(path, text, "cpu")) {
        do { /* version 1 has quota and period in two files */
            char both[64];
            uint64_t quota, period;
            if (!slurp_at(text, "/sys/fs/cgroup/cpu", path, "cpu.cfs_quota_us") ||
                !rm_machine_parse_number(&quota, text) ||
                !slurp_at(text, "/sys/fs/cgroup/cpu", path, "cpu.cfs_period_us") ||
                !rm_machine_parse_number(&period, text))
                continue;
            snprintf(both, sizeof both, "%llu %llu", (unsigned long long)quota,
                     (unsigned long long)period);
            if (rm_machine_parse_quota(&cores, both) && cores < least) least = cores;
        } while (parent(path));
    }
    return least;
}

/* ------------------------------------------------------------------------- processors, process */

/* CPUs we may run on, one bit each; returns how many bits are meaningful, 0 when unknown. */
__attribute__((noinline)) static uint32_t allowed_cpus(uint64_t allowed[CPU_MAX / 64]) {
    cpu_set_t sets[CPU_MAX / CPU_SETSIZE];
    memset(sets, 0, sizeof sets);
    memset(allowed, 0, CPU_MAX / 8);
    if (sched_getaffinity(0, sizeof sets, sets) != 0) return 0;
    uint32_t end = 0;
    for (uint32_t cpu = 0; cpu < CPU_MAX; cpu++) {
        if (!CPU_ISSET_S(cpu, sizeof sets, sets)) continue;
        allowed[cpu / 64] |= (uint64_t)1 << (cpu % 64);
        end = cpu + 1;
    }
    return end;
}

uint32_t rm_machine_cores(void) {
    uint64_t allowed[CPU_MAX / 64];
    char text[TEXT_MAX], path[128];
    const uint32_t end = allowed_cpus(allowed);
    uint32_t cores = 0;
    for (uint32_t cpu = 0; cpu < end; cpu++) {
        if ((allowed[cpu / 64] >> (cpu % 64) & 1) == 0) continue;
        /* A core is counted at the lowest of its CPUs that we may use. */
        uint32_t lowest = cpu;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                 cpu);
        if (slurp(text, path)) (void)rm_machine_parse_lowest(&lowest, text, allowed, end);
        if (lowest == cpu) cores++;
    }
    const uint32_t quota = quota_cores(text);
    if (quota < cores) cores = quota;
    return cores < 1 ? 1 : cores;
}

bool rm_machine_cpu_name(char *out, size_t cap) {
    char text[TEXT_MAX];
    if (slurp(text, "/proc/cpuinfo") && rm_machine_parse_value(out, cap, text, "model name"))
        return true;
    snprintf(out, cap, "unknown");
    return false;
}

static uint64_t status_bytes(const char *name) {
    char text[TEXT_MAX];
    uint64_t bytes = 0;
    if (slurp(text, "/proc/self/status")) (void)rm_machine_parse_field(&bytes, text, name);
    return bytes;
}

uint64_t rm_machine_resident_bytes(void) {
    return status_bytes("VmRSS");
}

uint64_t rm_machine_peak_bytes(void) {
    return status_bytes("VmHWM");
}
