/* child.c: see child.h. */
#include "app/child.h"
#include "app/output.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    KEPT_BYTES = 64 << 20, /* of an output; more is read and forgotten */
    FIRST_BYTES = 4 << 10,
    WAKE_MS = 100, /* a Ctrl-C that comes just before poll() waits is seen then */
};
static const double PATIENCE_S = 5; /* from being asked to end, to being ended */

/* An output of the child on its way here. */
typedef struct stream {
    int fd; /* -1: at its end */
    char *bytes;
    size_t count, cap;
} stream;

static void stream_close(stream *s) {
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
}

/* Takes what is there. Always leaves room for the NUL at the end. */
static void stream_read(stream *s) {
    char window[4096];
    const ssize_t n = read(s->fd, window, sizeof window);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        stream_close(s);
        return;
    }
    const size_t need = s->count + (size_t)n + 1;
    if (need > KEPT_BYTES) return;
    if (need > s->cap) {
        const size_t cap = 2 * need > FIRST_BYTES ? 2 * need : FIRST_BYTES;
        char *p = realloc(s->bytes, cap);
        if (p == NULL) return;
        s->bytes = p;
        s->cap = cap;
    }
    memcpy(s->bytes + s->count, window, (size_t)n);
    s->count += (size_t)n;
    s->bytes[s->count] = '\0';
}

/* Reads both outputs to their ends. Returns whether Ctrl-C was pressed meanwhile. */
static bool listen_to(pid_t pid, stream s[2]) {
    double asked_s = 0;
    while (s[0].fd >= 0 || s[1].fd >= 0) {
        struct pollfd p[2] = {{.fd = s[0].fd, .events = POLLIN}, {.fd = s[1].fd, .events = POLLIN}};
        const int ready = poll(p, 2, WAKE_MS);
        for (int i = 0; i < 2 && ready > 0; i++) {
            if (s[i].fd >= 0 && p[i].revents != 0) stream_read(&s[i]);
        }
        if (!app_interrupted()) continue;
        const double now = rm_clock_s();
        if (asked_s == 0) {
            asked_s = now;
            (void)kill(pid, SIGTERM);
        } else if (now - asked_s > PATIENCE_S) {
            (void)kill(pid, SIGKILL);
        }
    }
    return app_interrupted();
}

/* What the child's descriptors are. They are moved out of the way first: one of them may have the
 * number that another is going to get. */
static int set_files(posix_spawn_file_actions_t *a, const app_child *c, int out, int complaints) {
    enum { COUNT = 5, APART = 100 };
    const int from[COUNT] = {c->in, out, complaints, c->also[0], c->also[1]};
    int failed = 0;
    for (int i = 0; i < COUNT; i++) {
        if (from[i] >= 0) failed |= posix_spawn_file_actions_adddup2(a, from[i], APART + i);
    }
    for (int i = 0; i < COUNT; i++) {
        if (from[i] < 0) continue;
        failed |= posix_spawn_file_actions_adddup2(a, APART + i, i);
        failed |= posix_spawn_file_actions_addclose(a, APART + i);
    }
    if (c->in < 0) failed |= posix_spawn_file_actions_addopen(a, 0, "/dev/null", O_RDONLY, 0);
    return failed;
}

/* 0, or an errno. */
static int start(pid_t *pid, const app_child *c, int out, int complaints) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t usual;
    if (posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE); /* which is ignored here */
    int failed = set_files(&files, c, out, complaints);
    if (failed == 0) failed = posix_spawnattr_setsigdefault(&attributes, &usual);
    if (failed == 0) failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    char *const *argv;
    memcpy(&argv, &c->argv, sizeof argv); /* it is not written to */
    if (failed == 0) failed = posix_spawnp(pid, c->argv[0], &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed;
}

static char *text_of(const stream *s) {
    return s->bytes != NULL ? s->bytes : calloc(1, 1);
}

static int failed_start(app_child *c, int why, remat_error *err) {
    c->missing = why == ENOENT;
    return rm_fail(err, REMAT_E_FAILED, "%s: it cannot be started: %s", c->argv[0], strerror(why));
}

int app_child_run(app_child *c, remat_error *err) {
    int out[2] = {-1, -1}, complaints[2] = {-1, -1};
    stream s[2] = {{.fd = -1}, {.fd = -1}};
    pid_t pid = -1;
    c->said = c->complained = NULL;
    c->missing = false;
    int failed = c->out < 0 && pipe2(out, O_CLOEXEC) != 0 ? errno : 0;
    if (failed == 0 && pipe2(complaints, O_CLOEXEC) != 0) failed = errno;
    if (failed == 0) failed = start(&pid, c, c->out >= 0 ? c->out : out[1], complaints[1]);
    s[0].fd = out[0];
    s[1].fd = complaints[0];
    if (out[1] >= 0) close(out[1]);
    if (complaints[1] >= 0) close(complaints[1]);
    if (failed != 0) {
        stream_close(&s[0]);
        stream_close(&s[1]);
        return failed_start(c, failed, err);
    }
    const bool interrupted = listen_to(pid, s);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    c->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    c->said = text_of(&s[0]);
    c->complained = text_of(&s[1]);
    c->said_bytes = s[0].count;
    c->complained_bytes = s[1].count;
    if (!interrupted && c->said != NULL && c->complained != NULL) return REMAT_OK;
    app_child_free(c);
    if (!interrupted) return failed_start(c, ENOMEM, err);
    return rm_fail(err, REMAT_E_CANCELED, "interrupted");
}

void app_child_free(app_child *c) {
    free(c->said);
    free(c->complained);
    c->said = c->complained = NULL;
}

int app_scratch_file(int *out, remat_error *err) {
    char path[256];
    const char *folder = getenv("TMPDIR");
    if (folder == NULL || folder[0] == '\0' || strlen(folder) > sizeof path - 20) folder = "/tmp";
    snprintf(path, sizeof path, "%s/remat-XXXXXX", folder);
    *out = mkostemp(path, O_CLOEXEC);
    if (*out >= 0 && unlink(path) == 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED, "%s: %s; set TMPDIR to a folder for temporary files",
                   folder, strerror(errno));
}
