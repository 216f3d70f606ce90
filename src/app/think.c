/* think.c: see think.h. */
#include "app/think.h"
#include "base/check.h"

#include <string.h>

static const char open_tag[] = "<think>", close_tag[] = "</think>";

enum { OPEN_BYTES = sizeof open_tag - 1, CLOSE_BYTES = sizeof close_tag - 1 };

static const char *const names[] = {"auto", "on", "off"};

int app_reasoning_parse(app_reasoning *out, const char *text, remat_error *err) {
    *out = APP_REASONING_AUTO;
    if (text == NULL) return REMAT_OK;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *out = (app_reasoning)i;
        return REMAT_OK;
    }
    return rm_fail(err, REMAT_E_USAGE, "reasoning: \"%.40s\" is not auto, on or off", text);
}

const char *app_reasoning_name(app_reasoning r) {
    return names[r];
}

static bool blank(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

bool app_think_opened(const remat_engine *e, const uint32_t *ids, size_t count) {
    char text[256];
    /* The tag may be one token or several; what follows it is a line break at most. */
    for (size_t last = 1; last <= 8 && last <= count; last++) {
        size_t n = remat_detokenize(text, sizeof text, e, ids + count - last, last, true);
        if (n > sizeof text) return false;
        while (n > 0 && blank(text[n - 1]))
            n--;
        if (n >= OPEN_BYTES) return memcmp(text + n - OPEN_BYTES, open_tag, OPEN_BYTES) == 0;
    }
    return false;
}

void app_think_start(app_think *t, bool split, bool opened) {
    t->state = !split ? APP_THINK_OUT : opened ? APP_THINK_ENTER : APP_THINK_START;
    t->at = 0;
}

/* How many bytes of the tag text[at ..) begins with: all of them, or up to the end of the text. */
static size_t begins(const char *text, size_t at, size_t count, const char *tag, size_t tag_bytes) {
    const size_t left = count - at, n = left < tag_bytes ? left : tag_bytes;
    return memcmp(text + at, tag, n) == 0 ? n : 0;
}

static size_t after_blanks(const char *text, size_t at, size_t count) {
    while (at < count && blank(text[at]))
        at++;
    return at;
}

/* At the start: is it a tag? False: not clear yet. */
static bool decide(app_think *t, const char *text, size_t count, bool end) {
    const size_t at = after_blanks(text, 0, count);
    const size_t n = begins(text, at, count, open_tag, OPEN_BYTES);
    if (n == OPEN_BYTES) {
        t->state = APP_THINK_ENTER;
        t->at = at + OPEN_BYTES;
        return true;
    }
    if (at + n == count && !end) return false;
    t->state = APP_THINK_OUT;
    return true;
}

/* Inside: up to the closing tag, or what may become one. */
static bool inside(app_piece *out, app_think *t, const char *text, size_t count, bool end) {
    size_t stop = t->at, n = 0;
    for (; stop < count; stop++) {
        n = begins(text, stop, count, close_tag, CLOSE_BYTES);
        if (n > 0 && (n == CLOSE_BYTES || !end)) break;
    }
    *out = (app_piece){.reasoning = true, .bytes = text + t->at, .count = stop - t->at};
    t->at = stop;
    if (stop < count && n == CLOSE_BYTES) {
        t->at += CLOSE_BYTES;
        t->state = APP_THINK_LEAVE;
    }
    return out->count > 0;
}

bool app_think_next(app_piece *out, app_think *t, const char *text, size_t count, bool end) {
    if (t->state == APP_THINK_START && !decide(t, text, count, end)) return false;
    if (t->state == APP_THINK_ENTER) {
        t->at = after_blanks(text, t->at, count);
        if (t->at == count) return false;
        t->state = APP_THINK_INSIDE;
    }
    if (t->state == APP_THINK_INSIDE && inside(out, t, text, count, end)) return true;
    if (t->state == APP_THINK_LEAVE) {
        t->at = after_blanks(text, t->at, count);
        if (t->at == count) return false;
        t->state = APP_THINK_OUT;
    }
    if (t->state != APP_THINK_OUT || t->at == count) return false;
    *out = (app_piece){.bytes = text + t->at, .count = count - t->at};
    t->at = count;
    return true;
}
