/*
 * spm.h: SentencePiece with scores (model "llama"). Part: text.
 *
 * Characters are joined pair by pair, the pair whose token scores highest first. A character that
 * is no token becomes the tokens of its bytes, or the unknown token where those are missing.
 *
 * Hardly a token has a blank behind another character: where none has it behind this one, the text
 * can be cut before the blank. Words are so joined one by one, and a word that was there before is
 * taken from the ids already written, also of other pieces of the text.
 */
#ifndef RM_TEXT_SPM_H
#define RM_TEXT_SPM_H

#include "text/merge.h"
#include "text/vocab.h"

typedef struct rm_spm {
    const rm_vocab *vocab;
    uint32_t byte_ids[256]; /* tokens of type byte */
    /* Tokens of one and of two characters of ASCII: half of all look-ups. */
    uint32_t ascii_ids[128];
    uint32_t (*pair_ids)[128];
    uint32_t unknown;  /* or RM_NO_TOKEN */
    uint64_t spans[4]; /* bit b: a token has a blank behind byte b */
} rm_spm;

int rm_spm_layout(rm_spm *s, rm_ledger *l, remat_error *err);

/* v is loaded. */
void rm_spm_load(rm_spm *s, const rm_vocab *v, uint32_t unknown);

typedef struct rm_spm_word rm_spm_word;

/* What is known while a text becomes tokens, piece by piece where special tokens part it. */
typedef struct rm_spm_work {
    rm_symbol *symbols;
    uint64_t *heap;
    rm_spm_word *words; /* seen in the pieces so far */
    uint32_t slots;
    uint32_t used; /* bytes of copy */
    char *copy;
} rm_spm_work;

/* Bytes of memory that rm_spm_begin() wants for a text, all of its pieces together. */
size_t rm_spm_work_bytes(size_t text_bytes);

/* memory: aligned to 64 bytes, the caller's; it must stay until the text is done. */
rm_spm_work rm_spm_begin(void *memory, size_t text_bytes);

/* The next piece of the text, all of whose tokens go to the same out. blank: one is put before it.
 */
int rm_spm_tokenize(rm_ids *out, const rm_spm *s, const char *text, size_t bytes, bool blank,
                    rm_spm_work *work, remat_error *err);

#endif /* RM_TEXT_SPM_H */
