/*
 * plan_task.c: which budgets suit a kind of work, and why the others do not. Part: app.
 *
 * Needs are how long people wait (Nielsen, Usability Engineering, 1993: a second keeps the thought,
 * ten the attention) and how fast they take in: reading 250 words a minute is 5 to 6 tokens a
 * second, listening to 150 is 3 to 4.
 */
#include "app/plan_view.h"
#include "base/check.h"

#include <stdio.h>
#include <string.h>

enum { MIB = 1 << 20, WHOLE = 0 };

typedef struct need {
    const char *task, *what;
    uint32_t new_tokens; /* that an answer waits for; WHOLE: the context */
    double first_s;      /* until its first token; 0: no matter */
    double token_rate;   /* of each sequence, a second */
} need;

static const need needs[] = {
    {"batch", "documents one after the other, nobody waits", WHOLE, 0, 0},
    {"rag", "a prompt full of documents, a short answer", WHOLE, 60, 5},
    {"code", "a context full of code, edits at its end", 512, 10, 10},
    {"chat", "turns of a conversation, read as they come", 256, 5, 5},
    {"voice", "spoken turns", 64, 1, 6},
    {"api", "many users at once, each reading", 1024, 20, 5},
};

static const need *find(const char *task) {
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
        if (strcmp(needs[i].task, task) == 0) return &needs[i];
    }
    return NULL;
}

/* What a plan gives the task. */
typedef struct service {
    double first_s, token_rate;
} service;

static service service_of(const need *n, const app_plan_view *v, const remat_plan *p) {
    const double all = (double)v->limits.context_count * v->limits.sequence_count;
    const double tokens = n->new_tokens == WHOLE ? v->limits.context_count : n->new_tokens;
    return (service){.first_s = p->prefill_s / all * tokens + p->token_s,
                     .token_rate = 1 / p->token_s};
}

static bool suits(const need *n, const service *s) {
    return (n->first_s <= 0 || s->first_s <= n->first_s) && s->token_rate >= n->token_rate;
}

static void reason(char out[96], const need *n, const service *s) {
    const bool late = n->first_s > 0 && s->first_s > n->first_s;
    const bool slow = s->token_rate < n->token_rate;
    if (late && slow)
        snprintf(out, 96, "first token after %.1f s (%.0f), then %.2g a second (%.0f)", s->first_s,
                 n->first_s, s->token_rate, n->token_rate);
    else if (late)
        snprintf(out, 96, "first token after %.1f s; %.0f are too long already", s->first_s,
                 n->first_s);
    else if (slow)
        snprintf(out, 96, "%.2g tokens a second; %.0f are wanted", s->token_rate, n->token_rate);
    else
        snprintf(out, 96, "first token after %.2g s, then %.3g a second", s->first_s,
                 s->token_rate);
}

/* Where memory is spent when nothing is in the way: what the advice ends with. */
static const char *advice(const need *n, const app_plan_point *best, const app_plan_view *v) {
    if (best == NULL && v->full.streamed_weight_bytes == 0 && n->token_rate > 0)
        return "nothing suits: the model is too large for this machine's arithmetic or memory "
               "rate; "
               "a smaller one, or fewer bits (see what would be left), comes closer";
    if (strcmp(n->task, "batch") == 0)
        return "memory is worth nothing here but time: the smallest budget leaves most for others; "
               "the comfortable one ends soonest";
    if (strcmp(n->task, "voice") == 0 || strcmp(n->task, "chat") == 0)
        return "keep the conversation's cache: --keep for its newest tokens, --session so that a "
               "restart does not compute it again";
    if (strcmp(n->task, "rag") == 0)
        return "documents are read once: the prompt's speed counts, the cache may go to disk "
               "(--cold spill)";
    if (strcmp(n->task, "api") == 0)
        return "--batch plans for so many users; what they share (a system prompt) need be cached "
               "once";
    return "the code in the context should stay cached: dropped, it is computed again at every "
           "edit";
}

static void print_json(rm_json *j, const need *n, const app_plan_view *v) {
    rm_json_open(j, "task", '{');
    rm_json_string(j, "name", n->task);
    rm_json_f64(j, "first_token_s_wanted", n->first_s, 6);
    rm_json_f64(j, "tok_s_wanted", n->token_rate, 6);
    rm_json_open(j, "budgets", '[');
    for (uint32_t i = 0; i < v->row_count; i++) {
        const service s = service_of(n, v, &v->rows[i].plan);
        char why[96];
        reason(why, n, &s);
        rm_json_open(j, NULL, '{');
        rm_json_string(j, "name", v->rows[i].name);
        rm_json_u64(j, "budget_bytes", v->rows[i].budget_bytes);
        rm_json_bool(j, "suits", suits(n, &s));
        rm_json_string(j, "reason", why);
        rm_json_close(j, '}');
    }
    rm_json_close(j, ']');
    rm_json_close(j, '}');
}

/* The first of the frontier that suits. */
static const app_plan_point *least(const need *n, const app_plan_view *v) {
    for (uint32_t i = 0; i < v->point_count; i++) {
        const service s = service_of(n, v, &v->frontier[i].plan);
        if (suits(n, &s)) return &v->frontier[i];
    }
    return NULL;
}

int app_plan_task_check(const char *task, remat_error *err) {
    if (find(task) != NULL) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE,
                   "--task: there is no \"%.20s\"; use batch, rag, code, chat, voice or api", task);
}

void app_plan_task(rm_json *j, const app_plan_view *v, const char *task) {
    const need *n = find(task);
    if (j != NULL) {
        print_json(j, n, v);
        return;
    }
    app_printf("\n%s (%s):\n", n->task, n->what);
    for (uint32_t i = 0; i < v->row_count; i++) {
        const service s = service_of(n, v, &v->rows[i].plan);
        char why[96];
        reason(why, n, &s);
        app_printf("  %-12s %9.1f MiB  %-4s %s\n", v->rows[i].name,
                   (double)v->rows[i].budget_bytes / MIB, suits(n, &s) ? "yes:" : "no:", why);
    }
    const app_plan_point *best = least(n, v);
    if (best != NULL)
        app_printf("  from about %.0f MiB on it suits (--memory %.0fM -c %u)\n",
                   (double)best->budget_bytes / MIB, (double)best->budget_bytes / MIB + 0.5,
                   v->limits.context_count);
    app_printf("  %s\n", advice(n, best, v));
}
