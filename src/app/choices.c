/* choices.c: see choices.h. */
#include "app/choices.h"
#include "base/sort.h"

#include <math.h>
#include <string.h>

enum { CHOICES_MAX = 1 << 16, SHOWN = 60 };

typedef struct choice {
    const char *text;
    uint32_t bytes, index; /* as given, from 0 */
    uint32_t first, count; /* of its tokens, in ids */
    double logprob;        /* of all of them */
} choice;

typedef struct choices {
    const app_args *args;
    remat_engine *engine;
    remat_sequence *sequence;
    app_text prompt, list;
    char *whole; /* prompt and a choice */
    choice *at;
    uint32_t count;
    uint32_t *ids; /* the tokens that all begin with, then those of each choice */
    size_t id_count;
    uint32_t common, longest; /* tokens: of all; of the longest choice */
    choice *now;              /* whose tokens pass; NULL: the prompt */
} choices;

/* --- what there is ---------------------------------------------------------------------------- */

/* The texts between bars, or the lines of a file; the last line may go without its end. */
static int split(choices *c, remat_error *err) {
    const bool lines = c->args->choices_file != NULL;
    const char bar = lines ? '\n' : '|', *text = c->list.bytes, *end = text + c->list.count;
    size_t most = 1;
    for (const char *p = text; p < end; p++)
        most += *p == bar;
    if (most > CHOICES_MAX)
        return rm_fail(err, REMAT_E_USAGE, "choices: %zu; at most %d", most, CHOICES_MAX);
    RM_TRY(app_alloc(&c->at, c->engine, most, sizeof *c->at, err));
    while (text < end) {
        const char *next = memchr(text, bar, (size_t)(end - text));
        size_t bytes = (size_t)((next != NULL ? next : end) - text);
        if (lines && bytes > 0 && text[bytes - 1] == '\r') bytes--;
        if (bytes > UINT32_MAX / 2)
            return rm_fail(err, REMAT_E_USAGE, "choices: one of them has %zu bytes", bytes);
        if (bytes > 0)
            c->at[c->count] = (choice){.text = text, .bytes = (uint32_t)bytes, .index = c->count};
        c->count += bytes > 0;
        text = next != NULL ? next + 1 : end;
    }
    if (c->count == 0)
        return rm_fail(err, REMAT_E_USAGE,
                       "choices: there are none; give texts with | between "
                       "them, or a file with one a line");
    return REMAT_OK;
}

static int read_texts(choices *c, remat_error *err) {
    size_t longest = 0;
    RM_TRY(app_read_text(&c->prompt, c->engine, c->args, err));
    if (c->args->choices_file != NULL) {
        RM_TRY(app_read_file(&c->list, c->engine, c->args->choices_file, err));
    } else {
        c->list.count = strlen(c->args->choices);
        RM_TRY(app_alloc(&c->list.bytes, c->engine, c->list.count, 1, err));
        memcpy(c->list.bytes, c->args->choices, c->list.count);
    }
    RM_TRY(split(c, err));
    for (uint32_t i = 0; i < c->count; i++)
        longest = c->at[i].bytes > longest ? c->at[i].bytes : longest;
    RM_TRY(app_alloc(&c->whole, c->engine, c->prompt.count + longest, 1, err));
    memcpy(c->whole, c->prompt.bytes, c->prompt.count);
    return REMAT_OK;
}

/* A choice is tokenized with the prompt before it, and may change the prompt's last tokens ("wor"
 * and "king" are one word). What all have in common with the prompt is computed once; what is
 * behind that counts as the choice's, for each of them. The first pass finds where that is. */
static int tokenize(choices *c, unsigned flags, remat_error *err) {
    const size_t cap = c->prompt.count + c->list.count + 2 * (size_t)c->count + 4;
    uint32_t *prompt, *one;
    size_t prompt_count, n;
    RM_TRY(app_alloc(&prompt, c->engine, c->prompt.count + 2, sizeof *prompt, err));
    RM_TRY(app_alloc(&one, c->engine, cap, sizeof *one, err));
    RM_TRY(remat_tokenize(prompt, c->prompt.count + 2, &prompt_count, c->engine, c->prompt.bytes,
                          c->prompt.count, flags, err));
    size_t common = prompt_count, all = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < c->count; i++) {
            choice *x = &c->at[i];
            memcpy(c->whole + c->prompt.count, x->text, x->bytes);
            RM_TRY(remat_tokenize(one, cap, &n, c->engine, c->whole, c->prompt.count + x->bytes,
                                  flags, err));
            if (pass == 0) {
                size_t same = 0;
                while (same < common && same < n && one[same] == prompt[same])
                    same++;
                common = same < n ? same : n - 1; /* a token at least is the choice's */
                all += n;
            } else {
                x->first = (uint32_t)c->id_count;
                x->count = (uint32_t)(n - common);
                memcpy(c->ids + c->id_count, one + common, x->count * sizeof *one);
                c->id_count += x->count;
                c->longest = x->count > c->longest ? x->count : c->longest;
            }
        }
        if (pass > 0) break;
        if (common == 0)
            return rm_fail(err, REMAT_E_USAGE,
                           "score: nothing stands before the choices; give a prompt");
        RM_TRY(app_alloc(&c->ids, c->engine, all, sizeof *c->ids, err));
        memcpy(c->ids, prompt, common * sizeof *prompt);
        c->id_count = c->common = (uint32_t)common;
    }
    return REMAT_OK;
}

/* --- likelihoods ------------------------------------------------------------------------------ */

/* Behind the prompt: the first token of every choice. Behind a token of a choice: its next one. */
static void on_row(void *user, uint32_t index, const float *logits, float log_sum) {
    choices *c = user;
    if (c->now == NULL) {
        for (uint32_t i = 0; i < c->count; i++)
            c->at[i].logprob = (double)(logits[c->ids[c->at[i].first]] - log_sum);
    } else {
        choice *x = c->now;
        x->logprob += (double)(logits[c->ids[x->first + index + 1]] - log_sum);
    }
}

static int score_all(choices *c, remat_error *err) {
    remat_sequence *s = c->sequence;
    RM_TRY(remat_advance_rows(s, c->ids, c->common, c->common - 1, on_row, c, err));
    for (uint32_t i = 0; i < c->count; i++) {
        c->now = &c->at[i];
        if (c->now->count == 1) continue;
        app_progress_name("choice %u of %u", i + 1, c->count);
        RM_TRY(remat_advance_rows(s, c->ids + c->now->first, c->now->count - 1, 0, on_row, c, err));
        remat_sequence_truncate(s, c->common);
    }
    app_progress_end();
    return REMAT_OK;
}

/* --- results ---------------------------------------------------------------------------------- */

/* Of two that are equally likely the first one given. */
static bool better(const void *a, const void *b) {
    const choice *x = a, *y = b;
    return x->logprob > y->logprob || (x->logprob == y->logprob && x->index < y->index);
}

/* Of what all choices have together, relative to the likeliest: sorted ones. */
static double sum_of(const choices *c) {
    double sum = 0;
    for (uint32_t i = 0; i < c->count; i++)
        sum += exp(c->at[i].logprob - c->at[0].logprob);
    return sum;
}

static double share(const choices *c, uint32_t i, double sum) {
    return exp(c->at[i].logprob - c->at[0].logprob) / sum;
}

static void print_json(const choices *c) {
    const double sum = sum_of(c);
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_text(&j, "best", c->at[0].text, c->at[0].bytes);
    rm_json_u64(&j, "prompt_tokens", c->common);
    rm_json_open(&j, "choices", '[');
    for (uint32_t i = 0; i < c->count; i++) {
        const choice *x = &c->at[i];
        rm_json_open(&j, NULL, '{');
        rm_json_text(&j, "text", x->text, x->bytes);
        rm_json_u64(&j, "index", x->index);
        rm_json_u64(&j, "tokens", x->count);
        rm_json_f64(&j, "logprob", x->logprob, 9);
        rm_json_f64(&j, "mean_logprob", x->logprob / x->count, 9);
        rm_json_f64(&j, "probability", share(c, i, sum), 9);
        rm_json_close(&j, '}');
    }
    rm_json_close(&j, ']');
    app_json_memory(&j, c->engine, c->sequence);
    rm_json_close(&j, '}');
    app_printf("\n");
}

static void print_text(const choices *c) {
    const double sum = sum_of(c);
    app_printf("   share     log-prob   a token  choice\n");
    for (uint32_t i = 0; i < c->count; i++) {
        const choice *x = &c->at[i];
        app_printf("%6.2f %%  %11.5f  %8.4f  %.*s%s\n", 100 * share(c, i, sum), x->logprob,
                   x->logprob / x->count, (int)(x->bytes < SHOWN ? x->bytes : SHOWN), x->text,
                   x->bytes > SHOWN ? ".." : "");
    }
}

int app_choices_run(remat_engine *e, const app_args *args, unsigned flags, remat_error *err) {
    choices c = {.args = args, .engine = e};
    remat_limits limits;
    RM_TRY(app_args_limits(&limits, args, err));
    RM_TRY(read_texts(&c, err));
    RM_TRY(tokenize(&c, flags, err));
    limits.context_count = c.common + c.longest;
    if (args->context != APP_UNSET_U32 && args->context > 0) limits.context_count = args->context;
    RM_TRY(app_start_scoring(e, &limits, c.longest > 1, err));
    RM_TRY(remat_sequence_open(&c.sequence, e, err));
    RM_TRY(score_all(&c, err));
    rm_sort(c.at, c.count, sizeof *c.at, better);
    (args->json ? print_json : print_text)(&c);
    if (args->stats) app_print_stats(e);
    return REMAT_OK;
}
