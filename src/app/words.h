/* words.h: the commands of a chat and what can be set in it; nothing is done here. Part: app. */
#ifndef RM_APP_WORDS_H
#define RM_APP_WORDS_H

#include "app/think.h"

typedef enum app_verb {
    APP_VERB_NONE, /* no command: text for the model */
    APP_VERB_UNKNOWN,
    APP_VERB_HELP,
    APP_VERB_CLEAR,
    APP_VERB_REGEN,
    APP_VERB_UNDO,
    APP_VERB_SYSTEM,
    APP_VERB_SET,
    APP_VERB_SAVE,
    APP_VERB_LOAD,
    APP_VERB_READ,
    APP_VERB_TOKENS,
    APP_VERB_MEM,
    APP_VERB_STATS,
    APP_VERB_LEAVE,
} app_verb;

/* What a line asks for. A command is one line that starts with a slash; *rest is what follows its
 * name, without blanks around, terminated where the line is. */
app_verb app_verb_of(const char *line, size_t bytes, const char **rest);

/* Line i of the help, or NULL after the last. */
const char *app_verb_help(size_t i);

/* The longest text that all commands (or, after "/set ", all names) with this beginning go on with;
 * names that fit are listed in list, one blank between. Returns how many there are. */
size_t app_complete(char *more, size_t more_cap, char *list, size_t list_cap, const char *line);

typedef struct app_settings {
    remat_sampling sampling;
    bool seed_given;
    uint32_t predict; /* REMAT_ALL: until the end */
    app_reasoning reasoning;
} app_settings;

/* "temp 0.5". Errors: REMAT_E_USAGE; then *s is as it was. */
int app_settings_parse(app_settings *s, const char *text, remat_error *err);

/* All of them, on one line. */
void app_settings_print(char *out, size_t cap, const app_settings *s);

#endif /* RM_APP_WORDS_H */
