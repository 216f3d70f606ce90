/* chat_turn.c: one reply of a chat. See chat_session.h. */
#include "app/chat_session.h"
#include "base/clock.h"
#include "base/random.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- tokens ----------------------------------------------------------------------------------- */

int app_chat_tokens(size_t *count, app_chat *c, bool reply, remat_error *err) {
    rm_buf b;
    rm_json j;
    rm_buf_start(&b, c->scratch, c->scratch_bytes, NULL, NULL);
    rm_json_start(&j, &b);
    rm_json_open(&j, NULL, '{');
    app_talk_json(&c->talk, &j);
    rm_json_bool(&j, "add_generation_prompt", reply);
    if (c->settings.reasoning != APP_REASONING_AUTO)
        rm_json_bool(&j, "enable_thinking", c->settings.reasoning == APP_REASONING_ON);
    rm_json_close(&j, '}');
    if (b.truncated)
        return rm_fail(err, REMAT_E_CONTEXT,
                       "conversation: its text is longer than the %zu bytes "
                       "set aside",
                       c->scratch_bytes);
    const remat_chat chat = {.variables = c->scratch,
                             .variable_bytes = b.used,
                             .source = c->source.bytes,
                             .source_bytes = c->source.count,
                             .now = (int64_t)time(NULL)};
    return remat_tokenize_chat(c->ids, c->context, count, c->engine, &chat, err);
}

/* Goes back to what the cache and the new prompt have in common; one token at least is left. */
static uint32_t keep_common(app_chat *c, uint32_t count) {
    const uint32_t *have = remat_sequence_tokens(c->sequence);
    uint32_t most = remat_sequence_count(c->sequence), same = 0;
    if (most > count - 1) most = count - 1;
    while (same < most && have[same] == c->ids[same])
        same++;
    remat_sequence_truncate(c->sequence, same);
    return same;
}

/* --- text ------------------------------------------------------------------------------------- */

/* What a terminal would obey is not shown. bytes are whole characters. */
static void print(app_chat *c, const char *bytes, size_t count) {
    size_t from = 0;
    for (size_t i = 0; c->to_terminal && i < count; i++) {
        const uint8_t b = (uint8_t)bytes[i];
        const bool c1 = b == 0xc2 && i + 1 < count && (uint8_t)bytes[i + 1] < 0xa0;
        if (!c1 && ((b >= 0x20 && b != 0x7f) || b == '\n' || b == '\t')) continue;
        rm_buf_put(app_out(), bytes + from, i - from);
        i += c1;
        from = i + 1;
    }
    if (from < count) rm_buf_put(app_out(), bytes + from, count - from);
    if (count > 0) c->last_byte = bytes[count - 1];
}

static void set_dim(app_chat *c, bool dim) {
    if (c->dim != dim && c->colour) rm_buf_text(app_out(), dim ? "\033[2m" : "\033[0m");
    c->dim = dim;
}

static void show(app_chat *c, bool end) {
    app_piece p;
    const char *reply = c->talk.text + c->talk.used;
    while (app_think_next(&p, &c->think, reply, c->talk.draft, end)) {
        set_dim(c, p.reasoning);
        if (!p.reasoning && c->thought)
            rm_buf_text(app_out(), c->last_byte == '\n' ? "\n" : "\n\n");
        c->thought = p.reasoning;
        print(c, p.bytes, p.count);
    }
    if (end) {
        set_dim(c, false);
        if (c->last_byte != '\n') rm_buf_text(app_out(), "\n");
    }
    rm_buf_flush(app_out());
    c->output_failed = app_out()->failed;
}

static bool on_text(void *user, const char *text, size_t bytes) {
    app_chat *c = user;
    if (!app_talk_add(&c->talk, text, bytes)) {
        c->full = true;
        return false;
    }
    show(c, false);
    return !c->output_failed;
}

static bool on_token(void *user, uint32_t id, const float *logits) {
    (void)user, (void)id, (void)logits;
    app_progress_end();
    return true;
}

/* --- the reply -------------------------------------------------------------------------------- */

/* The first reply is that of `remat run` with this seed; later ones have seeds of their own, which
 * depend on the place in the conversation only: after /undo a message gets the same reply. */
static uint64_t seed_of(const app_chat *c) {
    uint64_t users = 0;
    rm_random r;
    for (uint32_t i = 0; i < c->talk.count; i++)
        users += c->talk.messages[i].role == APP_USER;
    const uint64_t tries = c->settings.seed_given ? 0 : c->attempt;
    if (users <= 1 && tries == 0) return c->settings.sampling.seed;
    rm_random_seed(&r, c->settings.sampling.seed ^ (users << 40) ^ (tries << 20));
    return rm_random_u64(&r);
}

static int generate(app_chat *c, uint32_t count, remat_result *result, bool *asked,
                    remat_error *err) {
    remat_generation how = {.token_count = c->settings.predict,
                            .ignore_end = c->args->ignore_eos,
                            .sampling = c->settings.sampling,
                            .stops = c->args->stops,
                            .stop_count = c->args->stop_count,
                            .on_text = on_text,
                            .on_token = on_token,
                            .user = c};
    how.sampling.seed = seed_of(c);
    app_think_start(&c->think, c->settings.reasoning != APP_REASONING_OFF,
                    app_think_opened(c->engine, c->ids, count));
    c->dim = c->thought = c->full = false;
    c->last_byte = '\n';
    for (bool again = true; again;) {
        const uint32_t same = keep_common(c, count);
        c->last_cached = same;
        (void)app_line_busy(true);
        const int status =
            remat_generate(result, c->sequence, c->ids + same, count - same, &how, err);
        *asked = app_line_busy(false);
        /* A Ctrl-C that came after the end of the last reply cancels this one: not meant. */
        again = status == REMAT_E_CANCELED && c->stale_cancel && !*asked && c->talk.draft == 0;
        c->stale_cancel = status == REMAT_OK && *asked;
        if (!again) return status;
    }
    return REMAT_OK;
}

static void print_timings(const app_chat *c) {
    const remat_result *r = &c->last;
    if (!isatty(STDERR_FILENO)) return;
    const double decode =
        r->token_count > 1 && r->decode_s > 0 ? (r->token_count - 1) / r->decode_s : 0;
    fprintf(stderr,
            "%s[prompt %u tokens at %.1f/s, %u cached; reply %u at %.1f/s; context %u of %u]%s\n",
            c->colour ? "\033[2m" : "", r->prompt_count,
            r->prefill_s > 0 ? r->prompt_count / r->prefill_s : 0.0, c->last_cached, r->token_count,
            decode, remat_sequence_count(c->sequence), c->context, c->colour ? "\033[0m" : "");
}

/* Why a reply ends that has not come to its end. */
static void print_end(const app_chat *c, const remat_result *r, bool stopped) {
    if (stopped) {
        app_chat_say(c, "(stopped; /regen makes another reply)");
    } else if (c->full) {
        app_chat_say(c, "(no room to keep more text; /undo takes the last message back, /clear "
                        "starts anew)");
    } else if (r->finish == REMAT_FINISH_LENGTH) {
        app_chat_say(c, "(stopped after %u tokens; /set predict changes this)", r->token_count);
    } else if (r->finish == REMAT_FINISH_CONTEXT) {
        app_chat_say(c,
                     "(the context of %u tokens is full: the reply ends here; /undo takes the "
                     "last message back, /clear starts anew)",
                     c->context);
    } else {
        print_timings(c);
    }
}

static int check_room(app_chat *c, size_t count, remat_error *err) {
    if (count == 0)
        return rm_fail(err, REMAT_E_USAGE, "message: the chat template makes nothing of it");
    if (count >= c->context) {
        return rm_fail(err, REMAT_E_CONTEXT,
                       "conversation: %zu tokens leave no room for a reply in the context of %u",
                       count, c->context);
    }
    if (count > c->context / 4 * 3)
        app_chat_say(c, "(context: %zu of %u tokens used, room for %u; /undo or /clear makes more)",
                     count, c->context, c->context - (uint32_t)count);
    return REMAT_OK;
}

int app_chat_reply(app_chat *c, remat_error *err) {
    size_t count = 0;
    bool asked = false;
    remat_result result = {0};
    RM_TRY(app_chat_tokens(&count, c, true, err));
    RM_TRY(check_room(c, count, err));
    const double begin = rm_clock_s();
    const int status = generate(c, (uint32_t)count, &result, &asked, err);
    app_progress_end();
    show(c, true);
    if (c->output_failed) return app_flush(err);
    if (status != REMAT_OK && status != REMAT_E_CANCELED) {
        app_talk_drop_draft(&c->talk);
        return status;
    }
    if (status == REMAT_E_CANCELED) result.decode_s = rm_clock_s() - begin;
    c->last = result;
    if (!app_talk_push(&c->talk, APP_ASSISTANT)) {
        app_talk_drop_draft(&c->talk);
        return rm_fail(err, REMAT_E_CONTEXT, "conversation: %u messages are too many for it",
                       c->talk.count);
    }
    print_end(c, &result, status == REMAT_E_CANCELED);
    return REMAT_OK;
}

int app_chat_send(app_chat *c, remat_error *err) {
    int status = app_talk_push(&c->talk, APP_USER)
                     ? REMAT_OK
                     : rm_fail(err, REMAT_E_CONTEXT,
                               "conversation: %u messages are too many for it", c->talk.count);
    if (status == REMAT_OK) status = app_chat_reply(c, err);
    if (status == REMAT_OK || c->output_failed) return status;
    if (app_talk_ends_with(&c->talk, APP_USER)) app_talk_pop(&c->talk);
    app_talk_drop_draft(&c->talk);
    app_chat_say(c, "remat: %s", err->message);
    if (status == REMAT_E_CONTEXT || status == REMAT_E_BUDGET)
        app_chat_say(c,
                     "(the message is not sent; /undo takes the last one back, /clear starts anew, "
                     "/tokens counts)");
    return REMAT_OK;
}
