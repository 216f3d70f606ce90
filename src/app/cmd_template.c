/* cmd_template.c: remat template: what a chat template makes of its variables. Part: app. */
#include "app/app.h"
#include "base/check.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROOM_FIRST = 4 << 20, ROOM_MOST = 1 << 30 };

int app_template_source(app_text *out, remat_engine *e, const app_args *args, remat_error *err) {
    *out = (app_text){0};
    if (args->template_file != NULL) return app_read_file(out, e, args->template_file, err);
    if (args->template_name == NULL) return REMAT_OK;
    out->count = strlen(args->template_name);
    RM_TRY(app_alloc(&out->bytes, e, out->count, 1, err));
    memcpy(out->bytes, args->template_name, out->count);
    return REMAT_OK;
}

/* Rendering says itself when its memory is too small: doubled until it works or the budget ends. */
static int render(remat_engine *e, const remat_chat *chat, remat_error *err) {
    const char *text;
    size_t bytes;
    for (uint64_t room = ROOM_FIRST;; room *= 2) {
        void *memory = NULL;
        RM_TRY(app_alloc(&memory, e, room, 1, err));
        const int status = remat_template_render(&text, &bytes, e, chat, memory, room, err);
        if (status == REMAT_OK) rm_buf_put(app_out(), text, bytes); /* with nothing added */
        const bool again = status != REMAT_OK && strstr(err->message, "more memory") != NULL;
        free(memory);
        if (e != NULL) RM_TRY(remat_claim(e, -(int64_t)room, err));
        if (!again || room >= ROOM_MOST) return status;
    }
}

static int template_of(remat_engine *e, const app_args *args, remat_error *err) {
    static char empty[] = "{}";
    app_text source, variables = {.bytes = empty, .count = 2};
    RM_TRY(app_template_source(&source, e, args, err));
    if (args->file != NULL || args->from_stdin) RM_TRY(app_read_text(&variables, e, args, err));
    const remat_chat chat = {.variables = variables.bytes,
                             .variable_bytes = variables.count,
                             .source = source.bytes,
                             .source_bytes = source.count,
                             .now = (int64_t)time(NULL)};
    return render(e, &chat, err);
}

int app_template(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    if (args->model != NULL) RM_TRY(app_open(&e, args, false, err));
    const int status = template_of(e, args, err);
    app_close(&e);
    return status;
}
