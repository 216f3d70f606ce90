/*
 * template_char.c: single characters, as Python sees them: white space and what repr() escapes
 * completely, upper and lower case for the scripts that have most of it (Latin, Greek, Cyrillic,
 * Armenian, full-width).
 */
#include "text/template_impl.h"
#include "text/utf8.h"

size_t rm_tpl_char(const char *s, size_t n, uint32_t *code) {
    const uint8_t *u = (const uint8_t *)s;
    const int length = rm_utf8_next(s, n);
    if (length <= 0) {
        *code = RM_TPL_BAD_CHAR;
        return 1;
    }
    uint32_t c = length == 1 ? u[0] : u[0] & (0xFFu >> (length + 1));
    for (int i = 1; i < length; i++)
        c = c << 6 | (u[i] & 0x3Fu);
    *code = c;
    return (size_t)length;
}

size_t rm_tpl_char_put(char out[4], uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(code | (0xF00u >> length & 0xFF));
    return length;
}

bool rm_tpl_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

typedef struct range {
    uint32_t first, last;
} range;

static bool within(const range *r, size_t count, uint32_t c) {
    for (size_t i = 0; i < count; i++) {
        if (c >= r[i].first && c <= r[i].last) return true;
    }
    return false;
}

#define WITHIN(table, c) within(table, sizeof(table) / sizeof((table)[0]), c)

/* Controls, formats, surrogates, private use, separators other than the blank. */
bool rm_tpl_is_printable(uint32_t c) {
    static const range not_printable[] = {
        {0x00, 0x1F},       {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},
        {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},
        {0x8E2, 0x8E2},     {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F},
        {0x2028, 0x202F},   {0x205F, 0x206F},   {0x3000, 0x3000},   {0xD800, 0xF8FF},
        {0xFEFF, 0xFEFF},   {0xFFF0, 0xFFFB},   {0xFFFE, 0xFFFF},   {0x110BD, 0x110BD},
        {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
        {0x1FFFE, 0x1FFFF}, {0x2FFFE, 0x2FFFF}, {0xE0000, 0xE00FF}, {0xE01F0, 0x10FFFF},
    };
    return !WITHIN(not_printable, c);
}

/* Good enough for title(): everything above ASCII but its signs and punctuation. */
bool rm_tpl_is_letter(uint32_t c) {
    if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    static const range letters[] = {
        {0xAA, 0xAA},       {0xB5, 0xB5},     {0xBA, 0xBA},     {0xC0, 0xD6},     {0xD8, 0xF6},
        {0xF8, 0x2C1},      {0x370, 0x373},   {0x376, 0x377},   {0x37A, 0x37D},   {0x37F, 0x37F},
        {0x386, 0x386},     {0x388, 0x481},   {0x48A, 0x559},   {0x560, 0x588},   {0x5D0, 0x5EA},
        {0x620, 0x64A},     {0x671, 0x6D3},   {0x904, 0x939},   {0xE01, 0xE30},   {0x10A0, 0x10FF},
        {0x1100, 0x11FF},   {0x13A0, 0x13FD}, {0x1C80, 0x1CBF}, {0x1D00, 0x1DBF}, {0x1E00, 0x1FBC},
        {0x2C00, 0x2CE4},   {0x2D00, 0x2D2D}, {0x3041, 0x3096}, {0x30A1, 0x30FA}, {0x3105, 0x312F},
        {0x3400, 0x4DBF},   {0x4E00, 0xA48C}, {0xA640, 0xA66E}, {0xA722, 0xA7FF}, {0xAC00, 0xD7A3},
        {0xF900, 0xFAD9},   {0xFB00, 0xFB06}, {0xFF21, 0xFF3A}, {0xFF41, 0xFF5A}, {0xFF66, 0xFFDC},
        {0x20000, 0x3FFFD},
    };
    return WITHIN(letters, c);
}

/* Where upper and lower case stand next to each other; the upper one is even, or odd. */
static int pair_parity(uint32_t c) {
    static const range even[] = {
        {0x100, 0x12F}, {0x132, 0x137}, {0x14A, 0x177}, {0x182, 0x185},   {0x1A0, 0x1A5},
        {0x1DE, 0x1EF}, {0x1F8, 0x21F}, {0x222, 0x233}, {0x370, 0x373},   {0x3D8, 0x3EF},
        {0x460, 0x481}, {0x48A, 0x4BF}, {0x4D0, 0x52F}, {0x1E00, 0x1E95}, {0x1EA0, 0x1EFF},
    };
    static const range odd[] = {
        {0x139, 0x148}, {0x179, 0x17E}, {0x1AF, 0x1B0}, {0x1CD, 0x1DC}, {0x4C1, 0x4CE},
    };
    return WITHIN(even, c) ? 0 : WITHIN(odd, c) ? 1 : -1;
}

/* Whole ranges at a fixed distance. */
typedef struct shift {
    uint32_t first, last; /* lower case */
    uint32_t distance;
} shift;

static const shift SHIFTS[] = {
    {0xE0, 0xF6, 32},     {0xF8, 0xFE, 32},     {0x3AC, 0x3AC, 38},   {0x3AD, 0x3AF, 37},
    {0x3B1, 0x3C1, 32},   {0x3C3, 0x3CB, 32},   {0x3CC, 0x3CC, 64},   {0x3CD, 0x3CE, 63},
    {0x430, 0x44F, 32},   {0x450, 0x45F, 80},   {0x4CF, 0x4CF, 15},   {0x561, 0x586, 48},
    {0x24D0, 0x24E9, 26}, {0x2170, 0x217F, 16}, {0x2C30, 0x2C5F, 48}, {0xFF41, 0xFF5A, 32},
};

uint32_t rm_tpl_upper(uint32_t c) {
    if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
    const int parity = pair_parity(c);
    if (parity >= 0) return c % 2 == (uint32_t)parity ? c : c - 1;
    for (size_t i = 0; i < sizeof SHIFTS / sizeof SHIFTS[0]; i++) {
        if (c >= SHIFTS[i].first && c <= SHIFTS[i].last) return c - SHIFTS[i].distance;
    }
    return c == 0xFF    ? 0x178
           : c == 0xB5  ? 0x39C
           : c == 0x3C2 ? 0x3A3
           : c == 0x131 ? 'I'
           : c == 0x17F ? 'S'
                        : c;
}

uint32_t rm_tpl_lower(uint32_t c) {
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    const int parity = pair_parity(c);
    if (parity >= 0) return c % 2 == (uint32_t)parity ? c + 1 : c;
    for (size_t i = 0; i < sizeof SHIFTS / sizeof SHIFTS[0]; i++) {
        const uint32_t d = SHIFTS[i].distance;
        if (c >= SHIFTS[i].first - d && c <= SHIFTS[i].last - d) return c + d;
    }
    return c == 0x178 ? 0xFF : c == 0x1E9E ? 0xDF : c;
}
