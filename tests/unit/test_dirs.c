/* test_dirs.c: where the cache folder is, and making it. */
#include "base/dirs.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

#include <sys/stat.h>
#include <unistd.h>

static void the_cache_folder(void) {
    char path[64] = "unset";
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    setenv("HOME", "/tmp", 1);
    EXPECT(rm_dirs_cache(path, sizeof path) && strcmp(path, "/x/cache/remat") == 0);
    EXPECT(rm_dirs_cache(path, 15) && strcmp(path, "/x/cache/remat") == 0);
    setenv("XDG_CACHE_HOME", "relative", 1);
    EXPECT(rm_dirs_cache(path, sizeof path) && strcmp(path, "/tmp/.cache/remat") == 0);
    setenv("XDG_CACHE_HOME", "", 1);
    EXPECT(rm_dirs_cache(path, sizeof path) && strcmp(path, "/tmp/.cache/remat") == 0);
    EXPECT(!rm_dirs_cache(path, 15)); /* no room for the end */
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "h", 1);
    EXPECT(!rm_dirs_cache(path, sizeof path));
    setenv("HOME", "/remat/is/not/at/home", 1); /* nobody's home is made */
    EXPECT(!rm_dirs_cache(path, sizeof path));
    unsetenv("HOME");
    EXPECT(!rm_dirs_cache(path, sizeof path));
}

static void folders_are_made(void) {
    char top[] = "/tmp/remat-dirs-XXXXXX", path[128], file[128];
    REQUIRE(mkdtemp(top) != NULL);
    snprintf(path, sizeof path, "%s/a/b//c", top);
    EXPECT(rm_dirs_make(path));
    struct stat s;
    EXPECT(stat(path, &s) == 0 && S_ISDIR(s.st_mode) && (s.st_mode & 0777) == 0700);
    EXPECT(rm_dirs_make(path)); /* it is there */
    snprintf(file, sizeof file, "%s/a/b/file", top);
    FILE *f = fopen(file, "w");
    REQUIRE(f != NULL);
    fclose(f);
    EXPECT(!rm_dirs_make(file));
    strcat(file, "/below");
    EXPECT(!rm_dirs_make(file));
    EXPECT(!rm_dirs_make(""));
    EXPECT(!rm_dirs_make("/proc/remat/none"));
#ifndef RM_SANITIZED
    no_malloc_begin();
    (void)rm_dirs_make(path);
    (void)rm_dirs_cache(file, sizeof file);
    EXPECT_EQ_U64(no_malloc_end(), 0);
#endif
    snprintf(path, sizeof path, "rm -r %s", top);
    EXPECT(system(path) == 0);
}

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(the_cache_folder), T(folders_are_made));
}
