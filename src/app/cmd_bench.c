/*
 * cmd_bench.c: remat bench: the same work under several budgets and modes. Part: app.
 *
 * Rows are printed as they come; JSON and the picture at the end. A budget that is refused is a row
 * like others; one that fails, or logits that differ, make the command fail when all is done.
 */
#include "app/bench.h"
#include "app/plot.h"
#include "base/machine.h"

#include <string.h>

/* A prompt where none is given. What it says does not matter: the work is the same for any text. */
static const char usual_text[] =
    "A reservoir above the town was built in the dry years, when the river could be crossed on "
    "foot "
    "in August and the mills stood still. It holds what falls in the winter and gives it back in "
    "the summer, a little every day, so that nobody has to think of it. In some years it was full "
    "by March, and the keeper opened the gates and let the water go; in others he wrote the level "
    "into his book each morning, saw that it was lower, and closed them a little more. What the "
    "town could use was not decided by the rain alone. It was decided by how much there was room "
    "for, and by what was done with it when there was none.\n\n";

static int read_prompt(app_benchmark *b, remat_engine *e, remat_error *err) {
    static char bytes[sizeof usual_text];
    const app_args *args = b->args;
    app_text text = {bytes, sizeof usual_text - 1};
    if (args->tokens != NULL) return app_read_tokens(&b->text, e, args->tokens, err);
    memcpy(bytes, usual_text, sizeof usual_text);
    if (args->file != NULL || args->from_stdin) RM_TRY(app_read_text(&text, e, args, err));
    const size_t cap = text.count + 2;
    RM_TRY(app_alloc(&b->text.ids, e, cap, sizeof *b->text.ids, err));
    RM_TRY(remat_tokenize(b->text.ids, cap, &b->text.count, e, text.bytes, text.count, REMAT_BOS,
                          err));
    if (b->text.count > 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE, "bench: the text is empty; give at least one token");
}

/* What the model says of itself, and the prompt's tokens; nothing of it stays open. */
static int look_at(app_benchmark *b, remat_error *err) {
    remat_engine *e = NULL;
    RM_TRY(app_open(&e, b->args, false, err));
    remat_info(&b->model, e);
    const int status = read_prompt(b, e, err);
    app_close(&e);
    (void)rm_machine_cpu_name(b->cpu, sizeof b->cpu);
    return status;
}

static void warn_of_contexts(const app_benchmark *b) {
    for (size_t i = 0; i < b->row_count; i++) {
        const uint64_t all = (uint64_t)b->rows[i].prompt_count + b->rows[i].answer_count;
        if (all <= b->model.context_count) continue;
        app_warn("context of %llu tokens: the model was made for %u; the speed is right, the text "
                 "may be poor",
                 (unsigned long long)all, b->model.context_count);
        return;
    }
}

static int run_rows(app_benchmark *b, remat_error *err) {
    if (!b->args->json) {
        app_bench_table_begin(b);
        RM_TRY(app_flush(err));
    }
    for (size_t i = 0; i < b->row_count; i++) {
        remat_error why = {0};
        const int status = app_bench_run(b, i, &why);
        app_progress_end();
        if (status != REMAT_OK) {
            *err = why;
            return status;
        }
        if (b->args->json) continue;
        app_bench_table_row(b, &b->rows[i]);
        RM_TRY(app_flush(err));
    }
    if (!b->args->json) app_bench_table_end(b);
    return REMAT_OK;
}

/* Whether the rows are as they should be. */
static int judge(const app_benchmark *b, remat_error *err) {
    size_t failed = 0, differ = 0, done = 0;
    for (size_t i = 0; i < b->row_count; i++) {
        failed += b->rows[i].state == APP_BENCH_FAILED;
        done += b->rows[i].state == APP_BENCH_DONE;
        differ += b->rows[i].compared && !b->rows[i].same;
    }
    if (differ > 0)
        return rm_fail(err, REMAT_E_FAILED,
                       "bench: the logits of %zu of %zu rows are not those of the first: a bug; "
                       "please report it with the command",
                       differ, b->row_count);
    if (failed == 0 && done > 0) return REMAT_OK;
    const app_bench_row *first = b->rows;
    if (failed == 0) {
        err->minimum_bytes = first->minimum_bytes;
        return rm_fail(err, REMAT_E_BUDGET, "bench: no budget was large enough, the first: %.180s",
                       first->message);
    }
    while (first->state != APP_BENCH_FAILED)
        first++;
    return rm_fail(err, REMAT_E_FAILED, "bench: %zu of %zu rows failed, the first: %.180s", failed,
                   b->row_count, first->message);
}

int app_bench(const app_args *args, remat_error *err) {
    static app_benchmark b;
    const uint64_t start_bytes = rm_machine_resident_bytes();
    if (args->csv && args->json) return rm_fail(err, REMAT_E_USAGE, "--csv: not with --json");
    RM_TRY(app_bench_rows(&b, args, err));
    b.start_bytes = start_bytes;
    if (args->plot != NULL) RM_TRY(app_plot_check(args->plot, err));
    RM_TRY(look_at(&b, err));
    warn_of_contexts(&b);
    RM_TRY(run_rows(&b, err));
    int status = judge(&b, err);
    if (args->plot != NULL) {
        remat_error why = {0};
        if (app_bench_plot(&b, &why) != REMAT_OK && status == REMAT_OK) {
            *err = why;
            status = why.status;
        }
    }
    if (args->json) app_bench_json(&b, err);
    if (status != REMAT_OK) (void)app_flush(NULL); /* what came of it, before what is wrong */
    return status;
}
