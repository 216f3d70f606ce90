/* text.c: tokens of texts and conversations, through memory borrowed from the ledger's free end. */
#include "engine/engine.h"

#include <string.h>

/* A place for the ids and the tokenizer's work, for texts of at most so many bytes. */
typedef struct loan {
    uint32_t *ids;
    void *work;
} loan;

int rm_engine_text_memory(uint8_t **out, uint64_t *bytes, remat_engine *e, uint64_t least,
                          uint64_t most, remat_error *err) {
    if (e->tokenizer == NULL)
        return rm_fail(err, REMAT_E_USAGE, "text: the engine was opened with index_only");
    if (e->started) {
        *out = e->text_work;
        *bytes = e->setup.text_bytes < most ? e->setup.text_bytes : most;
        if (least <= *bytes) return REMAT_OK;
        return rm_fail(err, REMAT_E_BUDGET,
                       "text: %llu bytes to work in are needed, %llu were set "
                       "aside; shorten the text",
                       (unsigned long long)least, (unsigned long long)e->setup.text_bytes);
    }
    const uint64_t room = rm_ledger_room(&e->ledger);
    *bytes = room < most ? room : most;
    if (*bytes < least) *bytes = least; /* the ledger refuses, and names what would do */
    return rm_ledger_borrow(out, &e->ledger, *bytes, err);
}

void rm_engine_text_return(remat_engine *e) {
    if (!e->started) rm_ledger_return(&e->ledger);
}

static int borrow(loan *out, remat_engine *e, size_t bytes, remat_error *err) {
    uint64_t lent;
    uint8_t *memory;
    if (e->tokenizer == NULL || bytes > SIZE_MAX / 64)
        return rm_fail(err, REMAT_E_USAGE, "tokenize: no tokenizer, or no text of this world");
    const uint64_t ids = ((bytes + 2) * sizeof *out->ids + 63) / 64 * 64;
    const uint64_t need = ids + rm_tokenize_work_bytes(e->tokenizer, bytes);
    RM_TRY(rm_engine_text_memory(&memory, &lent, e, need, need, err));
    out->ids = (uint32_t *)(void *)memory;
    out->work = memory + ids;
    return REMAT_OK;
}

/* Adds ids to out; what does not fit is counted and reported at the end. */
static void append(uint32_t *out, size_t cap, size_t *count, const uint32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++, ++*count) {
        if (*count < cap) out[*count] = ids[i];
    }
}

static int too_many(size_t count, size_t cap, remat_error *err) {
    if (count <= cap) return REMAT_OK;
    return rm_fail(err, REMAT_E_CONTEXT,
                   "text: %zu tokens do not fit the context of %zu; give a "
                   "larger -c or a shorter text",
                   count, cap);
}

int remat_tokenize(uint32_t *out, size_t cap, size_t *count, remat_engine *e, const char *text,
                   size_t bytes, unsigned flags, remat_error *err) {
    loan l = {0};
    size_t n = 0, all = 0;
    RM_TRY(borrow(&l, e, bytes, err));
    const unsigned f = ((flags & REMAT_SPECIAL) ? RM_TOKENIZE_SPECIAL : 0u) |
                       ((flags & REMAT_BOS) ? RM_TOKENIZE_BOS : 0u) |
                       ((flags & REMAT_ONE_BOS) ? RM_TOKENIZE_BOS | RM_TOKENIZE_ONE_BOS : 0u);
    int status = rm_tokenize(l.ids, &n, e->tokenizer, text, bytes, f, l.work, err);
    if (status == REMAT_OK) {
        append(out, cap, &all, l.ids, n);
        status = too_many(all, cap, err);
    }
    rm_engine_text_return(e);
    if (status == REMAT_OK) *count = all;
    return status;
}

size_t remat_token_text(char *out, size_t cap, const remat_engine *e, uint32_t id, bool special,
                        bool first) {
    if (e->tokenizer == NULL || id >= rm_tokenizer_vocabulary(e->tokenizer)) return 0;
    return rm_token_text(out, cap, e->tokenizer, id, special, first);
}

size_t remat_detokenize(char *out, size_t cap, const remat_engine *e, const uint32_t *ids,
                        size_t count, bool special) {
    size_t used = 0;
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        const size_t room = used < cap ? cap - used : 0;
        used += remat_token_text(room > 0 ? out + used : NULL, room, e, ids[i], special, first);
        /* The tokenizer puts a blank before text at the start and after a special token. */
        const rm_token_type type = rm_token_type_of(e->tokenizer, ids[i]);
        first = type == RM_TOKEN_CONTROL || type == RM_TOKEN_USER;
    }
    return used;
}
