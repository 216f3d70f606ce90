/*
 * machine.h: what this machine has. Part: base. Reads /proc and /sys with open and read only.
 */
#ifndef RM_BASE_MACHINE_H
#define RM_BASE_MACHINE_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>

/* Physical cores that this process may run on (affinity and cgroup quota respected); at least 1. */
uint32_t rm_machine_cores(void);

/* Bytes this process could still take: the smallest of MemAvailable and, for each level of its
 * memory cgroup (v2 memory.max, v1 memory.limit_in_bytes), limit minus usage that cannot be
 * reclaimed. 0 when nothing could be read. */
uint64_t rm_machine_available_bytes(void);

/* One place that limits this process's memory: the machine, or a level of its memory cgroup. */
typedef struct rm_machine_level {
    uint64_t limit_bytes; /* MemTotal, or the level's limit */
    uint64_t left_bytes;  /* MemAvailable, or the limit minus usage that cannot be reclaimed */
} rm_machine_level;

/* Share of the last 10 seconds in which tasks waited for memory, in hundredths of a percent. */
typedef struct rm_machine_pressure {
    uint32_t some; /* at least one task waited */
    uint32_t full; /* all of them did */
} rm_machine_pressure;

enum { RM_MACHINE_LEVELS = 16 };

/* Writes the machine first, where /proc says, then every level that has a limit; one beyond the
 * room replaces the one with most left, if it has less. Returns how many. */
uint32_t rm_machine_levels(rm_machine_level out[RM_MACHINE_LEVELS]);

/* The larger figures of the machine's pressure and of our cgroup's (version 2 only: version 1 has
 * none). Zeros where the kernel does not tell. */
void rm_machine_pressure_now(rm_machine_pressure *out);

/* Resident bytes of this process now (VmRSS), and at most so far (VmHWM). 0 when unknown. */
uint64_t rm_machine_resident_bytes(void);
uint64_t rm_machine_peak_bytes(void);

/* What the processor calls itself, in printable ASCII; false (and "unknown") where it does not. */
bool rm_machine_cpu_name(char *out, size_t cap);

/* -------------------------------------------------------------------------
 * Readers of the system's text formats, apart so that tests can feed them. Each returns false
 * and leaves *out alone when the text does not say.
 * ------------------------------------------------------------------------- */

/* A line "NAME: 123 kB" or "NAME 123" (meminfo, status, memory.stat): its number, in bytes where
 * the line says kB. */
bool rm_machine_parse_field(uint64_t *out, const char *text, const char *name);

/* A file that is one number; "max" is UINT64_MAX. */
bool rm_machine_parse_number(uint64_t *out, const char *text);

/* The two lines of a pressure file: "some avg10=1.25 avg60=..", "full avg10=..". A line that is not
 * there (older kernels have no "full" of some files) counts as 0; false when there is neither. */
bool rm_machine_parse_pressure(rm_machine_pressure *out, const char *text);

/* The value of the first "NAME : VALUE" (cpuinfo), without blanks at its ends; what is not
 * printable ASCII becomes '?', what does not fit is cut off. */
bool rm_machine_parse_value(char *out, size_t cap, const char *text, const char *name);

/* Whole cores of "QUOTA PERIOD" (cpu.max; at least 1); false for "max", -1 and nonsense. */
bool rm_machine_parse_quota(uint32_t *out, const char *text);

/* The lowest CPU of a list like "0,4-5" whose bit is set in allowed (64 CPUs a word). */
bool rm_machine_parse_lowest(uint32_t *out, const char *list, const uint64_t *allowed,
                             uint32_t cpu_count);

/* The path of a controller in /proc/self/cgroup: "" is version 2's line, else a name like
 * "memory". A path with ".." (it lies outside our namespace) is given as "/". */
bool rm_machine_parse_cgroup(char *out, size_t cap, const char *text, const char *controller);

#endif /* RM_BASE_MACHINE_H */
