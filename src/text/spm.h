/*
 * spm.h: SentencePiece with scores (model "llama"). Part: text.
 *
 * Characters are joined pair by pair, the pair whose token scores highest first. A character that
 * is no token becomes the tokens of its bytes, or the unknown token where those are missing.
 */
#ifndef RM_TEXT_SPM_H
#define RM_TEXT_SPM_H

#include "text/merge.h"
#include "text/vocab.h"

typedef struct rm_spm {
    const rm_vocab *vocab;
    uint32_t byte_ids[256]; /* tokens of type byte */
    uint32_t unknown;       /* or RM_NO_TOKEN */
} rm_spm;

/* v is loaded. */
void rm_spm_load(rm_spm *s, const rm_vocab *v, uint32_t unknown);

size_t rm_spm_work_bytes(size_t text_bytes);

/* blank: one is put before the text. */
int rm_spm_tokenize(rm_ids *out, const rm_spm *s, const char *text, size_t bytes, bool blank,
                    void *work, remat_error *err);

#endif /* RM_TEXT_SPM_H */
