/* escape.h: escapes in texts of the command line. Part: app. */
#ifndef RM_APP_ESCAPE_H
#define RM_APP_ESCAPE_H

#include "app/args.h"

/* Replaces \n \r \t \' \" \\ and \xHH in place, those that llama.cpp's -e replaces. Any other
 * backslash stays, and so does \x00, which would end the text. */
void app_unescape(char *text);

/* The same for prompt, system and stop texts; they lie in argv, which a program may change. */
void app_unescape_all(const app_args *args);

#endif /* RM_APP_ESCAPE_H */
