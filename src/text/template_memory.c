/* template_memory.c: limits, memory, interned names and strings under construction. */
#include "text/template_impl.h"

#include <stdio.h>

__attribute__((format(printf, 2, 3))) void rm_tpl_fail_write(rm_tpl *t, const char *fmt, ...) {
    char why[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (t->line == 0)
        (void)rm_fail(t->err, REMAT_E_FAILED, "template: %s", why);
    else
        (void)rm_fail(t->err, REMAT_E_FAILED, "template line %u: %s", (unsigned)t->line, why);
}

int rm_tpl_no_steps(rm_tpl *t) {
    return rm_tpl_fail(t, "it takes more than %llu steps; does a loop have no end?",
                       (unsigned long long)t->limits.steps_max);
}

int rm_tpl_enter(rm_tpl *t) {
    if (t->depth >= t->limits.depth_max) {
        return rm_tpl_fail(t, "it is nested more than %u deep", (unsigned)t->limits.depth_max);
    }
    t->depth++;
    return rm_tpl_work(t, 0);
}

static int no_memory(rm_tpl *t) {
    return rm_tpl_fail(t, "the template needs more memory than the %zu bytes it has",
                       t->memory_bytes);
}

enum { ALIGN = 8 };

int rm_tpl_take_bytes(void *out, rm_tpl *t, size_t count) {
    if (count > (size_t)(t->high - t->low)) return no_memory(t);
    uint8_t *at = t->low;
    t->low += count;
    memcpy(out, &at, sizeof at);
    return REMAT_OK;
}

int rm_tpl_take(void *out, rm_tpl *t, size_t count, size_t size) {
    const size_t pad = (ALIGN - (uintptr_t)t->low % ALIGN) % ALIGN;
    const size_t room = (size_t)(t->high - t->low);
    if (pad > room || (size > 0 && count > (room - pad) / size)) return no_memory(t);
    t->low += pad;
    /* Clearing is work too: a hostile template may ask for large arrays again and again. */
    RM_TRY(rm_tpl_work(t, count * size));
    memset(t->low, 0, count * size);
    return rm_tpl_take_bytes(out, t, count * size);
}

int rm_tpl_intern(const rm_tpl_string **out, rm_tpl *t, const char *bytes, size_t count) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * 16777619u;
    rm_tpl_interned **bucket = &t->names[(hash ^ hash >> 16) % RM_TPL_NAME_BUCKETS];
    for (const rm_tpl_interned *e = *bucket; e != NULL; e = e->next) {
        RM_TRY(rm_tpl_work(t, count));
        if (e->name->count == count && memcmp(e->name->bytes, bytes, count) == 0) {
            *out = e->name;
            return REMAT_OK;
        }
    }
    rm_tpl_interned *new;
    rm_tpl_value v;
    RM_TRY(rm_tpl_take(&new, t, 1, sizeof *new));
    RM_TRY(rm_tpl_string_of(&v, t, bytes, count, true));
    *new = (rm_tpl_interned){.name = v.s, .next = *bucket};
    *bucket = new;
    *out = v.s;
    return REMAT_OK;
}

/* The upper half of what is free: a quarter for bytes, a quarter for marks. The lower half stays
 * for what is taken meanwhile. */
void rm_tpl_build_start(rm_tpl_build *b, rm_tpl *t) {
    const size_t quarter = (size_t)(t->high - t->low) / 4;
    *b = (rm_tpl_build){.high = t->high, .cap = quarter};
    b->marks = t->high - quarter;
    b->bytes = (char *)(b->marks - quarter);
    t->high = (uint8_t *)b->bytes;
}

static bool fits(rm_tpl_build *b, size_t count) {
    if (count > b->cap - b->count) b->full = true;
    return !b->full;
}

void rm_tpl_put(rm_tpl_build *b, const char *bytes, size_t count, bool mark) {
    if (count == 0 || !fits(b, count)) return;
    memcpy(b->bytes + b->count, bytes, count);
    memset(b->marks + b->count, mark, count);
    b->count += count;
}

void rm_tpl_put_text(rm_tpl_build *b, const char *text) {
    rm_tpl_put(b, text, strlen(text), false);
}

void rm_tpl_put_part(rm_tpl_build *b, const rm_tpl_string *s, size_t from, size_t to) {
    if (s->marks == NULL) {
        rm_tpl_put(b, s->bytes + from, to - from, s->mark);
    } else if (to > from && fits(b, to - from)) {
        memcpy(b->bytes + b->count, s->bytes + from, to - from);
        memcpy(b->marks + b->count, s->marks + from, to - from);
        b->count += to - from;
    }
}

static bool all_the_same(const uint8_t *marks, size_t count) {
    return count == 0 || memcmp(marks, marks + 1, count - 1) == 0;
}

int rm_tpl_build_end(rm_tpl_value *out, rm_tpl *t, rm_tpl_build *b) {
    t->high = b->high;
    if (b->full) return no_memory(t);
    RM_TRY(rm_tpl_work(t, b->count));
    const bool same = all_the_same(b->marks, b->count);
    const bool mark = b->count > 0 && b->marks[0] != 0;
    /* The new places may overlap the old ones, bytes first: they move down. */
    char *bytes = NULL;
    uint8_t *marks = NULL;
    RM_TRY(rm_tpl_take_bytes(&bytes, t, b->count));
    memmove(bytes, b->bytes, b->count);
    if (!same) {
        RM_TRY(rm_tpl_take_bytes(&marks, t, b->count));
        memmove(marks, b->marks, b->count);
    }
    rm_tpl_string *s;
    RM_TRY(rm_tpl_take(&s, t, 1, sizeof *s));
    *s = (rm_tpl_string){.bytes = bytes, .marks = marks, .count = b->count, .mark = mark};
    *out = rm_tpl_of_string(s);
    return REMAT_OK;
}
