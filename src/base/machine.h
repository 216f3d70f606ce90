/*
 * machine.h: what this machine has. Part: base. Reads /proc and /sys with open and read only.
 */
#ifndef RM_BASE_MACHINE_H
#define RM_BASE_MACHINE_H

#include "base/check.h"

#include <stdbool.h>

/* Physical cores that this process may run on (affinity and cgroup quota respected); at least 1. */
uint32_t rm_machine_cores(void);

/* Bytes this process could still take: the smallest of MemAvailable and, for each level of its
 * memory cgroup (v2 memory.max, v1 memory.limit_in_bytes), limit minus usage that cannot be
 * reclaimed. 0 when nothing could be read. */
uint64_t rm_machine_available_bytes(void);

/* Resident bytes of this process now (VmRSS), and at most so far (VmHWM). 0 when unknown. */
uint64_t rm_machine_resident_bytes(void);
uint64_t rm_machine_peak_bytes(void);

/* -------------------------------------------------------------------------
 * Readers of the system's text formats, apart so that tests can feed them. Each returns false
 * and leaves *out alone when the text does not say.
 * ------------------------------------------------------------------------- */

/* A line "NAME: 123 kB" or "NAME 123" (meminfo, status, memory.stat): its number, in bytes where
 * the line says kB. */
bool rm_machine_parse_field(uint64_t *out, const char *text, const char *name);

/* A file that is one number; "max" is UINT64_MAX. */
bool rm_machine_parse_number(uint64_t *out, const char *text);

/* Whole cores of "QUOTA PERIOD" (cpu.max; at least 1); false for "max", -1 and nonsense. */
bool rm_machine_parse_quota(uint32_t *out, const char *text);

/* The lowest CPU of a list like "0,4-5" whose bit is set in allowed (64 CPUs a word). */
bool rm_machine_parse_lowest(uint32_t *out, const char *list, const uint64_t *allowed,
                             uint32_t cpu_count);

/* The path of a controller in /proc/self/cgroup: "" is version 2's line, else a name like
 * "memory". A path with ".." (it lies outside our namespace) is given as "/". */
bool rm_machine_parse_cgroup(char *out, size_t cap, const char *text, const char *controller);

#endif /* RM_BASE_MACHINE_H */
