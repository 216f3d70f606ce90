/* words.c: see words.h. */
#include "app/words.h"
#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    app_verb verb;
    const char *help; /* NULL: another name of the one before */
} verbs[] = {
    {"/help", APP_VERB_HELP, "/help               this list"},
    {"/?", APP_VERB_HELP, NULL},
    {"/clear", APP_VERB_CLEAR,
     "/clear              forget the conversation; the system text stays"},
    {"/regen", APP_VERB_REGEN, "/regen              another reply (with a seed set: the same one)"},
    {"/undo", APP_VERB_UNDO, "/undo               take the last message and its reply back"},
    {"/system", APP_VERB_SYSTEM, "/system [TEXT]      show or set the system text (\"\": none)"},
    {"/set", APP_VERB_SET, "/set [NAME VALUE]   show or change how replies are made"},
    {"/save", APP_VERB_SAVE, "/save FILE          write the conversation as JSON"},
    {"/load", APP_VERB_LOAD, "/load FILE          go on with a saved one"},
    {"/read", APP_VERB_READ, "/read FILE          put a file's text before the next message"},
    {"/tokens", APP_VERB_TOKENS, "/tokens             tokens used, context, what is cached"},
    {"/mem", APP_VERB_MEM, "/mem                where the bytes are"},
    {"/stats", APP_VERB_STATS,
     "/stats              speed of the last reply, and the engine's counts"},
    {"/bye", APP_VERB_LEAVE, "/bye                leave; also /exit, /quit and Ctrl-D"},
    {"/exit", APP_VERB_LEAVE, NULL},
    {"/quit", APP_VERB_LEAVE, NULL},
};

enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static const char *const more_help[] = {
    "Several lines: end a line with \\, or put them between \"\"\" and \"\"\", or paste them.",
    "Ctrl-C stops a reply; what came of it stays. A line that starts with a blank is no command.",
};

enum { MORE_COUNT = sizeof more_help / sizeof *more_help };

const char *app_verb_help(size_t i) {
    for (size_t v = 0; v < VERB_COUNT; v++) {
        if (verbs[v].help != NULL && i-- == 0) return verbs[v].help;
    }
    return i < MORE_COUNT ? more_help[i] : NULL;
}

static bool blank(char c) {
    return c == ' ' || c == '\t';
}

app_verb app_verb_of(const char *line, size_t bytes, const char **rest) {
    *rest = line + bytes;
    if (bytes == 0 || line[0] != '/' || memchr(line, '\n', bytes) != NULL) return APP_VERB_NONE;
    size_t n = 0;
    while (n < bytes && !blank(line[n]))
        n++;
    *rest = line + n;
    while (blank(**rest))
        ++*rest;
    for (size_t v = 0; v < VERB_COUNT; v++) {
        if (strlen(verbs[v].name) == n && memcmp(verbs[v].name, line, n) == 0) return verbs[v].verb;
    }
    return APP_VERB_UNKNOWN;
}

/* --- settings --------------------------------------------------------------------------------- */

enum kind { REAL, WHOLE, SEED, PREDICT, REASONING };

#define AT(field) offsetof(app_settings, field)

static const struct {
    const char *name;
    enum kind kind;
    size_t at;
} settings[] = {
    {"temp", REAL, AT(sampling.temperature)},
    {"top_k", WHOLE, AT(sampling.top_k)},
    {"top_p", REAL, AT(sampling.top_p)},
    {"min_p", REAL, AT(sampling.min_p)},
    {"repeat_penalty", REAL, AT(sampling.repeat_penalty)},
    {"seed", SEED, AT(sampling.seed)},
    {"predict", PREDICT, AT(predict)},
    {"reasoning", REASONING, AT(reasoning)},
};

enum { SETTING_COUNT = sizeof settings / sizeof *settings };

static int no_value(remat_error *err, const char *name, const char *value) {
    return rm_fail(err, REMAT_E_USAGE, "/set %s: \"%.40s\" is no value for it", name, value);
}

static int set(app_settings *s, size_t i, const char *value, remat_error *err) {
    char *const at = (char *)s + settings[i].at;
    const char *const name = settings[i].name;
    char *end;
    errno = 0;
    if (settings[i].kind == REASONING) {
        app_reasoning r;
        RM_TRY(app_reasoning_parse(&r, value, err));
        s->reasoning = r;
        return REMAT_OK;
    }
    if (settings[i].kind == REAL) {
        const float x = strtof(value, &end);
        if (strspn(value, "0123456789.eE+-") != strlen(value) || end == value || *end != '\0' ||
            !isfinite(x))
            return no_value(err, name, value);
        memcpy(at, &x, sizeof x);
        return REMAT_OK;
    }
    const long long v = strtoll(value, &end, 10);
    if (strspn(value, "0123456789-") != strlen(value) || end == value || *end != '\0' || errno != 0)
        return no_value(err, name, value);
    if (settings[i].kind == SEED) { /* -1: any, as on the command line */
        if (v < -1) return no_value(err, name, value);
        s->seed_given = v >= 0;
        if (v >= 0) s->sampling.seed = (uint64_t)v;
        return REMAT_OK;
    }
    if (v < INT32_MIN || v > INT32_MAX) return no_value(err, name, value);
    if (settings[i].kind == PREDICT) {
        if (v == 0) return no_value(err, name, value);
        s->predict = v < 0 ? REMAT_ALL : (uint32_t)v;
    } else {
        s->sampling.top_k = (int32_t)v;
    }
    return REMAT_OK;
}

int app_settings_parse(app_settings *s, const char *text, remat_error *err) {
    char name[32], value[64];
    size_t n = strcspn(text, " \t"), at = n + strspn(text + n, " \t");
    size_t v = strlen(text + at);
    while (v > 0 && blank(text[at + v - 1]))
        v--;
    if (n >= sizeof name || v >= sizeof value || v == 0)
        return rm_fail(err, REMAT_E_USAGE, "/set: a name and a value are needed");
    memcpy(name, text, n);
    memcpy(value, text + at, v);
    name[n] = value[v] = '\0';
    for (char *c = name; *c != '\0'; c++) {
        if (*c == '-') *c = '_';
    }
    if (strcmp(name, "temperature") == 0) memcpy(name, "temp", sizeof "temp");
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(settings[i].name, name) == 0) return set(s, i, value, err);
    }
    return rm_fail(err, REMAT_E_USAGE, "/set: there is no \"%.30s\"; /set alone lists them", name);
}

void app_settings_print(char *out, size_t cap, const app_settings *s) {
    const remat_sampling *p = &s->sampling;
    char seed[24] = "any", predict[24] = "all";
    if (s->seed_given) snprintf(seed, sizeof seed, "%llu", (unsigned long long)p->seed);
    if (s->predict != REMAT_ALL) snprintf(predict, sizeof predict, "%u", s->predict);
    snprintf(out, cap,
             "temp %g, top_k %d, top_p %g, min_p %g, repeat_penalty %g, seed %s, predict %s, "
             "reasoning %s",
             (double)p->temperature, p->top_k, (double)p->top_p, (double)p->min_p,
             (double)p->repeat_penalty, seed, predict, app_reasoning_name(s->reasoning));
}

/* --- completion ------------------------------------------------------------------------------- */

typedef struct completion {
    char *more, *list;
    size_t more_cap, list_cap, count;
} completion;

static void offer(completion *c, const char *name, const char *begin) {
    const size_t n = strlen(begin), used = strlen(c->list);
    if (strncmp(name, begin, n) != 0) return;
    if (c->count++ == 0) {
        snprintf(c->more, c->more_cap, "%s", name + n);
    } else {
        size_t same = 0;
        while (c->more[same] != '\0' && c->more[same] == name[n + same])
            same++;
        c->more[same] = '\0';
    }
    if (used < c->list_cap)
        snprintf(c->list + used, c->list_cap - used, "%s%s", used > 0 ? " " : "", name);
}

size_t app_complete(char *more, size_t more_cap, char *list, size_t list_cap, const char *line) {
    completion c = {.more = more, .list = list, .more_cap = more_cap, .list_cap = list_cap};
    more[0] = list[0] = '\0';
    if (line[0] != '/') return 0;
    if (strncmp(line, "/set ", 5) == 0) {
        for (size_t i = 0; i < SETTING_COUNT; i++)
            offer(&c, settings[i].name, line + 5);
    } else {
        for (size_t i = 0; i < VERB_COUNT; i++)
            offer(&c, verbs[i].name, line);
    }
    return c.count;
}
