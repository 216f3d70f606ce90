/* escape.c: see escape.h. */
#include "app/escape.h"

#include <stddef.h>
#include <string.h>

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The byte of the escape at p (behind the backslash) and how many bytes it has; 0: it is none. */
static size_t escape_at(char *out, const char *p) {
    static const char letters[] = "nrt'\"\\", bytes[] = "\n\r\t'\"\\";
    const char *at = *p != '\0' ? strchr(letters, *p) : NULL;
    if (at != NULL) {
        *out = bytes[at - letters];
        return 1;
    }
    if (p[0] != 'x' || hex(p[1]) < 0 || hex(p[2]) < 0) return 0;
    const int byte = 16 * hex(p[1]) + hex(p[2]);
    if (byte == 0) return 0;
    *out = (char)byte;
    return 3;
}

void app_unescape(char *text) {
    char *to = text;
    for (const char *p = text; *p != '\0';) {
        char byte = *p;
        p += 1 + (*p == '\\' ? escape_at(&byte, p + 1) : 0);
        *to++ = byte;
    }
    *to = '\0';
}

void app_unescape_all(const app_args *args) {
    const char *texts[2 + REMAT_STOPS_MAX] = {args->prompt, args->system};
    memcpy(texts + 2, args->stops, args->stop_count * sizeof *texts);
    for (uint32_t i = 0; i < 2 + args->stop_count; i++) {
        char *text;
        memcpy(&text, &texts[i], sizeof text);
        if (text != NULL) app_unescape(text);
    }
}
