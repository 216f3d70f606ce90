/*
 * think.h: a reply taken apart: what the model thinks, what it answers. Part: app.
 *
 * Models that think write "<think> .. </think>" before the answer, or only its end where the chat
 * template has already opened it. The reply is kept whole by the caller, and grows; the splitter
 * remembers how far it has looked, so that a tag that is cut by the border of two tokens is held
 * back until it is clear what it is.
 */
#ifndef RM_APP_THINK_H
#define RM_APP_THINK_H

#include "remat.h"

typedef enum app_reasoning {
    APP_REASONING_AUTO, /* taken apart where it is there */
    APP_REASONING_ON,   /* and asked for: enable_thinking in the template */
    APP_REASONING_OFF,  /* asked not to; the reply stays whole */
} app_reasoning;

/* "auto", "on", "off"; NULL is auto. Errors: REMAT_E_USAGE. */
int app_reasoning_parse(app_reasoning *out, const char *text, remat_error *err);
const char *app_reasoning_name(app_reasoning r);

/* Whether the prompt ends inside an open <think>. */
bool app_think_opened(const remat_engine *e, const uint32_t *ids, size_t count);

typedef struct app_think {
    enum {
        APP_THINK_START,
        APP_THINK_ENTER,
        APP_THINK_INSIDE,
        APP_THINK_LEAVE,
        APP_THINK_OUT
    } state;
    size_t at; /* bytes of the reply that are dealt with */
} app_think;

typedef struct app_piece {
    bool reasoning;
    const char *bytes;
    size_t count;
} app_piece;

/* split: false leaves the reply whole. opened: it starts inside. */
void app_think_start(app_think *t, bool split, bool opened);

/* The next piece of the reply, text[0 .. count) so far; end: nothing follows. False: none yet. Tags
 * and the blanks beside them are in no piece. */
bool app_think_next(app_piece *out, app_think *t, const char *text, size_t count, bool end);

#endif /* RM_APP_THINK_H */
