/* template_test.c: what stands behind "is". Each sets a bool. */
#include "text/template_impl.h"

#include <math.h>

#define ARGS                                                                                       \
    rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,                 \
        const rm_tpl_args *all
#define UNUSED ((void)t, (void)self, (void)a, (void)all)

/* A test of the value alone. */
#define TEST(name, condition)                                                                      \
    static int t_##name(ARGS) {                                                                    \
        UNUSED;                                                                                    \
        *out = rm_tpl_bool(condition);                                                             \
        return REMAT_OK;                                                                           \
    }

static bool is_type(const rm_tpl_value *v, rm_tpl_type type) {
    return v->type == type;
}

static bool is_integer(const rm_tpl_value *v) {
    return v->type == RM_TPL_INT || v->type == RM_TPL_BIG;
}

/* It has a length and items by number or key. Undefined values pass in Jinja too. */
static bool is_sequence(const rm_tpl_value *v) {
    if (v->type == RM_TPL_LIST) return v->list->kind <= RM_TPL_TUPLE;
    return v->type == RM_TPL_STRING || v->type == RM_TPL_RANGE || v->type == RM_TPL_DICT ||
           v->type == RM_TPL_UNDEFINED;
}

static bool is_callable(const rm_tpl_value *v) {
    return v->type == RM_TPL_MACRO || v->type == RM_TPL_BUILTIN || v->type == RM_TPL_METHOD;
}

TEST(defined, !is_type(self, RM_TPL_UNDEFINED))
TEST(undefined, is_type(self, RM_TPL_UNDEFINED))
TEST(none, is_type(self, RM_TPL_NONE))
TEST(string, is_type(self, RM_TPL_STRING))
TEST(mapping, is_type(self, RM_TPL_DICT))
TEST(boolean, is_type(self, RM_TPL_BOOL))
TEST(float, is_type(self, RM_TPL_FLOAT))
TEST(integer, is_integer(self))
TEST(number, is_integer(self) || is_type(self, RM_TPL_FLOAT) || is_type(self, RM_TPL_BOOL))
TEST(true, is_type(self, RM_TPL_BOOL) && self->b)
TEST(false, is_type(self, RM_TPL_BOOL) && !self->b)
TEST(sequence, is_sequence(self))
TEST(iterable, is_sequence(self) || is_type(self, RM_TPL_LIST) || is_type(self, RM_TPL_LOOP))
TEST(callable, is_callable(self))
TEST(filter, is_type(self, RM_TPL_STRING) && rm_tpl_find_filter(self->s) != NULL)
TEST(test, is_type(self, RM_TPL_STRING) && rm_tpl_find_test(self->s) != NULL)

static int same_case(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, rm_tpl_case how) {
    const rm_tpl_string *s;
    rm_tpl_value upper, lower;
    RM_TRY(rm_tpl_to_string(&s, t, self));
    RM_TRY(rm_tpl_change_case(&upper, t, s, RM_TPL_UPPER));
    RM_TRY(rm_tpl_change_case(&lower, t, s, RM_TPL_LOWER));
    *out = rm_tpl_bool(rm_tpl_same_text(s, how == RM_TPL_UPPER ? upper.s : lower.s) &&
                       !rm_tpl_same_text(upper.s, lower.s)); /* there is a letter at all */
    return REMAT_OK;
}

static int t_lower(ARGS) {
    UNUSED;
    return same_case(out, t, self, RM_TPL_LOWER);
}

static int t_upper(ARGS) {
    UNUSED;
    return same_case(out, t, self, RM_TPL_UPPER);
}

static int equal(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *x, const rm_tpl_value *y,
                 bool wanted) {
    bool same;
    RM_TRY(rm_tpl_equal(&same, t, x, y));
    *out = rm_tpl_bool(same == wanted);
    return REMAT_OK;
}

static int t_eq(ARGS) {
    UNUSED;
    return equal(out, t, self, &a[0], true);
}

static int t_ne(ARGS) {
    UNUSED;
    return equal(out, t, self, &a[0], false);
}

/* The same object, as near as values come to it. */
static int t_sameas(ARGS) {
    UNUSED;
    if (self->type != a[0].type) {
        *out = rm_tpl_bool(false);
    } else if (self->type == RM_TPL_LIST) {
        *out = rm_tpl_bool(self->list == a[0].list);
    } else if (self->type == RM_TPL_DICT) {
        *out = rm_tpl_bool(self->dict == a[0].dict);
    } else {
        return equal(out, t, self, &a[0], true);
    }
    return REMAT_OK;
}

static int ordered(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *x, const rm_tpl_value *y,
                   int least, int most) {
    int order;
    RM_TRY(rm_tpl_order(&order, t, x, y));
    *out = rm_tpl_bool(order >= least && order <= most);
    return REMAT_OK;
}

static int t_lt(ARGS) {
    UNUSED;
    return ordered(out, t, self, &a[0], -1, -1);
}

static int t_le(ARGS) {
    UNUSED;
    return ordered(out, t, self, &a[0], -1, 0);
}

static int t_gt(ARGS) {
    UNUSED;
    return ordered(out, t, self, &a[0], 1, 1);
}

static int t_ge(ARGS) {
    UNUSED;
    return ordered(out, t, self, &a[0], 0, 1);
}

static int t_in(ARGS) {
    UNUSED;
    bool found;
    RM_TRY(rm_tpl_contains(&found, t, &a[0], self));
    *out = rm_tpl_bool(found);
    return REMAT_OK;
}

static int divides(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, int64_t by,
                   bool wanted) {
    int64_t i;
    if (self->type == RM_TPL_FLOAT) {
        const double rest = fmod(self->f, (double)by);
        *out = rm_tpl_bool(wanted ? rest == 0 : fabs(rest) == 1);
        return REMAT_OK;
    }
    RM_TRY(rm_tpl_want_int(&i, t, self, "what is divided"));
    if (by == 0) return rm_tpl_fail(t, "division by 0");
    *out = rm_tpl_bool((by == -1 || i % by == 0) == wanted);
    return REMAT_OK;
}

static int t_even(ARGS) {
    UNUSED;
    return divides(out, t, self, 2, true);
}

static int t_odd(ARGS) {
    UNUSED;
    return divides(out, t, self, 2, false);
}

static int t_divisibleby(ARGS) {
    UNUSED;
    int64_t by;
    RM_TRY(rm_tpl_want_int(&by, t, &a[0], "divisibleby"));
    return divides(out, t, self, by, true);
}

const rm_tpl_builtin *rm_tpl_find_test(const rm_tpl_string *name) {
    static const rm_tpl_builtin table[] = {
        {"defined", t_defined, "", 0},
        {"string", t_string, "", 0},
        {"none", t_none, "", 0},
        {"mapping", t_mapping, "", 0},
        {"iterable", t_iterable, "", 0},
        {"sequence", t_sequence, "", 0},
        {"undefined", t_undefined, "", 0},
        {"boolean", t_boolean, "", 0},
        {"true", t_true, "", 0},
        {"false", t_false, "", 0},
        {"number", t_number, "", 0},
        {"integer", t_integer, "", 0},
        {"float", t_float, "", 0},
        {"callable", t_callable, "", 0},
        {"lower", t_lower, "", 0},
        {"upper", t_upper, "", 0},
        {"filter", t_filter, "", 0},
        {"test", t_test, "", 0},
        {"equalto", t_eq, "other", 1},
        {"eq", t_eq, "other", 1},
        {"==", t_eq, "other", 1},
        {"ne", t_ne, "other", 1},
        {"!=", t_ne, "other", 1},
        {"lt", t_lt, "other", 1},
        {"lessthan", t_lt, "other", 1},
        {"<", t_lt, "other", 1},
        {"le", t_le, "other", 1},
        {"<=", t_le, "other", 1},
        {"gt", t_gt, "other", 1},
        {"greaterthan", t_gt, "other", 1},
        {">", t_gt, "other", 1},
        {"ge", t_ge, "other", 1},
        {">=", t_ge, "other", 1},
        {"in", t_in, "seq", 1},
        {"sameas", t_sameas, "other", 1},
        {"even", t_even, "", 0},
        {"odd", t_odd, "", 0},
        {"divisibleby", t_divisibleby, "num", 1},
    };
    return rm_tpl_find_in(table, sizeof table / sizeof table[0], name);
}
