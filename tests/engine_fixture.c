/* engine_fixture.c: see engine_fixture.h. */
#include "engine_fixture.h"
#include "base/hash.h"
#include "engine/policy.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

run_config run_config_default(uint32_t context_count) {
    run_config c = {.threads = 1, .limits = remat_limits_default()};
    c.limits.context_count = context_count;
    c.limits.drop_count = 0; /* what a test counts does not depend on a cost */
    return c;
}

void run_config_text(char out[CONFIG_TEXT], const run_config *c) {
    static const char *const colds[] = {"auto", "spill", "drop", "inputs", "checkpoint"};
    static const char *const ways[] = {"auto", "full", "block", "layer", "selective"};
    static const char *const weights[] = {"auto", "resident", "stream"};
    static const char *const rows[] = {"of a chunk", "in memory", "on disk"};
    char resident[16] = "all", given[64] = "";
    if (c->limits.resident_count != REMAT_ALL)
        snprintf(resident, sizeof resident, "%u", c->limits.resident_count);
    if (c->setup.given)
        snprintf(given, sizeof given, ", rows %s, %u pages more, %u/8 of units%s",
                 rows[c->setup.rows], c->setup.more_pages, c->setup.units,
                 c->setup.roomy ? ", roomy" : "");
    snprintf(out, CONFIG_TEXT,
             "%s, %u threads, chunk %u, logits %u, resident %s, %s by %s, weights %s, kv %s, %u "
             "KiB%s",
             c->kernels != NULL ? c->kernels : "best", c->threads, c->limits.chunk_rows,
             c->limits.logits_rows, resident, colds[c->limits.cold], ways[c->limits.recompute],
             weights[c->limits.weights], c->limits.kv == REMAT_KV_F32 ? "f32" : "f16",
             (unsigned)(c->memory >> 10), given);
}

/* --- a place to spill to ---------------------------------------------------------------------- */

static char spill_place[64], cache_place[64];

static unsigned entries_of(const char *path) {
    unsigned count = 0;
    DIR *d = opendir(path);
    if (d == NULL) return 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return count;
}

static pid_t place_owner;

static void leave_place(void) {
    char folder[96];
    if (getpid() != place_owner) return;
    /* The folder itself may be made: it is where an engine spills to by default. */
    snprintf(folder, sizeof folder, "%s/remat", cache_place);
    rmdir(folder);
    const unsigned left = entries_of(spill_place) + entries_of(cache_place);
    if (left > 0) fprintf(stderr, "FAIL: %s or %s is not empty\n", spill_place, cache_place);
    rmdir(spill_place);
    rmdir(cache_place);
    if (left > 0) _exit(1);
}

const char *engine_spill_dir(void) {
    if (spill_place[0] != '\0') return spill_place;
    place_owner = getpid();
    snprintf(spill_place, sizeof spill_place, "/tmp/remat_test_spill_XXXXXX");
    snprintf(cache_place, sizeof cache_place, "/tmp/remat_test_cache_XXXXXX");
    if (mkdtemp(spill_place) == NULL || mkdtemp(cache_place) == NULL ||
        setenv("REMAT_RATES", "guess", 1) != 0 || setenv("XDG_CACHE_HOME", cache_place, 1) != 0 ||
        atexit(leave_place) != 0)
        abort();
    return spill_place;
}

/* --- engines ---------------------------------------------------------------------------------- */

static int open_only(remat_engine **out, const char *path, const run_config *c, remat_error *err) {
    remat_options o = remat_options_default();
    o.memory_bytes = c->memory > 0 ? c->memory : 1u << 30;
    o.thread_count = c->threads;
    o.kernels = c->kernels;
    o.warning = c->warning;
    o.progress = c->progress;
    o.warning_user = o.progress_user = c->user;
    return remat_open(out, path, &o, err);
}

static remat_limits limits_of(const run_config *c) {
    remat_limits l = c->limits;
    if (l.spill_dir == NULL) l.spill_dir = engine_spill_dir();
    return l;
}

/* Changes the smallest setup into the one that is asked for. */
static void give(rm_setup *s, const rm_model *m, remat_cold how, const given_setup *g) {
    const uint32_t rows = s->sequence_count * s->context_count;
    const uint32_t least = s->chunk_rows < rows ? s->chunk_rows : rows;
    const bool spill = how == REMAT_COLD_SPILL;
    const uint32_t band = s->column_count < RM_SPAN_PAGES ? s->column_count : RM_SPAN_PAGES;
    s->cold = how; /* a small context may be planned to stay */
    s->stage_count = spill ? 2 * band : 0;
    s->page_count = g->more_pages +
                    (uint32_t)rm_policy_passing(m, (uint64_t)s->sequence_count * s->column_count,
                                                s->chunk_rows, s->sequence_count, spill);
    s->drop_columns = spill ? g->drop_columns : 0;
    s->checkpoint_layer = 0;
    if (how == REMAT_COLD_CHECKPOINT) {
        s->checkpoint_layer = 1 + g->more_pages % (m->shape.layer_count - 1);
        s->page_count += s->sequence_count * s->column_count * s->checkpoint_layer;
    }
    uint64_t bytes;
    const bool keeps = how == REMAT_COLD_INPUTS || how == REMAT_COLD_CHECKPOINT;
    s->kept_count = keeps ? (uint32_t)(rm_setup_kept(&bytes, s, m) * (g->units + 1) / 9) : 0;
    s->unit_count = rm_unit_count(m) * g->units / 8;
    s->row_max = g->rows == GIVEN_DISK ? 0 : g->rows == GIVEN_MEMORY ? rows : least;
    s->run_max =
        3 * s->sequence_count + (g->rows == GIVEN_CHUNK ? s->chunk_rows / RM_PAGE_TOKENS + 2
                                                        : s->sequence_count * s->column_count);
    if (!g->roomy) return;
    s->raw_bytes = 1 << 20;
    s->output_strips = 1024;
    if (spill) s->stage_count = RM_STAGE_READS;
}

static int start_given(remat_engine *e, const run_config *c, remat_error *err) {
    const uint64_t program = 1 << 20;
    remat_limits l = limits_of(c);
    if (e->model.shape.layer_count < 2 && l.cold == REMAT_COLD_CHECKPOINT) l.cold = REMAT_COLD_DROP;
    const rm_rate_table guess = rm_rates_guess();
    rm_means means = {.disk = RM_DISK_WHOLE,
                      .rates = &guess,
                      .budget_bytes = UINT64_MAX,
                      .program_bytes = program,
                      .follows = e->allowance.follows};
    rm_planned p;
    rm_ledger measured;
    RM_TRY(rm_plan(&p, e, &l, &means, err));
    means.budget_bytes = p.minimum_bytes;
    RM_TRY(rm_plan(&p, e, &l, &means, err));
    RM_ASSERT(p.total_bytes > 0);
    RM_ASSERT(l.cold != REMAT_COLD_AUTO);
    give(&p.setup, &e->model, l.cold, &c->setup);
    rm_ledger_measure(&measured);
    RM_TRY(rm_engine_layout(e, &measured, &p.setup, err));
    p.total_bytes = program + e->ledger.carved + measured.carved;
    p.account_bytes[RM_ACCOUNT_PROGRAM] = program;
    snprintf(e->spill_dir, sizeof e->spill_dir, "%s", l.spill_dir);
    return rm_engine_start(e, &p, err);
}

int engine_start(remat_engine **out, const char *path, const run_config *c, remat_error *err) {
    const remat_limits l = limits_of(c);
    remat_engine *e = NULL;
    *out = NULL;
    int status = open_only(&e, path, c, err);
    if (status == REMAT_OK)
        status = c->setup.given ? start_given(e, c, err) : remat_start(e, &l, err);
    if (status != REMAT_OK) {
        remat_close(&e);
        return status;
    }
    *out = e;
    return REMAT_OK;
}

int engine_plan(remat_plan *out, const char *path, const run_config *c, remat_error *err) {
    remat_engine *e = NULL;
    const remat_limits l = limits_of(c);
    int status = open_only(&e, path, c, err);
    if (status == REMAT_OK) status = remat_plan_make(out, e, &l, err);
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

static void tap(void *user, uint32_t layer, const rm_row_run *run, uint32_t position,
                const float *hidden) {
    const recorder *r = user;
    record *to = run->sequence < RECORDED_SEQUENCES_MAX ? r->of_sequence[run->sequence] : NULL;
    if (to == NULL || layer >= to->layer_count || position >= to->position_count) return;
    note(to, &to->hidden[(size_t)layer * to->position_count + position], layer, position, hidden,
         r->engine->model.shape.dim);
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

static int scored_row(void *user, const rm_row_run *run, uint32_t position, const float *logits,
                      remat_error *err) {
    const scored *s = user;
    (void)run;
    (void)err;
    record_logits(s->to, position, logits, s->engine->model.shape.vocabulary);
    return REMAT_OK;
}

int feed_scored(remat_engine *e, remat_sequence *s, record *to, const uint32_t *tokens,
                uint32_t count, remat_error *err) {
    scored user = {.engine = e, .to = to};
    const remat_step step = {.sequence = s, .tokens = tokens, .count = count};
    const rm_rows_wanted rows = {.fn = scored_row, .user = &user, .forget = true};
    return rm_engine_advance(e, &step, 1, &rows, err);
}

/* --- one answer ------------------------------------------------------------------------------- */

static const uint32_t ONE_PIECE[] = {0}, ONE_BY_ONE[] = {1, 0};
static const uint32_t ODD[] = {1, 63, 64, 65, 100, 7, 513, 3, 0};
static const uint32_t SMALL[] = {5, 16, 17, 2, 4, 31, 0};
const uint32_t *const cuts[CUT_COUNT] = {ONE_PIECE, ODD, SMALL, ONE_BY_ONE};
static const char *const cut_names[] = {"one piece", "odd pieces", "small pieces", "one by one"};

bool subject_open(subject *s, const tiny_spec *spec, uint32_t count, uint32_t alone,
                  uint64_t stream) {
    *s = (subject){.spec = spec, .count = count, .alone = alone};
    s->fd = tiny_model_open(s->path, spec);
    s->tokens = zeroed(count, sizeof *s->tokens);
    tiny_tokens(s->tokens, count, spec->vocabulary, stream);
    record_open(&s->first, spec->layer_count, count);
    return s->fd >= 0;
}

void subject_close(subject *s) {
    record_close(&s->first);
    free(s->tokens);
    if (s->fd >= 0) close(s->fd);
}

run_config same_config(const subject *s, remat_kv kv) {
    run_config c = run_config_default(s->count);
    c.limits.chunk_rows = 512;
    c.limits.kv = kv;
    return c;
}

/* Says what was wrong with a run; the first thing said stays. Returns false. */
__attribute__((format(printf, 4, 5))) static bool
wrong(char why[WHY_MAX], const subject *s, const same_run *run, const char *form, ...) {
    char text[CONFIG_TEXT];
    va_list list;
    run_config_text(text, &run->config);
    const int n = snprintf(why, WHY_MAX, "%s; %s; %s: ", s->spec->name, text, cut_names[run->cut]);
    va_start(list, form);
    vsnprintf(why + n, WHY_MAX - (size_t)n, form, list);
    va_end(list);
    return false;
}

/* Feeds an engine that is open; its record goes to `to`. */
static int feed_all(remat_engine *e, const subject *s, const same_run *run, uint32_t count,
                    record *to, remat_stats *stats, remat_error *err) {
    recorder r;
    remat_sequence *q = NULL;
    recorder_attach(&r, e);
    RM_TRY(remat_sequence_open(&q, e, err));
    recorder_follow(&r, q, to);
    RM_TRY(feed(e, q, to, s->tokens, 0, count - s->alone, cuts[run->cut], err));
    RM_TRY(feed(e, q, to, s->tokens, count - s->alone, count, ONE_BY_ONE, err));
    remat_stats_get(stats, e);
    if (!run->score) return REMAT_OK;
    remat_sequence_close(&q);
    RM_TRY(remat_sequence_open(&q, e, err));
    recorder_follow(&r, q, to);
    RM_TRY(feed_scored(e, q, to, s->tokens, count, err));
    return remat_sequence_count(q) == 0 ? REMAT_OK
                                        : rm_fail(err, REMAT_E_FAILED, "scoring kept tokens");
}

static bool run_into(char why[WHY_MAX], record *to, subject *s, const same_run *run) {
    remat_error err = {0};
    remat_engine *e = NULL;
    remat_stats stats = {0};
    s->runs++;
    int status = engine_start(&e, s->path, &run->config, &err);
    if (status == REMAT_OK)
        status = feed_all(e, s, run, run->count > 0 ? run->count : s->count, to, &stats, &err);
    remat_close(&e);
    if (status != REMAT_OK) return wrong(why, s, run, "%s", err.message);
    const unsigned saved = (stats.recomputed_tokens > 0 ? BY_DROPPING : 0u) |
                           (stats.spill_read_bytes > 0 ? BY_SPILLING : 0u) |
                           (stats.weight_read_bytes > 0 ? BY_STREAMING : 0u);
    if (run->saves != 0 && (run->saves & saved) == 0)
        return wrong(why, s, run, "saved by %u, not by %u", saved, run->saves);
    if (stats.healed_count > 0) return wrong(why, s, run, "something was healed");
    return true;
}

bool same_first(char why[WHY_MAX], subject *s, remat_kv kv) {
    const same_run run = {.config = same_config(s, kv), .score = true};
    if (!run_into(why, &s->first, s, &run)) return false;
    if (s->first.repeated_differently)
        return wrong(why, s, &run, "scoring and generating: not the same logits");
    if (record_hash(&s->first, 0, s->count) == 0) return wrong(why, s, &run, "logits are missing");
    for (uint32_t p = 1; p < s->count; p++) {
        if (s->first.logits[p] == s->first.logits[p - 1])
            return wrong(why, s, &run, "the same logits after positions %u and %u", p - 1, p);
    }
    return true;
}

static bool compare(char why[WHY_MAX], const subject *s, const same_run *run, const record *now) {
    const uint32_t count = run->count > 0 ? run->count : s->count, prompt = count - s->alone;
    const difference d = record_compare(&s->first, now);
    if (d.found) return wrong(why, s, run, "%s", d.text);
    /* All rows of all layers but the last one's, and the logits of the last tokens. */
    if (d.compared < (uint64_t)count * (s->spec->layer_count - 1) + s->alone)
        return wrong(why, s, run, "only %llu cells compared", (unsigned long long)d.compared);
    if (record_hash(now, prompt, count) != record_hash(&s->first, prompt, count))
        return wrong(why, s, run, "another hash of the last logits");
    return true;
}

bool same_check(char why[WHY_MAX], subject *s, const same_run *run) {
    record now;
    record_open(&now, s->spec->layer_count, s->count);
    const bool good = run_into(why, &now, s, run) && compare(why, s, run, &now);
    record_close(&now);
    return good;
}

void give_budget(run_config *c, const subject *s, uint32_t quarter) {
    remat_plan plan;
    remat_error err = {0};
    if (engine_plan(&plan, s->path, c, &err) != REMAT_OK) {
        c->memory = 1; /* the run that follows fails and says why */
        return;
    }
    const uint64_t more = plan.full_bytes > plan.minimum_bytes
                              ? (plan.full_bytes - plan.minimum_bytes) / 4 * quarter
                              : 0;
    c->memory = plan.minimum_bytes + more;
}

/* The i-th of the sets that are neither the best nor `ref`. */
static const char *middle_set(uint32_t i) {
    const char *const *sets = kernel_sets();
    for (size_t k = 1; sets[0] != NULL && sets[k] != NULL; k++) {
        if (strcmp(sets[k], "ref") != 0 && i-- == 0) return sets[k];
    }
    return NULL;
}

bool same_way(same_run *out, const subject *s, remat_kv kv, uint32_t index) {
    static const uint32_t chunks[] = {1, 7, 64}, resident[] = {0, 64, 128};
    remat_limits *l = &out->config.limits;
    *out = (same_run){.config = same_config(s, kv)};
    if (index < 2) {
        out->config.threads = 2 + index;
    } else if (index < 5) {
        l->chunk_rows = chunks[index - 2];
    } else if (index < 11) {
        l->resident_count = resident[(index - 5) / 2];
        l->cold = index % 2 == 1 ? REMAT_COLD_DROP : REMAT_COLD_SPILL;
        /* Where all layers have a window, what stays may be all that is seen. */
        if (s->spec->window == 0 || s->spec->window_pattern > 0 || l->resident_count == 0)
            out->saves = index % 2 == 1 ? BY_DROPPING : BY_SPILLING;
    } else if (index < 14) {
        out->cut = index - 10;
    } else if (index < 15) {
        l->logits_rows = 16;
        out->score = true;
    } else if (index < 18) {
        give_budget(&out->config, s, index - 15);
    } else if (index < 19) {
        l->weights = REMAT_WEIGHTS_STREAM;
        out->saves = BY_STREAMING;
        out->score = true;
    } else {
        out->config.kernels = middle_set(index - 19);
        out->score = true;
        return out->config.kernels != NULL;
    }
    return true;
}

/* --- batches ---------------------------------------------------------------------------------- */

static void batch_failed(batch *b, const char *what, const char *why) {
    if (b->why[0] == '\0') snprintf(b->why, sizeof b->why, "%s: %.400s", what, why);
}

bool batch_open(batch *b, const tiny_spec *spec, const run_config *c,
                const uint32_t counts[BATCH_STREAMS]) {
    char why[WHY_MAX];
    memset(b, 0, sizeof *b);
    for (uint64_t i = 0; i < BATCH_STREAMS; i++) {
        if (!subject_open(&b->s[i], spec, counts[i], 0, 100 + i)) batch_failed(b, "file", "none");
        record_open(&b->now[i], spec->layer_count, counts[i]);
        if (!same_first(why, &b->s[i], c->limits.kv)) batch_failed(b, "alone", why);
    }
    if (engine_start(&b->e, b->s[0].path, c, &b->err) == REMAT_OK) {
        recorder_attach(&b->r, b->e);
    } else {
        batch_failed(b, "start", b->err.message);
    }
    return b->why[0] == '\0';
}

void batch_sequence(batch *b, int stream) {
    b->done[stream] = 0;
    if (remat_sequence_open(&b->q[stream], b->e, &b->err) == REMAT_OK) {
        recorder_follow(&b->r, b->q[stream], &b->now[stream]);
    } else {
        batch_failed(b, "sequence", b->err.message);
    }
}

bool batch_step(batch *b, const uint32_t n[BATCH_STREAMS]) {
    remat_step steps[BATCH_STREAMS];
    int stream_of[BATCH_STREAMS];
    uint32_t count = 0;
    for (int i = 0; i < BATCH_STREAMS; i++) {
        const uint32_t left = b->q[i] != NULL ? b->s[i].count - b->done[i] : 0;
        if (left == 0 || n[i] == 0) continue;
        steps[count] = (remat_step){.sequence = b->q[i],
                                    .tokens = b->s[i].tokens + b->done[i],
                                    .count = n[i] < left ? n[i] : left};
        stream_of[count++] = i;
    }
    if (count == 0 || b->why[0] != '\0') return false;
    if (remat_advance(b->e, steps, count, &b->err) != REMAT_OK) {
        batch_failed(b, "step", b->err.message);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const int stream = stream_of[i];
        b->done[stream] += steps[i].count;
        if (remat_sequence_count(b->q[stream]) != b->done[stream])
            batch_failed(b, "step", "a sequence has another number of tokens than it got");
        record_logits(&b->now[stream], b->done[stream] - 1, remat_logits(b->q[stream]),
                      b->s[stream].spec->vocabulary);
    }
    return true;
}

bool batch_compare(batch *b) {
    for (int i = 0; i < BATCH_STREAMS; i++) {
        char what[32];
        const difference d = record_compare(&b->s[i].first, &b->now[i]);
        snprintf(what, sizeof what, "sequence %d", i);
        if (d.found) batch_failed(b, what, d.text);
        if (d.compared < b->done[i]) batch_failed(b, what, "too little was compared");
    }
    return b->why[0] == '\0';
}

void batch_close(batch *b) {
    remat_close(&b->e);
    for (int i = 0; i < BATCH_STREAMS; i++) {
        subject_close(&b->s[i]);
        record_close(&b->now[i]);
    }
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
