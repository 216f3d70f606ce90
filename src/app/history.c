/* history.c: see history.h. */
#include "app/history.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

/* Together at most 1 MiB of libedit's wide characters. */
enum { LINES = 500, CHARACTERS = 512, PATH_BYTES = 2048 };

/* The file's path, and with make its folders, but no home. False: nowhere to put it. */
static bool path_of(char out[PATH_BYTES], bool make) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const bool given = state != NULL && state[0] == '/';
    const char *base = given ? state : home;
    if (base == NULL || base[0] != '/') return false;
    const int n =
        snprintf(out, PATH_BYTES, "%s%s/remat/history", base, given ? "" : "/.local/state");
    if (n < 0 || n >= PATH_BYTES - 16) return false;
    for (char *c = out + (given ? 1 : strlen(base) + 1); make && *c != '\0'; c++) {
        if (*c != '/') continue;
        *c = '\0';
        (void)mkdir(out, 0700); /* where it fails, opening says so */
        *c = '/';
    }
    return true;
}

void app_history_open(HistoryW *h, bool read) {
    char path[PATH_BYTES];
    HistEventW event;
    struct stat st;
    (void)history_w(h, &event, H_SETSIZE, LINES);
    (void)history_w(h, &event, H_SETUNIQUE, 1);
    if (!read || !path_of(path, false)) return;
    /* Lines that are added are short; a file that somebody has put there need not be. */
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > (1 << 20)) return;
    (void)history_w(h, &event, H_LOAD, path);
}

void app_history_add(HistoryW *h, const wchar_t *line, size_t count) {
    static wchar_t copy[CHARACTERS + 1];
    HistEventW event;
    if (count > CHARACTERS || line[0] == L' ') return;
    wmemcpy(copy, line, count);
    copy[count] = L'\0';
    (void)history_w(h, &event, H_ENTER, copy);
}

void app_history_save(HistoryW *h) {
    char path[PATH_BYTES], fresh[PATH_BYTES];
    HistEventW event;
    if (!path_of(path, true)) return;
    if (snprintf(fresh, sizeof fresh, "%s.XXXXXX", path) >= (int)sizeof fresh) return;
    const int fd = mkostemp(fresh, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) return;
    FILE *f = fdopen(fd, "w");
    if (f == NULL) {
        (void)close(fd);
        (void)unlink(fresh);
        return;
    }
    const bool written = history_w(h, &event, H_SAVE_FP, f) >= 0 && fflush(f) == 0;
    if (fclose(f) != 0 || !written || rename(fresh, path) != 0) (void)unlink(fresh);
}
