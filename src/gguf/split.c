/* split.c: see split.h. */
#include "gguf/split.h"

#include <stdio.h>
#include <string.h>

enum {
    PATH_BYTES = 4096,
    NAME_BYTES = 128, /* of a path in messages: rm_path_tail() gives at most 120 */
};

/* What a part's name ends in: the format of llama.cpp's gguf-split. */
#define SUFFIX "-%05u-of-%05u.gguf"
enum { SUFFIX_BYTES = 20 }; /* with two numbers of five digits */

static bool five_digits(uint32_t *out, const char *at) {
    uint32_t v = 0;
    for (int i = 0; i < 5; i++) {
        if (at[i] < '0' || at[i] > '9') return false;
        v = v * 10 + (uint32_t)(at[i] - '0');
    }
    *out = v;
    return true;
}

bool rm_split_name(uint32_t *number, uint32_t *count, const char *path) {
    const size_t length = strlen(path);
    if (length < SUFFIX_BYTES) return false;
    const char *p = path + length - SUFFIX_BYTES;
    return p[0] == '-' && five_digits(number, p + 1) && memcmp(p + 6, "-of-", 4) == 0 &&
           five_digits(count, p + 10) && strcmp(p + 15, ".gguf") == 0;
}

/* The path of another part of the same set. path has the ending. */
static int path_of(char *out, const char *path, uint32_t number, uint32_t count, remat_error *err) {
    const size_t head = strlen(path) - SUFFIX_BYTES;
    if (head + SUFFIX_BYTES >= PATH_BYTES)
        return rm_fail(err, REMAT_E_FAILED, "%s: the path is too long; use a shorter one",
                       rm_path_tail(path));
    memcpy(out, path, head);
    snprintf(out + head, SUFFIX_BYTES + 1, SUFFIX, number, count);
    return REMAT_OK;
}

int rm_split_count(uint32_t *out, const rm_gguf *g, const char *path, remat_error *err) {
    char first[PATH_BYTES] = "";
    uint32_t count, index, number, of;
    RM_TRY(rm_gguf_u32_or(&count, g, "split.count", 1, err));
    *out = count > 1 ? count : 1;
    if (count <= 1) return REMAT_OK;
    if (count > RM_GGUF_PARTS_MAX) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: split.count: %u parts are more than the supported %d; merge them",
                       rm_path_tail(g->file->path), count, RM_GGUF_PARTS_MAX);
    }
    RM_TRY(rm_gguf_u32(&index, g, "split.no", err));
    if (index == 0) return REMAT_OK;
    if (rm_split_name(&number, &of, path)) {
        RM_TRY(path_of(first, path, 1, count, err));
    } else {
        snprintf(first, sizeof first, "the one whose name ends in " SUFFIX, 1, count);
    }
    return rm_fail(err, REMAT_E_MODEL, "%.110s: it is part %u of %u; give the first, %.110s",
                   rm_path_tail(g->file->path), index + 1, count, rm_path_tail(first));
}

/* Holds a part against what the first one says, and its own place. */
static int check_part(const rm_gguf *part, uint32_t index, uint32_t count, uint32_t announced,
                      remat_error *err) {
    uint32_t its_index, its_count, its_announced;
    const char *name = rm_path_tail(part->file->path);
    RM_TRY(rm_gguf_u32(&its_index, part, "split.no", err));
    RM_TRY(rm_gguf_u32(&its_count, part, "split.count", err));
    RM_TRY(rm_gguf_u32_or(&its_announced, part, "split.tensors.count", announced, err));
    if (its_index != index) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: split.no is %u, but its name says %u; it is another part under this "
                       "name: download it again",
                       name, its_index, index);
    }
    if (its_count != count || its_announced != announced) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: it is of a set of %u parts and %u tensors, the first part of one of %u "
                       "and %u; take all parts from one place",
                       name, its_count, its_announced, count, announced);
    }
    return REMAT_OK;
}

/* Counts what all parts hold and takes the memory: one index of tensors, and keys for one part at a
 * time. In `scratch` the keys of a part are parsed; they are few. */
static int layout(rm_gguf *joined, rm_gguf *scratch, const rm_gguf *g, rm_ledger *l,
                  remat_error *err) {
    const rm_account a = RM_ACCOUNT_TEXT;
    uint32_t keys = 0;
    uint64_t tensors = g->tensor_count;
    for (uint32_t i = 1; i < g->part_count; i++) {
        rm_gguf part;
        RM_TRY(rm_gguf_header(&part, &g->parts[i], err));
        keys = part.kv_count > keys ? part.kv_count : keys;
        tensors += part.tensor_count;
    }
    if (tensors > RM_GGUF_TENSORS_MAX) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: %llu tensors in all parts are more than the supported %d; "
                       "use another file",
                       rm_path_tail(g->file->path), (unsigned long long)tensors,
                       RM_GGUF_TENSORS_MAX);
    }
    *joined = *g;
    joined->tensor_count = (uint32_t)tensors;
    RM_TRY(rm_ledger_carve(&joined->tensors, l, a, tensors, sizeof *g->tensors, err));
    RM_TRY(rm_ledger_carve(&joined->tensor_order, l, a, tensors, sizeof *g->tensor_order, err));
    RM_TRY(rm_ledger_carve(&scratch->kv, l, a, keys, sizeof *g->kv, err));
    return rm_ledger_carve(&scratch->kv_order, l, a, keys, sizeof *g->kv_order, err);
}

/* Parses part number `index` into the joined index, from tensor `first` on; *first moves on. */
static int add_part(uint32_t *first, rm_gguf *joined, const rm_gguf *scratch, uint32_t index,
                    uint32_t announced, remat_error *err) {
    rm_gguf part;
    const uint32_t room = joined->tensor_count - *first;
    RM_TRY(rm_gguf_header(&part, &joined->parts[index], err));
    if (part.tensor_count > room) { /* it had fewer when they were counted */
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: it changed while it was read; start again when nothing writes to it",
                       rm_path_tail(part.file->path));
    }
    part.kv = scratch->kv;
    part.kv_order = scratch->kv_order;
    part.tensors = joined->tensors + *first;
    part.tensor_order = joined->tensor_order + *first;
    part.window = joined->window;
    RM_TRY(rm_gguf_parse(&part, err));
    RM_TRY(check_part(&part, index, joined->part_count, announced, err));
    for (uint32_t i = 0; i < part.tensor_count; i++)
        part.tensors[i].part = index;
    *first += part.tensor_count;
    return REMAT_OK;
}

static int index_tensors(rm_gguf *g, remat_error *err) {
    for (uint32_t i = 0; i < g->tensor_count; i++)
        g->tensor_order[i] = (rm_gguf_slot){g->tensors[i].name_hash, i};
    const uint32_t twin = rm_gguf_sort(g->tensor_order, g->tensor_count);
    if (twin == g->tensor_count) return REMAT_OK;
    const rm_gguf_tensor *a = &g->tensors[g->tensor_order[twin].index];
    const rm_gguf_tensor *b = &g->tensors[g->tensor_order[twin + 1].index];
    const uint32_t low = a->part < b->part ? a->part : b->part;
    const uint32_t high = a->part < b->part ? b->part : a->part;
    char shown[RM_GGUF_SHOWN_BYTES];
    rm_gguf_printable(shown, a->name, strlen(a->name));
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: tensor %s is in part %u too; take all parts from one place",
                   rm_path_tail(g->parts[high].path), shown, low + 1);
}

int rm_split_join(rm_gguf *g, rm_ledger *l, remat_error *err) {
    rm_gguf joined, scratch;
    uint32_t announced, count = g->tensor_count;
    RM_ASSERT(g->part_count > 1);
    RM_ASSERT(g->parts[0].fd == g->file->fd);
    RM_TRY(layout(&joined, &scratch, g, l, err));
    RM_TRY(rm_gguf_u32_or(&announced, g, "split.tensors.count", joined.tensor_count, err));
    memcpy(joined.tensors, g->tensors, count * sizeof *g->tensors);
    for (uint32_t i = 1; i < g->part_count; i++)
        RM_TRY(add_part(&count, &joined, &scratch, i, announced, err));
    if (count != announced || count != joined.tensor_count) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: split.tensors.count is %u, but its %u parts have %u tensors; take all "
                       "parts from one place",
                       rm_path_tail(g->file->path), announced, g->part_count, count);
    }
    RM_TRY(index_tensors(&joined, err));
    *g = joined;
    return REMAT_OK;
}

/* Opens part number `index`; name keeps the path for messages. */
static int open_part(rm_file *out, char *name, const char *path, uint32_t index, uint32_t count,
                     remat_error *err) {
    char full[PATH_BYTES];
    remat_error why = {0};
    RM_TRY(path_of(full, path, index + 1, count, err));
    const int status = rm_file_open(out, full, &why);
    if (status != REMAT_OK)
        return rm_fail(err, status, "part %u of %u: %s", index + 1, count, why.message);
    snprintf(name, NAME_BYTES, "%s", rm_path_tail(full));
    out->path = name;
    return REMAT_OK;
}

int rm_split_open(rm_gguf *g, rm_ledger *l, const char *path, remat_error *err) {
    uint32_t count, number = 0, of = 0;
    char *names;
    RM_TRY(rm_split_count(&count, g, path, err));
    if (count == 1) return REMAT_OK;
    if (!rm_split_name(&number, &of, path) || number != 1 || of != count) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: it is the first of %u parts, which are found by name; give it back the "
                       "name that ends in " SUFFIX,
                       rm_path_tail(g->file->path), count, 1, count);
    }
    RM_TRY(rm_ledger_carve(&g->parts, l, RM_ACCOUNT_TEXT, count, sizeof *g->parts, err));
    RM_TRY(rm_ledger_carve(&names, l, RM_ACCOUNT_TEXT, count, NAME_BYTES, err));
    for (uint32_t i = 0; i < count; i++)
        g->parts[i].fd = -1;
    g->part_count = count;
    g->parts[0] = *g->file;
    for (uint32_t i = 1; i < count; i++)
        RM_TRY(open_part(&g->parts[i], names + (size_t)i * NAME_BYTES, path, i, count, err));
    return rm_split_join(g, l, err);
}

void rm_split_close(rm_gguf *g) {
    for (uint32_t i = 1; i < g->part_count; i++)
        rm_file_close(&g->parts[i]);
    g->part_count = 0;
}
