/* tokenizer_impl.h: the inside of rm_tokenizer. Part: text; for tokenizer.c and tests. */
#ifndef RM_TEXT_TOKENIZER_IMPL_H
#define RM_TEXT_TOKENIZER_IMPL_H

#include "text/bpe.h"
#include "text/special.h"
#include "text/spm.h"

struct rm_tokenizer {
    rm_vocab vocab;
    rm_special special;
    rm_bpe bpe; /* one of these two is in use: vocab.kind */
    rm_spm spm;
    const rm_pattern_rule *rule; /* BPE */
    int32_t bos, eos;            /* or RM_TOKEN_NONE */
    bool add_bos, add_eos;
    bool add_blank; /* SPM: a blank is put before text */
    size_t text_most;
};

#endif /* RM_TEXT_TOKENIZER_IMPL_H */
