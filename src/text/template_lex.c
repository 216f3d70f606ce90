/*
 * template_lex.c: cuts a template into tokens.
 *
 * White space around tags, as with Jinja's trim_blocks and lstrip_blocks:
 *     {%- and -%}    also {{- {#-    remove all white space on their side
 *     %} #}          remove one line break behind them; +%} +#} do not
 *     {% {#          remove blanks before them when nothing else is on the line; {%+ {#+ do not
 * {{ }} do nothing of it by themselves, and after {% raw %} no line break is removed.
 */
#include "text/template_token.h"

const char *rm_tok_name(uint8_t kind) {
    static const char *const names[] = {
#define X(id, text) text,
        RM_TOKENS(X)
#undef X
    };
    RM_ASSERT(kind < RM_TOK_COUNT);
    return names[kind];
}

/* Line breaks become LF, and the last one goes. */
int rm_lex_start(rm_lexer *lx, rm_tpl *t, const char *source, size_t bytes) {
    *lx = (rm_lexer){.t = t, .s = source, .end = bytes, .line = 1, .line_starts = true};
    RM_TRY(rm_tpl_work(t, bytes));
    if (bytes > 0 && memchr(source, '\r', bytes) != NULL) {
        char *copy;
        RM_TRY(rm_tpl_take_bytes(&copy, t, bytes));
        size_t n = 0;
        for (size_t i = 0; i < bytes; i++) {
            if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n') continue;
            copy[n++] = source[i] == '\r' ? '\n' : source[i];
        }
        lx->s = copy;
        lx->end = n;
    }
    if (lx->end > 0 && lx->s[lx->end - 1] == '\n') lx->end--;
    return REMAT_OK;
}

static char char_at(const rm_lexer *lx, size_t at) {
    return at < lx->end ? lx->s[at] : '\0';
}

static bool is_at(const rm_lexer *lx, size_t at, const char *text) {
    const size_t n = strlen(text);
    return n <= lx->end - at && memcmp(lx->s + at, text, n) == 0;
}

static size_t skip_space(const rm_lexer *lx, size_t at) {
    uint32_t code;
    while (at < lx->end) {
        const size_t n = rm_tpl_char(lx->s + at, lx->end - at, &code);
        if (!rm_tpl_is_space(code)) break;
        at += n;
    }
    return at;
}

/* Moves to `to`, counting lines. */
static int move(rm_lexer *lx, size_t to) {
    RM_TRY(rm_tpl_work(lx->t, to - lx->at));
    for (; lx->at < to; lx->at++)
        lx->line += lx->s[lx->at] == '\n';
    if (to > 0) lx->line_starts = lx->s[to - 1] == '\n';
    lx->t->line = lx->line;
    return REMAT_OK;
}

/* Where [from, to) ends after the tag at `to` has taken what its sign says. */
static int text_end(size_t *out, rm_lexer *lx, size_t from, size_t to, char sign, bool print) {
    *out = to;
    if (sign == '-') {
        rm_tpl_value v;
        const rm_tpl_string s = {.bytes = lx->s + from, .count = to - from};
        RM_TRY(rm_tpl_strip(&v, lx->t, &s, NULL, false, true));
        *out = from + v.s->count;
        return REMAT_OK;
    }
    if (sign == '+' || print) return REMAT_OK;
    size_t line = to;
    while (line > from && lx->s[line - 1] != '\n')
        line--;
    if (line == from && !lx->line_starts) return REMAT_OK;
    if (skip_space(lx, line) >= to) *out = line;
    return REMAT_OK;
}

/* The end of a tag that may have a sign and takes a line break along. 0: no end here. */
static size_t tag_end(const rm_lexer *lx, size_t at, const char *end) {
    const size_t n = strlen(end);
    if (char_at(lx, at) == '-' && is_at(lx, at + 1, end)) return skip_space(lx, at + 1 + n);
    if (char_at(lx, at) == '+' && is_at(lx, at + 1, end)) return at + 1 + n;
    if (!is_at(lx, at, end)) return 0;
    return at + n + (char_at(lx, at + n) == '\n');
}

static size_t skip_sign(const rm_lexer *lx, size_t at) {
    return at + (char_at(lx, at) == '-' || char_at(lx, at) == '+');
}

/* Behind {% raw %} or 0. at: behind "{%" and its sign. */
static size_t raw_begin(const rm_lexer *lx, size_t at) {
    at = skip_space(lx, at);
    if (!is_at(lx, at, "raw")) return 0;
    at = skip_space(lx, at + 3);
    if (is_at(lx, at, "-%}")) return skip_space(lx, at + 3);
    return is_at(lx, at, "%}") ? at + 2 : 0;
}

static int find(size_t *out, const rm_lexer *lx, size_t from, const char *what) {
    const char *hit = memmem(lx->s + from, lx->end - from, what, strlen(what));
    if (hit == NULL) return rm_tpl_fail(lx->t, "no '%s' follows", what);
    *out = (size_t)(hit - lx->s);
    return REMAT_OK;
}

/* The text of a raw block, up to and with {% endraw %}. */
static int lex_raw(rm_token *out, rm_lexer *lx) {
    const size_t from = lx->at;
    size_t at = from, end = 0;
    char sign;
    for (;; at += 2) {
        if (find(&at, lx, at, "{%") != REMAT_OK)
            return rm_tpl_fail(lx->t, "a raw block has no end");
        size_t name = skip_sign(lx, at + 2);
        sign = name > at + 2 ? lx->s[at + 2] : ' ';
        name = skip_space(lx, name);
        RM_TRY(rm_tpl_work(lx->t, 0));
        if (!is_at(lx, name, "endraw")) continue;
        end = tag_end(lx, skip_space(lx, name + 6), "%}");
        if (end != 0) break;
    }
    size_t to;
    RM_TRY(text_end(&to, lx, from, at, sign, false));
    out->kind = RM_TOK_DATA;
    RM_TRY(rm_tpl_string_of(&out->v, lx->t, lx->s + from, to - from, true));
    return move(lx, end);
}

static int skip_comment(rm_lexer *lx) {
    size_t at;
    if (find(&at, lx, lx->at, "#}") != REMAT_OK) return rm_tpl_fail(lx->t, "a comment has no end");
    if (at > lx->at && (lx->s[at - 1] == '-' || lx->s[at - 1] == '+')) at--;
    return move(lx, tag_end(lx, at, "#}"));
}

/* Text up to the next tag. Comments and raw blocks are dealt with here. */
static int lex_data(rm_token *out, rm_lexer *lx) {
    const size_t from = lx->at;
    size_t at = from;
    while (at < lx->end) {
        const char *hit = memchr(lx->s + at, '{', lx->end - at);
        at = hit != NULL ? (size_t)(hit - lx->s) : lx->end;
        const char next = char_at(lx, at + 1);
        if (at < lx->end && (next == '{' || next == '%' || next == '#')) break;
        at += at < lx->end;
    }
    out->kind = at > from ? RM_TOK_DATA : RM_TOK_END;
    if (at == lx->end) {
        RM_TRY(rm_tpl_string_of(&out->v, lx->t, lx->s + from, at - from, true));
        return move(lx, at);
    }
    const char tag = lx->s[at + 1];
    const size_t behind = skip_sign(lx, at + 2);
    const char sign = behind > at + 2 ? lx->s[at + 2] : ' ';
    size_t to;
    RM_TRY(text_end(&to, lx, from, at, sign, tag == '{'));
    out->kind = RM_TOK_DATA;
    RM_TRY(rm_tpl_string_of(&out->v, lx->t, lx->s + from, to - from, true));
    RM_TRY(move(lx, behind));
    const size_t raw = tag == '%' ? raw_begin(lx, behind) : 0;
    if (raw > 0) {
        RM_TRY(move(lx, raw));
        rm_token inside;
        RM_TRY(lex_raw(&inside, lx));
        return rm_tpl_concat(&out->v, lx->t, (const rm_tpl_string *const[]){out->v.s, inside.v.s},
                             2);
    }
    if (tag == '#') return skip_comment(lx);
    lx->mode = RM_LEX_BEGIN;
    lx->begin = tag == '{' ? RM_TOK_PRINT_BEGIN : RM_TOK_BLOCK_BEGIN;
    return REMAT_OK;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (uint8_t)c >= 0x80;
}

static int lex_operator(rm_token *out, rm_lexer *lx) {
    static const struct {
        const char *text;
        rm_tok kind;
    } table[] = {
        /* longest first */
        {"//", RM_TOK_FLOORDIV}, {"**", RM_TOK_POW},   {"==", RM_TOK_EQ},
        {"!=", RM_TOK_NE},       {">=", RM_TOK_GE},    {"<=", RM_TOK_LE},
        {"+", RM_TOK_ADD},       {"-", RM_TOK_SUB},    {"*", RM_TOK_MUL},
        {"/", RM_TOK_DIV},       {"%", RM_TOK_MOD},    {"~", RM_TOK_TILDE},
        {"(", RM_TOK_LPAREN},    {")", RM_TOK_RPAREN}, {"[", RM_TOK_LBRACKET},
        {"]", RM_TOK_RBRACKET},  {"{", RM_TOK_LBRACE}, {"}", RM_TOK_RBRACE},
        {">", RM_TOK_GT},        {"<", RM_TOK_LT},     {"=", RM_TOK_ASSIGN},
        {".", RM_TOK_DOT},       {":", RM_TOK_COLON},  {"|", RM_TOK_PIPE},
        {",", RM_TOK_COMMA},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!is_at(lx, lx->at, table[i].text)) continue;
        out->kind = table[i].kind;
        const rm_tok k = out->kind;
        if (k == RM_TOK_LPAREN || k == RM_TOK_LBRACKET || k == RM_TOK_LBRACE) lx->open++;
        if (k == RM_TOK_RPAREN || k == RM_TOK_RBRACKET || k == RM_TOK_RBRACE) {
            if (lx->open == 0) return rm_tpl_fail(lx->t, "'%s' closes nothing", table[i].text);
            lx->open--;
        }
        return move(lx, lx->at + strlen(table[i].text));
    }
    const uint8_t c = (uint8_t)lx->s[lx->at];
    return rm_tpl_fail(
        lx->t, c >= 0x20 && c < 0x7F ? "'%c' has no meaning here" : "byte %u has no meaning here",
        c);
}

/* Inside of {{ }} or {% %}. */
static int lex_inside(rm_token *out, rm_lexer *lx) {
    RM_TRY(move(lx, skip_space(lx, lx->at)));
    out->line = lx->line;
    if (lx->at == lx->end) {
        return rm_tpl_fail(lx->t, "the template ends inside of a tag");
    }
    if (lx->open == 0) {
        size_t behind;
        if (lx->mode == RM_LEX_BLOCK) {
            behind = tag_end(lx, lx->at, "%}");
        } else {
            behind = is_at(lx, lx->at, "-}}")  ? skip_space(lx, lx->at + 3)
                     : is_at(lx, lx->at, "}}") ? lx->at + 2
                                               : 0;
        }
        if (behind != 0) {
            out->kind = lx->mode == RM_LEX_BLOCK ? RM_TOK_BLOCK_END : RM_TOK_PRINT_END;
            lx->mode = RM_LEX_DATA;
            return move(lx, behind);
        }
    }
    const char c = lx->s[lx->at];
    const bool after_dot = lx->after_dot;
    lx->after_dot = false;
    if (c == '\'' || c == '"') return rm_lex_string(out, lx);
    if (c >= '0' && c <= '9') {
        lx->after_dot = after_dot;
        RM_TRY(rm_lex_number(out, lx));
        lx->after_dot = false;
        return REMAT_OK;
    }
    if (is_word(c)) {
        size_t end = lx->at;
        while (is_word(char_at(lx, end)))
            end++;
        const rm_tpl_string *name;
        RM_TRY(rm_tpl_intern(&name, lx->t, lx->s + lx->at, end - lx->at));
        out->kind = RM_TOK_NAME;
        out->v = rm_tpl_of_string(name);
        return move(lx, end);
    }
    RM_TRY(lex_operator(out, lx));
    lx->after_dot = out->kind == RM_TOK_DOT;
    return REMAT_OK;
}

int rm_lex_next(rm_token *out, rm_lexer *lx) {
    lx->t->line = lx->line;
    *out = (rm_token){.line = lx->line};
    if (lx->mode == RM_LEX_BEGIN) {
        lx->mode = lx->begin == RM_TOK_PRINT_BEGIN ? RM_LEX_PRINT : RM_LEX_BLOCK;
        out->kind = lx->begin;
        return REMAT_OK;
    }
    return lx->mode == RM_LEX_DATA ? lex_data(out, lx) : lex_inside(out, lx);
}
