/* template_filter.c: filters on single values. Those on sequences: template_filter_seq.c. */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>

#define ARGS                                                                                       \
    rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,                 \
        const rm_tpl_args *all
#define UNUSED ((void)t, (void)self, (void)a, (void)all)

static int f_default(ARGS) {
    UNUSED;
    static const rm_tpl_string empty = {.bytes = ""};
    const bool missing =
        self->type == RM_TPL_UNDEFINED || (rm_tpl_truth(&a[1]) && !rm_tpl_truth(self));
    *out = !missing ? *self : rm_tpl_given(&a[0]) ? a[0] : rm_tpl_of_string(&empty);
    return REMAT_OK;
}

static int f_string(ARGS) {
    UNUSED;
    out->type = RM_TPL_STRING;
    return rm_tpl_to_string(&out->s, t, self);
}

static int f_trim(ARGS) {
    UNUSED;
    const rm_tpl_string *s, *chars = NULL;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    if (rm_tpl_given(&a[0]) && a[0].type != RM_TPL_NONE)
        RM_TRY(rm_tpl_want_string(&chars, t, &a[0], "trim: chars"));
    return rm_tpl_strip(out, t, s, chars, true, true);
}

static int change(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, rm_tpl_case how) {
    const rm_tpl_string *s;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    return rm_tpl_change_case(out, t, s, how);
}

static int f_upper(ARGS) {
    UNUSED;
    return change(out, t, self, RM_TPL_UPPER);
}

static int f_lower(ARGS) {
    UNUSED;
    return change(out, t, self, RM_TPL_LOWER);
}

static int f_capitalize(ARGS) {
    UNUSED;
    return change(out, t, self, RM_TPL_CAPITALIZE);
}

static int f_title(ARGS) {
    UNUSED;
    return change(out, t, self, RM_TPL_TITLE_FILTER);
}

static int f_replace(ARGS) {
    UNUSED;
    const rm_tpl_string *s, *old, *new;
    int64_t most = -1;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    RM_TRY(rm_tpl_to_string(&old, t, &a[0]));
    RM_TRY(rm_tpl_to_string(&new, t, &a[1]));
    if (rm_tpl_given(&a[2]) && a[2].type != RM_TPL_NONE)
        RM_TRY(rm_tpl_want_int(&most, t, &a[2], "replace: count"));
    return rm_tpl_replace(out, t, s, old, new, most);
}

static int f_length(ARGS) {
    UNUSED;
    int64_t n;
    RM_TRY(rm_tpl_length(&n, t, self));
    *out = rm_tpl_int(n);
    return REMAT_OK;
}

static int indent_text(const rm_tpl_string **out, rm_tpl *t, const rm_tpl_value *width) {
    int64_t n = 4;
    rm_tpl_value s;
    char *blanks;
    if (width->type == RM_TPL_STRING) {
        *out = width->s;
        return REMAT_OK;
    }
    if (rm_tpl_given(width)) RM_TRY(rm_tpl_want_int(&n, t, width, "indent: width"));
    if (n < 0) n = 0;
    RM_TRY(rm_tpl_take_bytes(&blanks, t, (uint64_t)n));
    RM_TRY(rm_tpl_work(t, (size_t)n));
    memset(blanks, ' ', (size_t)n);
    RM_TRY(rm_tpl_string_of(&s, t, blanks, (size_t)n, true));
    *out = s.s;
    return REMAT_OK;
}

/* indent(width=4, first=false, blank=false): not the first line, no empty lines. */
static int f_indent(ARGS) {
    UNUSED;
    const rm_tpl_string *s, *blanks;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    RM_TRY(indent_text(&blanks, t, &a[0]));
    const bool first = rm_tpl_truth(&a[1]), empty = rm_tpl_truth(&a[2]);
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    /* As if a line break followed: text that ends with one has an empty line there. */
    size_t at = 0, next = 0;
    for (bool start = true, more = true; more; start = false, at = next) {
        const size_t end = rm_tpl_line_end(s, at, &next);
        more = end < s->count;
        if (!start) rm_tpl_put(&b, "\n", 1, rm_tpl_mark_at(s, at - 1));
        if (start ? first : (end > at || empty)) rm_tpl_put_part(&b, blanks, 0, blanks->count);
        rm_tpl_put_part(&b, s, at, end);
        RM_TRY(rm_tpl_work(t, end - at + blanks->count));
    }
    return rm_tpl_build_end(out, t, &b);
}

/* --- numbers -------------------------------------------------------------------------------- */

/* Digits with a sign, white space around. */
static bool read_int(int64_t *out, const rm_tpl_string *s, int64_t base) {
    size_t at = 0, end = s->count;
    while (at < end && rm_tpl_is_space((uint8_t)s->bytes[at]))
        at++;
    while (end > at && rm_tpl_is_space((uint8_t)s->bytes[end - 1]))
        end--;
    const bool negative = at < end && s->bytes[at] == '-';
    at += at < end && (s->bytes[at] == '-' || s->bytes[at] == '+');
    if (at + 2 < end && s->bytes[at] == '0' && base == 16 && (s->bytes[at + 1] | 0x20) == 'x')
        at += 2;
    if (at == end) return false;
    *out = 0;
    for (; at < end; at++) {
        const char c = s->bytes[at], l = (char)(c | 0x20);
        const int d = c >= '0' && c <= '9' ? c - '0' : l >= 'a' && l <= 'z' ? l - 'a' + 10 : 99;
        if (d >= base || __builtin_mul_overflow(*out, base, out) ||
            __builtin_add_overflow(*out, negative ? -d : d, out))
            return false;
    }
    return true;
}

/* What Python's float() takes, but for underscores. */
static bool read_float(double *out, rm_tpl *t, const rm_tpl_string *s) {
    rm_tpl_value v;
    if (rm_tpl_strip(&v, t, s, NULL, true, true) != REMAT_OK) return false;
    static const char *const words[] = {"inf", "infinity", "nan"};
    const char *text = v.s->bytes;
    size_t n = v.s->count, digits = 0;
    if (n == 0) return false;
    const bool sign = text[0] == '-' || text[0] == '+';
    for (size_t w = 0; w < 3; w++) {
        if (n - sign != strlen(words[w])) continue;
        bool same = true;
        for (size_t i = sign; i < n; i++)
            same = same && (char)(text[i] | 0x20) == words[w][i - sign];
        if (!same) continue;
        *out = copysign(w == 2 ? NAN : INFINITY, text[0] == '-' ? -1 : 1);
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        digits += c >= '0' && c <= '9';
        if (!(c >= '0' && c <= '9') && c != '.' && c != '-' && c != '+' && (c | 0x20) != 'e')
            return false;
    }
    return digits > 0 && rm_tpl_read_float(out, text, n);
}

static bool whole_of(int64_t *out, double f) {
    if (!(f > -9223372036854775808.0 && f < 9223372036854775808.0)) return false;
    *out = (int64_t)f;
    return true;
}

static int f_int(ARGS) {
    UNUSED;
    int64_t i = 0, base = 10;
    double f = 0;
    bool known = false;
    if (rm_tpl_given(&a[1])) RM_TRY(rm_tpl_want_int(&base, t, &a[1], "int: base"));
    if (self->type == RM_TPL_INT || self->type == RM_TPL_BOOL) {
        i = self->type == RM_TPL_INT ? self->i : self->b;
        known = true;
    } else if (self->type == RM_TPL_FLOAT) {
        known = whole_of(&i, self->f);
    } else if (self->type == RM_TPL_STRING) {
        known = read_int(&i, self->s, base) || (read_float(&f, t, self->s) && whole_of(&i, f));
    } else if (self->type == RM_TPL_UNDEFINED) {
        return rm_tpl_undefined_used(t, self);
    }
    *out = known ? rm_tpl_int(i) : rm_tpl_given(&a[0]) ? a[0] : rm_tpl_int(0);
    return REMAT_OK;
}

static int f_float(ARGS) {
    UNUSED;
    double f = 0;
    bool known = true;
    if (self->type == RM_TPL_FLOAT)
        f = self->f;
    else if (self->type == RM_TPL_INT || self->type == RM_TPL_BOOL)
        f = self->type == RM_TPL_INT ? (double)self->i : self->b;
    else if (self->type == RM_TPL_STRING)
        known = read_float(&f, t, self->s);
    else if (self->type == RM_TPL_UNDEFINED)
        return rm_tpl_undefined_used(t, self);
    else
        known = false;
    *out = known ? rm_tpl_float(f) : rm_tpl_given(&a[0]) ? a[0] : rm_tpl_float(0);
    return REMAT_OK;
}

static int f_abs(ARGS) {
    UNUSED;
    const bool negative = self->type == RM_TPL_INT     ? self->i < 0
                          : self->type == RM_TPL_FLOAT ? signbit(self->f) != 0
                                                       : false;
    return rm_tpl_negate(out, t, negative ? '-' : '+', self);
}

/* Python's round(): to even, of the exact value. */
static double round_to(double f, int64_t precision) {
    char text[400];
    if (!isfinite(f) || precision > 300) return f;
    if (precision < 0) {
        const double scale = pow(10, (double)-precision);
        return isfinite(scale) ? nearbyint(f / scale) * scale : 0;
    }
    const int n = snprintf(text, sizeof text, "%.*f", (int)precision, f);
    double rounded = f;
    if (n <= 0 || (size_t)n >= sizeof text) return f;
    for (int i = 0; i < n; i++) { /* whatever the locale's point is */
        if (!(text[i] >= '0' && text[i] <= '9') && text[i] != '-') text[i] = '.';
    }
    return rm_tpl_read_float(&rounded, text, (size_t)n) ? rounded : f;
}

static int f_round(ARGS) {
    UNUSED;
    int64_t precision = 0;
    if (rm_tpl_given(&a[0])) RM_TRY(rm_tpl_want_int(&precision, t, &a[0], "round: precision"));
    const rm_tpl_string *method = NULL;
    if (rm_tpl_given(&a[1])) RM_TRY(rm_tpl_want_string(&method, t, &a[1], "round: method"));
    rm_tpl_value f;
    RM_TRY(rm_tpl_negate(&f, t, '+', self));
    const bool common = method == NULL || rm_tpl_is_text(method, "common");
    if (common && f.type == RM_TPL_INT && precision >= 0) {
        *out = f;
        return REMAT_OK;
    }
    const double value = f.type == RM_TPL_INT ? (double)f.i : f.f;
    const double scale = pow(10, (double)precision);
    if (common)
        *out = rm_tpl_float(round_to(value, precision));
    else if (rm_tpl_is_text(method, "ceil"))
        *out = rm_tpl_float(ceil(value * scale) / scale);
    else if (rm_tpl_is_text(method, "floor"))
        *out = rm_tpl_float(floor(value * scale) / scale);
    else
        return rm_tpl_fail(t, "round: the method is common, ceil or floor");
    return REMAT_OK;
}

/* --- others --------------------------------------------------------------------------------- */

static int f_safe(ARGS) {
    return f_string(out, t, self, a, all);
}

static int f_escape(ARGS) {
    UNUSED;
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char chars[] = "&<>'\"";
    const rm_tpl_string *s;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    for (size_t at = 0; at < s->count; at++) {
        const char *which = s->bytes[at] != '\0' ? strchr(chars, s->bytes[at]) : NULL;
        if (which != NULL)
            rm_tpl_put_text(&b, names[which - chars]);
        else
            rm_tpl_put_part(&b, s, at, at + 1);
    }
    return rm_tpl_build_end(out, t, &b);
}

static int f_from_json(ARGS) {
    UNUSED;
    const rm_tpl_string *s;
    RM_TRY(rm_tpl_want_string(&s, t, self, "from_json: its input"));
    return rm_tpl_json_read(out, t, s, "from_json");
}

static int f_wordcount(ARGS) {
    UNUSED;
    const rm_tpl_string *s;
    int64_t words = 0;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    RM_TRY(rm_tpl_work(t, s->count));
    bool inside = false;
    uint32_t c;
    for (size_t at = 0; at < s->count;) {
        at += rm_tpl_char(s->bytes + at, s->count - at, &c);
        const bool word = rm_tpl_is_letter(c) || (c >= '0' && c <= '9') || c == '_';
        words += word && !inside;
        inside = word;
    }
    *out = rm_tpl_int(words);
    return REMAT_OK;
}

static int f_format(ARGS) {
    UNUSED;
    const rm_tpl_string *s;
    rm_tpl_list *list;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_TUPLE, all->count));
    for (uint32_t i = 0; i < all->count; i++)
        list->items[list->count++] = all->at[i];
    const rm_tpl_value args = rm_tpl_of_list(list);
    return rm_tpl_format_printf(out, t, s, &args);
}

const rm_tpl_builtin *rm_tpl_find_filter(const rm_tpl_string *name) {
    static const rm_tpl_builtin table[] = {
        {"trim", f_trim, "chars", 0},
        {"length", f_length, "", 0},
        {"count", f_length, "", 0},
        {"string", f_string, "", 0},
        {"default", f_default, "default_value boolean", 0},
        {"d", f_default, "default_value boolean", 0},
        {"safe", f_safe, "", 0},
        {"lower", f_lower, "", 0},
        {"upper", f_upper, "", 0},
        {"capitalize", f_capitalize, "", 0},
        {"title", f_title, "", 0},
        {"replace", f_replace, "old new count", 2},
        {"indent", f_indent, "width first blank", 0},
        {"int", f_int, "default base", 0},
        {"float", f_float, "default", 0},
        {"abs", f_abs, "", 0},
        {"round", f_round, "precision method", 0},
        {"from_json", f_from_json, "", 0},
        {"wordcount", f_wordcount, "", 0},
        {"escape", f_escape, "", 0},
        {"e", f_escape, "", 0},
        {"format", f_format, NULL, 0},
    };
    if (rm_tpl_is_text(name, rm_tpl_tojson.name)) return &rm_tpl_tojson;
    const rm_tpl_builtin *b = rm_tpl_find_in(table, sizeof table / sizeof table[0], name);
    return b != NULL ? b : rm_tpl_find_seq_filter(name);
}
