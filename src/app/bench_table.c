/*
 * bench_table.c: what remat bench prints: a table in Markdown, CSV, or JSON. Part: app.
 *
 * CSV and JSON have the same fields, from one list, under the names that llama-bench has for them.
 */
#include "app/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MIB = 1 << 20, FIELDS = 48, TEXT_BYTES = 320 };

static const char *const states[] = {"waiting", "ok", "refused", "failed"};

static bool all_alike(const app_benchmark *b, bool threads) {
    for (size_t i = 1; i < b->row_count; i++) {
        if (threads ? b->rows[i].threads != b->rows[0].threads
                    : strcmp(b->rows[i].kv, b->rows[0].kv) != 0)
            return false;
    }
    return true;
}

/* --- the table -------------------------------------------------------------------------------- */

typedef struct cells {
    char text[20][64];
    const char *title[20];
    int width[20];
    size_t count;
} cells;

__attribute__((format(printf, 4, 5))) static void cell(cells *c, const char *title, int width,
                                                       const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text[c->count], sizeof c->text[0], fmt, ap);
    va_end(ap);
    c->title[c->count] = title;
    c->width[c->count++] = width;
}

static void mib_cell(cells *c, const char *title, int width, bool known, uint64_t bytes) {
    cell(c, title, width, known ? "%.1f" : "-", (double)bytes / MIB);
}

static void rate_cells(cells *c, const char *title, const app_bench_row *r,
                       const app_bench_rate *rate) {
    double deviation;
    const double mean = app_bench_mean(r, rate, &deviation);
    const int digits = mean < 10 ? 2 : mean < 1000 ? 1 : 0;
    if (!(mean > 0)) {
        cell(c, title, 15, "-");
    } else if (r->run_count > 1) {
        cell(c, title, 15, "%.*f ± %.*f", digits, mean, digits, deviation);
    } else {
        cell(c, title, 15, "%.*f", digits, mean);
    }
    if (rate->planned > 0) {
        cell(c, "planned", 8, "%.*f", rate->planned < 10 ? 2 : 0, rate->planned);
    } else {
        cell(c, "planned", 8, "-");
    }
}

static void fill(cells *c, const app_benchmark *b, const app_bench_row *r) {
    const bool done = r->state == APP_BENCH_DONE;
    char mode[32], test[64];
    app_bench_mode(mode, r);
    app_bench_test(test, r);
    c->count = 0;
    if (r->name != NULL) cell(c, "what", -22, "%s", r->name);
    if (r->name == NULL) cell(c, "budget", -8, "%s", r->budget);
    if (r->name == NULL) cell(c, "mode", -15, "%s", mode);
    if (!all_alike(b, false)) cell(c, "kv", -3, "%s", r->kv);
    if (!all_alike(b, true)) cell(c, "threads", 7, "%u", r->threads);
    if (r->name == NULL) cell(c, "test", -20, "%s", test);
    mib_cell(c, "limit MiB", 9, r->budget_bytes > 0, r->budget_bytes);
    mib_cell(c, "peak MiB", 8, done, r->peak_bytes);
    mib_cell(c, "planned", 8, done, r->predicted_peak_bytes);
    rate_cells(c, "prompt t/s", r, &r->prompt);
    rate_cells(c, "answer t/s", r, &r->answer);
    mib_cell(c, "read MiB", 8, done, r->weight_read_bytes + r->spill_read_bytes);
    mib_cell(c, "written", 7, done, r->spill_written_bytes);
    cell(c, "again", 7, done ? "%llu" : "-", (unsigned long long)r->recomputed_tokens);
    if (done) {
        cell(c, "logits", -16, "%016llx", (unsigned long long)r->hash);
    } else if (r->minimum_bytes > 0) {
        cell(c, "logits", -16, "needs %.1f MiB", ceil((double)r->minimum_bytes / MIB * 10) / 10);
    } else {
        cell(c, "logits", -16, "%s", states[r->state]);
    }
    cell(c, "same", -5, "%s", !done ? "-" : !r->compared ? "first" : r->same ? "yes" : "NO");
}

/* A cell with its blanks; a ± takes two bytes and one place. */
static void put_cell(const char *text, int width) {
    int extra = 0;
    for (const char *p = text; *p != '\0'; p++)
        extra += ((unsigned char)*p & 0xc0) == 0x80;
    app_printf(" %*s |", width < 0 ? width - extra : width + extra, text);
}

static void put_titles(const cells *c) {
    app_printf("|");
    for (size_t i = 0; i < c->count; i++)
        put_cell(c->title[i], c->width[i]);
    app_printf("\n|");
    for (size_t i = 0; i < c->count; i++) {
        const int width = c->width[i] < 0 ? -c->width[i] : c->width[i];
        for (int k = 0; k < width + 1; k++)
            app_printf("-");
        app_printf(c->width[i] < 0 ? "-|" : ":|");
    }
    app_printf("\n");
}

/* --- fields ----------------------------------------------------------------------------------- */

typedef enum field_kind { WORD, WHOLE, REAL, MAYBE } field_kind;

typedef struct field {
    const char *key;
    field_kind kind;
    bool known;
    char word[TEXT_BYTES];
    uint64_t whole;
    double real;
} field;

typedef struct fields {
    field at[FIELDS];
    size_t count;
} fields;

static field *next(fields *f, const char *key, field_kind kind, bool known) {
    RM_ASSERT(f->count < FIELDS);
    field *n = &f->at[f->count++];
    *n = (field){.key = key, .kind = kind, .known = known};
    return n;
}

static void word(fields *f, const char *key, const char *text) {
    field *n = next(f, key, WORD, text != NULL);
    if (text != NULL) snprintf(n->word, sizeof n->word, "%s", text);
}

static void whole(fields *f, const char *key, bool known, uint64_t v) {
    next(f, key, WHOLE, known)->whole = v;
}

static void real(fields *f, const char *key, double v) {
    next(f, key, REAL, isfinite(v))->real = v;
}

static void rate(fields *f, const char *const keys[3], const app_bench_row *r,
                 const app_bench_rate *of) {
    double deviation;
    const double mean = app_bench_mean(r, of, &deviation);
    real(f, keys[0], mean > 0 ? mean : NAN);
    real(f, keys[1], mean > 0 ? deviation : NAN);
    real(f, keys[2], of->planned > 0 ? of->planned : NAN);
}

static void row_fields(fields *f, const app_benchmark *b, const app_bench_row *r) {
    static const char *const prompt[] = {"pp_avg_ts", "pp_stddev_ts", "pp_planned_ts"};
    static const char *const answer[] = {"tg_avg_ts", "tg_stddev_ts", "tg_planned_ts"};
    const bool done = r->state == APP_BENCH_DONE;
    char mode[32], test[64], hash[20];
    app_bench_mode(mode, r);
    app_bench_test(test, r);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    f->count = 0;
    word(f, "name", r->name);
    word(f, "test", test);
    word(f, "status", states[r->state]);
    word(f, "message", r->message[0] != '\0' ? r->message : NULL);
    word(f, "budget", r->budget);
    whole(f, "budget_bytes", r->budget_bytes > 0, r->budget_bytes);
    whole(f, "minimum_bytes", r->minimum_bytes > 0, r->minimum_bytes);
    word(f, "mode", mode);
    word(f, "recompute", r->off ? "off" : r->recompute != NULL ? r->recompute : "auto");
    word(f, "cold", r->cold != NULL ? r->cold : "auto");
    word(f, "weights", r->weights != NULL ? r->weights : "auto");
    word(f, "type_k", r->kv);
    word(f, "type_v", r->kv);
    whole(f, "resident_tokens", r->resident != REMAT_ALL, r->resident);
    whole(f, "n_threads", true, r->threads > 0 ? r->threads : b->thread_count);
    whole(f, "n_prompt", true, r->prompt_count);
    whole(f, "n_gen", true, r->answer_count);
    whole(f, "n_depth", true, r->prompt_count);
    whole(f, "runs", true, r->run_count);
    rate(f, prompt, r, &r->prompt);
    rate(f, answer, r, &r->answer);
    whole(f, "peak_bytes", done, r->peak_bytes);
    whole(f, "predicted_peak_bytes", done, r->predicted_peak_bytes);
    whole(f, "weight_read_bytes", done, r->weight_read_bytes);
    whole(f, "spill_read_bytes", done, r->spill_read_bytes);
    whole(f, "spill_written_bytes", done, r->spill_written_bytes);
    whole(f, "recomputed_tokens", done, r->recomputed_tokens);
    word(f, "logits_hash", done ? hash : NULL);
    next(f, "same_logits", MAYBE, done)->whole = !r->compared || r->same;
}

/* Text in quotes where a comma, a quote or a line break would be taken for the table's. */
static void put_csv(const char *text) {
    const bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted) app_printf("\"");
    for (const char *p = text; *p != '\0'; p++)
        app_printf(*p == '"' ? "\"\"" : "%c", *p);
    if (quoted) app_printf("\"");
}

static void csv_row(const app_benchmark *b, const app_bench_row *r, bool titles) {
    static fields f;
    row_fields(&f, b, r);
    for (size_t i = 0; i < f.count; i++) {
        const field *n = &f.at[i];
        if (i > 0) app_printf(",");
        if (titles) {
            app_printf("%s", n->key);
        } else if (n->known && n->kind == WORD) {
            put_csv(n->word);
        } else if (n->known && n->kind == REAL) {
            app_printf("%.6g", n->real);
        } else if (n->known) {
            app_printf("%llu", (unsigned long long)n->whole);
        }
    }
    app_printf("\n");
}

static void json_samples(rm_json *j, const char *key, const app_bench_row *r,
                         const app_bench_rate *rate) {
    rm_json_open(j, key, '[');
    for (uint32_t i = 0; i < r->run_count; i++)
        rm_json_f64(j, NULL, rate->of_run[i], 6);
    rm_json_close(j, ']');
}

static void json_row(rm_json *j, const app_benchmark *b, const app_bench_row *r) {
    static fields f;
    row_fields(&f, b, r);
    rm_json_open(j, NULL, '{');
    for (size_t i = 0; i < f.count; i++) {
        const field *n = &f.at[i];
        if (!n->known) {
            rm_json_null(j, n->key);
        } else if (n->kind == WORD) {
            rm_json_string(j, n->key, n->word);
        } else if (n->kind == REAL) {
            rm_json_f64(j, n->key, n->real, 6);
        } else if (n->kind == MAYBE) {
            rm_json_bool(j, n->key, n->whole != 0);
        } else {
            rm_json_u64(j, n->key, n->whole);
        }
    }
    json_samples(j, "pp_samples_ts", r, &r->prompt);
    json_samples(j, "tg_samples_ts", r, &r->answer);
    rm_json_close(j, '}');
}

void app_bench_json(const app_benchmark *b, const remat_error *failed) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_string(&j, "version", remat_version());
    rm_json_open(&j, "machine", '{');
    rm_json_string(&j, "cpu", b->cpu);
    rm_json_string(&j, "kernels", b->kernels);
    rm_json_u64(&j, "threads", b->thread_count);
    rm_json_close(&j, '}');
    rm_json_open(&j, "model", '{');
    rm_json_string(&j, "file", b->args->model);
    rm_json_string(&j, "architecture", b->model.architecture);
    rm_json_string(&j, "quantization", b->model.quantization);
    rm_json_u64(&j, "parameters", b->model.parameter_count);
    rm_json_u64(&j, "size_bytes", b->model.tensor_bytes);
    rm_json_close(&j, '}');
    rm_json_u64(&j, "repetitions", b->repetitions);
    rm_json_open(&j, "rows", '[');
    for (size_t i = 0; i < b->row_count; i++)
        json_row(&j, b, &b->rows[i]);
    rm_json_close(&j, ']');
    if (failed->status != REMAT_OK) {
        rm_json_open(&j, "error", '{');
        rm_json_string(&j, "code", app_error_name(failed->status));
        rm_json_string(&j, "message", failed->message);
        if (failed->minimum_bytes > 0) rm_json_u64(&j, "minimum_bytes", failed->minimum_bytes);
        rm_json_close(&j, '}');
    }
    rm_json_close(&j, '}');
    app_printf("\n");
    app_document_done();
}

void app_bench_table_begin(const app_benchmark *b) {
    static cells c;
    if (b->args->csv) {
        csv_row(b, &b->rows[0], true);
        return;
    }
    app_printf("%s: %s %s, %.1f MiB, %.2f M parameters; %s\n", b->args->model,
               b->model.architecture, b->model.quantization, (double)b->model.tensor_bytes / MIB,
               (double)b->model.parameter_count / 1e6, b->cpu);
    if (b->rows[0].name != NULL) {
        char test[64];
        app_bench_test(test, &b->rows[0]);
        app_printf("test: %s\n", test);
    }
    app_printf("\n");
    fill(&c, b, &b->rows[0]);
    put_titles(&c);
}

void app_bench_table_row(const app_benchmark *b, const app_bench_row *r) {
    static cells c;
    if (b->args->csv) {
        csv_row(b, r, false);
        return;
    }
    fill(&c, b, r);
    app_printf("|");
    for (size_t i = 0; i < c.count; i++)
        put_cell(c.text[i], c.width[i]);
    app_printf("\n");
}

void app_bench_table_end(const app_benchmark *b) {
    if (b->args->csv || b->thread_count == 0) return;
    app_printf("\nremat %s, kernels %s, %u threads, %u runs of each row", remat_version(),
               b->kernels, b->thread_count, b->repetitions);
    app_printf(b->repetitions > 1 ? ": mean ± standard deviation\n" : "\n");
}
