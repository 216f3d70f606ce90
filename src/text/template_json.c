/*
 * template_json.c: reads JSON. Strict: UTF-8 is kept as it is, escapes of lone surrogates become
 * U+FFFD, integers and floats stay apart, of equal keys the last value counts. Text from here has
 * mark 0. A string without escapes is a part of the input: it costs no memory.
 */
#include "text/template_impl.h"

typedef struct reader {
    rm_tpl *t;
    const rm_tpl_string *json;
    const char *what; /* for messages */
    size_t at;
} reader;

static int fail(const reader *r, const char *why) {
    return rm_tpl_fail(r->t, "%s: byte %zu: %s", r->what, r->at + 1, why);
}

/* The character here; NUL (which JSON does not have) at the end. */
static char peek(const reader *r) {
    return r->at < r->json->count ? r->json->bytes[r->at] : '\0';
}

static char skip_space(reader *r) {
    while (peek(r) == ' ' || peek(r) == '\n' || peek(r) == '\t' || peek(r) == '\r')
        r->at++;
    return peek(r);
}

static int hex4(uint32_t *out, reader *r) {
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char c = peek(r), l = (char)(c | 0x20);
        const bool digit = c >= '0' && c <= '9';
        if (!digit && !(l >= 'a' && l <= 'f')) return fail(r, "\\u wants 4 hexadecimal digits");
        *out = *out << 4 | (uint32_t)(digit ? c - '0' : l - 'a' + 10);
    }
    return REMAT_OK;
}

/* Behind "\u". */
static int unicode_escape(rm_tpl_build *b, reader *r) {
    uint32_t c, low;
    RM_TRY(hex4(&c, r));
    const bool high = c >= 0xD800 && c <= 0xDBFF;
    if (high && peek(r) == '\\' && r->at + 1 < r->json->count && r->json->bytes[r->at + 1] == 'u') {
        const size_t before = r->at;
        r->at += 2;
        RM_TRY(hex4(&low, r));
        if (low >= 0xDC00 && low <= 0xDFFF)
            c = 0x10000 + ((c - 0xD800) << 10 | (low - 0xDC00));
        else
            r->at = before;
    }
    if (c >= 0xD800 && c <= 0xDFFF) c = 0xFFFD;
    char text[4];
    rm_tpl_put(b, text, rm_tpl_char_put(text, c), false);
    return REMAT_OK;
}

static int escaped_string(rm_tpl_value *out, reader *r, size_t from, size_t to) {
    static const char plain[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    rm_tpl_build b;
    rm_tpl_build_start(&b, r->t);
    r->at = from;
    while (r->at < to) {
        const char *hit = memchr(r->json->bytes + r->at, '\\', to - r->at);
        const size_t stop = hit != NULL ? (size_t)(hit - r->json->bytes) : to;
        rm_tpl_put_part(&b, r->json, r->at, stop);
        r->at = stop;
        if (stop == to) break;
        const char c = r->json->bytes[stop + 1];
        r->at = stop + 2;
        if (c == 'u') {
            RM_TRY(unicode_escape(&b, r));
            continue;
        }
        size_t i = 0;
        while (i + 1 < sizeof plain && plain[i] != c)
            i += 2;
        if (i + 1 >= sizeof plain) return fail(r, "an escape that JSON does not have");
        rm_tpl_put(&b, plain + i + 1, 1, false);
    }
    return rm_tpl_build_end(out, r->t, &b);
}

static int read_string(rm_tpl_value *out, reader *r) {
    const size_t from = ++r->at;
    bool escapes = false;
    for (; peek(r) != '"'; r->at++) {
        if ((uint8_t)peek(r) < 0x20)
            return fail(r, "a string is not closed, or holds a control character");
        if (peek(r) != '\\') continue;
        escapes = true;
        r->at++;
        if ((uint8_t)peek(r) < 0x20) return fail(r, "a string is not closed");
    }
    const size_t to = r->at;
    RM_TRY(rm_tpl_work(r->t, to - from));
    if (escapes)
        RM_TRY(escaped_string(out, r, from, to));
    else
        RM_TRY(rm_tpl_part(out, r->t, r->json, from, to));
    r->at = to + 1;
    return REMAT_OK;
}

static size_t digits(reader *r) {
    const size_t from = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return r->at - from;
}

static int read_number(rm_tpl_value *out, reader *r) {
    const size_t from = r->at;
    const bool negative = peek(r) == '-';
    r->at += negative;
    const size_t first = r->at, whole = digits(r);
    if (whole == 0) return fail(r, "a value is expected");
    if (whole > 1 && r->json->bytes[first] == '0') return fail(r, "a number starts with 0");
    bool is_float = false;
    if (peek(r) == '.') {
        is_float = true;
        r->at++;
        if (digits(r) == 0) return fail(r, "a digit is expected");
    }
    if ((peek(r) | 0x20) == 'e') {
        is_float = true;
        r->at++;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        if (digits(r) == 0) return fail(r, "a digit is expected");
    }
    RM_TRY(rm_tpl_work(r->t, r->at - from));
    if (is_float) {
        *out = rm_tpl_float(0);
        if (!rm_tpl_read_float(&out->f, r->json->bytes + from, r->at - from))
            return fail(r, "a number is too long");
        return REMAT_OK;
    }
    int64_t i = 0;
    bool over = false;
    for (size_t at = first; at < r->at && !over; at++) {
        const int d = r->json->bytes[at] - '0';
        over =
            __builtin_mul_overflow(i, 10, &i) || __builtin_add_overflow(i, negative ? -d : d, &i);
    }
    *out = rm_tpl_int(i);
    if (!over) return REMAT_OK;
    RM_TRY(rm_tpl_part(out, r->t, r->json, from, r->at));
    out->type = RM_TPL_BIG;
    return REMAT_OK;
}

static int read_value(rm_tpl_value *out, reader *r);

static int read_list(rm_tpl_value *out, reader *r) {
    rm_tpl_list *list;
    RM_TRY(rm_tpl_list_new(&list, r->t, RM_TPL_PLAIN, 0));
    r->at++;
    while (skip_space(r) != ']' || list->count > 0) {
        rm_tpl_value v;
        RM_TRY(read_value(&v, r));
        RM_TRY(rm_tpl_list_add(r->t, list, &v));
        const char c = skip_space(r);
        if (c == ']') break;
        if (c != ',') return fail(r, "',' or ']' is expected");
        r->at++;
    }
    r->at++;
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int read_object(rm_tpl_value *out, reader *r) {
    rm_tpl_dict *dict;
    RM_TRY(rm_tpl_dict_new(&dict, r->t));
    r->at++;
    while (skip_space(r) != '}' || dict->count > 0) {
        rm_tpl_value key, v;
        if (peek(r) != '"') return fail(r, "a key is expected");
        RM_TRY(read_string(&key, r));
        if (skip_space(r) != ':') return fail(r, "':' is expected");
        r->at++;
        skip_space(r);
        RM_TRY(read_value(&v, r));
        RM_TRY(rm_tpl_dict_set(r->t, dict, &key, &v));
        const char c = skip_space(r);
        if (c == '}') break;
        if (c != ',') return fail(r, "',' or '}' is expected");
        r->at++;
    }
    r->at++;
    *out = (rm_tpl_value){.type = RM_TPL_DICT, .dict = dict};
    return REMAT_OK;
}

static int read_value(rm_tpl_value *out, reader *r) {
    static const struct {
        const char *word;
        rm_tpl_value v;
    } words[] = {{"null", {.type = RM_TPL_NONE}},
                 {"true", {.type = RM_TPL_BOOL, .b = true}},
                 {"false", {.type = RM_TPL_BOOL, .b = false}}};
    RM_TRY(rm_tpl_enter(r->t));
    const char c = skip_space(r);
    if (c == '{') {
        RM_TRY(read_object(out, r));
    } else if (c == '[') {
        RM_TRY(read_list(out, r));
    } else if (c == '"') {
        RM_TRY(read_string(out, r));
    } else {
        size_t i = 0, n = 0;
        for (; i < 3; i++) {
            n = strlen(words[i].word);
            if (n <= r->json->count - r->at &&
                memcmp(r->json->bytes + r->at, words[i].word, n) == 0)
                break;
        }
        if (i == 3) {
            RM_TRY(read_number(out, r));
        } else {
            *out = words[i].v;
            r->at += n;
        }
    }
    rm_tpl_leave(r->t);
    return REMAT_OK;
}

int rm_tpl_json_read(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *json, const char *what) {
    reader r = {.t = t, .json = json, .what = what};
    RM_TRY(rm_tpl_work(t, json->count));
    RM_TRY(read_value(out, &r));
    skip_space(&r);
    return r.at == json->count ? REMAT_OK : fail(&r, "something follows the value");
}
