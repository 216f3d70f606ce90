/*
 * template_eval.c: expressions.
 *
 * What follows a value (.name [item] (call) |filter) is gone through in a loop; a run of operators
 * of one strength too. Text that a run of + or ~ puts together is put together once.
 */
#include "text/template_impl.h"
#include "text/template_token.h"

/* --- names ---------------------------------------------------------------------------------- */

rm_tpl_value *rm_tpl_lookup(rm_tpl *t, const rm_tpl_string *name) {
    for (const rm_tpl_scope *s = t->scope; s != NULL; s = s->parent) {
        for (rm_tpl_var *v = s->vars; v != NULL; v = v->next, t->steps++) {
            if (v->name == name) return &v->value;
        }
    }
    return NULL;
}

static int eval_name(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *name) {
    rm_tpl_value *v = rm_tpl_lookup(t, name);
    if (v == NULL) {
        const rm_tpl_value key = rm_tpl_of_string(name);
        RM_TRY(rm_tpl_dict_find(&v, t, t->variables, &key));
    }
    if (v != NULL) {
        *out = *v;
        return REMAT_OK;
    }
    for (uint32_t i = 0; i < t->extra_count; i++) {
        const rm_template_extra *e = &t->extra[i];
        if (rm_tpl_is_text(name, e->name))
            return rm_tpl_string_of(out, t, e->text, e->text_bytes, true);
    }
    const rm_tpl_builtin *b = rm_tpl_find_global(name);
    *out = b != NULL ? (rm_tpl_value){.type = RM_TPL_BUILTIN, .builtin = b}
                     : (rm_tpl_value){.type = RM_TPL_UNDEFINED, .s = name};
    return REMAT_OK;
}

/* --- attributes and items ------------------------------------------------------------------- */

static int no_such(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const rm_tpl_string *name) {
    if (v->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, v);
    *out = (rm_tpl_value){.type = RM_TPL_UNDEFINED, .s = name};
    return REMAT_OK;
}

/* Attributes of Python's objects: methods, and what loops and namespaces have. */
static int find_attribute(rm_tpl_value *out, bool *found, rm_tpl *t, const rm_tpl_value *v,
                          const rm_tpl_string *name) {
    const rm_tpl_value key = rm_tpl_of_string(name), self = *v;
    rm_tpl_value *item;
    *found = true;
    if (self.type == RM_TPL_NAMESPACE) {
        RM_TRY(rm_tpl_dict_find(&item, t, self.dict, &key));
        *found = item != NULL;
        if (*found) *out = *item;
        return REMAT_OK;
    }
    if (self.type == RM_TPL_LOOP) {
        RM_TRY(rm_tpl_loop_attribute(out, t, self.loop, name));
        *found = rm_tpl_given(out);
        return REMAT_OK;
    }
    const rm_tpl_builtin *b = rm_tpl_find_method(&self, name);
    *found = b != NULL;
    if (b == NULL) return REMAT_OK;
    rm_tpl_method *m;
    RM_TRY(rm_tpl_take(&m, t, 1, sizeof *m));
    *m = (rm_tpl_method){.self = self, .builtin = b};
    *out = (rm_tpl_value){.type = RM_TPL_METHOD, .method = m};
    return REMAT_OK;
}

static int find_item(rm_tpl_value *out, bool *found, rm_tpl *t, const rm_tpl_value *v,
                     const rm_tpl_value *key) {
    const rm_tpl_value self = *v;
    *found = false;
    if (self.type == RM_TPL_DICT) {
        rm_tpl_value *item;
        if (key->type == RM_TPL_LIST && key->list->kind != RM_TPL_TUPLE) return REMAT_OK;
        if (key->type == RM_TPL_DICT) return REMAT_OK;
        RM_TRY(rm_tpl_dict_find(&item, t, self.dict, key));
        *found = item != NULL;
        if (*found) *out = *item;
        return REMAT_OK;
    }
    if (key->type != RM_TPL_INT && key->type != RM_TPL_BOOL) return REMAT_OK;
    int64_t index = key->type == RM_TPL_BOOL ? key->b : key->i, count;
    if (self.type != RM_TPL_LIST && self.type != RM_TPL_STRING && self.type != RM_TPL_RANGE)
        return REMAT_OK;
    if (self.type == RM_TPL_LIST && self.list->kind > RM_TPL_TUPLE &&
        self.list->kind != RM_TPL_STREAM)
        return REMAT_OK;
    RM_TRY(rm_tpl_length(&count, t, &self));
    if (index < 0) index += count;
    if (index < 0 || index >= count) return REMAT_OK;
    *found = true;
    if (self.type == RM_TPL_LIST) {
        *out = self.list->items[index];
    } else if (self.type == RM_TPL_RANGE) {
        *out = rm_tpl_int(self.range->start + index * self.range->step);
    } else {
        const size_t from = rm_tpl_char_offset(self.s, (size_t)index);
        uint32_t code;
        const size_t n = rm_tpl_char(self.s->bytes + from, self.s->count - from, &code);
        return rm_tpl_part(out, t, self.s, from, from + n);
    }
    return REMAT_OK;
}

int rm_tpl_attribute(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v,
                     const rm_tpl_string *name) {
    const rm_tpl_value key = rm_tpl_of_string(name), self = *v;
    bool found;
    RM_TRY(find_attribute(out, &found, t, &self, name));
    if (!found) RM_TRY(find_item(out, &found, t, &self, &key));
    return found ? REMAT_OK : no_such(out, t, &self, name);
}

int rm_tpl_item(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const rm_tpl_value *key) {
    const rm_tpl_value self = *v, k = *key;
    bool found;
    RM_TRY(find_item(out, &found, t, &self, &k));
    const bool text = k.type == RM_TPL_STRING;
    if (!found && text) RM_TRY(find_attribute(out, &found, t, &self, k.s));
    return found ? REMAT_OK : no_such(out, t, &self, text ? k.s : NULL);
}

int rm_tpl_path(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const rm_tpl_value *path) {
    *out = *v;
    if (path->type == RM_TPL_INT) return rm_tpl_item(out, t, out, path);
    if (path->type != RM_TPL_STRING) return REMAT_OK;
    const rm_tpl_string *s = path->s;
    for (size_t at = 0; at <= s->count;) {
        const char *dot = at < s->count ? memchr(s->bytes + at, '.', s->count - at) : NULL;
        const size_t end = dot != NULL ? (size_t)(dot - s->bytes) : s->count;
        rm_tpl_value key;
        int64_t index = 0;
        bool digits = end > at && end - at < 10;
        for (size_t i = at; i < end; i++) {
            digits = digits && s->bytes[i] >= '0' && s->bytes[i] <= '9';
            if (digits) index = index * 10 + (s->bytes[i] - '0');
        }
        RM_TRY(rm_tpl_part(&key, t, s, at, end));
        if (digits) key = rm_tpl_int(index);
        RM_TRY(rm_tpl_item(out, t, out, &key));
        at = end + 1;
    }
    return REMAT_OK;
}

/* --- slices --------------------------------------------------------------------------------- */

/* As Python does: what points outside is moved to the ends. */
static void clip(int64_t *start, int64_t *stop, const bool given[2], int64_t step, int64_t count) {
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    int64_t *const bound[2] = {start, stop};
    for (int i = 0; i < 2; i++) {
        if (!given[i]) {
            *bound[i] = (i == 0) == (step > 0) ? low : high;
            continue;
        }
        if (*bound[i] < 0) *bound[i] = *bound[i] < -count ? -1 - count : *bound[i] + count;
        *bound[i] = *bound[i] < low ? low : *bound[i] > high ? high : *bound[i];
    }
}

static int slice_string(rm_tpl_value *out, rm_tpl *t, const rm_tpl_string *s, int64_t start,
                        int64_t stop, int64_t step) {
    if (step == 1) {
        const size_t from = rm_tpl_char_offset(s, (size_t)start);
        const rm_tpl_string rest = {.bytes = s->bytes + from, .count = s->count - from};
        const size_t n = stop > start ? rm_tpl_char_offset(&rest, (size_t)(stop - start)) : 0;
        return rm_tpl_part(out, t, s, from, from + n);
    }
    rm_tpl_list *chars;
    const rm_tpl_value v = rm_tpl_of_string(s);
    RM_TRY(rm_tpl_items(&chars, t, &v));
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
        rm_tpl_put_part(&b, chars->items[i].s, 0, chars->items[i].s->count);
    return rm_tpl_build_end(out, t, &b);
}

static int slice(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *v, const rm_tpl_node *n) {
    const rm_tpl_node *const parts[3] = {n->a, n->b, n->c};
    const rm_tpl_value self = *v;
    int64_t bounds[3] = {0, 0, 1}, count;
    bool given[3] = {false};
    for (int i = 0; i < 3; i++) {
        rm_tpl_value bound;
        if (parts[i] == NULL) continue;
        RM_TRY(rm_tpl_eval(&bound, t, parts[i]));
        if (bound.type == RM_TPL_NONE) continue;
        RM_TRY(rm_tpl_want_int(&bounds[i], t, &bound, "a slice"));
        given[i] = true;
    }
    if (self.type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, &self);
    if (self.type != RM_TPL_STRING && self.type != RM_TPL_LIST && self.type != RM_TPL_RANGE)
        return rm_tpl_fail(t, "a %s cannot be sliced", rm_tpl_type_name(&self));
    int64_t step = bounds[2];
    if (step == 0) return rm_tpl_fail(t, "a slice has step 0");
    RM_TRY(rm_tpl_length(&count, t, &self));
    if (step > count) step = count + 1; /* steps past the end either way; no overflow */
    if (step < -count) step = -count - 1;
    clip(&bounds[0], &bounds[1], given, step, count);
    if (self.type == RM_TPL_STRING) return slice_string(out, t, self.s, bounds[0], bounds[1], step);
    rm_tpl_list *items, *part;
    RM_TRY(rm_tpl_items(&items, t, &self));
    RM_TRY(rm_tpl_list_new(&part, t, items->kind == RM_TPL_TUPLE ? RM_TPL_TUPLE : RM_TPL_PLAIN, 0));
    for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1]; i += step)
        RM_TRY(rm_tpl_list_add(t, part, &items->items[i]));
    *out = rm_tpl_of_list(part);
    return REMAT_OK;
}

/* --- calls ---------------------------------------------------------------------------------- */

static int add_named(rm_tpl *t, rm_tpl_named *named, uint32_t *count, const rm_tpl_string *name,
                     const rm_tpl_value *v) {
    for (uint32_t i = 0; i < *count; i++) {
        RM_TRY(rm_tpl_work(t, 0));
        if (rm_tpl_same_text(named[i].name, name))
            return rm_tpl_fail(t, "an argument is given twice");
    }
    named[(*count)++] = (rm_tpl_named){.name = name, .value = *v};
    return REMAT_OK;
}

/* *list and **dict bring more arguments than there are nodes. */
static int count_stars(uint32_t *more, rm_tpl *t, const rm_tpl_node *call, rm_tpl_value *values) {
    uint32_t i = 0;
    *more = 0;
    for (const rm_tpl_node *n = call->a; n != NULL; n = n->next, i++) {
        if (n->kind != RM_TPL_N_STAR) {
            RM_TRY(rm_tpl_eval(&values[i], t, n->kind == RM_TPL_N_KEYWORD ? n->a : n));
            continue;
        }
        rm_tpl_value v;
        RM_TRY(rm_tpl_eval(&v, t, n->a));
        if (n->op == 2 && v.type != RM_TPL_DICT) return rm_tpl_fail(t, "** wants a dict");
        if (n->op == 1) {
            RM_TRY(rm_tpl_items(&values[i].list, t, &v));
            *more += values[i].list->count;
        } else {
            values[i] = v;
            *more += v.dict->count;
        }
    }
    return REMAT_OK;
}

static int eval_arguments(rm_tpl_args *args, rm_tpl *t, const rm_tpl_node *call) {
    *args = (rm_tpl_args){0};
    if (call->count == 0) return REMAT_OK;
    rm_tpl_value *values, *at;
    rm_tpl_named *named;
    uint32_t more, i = 0;
    RM_TRY(rm_tpl_take(&values, t, call->count, sizeof *values));
    RM_TRY(count_stars(&more, t, call, values));
    RM_TRY(rm_tpl_take(&at, t, (size_t)call->count + more, sizeof *at));
    bool any_named = false;
    for (const rm_tpl_node *n = call->a; n != NULL; n = n->next)
        any_named = any_named || n->kind == RM_TPL_N_KEYWORD || n->kind == RM_TPL_N_STAR;
    RM_TRY(rm_tpl_take(&named, t, any_named ? (size_t)call->count + more : 0, sizeof *named));
    args->at = at;
    args->named = named;
    for (const rm_tpl_node *n = call->a; n != NULL; n = n->next, i++) {
        if (n->kind == RM_TPL_N_KEYWORD) {
            RM_TRY(add_named(t, named, &args->named_count, n->name, &values[i]));
        } else if (n->kind != RM_TPL_N_STAR) {
            at[args->count++] = values[i];
        } else if (n->op == 1) {
            for (uint32_t j = 0; j < values[i].list->count; j++)
                at[args->count++] = values[i].list->items[j];
        } else {
            for (uint32_t j = 0; j < values[i].dict->count; j++) {
                const rm_tpl_pair *p = &values[i].dict->pairs[j];
                if (p->key.type != RM_TPL_STRING) return rm_tpl_fail(t, "** wants names");
                RM_TRY(add_named(t, named, &args->named_count, p->key.s, &p->value));
            }
        }
    }
    return REMAT_OK;
}

static int eval_call(rm_tpl_value *v, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_args args;
    const rm_tpl_value callee = *v;
    RM_TRY(eval_arguments(&args, t, n));
    t->line = n->line;
    return rm_tpl_call(v, t, &callee, &args);
}

static int eval_builtin(rm_tpl_value *v, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_args args;
    const rm_tpl_value self = *v;
    if (n->builtin == NULL) {
        return rm_tpl_fail(t, "there is no %s '%.*s'",
                           n->kind == RM_TPL_N_FILTER ? "filter" : "test",
                           (int)(n->name->count < 60 ? n->name->count : 60), n->name->bytes);
    }
    RM_TRY(eval_arguments(&args, t, n));
    t->line = n->line;
    RM_TRY(rm_tpl_invoke(v, t, n->builtin, &self, &args));
    if (n->op == 1) v->b = !v->b;
    return REMAT_OK;
}

int rm_tpl_eval_filters(rm_tpl_value *v, rm_tpl *t, const rm_tpl_node *filters) {
    for (const rm_tpl_node *n = filters; n != NULL; n = n->next)
        RM_TRY(eval_builtin(v, t, n));
    return REMAT_OK;
}

static int eval_postfix(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    RM_TRY(rm_tpl_eval(out, t, n->a));
    for (n = n->b; n != NULL; n = n->next) {
        RM_TRY(rm_tpl_work(t, 0));
        t->line = n->line;
        rm_tpl_value key;
        switch (n->kind) {
        case RM_TPL_N_ATTR:
            RM_TRY(rm_tpl_attribute(out, t, out, n->name));
            break;
        case RM_TPL_N_ITEM:
            RM_TRY(rm_tpl_eval(&key, t, n->a));
            t->line = n->line;
            RM_TRY(rm_tpl_item(out, t, out, &key));
            break;
        case RM_TPL_N_SLICE:
            RM_TRY(slice(out, t, out, n));
            break;
        case RM_TPL_N_CALL:
            RM_TRY(eval_call(out, t, n));
            break;
        default:
            RM_TRY(eval_builtin(out, t, n));
        }
    }
    return REMAT_OK;
}

/* --- operators ------------------------------------------------------------------------------ */

/* A run of + - or of ~. When it ends in text put together, *parts is not NULL and *v is not set. */
int rm_tpl_eval_parts(rm_tpl *t, const rm_tpl_node *n, rm_tpl_value *v,
                      const rm_tpl_string ***parts, uint32_t *count) {
    *parts = NULL;
    *count = 0;
    RM_TRY(rm_tpl_eval(v, t, n->a));
    const bool tilde = n->op == RM_TOK_TILDE;
    for (const rm_tpl_node *o = n->b; o != NULL; o = o->next) {
        rm_tpl_value right;
        RM_TRY(rm_tpl_eval(&right, t, o->a));
        t->line = o->line;
        const bool strings = v->type == RM_TPL_STRING && right.type == RM_TPL_STRING;
        if (tilde || (strings && o->op == RM_TOK_ADD)) {
            if (*parts == NULL) {
                RM_TRY(rm_tpl_take(parts, t, (size_t)n->count + 1, sizeof **parts));
                RM_TRY(rm_tpl_to_string(&(*parts)[(*count)++], t, v));
            }
            RM_TRY(rm_tpl_to_string(&(*parts)[(*count)++], t, &right));
            continue;
        }
        if (*parts != NULL) {
            RM_TRY(rm_tpl_concat(v, t, *parts, *count));
            *parts = NULL;
            *count = 0;
        }
        RM_TRY(rm_tpl_arith(v, t, o->op, v, &right));
    }
    return REMAT_OK;
}

static int eval_arith(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    const rm_tpl_string **parts;
    uint32_t count;
    RM_TRY(rm_tpl_eval_parts(t, n, out, &parts, &count));
    return parts != NULL ? rm_tpl_concat(out, t, parts, count) : REMAT_OK;
}

static int compare(bool *out, rm_tpl *t, uint8_t op, const rm_tpl_value *a, const rm_tpl_value *b) {
    if (op == RM_TOK_IN || op == RM_TOK_NOT_IN) {
        RM_TRY(rm_tpl_contains(out, t, b, a));
        *out = *out == (op == RM_TOK_IN);
        return REMAT_OK;
    }
    if (op == RM_TOK_EQ || op == RM_TOK_NE) {
        RM_TRY(rm_tpl_equal(out, t, a, b));
        *out = *out == (op == RM_TOK_EQ);
        return REMAT_OK;
    }
    int order;
    RM_TRY(rm_tpl_order(&order, t, a, b));
    *out = order != 2 && ((order < 0 && (op == RM_TOK_LT || op == RM_TOK_LE)) ||
                          (order > 0 && (op == RM_TOK_GT || op == RM_TOK_GE)) ||
                          (order == 0 && (op == RM_TOK_LE || op == RM_TOK_GE)));
    return REMAT_OK;
}

/* a < b < c: each pair must hold. */
static int eval_compare(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_value left, right;
    bool holds = true;
    RM_TRY(rm_tpl_eval(&left, t, n->a));
    for (const rm_tpl_node *o = n->b; o != NULL && holds; o = o->next) {
        RM_TRY(rm_tpl_eval(&right, t, o->a));
        t->line = o->line;
        RM_TRY(compare(&holds, t, o->op, &left, &right));
        left = right;
    }
    *out = rm_tpl_bool(holds);
    return REMAT_OK;
}

static int eval_and_or(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    const bool stop_at = n->kind == RM_TPL_N_OR;
    RM_TRY(rm_tpl_eval(out, t, n->a));
    for (const rm_tpl_node *o = n->b; o != NULL && rm_tpl_truth(out) != stop_at; o = o->next)
        RM_TRY(rm_tpl_eval(out, t, o->a));
    return REMAT_OK;
}

static int eval_items(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_list *list;
    RM_TRY(rm_tpl_list_new(&list, t, n->kind == RM_TPL_N_TUPLE ? RM_TPL_TUPLE : RM_TPL_PLAIN,
                           n->count));
    for (const rm_tpl_node *i = n->a; i != NULL; i = i->next)
        RM_TRY(rm_tpl_eval(&list->items[list->count++], t, i));
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int eval_dict(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_dict *dict;
    RM_TRY(rm_tpl_dict_new(&dict, t));
    for (const rm_tpl_node *i = n->a; i != NULL; i = i->next->next) {
        rm_tpl_value key, value;
        RM_TRY(rm_tpl_eval(&key, t, i));
        RM_TRY(rm_tpl_eval(&value, t, i->next));
        RM_TRY(rm_tpl_dict_set(t, dict, &key, &value));
    }
    *out = (rm_tpl_value){.type = RM_TPL_DICT, .dict = dict};
    return REMAT_OK;
}

static int eval_kind(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    bool truth;
    switch (n->kind) {
    case RM_TPL_N_NAME:
        return eval_name(out, t, n->name);
    case RM_TPL_N_POSTFIX:
        return eval_postfix(out, t, n);
    case RM_TPL_N_ARITH:
        return eval_arith(out, t, n);
    case RM_TPL_N_COMPARE:
        return eval_compare(out, t, n);
    case RM_TPL_N_AND:
    case RM_TPL_N_OR:
        return eval_and_or(out, t, n);
    case RM_TPL_N_NOT:
        RM_TRY(rm_tpl_truth_of(&truth, t, n->a));
        *out = rm_tpl_bool(!truth);
        return REMAT_OK;
    case RM_TPL_N_NEGATE:
        RM_TRY(rm_tpl_eval(out, t, n->a));
        return rm_tpl_negate(out, t, n->op, out);
    case RM_TPL_N_COND:
        RM_TRY(rm_tpl_truth_of(&truth, t, n->b));
        *out = (rm_tpl_value){.type = RM_TPL_UNDEFINED};
        if (truth) return rm_tpl_eval(out, t, n->a);
        return n->c != NULL ? rm_tpl_eval(out, t, n->c) : REMAT_OK;
    case RM_TPL_N_LIST:
    case RM_TPL_N_TUPLE:
        return eval_items(out, t, n);
    default:
        RM_ASSERT(n->kind == RM_TPL_N_DICT);
        return eval_dict(out, t, n);
    }
}

int rm_tpl_eval(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n) {
    t->line = n->line;
    if (n->kind == RM_TPL_N_CONST) {
        *out = n->v;
        return rm_tpl_work(t, 0);
    }
    RM_TRY(rm_tpl_enter(t));
    RM_TRY(eval_kind(out, t, n));
    rm_tpl_leave(t);
    return REMAT_OK;
}

int rm_tpl_truth_of(bool *out, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_value v;
    RM_TRY(rm_tpl_eval(&v, t, n));
    *out = rm_tpl_truth(&v);
    return REMAT_OK;
}
