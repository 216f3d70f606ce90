/*
 * session_file.h: the file of a saved sequence: token ids, and pages of K and V as bytes.
 * Part: cache. It knows sizes and checksums; what they mean is engine/session.c's.
 *
 *     | header, 128 | tokens | pad to 64 | table: 32 a page | pad to 4096 | page | page | ..
 *
 * Little-endian. Header, tokens, each entry of the table and each page have a checksum (XXH3) of
 * their own. Header and tokens must be sound, or the file is refused; an entry or a page that is
 * damaged or cut off is lost, and only that: what was in it can be computed from the tokens.
 * A file is a stranger's: no count in it is used before it is bounded by the file's size and by
 * what the engine has.
 *
 * Writing goes to FILE.tmp-RANDOM beside it, then fsync, rename, fsync of the directory: FILE is
 * the old one or the new one, whole, whatever happens. (A symbolic link is replaced by the file.)
 * A writer that is killed leaves its FILE.tmp-RANDOM behind.
 */
#ifndef RM_CACHE_SESSION_FILE_H
#define RM_CACHE_SESSION_FILE_H

#include "base/io.h"
#include "base/limits.h"

enum {
    RM_SESSION_VERSION = 1,
    RM_SESSION_WINDOW = 4096, /* bytes of working memory, for a reader or a writer */
    RM_SESSION_PATH_MAX = 4096,
};

/* What a file has to agree with. */
typedef struct rm_session_kind {
    uint64_t model; /* fingerprints: another model's file is refused ... */
    uint64_t cache; /* ... of another cache the tokens are good and the pages are not */
    uint64_t page_bytes;
    uint32_t layer_count, vocabulary;
} rm_session_kind;

typedef struct rm_session_header {
    char magic[8];
    uint32_t version;
    uint32_t token_count;
    uint32_t cached_count; /* of the tokens: those that pages are for */
    uint32_t page_count;   /* entries of the table */
    uint64_t model, cache;
    uint64_t page_bytes;
    uint64_t token_hash;
    uint64_t table_at;
    uint8_t unused[56];
    uint64_t own_hash; /* of all before it */
} rm_session_header;

typedef struct rm_session_entry {
    uint32_t layer, column;
    uint64_t at; /* of the page in the file; 0: it was not saved */
    uint64_t page_hash;
    uint64_t own_hash; /* of all before it, seeded with place and tokens */
} rm_session_entry;

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct rm_session_reader {
    rm_file file;
    rm_session_kind kind;
    rm_session_header head;
    uint8_t *window; /* the caller's RM_SESSION_WINDOW bytes, aligned to 8 */
    uint32_t window_first, window_count;
} rm_session_reader;

/* Opens and checks the header. path and window outlive the reader, which is closed by
 * rm_session_close(); after an error it is closed already.
 * Errors: REMAT_E_FAILED: no such file, no file, no session, damaged, another model's. */
int rm_session_open(rm_session_reader *r, const char *path, const rm_session_kind *kind,
                    void *window, remat_error *err);
void rm_session_close(rm_session_reader *r);

/* Reads and checks the tokens; out (head.token_count of them) may be NULL. *last is the last one,
 * when there are any. Errors: REMAT_E_FAILED: damaged, cut off. */
int rm_session_read_tokens(uint32_t *out, uint32_t *last, rm_session_reader *r, remat_error *err);

/* Pages of this cache's format in the file: entries to ask for. */
uint32_t rm_session_pages(const rm_session_reader *r);

typedef enum rm_session_state {
    RM_SESSION_ABSENT,
    RM_SESSION_SAVED,
    RM_SESSION_LOST
} rm_session_state;

/* Entry index of the table. SAVED: *out is in range, and the page lies inside the file. */
rm_session_state rm_session_entry_at(rm_session_entry *out, rm_session_reader *r, uint32_t index);

/* Reads the page of an entry. False: it is lost. */
bool rm_session_read_page(void *out, const rm_session_reader *r, const rm_session_entry *entry);

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct rm_session_writer {
    int fd;
    const char *path;
    rm_session_header head;
    uint8_t *window;
    uint32_t window_used;             /* bytes */
    uint32_t token_count, page_count; /* so far */
    uint64_t at;                      /* of the next page */
    char fresh[RM_SESSION_PATH_MAX];
} rm_session_writer;

/* Begins a file with so many tokens and pages. A writer ends with rm_session_commit() or
 * rm_session_abort(); after any error it has been aborted: FILE is as it was, nothing is left.
 * Errors, of all four: REMAT_E_FAILED with the reason. */
int rm_session_create(rm_session_writer *w, const char *path, const rm_session_kind *kind,
                      uint32_t token_count, uint32_t cached_count, uint32_t page_count,
                      void *window, remat_error *err);

/* All tokens, in as many calls as the caller likes; then all pages, in any order. */
int rm_session_put_tokens(rm_session_writer *w, const uint32_t *tokens, uint32_t count,
                          remat_error *err);

/* page NULL: an entry without one. */
int rm_session_put_page(rm_session_writer *w, uint32_t layer, uint32_t column, const void *page,
                        remat_error *err);

/* The new file takes the place of the old one. *bytes is its size. */
int rm_session_commit(uint64_t *bytes, rm_session_writer *w, remat_error *err);
void rm_session_abort(rm_session_writer *w);

/* Whether a file at path can be loaded, or else could be made there: so that nobody computes for
 * an hour and then cannot save. *exists: it is there. Errors: REMAT_E_FAILED. */
int rm_session_check_path(bool *exists, const char *path, remat_error *err);

#endif /* RM_CACHE_SESSION_FILE_H */
