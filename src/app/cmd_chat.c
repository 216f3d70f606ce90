/* cmd_chat.c: remat run at a terminal: a chat. See chat_session.h. */
#include "app/chat_session.h"
#include "base/io.h"
#include "base/random.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, CONTEXT_LEAST = 2048 };

/* --- how much --------------------------------------------------------------------------------- */

typedef struct sizes {
    size_t text, scratch, ids, messages;
} sizes;

/* What a context can hold as text: English has 4 to 5 bytes a token; a reply that needs more than
 * there is says so. As JSON a byte of text is little more than one. */
static sizes sizes_for(uint32_t context) {
    sizes s = {.text = (32u << 10) + (size_t)context * 12,
               .ids = context,
               .messages = context / 4 + 16}; /* a template adds that many tokens at least */
    s.scratch = (64u << 10) + 2 * s.text;
    return s;
}

static int64_t bytes_of(const sizes *s) {
    return (int64_t)(s->text + s->scratch + s->ids * sizeof(uint32_t) +
                     s->messages * sizeof(app_message));
}

/* Memory for templates and tokenizing. A template takes some 64 KiB, 12 times its own text, and 8
 * times the JSON and 3 times the output; tokenizing some 50 bytes a byte. At 5 bytes a token: */
enum { WORK_FIXED = 256 << 10, WORK_PER_SOURCE = 16, WORK_PER_TOKEN = 320 };

static uint64_t work_bytes(const app_chat *c, uint32_t context) {
    char none[1];
    const uint64_t source =
        c->source.bytes != NULL ? c->source.count : remat_chat_template(none, 0, c->engine);
    return WORK_FIXED + WORK_PER_SOURCE * source + (uint64_t)WORK_PER_TOKEN * context;
}

/* The largest context, from the model's down in halves, that is cached whole inside the budget. The
 * least is taken as it is: tokens are dropped and recomputed then, or the start says no. */
static int choose_context(remat_limits *limits, app_chat *c, remat_error *err) {
    remat_model_info info;
    remat_info(&info, c->engine);
    const bool given = c->args->context != APP_UNSET_U32 && c->args->context > 0;
    uint32_t context = given ? c->args->context : info.context_count;
    const uint32_t least = given || context < CONTEXT_LEAST ? context : CONTEXT_LEAST;
    if (given && context > info.context_count)
        app_warn("context of %u tokens: the model was made for %u; answers beyond may be poor",
                 context, info.context_count);
    for (;; context = context / 2 > least ? context / 2 : least) {
        remat_plan plan = {0};
        const sizes s = sizes_for(context);
        limits->context_count = context;
        limits->text_bytes = work_bytes(c, context);
        if (context <= least) return REMAT_OK;
        if (remat_claim(c->engine, bytes_of(&s), NULL) != REMAT_OK) continue;
        const int status = remat_plan_make(&plan, c->engine, limits, err);
        RM_TRY(remat_claim(c->engine, -bytes_of(&s), err));
        RM_TRY(status);
        const uint32_t want = limits->resident_count < context ? limits->resident_count : context;
        if (plan.predicted_peak_bytes > 0 && plan.resident_count >= want) return REMAT_OK;
    }
}

static int take_memory(app_chat *c, uint32_t context, remat_error *err) {
    const sizes s = sizes_for(context);
    c->context = context;
    c->scratch_bytes = s.scratch;
    c->talk.cap = s.text;
    c->talk.message_cap = (uint32_t)s.messages;
    RM_TRY(app_alloc(&c->talk.text, c->engine, s.text, 1, err));
    RM_TRY(app_alloc(&c->talk.messages, c->engine, s.messages, sizeof(app_message), err));
    RM_TRY(app_alloc(&c->scratch, c->engine, s.scratch, 1, err));
    return app_alloc(&c->ids, c->engine, s.ids, sizeof *c->ids, err);
}

/* --- messages --------------------------------------------------------------------------------- */

static bool ends_with(const char *text, size_t bytes, const char *end) {
    const size_t n = strlen(end);
    return bytes >= n && memcmp(text + bytes - n, end, n) == 0;
}

/* Adds a line to the draft. Returns whether the message goes on; *room: whether it had room. */
static bool add_line(app_chat *c, const char *text, size_t bytes, bool first, bool *block,
                     bool *room) {
    bool more = false;
    if (first && bytes >= 3 && memcmp(text, "\"\"\"", 3) == 0) {
        *block = true;
        text += 3;
        bytes -= 3;
        if (bytes == 0) return true;
    }
    if (*block) {
        size_t end = bytes;
        while (end > 0 && text[end - 1] == ' ')
            end--;
        more = !ends_with(text, end, "\"\"\"");
        if (!more) bytes = end - 3;
        if (bytes == 0 && !more) { /* the break before the quotes is not meant */
            if (c->talk.draft > 0 && c->talk.text[c->talk.used + c->talk.draft - 1] == '\n')
                c->talk.draft--;
            return false;
        }
    } else if (ends_with(text, bytes, "\\")) {
        more = true;
        bytes--;
    }
    *room = app_talk_add(&c->talk, text, bytes) && (!more || app_talk_add(&c->talk, "\n", 1));
    return more && *room;
}

/* The rest of a message that begins with this line. False: there is nothing to send. */
static bool compose(app_chat *c, const char *text, size_t bytes) {
    const size_t before = c->talk.draft;
    bool block = false, room = true;
    bool more = add_line(c, text, bytes, true, &block, &room);
    app_line_status status = APP_LINE_TEXT;
    while (more && status == APP_LINE_TEXT) {
        status = app_line_read(". ", &text, &bytes);
        if (status == APP_LINE_TOO_LONG) room = false;
        if (status == APP_LINE_TEXT) more = add_line(c, text, bytes, false, &block, &room);
    }
    bool some = false;
    for (size_t i = before; i < c->talk.draft; i++)
        some = some || strchr(" \t\n", c->talk.text[c->talk.used + i]) == NULL;
    if (!room) app_chat_say(c, "remat: message: it is longer than this context can hold; not sent");
    /* Ctrl-D in between sends what is there. */
    const bool whole = room && some && (status == APP_LINE_TEXT || status == APP_LINE_END);
    if (!whole) c->talk.draft = before;
    return whole;
}

/* --- the loop --------------------------------------------------------------------------------- */

/* One line from the terminal and what it asks for. False: the chat is over. */
static bool one_line(app_chat *c, int *interrupts, int *status, remat_error *err) {
    const char *text = NULL, *rest;
    size_t bytes = 0;
    const app_line_status read = app_line_read("> ", &text, &bytes);
    *interrupts = read == APP_LINE_INTERRUPT ? *interrupts + 1 : 0;
    switch (read) {
    case APP_LINE_END:
        return false;
    case APP_LINE_TERMINATED:
        *status = rm_fail(err, REMAT_E_CANCELED, "interrupted");
        return false;
    case APP_LINE_INTERRUPT:
        if (*interrupts > 1) {
            *status = rm_fail(err, REMAT_E_CANCELED, "interrupted");
            return false;
        }
        app_chat_say(c, "(Ctrl-C again, Ctrl-D or /bye leaves)");
        return true;
    case APP_LINE_CANCELED:
        return true;
    case APP_LINE_TOO_LONG:
        app_chat_say(c, "remat: line: more than %d characters; not sent; /read takes a file",
                     APP_LINE_MOST);
        return true;
    case APP_LINE_TEXT:
        break;
    }
    size_t end = bytes;
    while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t'))
        end--;
    const app_verb verb = app_verb_of(text, end, &rest);
    if (verb == APP_VERB_LEAVE) return false;
    if (verb != APP_VERB_NONE) {
        *status = app_chat_command(c, verb, rest, err);
    } else if (compose(c, text, bytes)) {
        c->attempt = 0;
        *status = app_chat_send(c, err);
    }
    return *status == REMAT_OK;
}

static int loop(app_chat *c, remat_error *err) {
    int interrupts = 0, status = REMAT_OK;
    while (one_line(c, &interrupts, &status, err)) {
    }
    return status;
}

/* --- start ------------------------------------------------------------------------------------ */

static void greet(const app_chat *c) {
    remat_model_info info;
    remat_stats s;
    remat_info(&info, c->engine);
    remat_stats_get(&s, c->engine);
    const char *name = strrchr(c->args->model, '/');
    app_chat_say(c, "%s (%s %s): context %u, budget %.1f MiB, predicted peak %.1f MiB; /help",
                 name != NULL ? name + 1 : c->args->model, info.architecture, info.quantization,
                 c->context, (double)s.budget_bytes / MIB, (double)s.predicted_peak_bytes / MIB);
}

static int run(app_chat *c, remat_error *err) {
    remat_limits limits;
    const char *system = c->args->system;
    RM_TRY(app_args_limits(&limits, c->args, err));
    RM_TRY(remat_sampling_check(c->engine, &c->settings.sampling, err));
    RM_TRY(app_template_source(&c->source, c->engine, c->args, err));
    RM_TRY(remat_claim(c->engine, APP_LINE_BYTES, err));
    RM_TRY(choose_context(&limits, c, err));
    RM_TRY(take_memory(c, limits.context_count, err));
    if (system != NULL && !app_talk_system(&c->talk, system, strlen(system)))
        return rm_fail(err, REMAT_E_CONTEXT, "--system: too long for the context of %u",
                       c->context);
    RM_TRY(remat_start(c->engine, &limits, err));
    app_progress_end();
    RM_TRY(remat_sequence_open(&c->sequence, c->engine, err));
    app_line_watch(c->engine);
    greet(c);
    RM_TRY(loop(c, err));
    if (c->args->stats) app_print_stats(c->engine);
    return REMAT_OK;
}

int app_chat_run(const app_args *args, remat_error *err) {
    static app_chat c;
    const char *plain = getenv("NO_COLOR"), *term = getenv("TERM");
    c = (app_chat){.args = args, .settings.sampling = args->sampling};
    c.settings.seed_given = args->seed_given;
    c.settings.predict = args->predict == APP_UNSET_U32 ? REMAT_ALL : args->predict;
    RM_TRY(app_reasoning_parse(&c.settings.reasoning, args->reasoning, err));
    if (!args->seed_given) c.settings.sampling.seed = rm_random_system() >> 11;
    c.to_terminal = isatty(STDOUT_FILENO);
    c.colour = c.to_terminal && (plain == NULL || plain[0] == '\0') && term != NULL &&
               strcmp(term, "dumb") != 0;
    c.out = c.to_terminal ? stdout : stderr;
    int status = app_line_open(c.out, !args->no_history, err);
    if (status == REMAT_OK) status = app_open(&c.engine, args, false, err);
    if (status == REMAT_OK) status = run(&c, err);
    app_line_close();
    app_close(&c.engine);
    return status;
}
