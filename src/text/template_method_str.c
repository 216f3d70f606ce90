/* template_method_str.c: methods of strings, as Python's. */
#include "text/template_impl.h"

#define ARGS                                                                                       \
    rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,                 \
        const rm_tpl_args *all
#define UNUSED ((void)t, (void)self, (void)a, (void)all)

static bool missing(const rm_tpl_value *v) {
    return v->type == RM_TPL_ABSENT || v->type == RM_TPL_NONE;
}

/* --- stripping and case --------------------------------------------------------------------- */

static int strip(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *chars,
                 bool left, bool right) {
    const rm_tpl_string *set = NULL;
    if (!missing(chars)) RM_TRY(rm_tpl_want_string(&set, t, chars, "strip: its characters"));
    return rm_tpl_strip(out, t, self->s, set, left, right);
}

static int s_strip(ARGS) {
    UNUSED;
    return strip(out, t, self, &a[0], true, true);
}

static int s_lstrip(ARGS) {
    UNUSED;
    return strip(out, t, self, &a[0], true, false);
}

static int s_rstrip(ARGS) {
    UNUSED;
    return strip(out, t, self, &a[0], false, true);
}

static int s_upper(ARGS) {
    UNUSED;
    return rm_tpl_change_case(out, t, self->s, RM_TPL_UPPER);
}

static int s_lower(ARGS) {
    UNUSED;
    return rm_tpl_change_case(out, t, self->s, RM_TPL_LOWER);
}

static int s_title(ARGS) {
    UNUSED;
    return rm_tpl_change_case(out, t, self->s, RM_TPL_TITLE);
}

static int s_capitalize(ARGS) {
    UNUSED;
    return rm_tpl_change_case(out, t, self->s, RM_TPL_CAPITALIZE);
}

static int s_swapcase(ARGS) {
    UNUSED;
    return rm_tpl_change_case(out, t, self->s, RM_TPL_SWAP);
}

/* --- splitting ------------------------------------------------------------------------------ */

static int add_part(rm_tpl *t, rm_tpl_list *list, const rm_tpl_string *s, size_t from, size_t to) {
    rm_tpl_value v;
    RM_TRY(rm_tpl_part(&v, t, s, from, to));
    return rm_tpl_list_add(t, list, &v);
}

/* Between runs of white space; none at the ends. */
static int split_space(rm_tpl *t, rm_tpl_list *list, const rm_tpl_string *s, int64_t most) {
    size_t from = 0, n;
    uint32_t c;
    for (size_t at = 0; at <= s->count; at += n) {
        n = 1;
        c = ' ';
        if (at < s->count) n = rm_tpl_char(s->bytes + at, s->count - at, &c);
        if (!rm_tpl_is_space(c)) {
            if (at == from && most == 0) return add_part(t, list, s, from, s->count); /* the rest */
            continue;
        }
        if (at > from) {
            RM_TRY(add_part(t, list, s, from, at));
            most--;
        }
        from = at + n;
    }
    return REMAT_OK;
}

/* The same from the right: all words, then those on the left back into one piece. */
static int rsplit_space(rm_tpl *t, rm_tpl_list *list, const rm_tpl_string *s, int64_t most) {
    rm_tpl_list *words;
    RM_TRY(rm_tpl_list_new(&words, t, RM_TPL_PLAIN, 0));
    RM_TRY(split_space(t, words, s, -1));
    const uint32_t kept =
        most < 0 || (uint64_t)most >= words->count ? words->count : (uint32_t)most;
    if (kept < words->count) {
        rm_tpl_value head;
        const char *end =
            kept > 0 ? words->items[words->count - kept].s->bytes : s->bytes + s->count;
        RM_TRY(rm_tpl_part(&head, t, s, 0, (size_t)(end - s->bytes)));
        RM_TRY(rm_tpl_strip(&head, t, head.s, NULL, false, true));
        RM_TRY(rm_tpl_list_add(t, list, &head));
    }
    for (uint32_t i = words->count - kept; i < words->count; i++)
        RM_TRY(rm_tpl_list_add(t, list, &words->items[i]));
    return REMAT_OK;
}

/* The last place of what in s before end, or SIZE_MAX. */
static size_t find_last(const rm_tpl_string *s, size_t end, const rm_tpl_string *what) {
    for (size_t at = end; at + 1 > what->count; at--) {
        const size_t from = at - what->count;
        if (memcmp(s->bytes + from, what->bytes, what->count) == 0) return from;
        if (at == 0) break;
    }
    return SIZE_MAX;
}

static size_t find_first(const rm_tpl_string *s, size_t from, const rm_tpl_string *what) {
    if (from > s->count) return SIZE_MAX;
    const char *hit = memmem(s->bytes + from, s->count - from, what->bytes, what->count);
    return hit != NULL ? (size_t)(hit - s->bytes) : SIZE_MAX;
}

static void turn_around(rm_tpl_list *list) {
    for (uint32_t i = 0; i < list->count / 2; i++) {
        const rm_tpl_value v = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = v;
    }
}

/* Comparing in place may look at each byte as often as `what` is long. */
static int charge_search(rm_tpl *t, const rm_tpl_string *s, const rm_tpl_string *what) {
    return rm_tpl_work(t,
                       s->count + (s->count / 16 + 1) * (what->count < 64 ? 1 : what->count / 4));
}

static int split(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                 bool right) {
    const rm_tpl_string *s = self->s, *sep;
    int64_t most = -1;
    rm_tpl_list *list;
    RM_TRY(rm_tpl_work(t, s->count));
    if (!missing(&a[1])) RM_TRY(rm_tpl_want_int(&most, t, &a[1], "split: how often"));
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_PLAIN, 0));
    *out = rm_tpl_of_list(list);
    if (missing(&a[0]))
        return right ? rsplit_space(t, list, s, most) : split_space(t, list, s, most);
    RM_TRY(rm_tpl_want_string(&sep, t, &a[0], "split: the separator"));
    if (sep->count == 0) return rm_tpl_fail(t, "split: the separator is empty");
    if (right) RM_TRY(charge_search(t, s, sep));
    size_t from = 0, end = s->count;
    for (; most != 0; most--) {
        const size_t hit = right ? find_last(s, end, sep) : find_first(s, from, sep);
        if (hit == SIZE_MAX) break;
        RM_TRY(right ? add_part(t, list, s, hit + sep->count, end)
                     : add_part(t, list, s, from, hit));
        if (right)
            end = hit;
        else
            from = hit + sep->count;
    }
    RM_TRY(add_part(t, list, s, from, end));
    if (right) turn_around(list);
    return REMAT_OK;
}

static int s_split(ARGS) {
    UNUSED;
    return split(out, t, self, a, false);
}

static int s_rsplit(ARGS) {
    UNUSED;
    return split(out, t, self, a, true);
}

static int s_splitlines(ARGS) {
    UNUSED;
    rm_tpl_list *list;
    const bool keep = rm_tpl_truth(&a[0]);
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_PLAIN, 0));
    RM_TRY(rm_tpl_work(t, self->s->count));
    for (size_t at = 0, next; at < self->s->count; at = next) {
        const size_t end = rm_tpl_line_end(self->s, at, &next);
        RM_TRY(add_part(t, list, self->s, at, keep ? next : end));
    }
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int partition(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                     bool last) {
    const rm_tpl_string *s = self->s, *sep;
    rm_tpl_list *list;
    RM_TRY(rm_tpl_want_string(&sep, t, &a[0], "partition: the separator"));
    if (sep->count == 0) return rm_tpl_fail(t, "partition: the separator is empty");
    RM_TRY(charge_search(t, s, sep));
    const size_t hit = last ? find_last(s, s->count, sep) : find_first(s, 0, sep);
    const bool found = hit != SIZE_MAX;
    const size_t left = found ? hit : last ? 0 : s->count;
    const size_t right = found ? hit + sep->count : left;
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_TUPLE, 3));
    RM_TRY(add_part(t, list, s, 0, left));
    RM_TRY(add_part(t, list, s, left, right));
    RM_TRY(add_part(t, list, s, right, s->count));
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int s_partition(ARGS) {
    UNUSED;
    return partition(out, t, self, a, false);
}

static int s_rpartition(ARGS) {
    UNUSED;
    return partition(out, t, self, a, true);
}

/* --- looking for ---------------------------------------------------------------------------- */

static bool has_end(const rm_tpl_string *s, const rm_tpl_string *part, bool start) {
    if (part->count > s->count) return false;
    return memcmp(start ? s->bytes : s->bytes + s->count - part->count, part->bytes, part->count) ==
           0;
}

/* What is looked for may be a tuple. */
static int ends(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                bool start) {
    const rm_tpl_value *parts = a;
    uint32_t count = 1;
    const rm_tpl_string *part;
    bool has = false;
    if (a[0].type == RM_TPL_LIST && a[0].list->kind == RM_TPL_TUPLE) {
        parts = a[0].list->items;
        count = a[0].list->count;
    }
    for (uint32_t i = 0; i < count && !has; i++) {
        RM_TRY(rm_tpl_want_string(&part, t, &parts[i], "startswith, endswith: what is looked for"));
        RM_TRY(rm_tpl_work(t, part->count));
        has = has_end(self->s, part, start);
    }
    *out = rm_tpl_bool(has);
    return REMAT_OK;
}

static int s_startswith(ARGS) {
    UNUSED;
    return ends(out, t, self, a, true);
}

static int s_endswith(ARGS) {
    UNUSED;
    return ends(out, t, self, a, false);
}

static int remove_end(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                      bool start) {
    const rm_tpl_string *part, *s = self->s;
    RM_TRY(rm_tpl_want_string(&part, t, &a[0], "removeprefix, removesuffix: what is removed"));
    RM_TRY(rm_tpl_work(t, part->count));
    const size_t n = has_end(s, part, start) ? part->count : 0;
    return rm_tpl_part(out, t, s, start ? n : 0, start ? s->count : s->count - n);
}

static int s_removeprefix(ARGS) {
    UNUSED;
    return remove_end(out, t, self, a, true);
}

static int s_removesuffix(ARGS) {
    UNUSED;
    return remove_end(out, t, self, a, false);
}

/* In characters; -1 when it is not there. */
static int position(int64_t *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                    bool last) {
    const rm_tpl_string *what, *s = self->s;
    int64_t start = 0, stop = INT64_MAX, chars;
    RM_TRY(rm_tpl_want_string(&what, t, &a[0], "find: what is looked for"));
    RM_TRY(rm_tpl_length(&chars, t, self));
    if (!missing(&a[1])) RM_TRY(rm_tpl_want_int(&start, t, &a[1], "find: the start"));
    if (!missing(&a[2])) RM_TRY(rm_tpl_want_int(&stop, t, &a[2], "find: the end"));
    RM_TRY(charge_search(t, s, what));
    *out = -1;
    if (start < 0) start = start < -chars ? 0 : start + chars;
    if (stop < 0) stop = stop < -chars ? 0 : stop + chars;
    if (start > chars) return REMAT_OK;
    const size_t from = rm_tpl_char_offset(s, (size_t)start);
    const size_t to = stop >= chars ? s->count : rm_tpl_char_offset(s, (size_t)stop);
    if (from > to) return REMAT_OK;
    const rm_tpl_string window = {.bytes = s->bytes + from, .count = to - from};
    const size_t hit = last ? find_last(&window, window.count, what) : find_first(&window, 0, what);
    if (hit == SIZE_MAX) return REMAT_OK;
    const rm_tpl_string before = {.bytes = s->bytes, .count = from + hit};
    *out = (int64_t)rm_tpl_char_count(&before);
    return REMAT_OK;
}

static int find(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                bool last, bool must) {
    int64_t at;
    RM_TRY(position(&at, t, self, a, last));
    if (must && at < 0) return rm_tpl_fail(t, "index: it is not in the string");
    *out = rm_tpl_int(at);
    return REMAT_OK;
}

static int s_find(ARGS) {
    UNUSED;
    return find(out, t, self, a, false, false);
}

static int s_rfind(ARGS) {
    UNUSED;
    return find(out, t, self, a, true, false);
}

static int s_index(ARGS) {
    UNUSED;
    return find(out, t, self, a, false, true);
}

static int s_count(ARGS) {
    UNUSED;
    const rm_tpl_string *what;
    int64_t count = 0;
    RM_TRY(rm_tpl_want_string(&what, t, &a[0], "count: what is looked for"));
    RM_TRY(rm_tpl_work(t, self->s->count));
    if (what->count == 0) count = (int64_t)rm_tpl_char_count(self->s) + 1;
    for (size_t at = 0; what->count > 0; at += what->count, count++) {
        at = find_first(self->s, at, what);
        if (at == SIZE_MAX) break;
    }
    *out = rm_tpl_int(count);
    return REMAT_OK;
}

static int s_replace(ARGS) {
    UNUSED;
    const rm_tpl_string *old, *new;
    int64_t most = -1;
    RM_TRY(rm_tpl_want_string(&old, t, &a[0], "replace: the old text"));
    RM_TRY(rm_tpl_want_string(&new, t, &a[1], "replace: the new text"));
    if (rm_tpl_given(&a[2])) RM_TRY(rm_tpl_want_int(&most, t, &a[2], "replace: how often"));
    return rm_tpl_replace(out, t, self->s, old, new, most);
}

static int s_join(ARGS) {
    UNUSED;
    rm_tpl_list *items;
    const rm_tpl_string **parts;
    size_t count = 0;
    RM_TRY(rm_tpl_items(&items, t, &a[0]));
    RM_TRY(rm_tpl_take(&parts, t, 2 * (size_t)items->count, sizeof *parts));
    for (uint32_t i = 0; i < items->count; i++) {
        if (i > 0) parts[count++] = self->s;
        RM_TRY(rm_tpl_want_string(&parts[count++], t, &items->items[i], "join: an item"));
    }
    return rm_tpl_concat(out, t, parts, count);
}

/* --- what it consists of --------------------------------------------------------------------- */

/* All characters pass, and there is one. */
static int all_are(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, bool (*is)(uint32_t)) {
    uint32_t c;
    bool all = s->count > 0;
    RM_TRY(rm_tpl_work(t, s->count));
    for (size_t at = 0; at < s->count && all;) {
        at += rm_tpl_char(s->bytes + at, s->count - at, &c);
        all = is(c);
    }
    *out = rm_tpl_bool(all);
    return REMAT_OK;
}

static bool is_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

static bool is_word(uint32_t c) {
    return is_digit(c) || rm_tpl_is_letter(c);
}

static int s_isdigit(ARGS) {
    UNUSED;
    return all_are(out, t, self->s, is_digit);
}

static int s_isalpha(ARGS) {
    UNUSED;
    return all_are(out, t, self->s, rm_tpl_is_letter);
}

static int s_isalnum(ARGS) {
    UNUSED;
    return all_are(out, t, self->s, is_word);
}

static int s_isspace(ARGS) {
    UNUSED;
    return all_are(out, t, self->s, rm_tpl_is_space);
}

static int s_islower(ARGS) {
    UNUSED;
    static const rm_tpl_string name = {.bytes = "lower", .count = 5};
    return rm_tpl_invoke(out, t, rm_tpl_find_test(&name), self, &(rm_tpl_args){0});
}

static int s_isupper(ARGS) {
    UNUSED;
    static const rm_tpl_string name = {.bytes = "upper", .count = 5};
    return rm_tpl_invoke(out, t, rm_tpl_find_test(&name), self, &(rm_tpl_args){0});
}

/* --- filling up ----------------------------------------------------------------------------- */

/* left, right: shares of the filling, of 2. */
static int fill(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                int left) {
    static const rm_tpl_string blank = {.bytes = " ", .count = 1};
    const rm_tpl_string *with = &blank;
    int64_t width, chars;
    RM_TRY(rm_tpl_want_int(&width, t, &a[0], "the width"));
    if (!missing(&a[1])) RM_TRY(rm_tpl_want_string(&with, t, &a[1], "the filling"));
    if (rm_tpl_char_count(with) != 1) return rm_tpl_fail(t, "the filling is one character");
    RM_TRY(rm_tpl_length(&chars, t, self));
    const int64_t more = width > chars ? width - chars : 0;
    /* Python puts the odd one of center() to the left when the width is odd. */
    const int64_t before = left == 2 ? more : left == 0 ? 0 : more / 2 + (more & width & 1);
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    for (int64_t i = 0; i < before && !b.full; i++)
        rm_tpl_put_part(&b, with, 0, with->count);
    rm_tpl_put_part(&b, self->s, 0, self->s->count);
    for (int64_t i = before; i < more && !b.full; i++)
        rm_tpl_put_part(&b, with, 0, with->count);
    return rm_tpl_build_end(out, t, &b);
}

static int s_ljust(ARGS) {
    UNUSED;
    return fill(out, t, self, a, 0);
}

static int s_center(ARGS) {
    UNUSED;
    return fill(out, t, self, a, 1);
}

static int s_rjust(ARGS) {
    UNUSED;
    return fill(out, t, self, a, 2);
}

static int s_zfill(ARGS) {
    UNUSED;
    static const rm_tpl_string zero = {.bytes = "0", .count = 1};
    const rm_tpl_string *s = self->s;
    const size_t sign = s->count > 0 && (s->bytes[0] == '-' || s->bytes[0] == '+');
    rm_tpl_value head, digits, width;
    int64_t n;
    RM_TRY(rm_tpl_want_int(&n, t, &a[0], "the width"));
    width = rm_tpl_int(n > INT64_MIN ? n - (int64_t)sign : n);
    RM_TRY(rm_tpl_part(&head, t, s, 0, sign));
    RM_TRY(rm_tpl_part(&digits, t, s, sign, s->count));
    const rm_tpl_value with[2] = {width, rm_tpl_of_string(&zero)};
    RM_TRY(fill(&digits, t, &digits, with, 2));
    return rm_tpl_concat(out, t, (const rm_tpl_string *const[]){head.s, digits.s}, 2);
}

const rm_tpl_builtin *rm_tpl_find_string_method(const rm_tpl_string *name) {
    static const rm_tpl_builtin table[] = {
        {"split", s_split, "sep maxsplit", 0},
        {"rsplit", s_rsplit, "sep maxsplit", 0},
        {"splitlines", s_splitlines, "keepends", 0},
        {"strip", s_strip, "chars", 0},
        {"lstrip", s_lstrip, "chars", 0},
        {"rstrip", s_rstrip, "chars", 0},
        {"startswith", s_startswith, "prefix", 1},
        {"endswith", s_endswith, "suffix", 1},
        {"replace", s_replace, "old new count", 2},
        {"upper", s_upper, "", 0},
        {"lower", s_lower, "", 0},
        {"casefold", s_lower, "", 0},
        {"title", s_title, "", 0},
        {"capitalize", s_capitalize, "", 0},
        {"swapcase", s_swapcase, "", 0},
        {"join", s_join, "iterable", 1},
        {"find", s_find, "sub start end", 1},
        {"rfind", s_rfind, "sub start end", 1},
        {"index", s_index, "sub start end", 1},
        {"count", s_count, "sub", 1},
        {"format", rm_tpl_format_braces, NULL, 0},
        {"removeprefix", s_removeprefix, "prefix", 1},
        {"removesuffix", s_removesuffix, "suffix", 1},
        {"partition", s_partition, "sep", 1},
        {"rpartition", s_rpartition, "sep", 1},
        {"isdigit", s_isdigit, "", 0},
        {"isdecimal", s_isdigit, "", 0},
        {"isnumeric", s_isdigit, "", 0},
        {"isalpha", s_isalpha, "", 0},
        {"isalnum", s_isalnum, "", 0},
        {"isspace", s_isspace, "", 0},
        {"islower", s_islower, "", 0},
        {"isupper", s_isupper, "", 0},
        {"ljust", s_ljust, "width fillchar", 1},
        {"rjust", s_rjust, "width fillchar", 1},
        {"center", s_center, "width fillchar", 1},
        {"zfill", s_zfill, "width", 1},
    };
    return rm_tpl_find_in(table, sizeof table / sizeof table[0], name);
}
