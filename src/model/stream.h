/*
 * stream.h: weights that pass through memory instead of staying. Part: model.
 *
 * Units that are not resident (model.h) are read in each sweep, layer after layer, while the
 * arithmetic of the layer before runs. File bytes come by asynchronous reads into a ring, in the
 * order of their use; all threads together interleave them from there into one slot, which holds a
 * layer, or a tile of the output matrix:
 *
 *     file  --reads-->  [ ring: .. layer 4 | layer 5 .. ]  --all threads-->  [ slot: layer 4 ]
 *
 *     begin   layer 0   layer 1  ..  layer n - 1   output, output, .. (a pass)   ..   end
 *
 * The bytes of a strip are the same as those of a resident one, so the answer is the same too.
 * The functions here are called by one thread, the one that started the threads, except
 * rm_stream_embed(). After an error: rm_stream_end(), and the next sweep starts afresh.
 */
#ifndef RM_MODEL_STREAM_H
#define RM_MODEL_STREAM_H

#include "base/aio.h"
#include "model/model.h"

#include <stdatomic.h>

typedef struct rm_stream_shape {
    uint64_t raw_bytes; /* the ring, a multiple of 4096; at least rm_stream_raw_least() is taken */
    uint32_t output_strips; /* strips of a streamed output matrix in one tile */
} rm_stream_shape;

/* A piece of the file on its way: one read, whole strips of one matrix. */
typedef struct rm_stream_piece {
    rm_aio_op op;
    rm_run run;
    uint64_t stage;   /* what it belongs to: a layer; then tiles, counted through all passes */
    uint64_t ring_at; /* of op.bytes, which begin `skip` bytes before the run */
    uint32_t skip;
} rm_stream_piece;

/* What is read next. */
typedef struct rm_stream_cursor {
    uint32_t unit, matrix, index, strip; /* of a layer */
    uint32_t pass, output_strip;         /* afterwards */
} rm_stream_cursor;

typedef struct rm_stream {
    rm_stream_shape shape;
    rm_model *model;
    const rm_gguf *gguf;
    rm_threads *threads;
    bool any; /* something passes through the slot */

    uint8_t *slot, *ring;
    uint64_t slot_bytes, ring_bytes, piece_bytes;
    rm_stream_piece *pieces; /* a queue: the oldest is `oldest` */
    uint32_t oldest, piece_count;
    rm_aio *aio;
    void *aio_memory;
    rm_file *direct; /* second descriptors of the parts that have streamed matrices */
    uint32_t part_count;
    bool started;

    rm_stream_cursor next;
    uint32_t first_layer, last_layer, output_passes; /* of this sweep */
    uint32_t layer;                                  /* that rm_stream_layer() gives next */
    uint32_t pass, output_strip;                     /* that rm_stream_output() gives next */
    uint32_t lent;                                   /* layer whose strips lie in the slot, + 1 */
    atomic_ullong read_bytes;                        /* from files, since the start */
} rm_stream;

/* The smallest ring that the streamed units of m work with. 4 to 8 MiB keep a disk busy. */
uint64_t rm_stream_raw_least(const rm_model *m);

/* Carves slot, ring and what reading needs (account weight_stream), for the units that the last
 * rm_model_layout() left out; nothing at all when there are none. */
int rm_stream_layout(rm_stream *s, rm_ledger *l, const rm_model *m, const rm_stream_shape *shape,
                     remat_error *err);

/* Opens what is needed to read; also when all units are resident. All arguments outlive s.
 * Errors: REMAT_E_FAILED; rm_stream_stop() is allowed then, too. */
int rm_stream_start(rm_stream *s, rm_model *m, const rm_gguf *g, rm_threads *threads,
                    remat_error *err);
void rm_stream_stop(rm_stream *s);

/* A sweep through these layers (both included) and then output_passes times the output matrix.
 * Reading ahead starts at once, and what an earlier sweep had read ahead is given up. */
void rm_stream_begin(rm_stream *s, uint32_t first_layer, uint32_t last_layer,
                     uint32_t output_passes);

/* Waits for a layer, interleaves it; layers come in order, none is left out. Afterwards the strips
 * of all its matrices are in memory until the next call of a function here. A read that fails is
 * tried once more. Errors: REMAT_E_FAILED, REMAT_E_MODEL (a weight that is not finite). */
int rm_stream_layer(rm_stream *s, uint32_t layer, remat_error *err);

/* The next tile of the output matrix, after all layers: *tile has the outputs from *first_strip
 * strips on, valid until the next call. tile->outputs is 0 once when a pass is over; the next call
 * begins the next pass. A resident output is one tile, and passes are not counted. */
int rm_stream_output(rm_stream *s, rm_matrix *tile, uint32_t *first_strip, remat_error *err);

/* Ends a sweep, also one that is not through: waits for reads that are on their way. */
void rm_stream_end(rm_stream *s);

/* One row of an embedding that is not resident, read from the file: the floats that
 * rm_unpack_row() gives of its strip. Any thread may call it, with rm_stream_embed_space() bytes
 * of its own (64-byte aligned). */
uint64_t rm_stream_embed_space(const rm_model *m);
int rm_stream_embed(rm_stream *s, float *out, uint32_t token, void *space, remat_error *err);

#endif /* RM_MODEL_STREAM_H */
