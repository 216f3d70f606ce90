/*
 * feed_forward.c: gate, up, down; dense or by experts. Part: engine.
 *
 * A unit of outputs of gate and up is made for all rows and turned into input of down at once, so
 * that the f32 results never leave a core's cache.
 *
 * With experts, the rows that chose an expert are gathered and go through it together: its weights
 * are read once however many rows there are. A row adds up its experts in the order of their
 * numbers, so its sum does not depend on who else is in the chunk.
 */
#include "engine/pass.h"

#include <string.h>

/* One run of gate, up and down over rows that are in p->in. */
typedef struct run {
    rm_pass *p;
    rm_matrix gate, up, down;
    uint32_t rows;
} run;

unsigned rm_feed_forward_mask(const rm_layer *y) {
    if (y->router.source != NULL) return rm_input_bit(&y->router, true);
    return rm_input_bit(&y->gate, false) | rm_input_bit(&y->up, false);
}

/* Outputs first .. first + n - 1 of gate and up for some rows: a multiple of 16 but at the end. */
static void unit_rows(const run *u, uint32_t first, uint32_t n, uint32_t row, uint32_t rows,
                      const rm_scratch_thread *t) {
    rm_pass *p = u->p;
    const rm_kernels *kernels = p->job->kernels;
    const rm_matrix *const w[2] = {&u->gate, &u->up};
    const uint32_t strips = rm_strips(n);
    rm_out y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = (rm_out){.at = t->tile[i], .row_count = rows, .strips = strips};
        const rm_acts x = rm_acts_rows(&p->in.kind[rm_input_of(w[i], false)], row, rows);
        for (uint32_t j = 0; j < strips; j++) {
            const uint32_t strip = first / RM_LANES + j;
            kernels->matmul[w[i]->format](
                &y[i], j, w[i]->strips + (size_t)strip * w[i]->strip_bytes, &x, t->matmul);
        }
    }
    const bool gelu = p->job->model->shape.gate == RM_GATE_GELU;
    for (uint32_t group = 0; group < rows; group += RM_GROUP) {
        const uint32_t count = rm_group_rows(rows, group);
        const size_t at = (size_t)group * strips * RM_LANES; /* a group's results are one run */
        float *gate = y[0].at + at, *up = y[1].at + at, one[RM_UNIT_SUPER], space[RM_UNIT_SUPER];
        (gelu ? kernels->geglu : kernels->swiglu)(gate, gate, up,
                                                  (size_t)count * strips * RM_LANES);
        for (uint32_t r = group; r < group + count; r++) {
            kernels->out_row(one, &y[0], r, 0, strips);
            rm_inputs_put(kernels, &p->mid, row + r, first, n, one, space);
        }
    }
}

static void unit_item(void *user, uint32_t item, uint32_t thread) {
    const run *u = user;
    const uint32_t unit = rm_unit_of(&u->down), first = item * unit;
    const uint32_t left = u->gate.outputs - first, n = left < unit ? left : unit;
    const uint32_t most = rm_unit_rows(&u->down, u->rows);
    for (uint32_t row = 0; row < u->rows; row += most)
        unit_rows(u, first, n, row, u->rows - row < most ? u->rows - row : most,
                  &u->p->job->work->threads[thread]);
}

/* down . (act(gate . in) * (up . in)) of all rows, into p->out. */
static void run_units(run *u) {
    rm_pass *p = u->p;
    const rm_work *w = p->job->work;
    const uint32_t unit = rm_unit_of(&u->down), units = (u->gate.outputs + unit - 1) / unit;
    float *at = w->out;
    p->mid = rm_work_mid(w, rm_input_bit(&u->down, false), u->rows, u->gate.outputs);
    rm_threads_for(p->job->threads, units, rm_batch_of(p->job->threads, units, u->rows), unit_item,
                   u);
    p->out = rm_product_make(&u->down, false, u->rows, &at);
    rm_products_run(p->job->kernels, p->job->threads, w, &p->mid, &p->out, 1);
}

static void residual_rows(void *user, uint32_t item, uint32_t thread) {
    rm_pass *p = user;
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    for (uint32_t r = first; r < first + n; r++)
        rm_pass_add(p, r, &p->weights->post_ffn_norm, &p->job->work->threads[thread]);
}

/* --- experts ---------------------------------------------------------------------------------- */

/* The best `used` logits of a row, with a softmax over them, in the order of their numbers.
 * Ties go to the lower number. (Shazeer et al., 2017; Mixtral, 2024.) */
static void choose(rm_choice *out, const float *logits, uint32_t count, uint32_t used) {
    uint32_t have = 0;
    for (uint32_t e = 0; e < count; e++) {
        if (have == used && !(logits[e] > out[have - 1].weight)) continue;
        uint32_t at = have < used ? have++ : have - 1;
        for (; at > 0 && logits[e] > out[at - 1].weight; at--)
            out[at] = out[at - 1];
        out[at] = (rm_choice){.index = e, .weight = logits[e]};
    }
    const float max = out[0].weight;
    float sum = 0;
    for (uint32_t i = 0; i < used; i++)
        sum += out[i].weight = rm_exp(out[i].weight - max);
    for (uint32_t i = 0; i < used; i++)
        out[i].weight /= sum;
    for (uint32_t i = 1; i < used; i++) {
        const rm_choice c = out[i];
        uint32_t at = i;
        for (; at > 0 && out[at - 1].index > c.index; at--)
            out[at] = out[at - 1];
        out[at] = c;
    }
}

static rm_choice *choices_of(const rm_pass *p, uint32_t row) {
    return p->job->work->choices + (size_t)row * p->job->model->shape.expert_used;
}

static float *sum_of(const rm_pass *p, uint32_t row) {
    return p->job->work->expert_sum + (size_t)row * p->job->model->shape.dim;
}

static void choose_rows(void *user, uint32_t item, uint32_t thread) {
    rm_pass *p = user;
    const rm_shape *s = &p->job->model->shape;
    const rm_scratch_thread *t = &p->job->work->threads[thread];
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    for (uint32_t r = first; r < first + n; r++) {
        rm_product_row(t->row[0], p->job->kernels, &p->out, r, t->row[1]);
        choose(choices_of(p, r), t->row[0], s->expert_count, s->expert_used);
        memset(sum_of(p, r), 0, s->dim * sizeof(float));
    }
}

/* Rows of the chunk that chose the expert go to work->expert_rows, with what it counts there. */
static uint32_t gather(const rm_pass *p, uint32_t expert) {
    const rm_work *w = p->job->work;
    const uint32_t used = p->job->model->shape.expert_used;
    uint32_t n = 0;
    for (uint32_t r = 0; r < p->job->chunk->row_count; r++) {
        const rm_choice *c = choices_of(p, r);
        for (uint32_t i = 0; i < used; i++) {
            if (c[i].index == expert) w->expert_rows[n++] = (rm_choice){r, c[i].weight};
        }
    }
    return n;
}

static void gathered_norm(void *user, uint32_t item, uint32_t thread) {
    run *u = user;
    rm_pass_norm(u->p, u->p->job->work->expert_rows[item].index, item, &u->p->weights->ffn_norm,
                 &u->p->job->work->threads[thread]);
}

static void gathered_add(void *user, uint32_t item, uint32_t thread) {
    const run *u = user;
    const rm_pass *p = u->p;
    const rm_choice c = p->job->work->expert_rows[item];
    const rm_scratch_thread *t = &p->job->work->threads[thread];
    float *sum = sum_of(p, c.index), *out = t->row[0];
    rm_product_row(out, p->job->kernels, &p->out, item, t->row[1]);
    for (uint32_t i = 0; i < p->job->model->shape.dim; i++)
        sum[i] += c.weight * out[i];
}

static void summed_rows(void *user, uint32_t item, uint32_t thread) {
    rm_pass *p = user;
    uint32_t first;
    const uint32_t n = rm_pass_item(p, item, &first);
    (void)thread;
    for (uint32_t r = first; r < first + n; r++)
        p->job->kernels->add(rm_pass_hidden(p, r), sum_of(p, r), p->job->model->shape.dim);
}

static void run_experts(rm_pass *p) {
    const rm_layer *y = p->weights;
    const rm_shape *s = &p->job->model->shape;
    const rm_work *w = p->job->work;
    rm_threads *threads = p->job->threads;
    float *at = w->out;
    p->out = rm_product_make(&y->router, true, p->job->chunk->row_count, &at);
    rm_products_run(p->job->kernels, threads, w, &p->in, &p->out, 1);
    rm_pass_rows(p, choose_rows);
    for (uint32_t e = 0; e < s->expert_count; e++) {
        run u = {.p = p,
                 .gate = rm_matrix_at(&y->gate, e),
                 .up = rm_matrix_at(&y->up, e),
                 .down = rm_matrix_at(&y->down, e),
                 .rows = gather(p, e)};
        if (u.rows == 0) continue;
        p->in = rm_work_in(w, rm_input_bit(&y->gate, false) | rm_input_bit(&y->up, false), u.rows,
                           s->dim);
        rm_threads_for(threads, u.rows, 0, gathered_norm, &u);
        run_units(&u);
        rm_threads_for(threads, u.rows, 0, gathered_add, &u);
    }
    rm_pass_rows(p, summed_rows);
}

void rm_feed_forward(rm_pass *p) {
    const rm_layer *y = p->weights;
    if (y->router.source != NULL) {
        run_experts(p);
        return;
    }
    run u = {
        .p = p, .gate = y->gate, .up = y->up, .down = y->down, .rows = p->job->chunk->row_count};
    run_units(&u);
    rm_pass_rows(p, residual_rows);
}
