/*
 * template_statement.c: statements. The body of a block is a list of nodes up to the tag that ends
 * it; `{% elif %}` does not nest.
 */
#include "text/template_parse.h"

static int parse_body(rm_tpl_node **out, rm_parser *p, const char *const *ends, size_t end_count);

/* A body that has one end, which is taken along with the rest of its tag. */
static int parse_block(rm_tpl_node **out, rm_parser *p, const char *end) {
    RM_TRY(parse_body(out, p, &end, 1));
    RM_TRY(rm_parse_next(p));
    return rm_parse_expect(p, RM_TOK_BLOCK_END);
}

static int parse_if(rm_tpl_node *n, rm_parser *p) {
    static const char *const ends[] = {"elif", "else", "endif"};
    rm_node_list branches = {0};
    bool otherwise = false;
    n->kind = RM_TPL_N_IF;
    for (;;) {
        rm_tpl_node *branch;
        RM_TRY(rm_parse_node(&branch, p, RM_TPL_N_BRANCH));
        if (!otherwise) RM_TRY(rm_parse_tuple(&branch->a, p, false, NULL));
        RM_TRY(parse_body(&branch->b, p, otherwise ? ends + 2 : ends, otherwise ? 1 : 3));
        rm_node_append(&branches, branch);
        const bool last = rm_parse_is(p, "endif");
        otherwise = rm_parse_is(p, "else");
        RM_TRY(rm_parse_next(p));
        if (last) break;
    }
    n->a = branches.first;
    return rm_parse_expect(p, RM_TOK_BLOCK_END);
}

static int parse_target_name(rm_tpl_node **out, rm_parser *p, bool attributes) {
    RM_TRY(rm_parse_node(out, p, RM_TPL_N_NAME));
    RM_TRY(rm_parse_name(&(*out)->name, p));
    if (!attributes || p->now.kind != RM_TOK_DOT) return REMAT_OK;
    RM_TRY(rm_parse_next(p));
    (*out)->kind = RM_TPL_N_NSREF;
    RM_TRY(rm_parse_node(&(*out)->a, p, RM_TPL_N_NAME));
    return rm_parse_name(&(*out)->a->name, p);
}

/* name, name.attribute, or several of them with commas, in parentheses or not. */
static int parse_target(rm_tpl_node **out, rm_parser *p, bool attributes) {
    bool parentheses, comma = false;
    rm_node_list items = {0};
    rm_tpl_node *n;
    RM_TRY(rm_parse_skip(&parentheses, p, RM_TOK_LPAREN));
    do {
        if (comma && p->now.kind != RM_TOK_NAME) break;
        if (comma && rm_parse_is(p, "in")) break;
        RM_TRY(parse_target_name(&n, p, attributes));
        rm_node_append(&items, n);
        RM_TRY(rm_parse_skip(&comma, p, RM_TOK_COMMA));
    } while (comma);
    if (parentheses) RM_TRY(rm_parse_expect(p, RM_TOK_RPAREN));
    *out = items.first;
    if (items.count == 1 && !comma) return REMAT_OK;
    RM_TRY(rm_parse_node(out, p, RM_TPL_N_TUPLE));
    (*out)->a = items.first;
    (*out)->count = items.count;
    return REMAT_OK;
}

static int parse_for(rm_tpl_node *n, rm_parser *p) {
    static const char *const ends[] = {"else", "endfor"};
    rm_tpl_node *rest;
    n->kind = RM_TPL_N_FOR;
    RM_TRY(rm_parse_node(&rest, p, RM_TPL_N_FOR_REST));
    n->c = rest;
    RM_TRY(parse_target(&n->a, p, false));
    if (!rm_parse_is(p, "in")) return rm_parse_unexpected(p, "'in'");
    RM_TRY(rm_parse_next(p));
    RM_TRY(rm_parse_tuple(&n->b, p, false, "recursive"));
    if (rm_parse_is(p, "if")) {
        RM_TRY(rm_parse_next(p));
        RM_TRY(rm_parse_expression(&rest->a, p, true));
    }
    if (rm_parse_is(p, "recursive")) return rm_tpl_fail(p->t, "recursive loops are not supported");
    p->loops++;
    RM_TRY(parse_body(&rest->b, p, ends, 2));
    p->loops--;
    const bool otherwise = rm_parse_is(p, "else");
    RM_TRY(rm_parse_next(p));
    if (otherwise) return parse_block(&rest->c, p, "endfor");
    return rm_parse_expect(p, RM_TOK_BLOCK_END);
}

static int parse_set(rm_tpl_node *n, rm_parser *p) {
    bool value;
    rm_node_list filters = {0};
    RM_TRY(parse_target(&n->a, p, true));
    RM_TRY(rm_parse_skip(&value, p, RM_TOK_ASSIGN));
    n->kind = value ? RM_TPL_N_SET : RM_TPL_N_SET_BODY;
    if (value) {
        RM_TRY(rm_parse_tuple(&n->b, p, true, NULL));
        return rm_parse_expect(p, RM_TOK_BLOCK_END);
    }
    RM_TRY(rm_parse_filters(&filters, p, false));
    n->c = filters.first;
    return parse_block(&n->b, p, "endset");
}

static int parse_with(rm_tpl_node *n, rm_parser *p) {
    rm_node_list sets = {0};
    bool comma = true;
    n->kind = RM_TPL_N_WITH;
    while (p->now.kind != RM_TOK_BLOCK_END) {
        if (!comma) return rm_parse_unexpected(p, "%}");
        rm_tpl_node *set;
        RM_TRY(rm_parse_node(&set, p, RM_TPL_N_SET));
        rm_node_append(&sets, set);
        RM_TRY(parse_target_name(&set->a, p, false));
        RM_TRY(rm_parse_expect(p, RM_TOK_ASSIGN));
        RM_TRY(rm_parse_expression(&set->b, p, true));
        RM_TRY(rm_parse_skip(&comma, p, RM_TOK_COMMA));
    }
    n->a = sets.first;
    return parse_block(&n->b, p, "endwith");
}

/* (a, b=1): a list of keywords, without a value where there is no default. */
static int parse_parameters(rm_tpl_node *n, rm_parser *p) {
    rm_node_list list = {0};
    bool comma = true, defaults = false;
    RM_TRY(rm_parse_expect(p, RM_TOK_LPAREN));
    while (p->now.kind != RM_TOK_RPAREN) {
        if (!comma) return rm_parse_unexpected(p, ")");
        rm_tpl_node *parameter;
        bool has_default;
        RM_TRY(rm_parse_node(&parameter, p, RM_TPL_N_KEYWORD));
        rm_node_append(&list, parameter);
        RM_TRY(rm_parse_name(&parameter->name, p));
        RM_TRY(rm_parse_skip(&has_default, p, RM_TOK_ASSIGN));
        if (has_default) RM_TRY(rm_parse_expression(&parameter->a, p, true));
        if (defaults && !has_default)
            return rm_tpl_fail(p->t, "a parameter without a default follows one with a default");
        defaults = has_default;
        RM_TRY(rm_parse_skip(&comma, p, RM_TOK_COMMA));
    }
    n->a = list.first;
    n->count = list.count;
    return rm_parse_next(p);
}

/* The body of a macro or call block: what it uses decides which arguments it takes. A loop around
 * it is not its own. */
static int parse_macro_body(rm_tpl_node *n, rm_parser *p, const char *end) {
    const uint8_t uses = p->macro_uses;
    const uint32_t loops = p->loops;
    p->macro_uses = 0;
    p->loops = 0;
    RM_TRY(parse_block(&n->b, p, end));
    n->op = p->macro_uses;
    p->macro_uses |= uses;
    p->loops = loops;
    return REMAT_OK;
}

static int parse_macro(rm_tpl_node *n, rm_parser *p) {
    n->kind = RM_TPL_N_MACRO;
    RM_TRY(rm_parse_name(&n->name, p));
    RM_TRY(parse_parameters(n, p));
    return parse_macro_body(n, p, "endmacro");
}

static int parse_call_block(rm_tpl_node *n, rm_parser *p) {
    n->kind = RM_TPL_N_CALLER;
    if (p->now.kind == RM_TOK_LPAREN) RM_TRY(parse_parameters(n, p));
    RM_TRY(rm_parse_expression(&n->c, p, true));
    const rm_tpl_node *last = n->c->kind == RM_TPL_N_POSTFIX ? n->c->b : NULL;
    while (last != NULL && last->next != NULL)
        last = last->next;
    if (last == NULL || last->kind != RM_TPL_N_CALL)
        return rm_tpl_fail(p->t, "'call' without a call");
    return parse_macro_body(n, p, "endcall");
}

static int parse_filter_block(rm_tpl_node *n, rm_parser *p) {
    rm_node_list filters = {0};
    n->kind = RM_TPL_N_FILTERED;
    RM_TRY(rm_parse_filters(&filters, p, true));
    n->a = filters.first;
    return parse_block(&n->b, p, "endfilter");
}

/* Marks what a model is trained on; a rendering only keeps its variables inside. */
static int parse_generation(rm_tpl_node *n, rm_parser *p) {
    n->kind = RM_TPL_N_WITH;
    return parse_block(&n->b, p, "endgeneration");
}

static int parse_loop_control(rm_parser *p) {
    if (p->loops == 0) return rm_tpl_fail(p->t, "break or continue outside of a loop");
    return rm_parse_expect(p, RM_TOK_BLOCK_END);
}

static int parse_break(rm_tpl_node *n, rm_parser *p) {
    n->kind = RM_TPL_N_BREAK;
    return parse_loop_control(p);
}

static int parse_continue(rm_tpl_node *n, rm_parser *p) {
    n->kind = RM_TPL_N_CONTINUE;
    return parse_loop_control(p);
}

static int parse_statement(rm_tpl_node **out, rm_parser *p) {
    static const struct {
        const char *word;
        int (*parse)(rm_tpl_node *n, rm_parser *p);
    } table[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!rm_parse_is(p, table[i].word)) continue;
        RM_TRY(rm_parse_node(out, p, RM_TPL_N_DATA));
        RM_TRY(rm_parse_next(p));
        return table[i].parse(*out, p);
    }
    return rm_parse_unexpected(p, "a statement");
}

static bool is_one_of(const rm_parser *p, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (rm_parse_is(p, words[i])) return true;
    }
    return false;
}

/* From the end of the tag that opens it up to the name in one of the end tags, which is not taken;
 * without ends it is the whole template. */
static int parse_body(rm_tpl_node **out, rm_parser *p, const char *const *ends, size_t end_count) {
    rm_node_list list = {0};
    rm_tpl_node *n;
    const uint32_t line = p->now.line;
    RM_TRY(rm_tpl_enter(p->t));
    if (end_count > 0) RM_TRY(rm_parse_expect(p, RM_TOK_BLOCK_END));
    for (;;) {
        if (p->now.kind == RM_TOK_END) {
            if (end_count == 0) break;
            return rm_tpl_fail(p->t, "no '%s' ends the block of line %u", ends[end_count - 1],
                               (unsigned)line);
        }
        if (p->now.kind == RM_TOK_DATA) {
            RM_TRY(rm_parse_node(&n, p, RM_TPL_N_DATA));
            n->name = p->now.v.s;
            if (n->name->count > 0) rm_node_append(&list, n);
            RM_TRY(rm_parse_next(p));
            continue;
        }
        if (p->now.kind == RM_TOK_PRINT_BEGIN) {
            RM_TRY(rm_parse_node(&n, p, RM_TPL_N_PRINT));
            RM_TRY(rm_parse_next(p));
            RM_TRY(rm_parse_tuple(&n->a, p, true, NULL));
            RM_TRY(rm_parse_expect(p, RM_TOK_PRINT_END));
        } else {
            RM_TRY(rm_parse_expect(p, RM_TOK_BLOCK_BEGIN));
            if (is_one_of(p, ends, end_count)) break;
            RM_TRY(parse_statement(&n, p));
        }
        rm_node_append(&list, n);
    }
    rm_tpl_leave(p->t);
    *out = list.first;
    return REMAT_OK;
}

int rm_tpl_parse(rm_tpl_node **out, rm_tpl *t, const char *source, size_t bytes) {
    rm_parser p = {.t = t};
    RM_TRY(rm_lex_start(&p.lexer, t, source, bytes));
    RM_TRY(rm_parse_next(&p));
    return parse_body(out, &p, NULL, 0);
}
