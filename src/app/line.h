/*
 * line.h: lines typed at a terminal (libedit), their history, and the signals of a chat. Part: app.
 *
 * One terminal, so the state is the file's own. libedit takes heap: app_line_open() comes before
 * the engine is opened, so that most of it counts as the program's, and APP_LINE_BYTES are claimed
 * for what a long line and the history may take later.
 *
 * Bytes are read one at a time here and not in libedit: its own reader takes a byte that is not
 * UTF-8 for the end of the input, and would miss a signal that comes just before it waits.
 */
#ifndef RM_APP_LINE_H
#define RM_APP_LINE_H

#include "remat.h"

#include <stdio.h>

enum {
    APP_LINE_MOST = 32 << 10, /* characters of a line, or of a paste */
    /* libedit holds a line some six times (undo, kill, conversion), four bytes a character. */
    APP_LINE_BYTES = 2 << 20,
};

typedef enum app_line_status {
    APP_LINE_TEXT,
    APP_LINE_END,       /* Ctrl-D, or the terminal is gone */
    APP_LINE_CANCELED,  /* Ctrl-C on a line with something on it */
    APP_LINE_INTERRUPT, /* Ctrl-C on an empty line */
    APP_LINE_TOO_LONG,  /* and dropped */
    APP_LINE_TERMINATED /* a signal asks the program to end */
} app_line_status;

/* out: where lines are shown. remember: with a history file. */
int app_line_open(FILE *out, bool remember, remat_error *err);

/* Gives the terminal back and writes the history. */
void app_line_close(void);

/* From now on Ctrl-C no longer ends the program: it cancels e while app_line_busy(true). */
void app_line_watch(remat_engine *e);

/* busy: a reply is being made. Returns whether Ctrl-C, or an end, was asked for since the last
 * call. */
bool app_line_busy(bool busy);

/* A signal has asked the program to end. */
bool app_line_terminated(void);

/* The next line, UTF-8 and terminated, without its line break (a paste may hold others); valid
 * until the next call. */
app_line_status app_line_read(const char *prompt, const char **text, size_t *bytes);

#endif /* RM_APP_LINE_H */
