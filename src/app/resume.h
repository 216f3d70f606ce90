/*
 * resume.h: remat run --session: what was there before the prompt, and what is left for the next
 * run. Part: app.
 *
 *     conversation    session's tokens | prompt | answer
 *     sequence        |--- loaded ---|--- given to remat_generate() ---|
 *
 * Without --session all of this is the prompt alone.
 */
#ifndef RM_APP_RESUME_H
#define RM_APP_RESUME_H

#include "app/input.h"

typedef struct app_session {
    const app_args *args;
    remat_session_info info;
    app_tokens all;     /* the session's tokens, then the prompt */
    uint32_t have;      /* of them: in the sequence already */
    uint64_t save_size; /* bytes of the file that was saved; 0: none */
} app_session;

/* Looks at --session, before anything is computed. Errors: as remat_session_peek(). */
int app_session_open(app_session *x, remat_engine *e, const app_args *args, remat_error *err);

/* In a conversation that goes on, the prompt is what the chat template puts behind a reply: renders
 * of [APP_RESUME_USER, APP_RESUME_REPLY, the prompt] become that, in place. An end of turn that the
 * session has already is left out. Errors: REMAT_E_FAILED. */
#define APP_RESUME_USER  "Hi"
#define APP_RESUME_REPLY "okay"
int app_session_cut(app_tokens *ids, const app_session *x, const remat_engine *e, remat_error *err);

/* Puts the prompt behind the session's tokens; takes memory, so before remat_start(). */
int app_session_join(app_session *x, remat_engine *e, const app_tokens *prompt, remat_error *err);

/* Loads into the sequence; warns of pages that were lost. */
int app_session_load(app_session *x, remat_sequence *s, remat_error *err);

/* Saves the sequence and the answer's last token, if anything has come to it since. */
int app_session_save(app_session *x, remat_sequence *s, const uint32_t *answer, uint32_t count,
                     remat_error *err);

#endif /* RM_APP_RESUME_H */
