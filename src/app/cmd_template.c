/* cmd_template.c: remat template: what a chat template makes of its variables. Part: app. */
#include "app/app.h"
#include "base/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int app_template_source(app_text *out, const app_args *args, uint64_t most_bytes,
                        remat_error *err) {
    *out = (app_text){0};
    if (args->template_file != NULL)
        return app_read_file(out, args->template_file, most_bytes, err);
    if (args->template_name == NULL) return REMAT_OK;
    out->count = strlen(args->template_name);
    RM_TRY(app_alloc(&out->bytes, out->count, 1, err));
    memcpy(out->bytes, args->template_name, out->count);
    return REMAT_OK;
}

/* Rendering says itself when its memory is too small: doubled until it works or the budget ends. */
static int render(const remat_engine *e, const remat_chat *chat, uint64_t most, remat_error *err) {
    const char *text;
    size_t bytes;
    for (uint64_t room = 4ull << 20;; room *= 2) {
        void *memory = NULL;
        RM_TRY(app_alloc_lazy(&memory, room, err));
        const int status = remat_template_render(&text, &bytes, e, chat, memory, room, err);
        if (status == REMAT_OK) rm_buf_put(app_out(), text, bytes); /* with nothing added */
        const bool again = status != REMAT_OK && strstr(err->message, "more memory") != NULL;
        free(memory);
        if (!again || room > most / 4) return status;
    }
}

static int template_of(const remat_engine *e, const app_args *args, remat_error *err) {
    static char empty[] = "{}";
    uint64_t most = args->memory_bytes > 0 ? args->memory_bytes : 1ull << 30;
    app_text source, variables = {.bytes = empty, .count = 2};
    RM_TRY(app_template_source(&source, args, most, err));
    if (args->file != NULL || args->from_stdin) RM_TRY(app_read_text(&variables, args, most, err));
    const remat_chat chat = {.variables = variables.bytes,
                             .variable_bytes = variables.count,
                             .source = source.bytes,
                             .source_bytes = source.count,
                             .now = (int64_t)time(NULL)};
    return render(e, &chat, most, err);
}

int app_template(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    if (args->model != NULL) RM_TRY(app_open(&e, args, false, err));
    const int status = template_of(e, args, err);
    app_close(&e);
    return status;
}
