/*
 * standalone.c: replays files through a fuzz target without libFuzzer, so that every compiler can
 * run the corpus as a test.
 *
 *     gguf corpus/gguf crash-1234 ..     files, and directories of files (one level)
 *
 * Exit: 0 when every input came through (a failing target aborts), 1 when one cannot be read or
 * there was none. The name of each input is printed before it runs.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t bytes) {
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc(bytes + 1);
    if (f == NULL || data == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        if (f != NULL) fclose(f);
        free(data);
        return 0;
    }
    const size_t got = fread(data, 1, bytes, f);
    fclose(f);
    printf("%s\n", path);
    fflush(stdout);
    /* A block of exactly this size: the sanitizer sees a read past its end. */
    uint8_t *input = malloc(got > 0 ? got : 1);
    if (input == NULL) abort();
    memcpy(input, data, got);
    free(data);
    (void)LLVMFuzzerTestOneInput(input, got);
    free(input);
    return 1;
}

/* Returns how many inputs ran, or -1. */
static int replay(const char *path, int may_be_directory) {
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        return -1;
    }
    if (S_ISREG(st.st_mode)) return replay_file(path, (size_t)st.st_size) ? 1 : -1;
    DIR *dir = S_ISDIR(st.st_mode) && may_be_directory ? opendir(path) : NULL;
    if (dir == NULL) return 0;
    int count = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char name[4096];
        if (e->d_name[0] == '.') continue;
        const int length = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (length < 0 || (size_t)length >= sizeof name) continue;
        const int ran = replay(name, 0);
        if (ran < 0) {
            closedir(dir);
            return -1;
        }
        count += ran;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv) {
    int count = 0;
    for (int i = 1; i < argc; i++) {
        const int ran = replay(argv[i], 1);
        if (ran < 0) return 1;
        count += ran;
    }
    printf("%d inputs\n", count);
    return count > 0 ? 0 : 1;
}
