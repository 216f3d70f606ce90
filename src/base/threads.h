/*
 * threads.h: workers made at start, and a loop shared among them. Part: base.
 *
 * Good neighbours: a worker that waits spins for some tens of microseconds (a sweep has a few
 * hundred short phases a token, and a system call would cost more than many of them), then sleeps
 * in the kernel. Items are handed out by a counter, so a thread that the system has put aside
 * delays the others by one item and not by its share.
 *
 * Which thread runs an item is not defined; results must not depend on it.
 */
#ifndef RM_BASE_THREADS_H
#define RM_BASE_THREADS_H

#include "base/check.h"
#include "base/limits.h"

typedef struct rm_threads rm_threads;

/* One item of a loop. thread is 0 .. count - 1: the index of per-thread scratch. */
typedef void rm_task_fn(void *user, uint32_t item, uint32_t thread);

/* Bytes of memory (64-byte aligned) that rm_threads_start() needs. Stacks are mapped apart, of
 * RM_STACK_BYTES each. */
size_t rm_threads_bytes(uint32_t count);

/* Starts count - 1 workers (the caller is thread 0). memory is zeroed and outlives them.
 * Signals are blocked in the workers. Errors: REMAT_E_FAILED. */
int rm_threads_start(rm_threads **out, void *memory, uint32_t count, remat_error *err);

/* Joins the workers; *t becomes NULL. NULL is allowed. */
void rm_threads_stop(rm_threads **t);

uint32_t rm_threads_count(const rm_threads *t);

/* Runs fn for items 0 .. item_count - 1 and waits for all. Called by the thread that started the
 * pool. `batch` items are taken at a time (0: chosen from item_count and the number of threads). */
void rm_threads_for(rm_threads *t, uint32_t item_count, uint32_t batch, rm_task_fn *fn, void *user);

#endif /* RM_BASE_THREADS_H */
