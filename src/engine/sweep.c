/* sweep.c: see sweep.h. */
#include "engine/sweep.h"
#include "engine/keep.h"

#include <stdatomic.h>
#include <string.h>

int rm_sweep_layout(rm_sweep *s, rm_ledger *l, const rm_model *m, const rm_sweep_shape *shape,
                    remat_error *err) {
    const uint64_t width = (uint64_t)RM_LANES * rm_strips(m->shape.vocabulary);
    const rm_account work = RM_ACCOUNT_WORK, rows = RM_ACCOUNT_ROWS, logits = RM_ACCOUNT_LOGITS;
    const rm_input_kind kind = rm_input_of(&m->output, true);
    const rm_rows_shape hidden = {
        .row_max = shape->row_max, .chunk_rows = shape->chunk_rows, .dim = m->shape.dim};
    const uint32_t listed =
        shape->chunk_rows > shape->logits_rows ? shape->chunk_rows : shape->logits_rows;
    s->shape = *shape;
    s->model = m;
    RM_TRY(rm_work_layout(&s->work, l, m, shape->chunk_rows, shape->thread_count,
                          shape->context_count, shape->staged, err));
    RM_TRY(rm_ledger_carve(&s->hidden_row, l, work, listed, sizeof *s->hidden_row, err));
    RM_TRY(rm_ledger_carve(&s->position, l, work, shape->chunk_rows, sizeof *s->position, err));
    RM_TRY(rm_ledger_carve(&s->segments, l, work, shape->chunk_rows, sizeof *s->segments, err));
    RM_TRY(rm_ledger_carve(&s->now.at, l, work, shape->chunk_rows, sizeof *s->now.at, err));
    RM_TRY(rm_ledger_carve(&s->next.at, l, work, shape->chunk_rows, sizeof *s->next.at, err));
    RM_TRY(rm_ledger_carve(&s->embed_space, l, work, shape->thread_count, rm_stream_embed_space(m),
                           err));
    RM_TRY(rm_ledger_carve(&s->runs, l, rows, shape->run_max, sizeof *s->runs, err));
    RM_TRY(rm_rows_layout(&s->rows, l, &hidden, err));
    RM_TRY(rm_ledger_carve(&s->logit_in, l, logits, 1,
                           rm_input_bytes(kind, shape->logits_rows, m->shape.dim), err));
    RM_TRY(rm_ledger_carve(&s->logits, l, logits, shape->logits_rows, width * sizeof(float), err));
    return rm_ledger_carve(&s->logit_tiles, l, logits,
                           shape->thread_count * rm_sweep_logit_tile(m, shape->logits_rows),
                           sizeof(float), err);
}

/* --- the way in ------------------------------------------------------------------------------- */

typedef struct embedding {
    rm_sweep *sweep;
    atomic_bool failed;
    atomic_flag reported;
    remat_error err;
    int status;
} embedding;

static int embed_row(rm_sweep *s, float *x, uint32_t token, uint32_t thread, remat_error *err) {
    const rm_matrix *w = &s->model->embedding;
    const float scale = s->model->shape.embedding_scale;
    if (w->strips != NULL) {
        rm_unpack_row(x, w->format, w->strips + (size_t)(token / RM_LANES) * w->strip_bytes,
                      token % RM_LANES, w->k);
    } else {
        RM_TRY(rm_stream_embed(s->stream, x, token,
                               s->embed_space + thread * rm_stream_embed_space(s->model), err));
    }
    for (uint32_t k = 0; scale != 1 && k < w->k; k++)
        x[k] *= scale;
    return REMAT_OK;
}

static void embed_item(void *user, uint32_t item, uint32_t thread) {
    embedding *e = user;
    rm_sweep *s = e->sweep;
    remat_error err = {0};
    const uint32_t first = item * RM_GROUP, n = rm_group_rows(s->now.rows, first);
    uint32_t piece = 0, at = first; /* of the piece */
    while (at >= s->now.at[piece].count)
        at -= s->now.at[piece++].count;
    for (uint32_t i = first; i < first + n; i++) {
        const rm_piece *p = &s->now.at[piece];
        float *x = s->hidden + (size_t)s->hidden_row[i] * s->model->shape.dim;
        if (atomic_load_explicit(&e->failed, memory_order_relaxed)) return;
        const int status = embed_row(s, x, s->runs[p->run].tokens[p->first + at], thread, &err);
        if (status != REMAT_OK) {
            if (!atomic_flag_test_and_set(&e->reported)) {
                e->status = status;
                e->err = err;
            }
            atomic_store(&e->failed, true);
            return;
        }
        if (++at == p->count) {
            at = 0;
            piece++;
        }
    }
}

static int embed(rm_sweep *s, remat_error *err) {
    embedding e = {.sweep = s, .reported = ATOMIC_FLAG_INIT};
    rm_threads_for(s->threads, (s->now.rows + RM_GROUP - 1) / RM_GROUP, 0, embed_item, &e);
    if (e.status != REMAT_OK && err != NULL) *err = e.err;
    return e.status;
}

/* The runs of a chunk, for rows.h. */
static uint32_t runs_of(const rm_pieces *p, uint32_t runs[RM_ROWS_RUNS]) {
    RM_ASSERT(p->count <= RM_ROWS_RUNS);
    for (uint32_t i = 0; i < p->count; i++)
        runs[i] = p->at[i].run;
    return p->count;
}

static int open_rows(rm_sweep *s, uint32_t layer, remat_error *err) {
    uint32_t runs[RM_ROWS_RUNS], row = 0;
    s->hidden = s->rows.memory;
    if (s->rows.spilled) {
        s->hidden = rm_rows_open(&s->rows, runs, runs_of(&s->now, runs), !s->now.enters);
        if (s->hidden == NULL) return RM_SWEEP_LOST;
    }
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const uint32_t base =
            s->rows.spilled ? i * RM_PAGE_TOKENS : s->runs[p->run].row_first + p->first;
        for (uint32_t k = 0; k < p->count; k++)
            s->hidden_row[row++] = base + k;
    }
    if (!s->now.enters) return REMAT_OK;
    if (layer == 0) return embed(s, err);
    rm_keep_load(s);
    return REMAT_OK;
}

static void read_rows_ahead(rm_sweep *s, rm_cursor at) {
    uint32_t runs[RM_ROWS_RUNS];
    if (!s->rows.spilled) return;
    rm_piece pieces[RM_ROWS_RUNS];
    rm_pieces p = {.at = pieces};
    if (!rm_sweep_take(s, &p, &at)) {
        at = (rm_cursor){.layer = at.layer + 1};
        if (!rm_sweep_take(s, &p, &at)) return;
    }
    if (!p.enters) rm_rows_ahead(&s->rows, runs, runs_of(&p, runs));
}

/* --- pages ------------------------------------------------------------------------------------ */

static bool spills(const rm_sweep *s, uint32_t column) {
    return s->cold_kind == REMAT_COLD_SPILL && s->cache->spill != NULL && column >= s->spill_from;
}

/* A block for a page of the chunk when the pool is full: from a cold page of this layer that is
 * behind the chunk. The newest of them: the older ones are read by every chunk as well, and one
 * that stays is as good as another. False: there is none. */
static bool evict(rm_sweep *s, uint32_t layer) {
    const rm_row_run *now = &s->runs[s->now.at[0].run];
    for (uint32_t i = s->now.at[0].run; i-- > 0;) {
        const rm_row_run *r = &s->runs[i];
        if (r->sequence == now->sequence && rm_run_column(r) == rm_run_column(now)) continue;
        if (!rm_cache_in_pool(s->cache, r->sequence, layer, rm_run_column(r)) ||
            !rm_sweep_cold(s, r->sequence, layer, rm_run_column(r)))
            continue;
        /* A page that will be dropped is kept in the file until the layer is done. */
        if (!rm_cache_save(s->cache, r->sequence, layer, rm_run_column(r))) continue;
        rm_cache_release(s->cache, r->sequence, layer, rm_run_column(r));
        return true;
    }
    return false;
}

/* Rows that begin inside of a page go on from what is in it. It may have been on its way to the
 * file when the runs were chosen, and been lost since. */
static bool page_is_there(rm_sweep *s, uint32_t layer, const rm_row_run *r, const rm_piece *p) {
    const uint64_t page = rm_cache_index(s->cache, r->sequence, layer, rm_run_column(r));
    if ((r->first + p->first) % RM_PAGE_TOKENS == 0) return true;
    rm_cache_settle_pages(s->cache, page, 1);
    return rm_cache_known(s->cache, r->sequence, layer, rm_run_column(r));
}

static int hold_pages(rm_sweep *s, uint32_t layer, remat_error *err) {
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_row_run *r = &s->runs[s->now.at[i].run];
        const rm_row_run *before = i > 0 ? &s->runs[s->now.at[i - 1].run] : NULL;
        const bool held_already = before != NULL && before->sequence == r->sequence &&
                                  rm_run_column(before) == rm_run_column(r);
        if (!held_already && !page_is_there(s, layer, r, &s->now.at[i])) return RM_SWEEP_LOST;
        for (;;) {
            const rm_hold held =
                rm_cache_hold(s->cache, r->sequence, layer, rm_run_column(r), true);
            if (held == RM_HELD) break;
            if (held == RM_HOLD_LOST) return RM_SWEEP_LOST;
            if (!evict(s, layer)) {
                return rm_fail(err, REMAT_E_FAILED,
                               "cache: the spill file takes no more pages and memory has no room "
                               "for them; free the disk, or give more memory");
            }
        }
    }
    return REMAT_OK;
}

/* Cold pages whose last row has been here begin their way to the file. */
static void save_cold(rm_sweep *s, uint32_t layer) {
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const rm_row_run *r = &s->runs[p->run];
        const bool whole = p->first + p->count == r->count;
        const bool more = p->run + 1 < s->run_count && r[1].sequence == r->sequence &&
                          rm_run_column(r + 1) == rm_run_column(r);
        if (whole && !more && spills(s, rm_run_column(r)) &&
            rm_sweep_cold(s, r->sequence, layer, rm_run_column(r)))
            (void)rm_cache_save(s->cache, r->sequence, layer, rm_run_column(r));
    }
}

/* Pages of a layer with a window that no later row sees. They were given back up to there before,
 * so the walk is short. */
static void leave_window(rm_sweep *s, uint32_t layer) {
    const rm_layer *y = &s->model->layers[layer];
    if (y->window == 0) return;
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const rm_row_run *r = &s->runs[p->run];
        const uint32_t next = r->first + p->first + p->count;
        for (uint32_t c = rm_first_column(y, next); c-- > 0;) {
            if (!rm_cache_known(s->cache, r->sequence, layer, c)) break;
            rm_cache_drop_page(s->cache, r->sequence, layer, c);
        }
    }
}

/* The same for tokens that have run again: those before a gap are not met by the walk. */
static void leave_gaps(rm_sweep *s, uint32_t layer) {
    const rm_layer *y = &s->model->layers[layer];
    for (uint32_t i = 0, end; y->window > 0 && i < s->run_count; i = end) {
        const uint32_t sequence = s->runs[i].sequence;
        for (end = i + 1; end < s->run_count && s->runs[end].sequence == sequence;)
            end++;
        const rm_row_run *last = &s->runs[end - 1];
        const uint32_t low = rm_first_column(y, last->first + last->count);
        for (uint32_t k = i; k < end && rm_run_column(&s->runs[k]) < low; k++)
            rm_cache_drop_page(s->cache, sequence, layer, rm_run_column(&s->runs[k]));
    }
}

static void release_cold(rm_sweep *s, uint32_t layer) {
    for (uint32_t i = 0; s->cold_kind != REMAT_COLD_INPUTS && i < s->run_count; i++) {
        const rm_row_run *r = &s->runs[i];
        const uint32_t c = rm_run_column(r);
        if (!rm_sweep_cold(s, r->sequence, layer, c)) continue;
        if (!spills(s, c)) {
            rm_cache_drop_page(s->cache, r->sequence, layer, c);
        } else if (rm_cache_in_pool(s->cache, r->sequence, layer, c)) {
            (void)rm_cache_save(s->cache, r->sequence, layer, c);
            rm_cache_release(s->cache, r->sequence, layer, c);
        }
    }
}

/* --- the layers ------------------------------------------------------------------------------- */

int rm_sweep_check(const rm_sweep *s, remat_error *err) {
    return s->canceled(s->user) ? rm_fail(err, REMAT_E_CANCELED, "interrupted") : REMAT_OK;
}

static rm_chunk chunk_of(rm_sweep *s) {
    rm_chunk c = {.hidden_row = s->hidden_row, .position = s->position, .segments = s->segments};
    for (uint32_t i = 0; i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        const rm_row_run *r = &s->runs[p->run];
        rm_segment *g = &s->segments[c.segment_count];
        if (c.segment_count == 0 || g[-1].sequence != r->sequence ||
            s->position[c.row_count - 1] + 1 != r->first + p->first) {
            *g = (rm_segment){.sequence = r->sequence, .first = c.row_count};
            c.segment_count++;
        }
        s->segments[c.segment_count - 1].count += p->count;
        for (uint32_t k = 0; k < p->count; k++)
            s->position[c.row_count++] = r->first + p->first + k;
    }
    return c;
}

static void tap_rows(const rm_sweep *s, uint32_t layer) {
    uint32_t row = 0;
    for (uint32_t i = 0; s->tap != NULL && i < s->now.count; i++) {
        const rm_piece *p = &s->now.at[i];
        for (uint32_t k = 0; k < p->count; k++, row++) {
            if (s->now.rest)
                s->tap(s->tap_user, layer, &s->runs[p->run], s->position[row],
                       s->hidden + (size_t)s->hidden_row[row] * s->model->shape.dim);
        }
    }
}

static void attention_reads(void *user) {
    rm_sweep_read_ahead(user);
}

rm_layer_job rm_sweep_job(rm_sweep *s, uint32_t layer, const rm_chunk *chunk) {
    return (rm_layer_job){.model = s->model,
                          .kernels = s->kernels,
                          .threads = s->threads,
                          .work = &s->work,
                          .cache = s->cache,
                          .hidden = s->hidden,
                          .layer = layer,
                          .chunk = chunk,
                          .inputs = s->cold_kind == REMAT_COLD_INPUTS ? &s->kept : NULL,
                          .read_ahead = attention_reads,
                          .read_user = s};
}

/* Notes which pages the layer's rows have read: 1 for one that is read in every sweep, since a
 * sixteenth fades with each (rm_policy_age()). */
static void count_uses(rm_sweep *s, uint32_t layer) {
    for (uint32_t i = 0, last; s->uses != NULL && i < s->run_count; i = last + 1) {
        const rm_row_run *r = &s->runs[i];
        last = rm_sweep_last(s, i);
        while (r < &s->runs[last] && layer >= r->leave)
            r++; /* for their keys only, or not here */
        for (uint32_t c = rm_first_column(&s->model->layers[layer], r->first);
             c <= rm_run_column(&s->runs[last]); c++) {
            float *uses = &s->uses[rm_cache_index(s->cache, r->sequence, layer, c)];
            *uses = *uses > 0 ? *uses + 0.0625f : 1;
        }
    }
}

static int run_chunk(rm_sweep *s, uint32_t layer, rm_cursor next, remat_error *err) {
    RM_TRY(hold_pages(s, layer, err));
    RM_TRY(open_rows(s, layer, err));
    read_rows_ahead(s, next);
    const rm_chunk chunk = chunk_of(s);
    const rm_layer_job job = rm_sweep_job(s, layer, &chunk);
    rm_keep_inputs(s, layer);
    if (!rm_layer_run(&job, s->now.rest)) return RM_SWEEP_LOST;
    tap_rows(s, layer);
    if (s->rows.spilled && s->now.rest) rm_rows_store(&s->rows);
    rm_keep_checkpoints(s, layer);
    save_cold(s, layer);
    leave_window(s, layer);
    return REMAT_OK;
}

static int run_layer(rm_sweep *s, uint32_t layer, remat_error *err) {
    const uint32_t layers = s->model->shape.layer_count;
    const uint64_t rows = s->runs[s->run_count - 1].row_first + s->runs[s->run_count - 1].count;
    uint64_t done = 0;
    s->layer = layer;
    s->now.count = 0;
    RM_TRY(rm_stream_layer(s->stream, layer, err));
    RM_TRY(rm_keep_rebuild(s, layer, err));
    for (rm_cursor at = {.layer = layer}; rm_sweep_take(s, &s->now, &at);) {
        RM_TRY(rm_sweep_check(s, err));
        s->pause(s->user);
        RM_TRY(run_chunk(s, layer, at, err));
        done += s->now.rows;
        if (s->progress != NULL && done < rows)
            s->progress(s->user, layer * rows + done, rows * layers);
    }
    leave_gaps(s, layer);
    count_uses(s, layer);
    release_cold(s, layer);
    rm_keep_release(s, layer);
    rm_keep_forget(s, layer);
    if (s->progress != NULL) s->progress(s->user, (layer + 1) * rows, rows * layers);
    return REMAT_OK;
}

int rm_sweep_run(rm_sweep *s, uint32_t run_count, rm_logits_fn *fn, void *user, remat_error *err) {
    const uint32_t layers = s->model->shape.layer_count;
    RM_ASSERT(run_count > 0 && run_count <= s->shape.run_max);
    s->run_count = run_count;
    s->now.count = s->next.count = s->layer = 0;
    s->ahead = (rm_cursor){0};
    rm_rows_reset(&s->rows);
    rm_stream_begin(s->stream, 0, layers - 1,
                    (rm_sweep_wanted(s) + s->shape.logits_rows - 1) / s->shape.logits_rows);
    rm_sweep_read_ahead(s);
    int status = REMAT_OK;
    for (uint32_t layer = 0; status == REMAT_OK && layer < layers; layer++)
        status = run_layer(s, layer, err);
    if (status == REMAT_OK) status = rm_sweep_logits(s, fn, user, err);
    rm_stage_forget(s->cache);
    rm_stream_end(s->stream);
    return status;
}
