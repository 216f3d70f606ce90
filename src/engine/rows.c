/* rows.c: see rows.h. */
#include "engine/rows.h"

#include <string.h>

bool rm_rows_can_spill(uint32_t dim) {
    return dim % (4096 / (RM_PAGE_TOKENS * sizeof(float))) == 0;
}

uint64_t rm_rows_slot_bytes(uint32_t dim) {
    return (uint64_t)RM_PAGE_TOKENS * dim * sizeof(float);
}

int rm_rows_layout(rm_rows *r, rm_ledger *l, const rm_rows_shape *shape, remat_error *err) {
    const rm_account a = RM_ACCOUNT_ROWS;
    *r = (rm_rows){.dim = shape->dim,
                   .spilled = shape->row_max == 0,
                   .buffer_runs = shape->chunk_rows / RM_PAGE_TOKENS};
    RM_TRY(rm_ledger_carve(&r->memory, l, a, (uint64_t)shape->row_max * shape->dim, sizeof(float),
                           err));
    const uint32_t buffers = r->spilled ? RM_ROWS_BUFFERS : 0;
    RM_TRY(rm_ledger_carve(&r->buffers, l, a, buffers, sizeof *r->buffers, err));
    for (uint32_t i = 0; i < buffers; i++) {
        float *at;
        RM_ASSERT(shape->chunk_rows % RM_PAGE_TOKENS == 0);
        RM_ASSERT(rm_rows_can_spill(shape->dim));
        RM_TRY(
            rm_ledger_carve_pages(&at, l, a, r->buffer_runs, rm_rows_slot_bytes(shape->dim), err));
        if (r->buffers != NULL) r->buffers[i].at = at;
    }
    return REMAT_OK;
}

void rm_rows_start(rm_rows *r, rm_spill *spill) {
    r->spill = spill;
    rm_rows_reset(r);
}

/* Waits for the buffer's transfers. A failed write is noticed when the runs are read. */
static void settle(rm_rows *r, rm_rows_buffer *b) {
    for (uint32_t i = 0; i < b->op_count; i++) {
        if (!rm_spill_finish(r->spill, &b->ops[i]) && b->reading) b->failed = true;
    }
    b->op_count = 0;
    b->reading = false;
}

void rm_rows_reset(rm_rows *r) {
    for (uint32_t i = 0; r->spilled && i < RM_ROWS_BUFFERS; i++) {
        settle(r, &r->buffers[i]);
        r->buffers[i].run_count = 0;
        r->buffers[i].failed = false;
    }
}

static bool holds(const rm_rows_buffer *b, const uint32_t *runs, uint32_t run_count) {
    return b->run_count == run_count && !b->failed &&
           memcmp(b->runs, runs, run_count * sizeof *runs) == 0;
}

/* One transfer for each stretch of neighbouring runs. */
static void transfer(rm_rows *r, rm_rows_buffer *b, bool write) {
    const uint64_t bytes = rm_rows_slot_bytes(r->dim);
    b->reading = !write;
    for (uint32_t i = 0, n; i < b->run_count; i += n) {
        for (n = 1; i + n < b->run_count && b->runs[i + n] == b->runs[i] + n; n++) {
        }
        uint8_t *at = (uint8_t *)b->at + i * bytes;
        rm_spill_op *op = &b->ops[b->op_count];
        const bool begun = write ? rm_spill_write(r->spill, op, RM_SPILL_ROWS, b->runs[i], n, at)
                                 : rm_spill_read(r->spill, op, RM_SPILL_ROWS, b->runs[i], n, at);
        if (begun) {
            b->op_count++;
        } else if (!write) {
            b->failed = true;
        }
    }
}

/* Runs that are being written by another buffer are there before they are read. */
static void settle_writes_of(rm_rows *r, const uint32_t *runs, uint32_t run_count) {
    for (uint32_t i = 0; i < RM_ROWS_BUFFERS; i++) {
        rm_rows_buffer *b = &r->buffers[i];
        bool shared = false;
        for (uint32_t k = 0; k < b->run_count && b->op_count > 0 && !b->reading; k++) {
            for (uint32_t j = 0; j < run_count; j++)
                shared = shared || b->runs[k] == runs[j];
        }
        if (shared) settle(r, b);
    }
}

/* What other buffers hold of these runs will be old. */
static void forget_elsewhere(rm_rows *r, uint32_t open) {
    const rm_rows_buffer *mine = &r->buffers[open];
    for (uint32_t i = 0; i < RM_ROWS_BUFFERS; i++) {
        rm_rows_buffer *b = &r->buffers[i];
        bool shared = false;
        for (uint32_t k = 0; i != open && k < b->run_count; k++) {
            for (uint32_t j = 0; j < mine->run_count; j++)
                shared = shared || b->runs[k] == mine->runs[j];
        }
        if (!shared) continue;
        settle(r, b);
        b->run_count = 0;
    }
}

/* A buffer to fill: not the one in work, rather one that is not in flight. */
static rm_rows_buffer *spare(rm_rows *r) {
    rm_rows_buffer *best = NULL;
    for (uint32_t i = 1; i < RM_ROWS_BUFFERS; i++) {
        rm_rows_buffer *b = &r->buffers[(r->open + i) % RM_ROWS_BUFFERS];
        if (best == NULL || b->op_count < best->op_count) best = b;
    }
    settle(r, best);
    best->failed = false;
    return best;
}

static rm_rows_buffer *begin(rm_rows *r, const uint32_t *runs, uint32_t run_count, bool load) {
    RM_ASSERT(run_count <= r->buffer_runs);
    settle_writes_of(r, runs, run_count);
    rm_rows_buffer *b = spare(r);
    memcpy(b->runs, runs, run_count * sizeof *runs);
    b->run_count = run_count;
    if (load) transfer(r, b, false);
    return b;
}

static rm_rows_buffer *holder(const rm_rows *r, const uint32_t *runs, uint32_t run_count) {
    for (uint32_t i = 0; i < RM_ROWS_BUFFERS; i++) {
        if (holds(&r->buffers[i], runs, run_count)) return &r->buffers[i];
    }
    return NULL;
}

/* Is one of the runs in work? It is still going to be written: what the file has of it is old. */
static bool in_work(const rm_rows *r, const uint32_t *runs, uint32_t run_count) {
    const rm_rows_buffer *b = &r->buffers[r->open];
    for (uint32_t k = 0; k < b->run_count; k++) {
        for (uint32_t j = 0; j < run_count; j++) {
            if (b->runs[k] == runs[j]) return true;
        }
    }
    return false;
}

void rm_rows_ahead(rm_rows *r, const uint32_t *runs, uint32_t run_count) {
    if (!r->spilled || holder(r, runs, run_count) != NULL || in_work(r, runs, run_count)) return;
    (void)begin(r, runs, run_count, true);
}

float *rm_rows_open(rm_rows *r, const uint32_t *runs, uint32_t run_count, bool load) {
    rm_rows_buffer *b = holder(r, runs, run_count);
    if (b == NULL) b = begin(r, runs, run_count, load);
    settle(r, b); /* written too: it is going to change */
    r->open = (uint32_t)(b - r->buffers);
    forget_elsewhere(r, r->open);
    return b->failed ? NULL : b->at;
}

void rm_rows_store(rm_rows *r) {
    rm_rows_buffer *b = &r->buffers[r->open];
    RM_ASSERT(b->op_count == 0);
    transfer(r, b, true);
}
