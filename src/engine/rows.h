/*
 * rows.h: hidden states of a sweep's rows between two layers. Part: engine.
 *
 *     in memory   row r of the sweep at memory + r * dim
 *     spilled     64 rows (a run) are a slot of the spill file; in memory are three buffers of a
 *                 chunk: the one in work, the one that is read ahead, the one that is written back
 *
 * So a sweep of any length takes the memory of three chunks. A buffer that still holds what is
 * asked for is not read again.
 */
#ifndef RM_ENGINE_ROWS_H
#define RM_ENGINE_ROWS_H

#include "base/limits.h"
#include "cache/spill.h"

enum {
    RM_ROWS_BUFFERS = 3,
    RM_ROWS_RUNS = RM_CHUNK_ROWS_MAX / RM_PAGE_TOKENS, /* runs of a buffer at most */
};

typedef struct rm_rows_buffer {
    float *at;
    uint32_t runs[RM_ROWS_RUNS], run_count; /* what it holds; 0: nothing */
    uint32_t op_count;                      /* transfers in flight */
    bool reading, failed;
    rm_spill_op ops[RM_ROWS_RUNS];
} rm_rows_buffer;

typedef struct rm_rows {
    uint32_t dim, buffer_runs;
    bool spilled;
    float *memory; /* row_max x dim; or NULL */
    rm_rows_buffer *buffers;
    uint32_t open; /* the buffer in work, while spilled */
    rm_spill *spill;
} rm_rows;

typedef struct rm_rows_shape {
    uint32_t row_max; /* rows in memory; 0: they are spilled */
    uint32_t chunk_rows, dim;
} rm_rows_shape;

/* Whether rows of dim floats can be spilled: 64 of them are whole pages. */
bool rm_rows_can_spill(uint32_t dim);

/* Bytes of a slot: 64 rows. */
uint64_t rm_rows_slot_bytes(uint32_t dim);

/* Carves (account rows). */
int rm_rows_layout(rm_rows *r, rm_ledger *l, const rm_rows_shape *shape, remat_error *err);
void rm_rows_start(rm_rows *r, rm_spill *spill);

/* Forgets what the buffers hold: a new sweep begins. */
void rm_rows_reset(rm_rows *r);

/* Spilled: begins to read a chunk's runs ahead, while another one is open and not stored yet. */
void rm_rows_ahead(rm_rows *r, const uint32_t *runs, uint32_t run_count);

/* Spilled: the buffer of these runs, run i at i * 64 rows. load: with what was stored last; else
 * anything may stand in it. NULL: it could not be read back. */
float *rm_rows_open(rm_rows *r, const uint32_t *runs, uint32_t run_count, bool load);

/* Spilled: writes the open buffer. */
void rm_rows_store(rm_rows *r);

#endif /* RM_ENGINE_ROWS_H */
