/*
 * buf.c: see buf.h. Losses are sticky: once text has been cut or a flush has failed, later text is
 * dropped too, so that what is kept is always a beginning of what was written.
 */
#include "base/buf.h"

#include <stdio.h>
#include <string.h>

void rm_buf_start(rm_buf *b, char *memory, size_t cap, rm_flush_fn *flush, void *user) {
    RM_ASSERT(memory != NULL || cap == 0);
    RM_ASSERT(flush == NULL || cap > 0);
    *b = (rm_buf){.at = memory, .cap = cap, .flush = flush, .user = user};
}

void rm_buf_flush(rm_buf *b) {
    if (b->flush == NULL || b->used == 0) return;
    if (!b->failed && !b->flush(b->user, b->at, b->used)) b->failed = true;
    b->used = 0;
}

void rm_buf_put(rm_buf *b, const char *bytes, size_t count) {
    while (count > 0 && !b->failed && !b->truncated) {
        const size_t room = b->cap - b->used, part = count < room ? count : room;
        if (part > 0) memcpy(b->at + b->used, bytes, part);
        b->used += part;
        bytes += part;
        count -= part;
        if (count == 0) return;
        if (b->flush == NULL) {
            b->truncated = true;
        } else {
            rm_buf_flush(b);
        }
    }
}

void rm_buf_text(rm_buf *b, const char *text) {
    rm_buf_put(b, text, strlen(text));
}

/* Formats where the text will stay, for what is too long for the small array below. A window
 * cannot hold more than its cap of one call. */
static void format_in_place(rm_buf *b, size_t count, const char *fmt, va_list ap) {
    if (b->failed || b->truncated) return;
    if (count >= b->cap - b->used) rm_buf_flush(b);
    const size_t room = b->cap - b->used;
    if (room == 0) {
        b->truncated = true;
        return;
    }
    (void)vsnprintf(b->at + b->used, room, fmt, ap);
    b->truncated = count >= room; /* one byte went to the NUL */
    b->used += b->truncated ? room - 1 : count;
}

__attribute__((format(printf, 2, 3))) void rm_buf_format(rm_buf *b, const char *fmt, ...) {
    char small[512];
    va_list ap;
    va_start(ap, fmt);
    const int count = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    RM_ASSERT(count >= 0);
    if ((size_t)count < sizeof small) {
        rm_buf_put(b, small, (size_t)count);
        return;
    }
    va_start(ap, fmt);
    format_in_place(b, (size_t)count, fmt, ap);
    va_end(ap);
}
