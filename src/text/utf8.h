/* utf8.h: the shape of one UTF-8 character. Part: text. No surrogates, nothing overlong. */
#ifndef RM_TEXT_UTF8_H
#define RM_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    RM_UTF8_INVALID = 0, /* s[0] starts no character here */
    RM_UTF8_CUT = -1,    /* s[0 .. n) is the start of a character that ends past n */
};

/* Bytes of the character at s (1 to 4), of n > 0 bytes, or one of the above. */
static inline int rm_utf8_next(const char *s, size_t n) {
    const uint8_t *u = (const uint8_t *)s;
    if (u[0] < 0x80) return 1;
    if (u[0] < 0xC2 || u[0] > 0xF4) return RM_UTF8_INVALID;
    const int length = u[0] < 0xE0 ? 2 : u[0] < 0xF0 ? 3 : 4;
    /* Only the second byte has bounds of its own: they exclude overlong forms, surrogates and what
     * lies past U+10FFFF. */
    const uint8_t low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n) return RM_UTF8_CUT;
        if (u[i] < (i == 1 ? low : 0x80) || u[i] > (i == 1 ? high : 0xBF)) return RM_UTF8_INVALID;
    }
    return length;
}

/* Length of the longest start of s that is whole characters. */
static inline size_t rm_utf8_valid(const char *s, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t eight;
        if (n - at >= 8 && (memcpy(&eight, s + at, 8), (eight & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        const int length = rm_utf8_next(s + at, n - at);
        if (length <= 0) break;
        at += (size_t)length;
    }
    return at;
}

#endif /* RM_TEXT_UTF8_H */
