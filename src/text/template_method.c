/* template_method.c: methods of dicts and lists. Those of strings: template_method_str.c. */
#include "text/template_impl.h"

#define ARGS                                                                                       \
    rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,                 \
        const rm_tpl_args *all
#define UNUSED ((void)t, (void)self, (void)a, (void)all)

/* --- dicts ---------------------------------------------------------------------------------- */

static int d_items(ARGS) {
    UNUSED;
    return rm_tpl_dict_view(out, t, self->dict, RM_TPL_ITEMS);
}

static int d_keys(ARGS) {
    UNUSED;
    return rm_tpl_dict_view(out, t, self->dict, RM_TPL_KEYS);
}

static int d_values(ARGS) {
    UNUSED;
    return rm_tpl_dict_view(out, t, self->dict, RM_TPL_VALUES);
}

static int d_get(ARGS) {
    UNUSED;
    rm_tpl_value *found;
    RM_TRY(rm_tpl_dict_find(&found, t, self->dict, &a[0]));
    *out = found != NULL ? *found : rm_tpl_given(&a[1]) ? a[1] : rm_tpl_none();
    return REMAT_OK;
}

static int d_pop(ARGS) {
    UNUSED;
    rm_tpl_value *found;
    RM_TRY(rm_tpl_dict_find(&found, t, self->dict, &a[0]));
    if (found == NULL && !rm_tpl_given(&a[1])) return rm_tpl_fail(t, "pop: there is no such key");
    *out = found != NULL ? *found : a[1];
    return rm_tpl_dict_remove(t, self->dict, &a[0]);
}

static int d_setdefault(ARGS) {
    UNUSED;
    rm_tpl_value *found;
    RM_TRY(rm_tpl_dict_find(&found, t, self->dict, &a[0]));
    *out = found != NULL ? *found : rm_tpl_given(&a[1]) ? a[1] : rm_tpl_none();
    return found != NULL ? REMAT_OK : rm_tpl_dict_set(t, self->dict, &a[0], out);
}

/* A dict, or pairs; then named arguments. */
int rm_tpl_dict_fill(rm_tpl *t, rm_tpl_dict *d, const rm_tpl_args *all) {
    if (all->count > 1) return rm_tpl_fail(t, "dict: one argument at most has no name");
    if (all->count == 1 && all->at[0].type == RM_TPL_DICT) {
        const rm_tpl_dict *from = all->at[0].dict;
        for (uint32_t i = 0; i < from->count; i++)
            RM_TRY(rm_tpl_dict_set(t, d, &from->pairs[i].key, &from->pairs[i].value));
    } else if (all->count == 1) {
        rm_tpl_list *pairs, *pair;
        RM_TRY(rm_tpl_items(&pairs, t, &all->at[0]));
        for (uint32_t i = 0; i < pairs->count; i++) {
            RM_TRY(rm_tpl_items(&pair, t, &pairs->items[i]));
            if (pair->count != 2) return rm_tpl_fail(t, "dict: a pair has two values");
            RM_TRY(rm_tpl_dict_set(t, d, &pair->items[0], &pair->items[1]));
        }
    }
    for (uint32_t i = 0; i < all->named_count; i++) {
        const rm_tpl_value key = rm_tpl_of_string(all->named[i].name);
        RM_TRY(rm_tpl_dict_set(t, d, &key, &all->named[i].value));
    }
    return REMAT_OK;
}

static int d_update(ARGS) {
    UNUSED;
    *out = rm_tpl_none();
    return rm_tpl_dict_fill(t, self->dict, all);
}

static int d_copy(ARGS) {
    UNUSED;
    rm_tpl_dict *copy;
    const rm_tpl_value from = *self;
    RM_TRY(rm_tpl_dict_new(&copy, t));
    RM_TRY(rm_tpl_dict_fill(t, copy, &(rm_tpl_args){.at = &from, .count = 1}));
    *out = (rm_tpl_value){.type = RM_TPL_DICT, .dict = copy};
    return REMAT_OK;
}

/* --- lists ---------------------------------------------------------------------------------- */

static int l_append(ARGS) {
    UNUSED;
    *out = rm_tpl_none();
    return rm_tpl_list_add(t, self->list, &a[0]);
}

static int l_extend(ARGS) {
    UNUSED;
    rm_tpl_list *more;
    RM_TRY(rm_tpl_items(&more, t, &a[0]));
    const uint32_t count = more->count; /* it may be the list itself */
    for (uint32_t i = 0; i < count; i++) {
        const rm_tpl_value v = more->items[i];
        RM_TRY(rm_tpl_list_add(t, self->list, &v));
    }
    *out = rm_tpl_none();
    return REMAT_OK;
}

static int l_insert(ARGS) {
    UNUSED;
    rm_tpl_list *list = self->list;
    int64_t at;
    RM_TRY(rm_tpl_want_int(&at, t, &a[0], "insert: the place"));
    RM_TRY(rm_tpl_list_add(t, list, &a[1]));
    const int64_t last = (int64_t)list->count - 1;
    if (at < 0) at = at < -last ? 0 : at + last;
    if (at > last) at = last;
    RM_TRY(rm_tpl_work(t, (size_t)(last - at) * sizeof *list->items));
    memmove(list->items + at + 1, list->items + at, (size_t)(last - at) * sizeof *list->items);
    list->items[at] = a[1];
    *out = rm_tpl_none();
    return REMAT_OK;
}

static int remove_at(rm_tpl_value *out, rm_tpl *t, rm_tpl_list *list, int64_t at) {
    const size_t after = (size_t)(list->count - 1 - at);
    *out = list->items[at];
    RM_TRY(rm_tpl_work(t, after * sizeof *list->items));
    memmove(list->items + at, list->items + at + 1, after * sizeof *list->items);
    list->count--;
    return REMAT_OK;
}

static int l_pop(ARGS) {
    UNUSED;
    rm_tpl_list *list = self->list;
    int64_t at = -1;
    if (rm_tpl_given(&a[0])) RM_TRY(rm_tpl_want_int(&at, t, &a[0], "pop: the place"));
    if (at < 0) at += list->count;
    if (at < 0 || at >= list->count) return rm_tpl_fail(t, "pop: there is no such item");
    return remove_at(out, t, list, at);
}

/* The place of the first equal item, or count. */
static int place_of(int64_t *out, rm_tpl *t, const rm_tpl_list *list, const rm_tpl_value *v) {
    bool same = false;
    for (*out = 0; *out < list->count; ++*out) {
        RM_TRY(rm_tpl_work(t, 0));
        RM_TRY(rm_tpl_equal(&same, t, &list->items[*out], v));
        if (same) break;
    }
    return REMAT_OK;
}

static int l_index(ARGS) {
    UNUSED;
    int64_t at;
    RM_TRY(place_of(&at, t, self->list, &a[0]));
    if (at == self->list->count) return rm_tpl_fail(t, "index: it is not in the list");
    *out = rm_tpl_int(at);
    return REMAT_OK;
}

static int l_remove(ARGS) {
    UNUSED;
    int64_t at;
    rm_tpl_value removed;
    RM_TRY(place_of(&at, t, self->list, &a[0]));
    if (at == self->list->count) return rm_tpl_fail(t, "remove: it is not in the list");
    *out = rm_tpl_none();
    return remove_at(&removed, t, self->list, at);
}

static int l_count(ARGS) {
    UNUSED;
    int64_t count = 0;
    for (uint32_t i = 0; i < self->list->count; i++) {
        bool same;
        RM_TRY(rm_tpl_work(t, 0));
        RM_TRY(rm_tpl_equal(&same, t, &self->list->items[i], &a[0]));
        count += same;
    }
    *out = rm_tpl_int(count);
    return REMAT_OK;
}

static int l_reverse(ARGS) {
    UNUSED;
    rm_tpl_list *list = self->list;
    RM_TRY(rm_tpl_work(t, list->count * sizeof *list->items));
    for (uint32_t i = 0; i < list->count / 2; i++) {
        const rm_tpl_value v = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = v;
    }
    *out = rm_tpl_none();
    return REMAT_OK;
}

static int l_clear(ARGS) {
    UNUSED;
    self->list->count = 0;
    *out = rm_tpl_none();
    return REMAT_OK;
}

static int l_copy(ARGS) {
    UNUSED;
    rm_tpl_list *copy;
    RM_TRY(rm_tpl_list_new(&copy, t, RM_TPL_PLAIN, self->list->count));
    for (uint32_t i = 0; i < self->list->count; i++)
        copy->items[copy->count++] = self->list->items[i];
    *out = rm_tpl_of_list(copy);
    return REMAT_OK;
}

#define FIND(table, name) rm_tpl_find_in(table, sizeof(table) / sizeof((table)[0]), name)

const rm_tpl_builtin *rm_tpl_find_method(const rm_tpl_value *v, const rm_tpl_string *name) {
    static const rm_tpl_builtin dicts[] = {
        {"items", d_items, "", 0},        {"keys", d_keys, "", 0},
        {"values", d_values, "", 0},      {"get", d_get, "key default", 1},
        {"pop", d_pop, "key default", 1}, {"setdefault", d_setdefault, "key default", 1},
        {"update", d_update, NULL, 0},    {"copy", d_copy, "", 0},
    };
    static const rm_tpl_builtin lists[] = {
        {"append", l_append, "object", 1},
        {"extend", l_extend, "iterable", 1},
        {"insert", l_insert, "index object", 2},
        {"pop", l_pop, "index", 0},
        {"index", l_index, "value", 1},
        {"remove", l_remove, "value", 1},
        {"count", l_count, "value", 1},
        {"reverse", l_reverse, "", 0},
        {"clear", l_clear, "", 0},
        {"copy", l_copy, "", 0},
    };
    static const rm_tpl_builtin tuples[] = {
        {"index", l_index, "value", 1},
        {"count", l_count, "value", 1},
    };
    if (v->type == RM_TPL_DICT) return FIND(dicts, name);
    if (v->type == RM_TPL_STRING) return rm_tpl_find_string_method(name);
    if (v->type != RM_TPL_LIST) return NULL;
    if (v->list->kind == RM_TPL_PLAIN) return FIND(lists, name);
    return v->list->kind == RM_TPL_TUPLE ? FIND(tuples, name) : NULL;
}
