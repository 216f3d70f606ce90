/*
 * bpe.c: see bpe.h.
 *
 * Merges work on token ids, not on text: a hash table gives for a pair of ids its rank and the id
 * of both joined. Most pieces are a whole token, and for those one look-up is enough: when the file
 * is read, every token is put together from its own bytes once, and marked when that gives the
 * token itself. (It need not: a vocabulary may hold tokens that no order of merges reaches.)
 */
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/utf8.h"
#include "base/random.h"

#include <string.h>

enum {
    SHORT = 64, /* bytes of a piece that is joined in arrays on the stack, by searching them */
    MERGE_BYTES_MAX = RM_VOCAB_FIND_MAX,
    LONGER = 256, /* than the text: what its longest piece may be in normal form */
};

static const char MERGES[] = "tokenizer.ggml.merges";

/* ---- pairs */

static uint32_t pair_slot(const rm_bpe *b, uint32_t left, uint32_t right) {
    /* Multiply-shift with random factors: no list of merges is slow on purpose. */
    const uint64_t h = left * b->factors[0] + right * b->factors[1];
    return (uint32_t)((h >> 32) * b->pair_slots >> 32);
}

static inline const rm_pair *pair_find(const rm_bpe *b, uint32_t left, uint32_t right) {
    for (uint32_t i = pair_slot(b, left, right);; i = i + 1 == b->pair_slots ? 0 : i + 1) {
        const rm_pair *p = &b->pairs[i];
        if (p->rank1 == 0) return NULL;
        if (p->left == left && p->right == right) return p;
    }
}

/* Of two equal pairs the first counts. */
static void pair_add(rm_bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t joined) {
    uint32_t i = pair_slot(b, left, right);
    for (; b->pairs[i].rank1 != 0; i = i + 1 == b->pair_slots ? 0 : i + 1) {
        if (b->pairs[i].left == left && b->pairs[i].right == right) return;
    }
    b->pairs[i] = (rm_pair){.left = left, .right = right, .rank1 = rank + 1, .joined = joined};
}

/* ---- joining a piece */

/* Ids of bytes -> ids of tokens, in place; returns how many. */
static size_t join_short(const rm_bpe *b, uint32_t *ids, size_t count) {
    uint32_t ranks[SHORT], joined[SHORT]; /* of the pair that starts there; rank + 1 or 0 */
    for (size_t i = 0; i + 1 < count; i++) {
        const rm_pair *p = pair_find(b, ids[i], ids[i + 1]);
        ranks[i] = p ? p->rank1 : 0;
        joined[i] = p ? p->joined : 0;
    }
    while (count > 1) {
        size_t best = 0;
        uint32_t least = UINT32_MAX; /* rank 0 wraps to the largest: "none" needs no test */
        for (size_t i = 0; i + 1 < count; i++) {
            if (ranks[i] - 1 < least) {
                least = ranks[i] - 1;
                best = i;
            }
        }
        if (least == UINT32_MAX) break;
        ids[best] = joined[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            if (i + 1 == count) break; /* the last one has no pair */
            ranks[i] = ranks[i + 1];
            joined[i] = joined[i + 1];
        }
        for (size_t i = best > 0 ? best - 1 : 0; i <= best && i + 1 < count; i++) {
            const rm_pair *p = pair_find(b, ids[i], ids[i + 1]);
            ranks[i] = p ? p->rank1 : 0;
            joined[i] = p ? p->joined : 0;
        }
    }
    return count;
}

static bool pair_worth(const void *user, const rm_symbol *s, uint32_t left, uint32_t right,
                       uint32_t *rank, uint32_t *joined) {
    const rm_pair *p = pair_find(user, s[left].id, s[right].id);
    if (p == NULL) return false;
    *rank = p->rank1 - 1;
    *joined = p->joined;
    return true;
}

/* ---- a text */

typedef struct tokenizing {
    const rm_bpe *bpe;
    rm_ids *out;
    rm_symbol *symbols; /* of a long piece */
    uint64_t *heap;
    size_t piece_most;
} tokenizing;

static int put(const tokenizing *t, uint32_t id, char byte, remat_error *err) {
    if (id == RM_NO_TOKEN) id = t->bpe->replacement;
    if (id == RM_NO_TOKEN) {
        return rm_fail(err, REMAT_E_FAILED,
                       "tokenizer: the text holds byte 0x%02X, which has no token in this "
                       "vocabulary; take it out",
                       (unsigned)(uint8_t)byte);
    }
    return rm_ids_put(t->out, id) ? REMAT_OK : rm_ids_full(t->out, err);
}

static int put_piece(void *user, const char *piece, size_t bytes, remat_error *err) {
    const tokenizing *t = user;
    const rm_bpe *b = t->bpe;
    const uint32_t whole = rm_vocab_lookup(b->vocab, piece, bytes, true);
    if (whole != RM_NO_TOKEN && (b->vocab->flags[whole] & RM_VOCAB_WHOLE) != 0) {
        return put(t, whole, piece[0], err);
    }
    if (bytes <= SHORT) {
        uint32_t ids[SHORT];
        for (size_t i = 0; i < bytes; i++)
            ids[i] = b->byte_ids[(uint8_t)piece[i]];
        const size_t count = join_short(b, ids, bytes);
        /* Only a byte that stands alone can lack a token; its place follows from the lengths, but
         * the first such byte of the piece is as good for the message. */
        size_t bad = 0;
        while (bad + 1 < bytes && b->byte_ids[(uint8_t)piece[bad]] != RM_NO_TOKEN)
            bad++;
        for (size_t i = 0; i < count; i++)
            RM_TRY(put(t, ids[i], piece[bad], err));
        return REMAT_OK;
    }
    if (bytes > t->piece_most) {
        return rm_fail(err, REMAT_E_FAILED,
                       "tokenizer: a word of %zu bytes, which normal form C has made longer than "
                       "the text",
                       bytes);
    }
    rm_symbol *s = t->symbols;
    for (size_t i = 0; i < bytes; i++) {
        s[i].id = b->byte_ids[(uint8_t)piece[i]];
        s[i].prev = (uint32_t)i - 1; /* of the first: RM_MERGE_NEVER */
        s[i].next = (uint32_t)i + 1;
    }
    rm_merge(s, (uint32_t)bytes, t->heap, pair_worth, b);
    for (uint32_t i = 0; i != bytes; i = s[i].next)
        RM_TRY(put(t, s[i].id, piece[i], err));
    return REMAT_OK;
}

static size_t round64(size_t n) {
    return (n + 63) / 64 * 64;
}

/* Work memory: the patterns' | symbols and heap for one piece | the text in normal form. Symbols
 * and heap are idle while the text is normalized, and serve for that too. */
static size_t piece_most(const rm_bpe *b, size_t text_bytes) {
    return b->nfc ? text_bytes + LONGER : text_bytes;
}

static size_t symbol_bytes(const rm_bpe *b, size_t text_bytes) {
    const size_t most = piece_most(b, text_bytes);
    const size_t n =
        round64(most * sizeof(rm_symbol)) + rm_merge_heap_count(most) * sizeof(uint64_t);
    const size_t nfc = b->nfc ? rm_nfc_work_bytes(text_bytes) : 0;
    return round64(n > nfc ? n : nfc);
}

size_t rm_bpe_work_bytes(const rm_bpe *b, size_t text_bytes) {
    return rm_patterns_work_bytes(&b->patterns) + symbol_bytes(b, text_bytes) +
           (b->nfc ? rm_nfc_most(text_bytes) : 0);
}

/* Text that is whole characters. normal: memory for its normal form. */
static int put_valid(tokenizing *t, const char *text, size_t bytes, char *normal, void *work,
                     remat_error *err) {
    const rm_bpe *b = t->bpe;
    if (b->nfc && !rm_nfc_is_plain(text, bytes)) {
        RM_TRY(rm_nfc(normal, &bytes, text, bytes, t->symbols, err));
        text = normal;
    }
    return rm_patterns_cut(&b->patterns, text, bytes, work, put_piece, t, err);
}

int rm_bpe_tokenize(rm_ids *out, const rm_bpe *b, const char *text, size_t bytes, void *work,
                    remat_error *err) {
    uint8_t *at = (uint8_t *)work + rm_patterns_work_bytes(&b->patterns);
    tokenizing t = {.bpe = b, .out = out, .symbols = (rm_symbol *)at};
    t.piece_most = piece_most(b, bytes);
    t.heap = (uint64_t *)(at + round64(t.piece_most * sizeof(rm_symbol)));
    char *normal = (char *)at + symbol_bytes(b, bytes);
    while (bytes > 0) {
        const size_t valid = rm_utf8_valid(text, bytes);
        if (valid > 0) {
            RM_TRY(put_valid(&t, text, valid, normal, work, err));
            text += valid;
            bytes -= valid;
        }
        for (; bytes > 0 && rm_utf8_next(text, bytes) <= 0; text++, bytes--) {
            RM_TRY(put(&t, b->byte_ids[(uint8_t)text[0]], text[0], err));
        }
    }
    return REMAT_OK;
}

/* ---- layout and loading */

int rm_bpe_layout(rm_bpe *b, const rm_pattern_rule *rule, rm_ledger *l, const rm_gguf *g,
                  remat_error *err) {
    b->nfc = rule->nfc;
    const rm_gguf_kv *merges = NULL;
    RM_TRY(rm_vocab_strings(&merges, g, MERGES, err));
    b->merge_count = (uint32_t)merges->count;
    b->pair_slots = b->merge_count + b->merge_count / 2 + 1;
    RM_TRY(rm_ledger_carve(&b->pairs, l, RM_ACCOUNT_TEXT, b->pair_slots, sizeof *b->pairs, err));
    return rm_patterns_layout(&b->patterns, l, err);
}

/* The token of one byte: its character of the alphabet is found through the plain class. A
 * user-defined token of that text serves as well. */
static uint32_t byte_token(const rm_vocab *v, unsigned byte) {
    const char c = (char)byte;
    const uint32_t id = rm_vocab_lookup(v, &c, 1, true);
    if (id != RM_NO_TOKEN) return rm_vocab_is_text(v->flags[id]) ? id : RM_NO_TOKEN;
    const uint32_t raw = byte > 32 && byte < 127 ? rm_vocab_lookup(v, &c, 1, false) : RM_NO_TOKEN;
    return raw != RM_NO_TOKEN && rm_vocab_is_text(v->flags[raw]) ? raw : RM_NO_TOKEN;
}

/* A text of the list; plain is the same without the disguise, plain_bytes 0 when there is none. */
static uint32_t find_part(const rm_vocab *v, const char *text, size_t bytes, const char *plain,
                          size_t plain_bytes) {
    const uint32_t id = rm_vocab_lookup(v, plain, plain_bytes, true);
    return id != RM_NO_TOKEN ? id : rm_vocab_lookup(v, text, bytes, false);
}

/* One entry of the list: "left right", parted at the first blank after the first byte. */
static int load_merge(rm_bpe *b, char *text, uint64_t bytes, uint32_t rank, const rm_gguf *g,
                      remat_error *err) {
    const rm_vocab *v = b->vocab;
    if (bytes > MERGE_BYTES_MAX) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s: entry %u has %llu bytes; %d are possible",
                       rm_path_tail(g->file->path), MERGES, rank, (unsigned long long)bytes,
                       (int)MERGE_BYTES_MAX);
    }
    const size_t n = (size_t)bytes;
    char *blank = n > 2 ? memchr(text + 1, ' ', n - 1) : NULL;
    const size_t l = blank ? (size_t)(blank - text) : 0, r = n - l - 1;
    if (blank == NULL || r == 0) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s: entry %u is not two texts with a blank between",
                       rm_path_tail(g->file->path), MERGES, rank);
    }
    char plain[MERGE_BYTES_MAX];
    size_t pl = 0, pr = 0;
    const bool left_plain = rm_vocab_plain(plain, &pl, v->kind, text, l);
    const bool right_plain = rm_vocab_plain(plain + pl, &pr, v->kind, blank + 1, r);
    const uint32_t left = find_part(v, text, l, plain, pl);
    const uint32_t right = find_part(v, blank + 1, r, plain + pl, pr);
    memmove(blank, blank + 1, r);
    const uint32_t joined =
        find_part(v, text, n - 1, plain, left_plain && right_plain ? pl + pr : 0);
    if (left == RM_NO_TOKEN || right == RM_NO_TOKEN || joined == RM_NO_TOKEN) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s: %s of entry %u is not in the vocabulary",
                       rm_path_tail(g->file->path), MERGES,
                       left == RM_NO_TOKEN    ? "the first text"
                       : right == RM_NO_TOKEN ? "the second text"
                                              : "the result",
                       rank);
    }
    /* Such an entry would let a user's text become a control token. */
    if (rm_vocab_is_text(v->flags[joined])) pair_add(b, left, right, rank, joined);
    return REMAT_OK;
}

static int load_merges(rm_bpe *b, const rm_gguf *g, remat_error *err) {
    const rm_gguf_kv *kv = NULL;
    RM_TRY(rm_vocab_strings(&kv, g, MERGES, err));
    char text[MERGE_BYTES_MAX];
    rm_gguf_walk w;
    rm_gguf_walk_start(&w, g, kv);
    for (uint32_t i = 0; i < b->merge_count; i++) {
        uint64_t bytes;
        RM_TRY(rm_gguf_walk_string(&w, text, sizeof text, &bytes, err));
        RM_TRY(load_merge(b, text, bytes, i, g, err));
    }
    return REMAT_OK;
}

/* Marks the tokens that a piece with just their bytes becomes. */
static void mark_whole(const rm_bpe *b, rm_vocab *v, bool ignore_merges) {
    uint32_t ids[SHORT];
    for (uint32_t id = 0; id < v->count; id++) {
        size_t n;
        const char *text = rm_vocab_bytes(v, id, &n);
        if ((v->flags[id] & RM_VOCAB_PLAIN) == 0 || !rm_vocab_is_text(v->flags[id])) continue;
        bool whole = ignore_merges;
        if (!whole && n <= SHORT) {
            for (size_t i = 0; i < n; i++)
                ids[i] = b->byte_ids[(uint8_t)text[i]];
            whole = join_short(b, ids, n) == 1 && ids[0] == id;
        }
        if (whole) v->flags[id] |= RM_VOCAB_WHOLE;
    }
}

int rm_bpe_load(rm_bpe *b, rm_vocab *v, const rm_pattern_rule *rule, const rm_gguf *g,
                remat_error *err) {
    b->vocab = v;
    for (int i = 0; i < 2; i++)
        b->factors[i] = rm_random_system() | 1;
    for (unsigned i = 0; i < 256; i++)
        b->byte_ids[i] = byte_token(v, i);
    RM_TRY(load_merges(b, g, err));
    mark_whole(b, v, rule->ignore_merges);
    b->replacement = rm_vocab_lookup(v, "\xEF\xBF\xBD", 3, true);
    if (b->replacement != RM_NO_TOKEN && !rm_vocab_is_text(v->flags[b->replacement])) {
        b->replacement = RM_NO_TOKEN;
    }
    return rm_patterns_load(&b->patterns, rule, err);
}

void rm_bpe_close(rm_bpe *b) {
    rm_patterns_close(&b->patterns);
}
