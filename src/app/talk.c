/* talk.c: see talk.h. */
#include "app/talk.h"

#include <string.h>

static const char *const roles[] = {"system", "user", "assistant"};

bool app_role_parse(app_role *out, const char *name) {
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, roles[i]) != 0) continue;
        *out = (app_role)i;
        return true;
    }
    return false;
}

bool app_talk_add(app_talk *t, const char *bytes, size_t count) {
    if (count > t->cap - t->used - t->draft) return false;
    if (count > 0) memcpy(t->text + t->used + t->draft, bytes, count);
    t->draft += count;
    return true;
}

bool app_talk_push(app_talk *t, app_role role) {
    if (t->count == t->message_cap) return false;
    t->messages[t->count++] = (app_message){.role = role, .at = t->used, .bytes = t->draft};
    t->used += t->draft;
    t->draft = 0;
    return true;
}

void app_talk_drop_draft(app_talk *t) {
    t->draft = 0;
}

void app_talk_pop(app_talk *t) {
    RM_ASSERT(t->count > 0);
    const app_message m = t->messages[--t->count];
    memmove(t->text + m.at, t->text + t->used, t->draft);
    t->used = m.at;
}

bool app_talk_ends_with(const app_talk *t, app_role role) {
    return t->count > 0 && t->messages[t->count - 1].role == role;
}

static bool has_system(const app_talk *t) {
    return t->count > 0 && t->messages[0].role == APP_SYSTEM;
}

void app_talk_clear(app_talk *t) {
    t->draft = 0;
    t->count = has_system(t) ? 1 : 0;
    t->used = t->count > 0 ? t->messages[0].bytes : 0;
}

bool app_talk_system(app_talk *t, const char *bytes, size_t count) {
    const bool had = has_system(t), has = count > 0;
    const size_t old = had ? t->messages[0].bytes : 0, all = t->used + t->draft;
    if (all - old > t->cap - count) return false;
    if (has && !had && t->count == t->message_cap) return false;
    memmove(t->text + count, t->text + old, all - old);
    if (has) memcpy(t->text, bytes, count);
    if (has != had) {
        memmove(t->messages + has, t->messages + had, (t->count - had) * sizeof *t->messages);
        t->count = t->count - had + has;
    }
    if (has) t->messages[0] = (app_message){.role = APP_SYSTEM, .bytes = count};
    t->used = t->used - old + count;
    for (uint32_t i = has; i < t->count; i++)
        t->messages[i].at = t->messages[i].at - old + count;
    return true;
}

void app_talk_json(const app_talk *t, rm_json *j) {
    rm_json_open(j, "messages", '[');
    for (uint32_t i = 0; i < t->count; i++) {
        const app_message *m = &t->messages[i];
        rm_json_open(j, NULL, '{');
        rm_json_string(j, "role", roles[m->role]);
        rm_json_text(j, "content", t->text + m->at, m->bytes);
        rm_json_close(j, '}');
    }
    rm_json_close(j, ']');
}
