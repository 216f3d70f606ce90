/* resume.c: see resume.h. */
#include "app/resume.h"
#include "app/output.h"
#include "base/check.h"

#include <string.h>

enum { PIECE_BYTES = 256 };

int app_session_open(app_session *x, remat_engine *e, const app_args *args, remat_error *err) {
    *x = (app_session){.args = args};
    if (args->session == NULL) return REMAT_OK;
    RM_TRY(remat_session_peek(&x->info, e, args->session, err));
    if (x->info.token_count > 0 && args->system != NULL)
        app_warn("--system: the session has begun already, with what it was given then");
    return REMAT_OK;
}

/* How many of ids the text up to the end of APP_RESUME_REPLY takes; 0: it has no such place. */
static size_t find_reply(const app_tokens *ids, const remat_engine *e) {
    const size_t want = strlen(APP_RESUME_REPLY);
    size_t same = 0; /* the text so far ends with so many bytes of it; its first byte is unique */
    for (size_t i = 0; i < ids->count; i++) {
        char piece[PIECE_BYTES];
        const size_t all = remat_token_text(piece, sizeof piece, e, ids->ids[i], true, i == 0);
        const size_t bytes = all < sizeof piece ? all : sizeof piece;
        for (size_t k = 0; k < bytes; k++) {
            same = piece[k] == APP_RESUME_REPLY[same] ? same + 1 : piece[k] == APP_RESUME_REPLY[0];
            if (same == want) return k + 1 == all ? i + 1 : 0;
        }
    }
    return 0;
}

int app_session_cut(app_tokens *ids, const app_session *x, const remat_engine *e,
                    remat_error *err) {
    size_t from = find_reply(ids, e);
    if (from == 0 || from == ids->count) {
        return rm_fail(err, REMAT_E_FAILED,
                       "--session: it is not clear how this chat template goes on after a reply; "
                       "give the text with --raw");
    }
    if (ids->ids[from] == x->info.last_token) from++;
    ids->count -= from;
    memmove(ids->ids, ids->ids + from, ids->count * sizeof *ids->ids);
    return REMAT_OK;
}

int app_session_join(app_session *x, remat_engine *e, const app_tokens *prompt, remat_error *err) {
    const size_t before = x->info.token_count;
    if (before == 0) {
        x->all = *prompt;
        return REMAT_OK;
    }
    RM_TRY(app_alloc(&x->all.ids, e, before + prompt->count, sizeof *x->all.ids, err));
    x->all.count = before + prompt->count;
    if (prompt->count > 0)
        memcpy(x->all.ids + before, prompt->ids, prompt->count * sizeof *prompt->ids);
    return REMAT_OK;
}

int app_session_load(app_session *x, remat_sequence *s, remat_error *err) {
    const uint32_t expected = x->info.token_count;
    if (!x->info.exists) return REMAT_OK;
    RM_TRY(remat_session_load(&x->info, x->all.ids, expected, s, x->args->session, err));
    if (x->info.token_count != expected)
        return rm_fail(err, REMAT_E_FAILED,
                       "--session: the file was changed by somebody else; start again");
    if (x->info.warning[0] != '\0') app_warn("%s", x->info.warning);
    /* Logits come from a token that is appended: without a prompt from the session's last one. */
    if (remat_sequence_count(s) == x->all.count)
        remat_sequence_truncate(s, (uint32_t)x->all.count - 1);
    x->have = remat_sequence_count(s);
    return REMAT_OK;
}

int app_session_save(app_session *x, remat_sequence *s, const uint32_t *answer, uint32_t count,
                     remat_error *err) {
    const uint32_t held = remat_sequence_count(s);
    if (x->args->session == NULL || held == x->have) return REMAT_OK;
    const uint32_t pending = (uint32_t)x->all.count + count - held;
    RM_ASSERT(pending <= count);
    return remat_session_save(&x->save_size, s, x->args->session, answer + (count - pending),
                              pending, x->args->session_tokens_only ? REMAT_SESSION_TOKENS_ONLY : 0,
                              err);
}
