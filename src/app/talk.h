/*
 * talk.h: a conversation in memory of fixed size. Part: app.
 *
 *     text   | message 0 | message 1 | ... | draft |      free      |
 *            0                             used    used + draft     cap
 *
 * The draft grows at the end (typed lines, files, the reply as it comes) and becomes a message. The
 * system message, where there is one, is message 0. Nothing here takes memory.
 */
#ifndef RM_APP_TALK_H
#define RM_APP_TALK_H

#include "base/json.h"

typedef enum app_role { APP_SYSTEM, APP_USER, APP_ASSISTANT } app_role;

typedef struct app_message {
    app_role role;
    size_t at, bytes;
} app_message;

typedef struct app_talk {
    char *text; /* the caller's, as messages */
    size_t cap, used, draft;
    app_message *messages;
    uint32_t message_cap, count;
} app_talk;

/* All of these: false when there is no room, and nothing is changed. */
bool app_talk_add(app_talk *t, const char *bytes, size_t count); /* to the draft */
bool app_talk_push(app_talk *t, app_role role);                  /* the draft is a message now */
/* Sets the system message; of no bytes: there is none. bytes lie outside of the conversation. */
bool app_talk_system(app_talk *t, const char *bytes, size_t count);

void app_talk_drop_draft(app_talk *t);
void app_talk_pop(app_talk *t);   /* the last message; the draft stays */
void app_talk_clear(app_talk *t); /* all but the system message */

/* The last message has this role. */
bool app_talk_ends_with(const app_talk *t, app_role role);

/* The member "messages" of an object. */
void app_talk_json(const app_talk *t, rm_json *j);

/* "system", "user", "assistant"; false for another name. */
bool app_role_parse(app_role *out, const char *name);

#endif /* RM_APP_TALK_H */
