/*
 * session.h: sequences in files (remat_session_*() in remat.h). Part: engine.
 *
 * The file's format is cache/session_file's; here is what makes a file the right one (two
 * fingerprints), and what of a sequence goes out and comes in.
 *
 *     model fingerprint   numbers of the architecture, tensors, a part of their data; another one:
 *                         the token ids mean something else, the file is refused
 *     cache fingerprint   the layout of a page and what its bits depend on; another one: the tokens
 *                         are good, the pages are not
 */
#ifndef RM_ENGINE_SESSION_H
#define RM_ENGINE_SESSION_H

#include "base/ledger.h"

/* Memory for loading and saving: one page and a part of a table at a time. */
typedef struct rm_session {
    void *page;
    uint8_t *window;
} rm_session;

/* Carves it (account io). */
int rm_session_layout(rm_session *s, rm_ledger *l, uint64_t page_bytes, remat_error *err);

#endif /* RM_ENGINE_SESSION_H */
