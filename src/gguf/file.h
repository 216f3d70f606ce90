/*
 * file.h: reading GGUF files, versions 2 and 3. Part: gguf.
 *
 *     | magic, version, tensor count, key count | keys and values | tensor list | pad | data ... |
 *
 * A file is untrusted. Every count and length is compared with the bytes that are left before any
 * arithmetic that could wrap; every error names the key, tensor or field and is REMAT_E_MODEL.
 * The index (where each value and tensor lies) is carved from the ledger; the values stay in the
 * file and are read when asked for. What is needed of memory follows from the two counts, which
 * are read first.
 */
#ifndef RM_GGUF_FILE_H
#define RM_GGUF_FILE_H

#include "base/io.h"
#include "base/ledger.h"
#include "base/limits.h"

typedef enum rm_gguf_type {
    RM_GGUF_U8,
    RM_GGUF_I8,
    RM_GGUF_U16,
    RM_GGUF_I16,
    RM_GGUF_U32,
    RM_GGUF_I32,
    RM_GGUF_F32,
    RM_GGUF_BOOL,
    RM_GGUF_STRING,
    RM_GGUF_ARRAY,
    RM_GGUF_U64,
    RM_GGUF_I64,
    RM_GGUF_F64,
    RM_GGUF_TYPE_COUNT
} rm_gguf_type;

typedef struct rm_gguf_kv {
    uint64_t key_at;      /* position of the key's bytes in the file */
    uint64_t value_at;    /* position of the value: a number, a string's bytes, the first element */
    uint64_t value_bytes; /* of all of the value in the file, a string's without its length */
    uint64_t count;       /* elements of an array, else 1 */
    uint64_t key_hash;    /* of the key's bytes */
    uint32_t key_bytes;
    uint8_t type, element; /* rm_gguf_type; element of an array, else the same as type */
} rm_gguf_kv;

typedef struct rm_gguf_tensor {
    char name[RM_GGUF_NAME_MAX + 1];
    uint64_t dims[RM_GGUF_DIMS_MAX]; /* dims[0] is the row length; unused ones are 1 */
    uint32_t dim_count, type;        /* type: GGUF's number */
    uint32_t part;                   /* which of rm_gguf.parts; 0 in a whole file: split.h */
    uint64_t at;                     /* absolute position of the data in its file */
    uint64_t bytes;                  /* of the data; 0 when the type is not known to us */
    uint64_t name_hash;
} rm_gguf_tensor;

/* An entry of the index by name, sorted by hash: a file cannot make it slow. */
typedef struct rm_gguf_slot {
    uint64_t hash;
    uint32_t index; /* of kv or tensors */
} rm_gguf_slot;

typedef struct rm_gguf {
    const rm_file *file; /* of a split model the first part, which has the metadata */
    rm_file *parts;      /* part_count; [0] is a copy of *file. NULL in a whole file */
    uint32_t part_count;
    uint32_t version, alignment;
    uint32_t kv_count, tensor_count;
    uint64_t data_at;
    rm_gguf_kv *kv;
    rm_gguf_tensor *tensors;
    rm_gguf_slot *kv_order, *tensor_order;
    uint8_t *window; /* RM_GGUF_WINDOW bytes, for readers */
} rm_gguf;

enum { RM_GGUF_WINDOW = 64 << 10 };

/* The file that has a tensor's data. */
static inline const rm_file *rm_gguf_file(const rm_gguf *g, const rm_gguf_tensor *t) {
    return t->part == 0 ? g->file : &g->parts[t->part];
}

/* Block length in values and bytes of a GGUF type number; false when it is not known. All types of
 * the format are known here, also those that no kernel reads. */
bool rm_gguf_block(uint32_t type, uint32_t *k, uint32_t *bytes);

/* Reads the fixed header: magic, version, counts (held against the file's size and the limits). */
int rm_gguf_header(rm_gguf *g, const rm_file *f, remat_error *err);

/* Carves the index for the counts in g (account text). Also on a measuring ledger. */
int rm_gguf_layout(rm_gguf *g, rm_ledger *l, remat_error *err);

/* Reads and checks everything up to the data, fills the index. Names are unique; every tensor lies
 * inside the file, aligned. A dimension of 0, or a row length that is no multiple of the type's
 * block, is an error. */
int rm_gguf_parse(rm_gguf *g, remat_error *err);

/* Looks a key or a tensor up; NULL when it is not there. */
const rm_gguf_kv *rm_gguf_find(const rm_gguf *g, const char *key);
const rm_gguf_tensor *rm_gguf_tensor_find(const rm_gguf *g, const char *name);

/* For split.c. Sorts by hash, in place, and no input makes it slow; returns the first of two
 * neighbours with the same hash, or count when all differ. */
uint32_t rm_gguf_sort(rm_gguf_slot *slots, uint32_t count);

/* Makes bytes of the file fit for a terminal; long ones are cut. out has RM_GGUF_SHOWN_BYTES. */
enum { RM_GGUF_SHOWN_BYTES = 68 };
void rm_gguf_printable(char *out, const char *bytes, size_t count);

/* Values. A missing key is an error that names it (`_or`: gives the fallback), a value of another
 * type or out of the result's range is an error. Any integer type is accepted for u32. */
int rm_gguf_u32(uint32_t *out, const rm_gguf *g, const char *key, remat_error *err);
int rm_gguf_u32_or(uint32_t *out, const rm_gguf *g, const char *key, uint32_t fallback,
                   remat_error *err);
int rm_gguf_f32(float *out, const rm_gguf *g, const char *key, remat_error *err);
int rm_gguf_f32_or(float *out, const rm_gguf *g, const char *key, float fallback, remat_error *err);
int rm_gguf_bool_or(bool *out, const rm_gguf *g, const char *key, bool fallback, remat_error *err);

/* Copies a string into out (cap bytes, terminated). Longer than cap - 1 is an error. Embedded NULs
 * are an error. `_or`: fallback when missing. */
int rm_gguf_text(char *out, size_t cap, const rm_gguf *g, const char *key, remat_error *err);
int rm_gguf_text_or(char *out, size_t cap, const rm_gguf *g, const char *key, const char *fallback,
                    remat_error *err);

/* Walks the elements of an array in order, through g->window: one walk at a time, and nothing else
 * of g that reads in between. */
typedef struct rm_gguf_walk {
    rm_reader reader;
    const rm_gguf_kv *kv;
    uint64_t index;
} rm_gguf_walk;

/* kv is an array of `element` (asserted by the caller's check of kv->element). */
void rm_gguf_walk_start(rm_gguf_walk *w, const rm_gguf *g, const rm_gguf_kv *kv);

/* Next element of a string array: its length goes to *bytes and its first cap bytes to out. */
int rm_gguf_walk_string(rm_gguf_walk *w, char *out, size_t cap, uint64_t *bytes, remat_error *err);

/* Next element of an array of f32, i32 or u32: its four bytes, as they are in the file. */
int rm_gguf_walk_word(rm_gguf_walk *w, uint32_t *out, remat_error *err);

#endif /* RM_GGUF_FILE_H */
