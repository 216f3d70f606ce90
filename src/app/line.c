/* line.c: see line.h. */
#include "app/line.h"
#include "app/history.h"
#include "app/words.h"
#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REPLACEMENT = 0xfffd, CONTINUE_MS = 50 };

static struct {
    EditLine *el;
    HistoryW *history;
    FILE *out;
    const char *prompt;
    bool remember, pastes, too_long;
    app_line_status why; /* of a read that failed */
    int wake[2];         /* the handler writes, the reader polls: no signal is missed */
    uint8_t bytes[256];  /* read and not yet looked at */
    size_t at, count;
    wchar_t paste[APP_LINE_MOST + 1];
    char text[4 * APP_LINE_MOST + 8];
} line;

/* --- signals ---------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted, terminated, resized, continued, busy_now;
static remat_engine *engine;

static void on_signal(int number) {
    const int saved = errno;
    if (number == SIGINT) interrupted = 1;
    if (number == SIGTERM || number == SIGHUP) terminated = 1;
    if (number == SIGWINCH) resized = 1;
    if (number == SIGCONT) continued = 1;
    if (busy_now && (interrupted || terminated)) remat_cancel(engine);
    if (write(line.wake[1], "", 1) < 0) errno = saved; /* full: it wakes anyway */
    errno = saved;
}

void app_line_watch(remat_engine *e) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
    struct sigaction a;
    engine = e;
    memset(&a, 0, sizeof a);
    sigemptyset(&a.sa_mask);
    a.sa_handler = on_signal;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaction(numbers[i], &a, NULL);
}

bool app_line_busy(bool busy) {
    const bool asked = interrupted || terminated;
    if (busy) interrupted = 0;
    busy_now = busy;
    if (!busy) interrupted = 0;
    return asked;
}

bool app_line_terminated(void) {
    return terminated != 0;
}

/* --- characters ------------------------------------------------------------------------------- */

/* What signals ask of a line that is being edited. False: the read ends. */
static bool heed_signals(void) {
    char drain[32];
    while (read(line.wake[0], drain, sizeof drain) > 0) {
    }
    if (resized) {
        resized = 0;
        el_resize(line.el);
        el_wset(line.el, EL_REFRESH);
    }
    if (continued) { /* the shell has had the terminal */
        continued = 0;
        el_wset(line.el, EL_PREP_TERM, 1);
        el_wset(line.el, EL_REFRESH);
    }
    if (!interrupted && !terminated) return true;
    const LineInfoW *l = el_wline(line.el);
    line.why = terminated                ? APP_LINE_TERMINATED
               : l->lastchar > l->buffer ? APP_LINE_CANCELED
                                         : APP_LINE_INTERRUPT;
    interrupted = 0;
    return false;
}

/* The next byte; -1: none within wait_ms; -2: the read ends. */
static int next_byte(int wait_ms) {
    while (line.at == line.count) {
        struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = line.wake[0], .events = POLLIN}};
        const int n = poll(fds, 2, wait_ms);
        if (n == 0) return -1;
        if (n < 0 && errno == EINTR) continue; /* the pipe has it */
        if (n > 0 && fds[1].revents != 0) {
            if (!heed_signals()) return -2;
            continue;
        }
        const ssize_t got = read(STDIN_FILENO, line.bytes, sizeof line.bytes);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got <= 0) {
            line.why = APP_LINE_END;
            return -2;
        }
        line.at = 0;
        line.count = (size_t)got;
    }
    return line.bytes[line.at++];
}

/* One character of UTF-8; what is none is U+FFFD. False: the read ends. */
static bool next_character(wchar_t *out) {
    const int first = next_byte(-1);
    if (first < 0) return false;
    *out = first;
    if (first < 0x80) return true;
    *out = REPLACEMENT;
    if (first < 0xc2 || first > 0xf4) return true;
    const int more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    uint32_t c = (uint32_t)first & (0x3fu >> more);
    for (int i = 0; i < more; i++) {
        const int b = next_byte(CONTINUE_MS);
        if (b == -2) return false;
        if (b < 0) return true;
        if ((b & 0xc0) != 0x80) {
            line.at--; /* it begins something else */
            return true;
        }
        c = c << 6 | ((uint32_t)b & 0x3f);
    }
    static const uint32_t least[] = {0, 0xa0, 0x800, 0x10000}; /* under a0: what terminals obey */
    if (c >= least[more] && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff)) *out = (wchar_t)c;
    return true;
}

static size_t length(void) {
    const LineInfoW *l = el_wline(line.el);
    return (size_t)(l->lastchar - l->buffer);
}

/* libedit's reader. A line that is full takes no more text; keys still work. */
static int get_character(EditLine *el, wchar_t *out) {
    (void)el;
    for (;;) {
        if (!next_character(out)) return line.why == APP_LINE_END ? 0 : -1;
        if (*out < L' ' || *out == 0x7f || length() < APP_LINE_MOST) return 1;
        line.too_long = true;
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

/* Bracketed paste: up to ESC [ 201 ~ everything is text, line breaks too. */
static unsigned char paste(EditLine *el, wint_t key) {
    static const wchar_t end[] = L"\033[201~";
    size_t n = 0, matched = 0;
    wchar_t c;
    (void)key;
    while (matched < sizeof end / sizeof *end - 1) {
        if (!next_character(&c)) return CC_EOF;
        matched = c == end[matched] ? matched + 1 : c == end[0] ? 1 : 0;
        if (c == L'\r') c = L'\n';
        const bool text = c >= L' ' ? c != 0x7f && matched == 0 : c == L'\n' || c == L'\t';
        if (!text) continue;
        if (n + length() < APP_LINE_MOST) {
            line.paste[n++] = c;
        } else {
            line.too_long = true;
        }
    }
    line.paste[n] = L'\0';
    return n == 0 || el_winsertstr(el, line.paste) == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
}

static unsigned char complete(EditLine *el, wint_t key) {
    char begin[64], more[64], list[512];
    const LineInfoW *l = el_wline(el);
    size_t n = 0;
    (void)key;
    for (const wchar_t *c = l->buffer; c < l->cursor; c++) {
        if (*c >= 0x7f || *c < ' ' || n + 1 == sizeof begin) return CC_REFRESH_BEEP;
        begin[n++] = (char)*c;
    }
    begin[n] = '\0';
    const size_t count = app_complete(more, sizeof more - 1, list, sizeof list, begin);
    if (count == 0) return CC_REFRESH_BEEP;
    const size_t used = strlen(more);
    if (count == 1) memcpy(more + used, " ", 2);
    if (more[0] != '\0') return el_insertstr(el, more) == 0 ? CC_REFRESH : CC_REFRESH_BEEP;
    fprintf(line.out, "\n%s\n", list);
    return CC_REDISPLAY;
}

/* --- open and close --------------------------------------------------------------------------- */

static char *prompt(EditLine *el) {
    static char copy[32];
    (void)el;
    snprintf(copy, sizeof copy, "%s", line.prompt);
    return copy;
}

/* Characters are UTF-8 whatever the environment says; its language is not asked for. */
static void choose_characters(void) {
    if (setlocale(LC_CTYPE, "") == NULL || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

static void bind_keys(void) {
    el_set(line.el, EL_PROMPT, prompt);
    el_wset(line.el, EL_EDITOR, L"emacs");
    el_wset(line.el, EL_SIGNAL, 0);
    el_wset(line.el, EL_HIST, history_w, line.history);
    (void)el_source(line.el, NULL); /* the user's ~/.editrc */
    el_wset(line.el, EL_GETCFN, get_character);
    el_wset(line.el, EL_ADDFN, L"remat-paste", L"Bracketed paste", paste);
    el_wset(line.el, EL_BIND, L"\\e[200~", L"remat-paste", NULL);
    el_wset(line.el, EL_ADDFN, L"remat-complete", L"Complete a command", complete);
    el_wset(line.el, EL_BIND, L"^I", L"remat-complete", NULL);
}

int app_line_open(FILE *out, bool remember, remat_error *err) {
    const char *term = getenv("TERM");
    choose_characters();
    line.out = out;
    line.remember = remember;
    line.pastes = term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
    if (pipe2(line.wake, O_CLOEXEC | O_NONBLOCK) != 0)
        return rm_fail(err, REMAT_E_FAILED, "terminal: no pipe: %s", strerror(errno));
    line.el = el_init("remat", stdin, out, stderr);
    line.history = history_winit();
    if (line.el == NULL || line.history == NULL)
        return rm_fail(err, REMAT_E_FAILED, "terminal: it cannot be used for a chat; give -p TEXT");
    app_history_open(line.history, remember);
    bind_keys();
    return REMAT_OK;
}

void app_line_close(void) {
    if (line.history != NULL && line.remember) app_history_save(line.history);
    if (line.el != NULL) el_end(line.el);
    if (line.history != NULL) history_wend(line.history);
    line.el = NULL;
    line.history = NULL;
}

/* --- reading ---------------------------------------------------------------------------------- */

static size_t encode(char *out, const wchar_t *text, size_t count) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t c = (uint32_t)text[i];
        if (c == 0) continue;
        const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
        out[n++] = (char)(lead[more] | c >> (6 * more));
        for (int k = more - 1; k >= 0; k--)
            out[n++] = (char)(0x80 | (c >> (6 * k) & 0x3f));
    }
    return n;
}

app_line_status app_line_read(const char *ask, const char **text, size_t *bytes) {
    int count = 0;
    if (terminated) return APP_LINE_TERMINATED;
    line.prompt = ask;
    line.too_long = false;
    line.why = APP_LINE_END;
    /* First the mode, then what says that a line is read: between them a Ctrl-D would get lost,
     * and of a long line what the terminal does not keep. */
    el_wset(line.el, EL_PREP_TERM, 1);
    if (line.pastes) fputs("\033[?2004h", line.out);
    fflush(line.out);
    const wchar_t *wide = el_wgets(line.el, &count);
    if (line.pastes) fputs("\033[?2004l", line.out);
    if (wide == NULL || count <= 0) {
        fputc('\n', line.out);
        fflush(line.out);
        return line.why;
    }
    fflush(line.out);
    while (count > 0 && (wide[count - 1] == L'\n' || wide[count - 1] == L'\r'))
        count--;
    if (line.too_long || count > APP_LINE_MOST) return APP_LINE_TOO_LONG;
    if (count > 0) app_history_add(line.history, wide, (size_t)count);
    *bytes = encode(line.text, wide, (size_t)count);
    line.text[*bytes] = '\0';
    *text = line.text;
    return APP_LINE_TEXT;
}
