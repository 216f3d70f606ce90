/*
 * session_fixture.h: a place for a session file, and the run that was never interrupted.
 */
#ifndef RM_TESTS_SESSION_FIXTURE_H
#define RM_TESTS_SESSION_FIXTURE_H

#include "engine_fixture.h"
#include "harness.h"

#include <stdlib.h>
#include <unistd.h>

static tiny_spec spec;
static subject known; /* the uninterrupted run, in f16 */
static char dir[64], path[96];

static bool session_prepare(uint32_t count) {
    char why[WHY_MAX];
    if (dir[0] != '\0') return true;
    snprintf(dir, sizeof dir, "/tmp/remat_session_XXXXXX");
    if (mkdtemp(dir) == NULL) return false;
    snprintf(path, sizeof path, "%s/s", dir);
    spec = tiny_spec_default();
    if (!subject_open(&known, &spec, count, 1, 1)) return false;
    if (same_first(why, &known, REMAT_KV_F16)) return true;
    t_fail("%s", why);
    return false;
}

static void session_clean_up(void) {
    if (dir[0] == '\0') return;
    unlink(path);
    if (rmdir(dir) != 0) t_fail("something is left in %s", dir);
    subject_close(&known);
}

#endif /* RM_TESTS_SESSION_FIXTURE_H */
