/*
 * needle.c: a fact hidden in a text is asked for, over lengths of the text and depths in it. See
 * eval.h. Part: app.
 *
 * Each prompt is computed once, with the right answer behind it, whose probability that gives; then
 * the answer is taken back and the model gives its own, greedily, from the cache that the prompt
 * has left.
 */
#include "app/eval.h"
#include "app/needle_prompt.h"

#include <math.h>
#include <string.h>

enum { ANSWER_BYTES = 256, CELLS_MAX = 1 << 16 };

typedef struct cell {
    app_needle_prompt prompt;
    uint32_t length, depth; /* as asked for */
    double logprob;         /* mean of the answer's tokens */
    bool found;
    char answer[ANSWER_BYTES];
    size_t answer_bytes;
} cell;

typedef struct needle {
    const app_args *args;
    remat_engine *engine;
    remat_sequence *sequence;
    app_list lengths, depths;
    uint32_t repeat, count, context;
    cell *cells; /* depth by depth, length by length, and all repeats of a cell together */
    app_needle_table table;
} needle;

/* --- prompts ---------------------------------------------------------------------------------- */

/* What was asked for, or what the model's context has room for. */
static int choose(needle *n, remat_error *err) {
    static const uint32_t lengths[] = {512, 1024, 2048}, depths[] = {0, 25, 50, 75, 100};
    remat_model_info info;
    remat_info(&info, n->engine);
    const uint32_t context = (uint32_t)app_context_cap(n->engine, n->args, INT32_MAX);
    n->lengths = n->args->lengths;
    n->depths = n->args->depths;
    n->repeat = n->args->repeat > 0 ? n->args->repeat : 1;
    for (int i = 0; n->args->lengths.count == 0 && i < 3; i++) {
        if (lengths[i] + APP_NEEDLE_ANSWER <= context)
            n->lengths.at[n->lengths.count++] = lengths[i];
    }
    for (int i = 0; n->args->depths.count == 0 && i < 5; i++)
        n->depths.at[n->depths.count++] = depths[i];
    for (uint32_t i = 0; i < n->depths.count; i++) {
        if (n->depths.at[i] > 100)
            return rm_fail(err, REMAT_E_USAGE, "--depths: %u; from 0 to 100 (percent of the text)",
                           n->depths.at[i]);
    }
    if (n->lengths.count == 0)
        return rm_fail(err, REMAT_E_USAGE,
                       "--lengths: the context of %u has no room for a prompt of 512; give shorter "
                       "ones",
                       context);
    for (uint32_t i = 0; i < n->lengths.count; i++) {
        if (n->lengths.at[i] > context - APP_NEEDLE_ANSWER || context <= APP_NEEDLE_ANSWER)
            return rm_fail(err, REMAT_E_CONTEXT,
                           "--lengths: %u tokens and %d of an answer do not fit the context of %u; "
                           "give shorter ones%s",
                           n->lengths.at[i], APP_NEEDLE_ANSWER, context,
                           context > info.context_count ? "" : " or another model");
    }
    const uint64_t count = (uint64_t)n->lengths.count * n->depths.count * n->repeat;
    if (count > CELLS_MAX)
        return rm_fail(err, REMAT_E_USAGE, "--repeat: %llu prompts; at most %d",
                       (unsigned long long)count, CELLS_MAX);
    n->count = (uint32_t)count;
    return REMAT_OK;
}

static int make_prompts(needle *n, remat_error *err) {
    app_needle_maker m;
    uint32_t most = 0, at = 0;
    for (uint32_t i = 0; i < n->lengths.count; i++)
        most = n->lengths.at[i] > most ? n->lengths.at[i] : most;
    RM_TRY(app_needle_maker_open(&m, n->engine, n->args, most, err));
    RM_TRY(app_alloc(&n->cells, n->engine, n->count, sizeof *n->cells, err));
    for (uint32_t d = 0; d < n->depths.count; d++) {
        for (uint32_t l = 0; l < n->lengths.count; l++) {
            for (uint32_t r = 0; r < n->repeat; r++) {
                cell *c = &n->cells[at++];
                c->length = n->lengths.at[l];
                c->depth = n->depths.at[d];
                RM_TRY(app_needle_prompt_make(&c->prompt, &m, c->length, c->depth,
                                              n->args->sampling.seed + ((uint64_t)r << 20), err));
            }
        }
    }
    n->context = most + APP_NEEDLE_ANSWER;
    return REMAT_OK;
}

/* --- answers ---------------------------------------------------------------------------------- */

typedef struct likelihood {
    const cell *cell;
    double sum;
} likelihood;

static void on_row(void *user, uint32_t index, const float *logits, float log_sum) {
    likelihood *l = user;
    l->sum += (double)(logits[l->cell->prompt.ids[index + 1]] - log_sum);
}

static bool on_text(void *user, const char *text, size_t bytes) {
    cell *c = user;
    const size_t room = sizeof c->answer - 1 - c->answer_bytes, n = bytes < room ? bytes : room;
    memcpy(c->answer + c->answer_bytes, text, n);
    c->answer_bytes += n;
    return true;
}

static int ask(needle *n, cell *c, remat_error *err) {
    const app_needle_prompt *p = &c->prompt;
    remat_generation how = {.token_count = APP_NEEDLE_ANSWER,
                            .sampling = remat_sampling_default(),
                            .on_text = on_text,
                            .user = c};
    remat_result result;
    likelihood l = {.cell = c};
    how.sampling.temperature = 0;
    remat_sequence_truncate(n->sequence, 0);
    RM_TRY(remat_advance_rows(n->sequence, p->ids, p->count + p->answer_count - 1, p->count - 1,
                              on_row, &l, err));
    remat_sequence_truncate(n->sequence, p->count - 1);
    RM_TRY(remat_generate(&result, n->sequence, p->ids + p->count - 1, 1, &how, err));
    c->logprob = l.sum / p->answer_count;
    c->found = memmem(c->answer, c->answer_bytes, p->number, strlen(p->number)) != NULL;
    return REMAT_OK;
}

static int ask_all(needle *n, remat_error *err) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        app_progress_name("prompt %u of %u, %u found", i + 1, n->count, found);
        RM_TRY(ask(n, &n->cells[i], err));
        found += n->cells[i].found;
    }
    app_progress_end();
    return REMAT_OK;
}

/* --- results ---------------------------------------------------------------------------------- */

static void sum_up(needle *n) {
    app_needle_table *t = &n->table;
    *t = (app_needle_table){.lengths = n->lengths.at,
                            .depths = n->depths.at,
                            .length_count = n->lengths.count,
                            .depth_count = n->depths.count,
                            .repeat = n->repeat};
    for (uint32_t i = 0; i < n->count; i++) {
        t->found[i / n->repeat] += (double)n->cells[i].found / n->repeat;
        t->logprob[i / n->repeat] += n->cells[i].logprob / n->repeat;
    }
}

static double accuracy(const needle *n) {
    double found = 0;
    for (uint32_t i = 0; i < n->count; i++)
        found += n->cells[i].found;
    return found / n->count;
}

static void put_table(rm_json *j, const char *name, const needle *n, const double *values) {
    rm_json_open(j, name, '[');
    for (uint32_t d = 0; d < n->depths.count; d++) {
        rm_json_open(j, NULL, '[');
        for (uint32_t l = 0; l < n->lengths.count; l++)
            rm_json_f64(j, NULL, values[d * n->lengths.count + l], 9);
        rm_json_close(j, ']');
    }
    rm_json_close(j, ']');
}

static void put_list(rm_json *j, const char *name, const app_list *list) {
    rm_json_open(j, name, '[');
    for (uint32_t i = 0; i < list->count; i++)
        rm_json_u64(j, NULL, list->at[i]);
    rm_json_close(j, ']');
}

static void print_json(const needle *n) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_f64(&j, "accuracy", accuracy(n), 9);
    put_list(&j, "lengths", &n->lengths);
    put_list(&j, "depths", &n->depths);
    rm_json_u64(&j, "repeat", n->repeat);
    rm_json_u64(&j, "seed", n->args->sampling.seed);
    put_table(&j, "found", n, n->table.found);
    put_table(&j, "logprob", n, n->table.logprob);
    rm_json_open(&j, "prompts", '[');
    for (uint32_t i = 0; i < n->count; i++) {
        const cell *c = &n->cells[i];
        rm_json_open(&j, NULL, '{');
        rm_json_u64(&j, "length", c->length);
        rm_json_u64(&j, "depth", c->depth);
        rm_json_u64(&j, "tokens", c->prompt.count);
        rm_json_bool(&j, "found", c->found);
        rm_json_f64(&j, "logprob", c->logprob, 9);
        rm_json_string(&j, "expected", c->prompt.number);
        rm_json_text(&j, "answer", c->answer, c->answer_bytes);
        rm_json_close(&j, '}');
    }
    rm_json_close(&j, ']');
    app_json_memory(&j, n->engine, n->sequence);
    rm_json_close(&j, '}');
    app_printf("\n");
}

static void print_text(const needle *n) {
    app_printf("found, and mean log-probability of the right answer's tokens:\n\n   depth");
    for (uint32_t l = 0; l < n->lengths.count; l++)
        app_printf("  %15u", n->lengths.at[l]);
    app_printf("\n");
    for (uint32_t d = 0; d < n->depths.count; d++) {
        app_printf("  %4u %%", n->depths.at[d]);
        for (uint32_t l = 0; l < n->lengths.count; l++) {
            const uint32_t i = d * n->lengths.count + l;
            app_printf("  %5.0f %% %7.3f", 100 * n->table.found[i], n->table.logprob[i]);
        }
        app_printf("\n");
    }
    app_printf("\n%.1f %% of %u answers were right\n", 100 * accuracy(n), n->count);
}

int app_needle_run(remat_engine *e, const app_args *args, remat_error *err) {
    needle n = {.args = args, .engine = e};
    remat_limits limits;
    RM_TRY(app_args_limits(&limits, args, err));
    RM_TRY(choose(&n, err));
    RM_TRY(make_prompts(&n, err));
    limits.context_count = n.context;
    limits.answer_count = APP_NEEDLE_ANSWER;
    RM_TRY(remat_start(e, &limits, err));
    RM_TRY(remat_sequence_open(&n.sequence, e, err));
    RM_TRY(ask_all(&n, err));
    sum_up(&n);
    (args->json ? print_json : print_text)(&n);
    if (args->stats) app_print_stats(e);
    return args->plot != NULL ? app_needle_plot(args->plot, args->model, &n.table, err) : REMAT_OK;
}
