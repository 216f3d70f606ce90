/* session.c: see session.h. */
#include "engine/session.h"
#include "base/hash.h"
#include "cache/session_file.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

enum {
    /* Raised by whoever changes a bit of what keys and values are (kernels, fine inputs, rotary):
     * pages of older files are recomputed then. */
    ANSWER_VERSION = 1,
    SAMPLES = 64,        /* tensors whose data is looked at, spread over the file */
    SAMPLE_BYTES = 4096, /* of each, from its middle: a fine-tuned sibling differs somewhere */
};

int rm_session_layout(rm_session *s, rm_ledger *l, uint64_t page_bytes, remat_error *err) {
    RM_TRY(rm_ledger_carve_pages(&s->page, l, RM_ACCOUNT_IO, 1, page_bytes, err));
    return rm_ledger_carve(&s->window, l, RM_ACCOUNT_IO, 1, RM_SESSION_WINDOW, err);
}

/* --- fingerprints ----------------------------------------------------------------------------- */

static void mix(uint64_t *hash, const void *bytes, size_t count) {
    *hash = rm_hash(bytes, count, *hash);
}

static int mix_range(uint64_t *hash, const rm_file *f, uint64_t at, uint64_t bytes,
                     remat_error *err) {
    uint8_t window[SAMPLE_BYTES];
    while (bytes > 0) {
        const uint64_t n = bytes < sizeof window ? bytes : sizeof window;
        RM_TRY(rm_file_read(f, window, at, n, err));
        mix(hash, window, n);
        at += n;
        bytes -= n;
    }
    return REMAT_OK;
}

/* The architecture's own keys: rotary base, scaling, epsilons, ... Names, licences, tokenizer and
 * chat template may change, a token's keys and values do not depend on them. */
static int mix_keys(uint64_t *hash, const rm_gguf *g, const char *architecture, remat_error *err) {
    char head[sizeof((rm_shape){0}.architecture) + 1];
    const size_t bytes = strlen(architecture);
    for (uint32_t i = 0; i < g->kv_count; i++) {
        const rm_gguf_kv *kv = &g->kv[i];
        if (kv->key_bytes <= bytes) continue;
        RM_TRY(rm_file_read(g->file, head, kv->key_at, bytes + 1, err));
        if (memcmp(head, architecture, bytes) != 0 || head[bytes] != '.') continue;
        mix(hash, &kv->key_hash, sizeof kv->key_hash);
        mix(hash, &kv->type, sizeof kv->type);
        RM_TRY(mix_range(hash, g->file, kv->value_at, kv->value_bytes, err));
    }
    return REMAT_OK;
}

static void mix_tensor(uint64_t *hash, const rm_gguf_tensor *t) {
    const uint64_t numbers[] = {t->dim_count, t->type, t->part, t->at, t->bytes};
    mix(hash, t->name, strlen(t->name));
    mix(hash, t->dims, sizeof t->dims);
    mix(hash, numbers, sizeof numbers);
}

static int model_fingerprint(uint64_t *out, const remat_engine *e, remat_error *err) {
    const rm_gguf *g = &e->gguf;
    const rm_shape *s = &e->model.shape;
    const uint32_t numbers[] = {s->layer_count,  s->dim,           s->feed_forward, s->vocabulary,
                                s->head_count,   s->kv_head_count, s->head_dim,     s->rope_dim,
                                s->expert_count, s->expert_used,   g->tensor_count, g->part_count};
    uint64_t hash = 0;
    mix(&hash, s->architecture, strlen(s->architecture));
    mix(&hash, numbers, sizeof numbers);
    RM_TRY(mix_keys(&hash, g, s->architecture, err));
    mix(&hash, &g->file->size, sizeof g->file->size);
    for (uint32_t i = 1; i < g->part_count; i++)
        mix(&hash, &g->parts[i].size, sizeof g->parts[i].size);
    for (uint32_t i = 0; i < g->tensor_count; i++)
        mix_tensor(&hash, &g->tensors[i]);
    const uint32_t samples = g->tensor_count < SAMPLES ? g->tensor_count : SAMPLES;
    for (uint32_t i = 0; i < samples; i++) {
        const rm_gguf_tensor *t = &g->tensors[(uint64_t)i * g->tensor_count / samples];
        const uint64_t bytes = t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES;
        const uint64_t at = t->at + (t->bytes - bytes) / 2;
        RM_TRY(mix_range(&hash, rm_gguf_file(g, t), at, bytes, err));
    }
    *out = hash;
    return REMAT_OK;
}

/* Rotary tables are in it, since some models choose theirs by the context. */
static uint64_t cache_fingerprint(const remat_engine *e) {
    const rm_cache_shape *c = &e->cache.shape;
    const rm_model *m = &e->model;
    const uint32_t numbers[] = {ANSWER_VERSION,   RM_PAGE_TOKENS, c->layer_count,
                                c->kv_head_count, c->head_dim,    (uint32_t)c->format};
    uint64_t hash = 0;
    mix(&hash, numbers, sizeof numbers);
    for (int i = 0; i < RM_ROPE_TABLES; i++) {
        const rm_rope *r = &m->rope[i];
        if (r->frequency == NULL) continue;
        mix(&hash, r->frequency, m->shape.rope_dim / 2 * sizeof *r->frequency);
        mix(&hash, &r->scale, sizeof r->scale);
    }
    return hash;
}

/* Before the start there is no cache: then no file's pages fit. */
static int kind_of(rm_session_kind *out, const remat_engine *e, remat_error *err) {
    *out = (rm_session_kind){.layer_count = e->model.shape.layer_count,
                             .vocabulary = e->model.shape.vocabulary};
    RM_TRY(model_fingerprint(&out->model, e, err));
    if (!e->ready) return REMAT_OK;
    out->cache = cache_fingerprint(e);
    out->page_bytes = rm_cache_page_bytes(&e->cache.shape);
    return REMAT_OK;
}

/* --- saving ----------------------------------------------------------------------------------- */

/* Newest columns first: a cache with less room takes them in this order. */
static int put_pages(rm_session_writer *w, remat_sequence *s, remat_error *err) {
    remat_engine *e = s->engine;
    for (uint32_t column = rm_columns(s->count); column-- > 0;) {
        for (uint32_t layer = 0; layer < e->model.shape.layer_count; layer++) {
            const bool held =
                rm_cache_copy_out(&e->cache, s->index, layer, column, e->session.page);
            RM_TRY(rm_session_put_page(w, layer, column, held ? e->session.page : NULL, err));
        }
    }
    return REMAT_OK;
}

int remat_session_save(uint64_t *bytes, remat_sequence *s, const char *path,
                       const uint32_t *pending, uint32_t pending_count, unsigned flags,
                       remat_error *err) {
    remat_engine *e = s->engine;
    rm_session_kind kind;
    rm_session_writer w;
    const bool pages = (flags & REMAT_SESSION_TOKENS_ONLY) == 0;
    if (pending_count > RM_CONTEXT_MAX - s->count)
        return rm_fail(err, REMAT_E_USAGE, "session: %u and %u tokens are too many; at most %d",
                       s->count, pending_count, RM_CONTEXT_MAX);
    for (uint32_t i = 0; i < pending_count; i++) {
        if (pending[i] >= e->model.shape.vocabulary)
            return rm_fail(err, REMAT_E_USAGE, "session: token %u is outside the vocabulary",
                           pending[i]);
    }
    RM_TRY(kind_of(&kind, e, err));
    const uint32_t entries = pages ? rm_columns(s->count) * e->model.shape.layer_count : 0;
    RM_TRY(rm_session_create(&w, path, &kind, s->count + pending_count, s->count, entries,
                             e->session.window, err));
    RM_TRY(rm_session_put_tokens(&w, s->tokens, s->count, err));
    RM_TRY(rm_session_put_tokens(&w, pending, pending_count, err));
    if (pages) RM_TRY(put_pages(&w, s, err));
    return rm_session_commit(bytes, &w, err);
}

/* --- loading ---------------------------------------------------------------------------------- */

int remat_session_peek(remat_session_info *out, const remat_engine *e, const char *path,
                       remat_error *err) {
    uint64_t window[RM_SESSION_WINDOW / sizeof(uint64_t)];
    remat_session_info info = {0};
    rm_session_kind kind;
    rm_session_reader r;
    if (e->options.index_only)
        return rm_fail(err, REMAT_E_USAGE, "session: the engine was opened with index_only");
    RM_TRY(rm_session_check_path(&info.exists, path, err));
    if (info.exists) {
        RM_TRY(kind_of(&kind, e, err));
        RM_TRY(rm_session_open(&r, path, &kind, window, err));
        info.token_count = r.head.token_count;
        const int status = rm_session_read_tokens(NULL, &info.last_token, &r, err);
        rm_session_close(&r);
        RM_TRY(status);
    }
    *out = info;
    return REMAT_OK;
}

static int load_tokens(uint32_t *tokens, uint32_t cap, remat_session_info *info,
                       const remat_sequence *s, rm_session_reader *r, remat_error *err) {
    const uint32_t count = r->head.token_count, context = s->engine->setup.context_count;
    if (r->head.cached_count > context || count > cap) {
        return rm_fail(err, REMAT_E_CONTEXT,
                       "session %s: its %u tokens do not fit the context of %u; give a larger -c",
                       rm_path_tail(r->file.path), count, context < cap ? context : cap);
    }
    info->exists = true;
    info->token_count = count;
    return rm_session_read_tokens(tokens, &info->last_token, r, err);
}

/* Puts sound pages into the cache, until one has no room. */
static int load_pages(remat_session_info *info, remat_sequence *s, rm_session_reader *r,
                      remat_error *err) {
    remat_engine *e = s->engine;
    const uint32_t count = rm_session_pages(r), all = rm_columns(r->head.cached_count);
    const uint32_t most = e->setup.resident_columns;
    for (uint32_t i = 0; i < count; i++) {
        rm_session_entry entry;
        if (atomic_exchange(&e->cancel, false))
            return rm_fail(err, REMAT_E_CANCELED, "interrupted while loading a session");
        const rm_session_state state = rm_session_entry_at(&entry, r, i);
        if (state == RM_SESSION_LOST) info->lost_pages++;
        if (state != RM_SESSION_SAVED || all - entry.column > most) continue;
        if (!rm_session_read_page(e->session.page, r, &entry)) {
            info->lost_pages++;
        } else if (!rm_cache_put_in(&e->cache, s->index, entry.layer, entry.column,
                                    e->session.page)) {
            break;
        } else {
            info->loaded_pages++;
        }
        if (e->options.progress != NULL)
            e->options.progress(e->options.progress_user, REMAT_STAGE_LOAD, i + 1, count);
    }
    return REMAT_OK;
}

static void warn(remat_session_info *info, const rm_session_reader *r) {
    const char *name = rm_path_tail(r->file.path);
    if (r->head.page_count > 0 && r->head.cache != r->kind.cache) {
        info->lost_pages = r->head.page_count;
        snprintf(info->warning, sizeof info->warning,
                 "session %s: its cache has another format; all of it is computed again", name);
    } else if (info->lost_pages > 0) {
        snprintf(info->warning, sizeof info->warning,
                 "session %s: %u of %u pages are damaged or cut off; they are computed again", name,
                 info->lost_pages, r->head.page_count);
    }
}

static int load(remat_session_info *out, uint32_t *tokens, uint32_t cap, remat_sequence *s,
                rm_session_reader *r, remat_error *err) {
    remat_session_info info = {0};
    const uint32_t cached = r->head.cached_count;
    RM_TRY(load_tokens(tokens, cap, &info, s, r, err));
    const int status = load_pages(&info, s, r, err);
    if (status != REMAT_OK) {
        rm_cache_drop(&s->engine->cache, s->index, 0, rm_columns(cached));
        return status;
    }
    /* What did not come in is a page like any other that is nowhere: route.c finds it. */
    s->count = cached;
    memcpy(s->tokens, tokens, cached * sizeof *tokens);
    warn(&info, r);
    *out = info;
    return REMAT_OK;
}

int remat_session_load(remat_session_info *out, uint32_t *tokens, uint32_t cap, remat_sequence *s,
                       const char *path, remat_error *err) {
    rm_session_kind kind;
    rm_session_reader r;
    if (s->count != 0) return rm_fail(err, REMAT_E_USAGE, "session: the sequence is not empty");
    RM_TRY(kind_of(&kind, s->engine, err));
    RM_TRY(rm_session_open(&r, path, &kind, s->engine->session.window, err));
    const int status = load(out, tokens, cap, s, &r, err);
    rm_session_close(&r);
    return status;
}
