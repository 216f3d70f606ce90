/*
 * limits.h: every fixed limit of the program, and what must hold between them. Part: base.
 *
 * Sizes that depend on a model or a command are not here: they are computed from it (see the
 * layout functions). A limit is here when something is an array, or when a file that asks for
 * more is refused.
 */
#ifndef RM_BASE_LIMITS_H
#define RM_BASE_LIMITS_H

#include <stdint.h>

enum {
    RM_THREADS_MAX = 64,
    RM_CHUNK_ROWS_MAX = 512, /* rows that go through a layer together */
    RM_PAGE_TOKENS = 64,     /* tokens of a KV page: one block of the online softmax */
    RM_SPAN_TOKENS = 1024,   /* attention is cut here, at fixed positions, and combined in order */
    RM_SPAN_PAGES = RM_SPAN_TOKENS / RM_PAGE_TOKENS,
    RM_HEAD_DIM_MAX = 512, /* widest attention head */
    RM_WIDTH_MAX = 65536,  /* widest k of a matrix product */
    RM_LAYERS_MAX = 1024,
    RM_HEADS_MAX = 1024,
    RM_VOCABULARY_MAX = 1 << 22,
    RM_CONTEXT_MAX = 1 << 24, /* positions: angles stay exact to 2^-29 up to here (rope.c) */
    RM_SEQUENCES_MAX = 256,
    RM_EXPERTS_MAX = 1024,

    RM_GGUF_KEYS_MAX = 1 << 16,    /* metadata keys of a file */
    RM_GGUF_TENSORS_MAX = 1 << 17, /* tensors of a file */
    RM_GGUF_NAME_MAX = 127,        /* bytes of a tensor's name, or of a key that is looked up */
    RM_GGUF_DIMS_MAX = 4,
    RM_GGUF_PARTS_MAX = 1000, /* files of a split model: each takes a descriptor */

    RM_STACK_BYTES = 512 << 10, /* of a worker thread; frames are under 8 KiB, see the Makefile */
};

/* Pages that hold so many tokens of a layer. */
static inline uint32_t rm_columns(uint32_t tokens) {
    return tokens / RM_PAGE_TOKENS + (tokens % RM_PAGE_TOKENS > 0);
}

_Static_assert(RM_SPAN_TOKENS % RM_PAGE_TOKENS == 0, "a span is whole pages");
_Static_assert(RM_CHUNK_ROWS_MAX % 16 == 0, "a chunk is whole groups of rows");

#endif /* RM_BASE_LIMITS_H */
