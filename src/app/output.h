/*
 * output.h: standard output, errors, progress. Part: app.
 *
 * Standard output goes through one buffer of fixed size; stderr is written at once. Nothing here
 * takes memory after the start.
 */
#ifndef RM_APP_OUTPUT_H
#define RM_APP_OUTPUT_H

#include "base/json.h"

/* Standard output. app_flush() says whether everything could be written. */
rm_buf *app_out(void);
__attribute__((format(printf, 1, 2))) void app_printf(const char *fmt, ...);
int app_flush(remat_error *err);

/* Prints the one line of an error, and with json its document, and returns the exit code. */
int app_report(const remat_error *err, bool json);

/* The contract's exit code of a status, and the name of an error in JSON. */
int app_exit_code(remat_status status);
const char *app_error_name(remat_status status);

/* Says that the one JSON document is written, with the error in it if there is one. */
void app_document_done(void);

__attribute__((format(printf, 1, 2))) void app_warn(const char *fmt, ...);

/* Whether Ctrl-C was pressed (main.c). */
bool app_interrupted(void);

/* A line on stderr that is written over; only when stderr is a terminal. */
remat_progress_fn app_progress;
void app_progress_end(void);

/* Names a piece of longer work: from now on the line begins with it. */
__attribute__((format(printf, 1, 2))) void app_progress_name(const char *fmt, ...);

#endif /* RM_APP_OUTPUT_H */
