/*
 * test_gguf.c: damaged files are refused by name, uncommon ones load, and values come back.
 * tests/golden/badgguf holds files with one fault each and what must be named; the others are
 * built here in memory. Run from the root of the repository.
 */
#include "base/clock.h"
#include "gguf/file.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* ------------------------------------------------------------------------- a file being built */

static uint8_t doc[64 << 20];
static size_t doc_bytes;

static void put(const void *bytes, size_t count) {
    if (doc_bytes + count > sizeof doc) abort();
    memcpy(doc + doc_bytes, bytes, count);
    doc_bytes += count;
}

static void put_u8(uint8_t v) {
    put(&v, 1);
}

static void put_u32(uint32_t v) {
    put(&v, 4);
}

static void put_u64(uint64_t v) {
    put(&v, 8);
}

static void put_string(const char *text) {
    put_u64(strlen(text));
    put(text, strlen(text));
}

static void begin(uint64_t tensor_count, uint64_t kv_count) {
    doc_bytes = 0;
    put("GGUF", 4);
    put_u32(3);
    put_u64(tensor_count);
    put_u64(kv_count);
}

static void put_key(const char *key, uint32_t type) {
    put_string(key);
    put_u32(type);
}

static void put_array(const char *key, uint32_t element, uint64_t count) {
    put_key(key, RM_GGUF_ARRAY);
    put_u32(element);
    put_u64(count);
}

static void put_tensor(const char *name, uint64_t width, uint64_t rows, uint32_t type,
                       uint64_t offset) {
    put_string(name);
    put_u32(2);
    put_u64(width);
    put_u64(rows);
    put_u32(type);
    put_u64(offset);
}

static void put_padding(size_t alignment) {
    while (doc_bytes % alignment != 0)
        put_u8(0);
}

/* ------------------------------------------------------------------------- loading it */

static rm_ledger ledger;
static rm_file file;
static rm_gguf gguf;

static void close_all(void) {
    rm_ledger_close(&ledger);
    rm_file_close(&file);
}

/* Header, measured layout, real layout, parse: as a program does it. */
static int load(remat_error *err) {
    rm_ledger plan;
    rm_ledger_measure(&plan);
    RM_TRY(rm_gguf_header(&gguf, &file, err));
    RM_TRY(rm_gguf_layout(&gguf, &plan, err));
    RM_TRY(rm_ledger_open(&ledger, rm_ledger_total(&plan) + 4096, 4096, err));
    RM_TRY(rm_gguf_layout(&gguf, &ledger, err));
    return rm_gguf_parse(&gguf, err);
}

static bool open_doc(void) {
    remat_error err = {0};
    file = (rm_file){.fd = memfd_create("doc", MFD_CLOEXEC), .size = doc_bytes, .path = "doc"};
    return file.fd >= 0 && rm_write_all(file.fd, doc, doc_bytes, &err) == REMAT_OK;
}

static void doc_loads(void) {
    remat_error err = {0};
    if (!open_doc()) abort();
    if (load(&err) != REMAT_OK) t_fail("refused: %s", err.message);
}

static void doc_is_refused(const char *named) {
    remat_error err = {0};
    if (!open_doc()) abort();
    const int status = load(&err);
    if (status != REMAT_E_MODEL) t_fail("status %d for %s", status, named);
    if (strstr(err.message, named) == NULL) t_fail("does not name %s: %s", named, err.message);
    close_all();
}

/* ------------------------------------------------------------------------- the golden files */

#define GOLDEN "tests/golden/badgguf/"

/* Finds "name": "value" in a line of the manifest. */
static bool field(char *out, size_t cap, const char *line, const char *name) {
    char start[32];
    snprintf(start, sizeof start, "\"%s\": \"", name);
    const char *p = strstr(line, start);
    if (p == NULL) return false;
    p += strlen(start);
    const size_t count = strcspn(p, "\"");
    if (count >= cap) return false;
    memcpy(out, p, count);
    out[count] = '\0';
    return true;
}

static void golden_file(const char *name, const char *named, const char *expected) {
    char path[256];
    remat_error err = {0};
    snprintf(path, sizeof path, GOLDEN "%s", name);
    REQUIRE(rm_file_open(&file, path, &err) == REMAT_OK);
    file.path = "neutral"; /* the name tells the fault */
    const int status = load(&err);
    /* These two are for whoever knows what the keys mean. */
    const bool others = strcmp(named, "llama.attention.head_count") == 0 ||
                        strcmp(named, "tokenizer.ggml.token_type") == 0;
    if (strcmp(expected, "load") == 0 || others) {
        if (status != REMAT_OK) t_fail("%s refused: %s", name, err.message);
    } else {
        if (status != REMAT_E_MODEL) t_fail("%s: status %d", name, status);
        if (strstr(err.message, named) == NULL || strncmp(err.message, "neutral: ", 9) != 0)
            t_fail("%s: %s", name, err.message);
    }
    close_all();
}

static void golden_files(void) {
    char line[512], name[64] = "", named[64] = "", expected[32] = "";
    unsigned count = 0;
    FILE *manifest = fopen(GOLDEN "manifest.json", "r");
    if (manifest == NULL) SKIP("no " GOLDEN "; run from the root of the repository");
    while (fgets(line, sizeof line, manifest) != NULL) {
        (void)field(name, sizeof name, line, "file");
        (void)field(named, sizeof named, line, "field");
        if (!field(expected, sizeof expected, line, "expect")) continue;
        golden_file(name, named, expected);
        count++;
    }
    fclose(manifest);
    EXPECT_EQ_U64(count, 20);
}

static void golden_values(void) {
    remat_error err = {0};
    char text[16];
    uint32_t layers;
    float base;
    if (access(GOLDEN "c02_unusual_valid.gguf", R_OK) != 0) SKIP("no " GOLDEN);
    REQUIRE(rm_file_open(&file, GOLDEN "c02_unusual_valid.gguf", &err) == REMAT_OK);
    REQUIRE(load(&err) == REMAT_OK);
    EXPECT_EQ_U64(gguf.alignment, 64);
    EXPECT(rm_gguf_u32(&layers, &gguf, "llama.block_count", &err) == REMAT_OK && layers == 1);
    EXPECT(rm_gguf_f32(&base, &gguf, "llama.rope.freq_base", &err) == REMAT_OK && base == 1e4f);
    EXPECT(rm_gguf_text(text, sizeof text, &gguf, "general.architecture", &err) == REMAT_OK);
    EXPECT(strcmp(text, "llama") == 0);
    const rm_gguf_tensor *t = rm_gguf_tensor_find(&gguf, "blk.0.ffn_up.weight");
    REQUIRE(t != NULL);
    EXPECT(t->dims[0] == 32 && t->dims[1] == 64 && t->dims[2] == 1 && t->dim_count == 2);
    EXPECT(t->bytes == 32 * 64 * 4 && t->at % 64 == 0);
    EXPECT(rm_gguf_tensor_find(&gguf, "blk.0.ffn_up") == NULL);

    const rm_gguf_kv *tokens = rm_gguf_find(&gguf, "tokenizer.ggml.tokens");
    REQUIRE(tokens != NULL && tokens->element == RM_GGUF_STRING);
    EXPECT_EQ_U64(tokens->count, 300);
    rm_gguf_walk w;
    uint64_t bytes = 0;
    rm_gguf_walk_start(&w, &gguf, tokens);
    for (int i = 0; i < 300; i++) {
        REQUIRE(rm_gguf_walk_string(&w, text, 3, &bytes, &err) == REMAT_OK);
        if (i == 1) EXPECT(bytes == 3 && memcmp(text, "<s>", 3) == 0);
        if (i == 10) EXPECT(bytes == 6 && memcmp(text, "<0x", 3) == 0); /* cut at the cap */
    }
    EXPECT_EQ_U64(w.reader.at, tokens->value_at + tokens->value_bytes);
    close_all();
}

/* ------------------------------------------------------------------------- hand-built files */

static void not_a_model(void) {
    doc_bytes = 0;
    doc_is_refused("empty");
    put("GG", 2);
    doc_is_refused("header");
    doc_bytes = 0;
    put("Once upon a time there was a text file.", 39);
    doc_is_refused("is not a GGUF file");
    begin(0, 0);
    doc[4] = 1;
    doc_is_refused("version 1");
    begin(0, 0);
    doc_loads(); /* nothing in it, but well-formed */
    EXPECT(rm_gguf_find(&gguf, "general.architecture") == NULL);
    EXPECT(rm_gguf_tensor_find(&gguf, "") == NULL);
    close_all();
}

static void counts_that_cannot_be(void) {
    begin(1, 0);
    doc_is_refused("tensor_count");
    begin(0, UINT64_MAX);
    doc_is_refused("kv_count");
    begin(0, RM_GGUF_KEYS_MAX + 1); /* would fit, is above our limit */
    memset(doc + doc_bytes, 0, 13 * (RM_GGUF_KEYS_MAX + 1));
    doc_bytes += 13 * (RM_GGUF_KEYS_MAX + 1);
    doc_is_refused("kv_count");
    begin(0, 2); /* fewer records than counted */
    put_key("a", RM_GGUF_STRING);
    put_string("some twenty bytes more");
    doc_is_refused("metadata key 2");
}

static void keys(void) {
    static char long_key[65537];
    memset(long_key, 'k', 65536);
    begin(0, 1);
    put_key(long_key, RM_GGUF_U8);
    put_u8(1);
    doc_is_refused("key length 65536");
    long_key[65535] = '\0';
    begin(0, 2); /* two of the longest, with the difference at their ends */
    put_key(long_key, RM_GGUF_U8);
    put_u8(1);
    long_key[65534] = 'j';
    put_key(long_key, RM_GGUF_U8);
    put_u8(1);
    doc_loads();
    EXPECT(rm_gguf_find(&gguf, long_key) == NULL); /* longer than any that is looked up */
    close_all();
    begin(0, 2);
    put_key("general.name", RM_GGUF_STRING);
    put_string("a");
    put_key("general.name", RM_GGUF_STRING);
    put_string("b");
    doc_is_refused("key general.name: appears twice");
    begin(0, 1);
    put_key("bad\033[2Jkey\n", 99);
    put_u8(1);
    doc_is_refused("bad?[2Jkey?: unknown value type 99"); /* fit for a terminal, in one line */
}

static void alignments(void) {
    static const uint32_t good[] = {1, 2, 8, 32, 4096}, bad[] = {0, 3, 24, UINT32_MAX};
    for (size_t i = 0; i < 5; i++) {
        begin(1, 1);
        put_key("general.alignment", RM_GGUF_U32);
        put_u32(good[i]);
        put_tensor("t", 4, 1, 0, 0);
        put_padding(good[i]);
        const size_t data = doc_bytes;
        put("0123456789abcdef", 16);
        doc_loads();
        EXPECT_EQ_U64(gguf.tensors[0].at, data);
        close_all();
    }
    for (size_t i = 0; i < 4; i++) {
        begin(0, 1);
        put_key("general.alignment", RM_GGUF_U32);
        put_u32(bad[i]);
        doc_is_refused("general.alignment");
    }
    begin(0, 1);
    put_key("general.alignment", RM_GGUF_STRING);
    put_string("32");
    doc_is_refused("general.alignment");
    begin(1, 1); /* the file ends before the padding does */
    put_key("general.alignment", RM_GGUF_U32);
    put_u32(1u << 31);
    put_tensor("tensor.one", 4, 1, 0, 0);
    doc_is_refused("tensor.one");
}

static void one_tensor(const char *name, uint64_t width, uint64_t rows, uint32_t type,
                       uint64_t offset) {
    begin(1, 0);
    put_tensor(name, width, rows, type, offset);
    put_padding(32);
    memset(doc + doc_bytes, 0, 4096);
    doc_bytes += 4096;
}

static void tensors(void) {
    char name[200];
    memset(name, 'n', sizeof name);
    name[127] = '\0';
    one_tensor(name, 1024, 1, 0, 0);
    doc_loads();
    EXPECT(rm_gguf_tensor_find(&gguf, name) == gguf.tensors);
    close_all();
    name[127] = 'n';
    name[128] = '\0';
    one_tensor(name, 1024, 1, 0, 0);
    doc_is_refused("name length 128");
    one_tensor("t", 1025, 1, 0, 0);
    doc_is_refused("tensor t: ends at");
    one_tensor("t", 1024, 1, 0, 32);
    doc_is_refused("tensor t: ends at");
    one_tensor("t", 8, 1, 0, 16);
    doc_is_refused("tensor t: offset 16");
    one_tensor("t", 33, 2, 8, 0);
    doc_is_refused("tensor t: rows of 33 values");
    one_tensor("t", 1ull << 32, 1ull << 32, 0, 0);
    doc_is_refused("tensor t: its dimensions");
    one_tensor("t", 1ull << 61, 1, 0, 0); /* 2^61 values of 4 bytes: the bytes wrap to 2^63 */
    doc_is_refused("tensor t: its 2305843009213693952 values");
    one_tensor("t", 8, 0, 0, 0);
    doc_is_refused("tensor t: dimension 1 is 0");
    one_tensor("t", 8, 1, 0, UINT64_MAX - 31);
    doc_is_refused("tensor t: begins");
    one_tensor("t", 5, 7, 4711, 0); /* for the model to refuse, by name */
    doc_loads();
    EXPECT(gguf.tensors[0].bytes == 0 && gguf.tensors[0].type == 4711);
    close_all();
    one_tensor("t", 5, 7, 4711, 1 << 20);
    doc_is_refused("tensor t: begins");
    begin(2, 0);
    put_tensor("twin", 4, 1, 0, 0);
    put_tensor("twin", 4, 1, 0, 32);
    put_padding(32);
    put("0123456789abcdef0123456789abcdef0123456789abcdef", 48);
    doc_is_refused("tensor twin: appears twice");
    begin(1, 0);
    put_u64(3);
    put("a\0b", 3);
    memset(doc + doc_bytes, 0, 64);
    doc_bytes += 64;
    doc_is_refused("a zero in its name");
}

static void nested_arrays(void) {
    begin(0, 2);
    put_array("nested", RM_GGUF_ARRAY, 3);
    put_u32(RM_GGUF_U16), put_u64(2), put_u32(0x00020001);
    put_u32(RM_GGUF_STRING), put_u64(2), put_string("a"), put_string("");
    put_u32(RM_GGUF_ARRAY), put_u64(1);
    put_u32(RM_GGUF_U8), put_u64(0);
    put_key("after", RM_GGUF_U32);
    put_u32(77);
    uint32_t after = 0;
    doc_loads();
    EXPECT(rm_gguf_u32(&after, &gguf, "after", NULL) == REMAT_OK && after == 77);
    close_all();

    begin(0, 1);
    put_array("deep.key", RM_GGUF_ARRAY, 1);
    for (int i = 0; i < 100000; i++)
        put_u32(RM_GGUF_ARRAY), put_u64(1);
    doc_is_refused("deep.key");
    begin(0, 1);
    put_array("wide.key", RM_GGUF_ARRAY, UINT64_MAX);
    put_u32(RM_GGUF_U8), put_u64(0);
    doc_is_refused("wide.key");
    begin(0, 1);
    put_array("inner.key", RM_GGUF_ARRAY, 1);
    put_u32(RM_GGUF_F64), put_u64(1ull << 61);
    doc_is_refused("inner.key");
    begin(0, 1);
    put_array("words.key", RM_GGUF_STRING, 2);
    put_string("one"), put_u64(UINT64_MAX - 4);
    doc_is_refused("words.key");
}

/* ------------------------------------------------------------------------- values */

static void put_values(void) {
    const float half = 0.5f, nan = NAN;
    const double large = 1e300, third = 0.25;
    begin(0, 19);
    put_key("u8", RM_GGUF_U8), put_u8(200);
    put_key("i8", RM_GGUF_I8), put_u8(0xff);
    put_key("i16", RM_GGUF_I16), put("\x34\x12", 2);
    put_key("u16", RM_GGUF_U16), put("\xff\xff", 2);
    put_key("u32", RM_GGUF_U32), put_u32(UINT32_MAX);
    put_key("i32", RM_GGUF_I32), put_u32(0x80000000);
    put_key("u64", RM_GGUF_U64), put_u64(1ull << 32);
    put_key("i64", RM_GGUF_I64), put_u64(5);
    put_key("minus", RM_GGUF_I64), put_u64(UINT64_MAX);
    put_key("f32", RM_GGUF_F32), put(&half, 4);
    put_key("nan", RM_GGUF_F32), put(&nan, 4);
    put_key("f64", RM_GGUF_F64), put(&third, 8);
    put_key("large", RM_GGUF_F64), put(&large, 8);
    put_key("true", RM_GGUF_BOOL), put_u8(1);
    put_key("maybe", RM_GGUF_BOOL), put_u8(2);
    put_key("text", RM_GGUF_STRING), put_string("seven b");
    put_key("zero", RM_GGUF_STRING), put_u64(3), put("a\0b", 3);
    put_key("empty", RM_GGUF_STRING), put_u64(0);
    put_array("array", RM_GGUF_I32, 3), put_u32(1), put_u32(2), put_u32(UINT32_MAX);
}

static void expect_u32(const char *key, bool good, uint32_t value) {
    remat_error err = {0};
    uint32_t v = 12345;
    const int status = rm_gguf_u32(&v, &gguf, key, &err);
    EXPECT_EQ_U64(v, good ? value : 12345); /* written on success only */
    if (status != (good ? REMAT_OK : REMAT_E_MODEL)) t_fail("%s: status %d", key, status);
    if (!good && strstr(err.message, key) == NULL) t_fail("%s: %s", key, err.message);
}

static void numbers_come_back(void) {
    remat_error err = {0};
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    put_values();
    doc_loads();
    expect_u32("u8", true, 200);
    expect_u32("i16", true, 0x1234);
    expect_u32("u16", true, 65535);
    expect_u32("u32", true, UINT32_MAX);
    expect_u32("i64", true, 5);
    expect_u32("i8", false, 0);
    expect_u32("i32", false, 0);
    expect_u32("u64", false, 0);
    expect_u32("minus", false, 0);
    expect_u32("f32", false, 0);
    expect_u32("true", false, 0);
    expect_u32("array", false, 0);
    expect_u32("absent", false, 0);
    EXPECT(rm_gguf_u32_or(&u, &gguf, "absent", 9, &err) == REMAT_OK && u == 9);
    EXPECT(rm_gguf_u32_or(&u, &gguf, "minus", 9, &err) == REMAT_E_MODEL);

    EXPECT(rm_gguf_f32(&f, &gguf, "f32", &err) == REMAT_OK && f == 0.5f);
    EXPECT(rm_gguf_f32(&f, &gguf, "f64", &err) == REMAT_OK && f == 0.25f);
    EXPECT(rm_gguf_f32(&f, &gguf, "nan", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_f32(&f, &gguf, "large", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_f32(&f, &gguf, "u8", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_f32(&f, &gguf, "absent", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_f32_or(&f, &gguf, "absent", 3, &err) == REMAT_OK && f == 3.0f);

    EXPECT(rm_gguf_bool_or(&b, &gguf, "true", false, &err) == REMAT_OK && b);
    EXPECT(rm_gguf_bool_or(&b, &gguf, "absent", true, &err) == REMAT_OK && b);
    EXPECT(rm_gguf_bool_or(&b, &gguf, "maybe", false, &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_bool_or(&b, &gguf, "u8", false, &err) == REMAT_E_MODEL);
    close_all();
}

static void text_and_arrays_come_back(void) {
    remat_error err = {0};
    char text[8], small[7];
    put_values();
    doc_loads();
    EXPECT(rm_gguf_text(text, 8, &gguf, "text", &err) == REMAT_OK);
    EXPECT(strcmp(text, "seven b") == 0);
    EXPECT(rm_gguf_text(small, 7, &gguf, "text", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_text(text, 8, &gguf, "zero", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_text(text, 8, &gguf, "u8", &err) == REMAT_E_MODEL);
    EXPECT(rm_gguf_text(text, 1, &gguf, "empty", &err) == REMAT_OK && text[0] == '\0');
    EXPECT(rm_gguf_text(text, 8, &gguf, "absent", &err) == REMAT_E_MODEL);
    EXPECT(strstr(err.message, "absent is missing") != NULL);
    EXPECT(rm_gguf_text_or(text, 8, &gguf, "absent", "else", &err) == REMAT_OK);
    EXPECT(strcmp(text, "else") == 0);

    static const uint32_t expected[] = {1, 2, UINT32_MAX};
    rm_gguf_walk w;
    rm_gguf_walk_start(&w, &gguf, rm_gguf_find(&gguf, "array"));
    for (int i = 0; i < 3; i++) {
        uint32_t word = 0;
        REQUIRE(rm_gguf_walk_word(&w, &word, &err) == REMAT_OK);
        EXPECT_EQ_U64(word, expected[i]);
    }
    close_all();
}

static void block_sizes(void) {
    uint32_t k = 0, bytes = 0, known = 0;
    EXPECT(rm_gguf_block(0, &k, &bytes) && k == 1 && bytes == 4);
    EXPECT(rm_gguf_block(8, &k, &bytes) && k == 32 && bytes == 34);
    EXPECT(rm_gguf_block(14, &k, &bytes) && k == 256 && bytes == 210);
    EXPECT(!rm_gguf_block(4, &k, &bytes) && !rm_gguf_block(31, &k, &bytes));
    EXPECT(!rm_gguf_block(UINT32_MAX, &k, &bytes));
    for (uint32_t type = 0; type < 100; type++)
        known += rm_gguf_block(type, &k, &bytes);
    EXPECT_EQ_U64(known, 34);
}

/* ------------------------------------------------------------------------- faults, size, heap */

/* Enough strings for several windows, so that reads happen in the middle of everything. */
static void put_large(void) {
    char name[32];
    begin(3000, 3);
    put_array("tokens", RM_GGUF_STRING, 20000);
    for (int i = 0; i < 20000; i++)
        put_string("a token");
    put_key("general.alignment", RM_GGUF_U32), put_u32(32);
    put_key("general.name", RM_GGUF_STRING), put_string("large");
    for (uint64_t i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "blk.%u.weight", (unsigned)i);
        put_tensor(name, 8, 1, 0, i * 32);
    }
    put_padding(32);
    memset(doc + doc_bytes, 0, 3000 * 32);
    doc_bytes += 3000 * 32;
}

static int load_and_read(remat_error *err) {
    char text[16];
    uint64_t bytes;
    rm_gguf_walk w;
    RM_TRY(load(err));
    RM_TRY(rm_gguf_text(text, sizeof text, &gguf, "general.name", err));
    rm_gguf_walk_start(&w, &gguf, rm_gguf_find(&gguf, "tokens"));
    for (int i = 0; i < 20000; i++)
        RM_TRY(rm_gguf_walk_string(&w, text, sizeof text, &bytes, err));
    return REMAT_OK;
}

static void every_read_may_fail(void) {
    put_large();
    REQUIRE(open_doc());
    for (int kind = RM_IO_FAIL; kind <= RM_IO_SHORT; kind++) {
        for (uint64_t n = 1;; n++) {
            remat_error err = {0};
            rm_io_fault_at(n, (rm_io_fault)kind);
            const int status = load_and_read(&err);
            rm_io_fault_at(0, RM_IO_FAIL);
            rm_ledger_close(&ledger);
            if (status == REMAT_OK) {
                EXPECT(n > 8);
                break;
            }
            REQUIRE(status == REMAT_E_FAILED && err.message[0] != '\0');
        }
    }
    close_all();
}

static void every_carve_may_fail(void) {
    put_large();
    REQUIRE(open_doc());
    for (uint64_t n = 1;; n++) {
        remat_error err = {0};
        REQUIRE(rm_gguf_header(&gguf, &file, &err) == REMAT_OK);
        REQUIRE(rm_ledger_open(&ledger, 4 << 20, 4096, &err) == REMAT_OK);
        rm_ledger_fail_at(&ledger, n);
        const int status = rm_gguf_layout(&gguf, &ledger, &err);
        rm_ledger_close(&ledger);
        if (status == REMAT_OK) {
            EXPECT_EQ_U64(n, 6);
            break;
        }
        REQUIRE(status == REMAT_E_BUDGET && err.message[0] != '\0');
    }
    close_all();
}

/* A file cut at any byte is refused or, behind its last tensor, loads. */
static void every_cut_is_refused(void) {
    put_values();
    doc[8] = 1; /* and a tensor */
    put_tensor("t", 8, 1, 0, 0);
    put_padding(32);
    put("0123456789abcdef0123456789abcdef", 32);
    const size_t whole = doc_bytes;
    for (doc_bytes = 0; doc_bytes < whole; doc_bytes++)
        doc_is_refused("doc: ");
    doc_loads();
    close_all();
}

static void a_parsed_file_may_shrink(void) {
    remat_error err = {0};
    char text[16];
    uint64_t bytes;
    rm_gguf_walk w;
    int status = REMAT_OK;
    put_large();
    doc_loads();
    REQUIRE(ftruncate(file.fd, 5000) == 0);
    EXPECT(rm_gguf_text(text, sizeof text, &gguf, "general.name", &err) == REMAT_E_FAILED);
    rm_gguf_walk_start(&w, &gguf, rm_gguf_find(&gguf, "tokens"));
    for (int i = 0; i < 20000 && status == REMAT_OK; i++)
        status = rm_gguf_walk_string(&w, text, sizeof text, &bytes, &err);
    EXPECT(status == REMAT_E_FAILED);
    /* The same length with other bytes: lengths no longer fit. */
    memset(doc, 0xff, doc_bytes);
    REQUIRE(lseek(file.fd, 0, SEEK_SET) == 0);
    REQUIRE(rm_write_all(file.fd, doc, doc_bytes, &err) == REMAT_OK);
    rm_gguf_walk_start(&w, &gguf, rm_gguf_find(&gguf, "tokens"));
    EXPECT(rm_gguf_walk_string(&w, text, sizeof text, &bytes, &err) == REMAT_E_MODEL);
    close_all();
}

static void large_files_are_fast(void) {
    char name[32];
    begin(RM_GGUF_TENSORS_MAX, 2);
    put_array("tokens", RM_GGUF_STRING, 300000);
    for (int i = 0; i < 300000; i++)
        put_string("a token");
    put_array("scores", RM_GGUF_F32, 300000);
    memset(doc + doc_bytes, 0, 300000 * 4);
    doc_bytes += 300000 * 4;
    for (unsigned i = 0; i < RM_GGUF_TENSORS_MAX; i++) {
        snprintf(name, sizeof name, "blk.%u.weight", i);
        put_tensor(name, 8, 1, 0, 0);
    }
    put_padding(32);
    memset(doc + doc_bytes, 0, 32);
    doc_bytes += 32;
    const double start = rm_clock_s();
    doc_loads();
    const double parsed = rm_clock_s();
    for (unsigned i = 0; i < RM_GGUF_TENSORS_MAX; i++) {
        snprintf(name, sizeof name, "blk.%u.weight", i);
        REQUIRE(rm_gguf_tensor_find(&gguf, name) == &gguf.tensors[i]);
    }
    const double found = rm_clock_s();
    printf("     %d tensors, 300000 strings: parsed in %.0f ms, all found in %.0f ms\n",
           RM_GGUF_TENSORS_MAX, (parsed - start) * 1e3, (found - parsed) * 1e3);
    EXPECT(parsed - start < 5 && found - parsed < 5); /* quadratic would be minutes */
    close_all();
}

#ifndef RM_SANITIZED
static void nothing_is_allocated(void) {
    remat_error err = {0};
    put_large();
    REQUIRE(open_doc());
    no_malloc_begin();
    const int status = load_and_read(&err);
    EXPECT_EQ_U64(no_malloc_end(), 0);
    EXPECT(status == REMAT_OK);
    close_all();
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(golden_files), T(golden_values), T(not_a_model),
                  T(counts_that_cannot_be), T(keys), T(alignments), T(tensors), T(nested_arrays),
                  T(numbers_come_back), T(text_and_arrays_come_back), T(block_sizes),
                  T(every_read_may_fail), T(every_carve_may_fail), T(every_cut_is_refused),
                  T(a_parsed_file_may_shrink), T(large_files_are_fast),
#ifndef RM_SANITIZED
                  T(nothing_is_allocated),
#endif
    );
}
