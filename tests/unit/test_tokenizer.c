/* test_tokenizer.c: what both kinds of vocabulary share, on small ones. */
#include "harness.h"
#include "no_malloc.h"
#include "text_fixture.h"

#include <sys/resource.h>

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
    const unsigned both = RM_TOKENIZE_BOS | RM_TOKENIZE_SPECIAL;
    expect_ids(&f, "<s>abc", both, "258 258 257 260");
    expect_ids(&f, "<s>abc", both | RM_TOKENIZE_ONE_BOS, "258 257 260");
    expect_ids(&f, "<s><s>", both | RM_TOKENIZE_ONE_BOS, "258 258 260");
    EXPECT(rm_token_is_end(f.t, U));
    fixture_close(&f);
    extra_vocabulary(&g); /* byte-level models do not begin with one unless they say so */
    gg_key_u32(&g, "tokenizer.ggml.bos_token_id", S);
    REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
    expect_ids(&f, "abc", RM_TOKENIZE_BOS, "257");
    fixture_close(&f);
}

/* ---- what is not in the file */

static void another_way_to_cut(void) {
    static const char *const names[] = {NULL, "llama-bpe", "no-such-cut"};
    for (int spm = 0; spm < 2; spm++) {
        for (size_t i = 0; i < 3; i++) {
            gg g;
            fixture f;
            if (spm)
                tiny_spm(&g, true, EXTRA, 5);
            else
                extra_vocabulary(&g);
            REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
            rm_tokenizer *t = calloc(1, rm_tokenizer_bytes());
            const rm_tokenizer_options o = {.pre = names[i]};
            const int status = rm_tokenizer_layout_with(t, &f.ledger, &f.gguf, &o, &f.err);
            EXPECT(status == (i == 0 || (i == 1 && !spm) ? REMAT_OK : REMAT_E_USAGE));
            if (status != REMAT_OK) EXPECT(strstr(f.err.message, "pre: ") != NULL);
            if (i == 1 && !spm) EXPECT(strcmp(t->rule->name, "llama-bpe") == 0);
            free(t);
            fixture_close(&f);
        }
    }
    /* It serves where the file's own name is not known. */
    gg g;
    fixture f;
    tiny_bpe(&g, "no-such-cut", MERGES, 2, NULL, 0);
    EXPECT(fixture_gg(&f, &g) == REMAT_E_MODEL);
    const rm_tokenizer_options o = {.pre = "gpt-2"};
    rm_tokenizer *t = calloc(1, rm_tokenizer_bytes());
    EXPECT(rm_tokenizer_layout_with(t, &f.ledger, &f.gguf, &o, &f.err) == REMAT_OK);
    free(t);
    fixture_close(&f);
}

/* Phi-3 drops the blanks behind its control tokens, the Jina models those before <mask>. */
static void strips(void) {
    static const tiny_token phi[] = {{"\xE2\x96\x81", 1, -1},
                                     {"a", 1, -2},
                                     {"<|user|>", RM_TOKEN_CONTROL, 0},
                                     {"<|endoftext|>", RM_TOKEN_CONTROL, 0}};
    enum { BLANK = 259, A, USER, EOT };
    for (int named = 0; named < 2; named++) {
        fixture f;
        gg g;
        tiny_spm(&g, true, phi, 4);
        gg_key_bool(&g, "tokenizer.ggml.add_space_prefix", false);
        gg_key_text(&g, "general.name", named ? "My Phi-3 Mini" : "Alpha 3");
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        expect_ids(&f, "a <|user|> \na <|endoftext|> a", RM_TOKENIZE_SPECIAL,
                   named ? "260 259 261 260 259 262 259 260"
                         : "260 259 261 259 13 260 259 262 259 260");
        expect_ids(&f, "<|user|>  ", RM_TOKENIZE_SPECIAL, named ? "261" : "261 259 259");
        fixture_close(&f);
    }
    {
        fixture f;
        gg g;
        tiny_spm(&g, true, phi, 4);
        gg_key(&g, "general.name", RM_GGUF_STRING);
        gg_string(&g, "phi-3\0", 6); /* not a name, and no reason to refuse the vocabulary */
        EXPECT(fixture_gg(&f, &g) == REMAT_OK);
        fixture_close(&f);
    }
    static const tiny_token jina[] = {{"<mask>", RM_TOKEN_CONTROL, 0}};
    for (int stripped = 0; stripped < 2; stripped++) {
        fixture f;
        gg g;
        tiny_bpe(&g, stripped ? "jina-v2-code" : "gpt-2", MERGES, 2, jina, 1);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        expect_ids(&f, "x  <mask> y", RM_TOKENIZE_SPECIAL,
                   stripped ? "120 258 32 121" : "120 32 32 258 32 121");
        expect_ids(&f, "  <mask>", RM_TOKENIZE_SPECIAL, stripped ? "258" : "32 32 258");
        fixture_close(&f);
    }
}

/* Names that end a generation, and names that do so only without others. */
static void ends_by_name(void) {
    static const tiny_token harmony[] = {{"<|end|>", RM_TOKEN_CONTROL, 0},
                                         {"<|return|>", RM_TOKEN_CONTROL, 0},
                                         {"<|call|>", RM_TOKEN_USER, 0}};
    for (size_t n = 1; n <= 3; n++) {
        fixture f;
        gg g;
        tiny_bpe(&g, "gpt-4o", MERGES, 2, harmony, n);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        EXPECT(rm_token_is_end(f.t, 258) == (n < 3));
        for (uint32_t id = 259; id < 258 + n; id++)
            EXPECT(rm_token_is_end(f.t, id));
        /* A user-defined one among them does not come out of a user's text. */
        if (n == 3) EXPECT(rm_token_type_of(f.t, 260) == RM_TOKEN_CONTROL);
        fixture_close(&f);
    }
}

/* Normal form C is for the text between special tokens, and only where the vocabulary wants it. */
static void normal_form(void) {
    static const tiny_token accent[] = {{"e\xCC\x81", RM_TOKEN_CONTROL, 0}};
    for (int nfc = 0; nfc < 2; nfc++) {
        fixture f;
        gg g;
        tiny_bpe(&g, nfc ? "qwen2" : "llama-bpe", MERGES, 2, accent, 1);
        REQUIRE(fixture_gg(&f, &g) == REMAT_OK);
        expect_ids(&f, "e\xCC\x81", 0, nfc ? "195 169" : "101 204 129");
        expect_ids(&f, "a\xCC\x81 e\xCC\x81\xCC\x81", RM_TOKENIZE_SPECIAL,
                   nfc ? "195 161 32 258 204 129" : "97 204 129 32 258 204 129");
        expect_ids(&f,
                   "e\xCC\x81\xFF"
                   "e\xCC\x81",
                   0, nfc ? "195 169 255 195 169" : "101 204 129 255 101 204 129");
        /* The normal form is twice as long, and without merges gives more ids than there is room
         * for: an error, not a cut. */
        char text[3 * 40];
        for (size_t i = 0; i < sizeof text; i += 3)
            memcpy(text + i, "\xE0\xA5\x98", 3);
        uint32_t *ids;
        const long count = fixture_ids(&f, &ids, text, sizeof text, 0);
        if (nfc)
            EXPECT(count == -1 && f.err.message[0]);
        else
            EXPECT(count == 120);
        free(ids);
        fixture_close(&f);
    }
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
        static const char text[] = "abc <s> 12 \xFF the e\xCC\x81 <u>"; /* with a normal form */
        uint32_t ids[sizeof text + 2];
        size_t count = 0;
        gg g;
        fixture f;
        if (spm)
            tiny_spm(&g, true, EXTRA, 5);
        else
            tiny_bpe(&g, "qwen2", MERGES, 2, EXTRA, 5);
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
    return RM_RUN(argc, argv, T(special_tokens), T(bos_and_eos), T(another_way_to_cut), T(strips),
                  T(ends_by_name), T(normal_form), T(contradictions), T(faults), T(no_heap));
}
