/* conversation.c: conversations to tokens, through a chat template. Part: engine. */
#include "text/chat.h"
#include "engine/engine.h"
#include "text/template.h"

#include <string.h>

enum { NAME_MAX_BYTES = 32, TOKEN_TEXT_MAX = 256 };

static const rm_gguf_kv *template_key(const remat_engine *e) {
    const rm_gguf_kv *kv = rm_gguf_find(&e->gguf, "tokenizer.chat_template");
    return kv != NULL && kv->type == RM_GGUF_STRING && kv->value_bytes > 0 ? kv : NULL;
}

size_t remat_chat_template(char *out, size_t cap, const remat_engine *e) {
    if (e->tokenizer == NULL) return 0;
    const rm_gguf_kv *kv = template_key(e);
    if (kv != NULL) {
        const uint64_t n = kv->value_bytes < cap ? kv->value_bytes : cap;
        if (n > 0 && rm_file_read(&e->file, out, kv->value_at, n, NULL) != REMAT_OK) return 0;
        return kv->value_bytes;
    }
    const char *builtin = rm_chat_fitting(e->tokenizer);
    const size_t bytes = strlen(builtin);
    memcpy(out, builtin, bytes < cap ? bytes : cap);
    return bytes;
}

/* Text of a token that templates name, as the file has it; nothing without one. */
static size_t token_name(char *out, const remat_engine *e, int32_t id) {
    if (id == RM_TOKEN_NONE) return 0;
    const size_t n = rm_token_text(out, TOKEN_TEXT_MAX, e->tokenizer, (uint32_t)id, true, false);
    return n <= TOKEN_TEXT_MAX ? n : 0;
}

static int render(rm_template_output *out, const remat_engine *e, const remat_chat *chat,
                  const char *source, size_t source_bytes, void *memory, size_t memory_bytes,
                  remat_error *err) {
    char bos[TOKEN_TEXT_MAX] = "", eos[TOKEN_TEXT_MAX] = "";
    rm_template_limits limits = rm_template_limits_default();
    rm_template_extra extra[2] = {{"bos_token", bos, 0}, {"eos_token", eos, 0}};
    limits.now = chat->now;
    if (e != NULL) {
        extra[0].text_bytes = token_name(bos, e, rm_token_bos(e->tokenizer));
        extra[1].text_bytes = token_name(eos, e, rm_token_eos(e->tokenizer));
    }
    return rm_template_render(out, source, source_bytes, chat->variables, chat->variable_bytes,
                              extra, e != NULL ? 2 : 0, &limits, memory, memory_bytes, err);
}

/* The caller's source, or the built-in of that name. */
static const char *given_source(const remat_chat *chat, size_t *bytes) {
    const char *builtin = chat->source_bytes <= NAME_MAX_BYTES
                              ? rm_chat_builtin(chat->source, chat->source_bytes)
                              : NULL;
    *bytes = builtin != NULL ? strlen(builtin) : chat->source_bytes;
    return builtin != NULL ? builtin : chat->source;
}

int remat_template_render(const char **text, size_t *bytes, const remat_engine *e,
                          const remat_chat *chat, void *memory, size_t memory_bytes,
                          remat_error *err) {
    rm_template_output out;
    size_t source_bytes;
    const char *source = chat->source;
    if (source != NULL) {
        source = given_source(chat, &source_bytes);
    } else {
        if (e == NULL || e->tokenizer == NULL)
            return rm_fail(err, REMAT_E_USAGE, "template: neither a source nor a model given");
        source_bytes = remat_chat_template(memory, memory_bytes, e);
        if (source_bytes > memory_bytes)
            return rm_fail(err, REMAT_E_FAILED, "template: it needs more memory");
        source = memory;
        const size_t used = (source_bytes + 63) / 64 * 64;
        memory = (char *)memory + used;
        memory_bytes = memory_bytes > used ? memory_bytes - used : 0;
    }
    RM_TRY(render(&out, e, chat, source, source_bytes, memory, memory_bytes, err));
    *text = out.text;
    *bytes = out.bytes;
    return REMAT_OK;
}

static uint64_t lines(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* One after the other in memory: the model's template, what rendering takes, ids, work. */
static int tokenize(uint32_t *out, size_t cap, size_t *count, remat_engine *e,
                    const remat_chat *chat, uint8_t *memory, uint64_t room, remat_error *err) {
    rm_template_output text;
    size_t source_bytes = 0, n = 0;
    uint64_t used = 0;
    const char *source = chat->source;
    if (source != NULL) {
        source = given_source(chat, &source_bytes);
    } else {
        source_bytes = remat_chat_template((char *)memory, room, e);
        source = (const char *)memory;
        used = lines(source_bytes);
    }
    if (used > room) return rm_fail(err, REMAT_E_BUDGET, "budget: no room for the chat template");
    RM_TRY(render(&text, e, chat, source, source_bytes, memory + used, room - used, err));
    const uint64_t ids_at = used + lines(text.memory_used);
    const uint64_t work_at = ids_at + lines((text.bytes + 2) * sizeof *out);
    const uint64_t need = work_at + rm_tokenize_work_bytes(e->tokenizer, text.bytes);
    if (need > room) {
        if (err != NULL) err->minimum_bytes = rm_ledger_total(&e->ledger) + need;
        return rm_fail(err, REMAT_E_BUDGET,
                       "budget: no room to work on %zu bytes of conversation; "
                       "give more",
                       text.bytes);
    }
    uint32_t *ids = (uint32_t *)(void *)(memory + ids_at);
    RM_TRY(rm_tokenize_marked(ids, &n, e->tokenizer, text.text, text.marks, text.bytes,
                              memory + work_at, err));
    memcpy(out, ids, (n < cap ? n : cap) * sizeof *out);
    *count = n;
    if (n <= cap) return REMAT_OK;
    return rm_fail(err, REMAT_E_CONTEXT,
                   "conversation: %zu tokens do not fit the context of %zu; "
                   "give a larger -c or a shorter text",
                   n, cap);
}

int remat_tokenize_chat(uint32_t *out, size_t cap, size_t *count, remat_engine *e,
                        const remat_chat *chat, remat_error *err) {
    const uint64_t most = 4ull << 30, least = 64 << 10;
    uint64_t room;
    uint8_t *memory;
    size_t n = 0;
    RM_TRY(rm_engine_text_memory(&memory, &room, e, least, most, err));
    const int status = tokenize(out, cap, &n, e, chat, memory, room / 64 * 64, err);
    rm_engine_text_return(e);
    if (status == REMAT_OK) *count = n;
    return status;
}
