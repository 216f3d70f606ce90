/*
 * stream.c: see stream.h.
 *
 * A piece is a run of strips of one matrix, as long as piece_bytes allow, and one read: its aligned
 * superset, since O_DIRECT wants offsets, lengths and addresses in units of BLOCK. Pieces lie in
 * the ring one after the other; one that does not fit before the ring's end starts at its front.
 *
 *     ring   [ piece 4 | piece 5 |   free   | piece 1 | piece 2 | piece 3 | (tail) ]
 *                                             oldest
 */
#include "model/stream.h"

#include <string.h>

enum {
    BLOCK = 4096,
    PIECES = 32,          /* reads in flight, or done and not yet used */
    PIECE_MOST = 1 << 20, /* bytes of a read: larger ones were no faster */
    PIECES_OF_RING = 6,   /* reads that fit the ring; with few the disk waits for us */
    EMBED_K = 256, /* embedding rows are unpacked in parts of this: whole blocks of any format */
};

static uint64_t blocks_up(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

static uint64_t strip_raw_bytes(const rm_matrix *w) {
    return RM_LANES * (uint64_t)rm_gguf_row_bytes(w->format, w->k);
}

/* The most that the aligned superset of so many bytes takes. */
static uint64_t superset_most(uint64_t bytes) {
    return blocks_up(bytes) + BLOCK;
}

static bool output_streamed(const rm_model *m) {
    return m->output.streamed;
}

static uint32_t output_strips(const rm_model *m) {
    return rm_strips(m->output.outputs);
}

/* Streamed matrices of a unit. The output is the embedding's when it is tied. */
static uint32_t streamed_matrices(rm_matrix *out[RM_UNIT_MATRICES], const rm_model *m,
                                  uint32_t unit) {
    rm_model copy = *m; /* layers are shared */
    return m->resident[unit] ? 0 : rm_unit_matrices(out, &copy, unit);
}

/* --- layout ----------------------------------------------------------------------------------- */

typedef struct needs {
    uint64_t slot_bytes, raw_least;
    uint32_t part_count;
} needs;

static void need_matrix(needs *n, const rm_matrix *w) {
    const uint64_t raw = superset_most(strip_raw_bytes(w));
    if (raw > n->raw_least) n->raw_least = raw;
    if (w->source->part >= n->part_count) n->part_count = w->source->part + 1;
}

static needs needs_of(const rm_model *m, uint32_t tile_strips) {
    needs n = {0};
    rm_matrix *w[RM_UNIT_MATRICES];
    for (uint32_t layer = 0; layer < m->shape.layer_count; layer++) {
        uint64_t bytes = 0;
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t unit = RM_UNIT_LAYERS + 2 * layer + half;
            const uint32_t count = streamed_matrices(w, m, unit);
            for (uint32_t i = 0; i < count; i++)
                need_matrix(&n, w[i]);
            if (count > 0) bytes += rm_unit_bytes(m, unit);
        }
        if (bytes > n.slot_bytes) n.slot_bytes = bytes;
    }
    if (output_streamed(m)) {
        const uint64_t all = output_strips(m), strips = tile_strips < all ? tile_strips : all;
        need_matrix(&n, &m->output);
        if (strips * m->output.strip_bytes > n.slot_bytes)
            n.slot_bytes = strips * m->output.strip_bytes;
    }
    return n;
}

uint64_t rm_stream_raw_least(const rm_model *m) {
    return needs_of(m, 1).raw_least;
}

int rm_stream_layout(rm_stream *s, rm_ledger *l, const rm_model *m, const rm_stream_shape *shape,
                     remat_error *err) {
    const rm_account account = RM_ACCOUNT_WEIGHT_STREAM;
    const needs n = needs_of(m, shape->output_strips);
    RM_ASSERT(shape->output_strips > 0 || !output_streamed(m));
    *s = (rm_stream){.shape = *shape, .any = n.slot_bytes > 0};
    if (!s->any) return REMAT_OK;
    s->slot_bytes = n.slot_bytes;
    s->ring_bytes = blocks_up(shape->raw_bytes > n.raw_least ? shape->raw_bytes : n.raw_least);
    const uint64_t share = s->ring_bytes / PIECES_OF_RING / BLOCK * BLOCK;
    s->piece_bytes = share < PIECE_MOST ? share : PIECE_MOST;
    s->part_count = n.part_count;
    RM_TRY(rm_ledger_carve(&s->slot, l, account, s->slot_bytes, 1, err));
    if (s->slot != NULL) rm_ledger_huge_pages(l, s->slot, s->slot_bytes);
    RM_TRY(rm_ledger_carve(&s->ring, l, account, s->ring_bytes + BLOCK, 1, err));
    s->ring = (uint8_t *)(((uintptr_t)s->ring + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1));
    RM_TRY(rm_ledger_carve(&s->pieces, l, account, PIECES, sizeof *s->pieces, err));
    RM_TRY(rm_ledger_carve(&s->direct, l, account, s->part_count, sizeof *s->direct, err));
    return rm_ledger_carve(&s->aio_memory, l, account, rm_aio_bytes(PIECES), 1, err);
}

/* --- start and stop --------------------------------------------------------------------------- */

/* A part whose second descriptor is refused is read through the first one. */
static void open_direct(rm_stream *s, const rm_matrix *w) {
    rm_file *f = &s->direct[w->source->part];
    if (f->fd < 0) (void)rm_file_reopen_direct(f, rm_gguf_file(s->gguf, w->source));
}

static void open_parts(rm_stream *s) {
    rm_matrix *w[RM_UNIT_MATRICES];
    for (uint32_t unit = RM_UNIT_LAYERS; unit < rm_unit_count(s->model); unit++) {
        const uint32_t count = streamed_matrices(w, s->model, unit);
        for (uint32_t i = 0; i < count; i++)
            open_direct(s, w[i]);
    }
    if (output_streamed(s->model)) open_direct(s, &s->model->output);
}

static int descriptor(const rm_stream *s, const rm_run *run) {
    const rm_file *direct = &s->direct[run->matrix->source->part];
    return direct->fd >= 0 ? direct->fd : run->file->fd;
}

int rm_stream_start(rm_stream *s, rm_model *m, const rm_gguf *g, rm_threads *threads,
                    remat_error *err) {
    s->model = m;
    s->gguf = g;
    s->threads = threads;
    if (!s->any) return REMAT_OK;
    for (uint32_t i = 0; i < s->part_count; i++)
        s->direct[i] = (rm_file){.fd = -1};
    RM_TRY(rm_aio_start(&s->aio, s->aio_memory, PIECES, true, err));
    s->started = true;
    open_parts(s);
    return REMAT_OK;
}

void rm_stream_stop(rm_stream *s) {
    if (!s->started) return;
    rm_stream_end(s);
    rm_aio_stop(&s->aio);
    for (uint32_t i = 0; i < s->part_count; i++)
        rm_file_close(&s->direct[i]);
    s->started = false;
}

/* --- reading ahead ---------------------------------------------------------------------------- */

static uint32_t strips_of_piece(const rm_stream *s, const rm_matrix *w) {
    const uint64_t room = s->piece_bytes > BLOCK ? s->piece_bytes - BLOCK : 0;
    const uint64_t strips = room / strip_raw_bytes(w);
    return strips > 0 ? (uint32_t)strips : 1;
}

static uint32_t tiles_of_pass(const rm_stream *s) {
    return (output_strips(s->model) + s->shape.output_strips - 1) / s->shape.output_strips;
}

/* Tiles in the order of passes, after the layers. */
static uint64_t tile_stage(const rm_stream *s, uint32_t pass, uint32_t strip) {
    return s->model->shape.layer_count + (uint64_t)pass * tiles_of_pass(s) +
           strip / s->shape.output_strips;
}

static uint32_t tile_end(const rm_stream *s, uint32_t strip) {
    const uint32_t all = output_strips(s->model), left = all - strip;
    return left < s->shape.output_strips ? all : strip + s->shape.output_strips;
}

/* The piece of a layer that the cursor is at; false: there are no more. */
static bool layer_piece(rm_stream *s, rm_stream_piece *p) {
    rm_stream_cursor *c = &s->next;
    for (; c->unit < RM_UNIT_LAYERS + 2 * (s->last_layer + 1); c->unit++, c->matrix = 0) {
        rm_matrix *w[RM_UNIT_MATRICES];
        if (c->matrix >= streamed_matrices(w, s->model, c->unit)) continue;
        const rm_matrix *at = w[c->matrix];
        const uint32_t all = rm_strips(at->outputs), most = strips_of_piece(s, at);
        const uint32_t end = all - c->strip < most ? all : c->strip + most;
        p->run = rm_run_of(at, s->gguf, c->index, c->strip, end);
        p->stage = (c->unit - RM_UNIT_LAYERS) / 2;
        return true;
    }
    return false;
}

/* The same for tiles. A piece ends with its tile. */
static bool output_piece(rm_stream *s, rm_stream_piece *p) {
    const rm_stream_cursor *c = &s->next;
    if (!output_streamed(s->model) || c->pass == s->output_passes) return false;
    const uint32_t most = strips_of_piece(s, &s->model->output);
    const uint32_t tile = c->output_strip / s->shape.output_strips * s->shape.output_strips;
    const uint32_t end = tile_end(s, tile), left = end - c->output_strip;
    p->run = rm_run_of(&s->model->output, s->gguf, 0, c->output_strip,
                       left < most ? end : c->output_strip + most);
    p->stage = tile_stage(s, c->pass, c->output_strip);
    return true;
}

/* Moves the cursor behind the piece. */
static void pass_piece(rm_stream *s, const rm_stream_piece *p) {
    rm_stream_cursor *c = &s->next;
    if (p->stage >= s->model->shape.layer_count) {
        c->output_strip = p->run.last;
        if (c->output_strip < output_strips(s->model)) return;
        c->output_strip = 0;
        c->pass++;
        return;
    }
    c->strip = p->run.last;
    if (c->strip < rm_strips(p->run.matrix->outputs)) return;
    c->strip = 0;
    if (++c->index < p->run.matrix->count) return;
    c->index = 0;
    c->matrix++;
}

static rm_stream_piece *piece_at(const rm_stream *s, uint32_t index) {
    return &s->pieces[(s->oldest + index) % PIECES];
}

/* Room for `bytes` in the ring behind the newest piece. */
static bool ring_place(const rm_stream *s, uint64_t *at, uint64_t bytes) {
    *at = 0;
    if (s->piece_count == 0) return true;
    const rm_stream_piece *newest = piece_at(s, s->piece_count - 1);
    const uint64_t used = piece_at(s, 0)->ring_at, end = newest->ring_at + newest->op.bytes;
    if (end <= used) { /* the pieces go round the end */
        *at = end;
        return used - end >= bytes;
    }
    if (s->ring_bytes - end >= bytes) {
        *at = end;
        return true;
    }
    return used >= bytes;
}

/* Starts reads while the ring has room. */
static void read_ahead(rm_stream *s) {
    while (s->piece_count < PIECES) {
        rm_stream_piece *p = piece_at(s, s->piece_count);
        if (!layer_piece(s, p) && !output_piece(s, p)) return;
        const uint64_t at = p->run.at / BLOCK * BLOCK;
        p->skip = (uint32_t)(p->run.at - at);
        const uint64_t bytes = blocks_up(p->skip + p->run.bytes);
        if (!ring_place(s, &p->ring_at, bytes)) return;
        p->op = (rm_aio_op){
            .fd = descriptor(s, &p->run), .at = s->ring + p->ring_at, .offset = at, .bytes = bytes};
        rm_aio_begin(s->aio, &p->op);
        s->piece_count++;
        pass_piece(s, p);
    }
}

/* The oldest piece's rows. The last block may end with the file, which is no failure; a read that
 * gave too little is tried once more, without any of what may have been the reason. */
static int wait_oldest(rm_stream *s, const uint8_t **rows, remat_error *err) {
    rm_stream_piece *p = piece_at(s, 0);
    uint8_t *at = s->ring + p->ring_at + p->skip;
    rm_aio_wait(s->aio, &p->op);
    atomic_fetch_add_explicit(&s->read_bytes, p->op.moved, memory_order_relaxed);
    if (p->op.moved < p->skip + p->run.bytes) {
        RM_TRY(rm_file_read(p->run.file, at, p->run.at, p->run.bytes, err));
        atomic_fetch_add_explicit(&s->read_bytes, p->run.bytes, memory_order_relaxed);
    }
    *rows = at;
    return REMAT_OK;
}

/* --- interleaving ----------------------------------------------------------------------------- */

typedef struct packing {
    const rm_run *run;
    const uint8_t *rows;
    uint8_t *strips;
    atomic_flag reported;
    int status;
    remat_error *err; /* written by the thread that set `reported` */
} packing;

static void pack_one(void *user, uint32_t item, uint32_t thread) {
    packing *j = user;
    remat_error err = {0};
    (void)thread;
    const uint32_t strip = j->run->first + item;
    const int status = rm_run_pack(j->strips, j->run, j->rows, strip, strip + 1, &err);
    if (status != REMAT_OK && !atomic_flag_test_and_set(&j->reported)) {
        j->status = status;
        if (j->err != NULL) *j->err = err;
    }
}

/* Packs all pieces of a stage. Strips of the output go to the slot, its tile from `tile` on. */
static int pack_stage(rm_stream *s, uint64_t stage, uint32_t tile, remat_error *err) {
    for (;;) {
        read_ahead(s);
        if (s->piece_count == 0) return REMAT_OK;
        const rm_stream_piece *p = piece_at(s, 0);
        if (p->stage != stage) {
            RM_ASSERT(p->stage > stage);
            return REMAT_OK;
        }
        packing j = {.run = &p->run, .reported = ATOMIC_FLAG_INIT, .err = err};
        const rm_matrix *w = p->run.matrix;
        const uint64_t strip = stage < s->model->shape.layer_count
                                   ? (uint64_t)p->run.index * rm_strips(w->outputs) + p->run.first
                                   : p->run.first - tile;
        j.strips =
            (stage < s->model->shape.layer_count ? w->strips : s->slot) + strip * w->strip_bytes;
        RM_TRY(wait_oldest(s, &j.rows, err));
        rm_threads_for(s->threads, p->run.last - p->run.first, 0, pack_one, &j);
        RM_TRY(j.status);
        s->oldest = (s->oldest + 1) % PIECES;
        s->piece_count--;
    }
}

/* --- a sweep ---------------------------------------------------------------------------------- */

/* Gives the streamed matrices of a layer their places in the slot, or takes them back. */
static void lend(rm_stream *s, uint32_t layer, bool take_back) {
    uint8_t *at = s->slot;
    for (uint32_t half = 0; half < 2; half++) {
        rm_matrix *w[RM_UNIT_MATRICES];
        const uint32_t count = streamed_matrices(w, s->model, RM_UNIT_LAYERS + 2 * layer + half);
        for (uint32_t i = 0; i < count; i++) {
            w[i]->strips = take_back ? NULL : at;
            at += (uint64_t)w[i]->count * rm_strips(w[i]->outputs) * w[i]->strip_bytes;
        }
    }
    RM_ASSERT(at <= s->slot + s->slot_bytes);
    s->lent = take_back ? 0 : layer + 1;
}

void rm_stream_begin(rm_stream *s, uint32_t first_layer, uint32_t last_layer,
                     uint32_t output_passes) {
    RM_ASSERT(first_layer <= last_layer);
    RM_ASSERT(last_layer < s->model->shape.layer_count);
    rm_stream_end(s);
    s->first_layer = s->layer = first_layer;
    s->last_layer = last_layer;
    s->output_passes = output_passes;
    s->pass = s->output_strip = 0;
    s->next = (rm_stream_cursor){.unit = RM_UNIT_LAYERS + 2 * first_layer};
    if (s->any) read_ahead(s);
}

int rm_stream_layer(rm_stream *s, uint32_t layer, remat_error *err) {
    RM_ASSERT(layer == s->layer);
    RM_ASSERT(layer <= s->last_layer);
    s->layer++;
    if (!s->any) return REMAT_OK;
    if (s->lent > 0) lend(s, s->lent - 1, true);
    lend(s, layer, false);
    return pack_stage(s, layer, 0, err);
}

int rm_stream_output(rm_stream *s, rm_matrix *tile, uint32_t *first_strip, remat_error *err) {
    const rm_model *m = s->model;
    const uint32_t all = output_strips(m), first = s->output_strip;
    RM_ASSERT(s->layer == s->last_layer + 1);
    *tile = m->output;
    *first_strip = first;
    if (first == all) {
        tile->outputs = 0;
        s->output_strip = 0;
        s->pass++;
        return REMAT_OK;
    }
    if (!output_streamed(m)) {
        s->output_strip = all;
        return REMAT_OK;
    }
    RM_ASSERT(s->pass < s->output_passes);
    if (s->lent > 0) lend(s, s->lent - 1, true);
    const uint32_t end = tile_end(s, first), outputs = end * RM_LANES;
    tile->outputs = (outputs < m->output.outputs ? outputs : m->output.outputs) - first * RM_LANES;
    tile->strips = s->slot;
    s->output_strip = end;
    return pack_stage(s, tile_stage(s, s->pass, first), first, err);
}

void rm_stream_end(rm_stream *s) {
    if (s->lent > 0) lend(s, s->lent - 1, true);
    for (uint32_t i = 0; i < s->piece_count; i++)
        rm_aio_wait(s->aio, &piece_at(s, i)->op);
    s->piece_count = 0;
}

/* --- embeddings ------------------------------------------------------------------------------- */

static uint64_t embed_row_bytes(const rm_matrix *w) {
    return (rm_gguf_row_bytes(w->format, w->k) + 63) / 64 * 64;
}

uint64_t rm_stream_embed_space(const rm_model *m) {
    const rm_matrix *w = &m->embedding;
    return embed_row_bytes(w) + rm_strip_bytes(w->format, w->k < EMBED_K ? w->k : EMBED_K);
}

int rm_stream_embed(rm_stream *s, float *out, uint32_t token, void *space, remat_error *err) {
    const rm_matrix *w = &s->model->embedding;
    const rm_file *file = rm_gguf_file(s->gguf, w->source);
    const uint64_t bytes = rm_gguf_row_bytes(w->format, w->k), at = w->source->at + token * bytes;
    uint8_t *row = space, *strip = row + embed_row_bytes(w);
    RM_ASSERT(token < w->outputs);
    if (rm_file_read(file, row, at, bytes, NULL) != REMAT_OK)
        RM_TRY(rm_file_read(file, row, at, bytes, err));
    atomic_fetch_add_explicit(&s->read_bytes, bytes, memory_order_relaxed);
    for (uint32_t k = 0; k < w->k; k += EMBED_K) {
        const uint32_t count = w->k - k < EMBED_K ? w->k - k : EMBED_K;
        const uint8_t *from = row + rm_gguf_row_bytes(w->format, k);
        if (rm_pack_strip(strip, w->format, from, 1, count) >= 0) {
            return rm_fail(err, REMAT_E_MODEL,
                           "%s: tensor %s, row %u: a weight is not a finite number; the file is "
                           "damaged",
                           file->path, w->source->name, token);
        }
        rm_unpack_row(out + k, w->format, strip, 0, count);
    }
    return REMAT_OK;
}
