/* spm.c: see spm.h. */
#include "text/spm.h"
#include "text/utf8.h"
#include "base/hash.h"

#include <string.h>

enum {
    SHORT = 64, /* bytes of a word that is joined in arrays on the stack, by searching them */
    SEEN_MOST = 16384, /* words remembered, 320 KiB */
};

static void add_spans(rm_spm *s, const char *text, size_t n) {
    for (size_t i = 1; i < n; i++) {
        const uint8_t before = (uint8_t)text[i - 1];
        if (text[i] == ' ' && before != ' ') s->spans[before / 64] |= 1ull << before % 64;
    }
}

int rm_spm_layout(rm_spm *s, rm_ledger *l, remat_error *err) {
    return rm_ledger_carve(&s->pair_ids, l, RM_ACCOUNT_TEXT, 128, sizeof *s->pair_ids, err);
}

static void load_ascii(rm_spm *s, const rm_vocab *v) {
    for (unsigned i = 0; i < 128; i++) {
        char text[2] = {(char)i};
        s->ascii_ids[i] = rm_vocab_lookup(v, text, 1, true);
        for (unsigned k = 0; k < 128; k++) {
            text[1] = (char)k;
            s->pair_ids[i][k] = rm_vocab_lookup(v, text, 2, true);
        }
    }
}

void rm_spm_load(rm_spm *s, const rm_vocab *v, uint32_t unknown) {
    s->vocab = v;
    s->unknown = unknown;
    for (unsigned i = 0; i < 256; i++)
        s->byte_ids[i] = RM_NO_TOKEN;
    load_ascii(s, v);
    for (uint32_t id = 0; id < v->count; id++) {
        size_t n;
        const char *text = rm_vocab_bytes(v, id, &n);
        if ((v->flags[id] & RM_VOCAB_TYPE) == RM_TOKEN_BYTE) {
            s->byte_ids[rm_vocab_byte(text, n)] = id;
        } else if ((v->flags[id] & RM_VOCAB_PLAIN) != 0) {
            add_spans(s, text, n);
        }
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

/* ---- a word */

/* A word that was there before: where, and which ids it gave. */
struct rm_spm_word {
    uint32_t tag; /* of its hash */
    uint32_t at, bytes;
    uint32_t ids_at, ids; /* 0 ids: free */
};

typedef struct tokenizing {
    const rm_spm *spm;
    rm_ids *out;
    const rm_spm_work *work;
} tokenizing;

static inline uint32_t id_of(const rm_spm *s, const char *text, uint32_t length) {
    if (length == 1 && (uint8_t)text[0] < 128) return s->ascii_ids[(uint8_t)text[0]];
    return rm_vocab_lookup(s->vocab, text, length, true);
}

/* Bytes of the character there; a stray byte is a symbol too. */
static inline uint32_t length_at(const char *text, size_t n) {
    const int length = rm_utf8_next(text, n);
    return length > 0 ? (uint32_t)length : 1;
}

typedef struct pairs {
    uint32_t ids[SHORT], at[SHORT + 1]; /* symbol i is [at[i], at[i + 1]) */
    uint32_t ranks[SHORT], joined[SHORT];
} pairs;

static void weigh(pairs *p, const rm_spm *s, const char *text, uint32_t i, uint32_t count) {
    p->ranks[i] = (uint32_t)RM_MERGE_NEVER;
    if (i + 1 >= count) return;
    const uint8_t *u = (const uint8_t *)text + p->at[i];
    const uint32_t bytes = p->at[i + 2] - p->at[i];
    const uint32_t id = bytes == 2 && u[0] < 128 && u[1] < 128
                            ? s->pair_ids[u[0]][u[1]]
                            : rm_vocab_lookup(s->vocab, text + p->at[i], bytes, true);
    if (id == RM_NO_TOKEN) return;
    p->ranks[i] = rank_of(s->vocab->scores[id]);
    p->joined[i] = id;
}

static int put_short(const tokenizing *t, const char *text, uint32_t bytes, remat_error *err) {
    pairs p;
    uint32_t count = 0;
    for (uint32_t i = 0; i < bytes; count++) {
        const uint32_t length = length_at(text + i, bytes - i);
        p.ids[count] = id_of(t->spm, text + i, length);
        p.at[count] = i;
        i += length;
    }
    p.at[count] = bytes;
    for (uint32_t i = 0; i < count; i++)
        weigh(&p, t->spm, text, i, count);
    for (;;) {
        uint32_t best = 0, least = (uint32_t)RM_MERGE_NEVER;
        for (uint32_t i = 0; i + 1 < count; i++) {
            if (p.ranks[i] < least) least = p.ranks[best = i];
        }
        if (least == (uint32_t)RM_MERGE_NEVER) break;
        p.ids[best] = p.joined[best];
        count--;
        for (uint32_t i = best + 1; i < count; i++) {
            p.ids[i] = p.ids[i + 1];
            p.ranks[i] = p.ranks[i + 1];
            p.joined[i] = p.joined[i + 1];
        }
        memmove(p.at + best + 1, p.at + best + 2, (count - best) * sizeof p.at[0]);
        weigh(&p, t->spm, text, best, count);
        if (best > 0) weigh(&p, t->spm, text, best - 1, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (p.ids[i] != RM_NO_TOKEN)
            RM_TRY(put(t->out, p.ids[i], err));
        else
            RM_TRY(put_bytes(t->out, t->spm, text + p.at[i], p.at[i + 1] - p.at[i], err));
    }
    return REMAT_OK;
}

static int put_long(const tokenizing *t, const char *text, uint32_t bytes, remat_error *err) {
    rm_symbol *symbols = t->work->symbols;
    for (uint32_t i = 0, prev = (uint32_t)RM_MERGE_NEVER; i < bytes;) {
        const uint32_t length = length_at(text + i, bytes - i);
        const uint32_t id = id_of(t->spm, text + i, length);
        symbols[i] = (rm_symbol){.id = id, .prev = prev, .next = i + length};
        prev = i;
        i += length;
    }
    const joining j = {.spm = t->spm, .text = text};
    rm_merge(symbols, bytes, t->work->heap, pair_worth, &j);
    for (uint32_t i = 0; i != bytes; i = symbols[i].next) {
        if (symbols[i].id != RM_NO_TOKEN)
            RM_TRY(put(t->out, symbols[i].id, err));
        else
            RM_TRY(put_bytes(t->out, t->spm, text + i, symbols[i].next - i, err));
    }
    return REMAT_OK;
}

static int put_word(const tokenizing *t, uint32_t at, uint32_t bytes, remat_error *err) {
    const rm_spm_work *w = t->work;
    const char *text = w->copy + at;
    const uint64_t h = rm_hash(text, bytes, t->spm->vocab->seed);
    rm_spm_word *s = &w->words[(h >> 32) * w->slots >> 32];
    if (s->ids > 0 && s->tag == (uint32_t)h && s->bytes == bytes &&
        memcmp(w->copy + s->at, text, bytes) == 0) {
        for (uint32_t i = 0; i < s->ids; i++)
            RM_TRY(put(t->out, t->out->at[s->ids_at + i], err));
        return REMAT_OK;
    }
    const uint32_t first = (uint32_t)t->out->count;
    RM_TRY(bytes <= SHORT ? put_short(t, text, bytes, err) : put_long(t, text, bytes, err));
    *s = (rm_spm_word){.tag = (uint32_t)h, .at = at, .bytes = bytes, .ids_at = first};
    s->ids = (uint32_t)t->out->count - first;
    return REMAT_OK;
}

/* ---- a text */

static uint32_t seen_slots(size_t text_bytes) {
    return text_bytes / 4 < SEEN_MOST ? (uint32_t)(text_bytes / 4) + 1 : SEEN_MOST;
}

/* Symbols | heap | words seen | the text with its blanks: one at the start and one for each token,
 * of a byte at least, that parts it. */
size_t rm_spm_work_bytes(size_t text_bytes) {
    const size_t n = text_bytes + 1;
    return round64(n * sizeof(rm_symbol)) + round64(rm_merge_heap_count(n) * sizeof(uint64_t)) +
           round64(seen_slots(text_bytes) * sizeof(rm_spm_word)) + n;
}

rm_spm_work rm_spm_begin(void *memory, size_t text_bytes) {
    const size_t n = text_bytes + 1;
    uint8_t *at = memory;
    rm_spm_work w = {.symbols = memory, .slots = seen_slots(text_bytes)};
    at += round64(n * sizeof(rm_symbol));
    w.heap = (uint64_t *)at;
    at += round64(rm_merge_heap_count(n) * sizeof(uint64_t));
    w.words = (rm_spm_word *)at;
    memset(w.words, 0, w.slots * sizeof *w.words);
    at += round64(w.slots * sizeof *w.words);
    w.copy = (char *)at;
    return w;
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

/* Where the word at i ends: blanks, what is no blank, and more of both where a token may span. */
static uint32_t word_end(const rm_spm *s, const char *text, uint32_t i, uint32_t end) {
    for (i++; i < end; i++) {
        const uint8_t before = (uint8_t)text[i - 1];
        if (text[i] == ' ' && before != ' ' && (s->spans[before / 64] >> before % 64 & 1) == 0)
            break;
    }
    return i;
}

int rm_spm_tokenize(rm_ids *out, const rm_spm *s, const char *text, size_t bytes, bool blank,
                    rm_spm_work *work, remat_error *err) {
    const tokenizing t = {.spm = s, .out = out, .work = work};
    uint32_t i = work->used;
    const uint32_t end = work->used = i + copy_text(work->copy + i, text, bytes, blank);
    while (i < end) {
        const uint32_t next = word_end(s, work->copy, i, end);
        RM_TRY(put_word(&t, i, next - i, err));
        i = next;
    }
    return REMAT_OK;
}
