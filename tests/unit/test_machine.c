/* test_machine.c: the system's text formats, and that this machine's own can be read. */
#include "base/machine.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

static void fields(void) {
    static const char text[] = "MemTotal:       16384 kB\nMemAvailable:   12 kB\n"
                               "inactive_file 4096\nVmRSS:\t    1105 kB\nHuge: 3\nEmpty:\n"
                               "Wide: 99999999999999999999999 kB";
    uint64_t v = 7;
    EXPECT(rm_machine_parse_field(&v, text, "MemAvailable"));
    EXPECT_EQ_U64(v, 12 << 10);
    EXPECT(rm_machine_parse_field(&v, text, "inactive_file"));
    EXPECT_EQ_U64(v, 4096);
    EXPECT(rm_machine_parse_field(&v, text, "VmRSS"));
    EXPECT_EQ_U64(v, 1105 << 10);
    EXPECT(rm_machine_parse_field(&v, text, "Huge"));
    EXPECT_EQ_U64(v, 3);
    EXPECT(!rm_machine_parse_field(&v, text, "file"));
    EXPECT(!rm_machine_parse_field(&v, text, "Mem"));
    EXPECT(!rm_machine_parse_field(&v, text, "Empty"));
    EXPECT(!rm_machine_parse_field(&v, text, "Wide"));
    EXPECT(!rm_machine_parse_field(&v, "", "MemAvailable"));
    EXPECT_EQ_U64(v, 3);
}

static void numbers(void) {
    uint64_t v;
    EXPECT(rm_machine_parse_number(&v, "max\n") && v == UINT64_MAX);
    EXPECT(rm_machine_parse_number(&v, "9223372036854771712\n") && v == 9223372036854771712u);
    EXPECT(rm_machine_parse_number(&v, "0") && v == 0);
    EXPECT(!rm_machine_parse_number(&v, "-1\n"));
    EXPECT(!rm_machine_parse_number(&v, "\n"));
}

static void pressures(void) {
    static const char text[] = "some avg10=12.34 avg60=5.00 avg300=1.00 total=1234\n"
                               "full avg10=2.05 avg60=0.00 avg300=0.00 total=567\n";
    rm_machine_pressure p = {7, 7};
    EXPECT(rm_machine_parse_pressure(&p, text) && p.some == 1234 && p.full == 205);
    EXPECT(rm_machine_parse_pressure(&p, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n") &&
           p.some == 0 && p.full == 0);
    EXPECT(rm_machine_parse_pressure(&p, "full avg10=3") && p.some == 0 && p.full == 300);
    EXPECT(rm_machine_parse_pressure(&p, "some avg10=1.5\nfull avg10=x") && p.some == 150);
    EXPECT(rm_machine_parse_pressure(&p, "some avg10=1.239 \n") && p.some == 123);
    EXPECT(rm_machine_parse_pressure(&p, "some avg10=99999999999999999999.0") && p.some == 10000);
    EXPECT(!rm_machine_parse_pressure(&p, ""));
    EXPECT(!rm_machine_parse_pressure(&p, "some avg10=\n"));
    EXPECT(!rm_machine_parse_pressure(&p, "some avg60=4.00\nawesome avg10=4.00\n"));
    EXPECT(!rm_machine_parse_pressure(&p, "some avg10=-1.00"));
    EXPECT(p.some == 10000);
}

static void values(void) {
    static const char text[] = "processor\t: 0\nmodel\t\t: 207\n"
                               "model name\t: A CPU (R) \x01\xc3 @ 2 GHz \t\nmodel name\t: other\n";
    char name[64] = "unset";
    EXPECT(!rm_machine_parse_value(name, sizeof name, text, "flags"));
    EXPECT(!rm_machine_parse_value(name, sizeof name, "model name\t:\nx : y", "model name"));
    EXPECT(!rm_machine_parse_value(name, sizeof name, "model name", "model name"));
    EXPECT(strcmp(name, "unset") == 0);
    EXPECT(rm_machine_parse_value(name, sizeof name, text, "model name"));
    EXPECT(strcmp(name, "A CPU (R) ?? @ 2 GHz") == 0);
    EXPECT(rm_machine_parse_value(name, 4, text, "model name"));
    EXPECT(strcmp(name, "A C") == 0);
    EXPECT(!rm_machine_parse_value(name, 0, text, "model name"));
}

static void quotas(void) {
    uint32_t cores = 0;
    EXPECT(!rm_machine_parse_quota(&cores, "max 100000\n"));
    EXPECT(!rm_machine_parse_quota(&cores, "-1 100000\n"));
    EXPECT(!rm_machine_parse_quota(&cores, "100000 0\n"));
    EXPECT(!rm_machine_parse_quota(&cores, "100000\n"));
    EXPECT(rm_machine_parse_quota(&cores, "50000 100000\n") && cores == 1);
    EXPECT(rm_machine_parse_quota(&cores, "150000 100000\n") && cores == 1);
    EXPECT(rm_machine_parse_quota(&cores, "400000 100000\n") && cores == 4);
}

static void cpu_lists(void) {
    uint64_t allowed[2] = {0xffffffffffffffff, 0xf};
    uint32_t cpu = 99;
    EXPECT(rm_machine_parse_lowest(&cpu, "3,67\n", allowed, 128) && cpu == 3);
    EXPECT(rm_machine_parse_lowest(&cpu, "2-3\n", allowed, 128) && cpu == 2);
    EXPECT(rm_machine_parse_lowest(&cpu, "66,5", allowed, 128) && cpu == 5);
    EXPECT(rm_machine_parse_lowest(&cpu, "0-18446744073709551615", allowed, 128) && cpu == 0);
    allowed[0] = 0;
    EXPECT(rm_machine_parse_lowest(&cpu, "3,67\n", allowed, 128) && cpu == 67);
    EXPECT(rm_machine_parse_lowest(&cpu, "0-127\n", allowed, 128) && cpu == 64);
    EXPECT(!rm_machine_parse_lowest(&cpu, "3,68\n", allowed, 128));
    EXPECT(!rm_machine_parse_lowest(&cpu, "67\n", allowed, 67)); /* beyond the mask */
    EXPECT(!rm_machine_parse_lowest(&cpu, "\n", allowed, 128));
    EXPECT(!rm_machine_parse_lowest(&cpu, "x-y", allowed, 128));
}

static void cgroup_paths(void) {
    static const char text[] = "9:name=systemd:/\n4:memory:/docker/126467\n"
                               "2:cpu,cpuacct:/a:b/c\n0::/user.slice/x.scope\n";
    char path[64] = "unset";
    EXPECT(rm_machine_parse_cgroup(path, sizeof path, text, "memory"));
    EXPECT(strcmp(path, "/docker/126467") == 0);
    EXPECT(rm_machine_parse_cgroup(path, sizeof path, text, "cpu"));
    EXPECT(strcmp(path, "/a:b/c") == 0);
    EXPECT(rm_machine_parse_cgroup(path, sizeof path, text, "cpuacct"));
    EXPECT(rm_machine_parse_cgroup(path, sizeof path, text, ""));
    EXPECT(strcmp(path, "/user.slice/x.scope") == 0);
    EXPECT(!rm_machine_parse_cgroup(path, sizeof path, text, "pids"));
    EXPECT(!rm_machine_parse_cgroup(path, sizeof path, text, "mem"));
    EXPECT(!rm_machine_parse_cgroup(path, 5, text, "memory"));
    EXPECT(!rm_machine_parse_cgroup(path, sizeof path, "nonsense\n:\n::", "memory"));
    EXPECT(rm_machine_parse_cgroup(path, sizeof path, "0::/../../other", ""));
    EXPECT(strcmp(path, "/") == 0);
}

static void this_machine(void) {
    EXPECT(rm_machine_cores() >= 1);
    const uint64_t resident = rm_machine_resident_bytes(), peak = rm_machine_peak_bytes();
    if (resident == 0) SKIP("no /proc/self/status");
    EXPECT(peak > 0);
    EXPECT(rm_machine_available_bytes() > 0);
    rm_machine_level levels[RM_MACHINE_LEVELS];
    const uint32_t count = rm_machine_levels(levels);
    EXPECT(count >= 1 && count <= RM_MACHINE_LEVELS);
    for (uint32_t i = 0; i < count; i++)
        EXPECT(levels[i].limit_bytes > 0 && levels[i].left_bytes <= levels[i].limit_bytes);
    rm_machine_pressure pressure = {99999, 99999};
    rm_machine_pressure_now(&pressure);
    EXPECT(pressure.some <= 10000 && pressure.full <= 10000);
    char name[32];
    (void)rm_machine_cpu_name(name, sizeof name);
    EXPECT(name[0] != '\0');
    static uint8_t block[8 << 20];
    memset(block, (int)t_random() | 1, sizeof block);
    EXPECT(rm_machine_peak_bytes() >= peak + (7 << 20));
    EXPECT(block[t_random() % sizeof block] != 0);
}

#ifndef RM_SANITIZED
static void nothing_is_allocated(void) {
    no_malloc_begin();
    (void)rm_machine_cores();
    (void)rm_machine_available_bytes();
    (void)rm_machine_peak_bytes();
    rm_machine_pressure pressure;
    rm_machine_pressure_now(&pressure);
    char name[32];
    (void)rm_machine_cpu_name(name, sizeof name);
    EXPECT_EQ_U64(no_malloc_end(), 0);
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(fields), T(numbers), T(pressures), T(values), T(quotas),
                  T(cpu_lists), T(cgroup_paths), T(this_machine),
#ifndef RM_SANITIZED
                  T(nothing_is_allocated),
#endif
    );
}
