/*
 * machine.h: what this machine has. Part: base. Reads /proc and /sys with open and read only.
 */
#ifndef RM_BASE_MACHINE_H
#define RM_BASE_MACHINE_H

#include "base/check.h"

/* Physical cores that this process may run on (affinity and cgroup quota respected); at least 1. */
uint32_t rm_machine_cores(void);

/* Bytes this process could still take: the smallest of MemAvailable and, for each level of its
 * memory cgroup (v2 memory.max, v1 memory.limit_in_bytes), limit minus usage that cannot be
 * reclaimed. 0 when nothing could be read. */
uint64_t rm_machine_available_bytes(void);

/* Resident bytes of this process now (VmRSS), and at most so far (VmHWM). 0 when unknown. */
uint64_t rm_machine_resident_bytes(void);
uint64_t rm_machine_peak_bytes(void);

#endif /* RM_BASE_MACHINE_H */
