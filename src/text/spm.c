/* spm.c: see spm.h. */
#include "text/spm.h"
#include "text/utf8.h"

#include <string.h>

void rm_spm_load(rm_spm *s, const rm_vocab *v, uint32_t unknown) {
    s->vocab = v;
    s->unknown = unknown;
    for (unsigned i = 0; i < 256; i++)
        s->byte_ids[i] = RM_NO_TOKEN;
    for (uint32_t id = 0; id < v->count; id++) {
        size_t n;
        const char *text = rm_vocab_bytes(v, id, &n);
        if ((v->flags[id] & RM_VOCAB_TYPE) != RM_TOKEN_BYTE) continue;
        s->byte_ids[rm_vocab_byte(text, n)] = id;
    }
}

typedef struct joining {
    const rm_spm *spm;
    const char *text;
} joining;

/* A rank that falls as the score grows: the bits of a float, made to sort as unsigned numbers.
 * The largest means "never" to the caller; only a NaN has it. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    if (score == 0.0f) score = 0.0f; /* -0 is no better */
    memcpy(&bits, &score, sizeof bits);
    const uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    const uint32_t rank = ~rising;
    return rank == (uint32_t)RM_MERGE_NEVER ? rank - 1 : rank;
}

/* The plain class holds neither control nor byte tokens: text that spells one stays text. */
static bool pair_worth(const void *user, const rm_symbol *s, uint32_t left, uint32_t right,
                       uint32_t *rank, uint32_t *joined) {
    const joining *j = user;
    const rm_vocab *v = j->spm->vocab;
    const uint32_t id = rm_vocab_lookup(v, j->text + left, s[right].next - left, true);
    if (id == RM_NO_TOKEN) return false;
    *rank = rank_of(v->scores[id]);
    *joined = id;
    return true;
}

static int put(rm_ids *out, uint32_t id, remat_error *err) {
    return rm_ids_put(out, id) ? REMAT_OK : rm_ids_full(out, err);
}

/* A character without a token. */
static int put_bytes(rm_ids *out, const rm_spm *s, const char *text, size_t bytes,
                     remat_error *err) {
    bool all = true;
    for (size_t i = 0; i < bytes; i++)
        all = all && s->byte_ids[(uint8_t)text[i]] != RM_NO_TOKEN;
    if (!all && s->unknown == RM_NO_TOKEN) {
        return rm_fail(err, REMAT_E_FAILED,
                       "tokenizer: the text holds byte 0x%02X, which has no token in this "
                       "vocabulary; take it out",
                       (unsigned)(uint8_t)text[0]);
    }
    if (!all) return put(out, s->unknown, err);
    for (size_t i = 0; i < bytes; i++)
        RM_TRY(put(out, s->byte_ids[(uint8_t)text[i]], err));
    return REMAT_OK;
}

static size_t round64(size_t n) {
    return (n + 63) / 64 * 64;
}

/* Work memory: symbols | heap | the text with its blanks; one byte more than the text has. */
size_t rm_spm_work_bytes(size_t text_bytes) {
    const size_t n = text_bytes + 1;
    return round64(n * sizeof(rm_symbol)) + round64(rm_merge_heap_count(n) * sizeof(uint64_t)) + n;
}

/* U+2581 in the text is a blank too: SentencePiece cannot tell them apart. */
static uint32_t copy_text(char *out, const char *text, size_t bytes, bool blank) {
    uint32_t n = 0;
    if (blank) out[n++] = ' ';
    for (size_t i = 0; i < bytes;) {
        if (bytes - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text[i++];
        }
    }
    return n;
}

int rm_spm_tokenize(rm_ids *out, const rm_spm *s, const char *text, size_t bytes, bool blank,
                    void *work, remat_error *err) {
    const size_t most = bytes + 1;
    rm_symbol *symbols = work;
    uint64_t *heap = (uint64_t *)((uint8_t *)work + round64(most * sizeof(rm_symbol)));
    char *copy = (char *)heap + round64(rm_merge_heap_count(most) * sizeof *heap);
    const uint32_t end = copy_text(copy, text, bytes, blank);
    for (uint32_t i = 0, prev = (uint32_t)RM_MERGE_NEVER; i < end;) {
        const int n = rm_utf8_next(copy + i, end - i);
        const uint32_t length = n > 0 ? (uint32_t)n : 1; /* a stray byte is a symbol */
        const uint32_t id = rm_vocab_lookup(s->vocab, copy + i, length, true);
        symbols[i] = (rm_symbol){.id = id, .prev = prev, .next = i + length};
        prev = i;
        i += length;
    }
    const joining j = {.spm = s, .text = copy};
    rm_merge(symbols, end, heap, pair_worth, &j);
    for (uint32_t i = 0; i != end; i = symbols[i].next) {
        if (symbols[i].id != RM_NO_TOKEN) {
            RM_TRY(put(out, symbols[i].id, err));
        } else {
            RM_TRY(put_bytes(out, s, copy + i, symbols[i].next - i, err));
        }
    }
    return REMAT_OK;
}
