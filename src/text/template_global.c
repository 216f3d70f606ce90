/* template_global.c: the functions a template can call without an object. */
#include "text/template_impl.h"

#include <stdio.h>

#define ARGS                                                                                       \
    rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,                 \
        const rm_tpl_args *all
#define UNUSED ((void)t, (void)self, (void)a, (void)all)

static int g_range(ARGS) {
    UNUSED;
    int64_t first, second = 0, step = 1;
    RM_TRY(rm_tpl_want_int(&first, t, &a[0], "range: its argument"));
    const bool two = rm_tpl_given(&a[1]);
    if (two) RM_TRY(rm_tpl_want_int(&second, t, &a[1], "range: its argument"));
    if (rm_tpl_given(&a[2])) RM_TRY(rm_tpl_want_int(&step, t, &a[2], "range: its argument"));
    return rm_tpl_range_new(out, t, two ? first : 0, two ? second : first, step);
}

static int new_dict(rm_tpl_value *out, rm_tpl *t, const rm_tpl_args *all, rm_tpl_type type) {
    rm_tpl_dict *d;
    RM_TRY(rm_tpl_dict_new(&d, t));
    RM_TRY(rm_tpl_dict_fill(t, d, all));
    *out = (rm_tpl_value){.type = (uint8_t)type, .dict = d};
    return REMAT_OK;
}

static int g_dict(ARGS) {
    UNUSED;
    return new_dict(out, t, all, RM_TPL_DICT);
}

static int g_namespace(ARGS) {
    UNUSED;
    return new_dict(out, t, all, RM_TPL_NAMESPACE);
}

/* The template's own words, and nothing else; one line. */
static int g_raise_exception(ARGS) {
    UNUSED;
    (void)out;
    const rm_tpl_string *s;
    RM_TRY(rm_tpl_to_string(&s, t, &a[0]));
    char text[sizeof((remat_error *)0)->message];
    size_t n = 0;
    uint32_t code;
    for (size_t at = 0, length; at < s->count; at += length) {
        length = rm_tpl_char(s->bytes + at, s->count - at, &code);
        if (n + length >= sizeof text) break;
        const bool odd = code < 0x20 || code == 0x7F || code == RM_TPL_BAD_CHAR;
        memcpy(text + n, odd ? " " : s->bytes + at, odd ? 1 : length);
        n += odd ? 1 : length;
    }
    if (n == 0) return rm_tpl_fail(t, "raise_exception() has no message");
    return rm_fail(t->err, REMAT_E_FAILED, "%.*s", (int)n, text);
}

/* --- dates ---------------------------------------------------------------------------------- */

typedef struct date {
    int64_t year;
    int month, day, hour, minute, second, week_day, year_day; /* month, day from 1; Sunday is 0 */
} date;

static bool is_leap(int64_t year) {
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static date date_of(int64_t seconds) {
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    const int64_t limit = 250000000000; /* about the year 9900 */
    if (seconds < 0) seconds = 0;
    if (seconds > limit) seconds = limit;
    int64_t days = seconds / 86400;
    const int rest = (int)(seconds % 86400);
    date d = {.year = 1970, .hour = rest / 3600, .minute = rest / 60 % 60, .second = rest % 60};
    d.week_day = (int)((days + 4) % 7);
    while (days >= 365 + is_leap(d.year))
        days -= 365 + is_leap(d.year++);
    d.year_day = (int)days + 1;
    for (d.month = 12; d.month > 1; d.month--) {
        const int first = before[d.month - 1] + (d.month > 2 && is_leap(d.year));
        if (days < first) continue;
        days -= first;
        break;
    }
    d.day = (int)days + 1;
    return d;
}

static const char *const MONTHS[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const DAYS[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

/* What %letter stands for, as another format, or NULL when it is not one of those. */
static const char *longer_form(char letter) {
    switch (letter) {
    case 'F':
        return "%Y-%m-%d";
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'R':
        return "%H:%M";
    case 'r':
        return "%I:%M:%S %p";
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    default:
        return NULL;
    }
}

static bool put_number(rm_tpl_build *b, const date *d, char letter, bool no_zero, int64_t now) {
    const int twelve = (d->hour + 11) % 12 + 1;
    int64_t n;
    int width = 2;
    switch (letter) {
    case 'Y':
        n = d->year;
        width = 4;
        break;
    case 'y':
        n = d->year % 100;
        break;
    case 'C':
        n = d->year / 100;
        break;
    case 'm':
        n = d->month;
        break;
    case 'd':
    case 'e':
        n = d->day;
        break;
    case 'H':
    case 'k':
        n = d->hour;
        break;
    case 'I':
    case 'l':
        n = twelve;
        break;
    case 'M':
        n = d->minute;
        break;
    case 'S':
        n = d->second;
        break;
    case 'j':
        n = d->year_day;
        width = 3;
        break;
    case 'u':
    case 'w':
        n = letter == 'u' && d->week_day == 0 ? 7 : d->week_day;
        width = 1;
        break;
    case 's':
        n = now;
        width = 1;
        break;
    case 'f':
        n = 0;
        width = 6;
        break;
    default:
        return false;
    }
    char text[32];
    const bool blank = letter == 'e' || letter == 'k' || letter == 'l';
    snprintf(text, sizeof text, blank && !no_zero ? "%*lld" : "%0*lld", no_zero ? 1 : width,
             (long long)n);
    rm_tpl_put(b, text, strlen(text), true);
    return true;
}

static void put_word(rm_tpl_build *b, const char *word, size_t most) {
    const size_t n = strlen(word);
    rm_tpl_put(b, word, n < most ? n : most, true);
}

static int put_date(rm_tpl *t, rm_tpl_build *b, const date *d, const char *f, size_t n,
                    bool outer) {
    for (size_t i = 0; i < n; i++) {
        if (f[i] != '%' || i + 1 == n) {
            rm_tpl_put(b, f + i, 1, true);
            continue;
        }
        i++;
        const bool no_zero = f[i] == '-' && i + 1 < n;
        i += no_zero;
        const char c = f[i];
        const char *longer = outer ? longer_form(c) : NULL;
        if (longer != NULL) {
            RM_TRY(put_date(t, b, d, longer, strlen(longer), false));
        } else if (c == 'B' || c == 'b' || c == 'h') {
            put_word(b, MONTHS[d->month - 1], c == 'B' ? 99 : 3);
        } else if (c == 'A' || c == 'a') {
            put_word(b, DAYS[d->week_day], c == 'A' ? 99 : 3);
        } else if (c == 'p') {
            put_word(b, d->hour < 12 ? "AM" : "PM", 2);
        } else if (c == 'n' || c == 't' || c == '%') {
            put_word(b, c == 'n' ? "\n" : c == 't' ? "\t" : "%", 1);
        } else if (c != 'Z' && c != 'z' && !put_number(b, d, c, no_zero, t->limits.now)) {
            return rm_tpl_fail(t, "strftime_now: a %% has no known letter behind it");
        }
    }
    return REMAT_OK;
}

static int g_strftime_now(ARGS) {
    UNUSED;
    const rm_tpl_string *s;
    RM_TRY(rm_tpl_want_string(&s, t, &a[0], "strftime_now: its format"));
    const date d = date_of(t->limits.now);
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    RM_TRY(put_date(t, &b, &d, s->bytes, s->count, true));
    RM_TRY(rm_tpl_build_end(out, t, &b));
    if (s->marks == NULL && s->mark) return REMAT_OK;
    /* A format that comes from the variables makes no text of the template's own. */
    return rm_tpl_string_of(out, t, out->s->bytes, out->s->count, false);
}

const rm_tpl_builtin *rm_tpl_find_global(const rm_tpl_string *name) {
    static const rm_tpl_builtin table[] = {
        {"range", g_range, "start stop step", 1},
        {"dict", g_dict, NULL, 0},
        {"namespace", g_namespace, NULL, 0},
        {"raise_exception", g_raise_exception, "message", 1},
        {"strftime_now", g_strftime_now, "format", 1},
    };
    return rm_tpl_find_in(table, sizeof table / sizeof table[0], name);
}
