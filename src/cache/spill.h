/*
 * spill.h: a private file for pages and hidden rows that do not fit memory. Part: cache.
 *
 *     file:   [ rows: slot 0, 1, ..  |  pages: slot 0, 1, ..                        ]
 *               blocks reserved at     reserve_pages of them       the rest takes its blocks
 *               the start              reserved at the start       when it is written
 *
 * The file has no name, so that nothing is left of it after a crash; mode 0600; past the page cache
 * where the file system can. Each slot that holds something has a 64-bit checksum in memory. What
 * comes back wrong or not at all is LOST: from then on the slot holds nothing, which is never an
 * error here, since all of it can be computed again. The caller decides what is where; slots of
 * rows and pages are numbers to this file.
 *
 * A write and then a read of the same slot: the caller finishes the write first. Memory is
 * 4096-byte aligned and has the size of the slots in the file (rm_spill_stride()), and stays as it
 * is until rm_spill_finish(). One thread uses an rm_spill.
 */
#ifndef RM_CACHE_SPILL_H
#define RM_CACHE_SPILL_H

#include "base/aio.h"
#include "base/ledger.h"

typedef enum rm_spill_region { RM_SPILL_PAGES, RM_SPILL_ROWS, RM_SPILL_REGIONS } rm_spill_region;

enum {
    RM_SPILL_UNIT = 4096, /* slots, sizes and memory: multiples of it */
    RM_SPILL_DEPTH = 32,  /* transfers in flight, unless the shape says otherwise */
};

typedef struct rm_spill_shape {
    uint64_t slot_bytes[RM_SPILL_REGIONS]; /* what counts of a slot; rounded up in the file */
    uint64_t slot_count[RM_SPILL_REGIONS];
    uint64_t limit_bytes;   /* most bytes on disk; 0: no limit */
    uint64_t reserve_pages; /* the first slots of pages: their blocks are there from the start */
    uint32_t depth;         /* transfers in flight, up to RM_AIO_DEPTH_MAX; 0: RM_SPILL_DEPTH */
    bool no_ring;           /* never io_uring */
} rm_spill_shape;

typedef struct rm_spill {
    rm_spill_shape shape;
    uint64_t stride[RM_SPILL_REGIONS];   /* bytes from slot to slot */
    uint64_t first[RM_SPILL_REGIONS];    /* offset of slot 0 */
    uint64_t reserved[RM_SPILL_REGIONS]; /* slots whose blocks are there from the start */
    uint64_t *sums[RM_SPILL_REGIONS];    /* a checksum per slot; 0: holds nothing */
    void *aio_memory;
    rm_aio *aio; /* NULL: not started */
    int fd;
    bool direct;    /* past the page cache */
    bool in_memory; /* the file system is memory itself (tmpfs): nothing is gained by spilling */
    bool reserving; /* the reserved blocks are really there */
    bool no_space, broken;
    uint64_t taken_bytes; /* reserved, and in use beyond: what limit_bytes is compared with */

    /* For reports. */
    uint64_t read_bytes, written_bytes;
    uint64_t used_bytes; /* of slots that hold something */
    uint64_t used_slots; /* of pages */
    uint64_t failed_reads, failed_writes;
    char trouble[160]; /* one line about the first thing that went wrong, or empty */
} rm_spill;

/* A transfer of count consecutive slots: the caller's, and in its place until finished. */
typedef struct rm_spill_op {
    rm_aio_op io; /* io.done: finishing will not wait; io.user is the caller's */
    rm_spill_region region;
    uint64_t slot, count;
    bool pending, ok;
} rm_spill_op;

/* Bytes from slot to slot in file and memory, of slots that hold slot_bytes. */
uint64_t rm_spill_stride(uint64_t slot_bytes);

/* Carves checksums and the memory of aio (account kv_stage). */
int rm_spill_layout(rm_spill *s, rm_ledger *l, const rm_spill_shape *shape, remat_error *err);

typedef enum rm_spill_room {
    RM_SPILL_ROOM_NONE,
    RM_SPILL_ROOM_SOME,
    RM_SPILL_ROOM_ALL
} rm_spill_room;

/* Whether dir takes a file of this shape with every slot of it reserved, or at least a file; err
 * says what is in the way. The file is made and given back at once. */
rm_spill_room rm_spill_probe(const rm_spill_shape *shape, const char *dir, bool make_dir,
                             remat_error *err);

/* Creates the file in dir and reserves what is promised. make_dir: dir, and what is missing above
 * it, is created with mode 0700.
 * Errors: REMAT_E_FAILED naming dir, when it cannot hold the file, is too full, or the limit is
 * smaller than what is reserved. */
int rm_spill_start(rm_spill *s, const char *dir, bool make_dir, remat_error *err);

/* Waits for what is in flight and gives the file back. Allowed when it was never started. */
void rm_spill_stop(rm_spill *s);

/* Starts writing count slots. False, without I/O, when they are not taken: no space, over the
 * limit, or a broken disk; what the slots held is lost then, too. */
bool rm_spill_write(rm_spill *s, rm_spill_op *op, rm_spill_region region, uint64_t slot,
                    uint64_t count, const void *bytes);

/* Starts reading count slots. False, without I/O, when one of them holds nothing. */
bool rm_spill_read(rm_spill *s, rm_spill_op *op, rm_spill_region region, uint64_t slot,
                   uint64_t count, void *to);

/* Waits for op. False when it failed or was never begun: after a write, all its slots are lost;
 * after a read, those are that came back wrong (rm_spill_has() tells which). May be asked again. */
bool rm_spill_finish(rm_spill *s, rm_spill_op *op);

/* Marks what has completed, without waiting. */
void rm_spill_poll(rm_spill *s);

/* Does the slot hold something? */
bool rm_spill_has(const rm_spill *s, rm_spill_region region, uint64_t slot);

/* The slots hold nothing from now on; nothing of them is in flight. Long runs (from 1 MiB) give
 * their blocks back, unless these are reserved. */
void rm_spill_forget(rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count);

/* A broken disk is given another chance: one failed write tells little. */
void rm_spill_pardon(rm_spill *s);

/* Would one more page be refused? Forgetting helps, unless the disk is broken. */
bool rm_spill_full(const rm_spill *s);

#endif /* RM_CACHE_SPILL_H */
