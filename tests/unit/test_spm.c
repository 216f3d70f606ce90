/* test_spm.c: SentencePiece with scores on small vocabularies. */
#include "harness.h"
#include "text_fixture.h"

#define B "\xE2\x96\x81" /* U+2581 */

static void expect_ids(fixture *f, const char *text, size_t n, unsigned flags,
                       const uint32_t *expected, size_t count) {
    uint32_t *ids;
    const long got = fixture_ids(f, &ids, text, n, flags);
    if (got != (long)count || memcmp(ids, expected, count * sizeof *ids) != 0) {
        t_fail("'%.*s': %ld tokens, not %zu (%s), or others", (int)n, text, got, count,
               f->err.message);
        for (long i = 0; i < got; i++)
            fprintf(stderr, " %u", ids[i]);
        fprintf(stderr, "\n");
    }
    free(ids);
}
#define IDS(f, text, flags, ...)                                                                   \
    expect_ids(f, text, sizeof text - 1, flags, (const uint32_t[]){__VA_ARGS__},                   \
               sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static const tiny_token WORDS[] = {
    {B, 1, -1},           {"t", 1, -2},   {"h", 1, -3},     {"e", 1, -4},     {"th", 1, -5},
    {"he", 1, -6},        {B "t", 1, -9}, {B "the", 1, -7}, {"the", 1, -8},   {"<tag>", 4, 0},
    {"\n\n", 4, 0},       {"x", 1, -20},  {"xx", 1, -21},   {"<s", 1, -30},   {">", 1, -31},
    {"\xC3\xA9", 1, -32}, {"<", 1, -33},  {"s", 1, -34},    {"\xC3", 1, -35}, {"</s>", 1, -1},
};
/* Their ids; bytes are 3 + b. */
enum {
    SP = 259,
    t_,
    h_,
    e_,
    th_,
    he_,
    SPt,
    SPthe,
    the_,
    TAG,
    NN,
    x_,
    xx_,
    LTs,
    GT,
    EACUTE,
    LT,
    s_
};

static void words(fixture *f, bool prefix, bool bytes) {
    gg g;
    tiny_spm(&g, bytes, WORDS, sizeof WORDS / sizeof WORDS[0] - 2);
    if (!prefix) gg_key_bool(&g, "tokenizer.ggml.add_space_prefix", false);
    EXPECT(fixture_gg(f, &g) == REMAT_OK);
}

static void joins_by_score(void) {
    fixture f;
    words(&f, true, true);
    IDS(&f, "the", 0, SPthe);
    IDS(&f, "the the", 0, SPthe, SPthe);
    IDS(&f, "ththe", 0, SP, th_, the_); /* th (-5) before he (-6) and _t (-9) */
    IDS(&f, "xxx", 0, SP, xx_, x_);     /* the leftmost of equals */
    fixture_close(&f);
}

static void nothing(void) {
    fixture f;
    uint32_t *ids;
    words(&f, true, true);
    EXPECT(fixture_ids(&f, &ids, "", 0, 0) == 0);
    free(ids);
    EXPECT(fixture_ids(&f, &ids, "", 0, RM_TOKENIZE_BOS) == 1 && ids[0] == 1);
    free(ids);
    fixture_close(&f);
}

static void special_tokens(void) {
    fixture f;
    words(&f, true, true);
    IDS(&f, "the", RM_TOKENIZE_BOS, 1, SPthe); /* these models begin with one by default */
    IDS(&f, "<s>the", RM_TOKENIZE_BOS | RM_TOKENIZE_SPECIAL, 1, 1, SPthe);
    IDS(&f, "<s>the", RM_TOKENIZE_BOS | RM_TOKENIZE_ONE_BOS | RM_TOKENIZE_SPECIAL, 1, SPthe);
    IDS(&f, "the</s>the", RM_TOKENIZE_SPECIAL, SPthe, 2, SPthe); /* a blank after a special token */
    IDS(&f, "<s>", 0, SP, LTs, GT);                              /* "<s>" never comes out of text */
    IDS(&f, "the<tag>the", 0, SPthe, TAG, SPthe);
    IDS(&f, "\n\n\n", 0, NN, SP, 3 + '\n');
    fixture_close(&f);
    words(&f, false, true);
    IDS(&f, "the<tag>the", 0, the_, TAG, the_);
    IDS(&f, " the", 0, SPthe);
    IDS(&f, B "the", 0, SPthe); /* the mark is a blank */
    fixture_close(&f);
}

static void bytes_and_unknown(void) {
    fixture f;
    words(&f, false, true);
    IDS(&f, "<0x0A>", 0, LT, 3 + '0', x_, 3 + '0', 3 + 'A', GT); /* spells a byte token: text */
    IDS(&f, "\xC3\xA9\xC3\xA8", 0, EACUTE, 3 + 0xC3, 3 + 0xA8);
    IDS(&f, "x\0\xFFx", 0, x_, 3, 3 + 0xFF, x_);
    fixture_close(&f);
    words(&f, false, false); /* without bytes ids are 256 lower */
    IDS(&f, "x\xC3\xA8q", 0, x_ - 256, 0, 0);
    fixture_close(&f);
}

/* What is joined out of parts comes back, the blank in front not. */
static void round_trip(void) {
    fixture f;
    words(&f, true, true);
    for (int round = 0; round < 500; round++) {
        static const char *const parts[] = {"the",          " ",    "x",     "\n", "\xC3\xA9",
                                            "\xE6\x97\xA5", "\xF0", "<tag>", "t",  "h",
                                            "<0x41>",       "</s>", "<s>"};
        char text[256] = "";
        size_t bytes;
        for (uint64_t i = t_random() % 12; i > 0; i--)
            strcat(text, parts[t_random() % (sizeof parts / sizeof parts[0])]);
        const unsigned flags = round % 2 ? RM_TOKENIZE_SPECIAL : 0;
        uint32_t *ids;
        const long count = fixture_ids(&f, &ids, text, strlen(text), flags);
        REQUIRE(count >= 0);
        for (int stream = 0; stream < 2; stream++) {
            char *out = stream ? fixture_stream(&f, ids, (size_t)count, true, &bytes)
                               : fixture_text(&f, ids, (size_t)count, true, &bytes);
            if (bytes != strlen(text) || memcmp(out, text, bytes) != 0) {
                t_fail("'%s' became '%.*s'", text, (int)bytes, out);
            }
            free(out);
        }
        free(ids);
    }
    fixture_close(&f);
}

/* Against the plainest way: join the pair with the highest score, leftmost first. */
static void random_scores(void) {
    for (int round = 0; round < 40; round++) {
        static char names[64][16];
        tiny_token tokens[64];
        size_t count = 0;
        for (; count < 3; count++) {
            snprintf(names[count], sizeof names[count], "%c", 'a' + (int)count);
            if (count == 2 && round % 4 > 0) strcpy(names[count], B);
            tokens[count] = (tiny_token){names[count], 1, 0};
        }
        for (; count < 64; count++) {
            /* Text can be cut before any blank, or behind some characters only. */
            do {
                names[count][0] = '\0';
                for (uint64_t n = 2 + t_random() % 4; n > 0; n--)
                    strcat(names[count], names[t_random() % 3]);
            } while ((round % 4 > 1 && strstr(names[count], "a" B)) ||
                     (round % 4 > 2 && strstr(names[count], "b" B)));
            tokens[count] = (tiny_token){names[count], 1, (float)(t_random() % 20) - 10.0f};
        }
        fixture f;
        gg g;
        tiny_spm(&g, true, tokens, count);
        gg_key_bool(&g, "tokenizer.ggml.add_space_prefix", false);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        for (int n = 1; n < 120; n += 7) {
            char text[128];
            static char parts[128][16];
            size_t left = (size_t)n;
            for (int i = 0; i < n; i++) {
                strcpy(parts[i], names[t_random() % 3]);
                text[i] = parts[i][0] == B[0] ? ' ' : parts[i][0];
            }
            for (;;) {
                size_t at = left;
                float best = -1e9f;
                for (size_t i = 0; i + 1 < left; i++) {
                    char both[32];
                    strcpy(both, parts[i]);
                    strcat(both, parts[i + 1]);
                    const int32_t id = rm_token_find(f.t, both, strlen(both));
                    if (id < 0 || f.t->vocab.scores[id] <= best) continue;
                    best = f.t->vocab.scores[id];
                    at = i;
                }
                if (at == left) break;
                memcpy(parts[at] + strlen(parts[at]), parts[at + 1], strlen(parts[at + 1]) + 1);
                memmove(parts[at + 1], parts[at + 2], (left - at - 2) * sizeof *parts);
                left--;
            }
            uint32_t *ids;
            const long got = fixture_ids(&f, &ids, text, (size_t)n, 0);
            bool same = got == (long)left;
            for (size_t i = 0; same && i < left; i++)
                same = rm_token_find(f.t, parts[i], strlen(parts[i])) == (int32_t)ids[i];
            if (!same) t_fail("%.*s differs", n, text);
            free(ids);
        }
        fixture_close(&f);
    }
}

/* A word is the same tokens wherever it was before: in the same piece, in another one, or nowhere.
 * Pieces of a byte between tokens of a byte, each with a blank before it, are the most that the
 * work memory has to hold. */
static void pieces(void) {
    static const tiny_token tokens[] = {{B, 1, -1},      {"a", 1, -2},      {"b", 1, -3},
                                        {"ab", 1, -4},   {B "a", 1, -5},    {"ba", 1, -6},
                                        {"aba", 1, -3},  {B "ab", 1, -2.5}, {"\n", 4, 0},
                                        {"<tag>", 4, 0}, {B "b", 1, -1.5}};
    static const char *const parts[] = {"a", "b", " ", "ab", "aba", "\n", "\n", "<tag>"};
    fixture f;
    gg g;
    tiny_spm(&g, true, tokens, sizeof tokens / sizeof tokens[0]);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    for (int round = 0; round < 300; round++) {
        char text[512] = "";
        for (uint64_t i = t_random() % 100; i > 0; i--)
            strcat(text, round % 3 == 0 ? (i % 2 ? "a" : "\n")
                                        : parts[t_random() % (sizeof parts / sizeof parts[0])]);
        uint32_t *ids, *alone;
        const long count = fixture_ids(&f, &ids, text, strlen(text), 0);
        REQUIRE(count >= 0);
        long at = 0;
        for (const char *c = text; *c != '\0';) {
            const bool tag = *c == '<', special = tag || *c == '\n';
            const size_t n = tag ? 5 : special ? 1 : strcspn(c, "\n<");
            const long got = fixture_ids(&f, &alone, c, n, 0);
            if (at + got > count || memcmp(ids + at, alone, (size_t)got * sizeof *ids) != 0) {
                t_fail("'%s': other tokens at %ld than '%.*s' alone", text, at, (int)n, c);
                c = "";
                at = count;
            } else {
                at += got;
                c += n;
            }
            free(alone);
        }
        EXPECT_EQ_U64((uint64_t)count, (uint64_t)at);
        free(ids);
    }
    fixture_close(&f);
}

/* A text without a space takes linear time. */
static void long_text(void) {
    enum { TIMES = 16 };
    const size_t n[] = {(1 << 20) / TIMES, 1 << 20};
    clock_t took[2];
    fixture f;
    words(&f, true, true);
    char *text = malloc(n[1]);
    memset(text, 'x', n[1]);
    for (int i = 0; i < 2; i++) {
        uint32_t *ids;
        const clock_t start = clock();
        EXPECT_EQ_U64((uint64_t)fixture_ids(&f, &ids, text, n[i], 0), 1 + n[i] / 2);
        took[i] = clock() - start;
        free(ids);
    }
    EXPECT(t_linear(took[0], took[1], TIMES));
    free(text);
    fixture_close(&f);
}

/* A model file of the test set, where it is there. */
static void toy(void) {
    static const char path[] = "tests/golden/badgguf/c01_plain.gguf";
    if (access(path, R_OK) != 0) SKIP("no tests/golden/badgguf/c01_plain.gguf");
    fixture f;
    REQUIRE(fixture_path(&f, path) == REMAT_OK);
    uint32_t *ids;
    size_t n;
    const long count = fixture_ids(&f, &ids, "the thing he", 12, RM_TOKENIZE_BOS);
    EXPECT(count > 1 && ids[0] == 1);
    /* "▁the" is a token, but "▁t" and "the" are not: nothing leads to it. */
    EXPECT(ids[1] == (uint32_t)rm_token_find(f.t, B, 3) &&
           ids[2] == (uint32_t)rm_token_find(f.t, "t", 1) &&
           ids[3] == (uint32_t)rm_token_find(f.t, "he", 2));
    char *out = fixture_text(&f, ids, (size_t)count, false, &n);
    EXPECT(n == 12 && memcmp(out, "the thing he", 12) == 0);
    free(out);
    free(ids);
    EXPECT(rm_token_is_end(f.t, 2) && !rm_token_is_end(f.t, 1));
    fixture_close(&f);
    EXPECT(fixture_path(&f, "tests/golden/badgguf/h17_token_type_short.gguf") == REMAT_E_MODEL);
    EXPECT(strstr(f.err.message, "tokenizer.ggml.token_type") && strstr(f.err.message, "300"));
    fixture_close(&f);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(joins_by_score), T(nothing), T(special_tokens),
                  T(bytes_and_unknown), T(round_trip), T(random_scores), T(pieces), T(long_text),
                  T(toy));
}
