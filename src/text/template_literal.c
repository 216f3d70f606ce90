/* template_literal.c: strings and numbers in a template, as Python writes them. */
#include "text/template_token.h"

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char l = (char)(c | 0x20);
    return l >= 'a' && l <= 'z' ? l - 'a' + 10 : 99;
}

/* \x41 \u0041 \U00000041: digits at s[*at]. */
static int escape_code(uint32_t *code, rm_lexer *lx, size_t *at, size_t end, size_t digits) {
    *code = 0;
    for (size_t i = 0; i < digits; i++, ++*at) {
        const int d = *at < end ? hex_digit(lx->s[*at]) : 99;
        if (d > 15) return rm_tpl_fail(lx->t, "a string has an escape that is cut short");
        *code = *code << 4 | (uint32_t)d;
    }
    if (*code > 0x10FFFF) return rm_tpl_fail(lx->t, "a string has an escape past U+10FFFF");
    return REMAT_OK;
}

/* What the escape at s[*at], behind the backslash, stands for. *known: false leaves it as it is. */
static int escape(uint32_t *code, bool *known, rm_lexer *lx, size_t *at, size_t end) {
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    const char c = lx->s[*at];
    *known = true;
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (plain[i] != c) continue;
        *code = (uint8_t)plain[i + 1];
        ++*at;
        return REMAT_OK;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        ++*at;
        return escape_code(code, lx, at, end, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    }
    *known = c >= '0' && c <= '7';
    *code = 0;
    for (size_t i = 0; *known && i < 3 && *at < end; i++, ++*at) {
        if (lx->s[*at] < '0' || lx->s[*at] > '7') break;
        *code = *code << 3 | (uint32_t)(lx->s[*at] - '0');
    }
    return REMAT_OK;
}

static int unescape(rm_tpl_value *out, rm_lexer *lx, size_t from, size_t to) {
    rm_tpl_build b;
    rm_tpl_build_start(&b, lx->t);
    for (size_t at = from; at < to;) {
        const char *hit = memchr(lx->s + at, '\\', to - at);
        const size_t stop = hit != NULL ? (size_t)(hit - lx->s) : to;
        rm_tpl_put(&b, lx->s + at, stop - at, true);
        at = stop + 1;
        if (stop == to) break;
        if (lx->s[at] == '\n') { /* a line goes on in the next */
            at++;
            continue;
        }
        uint32_t code;
        bool known;
        RM_TRY(escape(&code, &known, lx, &at, to));
        if (code >= 0xD800 && code <= 0xDFFF) code = 0xFFFD;
        char text[4];
        if (known)
            rm_tpl_put(&b, text, rm_tpl_char_put(text, code), true);
        else
            rm_tpl_put(&b, "\\", 1, true);
    }
    return rm_tpl_build_end(out, lx->t, &b);
}

int rm_lex_string(rm_token *out, rm_lexer *lx) {
    const char quote = lx->s[lx->at];
    const size_t from = lx->at + 1;
    size_t to = from;
    bool escapes = false;
    while (to < lx->end && lx->s[to] != quote) {
        if (lx->s[to] == '\\') {
            escapes = true;
            to++;
        }
        to++;
    }
    if (to >= lx->end) return rm_tpl_fail(lx->t, "a string has no end");
    out->kind = RM_TOK_STRING;
    if (escapes)
        RM_TRY(unescape(&out->v, lx, from, to));
    else
        RM_TRY(rm_tpl_string_of(&out->v, lx->t, lx->s + from, to - from, true));
    for (; lx->at <= to; lx->at++)
        lx->line += lx->s[lx->at] == '\n';
    lx->line_starts = false;
    return rm_tpl_work(lx->t, to - from);
}

/* The end of digits with single underscores between them; from when there are none. */
static size_t digits_end(const rm_lexer *lx, size_t from, int base) {
    size_t at = from;
    while (at < lx->end) {
        const bool underscore = lx->s[at] == '_' && at > from;
        const size_t digit = at + underscore;
        if (digit >= lx->end || hex_digit(lx->s[digit]) >= base) break;
        at = digit + 1;
    }
    return at;
}

static int read_int(rm_token *out, rm_lexer *lx, size_t from, size_t to, int base) {
    int64_t i = 0;
    for (size_t at = from; at < to; at++) {
        if (lx->s[at] == '_') continue;
        if (__builtin_mul_overflow(i, base, &i) ||
            __builtin_add_overflow(i, hex_digit(lx->s[at]), &i))
            return rm_tpl_fail(lx->t, "a number is too large for 64 bits");
    }
    out->v = rm_tpl_int(i);
    return REMAT_OK;
}

static int read_float(rm_token *out, rm_lexer *lx, size_t from, size_t to) {
    char text[64];
    size_t n = 0;
    for (size_t at = from; at < to; at++) {
        if (lx->s[at] == '_') continue;
        if (n == sizeof text) return rm_tpl_fail(lx->t, "a number is too long");
        text[n++] = lx->s[at];
    }
    double f;
    if (!rm_tpl_read_float(&f, text, n)) return rm_tpl_fail(lx->t, "a number is damaged");
    out->v = rm_tpl_float(f);
    return REMAT_OK;
}

int rm_lex_number(rm_token *out, rm_lexer *lx) {
    const size_t from = lx->at;
    out->kind = RM_TOK_NUMBER;
    int base = 10;
    if (lx->s[from] == '0' && from + 1 < lx->end) {
        const char c = (char)(lx->s[from + 1] | 0x20);
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
    }
    if (base != 10) {
        const size_t end = digits_end(lx, from + 2, base);
        if (end == from + 2) return rm_tpl_fail(lx->t, "a number has no digits");
        RM_TRY(read_int(out, lx, from + 2, end, base));
        lx->at = end;
    } else {
        const size_t whole = digits_end(lx, from, 10);
        size_t end = whole;
        if (!lx->after_dot && end + 1 < lx->end && lx->s[end] == '.') {
            const size_t fraction = digits_end(lx, end + 1, 10);
            if (fraction > end + 1) end = fraction;
        }
        if (!lx->after_dot && end + 1 < lx->end && (lx->s[end] | 0x20) == 'e') {
            const size_t sign = end + 1 + (lx->s[end + 1] == '+' || lx->s[end + 1] == '-');
            const size_t exponent = digits_end(lx, sign, 10);
            if (exponent > sign) end = exponent;
        }
        if (end > whole)
            RM_TRY(read_float(out, lx, from, end));
        else
            RM_TRY(read_int(out, lx, from, end, 10));
        lx->at = end;
    }
    out->v.own = true;
    lx->line_starts = false;
    return rm_tpl_work(lx->t, lx->at - from);
}
