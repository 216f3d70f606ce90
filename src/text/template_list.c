/*
 * template_list.c: lists, dicts, and what can be iterated.
 *
 * A dict keeps its pairs in the order they came, as Python does, and finds them by comparing while
 * there are few; from 9 on an open table of places helps. Steps are charged for every pair that is
 * looked at, so that keys chosen to collide only meet the limit sooner.
 */
#include "text/template_impl.h"

int rm_tpl_list_new(rm_tpl_list **out, rm_tpl *t, uint8_t kind, size_t cap) {
    rm_tpl_list *list;
    RM_TRY(rm_tpl_take(&list, t, 1, sizeof *list));
    if (cap > UINT32_MAX) return rm_tpl_fail(t, "a list is too long");
    list->kind = kind;
    list->cap = (uint32_t)cap;
    if (cap > 0) RM_TRY(rm_tpl_take(&list->items, t, cap, sizeof *list->items));
    *out = list;
    return REMAT_OK;
}

/* Twice the places; those of before are left behind. */
static int grow(void *out, rm_tpl *t, const void *old, uint32_t count, uint32_t *cap, size_t size) {
    if (*cap > UINT32_MAX / 4) return rm_tpl_fail(t, "a list is too long");
    const uint32_t more = *cap < 4 ? 4 : 2 * *cap;
    void *new;
    RM_TRY(rm_tpl_take(&new, t, more, size));
    if (count > 0) memcpy(new, old, count * size);
    memcpy(out, &new, sizeof new);
    *cap = more;
    return REMAT_OK;
}

int rm_tpl_list_add(rm_tpl *t, rm_tpl_list *list, const rm_tpl_value *v) {
    RM_TRY(rm_tpl_work(t, sizeof *v));
    if (list->count == list->cap)
        RM_TRY(grow(&list->items, t, list->items, list->count, &list->cap, sizeof *list->items));
    list->items[list->count++] = *v;
    return REMAT_OK;
}

int rm_tpl_pair_list(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *a, const rm_tpl_value *b) {
    rm_tpl_list *pair;
    RM_TRY(rm_tpl_list_new(&pair, t, RM_TPL_TUPLE, 2));
    pair->items[0] = *a;
    pair->items[1] = *b;
    pair->count = 2;
    *out = rm_tpl_of_list(pair);
    return REMAT_OK;
}

/* --- dicts ---------------------------------------------------------------------------------- */

static uint32_t hash_bytes(const void *at, size_t count, uint32_t hash) {
    const uint8_t *u = at;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ u[i]) * 16777619u;
    return hash ^ hash >> 15;
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. */
static int hash_of(uint32_t *out, rm_tpl *t, const rm_tpl_value *v) {
    const uint32_t seed = 2166136261u;
    switch (v->type) {
    case RM_TPL_UNDEFINED:
    case RM_TPL_NONE:
        *out = v->type;
        return REMAT_OK;
    case RM_TPL_STRING:
    case RM_TPL_BIG:
        *out = hash_bytes(v->s->bytes, v->s->count, seed);
        return rm_tpl_work(t, v->s->count);
    case RM_TPL_BOOL:
    case RM_TPL_INT:
    case RM_TPL_FLOAT: {
        const double f = v->type == RM_TPL_FLOAT ? v->f
                         : v->type == RM_TPL_INT ? (double)v->i
                                                 : (double)v->b;
        const double plain = f == 0 ? 0 : f; /* -0.0 */
        *out = hash_bytes(&plain, sizeof plain, seed);
        return REMAT_OK;
    }
    case RM_TPL_LIST:
        if (v->list->kind != RM_TPL_TUPLE) break;
        RM_TRY(rm_tpl_enter(t));
        *out = seed;
        for (uint32_t i = 0, h; i < v->list->count; i++) {
            RM_TRY(hash_of(&h, t, &v->list->items[i]));
            *out = hash_bytes(&h, sizeof h, *out);
        }
        rm_tpl_leave(t);
        return REMAT_OK;
    default:
        break;
    }
    return rm_tpl_fail(t, "a %s cannot be a key", rm_tpl_type_name(v));
}

int rm_tpl_dict_new(rm_tpl_dict **out, rm_tpl *t) {
    return rm_tpl_take(out, t, 1, sizeof **out);
}

enum { FEW = 8 };

/* The pair's place, or d->count; *slot: where its place is or would be written. */
static int place_of(uint32_t *out, uint32_t *slot, rm_tpl *t, const rm_tpl_dict *d,
                    const rm_tpl_value *key, uint32_t hash) {
    bool same = false;
    *slot = 0;
    *out = d->count;
    if (d->slots == NULL) {
        for (uint32_t i = 0; i < d->count; i++) {
            if (d->pairs[i].hash != hash) continue;
            RM_TRY(rm_tpl_equal(&same, t, &d->pairs[i].key, key));
            if (!same) continue;
            *out = i;
            return REMAT_OK;
        }
        return rm_tpl_work(t, d->count);
    }
    for (uint32_t s = hash & (d->slot_count - 1);; s = (s + 1) & (d->slot_count - 1)) {
        *slot = s;
        if (d->slots[s] == 0) return REMAT_OK;
        RM_TRY(rm_tpl_work(t, 0));
        const uint32_t i = d->slots[s] - 1;
        if (d->pairs[i].hash != hash) continue;
        RM_TRY(rm_tpl_equal(&same, t, &d->pairs[i].key, key));
        if (!same) continue;
        *out = i;
        return REMAT_OK;
    }
}

int rm_tpl_dict_find(rm_tpl_value **out, rm_tpl *t, const rm_tpl_dict *d, const rm_tpl_value *key) {
    uint32_t hash, place, slot;
    RM_TRY(hash_of(&hash, t, key));
    RM_TRY(place_of(&place, &slot, t, d, key, hash));
    *out = place < d->count ? &d->pairs[place].value : NULL;
    return REMAT_OK;
}

/* Enters all pairs anew; the table is at most half full until the next time. */
static int index_pairs(rm_tpl *t, rm_tpl_dict *d) {
    RM_TRY(rm_tpl_work(t, d->cap * sizeof *d->slots));
    if (d->slot_count < 2 * d->cap) {
        uint32_t count = 32;
        while (count < 2 * d->cap)
            count *= 2;
        RM_TRY(rm_tpl_take(&d->slots, t, count, sizeof *d->slots));
        d->slot_count = count;
    }
    memset(d->slots, 0, d->slot_count * sizeof *d->slots);
    for (uint32_t i = 0; i < d->count; i++) {
        uint32_t s = d->pairs[i].hash & (d->slot_count - 1);
        while (d->slots[s] != 0) {
            RM_TRY(rm_tpl_work(t, 0));
            s = (s + 1) & (d->slot_count - 1);
        }
        d->slots[s] = i + 1;
    }
    return REMAT_OK;
}

int rm_tpl_dict_set(rm_tpl *t, rm_tpl_dict *d, const rm_tpl_value *key, const rm_tpl_value *v) {
    uint32_t hash, place, slot;
    RM_TRY(hash_of(&hash, t, key));
    RM_TRY(place_of(&place, &slot, t, d, key, hash));
    if (place < d->count) {
        d->pairs[place].value = *v;
        return REMAT_OK;
    }
    const bool full = d->count == d->cap;
    if (full) RM_TRY(grow(&d->pairs, t, d->pairs, d->count, &d->cap, sizeof *d->pairs));
    d->pairs[d->count++] = (rm_tpl_pair){.key = *key, .value = *v, .hash = hash};
    if (d->count <= FEW) return REMAT_OK;
    if (full || d->slots == NULL) return index_pairs(t, d);
    d->slots[slot] = d->count;
    return REMAT_OK;
}

int rm_tpl_dict_remove(rm_tpl *t, rm_tpl_dict *d, const rm_tpl_value *key) {
    uint32_t hash, place, slot;
    RM_TRY(hash_of(&hash, t, key));
    RM_TRY(place_of(&place, &slot, t, d, key, hash));
    if (place == d->count) return REMAT_OK;
    RM_TRY(rm_tpl_work(t, d->count * sizeof *d->pairs));
    memmove(d->pairs + place, d->pairs + place + 1, (d->count - place - 1) * sizeof *d->pairs);
    d->count--;
    return d->slots != NULL ? index_pairs(t, d) : REMAT_OK;
}

int rm_tpl_dict_view(rm_tpl_value *out, rm_tpl *t, const rm_tpl_dict *d, rm_tpl_list_kind kind) {
    rm_tpl_list *list;
    RM_TRY(rm_tpl_list_new(&list, t, (uint8_t)kind, d->count));
    for (uint32_t i = 0; i < d->count; i++) {
        const rm_tpl_pair *p = &d->pairs[i];
        if (kind == RM_TPL_ITEMS)
            RM_TRY(rm_tpl_pair_list(&list->items[i], t, &p->key, &p->value));
        else
            list->items[i] = kind == RM_TPL_VALUES ? p->value : p->key;
    }
    list->count = d->count;
    *out = rm_tpl_of_list(list);
    return REMAT_OK;
}

/* --- iteration ------------------------------------------------------------------------------ */

enum { RANGE_MOST = 100000 }; /* Jinja's sandbox has the same */

int rm_tpl_range_new(rm_tpl_value *out, rm_tpl *t, int64_t start, int64_t stop, int64_t step) {
    if (step == 0) return rm_tpl_fail(t, "range(): the step is 0");
    uint64_t count = 0;
    if (step > 0 && stop > start)
        count = ((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step + 1;
    if (step < 0 && stop < start)
        count = ((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step) + 1;
    if (count > RANGE_MOST) return rm_tpl_fail(t, "range(): more than %d numbers", (int)RANGE_MOST);
    rm_tpl_range *r;
    RM_TRY(rm_tpl_take(&r, t, 1, sizeof *r));
    *r = (rm_tpl_range){.start = start, .step = step, .count = (uint32_t)count};
    *out = (rm_tpl_value){.type = RM_TPL_RANGE, .range = r};
    return REMAT_OK;
}

static int chars_of(rm_tpl_list *list, rm_tpl *t, const rm_tpl_string *s) {
    uint32_t code;
    for (size_t at = 0, n; at < s->count; at += n) {
        rm_tpl_value v;
        n = rm_tpl_char(s->bytes + at, s->count - at, &code);
        RM_TRY(rm_tpl_part(&v, t, s, at, at + n));
        RM_TRY(rm_tpl_list_add(t, list, &v));
    }
    return REMAT_OK;
}

int rm_tpl_items(rm_tpl_list **out, rm_tpl *t, const rm_tpl_value *v) {
    rm_tpl_value view;
    switch (v->type) {
    case RM_TPL_LIST:
        *out = v->list;
        return REMAT_OK;
    case RM_TPL_DICT:
        RM_TRY(rm_tpl_dict_view(&view, t, v->dict, RM_TPL_KEYS));
        *out = view.list;
        return REMAT_OK;
    case RM_TPL_UNDEFINED:
        return rm_tpl_list_new(out, t, RM_TPL_PLAIN, 0);
    case RM_TPL_STRING:
        RM_TRY(rm_tpl_list_new(out, t, RM_TPL_PLAIN, 0));
        return chars_of(*out, t, v->s);
    case RM_TPL_RANGE:
        RM_TRY(rm_tpl_list_new(out, t, RM_TPL_PLAIN, v->range->count));
        for (uint32_t i = 0; i < v->range->count; i++)
            (*out)->items[i] = rm_tpl_int(v->range->start + (int64_t)i * v->range->step);
        (*out)->count = v->range->count;
        return REMAT_OK;
    default:
        return rm_tpl_fail(t, "a %s has no items to go through", rm_tpl_type_name(v));
    }
}

int rm_tpl_length(int64_t *out, rm_tpl *t, const rm_tpl_value *v) {
    switch (v->type) {
    case RM_TPL_LIST:
        *out = v->list->count;
        return REMAT_OK;
    case RM_TPL_DICT:
        *out = v->dict->count;
        return REMAT_OK;
    case RM_TPL_RANGE:
        *out = v->range->count;
        return REMAT_OK;
    case RM_TPL_STRING:
        *out = (int64_t)rm_tpl_char_count(v->s);
        return rm_tpl_work(t, v->s->count);
    case RM_TPL_UNDEFINED:
        *out = 0;
        return REMAT_OK;
    default:
        return rm_tpl_fail(t, "a %s has no length", rm_tpl_type_name(v));
    }
}

/* --- sorting -------------------------------------------------------------------------------- */

typedef struct sorting {
    rm_tpl_value *item, *key;
} sorting;

/* Merges [from, middle) and [middle, to) of s into d. Of equals the left one comes first, also in
 * reverse, as in Python. */
static int merge(rm_tpl *t, sorting d, sorting s, uint32_t from, uint32_t middle, uint32_t to,
                 bool reverse) {
    uint32_t a = from, b = middle;
    for (uint32_t i = from; i < to; i++) {
        bool left = b >= to;
        if (!left && a < middle) {
            int order;
            RM_TRY(rm_tpl_order(&order, t, &s.key[a], &s.key[b]));
            left = reverse ? order >= 0 : order <= 0;
        }
        const uint32_t take = left ? a++ : b++;
        d.item[i] = s.item[take];
        d.key[i] = s.key[take];
    }
    return REMAT_OK;
}

int rm_tpl_sort(rm_tpl *t, rm_tpl_list *items, rm_tpl_list *keys, bool reverse) {
    RM_ASSERT(items->count == keys->count);
    const uint32_t n = items->count;
    sorting s = {.item = items->items, .key = keys->items}, d;
    RM_TRY(rm_tpl_take(&d.item, t, n, sizeof *d.item));
    RM_TRY(rm_tpl_take(&d.key, t, n, sizeof *d.key));
    for (uint32_t width = 1; width < n; width *= 2) {
        for (uint32_t from = 0; from < n; from += 2 * width) {
            const uint32_t middle = n - from > width ? from + width : n;
            const uint32_t to = n - middle > width ? middle + width : n;
            RM_TRY(merge(t, d, s, from, middle, to, reverse));
        }
        const sorting swap = s;
        s = d;
        d = swap;
    }
    items->items = s.item;
    keys->items = s.key;
    items->cap = keys->cap = n;
    return REMAT_OK;
}
