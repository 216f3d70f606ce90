/*
 * child.h: another program, run to its end: gnuplot, or remat itself. Part: app.
 *
 * What it says is kept, up to a cap. Ctrl-C ends it too, whether the terminal told it or not.
 */
#ifndef RM_APP_CHILD_H
#define RM_APP_CHILD_H

#include "base/check.h"

typedef struct app_child {
    const char *const *argv; /* argv[0] is looked for in PATH; NULL behind the last */
    int in;                  /* its standard input; -1: nothing */
    int out;                 /* its standard output; -1: kept in said */
    int also[2];             /* it gets these too, as descriptors 3 and 4; -1: none */
    /* Results, terminated; app_child_free() gives them back. */
    char *said, *complained; /* standard output, standard error */
    size_t said_bytes, complained_bytes;
    int exit_code; /* 128 and the number of a signal that killed it */
    bool missing;  /* there is no such program */
} app_child;

/* Errors: REMAT_E_FAILED: it could not be started. REMAT_E_CANCELED. That it failed is no error:
 * see exit_code. */
int app_child_run(app_child *c, remat_error *err);
void app_child_free(app_child *c);

/* A nameless file, for what is given to a child; it goes with its last descriptor. */
int app_scratch_file(int *out, remat_error *err);

#endif /* RM_APP_CHILD_H */
