/* template_print.c: values as text, as Python's str() and repr() give it. */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- floats --------------------------------------------------------------------------------- */

/* The shortest digits that give the same float again. In the C locale's form even where the
 * program around the library has set another: its decimal point may be any text. */
static size_t shortest(char out[40], double f) {
    char text[64];
    size_t n = 0;
    for (int digits = 1; digits <= 17; digits++) {
        const int count = snprintf(text, sizeof text, "%.*e", digits - 1, f);
        RM_ASSERT(count > 0 && (size_t)count < sizeof text);
        if (digits == 17 || strtod(text, NULL) == f) break;
    }
    bool point = false;
    for (const char *c = text; *c != '\0' && n < 39; c++) {
        const bool plain = (*c >= '0' && *c <= '9') || *c == '-' || *c == '+' || *c == 'e';
        if (plain || !point) out[n++] = plain ? *c : '.';
        point = !plain;
    }
    out[n] = '\0';
    return n;
}

/* "d.ddde+xx" as repr() shows it: plain from 1e-4 to below 1e16. */
size_t rm_tpl_float_text(char out[32], double f) {
    char text[40] = "", digits[24] = "";
    if (isnan(f)) return (size_t)snprintf(out, 32, "nan");
    if (isinf(f)) return (size_t)snprintf(out, 32, f < 0 ? "-inf" : "inf");
    shortest(text, f);
    const char *e = strchr(text, 'e');
    RM_ASSERT(e != NULL);
    const int exponent = (int)strtol(e + 1, NULL, 10);
    int count = 0;
    for (const char *c = text; c < e; c++) {
        if (*c >= '0' && *c <= '9') digits[count++] = *c;
    }
    size_t n = 0;
    if (text[0] == '-') out[n++] = '-';
    if (exponent < -4 || exponent >= 16) {
        out[n++] = digits[0];
        if (count > 1) out[n++] = '.';
        memcpy(out + n, digits + 1, (size_t)count - 1);
        n += (size_t)count - 1;
        return n + (size_t)snprintf(out + n, 32 - n, "e%c%02d", exponent < 0 ? '-' : '+',
                                    abs(exponent));
    }
    if (exponent < 0) {
        n += (size_t)snprintf(out + n, 32 - n, "0.%.*s%.*s", -exponent - 1, "000", count, digits);
        return n;
    }
    for (int i = 0; i < count || i <= exponent + 1; i++) {
        if (i == exponent + 1) out[n++] = '.';
        out[n++] = i < count ? digits[i] : '0';
    }
    return n;
}

/* The text is digits, point, exponent, sign: what the caller's grammar lets through. */
bool rm_tpl_read_float(double *out, const char *text, size_t count) {
    char copy[400], point[8];
    size_t n = 0;
    /* How this locale writes 1.5 says what stands for the point. */
    const int sample = snprintf(point, sizeof point, "%.1f", 1.5);
    if (sample < 3 || (size_t)sample >= sizeof point || count > 300) return false;
    for (size_t i = 0; i < count; i++) {
        if (text[i] != '.') {
            copy[n++] = text[i];
            continue;
        }
        memcpy(copy + n, point + 1, (size_t)sample - 2);
        n += (size_t)sample - 2;
    }
    copy[n] = '\0';
    char *end;
    *out = strtod(copy, &end);
    return n > 0 && end == copy + n;
}

/* --- repr ----------------------------------------------------------------------------------- */

static void put_escape(rm_tpl_build *b, uint32_t c, size_t bytes, const char *raw) {
    char text[16];
    const char *const simple = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : NULL;
    if (simple != NULL) {
        rm_tpl_put_text(b, simple);
        return;
    }
    if (c == RM_TPL_BAD_CHAR) {
        RM_ASSERT(bytes == 1);
        snprintf(text, sizeof text, "\\x%02x", (uint8_t)raw[0]);
    } else {
        snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
    rm_tpl_put_text(b, text);
}

static void repr_string(rm_tpl_build *b, const rm_tpl_string *s) {
    const bool single = s->count > 0 && memchr(s->bytes, '\'', s->count) != NULL;
    const bool other = s->count > 0 && memchr(s->bytes, '"', s->count) != NULL;
    const char quote = single && !other ? '"' : '\'';
    uint32_t c;
    rm_tpl_put(b, &quote, 1, false);
    for (size_t at = 0, n; at < s->count; at += n) {
        n = rm_tpl_char(s->bytes + at, s->count - at, &c);
        if (c == '\\' || c == (uint8_t)quote) {
            rm_tpl_put_text(b, "\\");
            rm_tpl_put_part(b, s, at, at + n);
        } else if (c == RM_TPL_BAD_CHAR || !rm_tpl_is_printable(c)) {
            put_escape(b, c, n, s->bytes + at);
        } else {
            rm_tpl_put_part(b, s, at, at + n);
        }
    }
    rm_tpl_put(b, &quote, 1, false);
}

static int repr_list(rm_tpl *t, rm_tpl_build *b, const rm_tpl_list *list) {
    static const char *const opens[] = {"[", "(", "dict_items([", "dict_keys([", "dict_values([",
                                        "["};
    static const char *const closes[] = {"]", ")", "])", "])", "])", "]"};
    rm_tpl_put_text(b, opens[list->kind]);
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0) rm_tpl_put_text(b, ", ");
        RM_TRY(rm_tpl_repr(t, b, &list->items[i]));
    }
    if (list->kind == RM_TPL_TUPLE && list->count == 1) rm_tpl_put_text(b, ",");
    rm_tpl_put_text(b, closes[list->kind]);
    return REMAT_OK;
}

static int repr_dict(rm_tpl *t, rm_tpl_build *b, const rm_tpl_dict *d) {
    rm_tpl_put_text(b, "{");
    for (uint32_t i = 0; i < d->count; i++) {
        if (i > 0) rm_tpl_put_text(b, ", ");
        RM_TRY(rm_tpl_repr(t, b, &d->pairs[i].key));
        rm_tpl_put_text(b, ": ");
        RM_TRY(rm_tpl_repr(t, b, &d->pairs[i].value));
    }
    rm_tpl_put_text(b, "}");
    return REMAT_OK;
}

/* What has a text of fixed size. 0: it has none. */
static size_t short_text(char out[96], const rm_tpl_value *v) {
    switch (v->type) {
    case RM_TPL_NONE:
        return (size_t)snprintf(out, 96, "None");
    case RM_TPL_BOOL:
        return (size_t)snprintf(out, 96, v->b ? "True" : "False");
    case RM_TPL_INT:
        return (size_t)snprintf(out, 96, "%lld", (long long)v->i);
    case RM_TPL_FLOAT:
        return rm_tpl_float_text(out, v->f);
    case RM_TPL_RANGE: {
        const rm_tpl_range *r = v->range;
        const long long stop = r->start + (int64_t)r->count * r->step;
        if (r->step == 1)
            return (size_t)snprintf(out, 96, "range(%lld, %lld)", (long long)r->start, stop);
        return (size_t)snprintf(out, 96, "range(%lld, %lld, %lld)", (long long)r->start, stop,
                                (long long)r->step);
    }
    case RM_TPL_LOOP:
        return (size_t)snprintf(out, 96, "<LoopContext %u>", (unsigned)v->loop->index + 1);
    case RM_TPL_MACRO:
    case RM_TPL_BUILTIN:
    case RM_TPL_METHOD:
        return (size_t)snprintf(out, 96, "<%s>", rm_tpl_type_name(v));
    default:
        return 0;
    }
}

int rm_tpl_repr(rm_tpl *t, rm_tpl_build *b, const rm_tpl_value *v) {
    RM_TRY(rm_tpl_enter(t));
    char text[96];
    switch (v->type) {
    case RM_TPL_UNDEFINED:
        rm_tpl_put_text(b, "Undefined");
        break;
    case RM_TPL_BIG:
        rm_tpl_put_part(b, v->s, 0, v->s->count);
        break;
    case RM_TPL_STRING:
        RM_TRY(rm_tpl_work(t, v->s->count));
        repr_string(b, v->s);
        break;
    case RM_TPL_LIST:
        RM_TRY(repr_list(t, b, v->list));
        break;
    case RM_TPL_NAMESPACE:
        rm_tpl_put_text(b, "<Namespace ");
        RM_TRY(repr_dict(t, b, v->dict));
        rm_tpl_put_text(b, ">");
        break;
    case RM_TPL_DICT:
        RM_TRY(repr_dict(t, b, v->dict));
        break;
    default:
        rm_tpl_put(b, text, short_text(text, v), v->own);
    }
    rm_tpl_leave(t);
    return REMAT_OK;
}

int rm_tpl_to_string(const rm_tpl_string **out, rm_tpl *t, const rm_tpl_value *v) {
    static const rm_tpl_string empty = {.bytes = ""};
    rm_tpl_value s = {.s = &empty};
    char text[96], *bytes;
    if (v->type == RM_TPL_STRING || v->type == RM_TPL_BIG) {
        s = *v;
    } else if (v->type == RM_TPL_LIST || v->type == RM_TPL_DICT || v->type == RM_TPL_NAMESPACE) {
        rm_tpl_build b;
        rm_tpl_build_start(&b, t);
        RM_TRY(rm_tpl_repr(t, &b, v));
        RM_TRY(rm_tpl_build_end(&s, t, &b));
    } else if (v->type != RM_TPL_UNDEFINED && v->type != RM_TPL_ABSENT) {
        const size_t n = short_text(text, v);
        RM_TRY(rm_tpl_take_bytes(&bytes, t, n));
        memcpy(bytes, text, n);
        RM_TRY(rm_tpl_string_of(&s, t, bytes, n, v->own));
    }
    *out = s.s;
    return REMAT_OK;
}
