/*
 * split.h: a model in several files. Part: gguf.
 *
 *     NAME-00001-of-00003.gguf   all metadata, perhaps tensors    split.no 0, split.count 3
 *     NAME-00002-of-00003.gguf   tensors                          split.no 1, split.count 3
 *     NAME-00003-of-00003.gguf   tensors                          split.no 2, split.count 3
 *
 * Each part is a GGUF file and is checked like a file of its own. Afterwards the index has the
 * tensors of all parts; metadata is that of the first. A file with no split.count, or with 0 or 1
 * (what a merged file has), is whole.
 */
#ifndef RM_GGUF_SPLIT_H
#define RM_GGUF_SPLIT_H

#include "gguf/file.h"

/* Which part a path says it is: "..-00002-of-00003.gguf" is number 2 of 3. False: none. */
bool rm_split_name(uint32_t *number, uint32_t *count, const char *path);

/* After rm_gguf_parse() of the file at path: opens the other parts, found by their names, and joins
 * them. Nothing to do for a whole file. Errors: REMAT_E_MODEL, REMAT_E_FAILED and REMAT_E_BUDGET,
 * naming the part. Also after an error, rm_split_close() closes what was opened. */
int rm_split_open(rm_gguf *g, rm_ledger *l, const char *path, remat_error *err);
void rm_split_close(rm_gguf *g);

/* The parts that split.count of g announces: 1 for a whole file. An error for any but the first. */
int rm_split_count(uint32_t *out, const rm_gguf *g, const char *path, remat_error *err);

/* Joins opened parts: g->parts[0 .. g->part_count) is set, [0] being g's own file. */
int rm_split_join(rm_gguf *g, rm_ledger *l, remat_error *err);

#endif /* RM_GGUF_SPLIT_H */
