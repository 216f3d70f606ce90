/*
 * spill.c: see spill.h. Of a slot it knows one thing: the checksum of what it holds, which begins
 * when a write begins and ends with the first failure.
 *
 * Two kinds of "full": no space left is healed by forgetting (a slot that was written keeps its
 * blocks, so that it can be written again), a write error is not. Reserved slots have their blocks
 * and are written when the disk is full.
 */
#include "cache/spill.h"
#include "base/hash.h"
#include "cache/spill_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { PUNCH_MIN = 1 << 20 }; /* bytes: shorter runs are written again soon, and cost a call each */

uint64_t rm_spill_stride(uint64_t slot_bytes) {
    RM_ASSERT(slot_bytes <= (uint64_t)INT64_MAX);
    return (slot_bytes + RM_SPILL_UNIT - 1) & ~(uint64_t)(RM_SPILL_UNIT - 1);
}

/* --- life ----------------------------------------------------------------------------------- */

static uint64_t file_bytes(const rm_spill *s) {
    return s->first[RM_SPILL_PAGES] +
           s->stride[RM_SPILL_PAGES] * s->shape.slot_count[RM_SPILL_PAGES];
}

static uint64_t reserved_bytes(const rm_spill *s) {
    return s->reserved[RM_SPILL_ROWS] * s->stride[RM_SPILL_ROWS] +
           s->reserved[RM_SPILL_PAGES] * s->stride[RM_SPILL_PAGES];
}

int rm_spill_layout(rm_spill *s, rm_ledger *l, const rm_spill_shape *shape, remat_error *err) {
    *s = (rm_spill){.shape = *shape, .fd = -1};
    if (s->shape.depth == 0) s->shape.depth = RM_SPILL_DEPTH;
    static const rm_spill_region order[] = {RM_SPILL_ROWS, RM_SPILL_PAGES};
    uint64_t end = 0;
    for (int i = 0; i < RM_SPILL_REGIONS; i++) {
        const rm_spill_region r = order[i];
        uint64_t bytes;
        RM_ASSERT(shape->slot_bytes[r] > 0 || shape->slot_count[r] == 0);
        s->stride[r] = rm_spill_stride(shape->slot_bytes[r]);
        s->first[r] = end;
        if (__builtin_mul_overflow(s->stride[r], shape->slot_count[r], &bytes) ||
            __builtin_add_overflow(end, bytes, &end) || end > INT64_MAX) {
            return rm_fail(err, REMAT_E_BUDGET,
                           "spill: no file can be that large; use a "
                           "shorter context");
        }
        RM_TRY(rm_ledger_carve(&s->sums[r], l, RM_ACCOUNT_KV_STAGE, shape->slot_count[r],
                               sizeof *s->sums[r], err));
    }
    s->reserved[RM_SPILL_ROWS] = shape->slot_count[RM_SPILL_ROWS];
    s->reserved[RM_SPILL_PAGES] = shape->reserve_pages < shape->slot_count[RM_SPILL_PAGES]
                                      ? shape->reserve_pages
                                      : shape->slot_count[RM_SPILL_PAGES];
    return rm_ledger_carve(&s->aio_memory, l, RM_ACCOUNT_KV_STAGE, 1, rm_aio_bytes(s->shape.depth),
                           err);
}

/* The file, of its size and with its reserved blocks. */
static int make_file(rm_spill *s, rm_spill_file *f, const char *dir, remat_error *err) {
    const uint64_t needed = reserved_bytes(s);
    RM_TRY(rm_spill_file_size(f, file_bytes(s), needed, dir, err));
    /* Rows end where pages begin: one range. */
    return rm_spill_file_reserve(&s->reserving, f, 0, needed, dir, err);
}

int rm_spill_start(rm_spill *s, const char *dir, bool make_dir, remat_error *err) {
    RM_ASSERT(s->aio == NULL);
    const uint64_t needed = reserved_bytes(s), limit = s->shape.limit_bytes;
    if (limit > 0 && needed > limit) {
        return rm_fail(err, REMAT_E_FAILED,
                       "spill: %llu MiB are needed and the limit is %llu MiB; raise it",
                       (unsigned long long)((needed + (1 << 20) - 1) >> 20),
                       (unsigned long long)(limit >> 20));
    }
    rm_spill_file f;
    RM_TRY(rm_spill_file_open(&f, dir, make_dir, err));
    int status = make_file(s, &f, dir, err);
    if (status == REMAT_OK)
        status = rm_aio_start(&s->aio, s->aio_memory, s->shape.depth, !s->shape.no_ring, err);
    if (status != REMAT_OK) {
        rm_spill_file_close(&f);
        return status;
    }
    s->fd = f.fd;
    s->direct = f.direct;
    s->in_memory = f.in_memory;
    s->taken_bytes = needed;
    s->no_space = s->broken = false;
    return REMAT_OK;
}

rm_spill_room rm_spill_probe(const rm_spill_shape *shape, const char *dir, bool make_dir,
                             remat_error *err) {
    rm_spill_file f;
    uint64_t needed = 0;
    bool reserved;
    for (int r = 0; r < RM_SPILL_REGIONS; r++)
        needed += rm_spill_stride(shape->slot_bytes[r]) * shape->slot_count[r];
    if (rm_spill_file_open(&f, dir, make_dir, err) != REMAT_OK) return RM_SPILL_ROOM_NONE;
    rm_spill_room room = RM_SPILL_ROOM_SOME;
    if (shape->limit_bytes > 0 && needed > shape->limit_bytes) {
        (void)rm_fail(err, REMAT_E_FAILED, "spill: up to %llu MiB are needed and the limit is %llu",
                      (unsigned long long)(needed >> 20),
                      (unsigned long long)(shape->limit_bytes >> 20));
    } else if (rm_spill_file_size(&f, needed, needed, dir, err) == REMAT_OK &&
               rm_spill_file_reserve(&reserved, &f, 0, needed, dir, err) == REMAT_OK) {
        room = RM_SPILL_ROOM_ALL;
    }
    rm_spill_file_close(&f);
    return room;
}

void rm_spill_stop(rm_spill *s) {
    if (s->aio == NULL) return;
    rm_aio_stop(&s->aio);
    rm_spill_file_close(&(rm_spill_file){.fd = s->fd});
    s->fd = -1;
    for (int r = 0; r < RM_SPILL_REGIONS; r++)
        memset(s->sums[r], 0, s->shape.slot_count[r] * sizeof *s->sums[r]);
    s->used_bytes = s->used_slots = s->taken_bytes = 0;
}

/* --- slots ---------------------------------------------------------------------------------- */

static void check_range(const rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count) {
    RM_ASSERT(region < RM_SPILL_REGIONS);
    RM_ASSERT(count > 0);
    RM_ASSERT(slot <= s->shape.slot_count[region]);
    RM_ASSERT(count <= s->shape.slot_count[region] - slot);
}

/* Position and content: a slot that is found in another's place is as wrong as a changed one. */
static uint64_t sum_of(const rm_spill *s, rm_spill_region region, uint64_t slot,
                       const uint8_t *bytes) {
    const uint64_t sum =
        rm_hash(bytes, s->shape.slot_bytes[region], s->first[region] + slot * s->stride[region]);
    return sum != 0 ? sum : 1;
}

/* The one place where a checksum changes: what is counted about slots follows from it. */
static void set_sum(rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t sum) {
    uint64_t *held = &s->sums[region][slot];
    if ((*held != 0) != (sum != 0)) {
        const uint64_t bytes = s->stride[region];
        const int64_t step = sum != 0 ? 1 : -1;
        s->used_bytes += (uint64_t)step * bytes;
        if (region == RM_SPILL_PAGES) s->used_slots += (uint64_t)step;
        if (slot >= s->reserved[region]) s->taken_bytes += (uint64_t)step * bytes;
    }
    *held = sum;
}

static void lose(rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count) {
    for (uint64_t i = slot; i < slot + count; i++)
        set_sum(s, region, i, 0);
}

bool rm_spill_has(const rm_spill *s, rm_spill_region region, uint64_t slot) {
    check_range(s, region, slot, 1);
    return s->sums[region][slot] != 0;
}

void rm_spill_forget(rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count) {
    if (count == 0) return;
    check_range(s, region, slot, count);
    const uint64_t before = s->used_bytes;
    lose(s, region, slot, count);
    if (s->used_bytes == before) return;
    s->no_space = false;
    const uint64_t kept = s->reserving ? s->reserved[region] : 0, end = slot + count;
    const uint64_t from = slot > kept ? slot : kept;
    if (s->fd >= 0 && from < end && (end - from) * s->stride[region] >= PUNCH_MIN) {
        rm_spill_file_punch(s->fd, s->first[region] + from * s->stride[region],
                            (end - from) * s->stride[region]);
    }
}

/* --- transfers ------------------------------------------------------------------------------ */

/* Keeps the first one: later troubles tend to follow from it. */
static void note(rm_spill *s, const char *what, const char *why, const char *then) {
    if (s->trouble[0] != '\0') return;
    snprintf(s->trouble, sizeof s->trouble, "spill: %s: %s; %s", what, why, then);
}

/* May these slots be written? */
static bool admitted(const rm_spill *s, rm_spill_region region, uint64_t slot, uint64_t count) {
    if (s->broken) return false;
    const uint64_t reserved = s->reserved[region];
    if (s->no_space && !(s->reserving && slot + count <= reserved)) return false;
    uint64_t more = 0;
    for (uint64_t i = slot > reserved ? slot : reserved; i < slot + count; i++)
        more += s->sums[region][i] == 0 ? s->stride[region] : 0;
    const uint64_t limit = s->shape.limit_bytes;
    return limit == 0 || (s->taken_bytes <= limit && more <= limit - s->taken_bytes);
}

void rm_spill_pardon(rm_spill *s) {
    s->broken = false;
}

bool rm_spill_full(const rm_spill *s) {
    const uint64_t limit = s->shape.limit_bytes;
    return s->broken || s->no_space ||
           (limit > 0 && s->taken_bytes + s->stride[RM_SPILL_PAGES] > limit);
}

/* Sets op up for its slots; false: it is not to begin. */
static bool prepare(rm_spill *s, rm_spill_op *op, rm_spill_region region, uint64_t slot,
                    uint64_t count, bool write, void *at) {
    check_range(s, region, slot, count);
    RM_ASSERT(s->aio != NULL);
    RM_ASSERT((uintptr_t)at % RM_SPILL_UNIT == 0);
    op->region = region;
    op->slot = slot;
    op->count = count;
    op->pending = op->ok = false;
    op->io.done = true;
    op->io.fd = s->fd;
    op->io.write = write;
    op->io.at = at;
    op->io.offset = s->first[region] + slot * s->stride[region];
    op->io.bytes = count * s->stride[region];
    if (write) return admitted(s, region, slot, count);
    for (uint64_t i = slot; i < slot + count; i++) {
        if (s->sums[region][i] == 0) return false;
    }
    return true;
}

bool rm_spill_write(rm_spill *s, rm_spill_op *op, rm_spill_region region, uint64_t slot,
                    uint64_t count, const void *bytes) {
    void *at; /* only read: op->io serves both directions */
    memcpy(&at, &bytes, sizeof at);
    if (!prepare(s, op, region, slot, count, true, at)) {
        lose(s, region, slot, count);
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *part = (const uint8_t *)bytes + i * s->stride[region];
        set_sum(s, region, slot + i, sum_of(s, region, slot + i, part));
    }
    op->pending = true;
    rm_aio_begin(s->aio, &op->io);
    return true;
}

bool rm_spill_read(rm_spill *s, rm_spill_op *op, rm_spill_region region, uint64_t slot,
                   uint64_t count, void *to) {
    if (!prepare(s, op, region, slot, count, false, to)) return false;
    op->pending = true;
    rm_aio_begin(s->aio, &op->io);
    return true;
}

static bool finish_write(rm_spill *s, const rm_spill_op *op) {
    const int error = op->io.error;
    if (error == 0) {
        s->written_bytes += op->io.bytes;
        /* What goes through the page cache leaves it soon: the system's memory is not ours. */
        if (!s->direct)
            (void)sync_file_range(s->fd, (off_t)op->io.offset, (off_t)op->io.bytes,
                                  SYNC_FILE_RANGE_WRITE);
        return true;
    }
    s->failed_writes++;
    if (error == ENOSPC || error == EDQUOT)
        s->no_space = true;
    else
        s->broken = true;
    note(s, "a write failed", strerror(error), "what does not fit is computed again");
    lose(s, op->region, op->slot, op->count);
    return false;
}

static bool finish_read(rm_spill *s, const rm_spill_op *op) {
    if (op->io.error != 0) {
        s->failed_reads++;
        note(s, "a read failed", strerror(op->io.error),
             "what is lost is computed again; check the disk");
        lose(s, op->region, op->slot, op->count);
        return false;
    }
    s->read_bytes += op->io.bytes;
    if (!s->direct)
        (void)posix_fadvise(s->fd, (off_t)op->io.offset, (off_t)op->io.bytes, POSIX_FADV_DONTNEED);
    bool ok = true;
    for (uint64_t i = 0; i < op->count; i++) {
        const uint64_t slot = op->slot + i;
        const uint8_t *part = (const uint8_t *)op->io.at + i * s->stride[op->region];
        if (s->sums[op->region][slot] == sum_of(s, op->region, slot, part)) continue;
        ok = false;
        s->failed_reads++;
        note(s, "a read failed", "it is not what was written",
             "it is computed again; check the disk");
        lose(s, op->region, slot, 1);
    }
    return ok;
}

bool rm_spill_finish(rm_spill *s, rm_spill_op *op) {
    if (!op->pending) return op->ok;
    rm_aio_wait(s->aio, &op->io);
    op->pending = false;
    op->ok = op->io.write ? finish_write(s, op) : finish_read(s, op);
    return op->ok;
}

void rm_spill_poll(rm_spill *s) {
    rm_aio_poll(s->aio);
}
