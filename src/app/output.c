/* output.c: see output.h. */
#include "app/output.h"
#include "base/clock.h"
#include "base/io.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char out_memory[16 << 10];
static rm_buf out_buf;

static bool to_stdout(void *user, const char *bytes, size_t count) {
    (void)user;
    return rm_write_all(STDOUT_FILENO, bytes, count, NULL) == REMAT_OK;
}

rm_buf *app_out(void) {
    if (out_buf.at == NULL) rm_buf_start(&out_buf, out_memory, sizeof out_memory, to_stdout, NULL);
    return &out_buf;
}

void app_printf(const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n > 0) rm_buf_put(app_out(), text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

int app_flush(remat_error *err) {
    rm_buf_flush(app_out());
    if (!app_out()->failed) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED,
                   "standard output: not everything could be written; is the "
                   "disk full or the reader gone?");
}

static void to_stderr(const char *text, size_t bytes) {
    (void)rm_write_all(STDERR_FILENO, text, bytes, NULL);
}

static const struct {
    remat_status status;
    int exit_code;
    const char *name;
} statuses[] = {
    {REMAT_OK, 0, "ok"},
    {REMAT_E_FAILED, 1, "failed"},
    {REMAT_E_USAGE, 2, "usage"},
    {REMAT_E_MODEL, 3, "model"},
    {REMAT_E_BUDGET, 4, "budget"},
    {REMAT_E_CONTEXT, 5, "context"},
    {REMAT_E_CANCELED, 130, "interrupted"},
};

static size_t index_of(remat_status status) {
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        if (statuses[i].status == status) return i;
    }
    return 1;
}

int app_exit_code(remat_status status) {
    return statuses[index_of(status)].exit_code;
}

const char *app_error_name(remat_status status) {
    return statuses[index_of(status)].name;
}

static bool document_done;

void app_document_done(void) {
    document_done = true;
}

int app_report(const remat_error *err, bool json) {
    char line[sizeof err->message + 16];
    app_progress_end();
    int n = snprintf(line, sizeof line, "remat: %s\n", err->message);
    for (int i = 0; i < n - 1; i++) {
        /* A path may hold anything: new lines, or what a terminal obeys. */
        if ((unsigned char)line[i] < 32 || line[i] == 127) line[i] = '?';
    }
    to_stderr(line, (size_t)n);
    if (json && !document_done) {
        rm_json j;
        rm_json_start(&j, app_out());
        rm_json_open(&j, NULL, '{');
        rm_json_open(&j, "error", '{');
        rm_json_string(&j, "code", app_error_name(err->status));
        rm_json_string(&j, "message", err->message);
        if (err->minimum_bytes > 0) rm_json_u64(&j, "minimum_bytes", err->minimum_bytes);
        rm_json_close(&j, '}');
        rm_json_close(&j, '}');
        app_printf("\n");
        (void)app_flush(NULL);
    }
    return app_exit_code(err->status);
}

void app_warn(const char *fmt, ...) {
    char text[512] = "remat: warning: ";
    const size_t head = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text + head, sizeof text - head - 1, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    const size_t most = sizeof text - head - 2,
                 bytes = head + ((size_t)n < most ? (size_t)n : most);
    text[bytes] = '\n';
    to_stderr(text, bytes + 1);
}

/* --- progress --------------------------------------------------------------------------------- */

static double shown_s;
static bool shown;
static char piece[80]; /* of longer work */

void app_progress(void *user, remat_stage stage, uint64_t done, uint64_t total) {
    static const char *const names[REMAT_STAGE_COUNT] = {"loading", "prompt"};
    static double begin_s;
    static uint64_t last;
    (void)user;
    const double now = rm_clock_s();
    if (done < last || begin_s == 0) begin_s = now; /* a new piece of work */
    last = done;
    if (!isatty(STDERR_FILENO) || total == 0 || now - begin_s < 0.5 || now - shown_s < 0.1) return;
    char text[160];
    const double share = (double)done / (double)total;
    const double left = share > 0 ? (now - begin_s) / share * (1 - share) : 0;
    const int n = snprintf(text, sizeof text, "\r%s%s%s %3.0f %%, %.0f s left \033[K", piece,
                           piece[0] != '\0' ? ": " : "", names[stage], 100 * share, left);
    shown_s = now;
    shown = true;
    to_stderr(text, (size_t)n);
}

void app_progress_name(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(piece, sizeof piece, fmt, ap);
    va_end(ap);
    if (n <= 0 || !isatty(STDERR_FILENO)) return;
    to_stderr("\r", 1);
    to_stderr(piece, strlen(piece));
    to_stderr("\033[K", 3);
    shown = true;
}

void app_progress_end(void) {
    if (shown) to_stderr("\r\033[K", 4);
    shown = false;
}
