/* test_chat_parts.c: what a chat takes apart: thoughts, conversations, commands. */
#include "app/talk.h"
#include "app/think.h"
#include "app/words.h"
#include "harness.h"

#include <stdio.h>
#include <string.h>

/* The reply in pieces of `step` bytes; thoughts in brackets. */
static void split(char *out, size_t cap, const char *reply, size_t step, bool on, bool opened) {
    app_think t;
    app_piece p;
    bool inside = false;
    const size_t all = strlen(reply);
    size_t used = 0;
    app_think_start(&t, on, opened);
    out[0] = '\0';
    for (size_t n = 0;;) {
        n = n + step < all ? n + step : all;
        while (app_think_next(&p, &t, reply, n, n == all)) {
            used += (size_t)snprintf(out + used, cap - used, "%s%.*s",
                                     p.reasoning != inside ? (p.reasoning ? "[" : "]") : "",
                                     (int)p.count, p.bytes);
            inside = p.reasoning;
        }
        if (n == all) return;
    }
}

static void thoughts(void) {
    static const struct {
        const char *reply, *want;
        bool on, opened;
    } cases[] = {
        {"plain", "plain", true, false},
        {"", "", true, false},
        {" \n<think>\na < b</ thin\n</think>\n\nyes </think>", "[a < b</ thin\n]yes </think>", true,
         false},
        {"<think></think>x", "x", true, false},
        {"<think>never ends</thi", "[never ends</thi", true, false},
        {"<thin air", "<thin air", true, false},
        {"  <thi", "  <thi", true, false},
        {"a<think>b</think>", "a<think>b</think>", true, false},
        {"\nso</think>\nyes", "[so]yes", true, true},
        {"<think>a</think>b", "<think>a</think>b", false, false},
    };
    char got[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t step = 1; step < 12; step++) {
            split(got, sizeof got, cases[i].reply, step, cases[i].on, cases[i].opened);
            EXPECT(strcmp(got, cases[i].want) == 0);
        }
    }
}

static void conversation(void) {
    char text[16];
    app_message messages[3];
    app_talk t = {.text = text, .cap = sizeof text, .messages = messages, .message_cap = 3};
    EXPECT(app_talk_add(&t, "hello", 5));
    EXPECT(app_talk_push(&t, APP_USER));
    EXPECT(app_talk_add(&t, "draft", 5));
    EXPECT(app_talk_system(&t, "be", 2)); /* comes before both */
    EXPECT(t.count == 2 && t.used == 7 && t.draft == 5);
    EXPECT(memcmp(text, "behellodraft", 12) == 0 && messages[1].at == 2);
    EXPECT(!app_talk_system(&t, "sevens!", 7)); /* no room, no change */
    EXPECT(memcmp(text, "behellodraft", 12) == 0);
    EXPECT(!app_talk_add(&t, "12345", 5));
    app_talk_pop(&t);
    EXPECT(t.count == 1 && memcmp(text, "bedraft", 7) == 0);
    EXPECT(app_talk_push(&t, APP_USER) && app_talk_push(&t, APP_ASSISTANT));
    EXPECT(!app_talk_push(&t, APP_USER));
    EXPECT(app_talk_system(&t, "", 0) && t.count == 2 && messages[0].at == 0);
    EXPECT(app_talk_ends_with(&t, APP_ASSISTANT));
    app_talk_clear(&t);
    EXPECT(t.count == 0 && t.used == 0);
}

static void commands(void) {
    const char *rest;
    EXPECT(app_verb_of("/save  a b", 10, &rest) == APP_VERB_SAVE && strcmp(rest, "a b") == 0);
    EXPECT(app_verb_of("/saves", 6, &rest) == APP_VERB_UNKNOWN);
    EXPECT(app_verb_of("/", 1, &rest) == APP_VERB_UNKNOWN);
    EXPECT(app_verb_of(" /save", 6, &rest) == APP_VERB_NONE);
    EXPECT(app_verb_of("/help\nme", 8, &rest) == APP_VERB_NONE);
    EXPECT(app_verb_of("", 0, &rest) == APP_VERB_NONE);
    char more[64], list[512];
    EXPECT(app_complete(more, sizeof more, list, sizeof list, "/he") == 1 && !strcmp(more, "lp"));
    EXPECT(app_complete(more, sizeof more, list, sizeof list, "/s") == 4 && more[0] == '\0');
    EXPECT(app_complete(more, sizeof more, list, sizeof list, "/set se") == 1);
    EXPECT(app_complete(more, sizeof more, list, sizeof list, "he") == 0);
}

static void set(void) {
    app_settings s = {.sampling = remat_sampling_default(), .predict = REMAT_ALL};
    remat_error err;
    EXPECT(app_settings_parse(&s, "temp 0.5", &err) == REMAT_OK && s.sampling.temperature == 0.5f);
    EXPECT(app_settings_parse(&s, "top-k\t7 ", &err) == REMAT_OK && s.sampling.top_k == 7);
    EXPECT(app_settings_parse(&s, "seed 9", &err) == REMAT_OK && s.seed_given);
    EXPECT(app_settings_parse(&s, "seed -1", &err) == REMAT_OK && !s.seed_given);
    EXPECT(app_settings_parse(&s, "predict -1", &err) == REMAT_OK && s.predict == REMAT_ALL);
    EXPECT(app_settings_parse(&s, "reasoning off", &err) == REMAT_OK &&
           s.reasoning == APP_REASONING_OFF);
    static const char *const bad[] = {"temp",      "temp nan",   "temp 1x", "x 1",
                                      "predict 0", "top_k 1e10", "seed -2", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(app_settings_parse(&s, bad[i], &err) == REMAT_E_USAGE);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(thoughts), T(conversation), T(commands), T(set));
}
