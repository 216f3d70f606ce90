/* attention.c: see attention.h. */
#include "engine/attention.h"

#include <math.h>
#include <string.h>

typedef struct run {
    const rm_layer_job *job;
    const rm_shape *shape;
    uint32_t group, stride; /* query heads of a KV head; floats of a state */
    uint32_t tile_rows;     /* rows of an item */
    /* The band: spans span_first .. span_end - 1 of these segments. */
    uint32_t segment_first, segment_end, span_first, span_end;
    bool whole, last; /* there is no other band; there is none after it */
} run;

static run start(const rm_layer_job *job) {
    const rm_shape *s = &job->model->shape;
    run r = {.job = job, .shape = s, .group = s->head_count / s->kv_head_count};
    r.stride = RM_STATE_HEAD + s->head_dim_padded;
    r.tile_rows = job->work->tile_queries / r.group;
    return r;
}

float rm_attention_scale(uint32_t head_dim) {
    return (float)(1.44269504088896340736 / sqrt((double)head_dim));
}

/* Tiles of Q are read before attention writes its output over them. */
float *rm_attention_out(const rm_layer_job *job, uint32_t row) {
    const rm_shape *s = &job->model->shape;
    return job->work->heads + (size_t)row * s->head_count * s->head_dim;
}

static bool few(const rm_layer_job *job) {
    return job->chunk->row_count <= RM_SPLIT_ROWS;
}

/* Where the state of a query head of a row (of few) for one span is kept. */
static float *split_state(const run *r, uint32_t span, uint32_t kv_head, uint32_t row) {
    const size_t head = (size_t)span * r->shape->kv_head_count + kv_head;
    return r->job->work->split + (head * RM_SPLIT_ROWS + row) * r->group * r->stride;
}

/* First token of a span that a row sees: later than the first where the layer has a window. */
static uint32_t from_of(const run *r, uint32_t row, uint32_t span) {
    const uint32_t all = r->job->chunk->position[row] + 1, before = span * RM_SPAN_TOKENS;
    const uint32_t window = r->job->model->layers[r->job->layer].window;
    if (window == 0 || all <= before + window) return 0;
    return all - window - before < RM_SPAN_TOKENS ? all - window - before : RM_SPAN_TOKENS;
}

/* Tokens of a span up to the last that a row sees. */
static uint32_t seen_of(const run *r, uint32_t row, uint32_t span) {
    const uint32_t all = r->job->chunk->position[row] + 1, before = span * RM_SPAN_TOKENS;
    if (all <= before) return 0;
    return all - before < RM_SPAN_TOKENS ? all - before : RM_SPAN_TOKENS;
}

/* States of rows first .. first + count - 1 of one sequence for one span and KV head. */
static void span_of_rows(const run *r, float *state, uint32_t sequence, uint32_t first,
                         uint32_t count, uint32_t kv_head, uint32_t span,
                         const rm_scratch_thread *t) {
    const rm_cache *cache = r->job->cache;
    const void *pages[RM_SPAN_PAGES];
    const uint32_t least = from_of(r, first, span), most = seen_of(r, first + count - 1, span);
    for (uint32_t i = 0; i < count * r->group; i++) {
        t->from[i] = from_of(r, first + i / r->group, span);
        t->seen[i] = seen_of(r, first + i / r->group, span);
    }
    for (uint32_t i = least / RM_PAGE_TOKENS; i * RM_PAGE_TOKENS < most; i++) {
        const uint8_t *page =
            rm_cache_page(cache, sequence, r->job->layer, span * RM_SPAN_PAGES + i);
        RM_ASSERT(page != NULL);
        pages[i] = page + kv_head * cache->head_bytes;
    }
    const size_t query = ((size_t)kv_head * r->job->chunk->row_count + first) * r->group;
    const rm_attn_job job = {.q = r->job->work->query + query * r->shape->head_dim_padded,
                             .from = t->from,
                             .seen = t->seen,
                             .state = state,
                             .pages = pages,
                             .scratch = t->attn,
                             .query_count = count * r->group,
                             .dim = r->shape->head_dim_padded,
                             .format = cache->shape.format};
    r->job->kernels->attn_span(&job);
}

/* The first span that a row, and so any after it, sees something of. */
static uint32_t first_span(const run *r, uint32_t row) {
    const uint32_t all = r->job->chunk->position[row] + 1;
    const uint32_t window = r->job->model->layers[r->job->layer].window;
    return window == 0 || all <= window ? 0 : (all - window) / RM_SPAN_TOKENS;
}

static void finish_head(const run *r, const float *state, uint32_t row, uint32_t head) {
    float out[RM_HEAD_DIM_MAX];
    rm_attn_finish(out, state, r->shape->head_dim_padded);
    memcpy(rm_attention_out(r->job, row) + (size_t)head * r->shape->head_dim, out,
           r->shape->head_dim * sizeof(float));
}

/* --- many rows ------------------------------------------------------------------------------- */

static uint32_t tiles_of(const run *r, const rm_segment *g) {
    return (g->count + r->tile_rows - 1) / r->tile_rows;
}

/* Where the state of a tile's first query is while it grows. */
static float *tile_total(const run *r, const rm_scratch_thread *t, uint32_t kv_head,
                         uint32_t first) {
    const size_t query = ((size_t)kv_head * r->job->chunk->row_count + first) * r->group;
    return r->whole ? t->state[0] : r->job->work->totals + query * r->stride;
}

static void tile_item(void *user, uint32_t item, uint32_t thread) {
    const run *r = user;
    const rm_chunk *c = r->job->chunk;
    const rm_scratch_thread *t = &r->job->work->threads[thread];
    const uint32_t kv_head = item % r->shape->kv_head_count;
    uint32_t tile = item / r->shape->kv_head_count;
    const rm_segment *g = &c->segments[r->segment_first];
    while (tile >= tiles_of(r, g)) {
        tile -= tiles_of(r, g);
        g++;
    }
    const uint32_t skip = tile * r->tile_rows, left = g->count - skip;
    const uint32_t first = g->first + skip, count = rm_least(left, r->tile_rows);
    const uint32_t dim = r->shape->head_dim_padded, from = first_span(r, first);
    float *total = tile_total(r, t, kv_head, first);
    for (uint32_t i = 0; r->span_first <= from && i < count * r->group; i++)
        rm_attn_state_clear(total + (size_t)i * r->stride, dim);
    for (uint32_t span = rm_most(from, r->span_first);
         span < r->span_end && seen_of(r, first + count - 1, span) > 0; span++) {
        span_of_rows(r, t->state[1], g->sequence, first, count, kv_head, span, t);
        for (uint32_t i = 0; i < count * r->group; i++) {
            if (t->from[i] < t->seen[i])
                rm_attn_merge(total + (size_t)i * r->stride, t->state[1] + (size_t)i * r->stride,
                              dim);
        }
    }
    for (uint32_t i = 0; r->last && i < count * r->group; i++)
        finish_head(r, total + (size_t)i * r->stride, first + i / r->group,
                    kv_head * r->group + i % r->group);
}

/* --- few rows: spans side by side ------------------------------------------------------------- */

/* Spans of the band that a segment's rows see: how many, from *first on. */
static uint32_t spans_of(const run *r, const rm_segment *g, uint32_t *first) {
    const uint32_t last = r->job->chunk->position[g->first + g->count - 1] / RM_SPAN_TOKENS;
    *first = rm_most(first_span(r, g->first), r->span_first);
    const uint32_t end = rm_least(last + 1, r->span_end);
    return end > *first ? end - *first : 0;
}

static void span_item(void *user, uint32_t item, uint32_t thread) {
    const run *r = user;
    const rm_segment *g = &r->job->chunk->segments[r->segment_first];
    const uint32_t heads = r->shape->kv_head_count;
    uint32_t first;
    while (item >= spans_of(r, g, &first) * heads) {
        item -= spans_of(r, g, &first) * heads;
        g++;
    }
    const uint32_t span = first + item / heads, head = item % heads;
    span_of_rows(r, split_state(r, span, head, g->first), g->sequence, g->first, g->count, head,
                 span, &r->job->work->threads[thread]);
}

void rm_attention_finish(const rm_layer_job *job, uint32_t row, uint32_t thread) {
    if (!few(job)) return;
    const run r = start(job);
    const uint32_t dim = r.shape->head_dim_padded;
    float *total = job->work->threads[thread].state[0];
    for (uint32_t head = 0; head < r.shape->head_count; head++) {
        rm_attn_state_clear(total, dim);
        for (uint32_t span = first_span(&r, row); seen_of(&r, row, span) > 0; span++)
            rm_attn_merge(
                total, split_state(&r, span, head / r.group, row) + head % r.group * r.stride, dim);
        finish_head(&r, total, row, head);
    }
}

/* --- bands ------------------------------------------------------------------------------------ */

static void run_band(run *r) {
    const rm_chunk *c = r->job->chunk;
    uint32_t items = 0, first;
    for (uint32_t i = r->segment_first; i < r->segment_end; i++)
        items += few(r->job) ? spans_of(r, &c->segments[i], &first) : tiles_of(r, &c->segments[i]);
    rm_threads_for(r->job->threads, items * r->shape->kv_head_count, 1,
                   few(r->job) ? span_item : tile_item, r);
}

/* Columns of a segment in these spans that its rows see: first .. end - 1. */
static void columns_of(const run *r, const rm_segment *g, uint32_t span_first, uint32_t span_end,
                       uint32_t *first, uint32_t *end) {
    const uint32_t *position = r->job->chunk->position;
    const rm_layer *y = &r->job->model->layers[r->job->layer];
    const uint32_t low = rm_first_column(y, position[g->first]);
    *first = rm_most(low, span_first * RM_SPAN_PAGES);
    *end =
        rm_least(position[g->first + g->count - 1] / RM_PAGE_TOKENS + 1, span_end * RM_SPAN_PAGES);
}

/* Pages of columns first .. end - 1 that are in the file only. */
static uint32_t missing(const run *r, uint32_t sequence, uint32_t first, uint32_t end) {
    uint32_t n = 0;
    for (uint32_t c = first; c < end; c++)
        n += rm_cache_page(r->job->cache, sequence, r->job->layer, c) == NULL;
    return n;
}

/* Brings them in; runs that lie side by side are read together. */
static void open_pages(const run *r, uint32_t sequence, uint32_t first, uint32_t end) {
    rm_cache *cache = r->job->cache;
    const uint32_t layer = r->job->layer;
    while (first < end) {
        uint32_t n = 0;
        while (first + n < end && n < RM_SPAN_PAGES &&
               rm_cache_page(cache, sequence, layer, first + n) == NULL)
            n++;
        if (n > 0) rm_stage_open(cache, sequence, layer, first, n);
        first += n > 0 ? n : 1;
    }
}

/* Attends one band whose missing pages fit the stage. */
static bool staged_band(run *r) {
    rm_cache *cache = r->job->cache;
    for (uint32_t i = r->segment_first; i < r->segment_end; i++) {
        const rm_segment *g = &r->job->chunk->segments[i];
        uint32_t first, end;
        columns_of(r, g, r->span_first, r->span_end, &first, &end);
        open_pages(r, g->sequence, first, end);
    }
    r->job->read_ahead(r->job->read_user);
    const bool sound = rm_stage_settle(cache);
    if (sound) run_band(r);
    rm_stage_close(cache);
    r->job->read_ahead(r->job->read_user);
    return sound;
}

/* All spans of one segment, as many at a time as the stage takes. */
static bool staged_segment(run *r, uint32_t segment) {
    const rm_segment *g = &r->job->chunk->segments[segment];
    const uint32_t end = r->job->chunk->position[g->first + g->count - 1] / RM_SPAN_TOKENS + 1;
    r->segment_first = segment;
    r->segment_end = segment + 1;
    r->whole = false;
    for (r->span_first = first_span(r, g->first); r->span_first < end;
         r->span_first = r->span_end) {
        uint32_t pages = 0, first, last;
        for (r->span_end = r->span_first; r->span_end < end; r->span_end++) {
            columns_of(r, g, r->span_end, r->span_end + 1, &first, &last);
            pages += missing(r, g->sequence, first, last);
            if (r->span_end > r->span_first && pages > rm_stage_band(r->job->cache)) break;
        }
        r->last = r->span_end == end;
        if (!staged_band(r)) return false;
    }
    return true;
}

bool rm_attention_run(const rm_layer_job *job) {
    run r = start(job);
    const rm_chunk *c = job->chunk;
    r.segment_end = c->segment_count;
    r.span_end = UINT32_MAX / RM_SPAN_PAGES;
    r.whole = r.last = true;
    uint32_t pages = 0;
    for (uint32_t i = 0; i < c->segment_count; i++) {
        uint32_t first, end;
        columns_of(&r, &c->segments[i], 0, r.span_end, &first, &end);
        pages += missing(&r, c->segments[i].sequence, first, end);
    }
    if (pages == 0) {
        run_band(&r);
        return true;
    }
    if (job->cache->spill == NULL) return false;
    if (pages <= rm_stage_band(job->cache)) return staged_band(&r);
    for (uint32_t i = 0; i < c->segment_count; i++) {
        if (!staged_segment(&r, i)) return false;
    }
    return true;
}
