/*
 * spm.h: SentencePiece with scores (model "llama"). Part: text.
 *
 * Characters are joined pair by pair, the pair whose token scores highest first. A character that
 * is no token becomes the tokens of its bytes, or the unknown token where those are missing.
 *
 * Hardly a token has a blank behind another character: where none has it behind this one, the text
 * can be cut before the blank. Words are so joined one by one, and a word that was there before is
 * taken from the ids already written.
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

size_t rm_spm_work_bytes(size_t text_bytes);

/* blank: one is put before the text. */
int rm_spm_tokenize(rm_ids *out, const rm_spm *s, const char *text, size_t bytes, bool blank,
                    void *work, remat_error *err);

#endif /* RM_TEXT_SPM_H */
