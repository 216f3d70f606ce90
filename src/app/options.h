/*
 * options.h: the tables behind the command line, for whoever prints them. Part: app.
 *
 * Help (usage.c), completion (completion.c) and the environment (environment.c) come from these
 * tables, which stand in option_table.c, and from nothing else. The values are read in option.c.
 */
#ifndef RM_APP_OPTIONS_H
#define RM_APP_OPTIONS_H

#include "app/args.h"

enum {
    APP_NAMES_MAX = 4,
    APP_OPTIONS_MAX = 160,
    /* Commands that start an engine; that read a text; that know a model. */
    APP_ENGINE = APP_RUN | APP_SCORE | APP_EVAL,
    APP_INPUT = APP_ENGINE | APP_TOKENIZE,
    APP_ALL = APP_INPUT | APP_INFO | APP_DETOKENIZE | APP_PLAN | APP_TEMPLATE | APP_BENCH,
};

/* Beside app_command in app_option.commands. */
enum {
    APP_RARE = 1 << 28, /* only in the long help */
    APP_ENV = 1 << 29,  /* also REMAT_<its long name> in the environment */
};

typedef enum app_kind {
    FLAG,
    OFF, /* a flag that takes another one back */
    TEXT,
    U32,
    I32,
    U64,
    F32,
    AMOUNT, /* a double from 0 on */
    SIZE,
    LIST,
    STOP,
    BIAS,
    PREDICT,
    IGNORED, /* means nothing here; a value in brackets may be left out */
} app_kind;

typedef struct app_option {
    const char *names[APP_NAMES_MAX]; /* the first is shown first; NULL after the last */
    unsigned commands;                /* app_command, APP_RARE, APP_ENV */
    app_kind kind;
    size_t at; /* in app_args */
    /* NULL: a flag. FILE: a path; small words between bars: these and no others; in brackets: may
     * be left out. Else a word for the help. */
    const char *value, *help;
} app_option;

typedef struct app_command_row {
    const char *name;
    app_command command;
    const char *use, *does;
} app_command_row;

/* In the order of the help. */
const app_option *app_options(uint32_t *count);
const app_command_row *app_commands(uint32_t *count);

/* Sets o's place in args from text (NULL with a flag). name is what messages call it.
 * Errors: REMAT_E_USAGE. */
int app_option_set(app_args *args, const app_option *o, const char *name, const char *text,
                   remat_error *err);

/* A whole number inside [low, high]; a number of bytes with an optional K, M, G or T ("auto": 0).
 * name is the option, for the message. Errors: REMAT_E_USAGE. */
int app_parse_integer(int64_t *out, const char *name, const char *text, int64_t low, int64_t high,
                      remat_error *err);
int app_parse_size(uint64_t *out, const char *name, const char *text, remat_error *err);

/* Options of the command with APP_ENV, where given[] (by their place in the table) is false and the
 * environment has them. An empty value is none. Errors: REMAT_E_USAGE. */
int app_environment(app_args *args, const bool *given, remat_error *err);

/* Writes the variable's name of an option with APP_ENV into out. */
void app_environment_name(char out[48], const app_option *o);

/* Whether value is a list of words, as f16|f32. Then the next word of *value is written to out, and
 * *value moves on; false at the end. */
bool app_choice_next(char out[32], const char **value);

#endif /* RM_APP_OPTIONS_H */
