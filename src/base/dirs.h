/* dirs.h: where files go that a user's programs keep between runs. Part: base. */
#ifndef RM_BASE_DIRS_H
#define RM_BASE_DIRS_H

#include <stdbool.h>
#include <stddef.h>

/* The folder of what can be lost and made again: $XDG_CACHE_HOME/remat, else $HOME/.cache/remat.
 * As the XDG specification has it, a path that is not absolute does not count. It need not exist.
 * False when neither is set, when it does not fit, or when $HOME is not there: nobody's home is
 * made here. */
bool rm_dirs_cache(char *out, size_t cap);

/* Makes the folder and those above it that are missing, with mode 0700. True when it is there
 * afterwards, whoever made it; else errno says why not. */
bool rm_dirs_make(const char *path);

#endif /* RM_BASE_DIRS_H */
