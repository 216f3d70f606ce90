/* test_detok.c: text as it streams: stops anywhere, characters across tokens, nothing lost. */
#include "harness.h"
#include "text_fixture.h"

/* Tokens of 1 to 9 bytes: pieces of words, halves of characters. Every byte is a token too. */
static const tiny_token EXTRA[] = {
    {"\xC4\xA0the", 1, 0},
    {"hello", 1, 0},
    {"\xC3\xB0\xC5\x81", 1, 0},                 /* F0 9F */
    {"\xC2\xA6\xC4\xBB\xC3\xB0", 1, 0},         /* A6 99 F0 */
    {"\xC3\xA6\xC4\xB9\xC2\xA5\xC3\xA6", 1, 0}, /* E6 97 A5 E6 */
    {"END", 1, 0},
    {">>>\xC4\xA0", 1, 0},
    {"<|im_end|>", RM_TOKEN_CONTROL, 0},
    {"END\xC4\x8A", 1, 0},
};
enum { THE = 257, HELLO, F09F, A699F0, E697A5E6, END, ARROWS, IM_END, END_LINE };

static fixture open_tiny(void) {
    static const char *const merges[] = {"a b"};
    fixture f;
    gg g;
    tiny_bpe(&g, "gpt-2", merges, 1, EXTRA, sizeof EXTRA / sizeof EXTRA[0]);
    if (fixture_gg(&f, &g) != REMAT_OK) t_fail("%s", f.err.message);
    return f;
}

typedef struct stops {
    const char *text[4];
    size_t bytes[4], count;
} stops;

/* The right answer, from all bytes at once: up to the stop that is complete first. */
static size_t cut_at_stop(const char *text, size_t n, const stops *s, bool *stopped) {
    *stopped = false;
    for (size_t end = 1; end <= n; end++) {
        size_t start = SIZE_MAX;
        for (size_t i = 0; i < s->count; i++) {
            const size_t b = s->bytes[i];
            if (b <= end && memcmp(text + end - b, s->text[i], b) == 0 && end - b < start) {
                start = end - b;
            }
        }
        if (start != SIZE_MAX) {
            *stopped = true;
            return start;
        }
    }
    return n;
}

/* Streams ids, and checks every part: no half character, no part of a stop that completes. */
static void check_stream(const fixture *f, const uint32_t *ids, size_t count, const stops *s) {
    size_t n, got = 0, part_bytes;
    char *all = fixture_text(f, ids, count, true, &n);
    bool stopped;
    const size_t expected = cut_at_stop(all, n, s, &stopped);
    void *memory = malloc(rm_detok_bytes(f->t));
    rm_detok d;
    rm_detok_start(&d, f->t, memory, true);
    for (size_t i = 0; i < s->count; i++)
        EXPECT(rm_detok_add_stop(&d, s->text[i], s->bytes[i], NULL) == REMAT_OK);
    bool good = true;
    for (size_t i = 0; i <= count; i++) {
        const char *part;
        if (i < count)
            rm_detok_put(&d, ids[i], &part, &part_bytes);
        else
            rm_detok_end(&d, &part, &part_bytes);
        good = good && got + part_bytes <= expected && memcmp(part, all + got, part_bytes) == 0;
        if (!good) break;
        got += part_bytes;
        /* What is out ends where a character does: none goes on from before to after. */
        for (size_t back = 1; i < count && !d.stopped && back < 4 && back <= got; back++) {
            const int length = rm_utf8_next(all + got - back, n - (got - back));
            if (length > (int)back) good = false;
        }
    }
    if (!good || got != expected || d.stopped != stopped) {
        t_fail("'%.*s' with stop '%.*s': %zu of %zu bytes, stopped %d", (int)n, all,
               s->count ? (int)s->bytes[0] : 0, s->count ? s->text[0] : "", got, expected,
               d.stopped);
    }
    free(memory);
    free(all);
}

/* Every stop of every length at every place of a text, whatever tokens it crosses. */
static void stops_everywhere(void) {
    fixture f = open_tiny();
    const uint32_t ids[] = {HELLO, THE,      'x',  F09F, A699F0, 0x9F, 0xA6, 0x99,  ' ',
                            END,   E697A5E6, 0x97, 0xA5, THE,    THE,  '\n', ARROWS};
    const size_t count = sizeof ids / sizeof ids[0];
    size_t n;
    char *all = fixture_text(&f, ids, count, true, &n);
    for (size_t at = 0; at < n; at++) {
        for (size_t b = 1; b <= 12 && at + b <= n; b++) {
            stops s = {.text = {all + at}, .bytes = {b}, .count = 1};
            check_stream(&f, ids, count, &s);
            /* The same start, but it never completes. */
            char never[16];
            memcpy(never, all + at, b);
            memcpy(never + b, "\xC2\xA7", 2);
            s = (stops){.text = {never}, .bytes = {b + 2}, .count = 1};
            check_stream(&f, ids, count, &s);
        }
    }
    free(all);
    fixture_close(&f);
}

static void several_stops(void) {
    fixture f = open_tiny();
    const uint32_t one[] = {'x', ARROWS, END_LINE, 'y'}, other[] = {'x', ARROWS, END, '\n', 'y'},
                   last[] = {'x', ARROWS, END};
    const stops s = {.text = {">>> END", ">>> END\n"}, .bytes = {7, 8}, .count = 2};
    const stops inner = {.text = {"x>>> ENDy", "> E", "ND\n"}, .bytes = {9, 3, 3}, .count = 3};
    check_stream(&f, one, 4, &s);
    check_stream(&f, other, 5, &s);
    check_stream(&f, last, 3, &s);
    check_stream(&f, one, 4, &inner);
    check_stream(&f, other, 5, &inner);
    fixture_close(&f);
}

static void random_streams(void) {
    fixture f = open_tiny();
    for (int round = 0; round < 20000; round++) {
        uint32_t ids[24];
        char text[4][12];
        stops s = {.count = t_random() % 4};
        const size_t count = t_random() % 24;
        for (size_t i = 0; i < count; i++) {
            static const uint32_t few[] = {'a',  'b',  0xF0, 0x9F, 0xA6,
                                           0x99, 0xE6, 0x97, 0xA5, 0x80};
            ids[i] = t_random() % 3 ? few[t_random() % 10] : HELLO + t_random() % 8;
        }
        for (size_t i = 0; i < s.count; i++) {
            static const char letters[] = "ab\xF0\x9F\xA6\x99h";
            s.bytes[i] = 1 + t_random() % 5;
            for (size_t k = 0; k < s.bytes[i]; k++)
                text[i][k] = letters[t_random() % (sizeof letters - 1)];
            s.text[i] = text[i];
        }
        check_stream(&f, ids, count, &s);
    }
    fixture_close(&f);
}

static void expect_part(rm_detok *d, uint32_t id, const char *expected) {
    const char *part;
    size_t n;
    rm_detok_put(d, id, &part, &n);
    if (n != strlen(expected) || memcmp(part, expected, n) != 0) {
        t_fail("token %u gives '%.*s', not '%s'", id, (int)n, part, expected);
    }
}

/* A byte is out as soon as it is sure, not later. */
static void released_early(void) {
    fixture f = open_tiny();
    void *memory = malloc(rm_detok_bytes(f.t));
    rm_detok d;
    const char *part;
    size_t n;
    rm_detok_start(&d, f.t, memory, false);
    expect_part(&d, F09F, "");
    expect_part(&d, A699F0, "\xF0\x9F\xA6\x99");
    expect_part(&d, 'a',
                "\xF0"
                "a"); /* can no longer become a character */
    expect_part(&d, 0x80, "\x80");
    expect_part(&d, 0xFF, "\xFF");
    expect_part(&d, 0xE0, "");
    expect_part(&d, 0x80, "\xE0\x80"); /* overlong: never one */
    expect_part(&d, IM_END, "");
    expect_part(&d, 0xE6, "");
    rm_detok_end(&d, &part, &n);
    EXPECT(n == 1 && (uint8_t)part[0] == 0xE6);
    EXPECT(rm_detok_add_stop(&d, "hellx", 5, NULL) == REMAT_OK);
    expect_part(&d, 'h', "");
    expect_part(&d, HELLO, "hhello"); /* no end of it is a start of the stop */
    fixture_close(&f);
    free(memory);
}

static void limits_of_stops(void) {
    fixture f = open_tiny();
    void *memory = malloc(rm_detok_bytes(f.t));
    static char large[RM_STOP_BYTES_MAX + 1];
    remat_error err = {0};
    rm_detok d;
    memset(large, 'a', sizeof large);
    rm_detok_start(&d, f.t, memory, false);
    EXPECT(rm_detok_add_stop(&d, "", 0, &err) == REMAT_E_USAGE && err.message[0]);
    EXPECT(rm_detok_add_stop(&d, large, sizeof large, &err) == REMAT_E_USAGE);
    large[RM_STOP_BYTES_MAX - 1] = 'b';
    for (int i = 0; i < RM_STOPS_MAX; i++)
        EXPECT(rm_detok_add_stop(&d, large, RM_STOP_BYTES_MAX, &err) == REMAT_OK);
    EXPECT(rm_detok_add_stop(&d, "a", 1, &err) == REMAT_E_USAGE);
    /* A long run of its letters: as much is held as the stop is long, and no more. */
    size_t out = 0, n;
    const char *part;
    for (int i = 0; i < 1000; i++) {
        rm_detok_put(&d, 'a', &part, &n);
        out += n;
        EXPECT(d.held_bytes <= RM_STOP_BYTES_MAX - 1);
    }
    EXPECT_EQ_U64(out, 1000 - (RM_STOP_BYTES_MAX - 1));
    rm_detok_put(&d, 'b', &part, &n);
    EXPECT(d.stopped && n == 0);
    rm_detok_put(&d, 'a', &part, &n);
    EXPECT(n == 0);
    rm_detok_end(&d, &part, &n);
    EXPECT(n == 0);
    fixture_close(&f);
    free(memory);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(stops_everywhere), T(several_stops), T(random_streams),
                  T(released_early), T(limits_of_stops));
}
