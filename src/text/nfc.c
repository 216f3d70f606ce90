/*
 * nfc.c: see nfc.h.
 *
 * The text is taken in stretches: a character that no other can change, and those after it that
 * can change it or each other. A stretch of one is copied. Others are taken apart, put into
 * canonical order and composed again; most are two or three characters long.
 */
#include "text/nfc.h"
#include "text/utf8.h"

#include <utf8proc.h>

/* Taken apart, a character is at most 4 long, and no byte of UTF-8 gives more than 1.5. */
enum { SLACK = 8, SORT_IN_PLACE = 16 };

static size_t most_parts(size_t bytes) {
    return bytes + bytes / 2 + SLACK;
}

size_t rm_nfc_work_bytes(size_t bytes) {
    return 2 * most_parts(bytes) * sizeof(utf8proc_int32_t);
}

static inline int32_t character(const char *s, int length) {
    const uint8_t *u = (const uint8_t *)s;
    switch (length) {
    case 1:
        return u[0];
    case 2:
        return (u[0] & 31) << 6 | (u[1] & 63);
    case 3:
        return (u[0] & 15) << 12 | (u[1] & 63) << 6 | (u[2] & 63);
    default:
        return (u[0] & 7) << 18 | (u[1] & 63) << 12 | (u[2] & 63) << 6 | (u[3] & 63);
    }
}

/* Whether a character is the same in normal form, and joins none before it. Of those that join,
 * all are marks but the vowels and finals of Hangul. */
static bool stands_alone(int32_t c) {
    if (c < 0x300) return true;
    if (c >= 0x3400 && c <= 0x9FFF) return true;  /* Han */
    if (c >= 0xAC00 && c <= 0xD7A3) return true;  /* Hangul syllables */
    if (c >= 0x1160 && c <= 0x11FF) return false; /* their parts */
    const utf8proc_property_t *p = utf8proc_get_property(c);
    if (p->combining_class != 0 || p->category == UTF8PROC_CATEGORY_MN ||
        p->category == UTF8PROC_CATEGORY_MC || p->category == UTF8PROC_CATEGORY_ME) {
        return false;
    }
    utf8proc_int32_t parts[4] = {0};
    int last = UTF8PROC_BOUNDCLASS_START;
    return utf8proc_decompose_char(c, parts, 4, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last) == 1 &&
           parts[0] == c;
}

bool rm_nfc_is_plain(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes;) {
        if ((uint8_t)text[i] < 0xCC) { /* below U+0300 */
            i++;
            continue;
        }
        const int length = rm_utf8_next(text + i, bytes - i);
        RM_ASSERT(length > 0);
        if (!stands_alone(character(text + i, length))) return false;
        i += (size_t)length;
    }
    return true;
}

static unsigned class_of(int32_t c) {
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Canonical order of a row of marks: by class, equal ones as they are. */
static void sort_marks(int32_t *c, size_t n, int32_t *spare) {
    if (n <= SORT_IN_PLACE) {
        for (size_t i = 1; i < n; i++) {
            const int32_t v = c[i];
            const unsigned class = class_of(v);
            size_t k = i;
            for (; k > 0 && class_of(c[k - 1]) > class; k--)
                c[k] = c[k - 1];
            c[k] = v;
        }
        return;
    }
    size_t starts[257] = {0}; /* a class is a byte */
    for (size_t i = 0; i < n; i++)
        starts[(class_of(c[i]) & 255) + 1]++;
    for (size_t k = 1; k < 257; k++)
        starts[k] += starts[k - 1];
    for (size_t i = 0; i < n; i++)
        spare[starts[class_of(c[i]) & 255]++] = c[i];
    memcpy(c, spare, n * sizeof *c);
}

static void order(int32_t *c, size_t n, int32_t *spare) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && class_of(c[end]) != 0)
            end++;
        if (end - i > 1) sort_marks(c + i, end - i, spare);
        i = end + 1;
    }
}

typedef struct writer {
    char *out;
    size_t used, cap;
} writer;

static bool put(writer *w, const char *s, size_t n) {
    if (n > w->cap - w->used) return false;
    memcpy(w->out + w->used, s, n);
    w->used += n;
    return true;
}

static bool put_stretch(writer *w, const char *s, size_t bytes, int32_t *parts, size_t cap) {
    size_t n = 0;
    int last = UTF8PROC_BOUNDCLASS_START;
    for (size_t i = 0; i < bytes;) {
        const int length = rm_utf8_next(s + i, bytes - i);
        const utf8proc_ssize_t got = utf8proc_decompose_char(
            character(s + i, length), parts + n, (utf8proc_ssize_t)(cap - n),
            UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &last);
        RM_ASSERT(got > 0 && (size_t)got <= cap - n);
        n += (size_t)got;
        i += (size_t)length;
    }
    order(parts, n, parts + cap);
    const utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(parts, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    RM_ASSERT(composed > 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        char c[4];
        const utf8proc_ssize_t length = utf8proc_encode_char(parts[i], (utf8proc_uint8_t *)c);
        if (!put(w, c, (size_t)length)) return false;
    }
    return true;
}

/* Where the stretch that starts at `at` ends; *simple: it is copied as it is. */
static size_t stretch_end(const char *text, size_t bytes, size_t at, bool *simple) {
    const int first = rm_utf8_next(text + at, bytes - at);
    RM_ASSERT(first > 0);
    *simple = stands_alone(character(text + at, first));
    for (at += (size_t)first; at < bytes;) {
        const int length = rm_utf8_next(text + at, bytes - at);
        RM_ASSERT(length > 0);
        if (stands_alone(character(text + at, length))) break;
        *simple = false;
        at += (size_t)length;
    }
    return at;
}

int rm_nfc(char *out, size_t *out_bytes, const char *text, size_t bytes, void *work,
           remat_error *err) {
    writer w = {.out = out, .cap = rm_nfc_most(bytes)};
    bool simple, fits = true;
    for (size_t at = 0; at < bytes && fits;) {
        const size_t end = stretch_end(text, bytes, at, &simple);
        fits = simple ? put(&w, text + at, end - at)
                      : put_stretch(&w, text + at, end - at, work, most_parts(bytes));
        at = end;
    }
    if (!fits) {
        return rm_fail(err, REMAT_E_FAILED,
                       "tokenizer: in Unicode's normal form C, which this vocabulary is for, the "
                       "text grows to more than twice its length");
    }
    *out_bytes = w.used;
    return REMAT_OK;
}
