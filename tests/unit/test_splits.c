/* test_splits.c: every way to cut text against tokenizers' own (tests/golden/README.md). */
#include "harness.h"
#include "text_fixture.h"

enum { TEXTS_MAX = 64, NAMES_MAX = 128 };

static const char GOLDEN[] = "tests/golden/splits.txt";

typedef struct golden {
    char *texts[TEXTS_MAX];
    size_t bytes[TEXTS_MAX];
    int count;
    const char *seen[NAMES_MAX];
    size_t seen_count;
} golden;

static int hex_of(char c) {
    return c <= '9' ? c - '0' : c - 'A' + 10;
}

static void add_text(golden *g, const char *s) {
    REQUIRE(g->count < TEXTS_MAX);
    char *out = malloc(strlen(s) + 1);
    size_t n = 0;
    for (; *s != '\0' && *s != '\n'; n++) {
        out[n] = *s == '%' ? (char)(hex_of(s[1]) * 16 + hex_of(s[2])) : *s;
        s += *s == '%' ? 3 : 1;
    }
    g->texts[g->count] = out;
    g->bytes[g->count++] = n;
}

/* ---- one rule */

typedef struct pieces {
    const char *expected; /* what is left of the line */
    bool wrong;
} pieces;

static int check_piece(void *user, const char *piece, size_t bytes, remat_error *err) {
    pieces *p = user;
    char *end;
    (void)piece;
    (void)err;
    if (strtoul(p->expected, &end, 10) != bytes || end == p->expected) p->wrong = true;
    p->expected = end;
    return REMAT_OK;
}

typedef struct cutting {
    rm_ledger ledger;
    rm_patterns patterns;
    remat_error err;
} cutting;

static bool start_cutting(cutting *c, const rm_pattern_rule *rule) {
    *c = (cutting){.patterns = {.count = 0}};
    const bool ok = rm_ledger_open(&c->ledger, 16 << 20, 0, &c->err) == REMAT_OK &&
                    rm_patterns_layout(&c->patterns, &c->ledger, &c->err) == REMAT_OK &&
                    rm_patterns_load(&c->patterns, rule, &c->err) == REMAT_OK;
    if (!ok) t_fail("%s: %s", rule->name, c->err.message);
    return ok;
}

static void stop_cutting(cutting *c) {
    rm_patterns_close(&c->patterns);
    rm_ledger_close(&c->ledger);
}

static int cut(cutting *c, const char *text, size_t n, rm_piece_fn *fn, void *user) {
    void *work = aligned_alloc(64, rm_patterns_work_bytes(&c->patterns));
    const int status = rm_patterns_cut(&c->patterns, text, n, work, fn, user, &c->err);
    free(work);
    return status;
}

static void check_rule(const golden *g, const char *name, char *const *lines) {
    cutting c;
    const rm_pattern_rule *rule = rm_pattern_rule_find(name);
    if (rule == NULL) t_fail("no rule %s", name);
    if (rule == NULL || !start_cutting(&c, rule)) return;
    EXPECT(c.patterns.compiled);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < g->count; i++) {
            pieces p = {.expected = lines[i]};
            const int status = cut(&c, g->texts[i], g->bytes[i], check_piece, &p);
            if (status != REMAT_OK || p.wrong || strspn(p.expected, "\n") != strlen(p.expected)) {
                t_fail("%s: '%.*s' is cut otherwise", name, (int)g->bytes[i], g->texts[i]);
            }
        }
        c.patterns.compiled = false; /* and by the interpreter */
    }
    stop_cutting(&c);
}

static void splits(void) {
    static char line[1 << 14];
    static golden g;
    FILE *in = fopen(GOLDEN, "r");
    REQUIRE(in != NULL);
    while (fgets(line, sizeof line, in)) {
        if (line[0] == 'T') add_text(&g, line + 2);
        if (line[0] != 'R') continue;
        char *names = strdup(line + 2), *lines[TEXTS_MAX];
        for (int i = 0; i < g.count; i++) {
            REQUIRE(fgets(line, sizeof line, in) != NULL);
            lines[i] = strdup(line);
        }
        for (char *name = strtok(names, " \n"); name != NULL; name = strtok(NULL, " \n")) {
            check_rule(&g, name, lines);
            REQUIRE(g.seen_count < NAMES_MAX);
            g.seen[g.seen_count++] = strdup(name);
        }
        for (int i = 0; i < g.count; i++)
            free(lines[i]);
        free(names);
    }
    fclose(in);
    EXPECT(g.count >= 40);
    /* No rule without an answer from outside. */
    size_t rules = 0;
    for (const rm_pattern_rule *r; (r = rm_pattern_rule_at(rules)) != NULL; rules++) {
        bool found = false;
        for (size_t i = 0; i < g.seen_count; i++)
            found = found || strcmp(g.seen[i], r->name) == 0;
        if (!found) t_fail("%s is not in %s", r->name, GOLDEN);
    }
    EXPECT_EQ_U64(rules, g.seen_count);
    for (int i = 0; i < g.count; i++)
        free(g.texts[i]);
    for (size_t i = 0; i < g.seen_count; i++)
        free((char *)(uintptr_t)g.seen[i]);
    g = (golden){.count = 0};
}

/* ---- long texts */

static int count_bytes(void *user, const char *piece, size_t bytes, remat_error *err) {
    (void)piece;
    (void)err;
    *(size_t *)user += bytes;
    return REMAT_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Text that repeats takes every way to cut it linear time, and memory that does not grow. */
static void long_texts(void) {
    static const char *const units[] = {
        "x",        "X",         " ",   "\n", "7",  "=",       "a ", "\xE6\x97\xA5",
        "\xCC\x81", "e\xCC\x81", " \n", "'s", "x7", "\xC2\xA0"};
    enum { BYTES = 40000 };
    char *text = malloc(BYTES + 8);
    for (size_t i = 0;; i++) {
        cutting c;
        const rm_pattern_rule *rule = rm_pattern_rule_at(i);
        if (rule == NULL) break;
        if (!start_cutting(&c, rule)) continue;
        for (int pass = 0; pass < 2; pass++) {
            for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
                size_t n = 0, all = 0;
                for (const size_t unit = strlen(units[u]); n + unit <= BYTES; n += unit)
                    memcpy(text + n, units[u], unit);
                const double start = now();
                const int status = cut(&c, text, n, count_bytes, &all);
                if (status != REMAT_OK || all != n) {
                    t_fail("%s, unit %zu, pass %d: %s", rule->name, u, pass, c.err.message);
                }
                if (now() - start > 2) t_fail("%s, unit %zu: %.1f s", rule->name, u, now() - start);
            }
            c.patterns.compiled = false;
        }
        stop_cutting(&c);
    }
    free(text);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(splits), T(long_texts));
}
