/*
 * input.h: what a command works on: texts and lists of token ids. Part: app.
 *
 * Memory comes from the heap, after the engine has been asked (remat_claim): the budget is for the
 * whole process. It is not given back before the program ends.
 */
#ifndef RM_APP_INPUT_H
#define RM_APP_INPUT_H

#include "app/args.h"

typedef struct app_text {
    char *bytes;
    size_t count;
} app_text;

typedef struct app_tokens {
    uint32_t *ids;
    size_t count;
} app_tokens;

/* count * size zeroed bytes within the engine's budget; e is NULL where a command has no engine.
 * Errors: REMAT_E_BUDGET. */
int app_alloc(void *out, remat_engine *e, size_t count, size_t size, remat_error *err);

/* The text of -p, -f, or standard input.
 * Errors: REMAT_E_FAILED, REMAT_E_BUDGET (longer), REMAT_E_USAGE (nothing given),
 * REMAT_E_CANCELED. */
int app_read_text(app_text *out, remat_engine *e, const app_args *args, remat_error *err);

/* All of a file or pipe. Errors: as app_read_text(). */
int app_read_file(app_text *out, remat_engine *e, const char *path, remat_error *err);

/* The whitespace-separated ids of a file. Errors: REMAT_E_FAILED, REMAT_E_BUDGET. */
int app_read_tokens(app_tokens *out, remat_engine *e, const char *path, remat_error *err);

#endif /* RM_APP_INPUT_H */
