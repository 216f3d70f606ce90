/*
 * chat_file.c: conversations and texts in files. See chat_session.h.
 *
 * Jansson takes its memory from the chat's scratch and never from the heap: a file may hold
 * anything, and the budget is settled by now.
 */
#include "app/chat_session.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1536, WINDOW_BYTES = 4096 };

/* ~/ as the shell has it; quotes are part of a name. */
static int full_path(char out[PATH_BYTES], const char *path, remat_error *err) {
    const char *home = getenv("HOME");
    const bool tilde = path[0] == '~' && path[1] == '/' && home != NULL;
    const int n = snprintf(out, PATH_BYTES, "%s%s", tilde ? home : "", tilde ? path + 1 : path);
    if (n > 0 && n < PATH_BYTES - 16) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE, "file: its name is %s", n > 0 ? "too long" : "missing");
}

/* --- saving ----------------------------------------------------------------------------------- */

static bool to_file(void *user, const char *bytes, size_t count) {
    const int *fd = user;
    return rm_write_all(*fd, bytes, count, NULL) == REMAT_OK;
}

static bool write_talk(const app_chat *c, int fd) {
    char window[WINDOW_BYTES];
    rm_buf b;
    rm_json j;
    rm_buf_start(&b, window, sizeof window, to_file, &fd);
    rm_json_start(&j, &b);
    rm_json_open(&j, NULL, '{');
    rm_json_string(&j, "model", c->args->model);
    app_talk_json(&c->talk, &j);
    rm_json_close(&j, '}');
    rm_buf_put(&b, "\n", 1);
    rm_buf_flush(&b);
    return !b.failed && fsync(fd) == 0;
}

int app_chat_save(const app_chat *c, const char *path, remat_error *err) {
    char whole[PATH_BYTES], fresh[PATH_BYTES];
    struct stat st;
    RM_TRY(full_path(whole, path, err));
    /* A rename would replace a device or a pipe by a file. */
    if (stat(whole, &st) == 0 && !S_ISREG(st.st_mode))
        return rm_fail(err, REMAT_E_FAILED, "%s: it is there and no file; name another",
                       rm_path_tail(path));
    snprintf(fresh, sizeof fresh, "%.*s.XXXXXX", PATH_BYTES - 8, whole);
    const int fd = mkostemp(fresh, O_CLOEXEC);
    if (fd < 0)
        return rm_fail(err, REMAT_E_FAILED, "%s: %s; name another place", rm_path_tail(path),
                       strerror(errno));
    bool done = write_talk(c, fd);
    const int why = errno;
    done = close(fd) == 0 && done;
    if (done && rename(fresh, whole) == 0) return REMAT_OK;
    const int reason = done ? errno : why;
    (void)unlink(fresh);
    return rm_fail(err, REMAT_E_FAILED, "%s: not saved: %s; name another place", rm_path_tail(path),
                   strerror(reason));
}

/* --- loading ---------------------------------------------------------------------------------- */

/* Memory of one load; only the newest block can be given back. When it is full the parser is left
 * by a jump: Jansson (2.14) does not look whether a string could grow, and would go on with what
 * there is of it, past its end. Nothing is lost: all that it holds lies in here. */
static struct {
    char *memory;
    size_t cap, used, newest;
    jmp_buf full;
} arena;

static void *arena_take(size_t bytes) {
    const size_t n = (bytes + 15) / 16 * 16;
    if (n < bytes || n > arena.cap - arena.used) longjmp(arena.full, 1);
    arena.newest = arena.used;
    arena.used += n;
    return arena.memory + arena.newest;
}

static void arena_give(void *block) {
    if (block == arena.memory + arena.newest) arena.used = arena.newest;
}

static size_t from_file(void *buffer, size_t bytes, void *user) {
    const int *fd = user;
    ssize_t n;
    do
        n = read(*fd, buffer, bytes);
    while (n < 0 && errno == EINTR);
    return n < 0 ? (size_t)-1 : (size_t)n;
}

static int no_talk(remat_error *err, const char *path, const char *why) {
    return rm_fail(err, REMAT_E_FAILED, "%s: not loaded: %s", rm_path_tail(path), why);
}

/* Message i of the list. False: it is none, or has no place there. */
static bool message_of(const json_t *list, size_t i, app_role *role, const char **text,
                       size_t *bytes) {
    const json_t *m = json_array_get(list, i);
    const char *name = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    if (name == NULL || !json_is_string(content) || !app_role_parse(role, name)) return false;
    *text = json_string_value(content);
    *bytes = json_string_length(content);
    return *role != APP_SYSTEM || i == 0;
}

static int take_over(app_chat *c, const json_t *root, const char *path, remat_error *err) {
    const json_t *list = json_is_array(root) ? root : json_object_get(root, "messages");
    const size_t count = json_array_size(list);
    size_t all = 0, bytes;
    app_role role;
    const char *text;
    if (!json_is_array(list)) return no_talk(err, path, "there is no list of messages in it");
    for (size_t i = 0; i < count; i++) {
        if (!message_of(list, i, &role, &text, &bytes))
            return no_talk(err, path,
                           "a message needs a role (system: the first one only, user, "
                           "assistant) and a content, both text");
        all += bytes;
    }
    if (count > c->talk.message_cap || all > c->talk.cap)
        return no_talk(err, path, "it is longer than this context can hold; give a larger -c");
    c->talk.count = 0;
    c->talk.used = c->talk.draft = 0;
    for (size_t i = 0; i < count; i++) {
        (void)message_of(list, i, &role, &text, &bytes);
        RM_ASSERT(app_talk_add(&c->talk, text, bytes));
        RM_ASSERT(app_talk_push(&c->talk, role));
    }
    return REMAT_OK;
}

static int parse(app_chat *c, int fd, const char *path, remat_error *err) {
    json_error_t why;
    arena.memory = c->scratch;
    arena.cap = c->scratch_bytes;
    arena.used = arena.newest = 0;
    json_set_alloc_funcs(arena_take, arena_give);
    if (setjmp(arena.full) != 0)
        return no_talk(err, path, "it is longer than this context can hold; give a larger -c");
    const json_t *root = json_load_callback(from_file, &fd, JSON_ALLOW_NUL, &why);
    if (root != NULL) return take_over(c, root, path, err);
    return rm_fail(err, REMAT_E_FAILED, "%s: not loaded: line %d: %.80s", rm_path_tail(path),
                   why.line, why.text);
}

int app_chat_load(app_chat *c, const char *path, remat_error *err) {
    char whole[PATH_BYTES];
    rm_file f;
    RM_TRY(full_path(whole, path, err));
    RM_TRY(rm_file_open(&f, whole, err));
    const int status = parse(c, f.fd, path, err);
    rm_file_close(&f);
    return status;
}

/* --- texts ------------------------------------------------------------------------------------ */

int app_chat_read(size_t *bytes, app_chat *c, const char *path, remat_error *err) {
    char whole[PATH_BYTES];
    uint8_t window[WINDOW_BYTES];
    rm_file f;
    const size_t before = c->talk.draft;
    RM_TRY(full_path(whole, path, err));
    RM_TRY(rm_file_open(&f, whole, err));
    int status = REMAT_OK;
    if (f.size > c->talk.cap - c->talk.used - before)
        status = rm_fail(err, REMAT_E_CONTEXT,
                         "%s: its %llu bytes are more than this context can hold; give a larger -c",
                         rm_path_tail(path), (unsigned long long)f.size);
    for (uint64_t at = 0; status == REMAT_OK && at < f.size;) {
        const size_t n = f.size - at < sizeof window ? (size_t)(f.size - at) : sizeof window;
        status = rm_file_read(&f, window, at, n, err);
        if (status == REMAT_OK) RM_ASSERT(app_talk_add(&c->talk, (const char *)window, n));
        at += n;
    }
    if (status != REMAT_OK) c->talk.draft = before;
    *bytes = (size_t)f.size;
    rm_file_close(&f);
    return status;
}
