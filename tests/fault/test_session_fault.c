/*
 * test_session_fault.c: sessions when things go wrong on the way: every read of a load fails or
 * comes back short, the disk is full after every so many bytes of a save, a save is killed at any
 * moment, a load is canceled at every page. The file is the old one or the new one, and what is
 * loaded gives the same bits or is an error that changes nothing.
 */
#include "base/hash.h"
#include "base/io.h"
#include "session_fixture.h"
#include "tiny_model.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 150, SAVED = 140, LAYERS = 3, FILE_MAX = 1 << 20 };

static const uint32_t ONE_PIECE[] = {0};

typedef struct bench {
    remat_engine *e;
    remat_sequence *s;
    remat_error err;
} bench;

static bool open_bench(bench *b, remat_progress_fn *progress, void *user) {
    remat_options o = remat_options_default();
    remat_limits l = remat_limits_default();
    *b = (bench){0};
    o.memory_bytes = 256u << 20;
    o.thread_count = 1;
    o.progress = progress;
    o.progress_user = user;
    l.context_count = COUNT;
    l.chunk_rows = 64;
    const bool good = remat_open(&b->e, known.path, &o, &b->err) == REMAT_OK &&
                      remat_start(b->e, &l, &b->err) == REMAT_OK &&
                      remat_sequence_open(&b->s, b->e, &b->err) == REMAT_OK;
    if (!good) t_fail("%s", b->err.message);
    return good;
}

static int save(bench *b, unsigned flags) {
    uint64_t bytes;
    return remat_session_save(&bytes, b->s, path, NULL, 0, flags, &b->err);
}

/* An engine with SAVED tokens, saved. */
static bool open_saved(bench *b) {
    return session_prepare(COUNT) && open_bench(b, NULL, NULL) &&
           feed(b->e, b->s, NULL, known.tokens, 0, SAVED, ONE_PIECE, &b->err) == REMAT_OK &&
           save(b, 0) == REMAT_OK;
}

static uint64_t file_hash(void) {
    static uint8_t bytes[FILE_MAX];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, bytes, sizeof bytes) : 0;
    close(fd);
    return n > 0 ? rm_hash(bytes, (size_t)n, 0) : 0;
}

/* Files beside the session: what saves have left behind. */
static int leftovers(bool remove_them) {
    DIR *d = opendir(dir);
    int count = 0;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char name[400];
        if (e->d_name[0] == '.' || strcmp(e->d_name, "s") == 0) continue;
        EXPECT(strncmp(e->d_name, "s.tmp-", 6) == 0);
        count++;
        snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
        if (remove_them) unlink(name);
    }
    if (d != NULL) closedir(d);
    return count;
}

/* After a load: the rest of the tokens has the bits it always has. */
static void check_rest(bench *b, const char *what, uint64_t n) {
    recorder r;
    record now;
    record_open(&now, LAYERS, COUNT);
    recorder_attach(&r, b->e);
    recorder_follow(&r, b->s, &now);
    const uint32_t have = remat_sequence_count(b->s);
    if (feed(b->e, b->s, &now, known.tokens, have, COUNT, ONE_PIECE, &b->err) != REMAT_OK)
        t_fail("%s %" PRIu64 ": %s", what, n, b->err.message);
    const difference d = record_compare(&known.first, &now);
    if (d.found || d.compared < (COUNT - have) * (LAYERS - 1) + 1)
        t_fail("%s %" PRIu64 ": %s", what, n, d.text);
    record_close(&now);
    remat_sequence_truncate(b->s, 0);
}

static void check_nothing_loaded(const bench *b) {
    EXPECT_EQ_U64(remat_sequence_count(b->s), 0);
    EXPECT_EQ_U64(b->e->cache.pool.taken, 0);
    EXPECT(b->err.message[0] != '\0' && strchr(b->err.message, '\n') == NULL);
}

static void every_read_fails(rm_io_fault fault) {
    bench b;
    REQUIRE(open_saved(&b));
    remat_sequence_truncate(b.s, 0);
    uint32_t tokens[COUNT], refused = 0, healed = 0, lost = 0;
    const uint64_t before = file_hash();
    uint64_t n = 1;
    for (; n < 1000; n++) {
        remat_session_info info = {0};
        rm_io_fault_at(n, fault);
        const int status = remat_session_load(&info, tokens, COUNT, b.s, path, &b.err);
        rm_io_fault_at(0, fault);
        if (status == REMAT_OK && info.lost_pages == 0) break;
        refused += status != REMAT_OK;
        healed += status == REMAT_OK;
        lost += info.lost_pages;
        if (status != REMAT_OK) {
            EXPECT(status == REMAT_E_FAILED);
            check_nothing_loaded(&b);
        }
        check_rest(&b, "read", n);
    }
    /* The model's samples, header and tokens; the table and each page. */
    EXPECT(refused > 10 && healed == 1 + 3 * LAYERS && lost >= healed);
    EXPECT_EQ_U64(n, refused + healed + 1);
    EXPECT_EQ_U64(file_hash(), before);
    remat_close(&b.e);
}

static void every_read_of_a_load(void) {
    every_read_fails(RM_IO_FAIL);
    every_read_fails(RM_IO_SHORT);
}

/* A limit on the size of files is a disk that is full from there on. */
static void the_disk_is_full_at_any_point(void) {
    bench b;
    REQUIRE(open_saved(&b));
    struct rlimit old, limit;
    struct stat st;
    REQUIRE(stat(path, &st) == 0 && getrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, SIG_IGN);
    remat_sequence_truncate(b.s, 130); /* another state */
    const uint64_t before = file_hash();
    const rlim_t size = (rlim_t)st.st_size, step = size / 60;
    for (rlim_t full = 0; full < size; full += full < 1000 ? 100 : step) {
        limit = (struct rlimit){.rlim_cur = full, .rlim_max = old.rlim_max};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        const int status = save(&b, 0);
        REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
        EXPECT(status == REMAT_E_FAILED);
        if (strstr(b.err.message, "not saved") == NULL) t_fail("%s", b.err.message);
        EXPECT_EQ_U64(file_hash(), before);
        EXPECT_EQ_U64(leftovers(true), 0);
    }
    EXPECT(save(&b, 0) == REMAT_OK);
    EXPECT(file_hash() != before);
    /* A place that is gone. */
    char gone[] = "/tmp/remat_session_gone_XXXXXX", name[64];
    uint64_t bytes;
    REQUIRE(mkdtemp(gone) != NULL && rmdir(gone) == 0);
    snprintf(name, sizeof name, "%s/s", gone);
    EXPECT(remat_session_save(&bytes, b.s, name, NULL, 0, 0, &b.err) == REMAT_E_FAILED);
    remat_close(&b.e);
}

/* A child saves two states in turn, and is killed. */
static void killed_while_saving(void) {
    bench b;
    REQUIRE(open_saved(&b));
    const unsigned tokens_only = REMAT_SESSION_TOKENS_ONLY;
    const uint64_t with_pages = file_hash();
    EXPECT(save(&b, tokens_only) == REMAT_OK);
    const uint64_t tokens = file_hash();
    int seen[2] = {0, 0};
    for (int i = 0; i < 60; i++) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            for (int k = i;; k++)
                if (save(&b, k % 2 == 0 ? 0 : tokens_only) != REMAT_OK) _exit(1);
        }
        REQUIRE(child > 0);
        int status = 0;
        usleep((useconds_t)(t_random() % 20000));
        kill(child, SIGKILL);
        EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        const uint64_t hash = file_hash();
        EXPECT(hash == with_pages || hash == tokens);
        seen[hash == tokens]++;
        (void)leftovers(true);
    }
    printf("     %d with pages, %d tokens alone\n", seen[0], seen[1]);
    EXPECT(save(&b, 0) == REMAT_OK && file_hash() == with_pages);
    remat_close(&b.e);
}

typedef struct canceler {
    remat_engine *engine;
    uint64_t at, calls;
} canceler;

static void progress(void *user, remat_stage stage, uint64_t done, uint64_t total) {
    canceler *c = user;
    EXPECT(done <= total);
    if (c->engine == NULL || stage != REMAT_STAGE_LOAD) return;
    if (++c->calls == c->at) remat_cancel(c->engine);
}

static void canceled_at_every_page(void) {
    bench b;
    canceler c = {0};
    REQUIRE(open_saved(&b));
    remat_close(&b.e);
    REQUIRE(open_bench(&b, progress, &c));
    uint32_t tokens[COUNT];
    remat_session_info info;
    uint64_t k = 1;
    for (c.engine = b.e; k < 100; k++) {
        c.calls = 0;
        c.at = k;
        const int status = remat_session_load(&info, tokens, COUNT, b.s, path, &b.err);
        c.at = 0;
        if (status == REMAT_OK) break;
        EXPECT(status == REMAT_E_CANCELED);
        EXPECT(!atomic_load(&b.e->cancel));
        check_nothing_loaded(&b);
        EXPECT(remat_session_load(&info, tokens, COUNT, b.s, path, &b.err) == REMAT_OK);
        check_rest(&b, "canceled at", k);
    }
    EXPECT_EQ_U64(k, 3 * LAYERS); /* at the last one nothing is left to cancel */
    remat_close(&b.e);
}

int main(int argc, char **argv) {
    const int status = RM_RUN(argc, argv, T(every_read_of_a_load), T(the_disk_is_full_at_any_point),
                              T(killed_while_saving), T(canceled_at_every_page));
    if (dir[0] == '\0') return status;
    const int left = leftovers(true);
    if (left > 0) fprintf(stderr, "  %d files are left\n", left);
    session_clean_up();
    return left > 0 ? 1 : status;
}
