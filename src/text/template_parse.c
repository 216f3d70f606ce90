/*
 * template_parse.c: expressions.
 *
 * By rising strength: a if b else c, or, and, not, comparisons, + -, ~, * / // %, **, signs, then
 * what follows a value: .name [item] (call) |filter is test. Operators of one strength go from left
 * to right (** too: that is Jinja's). A run of them is one node with a list, and so is what follows
 * a value: a long line of template is not a deep tree.
 */
#include "text/template_parse.h"

int rm_parse_node(rm_tpl_node **out, rm_parser *p, rm_tpl_kind kind) {
    RM_TRY(rm_tpl_take(out, p->t, 1, sizeof **out));
    (*out)->kind = (uint8_t)kind;
    (*out)->line = p->now.line;
    return REMAT_OK;
}

int rm_parse_next(rm_parser *p) {
    RM_TRY(rm_tpl_work(p->t, 0));
    if (p->has_ahead) {
        p->now = p->ahead;
        p->has_ahead = false;
    } else {
        RM_TRY(rm_lex_next(&p->now, &p->lexer));
    }
    p->t->line = p->now.line;
    return REMAT_OK;
}

static int look(rm_parser *p) {
    if (p->has_ahead) return REMAT_OK;
    RM_TRY(rm_lex_next(&p->ahead, &p->lexer));
    p->has_ahead = true;
    p->t->line = p->now.line;
    return REMAT_OK;
}

int rm_parse_unexpected(rm_parser *p, const char *wanted) {
    const rm_token *k = &p->now;
    const bool named = k->kind == RM_TOK_NAME;
    return rm_tpl_fail(p->t, "%s is expected, not %s%.*s%s", wanted, named ? "'" : "",
                       named ? (int)(k->v.s->count < 40 ? k->v.s->count : 40) : 100,
                       named ? k->v.s->bytes : rm_tok_name((uint8_t)k->kind), named ? "'" : "");
}

int rm_parse_expect(rm_parser *p, rm_tok kind) {
    if (p->now.kind != kind) return rm_parse_unexpected(p, rm_tok_name((uint8_t)kind));
    return rm_parse_next(p);
}

int rm_parse_name(const rm_tpl_string **out, rm_parser *p) {
    if (p->now.kind != RM_TOK_NAME) return rm_parse_unexpected(p, "a name");
    *out = p->now.v.s;
    if ((*out)->bytes[0] >= '0' && (*out)->bytes[0] <= '9') return rm_parse_unexpected(p, "a name");
    return rm_parse_next(p);
}

bool rm_parse_is(const rm_parser *p, const char *word) {
    return p->now.kind == RM_TOK_NAME && rm_tpl_is_text(p->now.v.s, word);
}

int rm_parse_skip(bool *taken, rm_parser *p, rm_tok kind) {
    *taken = p->now.kind == kind;
    return *taken ? rm_parse_next(p) : REMAT_OK;
}

static int skip_word(bool *taken, rm_parser *p, const char *word) {
    *taken = rm_parse_is(p, word);
    return *taken ? rm_parse_next(p) : REMAT_OK;
}

/* --- values --------------------------------------------------------------------------------- */

/* Items up to the closing token, which is taken; a comma may stand at the end. */
static int parse_items(rm_node_list *items, rm_parser *p, rm_tok close, bool pairs) {
    bool comma = true;
    while (p->now.kind != close) {
        if (!comma) return rm_parse_unexpected(p, rm_tok_name((uint8_t)close));
        rm_tpl_node *n;
        RM_TRY(rm_parse_expression(&n, p, true));
        rm_node_append(items, n);
        if (pairs) {
            RM_TRY(rm_parse_expect(p, RM_TOK_COLON));
            RM_TRY(rm_parse_expression(&n, p, true));
            rm_node_append(items, n);
        }
        RM_TRY(rm_parse_skip(&comma, p, RM_TOK_COMMA));
    }
    return rm_parse_next(p);
}

static int parse_strings(rm_tpl_node *n, rm_parser *p) {
    n->v = p->now.v;
    RM_TRY(rm_parse_next(p));
    while (p->now.kind == RM_TOK_STRING) {
        RM_TRY(rm_tpl_concat(&n->v, p->t, (const rm_tpl_string *const[]){n->v.s, p->now.v.s}, 2));
        RM_TRY(rm_parse_next(p));
    }
    return REMAT_OK;
}

static int parse_word(rm_tpl_node *n, rm_parser *p) {
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < 6; i++) {
        if (!rm_parse_is(p, constants[i])) continue;
        n->v = i < 4 ? rm_tpl_bool(i < 2) : rm_tpl_none();
        n->v.own = true;
        return rm_parse_next(p);
    }
    if (rm_parse_is(p, "caller")) p->macro_uses |= RM_TPL_USES_CALLER;
    if (rm_parse_is(p, "varargs")) p->macro_uses |= RM_TPL_USES_VARARGS;
    if (rm_parse_is(p, "kwargs")) p->macro_uses |= RM_TPL_USES_KWARGS;
    if (rm_parse_is(p, "not") || rm_parse_is(p, "and") || rm_parse_is(p, "or") ||
        rm_parse_is(p, "in") || rm_parse_is(p, "is") || rm_parse_is(p, "if") ||
        rm_parse_is(p, "else"))
        return rm_parse_unexpected(p, "a value");
    n->kind = RM_TPL_N_NAME;
    return rm_parse_name(&n->name, p);
}

static int parse_primary(rm_tpl_node **out, rm_parser *p) {
    rm_tpl_node *n;
    rm_node_list items = {0};
    RM_TRY(rm_parse_node(&n, p, RM_TPL_N_CONST));
    *out = n;
    switch (p->now.kind) {
    case RM_TOK_NAME:
        return parse_word(n, p);
    case RM_TOK_STRING:
        return parse_strings(n, p);
    case RM_TOK_NUMBER:
        n->v = p->now.v;
        return rm_parse_next(p);
    case RM_TOK_LPAREN:
        RM_TRY(rm_parse_next(p));
        if (p->now.kind == RM_TOK_RPAREN)
            n->kind = RM_TPL_N_TUPLE;
        else
            RM_TRY(rm_parse_tuple(out, p, true, NULL));
        return rm_parse_expect(p, RM_TOK_RPAREN);
    case RM_TOK_LBRACKET:
    case RM_TOK_LBRACE: {
        const bool list = p->now.kind == RM_TOK_LBRACKET;
        n->kind = list ? RM_TPL_N_LIST : RM_TPL_N_DICT;
        RM_TRY(rm_parse_next(p));
        RM_TRY(parse_items(&items, p, list ? RM_TOK_RBRACKET : RM_TOK_RBRACE, !list));
        n->a = items.first;
        n->count = items.count;
        return REMAT_OK;
    }
    default:
        return rm_parse_unexpected(p, "a value");
    }
}

/* --- what follows a value ------------------------------------------------------------------- */

static int parse_argument(rm_tpl_node **out, rm_parser *p) {
    const rm_tok kind = p->now.kind;
    if (kind == RM_TOK_MUL || kind == RM_TOK_POW) {
        RM_TRY(rm_parse_node(out, p, RM_TPL_N_STAR));
        (*out)->op = kind == RM_TOK_MUL ? 1 : 2;
        RM_TRY(rm_parse_next(p));
        return rm_parse_expression(&(*out)->a, p, true);
    }
    if (kind == RM_TOK_NAME) {
        RM_TRY(look(p));
        if (p->ahead.kind == RM_TOK_ASSIGN) {
            RM_TRY(rm_parse_node(out, p, RM_TPL_N_KEYWORD));
            RM_TRY(rm_parse_name(&(*out)->name, p));
            RM_TRY(rm_parse_next(p));
            return rm_parse_expression(&(*out)->a, p, true);
        }
    }
    return rm_parse_expression(out, p, true);
}

/* (a, b, *more, name=c, **others); at the opening parenthesis. */
static int parse_arguments(rm_tpl_node *call, rm_parser *p) {
    rm_node_list list = {0};
    bool comma = true, named = false;
    RM_TRY(rm_parse_next(p));
    while (p->now.kind != RM_TOK_RPAREN) {
        if (!comma) return rm_parse_unexpected(p, ")");
        rm_tpl_node *n;
        RM_TRY(parse_argument(&n, p));
        const bool by_name = n->kind == RM_TPL_N_KEYWORD || n->kind == RM_TPL_N_STAR;
        if (named && !by_name)
            return rm_tpl_fail(p->t, "an argument without a name follows one with a name");
        named = named || by_name;
        rm_node_append(&list, n);
        RM_TRY(rm_parse_skip(&comma, p, RM_TOK_COMMA));
    }
    call->a = list.first;
    call->count = list.count;
    return rm_parse_next(p);
}

static int parse_call(rm_node_list *ops, rm_parser *p) {
    rm_tpl_node *n;
    RM_TRY(rm_parse_node(&n, p, RM_TPL_N_CALL));
    rm_node_append(ops, n);
    return parse_arguments(n, p);
}

/* One of the three places of [a:b:c]; what may be missing. */
static int parse_bound(rm_tpl_node **out, rm_parser *p) {
    *out = NULL;
    if (p->now.kind == RM_TOK_COLON || p->now.kind == RM_TOK_RBRACKET) return REMAT_OK;
    return rm_parse_expression(out, p, true);
}

static int parse_subscript(rm_node_list *ops, rm_parser *p) {
    rm_tpl_node *n;
    RM_TRY(rm_parse_node(&n, p, RM_TPL_N_ITEM));
    rm_node_append(ops, n);
    RM_TRY(rm_parse_next(p));
    if (p->now.kind != RM_TOK_COLON) RM_TRY(rm_parse_tuple(&n->a, p, true, NULL));
    if (p->now.kind == RM_TOK_COLON) {
        n->kind = RM_TPL_N_SLICE;
        RM_TRY(rm_parse_next(p));
        RM_TRY(parse_bound(&n->b, p));
        bool more;
        RM_TRY(rm_parse_skip(&more, p, RM_TOK_COLON));
        if (more) RM_TRY(parse_bound(&n->c, p));
    }
    return rm_parse_expect(p, RM_TOK_RBRACKET);
}

static int parse_attribute(rm_node_list *ops, rm_parser *p) {
    rm_tpl_node *n, *index;
    RM_TRY(rm_parse_next(p));
    RM_TRY(rm_parse_node(&n, p, RM_TPL_N_ATTR));
    rm_node_append(ops, n);
    if (p->now.kind == RM_TOK_NAME) {
        n->name = p->now.v.s;
        return rm_parse_next(p);
    }
    if (p->now.kind != RM_TOK_NUMBER || p->now.v.type != RM_TPL_INT)
        return rm_parse_unexpected(p, "a name or number");
    RM_TRY(rm_parse_node(&index, p, RM_TPL_N_CONST));
    index->v = p->now.v;
    n->kind = RM_TPL_N_ITEM;
    n->a = index;
    return rm_parse_next(p);
}

static int parse_postfix(rm_node_list *ops, rm_parser *p) {
    for (;;) {
        if (p->now.kind == RM_TOK_DOT)
            RM_TRY(parse_attribute(ops, p));
        else if (p->now.kind == RM_TOK_LBRACKET)
            RM_TRY(parse_subscript(ops, p));
        else if (p->now.kind == RM_TOK_LPAREN)
            RM_TRY(parse_call(ops, p));
        else
            return REMAT_OK;
    }
}

static int with_ops(rm_tpl_node **out, rm_parser *p, rm_tpl_node *base, const rm_node_list *ops) {
    *out = base;
    if (ops->first == NULL) return REMAT_OK;
    RM_TRY(rm_parse_node(out, p, RM_TPL_N_POSTFIX));
    (*out)->line = base->line;
    (*out)->a = base;
    (*out)->b = ops->first;
    return REMAT_OK;
}

int rm_parse_filters(rm_node_list *ops, rm_parser *p, bool first_has_no_pipe) {
    while (p->now.kind == RM_TOK_PIPE || first_has_no_pipe) {
        rm_tpl_node *n;
        const rm_tpl_string *name;
        if (!first_has_no_pipe) RM_TRY(rm_parse_next(p));
        first_has_no_pipe = false;
        RM_TRY(rm_parse_node(&n, p, RM_TPL_N_FILTER));
        RM_TRY(rm_parse_name(&name, p));
        n->name = name;
        n->builtin = rm_tpl_find_filter(name);
        rm_node_append(ops, n);
        if (p->now.kind == RM_TOK_LPAREN) RM_TRY(parse_arguments(n, p));
    }
    return REMAT_OK;
}

/* x is [not] test, test(arguments), test argument. */
static int parse_test(rm_node_list *ops, rm_parser *p) {
    rm_tpl_node *n, *argument;
    bool negated;
    const rm_tpl_string *name;
    RM_TRY(rm_parse_node(&n, p, RM_TPL_N_TEST));
    rm_node_append(ops, n);
    RM_TRY(rm_parse_next(p));
    RM_TRY(skip_word(&negated, p, "not"));
    RM_TRY(rm_parse_name(&name, p));
    n->op = negated;
    n->name = name;
    n->builtin = rm_tpl_find_test(name);
    const rm_tok kind = p->now.kind;
    if (kind == RM_TOK_LPAREN) return parse_arguments(n, p);
    if (kind != RM_TOK_NAME && kind != RM_TOK_STRING && kind != RM_TOK_NUMBER &&
        kind != RM_TOK_LBRACKET && kind != RM_TOK_LBRACE)
        return REMAT_OK;
    if (rm_parse_is(p, "else") || rm_parse_is(p, "or") || rm_parse_is(p, "and") ||
        rm_parse_is(p, "if") || rm_parse_is(p, "in") || rm_parse_is(p, "not"))
        return REMAT_OK;
    rm_node_list inner = {0};
    RM_TRY(parse_primary(&argument, p));
    RM_TRY(parse_postfix(&inner, p));
    n->count = 1;
    return with_ops(&n->a, p, argument, &inner);
}

/* A sign before a value holds what follows the value, but not its filters: -3|abs is 3. */
static int parse_unary(rm_tpl_node **out, rm_parser *p, bool with_filters) {
    RM_TRY(rm_tpl_enter(p->t));
    rm_tpl_node *base;
    rm_node_list ops = {0};
    if (p->now.kind == RM_TOK_SUB || p->now.kind == RM_TOK_ADD) {
        RM_TRY(rm_parse_node(&base, p, RM_TPL_N_NEGATE));
        base->op = p->now.kind == RM_TOK_SUB ? '-' : '+';
        RM_TRY(rm_parse_next(p));
        RM_TRY(parse_unary(&base->a, p, false));
    } else {
        RM_TRY(parse_primary(&base, p));
    }
    RM_TRY(parse_postfix(&ops, p));
    while (with_filters) {
        if (p->now.kind == RM_TOK_PIPE)
            RM_TRY(rm_parse_filters(&ops, p, false));
        else if (rm_parse_is(p, "is"))
            RM_TRY(parse_test(&ops, p));
        else if (p->now.kind == RM_TOK_LPAREN)
            RM_TRY(parse_call(&ops, p));
        else
            break;
    }
    rm_tpl_leave(p->t);
    return with_ops(out, p, base, &ops);
}

/* --- operators ------------------------------------------------------------------------------ */

enum { S_OR = 1, S_AND, S_NOT, S_COMPARE, S_SUM, S_CONCAT, S_PRODUCT, S_POWER };

/* The operator here, how strong it is (0: there is none) and of how many tokens. */
static int operator_here(rm_tok *op, int *strength, rm_parser *p, bool *two_words) {
    *op = p->now.kind;
    *two_words = false;
    *strength = 0;
    switch (p->now.kind) {
    case RM_TOK_EQ:
    case RM_TOK_NE:
    case RM_TOK_GT:
    case RM_TOK_GE:
    case RM_TOK_LT:
    case RM_TOK_LE:
        *strength = S_COMPARE;
        return REMAT_OK;
    case RM_TOK_ADD:
    case RM_TOK_SUB:
        *strength = S_SUM;
        return REMAT_OK;
    case RM_TOK_TILDE:
        *strength = S_CONCAT;
        return REMAT_OK;
    case RM_TOK_MUL:
    case RM_TOK_DIV:
    case RM_TOK_FLOORDIV:
    case RM_TOK_MOD:
        *strength = S_PRODUCT;
        return REMAT_OK;
    case RM_TOK_POW:
        *strength = S_POWER;
        return REMAT_OK;
    case RM_TOK_NAME:
        break;
    default:
        return REMAT_OK;
    }
    *op = rm_parse_is(p, "or") ? RM_TOK_OR : rm_parse_is(p, "and") ? RM_TOK_AND : RM_TOK_IN;
    *strength = *op == RM_TOK_OR ? S_OR : *op == RM_TOK_AND ? S_AND : S_COMPARE;
    if (*strength != S_COMPARE || rm_parse_is(p, "in")) return REMAT_OK;
    *strength = 0;
    if (!rm_parse_is(p, "not")) return REMAT_OK;
    RM_TRY(look(p));
    if (p->ahead.kind != RM_TOK_NAME || !rm_tpl_is_text(p->ahead.v.s, "in")) return REMAT_OK;
    *op = RM_TOK_NOT_IN;
    *strength = S_COMPARE;
    *two_words = true;
    return REMAT_OK;
}

static int parse_ops(rm_tpl_node **out, rm_parser *p, int weakest);

/* The operators of one strength that follow n, which becomes the first operand. */
static int parse_run(rm_tpl_node **n, rm_parser *p, int strength) {
    rm_tpl_node *run;
    rm_node_list rest = {0};
    RM_TRY(rm_parse_node(&run, p,
                         strength == S_OR        ? RM_TPL_N_OR
                         : strength == S_AND     ? RM_TPL_N_AND
                         : strength == S_COMPARE ? RM_TPL_N_COMPARE
                                                 : RM_TPL_N_ARITH));
    run->line = (*n)->line;
    run->a = *n;
    for (;;) {
        rm_tok op;
        int here;
        bool two_words;
        rm_tpl_node *item, *operand;
        RM_TRY(operator_here(&op, &here, p, &two_words));
        if (here != strength) break;
        RM_TRY(rm_parse_node(&item, p, RM_TPL_N_OP));
        RM_TRY(rm_parse_next(p));
        if (two_words) RM_TRY(rm_parse_next(p));
        RM_TRY(parse_ops(&operand, p, strength + 1));
        item->op = (uint8_t)op;
        item->a = operand;
        rm_node_append(&rest, item);
    }
    RM_ASSERT(rest.first != NULL); /* the caller has seen an operator */
    run->b = rest.first;
    run->op = rest.first->op;
    run->count = rest.count;
    *n = run;
    return REMAT_OK;
}

static int parse_ops(rm_tpl_node **out, rm_parser *p, int weakest) {
    RM_TRY(rm_tpl_enter(p->t));
    rm_tpl_node *n;
    if (weakest <= S_NOT && rm_parse_is(p, "not")) {
        RM_TRY(rm_parse_node(&n, p, RM_TPL_N_NOT));
        RM_TRY(rm_parse_next(p));
        RM_TRY(parse_ops(&n->a, p, S_NOT));
    } else {
        RM_TRY(parse_unary(&n, p, true));
    }
    for (;;) {
        rm_tok op;
        int strength;
        bool two_words;
        RM_TRY(operator_here(&op, &strength, p, &two_words));
        if (strength == 0 || strength < weakest) break;
        RM_TRY(parse_run(&n, p, strength));
    }
    rm_tpl_leave(p->t);
    *out = n;
    return REMAT_OK;
}

int rm_parse_expression(rm_tpl_node **out, rm_parser *p, bool with_condition) {
    RM_TRY(parse_ops(out, p, S_OR));
    if (!with_condition) return REMAT_OK;
    for (bool more = true; rm_parse_is(p, "if");) {
        rm_tpl_node *n;
        RM_TRY(rm_tpl_enter(p->t));
        RM_TRY(rm_parse_node(&n, p, RM_TPL_N_COND));
        RM_TRY(rm_parse_next(p));
        n->a = *out;
        RM_TRY(parse_ops(&n->b, p, S_OR));
        RM_TRY(skip_word(&more, p, "else"));
        if (more) RM_TRY(rm_parse_expression(&n->c, p, true));
        *out = n;
        rm_tpl_leave(p->t);
    }
    return REMAT_OK;
}

static bool tuple_ends(const rm_parser *p, const char *stop) {
    const rm_tok k = p->now.kind;
    return k == RM_TOK_PRINT_END || k == RM_TOK_BLOCK_END || k == RM_TOK_RPAREN ||
           k == RM_TOK_RBRACKET || (stop != NULL && rm_parse_is(p, stop));
}

int rm_parse_tuple(rm_tpl_node **out, rm_parser *p, bool with_condition, const char *stop) {
    rm_node_list items = {0};
    rm_tpl_node *n;
    bool comma = false;
    do {
        if (comma && tuple_ends(p, stop)) break;
        RM_TRY(rm_parse_expression(&n, p, with_condition));
        rm_node_append(&items, n);
        RM_TRY(rm_parse_skip(&comma, p, RM_TOK_COMMA));
    } while (comma);
    *out = items.first;
    if (items.count == 1 && !comma) return REMAT_OK;
    RM_TRY(rm_parse_node(out, p, RM_TPL_N_TUPLE));
    (*out)->a = items.first;
    (*out)->count = items.count;
    return REMAT_OK;
}
