/*
 * load.c: weights from the file into strips. Part: model.
 *
 * All resident matrices together are cut into items of a few strips; threads take items, read the
 * rows of each and interleave them straight into their place. Nothing is held twice but the staging
 * memory of a thread.
 */
#include "model/model.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct job {
    rm_model *model;
    const rm_gguf *gguf;
    const rm_load *how;
    rm_matrix *matrix; /* the one whose strips are read now */
    uint32_t strips_per_item;
    atomic_bool failed;
    atomic_flag reported;
    atomic_ullong done;
    remat_error *err; /* written by the thread that set `reported` */
    int status;
} job;

static void report(job *j, int status, const remat_error *from) {
    if (!atomic_flag_test_and_set(&j->reported)) {
        j->status = status;
        if (j->err != NULL) *j->err = *from;
    }
    atomic_store(&j->failed, true);
}

rm_run rm_run_of(const rm_matrix *w, const rm_gguf *g, uint32_t index, uint32_t first,
                 uint32_t last) {
    const uint64_t row_bytes = rm_gguf_row_bytes(w->format, w->k);
    const uint32_t row = first * RM_LANES, end = last * RM_LANES;
    const uint32_t rows = (end < w->outputs ? end : w->outputs) - row;
    const uint64_t file_row = (uint64_t)index * w->outputs + w->row_first + row;
    return (rm_run){.matrix = w,
                    .file = rm_gguf_file(g, w->source),
                    .index = index,
                    .first = first,
                    .last = last,
                    .at = w->source->at + file_row * row_bytes,
                    .bytes = rows * row_bytes};
}

int rm_run_pack(uint8_t *strips, const rm_run *run, const uint8_t *rows, uint32_t first,
                uint32_t last, remat_error *err) {
    const rm_matrix *w = run->matrix;
    const uint64_t row_bytes = rm_gguf_row_bytes(w->format, w->k);
    for (uint32_t i = first; i < last; i++) {
        const uint32_t row = i * RM_LANES, left = w->outputs - row;
        const int bad = rm_pack_strip(strips + (size_t)(i - run->first) * w->strip_bytes, w->format,
                                      rows + (row - run->first * RM_LANES) * row_bytes,
                                      left < RM_LANES ? left : RM_LANES, w->k);
        if (bad >= 0) {
            const uint64_t file_row = (uint64_t)run->index * w->outputs + w->row_first + row;
            return rm_fail(err, REMAT_E_MODEL,
                           "%s: tensor %s, row %llu: a weight is not a finite number; the file is "
                           "damaged",
                           run->file->path, w->source->name,
                           (unsigned long long)(file_row + (uint32_t)bad));
        }
    }
    return REMAT_OK;
}

/* Strips first .. last - 1 of matrix number `index` of the stack. */
static int read_strips(job *j, uint32_t index, uint32_t first, uint32_t last, uint8_t *stage,
                       remat_error *err) {
    const rm_matrix *w = j->matrix;
    const rm_run run = rm_run_of(w, j->gguf, index, first, last);
    uint8_t *strips = w->strips + ((size_t)index * rm_strips(w->outputs) + first) * w->strip_bytes;
    RM_TRY(rm_file_read(run.file, stage, run.at, run.bytes, err));
    return rm_run_pack(strips, &run, stage, first, last, err);
}

static void item(void *user, uint32_t index, uint32_t thread) {
    job *j = user;
    remat_error err = {0};
    const rm_load *how = j->how;
    const uint32_t strips = rm_strips(j->matrix->outputs);
    const uint32_t items = (strips + j->strips_per_item - 1) / j->strips_per_item;
    const uint32_t first = index % items * j->strips_per_item;
    const uint32_t most = first + j->strips_per_item, last = most < strips ? most : strips;
    if (atomic_load_explicit(&j->failed, memory_order_relaxed)) return;
    if (how->canceled(how->user)) {
        (void)rm_fail(&err, REMAT_E_CANCELED, "interrupted");
        report(j, REMAT_E_CANCELED, &err);
        return;
    }
    const int status =
        read_strips(j, index / items, first, last, how->stage + thread * how->stage_bytes, &err);
    if (status != REMAT_OK) report(j, status, &err);
    const uint64_t bytes = (uint64_t)(last - first) * j->matrix->strip_bytes;
    const uint64_t done = atomic_fetch_add(&j->done, bytes) + bytes;
    if (how->progress != NULL && thread == 0)
        how->progress(how->user, done, j->model->weight_bytes);
}

static int load_matrix(job *j, rm_matrix *w) {
    j->matrix = w;
    const uint64_t strip_raw = RM_LANES * (uint64_t)rm_gguf_row_bytes(w->format, w->k);
    j->strips_per_item = (uint32_t)(j->how->stage_bytes / strip_raw);
    RM_ASSERT(j->strips_per_item > 0);
    const uint32_t strips = rm_strips(w->outputs);
    const uint32_t items = (strips + j->strips_per_item - 1) / j->strips_per_item;
    rm_threads_for(j->how->threads, w->count * items, 1, item, j);
    return j->status;
}

static int load_vector(rm_vector *v, const rm_gguf *g, const rm_load *how, remat_error *err) {
    const bool half = rm_format_of_gguf(v->source->type) == RM_F16;
    const rm_file *file = rm_gguf_file(g, v->source);
    RM_TRY(rm_file_read(file, how->stage, v->source->at, (uint64_t)v->count * (half ? 2 : 4), err));
    for (uint32_t i = 0; i < v->count; i++) {
        uint16_t h;
        if (half) {
            memcpy(&h, how->stage + i * 2ull, sizeof h);
            v->at[i] = rm_f16_to_f32(h);
        } else {
            memcpy(&v->at[i], how->stage + i * 4ull, sizeof(float));
        }
        if (!isfinite(v->at[i])) {
            return rm_fail(err, REMAT_E_MODEL,
                           "%s: tensor %s, element %u is not a finite number; "
                           "the file is damaged",
                           file->path, v->source->name, i);
        }
    }
    return REMAT_OK;
}

static int load_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    job *j = user;
    if (w == NULL) return load_vector(v, j->gguf, j->how, err);
    return w->streamed ? REMAT_OK : load_matrix(j, w);
}

int rm_model_load(rm_model *m, const rm_gguf *g, const rm_load *how, remat_error *err) {
    job j = {.model = m, .gguf = g, .how = how, .err = err, .reported = ATOMIC_FLAG_INIT};
    RM_TRY(rm_model_visit(m, load_one, &j, err));
    if (how->progress != NULL) how->progress(how->user, m->weight_bytes, m->weight_bytes);
    return rm_rope_load(m, g, err);
}
