/* chunk.c: which rows pass a layer together, and which pages they will want. See sweep.h. */
#include "engine/sweep.h"

static bool runs_in(const rm_row_run *r, uint32_t layer, uint32_t layer_count) {
    return r->enter <= layer && layer <= r->leave && layer < layer_count;
}

bool rm_sweep_take(const rm_sweep *s, rm_pieces *out, rm_cursor *at) {
    const uint32_t layers = s->model->shape.layer_count;
    out->count = out->rows = 0;
    while (at->run < s->run_count && out->rows < s->shape.chunk_rows) {
        const rm_row_run *r = &s->runs[at->run];
        if (!runs_in(r, at->layer, layers)) {
            at->run++;
            continue;
        }
        const bool rest = at->layer < r->leave, enters = at->layer == r->enter;
        if (out->count > 0 && (rest != out->rest || enters != out->enters)) break;
        out->rest = rest;
        out->enters = enters;
        uint32_t n = r->count - at->row;
        if (s->rows.spilled) { /* whole runs: one slot each */
            if (out->count == s->rows.buffer_runs) break;
        } else if (n > s->shape.chunk_rows - out->rows) {
            n = s->shape.chunk_rows - out->rows;
        }
        out->at[out->count++] = (rm_piece){.run = at->run, .first = at->row, .count = n};
        out->rows += n;
        at->row += n;
        if (at->row < r->count) break;
        at->row = 0;
        at->run++;
    }
    return out->count > 0;
}

/* The next chunk whose attention will read pages; false at the end of the sweep. */
static bool next_reader(rm_sweep *s) {
    s->ahead_segment = s->ahead_column = 0;
    while (s->ahead.layer < s->model->shape.layer_count) {
        while (rm_sweep_take(s, &s->next, &s->ahead)) {
            if (s->next.rest) return true;
        }
        s->ahead = (rm_cursor){.layer = s->ahead.layer + 1};
    }
    s->next.count = 0;
    return false;
}

/* Columns of a sequence from here on are still going to be written in this layer: what the file has
 * of them is old by the time it is wanted. */
static uint32_t unwritten(const rm_sweep *s, uint32_t layer, uint32_t sequence) {
    const bool here = layer == s->layer;
    for (uint32_t i = here && s->now.count > 0 ? s->now.at[0].run : 0; i < s->run_count; i++) {
        const rm_row_run *r = &s->runs[i];
        if (r->sequence == sequence && layer <= r->leave) return r->first / RM_PAGE_TOKENS;
    }
    return UINT32_MAX;
}

/* Asks for the missing pages of one sequence's pieces; false when the stage is full. */
static bool read_columns(rm_sweep *s, uint32_t layer, uint32_t sequence, uint32_t end) {
    while (s->ahead_column < end) {
        /* A read does not go from one span into the next: bands are whole spans, and a read that
         * is of no use to one as a whole would be given up. */
        const uint32_t first = s->ahead_column, most = RM_SPAN_PAGES - first % RM_SPAN_PAGES;
        uint32_t n = 0;
        while (first + n < end && n < most &&
               rm_cache_page(s->cache, sequence, layer, first + n) == NULL &&
               rm_cache_spilled(s->cache, sequence, layer, first + n))
            n++;
        const uint32_t done =
            n > 0 ? rm_stage_ahead(s->cache, sequence, layer, first, n) : 1 /* nothing to read */;
        s->ahead_column += done;
        if (done < n) return false;
    }
    return true;
}

void rm_sweep_read_ahead(rm_sweep *s) {
    if (s->cache->spill == NULL) return;
    while (s->next.count > 0 || next_reader(s)) {
        const uint32_t layer = s->ahead.layer;
        while (s->ahead_segment < s->next.count) {
            /* Pieces of one sequence stand together: the first sees most of the past, the last
             * all of it. */
            const rm_piece *p = &s->next.at[s->ahead_segment];
            const uint32_t sequence = s->runs[p->run].sequence;
            uint32_t last = s->ahead_segment;
            while (last + 1 < s->next.count &&
                   s->runs[s->next.at[last + 1].run].sequence == sequence)
                last++;
            const rm_row_run *r = &s->runs[p->run], *e = &s->runs[s->next.at[last].run];
            const uint32_t low = rm_first_column(&s->model->layers[layer], r->first + p->first);
            if (s->ahead_column < low) s->ahead_column = low;
            const uint32_t end = e->first / RM_PAGE_TOKENS + 1,
                           limit = unwritten(s, layer, sequence);
            if (!read_columns(s, layer, sequence, end < limit ? end : limit)) return;
            s->ahead_segment = last + 1;
            s->ahead_column = 0;
        }
        s->next.count = 0;
    }
}
