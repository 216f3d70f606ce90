/* test_buf.c: nothing past the cap, what is kept is a beginning, a window gives everything on. */
#include "base/buf.h"
#include "harness.h"

static bool is(const rm_buf *b, const char *text) {
    return b->used == strlen(text) && memcmp(b->at, text, b->used) == 0;
}

static void text_is_kept(void) {
    char memory[64];
    rm_buf b;
    rm_buf_start(&b, memory, sizeof memory, NULL, NULL);
    rm_buf_text(&b, "one ");
    rm_buf_put(&b, "two!", 3);
    rm_buf_format(&b, " %d-%s", 3, "four");
    EXPECT(is(&b, "one two 3-four"));
    EXPECT(!b.truncated && !b.failed);
    rm_buf_flush(&b); /* nowhere to flush to */
    EXPECT(is(&b, "one two 3-four"));
}

static void a_full_buffer_keeps_a_beginning(void) {
    char memory[10];
    rm_buf b;
    memset(memory, 'z', sizeof memory);
    rm_buf_start(&b, memory, 8, NULL, NULL);
    rm_buf_text(&b, "12345678"); /* exactly full is not cut */
    EXPECT(!b.truncated);
    rm_buf_format(&b, "%d", 9);
    EXPECT(b.truncated && is(&b, "12345678"));
    EXPECT(memory[8] == 'z');

    rm_buf_start(&b, memory, 8, NULL, NULL);
    rm_buf_format(&b, "%s", "12345678");
    EXPECT(!b.truncated && is(&b, "12345678"));
    rm_buf_start(&b, memory, 8, NULL, NULL);
    rm_buf_text(&b, "12345");
    rm_buf_text(&b, "6789");
    EXPECT(b.truncated && is(&b, "12345678"));
    EXPECT(memory[8] == 'z');
    rm_buf_start(&b, NULL, 0, NULL, NULL);
    rm_buf_format(&b, "%s", "");
    EXPECT(!b.truncated);
    rm_buf_text(&b, "x");
    EXPECT(b.truncated && b.used == 0);
}

static void long_formats(void) {
    static char memory[2001], text[2001];
    rm_buf b;
    memset(text, 'a', 2000);
    memory[2000] = 'z';
    rm_buf_start(&b, memory, 2000, NULL, NULL);
    rm_buf_format(&b, "%.*s", 1999, text);
    EXPECT(!b.truncated);
    EXPECT_EQ_U64(b.used, 1999);
    rm_buf_start(&b, memory, 2000, NULL, NULL);
    rm_buf_text(&b, "begin ");
    rm_buf_format(&b, "%s", text);
    EXPECT(b.truncated && b.used <= 2000 && memory[2000] == 'z');
    EXPECT(memcmp(memory, "begin aaaa", 10) == 0);
    const size_t used = b.used;
    rm_buf_text(&b, "later"); /* nothing after a cut: what is kept is a beginning */
    EXPECT_EQ_U64(b.used, used);
    rm_buf_start(&b, memory, 8, NULL, NULL);
    rm_buf_text(&b, "12345678");
    rm_buf_format(&b, "%s", text);
    EXPECT(b.truncated && is(&b, "12345678"));
}

typedef struct {
    char bytes[4000];
    size_t used;
    int calls, refuse_from;
} sink;

static bool to_sink(void *user, const char *bytes, size_t count) {
    sink *s = user;
    if (++s->calls >= s->refuse_from || s->used + count > sizeof s->bytes) return false;
    memcpy(s->bytes + s->used, bytes, count);
    s->used += count;
    return true;
}

static void a_window_gives_everything_on(void) {
    static sink s;
    char memory[7], expected[4000];
    size_t length = 0;
    rm_buf b;
    s = (sink){.refuse_from = 1 << 30};
    rm_buf_start(&b, memory, sizeof memory, to_sink, &s);
    while (length < 3000) {
        const int n = (int)(t_random() % 30);
        char part[32];
        for (int i = 0; i < n; i++)
            part[i] = (char)('a' + t_random() % 26);
        memcpy(expected + length, part, (size_t)n);
        length += (size_t)n;
        if (t_random() % 2 == 0) {
            rm_buf_put(&b, part, (size_t)n);
        } else {
            rm_buf_format(&b, "%.*s", n, part);
        }
    }
    rm_buf_flush(&b);
    EXPECT_EQ_U64(s.used, length);
    EXPECT(memcmp(s.bytes, expected, length) == 0);
    EXPECT(!b.truncated && !b.failed && b.used == 0);
    const int calls = s.calls;
    rm_buf_flush(&b);
    EXPECT(s.calls == calls); /* an empty window is not handed out */
}

static void a_lost_receiver_is_asked_once(void) {
    static sink s;
    char memory[8];
    rm_buf b;
    s = (sink){.refuse_from = 2};
    rm_buf_start(&b, memory, sizeof memory, to_sink, &s);
    for (int i = 0; i < 20; i++)
        rm_buf_text(&b, "12345");
    rm_buf_flush(&b);
    EXPECT(b.failed);
    EXPECT(s.calls == 2);
    EXPECT_EQ_U64(s.used, 8);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(text_is_kept), T(a_full_buffer_keeps_a_beginning), T(long_formats),
                  T(a_window_gives_everything_on), T(a_lost_receiver_is_asked_once));
}
