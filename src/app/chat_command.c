/* chat_command.c: the commands of a chat. See chat_session.h. */
#include "app/chat_session.h"

#include <stdarg.h>
#include <string.h>

enum { MIB = 1 << 20 };

void app_chat_say(const app_chat *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vfprintf(c->out, fmt, ap);
    va_end(ap);
    (void)fputc('\n', c->out);
    (void)fflush(c->out);
}

static void help(const app_chat *c) {
    const char *text;
    for (size_t i = 0; (text = app_verb_help(i)) != NULL; i++)
        app_chat_say(c, "  %s", text);
}

/* Back to before the last message of the user. False: there is none. */
static bool undo(app_chat *c) {
    if (app_talk_ends_with(&c->talk, APP_ASSISTANT)) app_talk_pop(&c->talk);
    if (!app_talk_ends_with(&c->talk, APP_USER)) return false;
    app_talk_pop(&c->talk);
    return true;
}

static int regenerate(app_chat *c, remat_error *err) {
    if (c->talk.draft > 0) {
        app_chat_say(c, "(a text from /read waits for its message: send it, or /undo)");
        return REMAT_OK;
    }
    if (app_talk_ends_with(&c->talk, APP_ASSISTANT)) app_talk_pop(&c->talk);
    if (!app_talk_ends_with(&c->talk, APP_USER)) {
        app_chat_say(c, "(there is no message to reply to)");
        return REMAT_OK;
    }
    c->attempt++;
    const int status = app_chat_reply(c, err);
    if (status == REMAT_OK || c->output_failed) return status;
    app_talk_pop(&c->talk);
    app_chat_say(c, "remat: %s", err->message);
    app_chat_say(c, "(the message is taken back)");
    return REMAT_OK;
}

static void system_text(app_chat *c, const char *text) {
    const app_talk *t = &c->talk;
    if (text[0] == '\0') {
        if (t->count > 0 && t->messages[0].role == APP_SYSTEM) {
            app_chat_say(c, "%.*s", (int)t->messages[0].bytes, t->text);
        } else {
            app_chat_say(c, "(no system text)");
        }
        return;
    }
    if (strcmp(text, "\"\"") == 0) text = "";
    if (!app_talk_system(&c->talk, text, strlen(text)))
        app_chat_say(c, "remat: no room for this system text; /clear, or a shorter one");
}

static void settings(app_chat *c, const char *text) {
    app_settings s = c->settings;
    remat_error err = {0};
    char line[256];
    if (strncmp(text, "parameter ", 10) == 0) text += 10; /* as ollama has it */
    if (text[0] != '\0') {
        int status = app_settings_parse(&s, text, &err);
        if (status == REMAT_OK) status = remat_sampling_check(c->engine, &s.sampling, &err);
        if (status != REMAT_OK) {
            app_chat_say(c, "remat: %s", err.message);
            return;
        }
        c->settings = s;
    }
    app_settings_print(line, sizeof line, &c->settings);
    app_chat_say(c, "%s", line);
}

static void file(app_chat *c, app_verb verb, const char *path) {
    remat_error err = {0};
    size_t bytes = 0;
    int status;
    if (path[0] == '\0') {
        app_chat_say(c, "remat: a file's name is missing; see /help");
        return;
    }
    if (verb == APP_VERB_SAVE) {
        status = app_chat_save(c, path, &err);
    } else if (verb == APP_VERB_LOAD) {
        status = app_chat_load(c, path, &err);
        c->attempt = 0;
    } else {
        const size_t draft = c->talk.draft;
        status = app_chat_read(&bytes, c, path, &err);
        if (status == REMAT_OK && !app_talk_add(&c->talk, "\n\n", 2)) {
            status = rm_fail(&err, REMAT_E_CONTEXT, "%.100s: no room for it", path);
            c->talk.draft = draft;
        }
    }
    if (status != REMAT_OK) {
        app_chat_say(c, "remat: %s", err.message);
    } else if (verb == APP_VERB_READ) {
        app_chat_say(c, "(%zu bytes go with the next message)", bytes);
    } else {
        app_chat_say(c, "(%u messages %s)", c->talk.count,
                     verb == APP_VERB_SAVE ? "saved" : "loaded");
        if (verb == APP_VERB_LOAD && app_talk_ends_with(&c->talk, APP_USER))
            app_chat_say(c, "(the last one has no reply; /regen makes it)");
    }
}

static void tokens(app_chat *c) {
    size_t count = 0;
    remat_error err = {0};
    if (c->talk.count > 0 && app_chat_tokens(&count, c, false, &err) != REMAT_OK) {
        app_chat_say(c, "remat: %s", err.message);
        return;
    }
    app_chat_say(c, "%zu tokens of %u in %u messages; %u are in the cache's sequence", count,
                 c->context, c->talk.count, remat_sequence_count(c->sequence));
}

static void interval(void *user, uint32_t first, uint32_t last, const char *state,
                     uint32_t layer_first, uint32_t layer_last) {
    app_chat_say(user, "  tokens %u to %u, layers %u to %u: %s", first, last, layer_first,
                 layer_last, state);
}

static void memory(app_chat *c) {
    remat_stats s;
    remat_stats_get(&s, c->engine);
    app_chat_say(c, "peak %.1f MiB of %.1f MiB, predicted %.1f MiB", (double)s.peak_bytes / MIB,
                 (double)s.budget_bytes / MIB, (double)s.predicted_peak_bytes / MIB);
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++) {
        if (s.account_bytes[i] > 0)
            app_chat_say(c, "  %-14s %9.2f MiB", remat_account_name(i),
                         (double)s.account_bytes[i] / MIB);
    }
    app_chat_say(c, "cache: %.2f MiB in use, %llu tokens dropped, %llu recomputed so far",
                 (double)s.kv_resident_bytes / MIB, (unsigned long long)s.dropped_tokens,
                 (unsigned long long)s.recomputed_tokens);
    remat_each_interval(c->sequence, interval, c);
}

static void stats(const app_chat *c) {
    const remat_result *r = &c->last;
    remat_stats s;
    remat_stats_get(&s, c->engine);
    if (r->token_count > 0 && r->prefill_s > 0)
        app_chat_say(c,
                     "last reply: prompt %u tokens at %.1f a second (%u more were cached), %u "
                     "tokens at %.1f",
                     r->prompt_count, r->prompt_count / r->prefill_s, c->last_cached,
                     r->token_count, r->token_count > 1 ? (r->token_count - 1) / r->decode_s : 0.0);
    app_chat_say(c, "engine: %s, %u threads, load %.2f s, %llu sweeps of %.1f rows", s.kernels,
                 s.thread_count, s.load_s, (unsigned long long)s.sweep_count,
                 s.sweep_count > 0 ? (double)s.row_count / (double)s.sweep_count : 0.0);
}

int app_chat_command(app_chat *c, app_verb verb, const char *rest, remat_error *err) {
    switch (verb) {
    case APP_VERB_HELP:
        help(c);
        break;
    case APP_VERB_CLEAR:
        app_talk_clear(&c->talk);
        c->attempt = 0;
        app_chat_say(c, "(cleared)");
        break;
    case APP_VERB_REGEN:
        return regenerate(c, err);
    case APP_VERB_UNDO:
        c->attempt = 0;
        if (c->talk.draft > 0) {
            app_talk_drop_draft(&c->talk);
            app_chat_say(c, "(the text from /read is taken back)");
        } else {
            app_chat_say(c, undo(c) ? "(taken back)" : "(there is no message to take back)");
        }
        break;
    case APP_VERB_SYSTEM:
        system_text(c, rest);
        break;
    case APP_VERB_SET:
        settings(c, rest);
        break;
    case APP_VERB_SAVE:
    case APP_VERB_LOAD:
    case APP_VERB_READ:
        file(c, verb, rest);
        break;
    case APP_VERB_TOKENS:
        tokens(c);
        break;
    case APP_VERB_MEM:
        memory(c);
        break;
    case APP_VERB_STATS:
        stats(c);
        break;
    default:
        app_chat_say(c,
                     "remat: there is no such command; /help lists them, a blank in front makes it "
                     "text");
    }
    return REMAT_OK;
}
