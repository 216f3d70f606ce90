/*
 * text_fixture.h: tokenizers for tests: from a model file, from bytes, or from a small vocabulary
 * that is written here as a GGUF file in memory.
 */
#ifndef RM_TESTS_TEXT_FIXTURE_H
#define RM_TESTS_TEXT_FIXTURE_H

#include "text/detok.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- writing a GGUF file of metadata only */

typedef struct gg {
    uint8_t *at;
    size_t used, cap;
    uint64_t keys;
} gg;

__attribute__((unused)) static void gg_put(gg *g, const void *bytes, size_t n) {
    while (g->used + n > g->cap) {
        g->cap = g->cap ? 2 * g->cap : 4096;
        g->at = realloc(g->at, g->cap);
    }
    if (n > 0) memcpy(g->at + g->used, bytes, n);
    g->used += n;
}

__attribute__((unused)) static void gg_u32(gg *g, uint32_t v) {
    gg_put(g, &v, 4);
}
__attribute__((unused)) static void gg_u64(gg *g, uint64_t v) {
    gg_put(g, &v, 8);
}

__attribute__((unused)) static void gg_string(gg *g, const char *s, size_t n) {
    gg_u64(g, n);
    gg_put(g, s, n);
}

__attribute__((unused)) static void gg_start(gg *g) {
    *g = (gg){0};
    gg_put(g, "GGUF", 4);
    gg_u32(g, 3);
    gg_u64(g, 0);
    gg_u64(g, 0);
}

__attribute__((unused)) static void gg_key(gg *g, const char *key, uint32_t type) {
    gg_string(g, key, strlen(key));
    gg_u32(g, type);
    g->keys++;
    memcpy(g->at + 16, &g->keys, 8);
}

__attribute__((unused)) static void gg_key_text(gg *g, const char *key, const char *v) {
    gg_key(g, key, RM_GGUF_STRING);
    gg_string(g, v, strlen(v));
}

__attribute__((unused)) static void gg_key_u32(gg *g, const char *key, uint32_t v) {
    gg_key(g, key, RM_GGUF_U32);
    gg_u32(g, v);
}

__attribute__((unused)) static void gg_key_bool(gg *g, const char *key, bool v) {
    gg_key(g, key, RM_GGUF_BOOL);
    gg_put(g, &(uint8_t){v}, 1);
}

__attribute__((unused)) static void gg_list(gg *g, const char *key, uint32_t element, uint64_t n) {
    gg_key(g, key, RM_GGUF_ARRAY);
    gg_u32(g, element);
    gg_u64(g, n);
}

/* ---- small vocabularies */

typedef struct tiny_token {
    const char *text;
    uint32_t type;
    float score;
} tiny_token;

/* Byte b in the byte-level alphabet. */
__attribute__((unused)) static size_t tiny_alphabet(char *out, unsigned b) {
    unsigned c = b;
    if (b <= 32)
        c = 256 + b;
    else if (b >= 127 && b <= 160)
        c = 289 + b - 127;
    else if (b == 173)
        c = 323;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

/* Ids 0..255 are the bytes, then come the merges' results in order, then `extra`. pre NULL: no such
 * key. skip: a byte without a token, or -1 (then ids are as said). */
__attribute__((unused)) static void tiny_bpe(gg *g, const char *pre, const char *const *merges,
                                             size_t merge_count, const tiny_token *extra,
                                             size_t extra_count) {
    char text[256];
    gg_start(g);
    gg_key_text(g, "tokenizer.ggml.model", "gpt2");
    if (pre) gg_key_text(g, "tokenizer.ggml.pre", pre);
    gg_list(g, "tokenizer.ggml.tokens", RM_GGUF_STRING, 256 + merge_count + extra_count);
    for (unsigned b = 0; b < 256; b++)
        gg_string(g, text, tiny_alphabet(text, b));
    for (size_t i = 0; i < merge_count; i++) {
        const char *blank = strchr(merges[i] + 1, ' ');
        gg_string(g, text,
                  (size_t)snprintf(text, sizeof text, "%.*s%s", (int)(blank - merges[i]), merges[i],
                                   blank + 1));
    }
    for (size_t i = 0; i < extra_count; i++)
        gg_string(g, extra[i].text, strlen(extra[i].text));
    gg_list(g, "tokenizer.ggml.token_type", RM_GGUF_I32, 256 + merge_count + extra_count);
    for (size_t i = 0; i < 256 + merge_count; i++)
        gg_u32(g, RM_TOKEN_NORMAL);
    for (size_t i = 0; i < extra_count; i++)
        gg_u32(g, extra[i].type);
    gg_list(g, "tokenizer.ggml.merges", RM_GGUF_STRING, merge_count);
    for (size_t i = 0; i < merge_count; i++)
        gg_string(g, merges[i], strlen(merges[i]));
}

/* Ids 0..2 are <unk>, <s>, </s>, 3..258 the bytes (bytes: whether they are there), then `extra`. */
__attribute__((unused)) static void tiny_spm(gg *g, bool bytes, const tiny_token *extra,
                                             size_t count) {
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    const size_t n = 3 + (bytes ? 256 : 0) + count;
    char text[16];
    gg_start(g);
    gg_key_text(g, "tokenizer.ggml.model", "llama");
    gg_list(g, "tokenizer.ggml.tokens", RM_GGUF_STRING, n);
    for (size_t i = 0; i < 3; i++)
        gg_string(g, first[i], strlen(first[i]));
    for (unsigned b = 0; bytes && b < 256; b++)
        gg_string(g, text, (size_t)snprintf(text, sizeof text, "<0x%02X>", b));
    for (size_t i = 0; i < count; i++)
        gg_string(g, extra[i].text, strlen(extra[i].text));
    gg_list(g, "tokenizer.ggml.token_type", RM_GGUF_I32, n);
    for (size_t i = 0; i < 3; i++)
        gg_u32(g, i == 0 ? RM_TOKEN_UNKNOWN : RM_TOKEN_CONTROL);
    for (unsigned b = 0; bytes && b < 256; b++)
        gg_u32(g, RM_TOKEN_BYTE);
    for (size_t i = 0; i < count; i++)
        gg_u32(g, extra[i].type);
    gg_list(g, "tokenizer.ggml.scores", RM_GGUF_F32, n);
    for (size_t i = 0; i < n; i++) {
        const float score = i < n - count ? 0.0f : extra[i - (n - count)].score;
        gg_put(g, &score, 4);
    }
}

/* ---- a tokenizer */

typedef struct fixture {
    rm_file file;
    rm_gguf gguf;
    rm_ledger ledger;
    rm_tokenizer *t;
    remat_error err;
    char path[64];
    int fd;
} fixture;

__attribute__((unused)) static void fixture_close(fixture *f) {
    if (f->t) rm_tokenizer_close(f->t);
    free(f->t);
    rm_ledger_close(&f->ledger);
    rm_file_close(&f->file);
    if (f->fd >= 0) close(f->fd);
}

/* Everything that reading a model's text part does. carve_fail: which carve fails, 0 for none. */
__attribute__((unused)) static int fixture_load(fixture *f, const char *path, uint64_t carve_fail) {
    remat_error *err = &f->err;
    f->file.fd = -1;
    f->t = calloc(1, rm_tokenizer_bytes());
    RM_TRY(rm_ledger_open(&f->ledger, 64 << 20, 1 << 20, err));
    RM_TRY(rm_file_open(&f->file, path, err));
    RM_TRY(rm_gguf_header(&f->gguf, &f->file, err));
    RM_TRY(rm_gguf_layout(&f->gguf, &f->ledger, err));
    RM_TRY(rm_gguf_parse(&f->gguf, err));
    rm_ledger_fail_at(&f->ledger, carve_fail);
    RM_TRY(rm_tokenizer_layout(f->t, &f->ledger, &f->gguf, err));
    rm_ledger_fail_at(&f->ledger, 0);
    return rm_tokenizer_load(f->t, &f->gguf, err);
}

__attribute__((unused)) static int fixture_path(fixture *f, const char *path) {
    *f = (fixture){.fd = -1};
    return fixture_load(f, path, 0);
}

/* From bytes; frees nothing of g. */
__attribute__((unused)) static int fixture_bytes(fixture *f, const void *bytes, size_t n,
                                                 uint64_t carve_fail) {
    *f = (fixture){.fd = memfd_create("vocabulary", MFD_CLOEXEC)};
    if (f->fd < 0 || write(f->fd, bytes, n) != (ssize_t)n) abort();
    snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
    return fixture_load(f, f->path, carve_fail);
}

__attribute__((unused)) static int fixture_gg(fixture *f, gg *g) {
    const int status = fixture_bytes(f, g->at, g->used, 0);
    free(g->at);
    return status;
}

/* The model file of that size in models/, or NULL. */
__attribute__((unused)) static const char *fixture_model(long long bytes) {
    static char path[512];
    DIR *dir = opendir("models");
    if (dir == NULL) return NULL;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(dir)) != NULL;) {
        struct stat st;
        const size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 5, ".gguf") != 0) continue;
        snprintf(path, sizeof path, "models/%s", e->d_name);
        found = stat(path, &st) == 0 && st.st_size == bytes;
    }
    closedir(dir);
    return found ? path : NULL;
}

/* ---- calls with memory of their own size, so that a sanitizer sees every byte past the end */

/* Returns the number of ids (in *ids, to be freed) or -1 with f->err set. */
__attribute__((unused)) static long fixture_ids(fixture *f, uint32_t **ids, const char *text,
                                                size_t n, unsigned flags) {
    void *work = aligned_alloc(64, (rm_tokenize_work_bytes(f->t, n) + 63) / 64 * 64);
    char *copy = malloc(n ? n : 1);
    *ids = malloc((n + 2) * sizeof **ids);
    if (n > 0) memcpy(copy, text, n);
    size_t count = 0;
    const int status = rm_tokenize(*ids, &count, f->t, copy, n, flags, work, &f->err);
    free(copy);
    free(work);
    return status == REMAT_OK ? (long)count : -1;
}

/* Bytes of the tokens, by rm_token_text(), one after another; to be freed. */
__attribute__((unused)) static char *fixture_text(const fixture *f, const uint32_t *ids,
                                                  size_t count, bool special, size_t *bytes) {
    const size_t most = rm_token_text_most(f->t);
    char *out = malloc(count * most + 1);
    *bytes = 0;
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        *bytes += rm_token_text(out + *bytes, most, f->t, ids[i], special, first);
        const rm_token_type type = rm_token_type_of(f->t, ids[i]);
        first = type == RM_TOKEN_CONTROL || type == RM_TOKEN_USER;
    }
    return out;
}

/* The same through a detokenizer, with every part appended. */
__attribute__((unused)) static char *fixture_stream(const fixture *f, const uint32_t *ids,
                                                    size_t count, bool special, size_t *bytes) {
    void *memory = malloc(rm_detok_bytes(f->t));
    char *out = malloc(count * rm_token_text_most(f->t) + 1);
    rm_detok d;
    const char *part;
    size_t n;
    *bytes = 0;
    rm_detok_start(&d, f->t, memory, special);
    for (size_t i = 0; i <= count; i++) {
        if (i < count)
            rm_detok_put(&d, ids[i], &part, &n);
        else
            rm_detok_end(&d, &part, &n);
        memcpy(out + *bytes, part, n);
        *bytes += n;
    }
    free(memory);
    return out;
}

#endif /* RM_TESTS_TEXT_FIXTURE_H */
