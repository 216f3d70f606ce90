/* test_json.c: documents, numbers, and text of any bytes. */
#include "base/json.h"
#include "harness.h"

#include <locale.h>
#include <math.h>

static char memory[2000];
static rm_buf buf;
static rm_json json;

static void begin(void) {
    rm_buf_start(&buf, memory, sizeof memory, NULL, NULL);
    rm_json_start(&json, &buf);
}

static void expect(const char *text) {
    if (buf.used != strlen(text) || memcmp(buf.at, text, buf.used) != 0)
        t_fail("%.*s, not %s", (int)buf.used, buf.at, text);
}

static void a_document(void) {
    begin();
    rm_json_open(&json, NULL, '{');
    rm_json_string(&json, "name", "a \"b\"");
    rm_json_open(&json, "list", '[');
    rm_json_u64(&json, NULL, UINT64_MAX);
    rm_json_i64(&json, NULL, INT64_MIN);
    rm_json_open(&json, NULL, '{');
    rm_json_close(&json, '}');
    rm_json_open(&json, NULL, '[');
    rm_json_close(&json, ']');
    rm_json_close(&json, ']');
    rm_json_bool(&json, "yes", true);
    rm_json_bool(&json, "no", false);
    rm_json_null(&json, "k\"\n");
    rm_json_close(&json, '}');
    expect("{\"name\":\"a \\\"b\\\"\",\"list\":[18446744073709551615,-9223372036854775808,{},[]],"
           "\"yes\":true,\"no\":false,\"k\\\"\\n\":null}");
    begin();
    rm_json_f64(&json, NULL, 2, 3);
    expect("2");
}

static void deep(void) {
    begin();
    for (int i = 0; i < 32; i++)
        rm_json_open(&json, NULL, '[');
    for (int i = 0; i < 32; i++)
        rm_json_close(&json, ']');
    expect("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
}

static void numbers(void) {
    begin();
    rm_json_open(&json, NULL, '[');
    rm_json_f64(&json, NULL, 0.1, 17);
    rm_json_f64(&json, NULL, 0.1, 3);
    rm_json_f64(&json, NULL, -1234567, 3);
    rm_json_f64(&json, NULL, 1e-300, 1);
    rm_json_f64(&json, NULL, -0.0, 3);
    rm_json_f64(&json, NULL, (double)NAN, 3);
    rm_json_f64(&json, NULL, (double)INFINITY, 3);
    rm_json_f64(&json, NULL, (double)-INFINITY, 3);
    rm_json_close(&json, ']');
    expect("[0.10000000000000001,0.1,-1.23e+06,1e-300,-0,null,null,null]");
}

static void the_locale_changes_nothing(void) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF",
                                        "ps_AF.UTF-8"};
    bool any = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (setlocale(LC_NUMERIC, names[i]) == NULL) continue;
        any = true;
        begin();
        rm_json_f64(&json, NULL, -0.5, 3);
        expect("-0.5");
    }
    setlocale(LC_NUMERIC, "C");
    if (!any) SKIP("no locale with a decimal comma here");
}

static void text_becomes(const char *bytes, size_t count, const char *expected) {
    begin();
    rm_json_text(&json, NULL, bytes, count);
    expect(expected);
}

#define FFFD "\xef\xbf\xbd"

static void text_of_any_bytes(void) {
    text_becomes("", 0, "\"\"");
    text_becomes("a\0b", 3, "\"a\\u0000b\"");
    text_becomes("\"\\/\b\f\n\r\t\x01\x1f\x7f", 11,
                 "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
    text_becomes("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9,
                 "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
    /* The examples of the Unicode standard, tables 3-8 to 3-11. */
    text_becomes("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", 9,
                 "\"" FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A\"");
    text_becomes("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", 9,
                 "\"" FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A\"");
    text_becomes("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", 9,
                 "\"" FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B\"");
    text_becomes("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", 9, "\"" FFFD FFFD FFFD FFFD "A\"");
    text_becomes("x\xe2\x82", 3, "\"x" FFFD "\""); /* cut at the end */
    text_becomes("\xf4\x8f\xbf\xbf", 4, "\"\xf4\x8f\xbf\xbf\"");
}

/* What is written is UTF-8 without control characters, whatever comes in. */
static void random_bytes_stay_valid(void) {
    for (int round = 0; round < 2000; round++) {
        char bytes[40];
        const size_t count = t_random() % sizeof bytes;
        for (size_t i = 0; i < count; i++) {
            static const uint8_t likely[] = {0xc3, 0xe2, 0x82, 0xac, 0xf0,
                                             0x9f, 0xed, 0xa0, 'a',  '"'};
            const uint64_t r = t_random();
            bytes[i] = (char)(r % 3 == 0 ? r >> 8 : likely[(r >> 8) % sizeof likely]);
        }
        begin();
        rm_json_text(&json, NULL, bytes, count);
        /* Valid text is left alone: a second pass over the content changes quotes only. */
        int follow = 0;
        for (size_t i = 0; i < buf.used; i++) {
            const uint8_t c = (uint8_t)buf.at[i];
            EXPECT(c >= 0x20);
            if (follow > 0) {
                REQUIRE((c & 0xc0) == 0x80);
                follow--;
            } else {
                REQUIRE(c < 0x80 || (c >= 0xc2 && c <= 0xf4));
                follow = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
            }
        }
        EXPECT(follow == 0);
    }
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(a_document), T(deep), T(numbers), T(the_locale_changes_nothing),
                  T(text_of_any_bytes), T(random_bytes_stay_valid));
}
