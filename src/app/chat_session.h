/*
 * chat_session.h: a chat at a terminal, and its parts. Part: app.
 *
 *     cmd_chat.c       set-up, the loop: lines to messages, commands, the end
 *     chat_turn.c      one reply: tokens, what of the cache stays, text as it comes
 *     chat_command.c   /commands
 *     chat_file.c      /save /load /read
 *     talk.[ch] words.[ch] think.[ch]   conversation, commands and thoughts, without any of these
 *     line.[ch] history.[ch]            the terminal
 *
 * All memory is taken before remat_start(), in sizes that follow from the context.
 */
#ifndef RM_APP_CHAT_SESSION_H
#define RM_APP_CHAT_SESSION_H

#include "app/app.h"
#include "app/line.h"
#include "app/talk.h"
#include "app/words.h"

typedef struct app_chat {
    const app_args *args;
    remat_engine *engine;
    remat_sequence *sequence;
    app_settings settings;
    app_talk talk;
    app_text source; /* a template in place of the model's */
    uint32_t context;
    uint32_t *ids; /* context of them */
    char *scratch; /* the conversation as JSON, or a file that is read */
    size_t scratch_bytes;
    uint32_t attempt;  /* of the same message: /regen */
    bool stale_cancel; /* Ctrl-C came when there was nothing left to cancel */
    bool to_terminal;  /* the reply goes to a terminal: no control characters */
    bool colour;
    FILE *out; /* what is not the reply: the terminal */
    /* the last reply */
    remat_result last;
    uint32_t last_cached;
    /* of the reply that is being made */
    app_think think;
    bool dim, thought, full, output_failed;
    char last_byte;
} app_chat;

__attribute__((format(printf, 2, 3))) void app_chat_say(const app_chat *c, const char *fmt, ...);

/* Tokens of the conversation as it is; reply: with what opens a reply.
 * Errors: as remat_tokenize_chat(). */
int app_chat_tokens(size_t *count, app_chat *c, bool reply, remat_error *err);

/* Makes the reply to the last message and adds it; what Ctrl-C leaves of it too. After an error the
 * conversation ends with the message, and says why. */
int app_chat_reply(app_chat *c, remat_error *err);

/* Sends the draft. Errors that are about this message only are said, and the message is taken back;
 * others end the chat. */
int app_chat_send(app_chat *c, remat_error *err);

/* Does a command other than to leave. Errors end the chat. */
int app_chat_command(app_chat *c, app_verb verb, const char *rest, remat_error *err);

/* Writes the conversation; the file is the old one or the whole new one, whatever happens.
 * Errors: REMAT_E_FAILED. */
int app_chat_save(const app_chat *c, const char *path, remat_error *err);

/* Replaces the conversation; after an error it is as it was. */
int app_chat_load(app_chat *c, const char *path, remat_error *err);

/* Adds a file's text to the draft, and says how many bytes. */
int app_chat_read(size_t *bytes, app_chat *c, const char *path, remat_error *err);

#endif /* RM_APP_CHAT_SESSION_H */
