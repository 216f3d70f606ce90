/*
 * vocab.h: the tokens of a vocabulary: text, type, score, and a table to find them. Part: text.
 *
 * A file writes most tokens in a disguise that has no blanks and no control characters: byte-level
 * BPE maps each byte to a printable character, SentencePiece writes U+2581 for a blank. Such tokens
 * are kept without it ("plain": the bytes they stand for, which is what text is made of); control
 * tokens, user-defined ones and those that do not follow the rule are kept as they are in the file.
 * The two classes are found apart, so a blank of the text never becomes a control token named " ".
 */
#ifndef RM_TEXT_VOCAB_H
#define RM_TEXT_VOCAB_H

#include "text/tokenizer.h"

typedef enum rm_vocab_kind { RM_VOCAB_BPE, RM_VOCAB_SPM } rm_vocab_kind;

#define RM_NO_TOKEN UINT32_MAX

/* Bits of rm_vocab.flags. */
enum {
    RM_VOCAB_TYPE = 7,     /* rm_token_type */
    RM_VOCAB_PLAIN = 8,    /* kept without the disguise */
    RM_VOCAB_WHOLE = 16,   /* BPE: merging the token's own bytes gives this token */
    RM_VOCAB_END = 32,     /* generation ends here */
    RM_VOCAB_LSTRIP = 64,  /* blanks before it, where it is found in text, go away */
    RM_VOCAB_RSTRIP = 128, /* those after it */
};

enum { RM_VOCAB_FIND_MAX = 2048 }; /* bytes of a disguised text that can be looked up */

typedef struct rm_slot {
    uint32_t tag; /* of the text's hash: spares most comparisons */
    uint32_t id1; /* id + 1; 0: free */
} rm_slot;

typedef struct rm_vocab {
    rm_vocab_kind kind;
    uint32_t count, slot_count, blob_bytes;
    uint32_t longest, longest_plain; /* bytes of a token */
    uint64_t seed;                   /* of the hashes, drawn anew: a file cannot make them slow */
    char *blob;
    uint32_t *at;   /* count + 1: token i is blob[at[i] .. at[i + 1]) */
    uint8_t *flags; /* count */
    float *scores;  /* count; SPM only */
    rm_slot *slots;
} rm_vocab;

/* Checks the keys' types and lengths and carves; from the index alone. */
int rm_vocab_layout(rm_vocab *v, rm_vocab_kind kind, rm_ledger *l, const rm_gguf *g,
                    remat_error *err);
int rm_vocab_load(rm_vocab *v, const rm_gguf *g, remat_error *err);

/* A list of 1 to RM_VOCABULARY_MAX strings; a missing key is an error. */
int rm_vocab_strings(const rm_gguf_kv **out, const rm_gguf *g, const char *key, remat_error *err);

/* The token with these bytes, in the class asked for, or RM_NO_TOKEN. */
uint32_t rm_vocab_lookup(const rm_vocab *v, const char *bytes, size_t count, bool plain);

/* The token with this text in the file, or RM_NO_TOKEN. */
uint32_t rm_vocab_find(const rm_vocab *v, const char *text, size_t count);

/* Takes the disguise off; out has room for count bytes and may be text. False (nothing written)
 * when text does not follow the rule. */
bool rm_vocab_plain(char *out, size_t *bytes, rm_vocab_kind kind, const char *text, size_t count);

/* The value of a token of type byte, written <0xHH>, or -1. */
int rm_vocab_byte(const char *text, size_t count);

/* Whether a token may come out of text that is not to be searched for control tokens. */
static inline bool rm_vocab_is_text(uint8_t flags) {
    const unsigned type = flags & RM_VOCAB_TYPE;
    return type != RM_TOKEN_CONTROL && type != RM_TOKEN_UNKNOWN;
}

static inline const char *rm_vocab_bytes(const rm_vocab *v, uint32_t id, size_t *count) {
    *count = v->at[id + 1] - v->at[id];
    return v->blob + v->at[id];
}

/* Where tokens are written to. */
typedef struct rm_ids {
    uint32_t *at;
    size_t count, cap;
} rm_ids;

static inline bool rm_ids_put(rm_ids *out, uint32_t id) {
    if (out->count == out->cap) return false;
    out->at[out->count++] = id;
    return true;
}

/* The failure of rm_ids_put(). */
int rm_ids_full(const rm_ids *out, remat_error *err);

#endif /* RM_TEXT_VOCAB_H */
