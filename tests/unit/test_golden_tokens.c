/*
 * test_golden_tokens.c: real vocabularies against ids of outside programs (tests/golden/README.md).
 * Needs the models in models/; one that is not there is skipped.
 */
#include "harness.h"
#include "text_fixture.h"

#include <sys/resource.h>
#include <utf8proc.h>

typedef struct model {
    const char *name, *golden;
    long long file_bytes;
    uint32_t vocabulary;
    int rows; /* at least */
    double load_seconds;
} model;

static const model SMOLLM2 = {
    "SmolLM2-135M-Instruct Q4_1", "tests/golden/tokenize-smollm2.txt", 98362432, 49152, 97, 0.5};
static const model QWEN = {
    "Qwen2.5 1.5B Q4_K_M", "tests/golden/tokenize-qwen.txt", 1117320768, 151936, 95, 1};
static const model GEMMA3 = {
    "Gemma 3 270M Q4_K_M", "tests/golden/tokenize-gemma3.txt", 253113024, 262144, 95, 1};

/* False, with a line that says so, when the file is not there. */
static bool open_model(fixture *f, const model *m) {
    const char *path = fixture_model(m->file_bytes);
    if (path == NULL) {
        printf("skip: no %s in models/\n", m->name);
        t_skipped = 1;
        return false;
    }
    const int status = fixture_path(f, path);
    if (status != REMAT_OK) t_fail("%s", f->err.message);
    return status == REMAT_OK;
}

/* ---- the golden files */

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
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What comes back from the tokens of a text: its normal form C where the vocabulary is for that;
 * SentencePiece cannot tell U+2581 from a blank. NULL: the text itself. */
static char *text_back(const fixture *f, const char *text, size_t *n) {
    if (f->t->rule != NULL && f->t->rule->nfc) {
        utf8proc_uint8_t *normal;
        const utf8proc_ssize_t bytes =
            utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)*n, &normal,
                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (bytes < 0) return NULL; /* not UTF-8 */
        *n = (size_t)bytes;
        return (char *)normal;
    }
    if (f->t->vocab.kind != RM_VOCAB_SPM) return NULL;
    char *out = malloc(*n + 1);
    size_t used = 0;
    for (size_t i = 0; i < *n; used++) {
        const bool mark = *n - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        out[used] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    *n = used;
    return out;
}

/* Decoded one by one, and through a detokenizer. */
static void check_round_trip(const fixture *f, const uint32_t *ids, long count, const char *text,
                             size_t n) {
    char *back = text_back(f, text, &n);
    if (back != NULL) text = back;
    for (int stream = 0; stream < 2; stream++) {
        size_t bytes;
        char *out = stream ? fixture_stream(f, ids, (size_t)count, true, &bytes)
                           : fixture_text(f, ids, (size_t)count, true, &bytes);
        EXPECT(bytes == n && memcmp(out, text, n) == 0);
        free(out);
    }
    free(back);
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
        const char *expected = pass ? special : plain;
        if (!same_ids(ids, count, expected)) {
            t_fail("%s ids differ: %.*s", pass ? "special" : "plain", (int)n, line);
        }
        const long bos = pass && f->t->add_bos; /* not of the text */
        if (count >= bos) check_round_trip(f, ids + bos, count - bos, line, n);
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

static void golden_rows(fixture *f, const model *m) {
    FILE *in = fopen(m->golden, "r");
    REQUIRE(in != NULL);
    static char line[1 << 18];
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
    EXPECT(rows >= m->rows);
}

static void golden(const model *m) {
    fixture f;
    const double start = now();
    if (!open_model(&f, m)) return;
    printf("  vocabulary read in %.1f ms, %.2f MiB\n", (now() - start) * 1e3,
           (double)f.ledger.owned[RM_ACCOUNT_TEXT] / (1 << 20));
    EXPECT_EQ_U64(rm_tokenizer_vocabulary(f.t), m->vocabulary);
#ifndef RM_SANITIZED
    EXPECT(now() - start < m->load_seconds);
#endif
    golden_rows(&f, m);
    if (f.t->vocab.kind == RM_VOCAB_BPE) {
        EXPECT(f.t->bpe.patterns.compiled);
        /* The interpreter runs where the system forbids machine code made at run time. */
        f.t->bpe.patterns.compiled = false;
        golden_rows(&f, m);
    }
    fixture_close(&f);
}

static void golden_smollm2(void) {
    golden(&SMOLLM2);
}
static void golden_qwen(void) {
    golden(&QWEN);
}
static void golden_gemma3(void) {
    golden(&GEMMA3);
}

/* ---- beyond the golden files */

static void ends_smollm2(void) {
    fixture f;
    if (!open_model(&f, &SMOLLM2)) return;
    EXPECT(rm_token_is_end(f.t, 2) && rm_token_is_end(f.t, 0));
    EXPECT(!rm_token_is_end(f.t, 1) && !rm_token_is_end(f.t, 28120));
    EXPECT(rm_token_find(f.t, "<|im_end|>", 10) == 2);
    EXPECT(rm_token_find(f.t, "\xC4\xA0Hello", 7) == 38699);
    EXPECT(rm_token_find(f.t, " Hello", 6) == RM_TOKEN_NONE);
    EXPECT(rm_token_bos(f.t) == 1 && rm_token_eos(f.t) == 2);
    fixture_close(&f);
}

static void ends_gemma3(void) {
    fixture f;
    if (!open_model(&f, &GEMMA3)) return;
    EXPECT(rm_token_bos(f.t) == 2 && f.t->add_bos && !f.t->add_blank);
    EXPECT(rm_token_is_end(f.t, 1) && rm_token_is_end(f.t, 106)); /* <eos>, <end_of_turn> */
    uint32_t *ids;
    /* A second BOS where the text writes its own, as the reference has it; one on demand. */
    EXPECT(fixture_ids(&f, &ids, "x", 1, RM_TOKENIZE_BOS | RM_TOKENIZE_SPECIAL) == 2);
    free(ids);
    EXPECT(fixture_ids(&f, &ids, "<bos>x", 6, RM_TOKENIZE_BOS | RM_TOKENIZE_SPECIAL) == 3);
    free(ids);
    EXPECT(fixture_ids(&f, &ids, "<bos>x", 6,
                       RM_TOKENIZE_BOS | RM_TOKENIZE_ONE_BOS | RM_TOKENIZE_SPECIAL) == 2);
    free(ids);
    fixture_close(&f);
}

/* A megabyte without a blank, on a stack of 8 MiB, and time about linear. */
static void one_megabyte(const model *m, size_t x_per_token) {
    fixture f;
    if (!open_model(&f, m)) return;
    char *text = malloc(1 << 20);
    memset(text, 'x', 1 << 20);
    uint32_t *ids;
    const double start = now();
    const long count = fixture_ids(&f, &ids, text, 1 << 20, 0);
    printf("  1 MiB of x: %.2f s\n", now() - start);
    EXPECT_EQ_U64((uint64_t)count, (1 << 20) / x_per_token);
    check_round_trip(&f, ids, count, text, 1 << 20);
    free(ids);
    free(text);
    fixture_close(&f);
}

static void megabyte_smollm2(void) {
    one_megabyte(&SMOLLM2, 4);
}
static void megabyte_qwen(void) {
    one_megabyte(&QWEN, 8);
}
static void megabyte_gemma3(void) {
    one_megabyte(&GEMMA3, 8);
}

/* Bytes that are no UTF-8, and text that is, at random. */
static void random_bytes(const model *m) {
    fixture f;
    if (!open_model(&f, m)) return;
    for (int round = 0; round < 300; round++) {
        static const char *const parts[] = {
            "a",        " ",        "e",    "\n",   "\x80",         "\xBF",
            "\xC3",     "\xE2",     "\xF0", "\x9F", "\xCC\x81",     "\xCC\xA3",
            "\xC3\xA9", "\xE0\xA5", "'s",   "12",   "\xE6\x97\xA5", "\xE1\x84\x80\xE1\x85\xA1"};
        char text[128];
        size_t n = 0;
        for (size_t k = t_random() % 30; k > 0; k--) {
            const char *part = parts[t_random() % (sizeof parts / sizeof parts[0])];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        uint32_t *ids;
        const long count = fixture_ids(&f, &ids, text, n, 0);
        REQUIRE(count >= 0);
        /* Where some bytes are no UTF-8, normal form is not defined for the whole. */
        if (f.t->rule == NULL || !f.t->rule->nfc || rm_utf8_valid(text, n) == n) {
            check_round_trip(&f, ids, count, text, n);
        }
        free(ids);
    }
    fixture_close(&f);
}

static void random_smollm2(void) {
    random_bytes(&SMOLLM2);
}
static void random_qwen(void) {
    random_bytes(&QWEN);
}
static void random_gemma3(void) {
    random_bytes(&GEMMA3);
}

/* SmolLM2 has no token for FE and FF: they become U+FFFD. */
static void odd_bytes(void) {
    fixture f;
    if (!open_model(&f, &SMOLLM2)) return;
    static const char odd[] = "\xFF\xFE\x80\xC3(\xE2\x82", back[] = "\xEF\xBF\xBD\xEF\xBF\xBD"
                                                                    "\x80\xC3(\xE2\x82";
    uint32_t *ids;
    const long count = fixture_ids(&f, &ids, odd, sizeof odd - 1, 0);
    EXPECT_EQ_U64((uint64_t)count, 7);
    check_round_trip(&f, ids, count, back, sizeof back - 1);
    free(ids);
    fixture_close(&f);
}

int main(int argc, char **argv) {
    /* Nothing here may need more: what a shell gives by default. */
    setrlimit(RLIMIT_STACK, &(struct rlimit){8 << 20, 8 << 20});
    return RM_RUN(argc, argv, T(golden_smollm2), T(golden_qwen), T(golden_gemma3), T(ends_smollm2),
                  T(ends_gemma3), T(megabyte_smollm2), T(megabyte_qwen), T(megabyte_gemma3),
                  T(random_smollm2), T(random_qwen), T(random_gemma3), T(odd_bytes));
}
