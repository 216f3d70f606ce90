/* test_eval_parts.c: what remat eval is made of: files of log-probabilities, divergence, texts. */
#include "app/divergence.h"
#include "app/haystack.h"
#include "app/logprobs.h"
#include "base/hash.h"
#include "harness.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <stddef.h>
#include <unistd.h>

/* --- files ------------------------------------------------------------------------------------ */

enum { VOCABULARY = 5, WINDOW = 6, WINDOWS = 3, STRIDE = 4, FIRST = 3 };
enum { TOKENS = (WINDOWS - 1) * STRIDE + WINDOW, ROWS = WINDOWS * (WINDOW - FIRST) };
enum {
    ROW_BYTES = 8 + 4 * VOCABULARY,
    ROWS_AT = 56 + TOKENS * 4,
    BYTES = ROWS_AT + ROWS * ROW_BYTES
};

static const app_logprobs_shape shape = {VOCABULARY, WINDOW, STRIDE, FIRST, WINDOWS};
static char dir[] = "/tmp/remat-eval-XXXXXX", path[64];

/* Row i: a probability of 1/2 for i % VOCABULARY, the others share the rest. */
static void make_row(uint8_t row[ROW_BYTES], uint64_t i) {
    for (uint32_t k = 0; k < VOCABULARY; k++) {
        const float v = logf(k == i % VOCABULARY ? 0.5f : 0.5f / (VOCABULARY - 1));
        memcpy(row + 8 + 4 * k, &v, sizeof v);
    }
}

static bool write_file(remat_error *err) {
    static app_logprobs_writer w;
    uint32_t tokens[TOKENS];
    uint64_t row[ROW_BYTES / 8 + 1];
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i % VOCABULARY;
    if (app_logprobs_create(&w, path, &shape, tokens, err) != REMAT_OK) return false;
    for (uint64_t i = 0; i < ROWS; i++) {
        make_row((uint8_t *)row, i);
        app_logprobs_put(&w, (uint8_t *)row);
    }
    return app_logprobs_finish(&w, err) == REMAT_OK;
}

static void files_come_back(void) {
    remat_error err = {0};
    app_logprobs_reader r;
    uint32_t tokens[TOKENS];
    uint64_t row[ROW_BYTES / 8 + 1], right[ROW_BYTES / 8 + 1];
    EXPECT_EQ_U64(app_logprobs_bytes(&shape), BYTES);
    REQUIRE(write_file(&err));
    REQUIRE(app_logprobs_open(&r, path, &err) == REMAT_OK);
    EXPECT(memcmp(&r.shape, &shape, sizeof shape) == 0);
    EXPECT(app_logprobs_read_tokens(tokens, &r, &err) == REMAT_OK && tokens[7] == 7 % VOCABULARY);
    for (uint64_t i = 0; i < ROWS; i++) {
        make_row((uint8_t *)right, i);
        EXPECT(app_logprobs_read_row((uint8_t *)row, &r, i, &err) == REMAT_OK);
        EXPECT(memcmp((uint8_t *)row + 8, (uint8_t *)right + 8, 4 * VOCABULARY) == 0);
    }
    app_logprobs_close(&r);
}

/* The file with `bytes` at `at`, and every hash right again. False: refused, err says why. */
static bool accepted(uint64_t at, const void *bytes, size_t count, remat_error *err) {
    static uint8_t file[BYTES];
    app_logprobs_header h;
    app_logprobs_reader r;
    uint32_t tokens[TOKENS];
    uint64_t row[ROW_BYTES / 8 + 1];
    const int fd = open(path, O_RDWR);
    bool good = fd >= 0 && read(fd, file, BYTES) == BYTES;
    memcpy(file + at, bytes, count);
    memcpy(&h, file, sizeof h);
    h.token_hash = rm_hash(file + sizeof h, TOKENS * 4, 0);
    h.own_hash = rm_hash(&h, offsetof(app_logprobs_header, own_hash), 0);
    memcpy(file, &h, sizeof h);
    for (uint64_t i = 0; i < ROWS; i++) {
        uint8_t *p = file + ROWS_AT + i * ROW_BYTES;
        const uint64_t hash = rm_hash(p + 8, ROW_BYTES - 8, i);
        memcpy(p, &hash, sizeof hash);
    }
    good = good && pwrite(fd, file, BYTES, 0) == BYTES;
    close(fd);
    EXPECT(good);
    if (app_logprobs_open(&r, path, err) != REMAT_OK) return false;
    good = app_logprobs_read_tokens(tokens, &r, err) == REMAT_OK;
    for (uint64_t i = 0; good && i < ROWS; i++)
        good = app_logprobs_read_row((uint8_t *)row, &r, i, err) == REMAT_OK;
    app_logprobs_close(&r);
    return good;
}

static uint32_t word_at(uint64_t at) {
    uint32_t word = 0;
    const int fd = open(path, O_RDONLY);
    EXPECT(fd >= 0 && pread(fd, &word, sizeof word, (off_t)at) == sizeof word);
    close(fd);
    return word;
}

/* Hashes prove that nothing happened to a file, not that it was ever a good one. */
static void numbers_are_checked(void) {
    const float odd[] = {NAN, INFINITY, -INFINITY, 0.5f, 100, 0, -1e30f};
    const uint32_t wild[] = {0, 1, 2, 7, 1000, 1u << 29, UINT32_MAX};
    remat_error err = {0};
    REQUIRE(write_file(&err));
    EXPECT(accepted(0, "rematlp", 8, &err)); /* the hashes are made right */
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        REQUIRE(write_file(&err));
        EXPECT(!accepted(ROWS_AT + 4 * ROW_BYTES + 8, &odd[i], sizeof odd[i], &err));
        EXPECT(strstr(err.message, "probabilities") != NULL);
    }
    REQUIRE(write_file(&err));
    EXPECT(!accepted(56 + 4, &(uint32_t){VOCABULARY}, 4, &err));
    EXPECT(strstr(err.message, "vocabulary") != NULL);
    for (size_t at = 12; at < 40; at += 4) {
        for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
            uint32_t was;
            REQUIRE(write_file(&err));
            was = word_at(at);
            if (was != wild[i]) EXPECT(!accepted(at, &wild[i], 4, &err));
        }
    }
}

static void sizes_are_bounded(void) {
    static const app_logprobs_shape wrong[] = {
        {0, 6, 4, 3, 3},          {5, 6, 4, 0, 3},        {5, 6, 4, 6, 3},
        {5, 6, 4, 3, 0},          {5, 6, 0, 3, 3},        {5, 6, 7, 3, 3},
        {1u << 30, 6, 4, 3, 3},   {5, 1u << 30, 4, 3, 3}, {1u << 29, 1u << 29, 1, 1, 1u << 29},
        {5, 6, 4, 3, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        EXPECT_EQ_U64(app_logprobs_bytes(&wrong[i]), 0);
}

/* Until it is whole, and where that cannot be, what was there before stays. */
static void a_file_is_whole_or_none(void) {
    static app_logprobs_writer w;
    const uint32_t tokens[TOKENS] = {0};
    remat_error err = {0};
    app_logprobs_reader r;
    (void)unlink(path);
    REQUIRE(app_logprobs_create(&w, path, &shape, tokens, &err) == REMAT_OK);
    EXPECT(access(path, F_OK) != 0 && access(w.fresh, F_OK) == 0);
    app_logprobs_abandon(&w);
    app_logprobs_abandon(&w);
    EXPECT(access(path, F_OK) != 0 && access(w.fresh, F_OK) != 0);
    REQUIRE(write_file(&err));
    REQUIRE(app_logprobs_create(&w, path, &shape, tokens, &err) == REMAT_OK);
    app_logprobs_abandon(&w);
    EXPECT(app_logprobs_open(&r, path, &err) == REMAT_OK);
    app_logprobs_close(&r);
}

/* --- divergence ------------------------------------------------------------------------------- */

static void divergence_of_two(void) {
    static const double p[4] = {0.5, 0.25, 0.125, 0.125}, q[4] = {0.25, 0.25, 0.25, 0.25};
    double each[3];
    float base[4], logits[4], same[4];
    app_divergence d = {.each = each};
    for (int i = 0; i < 4; i++) {
        base[i] = (float)log(p[i]);
        logits[i] = (float)log(q[i]) + 3; /* logits are any constant away */
        same[i] = base[i];
    }
    /* 0.5 ln 2 + 0 - 2 * 0.125 ln 2 */
    const double right = 0.25 * log(2);
    EXPECT(fabs(app_divergence_add(&d, base, logits, 3, 4, 0) - right) < 1e-6);
    EXPECT(app_divergence_add(&d, base, same, 0, 4, 1) == 0);
    EXPECT(fabs(app_divergence_add(&d, base, logits, 3, 4, 2) - right) < 1e-6);
    const app_divergence_result r = app_divergence_end(&d);
    EXPECT(fabs(r.divergence.value - 2 * right / 3) < 1e-6);
    EXPECT(fabs(r.divergence.error - right / 3) < 1e-6); /* sqrt((2/3 - 4/9) / 2) */
    EXPECT(fabs(r.rank[0] - right) < 1e-6 && fabs(r.rank[5] - right) < 1e-6);
    EXPECT(fabs(r.ln_ratio.value) < 1e-6); /* ln 2 more, ln 2 less */
    EXPECT(fabs(r.change.value - (-0.25 + 0.125) / 3) < 1e-6);
    EXPECT(fabs(r.base_nll.value - (1 + 2 + 3) * log(2) / 3) < 1e-6);
    EXPECT_EQ_U64(r.same_bits, 1);
    EXPECT(r.same_top.value == 1 && r.same_top.error == 0); /* ties go to the lowest id */
}

static void one_place_has_no_error(void) {
    const app_mean m = app_mean_of(2.5, 6.25, 1);
    EXPECT(m.value == 2.5 && m.error == 0);
}

/* --- texts ------------------------------------------------------------------------------------ */

static uint64_t hash_of_next(app_haystack *h) {
    const char *s;
    const size_t n = app_haystack_next(&s, h);
    EXPECT(n > 20 && n < APP_SENTENCE_BYTES && s[n - 1] == ' ' && s[n - 2] == '.');
    for (size_t i = 0; i < n; i++)
        EXPECT(!isdigit((unsigned char)s[i]) && (unsigned char)s[i] < 0x80);
    return rm_hash(s, n, 0);
}

static void sentences_differ(void) {
    enum { COUNT = 2000 };
    static uint64_t seen[COUNT];
    static app_haystack h, again, other;
    app_haystack_start(&h, NULL, 0, 5);
    app_haystack_start(&again, "x", 0, 5); /* no bytes: no text */
    app_haystack_start(&other, NULL, 0, 6);
    uint32_t equal = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        seen[i] = hash_of_next(&h);
        EXPECT_EQ_U64(hash_of_next(&again), seen[i]);
        equal += hash_of_next(&other) == seen[i];
        for (uint32_t k = 0; k < i; k++)
            EXPECT(seen[k] != seen[i]);
    }
    EXPECT_EQ_U64(equal, 0);
}

/* Sentences of a text are the text, from one of them on and around again. */
static void a_text_in_sentences(void) {
    static char long_word[1500];
    memset(long_word, 'x', sizeof long_word);
    for (size_t i = 0; i + 2 < sizeof long_word; i += 3)
        memcpy(long_word + i, "\xe2\x82\xac", 3); /* must not be cut inside */
    const struct {
        const char *text;
        size_t bytes;
    } texts[] = {
        {"One. Two!  Three?\nAnd v1.5 of it\n\nFour", 38},
        {"x", 1},
        {"\n\n\n", 3},
        {"a\0b. c", 6},
        {long_word, sizeof long_word},
    };
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            static app_haystack h;
            const char *s;
            app_haystack_start(&h, texts[t].text, texts[t].bytes, seed);
            size_t at = h.at;
            for (int i = 0; i < 12; i++) {
                const size_t n = app_haystack_next(&s, &h);
                EXPECT(n > 0 && n <= APP_SENTENCE_BYTES && s == texts[t].text + at);
                EXPECT(((unsigned char)s[0] & 0xc0) != 0x80);
                at = at + n == texts[t].bytes ? 0 : at + n;
            }
        }
    }
    static app_haystack h;
    const char *s;
    app_haystack_start(&h, texts[0].text, texts[0].bytes, 1);
    h.at = 0;
    static const size_t lengths[] = {5, 6, 7, 16, 4};
    for (int i = 0; i < 5; i++)
        EXPECT_EQ_U64(app_haystack_next(&s, &h), lengths[i]);
}

static void needles_have_their_number(void) {
    rm_random r;
    rm_random_seed(&r, t_random());
    for (int i = 0; i < 100; i++) {
        app_needle n;
        app_needle_make(&n, &r);
        EXPECT(strlen(n.number) == 7 && strspn(n.number, "0123456789") == 7);
        EXPECT(strstr(n.fact, n.number) != NULL && strstr(n.question, n.number) == NULL);
        EXPECT(strncmp(n.fact, n.prefix, strlen(n.prefix)) == 0);
    }
}

int main(int argc, char **argv) {
    if (mkdtemp(dir) == NULL) return 1;
    snprintf(path, sizeof path, "%s/base", dir);
    const int code =
        RM_RUN(argc, argv, T(files_come_back), T(numbers_are_checked), T(sizes_are_bounded),
               T(a_file_is_whole_or_none), T(divergence_of_two), T(one_place_has_no_error),
               T(sentences_differ), T(a_text_in_sentences), T(needles_have_their_number));
    (void)unlink(path);
    (void)rmdir(dir);
    return code;
}
