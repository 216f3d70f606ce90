/* test_bpe.c: how text is cut, and merges against the plainest way to do them. */
#include "harness.h"
#include "text_fixture.h"

/* ---- cutting */

typedef struct pieces {
    char text[512];
    size_t used;
} pieces;

static int add_piece(void *user, const char *piece, size_t bytes, remat_error *err) {
    pieces *p = user;
    (void)err;
    p->used +=
        (size_t)snprintf(p->text + p->used, sizeof p->text - p->used, "[%.*s]", (int)bytes, piece);
    return REMAT_OK;
}

/* Both ways of matching give the same pieces. */
static void expect_cut(const char *rule, const char *text, const char *expected) {
    static _Alignas(64) uint8_t work[64 << 10];
    remat_error err = {0};
    rm_ledger l = {0};
    rm_patterns p = {0};
    REQUIRE(rm_ledger_open(&l, 16 << 20, 0, &err) == REMAT_OK);
    EXPECT(rm_patterns_layout(&p, &l, &err) == REMAT_OK);
    EXPECT(rm_patterns_load(&p, rm_pattern_rule_find(rule), &err) == REMAT_OK);
    EXPECT(p.compiled);
    for (int pass = 0; pass < 2; pass++) {
        pieces got = {.used = 0};
        EXPECT(rm_patterns_work_bytes(&p) <= sizeof work);
        EXPECT(rm_patterns_cut(&p, text, strlen(text), work, add_piece, &got, &err) == REMAT_OK);
        if (strcmp(got.text, expected) != 0) {
            t_fail("%s cuts %s, not %s (%s)", rule, got.text, expected, err.message);
        }
        p.compiled = false;
    }
    rm_patterns_close(&p);
    rm_ledger_close(&l);
}

static void cuts(void) {
    expect_cut("gpt-2", "", "");
    expect_cut("gpt-2", "Hello  world's 1234!?", "[Hello][ ][ world]['s][ 1234][!?]");
    expect_cut("gpt-2", "a\n\n b \n", "[a][\n\n][ b][ \n]");
    expect_cut("gpt-2", "I'VE we'll", "[I]['][VE][ we]['ll]");
    expect_cut("smollm", "ab 12  3", "[ab][ ][1][2][  ][3]"); /* the lookahead ends at a piece */
    expect_cut("smollm", "x²٣", "[x][²][٣]");
    expect_cut("default", "a$b 12345, c", "[a][$][b][ ][123][45][,][ c]");
    expect_cut("default", "12345 678", "[123][45][ ][678]");
    expect_cut("llama-bpe", "Hi 12345 I'LL go\n\n x\t\ty",
               "[Hi][ ][123][45][ I]['LL][ go][\n\n][ x][\t][\ty]");
    expect_cut("llama3", "a!!\r\n  b", "[a][!!\r\n][ ][ b]");
    expect_cut("llama3", "  \n  \n  x", "[  \n  \n][ ][ x]");
    /* Whitespace is Unicode's: U+00A0, U+0085, U+3000; not U+180E, not U+200B. */
    expect_cut("gpt-2", "\xC2\xA0\xE3\x80\x80y", "[\xC2\xA0][\xE3\x80\x80][y]");
    expect_cut("gpt-2", "a\xC2\x85\xE1\xA0\x8E", "[a][\xC2\x85][\xE1\xA0\x8E]");
    expect_cut("gpt-2", " \xE2\x80\x8B!", "[ \xE2\x80\x8B!]");
    EXPECT(rm_pattern_rule_find("no-such-cut") == NULL);
}

/* ---- merges */

static void expect_ids(fixture *f, const char *text, size_t n, const uint32_t *expected,
                       size_t count) {
    uint32_t *ids;
    const long got = fixture_ids(f, &ids, text, n, 0);
    if (got != (long)count || memcmp(ids, expected, count * sizeof *ids) != 0) {
        t_fail("'%.*s': %ld tokens, not %zu (%s)", (int)n, text, got, count, f->err.message);
    }
    free(ids);
}
#define IDS(f, text, ...)                                                                          \
    expect_ids(f, text, sizeof text - 1, (const uint32_t[]){__VA_ARGS__},                          \
               sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void order_of_merges(void) {
    /* 256 aa, 257 aaa, 258 bc, 259 abc: not reached through ab; 260 "  " */
    static const char *const merges[] = {"a a", "aa a", "b c", "a bc", "\xC4\xA0 \xC4\xA0"};
    fixture f;
    gg g;
    tiny_bpe(&g, "gpt2", merges, 5, NULL, 0);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    IDS(&f, "aaa", 257);
    IDS(&f, "aaaa", 256, 256); /* leftmost first: aa|aa, and "aaa" has nothing to join */
    IDS(&f, "aaaaa", 256, 257);
    IDS(&f, "abcabc", 259, 259);
    IDS(&f, "aabc", 256, 258);
    IDS(&f, "   ", 260, ' ');
    IDS(&f, "x\0y", 'x', 0, 'y');
    IDS(&f, "\xFF\xC3(", 0xFF, 0xC3, '(');
    IDS(&f, "\xC3\xA9", 0xC3, 0xA9);
    fixture_close(&f);
}

/* A token that no order of merges reaches is not taken for a piece, except where the model's way
 * says so. */
static void whole_pieces(void) {
    static const char *const merges[] = {"a b", "b c", "a bc"}; /* abc = 258, but ab goes first */
    for (int ignore = 0; ignore < 2; ignore++) {
        fixture f;
        gg g;
        tiny_bpe(&g, ignore ? "llama-bpe" : "gpt-2", merges, 3, NULL, 0);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        if (ignore)
            IDS(&f, "abc", 258);
        else
            IDS(&f, "abc", 256, 'c');
        EXPECT(f.t->add_bos == (ignore != 0));
        fixture_close(&f);
    }
}

/* No way to split a control token into merges makes text become one. */
static void merges_to_control(void) {
    static const tiny_token extra[] = {{"xy", RM_TOKEN_CONTROL, 0}, {"yz", RM_TOKEN_USER, 0}};
    static const char *const merges[] = {"a b"};
    gg g;
    fixture f;
    tiny_bpe(&g, "gpt-2", merges, 1, extra, 2); /* ab 256, xy 257, yz 258 */
    const size_t keys = g.keys;
    EXPECT(keys == 5);
    /* The list is the last key: write it anew with three entries. */
    g.used -= 8 + strlen("tokenizer.ggml.merges") + 4 + 4 + 8 + 8 + 3;
    g.keys--;
    gg_list(&g, "tokenizer.ggml.merges", RM_GGUF_STRING, 3);
    gg_string(&g, "x y", 3);
    gg_string(&g, "y z", 3);
    gg_string(&g, "a b", 3);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    IDS(&f, "xy", 'x', 'y');
    IDS(&f, "xyz", 'x', 258); /* found in raw text */
    IDS(&f, "ab", 256);
    fixture_close(&f);
}

static void expect_bad_merge(const char *merge, const char *also) {
    const char *const merges[] = {"a b", "a b"};
    gg g;
    fixture f;
    tiny_bpe(&g, "gpt-2", merges, 2, NULL, 0);
    g.used -= 8 + 3; /* the second entry */
    gg_string(&g, merge, strlen(merge));
    EXPECT(fixture_gg(&f, &g) == REMAT_E_MODEL);
    if (!strstr(f.err.message, "tokenizer.ggml.merges: ") || !strstr(f.err.message, "entry 1") ||
        !strstr(f.err.message, also)) {
        t_fail("'%s': %s", merge, f.err.message);
    }
    fixture_close(&f);
}

static void bad_merges(void) {
    expect_bad_merge("", "blank");
    expect_bad_merge("ab", "blank");
    expect_bad_merge("a ", "blank");
    expect_bad_merge(" a", "blank");
    expect_bad_merge("a c", "result");
    expect_bad_merge("aq c", "first");
    expect_bad_merge("a qc", "second");
    expect_bad_merge("a b c", "second");
    expect_bad_merge("\xC3 \xC3", "first");
    static char large[5000];
    memset(large, 'a', sizeof large - 1);
    expect_bad_merge(large, "4999");
}

/* ---- against the plainest way, on a random vocabulary */

enum { RULES = 60, TEXT = 400 };

typedef struct rule {
    char left[16], right[16];
} rule;

/* Joins the first pair of the lowest rank until none is left. */
static size_t naive(char (*parts)[32], size_t count, const rule *rules, size_t rule_count) {
    for (;;) {
        size_t best = rule_count, at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            for (size_t r = 0; r < best; r++) {
                if (strcmp(parts[i], rules[r].left) == 0 &&
                    strcmp(parts[i + 1], rules[r].right) == 0) {
                    best = r;
                    at = i;
                }
            }
        }
        if (best == rule_count) return count;
        memcpy(parts[at] + strlen(parts[at]), parts[at + 1], strlen(parts[at + 1]) + 1);
        memmove(parts[at + 1], parts[at + 2], (count - at - 2) * sizeof *parts);
        count--;
    }
}

static void random_merges(void) {
    for (int round = 0; round < 40; round++) {
        static rule rules[RULES];
        static char lines[RULES][40];
        const char *merges[RULES];
        char known[RULES + 3][16] = {"a", "b", "c"};
        size_t count = 0;
        for (int tries = 0; tries < 4000 && count < RULES; tries++) {
            const char *l = known[t_random() % (count + 3)], *r = known[t_random() % (count + 3)];
            char both[32];
            snprintf(both, sizeof both, "%s%s", l, r);
            bool seen = strlen(both) > 8;
            for (size_t i = 0; i < count + 3 && !seen; i++)
                seen = strcmp(known[i], both) == 0;
            if (seen) continue;
            strcpy(rules[count].left, l);
            strcpy(rules[count].right, r);
            snprintf(lines[count], sizeof lines[count], "%s %s", l, r);
            merges[count] = lines[count];
            strcpy(known[count + 3], both);
            count++;
        }
        fixture f;
        gg g;
        tiny_bpe(&g, "gpt-2", merges, count, NULL, 0);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        for (int n = 1; n < TEXT; n += n < 80 ? 1 : 67) { /* on both sides of the short way */
            char text[TEXT];
            static char parts[TEXT][32];
            for (int i = 0; i < n; i++) {
                text[i] = (char)('a' + t_random() % 3);
                parts[i][0] = text[i];
                parts[i][1] = '\0';
            }
            const size_t expected = naive(parts, (size_t)n, rules, count);
            uint32_t *ids;
            const long got = fixture_ids(&f, &ids, text, (size_t)n, 0);
            bool same = got == (long)expected;
            for (size_t i = 0; same && i < expected; i++) {
                same = rm_token_find(f.t, parts[i], strlen(parts[i])) == (int32_t)ids[i];
            }
            if (!same) t_fail("%.*s differs", n, text);
            free(ids);
        }
        fixture_close(&f);
    }
}

/* Text of a token and back, for every byte. */
static void alphabet(void) {
    static const char *const merges[] = {"a b"};
    gg g;
    fixture f;
    tiny_bpe(&g, NULL, merges, 1, NULL, 0); /* without a name: "default" */
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    for (unsigned b = 0; b < 256; b++) {
        char out[4], name[4];
        EXPECT(rm_token_text(out, 4, f.t, b, false, true) == 1 && (uint8_t)out[0] == b);
        EXPECT(rm_token_find(f.t, name, tiny_alphabet(name, b)) == (int32_t)b);
    }
    EXPECT_EQ_U64(rm_token_text_most(f.t), 2);
    fixture_close(&f);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(cuts), T(order_of_merges), T(whole_pieces), T(merges_to_control),
                  T(bad_merges), T(random_merges), T(alphabet));
}
