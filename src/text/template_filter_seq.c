/* template_filter_seq.c: filters on sequences. Where Jinja makes a generator, here is a list. */
#include "text/template_impl.h"
#include "text/template_token.h"

#define ARGS                                                                                       \
    rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,                 \
        const rm_tpl_args *all
#define UNUSED ((void)t, (void)self, (void)a, (void)all)

static int copy_list(rm_tpl_list **out, rm_tpl *t, const rm_tpl_value *v, uint8_t kind) {
    rm_tpl_list *items;
    RM_TRY(rm_tpl_items(&items, t, v));
    RM_TRY(rm_tpl_list_new(out, t, kind, items->count));
    if (items->count > 0) memcpy((*out)->items, items->items, items->count * sizeof *items->items);
    (*out)->count = items->count;
    return REMAT_OK;
}

static int f_list(ARGS) {
    UNUSED;
    rm_tpl_list *list;
    RM_TRY(copy_list(&list, t, self, RM_TPL_PLAIN));
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int at_end(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, bool last) {
    rm_tpl_list *items;
    RM_TRY(rm_tpl_items(&items, t, self));
    *out = (rm_tpl_value){.type = RM_TPL_UNDEFINED};
    if (items->count > 0) *out = items->items[last ? items->count - 1 : 0];
    return REMAT_OK;
}

static int f_first(ARGS) {
    UNUSED;
    return at_end(out, t, self, false);
}

static int f_last(ARGS) {
    UNUSED;
    return at_end(out, t, self, true);
}

static int f_items(ARGS) {
    UNUSED;
    rm_tpl_list *none;
    if (self->type == RM_TPL_DICT) {
        RM_TRY(rm_tpl_dict_view(out, t, self->dict, RM_TPL_ITEMS));
        out->list->kind = RM_TPL_STREAM;
        return REMAT_OK;
    }
    if (self->type != RM_TPL_UNDEFINED)
        return rm_tpl_fail(t, "items: a %s is no mapping", rm_tpl_type_name(self));
    RM_TRY(rm_tpl_list_new(&none, t, RM_TPL_STREAM, 0));
    *out = rm_tpl_of_list(none);
    return REMAT_OK;
}

static int f_join(ARGS) {
    UNUSED;
    rm_tpl_list *items;
    const rm_tpl_string *between, **parts;
    size_t count = 0;
    static const rm_tpl_string empty = {.bytes = ""};
    between = &empty;
    if (rm_tpl_given(&a[0])) RM_TRY(rm_tpl_to_string(&between, t, &a[0]));
    RM_TRY(rm_tpl_items(&items, t, self));
    RM_TRY(rm_tpl_take(&parts, t, 2 * (size_t)items->count, sizeof *parts));
    for (uint32_t i = 0; i < items->count; i++) {
        rm_tpl_value v;
        RM_TRY(rm_tpl_path(&v, t, &items->items[i], &a[1]));
        if (i > 0) parts[count++] = between;
        RM_TRY(rm_tpl_to_string(&parts[count++], t, &v));
    }
    return rm_tpl_concat(out, t, parts, count);
}

static int f_reverse(ARGS) {
    UNUSED;
    rm_tpl_list *list;
    RM_TRY(copy_list(&list, t, self, RM_TPL_STREAM));
    for (uint32_t i = 0; i < list->count / 2; i++) {
        const rm_tpl_value v = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = v;
    }
    *out = rm_tpl_of_list(list);
    if (self->type != RM_TPL_STRING) return REMAT_OK;
    rm_tpl_build b;
    rm_tpl_build_start(&b, t);
    for (uint32_t i = 0; i < list->count; i++)
        rm_tpl_put_part(&b, list->items[i].s, 0, list->items[i].s->count);
    return rm_tpl_build_end(out, t, &b);
}

/* --- map, select and the like ---------------------------------------------------------------- */

/* The arguments behind the first `skip`. */
static rm_tpl_args after(const rm_tpl_args *all, uint32_t skip) {
    rm_tpl_args rest = *all;
    rest.at = all->count > skip ? all->at + skip : NULL;
    rest.count = all->count > skip ? all->count - skip : 0;
    return rest;
}

static const rm_tpl_value *named(const rm_tpl_args *all, const char *name) {
    for (uint32_t i = 0; i < all->named_count; i++) {
        if (rm_tpl_is_text(all->named[i].name, name)) return &all->named[i].value;
    }
    return NULL;
}

/* None, 0 and the like count as empty here. */
static int items_of(rm_tpl_list **out, rm_tpl *t, const rm_tpl_value *v) {
    const rm_tpl_value nothing = {.type = RM_TPL_UNDEFINED};
    return rm_tpl_items(out, t, rm_tpl_truth(v) ? v : &nothing);
}

/* map('filter', arguments..) or map(attribute='a.b', default=x) */
static int f_map(ARGS) {
    UNUSED;
    rm_tpl_list *items, *list;
    const rm_tpl_value *attribute = named(all, "attribute"), *otherwise = named(all, "default");
    const rm_tpl_builtin *filter = NULL;
    const rm_tpl_args rest = after(all, 1);
    RM_TRY(items_of(&items, t, self));
    if (all->count > 0)
        RM_TRY(rm_tpl_want_builtin(&filter, t, &all->at[0], rm_tpl_find_filter, "map: filter"));
    else if (attribute == NULL)
        return rm_tpl_fail(t, "map: it needs a filter or attribute=");
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_STREAM, items->count));
    RM_TRY(rm_tpl_enter(t));
    for (uint32_t i = 0; i < list->cap && i < items->count; i++) {
        rm_tpl_value *v = &list->items[i];
        if (filter != NULL)
            RM_TRY(rm_tpl_invoke(v, t, filter, &items->items[i], &rest));
        else
            RM_TRY(rm_tpl_path(v, t, &items->items[i], attribute));
        if (filter == NULL && v->type == RM_TPL_UNDEFINED && otherwise != NULL) *v = *otherwise;
        list->count++;
    }
    rm_tpl_leave(t);
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

/* Keeps the items whose value (or an attribute of it) passes a test, or does not. */
static int choose(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_args *all,
                  bool by_attribute, bool keep) {
    rm_tpl_list *items, *list;
    const rm_tpl_value whole = {.type = RM_TPL_ABSENT};
    const rm_tpl_builtin *test = NULL;
    const uint32_t skip = by_attribute ? 1 : 0;
    const rm_tpl_args rest = after(all, skip + 1);
    if (all->count < skip) return rm_tpl_fail(t, "selectattr: which attribute?");
    if (all->count > skip)
        RM_TRY(rm_tpl_want_builtin(&test, t, &all->at[skip], rm_tpl_find_test, "test"));
    RM_TRY(items_of(&items, t, self));
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_STREAM, items->count));
    RM_TRY(rm_tpl_enter(t));
    for (uint32_t i = 0; i < list->cap && i < items->count; i++) {
        rm_tpl_value v, result;
        RM_TRY(rm_tpl_work(t, 0));
        RM_TRY(rm_tpl_path(&v, t, &items->items[i], by_attribute ? &all->at[0] : &whole));
        if (test != NULL)
            RM_TRY(rm_tpl_invoke(&result, t, test, &v, &rest));
        else
            result = rm_tpl_bool(rm_tpl_truth(&v));
        if (result.b == keep) list->items[list->count++] = items->items[i];
    }
    rm_tpl_leave(t);
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int f_select(ARGS) {
    UNUSED;
    return choose(out, t, self, all, false, true);
}

static int f_reject(ARGS) {
    UNUSED;
    return choose(out, t, self, all, false, false);
}

static int f_selectattr(ARGS) {
    UNUSED;
    return choose(out, t, self, all, true, true);
}

static int f_rejectattr(ARGS) {
    UNUSED;
    return choose(out, t, self, all, true, false);
}

/* --- order ---------------------------------------------------------------------------------- */

/* What an item is compared by: itself or its attribute, without case unless it counts. */
static int key_of(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *item, const rm_tpl_value *path,
                  bool with_case) {
    RM_TRY(rm_tpl_path(out, t, item, path));
    if (out->type == RM_TPL_STRING && !with_case)
        return rm_tpl_change_case(out, t, out->s, RM_TPL_LOWER);
    return REMAT_OK;
}

/* sort(attribute='a,b'): by a, then by b. */
static int sort_key(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *item,
                    const rm_tpl_value *path, bool with_case) {
    if (path->type != RM_TPL_STRING || path->s->count == 0 ||
        memchr(path->s->bytes, ',', path->s->count) == NULL)
        return key_of(out, t, item, path, with_case);
    rm_tpl_list *keys;
    RM_TRY(rm_tpl_list_new(&keys, t, RM_TPL_PLAIN, 0));
    for (size_t at = 0; at <= path->s->count;) {
        const char *comma =
            at < path->s->count ? memchr(path->s->bytes + at, ',', path->s->count - at) : NULL;
        const size_t end = comma != NULL ? (size_t)(comma - path->s->bytes) : path->s->count;
        rm_tpl_value part, key;
        RM_TRY(rm_tpl_part(&part, t, path->s, at, end));
        RM_TRY(key_of(&key, t, item, &part, with_case));
        RM_TRY(rm_tpl_list_add(t, keys, &key));
        at = end + 1;
    }
    *out = rm_tpl_of_list(keys);
    return REMAT_OK;
}

static int sort_by(rm_tpl *t, rm_tpl_list *list, const rm_tpl_value *path, bool with_case,
                   bool reverse) {
    rm_tpl_list *keys;
    RM_TRY(rm_tpl_list_new(&keys, t, RM_TPL_PLAIN, list->count));
    for (uint32_t i = 0; i < list->count; i++)
        RM_TRY(sort_key(&keys->items[keys->count++], t, &list->items[i], path, with_case));
    return rm_tpl_sort(t, list, keys, reverse);
}

static int f_sort(ARGS) {
    UNUSED;
    rm_tpl_list *list;
    RM_TRY(copy_list(&list, t, self, RM_TPL_PLAIN));
    RM_TRY(sort_by(t, list, &a[2], rm_tpl_truth(&a[1]), rm_tpl_truth(&a[0])));
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

/* dictsort(case_sensitive=false, by='key', reverse=false) */
static int f_dictsort(ARGS) {
    UNUSED;
    if (self->type != RM_TPL_DICT)
        return rm_tpl_fail(t, "dictsort: a %s is no mapping", rm_tpl_type_name(self));
    rm_tpl_value items, path = rm_tpl_int(0);
    if (rm_tpl_given(&a[1])) {
        const rm_tpl_string *by;
        RM_TRY(rm_tpl_want_string(&by, t, &a[1], "dictsort: by"));
        path.i = rm_tpl_is_text(by, "value");
        if (path.i == 0 && !rm_tpl_is_text(by, "key"))
            return rm_tpl_fail(t, "dictsort: by is 'key' or 'value'");
    }
    RM_TRY(rm_tpl_dict_view(&items, t, self->dict, RM_TPL_ITEMS));
    items.list->kind = RM_TPL_PLAIN;
    RM_TRY(sort_by(t, items.list, &path, rm_tpl_truth(&a[0]), rm_tpl_truth(&a[2])));
    *out = items;
    return REMAT_OK;
}

/* unique(case_sensitive=false, attribute=none) */
static int f_unique(ARGS) {
    UNUSED;
    rm_tpl_list *items, *list;
    rm_tpl_dict *seen;
    const rm_tpl_value yes = rm_tpl_bool(true);
    RM_TRY(rm_tpl_items(&items, t, self));
    RM_TRY(rm_tpl_list_new(&list, t, RM_TPL_STREAM, 0));
    RM_TRY(rm_tpl_dict_new(&seen, t));
    for (uint32_t i = 0; i < items->count; i++) {
        rm_tpl_value key, *found;
        RM_TRY(key_of(&key, t, &items->items[i], &a[1], rm_tpl_truth(&a[0])));
        RM_TRY(rm_tpl_dict_find(&found, t, seen, &key));
        if (found != NULL) continue;
        RM_TRY(rm_tpl_dict_set(t, seen, &key, &yes));
        RM_TRY(rm_tpl_list_add(t, list, &items->items[i]));
    }
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

static int extreme(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *self, const rm_tpl_value *a,
                   int sign) {
    rm_tpl_list *items;
    rm_tpl_value best = {.type = RM_TPL_UNDEFINED}, key;
    RM_TRY(rm_tpl_items(&items, t, self));
    *out = best;
    for (uint32_t i = 0; i < items->count; i++) {
        int order = sign;
        RM_TRY(key_of(&key, t, &items->items[i], &a[1], rm_tpl_truth(&a[0])));
        if (i > 0) RM_TRY(rm_tpl_order(&order, t, &key, &best));
        if (order != sign) continue;
        best = key;
        *out = items->items[i];
    }
    return REMAT_OK;
}

static int f_min(ARGS) {
    UNUSED;
    return extreme(out, t, self, a, -1);
}

static int f_max(ARGS) {
    UNUSED;
    return extreme(out, t, self, a, 1);
}

/* --- groups --------------------------------------------------------------------------------- */

static int f_sum(ARGS) {
    UNUSED;
    rm_tpl_list *items;
    RM_TRY(rm_tpl_items(&items, t, self));
    rm_tpl_value sum = rm_tpl_given(&a[1]) ? a[1] : rm_tpl_int(0);
    for (uint32_t i = 0; i < items->count; i++) {
        rm_tpl_value v;
        RM_TRY(rm_tpl_path(&v, t, &items->items[i], &a[0]));
        RM_TRY(rm_tpl_arith(&sum, t, RM_TOK_ADD, &sum, &v));
    }
    *out = sum;
    return REMAT_OK;
}

static int f_batch(ARGS) {
    UNUSED;
    rm_tpl_list *items, *batches, *batch = NULL;
    int64_t size;
    RM_TRY(rm_tpl_items(&items, t, self));
    RM_TRY(rm_tpl_want_int(&size, t, &a[0], "batch: its size"));
    if (size < 1) return rm_tpl_fail(t, "batch: its size is at least 1");
    RM_TRY(rm_tpl_list_new(&batches, t, RM_TPL_STREAM, 0));
    for (uint32_t i = 0; i < items->count; i++) {
        if (i % (uint64_t)size == 0) {
            RM_TRY(rm_tpl_list_new(&batch, t, RM_TPL_PLAIN, 0));
            const rm_tpl_value v = rm_tpl_of_list(batch);
            RM_TRY(rm_tpl_list_add(t, batches, &v));
        }
        RM_TRY(rm_tpl_list_add(t, batch, &items->items[i]));
    }
    const bool fill = rm_tpl_given(&a[1]) && a[1].type != RM_TPL_NONE;
    while (batch != NULL && fill && batch->count < (uint64_t)size)
        RM_TRY(rm_tpl_list_add(t, batch, &a[1]));
    *out = rm_tpl_of_list(batches);
    return REMAT_OK;
}

/* groupby(attribute, case_sensitive=false): tuples of a value and its items, sorted. */
static int f_groupby(ARGS) {
    UNUSED;
    rm_tpl_list *list, *groups, *group = NULL;
    rm_tpl_value before = rm_tpl_none();
    RM_TRY(copy_list(&list, t, self, RM_TPL_PLAIN));
    RM_TRY(sort_by(t, list, &a[0], rm_tpl_truth(&a[1]), false));
    RM_TRY(rm_tpl_list_new(&groups, t, RM_TPL_PLAIN, 0));
    for (uint32_t i = 0; i < list->count; i++) {
        rm_tpl_value key, shown, pair;
        bool same = false;
        RM_TRY(key_of(&key, t, &list->items[i], &a[0], rm_tpl_truth(&a[1])));
        if (group != NULL) RM_TRY(rm_tpl_equal(&same, t, &key, &before));
        if (!same) {
            RM_TRY(rm_tpl_path(&shown, t, &list->items[i], &a[0]));
            RM_TRY(rm_tpl_list_new(&group, t, RM_TPL_PLAIN, 0));
            const rm_tpl_value v = rm_tpl_of_list(group);
            RM_TRY(rm_tpl_pair_list(&pair, t, &shown, &v));
            RM_TRY(rm_tpl_list_add(t, groups, &pair));
            before = key;
        }
        RM_TRY(rm_tpl_list_add(t, group, &list->items[i]));
    }
    *out = rm_tpl_of_list(groups);
    return REMAT_OK;
}

const rm_tpl_builtin *rm_tpl_find_seq_filter(const rm_tpl_string *name) {
    static const rm_tpl_builtin table[] = {
        {"list", f_list, "", 0},
        {"first", f_first, "", 0},
        {"last", f_last, "", 0},
        {"items", f_items, "", 0},
        {"join", f_join, "d attribute", 0},
        {"reverse", f_reverse, "", 0},
        {"map", f_map, NULL, 0},
        {"select", f_select, NULL, 0},
        {"reject", f_reject, NULL, 0},
        {"selectattr", f_selectattr, NULL, 0},
        {"rejectattr", f_rejectattr, NULL, 0},
        {"sort", f_sort, "reverse case_sensitive attribute", 0},
        {"dictsort", f_dictsort, "case_sensitive by reverse", 0},
        {"unique", f_unique, "case_sensitive attribute", 0},
        {"min", f_min, "case_sensitive attribute", 0},
        {"max", f_max, "case_sensitive attribute", 0},
        {"sum", f_sum, "attribute start", 0},
        {"batch", f_batch, "linecount fill_with", 1},
        {"groupby", f_groupby, "attribute case_sensitive", 1},
    };
    return rm_tpl_find_in(table, sizeof table / sizeof table[0], name);
}
