/* cmd_text.c: remat tokenize and remat detokenize. Part: app. */
#include "app/app.h"
#include "base/check.h"

static int tokenize(remat_engine *e, const app_args *args, remat_error *err) {
    const unsigned flags = (args->no_special ? 0u : (unsigned)REMAT_SPECIAL) |
                           (args->no_bos ? 0u : (unsigned)REMAT_BOS);
    app_text text;
    app_tokens t;
    RM_TRY(remat_check_open(e, err));
    RM_TRY(app_read_text(&text, e, args, err));
    /* No context limits a listing. */
    RM_TRY(app_alloc(&t.ids, e, text.count + 2, sizeof *t.ids, err));
    RM_TRY(remat_tokenize(t.ids, text.count + 2, &t.count, e, text.bytes, text.count, flags, err));
    if (!args->json) {
        for (size_t i = 0; i < t.count; i++)
            app_printf("%s%u", i > 0 ? " " : "", t.ids[i]);
        app_printf("\n");
        return REMAT_OK;
    }
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_open(&j, "tokens", '[');
    for (size_t i = 0; i < t.count; i++)
        rm_json_u64(&j, NULL, t.ids[i]);
    rm_json_close(&j, ']');
    rm_json_u64(&j, "count", t.count);
    rm_json_close(&j, '}');
    app_printf("\n");
    return REMAT_OK;
}

int app_tokenize(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    RM_TRY(app_open(&e, args, false, err));
    const int status = tokenize(e, args, err);
    app_close(&e);
    return status;
}

static int detokenize(remat_engine *e, const app_args *args, remat_error *err) {
    remat_model_info info;
    app_tokens t;
    char *text;
    remat_info(&info, e);
    RM_TRY(remat_check_open(e, err));
    RM_TRY(app_read_tokens(&t, e, args->tokens, err));
    for (size_t i = 0; i < t.count; i++) {
        if (t.ids[i] >= info.vocabulary_count)
            return rm_fail(err, REMAT_E_FAILED,
                           "token %u at place %zu is outside the vocabulary of %u; use ids of this "
                           "model",
                           t.ids[i], i, info.vocabulary_count);
    }
    const size_t used = remat_detokenize(NULL, 0, e, t.ids, t.count, true);
    RM_TRY(app_alloc(&text, e, used, 1, err));
    (void)remat_detokenize(text, used, e, t.ids, t.count, true);
    if (!args->json) {
        rm_buf_put(app_out(), text, used); /* the bytes and nothing else */
        return REMAT_OK;
    }
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_text(&j, "text", text, used);
    rm_json_close(&j, '}');
    app_printf("\n");
    return REMAT_OK;
}

int app_detokenize(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    RM_TRY(app_open(&e, args, false, err));
    const int status = detokenize(e, args, err);
    app_close(&e);
    return status;
}
