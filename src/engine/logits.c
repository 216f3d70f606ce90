/*
 * logits.c: the end of a sweep: from hidden states to logits, for the rows that want them. See
 * sweep.h. Part: engine.
 *
 * Norms of the rows become inputs of the output matrix one by one, wherever their hidden states
 * are; then the matrix passes once for all of them, as it lies in memory or tile by tile as it
 * arrives. A thread has a strip's results of all rows in its cache and puts them, the two halves of
 * a fine one added, where logits are wanted.
 */
#include "engine/sweep.h"

#include <stdatomic.h>

size_t rm_sweep_logit_tile(const rm_model *m, uint32_t logits_rows) {
    return (size_t)logits_rows * rm_input_rows(rm_input_of(&m->output, true)) * RM_LANES;
}

/* A row whose logits are wanted. */
typedef struct wanted {
    const rm_row_run *run;
    uint32_t position;
} wanted;

/* The output matrix, or a tile of it, for some rows. */
typedef struct output {
    const rm_sweep *sweep;
    const rm_acts *x;
    rm_matrix tile;
    uint32_t first;       /* strip of the matrix that the tile begins with */
    uint32_t count, each; /* rows; rows of x for one of them */
    size_t width;         /* floats of a row of logits */
    atomic_bool unsound;  /* some logit is not finite */
} output;

static void output_item(void *user, uint32_t item, uint32_t thread) {
    output *o = user;
    const rm_sweep *s = o->sweep;
    const rm_matrix *w = &o->tile;
    const rm_out y = {.at = s->logit_tiles +
                            thread * rm_sweep_logit_tile(s->model, s->shape.logits_rows),
                      .row_count = o->count * o->each,
                      .strips = 1};
    s->kernels->matmul[w->format](&y, 0, w->strips + (size_t)item * w->strip_bytes, o->x,
                                  s->work.threads[thread].matmul);
    for (uint32_t i = 0; i < o->count; i++) {
        float *to = s->logits + i * o->width + (size_t)(o->first + item) * RM_LANES;
        const float *from = rm_out_at(&y, i * o->each, 0), *rest = from + RM_LANES;
        for (uint32_t l = 0; l < RM_LANES; l++)
            to[l] = o->each == 1 ? from[l] : from[l] + rest[l];
        if (!s->kernels->all_finite(to, RM_LANES)) atomic_store(&o->unsound, true);
    }
}

/* The logits of count rows, whose inputs are x, go to s->logits. */
static int output_rows(rm_sweep *s, const rm_acts *x, uint32_t count, bool *sound,
                       remat_error *err) {
    output o = {.sweep = s,
                .x = x,
                .count = count,
                .each = x->row_count / count,
                .width = (size_t)RM_LANES * rm_strips(s->model->shape.vocabulary)};
    for (;;) {
        RM_TRY(rm_stream_output(s->stream, &o.tile, &o.first, err));
        if (o.tile.outputs == 0) break;
        const uint32_t strips = rm_strips(o.tile.outputs);
        rm_threads_for(s->threads, strips, rm_batch_of(s->threads, strips, count), output_item, &o);
    }
    *sound = !atomic_load(&o.unsound);
    return REMAT_OK;
}

/* The norms of the next count wanted rows, from *run and *row on: inputs of the output matrix. */
static int input_rows(rm_sweep *s, rm_inputs *in, wanted *rows, uint32_t count, uint32_t *run,
                      uint32_t *row) {
    const rm_model *m = s->model;
    float *const *space = s->work.threads[0].row;
    for (uint32_t i = 0; i < count;) {
        const rm_row_run *r = &s->runs[*run];
        if (r->leave < m->shape.layer_count || *row == r->count) {
            ++*run;
            *row = 0;
            continue;
        }
        const float *from = s->rows.memory + (size_t)r->row_first * m->shape.dim;
        if (s->rows.spilled) from = rm_rows_open(&s->rows, run, 1, true);
        if (from == NULL) return RM_SWEEP_LOST;
        for (; i < count && *row < r->count; i++, ++*row) {
            s->kernels->rms_norm(space[0], from + (size_t)*row * m->shape.dim, m->output_norm.at,
                                 m->shape.dim, m->shape.norm_epsilon);
            rm_inputs_put(s->kernels, in, i, 0, m->shape.dim, space[0], space[1]);
            rows[i] = (wanted){.run = r, .position = r->first + *row};
        }
    }
    return REMAT_OK;
}

uint32_t rm_sweep_wanted(const rm_sweep *s) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->run_count; i++)
        n += s->runs[i].leave == s->model->shape.layer_count ? s->runs[i].count : 0;
    return n;
}

int rm_sweep_logits(rm_sweep *s, rm_logits_fn *fn, void *user, remat_error *err) {
    const rm_model *m = s->model;
    const size_t width = (size_t)RM_LANES * rm_strips(m->shape.vocabulary);
    const rm_input_kind kind = rm_input_of(&m->output, true);
    uint32_t left = rm_sweep_wanted(s), run = 0, row = 0;
    while (left > 0) {
        const uint32_t n = left < s->shape.logits_rows ? left : s->shape.logits_rows;
        wanted rows[RM_GROUP];
        rm_inputs in = {.mask = 1u << kind};
        in.kind[kind] = rm_input_view(s->logit_in, kind, n, m->shape.dim);
        RM_TRY(rm_sweep_check(s, err));
        RM_TRY(input_rows(s, &in, rows, n, &run, &row));
        bool sound;
        RM_TRY(output_rows(s, &in.kind[kind], n, &sound, err));
        for (uint32_t i = 0; i < n; i++) {
            const float *logits = s->logits + i * width;
            if (!sound && !s->kernels->all_finite(logits, m->shape.vocabulary)) {
                return rm_fail(err, REMAT_E_FAILED,
                               "logits after position %u are not finite numbers: "
                               "the model's weights or its type are unsound; try another file",
                               rows[i].position);
            }
            RM_TRY(fn(user, rows[i].run, rows[i].position, logits, err));
        }
        left -= n;
    }
    return REMAT_OK;
}
