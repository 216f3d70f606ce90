/* main.c: one command, one exit code. Part: app. */
#include "app/app.h"
#include "base/check.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>

static remat_engine *current; /* the one that Ctrl-C stops */
static volatile sig_atomic_t interrupted;

/* The first Ctrl-C ends the work in good order, a second one the program. */
static void on_interrupt(int number) {
    remat_engine *e = __atomic_load_n(&current, __ATOMIC_RELAXED);
    interrupted = 1;
    if (e != NULL) remat_cancel(e);
    (void)number;
}

bool app_interrupted(void) {
    return interrupted != 0;
}

/* A standard stream that is closed would be the next file that is opened: reading a prompt from the
 * model, or an answer written into some other file. These fail instead. */
static void hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

static void handle_signals(void) {
    struct sigaction a;
    memset(&a, 0, sizeof a);
    sigemptyset(&a.sa_mask);
    a.sa_handler = on_interrupt;
    a.sa_flags = (int)SA_RESETHAND;
    (void)sigaction(SIGINT, &a, NULL);
    (void)sigaction(SIGTERM, &a, NULL);
    a.sa_handler = SIG_IGN; /* a reader that has gone is a failed write, reported as such */
    a.sa_flags = 0;
    (void)sigaction(SIGPIPE, &a, NULL);
}

static void on_warning(void *user, const char *message) {
    (void)user;
    app_warn("%s", message);
}

static remat_options options_of(const app_args *args, bool index_only) {
    remat_options o = remat_options_default();
    o.memory_bytes = args->memory_bytes;
    o.thread_count = args->threads;
    o.kernels = args->kernels;
    o.pre = args->pre;
    o.index_only = index_only;
    o.progress = app_progress;
    o.warning = on_warning;
    return o;
}

int app_open_shape(remat_engine **out, const remat_shape *shape, const app_args *args,
                   remat_error *err) {
    const remat_options o = options_of(args, false);
    return remat_open_shape(out, shape, &o, err);
}

int app_open(remat_engine **out, const app_args *args, bool index_only, remat_error *err) {
    const remat_options o = options_of(args, index_only);
    RM_TRY(remat_open(out, args->model, &o, err));
    __atomic_store_n(&current, *out, __ATOMIC_RELAXED);
    if (app_interrupted()) remat_cancel(*out); /* while it was opened */
    return REMAT_OK;
}

void app_close(remat_engine **e) {
    __atomic_store_n(&current, NULL, __ATOMIC_RELAXED);
    remat_close(e);
}

static int run(const app_args *args, remat_error *err) {
    switch (args->command) {
    case APP_RUN:
        return app_run(args, err);
    case APP_SCORE:
        return app_score(args, err);
    case APP_EVAL:
        return app_eval(args, err);
    case APP_BENCH:
        return app_bench(args, err);
    case APP_PLAN:
        return app_plan(args, err);
    case APP_INFO:
        return app_info(args, err);
    case APP_TOKENIZE:
        return app_tokenize(args, err);
    case APP_TEMPLATE:
        return app_template(args, err);
    case APP_DETOKENIZE:
        return app_detokenize(args, err);
    case APP_COMPLETION:
        return app_completion(args, err);
    case APP_VERSION:
        return app_version(args, err);
    }
    return rm_fail(err, REMAT_E_USAGE, "command: none given; see remat --help");
}

int main(int argc, char **argv) {
    static app_args args;
    remat_error err = {0};
    mallopt(M_ARENA_MAX, 1); /* glibc would give each thread an arena of its own */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    hold_standard_streams();
    handle_signals();
    int status = app_args_parse(&args, argc, argv, &err);
    if (status == REMAT_OK && args.help) {
        app_args_help(args.command, args.help_all);
    } else if (status == REMAT_OK) {
        status = run(&args, &err);
    }
    if (status == REMAT_OK) status = app_flush(&err);
    app_progress_end();
    return status == REMAT_OK ? 0 : app_report(&err, args.json);
}
