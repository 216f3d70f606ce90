/*
 * buf.h: text into a buffer with a fixed cap. Part: base.
 *
 * With a flush function the buffer is a window onto something longer (a descriptor): it is emptied
 * when full. Without one, what does not fit is dropped and `truncated` is set.
 */
#ifndef RM_BASE_BUF_H
#define RM_BASE_BUF_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>

/* Takes count bytes; returns false when they are lost (then `failed` is set in the buffer). */
typedef bool rm_flush_fn(void *user, const char *bytes, size_t count);

typedef struct rm_buf {
    char *at;
    size_t cap, used;
    rm_flush_fn *flush; /* or NULL */
    void *user;
    bool truncated, failed;
} rm_buf;

void rm_buf_start(rm_buf *b, char *memory, size_t cap, rm_flush_fn *flush, void *user);
void rm_buf_put(rm_buf *b, const char *bytes, size_t count);
void rm_buf_text(rm_buf *b, const char *text); /* up to its NUL */
__attribute__((format(printf, 2, 3))) void rm_buf_format(rm_buf *b, const char *fmt, ...);
void rm_buf_flush(rm_buf *b); /* hands out what is held; nothing without a flush function */

#endif /* RM_BASE_BUF_H */
