/* special.c: see special.h. */
#include "text/special.h"

#include <string.h>

int rm_special_layout(rm_special *s, rm_ledger *l, remat_error *err) {
    return rm_ledger_carve(&s->sets, l, RM_ACCOUNT_TEXT, 2, sizeof *s->sets, err);
}

static bool wanted(unsigned type, bool control) {
    return type == RM_TOKEN_USER ||
           (control && (type == RM_TOKEN_CONTROL || type == RM_TOKEN_UNKNOWN));
}

static unsigned pair_of(const char *text) {
    return (uint8_t)text[0] * 256u + (uint8_t)text[1];
}

int rm_special_load(rm_special *s, const rm_vocab *v, const rm_gguf *g, remat_error *err) {
    for (uint32_t id = 0; id < v->count; id++) {
        const unsigned type = v->flags[id] & RM_VOCAB_TYPE;
        size_t n;
        const char *text = rm_vocab_bytes(v, id, &n);
        if (!rm_special_is(v->flags[id]) || n == 0) continue;
        if (n > RM_SPECIAL_BYTES_MAX) {
            return rm_fail(err, REMAT_E_MODEL,
                           "%s: tokenizer.ggml.tokens: token %u has %zu bytes; %d are possible for "
                           "one of its type",
                           rm_path_tail(g->file->path), id, n, (int)RM_SPECIAL_BYTES_MAX);
        }
        for (int control = 0; control < 2; control++) {
            if (!wanted(type, control != 0)) continue;
            rm_special_set *set = &s->sets[control];
            set->count++;
            set->lengths[(uint8_t)text[0]][n / 64] |= 1ull << n % 64;
            if (n > 1) set->starts[pair_of(text) / 64] |= 1ull << pair_of(text) % 64;
        }
    }
    return REMAT_OK;
}

/* The longest token at the start of text. */
static uint32_t longest_at(const rm_vocab *v, bool control, const uint64_t *lengths,
                           const char *text, const uint8_t *marks, size_t text_bytes,
                           size_t *length) {
    for (int w = 3; w >= 0; w--) {
        for (uint64_t bits = lengths[w]; bits != 0;) {
            const int top = 63 - __builtin_clzll(bits);
            const size_t n = (size_t)w * 64 + (size_t)top;
            bits ^= 1ull << top;
            if (n > text_bytes) continue;
            const uint32_t id = rm_vocab_lookup(v, text, n, false);
            const bool ours = marks == NULL || memchr(marks, 0, n) == NULL;
            if (id != RM_NO_TOKEN && wanted(v->flags[id] & RM_VOCAB_TYPE, control && ours)) {
                *length = n;
                return id;
            }
        }
    }
    return RM_NO_TOKEN;
}

uint32_t rm_special_next(const rm_special *s, const rm_vocab *v, bool control, const char *text,
                         const uint8_t *marks, size_t text_bytes, size_t *at, size_t *length) {
    const rm_special_set *set = &s->sets[control ? 1 : 0];
    if (set->count == 0) return RM_NO_TOKEN;
    for (size_t i = *at; i < text_bytes; i++) {
        const uint64_t *lengths = set->lengths[(uint8_t)text[i]];
        const bool one = (lengths[0] & 2) != 0;
        const bool two = i + 1 < text_bytes &&
                         (set->starts[pair_of(text + i) / 64] >> pair_of(text + i) % 64 & 1) != 0;
        if (!one && !two) continue;
        const uint32_t id = longest_at(v, control, lengths, text + i,
                                       marks != NULL ? marks + i : NULL, text_bytes - i, length);
        if (id != RM_NO_TOKEN) {
            *at = i;
            return id;
        }
    }
    return RM_NO_TOKEN;
}
