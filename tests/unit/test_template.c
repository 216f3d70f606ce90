/* test_template.c: chat templates: against Jinja2, marks, limits, hostile input. */
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include "text/template.h"

#include <pthread.h>
#include <stdbool.h>

enum { NOW = 1786970096 }; /* scripts/golden-templates.py has the same */
enum { MEMORY = 32 << 20 };

static const rm_template_extra EXTRA[] = {{"bos_token", "<s>", 3}, {"eos_token", "</s>", 4}};

typedef struct {
    int status;
    rm_template_output out;
    remat_error err;
    rm_template_limits limits;
    char *memory;
    size_t memory_bytes;
} result;

static char block[MEMORY];

static void render_limited(result *r, const char *source, size_t source_bytes, const char *json,
                           size_t json_bytes) {
    r->out = (rm_template_output){0};
    memset(&r->err, 0, sizeof r->err);
    r->status = rm_template_render(&r->out, source, source_bytes, json, json_bytes, EXTRA, 2,
                                   &r->limits, r->memory, r->memory_bytes, &r->err);
    EXPECT(r->status == REMAT_OK || r->status == REMAT_E_FAILED);
    EXPECT(r->status == r->err.status);
    EXPECT(strchr(r->err.message, '\n') == NULL && (r->status == 0) == (r->err.message[0] == 0));
}

static void render(result *r, const char *source, const char *json) {
    r->limits = rm_template_limits_default();
    r->limits.now = NOW;
    r->memory = block;
    r->memory_bytes = sizeof block;
    render_limited(r, source, strlen(source), json, strlen(json));
}

static void expect_text(const char *source, const char *json, const char *expected) {
    result r;
    render(&r, source, json);
    if (r.status != REMAT_OK)
        t_fail("%.60s: %s", source, r.err.message);
    else if (r.out.bytes != strlen(expected) || memcmp(r.out.text, expected, r.out.bytes) != 0)
        t_fail("%.60s gives '%.*s', not '%s'", source, (int)r.out.bytes, r.out.text, expected);
}

static void expect_error(const char *source, const char *json, const char *message) {
    result r;
    render(&r, source, json);
    if (r.status == REMAT_OK)
        t_fail("%.60s is no error", source);
    else if (strstr(r.err.message, message) == NULL)
        t_fail("%.60s: '%s' is not '%s'", source, r.err.message, message);
}

/* --- against Jinja2 ------------------------------------------------------------------------- */

static char *read_file(const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*bytes + 1);
    if (data == NULL || fread(data, 1, *bytes, f) != *bytes) abort();
    data[*bytes] = '\0';
    fclose(f);
    return data;
}

/* The next text of a record, which has a line break behind it. */
static const char *take(char **at, const char *end, size_t bytes) {
    const char *text = *at;
    if (bytes >= (size_t)(end - *at) || text[bytes] != '\n') abort();
    *at += bytes + 1;
    return text;
}

static void check_case(result *r, const char *source, size_t source_bytes, const char *expected,
                       size_t bytes) {
    if (expected == NULL) {
        if (r->status == REMAT_OK) t_fail("no error: %.*s", (int)source_bytes, source);
        return;
    }
    if (r->status != REMAT_OK) {
        t_fail("%s: %.*s", r->err.message, (int)source_bytes, source);
        return;
    }
    if (r->out.bytes == bytes && memcmp(r->out.text, expected, bytes) == 0) return;
    t_fail("'%.*s' gives '%.*s', not '%.*s'", (int)source_bytes, source, (int)r->out.bytes,
           r->out.text, (int)bytes, expected);
}

static void golden(void) {
    size_t bytes;
    char *data = read_file("tests/golden/templates.txt", &bytes);
    REQUIRE(data != NULL);
    const char *source = NULL, *const end = data + bytes;
    size_t source_bytes = 0;
    unsigned cases = 0;
    for (char *at = data; at < end;) {
        char word[16];
        size_t first = 0, second = 0;
        char *line = at;
        while (*at != ' ')
            at++;
        memcpy(word, line, (size_t)(at - line));
        word[at - line] = '\0';
        first = strtoul(at, &at, 10);
        if (*at == ' ') second = strtoul(at, &at, 10);
        at++;
        const char *text = take(&at, end, first);
        if (strcmp(word, "template") == 0) {
            source = text;
            source_bytes = first;
            continue;
        }
        const char *expected = strcmp(word, "case") == 0 ? take(&at, end, second) : NULL;
        result r = {.limits = rm_template_limits_default(), .memory = block};
        r.limits.now = NOW;
        r.memory_bytes = sizeof block;
        render_limited(&r, source, source_bytes, text, first);
        check_case(&r, source, source_bytes, expected, second);
        cases++;
    }
    EXPECT(cases > 140);
    free(data);
}

/* What differs from Jinja2 on purpose, or has no answer there. */
static void own_answers(void) {
    expect_text("{% set _ = xs.append(3) %}{{ xs }}{{ xs.pop() }}{{ xs.pop(0) }}{{ xs }}",
                "{\"xs\":[1,2]}", "[1, 2, 3]31[2]");
    expect_text("{% set _ = xs.insert(1, 9) %}{% set _ = xs.extend([7]) %}{{ xs }}",
                "{\"xs\":[1,2]}", "[1, 9, 2, 7]");
    expect_text("{% set _ = d.update({'b': 2}, c=3) %}{{ d.pop('a') }}{{ d }}", "{\"d\":{\"a\":1}}",
                "1{'b': 2, 'c': 3}");
    expect_text("{{ s|from_json|tojson }}", "{\"s\":\"{\\\"a\\\": [1, 2.0]}\"}",
                "{\"a\": [1, 2.0]}");
    expect_text("{{ [1, 2]|select('odd')|length }}{{ [1]|map('string')|tojson }}", "{}",
                "1[\"1\"]");
    expect_text("{{ x }} {{ x|tojson }} {{ x is integer }}", "{\"x\":18446744073709551616}",
                "18446744073709551616 18446744073709551616 True");
    expect_error("{{ 9223372036854775807 + 1 }}", "{}", "64 bits");
    expect_error("{{ 2 ** 64 }}", "{}", "64 bits");
    expect_error("{{ 9223372036854775808 }}", "{}", "64 bits");
    expect_text("{{ ''|safe + '<' }}", "{}", "<");
}

static void messages(void) {
    expect_error("a\nb\n{{ x.y }}", "{}", "template line 3: 'x' is undefined");
    expect_error("{{ raise_exception('Only one\nsystem message') }}", "{}",
                 "Only one system message");
    result r;
    render(&r, "{{ raise_exception('No such role: ' + r) }}", "{\"r\":\"x\\u0007\"}");
    EXPECT(strcmp(r.err.message, "No such role: x ") == 0);
    expect_error("{% if x %}\n\n{{ 1 }}", "{}", "no 'endif' ends the block of line 1");
    expect_error("\n{{ x | frob }}", "{}", "template line 2: there is no filter 'frob'");
    expect_error("x", "[1]", "no JSON object");
    expect_error("{% for x in 1 %}{% endfor %}", "{}", "int");
}

/* --- JSON ----------------------------------------------------------------------------------- */

static void json_reading(void) {
    expect_text("{{ a }}{{ b }}", " { \"a\" : 1 , \"b\" : \"\\u0041\\ud83d\\ude42\\/\\n\" } ",
                "1A\xF0\x9F\x99\x82/\n");
    expect_text("{{ a }}", "{\"a\":\"\\ud83d x \\ude42\\ud83d\\u0041\"}",
                "\xEF\xBF\xBD x \xEF\xBF\xBD\xEF\xBF\xBD"
                "A");
    expect_text("{{ a|tojson }}{{ d|tojson }}",
                "{\"a\":1,\"b\":2,\"a\":3,\"d\":{\"x\":1,\"y\":2,\"x\":0}}",
                "3{\"x\": 0, \"y\": 2}");
    expect_text("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }}",
                "{\"a\":1,\"b\":1.0,\"c\":-0,\"d\":-0.0,\"e\":1E+2}", "1 1.0 0 -0.0 100.0");
    static const char *const bad[] = {"",
                                      "{",
                                      "{}x",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{,}",
                                      "{a:1}",
                                      "{\"a\":01}",
                                      "{\"a\":1.}",
                                      "{\"a\":.5}",
                                      "{\"a\":+1}",
                                      "{\"a\":-}",
                                      "{\"a\":1e}",
                                      "{\"a\":NaN}",
                                      "{\"a\":tru}",
                                      "{\"a\":\"\n\"}",
                                      "{\"a\":\"\\x\"}",
                                      "{\"a\":\"\\u12g4\"}",
                                      "{\"a\":\"",
                                      "{\"a\":\"\\",
                                      "[",
                                      "{\"a\":[1,]}",
                                      "{\"a\":[,1]}",
                                      "{\"a\":[1 2]}",
                                      "{\"a\":[1}",
                                      "\"a\"",
                                      "{'a':1}",
                                      "nul",
                                      "{}{}",
                                      "{\"a\":\"\\ud83d\\u12\"}",
                                      "{\"a\":/**/1}",
                                      "\xEF\xBB\xBF{}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_error("x", bad[i], "the variables");
}

/* --- marks ---------------------------------------------------------------------------------- */

/* marks: as text, one digit for each byte. */
static void expect_marks(const char *source, const char *json, const char *text,
                         const char *marks) {
    result r;
    render(&r, source, json);
    REQUIRE(r.status == REMAT_OK);
    if (r.out.bytes != strlen(text) || strlen(text) != strlen(marks)) {
        t_fail("%s gives '%.*s', not '%s'", source, (int)r.out.bytes, r.out.text, text);
        return;
    }
    EXPECT(memcmp(r.out.text, text, r.out.bytes) == 0);
    for (size_t i = 0; i < r.out.bytes; i++) {
        if (r.out.marks[i] == marks[i] - '0') continue;
        t_fail("%s: byte %zu of '%s' has mark %u", source, i, text, r.out.marks[i]);
        return;
    }
}

static void marks(void) {
    const char *const json = "{\"u\":\"<e>\",\"n\":5,\"xs\":[\"a\",\"<b>\"]}";
    expect_marks("<s>{{ u }}</s>", json, "<s><e></s>", "1110001111");
    expect_marks("{{ '<' + u + '>' }}", json, "<<e>>", "10001");
    expect_marks("{% set x = '[' ~ u ~ ']' %}{{ x }}{{ x[1:] }}{{ x[::-1] }}", json,
                 "[<e>]<e>]]>e<[", "10001000110001");
    expect_marks("{{ u|upper }}{{ 'x'|upper }}{{ (u + 'é')|upper }}", json, "<E>X<E>\xC3\x89",
                 "000100011");
    expect_marks("{{ 'a-b'|replace('-', u) }}{{ u|replace('e', '|') }}", json, "a<e>b<|>",
                 "10001010");
    expect_marks("{{ xs|join('|') }}{{ '+'.join(xs) }}", json, "a|<b>a+<b>", "0100001000");
    expect_marks("{{ u|tojson }}{{ 'x'|tojson }}", json, "\"<e>\"\"x\"", "00000010");
    expect_marks("{{ [u, 'y'] }}", json, "['<e>', 'y']", "000000000100");
    expect_marks("{{ '{}|{}'.format(u, '<') }}{{ '%s>' % u }}", json, "<e>|<<e>>", "000110001");
    expect_marks("{{ (' ' + u + '> ')|trim }}{{ ('a,' + u).split(',')[1] }}", json, "<e>><e>",
                 "0001000");
    expect_marks("{{ bos_token }}{{ 1 }}{{ n }}{{ n + 1 }}{{ 1 + 1 }}{{ u|length }}", json,
                 "<s>15623", "11110010");
    expect_marks("{% for x in [u, '<'] %}{{ loop.index }}{{ x }}{% endfor %}", json, "1<e>2<",
                 "100011");
    expect_marks("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{{ m('k')|lower }}", json,
                 "<<e>><k>", "10001111");
    expect_marks("{% set b %}<{{ u }}{% endset %}{{ b }}{{ b|e }}", json, "<<e>&lt;&lt;e&gt;",
                 "10000000000000000");
    expect_marks("{{ bos_token }}", "{\"bos_token\":\"<s>\"}", "<s>", "000");
    expect_marks("{{ '{\"k\": \"<s>\"}'|from_json }}", json, "{'k': '<s>'}", "001000011100");
    expect_marks("a\n{{ (u ~ '\\nb')|indent(1) }}", json, "a\n<e>\n b", "11000111");
}

/* --- limits --------------------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may use the machine */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Work that would never end, or that grows faster than the template. */
static void steps(void) {
    static const char *const hostile[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) if b < 0 %}{% endfor %}{% endfor %}",
        "{% set x = [1] %}{% for a in x %}{% set _ = x.append(1) %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='x') %}{% for a in range(99999) %}{% set ns.s = ns.s ~ 'y' %}{% "
        "endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for a in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
        "endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ '%99999999d' % 1 }}",
        "{{ 'a'.ljust(10 ** 15) }}",
        "{{ 1|tojson(indent=10 ** 14) }}",
        "{{ 'a'|indent(10 ** 14) }}",
        "{{ '{:9999999}'.format(1) }}",
        "{{ [[]]|tojson(indent=10 ** 7) }}",
        "{{ range(10 ** 9)|list }}",
        "{{ range(-(10 ** 18), 10 ** 18) }}",
        "{% set s = 'ab' * 500000 %}{% for i in range(99999) %}{{ (s|replace('a', 'cc'))|length "
        "}}{% endfor %}",
        "{% set s = 'a' * 500000 %}{% for i in range(99999) %}{% set x = s.rfind('a' * 9999 ~ 'b') "
        "%}{% endfor %}",
        "{% set s = 'a' * 500000 %}{% for i in range(99999) %}{% set x = s[i] %}{% endfor %}",
        "{% set s = 'a ' * 90000 %}{% for i in range(99999) %}{% set x = s.split() %}{% endfor %}",
        "{% set l = range(99999)|list %}{% for i in l %}{% if 'x' in l %}{% endif %}{% endfor %}",
        "{% set l = range(99999)|list %}{% for i in l %}{% set x = l|sort(reverse=true) %}{% "
        "endfor %}",
        "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% for a in range(99999) %}{% for b in range(999) %}{{ a }}{% endfor %}{% endfor %}"};
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const double start = now();
        expect_error(hostile[i], "{}", "");
        const double seconds = now() - start;
#ifndef RM_SANITIZED
        if (seconds > 2) t_fail("%.70s: %.2f s", hostile[i], seconds);
#else
        (void)seconds;
#endif
    }
    result r = {
        .limits = rm_template_limits_default(), .memory = block, .memory_bytes = sizeof block};
    r.limits.steps_max = 1000;
    const char *const source = "{% for x in range(1000) %}{% endfor %}";
    render_limited(&r, source, strlen(source), "{}", 2);
    EXPECT(strstr(r.err.message, "1000 steps") != NULL);
}

static void output_limit(void) {
    result r = {
        .limits = rm_template_limits_default(), .memory = block, .memory_bytes = sizeof block};
    r.limits.output_max = 10;
    render_limited(&r, "0123456789", 10, "{}", 2);
    EXPECT(r.status == REMAT_OK && r.out.bytes == 10);
    render_limited(&r, "{{ 'x' * 11 }}", 14, "{}", 2);
    EXPECT(r.status == REMAT_E_FAILED && strstr(r.err.message, "10 bytes") != NULL);
}

static const char CHAT[] =
    "{% macro tag(x) %}<{{ x }}>{% endmacro %}{% for m in messages if m.role != 'x' %}{{ "
    "tag(m.role)"
    " + (m.content or '')|trim|replace('a', 'bb') }}{{ m|tojson(indent=1) }}{{ [m, loop.last] }}{{ "
    "'%s {}' % 'é'.upper() }}{% set q %}{{ m.content }}{% endset %}{{ q.split() }}{% endfor %}";
static const char CHAT_JSON[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u00e9\\n b\"},{\"role\":\"x\"},"
    "{\"role\":\"assistant\",\"content\":null,\"k\":[1,2.5,{\"a\":[]}]}]}";

/* With each size of memory it fails cleanly or gives the same. */
static void memory(void) {
    result whole, r = {.limits = rm_template_limits_default()};
    render(&whole, CHAT, CHAT_JSON);
    REQUIRE(whole.status == REMAT_OK);
    EXPECT(whole.out.memory_used < 64 << 10);
    char *const text = malloc(whole.out.bytes);
    REQUIRE(text != NULL);
    memcpy(text, whole.out.text, whole.out.bytes);
    bool worked = false;
    for (size_t n = 0; n < 96 << 10; n += n < 4096 ? 1 : 61) {
        char *exact = malloc(n + 1); /* the sanitizer sees what lies past its end */
        REQUIRE(exact != NULL);
        r.memory = exact + 1; /* aligned for nothing */
        r.memory_bytes = n;
        render_limited(&r, CHAT, sizeof CHAT - 1, CHAT_JSON, sizeof CHAT_JSON - 1);
        if (r.status == REMAT_OK) {
            EXPECT(r.out.bytes == whole.out.bytes && memcmp(r.out.text, text, r.out.bytes) == 0);
            worked = true;
        } else {
            EXPECT(strstr(r.err.message, "needs more memory") != NULL);
        }
        free(exact);
    }
    EXPECT(worked);
    free(text);
}

static void no_heap(void) {
#ifdef RM_SANITIZED /* sanitizers take the same names */
    SKIP("sanitizers count for themselves");
#else
    result r;
    no_malloc_begin();
    render(&r, CHAT, CHAT_JSON);
    render(&r, "{{ strftime_now('%c') }}{{ 1.5|round(1) }}{{ '%.3f' % 2.5 }}", "{}");
    const unsigned calls = no_malloc_end();
    EXPECT(r.status == REMAT_OK);
    EXPECT_EQ_U64(calls, 0);
#endif
}

/* --- hostile input --------------------------------------------------------------------------- */

/* count times a, middle, count times b */
static char *nested(const char *a, const char *middle, const char *b, size_t count) {
    const size_t an = strlen(a), bn = strlen(b), mn = strlen(middle);
    char *s = malloc(count * (an + bn) + mn + 1), *at = s;
    if (s == NULL) abort();
    for (size_t i = 0; i < count; i++, at += an)
        memcpy(at, a, an);
    memcpy(at, middle, mn);
    at += mn;
    for (size_t i = 0; i < count; i++, at += bn)
        memcpy(at, b, bn);
    *at = '\0';
    return s;
}

static char *in_print(char *inner) {
    const size_t n = strlen(inner);
    char *s = malloc(n + 7);
    if (s == NULL) abort();
    memcpy(s, "{{ ", 3);
    memcpy(s + 3, inner, n);
    memcpy(s + 3 + n, " }}", 4);
    free(inner);
    return s;
}

static const struct {
    const char *a, *middle, *b;
    bool statement;
} NESTS[] = {{"(", "1", ")", false},
             {"[", "1", "]", false},
             {"{1:", "1", "}", false},
             {"-", "1", "", false},
             {"not ", "1", "", false},
             {"a[", "1", "]", false},
             {"a(", "1", ")", false},
             {"1|default(", "1", ")", false},
             {"1 if 1 else ", "1", "", false},
             {"1 if ", "1", "", false},
             {"1 or 1 and 1 == 1 + 1 ~ 1 * 1 ** (", "1", ")", false},
             {"not 1 == (", "1", ")", false},
             {"[1][", "0", ":]", false},
             {"range(", "1", ")", false},
             {"1 is eq(", "1", ")", false},
             {"dict(a=", "1", ")", false},
             {"dict(*[", "1", "])", false},
             {"{% if 1 %}", "", "{% endif %}", true},
             {"{% for x in [1] %}", "", "{% endfor %}", true},
             {"{% filter upper %}", "", "{% endfilter %}", true},
             {"{% set x %}", "", "{% endset %}", true},
             {"{% with %}", "", "{% endwith %}", true},
             {"{% macro m() %}", "", "{% endmacro %}", true},
             {"{% call m() %}", "", "{% endcall %}", true},
             {"{% if 1 %}{% else %}", "", "{% endif %}", true}};

static void deep_templates(void) {
    for (size_t i = 0; i < sizeof NESTS / sizeof NESTS[0]; i++) {
        for (size_t count = 10; count <= 100000; count *= 10) {
            char *s = nested(NESTS[i].a, NESTS[i].middle, NESTS[i].b, count);
            if (!NESTS[i].statement) s = in_print(s);
            result r;
            render(&r, s, "{}");
            if (count >= 1000 && r.status == REMAT_OK)
                t_fail("%zu times %s passes", count, NESTS[i].a);
            free(s);
        }
    }
}

/* Long is not deep. */
static void long_templates(void) {
    static const struct {
        const char *start, *each, *end;
    } runs[] = {{"{{ 1", " + 1", " }}"},
                {"{{ 'a'", " ~ 'a'", " }}"},
                {"{{ 1", " and 1", " }}"},
                {"{{ 1", " == 1", " }}"},
                {"{{ 'a'", "|upper", " }}"},
                {"{{ 'a'", ".upper()", " }}"},
                {"{{ [1", ", 1", "]|length }}"},
                {"{% if 0 %}", "{% elif 0 %}x", "{% endif %}"},
                {"", "{# c #}", ""},
                {"", "x{{ 1 }}", ""},
                {"{{ 'a'", " 'b'", " }}"},
                {"", "{% set x = 1 %}", ""},
                {"{{ {1: 1", ", 1: 1", "} }}"}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char *middle = nested(runs[i].each, "", "", 2000);
        const size_t n = strlen(runs[i].start) + strlen(middle) + strlen(runs[i].end) + 1;
        char *s = malloc(n);
        REQUIRE(s != NULL);
        snprintf(s, n, "%s%s%s", runs[i].start, middle, runs[i].end);
        result r;
        render(&r, s, "{}");
        if (r.status != REMAT_OK) t_fail("%s%s: %s", runs[i].start, runs[i].each, r.err.message);
        free(middle);
        free(s);
    }
}

static void deep_values(void) {
    for (size_t count = 100; count <= 100000; count *= 10) {
        char *list = nested("[", "", "]", count), *dict = nested("{\"a\":", "1", "}", count);
        const size_t n = count * 8 + 64;
        char *json = malloc(n);
        REQUIRE(json != NULL);
        result r;
        snprintf(json, n, "{\"x\":%s}", list);
        render(&r, "{{ x }}{{ x|tojson }}{{ x == x }}{{ x < x }}", json);
        EXPECT((r.status == REMAT_OK) == (count == 100));
        snprintf(json, n, "{\"x\":%s}", dict);
        render(&r, "{{ x }}{{ x|tojson }}{{ x == x }}", json);
        EXPECT((r.status == REMAT_OK) == (count == 100));
        free(list);
        free(dict);
        free(json);
    }
    /* Values that the template makes deep, or that hold themselves. */
    const char *const grow = "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
                             "{% set ns.x = [ns.x] %}{% endfor %}";
    static const char *const uses[] = {"{{ ns.x }}",           "{{ ns.x|tojson }}",
                                       "{{ ns.x == [ns.x] }}", "{{ {(ns.x,): 1} }}",
                                       "{{ ns.x|string }}",    "{{ [ns.x]|unique|list }}"};
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        char s[256];
        snprintf(s, sizeof s, "%s%s", grow, uses[i]);
        expect_error(s, "{}", "");
    }
    expect_error("{% set x = [1] %}{% set _ = x.append(x) %}{{ x }}", "{}", "deep");
    expect_error("{% set x = {} %}{% set _ = x.update({'x': x}) %}{{ x == x|tojson }}", "{}",
                 "deep");
    expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", "deep");
}

/* Keys that collide: the search is charged for. */
static void many_keys(void) {
    const size_t count = 60000;
    char *json = malloc(count * 20 + 16), *at = json;
    REQUIRE(json != NULL);
    *at++ = '{';
    for (size_t i = 0; i < count; i++)
        at += snprintf(at, 20, "%s\"k%zu\":%zu", i > 0 ? "," : "", i, i);
    *at++ = '}';
    *at = '\0';
    expect_text("{{ k59999 }}{{ k0 }}{{ k30000 }}", json, "59999030000");
    free(json);
}

#ifndef RM_SANITIZED /* whose frames are larger */
/* The stack a rendering takes, with everything nested as deep as the default allows. */
typedef struct {
    const char *source, *json;
} stack_job;

static void *stack_run(void *user) {
    const stack_job *job = user;
    result r;
    render(&r, job->source, job->json);
    return NULL;
}

static size_t stack_used(const char *source, const char *json) {
    enum { STACK = 2 << 20 };
    uint8_t *stack = aligned_alloc(4096, STACK);
    pthread_attr_t a;
    pthread_t thread;
    stack_job job = {source, json};
    if (stack == NULL) abort();
    memset(stack, 0xA5, STACK);
    pthread_attr_init(&a);
    pthread_attr_setstack(&a, stack, STACK);
    if (pthread_create(&thread, &a, stack_run, &job) != 0) abort();
    pthread_join(thread, NULL);
    pthread_attr_destroy(&a);
    size_t untouched = 0;
    while (untouched < STACK && stack[untouched] == 0xA5)
        untouched++;
    free(stack);
    return STACK - untouched;
}

#endif

static void stack(void) {
#ifdef RM_SANITIZED
    SKIP("frames are larger under sanitizers");
#else
    size_t most = 0;
    for (size_t i = 0; i < sizeof NESTS / sizeof NESTS[0]; i++) {
        for (size_t count = 20; count <= 500; count += 4) {
            char *s = nested(NESTS[i].a, NESTS[i].middle, NESTS[i].b, count);
            if (!NESTS[i].statement) s = in_print(s);
            const size_t used = stack_used(s, "{\"a\":[[1]]}");
            if (used > 256 << 10)
                t_fail("%zu times %s: %zu bytes of stack", count, NESTS[i].a, used);
            most = used > most ? used : most;
            free(s);
        }
    }
    static const char *const recursive[] = {
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% if 1 %}{% for x in [1] %}{{ [m()]|join|upper }}{% endfor %}{% endif %}"
        "{% endmacro %}{{ m() }}",
        "{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{{ caller }}{% endmacro %}{{ m() "
        "}}",
        "{% macro m() %}{% for x in [1, 2] if m() %}{% endfor %}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% for x in [1, 2] if loop.last or m() %}{{ loop.last }}{% endfor %}{% "
        "endmacro %}{{ m() }}",
        "{% macro m() %}{% set x %}{% filter upper %}{{ dict(a=m(*[m()])) }}{% endfilter %}{% "
        "endset %}"
        "{% endmacro %}{{ m() }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor "
        "%}{{ ns.x }}"};
    for (size_t i = 0; i < sizeof recursive / sizeof recursive[0]; i++) {
        const size_t used = stack_used(recursive[i], "{}");
        if (used > 256 << 10) t_fail("%s: %zu bytes of stack", recursive[i], used);
        most = used > most ? used : most;
    }
    printf("     at most %zu bytes of stack\n", most);
#endif
}

/* Any bytes: no crash, one line. */
static void random_input(void) {
    static const char *const words[] = {
        "{{",   "}}",     "{%",    "%}",       "{#", "#}",    "-",       "+",   " ",
        "\n",   "if",     "for",   "in",       "x",  "endif", "endfor",  "set", "=",
        "(",    ")",      "[",     "]",        "{",  "}",     "'",       "\"",  "a",
        "1",    ".",      ",",     "|",        "~",  "upper", "is",      "not", "defined",
        "raw",  "endraw", "macro", "endmacro", "\\", "\xC3",  "\xA9",    "1.5", "else",
        "loop", "tojson", "**",    "//",       ":",  "call",  "endcall", "and", "None"};
    for (int round = 0; round < 20000; round++) {
        char s[512];
        size_t n = 0;
        while (n < 400 && t_random() % 60 != 0) {
            const char *w = words[t_random() % (sizeof words / sizeof words[0])];
            memcpy(s + n, w, strlen(w));
            n += strlen(w);
            if (t_random() % 2 == 0) s[n++] = ' ';
        }
        result r = {
            .limits = rm_template_limits_default(), .memory = block, .memory_bytes = 1 << 18};
        render_limited(&r, s, n, CHAT_JSON, sizeof CHAT_JSON - 1);
    }
}

int main(int argc, char **argv) {
#ifdef __SANITIZE_THREAD__ /* minutes, and nothing to see */
    (void)argc;
    (void)argv;
    puts("skip: rendering has one thread");
    return 77;
#else
    return RM_RUN(argc, argv, T(golden), T(own_answers), T(messages), T(json_reading), T(marks),
                  T(steps), T(output_limit), T(memory), T(no_heap), T(deep_templates),
                  T(long_templates), T(deep_values), T(many_keys), T(stack), T(random_input));
#endif
}
