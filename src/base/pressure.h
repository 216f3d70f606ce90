/*
 * pressure.h: how much memory the process may take while it runs: what `--memory auto` follows.
 * Part: base.
 *
 *     bytes
 *     most  ------------------------------------------------------------------------------
 *                                                                  ____/   grows by an eighth
 *     room  ~~~~~~~~~~~~~~~~~~\                          .________/        at a time
 *     allowed = room at first  \________________________.  5 calm seconds
 *                               lower at once
 *
 * ROOM is what the process holds plus what is left, at the tightest of the machine and the levels
 * of its memory cgroup, less a reserve for everybody else. Beside it, waiting for memory
 * (/proc/pressure/memory, the cgroup's memory.pressure) takes a tenth of what is held at a time.
 *
 * rm_pressure_step() is a function of numbers alone; rm_pressure_poll() reads them. One thread
 * uses an object at a time.
 */
#ifndef RM_BASE_PRESSURE_H
#define RM_BASE_PRESSURE_H

#include "base/machine.h"

typedef struct rm_pressure {
    uint64_t most;          /* never allowed above this */
    uint64_t allowed;       /* the last answer */
    double polled_s;        /* when it was given */
    double low_s;           /* when room or pressure last asked for less */
    double squeezed_s;      /* when pressure last took a tenth */
    rm_machine_pressure at; /* the figures then */
    bool started, squeezed; /* there was a poll; pressure is what is being answered */
} rm_pressure;

/* What a poll reads of the system. */
typedef struct rm_pressure_sources {
    rm_machine_level levels[RM_MACHINE_LEVELS];
    uint32_t level_count; /* 0: nothing is known, and room is without end */
    rm_machine_pressure pressure;
} rm_pressure_sources;

/* most: bytes of the whole process that are never exceeded; UINT64_MAX for no such limit. */
void rm_pressure_start(rm_pressure *p, uint64_t most);

/* Whether rm_pressure_poll() would read the system now, and not just repeat itself: at most four
 * times a second. So that a caller need not look up what it holds. */
bool rm_pressure_due(const rm_pressure *p, double now_s);

/* Bytes that the process may take now, of which it holds resident_bytes. now_s: rm_clock_s().
 * About ten system calls a level of the cgroup when due, none otherwise. */
uint64_t rm_pressure_poll(rm_pressure *p, uint64_t resident_bytes, double now_s);

/* The same from given numbers, due or not. */
uint64_t rm_pressure_step(rm_pressure *p, const rm_pressure_sources *s, uint64_t resident_bytes,
                          double now_s);

/* What is kept free of a limit: a tenth, 64 MiB to 1 GiB, but at most a quarter of it, so that a
 * small container is of use. */
uint64_t rm_pressure_reserve(uint64_t limit_bytes);

#endif /* RM_BASE_PRESSURE_H */
