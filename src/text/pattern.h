/*
 * pattern.h: cuts text into the pieces that byte-level BPE works on. Part: text.
 *
 * Each model family has its own cut: one or more patterns, applied in sequence, each one to the
 * pieces of the one before. Text that no match covers is a piece too. A pattern sees nothing but
 * its piece: a lookahead ends where the piece does.
 *
 * The patterns are PCRE2's, compiled to machine code where the system allows it, otherwise
 * interpreted. PCRE2 gets its memory from a fixed block of the ledger (for the patterns) and from
 * the caller's work memory (for matching), so several threads may cut at once; only the machine
 * code itself is mapped by PCRE2, some tens of KiB.
 */
#ifndef RM_TEXT_PATTERN_H
#define RM_TEXT_PATTERN_H

#include "base/ledger.h"

struct pcre2_real_code_8;

enum { RM_PATTERNS_MAX = 6 };

/* A way to cut, and what goes with it. */
typedef struct rm_pattern_rule {
    const char *name;   /* value of tokenizer.ggml.pre */
    bool ignore_merges; /* a piece that is a token is taken as it is */
    bool add_bos;       /* unless the file says otherwise */
    bool nfc;           /* text is brought into Unicode's normal form C first */
    bool strip_mask;    /* blanks before the token <mask> go away */
    const char *patterns[RM_PATTERNS_MAX];
} rm_pattern_rule;

/* The rule of that name, or NULL; rule number i, or NULL past the last. */
const rm_pattern_rule *rm_pattern_rule_find(const char *name);
const rm_pattern_rule *rm_pattern_rule_at(size_t i);

/* Memory that is handed out to PCRE2: blocks in a row, each with a header. */
typedef struct rm_arena {
    uint8_t *memory;
    size_t bytes;
} rm_arena;

typedef struct rm_patterns {
    rm_arena arena;
    struct pcre2_real_code_8 *codes[RM_PATTERNS_MAX];
    uint32_t count;
    bool compiled; /* to machine code: all of them */
} rm_patterns;

int rm_patterns_layout(rm_patterns *p, rm_ledger *l, remat_error *err);
int rm_patterns_load(rm_patterns *p, const rm_pattern_rule *rule, remat_error *err);
void rm_patterns_close(rm_patterns *p);

/* Work memory of rm_patterns_cut(), whatever the text, 64-byte aligned. */
size_t rm_patterns_work_bytes(const rm_patterns *p);

/* Gets the pieces in order; a failure ends the cutting and is passed up. */
typedef int rm_piece_fn(void *user, const char *piece, size_t bytes, remat_error *err);

/* text is valid UTF-8. */
int rm_patterns_cut(const rm_patterns *p, const char *text, size_t bytes, void *work,
                    rm_piece_fn *fn, void *user, remat_error *err);

#endif /* RM_TEXT_PATTERN_H */
