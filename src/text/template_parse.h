/* template_parse.h: what the parsers of expressions and of statements share. Part: text. */
#ifndef RM_TEXT_TEMPLATE_PARSE_H
#define RM_TEXT_TEMPLATE_PARSE_H

#include "text/template_token.h"

typedef struct rm_parser {
    rm_tpl *t;
    rm_lexer lexer;
    rm_token now, ahead;
    bool has_ahead;
    uint32_t loops;     /* around here, inside of the innermost macro */
    uint8_t macro_uses; /* RM_TPL_USES_.. by the innermost macros so far */
} rm_parser;

/* A list of nodes, to be appended to. */
typedef struct rm_node_list {
    rm_tpl_node *first, *last;
    uint32_t count;
} rm_node_list;

static inline void rm_node_append(rm_node_list *list, rm_tpl_node *n) {
    if (list->last != NULL)
        list->last->next = n;
    else
        list->first = n;
    list->last = n;
    list->count++;
}

int rm_parse_node(rm_tpl_node **out, rm_parser *p, rm_tpl_kind kind);
int rm_parse_next(rm_parser *p);
int rm_parse_unexpected(rm_parser *p, const char *wanted);
int rm_parse_expect(rm_parser *p, rm_tok kind);
int rm_parse_name(const rm_tpl_string **out, rm_parser *p); /* takes a name */
bool rm_parse_is(const rm_parser *p, const char *word);     /* the token is this name */
int rm_parse_skip(bool *taken, rm_parser *p, rm_tok kind);  /* takes it if it is there */

int rm_parse_expression(rm_tpl_node **out, rm_parser *p, bool with_condition);
/* One expression, or several with commas: a tuple. stop: a name that ends it, or NULL. */
int rm_parse_tuple(rm_tpl_node **out, rm_parser *p, bool with_condition, const char *stop);
int rm_parse_filters(rm_node_list *ops, rm_parser *p, bool first_has_no_pipe);

#endif /* RM_TEXT_TEMPLATE_PARSE_H */
