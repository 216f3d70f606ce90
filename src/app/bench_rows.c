/* bench_rows.c: the rows of remat bench: products of lists, or the experiment. Part: app. */
#include "app/bench.h"
#include "app/options.h"
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 32, MOST_TOKENS = 1 << 24 };

typedef struct list {
    char words[APP_BENCH_LIST][WORD_BYTES];
    uint64_t numbers[APP_BENCH_LIST];
    uint32_t count;
} list;

/* The words between commas; of a text that is NULL, the usual ones. */
static int split(list *out, const char *name, const char *text, const char *usual,
                 remat_error *err) {
    const char *p = text != NULL ? text : usual;
    out->count = 0;
    for (;;) {
        const size_t n = strcspn(p, ",");
        if (n == 0)
            return rm_fail(err, REMAT_E_USAGE,
                           "%s: \"%.60s\" has an empty place; give values with "
                           "a comma between them",
                           name, text);
        if (n >= WORD_BYTES)
            return rm_fail(err, REMAT_E_USAGE, "%s: \"%.60s\" is no value it knows", name, p);
        if (out->count == APP_BENCH_LIST)
            return rm_fail(err, REMAT_E_USAGE, "%s: at most %d values", name, APP_BENCH_LIST);
        memcpy(out->words[out->count], p, n);
        out->words[out->count++][n] = '\0';
        if (p[n] == '\0') return REMAT_OK;
        p += n + 1;
    }
}

static int split_numbers(list *out, const char *name, const char *text, const char *usual,
                         int64_t most, remat_error *err) {
    RM_TRY(split(out, name, text, usual, err));
    for (uint32_t i = 0; i < out->count; i++) {
        int64_t v;
        RM_TRY(app_parse_integer(&v, name, out->words[i], 1, most, err));
        out->numbers[i] = (uint64_t)v;
    }
    return REMAT_OK;
}

static int split_words(list *out, const char *name, const char *text, const char *usual,
                       const char *const *known, remat_error *err) {
    RM_TRY(split(out, name, text, usual, err));
    for (uint32_t i = 0; i < out->count; i++) {
        uint32_t k = 0;
        while (known[k] != NULL && strcmp(known[k], out->words[i]) != 0)
            k++;
        if (known[k] == NULL)
            return rm_fail(err, REMAT_E_USAGE, "%s: there is no \"%.30s\"; see remat bench --help",
                           name, out->words[i]);
        out->numbers[i] = k;
    }
    return REMAT_OK;
}

static const char *const budget_words[] = {"auto", "max", "half", "quarter", "min", NULL};
static const char *const cold_words[] = {"auto", "spill", "drop", "inputs", "checkpoint", NULL};
static const char *const recompute_words[] = {"auto",  "off",       "full", "block",
                                              "layer", "selective", NULL};
static const char *const kv_words[] = {"f16", "f32", NULL};

/* A budget's kind, and its bytes where it is a size. */
static int budget_of(app_bench_row *r, const char *word, remat_error *err) {
    static const app_bench_budget kinds[] = {APP_BUDGET_AUTO, APP_BUDGET_MAX, APP_BUDGET_HALF,
                                             APP_BUDGET_QUARTER, APP_BUDGET_MIN};
    for (uint32_t k = 0; budget_words[k] != NULL; k++) {
        if (strcmp(budget_words[k], word) != 0) continue;
        r->budget = budget_words[k];
        r->kind = kinds[k];
        return REMAT_OK;
    }
    r->kind = APP_BUDGET_GIVEN;
    RM_TRY(app_parse_size(&r->budget_bytes, "--budgets", word, err));
    r->budget = strdup(word);
    return r->budget != NULL ? REMAT_OK : rm_fail(err, REMAT_E_FAILED, "bench: out of memory");
}

/* What the words mean for a run. False: they contradict each other. Without --cold, a way to
 * compute again says that what does not fit is dropped, and off that it is spilled. */
static bool mode_of(app_bench_row *r, const char *recompute, const char *cold) {
    const bool any = strcmp(recompute, "auto") == 0;
    r->off = strcmp(recompute, "off") == 0;
    r->recompute = any || r->off ? NULL : recompute;
    r->cold = cold != NULL || any ? cold : r->off ? "spill" : "drop";
    return !r->off || cold == NULL || strcmp(cold, "spill") == 0 || strcmp(cold, "auto") == 0;
}

typedef struct lists {
    list prompts, answers, budgets, colds, recomputes, kvs, threads;
} lists;

static int read_lists(lists *l, const app_args *a, remat_error *err) {
    const bool one = a->experiment;
    RM_TRY(split_numbers(&l->prompts, "--prompt-tokens", a->prompt_counts, one ? "2048" : "512",
                         MOST_TOKENS, err));
    RM_TRY(split_numbers(&l->answers, "-n", a->answer_counts, one ? "8" : "32", MOST_TOKENS, err));
    RM_TRY(split(&l->budgets, "--budgets", a->budgets, "max,half,min", err));
    RM_TRY(split_words(&l->colds, "--cold", a->cold, "auto", cold_words, err));
    RM_TRY(split_words(&l->recomputes, "--recompute", a->recompute, "auto", recompute_words, err));
    RM_TRY(split_words(&l->kvs, "--kv", a->kv, "f16", kv_words, err));
    RM_TRY(split_numbers(&l->threads, "-t", a->thread_counts, "1", 1024, err));
    if (a->thread_counts == NULL) l->threads.numbers[0] = 0;
    if (!one) return REMAT_OK;
    if (l->prompts.count > 1 || l->answers.count > 1 || l->kvs.count > 1 || l->threads.count > 1)
        return rm_fail(err, REMAT_E_USAGE, "--experiment: it takes one value of each option");
    if (a->budgets != NULL || a->cold != NULL || a->recompute != NULL || a->weights != NULL)
        return rm_fail(err, REMAT_E_USAGE,
                       "--experiment: its budgets and modes are its own; leave --budgets, --cold, "
                       "--recompute and --weights out");
    return REMAT_OK;
}

static app_bench_row *add(app_benchmark *b) {
    app_bench_row *r = &b->rows[b->row_count++];
    *r = (app_bench_row){.resident = b->args->resident, .weights = b->args->weights};
    return r;
}

/* One row for each value of the inner lists, under what the outer ones say. */
static int add_modes(app_benchmark *b, const lists *l, const app_bench_row *of, remat_error *err) {
    for (uint32_t i = 0; i < l->budgets.count; i++) {
        for (uint32_t c = 0; c < l->colds.count; c++) {
            for (uint32_t m = 0; m < l->recomputes.count; m++) {
                const char *cold = b->args->cold != NULL ? cold_words[l->colds.numbers[c]] : NULL;
                app_bench_row row = *of;
                if (!mode_of(&row, recompute_words[l->recomputes.numbers[m]], cold)) continue;
                if (b->row_count == APP_BENCH_ROWS)
                    return rm_fail(err, REMAT_E_USAGE,
                                   "bench: more than %d rows; give shorter lists", APP_BENCH_ROWS);
                RM_TRY(budget_of(&row, l->budgets.words[i], err));
                *add(b) = row;
            }
        }
    }
    return REMAT_OK;
}

static int add_products(app_benchmark *b, const lists *l, remat_error *err) {
    for (uint32_t p = 0; p < l->prompts.count; p++) {
        for (uint32_t n = 0; n < l->answers.count; n++) {
            for (uint32_t k = 0; k < l->kvs.count; k++) {
                for (uint32_t t = 0; t < l->threads.count; t++) {
                    const app_bench_row of = {.prompt_count = (uint32_t)l->prompts.numbers[p],
                                              .answer_count = (uint32_t)l->answers.numbers[n],
                                              .kv = kv_words[l->kvs.numbers[k]],
                                              .threads = (uint32_t)l->threads.numbers[t],
                                              .resident = b->args->resident,
                                              .weights = b->args->weights};
                    RM_TRY(add_modes(b, l, &of, err));
                }
            }
        }
    }
    if (b->row_count > 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE,
                   "--recompute off: not with --cold drop, inputs or checkpoint alone");
}

/* The experiment: one piece of work, with all of the cache, with parts of it, with none. Weights
 * stay, so that the cache alone makes the difference; but not in the smallest budgets. */
static void add_experiment(app_benchmark *b, const lists *l) {
    static const struct {
        const char *name;
        app_bench_budget kind;
        bool off;
        const char *recompute, *cold, *weights;
        uint32_t quarters; /* of the cache that stay; 4: all that the budget holds */
    } rows[] = {
        {"everything kept", APP_BUDGET_MAX, true, NULL, "spill", "resident", 4},
        {"1/2 dropped, blocks", APP_BUDGET_FIT, false, "block", "drop", "resident", 2},
        {"3/4 dropped, blocks", APP_BUDGET_FIT, false, "block", "drop", "resident", 1},
        {"1/2 dropped, layers", APP_BUDGET_FIT, false, "layer", "drop", "resident", 2},
        {"1/2 dropped, selective", APP_BUDGET_FIT, false, "selective", "drop", "resident", 2},
        {"nothing kept", APP_BUDGET_FIT, false, "full", "drop", "resident", 4},
        {"1/2 on disk", APP_BUDGET_FIT, true, NULL, "spill", "resident", 2},
        {"smallest, on disk", APP_BUDGET_MIN, true, NULL, "spill", NULL, 4},
        {"smallest, dropped", APP_BUDGET_MIN, false, NULL, "drop", NULL, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        app_bench_row *r = add(b);
        r->name = rows[i].name;
        r->kind = rows[i].kind;
        r->budget = rows[i].kind == APP_BUDGET_MAX   ? "max"
                    : rows[i].kind == APP_BUDGET_MIN ? "min"
                                                     : "fit";
        r->off = rows[i].off;
        r->recompute = rows[i].recompute;
        r->cold = rows[i].cold;
        r->weights = rows[i].weights;
        r->prompt_count = (uint32_t)l->prompts.numbers[0];
        r->answer_count = (uint32_t)l->answers.numbers[0];
        r->kv = kv_words[l->kvs.numbers[0]];
        r->threads = (uint32_t)l->threads.numbers[0];
        const uint64_t all = (uint64_t)r->prompt_count + r->answer_count;
        if (rows[i].quarters < 4) r->resident = (uint32_t)(all * rows[i].quarters / 4);
    }
}

int app_bench_rows(app_benchmark *b, const app_args *args, remat_error *err) {
    static lists l;
    static app_bench_row rows[APP_BENCH_ROWS];
    b->args = args;
    b->rows = rows;
    RM_TRY(read_lists(&l, args, err));
    b->repetitions = args->repetitions != APP_UNSET_U32 ? args->repetitions
                     : args->experiment                 ? 1
                                                        : 3;
    if (b->repetitions < 1 || b->repetitions > APP_BENCH_RUNS)
        return rm_fail(err, REMAT_E_USAGE, "-r: 1 to %d repetitions", APP_BENCH_RUNS);
    if (!args->experiment) return add_products(b, &l, err);
    add_experiment(b, &l);
    return REMAT_OK;
}

void app_bench_mode(char out[32], const app_bench_row *r) {
    const bool full = r->recompute != NULL && strcmp(r->recompute, "full") == 0;
    if (r->off) {
        snprintf(out, 32, "off");
    } else if (r->recompute == NULL || (full && strcmp(r->cold, "drop") == 0)) {
        snprintf(out, 32, "%s", full ? "full" : r->cold != NULL ? r->cold : "auto");
    } else {
        snprintf(out, 32, "%s %s", r->cold, r->recompute);
    }
}

void app_bench_test(char out[64], const app_bench_row *r) {
    snprintf(out, 64, "pp%u tg%u @ d%u", r->prompt_count, r->answer_count, r->prompt_count);
}

/* What all rows have in common is left out. */
void app_bench_label(char out[64], const app_benchmark *b, const app_bench_row *r) {
    const app_bench_row *first = &b->rows[0], *last = &b->rows[b->row_count - 1];
    char mode[32];
    if (r->name != NULL) {
        snprintf(out, 64, "%s", r->name);
        return;
    }
    app_bench_mode(mode, r);
    size_t n = (size_t)snprintf(out, 64, "%s, %s", r->budget, mode);
    if (first->prompt_count != last->prompt_count)
        n += (size_t)snprintf(out + n, 64 - n, " pp%u", r->prompt_count);
    if (first->answer_count != last->answer_count)
        n += (size_t)snprintf(out + n, 64 - n, " tg%u", r->answer_count);
    if (strcmp(first->kv, last->kv) != 0) n += (size_t)snprintf(out + n, 64 - n, " %s", r->kv);
    if (first->threads != last->threads) snprintf(out + n, 64 - n, " t%u", r->threads);
}
