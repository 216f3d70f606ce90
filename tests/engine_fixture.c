/* engine_fixture.c: see engine_fixture.h. */
#include "engine_fixture.h"
#include "base/hash.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

run_config run_config_default(uint32_t context_count) {
    run_config c = {.threads = 1, .limits = remat_limits_default()};
    c.limits.context_count = context_count;
    return c;
}

void run_config_text(char out[160], const run_config *c) {
    char resident[16] = "all";
    if (c->limits.resident_count != REMAT_ALL)
        snprintf(resident, sizeof resident, "%u", c->limits.resident_count);
    snprintf(out, 160, "%s, %u threads, chunk %u, logits %u, resident %s, kv %s, %u KiB",
             c->kernels != NULL ? c->kernels : "best", c->threads, c->limits.chunk_rows,
             c->limits.logits_rows, resident, c->limits.kv == REMAT_KV_F32 ? "f32" : "f16",
             (unsigned)(c->memory >> 10));
}

static int open_only(remat_engine **out, const char *path, const run_config *c, remat_error *err) {
    remat_options o = remat_options_default();
    o.memory_bytes = c->memory > 0 ? c->memory : 1u << 30;
    o.thread_count = c->threads;
    o.kernels = c->kernels;
    return remat_open(out, path, &o, err);
}

int engine_start(remat_engine **out, const char *path, const run_config *c, remat_error *err) {
    remat_engine *e = NULL;
    *out = NULL;
    int status = open_only(&e, path, c, err);
    if (status == REMAT_OK) status = remat_start(e, &c->limits, err);
    if (status != REMAT_OK) {
        remat_close(&e);
        return status;
    }
    *out = e;
    return REMAT_OK;
}

int engine_plan(remat_plan *out, const char *path, const run_config *c, remat_error *err) {
    remat_engine *e = NULL;
    int status = open_only(&e, path, c, err);
    if (status == REMAT_OK) status = remat_plan_make(out, e, &c->limits, err);
    remat_close(&e);
    return status;
}

const char *const *kernel_sets(void) {
    static const char *sets[8];
    const rm_kernels *const *all = rm_kernels_all();
    size_t n = 0, count = 0;
    while (all[n] != NULL)
        n++;
    while (n-- > 0) {
        if (rm_kernels_select(all[n]->name, rm_cpu_features()) != NULL)
            sets[count++] = all[n]->name;
    }
    sets[count] = NULL;
    return sets;
}

/* --- recording -------------------------------------------------------------------------------- */

static void *zeroed(size_t count, size_t size) {
    void *p = calloc(count, size);
    if (p == NULL) abort();
    return p;
}

void record_open(record *r, uint32_t layer_count, uint32_t position_count) {
    *r = (record){.layer_count = layer_count, .position_count = position_count};
    r->hidden = zeroed((size_t)layer_count * position_count, sizeof *r->hidden);
    r->logits = zeroed(position_count, sizeof *r->logits);
}

void record_close(record *r) {
    free(r->hidden);
    free(r->logits);
    *r = (record){0};
}

static void note(record *r, uint64_t *cell, uint32_t layer, uint32_t position, const float *values,
                 size_t count) {
    uint64_t h = rm_hash(values, count * sizeof *values, 0);
    if (h == 0) h = 1;
    if (*cell != 0 && *cell != h && !r->repeated_differently) {
        r->repeated_differently = true;
        r->repeated_layer = layer;
        r->repeated_position = position;
    }
    *cell = h;
}

void record_logits(record *r, uint32_t position, const float *logits, uint32_t vocabulary) {
    if (r == NULL || position >= r->position_count) return;
    note(r, &r->logits[position], r->layer_count, position, logits, vocabulary);
}

uint64_t record_hash(const record *r, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        if (r->logits[i] == 0) return 0;
    }
    return rm_hash(r->logits + first, (last - first) * sizeof *r->logits, 0);
}

static void tap(void *user, uint32_t layer, uint32_t row, const float *hidden) {
    const recorder *r = user;
    const rm_row *at = &r->engine->sweep.rows[row];
    record *to = at->sequence < RECORDED_SEQUENCES_MAX ? r->of_sequence[at->sequence] : NULL;
    if (to == NULL || layer >= to->layer_count || at->position >= to->position_count) return;
    /* Rows whose logits nobody wants stop inside the last layer. */
    if (layer + 1 == r->engine->model.shape.layer_count && !at->want_logits) return;
    note(to, &to->hidden[(size_t)layer * to->position_count + at->position], layer, at->position,
         hidden, r->engine->model.shape.dim);
}

void recorder_attach(recorder *r, remat_engine *e) {
    *r = (recorder){.engine = e};
    e->sweep.tap = tap;
    e->sweep.tap_user = r;
}

void recorder_follow(recorder *r, const remat_sequence *s, record *to) {
    r->of_sequence[s->index] = to;
}

static bool repeated(difference *d, const record *r) {
    if (!r->repeated_differently) return false;
    d->found = true;
    d->layer = r->repeated_layer;
    d->position = r->repeated_position;
    snprintf(d->text, sizeof d->text, "%s %u, position %u: computed again, other bits",
             d->layer == r->layer_count ? "logits, layers" : "layer", d->layer, d->position);
    return true;
}

difference record_compare(const record *a, const record *b) {
    difference d = {0};
    const uint32_t n =
        a->position_count < b->position_count ? a->position_count : b->position_count;
    for (uint32_t layer = 0; layer <= a->layer_count; layer++) {
        const bool logits = layer == a->layer_count;
        const uint64_t *x = logits ? a->logits : a->hidden + (size_t)layer * a->position_count;
        const uint64_t *y = logits ? b->logits : b->hidden + (size_t)layer * b->position_count;
        for (uint32_t p = 0; p < n; p++) {
            if (x[p] == 0 || y[p] == 0) continue;
            d.compared++;
            if (x[p] == y[p] || d.found) continue;
            d.found = true;
            d.layer = layer;
            d.position = p;
            snprintf(d.text, sizeof d.text, "%s %u, position %u: %016llx, not %016llx",
                     logits ? "logits, layers" : "layer", layer, p, (unsigned long long)y[p],
                     (unsigned long long)x[p]);
        }
    }
    if (!d.found && !repeated(&d, a)) repeated(&d, b);
    return d;
}

/* --- feeding ---------------------------------------------------------------------------------- */

int feed(remat_engine *e, remat_sequence *s, record *to, const uint32_t *tokens, uint32_t first,
         uint32_t last, const uint32_t *pieces, remat_error *err) {
    size_t i = 0;
    while (first < last) {
        uint32_t n = pieces[0] == 0 ? last - first : pieces[i++];
        if (n > last - first) n = last - first;
        if (pieces[0] != 0 && pieces[i] == 0) i = 0;
        const remat_step step = {.sequence = s, .tokens = tokens + first, .count = n};
        RM_TRY(remat_advance(e, &step, 1, err));
        first += n;
        record_logits(to, first - 1, remat_logits(s), e->model.shape.vocabulary);
    }
    return REMAT_OK;
}

typedef struct scored {
    remat_engine *engine;
    record *to;
} scored;

static int scored_row(void *user, uint32_t row, const float *logits, remat_error *err) {
    const scored *s = user;
    (void)err;
    record_logits(s->to, s->engine->sweep.rows[row].position, logits,
                  s->engine->model.shape.vocabulary);
    return REMAT_OK;
}

int feed_scored(remat_engine *e, remat_sequence *s, record *to, const uint32_t *tokens,
                uint32_t count, remat_error *err) {
    scored user = {.engine = e, .to = to};
    const remat_step step = {.sequence = s, .tokens = tokens, .count = count};
    return rm_engine_advance(e, &step, 1, scored_row, &user, err);
}

/* --- the process ------------------------------------------------------------------------------ */

unsigned open_descriptors(void) {
    unsigned count = 0;
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL) abort();
    while (readdir(d) != NULL)
        count++;
    closedir(d);
    return count; /* with ".", ".." and its own: a constant */
}

const char *smollm2_path(void) {
    static char path[512];
    DIR *d = opendir("models");
    if (d == NULL) return NULL;
    const struct dirent *entry;
    bool found = false;
    while (!found && (entry = readdir(d)) != NULL) {
        struct stat st;
        snprintf(path, sizeof path, "models/%s", entry->d_name);
        found = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 98362432;
    }
    closedir(d);
    return found ? path : NULL;
}
