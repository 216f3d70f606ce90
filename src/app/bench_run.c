/* bench_run.c: one row of remat bench: its budget, and its runs. See bench.h. Part: app. */
#include "app/bench.h"
#include "app/child.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/machine.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    WORDS = 64,
    MIN_TRIES = 5, /* the smallest budget differs by a little from process to process */
};
/* Budget of an engine that is only asked for a plan. */
static const uint64_t PLAN_BYTES = 1u << 30, OWN_BYTES = 64u << 20;

double app_bench_mean(const app_bench_row *r, const app_bench_rate *rate, double *deviation) {
    double sum = 0, squares = 0;
    const uint32_t n = r->run_count;
    *deviation = 0;
    if (n == 0) return NAN;
    for (uint32_t i = 0; i < n; i++)
        sum += rate->of_run[i];
    for (uint32_t i = 0; i < n; i++)
        squares += (rate->of_run[i] - sum / n) * (rate->of_run[i] - sum / n);
    if (n > 1) *deviation = sqrt(squares / (n - 1));
    return sum / n;
}

/* --- what the planner says -------------------------------------------------------------------- */

/* The row's plan under budget_bytes, by the library itself: no weight is read. */
static int plan(remat_plan *out, const app_benchmark *b, const app_bench_row *r,
                uint64_t budget_bytes, remat_error *err) {
    static app_args args; /* too large for the stack */
    remat_limits limits;
    remat_engine *e = NULL;
    args = *b->args;
    /* The plan's budget may be smaller than what planning itself takes. */
    args.memory_bytes = budget_bytes > 0 && budget_bytes < OWN_BYTES ? OWN_BYTES : budget_bytes;
    args.threads = r->threads;
    args.kv = r->kv;
    args.cold = r->cold;
    args.recompute = r->recompute;
    args.weights = r->weights;
    args.resident = r->resident;
    RM_TRY(app_args_limits(&limits, &args, err));
    limits.context_count = r->prompt_count + r->answer_count;
    const uint64_t before = rm_machine_resident_bytes();
    RM_TRY(app_open(&e, &args, false, err));
    /* A run starts smaller than this process has become. */
    const uint64_t grown = before > b->start_bytes ? before - b->start_bytes : 0;
    const int status = budget_bytes > 0 ? remat_plan_for(out, e, &limits, budget_bytes + grown, err)
                                        : remat_plan_make(out, e, &limits, err);
    app_close(&e);
    return status;
}

/* What remat run takes for itself beside what is planned: ids, and the answer's text. */
static uint64_t own_bytes(const app_bench_row *r) {
    return MIB + 8 * ((uint64_t)r->prompt_count + r->answer_count);
}

/* Turns the kind of budget into bytes, and notes the speed that the planner expects there. */
static int choose_budget(const app_benchmark *b, app_bench_row *r, remat_error *err) {
    remat_plan p;
    RM_TRY(plan(&p, b, r, PLAN_BYTES, err));
    const uint64_t full = p.full_bytes + own_bytes(r);
    switch (r->kind) {
    case APP_BUDGET_GIVEN:
        break;
    case APP_BUDGET_AUTO:
        r->budget_bytes = 0;
        break;
    case APP_BUDGET_MAX:
        r->budget_bytes = full;
        break;
    case APP_BUDGET_HALF:
        r->budget_bytes = full / 2;
        break;
    case APP_BUDGET_QUARTER:
        r->budget_bytes = full / 4;
        break;
    case APP_BUDGET_MIN:
        r->budget_bytes = p.minimum_bytes;
        break;
    case APP_BUDGET_FIT:
        RM_TRY(plan(&p, b, r, full, err));
        r->budget_bytes = p.predicted_peak_bytes + own_bytes(r);
        break;
    }
    RM_TRY(plan(&p, b, r, r->budget_bytes, err));
    if (p.predicted_peak_bytes == 0) return REMAT_OK; /* the run says why */
    r->prompt.planned = (r->prompt_count + r->answer_count) / p.prefill_s;
    r->answer.planned = 1 / p.token_s;
    return REMAT_OK;
}

/* --- a run ------------------------------------------------------------------------------------ */

/* The words of a command line, with room for those that are made here. */
typedef struct command {
    const char *words[WORDS];
    char numbers[WORDS][24];
    size_t count;
} command;

static void add(command *c, const char *word) {
    RM_ASSERT(c->count + 1 < WORDS);
    c->words[c->count++] = word;
    c->words[c->count] = NULL;
}

static void add_number(command *c, const char *name, uint64_t v) {
    add(c, name);
    char *text = c->numbers[c->count];
    snprintf(text, sizeof c->numbers[0], "%llu", (unsigned long long)v);
    add(c, text);
}

static void add_option(command *c, const char *name, const char *value) {
    if (value == NULL) return;
    add(c, name);
    add(c, value);
}

/* The prompt and the logits pass through nameless files, which the child has as 3 and 4. */
static void build(command *c, const app_benchmark *b, const app_bench_row *r) {
    const app_args *a = b->args;
    c->count = 0;
    add_option(c, "/proc/self/exe", "run");
    add_option(c, "--json", "--raw");
    add_option(c, "--tokens", "/proc/self/fd/3");
    add_option(c, "--logits", "/proc/self/fd/4");
    add_option(c, "--temp", "0");
    add(c, "--ignore-eos");
    add_option(c, "-m", a->model);
    add_number(c, "-n", r->answer_count);
    add_number(c, "-c", (uint64_t)r->prompt_count + r->answer_count);
    if (r->budget_bytes == 0) add_option(c, "--memory", "auto");
    if (r->budget_bytes > 0) add_number(c, "--memory", r->budget_bytes);
    if (r->threads > 0) add_number(c, "-t", r->threads);
    if (r->resident != REMAT_ALL) add_number(c, "--resident", r->resident);
    if (a->keep > 0) add_number(c, "--keep", a->keep);
    if (a->chunk_rows > 0) add_number(c, "-ub", a->chunk_rows);
    add_option(c, "--kv", r->kv);
    add_option(c, "--cold", r->cold);
    add_option(c, "--recompute", r->recompute);
    add_option(c, "--weights", r->weights);
    add_option(c, "--spill", a->spill);
    add_option(c, "--kernels", a->kernels);
}

static bool to_file(void *user, const char *bytes, size_t count) {
    const int *fd = user;
    return rm_write_all(*fd, bytes, count, NULL) == REMAT_OK;
}

static int write_tokens(int fd, const app_benchmark *b, const app_bench_row *r, remat_error *err) {
    char window[4096];
    rm_buf buf;
    /* The first token of a text (begin-of-text, where there is one) comes once. */
    const size_t again = b->text.count > 1 ? 1 : 0;
    rm_buf_start(&buf, window, sizeof window, to_file, &fd);
    for (size_t i = 0, k = 0; i < r->prompt_count; i++) {
        rm_buf_format(&buf, "%u\n", b->text.ids[k]);
        k = k + 1 < b->text.count ? k + 1 : again;
    }
    rm_buf_flush(&buf);
    if (!buf.failed) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED, "bench: the prompt could not be written: %s",
                   strerror(errno));
}

/* A hash of the whole file: each piece goes on from the hash of those before it. */
static int hash_file(uint64_t *out, int fd, remat_error *err) {
    static char window[64 << 10];
    uint64_t hash = 0;
    off_t at = 0;
    for (;;) {
        const ssize_t n = pread(fd, window, sizeof window, at);
        if (n < 0)
            return rm_fail(err, REMAT_E_FAILED, "bench: logits could not be read: %s",
                           strerror(errno));
        if (n == 0) break;
        hash = rm_hash(window, (size_t)n, hash);
        at += n;
    }
    *out = hash;
    return REMAT_OK;
}

/* --- what came of it -------------------------------------------------------------------------- */

static double number(const json_t *of, const char *key) {
    return json_number_value(json_object_get(of, key));
}

static uint64_t whole(const json_t *of, const char *key) {
    const json_int_t v = json_integer_value(json_object_get(of, key));
    return v > 0 ? (uint64_t)v : 0;
}

static void failed(app_bench_row *r, const char *why) {
    r->state = APP_BENCH_FAILED;
    snprintf(r->message, sizeof r->message, "%.*s", (int)strcspn(why, "\r\n"), why);
}

/* A run that ended well. */
static void take(app_benchmark *b, app_bench_row *r, const json_t *root, uint64_t hash) {
    const json_t *timings = json_object_get(root, "timings"),
                 *memory = json_object_get(root, "memory"), *cache = json_object_get(root, "cache");
    const char *kernels = json_string_value(json_object_get(root, "kernels"));
    if (r->run_count > 0 && hash != r->hash) {
        failed(r, "bench: two runs of the same row have different logits");
        return;
    }
    r->hash = hash;
    r->prompt.of_run[r->run_count] = number(timings, "prefill_tok_s");
    r->answer.of_run[r->run_count] = number(timings, "decode_tok_s");
    r->run_count++;
    if (whole(memory, "peak_bytes") > r->peak_bytes) {
        r->peak_bytes = whole(memory, "peak_bytes");
        r->predicted_peak_bytes = whole(memory, "predicted_peak_bytes");
    }
    r->weight_read_bytes = whole(cache, "weight_read_bytes");
    r->spill_read_bytes = whole(cache, "spill_read_bytes");
    r->spill_written_bytes = whole(cache, "spill_written_bytes");
    r->recomputed_tokens = whole(cache, "recomputed_tokens");
    b->thread_count = (uint32_t)whole(root, "threads");
    if (kernels != NULL) snprintf(b->kernels, sizeof b->kernels, "%s", kernels);
    r->state = APP_BENCH_DONE;
}

/* A run that did not: its error, as it says it, and the budget that it names. */
static void take_error(app_bench_row *r, const json_t *root, const app_child *c) {
    const json_t *error = json_object_get(root, "error");
    const char *code = json_string_value(json_object_get(error, "code")),
               *message = json_string_value(json_object_get(error, "message"));
    char other[128];
    snprintf(other, sizeof other, "bench: remat run ended with exit code %d", c->exit_code);
    failed(r, message != NULL ? message : c->complained[0] != '\0' ? c->complained : other);
    if (code == NULL || strcmp(code, "budget") != 0) return;
    r->state = APP_BENCH_REFUSED;
    r->minimum_bytes = whole(error, "minimum_bytes");
}

static int run_with(app_benchmark *b, app_bench_row *r, int tokens, int logits, remat_error *err) {
    static command words; /* too large for the stack */
    uint64_t hash = 0;
    build(&words, b, r);
    app_child c = {.argv = words.words, .in = -1, .out = -1, .also = {tokens, logits}};
    RM_TRY(app_child_run(&c, err));
    if (c.exit_code == 130) {
        app_child_free(&c);
        return rm_fail(err, REMAT_E_CANCELED, "interrupted");
    }
    json_t *root = json_loads(c.said, 0, NULL);
    int status = REMAT_OK;
    if (c.exit_code == 0 && root != NULL) {
        status = hash_file(&hash, logits, err);
        if (status == REMAT_OK) take(b, r, root, hash);
        if (r->run_count == 1 && c.complained[0] != '\0')
            app_warn("%.*s", (int)strcspn(c.complained, "\r\n"), c.complained);
    } else {
        take_error(r, root, &c);
    }
    json_decref(root);
    app_child_free(&c);
    return status;
}

static int run_once(app_benchmark *b, app_bench_row *r, remat_error *err) {
    int tokens = -1, logits = -1;
    int status = app_scratch_file(&tokens, err);
    if (status == REMAT_OK) status = app_scratch_file(&logits, err);
    if (status == REMAT_OK) status = write_tokens(tokens, b, r, err);
    if (status == REMAT_OK) status = run_with(b, r, tokens, logits, err);
    if (tokens >= 0) close(tokens);
    if (logits >= 0) close(logits);
    return status;
}

/* The first row of the same prompt, whose logits these must be. */
static void compare(const app_benchmark *b, app_bench_row *r) {
    for (app_bench_row *o = b->rows; o < r; o++) {
        if (o->state != APP_BENCH_DONE || o->prompt_count != r->prompt_count ||
            o->answer_count != r->answer_count || strcmp(o->kv, r->kv) != 0)
            continue;
        r->compared = true;
        r->same = o->hash == r->hash;
        return;
    }
}

int app_bench_run(app_benchmark *b, size_t row, remat_error *err) {
    app_bench_row *r = &b->rows[row];
    char label[64];
    app_bench_label(label, b, r);
    const int status = choose_budget(b, r, err);
    if (status == REMAT_E_CANCELED) return status;
    if (status != REMAT_OK) {
        failed(r, err->message);
        return REMAT_OK;
    }
    const uint64_t free_bytes = rm_machine_available_bytes();
    if (free_bytes > 0 && r->budget_bytes > free_bytes) {
        r->state = APP_BENCH_REFUSED;
        snprintf(r->message, sizeof r->message, "this machine has %.1f MiB free",
                 (double)free_bytes / MIB);
        return REMAT_OK;
    }
    for (uint32_t i = 0, tries = 0; i < b->repetitions;) {
        app_progress_name("row %zu of %zu: %s, run %u of %u", row + 1, b->row_count, label, i + 1,
                          b->repetitions);
        RM_TRY(run_once(b, r, err));
        if (r->state == APP_BENCH_REFUSED && r->kind == APP_BUDGET_MIN && ++tries < MIN_TRIES) {
            r->budget_bytes = r->minimum_bytes;
            continue;
        }
        if (r->state != APP_BENCH_DONE) break;
        i++;
    }
    app_progress_end();
    if (r->state == APP_BENCH_DONE) compare(b, r);
    return REMAT_OK;
}
