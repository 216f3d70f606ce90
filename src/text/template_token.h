/* template_token.h: the lexer of templates, with Jinja's white space rules. Part: text. */
#ifndef RM_TEXT_TEMPLATE_TOKEN_H
#define RM_TEXT_TEMPLATE_TOKEN_H

#include "text/template_impl.h"

/* Token, and how a message shows it. */
#define RM_TOKENS(X)                                                                               \
    X(END, "the end of the template")                                                              \
    X(DATA, "text")                                                                                \
    X(PRINT_BEGIN, "{{")                                                                           \
    X(PRINT_END, "}}")                                                                             \
    X(BLOCK_BEGIN, "{%")                                                                           \
    X(BLOCK_END, "%}")                                                                             \
    X(NAME, "a name")                                                                              \
    X(STRING, "a string")                                                                          \
    X(NUMBER, "a number")                                                                          \
    X(ADD, "+")                                                                                    \
    X(SUB, "-")                                                                                    \
    X(MUL, "*")                                                                                    \
    X(DIV, "/")                                                                                    \
    X(FLOORDIV, "//")                                                                              \
    X(MOD, "%")                                                                                    \
    X(POW, "**")                                                                                   \
    X(TILDE, "~")                                                                                  \
    X(LPAREN, "(")                                                                                 \
    X(RPAREN, ")")                                                                                 \
    X(LBRACKET, "[")                                                                               \
    X(RBRACKET, "]")                                                                               \
    X(LBRACE, "{")                                                                                 \
    X(RBRACE, "}")                                                                                 \
    X(EQ, "==")                                                                                    \
    X(NE, "!=")                                                                                    \
    X(GT, ">")                                                                                     \
    X(GE, ">=")                                                                                    \
    X(LT, "<")                                                                                     \
    X(LE, "<=")                                                                                    \
    X(ASSIGN, "=")                                                                                 \
    X(DOT, ".")                                                                                    \
    X(COLON, ":")                                                                                  \
    X(PIPE, "|")                                                                                   \
    X(COMMA, ",")                                                                                  \
    /* made by the parser */                                                                       \
    X(IN, "in")                                                                                    \
    X(NOT_IN, "not in")                                                                            \
    X(AND, "and")                                                                                  \
    X(OR, "or")

typedef enum rm_tok {
#define X(id, text) RM_TOK_##id,
    RM_TOKENS(X)
#undef X
        RM_TOK_COUNT
} rm_tok;

typedef struct rm_token {
    rm_tok kind;
    uint32_t line;
    rm_tpl_value v; /* data, string, name (interned), number */
} rm_token;

typedef struct rm_lexer {
    rm_tpl *t;
    const char *s;
    size_t at, end;
    uint32_t line;
    uint32_t open;    /* brackets */
    bool line_starts; /* the last match ended with a line break */
    bool after_dot;   /* no float here: x.1.2 */
    enum { RM_LEX_DATA, RM_LEX_BEGIN, RM_LEX_PRINT, RM_LEX_BLOCK } mode;
    rm_tok begin; /* with RM_LEX_BEGIN: what has been found after the text */
} rm_lexer;

const char *rm_tok_name(uint8_t kind);
int rm_lex_start(rm_lexer *lx, rm_tpl *t, const char *source, size_t bytes);
int rm_lex_next(rm_token *out, rm_lexer *lx);

/* template_literal.c: strings and numbers at lx->at, which moves behind them. */
int rm_lex_string(rm_token *out, rm_lexer *lx);
int rm_lex_number(rm_token *out, rm_lexer *lx);

#endif /* RM_TEXT_TEMPLATE_TOKEN_H */
