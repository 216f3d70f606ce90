/*
 * test_split.c: a model in parts has the tensors of the whole one, and a set that is no set is
 * refused with the name of the part.
 */
#include "gguf/split.h"
#include "harness.h"
#include "split_model.h"
#include "tiny_model.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 3 };

static char folder[64], stem[96], tiny[64];
static int tiny_fd = -1;

typedef struct loaded {
    rm_ledger ledger;
    rm_file file;
    rm_gguf gguf;
} loaded;

static void unload(loaded *m) {
    rm_split_close(&m->gguf);
    rm_file_close(&m->file);
    rm_ledger_close(&m->ledger);
}

static int load(loaded *m, const char *path, uint64_t fail_at, remat_error *err) {
    memset(m, 0, sizeof *m);
    m->file.fd = -1;
    RM_TRY(rm_ledger_open(&m->ledger, 16u << 20, 4096, err));
    rm_ledger_fail_at(&m->ledger, fail_at);
    RM_TRY(rm_file_open(&m->file, path, err));
    RM_TRY(rm_gguf_header(&m->gguf, &m->file, err));
    RM_TRY(rm_gguf_layout(&m->gguf, &m->ledger, err));
    RM_TRY(rm_gguf_parse(&m->gguf, err));
    return rm_split_open(&m->gguf, &m->ledger, path, err);
}

/* A fresh set of parts of the tiny model; path: of part `number`. */
static bool fresh(char path[256], uint32_t number) {
    split_path(path, stem, number, PARTS);
    return split_model(stem, tiny, PARTS);
}

static void refused(const char *path, int status, const char *name, const char *why) {
    loaded m;
    remat_error err = {0};
    const int got = load(&m, path, 0, &err);
    if (got != status) t_fail("status %d, not %d, for %s: %s", got, status, why, err.message);
    if (strstr(err.message, name) == NULL || strstr(err.message, why) == NULL)
        t_fail("no \"%s\" and \"%s\" in: %s", name, why, err.message);
    unload(&m);
}

static unsigned open_descriptors(void) {
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL) closedir(d);
    return n;
}

static void names(void) {
    static const char *const none[] = {"",
                                       "m.gguf",
                                       "00001-of-00002.gguf",
                                       "m-0001-of-00002.gguf",
                                       "m-00001-of-00002.gguf2",
                                       "m-00001_of-00002.gguf",
                                       "m-0000x-of-00002.gguf",
                                       "m-00001-of-0000 .gguf"};
    uint32_t number = 0, count = 0;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        EXPECT(!rm_split_name(&number, &count, none[i]));
    EXPECT(rm_split_name(&number, &count, "a/m-00002-of-00013.gguf") && number == 2 && count == 13);
    EXPECT(rm_split_name(&number, &count, "-00001-of-99999.gguf") && number == 1 && count == 99999);
}

static void parts_are_the_whole(void) {
    loaded whole, parts;
    remat_error err = {0};
    char path[256], a[256], b[256];
    for (uint32_t n = 2; n < 9; n++) {
        REQUIRE(split_model(stem, tiny, n));
        split_path(path, stem, 1, n);
        REQUIRE(load(&whole, tiny, 0, &err) == REMAT_OK);
        REQUIRE(load(&parts, path, 0, &err) == REMAT_OK);
        EXPECT_EQ_U64(parts.gguf.part_count, n);
        EXPECT_EQ_U64(parts.gguf.tensor_count, whole.gguf.tensor_count);
        EXPECT_EQ_U64(parts.gguf.kv_count, whole.gguf.kv_count + 3);
        for (uint32_t i = 0; i < whole.gguf.tensor_count; i++) {
            const rm_gguf_tensor *w = &whole.gguf.tensors[i];
            const rm_gguf_tensor *p = rm_gguf_tensor_find(&parts.gguf, w->name);
            REQUIRE(p != NULL && p->type == w->type && p->bytes == w->bytes);
            EXPECT(p->part > 0 && memcmp(p->dims, w->dims, sizeof w->dims) == 0);
            for (uint64_t at = 0; at < w->bytes; at += sizeof a) {
                const uint64_t left = w->bytes - at, now = left < sizeof a ? left : sizeof a;
                REQUIRE(rm_file_read(rm_gguf_file(&whole.gguf, w), a, w->at + at, now, &err) == 0);
                REQUIRE(rm_file_read(rm_gguf_file(&parts.gguf, p), b, p->at + at, now, &err) == 0);
                REQUIRE(memcmp(a, b, now) == 0);
            }
        }
        unload(&whole);
        unload(&parts);
    }
}

static void parts_that_are_missing_or_misnamed(void) {
    char path[256], other[256];
    REQUIRE(fresh(path, 2));
    refused(path, REMAT_E_MODEL, "m-00002-of-00003.gguf: it is part 2 of 3",
            "give the first, /tmp/remat-split");
    REQUIRE(unlink(path) == 0);
    split_path(path, stem, 1, PARTS);
    refused(path, REMAT_E_FAILED, "m-00002-of-00003.gguf", "no such file");
    REQUIRE(fresh(path, 2));
    split_path(other, stem, 3, PARTS);
    REQUIRE(unlink(other) == 0 && link(path, other) == 0); /* 2 under the name of 3 */
    split_path(path, stem, 1, PARTS);
    refused(path, REMAT_E_MODEL, "m-00003-of-00003.gguf", "split.no is 1");
    REQUIRE(unlink(other) == 0 && mkdir(other, 0700) == 0);
    refused(path, REMAT_E_FAILED, "m-00003-of-00003.gguf", "directory");
    REQUIRE(rmdir(other) == 0);
    snprintf(other, sizeof other, "%s.gguf", stem); /* the first under a name of its own */
    REQUIRE(link(path, other) == 0);
    refused(other, REMAT_E_MODEL, "m.gguf", "-00001-of-00003.gguf");
    EXPECT(unlink(other) == 0);
    split_path(path, stem, 2, PARTS);
    REQUIRE(link(path, other) == 0);
    refused(other, REMAT_E_MODEL, "m.gguf", "the one whose name ends in -00001-of-00003.gguf");
    EXPECT(unlink(other) == 0);
}

static void parts_of_other_sets(void) {
    char first[256], second[256], third[256];
    split_path(second, stem, 2, PARTS);
    split_path(third, stem, 3, PARTS);
    REQUIRE(fresh(first, 1) && split_patch(third, "split.count", 4, 2));
    refused(first, REMAT_E_MODEL, "m-00003-of-00003.gguf", "a set of 4 parts");
    REQUIRE(fresh(first, 1) && split_patch(second, "split.tensors.count", 5, 4));
    refused(first, REMAT_E_MODEL, "m-00002-of-00003.gguf", "and 5 tensors");
    REQUIRE(fresh(first, 1) && split_patch(first, "split.count", 1001, 2));
    refused(first, REMAT_E_MODEL, "m-00001-of-00003.gguf", "1001 parts");
    REQUIRE(fresh(first, 1) && split_patch(first, "split.count", 2, 2));
    refused(first, REMAT_E_MODEL, "m-00001-of-00003.gguf", "first of 2 parts");
    REQUIRE(fresh(first, 1) && split_patch(second, "split.no", 0xffff, 2));
    refused(first, REMAT_E_MODEL, "m-00002-of-00003.gguf", "split.no is 65535");
    /* The same tensors twice, with everything else in order. */
    REQUIRE(fresh(first, 1) && unlink(third) == 0 && rename(second, third) == 0);
    REQUIRE(split_patch(third, "split.no", 2, 2));
    char copy[128];
    snprintf(copy, sizeof copy, "%s2", stem);
    REQUIRE(split_model(copy, tiny, PARTS));
    split_path(second, copy, 2, PARTS);
    split_path(first, stem, 2, PARTS);
    REQUIRE(rename(second, first) == 0);
    split_path(first, stem, 1, PARTS);
    refused(first, REMAT_E_MODEL, "m-00003-of-00003.gguf: tensor ", "is in part 2 too");
    /* A tensor too few in all. */
    split_path(second, stem, 2, PARTS);
    REQUIRE(fresh(first, 1));
    REQUIRE(split_patch(first, "split.tensors.count", 7, 4));
    REQUIRE(split_patch(second, "split.tensors.count", 7, 4));
    REQUIRE(split_patch(third, "split.tensors.count", 7, 4));
    refused(first, REMAT_E_MODEL, "m-00001-of-00003.gguf", "split.tensors.count is 7");
}

static void each_part_is_checked(void) {
    char first[256], part[256];
    struct stat st;
    for (uint32_t i = 2; i <= PARTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", i);
        split_path(part, stem, i, PARTS);
        REQUIRE(fresh(first, 1) && stat(part, &st) == 0);
        REQUIRE(truncate(part, st.st_size - 64) == 0);
        refused(first, REMAT_E_MODEL, name, "ends at");
        REQUIRE(truncate(part, 20) == 0);
        refused(first, REMAT_E_MODEL, name, "header");
        REQUIRE(truncate(part, 0) == 0);
        refused(first, REMAT_E_MODEL, name, "empty");
    }
}

/* split.count 0 is what a merged file has, 1 what a single part has: whole. */
static void whole_files(void) {
    char path[256];
    loaded m;
    remat_error err = {0};
    for (uint32_t count = 0; count < 2; count++) {
        REQUIRE(fresh(path, 2) && split_patch(path, "split.count", count, 2));
        EXPECT(load(&m, path, 0, &err) == REMAT_OK);
        EXPECT(m.gguf.part_count == 0 && m.gguf.tensor_count > 0);
        unload(&m);
    }
}

static void every_carve_and_read_may_fail(void) {
    char path[256];
    loaded m;
    REQUIRE(fresh(path, 1));
    const unsigned before = open_descriptors();
    uint64_t n = 1;
    for (int status = REMAT_E_BUDGET; status != REMAT_OK && n < 100; n++) {
        remat_error err = {0};
        status = load(&m, path, n, &err);
        if (status != REMAT_OK && (status != REMAT_E_BUDGET || err.message[0] == '\0'))
            t_fail("carve %d: status %d: %s", (int)n, status, err.message);
        unload(&m);
    }
    EXPECT(n > 8 && n < 100);
    int status = REMAT_E_FAILED;
    for (n = 1; status != REMAT_OK && n < 1000; n++) {
        for (int kind = RM_IO_FAIL; kind <= (int)RM_IO_SHORT; kind++) {
            remat_error err = {0};
            rm_io_fault_at(n, (rm_io_fault)kind);
            status = load(&m, path, 0, &err);
            rm_io_fault_at(0, RM_IO_FAIL);
            if (status != REMAT_OK && (status != REMAT_E_FAILED || err.message[0] == '\0'))
                t_fail("read %d: status %d: %s", (int)n, status, err.message);
            unload(&m);
        }
    }
    EXPECT(n > 8 && n < 1000);
    EXPECT_EQ_U64(open_descriptors(), before);
}

static void remove_all(void) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d != NULL) closedir(d);
    rmdir(folder);
}

int main(int argc, char **argv) {
    const tiny_spec spec = tiny_spec_default();
    snprintf(folder, sizeof folder, "/tmp/remat-split-XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(stem, sizeof stem, "%s/m", folder);
    tiny_fd = tiny_model_open(tiny, &spec);
    const int status =
        RM_RUN(argc, argv, T(names), T(parts_are_the_whole), T(parts_that_are_missing_or_misnamed),
               T(parts_of_other_sets), T(each_part_is_checked), T(whole_files),
               T(every_carve_and_read_may_fail));
    if (tiny_fd >= 0) close(tiny_fd);
    remove_all();
    return status;
}
