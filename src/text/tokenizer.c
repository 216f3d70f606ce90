/* tokenizer.c: see tokenizer.h. What both kinds share: metadata, special tokens, a token's text. */
#include "text/tokenizer.h"
#include "text/tokenizer_impl.h"

#include <string.h>

/* Names that end a text, a turn or a message, in models whose file may not say so. They count for
 * control and user-defined tokens only: "</s>" may be ordinary text. */
static const char *const END_NAMES[] = {
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|fim_pad|>",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<|tool_response>",
    "<turn|>",
    "[e~[",
    "<|endofturn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "</s>",
    "<\357\275\234end\342\226\201of\342\226\201sentence\357\275\234>",
};

/* Of text in one call: ids and positions are 32 bits. */
#define TEXT_BYTES_MAX ((size_t)1 << 31)

size_t rm_tokenizer_bytes(void) {
    return sizeof(rm_tokenizer);
}

/* ---- layout and loading */

/* Byte-level BPE: how text is cut. wanted: the caller's name for it, or NULL. */
static int find_rule(rm_tokenizer *t, const rm_gguf *g, const char *wanted, remat_error *err) {
    char pre[64];
    if (wanted != NULL) {
        t->rule = rm_pattern_rule_find(wanted);
        if (t->rule != NULL) return REMAT_OK;
        return rm_fail(err, REMAT_E_USAGE, "pre: %s is a way to cut text that is not known here",
                       wanted);
    }
    RM_TRY(rm_gguf_text_or(pre, sizeof pre, g, "tokenizer.ggml.pre", "default", err));
    t->rule = rm_pattern_rule_find(pre);
    if (t->rule != NULL) return REMAT_OK;
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: tokenizer.ggml.pre is %s, a way to cut text that is not known here; where "
                   "another one is known to be the same, give its name (--pre)",
                   rm_path_tail(g->file->path), pre);
}

static int find_kind(rm_tokenizer *t, const rm_gguf *g, const char *pre, remat_error *err) {
    char model[32];
    RM_TRY(rm_gguf_text(model, sizeof model, g, "tokenizer.ggml.model", err));
    if (strcmp(model, "gpt2") == 0) {
        t->vocab.kind = RM_VOCAB_BPE;
        return find_rule(t, g, pre, err);
    }
    if (strcmp(model, "llama") != 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: tokenizer.ggml.model is %s; gpt2 and llama are possible",
                       rm_path_tail(g->file->path), model);
    }
    t->vocab.kind = RM_VOCAB_SPM;
    if (pre == NULL) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE,
                   "pre: %s: tokenizer.ggml.model is llama, which does not cut text",
                   rm_path_tail(g->file->path));
}

int rm_tokenizer_layout_with(rm_tokenizer *t, rm_ledger *l, const rm_gguf *g,
                             const rm_tokenizer_options *options, remat_error *err) {
    RM_TRY(find_kind(t, g, options != NULL ? options->pre : NULL, err));
    RM_TRY(rm_vocab_layout(&t->vocab, t->vocab.kind, l, g, err));
    RM_TRY(rm_special_layout(&t->special, l, err));
    return t->vocab.kind == RM_VOCAB_BPE ? rm_bpe_layout(&t->bpe, t->rule, l, g, err)
                                         : rm_spm_layout(&t->spm, l, err);
}

int rm_tokenizer_layout(rm_tokenizer *t, rm_ledger *l, const rm_gguf *g, remat_error *err) {
    return rm_tokenizer_layout_with(t, l, g, NULL, err);
}

/* An id that the file may give; or fallback, when that is a token. */
static int load_id(int32_t *out, const rm_tokenizer *t, const rm_gguf *g, const char *key,
                   int32_t fallback, remat_error *err) {
    uint32_t id = 0;
    if (rm_gguf_find(g, key) == NULL) {
        *out = fallback >= 0 && (uint32_t)fallback < t->vocab.count ? fallback : RM_TOKEN_NONE;
        return REMAT_OK;
    }
    RM_TRY(rm_gguf_u32(&id, g, key, err));
    if (id >= t->vocab.count) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is %u, but there are %u tokens",
                       rm_path_tail(g->file->path), key, id, t->vocab.count);
    }
    *out = (int32_t)id;
    return REMAT_OK;
}

static void mark_end(rm_tokenizer *t, int32_t id) {
    if (id != RM_TOKEN_NONE) t->vocab.flags[id] |= RM_VOCAB_END;
}

/* A control or user-defined token of that name, or RM_NO_TOKEN. */
static uint32_t find_special(const rm_tokenizer *t, const char *name) {
    const uint32_t id = rm_vocab_lookup(&t->vocab, name, strlen(name), false);
    if (id == RM_NO_TOKEN) return id;
    const rm_token_type type = rm_token_type_of(t, id);
    return type == RM_TOKEN_CONTROL || type == RM_TOKEN_USER ? id : RM_NO_TOKEN;
}

static int load_ends(rm_tokenizer *t, const rm_gguf *g, remat_error *err) {
    int32_t eot = RM_TOKEN_NONE, eom = RM_TOKEN_NONE;
    RM_TRY(load_id(&eot, t, g, "tokenizer.ggml.eot_token_id", RM_TOKEN_NONE, err));
    RM_TRY(load_id(&eom, t, g, "tokenizer.ggml.eom_token_id", RM_TOKEN_NONE, err));
    for (size_t i = 0; i < sizeof END_NAMES / sizeof END_NAMES[0]; i++) {
        const uint32_t id = find_special(t, END_NAMES[i]);
        if (id == RM_NO_TOKEN) continue;
        mark_end(t, (int32_t)id);
        /* What ends a generation must not come out of a user's text, whatever the file says. */
        t->vocab.flags[id] = (uint8_t)((t->vocab.flags[id] & ~RM_VOCAB_TYPE) | RM_TOKEN_CONTROL);
    }
    /* Where a message ends by one of these pairs, <|end|> is only the end of a part of it; and a
     * vocabulary with <|tool_response> has </s> as a tag of HTML. */
    static const char *const inner[][3] = {{"<|return|>", "<|call|>", "<|end|>"},
                                           {"<|call|>", "<|flush|>", "<|end|>"},
                                           {"<|calls|>", "<|flush|>", "<|end|>"},
                                           {"<|tool_response>", "<|tool_response>", "</s>"}};
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
        const uint32_t id = find_special(t, inner[i][2]);
        if (id == RM_NO_TOKEN || find_special(t, inner[i][0]) == RM_NO_TOKEN ||
            find_special(t, inner[i][1]) == RM_NO_TOKEN) {
            continue;
        }
        t->vocab.flags[id] &= (uint8_t)~RM_VOCAB_END;
    }
    /* Last: what the file names counts in any case. */
    mark_end(t, t->eos);
    mark_end(t, eot);
    mark_end(t, eom);
    return REMAT_OK;
}

/* Whether text holds word, which is lower case, in any case. */
static bool holds(const char *text, const char *word) {
    for (; *text != '\0'; text++) {
        size_t n = 0;
        while (word[n] != '\0' &&
               (text[n] | ((text[n] >= 'A' && text[n] <= 'Z') ? 32 : 0)) == word[n])
            n++;
        if (word[n] == '\0') return true;
    }
    return false;
}

/* That blanks beside a control token go away is not in the file: it follows from the model. */
static int load_strips(rm_tokenizer *t, const rm_gguf *g, remat_error *err) {
    static const char *const kept[] = {"<unk>", "<s>", "<|endoftext|>"};
    char name[256];
    rm_vocab *v = &t->vocab;
    if (t->rule != NULL && t->rule->strip_mask) {
        const uint32_t mask = rm_vocab_lookup(v, "<mask>", 6, false);
        if (mask != RM_NO_TOKEN) v->flags[mask] |= RM_VOCAB_LSTRIP;
    }
    const rm_gguf_kv *kv = rm_gguf_find(g, "general.name");
    if (v->kind != RM_VOCAB_SPM || kv == NULL || kv->type != RM_GGUF_STRING) return REMAT_OK;
    const int status = rm_gguf_text(name, sizeof name, g, "general.name", err);
    if (status == REMAT_E_MODEL) return REMAT_OK; /* odd, but no name of such a model */
    RM_TRY(status);
    if (!holds(name, "phi-3") && !holds(name, "phi3")) return REMAT_OK;
    for (uint32_t id = 0; id < v->count; id++) {
        if (rm_special_is(v->flags[id])) v->flags[id] |= RM_VOCAB_RSTRIP;
    }
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const uint32_t id = rm_vocab_lookup(v, kept[i], strlen(kept[i]), false);
        if (id != RM_NO_TOKEN) v->flags[id] &= (uint8_t)~RM_VOCAB_RSTRIP;
    }
    return REMAT_OK;
}

int rm_tokenizer_load(rm_tokenizer *t, const rm_gguf *g, remat_error *err) {
    const bool spm = t->vocab.kind == RM_VOCAB_SPM;
    int32_t unknown = RM_TOKEN_NONE;
    RM_TRY(rm_vocab_load(&t->vocab, g, err));
    /* SentencePiece's own numbers, where a file leaves them out. */
    RM_TRY(load_id(&t->bos, t, g, "tokenizer.ggml.bos_token_id", spm ? 1 : RM_TOKEN_NONE, err));
    RM_TRY(load_id(&t->eos, t, g, "tokenizer.ggml.eos_token_id", spm ? 2 : RM_TOKEN_NONE, err));
    RM_TRY(
        load_id(&unknown, t, g, "tokenizer.ggml.unknown_token_id", spm ? 0 : RM_TOKEN_NONE, err));
    RM_TRY(rm_gguf_bool_or(&t->add_bos, g, "tokenizer.ggml.add_bos_token", spm || t->rule->add_bos,
                           err));
    RM_TRY(rm_gguf_bool_or(&t->add_eos, g, "tokenizer.ggml.add_eos_token", false, err));
    RM_TRY(rm_gguf_bool_or(&t->add_blank, g, "tokenizer.ggml.add_space_prefix", true, err));
    RM_TRY(load_ends(t, g, err));
    RM_TRY(load_strips(t, g, err));
    RM_TRY(rm_special_load(&t->special, &t->vocab, g, err));
    t->text_most = t->vocab.longest;
    if (spm) {
        rm_spm_load(&t->spm, &t->vocab, unknown == RM_TOKEN_NONE ? RM_NO_TOKEN : (uint32_t)unknown);
        return REMAT_OK;
    }
    t->add_blank = false;
    return rm_bpe_load(&t->bpe, &t->vocab, t->rule, g, err);
}

void rm_tokenizer_close(rm_tokenizer *t) {
    rm_bpe_close(&t->bpe);
}

/* ---- text to tokens */

size_t rm_tokenize_work_bytes(const rm_tokenizer *t, size_t text_bytes) {
    return t->vocab.kind == RM_VOCAB_BPE ? rm_bpe_work_bytes(&t->bpe, text_bytes)
                                         : rm_spm_work_bytes(text_bytes);
}

/* Work memory of a text, by kind. */
typedef struct text_work {
    void *bpe;
    rm_spm_work spm;
} text_work;

/* Text between special tokens. after_special: also at the start. */
static int put_text(rm_ids *ids, const rm_tokenizer *t, const char *text, size_t bytes,
                    bool after_special, text_work *work, remat_error *err) {
    if (bytes == 0) return REMAT_OK;
    if (t->vocab.kind == RM_VOCAB_BPE) {
        return rm_bpe_tokenize(ids, &t->bpe, text, bytes, work->bpe, err);
    }
    return rm_spm_tokenize(ids, &t->spm, text, bytes, t->add_blank && after_special, &work->spm,
                           err);
}

/* What C calls blanks: of ASCII only, as the models' authors have it. */
static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int tokenize(uint32_t *out, size_t *count, const rm_tokenizer *t, const char *text,
                    const uint8_t *marks, size_t text_bytes, unsigned flags, void *work,
                    remat_error *err) {
    if (text_bytes > TEXT_BYTES_MAX) {
        return rm_fail(err, REMAT_E_FAILED, "tokenizer: a text of %zu bytes; give less than 2 GiB",
                       text_bytes);
    }
    const bool control = (flags & RM_TOKENIZE_SPECIAL) != 0;
    rm_ids ids = {.at = out, .cap = text_bytes + 2};
    const bool bos = (flags & RM_TOKENIZE_BOS) != 0 && t->add_bos && t->bos != RM_TOKEN_NONE;
    const bool eos = (flags & RM_TOKENIZE_BOS) != 0 && t->add_eos && t->eos != RM_TOKEN_NONE;
    if (bos && !rm_ids_put(&ids, (uint32_t)t->bos)) return rm_ids_full(&ids, err);
    size_t at = 0;
    bool after_special = true;
    text_work w = {.bpe = work};
    if (t->vocab.kind == RM_VOCAB_SPM) w.spm = rm_spm_begin(work, text_bytes);
    while (at < text_bytes) {
        size_t found = at, length = 0;
        const uint32_t id = rm_special_next(&t->special, &t->vocab, control, text, marks,
                                            text_bytes, &found, &length);
        const unsigned strip = id == RM_NO_TOKEN ? 0 : t->vocab.flags[id];
        size_t end = id == RM_NO_TOKEN ? text_bytes : found;
        while ((strip & RM_VOCAB_LSTRIP) != 0 && end > at && is_blank(text[end - 1]))
            end--;
        RM_TRY(put_text(&ids, t, text + at, end - at, after_special, &w, err));
        if (id == RM_NO_TOKEN) break;
        after_special = true;
        at = found + length;
        while ((strip & RM_VOCAB_RSTRIP) != 0 && at < text_bytes && is_blank(text[at]))
            at++;
        if (bos && found == 0 && id == (uint32_t)t->bos && (flags & RM_TOKENIZE_ONE_BOS) != 0)
            continue;
        if (!rm_ids_put(&ids, id)) return rm_ids_full(&ids, err);
    }
    if (eos && !rm_ids_put(&ids, (uint32_t)t->eos)) return rm_ids_full(&ids, err);
    *count = ids.count;
    return REMAT_OK;
}

int rm_tokenize(uint32_t *out, size_t *count, const rm_tokenizer *t, const char *text,
                size_t text_bytes, unsigned flags, void *work, remat_error *err) {
    return tokenize(out, count, t, text, NULL, text_bytes, flags, work, err);
}

int rm_tokenize_marked(uint32_t *out, size_t *count, const rm_tokenizer *t, const char *text,
                       const uint8_t *marks, size_t text_bytes, void *work, remat_error *err) {
    return tokenize(out, count, t, text, marks, text_bytes, RM_TOKENIZE_SPECIAL, work, err);
}

/* ---- tokens */

uint32_t rm_tokenizer_vocabulary(const rm_tokenizer *t) {
    return t->vocab.count;
}

rm_token_type rm_token_type_of(const rm_tokenizer *t, uint32_t id) {
    if (id >= t->vocab.count) return RM_TOKEN_UNUSED; /* padding of the embedding */
    return (rm_token_type)(t->vocab.flags[id] & RM_VOCAB_TYPE);
}

int32_t rm_token_bos(const rm_tokenizer *t) {
    return t->bos;
}
int32_t rm_token_eos(const rm_tokenizer *t) {
    return t->eos;
}

bool rm_token_is_end(const rm_tokenizer *t, uint32_t id) {
    if (id >= t->vocab.count) return false; /* padding of the embedding */
    return (t->vocab.flags[id] & RM_VOCAB_END) != 0;
}

int32_t rm_token_find(const rm_tokenizer *t, const char *text, size_t bytes) {
    const uint32_t id = rm_vocab_find(&t->vocab, text, bytes);
    return id == RM_NO_TOKEN ? RM_TOKEN_NONE : (int32_t)id;
}

/* Whether a token stands for nothing in text. Tokens of type "unused" pad byte-level vocabularies,
 * but are ordinary pieces of SentencePiece ones. */
static bool is_hidden(const rm_tokenizer *t, rm_token_type type) {
    return type == RM_TOKEN_CONTROL || type == RM_TOKEN_UNKNOWN ||
           (type == RM_TOKEN_UNUSED && t->vocab.kind == RM_VOCAB_BPE);
}

size_t rm_token_text(char *out, size_t cap, const rm_tokenizer *t, uint32_t id, bool special,
                     bool first) {
    if (id >= t->vocab.count) return 0;
    const rm_token_type type = rm_token_type_of(t, id);
    if (!special && is_hidden(t, type)) return 0;
    size_t n;
    const char *text = rm_vocab_bytes(&t->vocab, id, &n);
    char byte;
    if (type == RM_TOKEN_BYTE && t->vocab.kind == RM_VOCAB_SPM) {
        byte = (char)rm_vocab_byte(text, n);
        text = &byte;
        n = 1;
    } else if (first && t->add_blank && n > 0 && text[0] == ' ' &&
               (t->vocab.flags[id] & RM_VOCAB_PLAIN) != 0) {
        text++;
        n--;
    }
    if (cap > 0) memcpy(out, text, n < cap ? n : cap);
    return n;
}

size_t rm_token_text_most(const rm_tokenizer *t) {
    return t->text_most;
}
