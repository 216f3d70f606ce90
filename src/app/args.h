/*
 * args.h: the command line, from one table. Part: app.
 *
 * The table (option_table.c) names every option once, with the commands that know it, its kind, its
 * place in app_args and its line of help; parsing, checking and `--help` all come from it.
 */
#ifndef RM_APP_ARGS_H
#define RM_APP_ARGS_H

#include "remat.h"

enum { APP_UNSET_U32 = UINT32_MAX - 1, APP_LIST_MAX = 16 };

/* Numbers with commas between them. */
typedef struct app_list {
    uint32_t count, at[APP_LIST_MAX];
} app_list;

typedef enum app_command {
    APP_RUN = 1 << 0,
    APP_SCORE = 1 << 1,
    APP_INFO = 1 << 2,
    APP_TOKENIZE = 1 << 3,
    APP_DETOKENIZE = 1 << 4,
    APP_PLAN = 1 << 5,
    APP_TEMPLATE = 1 << 6,
    APP_EVAL = 1 << 8,
    APP_BENCH = 1 << 7,
    APP_COMPLETION = 1 << 16,
    APP_VERSION = 1 << 17,
} app_command;

/* Numbers of plan --cost; below 0: not given. */
typedef struct app_costs {
    double hardware_price, years, watts, idle_watts, electricity_price, hours;
    double tokens_in, tokens_out, cached;
    double api_in, api_cached, api_out;
} app_costs;

typedef struct app_args {
    app_command command;
    bool help, help_all, json, stats;
    const char *shell; /* of completion */
    const char *model, *kernels;
    uint64_t memory_bytes; /* 0: auto */
    uint32_t threads;      /* 0: chosen */
    /* input */
    const char *prompt, *file, *tokens, *system;
    const char *template_file, *template_name; /* --template, --chat-template */
    const char *pre;                           /* the tokenizer's way to cut text */
    bool raw, from_stdin, no_special, no_bos, escape, no_history;
    const char *reasoning; /* auto, on, off */
    /* context and cache */
    uint32_t context, predict, chunk_rows, batch_rows, batch,
        resident;               /* APP_UNSET_U32: not given */
    uint32_t keep, repetitions; /* repetitions of bench; APP_UNSET_U32: not given */
    const char *kv, *kv_k, *kv_v, *cold, *recompute, *weights;
    const char *spill; /* a directory; "off" */
    uint64_t spill_bytes;
    const char *session;
    bool session_tokens_only;
    /* sampling */
    remat_sampling sampling;
    bool seed_given, ignore_eos;
    const char *stops[REMAT_STOPS_MAX];
    uint32_t stop_count;
    remat_bias bias[REMAT_BIAS_MAX];
    /* plan */
    const char *model_shape, *weight_type, *task;
    bool list_shapes, cost;
    app_costs costs;
    /* output */
    const char *logits, *plot;
    uint32_t top;
    const char *choices, *choices_file;
    /* evaluation */
    const char *ppl, *base, *save_base;
    uint32_t chunks, stride, piece; /* 0: not given; piece is --step */
    bool needle;
    app_list lengths, depths;
    uint32_t repeat; /* 0: not given */
    bool csv, experiment;
    /* of bench: lists */
    const char *budgets, *prompt_counts, *answer_counts, *thread_counts;
} app_args;

/* Fills args from argv[1 ..] and the environment: a flag wins over REMAT_<ITS LONG NAME>, that over
 * the default. With -e the texts in argv are changed. Errors: REMAT_E_USAGE. args->json is right
 * even then, where the flag is there at all. */
int app_args_parse(app_args *args, int argc, char **argv, remat_error *err);

/* What the cache options ask for, as limits (context and so on are left to the command).
 * Errors: REMAT_E_USAGE for a mode this version does not have. */
int app_args_limits(remat_limits *out, const app_args *args, remat_error *err);

/* Prints the help of a command, or with 0 of the program. all: also the options rarely used. */
void app_args_help(app_command command, bool all);

#endif /* RM_APP_ARGS_H */
