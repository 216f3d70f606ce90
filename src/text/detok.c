/*
 * detok.c: see detok.h.
 *
 * Memory is two halves: the bytes held back, and those handed out last. A token is added to the
 * first; then as much of its start as can no longer change goes to the second.
 */
#include "text/detok.h"
#include "text/utf8.h"

#include <string.h>

/* Held at most: a start of a stop, a start of a character before it, and the new token. */
static size_t half(const rm_tokenizer *t) {
    return RM_STOP_BYTES_MAX + 4 + rm_token_text_most(t);
}

size_t rm_detok_bytes(const rm_tokenizer *t) {
    return 2 * half(t);
}

void rm_detok_start(rm_detok *d, const rm_tokenizer *t, void *memory, bool special) {
    *d = (rm_detok){.tokenizer = t, .special = special, .first = true};
    d->held = memory;
    d->held_cap = half(t);
}

int rm_detok_add_stop(rm_detok *d, const char *text, size_t bytes, remat_error *err) {
    if (bytes == 0) return rm_fail(err, REMAT_E_USAGE, "stop: a stop text is empty");
    if (bytes > RM_STOP_BYTES_MAX) {
        return rm_fail(err, REMAT_E_USAGE, "stop: a stop text has %zu bytes; %d are possible",
                       bytes, (int)RM_STOP_BYTES_MAX);
    }
    if (d->stop_count == RM_STOPS_MAX) {
        return rm_fail(err, REMAT_E_USAGE, "stop: more than %d stop texts", (int)RM_STOPS_MAX);
    }
    d->stops[d->stop_count] = text;
    d->stop_bytes[d->stop_count++] = bytes;
    return REMAT_OK;
}

/* The stop that is complete first, of several the longest: what is cut off does not depend on
 * where tokens end. True: it begins at *at. */
static bool find_stop(const rm_detok *d, size_t *at) {
    size_t first_end = SIZE_MAX;
    for (uint32_t s = 0; s < d->stop_count; s++) {
        const char *hit = memmem(d->held, d->held_bytes, d->stops[s], d->stop_bytes[s]);
        if (hit == NULL) continue;
        const size_t start = (size_t)(hit - d->held), end = start + d->stop_bytes[s];
        if (end < first_end || (end == first_end && start < *at)) {
            first_end = end;
            *at = start;
        }
    }
    return first_end != SIZE_MAX;
}

/* Where the longest end of what is held begins that may still grow into a stop. */
static size_t stop_start(const rm_detok *d) {
    size_t least = d->held_bytes;
    for (uint32_t s = 0; s < d->stop_count; s++) {
        const size_t most =
            d->stop_bytes[s] - 1 < d->held_bytes ? d->stop_bytes[s] - 1 : d->held_bytes;
        for (size_t i = d->held_bytes - most; i < least; i++) {
            if (memcmp(d->held + i, d->stops[s], d->held_bytes - i) == 0) least = i;
        }
    }
    return least;
}

/* The largest place up to n where no character is cut: one that lies across n, or may still grow
 * past the end of what is held, stays whole. Its first byte is at most 3 before. */
static size_t whole_characters(const rm_detok *d, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const size_t at = n - back;
        if (((uint8_t)d->held[at] & 0xC0) == 0x80) continue; /* not a first byte */
        const int length = rm_utf8_next(d->held + at, d->held_bytes - at);
        return length == RM_UTF8_CUT || length > (int)back ? at : n;
    }
    return n;
}

static void hand_out(rm_detok *d, size_t n, const char **text, size_t *bytes) {
    char *out = d->held + d->held_cap;
    memcpy(out, d->held, n);
    memmove(d->held, d->held + n, d->held_bytes - n);
    d->held_bytes -= n;
    *text = out;
    *bytes = n;
}

void rm_detok_put(rm_detok *d, uint32_t id, const char **text, size_t *bytes) {
    if (d->stopped) {
        hand_out(d, 0, text, bytes);
        return;
    }
    const size_t room = d->held_cap - d->held_bytes;
    const size_t n =
        rm_token_text(d->held + d->held_bytes, room, d->tokenizer, id, d->special, d->first);
    RM_ASSERT(n <= room);
    d->held_bytes += n;
    /* The tokenizer puts a blank before text at the start and after a special token. */
    const rm_token_type type = rm_token_type_of(d->tokenizer, id);
    d->first = type == RM_TOKEN_CONTROL || type == RM_TOKEN_USER;

    size_t at = 0;
    if (find_stop(d, &at)) {
        d->stopped = true;
        d->held_bytes = at;
        hand_out(d, at, text, bytes);
        return;
    }
    hand_out(d, whole_characters(d, stop_start(d)), text, bytes);
}

void rm_detok_end(rm_detok *d, const char **text, size_t *bytes) {
    hand_out(d, d->held_bytes, text, bytes);
}
