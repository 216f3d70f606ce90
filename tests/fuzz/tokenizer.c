/*
 * tokenizer.c: fuzz target of the tokenizers. Byte 0 of the input says what the rest is:
 *
 *     0, 1, 2   text, through a small vocabulary: byte-level BPE ("gpt-2", "llama-bpe"),
 *               SentencePiece; the tokens must give the text back
 *     3         metadata of a GGUF file, the fixed header left out; some text goes through what
 *               comes of it, and every token is asked for its text
 *
 *     + 16      text, to be brought into normal form C, which must be utf8proc's
 *     + 32      a byte that says which way to cut, and text; the pieces must be the text
 */
#include "../unit/text_fixture.h"
#include "text/nfc.h"

#include <utf8proc.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KINDS = 4, SPECIAL = 8, METADATA = 3, NORMAL = 16, CUT = 32 };

static void require(bool c) {
    if (!c) abort();
}

static void open_kind(fixture *f, unsigned kind) {
    static const char *const merges[] = {"a b",        "ab c",
                                         "\xC4\xA0 a", "\xC3\xA2 \xC4\xA2",
                                         "a a",        "aa aa",
                                         "1 2",        "\xC4\xA0 \xC4\xA0",
                                         "' s",        "\xC4\x8A \xC4\x8A"};
    static const tiny_token bpe[] = {
        {"<s>", RM_TOKEN_CONTROL, 0}, {"<u>", RM_TOKEN_USER, 0}, {"<u>a", RM_TOKEN_USER, 0}};
    static const tiny_token spm[] = {{"\xE2\x96\x81", 1, -1},
                                     {"a", 1, -2},
                                     {"b", 1, -3},
                                     {"ab", 1, -4},
                                     {"\xE2\x96\x81"
                                      "a",
                                      1, -5},
                                     {"\xC3\xA9", 1, -6},
                                     {"aa", 1, -2},
                                     {"<u>", RM_TOKEN_USER, 0}};
    gg g;
    if (kind == 2)
        tiny_spm(&g, true, spm, sizeof spm / sizeof spm[0]);
    else
        tiny_bpe(&g, kind ? "llama-bpe" : "gpt-2", merges, 10, bpe, 3);
    require(fixture_gg(f, &g) == REMAT_OK);
}

static void through(fixture *f, const char *text, size_t n, unsigned flags, bool exact) {
    uint32_t *ids;
    size_t bytes;
    const long count = fixture_ids(f, &ids, text, n, flags);
    require(count >= 0 || !exact);
    for (int stream = 0; count >= 0 && stream < 2; stream++) {
        char *out = stream ? fixture_stream(f, ids, (size_t)count, true, &bytes)
                           : fixture_text(f, ids, (size_t)count, true, &bytes);
        require(!exact || (bytes == n && memcmp(out, text, n) == 0));
        free(out);
    }
    free(ids);
}

static void metadata(const uint8_t *data, size_t size) {
    gg g;
    fixture f;
    gg_start(&g);
    gg_put(&g, data, size);
    /* As many keys as there may be; the parser stops at the first that is cut short, so the number
     * comes from the input. */
    const uint64_t keys = size ? data[size - 1] % 12 : 0;
    memcpy(g.at + 16, &keys, 8);
    if (fixture_gg(&f, &g) == REMAT_OK) {
        static const char text[] = "ab abc <s></s>1234's\n\n  \xC3\xA9\xE2\x96\x81\xFF";
        char name[16];
        for (unsigned flags = 0; flags < 4; flags++)
            through(&f, text, sizeof text - 1, flags, false);
        for (uint32_t id = 0; id < rm_tokenizer_vocabulary(f.t); id++) {
            require(rm_token_text(name, sizeof name, f.t, id, true, true) <=
                    rm_token_text_most(f.t));
            (void)rm_token_is_end(f.t, id);
        }
    }
    fixture_close(&f);
}

static void normal_form(const char *text, size_t n) {
    remat_error err;
    n = rm_utf8_valid(text, n);
    char *copy = malloc(n + 1), *out = malloc(rm_nfc_most(n));
    void *work = malloc(rm_nfc_work_bytes(n));
    memcpy(copy, text, n);
    size_t bytes = 0;
    if (rm_nfc(out, &bytes, copy, n, work, &err) == REMAT_OK) {
        utf8proc_uint8_t *expected = NULL;
        const utf8proc_ssize_t count =
            utf8proc_map((const utf8proc_uint8_t *)copy, (utf8proc_ssize_t)n, &expected,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        require(count == (utf8proc_ssize_t)bytes && memcmp(out, expected, bytes) == 0);
        require(!rm_nfc_is_plain(copy, n) || (bytes == n && memcmp(out, copy, n) == 0));
        free(expected);
    }
    free(work);
    free(out);
    free(copy);
}

typedef struct joined {
    const char *text;
    size_t bytes;
} joined;

static int next_piece(void *user, const char *piece, size_t bytes, remat_error *err) {
    joined *j = user;
    (void)err;
    require(bytes > 0 && piece == j->text + j->bytes);
    j->bytes += bytes;
    return REMAT_OK;
}

static void cut(unsigned which, const char *text, size_t n) {
    static rm_ledger l;
    static rm_patterns patterns;
    static const rm_pattern_rule *rule;
    static _Alignas(64) uint8_t work[64 << 10];
    remat_error err;
    size_t rules = 0;
    while (rm_pattern_rule_at(rules) != NULL)
        rules++;
    const rm_pattern_rule *wanted = rm_pattern_rule_at(which % rules);
    if (l.base == NULL) {
        require(rm_ledger_open(&l, 16 << 20, 0, &err) == REMAT_OK);
        require(rm_patterns_layout(&patterns, &l, &err) == REMAT_OK);
    }
    if (wanted != rule) { /* compiling takes longer than all else */
        if (rule != NULL) rm_patterns_close(&patterns);
        rule = wanted;
        require(rm_patterns_load(&patterns, rule, &err) == REMAT_OK);
        require(rm_patterns_work_bytes(&patterns) <= sizeof work);
    }
    n = rm_utf8_valid(text, n);
    joined j = {.text = text};
    require(rm_patterns_cut(&patterns, text, n, work, next_piece, &j, &err) == REMAT_OK);
    require(j.bytes == n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fixture kinds[METADATA];
    static bool open[METADATA];
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    if (data[0] & NORMAL) {
        normal_form(text, size - 1);
        return 0;
    }
    if (data[0] & CUT) {
        if (size > 1) cut(data[1], text + 1, size - 2);
        return 0;
    }
    const unsigned kind = data[0] % KINDS;
    if (kind == METADATA) {
        metadata(data + 1, size - 1);
        return 0;
    }
    if (!open[kind]) open_kind(&kinds[kind], kind);
    open[kind] = true;
    /* SentencePiece cannot give everything back: a U+2581 is a blank, and so is what is put before
     * text after "<unk>", which may also have come out of the text itself. */
    const bool exact = kind != 2 || (memmem(data, size, "\xE2\x96\x81", 3) == NULL &&
                                     memmem(data, size, "<unk>", 5) == NULL);
    through(&kinds[kind], text, size - 1, data[0] & SPECIAL ? RM_TOKENIZE_SPECIAL : 0, exact);
    return 0;
}
