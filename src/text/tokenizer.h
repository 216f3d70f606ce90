/*
 * tokenizer.h: text to token ids and back. Part: text.
 *
 * Two kinds: byte-level BPE (model "gpt2": bpe.c) and SentencePiece with scores and byte fallback
 * (model "llama": spm.c); others (bert, t5, rwkv, gemma4, ..) are refused by name. The data is a
 * GGUF file's metadata; what the tokenizer keeps of it is carved from the ledger (account text).
 *
 * Text is bytes: it may hold NULs and need not be valid UTF-8. Time is linear in its length, up to
 * a logarithm; the stack used does not depend on it. Control tokens are made of text only where
 * the caller says so: a user's text never becomes one.
 */
#ifndef RM_TEXT_TOKENIZER_H
#define RM_TEXT_TOKENIZER_H

#include "gguf/file.h"

enum {
    RM_TOKEN_NONE = -1,
    /* Flags of rm_tokenize(). */
    RM_TOKENIZE_SPECIAL = 1, /* control tokens in the text are recognized */
    RM_TOKENIZE_BOS = 2,     /* begin-of-text first, where the model wants one; end where it does */
    RM_TOKENIZE_ONE_BOS = 4, /* with it: not a second one before a text that begins with it */
};

/* GGUF's numbers of token types. */
typedef enum rm_token_type {
    RM_TOKEN_NORMAL = 1,
    RM_TOKEN_UNKNOWN = 2,
    RM_TOKEN_CONTROL = 3,
    RM_TOKEN_USER = 4,
    RM_TOKEN_UNUSED = 5,
    RM_TOKEN_BYTE = 6
} rm_token_type;

typedef struct rm_tokenizer rm_tokenizer;

/* Bytes that the tokenizer of this file will carve follow from the file's index alone:
 * rm_tokenizer_layout() runs on a measuring ledger and on a real one. *t is set by the caller to
 * a zeroed struct of rm_tokenizer_bytes() bytes. Errors: REMAT_E_MODEL (a missing or contradictory
 * key, named, with both numbers), REMAT_E_BUDGET. */
size_t rm_tokenizer_bytes(void);
int rm_tokenizer_layout(rm_tokenizer *t, rm_ledger *l, const rm_gguf *g, remat_error *err);

/* What a caller may want otherwise than the file says. All zero: nothing. */
typedef struct rm_tokenizer_options {
    const char *pre; /* name of the way to cut text, in place of tokenizer.ggml.pre */
} rm_tokenizer_options;

/* rm_tokenizer_layout() with options (or NULL). Further errors: REMAT_E_USAGE (an unknown name, or
 * a vocabulary that does not cut text). */
int rm_tokenizer_layout_with(rm_tokenizer *t, rm_ledger *l, const rm_gguf *g,
                             const rm_tokenizer_options *options, remat_error *err);

/* Reads the vocabulary and builds the tables. */
int rm_tokenizer_load(rm_tokenizer *t, const rm_gguf *g, remat_error *err);

/* Gives back what is not memory of the ledger (compiled patterns). */
void rm_tokenizer_close(rm_tokenizer *t);

/* Work memory of a call for text of so many bytes, 64-byte aligned. */
size_t rm_tokenize_work_bytes(const rm_tokenizer *t, size_t text_bytes);

/* Writes the ids of text to out, which has room for text_bytes + 2, and their number to *count.
 * flags: RM_TOKENIZE_*. Errors: REMAT_E_FAILED (a byte without a token; a text of rare characters
 * that grows in normal form until it has more tokens than bytes). */
int rm_tokenize(uint32_t *out, size_t *count, const rm_tokenizer *t, const char *text,
                size_t text_bytes, unsigned flags, void *work, remat_error *err);

/* The same for a text of mixed origin: control tokens are recognized where all bytes have a mark
 * other than 0 (marks: text_bytes of them). No begin or end token is added. */
int rm_tokenize_marked(uint32_t *out, size_t *count, const rm_tokenizer *t, const char *text,
                       const uint8_t *marks, size_t text_bytes, void *work, remat_error *err);

uint32_t rm_tokenizer_vocabulary(const rm_tokenizer *t);
rm_token_type rm_token_type_of(const rm_tokenizer *t, uint32_t id);
int32_t rm_token_bos(const rm_tokenizer *t); /* or RM_TOKEN_NONE */
int32_t rm_token_eos(const rm_tokenizer *t);

/* Ids at and above the vocabulary (a model's embedding may be padded) are unused tokens without
 * text for all functions here. */

/* Whether generation ends at this token: end of text, of turn or of message, by id or by name. */
bool rm_token_is_end(const rm_tokenizer *t, uint32_t id);

/* The id of a token with exactly this text in the file, or RM_TOKEN_NONE. */
int32_t rm_token_find(const rm_tokenizer *t, const char *text, size_t bytes);

/* A token's text as bytes. Control tokens give their name when `special`, else nothing. first:
 * whether it opens the text (SentencePiece then drops the blank it has put there itself).
 * Returns how many bytes the token has, and writes at most cap of them. */
size_t rm_token_text(char *out, size_t cap, const rm_tokenizer *t, uint32_t id, bool special,
                     bool first);

/* The longest rm_token_text() of this vocabulary. */
size_t rm_token_text_most(const rm_tokenizer *t);

#endif /* RM_TEXT_TOKENIZER_H */
