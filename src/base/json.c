/*
 * json.c: see json.h. Output is compact: no blanks, no line breaks. Text is written as UTF-8, with
 * escapes only where JSON demands them.
 */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void rm_json_start(rm_json *j, rm_buf *out) {
    memset(j, 0, sizeof *j);
    j->out = out;
}

/* Length of the UTF-8 character at bytes, or minus the length of the maximal invalid part: the
 * longest run that begins like a character and could still have become one (Unicode 3.9, U+FFFD
 * substitution of maximal subparts). count is at least 1. */
static int character(const uint8_t *bytes, size_t count) {
    const uint8_t first = bytes[0];
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return -1;
    const int length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    /* Only the second byte has a narrower range: no overlong forms, surrogates, or above 10FFFF. */
    uint8_t low = 0x80, high = 0xbf;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= count || bytes[i] < low || bytes[i] > high) return -i;
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

static void escape(rm_buf *b, uint8_t c) {
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *p = c != 0 ? strchr(plain, c) : NULL;
    if (p != NULL) {
        rm_buf_put(b, (const char[2]){'\\', letter[p - plain]}, 2);
    } else {
        rm_buf_put(b, (const char[6]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
    }
}

static void quoted(rm_buf *b, const char *bytes, size_t count) {
    rm_buf_put(b, "\"", 1);
    size_t from = 0, at = 0; /* bytes[from .. at) are fine as they are */
    while (at < count) {
        const uint8_t c = (uint8_t)bytes[at];
        const int length = character((const uint8_t *)bytes + at, count - at);
        if (length > 0 && c >= 0x20 && c != '"' && c != '\\') {
            at += (size_t)length;
            continue;
        }
        rm_buf_put(b, bytes + from, at - from);
        if (length > 0) {
            escape(b, c);
            at += 1;
        } else {
            rm_buf_put(b, "\xef\xbf\xbd", 3);
            at += (size_t)-length;
        }
        from = at;
    }
    rm_buf_put(b, bytes + from, at - from);
    rm_buf_put(b, "\"", 1);
}

/* What stands before a value: the comma and the key. */
static void before(rm_json *j, const char *key) {
    const bool in_object = j->depth > 0 && j->close[j->depth - 1] == '}';
    RM_ASSERT((key != NULL) == in_object);
    RM_ASSERT(j->depth > 0 || !j->any[0]); /* one document */
    if (j->any[j->depth]) rm_buf_put(j->out, ",", 1);
    j->any[j->depth] = true;
    if (key == NULL) return;
    quoted(j->out, key, strlen(key));
    rm_buf_put(j->out, ":", 1);
}

void rm_json_open(rm_json *j, const char *key, char bracket) {
    RM_ASSERT(bracket == '{' || bracket == '[');
    RM_ASSERT(j->depth < sizeof j->close);
    before(j, key);
    rm_buf_put(j->out, &bracket, 1);
    j->close[j->depth++] = bracket == '{' ? '}' : ']';
    j->any[j->depth] = false;
}

void rm_json_close(rm_json *j, char bracket) {
    RM_ASSERT(j->depth > 0);
    RM_ASSERT(j->close[j->depth - 1] == bracket);
    j->depth--;
    rm_buf_put(j->out, &bracket, 1);
}

void rm_json_text(rm_json *j, const char *key, const char *bytes, size_t count) {
    before(j, key);
    quoted(j->out, bytes, count);
}

void rm_json_string(rm_json *j, const char *key, const char *text) {
    rm_json_text(j, key, text, strlen(text));
}

void rm_json_u64(rm_json *j, const char *key, uint64_t v) {
    before(j, key);
    rm_buf_format(j->out, "%llu", (unsigned long long)v);
}

void rm_json_i64(rm_json *j, const char *key, int64_t v) {
    before(j, key);
    rm_buf_format(j->out, "%lld", (long long)v);
}

void rm_json_f64(rm_json *j, const char *key, double v, int digits) {
    RM_ASSERT(digits >= 1 && digits <= 17);
    if (!isfinite(v)) {
        rm_json_null(j, key);
        return;
    }
    before(j, key);
    char text[40];
    const int count = snprintf(text, sizeof text, "%.*g", digits, v);
    RM_ASSERT(count > 0 && (size_t)count < sizeof text);
    /* The program around the library may have set a locale, whose decimal point can be any text. */
    bool in_point = false;
    for (int i = 0; i < count; i++) {
        const char c = text[i];
        const bool point = !(c >= '0' && c <= '9') && c != '-' && c != '+' && c != 'e';
        if (!point) rm_buf_put(j->out, &c, 1);
        if (point && !in_point) rm_buf_put(j->out, ".", 1);
        in_point = point;
    }
}

void rm_json_bool(rm_json *j, const char *key, bool v) {
    before(j, key);
    rm_buf_text(j->out, v ? "true" : "false");
}

void rm_json_null(rm_json *j, const char *key) {
    before(j, key);
    rm_buf_text(j->out, "null");
}
