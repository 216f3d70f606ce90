/* dirs.c: see dirs.h. */
#include "base/dirs.h"

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

bool rm_dirs_cache(char *out, size_t cap) {
    return below(out, cap, "XDG_CACHE_HOME", "/remat") || below(out, cap, "HOME", "/.cache/remat");
}

static bool is_folder(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool rm_dirs_make(const char *path) {
    char part[PATH_MAX];
    const size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) return false;
    if (is_folder(path)) return true;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        /* Whether it worked is seen at the end: one that exists fails as well. */
        (void)mkdir(part, 0700);
    }
    return is_folder(path);
}
