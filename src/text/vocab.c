/* vocab.c: see vocab.h. */
#include "text/vocab.h"
#include "base/hash.h"
#include "base/random.h"

#include <string.h>

static const char TOKENS[] = "tokenizer.ggml.tokens", TYPES[] = "tokenizer.ggml.token_type",
                  SCORES[] = "tokenizer.ggml.scores";

/* ---- disguises */

/* The byte that a character of the byte-level alphabet, past ASCII, stands for, or -1. Printable
 * Latin-1 is itself; the others are U+0100 onwards in order: 0..32, 127..160, 173. */
static inline int byte_of(uint32_t c) {
    if (c >= 161 && c <= 255 && c != 173) return (int)c;
    if (c >= 256 && c <= 288) return (int)c - 256;
    if (c >= 289 && c <= 322) return (int)c - 289 + 127;
    return c == 323 ? 173 : -1;
}

/* Next character of the alphabet (all lie below U+0800): its byte, and its length in *length. */
static inline int alphabet_next(const char *s, size_t n, size_t *length) {
    const uint8_t *u = (const uint8_t *)s;
    *length = 1;
    if (u[0] < 0x80) return u[0] >= 33 && u[0] <= 126 ? u[0] : -1;
    if (n < 2 || u[0] < 0xC2 || u[0] > 0xDF || (u[1] & 0xC0) != 0x80) return -1;
    *length = 2;
    return byte_of((uint32_t)(u[0] & 31) << 6 | (u[1] & 63));
}

static bool plain_bpe(char *out, size_t *bytes, const char *text, size_t count) {
    size_t length, n = 0;
    for (size_t i = 0; i < count; i += length) {
        if (alphabet_next(text + i, count - i, &length) < 0) return false;
    }
    for (size_t i = 0; i < count; i += length) {
        out[n++] = (char)alphabet_next(text + i, count - i, &length);
    }
    *bytes = n;
    return true;
}

static bool plain_spm(char *out, size_t *bytes, const char *text, size_t count) {
    if (memchr(text, ' ', count) != NULL) return false;
    size_t n = 0;
    for (size_t i = 0; i < count; n++) {
        if (count - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
            out[n] = ' ';
            i += 3;
        } else {
            out[n] = text[i++];
        }
    }
    *bytes = n;
    return true;
}

bool rm_vocab_plain(char *out, size_t *bytes, rm_vocab_kind kind, const char *text, size_t count) {
    if (count == 0) return false;
    return kind == RM_VOCAB_BPE ? plain_bpe(out, bytes, text, count)
                                : plain_spm(out, bytes, text, count);
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int rm_vocab_byte(const char *text, size_t count) {
    if (count != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    const int high = hex(text[3]), low = hex(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* ---- finding */

/* The slot that holds these bytes, or the free one where they belong; there always is one. */
static rm_slot *slot_of(const rm_vocab *v, const char *bytes, size_t count, bool plain,
                        uint32_t *tag) {
    const uint64_t h = rm_hash(bytes, count, v->seed + (plain ? 1 : 0));
    uint32_t i = (uint32_t)((h >> 32) * v->slot_count >> 32);
    *tag = (uint32_t)h;
    for (;; i = i + 1 == v->slot_count ? 0 : i + 1) {
        rm_slot *slot = &v->slots[i];
        if (slot->id1 == 0) return slot;
        if (slot->tag != *tag) continue;
        const uint32_t id = slot->id1 - 1;
        if (((v->flags[id] & RM_VOCAB_PLAIN) != 0) == plain && v->at[id + 1] - v->at[id] == count &&
            memcmp(v->blob + v->at[id], bytes, count) == 0) {
            return slot;
        }
    }
}

uint32_t rm_vocab_lookup(const rm_vocab *v, const char *bytes, size_t count, bool plain) {
    if (count == 0 || count > (plain ? v->longest_plain : v->longest)) return RM_NO_TOKEN;
    uint32_t tag;
    return slot_of(v, bytes, count, plain, &tag)->id1 - 1; /* a free slot wraps to RM_NO_TOKEN */
}

uint32_t rm_vocab_find(const rm_vocab *v, const char *text, size_t count) {
    char plain[RM_VOCAB_FIND_MAX];
    size_t n;
    const uint32_t id = rm_vocab_lookup(v, text, count, false);
    if (id != RM_NO_TOKEN || count > sizeof plain) return id;
    if (!rm_vocab_plain(plain, &n, v->kind, text, count)) return RM_NO_TOKEN;
    return rm_vocab_lookup(v, plain, n, true);
}

/* ---- layout */

int rm_vocab_strings(const rm_gguf_kv **out, const rm_gguf *g, const char *key, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    if (kv == NULL) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is missing", rm_path_tail(g->file->path), key);
    }
    if (kv->type != RM_GGUF_ARRAY || kv->element != RM_GGUF_STRING) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is not a list of strings",
                       rm_path_tail(g->file->path), key);
    }
    if (kv->count < 1 || kv->count > RM_VOCABULARY_MAX || kv->value_bytes / 8 < kv->count) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s has %llu entries; 1 to %d are possible",
                       rm_path_tail(g->file->path), key, (unsigned long long)kv->count,
                       (int)RM_VOCABULARY_MAX);
    }
    *out = kv;
    return REMAT_OK;
}

/* An optional list of 32-bit values, one for each token. */
static int check_list(const rm_gguf *g, const char *key, bool is_float, uint32_t count,
                      remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, key);
    if (kv == NULL) return REMAT_OK;
    const bool right = is_float ? kv->element == RM_GGUF_F32
                                : kv->element == RM_GGUF_I32 || kv->element == RM_GGUF_U32;
    if (kv->type != RM_GGUF_ARRAY || !right) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is not a list of %s",
                       rm_path_tail(g->file->path), key, is_float ? "f32" : "i32");
    }
    if (kv->count != count) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s has %llu entries, but %s has %u",
                       rm_path_tail(g->file->path), key, (unsigned long long)kv->count, TOKENS,
                       count);
    }
    return REMAT_OK;
}

int rm_vocab_layout(rm_vocab *v, rm_vocab_kind kind, rm_ledger *l, const rm_gguf *g,
                    remat_error *err) {
    const rm_gguf_kv *tokens = NULL;
    RM_TRY(rm_vocab_strings(&tokens, g, TOKENS, err));
    v->kind = kind;
    v->count = (uint32_t)tokens->count;
    /* In the file each string is 8 bytes of length and its text. */
    const uint64_t text = tokens->value_bytes - 8 * tokens->count;
    if (text > UINT32_MAX) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s has %llu bytes of text; 4 GiB are possible",
                       rm_path_tail(g->file->path), TOKENS, (unsigned long long)text);
    }
    v->blob_bytes = (uint32_t)text;
    v->slot_count = v->count + v->count / 2 + 1;
    RM_TRY(check_list(g, TYPES, false, v->count, err));
    RM_TRY(check_list(g, SCORES, true, v->count, err));
    RM_TRY(rm_ledger_carve(&v->blob, l, RM_ACCOUNT_TEXT, v->blob_bytes, 1, err));
    RM_TRY(rm_ledger_carve(&v->at, l, RM_ACCOUNT_TEXT, (uint64_t)v->count + 1, sizeof *v->at, err));
    RM_TRY(rm_ledger_carve(&v->flags, l, RM_ACCOUNT_TEXT, v->count, 1, err));
    RM_TRY(rm_ledger_carve(&v->slots, l, RM_ACCOUNT_TEXT, v->slot_count, sizeof *v->slots, err));
    if (kind == RM_VOCAB_SPM) {
        RM_TRY(rm_ledger_carve(&v->scores, l, RM_ACCOUNT_TEXT, v->count, sizeof *v->scores, err));
    }
    return REMAT_OK;
}

/* ---- loading */

static int load_types(rm_vocab *v, const rm_gguf *g, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, TYPES);
    if (kv == NULL) {
        memset(v->flags, RM_TOKEN_NORMAL, v->count);
        return REMAT_OK;
    }
    rm_gguf_walk w;
    rm_gguf_walk_start(&w, g, kv);
    for (uint32_t i = 0; i < v->count; i++) {
        uint32_t type;
        RM_TRY(rm_gguf_walk_word(&w, &type, err));
        if (type > RM_TOKEN_BYTE) {
            return rm_fail(err, REMAT_E_MODEL, "%s: %s of token %u is %u; 0 to 6 are possible",
                           rm_path_tail(g->file->path), TYPES, i, type);
        }
        v->flags[i] = type == 0 ? RM_TOKEN_NORMAL : (uint8_t)type; /* 0: not said */
    }
    return REMAT_OK;
}

static int load_scores(rm_vocab *v, const rm_gguf *g, remat_error *err) {
    const rm_gguf_kv *kv = rm_gguf_find(g, SCORES);
    if (kv == NULL) return REMAT_OK; /* all equal, as carved */
    rm_gguf_walk w;
    rm_gguf_walk_start(&w, g, kv);
    for (uint32_t i = 0; i < v->count; i++) {
        uint32_t word;
        RM_TRY(rm_gguf_walk_word(&w, &word, err));
        memcpy(&v->scores[i], &word, sizeof word);
    }
    return REMAT_OK;
}

/* Puts token id, whose text is the last of the blob, into the table. Of two equal tokens the last
 * one is found, as in the reference. */
static void add_token(rm_vocab *v, uint32_t id, size_t bytes) {
    if (bytes == 0) return;
    const bool plain = (v->flags[id] & RM_VOCAB_PLAIN) != 0;
    uint32_t tag;
    rm_slot *slot = slot_of(v, v->blob + v->at[id], bytes, plain, &tag);
    *slot = (rm_slot){.tag = tag, .id1 = id + 1};
    if (bytes > v->longest) v->longest = (uint32_t)bytes;
    if (plain && bytes > v->longest_plain) v->longest_plain = (uint32_t)bytes;
}

static bool has_disguise(const rm_vocab *v, uint32_t id) {
    const unsigned type = v->flags[id] & RM_VOCAB_TYPE;
    return type == RM_TOKEN_NORMAL || type == RM_TOKEN_UNUSED ||
           (type == RM_TOKEN_BYTE && v->kind == RM_VOCAB_BPE);
}

int rm_vocab_load(rm_vocab *v, const rm_gguf *g, remat_error *err) {
    v->seed = rm_random_system();
    RM_TRY(load_types(v, g, err));
    if (v->kind == RM_VOCAB_SPM) RM_TRY(load_scores(v, g, err));
    const rm_gguf_kv *kv = NULL;
    RM_TRY(rm_vocab_strings(&kv, g, TOKENS, err));
    rm_gguf_walk w;
    rm_gguf_walk_start(&w, g, kv);
    uint32_t used = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        char *text = v->blob + used;
        const size_t room = v->blob_bytes - used;
        uint64_t bytes;
        RM_TRY(rm_gguf_walk_string(&w, text, room, &bytes, err));
        if (bytes > room) {
            return rm_fail(err, REMAT_E_MODEL, "%s: %s: token %u is longer than the list",
                           rm_path_tail(g->file->path), TOKENS, i);
        }
        size_t n = (size_t)bytes;
        if (has_disguise(v, i) && rm_vocab_plain(text, &n, v->kind, text, n)) {
            v->flags[i] |= RM_VOCAB_PLAIN;
        }
        v->at[i] = used;
        used += (uint32_t)n;
        v->at[i + 1] = used;
        add_token(v, i, n);
        if (v->kind == RM_VOCAB_SPM && (v->flags[i] & RM_VOCAB_TYPE) == RM_TOKEN_BYTE &&
            rm_vocab_byte(text, n) < 0) {
            return rm_fail(err, REMAT_E_MODEL, "%s: %s: token %u is of type byte, but not <0xHH>",
                           rm_path_tail(g->file->path), TOKENS, i);
        }
    }
    return REMAT_OK;
}

int rm_ids_full(const rm_ids *out, remat_error *err) {
    return rm_fail(err, REMAT_E_FAILED,
                   "tokenizer: the text gives more than %zu tokens, one a byte; "
                   "this vocabulary is not usual",
                   out->cap);
}
