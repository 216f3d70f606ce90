/*
 * special.h: finds control and user-defined tokens in raw text. Part: text.
 *
 * Leftmost first, the longest of those that start there. Where none starts it costs one bit test a
 * byte: which two bytes a token can start with. Elsewhere, one look-up for each length that tokens
 * with this first byte have.
 */
#ifndef RM_TEXT_SPECIAL_H
#define RM_TEXT_SPECIAL_H

#include "text/vocab.h"

enum { RM_SPECIAL_BYTES_MAX = 255 }; /* a longer one is refused */

/* One set for user-defined tokens only, one with control tokens as well. */
typedef struct rm_special_set {
    uint32_t count;
    uint64_t lengths[256][4]; /* by first byte: bit n is set when one of n bytes is there */
    uint64_t starts[1024];    /* 65536 bits, by the first two bytes */
} rm_special_set;

typedef struct rm_special {
    rm_special_set *sets; /* 2: [0] user-defined, [1] all */
} rm_special;

int rm_special_layout(rm_special *s, rm_ledger *l, remat_error *err);

/* Whether a token is looked for in raw text, at least where control tokens are. */
static inline bool rm_special_is(uint8_t flags) {
    const unsigned type = flags & RM_VOCAB_TYPE;
    return type == RM_TOKEN_USER || type == RM_TOKEN_CONTROL || type == RM_TOKEN_UNKNOWN;
}

/* v is loaded. */
int rm_special_load(rm_special *s, const rm_vocab *v, const rm_gguf *g, remat_error *err);

/* The next token in text from *at on: its id, place and length; or RM_NO_TOKEN. With marks (or
 * NULL), control tokens are those all of whose bytes are marked. */
uint32_t rm_special_next(const rm_special *s, const rm_vocab *v, bool control, const char *text,
                         const uint8_t *marks, size_t text_bytes, size_t *at, size_t *length);

#endif /* RM_TEXT_SPECIAL_H */
