/*
 * detok.h: tokens to text as they come, never half a character. Part: text.
 *
 * Bytes of an unfinished UTF-8 character are held back until it is complete or can no longer
 * become one. Stop texts are found across token borders: text that may still grow into a stop is
 * held back too. What comes out joined equals the bytes decoded at once, up to the first stop.
 */
#ifndef RM_TEXT_DETOK_H
#define RM_TEXT_DETOK_H

#include "text/tokenizer.h"

enum { RM_STOPS_MAX = 16, RM_STOP_BYTES_MAX = 256 };

typedef struct rm_detok {
    const rm_tokenizer *tokenizer;
    const char *stops[RM_STOPS_MAX]; /* the caller's; not empty */
    size_t stop_bytes[RM_STOPS_MAX];
    uint32_t stop_count;
    bool special, first, stopped;
    char *held; /* memory of rm_detok_bytes() */
    size_t held_bytes, held_cap;
} rm_detok;

/* Memory of a detokenizer for this vocabulary: the longest token, the longest stop, a character. */
size_t rm_detok_bytes(const rm_tokenizer *t);

void rm_detok_start(rm_detok *d, const rm_tokenizer *t, void *memory, bool special);

/* Errors: REMAT_E_USAGE (empty, too long, too many). */
int rm_detok_add_stop(rm_detok *d, const char *text, size_t bytes, remat_error *err);

/* Adds a token. *text, *bytes: what can be shown now (valid until the next call; may be empty).
 * d->stopped is set when a stop text is complete: the text then ends right before it. */
void rm_detok_put(rm_detok *d, uint32_t id, const char **text, size_t *bytes);

/* Hands out what is still held: the end of the text. */
void rm_detok_end(rm_detok *d, const char **text, size_t *bytes);

#endif /* RM_TEXT_DETOK_H */
