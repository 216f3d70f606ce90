/*
 * test_session.c: a sequence that went through a file goes on with the same bits: at every kind of
 * cut, budget, thread count; from a file that is damaged, cut off, of another cache format; and
 * what cannot be healed is refused, and changes nothing.
 */
#include "base/hash.h"
#include "base/io.h"
#include "cache/session_file.h"
#include "session_fixture.h"
#include "tiny_model.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 330, LAYERS = 3, FILE_MAX = 1 << 20 };

static const uint32_t ONE_PIECE[] = {0}, ODD[] = {1, 33, 64, 7, 0};

static run_config config(uint32_t resident, uint32_t threads) {
    run_config c = run_config_default(COUNT);
    c.threads = threads;
    c.limits.resident_count = resident;
    c.memory = 256u << 20; /* a sanitizer marks all of it, each time */
    return c;
}

/* Runs the first cut - 1 tokens and saves them, the cut-th pending. */
static bool save_at(uint32_t cut, const run_config *c, unsigned flags) {
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    uint64_t bytes = 0;
    struct stat st;
    int status = engine_start(&e, known.path, c, &err);
    if (status == REMAT_OK) status = remat_sequence_open(&s, e, &err);
    if (status == REMAT_OK) status = feed(e, s, NULL, known.tokens, 0, cut - 1, ONE_PIECE, &err);
    if (status == REMAT_OK)
        status = remat_session_save(&bytes, s, path, known.tokens + cut - 1, 1, flags, &err);
    if (status != REMAT_OK) t_fail("saving %u: %s", cut, err.message);
    remat_close(&e);
    EXPECT(status != REMAT_OK || (stat(path, &st) == 0 && (uint64_t)st.st_size == bytes));
    return status == REMAT_OK;
}

typedef struct resumed {
    int status;
    remat_error err;
    remat_session_info info;
    uint32_t have, dropped; /* tokens after loading */
    uint64_t rows, recomputed;
} resumed;

/* Loads, appends the rest of the tokens, and compares all logits and hidden states. */
static resumed resume(const run_config *c, const uint32_t *pieces, const record *expected) {
    resumed r = {0};
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_session_info peeked = {0};
    remat_stats stats;
    recorder tap;
    record now;
    uint32_t tokens[COUNT];
    record_open(&now, LAYERS, COUNT);
    r.status = engine_start(&e, known.path, c, &r.err);
    if (r.status == REMAT_OK) r.status = remat_sequence_open(&s, e, &r.err);
    if (r.status == REMAT_OK) r.status = remat_session_peek(&peeked, e, path, &r.err);
    if (r.status == REMAT_OK)
        r.status = remat_session_load(&r.info, tokens, COUNT, s, path, &r.err);
    if (r.status == REMAT_OK) {
        const uint32_t n = r.info.token_count;
        recorder_attach(&tap, e);
        recorder_follow(&tap, s, &now);
        r.have = remat_sequence_count(s);
        EXPECT_EQ_U64(peeked.token_count, n);
        EXPECT(n == 0 ||
               (peeked.last_token == tokens[n - 1] && r.info.last_token == tokens[n - 1]));
        EXPECT(n <= COUNT && memcmp(tokens, known.tokens, n * sizeof *tokens) == 0);
        EXPECT(r.have == 0 ||
               memcmp(tokens, remat_sequence_tokens(s), r.have * sizeof *tokens) == 0);
        remat_stats_get(&stats, e);
        r.dropped = (uint32_t)stats.dropped_tokens;
        r.status = feed(e, s, &now, known.tokens, r.have, COUNT, pieces, &r.err);
        remat_stats_get(&stats, e);
        r.rows = stats.row_count;
        r.recomputed = stats.recomputed_tokens;
        const difference d = record_compare(expected, &now);
        if (d.found) t_fail("%s", d.text);
        EXPECT(r.status != REMAT_OK || d.compared >= (COUNT - r.have) * (LAYERS - 1) + 1);
    } else {
        EXPECT(s == NULL || (remat_sequence_count(s) == 0 && e->cache.pool.taken == 0));
        EXPECT(r.err.message[0] != '\0');
        /* The engine is as good as before. */
        if (s != NULL && feed(e, s, &now, known.tokens, 0, 10, ONE_PIECE, &r.err) == REMAT_OK)
            EXPECT(!record_compare(expected, &now).found);
    }
    remat_close(&e);
    record_close(&now);
    return r;
}

static resumed resume_all(void) {
    const run_config c = config(REMAT_ALL, 1);
    return resume(&c, ONE_PIECE, &known.first);
}

static uint32_t pages_of(uint32_t tokens) {
    return (tokens + 63) / 64 * LAYERS;
}

static const uint32_t cut_points[] = {1, 2, 63, 64, 65, 66, 128, 129, 200, 257, COUNT};
enum { CUT_POINTS = sizeof cut_points / sizeof *cut_points };

static void it_goes_on_as_if_never_stopped(void) {
    REQUIRE(session_prepare(COUNT));
    const run_config all = config(REMAT_ALL, 1);
    for (int i = 0; i < CUT_POINTS; i++) {
        const uint32_t cut = cut_points[i];
        REQUIRE(save_at(cut, &all, 0));
        for (uint32_t threads = 1; threads <= 3; threads += 2) {
            const run_config c = config(REMAT_ALL, threads);
            const resumed r = resume(&c, ODD, &known.first);
            EXPECT(r.status == REMAT_OK && r.info.warning[0] == '\0');
            EXPECT_EQ_U64(r.info.token_count, cut);
            EXPECT_EQ_U64(r.have, cut - 1);
            EXPECT_EQ_U64(r.info.loaded_pages, pages_of(cut - 1));
            EXPECT_EQ_U64(r.info.lost_pages, 0);
            EXPECT_EQ_U64(r.rows, COUNT - (cut - 1)); /* nothing runs twice */
        }
    }
}

static void any_budget_to_any_budget(void) {
    REQUIRE(session_prepare(COUNT));
    static const uint32_t resident[] = {REMAT_ALL, 192, 64, 0};
    for (int from = 0; from < 4; from++) {
        const run_config a = config(resident[from], 1);
        REQUIRE(save_at(260, &a, 0));
        for (int to = 0; to < 4; to++) {
            const run_config b = config(resident[to], 2);
            const resumed r = resume(&b, ODD, &known.first);
            EXPECT(r.status == REMAT_OK && r.info.lost_pages == 0);
            /* What is held stays; but nothing that fits is recomputed with every token. */
            if (to == 0) EXPECT(r.rows <= COUNT); /* once */
            if (to == from) EXPECT_EQ_U64(r.have, 259);
            if (to == 1 && from == 0) EXPECT_EQ_U64(r.info.loaded_pages, 3 * LAYERS);
        }
        for (uint32_t quarter = 0; quarter <= 4; quarter++) {
            run_config b = config(REMAT_ALL, 1);
            give_budget(&b, &known, quarter);
            const resumed r = resume(&b, ODD, &known.first);
            if (r.status != REMAT_OK) t_fail("quarter %u: %s", quarter, r.err.message);
        }
    }
}

static void tokens_alone(void) {
    REQUIRE(session_prepare(COUNT));
    const run_config all = config(REMAT_ALL, 1), few = config(64, 1);
    REQUIRE(save_at(200, &all, REMAT_SESSION_TOKENS_ONLY));
    struct stat st;
    EXPECT(stat(path, &st) == 0 && st.st_size <= 128 + 200 * 4);
    const resumed r = resume_all(), small = resume(&few, ODD, &known.first);
    EXPECT(r.status == REMAT_OK && small.status == REMAT_OK);
    EXPECT(r.info.token_count == 200 && r.info.warning[0] == '\0');
    EXPECT_EQ_U64(r.info.loaded_pages, 0);
    EXPECT_EQ_U64(r.rows, COUNT); /* computed once, and kept */
    EXPECT_EQ_U64(r.recomputed, 199);
}

/* generate, save, load, generate: the tokens of one generation. */
static bool note_token(void *user, uint32_t id, const float *logits) {
    uint32_t **at = user;
    (void)logits;
    *(*at)++ = id;
    return true;
}

static int generate(remat_sequence *s, const uint32_t *prompt, uint32_t count, uint32_t n,
                    uint32_t *ids, remat_error *err) {
    remat_result result;
    remat_generation how = {.token_count = n,
                            .ignore_end = true,
                            .sampling = remat_sampling_default(),
                            .on_token = note_token,
                            .user = &ids};
    how.sampling.temperature = 0;
    return remat_generate(&result, s, prompt, count, &how, err);
}

static void a_generation_goes_on(void) {
    REQUIRE(session_prepare(COUNT));
    enum { PROMPT = 100, FIRST = 9, REST = 11 };
    const run_config c = config(REMAT_ALL, 1);
    uint32_t whole[FIRST + REST], parts[FIRST + REST], tokens[COUNT];
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_session_info info;
    remat_error err = {0};
    uint64_t bytes;
    REQUIRE(engine_start(&e, known.path, &c, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    EXPECT(generate(s, known.tokens, PROMPT, FIRST + REST, whole, &err) == REMAT_OK);
    remat_sequence_truncate(s, 0);
    EXPECT(generate(s, known.tokens, PROMPT, FIRST, parts, &err) == REMAT_OK);
    EXPECT_EQ_U64(remat_sequence_count(s), PROMPT + FIRST - 1);
    EXPECT(remat_session_save(&bytes, s, path, parts + FIRST - 1, 1, 0, &err) == REMAT_OK);
    remat_close(&e);
    REQUIRE(engine_start(&e, known.path, &c, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    REQUIRE(remat_session_load(&info, tokens, COUNT, s, path, &err) == REMAT_OK);
    EXPECT_EQ_U64(info.token_count, PROMPT + FIRST);
    const uint32_t have = remat_sequence_count(s);
    EXPECT(generate(s, tokens + have, info.token_count - have, REST, parts + FIRST, &err) ==
           REMAT_OK);
    EXPECT(memcmp(whole, parts, sizeof whole) == 0);
    remat_close(&e);
}

/* --- files that are not right ----------------------------------------------------------------- */

static uint8_t file[FILE_MAX], changed[FILE_MAX];
static size_t file_bytes;

static void write_file(const uint8_t *bytes, size_t count) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    EXPECT(fd >= 0 && rm_write_all(fd, bytes, count, NULL) == REMAT_OK);
    close(fd);
}

static size_t read_file(uint8_t *out) {
    const int fd = open(path, O_RDONLY);
    const ssize_t n = fd >= 0 ? read(fd, out, FILE_MAX) : 0;
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

static bool make_file(uint32_t cut) {
    const run_config all = config(REMAT_ALL, 1);
    if (!session_prepare(COUNT) || !save_at(cut, &all, 0)) return false;
    file_bytes = read_file(file);
    return file_bytes > 0 && file_bytes < FILE_MAX;
}

static rm_session_header header_of(const uint8_t *bytes) {
    rm_session_header h;
    memcpy(&h, bytes, sizeof h);
    return h;
}

/* 8 bytes from `at` on are other ones. True: it was healed, false: it was refused. */
static bool flip(size_t at, resumed *r) {
    memcpy(changed, file, file_bytes);
    for (size_t i = at; i < at + 8 && i < file_bytes; i++)
        changed[i] ^= (uint8_t)(1 + t_random() % 255);
    write_file(changed, file_bytes);
    *r = resume_all();
    if (r->status == REMAT_OK) return true;
    EXPECT(r->status == REMAT_E_FAILED);
    EXPECT(strstr(r->err.message, "session ") != NULL);
    static uint8_t after[FILE_MAX];
    EXPECT(read_file(after) == file_bytes && memcmp(after, changed, file_bytes) == 0);
    return false;
}

static void eight_bytes_flipped_anywhere(void) {
    REQUIRE(make_file(200));
    resumed r;
    const rm_session_header h = header_of(file);
    const size_t tokens_end = sizeof h + h.token_count * 4,
                 table_end = h.table_at + 32u * h.page_count;
    for (size_t at = 0; at < sizeof h; at += 8)
        EXPECT(!flip(at, &r));
    for (size_t at = sizeof h; at < tokens_end; at += 40)
        EXPECT(!flip(at, &r));
    uint32_t lost = 0;
    for (size_t at = h.table_at; at < table_end; at += 20) {
        EXPECT(flip(at, &r));
        EXPECT(r.info.lost_pages >= 1 && r.info.warning[0] != '\0');
        lost += r.info.lost_pages;
    }
    EXPECT(lost >= (table_end - h.table_at) / 20);
    const size_t pages = file_bytes - h.page_count * h.page_bytes;
    for (size_t at = pages; at < file_bytes; at += (file_bytes - pages) / 40 + t_random() % 50) {
        EXPECT(flip(at, &r));
        EXPECT(r.info.lost_pages >= 1 && r.info.lost_pages <= 2);
        EXPECT(strstr(r.info.warning, "damaged or cut off") != NULL);
        EXPECT(r.recomputed > 0 && r.rows <= COUNT); /* computed once, not with each token */
    }
}

static void cut_off_anywhere(void) {
    REQUIRE(make_file(200));
    const rm_session_header h = header_of(file);
    const size_t tokens_end = sizeof h + h.token_count * 4;
    for (size_t n = 0; n < file_bytes;
         n += n < tokens_end ? 50 : 1 + t_random() % (file_bytes / 20)) {
        write_file(file, n);
        const resumed r = resume_all();
        if (n < tokens_end) {
            EXPECT(r.status == REMAT_E_FAILED);
        } else {
            EXPECT(r.status == REMAT_OK && r.info.lost_pages >= 1);
            EXPECT(r.info.lost_pages + r.info.loaded_pages <= h.page_count);
        }
    }
    write_file(file, file_bytes / 2);
    EXPECT(resume_all().status == REMAT_OK);
}

/* A file with right checksums and wrong numbers. */
static void expect_refused(rm_session_header h) {
    h.own_hash = rm_hash(&h, sizeof h - 8, 0);
    memcpy(changed, file, file_bytes);
    memcpy(changed, &h, sizeof h);
    write_file(changed, file_bytes);
    EXPECT(resume_all().status == REMAT_E_FAILED);
}

static void counts_are_not_believed(void) {
    REQUIRE(make_file(200));
    const rm_session_header good = header_of(file);
    rm_session_header h = good;
    static const uint32_t wrong[] = {0, 199, 201, 1000, 1 << 24, (1 << 24) + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        h = good;
        h.token_count = wrong[i];
        expect_refused(h);
        h.table_at = (sizeof h + (uint64_t)h.token_count * 4 + 63) / 64 * 64;
        expect_refused(h);
        if (wrong[i] < 200) continue;
        h = good;
        h.cached_count = wrong[i];
        expect_refused(h);
        h = good;
        h.page_count = wrong[i];
        expect_refused(h);
    }
    h = good;
    h.page_bytes *= 2;
    expect_refused(h);
    h = good;
    h.table_at = UINT64_MAX - 31;
    expect_refused(h);
    h = good;
    h.version = 2;
    expect_refused(h);
    /* A token that the model does not have. */
    uint32_t id = spec.vocabulary;
    uint64_t hash;
    memcpy(changed, file, file_bytes);
    memcpy(changed + sizeof h, &id, sizeof id);
    hash = rm_hash(changed + sizeof h, good.token_count * 4, good.model);
    h = good;
    h.token_hash = hash;
    h.own_hash = rm_hash(&h, sizeof h - 8, 0);
    memcpy(changed, &h, sizeof h);
    write_file(changed, file_bytes);
    EXPECT(resume_all().status == REMAT_E_FAILED);
    /* An entry that points nowhere: only that page is lost. */
    rm_session_entry e;
    memcpy(&e, file + good.table_at, sizeof e);
    static const uint64_t places[] = {1ull << 40, UINT64_MAX - 100, 1};
    for (int i = 0; i < 3; i++) {
        e.at = places[i];
        e.own_hash = rm_hash(&e, sizeof e - 8, good.token_hash);
        memcpy(changed, file, file_bytes);
        memcpy(changed + good.table_at, &e, sizeof e);
        write_file(changed, file_bytes);
        const resumed r = resume_all();
        EXPECT(r.status == REMAT_OK && r.info.lost_pages == 1);
    }
    for (int i = 0; i < 2; i++) {
        memcpy(&e, file + good.table_at, sizeof e);
        *(i == 0 ? &e.layer : &e.column) = UINT32_MAX;
        e.own_hash = rm_hash(&e, sizeof e - 8, good.token_hash);
        memcpy(changed + good.table_at, &e, sizeof e);
        write_file(changed, file_bytes);
        const resumed r = resume_all();
        EXPECT(r.status == REMAT_OK && r.info.lost_pages == 1);
    }
}

static void another_models_file(void) {
    REQUIRE(make_file(100));
    const run_config c = config(REMAT_ALL, 1);
    for (int i = 0; i < 5; i++) {
        tiny_spec other = spec;
        if (i == 0) other.seed++; /* equal shape: a fine-tuned sibling */
        if (i == 1) other.rope_base = 5000;
        if (i == 2) other.vocabulary++;
        if (i == 3) other.layer_count++;
        if (i == 4)
            other.keys[0] = (tiny_key){.name = "general.name", .kind = TINY_TEXT, .text = "x"};
        char other_path[64];
        remat_engine *e = NULL;
        remat_session_info info;
        remat_error err = {0};
        const int fd = tiny_model_open(other_path, &other);
        REQUIRE(fd >= 0 && engine_start(&e, other_path, &c, &err) == REMAT_OK);
        const int status = remat_session_peek(&info, e, path, &err);
        if (i == 4) {
            EXPECT(status == REMAT_OK); /* a name is no part of the answer */
        } else if (status != REMAT_E_FAILED || strstr(err.message, "another model") == NULL) {
            t_fail("%d: status %d, %s", i, status, err.message);
        }
        remat_close(&e);
        close(fd);
    }
}

static void another_cache_format(void) {
    REQUIRE(make_file(200));
    char why[WHY_MAX];
    subject f32;
    REQUIRE(subject_open(&f32, &spec, COUNT, 1, 1));
    if (!same_first(why, &f32, REMAT_KV_F32)) t_fail("%s", why);
    run_config c = config(REMAT_ALL, 1);
    c.limits.kv = REMAT_KV_F32;
    const resumed r = resume(&c, ONE_PIECE, &f32.first);
    EXPECT(r.status == REMAT_OK && r.info.token_count == 200);
    EXPECT_EQ_U64(r.info.loaded_pages, 0);
    EXPECT_EQ_U64(r.info.lost_pages, pages_of(199));
    EXPECT(strstr(r.info.warning, "another format") != NULL);
    EXPECT_EQ_U64(r.rows, COUNT);
    subject_close(&f32);
}

static void a_context_that_is_too_small(void) {
    REQUIRE(make_file(200));
    run_config c = config(REMAT_ALL, 1);
    c.limits.context_count = 100;
    const resumed r = resume(&c, ONE_PIECE, &known.first);
    EXPECT(r.status == REMAT_E_CONTEXT && strstr(r.err.message, "-c") != NULL);
}

static void no_tokens_at_all(void) {
    REQUIRE(session_prepare(COUNT));
    const run_config c = config(REMAT_ALL, 1);
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_error err = {0};
    uint64_t bytes = 0;
    REQUIRE(engine_start(&e, known.path, &c, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    EXPECT(remat_session_save(&bytes, s, path, NULL, 0, 0, &err) == REMAT_OK);
    EXPECT_EQ_U64(remat_session_save(&bytes, s, path, &spec.vocabulary, 1, 0, &err), REMAT_E_USAGE);
    remat_close(&e);
    const resumed r = resume_all();
    EXPECT(r.status == REMAT_OK && r.info.exists && r.info.token_count == 0 && r.have == 0);
}

static void peek(const char *where, int status, bool exists, const char *words) {
    remat_engine *e = NULL;
    remat_session_info info = {.token_count = 77};
    remat_error err = {0};
    remat_options o = remat_options_default();
    o.memory_bytes = 256u << 20;
    if (remat_open(&e, known.path, &o, &err) != REMAT_OK) t_fail("%s", err.message);
    EXPECT_EQ_U64(remat_session_peek(&info, e, where, &err), status);
    if (status == REMAT_OK) {
        EXPECT(info.exists == exists);
    } else {
        EXPECT_EQ_U64(info.token_count, 77); /* written on success only */
        if (strstr(err.message, words) == NULL) t_fail("%s: %s", where, err.message);
    }
    remat_close(&e);
}

static void places_that_are_no_session(void) {
    REQUIRE(session_prepare(COUNT));
    char where[160], longest[RM_SESSION_PATH_MAX + 100];
    unlink(path);
    peek(path, REMAT_OK, false, "");
    peek(dir, REMAT_E_FAILED, false, "is a directory");
    peek("/dev/null", REMAT_E_FAILED, false, "not a regular file");
    peek("", REMAT_E_FAILED, false, "empty");
    snprintf(where, sizeof where, "%s/no/s", dir);
    peek(where, REMAT_E_FAILED, false, "its directory");
    snprintf(where, sizeof where, "%s/", path);
    peek(where, REMAT_E_FAILED, false, "its directory");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    peek(longest, REMAT_E_FAILED, false, "name");
    write_file(file, 0);
    peek(path, REMAT_E_FAILED, true, "is empty");
    write_file((const uint8_t *)"hello", 5);
    peek(path, REMAT_E_FAILED, true, "no session file");
    if (geteuid() != 0) {
        EXPECT(chmod(path, 0) == 0);
        peek(path, REMAT_E_FAILED, true, "cannot be read");
        EXPECT(chmod(path, 0600) == 0 && chmod(dir, 0500) == 0);
        peek(path, REMAT_E_FAILED, true, "its directory");
        EXPECT(chmod(dir, 0700) == 0);
    }
}

static void saving_replaces_a_file_and_nothing_else(void) {
    REQUIRE(session_prepare(COUNT));
    const run_config all = config(REMAT_ALL, 1);
    struct stat st;
    write_file((const uint8_t *)"hello", 5);
    EXPECT(chmod(path, 0644) == 0);
    REQUIRE(save_at(70, &all, 0));
    EXPECT(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    remat_engine *e = NULL;
    remat_sequence *s = NULL;
    remat_session_info info;
    remat_error err = {0};
    uint32_t tokens[COUNT];
    uint64_t bytes = 0;
    REQUIRE(engine_start(&e, known.path, &all, &err) == REMAT_OK);
    REQUIRE(remat_sequence_open(&s, e, &err) == REMAT_OK);
    EXPECT(feed(e, s, NULL, known.tokens, 0, 5, ONE_PIECE, &err) == REMAT_OK);
    EXPECT(remat_session_load(&info, tokens, COUNT, s, path, &err) == REMAT_E_USAGE);
    EXPECT(remat_session_save(&bytes, s, dir, NULL, 0, 0, &err) == REMAT_E_FAILED);
    EXPECT(remat_session_save(&bytes, s, "/dev/null", NULL, 0, 0, &err) == REMAT_E_FAILED);
    EXPECT(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode));
    remat_sequence_truncate(s, 0);
    EXPECT(remat_session_load(&info, tokens, 60, s, path, &err) == REMAT_E_CONTEXT);
#ifndef RM_SANITIZED
    no_malloc_begin();
    EXPECT(remat_session_load(&info, tokens, COUNT, s, path, &err) == REMAT_OK);
    EXPECT(remat_session_save(&bytes, s, path, NULL, 0, 0, &err) == REMAT_OK);
    EXPECT_EQ_U64(no_malloc_end(), 0);
#endif
    remat_close(&e);
}

/* Other sequences keep what they have; a file takes the room that is left. */
static void beside_another_sequence(void) {
    REQUIRE(make_file(320));
    run_config c = config(REMAT_ALL, 1);
    c.limits.sequence_count = 2;
    give_budget(&c, &known, 1);
    remat_engine *e = NULL;
    remat_sequence *s[2] = {NULL, NULL};
    remat_session_info info;
    remat_error err = {0};
    recorder tap;
    record now[2];
    uint32_t tokens[COUNT];
    REQUIRE(engine_start(&e, known.path, &c, &err) == REMAT_OK);
    recorder_attach(&tap, e);
    for (int i = 0; i < 2; i++) {
        record_open(&now[i], LAYERS, COUNT);
        EXPECT(remat_sequence_open(&s[i], e, &err) == REMAT_OK);
        recorder_follow(&tap, s[i], &now[i]);
    }
    EXPECT(feed(e, s[0], &now[0], known.tokens, 0, 250, ONE_PIECE, &err) == REMAT_OK);
    EXPECT(remat_session_load(&info, tokens, COUNT, s[1], path, &err) == REMAT_OK);
    for (int i = 0; i < 2; i++) {
        const uint32_t have = remat_sequence_count(s[i]);
        EXPECT(feed(e, s[i], &now[i], known.tokens, have, COUNT, ODD, &err) == REMAT_OK);
        EXPECT(!record_compare(&known.first, &now[i]).found);
        record_close(&now[i]);
    }
    remat_close(&e);
}

int main(int argc, char **argv) {
    const int status = RM_RUN(
        argc, argv, T(it_goes_on_as_if_never_stopped), T(any_budget_to_any_budget), T(tokens_alone),
        T(a_generation_goes_on), T(eight_bytes_flipped_anywhere), T(cut_off_anywhere),
        T(counts_are_not_believed), T(another_models_file), T(another_cache_format),
        T(a_context_that_is_too_small), T(no_tokens_at_all), T(places_that_are_no_session),
        T(saving_replaces_a_file_and_nothing_else), T(beside_another_sequence));
    const int before = t_failures;
    session_clean_up();
    return t_failures > before ? 1 : status;
}
