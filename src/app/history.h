/* history.h: what was typed in chats, in a file that only the user can read. Part: app. */
#ifndef RM_APP_HISTORY_H
#define RM_APP_HISTORY_H

#include <histedit.h>
#include <stdbool.h>
#include <stddef.h>

/* read: takes what the file has. It is $XDG_STATE_HOME/remat/history, or ~/.local/state/.. */
void app_history_open(HistoryW *h, bool read);

/* Adds a line, unless it is long, starts with a blank or repeats the one before. */
void app_history_add(HistoryW *h, const wchar_t *line, size_t count);

/* Writes the file anew, or leaves it as it was: a chat does not fail because of it. */
void app_history_save(HistoryW *h);

#endif /* RM_APP_HISTORY_H */
