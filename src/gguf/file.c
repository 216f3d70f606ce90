/*
 * file.c: see file.h. Header, index and every check of them; values are read in value.c.
 *
 * The rule for untrusted numbers: a length is compared with what is left of the file (never added
 * to a position), a count is compared with what is left divided by the least that one element
 * takes, products are formed with overflow checks. So no loop runs longer than the file is, and
 * no value that has passed can wrap later.
 */
#include "gguf/file.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are used as they are read");
_Static_assert(RM_GGUF_TYPE_COUNT == 13, "the format's value types");

enum {
    HEADER_BYTES = 24, /* magic, version, two counts */
    KV_LEAST = 13,     /* key length, no key, type, one byte of value */
    TENSOR_LEAST = 24, /* name length, no name, no dimensions, type, offset */
    ARRAY_LEAST = 12,  /* element type, count, no elements */
    KEY_MAX = 65535,   /* of the format */
    NEST_MAX = 4,      /* arrays of arrays; the format sets no limit, no file is known with any */
    ALIGNMENT_USUAL = 32,
    HASH_PART = 256, /* a name is hashed in parts of this, each with the last part's hash as seed */
    SHOWN_MAX = 64,  /* bytes of a name in a message */
};

_Static_assert((int)SHOWN_MAX + 4 == (int)RM_GGUF_SHOWN_BYTES, "and three points, and the end");
_Static_assert((int)HASH_PART > (int)RM_GGUF_NAME_MAX, "names that are looked up are one part");

#define DAMAGED(g, err, fmt, ...)                                                                  \
    rm_fail(err, REMAT_E_MODEL, "%s: " fmt "; the file is damaged: download it again",             \
            rm_path_tail((g)->file->path), __VA_ARGS__)

typedef unsigned long long ull; /* for messages */

/* ------------------------------------------------------------------------- header and layout */

static int check_version(const rm_gguf *g, const rm_file *f, remat_error *err) {
    if (g->version == 2 || g->version == 3) return REMAT_OK;
    const uint32_t swapped = __builtin_bswap32(g->version);
    if (swapped >= 1 && swapped <= 3) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: version is %u in big-endian byte order, which is not supported; "
                       "convert the model for little-endian",
                       rm_path_tail(f->path), swapped);
    }
    return rm_fail(err, REMAT_E_MODEL,
                   "%s: version %u of GGUF is not supported; convert the model to version 3",
                   rm_path_tail(f->path), g->version);
}

/* Holds a count against the file and our limit before anything is sized by it. */
static int check_count(const rm_file *f, const char *field, const char *what, uint64_t count,
                       uint64_t least_bytes, uint64_t limit, remat_error *err) {
    if (count > (f->size - HEADER_BYTES) / least_bytes) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: %s: %llu %s do not fit in %llu bytes; the file is damaged: "
                       "download it again",
                       rm_path_tail(f->path), field, (ull)count, what, (ull)f->size);
    }
    if (count > limit) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: %s: %llu %s are more than the supported %llu; use another file",
                       rm_path_tail(f->path), field, (ull)count, what, (ull)limit);
    }
    return REMAT_OK;
}

int rm_gguf_header(rm_gguf *g, const rm_file *f, remat_error *err) {
    memset(g, 0, sizeof *g);
    g->file = f;
    g->alignment = ALIGNMENT_USUAL;
    uint8_t bytes[HEADER_BYTES] = {0};
    const uint64_t have = f->size < HEADER_BYTES ? f->size : HEADER_BYTES;
    if (have == 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: the file is empty, it has no GGUF header; download it again",
                       rm_path_tail(f->path));
    }
    RM_TRY(rm_file_read(f, bytes, 0, have, err));
    if (memcmp(bytes, "GGUF", have < 4 ? have : 4) != 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: is not a GGUF file (its header does not begin with GGUF); "
                       "give a model in GGUF format",
                       rm_path_tail(f->path));
    }
    if (have < HEADER_BYTES) {
        return DAMAGED(g, err, "header: the file ends after %llu of the header's %d bytes",
                       (ull)have, HEADER_BYTES);
    }
    uint64_t tensors, keys;
    memcpy(&g->version, bytes + 4, 4);
    memcpy(&tensors, bytes + 8, 8);
    memcpy(&keys, bytes + 16, 8);
    RM_TRY(check_version(g, f, err));
    RM_TRY(
        check_count(f, "tensor_count", "tensors", tensors, TENSOR_LEAST, RM_GGUF_TENSORS_MAX, err));
    RM_TRY(check_count(f, "kv_count", "metadata keys", keys, KV_LEAST, RM_GGUF_KEYS_MAX, err));
    g->tensor_count = (uint32_t)tensors;
    g->kv_count = (uint32_t)keys;
    return REMAT_OK;
}

int rm_gguf_layout(rm_gguf *g, rm_ledger *l, remat_error *err) {
    const rm_account a = RM_ACCOUNT_TEXT;
    const uint64_t kvs = g->kv_count, tensors = g->tensor_count;
    RM_TRY(rm_ledger_carve(&g->kv, l, a, kvs, sizeof *g->kv, err));
    RM_TRY(rm_ledger_carve(&g->tensors, l, a, tensors, sizeof *g->tensors, err));
    RM_TRY(rm_ledger_carve(&g->kv_order, l, a, kvs, sizeof *g->kv_order, err));
    RM_TRY(rm_ledger_carve(&g->tensor_order, l, a, tensors, sizeof *g->tensor_order, err));
    RM_TRY(rm_ledger_carve(&g->window, l, a, RM_GGUF_WINDOW, 1, err));
    return REMAT_OK;
}

/* ------------------------------------------------------------------------- reading the list */

typedef struct parser {
    rm_gguf *g;
    rm_reader r;
    char subject[SHOWN_MAX + 32]; /* the key or tensor at hand, printable, for messages */
} parser;

void rm_gguf_printable(char *out, const char *bytes, size_t count) {
    const size_t shown = count < SHOWN_MAX ? count : SHOWN_MAX;
    for (size_t i = 0; i < shown; i++)
        out[i] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '?';
    memcpy(out + shown, count > shown ? "..." : "", count > shown ? 4 : 1);
}

/* Reads a number of the list; `field` is what it is. */
static int take(parser *p, void *out, size_t bytes, const char *field, remat_error *err) {
    if (rm_reader_left(&p->r) < bytes) {
        return DAMAGED(p->g, err, "%s: the file ends inside the %s", p->subject, field);
    }
    return rm_reader_read(&p->r, out, bytes, err);
}

/* Reads the bytes of a name, hashes them, and makes it the subject of messages. `first` gets the
 * first part; it has HASH_PART bytes. */
static int take_name(uint64_t *hash, char *first, parser *p, const char *kind, uint32_t bytes,
                     remat_error *err) {
    char more[HASH_PART], shown[RM_GGUF_SHOWN_BYTES];
    const uint32_t head = bytes < HASH_PART ? bytes : HASH_PART;
    RM_TRY(rm_reader_read(&p->r, first, head, err));
    uint64_t h = rm_hash(first, head, 0);
    for (uint32_t at = head; at < bytes;) {
        const uint32_t part = bytes - at < HASH_PART ? bytes - at : HASH_PART;
        RM_TRY(rm_reader_read(&p->r, more, part, err));
        h = rm_hash(more, part, h);
        at += part;
    }
    rm_gguf_printable(shown, first, bytes);
    snprintf(p->subject, sizeof p->subject, "%s %s", kind, shown);
    *hash = h;
    return REMAT_OK;
}

/* Bytes of a value of fixed size, 0 of a string or an array. */
static uint32_t fixed_bytes(uint32_t type) {
    static const uint8_t bytes[RM_GGUF_TYPE_COUNT] = {
        [RM_GGUF_U8] = 1,  [RM_GGUF_I8] = 1,  [RM_GGUF_U16] = 2, [RM_GGUF_I16] = 2,
        [RM_GGUF_U32] = 4, [RM_GGUF_I32] = 4, [RM_GGUF_F32] = 4, [RM_GGUF_BOOL] = 1,
        [RM_GGUF_U64] = 8, [RM_GGUF_I64] = 8, [RM_GGUF_F64] = 8,
    };
    return bytes[type];
}

/* Reads a string's length and checks it; the position is then at its bytes. */
static int take_length(uint64_t *out, parser *p, remat_error *err) {
    const uint64_t at = p->r.at;
    uint64_t length;
    RM_TRY(take(p, &length, sizeof length, "length of a string", err));
    if (length > rm_reader_left(&p->r)) {
        return DAMAGED(p->g, err, "%s: string of %llu bytes at %llu goes past the end", p->subject,
                       (ull)length, (ull)at);
    }
    *out = length;
    return REMAT_OK;
}

typedef struct array {
    uint32_t element;
    uint64_t count;
} array;

static int take_array(array *out, parser *p, remat_error *err) {
    array a;
    RM_TRY(take(p, &a.element, sizeof a.element, "element type", err));
    RM_TRY(take(p, &a.count, sizeof a.count, "array length", err));
    if (a.element >= RM_GGUF_TYPE_COUNT) {
        return DAMAGED(p->g, err, "%s: array of unknown element type %u", p->subject, a.element);
    }
    const uint64_t least = a.element == RM_GGUF_STRING  ? sizeof(uint64_t)
                           : a.element == RM_GGUF_ARRAY ? ARRAY_LEAST
                                                        : fixed_bytes(a.element);
    if (a.count > rm_reader_left(&p->r) / least) {
        return DAMAGED(p->g, err, "%s: array of %llu elements goes past the end", p->subject,
                       (ull)a.count);
    }
    *out = a;
    return REMAT_OK;
}

static int skip_strings(parser *p, uint64_t count, remat_error *err) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length = 0;
        RM_TRY(take_length(&length, p, err));
        rm_reader_skip(&p->r, length);
    }
    return REMAT_OK;
}

/* Moves past the elements of an array, inner arrays included: level[] is the way down to where
 * we are, count there is what is still to do. */
static int skip_elements(parser *p, array outer, remat_error *err) {
    array level[NEST_MAX] = {outer};
    for (uint32_t depth = 1; depth > 0;) {
        array *a = &level[depth - 1];
        if (a->element != RM_GGUF_ARRAY) {
            if (a->element == RM_GGUF_STRING) {
                RM_TRY(skip_strings(p, a->count, err));
            } else {
                rm_reader_skip(&p->r, a->count * fixed_bytes(a->element));
            }
            depth--;
        } else if (a->count == 0) {
            depth--;
        } else if (depth == NEST_MAX) {
            return rm_fail(err, REMAT_E_MODEL,
                           "%s: %s: arrays nested deeper than %d are not supported; "
                           "use another file",
                           rm_path_tail(p->g->file->path), p->subject, NEST_MAX);
        } else {
            a->count--;
            RM_TRY(take_array(&level[depth], p, err));
            depth++;
        }
    }
    return REMAT_OK;
}

static int take_value(rm_gguf_kv *kv, parser *p, remat_error *err) {
    uint32_t type;
    RM_TRY(take(p, &type, sizeof type, "value type", err));
    if (type >= RM_GGUF_TYPE_COUNT) {
        return DAMAGED(p->g, err, "%s: unknown value type %u", p->subject, type);
    }
    kv->type = kv->element = (uint8_t)type;
    kv->count = 1;
    if (type == RM_GGUF_STRING) {
        RM_TRY(take_length(&kv->value_bytes, p, err));
        kv->value_at = p->r.at;
        rm_reader_skip(&p->r, kv->value_bytes);
    } else if (type == RM_GGUF_ARRAY) {
        array a;
        RM_TRY(take_array(&a, p, err));
        kv->element = (uint8_t)a.element;
        kv->count = a.count;
        kv->value_at = p->r.at;
        RM_TRY(skip_elements(p, a, err));
        kv->value_bytes = p->r.at - kv->value_at;
    } else {
        kv->value_bytes = fixed_bytes(type);
        kv->value_at = p->r.at;
        if (kv->value_bytes > rm_reader_left(&p->r)) {
            return DAMAGED(p->g, err, "%s: the file ends inside the value", p->subject);
        }
        rm_reader_skip(&p->r, kv->value_bytes);
    }
    return REMAT_OK;
}

static int take_kv(rm_gguf_kv *kv, parser *p, uint32_t index, remat_error *err) {
    char first[HASH_PART];
    snprintf(p->subject, sizeof p->subject, "metadata key %u of %u (kv_count)", index + 1,
             p->g->kv_count);
    const uint64_t at = p->r.at;
    uint64_t bytes;
    RM_TRY(take(p, &bytes, sizeof bytes, "key length", err));
    if (bytes > rm_reader_left(&p->r)) {
        return DAMAGED(p->g, err, "%s: key length %llu at %llu goes past the end", p->subject,
                       (ull)bytes, (ull)at);
    }
    if (bytes > KEY_MAX) {
        return DAMAGED(p->g, err, "%s: key length %llu at %llu is above the format's %d",
                       p->subject, (ull)bytes, (ull)at, KEY_MAX);
    }
    kv->key_at = p->r.at;
    kv->key_bytes = (uint32_t)bytes;
    RM_TRY(take_name(&kv->key_hash, first, p, "key", kv->key_bytes, err));
    return take_value(kv, p, err);
}

/* The dimensions, and from them the bytes of the data. */
static int check_shape(rm_gguf_tensor *t, parser *p, remat_error *err) {
    uint64_t values = 1;
    for (uint32_t d = 0; d < t->dim_count; d++) {
        if (t->dims[d] == 0) return DAMAGED(p->g, err, "%s: dimension %u is 0", p->subject, d);
        if (__builtin_mul_overflow(values, t->dims[d], &values) || values > INT64_MAX) {
            return DAMAGED(p->g, err, "%s: its dimensions multiply to more than 2^63 values",
                           p->subject);
        }
    }
    uint32_t k, block_bytes;
    t->bytes = 0;
    if (!rm_gguf_block(t->type, &k, &block_bytes)) return REMAT_OK;
    if (t->dims[0] % k != 0) {
        return DAMAGED(p->g, err, "%s: rows of %llu values are not whole blocks of %u", p->subject,
                       (ull)t->dims[0], k);
    }
    if (__builtin_mul_overflow(values / k, block_bytes, &t->bytes) || t->bytes > INT64_MAX) {
        return DAMAGED(p->g, err, "%s: its %llu values take more than 2^63 bytes", p->subject,
                       (ull)values);
    }
    return REMAT_OK;
}

static int take_tensor(rm_gguf_tensor *t, parser *p, uint32_t index, remat_error *err) {
    char first[HASH_PART];
    snprintf(p->subject, sizeof p->subject, "tensor %u of %u (tensor_count)", index + 1,
             p->g->tensor_count);
    uint64_t bytes;
    RM_TRY(take(p, &bytes, sizeof bytes, "name length", err));
    if (bytes > RM_GGUF_NAME_MAX || bytes > rm_reader_left(&p->r)) {
        return DAMAGED(p->g, err, "%s: name length %llu, at most %d is possible", p->subject,
                       (ull)bytes, RM_GGUF_NAME_MAX);
    }
    RM_TRY(take_name(&t->name_hash, first, p, "tensor", (uint32_t)bytes, err));
    memcpy(t->name, first, bytes);
    t->name[bytes] = '\0';
    if (strlen(t->name) != bytes) return DAMAGED(p->g, err, "%s: a zero in its name", p->subject);

    RM_TRY(take(p, &t->dim_count, sizeof t->dim_count, "number of dimensions", err));
    if (t->dim_count > RM_GGUF_DIMS_MAX) {
        return DAMAGED(p->g, err, "%s: n_dims is %u, at most %d dimensions are possible",
                       p->subject, t->dim_count, RM_GGUF_DIMS_MAX);
    }
    for (uint32_t d = 0; d < RM_GGUF_DIMS_MAX; d++) {
        t->dims[d] = 1;
        if (d < t->dim_count) RM_TRY(take(p, &t->dims[d], sizeof *t->dims, "dimensions", err));
    }
    RM_TRY(take(p, &t->type, sizeof t->type, "type", err));
    RM_TRY(take(p, &t->at, sizeof t->at, "offset", err)); /* of the data: see place_tensor */
    return check_shape(t, p, err);
}

/* Turns the offset in t->at into a position in the file. */
static int place_tensor(rm_gguf *g, rm_gguf_tensor *t, remat_error *err) {
    char shown[RM_GGUF_SHOWN_BYTES];
    rm_gguf_printable(shown, t->name, strlen(t->name));
    const uint64_t offset = t->at, size = g->file->size;
    if (offset % g->alignment != 0) {
        return DAMAGED(g, err, "tensor %s: offset %llu is no multiple of the alignment %u", shown,
                       (ull)offset, g->alignment);
    }
    if (g->data_at > size || offset > size - g->data_at) {
        return DAMAGED(g, err, "tensor %s: begins %llu bytes into the data, the file has %llu",
                       shown, (ull)offset, (ull)size);
    }
    t->at = g->data_at + offset;
    if (t->bytes > size - t->at) {
        return DAMAGED(g, err, "tensor %s: ends at %llu, the file has only %llu bytes", shown,
                       (ull)(t->at + t->bytes), (ull)size);
    }
    return REMAT_OK;
}

/* ------------------------------------------------------------------------- index by name */

static void sift(rm_gguf_slot *slots, uint32_t root, uint32_t count) {
    const rm_gguf_slot moved = slots[root];
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= count) break;
        if (child + 1 < count && slots[child + 1].hash > slots[child].hash) child++;
        if (slots[child].hash <= moved.hash) break;
        slots[root] = slots[child];
        root = child;
    }
    slots[root] = moved;
}

/* Heapsort. */
uint32_t rm_gguf_sort(rm_gguf_slot *slots, uint32_t count) {
    for (uint32_t i = count / 2; i-- > 0;)
        sift(slots, i, count);
    for (uint32_t end = count; end > 1; end--) {
        const rm_gguf_slot largest = slots[0];
        slots[0] = slots[end - 1];
        slots[end - 1] = largest;
        sift(slots, 0, end - 1);
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        if (slots[i].hash == slots[i + 1].hash) return i;
    }
    return count;
}

/* Two names with one hash are taken for the same name: by chance that is one file in 10^9 at the
 * largest counts, and lookups then need no comparison in the file. */
static int index_keys(rm_gguf *g, remat_error *err) {
    for (uint32_t i = 0; i < g->kv_count; i++)
        g->kv_order[i] = (rm_gguf_slot){g->kv[i].key_hash, i};
    const uint32_t twin = rm_gguf_sort(g->kv_order, g->kv_count);
    if (twin == g->kv_count) return REMAT_OK;

    char name[SHOWN_MAX + 1], shown[RM_GGUF_SHOWN_BYTES];
    const rm_gguf_kv *kv = &g->kv[g->kv_order[twin].index];
    const uint32_t bytes = kv->key_bytes < sizeof name ? kv->key_bytes : (uint32_t)sizeof name;
    RM_TRY(rm_file_read(g->file, name, kv->key_at, bytes, err));
    rm_gguf_printable(shown, name, bytes);
    return DAMAGED(g, err, "key %s: appears twice", shown);
}

static int index_tensors(rm_gguf *g, remat_error *err) {
    for (uint32_t i = 0; i < g->tensor_count; i++)
        g->tensor_order[i] = (rm_gguf_slot){g->tensors[i].name_hash, i};
    const uint32_t twin = rm_gguf_sort(g->tensor_order, g->tensor_count);
    if (twin == g->tensor_count) return REMAT_OK;

    char shown[RM_GGUF_SHOWN_BYTES];
    const char *name = g->tensors[g->tensor_order[twin].index].name;
    rm_gguf_printable(shown, name, strlen(name));
    return DAMAGED(g, err, "tensor %s: appears twice", shown);
}

static int read_alignment(rm_gguf *g, remat_error *err) {
    uint32_t a;
    RM_TRY(rm_gguf_u32_or(&a, g, "general.alignment", ALIGNMENT_USUAL, err));
    if (a == 0 || (a & (a - 1)) != 0) {
        return DAMAGED(g, err, "general.alignment: %u is no power of two", a);
    }
    g->alignment = a;
    return REMAT_OK;
}

int rm_gguf_parse(rm_gguf *g, remat_error *err) {
    RM_ASSERT(g->window != NULL);
    parser p = {.g = g};
    rm_reader_start(&p.r, g->file, g->window, RM_GGUF_WINDOW, HEADER_BYTES);
    for (uint32_t i = 0; i < g->kv_count; i++)
        RM_TRY(take_kv(&g->kv[i], &p, i, err));
    RM_TRY(index_keys(g, err));
    RM_TRY(read_alignment(g, err));
    for (uint32_t i = 0; i < g->tensor_count; i++)
        RM_TRY(take_tensor(&g->tensors[i], &p, i, err));
    RM_TRY(index_tensors(g, err));

    /* Cannot wrap: a position is below 2^63, an alignment below 2^32. */
    const uint64_t mask = (uint64_t)g->alignment - 1;
    g->data_at = (p.r.at + mask) & ~mask;
    for (uint32_t i = 0; i < g->tensor_count; i++)
        RM_TRY(place_tensor(g, &g->tensors[i], err));
    return REMAT_OK;
}
