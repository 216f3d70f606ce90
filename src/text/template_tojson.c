/*
 * template_tojson.c: the filter tojson, byte for byte as Python's json.dumps(ensure_ascii=False),
 * which is what chat templates are written for: keys in their order, ", " and ": " between, no HTML
 * escapes. What it adds (quotes, braces, escapes) has mark 0.
 */
#include "text/template_impl.h"

#include <math.h>
#include <stdio.h>

typedef struct writer {
    rm_tpl *t;
    rm_tpl_build *b;
    const rm_tpl_json_style *style;
} writer;

static void put_unit(rm_tpl_build *b, uint32_t unit) {
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", unit & 0xFFFF);
    rm_tpl_put_text(b, text);
}

static void put_char(const writer *w, const rm_tpl_string *s, size_t at, size_t n, uint32_t c) {
    static const char special[] = "\"\"\\\\\nn\rr\tt\bb\ff";
    for (size_t i = 0; i + 1 < sizeof special; i += 2) {
        if (c != (uint8_t)special[i]) continue;
        rm_tpl_put_text(w->b, "\\");
        rm_tpl_put(w->b, special + i + 1, 1, false);
        return;
    }
    if (c < 0x20) {
        put_unit(w->b, c);
    } else if (!w->style->ascii || c < 0x7F) {
        rm_tpl_put_part(w->b, s, at, at + n);
    } else if (c < 0x10000 || c == RM_TPL_BAD_CHAR) {
        put_unit(w->b, c < 0x10000 ? c : 0xFFFD);
    } else {
        put_unit(w->b, 0xD800 + ((c - 0x10000) >> 10));
        put_unit(w->b, 0xDC00 + ((c - 0x10000) & 0x3FF));
    }
}

static int put_string(const writer *w, const rm_tpl_string *s) {
    uint32_t c;
    RM_TRY(rm_tpl_work(w->t, s->count));
    rm_tpl_put_text(w->b, "\"");
    for (size_t at = 0, n; at < s->count; at += n) {
        n = rm_tpl_char(s->bytes + at, s->count - at, &c);
        put_char(w, s, at, n, c);
    }
    rm_tpl_put_text(w->b, "\"");
    return REMAT_OK;
}

static void new_line(const writer *w, uint32_t level) {
    if (w->style->indent == NULL) return;
    rm_tpl_put_text(w->b, "\n");
    for (uint32_t i = 0; i < level && !w->b->full; i++)
        rm_tpl_put_part(w->b, w->style->indent, 0, w->style->indent->count);
}

static int put_scalar(const writer *w, const rm_tpl_value *v) {
    const rm_tpl_string *s;
    if (v->type == RM_TPL_NONE) {
        rm_tpl_put_text(w->b, "null");
    } else if (v->type == RM_TPL_BOOL) {
        rm_tpl_put_text(w->b, v->b ? "true" : "false");
    } else if (v->type == RM_TPL_FLOAT && !isfinite(v->f)) {
        rm_tpl_put_text(w->b, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
    } else if (v->type == RM_TPL_INT || v->type == RM_TPL_FLOAT || v->type == RM_TPL_BIG) {
        RM_TRY(rm_tpl_to_string(&s, w->t, v));
        rm_tpl_put(w->b, s->bytes, s->count, false);
    } else if (v->type == RM_TPL_UNDEFINED && v->s != NULL) {
        return rm_tpl_undefined_used(w->t, v);
    } else {
        return rm_tpl_fail(w->t, "tojson: a %s has no JSON", rm_tpl_type_name(v));
    }
    return REMAT_OK;
}

/* A key that is no string is written as if it were one. */
static int put_key(const writer *w, const rm_tpl_value *key) {
    if (key->type == RM_TPL_STRING) return put_string(w, key->s);
    if (key->type == RM_TPL_LIST) return rm_tpl_fail(w->t, "tojson: a tuple is no key");
    rm_tpl_put_text(w->b, "\"");
    RM_TRY(put_scalar(w, key));
    rm_tpl_put_text(w->b, "\"");
    return REMAT_OK;
}

static int put_value(const writer *w, const rm_tpl_value *v, uint32_t level);

static int sorted_pairs(rm_tpl_list **values, rm_tpl_list **keys, rm_tpl *t, rm_tpl_dict *d) {
    rm_tpl_value k, v;
    RM_TRY(rm_tpl_dict_view(&k, t, d, RM_TPL_KEYS));
    RM_TRY(rm_tpl_dict_view(&v, t, d, RM_TPL_VALUES));
    *keys = k.list;
    *values = v.list;
    return rm_tpl_sort(t, v.list, k.list, false);
}

static int put_dict(const writer *w, rm_tpl_dict *d, uint32_t level) {
    rm_tpl_list *values = NULL, *keys = NULL;
    if (w->style->sort) RM_TRY(sorted_pairs(&values, &keys, w->t, d));
    rm_tpl_put_text(w->b, "{");
    for (uint32_t i = 0; i < d->count; i++) {
        if (i > 0) rm_tpl_put(w->b, w->style->item->bytes, w->style->item->count, false);
        new_line(w, level + 1);
        RM_TRY(put_key(w, keys != NULL ? &keys->items[i] : &d->pairs[i].key));
        rm_tpl_put(w->b, w->style->key->bytes, w->style->key->count, false);
        RM_TRY(put_value(w, values != NULL ? &values->items[i] : &d->pairs[i].value, level + 1));
    }
    if (d->count > 0) new_line(w, level);
    rm_tpl_put_text(w->b, "}");
    return REMAT_OK;
}

static int put_list(const writer *w, const rm_tpl_list *list, uint32_t level) {
    if (list->kind > RM_TPL_TUPLE && list->kind != RM_TPL_STREAM)
        return rm_tpl_fail(w->t, "tojson: a view of a dict has no JSON; |list makes it one");
    rm_tpl_put_text(w->b, "[");
    for (uint32_t i = 0; i < list->count; i++) {
        if (i > 0) rm_tpl_put(w->b, w->style->item->bytes, w->style->item->count, false);
        new_line(w, level + 1);
        RM_TRY(put_value(w, &list->items[i], level + 1));
    }
    if (list->count > 0) new_line(w, level);
    rm_tpl_put_text(w->b, "]");
    return REMAT_OK;
}

static int put_value(const writer *w, const rm_tpl_value *v, uint32_t level) {
    RM_TRY(rm_tpl_enter(w->t));
    RM_TRY(rm_tpl_work(w->t, w->style->indent != NULL ? level * w->style->indent->count : 0));
    if (v->type == RM_TPL_STRING)
        RM_TRY(put_string(w, v->s));
    else if (v->type == RM_TPL_LIST)
        RM_TRY(put_list(w, v->list, level));
    else if (v->type == RM_TPL_DICT)
        RM_TRY(put_dict(w, v->dict, level));
    else
        RM_TRY(put_scalar(w, v));
    rm_tpl_leave(w->t);
    return REMAT_OK;
}

static int indent_of(const rm_tpl_string **out, rm_tpl *t, const rm_tpl_value *v) {
    *out = NULL;
    if (!rm_tpl_given(v) || v->type == RM_TPL_NONE) return REMAT_OK;
    if (v->type == RM_TPL_STRING) {
        *out = v->s;
        return REMAT_OK;
    }
    int64_t width;
    char *blanks;
    rm_tpl_value s;
    RM_TRY(rm_tpl_want_int(&width, t, v, "tojson: indent"));
    if (width < 0) width = 0;
    RM_TRY(rm_tpl_take_bytes(&blanks, t, (uint64_t)width));
    RM_TRY(rm_tpl_work(t, (size_t)width));
    memset(blanks, ' ', (size_t)width);
    RM_TRY(rm_tpl_string_of(&s, t, blanks, (size_t)width, false));
    *out = s.s;
    return REMAT_OK;
}

/* Arguments in the order transformers has them; separators are (item, key). */
static int tojson(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                  const rm_tpl_args *all) {
    static const rm_tpl_string comma = {",", NULL, 1, false}, comma_blank = {", ", NULL, 2, false},
                               colon = {": ", NULL, 2, false};
    (void)all;
    rm_tpl_json_style style = {.item = &comma_blank, .key = &colon};
    RM_TRY(indent_of(&style.indent, t, &a[1]));
    if (style.indent != NULL) style.item = &comma;
    if (rm_tpl_given(&a[2]) && a[2].type != RM_TPL_NONE) {
        if (a[2].type != RM_TPL_LIST || a[2].list->count != 2)
            return rm_tpl_fail(t, "tojson: separators are two strings");
        RM_TRY(rm_tpl_want_string(&style.item, t, &a[2].list->items[0], "tojson: a separator"));
        RM_TRY(rm_tpl_want_string(&style.key, t, &a[2].list->items[1], "tojson: a separator"));
    }
    style.ascii = rm_tpl_truth(&a[0]);
    style.sort = rm_tpl_truth(&a[3]);
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    RM_TRY(put_value(&(writer){.t = t, .b = &b, .style = &style}, self, 0));
    return rm_tpl_build_end(out, t, &b);
}

const rm_tpl_builtin rm_tpl_tojson = {"tojson", tojson, "ensure_ascii indent separators sort_keys",
                                      0};
