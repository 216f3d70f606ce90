/*
 * json.h: writes one JSON document into an rm_buf. Part: base. (Jansson, in app/, reads JSON.)
 *
 *     rm_json j;
 *     rm_json_start(&j, &buf);
 *     rm_json_open(&j, NULL, '{');
 *     rm_json_text(&j, "name", text, bytes);
 *     rm_json_open(&j, "list", '[');
 *     rm_json_u64(&j, NULL, 7);
 *     rm_json_close(&j, ']');
 *     rm_json_close(&j, '}');
 *
 * Inside an object every call has a key, inside an array none (asserted). Bytes that are not UTF-8
 * become U+FFFD (one for each maximal invalid part, as the Unicode standard recommends). Numbers
 * that are not finite become null. Nesting is limited to 32.
 */
#ifndef RM_BASE_JSON_H
#define RM_BASE_JSON_H

#include "base/buf.h"

typedef struct rm_json {
    rm_buf *out;
    uint32_t depth;
    char close[32];
    bool any[33];
} rm_json;

void rm_json_start(rm_json *j, rm_buf *out);
void rm_json_open(rm_json *j, const char *key, char bracket); /* '{' or '[' */
void rm_json_close(rm_json *j, char bracket);                 /* '}' or ']' */
void rm_json_text(rm_json *j, const char *key, const char *bytes, size_t count);
void rm_json_string(rm_json *j, const char *key, const char *text);
void rm_json_u64(rm_json *j, const char *key, uint64_t v);
void rm_json_i64(rm_json *j, const char *key, int64_t v);
void rm_json_f64(rm_json *j, const char *key, double v, int digits); /* significant digits */
void rm_json_bool(rm_json *j, const char *key, bool v);
void rm_json_null(rm_json *j, const char *key);

#endif /* RM_BASE_JSON_H */
