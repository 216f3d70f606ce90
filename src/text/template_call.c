/* template_call.c: calls, and how arguments meet parameters. */
#include "text/template_impl.h"

#include <stdio.h>

/* The place of a name in "one two three", or -1. */
static int place_in(const char *params, const rm_tpl_string *name) {
    int place = 0;
    for (const char *at = params; *at != '\0'; place++) {
        const size_t n = strcspn(at, " ");
        if (name->count == n && memcmp(name->bytes, at, n) == 0) return place;
        at += n + (at[n] == ' ');
    }
    return -1;
}

static uint32_t count_of(const char *params) {
    uint32_t count = *params != '\0';
    for (; *params != '\0'; params++)
        count += *params == ' ';
    return count;
}

static int bind(rm_tpl_value *a, rm_tpl *t, const rm_tpl_builtin *b, const rm_tpl_args *args) {
    const uint32_t most = count_of(b->params);
    RM_ASSERT(most <= RM_TPL_PARAMS_MAX);
    if (args->count > most) {
        return rm_tpl_fail(t, "%s takes %u arguments, not %u", b->name, (unsigned)most,
                           (unsigned)args->count);
    }
    for (uint32_t i = 0; i < args->count; i++)
        a[i] = args->at[i];
    for (uint32_t i = 0; i < args->named_count; i++) {
        const rm_tpl_named *named = &args->named[i];
        const int place = place_in(b->params, named->name);
        if (place < 0 || rm_tpl_given(&a[place])) {
            return rm_tpl_fail(t, "%s has no such argument, or gets it twice: '%.*s'", b->name,
                               (int)(named->name->count < 40 ? named->name->count : 40),
                               named->name->bytes);
        }
        a[place] = named->value;
    }
    for (uint32_t i = 0; i < b->required; i++) {
        if (!rm_tpl_given(&a[i])) return rm_tpl_fail(t, "%s needs more arguments", b->name);
    }
    return REMAT_OK;
}

int rm_tpl_invoke(rm_tpl_value *out, rm_tpl *t, const rm_tpl_builtin *b, const rm_tpl_value *self,
                  const rm_tpl_args *args) {
    rm_tpl_value a[RM_TPL_PARAMS_MAX] = {{0}};
    const rm_tpl_value of = *self; /* out may be self */
    RM_TRY(rm_tpl_work(t, 0));
    if (b->params != NULL) RM_TRY(bind(a, t, b, args));
    return b->call(out, t, &of, a, args);
}

int rm_tpl_call(rm_tpl_value *out, rm_tpl *t, const rm_tpl_value *callee, const rm_tpl_args *args) {
    switch (callee->type) {
    case RM_TPL_MACRO:
        return rm_tpl_macro_call(out, t, callee->macro, args);
    case RM_TPL_BUILTIN:
        return rm_tpl_invoke(out, t, callee->builtin, callee, args);
    case RM_TPL_METHOD:
        return rm_tpl_invoke(out, t, callee->method->builtin, &callee->method->self, args);
    case RM_TPL_UNDEFINED:
        return rm_tpl_undefined_used(t, callee);
    default:
        return rm_tpl_fail(t, "a %s cannot be called", rm_tpl_type_name(callee));
    }
}

const rm_tpl_builtin *rm_tpl_find_in(const rm_tpl_builtin *table, size_t count,
                                     const rm_tpl_string *name) {
    for (size_t i = 0; i < count; i++) {
        if (rm_tpl_is_text(name, table[i].name)) return &table[i];
    }
    return NULL;
}

int rm_tpl_want_int(int64_t *out, rm_tpl *t, const rm_tpl_value *v, const char *what) {
    if (v->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, v);
    if (v->type != RM_TPL_INT && v->type != RM_TPL_BOOL)
        return rm_tpl_fail(t, "%s is to be an int, not a %s", what, rm_tpl_type_name(v));
    *out = v->type == RM_TPL_INT ? v->i : v->b;
    return REMAT_OK;
}

int rm_tpl_want_string(const rm_tpl_string **out, rm_tpl *t, const rm_tpl_value *v,
                       const char *what) {
    if (v->type == RM_TPL_UNDEFINED) return rm_tpl_undefined_used(t, v);
    if (v->type != RM_TPL_STRING)
        return rm_tpl_fail(t, "%s is to be a string, not a %s", what, rm_tpl_type_name(v));
    *out = v->s;
    return REMAT_OK;
}

int rm_tpl_want_builtin(const rm_tpl_builtin **out, rm_tpl *t, const rm_tpl_value *name,
                        const rm_tpl_builtin *(*find)(const rm_tpl_string *), const char *what) {
    const rm_tpl_string *s = NULL;
    RM_TRY(rm_tpl_want_string(&s, t, name, what));
    RM_ASSERT(s != NULL);
    *out = find(s);
    if (*out != NULL) return REMAT_OK;
    char text[48];
    size_t n = 0;
    for (; n < sizeof text && n < s->count; n++) /* it may come from the variables */
        text[n] = s->bytes[n] > 0x20 && s->bytes[n] < 0x7F ? s->bytes[n] : '?';
    return rm_tpl_fail(t, "%s '%.*s' does not exist", what, (int)n, text);
}
