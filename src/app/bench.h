/*
 * bench.h: the rows of remat bench. Part: app.
 *
 * A row is a budget and a way to keep it, and what came of it. Each of its runs is a process of its
 * own, so that its peak is the kernel's figure for it alone; this one reads no weights.
 */
#ifndef RM_APP_BENCH_H
#define RM_APP_BENCH_H

#include "app/app.h"

enum { APP_BENCH_LIST = 16, APP_BENCH_ROWS = 256, APP_BENCH_RUNS = 32 };

typedef enum app_bench_budget {
    APP_BUDGET_GIVEN,
    APP_BUDGET_AUTO,    /* what the machine has free */
    APP_BUDGET_MAX,     /* everything in memory */
    APP_BUDGET_HALF,    /* of that */
    APP_BUDGET_QUARTER, /* of that */
    APP_BUDGET_MIN,     /* the smallest that works */
    APP_BUDGET_FIT,     /* what the row's settings take without a budget */
} app_bench_budget;

typedef enum app_bench_state {
    APP_BENCH_WAITING,
    APP_BENCH_DONE,
    APP_BENCH_REFUSED, /* the budget: see minimum_bytes */
    APP_BENCH_FAILED,
} app_bench_state;

/* Tokens a second of the runs. */
typedef struct app_bench_rate {
    double of_run[APP_BENCH_RUNS];
    double planned; /* 0: not known */
} app_bench_rate;

typedef struct app_bench_row {
    /* What is asked. */
    const char *name;                            /* in an experiment; else NULL */
    const char *budget;                          /* as it was written */
    const char *recompute, *cold, *kv, *weights; /* NULL: as the program chooses */
    uint64_t budget_bytes;                       /* 0: auto */
    app_bench_budget kind;
    uint32_t threads; /* 0: chosen */
    uint32_t prompt_count, answer_count, resident;
    bool off; /* nothing is computed again */
    /* What came of it. */
    bool compared, same; /* with the first row of the same work and cache format */
    app_bench_state state;
    uint32_t run_count;
    char message[256];
    uint64_t minimum_bytes;
    app_bench_rate prompt, answer;
    uint64_t peak_bytes, predicted_peak_bytes; /* of the run with the largest peak */
    uint64_t weight_read_bytes, spill_read_bytes, spill_written_bytes, recomputed_tokens;
    uint64_t hash; /* of the logits */
} app_bench_row;

typedef struct app_benchmark {
    const app_args *args;
    uint64_t start_bytes; /* that this process took before it did anything: as a run's will */
    uint32_t repetitions;
    app_tokens text; /* the prompt's tokens; repeated where a prompt is longer */
    remat_model_info model;
    char kernels[32]; /* as a run says */
    uint32_t thread_count;
    char cpu[128];
    app_bench_row *rows;
    size_t row_count;
} app_benchmark;

/* bench_rows.c: the rows that the command asks for. Errors: REMAT_E_USAGE. */
int app_bench_rows(app_benchmark *b, const app_args *args, remat_error *err);

/* bench_run.c: runs a row. That it is refused or fails is no error: see its state.
 * Errors: REMAT_E_CANCELED, REMAT_E_FAILED: no process could be started. */
int app_bench_run(app_benchmark *b, size_t row, remat_error *err);

/* A rate's mean, and its standard deviation (0 with one run). */
double app_bench_mean(const app_bench_row *r, const app_bench_rate *rate, double *deviation);

/* What a row is called: its name, or budget and mode. */
void app_bench_label(char out[64], const app_benchmark *b, const app_bench_row *r);
void app_bench_mode(char out[32], const app_bench_row *r);
void app_bench_test(char out[64], const app_bench_row *r); /* as others call it */

/* bench_table.c: a table, row by row; or all of it as JSON. */
void app_bench_table_begin(const app_benchmark *b);
void app_bench_table_row(const app_benchmark *b, const app_bench_row *r);
/* Below the table: what only a run says. */
void app_bench_table_end(const app_benchmark *b);
void app_bench_json(const app_benchmark *b, const remat_error *failed);

/* bench_plot.c */
int app_bench_plot(const app_benchmark *b, remat_error *err);

#endif /* RM_APP_BENCH_H */
