/*
 * template_exec.c: statements, loops and macros.
 *
 * What a loop, macro or block sets is its own; if has no scope. A loop uses one scope for all its
 * rounds, emptied each time, unless a macro was defined inside, which keeps it.
 */
#include "text/template_impl.h"

int rm_tpl_emit(rm_tpl *t, const rm_tpl_string *s) {
    if (s->count == 0) return REMAT_OK;
    rm_tpl_sink *sink = t->sink;
    if (s->count > t->limits.output_max - sink->bytes)
        return rm_tpl_fail(t, "it writes more than %zu bytes", t->limits.output_max);
    rm_tpl_piece *piece;
    RM_TRY(rm_tpl_take(&piece, t, 1, sizeof *piece));
    piece->s = s;
    if (sink->last != NULL)
        sink->last->next = piece;
    else
        sink->first = piece;
    sink->last = piece;
    sink->bytes += s->count;
    return REMAT_OK;
}

int rm_tpl_sink_text(rm_tpl_value *out, rm_tpl *t, const rm_tpl_sink *sink) {
    const rm_tpl_string **parts;
    size_t count = 0;
    for (const rm_tpl_piece *p = sink->first; p != NULL; p = p->next)
        count++;
    RM_TRY(rm_tpl_take(&parts, t, count, sizeof *parts));
    count = 0;
    for (const rm_tpl_piece *p = sink->first; p != NULL; p = p->next)
        parts[count++] = p->s;
    return rm_tpl_concat(out, t, parts, count);
}

/* --- scopes --------------------------------------------------------------------------------- */

static int open_scope(rm_tpl *t, rm_tpl_scope *parent) {
    rm_tpl_scope *s;
    RM_TRY(rm_tpl_take(&s, t, 1, sizeof *s));
    s->parent = parent;
    t->scope = s;
    return REMAT_OK;
}

/* Its variables can be used again. */
static void empty_scope(rm_tpl *t, rm_tpl_scope *s) {
    while (s->vars != NULL) {
        rm_tpl_var *v = s->vars;
        s->vars = v->next;
        v->next = t->spare_vars;
        t->spare_vars = v;
    }
}

static int define(rm_tpl *t, const rm_tpl_string *name, const rm_tpl_value *value) {
    rm_tpl_var *v = t->scope->vars;
    for (; v != NULL && v->name != name; v = v->next)
        RM_TRY(rm_tpl_work(t, 0));
    if (v == NULL) {
        v = t->spare_vars;
        if (v != NULL)
            t->spare_vars = v->next;
        else
            RM_TRY(rm_tpl_take(&v, t, 1, sizeof *v));
        *v = (rm_tpl_var){.name = name, .next = t->scope->vars};
        t->scope->vars = v;
    }
    v->value = *value;
    return REMAT_OK;
}

static int define_text(rm_tpl *t, const char *name, const rm_tpl_value *value) {
    const rm_tpl_string *interned;
    RM_TRY(rm_tpl_intern(&interned, t, name, strlen(name)));
    return define(t, interned, value);
}

static int set_attribute(rm_tpl *t, const rm_tpl_node *target, const rm_tpl_value *v) {
    const rm_tpl_value *ns = rm_tpl_lookup(t, target->name);
    const rm_tpl_value key = rm_tpl_of_string(target->a->name);
    if (ns == NULL || ns->type != RM_TPL_NAMESPACE)
        return rm_tpl_fail(t, "only a namespace's attributes can be set");
    return rm_tpl_dict_set(t, ns->dict, &key, v);
}

/* A target is a name, an attribute of a namespace, or a tuple of them. */
static int assign(rm_tpl *t, const rm_tpl_node *target, const rm_tpl_value *v) {
    if (target->kind == RM_TPL_N_NAME) return define(t, target->name, v);
    if (target->kind == RM_TPL_N_NSREF) return set_attribute(t, target, v);
    rm_tpl_list *items;
    RM_TRY(rm_tpl_items(&items, t, v));
    if (items->count != target->count) {
        return rm_tpl_fail(t, "%u values for %u names", (unsigned)items->count,
                           (unsigned)target->count);
    }
    uint32_t i = 0;
    for (const rm_tpl_node *n = target->a; n != NULL; n = n->next, i++) {
        if (n->kind == RM_TPL_N_NAME)
            RM_TRY(define(t, n->name, &items->items[i]));
        else
            RM_TRY(set_attribute(t, n, &items->items[i]));
    }
    return REMAT_OK;
}

/* --- loops ---------------------------------------------------------------------------------- */

static uint32_t source_count(const rm_tpl_loop *loop) {
    const rm_tpl_value *v = &loop->source;
    return v->type == RM_TPL_RANGE ? v->range->count : v->list->count;
}

static rm_tpl_value source_at(const rm_tpl_loop *loop, uint32_t i) {
    const rm_tpl_value *v = &loop->source;
    if (v->type == RM_TPL_LIST) return v->list->items[i];
    return rm_tpl_int(v->range->start + (int64_t)i * v->range->step);
}

/* Goes on with the filter until index + 1 items have passed, or there is no more. As in Jinja the
 * filter runs when an item is needed and sees what the body has done before. */
static int filter_up_to(rm_tpl *t, rm_tpl_loop *loop, size_t index) {
    rm_tpl_scope *const before = t->scope;
    RM_TRY(open_scope(t, loop->scope));
    while (loop->taken->count <= index && loop->looked < source_count(loop)) {
        const rm_tpl_value v = source_at(loop, loop->looked++);
        bool passes;
        RM_TRY(assign(t, loop->node->a, &v));
        RM_TRY(rm_tpl_truth_of(&passes, t, loop->node->c->a));
        empty_scope(t, t->scope);
        if (passes) RM_TRY(rm_tpl_list_add(t, loop->taken, &v));
    }
    t->scope = before;
    return REMAT_OK;
}

int rm_tpl_loop_at(rm_tpl_value *out, bool *found, rm_tpl *t, rm_tpl_loop *loop, size_t index) {
    if (loop->taken != NULL) {
        RM_TRY(filter_up_to(t, loop, index));
        *found = index < loop->taken->count;
        if (*found) *out = loop->taken->items[index];
        return REMAT_OK;
    }
    *found = index < source_count(loop);
    if (*found) *out = source_at(loop, (uint32_t)index);
    return REMAT_OK;
}

static int open_loop(rm_tpl_loop *loop, rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_value iterable;
    loop->node = n;
    loop->scope = t->scope;
    RM_TRY(rm_tpl_eval(&iterable, t, n->b));
    loop->source = iterable;
    if (iterable.type != RM_TPL_RANGE) {
        rm_tpl_list *items;
        RM_TRY(rm_tpl_items(&items, t, &iterable));
        loop->source = rm_tpl_of_list(items);
    }
    if (n->c->a != NULL) RM_TRY(rm_tpl_list_new(&loop->taken, t, RM_TPL_PLAIN, 0));
    return REMAT_OK;
}

static int exec_for(rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_scope *const before = t->scope;
    rm_tpl_loop *loop;
    RM_TRY(rm_tpl_take(&loop, t, 1, sizeof *loop));
    RM_TRY(open_loop(loop, t, n));
    RM_TRY(open_scope(t, before));
    for (;; loop->index++) {
        rm_tpl_value item;
        const rm_tpl_value self = {.type = RM_TPL_LOOP, .loop = loop};
        bool found;
        RM_TRY(rm_tpl_work(t, 0));
        RM_TRY(rm_tpl_loop_at(&item, &found, t, loop, loop->index));
        if (!found) break;
        if (t->scope->kept)
            RM_TRY(open_scope(t, before));
        else
            empty_scope(t, t->scope);
        RM_TRY(define_text(t, "loop", &self));
        t->line = n->line;
        RM_TRY(assign(t, n->a, &item));
        RM_TRY(rm_tpl_exec(t, n->c->b));
        const bool stop = t->flow == RM_TPL_BREAK;
        t->flow = RM_TPL_GO_ON;
        if (stop) break;
    }
    if (loop->index == 0 && n->c->c != NULL) {
        rm_tpl_value first;
        bool found; /* a break in the first round is not an empty loop */
        RM_TRY(rm_tpl_loop_at(&first, &found, t, loop, 0));
        if (!found) {
            RM_TRY(open_scope(t, before));
            RM_TRY(rm_tpl_exec(t, n->c->c));
        }
    }
    t->scope = before;
    return REMAT_OK;
}

static int loop_cycle(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                      const rm_tpl_args *all) {
    (void)a;
    if (all->count == 0) return rm_tpl_fail(t, "loop.cycle() without values");
    *out = all->at[self->loop->index % all->count];
    return REMAT_OK;
}

static int loop_changed(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self,
                        const rm_tpl_value *a, const rm_tpl_args *all) {
    (void)a;
    rm_tpl_list *now;
    bool same = false;
    RM_TRY(rm_tpl_list_new(&now, t, RM_TPL_TUPLE, all->count));
    for (uint32_t i = 0; i < all->count; i++)
        now->items[now->count++] = all->at[i];
    if (self->loop->changed != NULL) {
        const rm_tpl_value x = rm_tpl_of_list(self->loop->changed), y = rm_tpl_of_list(now);
        RM_TRY(rm_tpl_equal(&same, t, &x, &y));
    }
    self->loop->changed = now;
    *out = rm_tpl_bool(!same);
    return REMAT_OK;
}

static int loop_method(rm_tpl_value *out, rm_tpl *t, rm_tpl_loop *loop, const rm_tpl_builtin *b) {
    rm_tpl_method *m;
    RM_TRY(rm_tpl_take(&m, t, 1, sizeof *m));
    m->self = (rm_tpl_value){.type = RM_TPL_LOOP, .loop = loop};
    m->builtin = b;
    *out = (rm_tpl_value){.type = RM_TPL_METHOD, .method = m};
    return REMAT_OK;
}

/* Sets absent when there is no such attribute. */
int rm_tpl_loop_attribute(rm_tpl_value *out, rm_tpl *t, rm_tpl_loop *loop,
                          const rm_tpl_string *name) {
    static const rm_tpl_builtin cycle = {"cycle", loop_cycle, NULL, 0};
    static const rm_tpl_builtin changed = {"changed", loop_changed, NULL, 0};
    static const char *const names[] = {"index",     "index0",   "first",    "depth",  "depth0",
                                        "last",      "nextitem", "previtem", "length", "revindex",
                                        "revindex0", "cycle",    "changed"};
    const int64_t index = loop->index;
    rm_tpl_value item = {.type = RM_TPL_UNDEFINED, .s = name};
    bool found = false;
    int which = 0;
    while (which < 13 && !rm_tpl_is_text(name, names[which]))
        which++;
    if (which == 5 || which == 6) RM_TRY(rm_tpl_loop_at(&item, &found, t, loop, (size_t)index + 1));
    if (which >= 8 && which <= 10 && loop->taken != NULL) RM_TRY(filter_up_to(t, loop, SIZE_MAX));
    const int64_t count = loop->taken != NULL ? loop->taken->count : source_count(loop);
    const int64_t numbers[11] = {index + 1, index,         index == 0,       1, 0, !found, 0, 0,
                                 count,     count - index, count - index - 1};
    if (which == 7 && index > 0) RM_TRY(rm_tpl_loop_at(&item, &found, t, loop, (size_t)index - 1));
    *out = item;
    if (which == 6 || which == 7) return REMAT_OK;
    if (which == 11 || which == 12)
        return loop_method(out, t, loop, which == 11 ? &cycle : &changed);
    if (which == 13) {
        out->type = RM_TPL_ABSENT;
        return REMAT_OK;
    }
    *out = which == 2 || which == 5 ? rm_tpl_bool(numbers[which] != 0) : rm_tpl_int(numbers[which]);
    out->own = which <= 4;
    return REMAT_OK;
}

/* --- macros --------------------------------------------------------------------------------- */

/* For %.*s: a name of the template, of any length. */
#define SHOWN(name) (int)((name)->count < 60 ? (name)->count : 60), (name)->bytes

static void keep_scopes(rm_tpl_scope *s) {
    for (; s != NULL && !s->kept; s = s->parent)
        s->kept = true;
}

static int make_macro(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *n,
                      const rm_tpl_string *name) {
    rm_tpl_macro *m;
    RM_TRY(rm_tpl_take(&m, t, 1, sizeof *m));
    *m = (rm_tpl_macro){.node = n, .scope = t->scope, .name = name};
    keep_scopes(t->scope);
    *out = (rm_tpl_value){.type = RM_TPL_MACRO, .macro = m};
    return REMAT_OK;
}

/* A named argument's place among the parameters, or count. */
static int named_place(uint32_t *out, rm_tpl *t, const rm_tpl_args *args,
                       const rm_tpl_string *name) {
    for (*out = 0; *out < args->named_count; ++*out) {
        RM_TRY(rm_tpl_work(t, 0));
        if (rm_tpl_same_text(args->named[*out].name, name)) break;
    }
    return REMAT_OK;
}

/* varargs, kwargs, caller; used: how many of the named ones were parameters. */
static int define_others(rm_tpl *t, const rm_tpl_macro *m, const rm_tpl_args *args, uint32_t used) {
    const rm_tpl_node *n = m->node;
    const rm_tpl_string *caller;
    rm_tpl_value v = {.type = RM_TPL_UNDEFINED};
    uint32_t at;
    RM_TRY(rm_tpl_intern(&caller, t, "caller", 6));
    v.s = caller;
    RM_TRY(named_place(&at, t, args, caller));
    if ((n->op & RM_TPL_USES_CALLER) != 0) {
        if (at < args->named_count) {
            v = args->named[at].value;
            used++;
        }
        RM_TRY(define(t, caller, &v));
    }
    if ((n->op & RM_TPL_USES_VARARGS) != 0) {
        rm_tpl_list *rest;
        RM_TRY(rm_tpl_list_new(&rest, t, RM_TPL_TUPLE, 0));
        for (uint32_t i = n->count; i < args->count; i++)
            RM_TRY(rm_tpl_list_add(t, rest, &args->at[i]));
        v = rm_tpl_of_list(rest);
        RM_TRY(define_text(t, "varargs", &v));
    } else if (args->count > n->count) {
        return rm_tpl_fail(t, "macro '%.*s' takes %u arguments, not %u", SHOWN(m->name),
                           (unsigned)n->count, (unsigned)args->count);
    }
    if ((n->op & RM_TPL_USES_KWARGS) == 0) {
        if (used == args->named_count) return REMAT_OK;
        return rm_tpl_fail(t, "macro '%.*s' has no parameter of that name", SHOWN(m->name));
    }
    rm_tpl_dict *rest;
    RM_TRY(rm_tpl_dict_new(&rest, t));
    for (uint32_t i = 0; i < args->named_count; i++) {
        const rm_tpl_string *name = args->named[i].name;
        bool parameter = name == caller;
        for (const rm_tpl_node *p = n->a; p != NULL && !parameter; p = p->next)
            parameter = rm_tpl_same_text(p->name, name);
        const rm_tpl_value key = rm_tpl_of_string(name);
        if (!parameter) RM_TRY(rm_tpl_dict_set(t, rest, &key, &args->named[i].value));
    }
    v = (rm_tpl_value){.type = RM_TPL_DICT, .dict = rest};
    return define_text(t, "kwargs", &v);
}

/* Defaults are computed at the call, inside: they see the parameters before them. */
static int define_parameters(rm_tpl *t, const rm_tpl_macro *m, const rm_tpl_args *args) {
    uint32_t i = 0, used = 0, at;
    for (const rm_tpl_node *p = m->node->a; p != NULL; p = p->next, i++) {
        rm_tpl_value v = {.type = RM_TPL_UNDEFINED, .s = p->name};
        RM_TRY(named_place(&at, t, args, p->name));
        if (at < args->named_count) {
            if (i < args->count)
                return rm_tpl_fail(t, "macro '%.*s' gets an argument twice", SHOWN(m->name));
            v = args->named[at].value;
            used++;
        } else if (i < args->count) {
            v = args->at[i];
        } else if (p->a != NULL) {
            RM_TRY(rm_tpl_eval(&v, t, p->a));
        }
        RM_TRY(define(t, p->name, &v));
    }
    return define_others(t, m, args, used);
}

int rm_tpl_macro_call(rm_tpl_value *out, rm_tpl *t, const rm_tpl_macro *m,
                      const rm_tpl_args *args) {
    rm_tpl_scope *const scope = t->scope;
    rm_tpl_sink *const sink = t->sink;
    rm_tpl_sink inside = {0};
    RM_TRY(rm_tpl_enter(t));
    RM_TRY(open_scope(t, m->scope));
    RM_TRY(define_parameters(t, m, args));
    t->sink = &inside;
    RM_TRY(rm_tpl_exec(t, m->node->b));
    t->sink = sink;
    t->scope = scope;
    rm_tpl_leave(t);
    return rm_tpl_sink_text(out, t, &inside);
}

/* The call of a call block: as it stands, with one more argument. */
static int exec_caller(rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_value caller, text;
    rm_tpl_node *base, *call = NULL, argument = {.kind = RM_TPL_N_KEYWORD, .line = n->line};
    rm_tpl_node constant = {.kind = RM_TPL_N_CONST, .line = n->line}, *last;
    RM_TRY(rm_tpl_intern(&argument.name, t, "caller", 6));
    RM_TRY(make_macro(&caller, t, n, argument.name));
    constant.v = caller;
    argument.a = &constant;
    /* Copies of the nodes that change: the template's own may be in use further up. */
    RM_TRY(rm_tpl_take(&base, t, 1, sizeof *base));
    *base = *n->c;
    rm_tpl_node **link = &base->b;
    for (const rm_tpl_node *op = n->c->b; op != NULL; op = op->next) {
        RM_TRY(rm_tpl_take(&call, t, 1, sizeof *call));
        *call = *op;
        *link = call;
        link = &call->next;
    }
    RM_ASSERT(call != NULL);
    last = call;
    link = &last->a;
    for (const rm_tpl_node *arg = last->a; arg != NULL; arg = arg->next) {
        rm_tpl_node *copy;
        RM_TRY(rm_tpl_take(&copy, t, 1, sizeof *copy));
        *copy = *arg;
        *link = copy;
        link = &copy->next;
    }
    *link = &argument;
    last->count++;
    RM_TRY(rm_tpl_eval(&text, t, base));
    const rm_tpl_string *s;
    RM_TRY(rm_tpl_to_string(&s, t, &text));
    return rm_tpl_emit(t, s);
}

/* --- statements ----------------------------------------------------------------------------- */

/* The text of a body, which has its own scope. */
static int capture(rm_tpl_value *out, rm_tpl *t, const rm_tpl_node *body) {
    rm_tpl_scope *const scope = t->scope;
    rm_tpl_sink *const sink = t->sink;
    rm_tpl_sink inside = {0};
    RM_TRY(open_scope(t, scope));
    t->sink = &inside;
    RM_TRY(rm_tpl_exec(t, body));
    t->sink = sink;
    t->scope = scope;
    return rm_tpl_sink_text(out, t, &inside);
}

static int exec_print(rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_value v;
    const rm_tpl_string *s, **parts = NULL;
    uint32_t count = 0;
    if (n->kind == RM_TPL_N_ARITH)
        RM_TRY(rm_tpl_eval_parts(t, n, &v, &parts, &count));
    else
        RM_TRY(rm_tpl_eval(&v, t, n));
    if (parts == NULL) {
        RM_TRY(rm_tpl_to_string(&s, t, &v));
        return rm_tpl_emit(t, s);
    }
    for (uint32_t i = 0; i < count; i++)
        RM_TRY(rm_tpl_emit(t, parts[i]));
    return REMAT_OK;
}

static int exec_with(rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_scope *const before = t->scope;
    rm_tpl_scope *inside;
    RM_TRY(open_scope(t, before));
    inside = t->scope;
    for (const rm_tpl_node *set = n->a; set != NULL; set = set->next) {
        rm_tpl_value v;
        t->scope = before; /* values do not see each other */
        RM_TRY(rm_tpl_eval(&v, t, set->b));
        t->scope = inside;
        RM_TRY(assign(t, set->a, &v));
    }
    RM_TRY(rm_tpl_exec(t, n->b));
    t->scope = before;
    return REMAT_OK;
}

static int exec_if(rm_tpl *t, const rm_tpl_node *n) {
    for (const rm_tpl_node *branch = n->a; branch != NULL; branch = branch->next) {
        bool truth = true;
        if (branch->a != NULL) RM_TRY(rm_tpl_truth_of(&truth, t, branch->a));
        if (truth) return rm_tpl_exec(t, branch->b);
    }
    return REMAT_OK;
}

static int exec_values(rm_tpl *t, const rm_tpl_node *n) {
    rm_tpl_value v;
    const rm_tpl_string *s;
    switch (n->kind) {
    case RM_TPL_N_SET:
        RM_TRY(rm_tpl_eval(&v, t, n->b));
        t->line = n->line;
        return assign(t, n->a, &v);
    case RM_TPL_N_SET_BODY:
        RM_TRY(capture(&v, t, n->b));
        RM_TRY(rm_tpl_eval_filters(&v, t, n->c));
        return assign(t, n->a, &v);
    case RM_TPL_N_FILTERED:
        RM_TRY(capture(&v, t, n->b));
        RM_TRY(rm_tpl_eval_filters(&v, t, n->a));
        RM_TRY(rm_tpl_to_string(&s, t, &v));
        return rm_tpl_emit(t, s);
    default:
        RM_ASSERT(n->kind == RM_TPL_N_MACRO);
        RM_TRY(make_macro(&v, t, n, n->name));
        return define(t, n->name, &v);
    }
}

int rm_tpl_exec(rm_tpl *t, const rm_tpl_node *list) {
    RM_TRY(rm_tpl_enter(t));
    for (const rm_tpl_node *n = list; n != NULL && t->flow == RM_TPL_GO_ON; n = n->next) {
        RM_TRY(rm_tpl_work(t, 0));
        t->line = n->line;
        switch (n->kind) {
        case RM_TPL_N_DATA:
            RM_TRY(rm_tpl_emit(t, n->name));
            break;
        case RM_TPL_N_PRINT:
            RM_TRY(exec_print(t, n->a));
            break;
        case RM_TPL_N_IF:
            RM_TRY(exec_if(t, n));
            break;
        case RM_TPL_N_FOR:
            RM_TRY(exec_for(t, n));
            break;
        case RM_TPL_N_WITH:
            RM_TRY(exec_with(t, n));
            break;
        case RM_TPL_N_CALLER:
            RM_TRY(exec_caller(t, n));
            break;
        case RM_TPL_N_BREAK:
            t->flow = RM_TPL_BREAK;
            break;
        case RM_TPL_N_CONTINUE:
            t->flow = RM_TPL_CONTINUE;
            break;
        default:
            RM_TRY(exec_values(t, n));
        }
    }
    rm_tpl_leave(t);
    return REMAT_OK;
}
