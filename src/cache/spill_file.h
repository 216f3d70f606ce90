/*
 * spill_file.h: the file behind spill.h: one without a name in a directory, its size and its
 * blocks. Part: cache.
 */
#ifndef RM_CACHE_SPILL_FILE_H
#define RM_CACHE_SPILL_FILE_H

#include "base/check.h"

#include <stdbool.h>

typedef struct rm_spill_file {
    int fd; /* -1: none */
    bool direct, in_memory;
} rm_spill_file;

/* Creates an unnamed file of mode 0600 in dir; make_dir as in spill.h.
 * Errors: REMAT_E_FAILED naming dir. */
int rm_spill_file_open(rm_spill_file *f, const char *dir, bool make_dir, remat_error *err);
void rm_spill_file_close(rm_spill_file *f);

/* Gives the file its size, which takes no blocks. needed_bytes have to be free on the disk.
 * Errors: REMAT_E_FAILED naming dir. */
int rm_spill_file_size(const rm_spill_file *f, uint64_t bytes, uint64_t needed_bytes,
                       const char *dir, remat_error *err);

/* Reserves blocks. *reserved is false when the file system cannot do that.
 * Errors: REMAT_E_FAILED naming dir, when the disk is full. */
int rm_spill_file_reserve(bool *reserved, const rm_spill_file *f, uint64_t offset, uint64_t bytes,
                          const char *dir, remat_error *err);

/* Gives blocks back where the file system can. */
void rm_spill_file_punch(int fd, uint64_t offset, uint64_t bytes);

#endif /* RM_CACHE_SPILL_FILE_H */
