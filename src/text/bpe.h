/*
 * bpe.h: byte-level byte pair encoding (model "gpt2"). Part: text.
 *
 * Text is cut into pieces (pattern.h); a piece's bytes are joined pair by pair, in the order of the
 * file's list of merges. Bytes that are not UTF-8 are pieces of their own. Where the vocabulary is
 * one of normalized text (pattern.h, nfc), the text between them is normalized first.
 */
#ifndef RM_TEXT_BPE_H
#define RM_TEXT_BPE_H

#include "text/merge.h"
#include "text/pattern.h"
#include "text/vocab.h"

typedef struct rm_pair {
    uint32_t left, right;
    uint32_t rank1; /* rank + 1; 0: free */
    uint32_t joined;
} rm_pair;

typedef struct rm_bpe {
    const rm_vocab *vocab;
    rm_pair *pairs; /* a hash table */
    uint32_t pair_slots, merge_count;
    uint64_t factors[2]; /* of the hash, drawn anew, odd */
    uint32_t byte_ids[256];
    uint32_t replacement; /* token of U+FFFD: for bytes that the vocabulary has no token for */
    bool nfc;
    rm_patterns patterns;
} rm_bpe;

int rm_bpe_layout(rm_bpe *b, const rm_pattern_rule *rule, rm_ledger *l, const rm_gguf *g,
                  remat_error *err);

/* v is loaded. */
int rm_bpe_load(rm_bpe *b, rm_vocab *v, const rm_pattern_rule *rule, const rm_gguf *g,
                remat_error *err);
void rm_bpe_close(rm_bpe *b);

size_t rm_bpe_work_bytes(const rm_bpe *b, size_t text_bytes);
int rm_bpe_tokenize(rm_ids *out, const rm_bpe *b, const char *text, size_t bytes, void *work,
                    remat_error *err);

#endif /* RM_TEXT_BPE_H */
