/*
 * logits.c: the end of a sweep: from hidden states to logits, for the rows that want them. See
 * sweep.h. Part: engine.
 *
 * Norms of the rows become inputs of the output matrix one by one, wherever their hidden states
 * are; then the matrix passes once for all of them, tile by tile: as it lies in memory, or arrives.
 */
#include "engine/sweep.h"

enum {
    /* Strips of the output matrix whose results are held as tiles at a time. */
    OUTPUT_STRIPS = 1024,
};

uint32_t rm_sweep_tile_strips(const rm_model *m) {
    const uint32_t all = rm_strips(m->shape.vocabulary);
    return all < OUTPUT_STRIPS ? all : OUTPUT_STRIPS;
}

/* A row whose logits are wanted. */
typedef struct wanted {
    const rm_row_run *run;
    uint32_t position;
} wanted;

/* Inputs of the output matrix are in logit_in; the logits of count rows go to s->logits. */
static int output_rows(rm_sweep *s, const rm_inputs *in, uint32_t count, remat_error *err) {
    const size_t width = (size_t)RM_LANES * rm_strips(s->model->shape.vocabulary);
    const uint32_t most = rm_sweep_tile_strips(s->model);
    for (;;) {
        rm_matrix tile;
        uint32_t first;
        RM_TRY(rm_stream_output(s->stream, &tile, &first, err));
        if (tile.outputs == 0) return REMAT_OK;
        const uint32_t strips = rm_strips(tile.outputs);
        for (uint32_t at = 0; at < strips; at += most) {
            const uint32_t n = strips - at < most ? strips - at : most;
            rm_matrix part = tile;
            part.strips += (size_t)at * part.strip_bytes;
            part.outputs = n * RM_LANES;
            float *to = s->logit_tiles;
            const rm_product out = rm_product_make(&part, true, count, &to);
            rm_products_run(s->kernels, s->threads, &s->work, in, &out, 1);
            for (uint32_t i = 0; i < count; i++)
                rm_product_row(s->logits + i * width + (size_t)(first + at) * RM_LANES, s->kernels,
                               &out, i, to);
        }
    }
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
        RM_TRY(output_rows(s, &in, n, err));
        for (uint32_t i = 0; i < n; i++) {
            const float *logits = s->logits + i * width;
            if (!s->kernels->all_finite(logits, m->shape.vocabulary)) {
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
