/*
 * template_ops.c: what operators do, as in Python, but for integers, which have 64 bits here: what
 * does not fit is an error.
 */
#include "text/template_impl.h"
#include "text/template_token.h"

#include <math.h>

const char *rm_tpl_type_name(const rm_tpl_value *v) {
    static const char *const names[] = {
        "nothing", "undefined value", "none", "bool",      "int",  "float", "int",      "string",
        "list",    "range",           "dict", "namespace", "loop", "macro", "function", "method"};
    RM_ASSERT(v->type < sizeof names / sizeof names[0]);
    if (v->type == RM_TPL_LIST && v->list->kind == RM_TPL_TUPLE) return "tuple";
    return names[v->type];
}

int rm_tpl_undefined_used(rm_tpl *t, const rm_tpl_value *v) {
    if (v->s == NULL) return rm_tpl_fail(t, "an undefined value is used");
    char name[64];
    size_t n = 0;
    for (; n < sizeof name - 1 && n < v->s->count; n++) /* may be any text of the variables */
        name[n] = (uint8_t)v->s->bytes[n] < 0x20 ? ' ' : v->s->bytes[n];
    if (n == sizeof name - 1) {
        while (n > 0 && ((uint8_t)name[n - 1] & 0x80) != 0)
            n--;
    }
    return rm_tpl_fail(t, "'%.*s' is undefined", (int)n, name);
}

bool rm_tpl_truth(const rm_tpl_value *v) {
    switch (v->type) {
    case RM_TPL_UNDEFINED:
    case RM_TPL_NONE:
    case RM_TPL_ABSENT:
        return false;
    case RM_TPL_BOOL:
        return v->b;
    case RM_TPL_INT:
        return v->i != 0;
    case RM_TPL_FLOAT:
        return v->f != 0;
    case RM_TPL_STRING:
        return v->s->count > 0;
    case RM_TPL_LIST:
        return v->list->kind == RM_TPL_STREAM || v->list->count > 0;
    case RM_TPL_RANGE:
        return v->range->count > 0;
    case RM_TPL_DICT:
        return v->dict->count > 0;
    default:
        return true;
    }
}

static bool is_number(const rm_tpl_value *v) {
    return v->type == RM_TPL_BOOL || v->type == RM_TPL_INT || v->type == RM_TPL_FLOAT;
}

static int64_t int_of(const rm_tpl_value *v) {
    return v->type == RM_TPL_BOOL ? v->b : v->i;
}

static double float_of(const rm_tpl_value *v) {
    return v->type == RM_TPL_FLOAT ? v->f : (double)int_of(v);
}

/* -1, 0, 1; 2 when one is not a number. Exact: an integer is not rounded to meet a float. */
static int order_numbers(const rm_tpl_value *a, const rm_tpl_value *b) {
    if (a->type == RM_TPL_FLOAT && b->type != RM_TPL_FLOAT) {
        const int order = order_numbers(b, a);
        return order == 2 ? 2 : -order;
    }
    if (a->type != RM_TPL_FLOAT && b->type == RM_TPL_FLOAT) {
        const int64_t i = int_of(a);
        if (isnan(b->f)) return 2;
        if (b->f >= 9223372036854775808.0) return -1;
        if (b->f < -9223372036854775808.0) return 1;
        const int64_t whole = (int64_t)b->f; /* towards 0 */
        if (i != whole) return i < whole ? -1 : 1;
        const double rest = b->f - (double)whole;
        return rest > 0 ? -1 : rest < 0;
    }
    if (a->type == RM_TPL_FLOAT) return a->f < b->f ? -1 : a->f > b->f ? 1 : a->f == b->f ? 0 : 2;
    return int_of(a) < int_of(b) ? -1 : int_of(a) > int_of(b);
}

static int equal_lists(bool *out, rm_tpl *t, const rm_tpl_list *a, const rm_tpl_list *b) {
    *out = a->count == b->count && (a->kind == RM_TPL_TUPLE) == (b->kind == RM_TPL_TUPLE);
    for (uint32_t i = 0; *out && i < a->count && i < b->count; i++)
        RM_TRY(rm_tpl_equal(out, t, &a->items[i], &b->items[i]));
    return REMAT_OK;
}

static int equal_dicts(bool *out, rm_tpl *t, const rm_tpl_dict *a, const rm_tpl_dict *b) {
    *out = a->count == b->count;
    for (uint32_t i = 0; *out && i < a->count; i++) {
        rm_tpl_value *other;
        RM_TRY(rm_tpl_dict_find(&other, t, b, &a->pairs[i].key));
        *out = other != NULL;
        if (*out) RM_TRY(rm_tpl_equal(out, t, &a->pairs[i].value, other));
    }
    return REMAT_OK;
}

int rm_tpl_equal(bool *out, rm_tpl *t, const rm_tpl_value *a, const rm_tpl_value *b) {
    *out = false;
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return REMAT_OK;
    }
    if (a->type != b->type) return REMAT_OK;
    switch (a->type) {
    case RM_TPL_UNDEFINED:
    case RM_TPL_NONE:
        *out = true;
        return REMAT_OK;
    case RM_TPL_STRING:
    case RM_TPL_BIG:
        *out = rm_tpl_same_text(a->s, b->s);
        return rm_tpl_work(t, a->s->count == b->s->count ? a->s->count : 0);
    case RM_TPL_LIST:
        RM_TRY(rm_tpl_enter(t));
        RM_TRY(equal_lists(out, t, a->list, b->list));
        break;
    case RM_TPL_DICT:
        RM_TRY(rm_tpl_enter(t));
        RM_TRY(equal_dicts(out, t, a->dict, b->dict));
        break;
    case RM_TPL_RANGE:
        *out =
            a->range->count == b->range->count &&
            (a->range->count == 0 || (a->range->start == b->range->start &&
                                      (a->range->count == 1 || a->range->step == b->range->step)));
        return REMAT_OK;
    default:
        *out = a->list == b->list; /* the same thing */
        return REMAT_OK;
    }
    rm_tpl_leave(t);
    return REMAT_OK;
}

static int order_lists(int *out, rm_tpl *t, const rm_tpl_list *a, const rm_tpl_list *b) {
    RM_TRY(rm_tpl_enter(t));
    for (uint32_t i = 0; i < a->count && i < b->count; i++) {
        bool same;
        RM_TRY(rm_tpl_equal(&same, t, &a->items[i], &b->items[i]));
        if (same) continue;
        RM_TRY(rm_tpl_order(out, t, &a->items[i], &b->items[i]));
        rm_tpl_leave(t);
        return REMAT_OK;
    }
    *out = a->count < b->count ? -1 : a->count > b->count;
    rm_tpl_leave(t);
    return REMAT_OK;
}

/* 2: not a number is neither less nor more. UTF-8 sorts as its characters do. */
int rm_tpl_order(int *out, rm_tpl *t, const rm_tpl_value *a, const rm_tpl_value *b) {
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b);
        return rm_tpl_work(t, 0);
    }
    if (a->type == RM_TPL_STRING && b->type == RM_TPL_STRING) {
        const size_t n = a->s->count < b->s->count ? a->s->count : b->s->count;
        const int c = n > 0 ? memcmp(a->s->bytes, b->s->bytes, n) : 0;
        *out = c != 0 ? (c < 0 ? -1 : 1) : a->s->count < b->s->count ? -1 : a->s->count > n;
        return rm_tpl_work(t, n);
    }
    if (a->type == RM_TPL_LIST && b->type == RM_TPL_LIST &&
        (a->list->kind == RM_TPL_TUPLE) == (b->list->kind == RM_TPL_TUPLE))
        return order_lists(out, t, a->list, b->list);
    if (a->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, a);
    if (b->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, b);
    return rm_tpl_fail(t, "a %s and a %s cannot be put in order", rm_tpl_type_name(a),
                       rm_tpl_type_name(b));
}

int rm_tpl_contains(bool *out, rm_tpl *t, const rm_tpl_value *in, const rm_tpl_value *what) {
    *out = false;
    if (in->type == RM_TPL_STRING) {
        const rm_tpl_string *s;
        if (what->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, what);
        RM_TRY(rm_tpl_want_string(&s, t, what, "'in' a string: what is looked for"));
        RM_TRY(rm_tpl_work(t, in->s->count));
        *out = memmem(in->s->bytes, in->s->count, s->bytes, s->count) != NULL;
        return REMAT_OK;
    }
    if (in->type == RM_TPL_DICT) {
        rm_tpl_value *found;
        RM_TRY(rm_tpl_dict_find(&found, t, in->dict, what));
        *out = found != NULL;
        return REMAT_OK;
    }
    rm_tpl_list *items;
    RM_TRY(rm_tpl_items(&items, t, in));
    for (uint32_t i = 0; i < items->count && !*out; i++) {
        RM_TRY(rm_tpl_work(t, 0));
        RM_TRY(rm_tpl_equal(out, t, &items->items[i], what));
    }
    return REMAT_OK;
}

/* --- arithmetic ----------------------------------------------------------------------------- */

static int too_large(rm_tpl *t) {
    return rm_tpl_fail(t, "a number is too large for 64 bits");
}

static int64_t floor_divide(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int power(rm_tpl_value *out, rm_tpl *t, int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) return rm_tpl_fail(t, "0 to a negative power");
        *out = rm_tpl_float(pow((double)base, (double)exponent));
        return REMAT_OK;
    }
    int64_t result = 1;
    bool over = false; /* the last squaring may be too large without being needed */
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1) over = over || __builtin_mul_overflow(result, base, &result);
        if (over) return too_large(t);
        if (exponent > 1) over = __builtin_mul_overflow(base, base, &base);
        if (over && exponent > 1) return too_large(t);
    }
    *out = rm_tpl_int(result);
    return REMAT_OK;
}

static int arith_int(rm_tpl_value *out, rm_tpl *t, uint8_t op, int64_t a, int64_t b) {
    int64_t r = 0;
    bool over = false;
    if (b == 0 && (op == RM_TOK_DIV || op == RM_TOK_FLOORDIV || op == RM_TOK_MOD))
        return rm_tpl_fail(t, "division by 0");
    switch (op) {
    case RM_TOK_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case RM_TOK_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case RM_TOK_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case RM_TOK_DIV:
        *out = rm_tpl_float((double)a / (double)b);
        return REMAT_OK;
    case RM_TOK_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over) r = floor_divide(a, b);
        break;
    case RM_TOK_MOD: /* the sign is the divisor's */
        r = b == -1 ? 0 : a - b * floor_divide(a, b);
        break;
    default:
        RM_ASSERT(op == RM_TOK_POW);
        return power(out, t, a, b);
    }
    *out = rm_tpl_int(r);
    return over ? too_large(t) : REMAT_OK;
}

static int arith_float(rm_tpl_value *out, rm_tpl *t, uint8_t op, double a, double b) {
    double r = 0;
    if (b == 0 && (op == RM_TOK_DIV || op == RM_TOK_FLOORDIV || op == RM_TOK_MOD))
        return rm_tpl_fail(t, "division by 0");
    switch (op) {
    case RM_TOK_ADD:
        r = a + b;
        break;
    case RM_TOK_SUB:
        r = a - b;
        break;
    case RM_TOK_MUL:
        r = a * b;
        break;
    case RM_TOK_DIV:
        r = a / b;
        break;
    case RM_TOK_FLOORDIV:
    case RM_TOK_MOD: {
        double mod = fmod(a, b);
        if (mod != 0 && (mod < 0) != (b < 0)) mod += b;
        if (mod == 0) mod = copysign(0, b);
        r = op == RM_TOK_MOD ? mod : floor((a - mod) / b + 0.5);
        break;
    }
    default:
        RM_ASSERT(op == RM_TOK_POW);
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            return rm_tpl_fail(t, "a root of a negative number");
    }
    *out = rm_tpl_float(r);
    return REMAT_OK;
}

static int repeat(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, int64_t times) {
    if (times < 0) times = 0;
    const size_t n = v->type == RM_TPL_STRING ? v->s->count : v->list->count;
    if (n > 0 && (uint64_t)times > SIZE_MAX / 64 / n) return too_large(t);
    if (v->type == RM_TPL_STRING) {
        rm_tpl_build b;
        rm_tpl_build_start(&b, t);
        for (int64_t i = 0; i < times && n > 0 && !b.full; i++)
            rm_tpl_put_part(&b, v->s, 0, n);
        return rm_tpl_build_end(out, t, &b);
    }
    rm_tpl_list *list;
    RM_TRY(rm_tpl_list_new(&list, t, v->list->kind, n * (size_t)times));
    for (int64_t i = 0; i < times && n > 0; i++)
        memcpy(list->items + (size_t)i * n, v->list->items, n * sizeof *list->items);
    list->count = list->cap;
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int join_lists(rm_tpl_value *out, rm_tpl *t, const rm_tpl_list *a, const rm_tpl_list *b) {
    rm_tpl_list *list;
    RM_TRY(rm_tpl_list_new(&list, t, a->kind, (size_t)a->count + b->count));
    if (a->count > 0) memcpy(list->items, a->items, a->count * sizeof *list->items);
    if (b->count > 0) memcpy(list->items + a->count, b->items, b->count * sizeof *list->items);
    list->count = list->cap;
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

int rm_tpl_arith(rm_tpl_value *out, rm_tpl *t, uint8_t op, const rm_tpl_value *a,
                 const rm_tpl_value *b) {
    const rm_tpl_value x = *a, y = *b; /* out may be one of them */
    if (is_number(&x) && is_number(&y)) {
        if (x.type == RM_TPL_FLOAT || y.type == RM_TPL_FLOAT)
            RM_TRY(arith_float(out, t, op, float_of(&x), float_of(&y)));
        else
            RM_TRY(arith_int(out, t, op, int_of(&x), int_of(&y)));
        out->own = x.own && y.own;
        return REMAT_OK;
    }
    const bool x_many = x.type == RM_TPL_STRING || x.type == RM_TPL_LIST;
    const bool y_many = y.type == RM_TPL_STRING || y.type == RM_TPL_LIST;
    if (op == RM_TOK_MUL && x_many && (y.type == RM_TPL_INT || y.type == RM_TPL_BOOL))
        return repeat(out, t, &x, int_of(&y));
    if (op == RM_TOK_MUL && y_many && (x.type == RM_TPL_INT || x.type == RM_TPL_BOOL))
        return repeat(out, t, &y, int_of(&x));
    if (op == RM_TOK_ADD && x.type == RM_TPL_STRING && y.type == RM_TPL_STRING)
        return rm_tpl_concat(out, t, (const rm_tpl_string *const[]){x.s, y.s}, 2);
    if (op == RM_TOK_ADD && x.type == RM_TPL_LIST && y.type == RM_TPL_LIST &&
        x.list->kind == y.list->kind && x.list->kind <= RM_TPL_TUPLE)
        return join_lists(out, t, x.list, y.list);
    if (op == RM_TOK_MOD && x.type == RM_TPL_STRING) return rm_tpl_format_printf(out, t, x.s, &y);
    if (x.type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, &x);
    if (y.type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, &y);
    return rm_tpl_fail(t, "'%s' of a %s and a %s is not possible", rm_tok_name(op),
                       rm_tpl_type_name(&x), rm_tpl_type_name(&y));
}

int rm_tpl_negate(rm_tpl_value *out, rm_tpl *t, uint8_t op, const rm_tpl_value *a) {
    if (a->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, a);
    if (!is_number(a)) return rm_tpl_fail(t, "a %s has no sign", rm_tpl_type_name(a));
    const bool own = a->own;
    if (a->type == RM_TPL_FLOAT) {
        *out = rm_tpl_float(op == '-' ? -a->f : a->f);
    } else {
        const int64_t i = int_of(a);
        if (op == '-' && i == INT64_MIN) return too_large(t);
        *out = rm_tpl_int(op == '-' ? -i : i);
    }
    out->own = own;
    return REMAT_OK;
}
