/* test_tokenizer.c: against ids of outside programs (real vocabulary); what both kinds share. */
#include "harness.h"
#include "no_malloc.h"
#include "text_fixture.h"

#include <sys/resource.h>

/* ---- golden file */

static int hex_of(char c) {
    return c <= '9' ? c - '0' : c - 'A' + 10;
}

/* Undoes %HH in place; returns the length. */
static size_t unescape(char *s) {
    size_t n = 0;
    for (size_t i = 0; s[i]; n++) {
        if (s[i] == '%') {
            s[n] = (char)(hex_of(s[i + 1]) * 16 + hex_of(s[i + 2]));
            i += 3;
        } else {
            s[n] = s[i++];
        }
    }
    return n;
}

static bool same_ids(const uint32_t *ids, long count, const char *expected) {
    long n = 0;
    for (const char *s = expected; *s && *s != '\n';) {
        char *end;
        const unsigned long id = strtoul(s, &end, 10);
        if (end == s) break;
        if (n >= count || ids[n] != id) return false;
        n++;
        s = end;
    }
    return n == count;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Text comes back from its tokens: decoded one by one, and through a detokenizer. */
static void check_round_trip(const fixture *f, const uint32_t *ids, long count, const char *text,
                             size_t n) {
    size_t bytes;
    char *out = fixture_text(f, ids, (size_t)count, true, &bytes);
    EXPECT(bytes == n && memcmp(out, text, n) == 0);
    free(out);
    out = fixture_stream(f, ids, (size_t)count, true, &bytes);
    EXPECT(bytes == n && memcmp(out, text, n) == 0);
    free(out);
}

static void check_row(fixture *f, char *line) {
    char *plain = strchr(line, '|'), *special = plain ? strchr(plain + 1, '|') : NULL;
    REQUIRE(special != NULL);
    *plain++ = *special++ = '\0';
    if (special[0] == '=') special = plain;
    const size_t n = unescape(line);
    for (int pass = 0; pass < 2; pass++) {
        uint32_t *ids;
        const unsigned flags = pass ? RM_TOKENIZE_SPECIAL | RM_TOKENIZE_BOS : 0;
        const long count = fixture_ids(f, &ids, line, n, flags);
        if (!same_ids(ids, count, pass ? special : plain)) {
            t_fail("%s ids differ: %.*s", pass ? "special" : "plain", (int)n, line);
        }
        check_round_trip(f, ids, count, line, n);
        free(ids);
    }
}

static void check_long(fixture *f, char *line) {
    char *text, *end = strchr(line, '|');
    REQUIRE(end != NULL);
    *end = '\0';
    const size_t repeat = strtoul(line + 1, &text, 10), n = unescape(++text);
    const unsigned long expected = strtoul(end + 1, NULL, 10);
    char *whole = malloc(repeat * n);
    for (size_t i = 0; i < repeat; i++)
        memcpy(whole + i * n, text, n);
    uint32_t *ids;
    const double start = now();
    const long count = fixture_ids(f, &ids, whole, repeat * n, 0);
    EXPECT(now() - start < 2);
    EXPECT_EQ_U64((uint64_t)count, expected);
    check_round_trip(f, ids, count, whole, repeat * n);
    free(ids);
    free(whole);
}

static void golden_rows(fixture *f) {
    FILE *in = fopen("tests/golden/tokenize-smollm2.txt", "r");
    REQUIRE(in != NULL);
    static char line[1 << 16];
    int rows = 0;
    while (fgets(line, sizeof line, in)) {
        if (line[0] == '#') continue;
        if (line[0] == '*')
            check_long(f, line);
        else
            check_row(f, line);
        rows++;
    }
    fclose(in);
    EXPECT(rows >= 97);
}

static void golden(void) {
    const char *path = smollm2_path();
    if (path == NULL) SKIP("no SmolLM2-135M-Instruct Q4_1 in models/");
    fixture f;
    const double start = now();
    EXPECT(fixture_path(&f, path) == REMAT_OK);
    printf("  vocabulary read in %.1f ms, %.2f MiB\n", (now() - start) * 1e3,
           (double)f.ledger.owned[RM_ACCOUNT_TEXT] / (1 << 20));
    EXPECT(f.t->bpe.patterns.compiled);
    golden_rows(&f);
    /* The interpreter is what runs where the system forbids machine code made at run time. */
    f.t->bpe.patterns.compiled = false;
    golden_rows(&f);
    fixture_close(&f);
}

static void golden_ends(void) {
    const char *path = smollm2_path();
    if (path == NULL) SKIP("no SmolLM2-135M-Instruct Q4_1 in models/");
    fixture f;
    REQUIRE(fixture_path(&f, path) == REMAT_OK);
    EXPECT(rm_token_is_end(f.t, 2) && rm_token_is_end(f.t, 0));
    EXPECT(!rm_token_is_end(f.t, 1) && !rm_token_is_end(f.t, 28120));
    EXPECT(rm_token_find(f.t, "<|im_end|>", 10) == 2);
    EXPECT(rm_token_find(f.t, "\xC4\xA0Hello", 7) == 38699);
    EXPECT(rm_token_find(f.t, " Hello", 6) == RM_TOKEN_NONE);
    EXPECT(rm_token_bos(f.t) == 1 && rm_token_eos(f.t) == 2);
    EXPECT_EQ_U64(rm_tokenizer_vocabulary(f.t), 49152);
    fixture_close(&f);
}

/* A megabyte without a blank, on a stack of 8 MiB, and time about linear. */
static void one_megabyte(void) {
    const char *path = smollm2_path();
    if (path == NULL) SKIP("no SmolLM2-135M-Instruct Q4_1 in models/");
    fixture f;
    REQUIRE(fixture_path(&f, path) == REMAT_OK);
    char *text = malloc(1 << 20);
    memset(text, 'x', 1 << 20);
    uint32_t *ids;
    const double start = now();
    const long count = fixture_ids(&f, &ids, text, 1 << 20, 0);
    printf("  1 MiB of x: %.2f s\n", now() - start);
    EXPECT_EQ_U64((uint64_t)count, (1 << 20) / 4);
    check_round_trip(&f, ids, count, text, 1 << 20);
    free(ids);
    free(text);
    fixture_close(&f);
}

/* Bytes that are no UTF-8. SmolLM2 has no token for FE and FF: they become U+FFFD. */
static void odd_bytes(void) {
    const char *path = smollm2_path();
    if (path == NULL) SKIP("no SmolLM2-135M-Instruct Q4_1 in models/");
    fixture f;
    REQUIRE(fixture_path(&f, path) == REMAT_OK);
    static const char odd[] = "\xFF\xFE\x80\xC3(\xE2\x82", back[] = "\xEF\xBF\xBD\xEF\xBF\xBD"
                                                                    "\x80\xC3(\xE2\x82";
    uint32_t *ids;
    long count = fixture_ids(&f, &ids, odd, sizeof odd - 1, 0);
    EXPECT_EQ_U64((uint64_t)count, 7);
    check_round_trip(&f, ids, count, back, sizeof back - 1);
    free(ids);
    for (int round = 0; round < 200; round++) {
        char text[64];
        const size_t n = t_random() % sizeof text;
        for (size_t i = 0; i < n; i++) {
            static const uint8_t bytes[] = {'a',  ' ',  'e',  0,    '\n', 0x80,
                                            0xBF, 0xC3, 0xE2, 0xF0, 0x9F};
            text[i] = (char)bytes[t_random() % sizeof bytes];
        }
        count = fixture_ids(&f, &ids, text, n, 0);
        check_round_trip(&f, ids, count, text, n);
        free(ids);
    }
    fixture_close(&f);
}

/* ---- what both kinds share, on small vocabularies */

static const char *const MERGES[] = {"a b", "ab c"};
static const tiny_token EXTRA[] = {
    {"<s>", RM_TOKEN_CONTROL, 0}, {"<|end|>", RM_TOKEN_CONTROL, 0}, {"<u>", RM_TOKEN_USER, 0},
    {"<u>>", RM_TOKEN_USER, 0},   {"</s>", RM_TOKEN_NORMAL, 0},
};
enum { S = 258, END, U, U2, NOT_END };

static void extra_vocabulary(gg *g) {
    tiny_bpe(g, "gpt-2", MERGES, 2, EXTRA, sizeof EXTRA / sizeof EXTRA[0]);
}

static void expect_ids(fixture *f, const char *text, unsigned flags, const char *expected) {
    uint32_t *ids;
    const long count = fixture_ids(f, &ids, text, strlen(text), flags);
    if (count < 0 || !same_ids(ids, count, expected)) t_fail("'%s' is not %s", text, expected);
    free(ids);
}

static void special_tokens(void) {
    fixture f;
    gg g;
    extra_vocabulary(&g);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    expect_ids(&f, "<s>abc", 0, "60 115 62 257");
    expect_ids(&f, "<s>abc", RM_TOKENIZE_SPECIAL, "258 257");
    expect_ids(&f, "<u>", 0, "260");
    expect_ids(&f, "x<u>>>", 0, "120 261 62"); /* the longest of those that start there */
    expect_ids(&f, "<<u><s", RM_TOKENIZE_SPECIAL, "60 260 60 115");
    EXPECT(rm_token_is_end(f.t, END) && !rm_token_is_end(f.t, S));
    EXPECT(!rm_token_is_end(f.t, NOT_END)); /* of that name, but ordinary text */
    char out[16];
    EXPECT(rm_token_text(out, 16, f.t, S, false, false) == 0);
    EXPECT(rm_token_text(out, 16, f.t, S, true, false) == 3 && memcmp(out, "<s>", 3) == 0);
    EXPECT(rm_token_text(out, 2, f.t, U, false, false) == 3); /* writes no more than cap */
    fixture_close(&f);
}

static void bos_and_eos(void) {
    fixture f;
    gg g;
    extra_vocabulary(&g);
    gg_key_u32(&g, "tokenizer.ggml.bos_token_id", S);
    gg_key_u32(&g, "tokenizer.ggml.eos_token_id", U);
    gg_key_bool(&g, "tokenizer.ggml.add_bos_token", true);
    gg_key_bool(&g, "tokenizer.ggml.add_eos_token", true);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    expect_ids(&f, "", RM_TOKENIZE_BOS, "258 260");
    expect_ids(&f, "abc", RM_TOKENIZE_BOS, "258 257 260");
    expect_ids(&f, "abc", 0, "257");
    expect_ids(&f, "<s>abc", RM_TOKENIZE_BOS | RM_TOKENIZE_SPECIAL, "258 257 260"); /* one only */
    expect_ids(&f, "<s><s>", RM_TOKENIZE_BOS | RM_TOKENIZE_SPECIAL, "258 258 260");
    EXPECT(rm_token_is_end(f.t, U));
    fixture_close(&f);
    extra_vocabulary(&g); /* byte-level models do not begin with one unless they say so */
    gg_key_u32(&g, "tokenizer.ggml.bos_token_id", S);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    expect_ids(&f, "abc", RM_TOKENIZE_BOS, "257");
    fixture_close(&f);
}

/* A file that contradicts itself: refused, with a message that names the key. */
static void expect_refused(gg *g, const char *key, const char *also) {
    fixture f;
    const int status = fixture_gg(&f, g);
    EXPECT(status == REMAT_E_MODEL);
    if (!strstr(f.err.message, key) || !strstr(f.err.message, also)) {
        t_fail("message without '%s' or '%s': %s", key, also, f.err.message);
    }
    fixture_close(&f);
}

static void contradictions(void) {
    gg g;
    extra_vocabulary(&g);
    gg_key_u32(&g, "tokenizer.ggml.bos_token_id", 263);
    expect_refused(&g, "tokenizer.ggml.bos_token_id", "263");
    extra_vocabulary(&g);
    gg_list(&g, "tokenizer.ggml.scores", RM_GGUF_F32, 1);
    gg_u32(&g, 0);
    expect_refused(&g, "tokenizer.ggml.scores", "263");
    extra_vocabulary(&g);
    gg_list(&g, "tokenizer.ggml.scores", RM_GGUF_I32, 0);
    expect_refused(&g, "tokenizer.ggml.scores", "f32");
    tiny_bpe(&g, "no-such-cut", MERGES, 2, NULL, 0);
    expect_refused(&g, "tokenizer.ggml.pre", "no-such-cut");
    gg_start(&g);
    gg_key_text(&g, "tokenizer.ggml.model", "bert");
    expect_refused(&g, "tokenizer.ggml.model", "bert");
    gg_start(&g);
    gg_key_text(&g, "tokenizer.ggml.model", "gpt2");
    expect_refused(&g, "tokenizer.ggml.tokens", "missing");
    gg_start(&g);
    gg_key_text(&g, "tokenizer.ggml.model", "llama");
    gg_list(&g, "tokenizer.ggml.tokens", RM_GGUF_STRING, 0);
    expect_refused(&g, "tokenizer.ggml.tokens", "0 entries");
    gg_start(&g);
    gg_key_text(&g, "tokenizer.ggml.model", "llama");
    gg_key_text(&g, "tokenizer.ggml.tokens", "a");
    expect_refused(&g, "tokenizer.ggml.tokens", "list of strings");
    const tiny_token odd[] = {{"a", 7, 0}};
    tiny_spm(&g, true, odd, 1);
    expect_refused(&g, "tokenizer.ggml.token_type", "is 7");
    const tiny_token no_byte[] = {{"<0xG0>", RM_TOKEN_BYTE, 0}};
    tiny_spm(&g, true, no_byte, 1);
    expect_refused(&g, "tokenizer.ggml.tokens", "259");
}

/* The measuring ledger and the real one agree; every carve and every read may fail. */
static void faults(void) {
    for (int spm = 0; spm < 2; spm++) {
        gg g;
        fixture f;
        if (spm)
            tiny_spm(&g, true, EXTRA, 5);
        else
            extra_vocabulary(&g);
        REQUIRE(fixture_bytes(&f, g.at, g.used, 0) == REMAT_OK);
        rm_ledger m;
        rm_gguf index = f.gguf;
        rm_tokenizer *t = calloc(1, rm_tokenizer_bytes());
        rm_ledger_measure(&m);
        EXPECT(rm_gguf_layout(&index, &m, NULL) == REMAT_OK);
        EXPECT(rm_tokenizer_layout(t, &m, &f.gguf, NULL) == REMAT_OK);
        EXPECT_EQ_U64(m.carved, f.ledger.carved);
        free(t);
        fixture_close(&f);
        int status = REMAT_E_BUDGET;
        for (uint64_t n = 1; n < 100 && status != REMAT_OK; n++) {
            status = fixture_bytes(&f, g.at, g.used, n);
            EXPECT(status == REMAT_OK || (status == REMAT_E_BUDGET && f.err.message[0]));
            fixture_close(&f);
        }
        EXPECT(status == REMAT_OK);
        for (int kind = RM_IO_FAIL; kind <= RM_IO_SHORT; kind++) {
            status = REMAT_E_FAILED;
            for (uint64_t n = 1; n < 1000 && status != REMAT_OK; n++) {
                rm_io_fault_at(n, (rm_io_fault)kind);
                status = fixture_bytes(&f, g.at, g.used, 0);
                rm_io_fault_at(0, RM_IO_FAIL);
                EXPECT(status == REMAT_OK || f.err.message[0]);
                fixture_close(&f);
            }
            EXPECT(status == REMAT_OK);
        }
        free(g.at);
    }
}

/* Sanitizer builds are linked without the counter. */
#pragma weak no_malloc_begin
#pragma weak no_malloc_end

/* Reading a vocabulary and using it takes no heap: not here and not in PCRE2, compiled or not. */
static void no_heap(void) {
    if (no_malloc_begin == NULL) SKIP("heap calls are not counted in this build");
    for (int spm = 0; spm < 2; spm++) {
        static uint8_t memory[256 << 10] __attribute__((aligned(64)));
        static const char text[] = "abc <s> 12 \xFF the <u>";
        uint32_t ids[sizeof text + 2];
        size_t count = 0;
        gg g;
        fixture f;
        if (spm)
            tiny_spm(&g, true, EXTRA, 5);
        else
            extra_vocabulary(&g);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        rm_tokenizer *t = calloc(1, rm_tokenizer_bytes());
        no_malloc_begin();
        EXPECT(rm_tokenizer_layout(t, &f.ledger, &f.gguf, &f.err) == REMAT_OK);
        EXPECT(rm_tokenizer_load(t, &f.gguf, &f.err) == REMAT_OK);
        for (int pass = 0; pass < 2; pass++) {
            EXPECT(rm_tokenize_work_bytes(t, sizeof text) <= sizeof memory);
            EXPECT(rm_tokenize(ids, &count, t, text, sizeof text, 3, memory, &f.err) == REMAT_OK);
            t->bpe.patterns.compiled = false;
        }
        rm_tokenizer_close(t);
        EXPECT_EQ_U64(no_malloc_end(), 0);
        EXPECT(count > 0);
        free(t);
        fixture_close(&f);
    }
}

int main(int argc, char **argv) {
    /* Nothing here may need more: what a shell gives by default. */
    setrlimit(RLIMIT_STACK, &(struct rlimit){8 << 20, 8 << 20});
    return RM_RUN(argc, argv, T(golden), T(golden_ends), T(one_megabyte), T(odd_bytes),
                  T(special_tokens), T(bos_and_eos), T(contradictions), T(faults), T(no_heap));
}
