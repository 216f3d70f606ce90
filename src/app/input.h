/*
 * input.h: what a command works on: texts and lists of token ids. Part: app.
 *
 * Memory comes from the heap before the engine starts, and is touched, so that what the engine
 * measures as `program` has it.
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

/* Memory that is not given back before the program ends: zeroed and touched. NULL-safe use is not
 * needed: when there is none, the error is REMAT_E_BUDGET. */
int app_alloc(void *out, size_t count, size_t size, remat_error *err);

/* The same without touching it, for what is rarely filled; `program` has a margin for what is. */
int app_alloc_lazy(void *out, size_t bytes, remat_error *err);

/* All of a file. Errors: REMAT_E_FAILED, REMAT_E_CONTEXT (longer than most_bytes). */
int app_read_file(app_text *out, const char *path, uint64_t most_bytes, remat_error *err);

/* The text of -p, -f, or standard input; at most most_bytes (the budget).
 * Errors: REMAT_E_FAILED, REMAT_E_CONTEXT (longer), REMAT_E_USAGE (nothing given). */
int app_read_text(app_text *out, const app_args *args, uint64_t most_bytes, remat_error *err);

/* The whitespace-separated ids of --tokens. Errors: REMAT_E_FAILED, REMAT_E_USAGE. */
int app_read_tokens(app_tokens *out, const char *path, uint64_t most_bytes, remat_error *err);

#endif /* RM_APP_INPUT_H */
