/* pattern.c: see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>
#include <string.h>

enum {
    /* At most 39 KiB are in use while a rule is compiled (jais-2). */
    ARENA_BYTES = 64 << 10,
    /* The interpreter keeps its states in work memory: 20 KiB to begin with, and these patterns
     * need a handful. Machine code needs the match's two positions only. */
    WORK_COMPILED = 1 << 10,
    WORK_INTERPRETED = 64 << 10,
    HEAP_LIMIT_KIB = 48,
};

/* ---- memory for PCRE2 */

/* Before each block of the arena; 16 bytes, so that blocks stay aligned. */
typedef struct header {
    size_t bytes; /* of the block, this header included */
    size_t taken;
} header;

_Static_assert(sizeof(header) == 16, "blocks are aligned to 16");

static void arena_start(rm_arena *a, void *memory, size_t bytes) {
    *a = (rm_arena){.memory = memory, .bytes = bytes};
    *(header *)memory = (header){.bytes = bytes};
}

/* First fit; neighbours that are free are joined on the way. */
static void *arena_take(size_t size, void *user) {
    rm_arena *a = user;
    if (size > a->bytes) return NULL;
    const size_t need = (size + 15) / 16 * 16 + sizeof(header);
    for (size_t at = 0; at < a->bytes;) {
        header *h = (header *)(a->memory + at);
        while (!h->taken && at + h->bytes < a->bytes) {
            const header *next = (const header *)(a->memory + at + h->bytes);
            if (next->taken) break;
            h->bytes += next->bytes;
        }
        if (!h->taken && h->bytes >= need) {
            if (h->bytes > need) {
                *(header *)(a->memory + at + need) = (header){.bytes = h->bytes - need};
                h->bytes = need;
            }
            h->taken = 1;
            return h + 1;
        }
        at += h->bytes;
    }
    return NULL;
}

static void arena_give(void *block, void *user) {
    (void)user;
    if (block != NULL) ((header *)block - 1)->taken = 0;
}

/* ---- patterns */

static int pcre_fail(remat_error *err, const char *what, int code) {
    char text[128];
    if (pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text) < 0) text[0] = '\0';
    return rm_fail(err, REMAT_E_FAILED, "tokenizer: %s: %s (PCRE2 error %d)", what, text, code);
}

int rm_patterns_layout(rm_patterns *p, rm_ledger *l, remat_error *err) {
    p->arena.bytes = ARENA_BYTES;
    return rm_ledger_carve(&p->arena.memory, l, RM_ACCOUNT_TEXT, ARENA_BYTES, 1, err);
}

int rm_patterns_load(rm_patterns *p, const rm_pattern_rule *rule, remat_error *err) {
    arena_start(&p->arena, p->arena.memory, p->arena.bytes);
    pcre2_general_context *general =
        pcre2_general_context_create(arena_take, arena_give, &p->arena);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    if (context == NULL) return pcre_fail(err, "no memory", PCRE2_ERROR_NOMEMORY);
    p->compiled = true;
    for (p->count = 0; p->count < RM_PATTERNS_MAX && rule->patterns[p->count]; p->count++) {
        int code;
        PCRE2_SIZE where;
        pcre2_code *c = pcre2_compile((PCRE2_SPTR)rule->patterns[p->count], PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_NO_AUTO_CAPTURE, &code, &where, context);
        if (c == NULL) return pcre_fail(err, rule->name, code);
        p->codes[p->count] = c;
        /* Fails where the system forbids writable code; then all are interpreted. */
        if (pcre2_jit_compile(c, PCRE2_JIT_COMPLETE) != 0) p->compiled = false;
    }
    return REMAT_OK;
}

void rm_patterns_close(rm_patterns *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        pcre2_code_free(p->codes[i]);
    }
    p->count = 0;
}

size_t rm_patterns_work_bytes(const rm_patterns *p) {
    return p->compiled ? WORK_COMPILED : WORK_INTERPRETED;
}

/* ---- cutting */

typedef struct cutter {
    const rm_patterns *patterns;
    pcre2_match_data *data;
    pcre2_match_context *context;
    rm_piece_fn *fn;
    void *user;
    remat_error *err;
} cutter;

static int match(const cutter *c, uint32_t stage, const char *text, size_t bytes, size_t at) {
    const pcre2_code *code = c->patterns->codes[stage];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    if (c->patterns->compiled) {
        const int n =
            pcre2_jit_match(code, subject, bytes, at, PCRE2_NOTEMPTY, c->data, c->context);
        if (n != PCRE2_ERROR_JIT_STACKLIMIT) return n;
    }
    return pcre2_match(code, subject, bytes, at, PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       c->data, c->context);
}

/* Recursion is as deep as there are patterns, whatever the text. */
static int cut(const cutter *c, uint32_t stage, const char *text, size_t bytes) {
    if (bytes == 0) return REMAT_OK;
    if (stage == c->patterns->count) return c->fn(c->user, text, bytes, c->err);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(c->data);
    for (size_t at = 0; at < bytes;) {
        const int n = match(c, stage, text, bytes, at);
        if (n == PCRE2_ERROR_NOMATCH) return cut(c, stage + 1, text + at, bytes - at);
        if (n < 0) return pcre_fail(c->err, "cutting the text", n);
        const size_t start = found[0], end = found[1]; /* the next stage writes over them */
        RM_ASSERT(start >= at && end > start && end <= bytes);
        RM_TRY(cut(c, stage + 1, text + at, start - at));
        RM_TRY(cut(c, stage + 1, text + start, end - start));
        at = end;
    }
    return REMAT_OK;
}

int rm_patterns_cut(const rm_patterns *p, const char *text, size_t bytes, void *work,
                    rm_piece_fn *fn, void *user, remat_error *err) {
    rm_arena arena;
    arena_start(&arena, work, rm_patterns_work_bytes(p));
    pcre2_general_context *general = pcre2_general_context_create(arena_take, arena_give, &arena);
    cutter c = {.patterns = p, .fn = fn, .user = user, .err = err};
    if (general != NULL) {
        c.data = pcre2_match_data_create(1, general);
        c.context = pcre2_match_context_create(general);
    }
    if (c.data == NULL || c.context == NULL) {
        return pcre_fail(err, "no memory", PCRE2_ERROR_NOMEMORY);
    }
    /* The limit on backtracking is for patterns that run away; giving back a long run of blanks
     * once is linear and must not fail. */
    pcre2_set_match_limit(c.context, UINT32_MAX);
    pcre2_set_heap_limit(c.context, HEAP_LIMIT_KIB);
    return cut(&c, 0, text, bytes); /* everything PCRE2 holds lies in work: nothing to give back */
}
