/*
 * tokenizer.c: fuzz target of the tokenizers. Byte 0 of the input says what the rest is:
 *
 *     0, 1, 2   text, through a small vocabulary: byte-level BPE ("gpt-2", "llama-bpe"),
 *               SentencePiece; the tokens must give the text back
 *     3         metadata of a GGUF file, the fixed header left out; some text goes through what
 *               comes of it, and every token is asked for its text
 */
#include "../unit/text_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { KINDS = 4, SPECIAL = 8, METADATA = 3 };

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fixture kinds[METADATA];
    static bool open[METADATA];
    if (size == 0) return 0;
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
    through(&kinds[kind], (const char *)data + 1, size - 1,
            data[0] & SPECIAL ? RM_TOKENIZE_SPECIAL : 0, exact);
    return 0;
}
