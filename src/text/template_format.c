/*
 * template_format.c: '%s' % x and '{}'.format(x), as far as templates need them: texts, integers,
 * floats with a fixed number of digits; width, filling and alignment.
 */
#include "text/template_impl.h"

#include <stdio.h>

typedef struct spec {
    char fill[4];
    size_t fill_bytes;
    char align;               /* '<' '>' '^' '=' or 0 */
    char sign;                /* '+' ' ' or 0 */
    int64_t width, precision; /* precision -1: none */
    char kind;                /* 0: as str() */
} spec;

enum { WIDTH_MOST = 1 << 20, PRECISION_MOST = 100 };

static int read_count(int64_t *out, rm_tpl *t, const rm_tpl_string *s, size_t *at) {
    for (*out = 0; *at < s->count && s->bytes[*at] >= '0' && s->bytes[*at] <= '9'; ++*at) {
        *out = *out * 10 + (s->bytes[*at] - '0');
        if (*out > WIDTH_MOST) return rm_tpl_fail(t, "format: a width is too large");
    }
    return REMAT_OK;
}

static int number_text(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const spec *f) {
    char text[512];
    int n;
    const bool whole = v->type == RM_TPL_INT || v->type == RM_TPL_BOOL;
    const long long i = v->type == RM_TPL_BOOL ? v->b : v->type == RM_TPL_INT ? (long long)v->i : 0;
    if (f->kind == 'd' || f->kind == 'x' || f->kind == 'X' || f->kind == 'o') {
        if (!whole) return rm_tpl_fail(t, "format: a %s is no integer", rm_tpl_type_name(v));
        const unsigned long long size = i < 0 ? 0 - (unsigned long long)i : (unsigned long long)i;
        const char *sign = i < 0 ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
        n = f->kind == 'd'   ? snprintf(text, sizeof text, "%s%llu", sign, size)
            : f->kind == 'x' ? snprintf(text, sizeof text, "%s%llx", sign, size)
            : f->kind == 'X' ? snprintf(text, sizeof text, "%s%llX", sign, size)
                             : snprintf(text, sizeof text, "%s%llo", sign, size);
    } else {
        if (!whole && v->type != RM_TPL_FLOAT)
            return rm_tpl_fail(t, "format: a %s is no number", rm_tpl_type_name(v));
        const double d = whole ? (double)i : v->f;
        const int precision = f->precision < 0 ? 6 : (int)f->precision;
        if (precision > PRECISION_MOST) return rm_tpl_fail(t, "format: too many digits");
        const char *form = f->sign == '+' ? (f->kind == 'e'   ? "%+.*e"
                                             : f->kind == 'g' ? "%+.*g"
                                                              : "%+.*f")
                                          : (f->kind == 'e'   ? "%.*e"
                                             : f->kind == 'g' ? "%.*g"
                                                              : "%.*f");
        n = snprintf(text, sizeof text, form, precision, d);
        for (int c = 0; c < n && (size_t)n < sizeof text; c++) { /* the locale's point */
            if (text[c] == ',') text[c] = '.';
        }
    }
    RM_ASSERT(n > 0 && (size_t)n < sizeof text);
    char *bytes;
    RM_TRY(rm_tpl_take_bytes(&bytes, t, (size_t)n));
    memcpy(bytes, text, (size_t)n);
    return rm_tpl_string_of(out, t, bytes, (size_t)n, v->own);
}

/* Writes v with filling. right: how values of this kind stand without an alignment. */
static int put(rm_tpl *t, rm_tpl_build *b, const rm_tpl_value *v, const spec *f, bool right) {
    rm_tpl_value text;
    size_t cut;
    if (f->kind == 0 || f->kind == 's') {
        text.type = RM_TPL_STRING;
        RM_TRY(rm_tpl_to_string(&text.s, t, v));
        cut = f->precision >= 0 ? rm_tpl_char_offset(text.s, (size_t)f->precision) : text.s->count;
    } else if (f->kind == 'r') {
        rm_tpl_build inner;
        rm_tpl_build_start(&inner, t);
        RM_TRY(rm_tpl_repr(t, &inner, v));
        RM_TRY(rm_tpl_build_end(&text, t, &inner));
        cut = text.s->count;
    } else {
        RM_TRY(number_text(&text, t, v, f));
        cut = text.s->count;
    }
    RM_TRY(rm_tpl_part(&text, t, text.s, 0, cut));
    const int64_t chars = (int64_t)rm_tpl_char_count(text.s);
    const int64_t more = f->width > chars ? f->width - chars : 0;
    const char align = f->align != 0 ? f->align : right ? '>' : '<';
    const int64_t before = align == '>' || align == '=' ? more : align == '^' ? more / 2 : 0;
    const char first = text.s->count > 0 ? text.s->bytes[0] : ' ';
    const size_t sign = align == '=' && (first == '-' || first == '+' || first == ' ');
    RM_TRY(rm_tpl_work(t, (size_t)more));
    rm_tpl_put_part(b, text.s, 0, sign);
    for (int64_t i = 0; i < before; i++)
        rm_tpl_put(b, f->fill, f->fill_bytes, false);
    rm_tpl_put_part(b, text.s, sign, text.s->count);
    for (int64_t i = before; i < more; i++)
        rm_tpl_put(b, f->fill, f->fill_bytes, false);
    return REMAT_OK;
}

/* --- % -------------------------------------------------------------------------------------- */

static int percent_spec(spec *f, rm_tpl *t, const rm_tpl_string *s, size_t *at) {
    *f = (spec){.fill = " ", .fill_bytes = 1, .precision = -1};
    bool zero = false;
    for (; *at < s->count; ++*at) {
        const char c = s->bytes[*at];
        if (c == '-')
            f->align = '<';
        else if (c == '0')
            zero = true;
        else if (c == '+' || c == ' ')
            f->sign = c;
        else
            break;
    }
    RM_TRY(read_count(&f->width, t, s, at));
    if (*at < s->count && s->bytes[*at] == '.') {
        ++*at;
        RM_TRY(read_count(&f->precision, t, s, at));
    }
    f->kind = *at < s->count ? s->bytes[(*at)++] : '\0';
    if (f->kind == 'i' || f->kind == 'u') f->kind = 'd';
    if (f->kind == '\0' || strchr("srdxXofeg%", f->kind) == NULL)
        return rm_tpl_fail(t, "format: a %% has no known letter behind it");
    if (zero && f->align == 0 && f->kind != 's' && f->kind != 'r') {
        f->fill[0] = '0';
        f->align = '=';
    }
    return REMAT_OK;
}

int rm_tpl_format_printf(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s,
                         const rm_tpl_value *args) {
    const bool many = args->type == RM_TPL_LIST && args->list->kind == RM_TPL_TUPLE;
    const rm_tpl_value *values = many ? args->list->items : args;
    const uint32_t count = many ? args->list->count : 1;
    uint32_t used = 0;
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    for (size_t at = 0; at < s->count;) {
        const char *hit = memchr(s->bytes + at, '%', s->count - at);
        const size_t stop = hit != NULL ? (size_t)(hit - s->bytes) : s->count;
        rm_tpl_put_part(&b, s, at, stop);
        at = stop + 1;
        if (stop == s->count) break;
        spec f;
        RM_TRY(percent_spec(&f, t, s, &at));
        if (f.kind == '%') {
            rm_tpl_put(&b, "%", 1, rm_tpl_mark_at(s, stop));
            continue;
        }
        if (used == count) return rm_tpl_fail(t, "format: not enough values");
        rm_tpl_value v = values[used++];
        if (f.kind == 'd' && v.type == RM_TPL_FLOAT) { /* cut off, as % does */
            if (!(v.f > -9e18 && v.f < 9e18)) return rm_tpl_fail(t, "format: too large for %%d");
            v = rm_tpl_int((int64_t)v.f);
        }
        RM_TRY(put(t, &b, &v, &f, true));
    }
    if (used < count && (many || (args->type != RM_TPL_DICT && args->type != RM_TPL_LIST)))
        return rm_tpl_fail(t, "format: more values than places");
    return rm_tpl_build_end(out, t, &b);
}

/* --- {} ------------------------------------------------------------------------------------- */

/* Behind the colon: [[fill]align][sign][0][width][.precision][kind] */
static int brace_spec(spec *f, rm_tpl *t, const rm_tpl_string *s) {
    static const char aligns[4] = {'<', '>', '^', '='};
    size_t at = 0;
    uint32_t code;
    *f = (spec){.fill = " ", .fill_bytes = 1, .precision = -1};
    const size_t n = s->count > 0 ? rm_tpl_char(s->bytes, s->count, &code) : 0;
    if (n > 0 && n < s->count && memchr(aligns, s->bytes[n], sizeof aligns) != NULL) {
        memcpy(f->fill, s->bytes, n);
        f->fill_bytes = n;
        f->align = s->bytes[n];
        at = n + 1;
    } else if (n > 0 && memchr(aligns, s->bytes[0], sizeof aligns) != NULL) {
        f->align = s->bytes[at++];
    }
    if (at < s->count && (s->bytes[at] == '+' || s->bytes[at] == ' ' || s->bytes[at] == '-')) {
        if (s->bytes[at] != '-') f->sign = s->bytes[at];
        at++;
    }
    if (at < s->count && s->bytes[at] == '0' && f->align == 0) {
        f->fill[0] = '0';
        f->align = '=';
    }
    RM_TRY(read_count(&f->width, t, s, &at));
    if (at < s->count && s->bytes[at] == '.') {
        at++;
        RM_TRY(read_count(&f->precision, t, s, &at));
    }
    if (at < s->count) f->kind = s->bytes[at++];
    if (at < s->count || (f->kind != 0 && strchr("sdxXofeg", f->kind) == NULL))
        return rm_tpl_fail(t, "format: what stands behind ':' is not understood");
    return REMAT_OK;
}

/* {} {0} {name}; no attributes, no items. *next counts the {}. */
static int brace_value(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *name, uint32_t *next,
                       const rm_tpl_args *all) {
    size_t at = 0;
    int64_t index;
    if (name->count == 0) {
        index = (*next)++;
    } else {
        RM_TRY(read_count(&index, t, name, &at));
        if (at < name->count || at == 0) index = -1;
    }
    if (index >= 0) {
        if (index >= all->count) return rm_tpl_fail(t, "format: not enough values");
        *out = all->at[index];
        return REMAT_OK;
    }
    for (uint32_t i = 0; i < all->named_count; i++) {
        if (!rm_tpl_same_text(all->named[i].name, name)) continue;
        *out = all->named[i].value;
        return REMAT_OK;
    }
    return rm_tpl_fail(t, "format: there is no value of that name");
}

/* name!r:spec */
static int put_field(rm_tpl *t, rm_tpl_build *b, const rm_tpl_string *s, size_t from, size_t to,
                     uint32_t *next, const rm_tpl_args *all) {
    const char *colon = to > from ? memchr(s->bytes + from, ':', to - from) : NULL;
    size_t name_end = colon != NULL ? (size_t)(colon - s->bytes) : to;
    const size_t spec_from = colon != NULL ? name_end + 1 : to;
    const rm_tpl_string rest = {.bytes = s->bytes + spec_from, .count = to - spec_from};
    spec f;
    rm_tpl_value v;
    RM_TRY(brace_spec(&f, t, &rest));
    const bool as_repr =
        name_end - from >= 2 && s->bytes[name_end - 2] == '!' && s->bytes[name_end - 1] == 'r';
    if (as_repr) {
        name_end -= 2;
        f.kind = 'r';
    }
    const rm_tpl_string name = {.bytes = s->bytes + from, .count = name_end - from};
    RM_TRY(brace_value(&v, t, &name, next, all));
    const bool number = v.type == RM_TPL_INT || v.type == RM_TPL_FLOAT;
    if (number && f.kind == 0 && v.type == RM_TPL_INT) f.kind = 'd';
    if (f.kind == 0 && v.type == RM_TPL_FLOAT && f.precision >= 0) f.kind = 'g';
    return put(t, b, &v, &f, number && !as_repr);
}

int rm_tpl_format_braces(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self,
                         const rm_tpl_value *a, const rm_tpl_args *all) {
    const rm_tpl_string *s = self->s;
    uint32_t next = 0;
    rm_tpl_build b;
    (void)a;
    rm_tpl_build_start(&b, t);
    for (size_t at = 0; at < s->count;) {
        const char c = s->bytes[at];
        if (c != '{' && c != '}') {
            rm_tpl_put_part(&b, s, at, at + 1);
            at++;
            continue;
        }
        if (at + 1 < s->count && s->bytes[at + 1] == c) {
            rm_tpl_put_part(&b, s, at, at + 1);
            at += 2;
            continue;
        }
        const char *close = memchr(s->bytes + at, '}', s->count - at);
        if (c == '}' || close == NULL) return rm_tpl_fail(t, "format: a single '%c'", c);
        const size_t to = (size_t)(close - s->bytes);
        RM_TRY(put_field(t, &b, s, at + 1, to, &next, all));
        at = to + 1;
    }
    return rm_tpl_build_end(out, t, &b);
}
