/*
 * logprobs.h: a file of log-probabilities of every token of the vocabulary at many places of a
 * text: what `remat eval --save-base` writes and --base compares with. Part: app.
 *
 *     header | tokens | (zeros up to 8 bytes) | row | row | ...      all little-endian
 *
 *     header    56 bytes: app_logprobs_header
 *     tokens    u32, token_count of them: the text, each once
 *     row       u64 hash of the values (XXH3, its seed the row's number from 0), then
 *               vocabulary x f32: natural logarithms of probabilities
 *
 * The text is cut into windows of `window` tokens, a new one every `stride` tokens. A window has a
 * row for each of its tokens from `first` on: the prediction of that token. A model with a
 * begin-of-text token sees it in place of a window's first token; the file has the text's.
 *
 * Values are f32 and not rounded to 16 bits, as others store them: by such steps (1e-4) settings
 * that give the same bits would seem to differ, and here a divergence of 0 has to mean just that.
 *
 * The file may come from anywhere: sizes, hashes, ids and values are checked before they are used.
 */
#ifndef RM_APP_LOGPROBS_H
#define RM_APP_LOGPROBS_H

#include "base/io.h"

typedef struct app_logprobs_header {
    char magic[8]; /* "rematlp" and a zero */
    uint32_t version, vocabulary;
    uint32_t window, stride, first, window_count;
    uint64_t token_count; /* (window_count - 1) * stride + window */
    uint64_t token_hash;  /* of the tokens' bytes, seed 0 */
    uint64_t own_hash;    /* of the bytes before, seed 0 */
} app_logprobs_header;

_Static_assert(sizeof(app_logprobs_header) == 56, "the layout of the file");

/* The part of a header that says what the file is about. */
typedef struct app_logprobs_shape {
    uint32_t vocabulary, window, stride, first, window_count;
} app_logprobs_shape;

uint64_t app_logprobs_tokens(const app_logprobs_shape *s); /* of the text */
uint64_t app_logprobs_rows(const app_logprobs_shape *s);
uint64_t app_logprobs_row_bytes(const app_logprobs_shape *s);

/* Bytes of the file; 0: of no file that can be. */
uint64_t app_logprobs_bytes(const app_logprobs_shape *s);

/* --- writing ---------------------------------------------------------------------------------- */

enum { APP_LOGPROBS_PATH = 1536 };

/* The file is under another name until it is whole. */
typedef struct app_logprobs_writer {
    app_logprobs_shape shape;
    int fd;
    uint64_t rows; /* so far */
    char path[APP_LOGPROBS_PATH], fresh[APP_LOGPROBS_PATH];
    remat_error err; /* the first one; rows are ignored from then on */
} app_logprobs_writer;

/* Errors: REMAT_E_FAILED. */
int app_logprobs_create(app_logprobs_writer *w, const char *path, const app_logprobs_shape *shape,
                        const uint32_t *tokens, remat_error *err);

/* row: app_logprobs_row_bytes() of them, the values from byte 8 on; the hash is put before them. */
void app_logprobs_put(app_logprobs_writer *w, uint8_t *row);

/* Gives the file its name, once all rows are there. Errors: REMAT_E_FAILED: there is no file. */
int app_logprobs_finish(app_logprobs_writer *w, remat_error *err);
void app_logprobs_abandon(app_logprobs_writer *w); /* also after finish */

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct app_logprobs_reader {
    app_logprobs_shape shape;
    rm_file file;
    uint64_t token_hash, rows_at; /* where in the file */
} app_logprobs_reader;

/* Errors: REMAT_E_FAILED: no such file, none of these, damaged, cut off. */
int app_logprobs_open(app_logprobs_reader *r, const char *path, remat_error *err);
void app_logprobs_close(app_logprobs_reader *r);

/* app_logprobs_tokens() ids, each inside the vocabulary. */
int app_logprobs_read_tokens(uint32_t *out, const app_logprobs_reader *r, remat_error *err);

/* Row of this number, as it was given to app_logprobs_put(): no value is above 0 or not a number,
 * and the probabilities add up to 1. */
int app_logprobs_read_row(uint8_t *row, const app_logprobs_reader *r, uint64_t number,
                          remat_error *err);

#endif /* RM_APP_LOGPROBS_H */
