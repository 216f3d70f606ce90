/* template_string.c: strings with their marks. A part of a string shares its bytes. */
#include "text/template_impl.h"

int rm_tpl_string_of(rm_tpl_value *out, rm_tpl *t, const char *bytes, size_t count, bool mark) {
    rm_tpl_string *s;
    RM_TRY(rm_tpl_take(&s, t, 1, sizeof *s));
    *s = (rm_tpl_string){.bytes = bytes, .count = count, .mark = mark};
    *out = rm_tpl_of_string(s);
    return REMAT_OK;
}

int rm_tpl_part(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, size_t from, size_t to) {
    if (from > to) from = to;
    if (from == 0 && to == s->count) {
        *out = rm_tpl_of_string(s);
        return REMAT_OK;
    }
    rm_tpl_string *part;
    RM_TRY(rm_tpl_take(&part, t, 1, sizeof *part));
    *part = (rm_tpl_string){.bytes = s->bytes + from, .count = to - from, .mark = s->mark};
    if (s->marks != NULL) part->marks = s->marks + from;
    *out = rm_tpl_of_string(part);
    return REMAT_OK;
}

int rm_tpl_concat(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *const *parts, size_t count) {
    size_t total = 0, filled = 0, last = 0;
    bool same = true;
    for (size_t i = 0; i < count; i++) {
        if (parts[i]->count == 0) continue;
        if (parts[i]->count > SIZE_MAX / 4 - total) return rm_tpl_take_bytes(out, t, SIZE_MAX);
        if (parts[i]->marks != NULL || (filled > 0 && parts[i]->mark != parts[last]->mark))
            same = false;
        total += parts[i]->count;
        filled++;
        last = i;
    }
    RM_TRY(rm_tpl_work(t, total + count));
    if (filled == 1 || (filled == 0 && count > 0)) {
        *out = rm_tpl_of_string(parts[last]);
        return REMAT_OK;
    }
    rm_tpl_string *s;
    char *bytes;
    uint8_t *marks = NULL;
    RM_TRY(rm_tpl_take(&s, t, 1, sizeof *s));
    RM_TRY(rm_tpl_take_bytes(&bytes, t, total));
    if (!same) RM_TRY(rm_tpl_take_bytes(&marks, t, total));
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const rm_tpl_string *p = parts[i];
        if (p->count == 0) continue;
        memcpy(bytes + at, p->bytes, p->count);
        if (!same && p->marks != NULL) memcpy(marks + at, p->marks, p->count);
        if (!same && p->marks == NULL) memset(marks + at, p->mark, p->count);
        at += p->count;
    }
    *s = (rm_tpl_string){.bytes = bytes, .marks = marks, .count = total};
    s->mark = filled > 0 && parts[last]->mark;
    *out = rm_tpl_of_string(s);
    return REMAT_OK;
}

bool rm_tpl_is_text(const rm_tpl_string *s, const char *text) {
    const size_t n = strlen(text);
    return s->count == n && memcmp(s->bytes, text, n) == 0;
}

bool rm_tpl_same_text(const rm_tpl_string *a, const rm_tpl_string *b) {
    return a == b || (a->count == b->count && memcmp(a->bytes, b->bytes, a->count) == 0);
}

size_t rm_tpl_char_count(const rm_tpl_string *s) {
    size_t chars = 0;
    uint32_t code;
    for (size_t at = 0; at < s->count; chars++)
        at += rm_tpl_char(s->bytes + at, s->count - at, &code);
    return chars;
}

size_t rm_tpl_char_offset(const rm_tpl_string *s, size_t index) {
    size_t at = 0;
    uint32_t code;
    for (; index > 0 && at < s->count; index--)
        at += rm_tpl_char(s->bytes + at, s->count - at, &code);
    return at;
}

static bool to_be_stripped(const rm_tpl_string *chars, const char *c, size_t n, uint32_t code) {
    if (chars == NULL) return rm_tpl_is_space(code);
    uint32_t other;
    for (size_t at = 0, length; at < chars->count; at += length) {
        length = rm_tpl_char(chars->bytes + at, chars->count - at, &other);
        if (length == n && memcmp(chars->bytes + at, c, n) == 0) return true;
    }
    return false;
}

int rm_tpl_strip(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, const rm_tpl_string *chars,
                 bool left, bool right) {
    size_t from = 0, to = s->count;
    uint32_t code;
    const size_t each = chars != NULL ? chars->count : 0; /* looked at for each character */
    while (left && from < to) {
        const size_t n = rm_tpl_char(s->bytes + from, to - from, &code);
        if (!to_be_stripped(chars, s->bytes + from, n, code)) break;
        RM_TRY(rm_tpl_work(t, each));
        from += n;
    }
    while (right && from < to) {
        size_t at = to - 1; /* to the character's first byte, if it has one */
        while (at > from && to - at < 4 && ((uint8_t)s->bytes[at] & 0xC0) == 0x80)
            at--;
        if (rm_tpl_char(s->bytes + at, to - at, &code) != to - at) {
            at = to - 1;
            code = RM_TPL_BAD_CHAR;
        }
        if (!to_be_stripped(chars, s->bytes + at, to - at, code)) break;
        RM_TRY(rm_tpl_work(t, each));
        to = at;
    }
    return rm_tpl_part(out, t, s, from, to);
}

static bool starts_title(uint32_t c) {
    return rm_tpl_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

static uint32_t changed_char(uint32_t c, rm_tpl_case how, uint32_t before, bool first) {
    switch (how) {
    case RM_TPL_UPPER:
        return rm_tpl_upper(c);
    case RM_TPL_LOWER:
        return rm_tpl_lower(c);
    case RM_TPL_CAPITALIZE:
        return first ? rm_tpl_upper(c) : rm_tpl_lower(c);
    case RM_TPL_TITLE:
        return first || !rm_tpl_is_letter(before) ? rm_tpl_upper(c) : rm_tpl_lower(c);
    case RM_TPL_TITLE_FILTER:
        return first || starts_title(before) ? rm_tpl_upper(c) : rm_tpl_lower(c);
    case RM_TPL_SWAP:
        return rm_tpl_lower(c) != c ? rm_tpl_lower(c) : rm_tpl_upper(c);
    }
    return c;
}

int rm_tpl_change_case(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, rm_tpl_case how) {
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    uint32_t before = 0, c;
    for (size_t at = 0, n; at < s->count; at += n, before = c) {
        n = rm_tpl_char(s->bytes + at, s->count - at, &c);
        const uint32_t new = changed_char(c, how, before, at == 0);
        char text[4];
        if (c == 0xDF && (how == RM_TPL_UPPER || how == RM_TPL_SWAP)) {
            rm_tpl_put(&b, "SS", 2, rm_tpl_mark_at(s, at)); /* the only one that grows here */
        } else if (new == c) {
            rm_tpl_put_part(&b, s, at, at + n);
        } else {
            rm_tpl_put(&b, text, rm_tpl_char_put(text, new), rm_tpl_mark_at(s, at));
        }
    }
    return rm_tpl_build_end(out, t, &b);
}

int rm_tpl_replace(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, const rm_tpl_string *old,
                   const rm_tpl_string *new, int64_t most) {
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    size_t at = 0;
    uint32_t code;
    while (most != 0) {
        if (old->count == 0) { /* between all characters */
            rm_tpl_put_part(&b, new, 0, new->count);
            most--;
            if (at == s->count) break;
            const size_t n = rm_tpl_char(s->bytes + at, s->count - at, &code);
            rm_tpl_put_part(&b, s, at, at + n);
            at += n;
        } else {
            const char *hit = memmem(s->bytes + at, s->count - at, old->bytes, old->count);
            if (hit == NULL) break;
            const size_t to = (size_t)(hit - s->bytes);
            rm_tpl_put_part(&b, s, at, to);
            rm_tpl_put_part(&b, new, 0, new->count);
            at = to + old->count;
            most--;
        }
        RM_TRY(rm_tpl_work(t, new->count));
    }
    rm_tpl_put_part(&b, s, at, s->count);
    RM_TRY(rm_tpl_work(t, s->count));
    return rm_tpl_build_end(out, t, &b);
}

/* Python's line breaks: LF, CR, CRLF, VT, FF, FS, GS, RS, NEL, LS, PS. */
static bool is_break(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

size_t rm_tpl_line_end(const rm_tpl_string *s, size_t at, size_t *next) {
    uint32_t code;
    for (size_t n; at < s->count; at += n) {
        n = rm_tpl_char(s->bytes + at, s->count - at, &code);
        if (!is_break(code)) continue;
        *next = at + n;
        if (code == '\r' && *next < s->count && s->bytes[*next] == '\n') ++*next;
        return at;
    }
    *next = s->count;
    return s->count;
}
