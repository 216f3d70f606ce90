/*
 * tiny_model.h: a small model with seeded weights, written as a GGUF file in memory.
 *
 * It is a whole model of any architecture that runs here, with a tokenizer, small enough that a
 * thousand tokens pass in a few milliseconds. Weights are random but not tame: queries and keys are
 * large, so that attention depends on positions, and logits differ by a few units. The same
 * specification gives the same bytes on every machine.
 */
#ifndef RM_TESTS_TINY_MODEL_H
#define RM_TESTS_TINY_MODEL_H

#include "kernels/formats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TINY_KEYS_MAX = 8 };

/* A metadata key that is written instead of, or beside, the usual ones. */
typedef struct tiny_key {
    const char *name; /* the whole key; NULL ends the list */
    enum { TINY_U32, TINY_F32, TINY_TEXT, TINY_ABSENT } kind;
    uint32_t u32;
    float f32;
    const char *text;
} tiny_key;

/* A tensor that is not as it should be: for tests of refusals. */
typedef struct tiny_flaw {
    const char *tensor; /* its whole name; NULL: none */
    uint32_t dims[3];   /* it is written with these; all 0: left out */
} tiny_flaw;

typedef struct tiny_spec {
    const char *name;         /* for messages */
    const char *architecture; /* NULL: llama */
    uint32_t layer_count, dim, head_count, kv_head_count, head_dim, feed_forward;
    uint32_t vocabulary, context_count;
    rm_format embedding, output, qkv, wo, gate, up, down;
    rm_format vectors;  /* F32 or F16: norms, biases */
    bool tied;          /* the output matrix is the embedding */
    bool biases;        /* of Q, K and V */
    bool bpe;           /* a gpt2 vocabulary; else SentencePiece with byte tokens */
    float rope_factors; /* rope_freqs.weight: rises from 1 to this; 0: none */
    float rope_base;    /* 0: 10000 */
    uint32_t rope_dim;  /* 0: head_dim */
    bool head_norms;    /* of each head of Q and K */
    bool post_norms;    /* of what is added to the residual */
    bool fused;         /* Q, K, V in one tensor (in qkv's format), gate and up in another (up's) */
    uint32_t window, window_pattern;    /* keys of attention.sliding_window; 0: not written */
    uint32_t expert_count, expert_used; /* 0: dense; feed_forward is then an expert's */
    tiny_flaw flaw;
    uint64_t seed;
    tiny_key keys[TINY_KEYS_MAX];
} tiny_spec;

/* 3 layers, dim 64, 4 heads and 2 of KV, 300 tokens, context 4096, all in Q8_0. */
tiny_spec tiny_spec_default(void);

/* The specifications that the promises are tested with: every weight format, head shape, kind of
 * bias, factor and scaling at least once. NULL at the end. */
const tiny_spec *tiny_spec_all(size_t index);

/* One of each architecture, in f32 with the features that it is known for (and of some a second
 * with what is optional). NULL at the end. */
const tiny_spec *tiny_spec_architecture(size_t index);

/* All matrices in one format. */
void tiny_spec_format(tiny_spec *s, rm_format f);

/* Writes the model into a memory file. path: where it can be opened, also by a child process.
 * Returns the descriptor, to be closed by the caller, or -1. */
int tiny_model_open(char path[64], const tiny_spec *s);

/* count seeded token ids below vocabulary; control tokens (0 .. 2) are left out. */
void tiny_tokens(uint32_t *out, uint32_t count, uint32_t vocabulary, uint64_t seed);

#endif /* RM_TESTS_TINY_MODEL_H */
