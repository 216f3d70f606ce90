/* text.c: tokens of texts and conversations, through memory borrowed from the ledger's free end. */
#include "engine/engine.h"

#include <string.h>

/* A place for the ids and the tokenizer's work, for texts of at most so many bytes. */
typedef struct loan {
    uint32_t *ids;
    void *work;
} loan;

static int borrow(loan *out, remat_engine *e, size_t bytes, remat_error *err) {
    if (e->started || e->options.index_only) {
        return rm_fail(err, REMAT_E_USAGE, "tokenize: only between remat_open() and remat_start()");
    }
    if (bytes > SIZE_MAX / 64)
        return rm_fail(err, REMAT_E_CONTEXT, "tokenize: the text is too long");
    const uint64_t ids = ((bytes + 2) * sizeof *out->ids + 63) / 64 * 64;
    RM_TRY(rm_ledger_borrow(&out->ids, &e->ledger,
                            ids + rm_tokenize_work_bytes(e->tokenizer, bytes), err));
    out->work = (uint8_t *)out->ids + ids;
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
    loan l;
    size_t n = 0, all = 0;
    RM_TRY(borrow(&l, e, bytes, err));
    const unsigned f = ((flags & REMAT_SPECIAL) ? RM_TOKENIZE_SPECIAL : 0u) |
                       ((flags & REMAT_BOS) ? RM_TOKENIZE_BOS : 0u);
    int status = rm_tokenize(l.ids, &n, e->tokenizer, text, bytes, f, l.work, err);
    if (status == REMAT_OK) {
        append(out, cap, &all, l.ids, n);
        status = too_many(all, cap, err);
    }
    rm_ledger_return(&e->ledger);
    if (status == REMAT_OK) *count = all;
    return status;
}

typedef struct chat {
    remat_engine *e;
    uint32_t *out;
    size_t cap, count;
    loan l;
} chat;

/* marks: the text is ours and may hold control tokens. */
static int put(chat *c, const char *text, size_t bytes, bool marks, remat_error *err) {
    size_t n = 0;
    RM_TRY(rm_tokenize(c->l.ids, &n, c->e->tokenizer, text, bytes, marks ? RM_TOKENIZE_SPECIAL : 0,
                       c->l.work, err));
    append(c->out, c->cap, &c->count, c->l.ids, n);
    return REMAT_OK;
}

static int put_mark(chat *c, const char *text, remat_error *err) {
    return put(c, text, strlen(text), true, err);
}

static int put_turns(chat *c, const remat_message *messages, size_t n, bool marks,
                     remat_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (marks) RM_TRY(put_mark(c, "<|im_start|>", err));
        if (marks) RM_TRY(put(c, messages[i].role, strlen(messages[i].role), false, err));
        if (marks) RM_TRY(put_mark(c, "\n", err));
        RM_TRY(put(c, messages[i].text, messages[i].bytes, false, err));
        if (marks) RM_TRY(put_mark(c, "<|im_end|>\n", err));
    }
    return marks ? put_mark(c, "<|im_start|>assistant\n", err) : REMAT_OK;
}

int remat_tokenize_chat(uint32_t *out, size_t cap, size_t *count, remat_engine *e,
                        const remat_message *messages, size_t message_count, remat_error *err) {
    static const char start[] = "<|im_start|>", end[] = "<|im_end|>";
    size_t longest = sizeof "<|im_start|>assistant\n";
    for (size_t i = 0; i < message_count; i++) {
        const size_t role = strlen(messages[i].role);
        if (messages[i].bytes > longest) longest = messages[i].bytes;
        if (role > longest) longest = role;
    }
    chat c = {.e = e, .out = out, .cap = cap};
    RM_TRY(borrow(&c.l, e, longest, err));
    const bool marks = rm_token_find(e->tokenizer, start, sizeof start - 1) != RM_TOKEN_NONE &&
                       rm_token_find(e->tokenizer, end, sizeof end - 1) != RM_TOKEN_NONE;
    const int32_t bos = rm_token_bos(e->tokenizer);
    if (!marks && bos != RM_TOKEN_NONE) append(out, cap, &c.count, &(uint32_t){(uint32_t)bos}, 1);
    int status = put_turns(&c, messages, message_count, marks, err);
    if (status == REMAT_OK) status = too_many(c.count, cap, err);
    rm_ledger_return(&e->ledger);
    if (status == REMAT_OK) *count = c.count;
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
