/* dirs.c: see dirs.h. */
#include "base/dirs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* $name + rest, when that is an absolute path. */
static bool below(char *out, size_t cap, const char *name, const char *rest) {
    const char *base = getenv(name);
    if (base == NULL || base[0] != '/') return false;
    const int length = snprintf(out, cap, "%s%s", base, rest);
    return length > 0 && (size_t)length < cap;
}

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool rm_dirs_cache(char *out, size_t cap) {
    if (below(out, cap, "XDG_CACHE_HOME", "/remat")) return true;
    char home[PATH_MAX];
    return below(home, sizeof home, "HOME", "") && is_folder(home) &&
           below(out, cap, "HOME", "/.cache/remat");
}

bool rm_dirs_make(const char *path) {
    char part[PATH_MAX];
    const size_t length = strlen(path);
    int reason = length == 0 ? ENOENT : length >= sizeof part ? ENAMETOOLONG : 0;
    if (reason == 0 && is_folder(path)) return true;
    for (size_t i = 1; reason == 0 && i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        /* One that cannot be made may still be there, above a read-only or closed parent. */
        const int failed = mkdir(part, 0700) != 0 ? errno : 0;
        if (failed != 0 && !is_folder(part)) reason = failed == EEXIST ? ENOTDIR : failed;
    }
    errno = reason;
    return reason == 0;
}
