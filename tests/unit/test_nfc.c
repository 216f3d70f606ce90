/* test_nfc.c: normal form C against known answers, and against utf8proc's own way to it. */
#include "harness.h"
#include "text/nfc.h"
#include "text/utf8.h"

#include <utf8proc.h>

/* In memory of its own size, so that a sanitizer sees every byte past the end. To be freed. */
static char *normal(const char *text, size_t n, size_t *bytes, int *status) {
    remat_error err;
    char *out = malloc(rm_nfc_most(n));
    void *work = malloc(rm_nfc_work_bytes(n));
    *bytes = 0;
    *status = rm_nfc(out, bytes, text, n, work, &err);
    if (*status == REMAT_OK && rm_nfc_is_plain(text, n)) {
        EXPECT(*bytes == n && memcmp(out, text, n) == 0);
    }
    free(work);
    return out;
}

static void expect(const char *text, const char *expected) {
    size_t bytes;
    int status;
    char *out = normal(text, strlen(text), &bytes, &status);
    EXPECT(status == REMAT_OK);
    if (bytes != strlen(expected) || memcmp(out, expected, bytes) != 0) {
        t_fail("'%s' becomes '%.*s', not '%s'", text, (int)bytes, out, expected);
    }
    free(out);
}

static void known(void) {
    expect("", "");
    expect("plain text, \xC3\xA9 and \xE6\x97\xA5\n", "plain text, \xC3\xA9 and \xE6\x97\xA5\n");
    expect("e\xCC\x81", "\xC3\xA9");
    expect("xe\xCC\x81y", "x\xC3\xA9y");
    /* U+1E0B U+0323: the dot below goes first, and composes. */
    expect("\xE1\xB8\x8B\xCC\xA3", "\xE1\xB8\x8D\xCC\x87");
    expect("a\xCC\x81\xCC\xA3\xCC\x82", "\xE1\xBA\xA1\xCC\x81\xCC\x82");
    /* A mark without a character before it; two that do not compose with what is there. */
    expect("\xCC\x81z", "\xCC\x81z");
    expect("=\xCC\xB8\xCC\x81", "\xE2\x89\xA0\xCC\x81");
    /* Singletons: Kelvin, Angstrom, Ohm. */
    expect("\xE2\x84\xAA \xE2\x84\xAB \xE2\x84\xA6", "K \xC3\x85 \xCE\xA9");
    /* Hangul: vowel and final; final after a syllable; one with a final takes no other. */
    expect("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C");
    expect("\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81");
    expect("\xEA\xB0\x81\xE1\x86\xA8", "\xEA\xB0\x81\xE1\x86\xA8");
    /* Characters that are never composed: U+0958, U+FB2C (grows to twice its length), U+2ADC. */
    expect("\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC");
    expect("\xEF\xAC\xAC", "\xD7\xA9\xD6\xBC\xD7\x81");
    expect("\xE2\xAB\x9C", "\xE2\xAB\x9D\xCC\xB8");
    /* Vowel signs that compose without a combining class: Bengali O, Sinhala OO. */
    expect("\xE0\xA6\x95\xE0\xA7\x87\xE0\xA6\xBE", "\xE0\xA6\x95\xE0\xA7\x8B");
    expect("\xE0\xB7\x99\xE0\xB7\x8F\xE0\xB7\x8A", "\xE0\xB7\x9D");
}

/* Every character by itself and after others; rows of all kinds at random. */
static void against_utf8proc(void) {
    static const int32_t starts[] = {'e',   0x65E5, 0x1100, 0xAC00, 0x915,
                                     0x9C7, 0xDD9,  0x1E0B, 0x301};
    utf8proc_uint8_t text[256];
    for (uint32_t round = 0; round < 0x30000 + 20000; round++) {
        size_t n = 0;
        const size_t length = round < 0x30000 ? 2 : 1 + t_random() % 24;
        for (size_t i = 0; i < length; i++) {
            int32_t c = starts[t_random() % (sizeof starts / sizeof starts[0])];
            if (round < 0x30000 && i == 1) c = (int32_t)round;
            if (round >= 0x30000 && t_random() % 3) {
                static const int32_t bases[] = {0x300,  0x590,  0x900, 0x1100,
                                                0x1DC0, 0x1E00, 0x302A};
                c = bases[t_random() % (sizeof bases / sizeof bases[0])] +
                    (int32_t)(t_random() % 0x70);
            }
            if (c >= 0xD800 && c <= 0xDFFF) continue;
            n += (size_t)utf8proc_encode_char(c, text + n);
        }
        utf8proc_uint8_t *expected = NULL;
        const utf8proc_ssize_t count =
            utf8proc_map(text, (utf8proc_ssize_t)n, &expected, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        size_t bytes;
        int status;
        char *out = normal((const char *)text, n, &bytes, &status);
        if (status != REMAT_OK || (utf8proc_ssize_t)bytes != count ||
            memcmp(out, expected, bytes) != 0) {
            t_fail("round %u differs", round);
        }
        free(out);
        free(expected);
    }
}

/* A row of marks in the worst order takes linear time. */
static void long_row(void) {
    enum { MARKS = 500000, TIMES = 16 };
    char *text = malloc(1 + 2 * MARKS);
    clock_t took[2];
    text[0] = 'x';
    for (size_t i = 0; i < MARKS; i++) /* U+0301 (above), U+0323 (below), in turn */
        memcpy(text + 1 + 2 * i, i % 2 ? "\xCC\xA3" : "\xCC\x81", 2);
    for (int i = 0; i < 2; i++) {
        const size_t marks = i == 0 ? MARKS / TIMES : MARKS;
        size_t bytes;
        int status;
        const clock_t start = clock();
        char *out = normal(text, 1 + 2 * marks, &bytes, &status);
        took[i] = clock() - start;
        EXPECT(status == REMAT_OK && bytes == 1 + 2 * marks);
        EXPECT(memcmp(out + 1, "\xCC\xA3\xCC\xA3", 4) == 0);
        EXPECT(memcmp(out + bytes - 4, "\xCC\x81\xCC\x81", 4) == 0);
        free(out);
    }
    EXPECT(t_linear(took[0], took[1], TIMES));
    free(text);
}

/* More than twice as long: refused, not cut off. */
static void too_long(void) {
    char text[400], *out;
    for (size_t i = 0; i < sizeof text; i += 4)
        memcpy(text + i, "\xF0\x9D\x85\xA0", 4); /* U+1D160: three characters */
    size_t bytes;
    int status;
    out = normal(text, sizeof text, &bytes, &status);
    EXPECT(status == REMAT_E_FAILED);
    free(out);
    out = normal(text, 16, &bytes, &status); /* there is some room to spare */
    EXPECT(status == REMAT_OK && bytes == 48);
    free(out);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(known), T(against_utf8proc), T(long_row), T(too_long));
}
