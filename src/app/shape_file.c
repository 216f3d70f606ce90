/* shape_file.c: the numbers of a model from a JSON file; see preset.h. Part: app. */
#include "app/input.h"
#include "app/preset.h"
#include "base/check.h"
#include "base/io.h"

#include <jansson.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef struct number {
    const char *name;
    size_t at;
} number;

#define AT(field) offsetof(remat_shape, field)

static const number numbers[] = {
    {"layers", AT(layer_count)},
    {"hidden", AT(dim)},
    {"heads", AT(head_count)},
    {"kv_heads", AT(kv_head_count)},
    {"head_dim", AT(head_dim)},
    {"feed_forward", AT(feed_forward)},
    {"vocabulary", AT(vocabulary)},
    {"context", AT(context_count)},
    {"window", AT(window)},
    {"window_period", AT(window_period)},
    {"kv_rank", AT(kv_rank)},
    {"rope_dim", AT(rope_dim)},
    {"query_rank", AT(query_rank)},
    {"experts", AT(expert_count)},
    {"experts_used", AT(expert_used)},
    {"expert_feed_forward", AT(expert_feed_forward)},
    {"shared_feed_forward", AT(shared_feed_forward)},
    {"dense_layers", AT(dense_layer_count)},
};

static const number flags[] = {
    {"tied", AT(tied)},
    {"biases", AT(biases)},
    {"head_norms", AT(head_norms)},
    {"post_norms", AT(post_norms)},
};

static int bad_value(const char *path, const char *key, const char *what, remat_error *err) {
    return rm_fail(err, REMAT_E_USAGE, "%s: \"%.40s\" is no %s", rm_path_tail(path), key, what);
}

/* A whole number from 0 on; 671e9 is one too. */
static int get_count(uint64_t *out, const char *path, const char *key, const json_t *v, double most,
                     remat_error *err) {
    const double d = json_is_number(v) ? json_number_value(v) : -1;
    if (!(d >= 0 && d <= most) || d != (double)(uint64_t)d)
        return bad_value(path, key, "whole number in range", err);
    *out = (uint64_t)d;
    return REMAT_OK;
}

/* The type whose weights have about so many bits. */
static const char *type_of_bits(double bits) {
    static const struct {
        double most;
        const char *type;
    } types[] = {{2.99, "q2_k"}, {3.99, "q3_k"}, {4.99, "q4_k"}, {5.99, "q5_k"},
                 {6.99, "q6_k"}, {8.99, "q8_0"}, {16, "f16"},    {32, "f32"}};
    for (size_t i = 0; bits >= 2 && i < sizeof types / sizeof *types; i++) {
        if (bits <= types[i].most) return types[i].type;
    }
    return NULL;
}

static int get_weights(remat_shape *out, const char *path, const char *key, const json_t *v,
                       remat_error *err) {
    static char name[16];
    if (strcmp(key, "weights") == 0 && json_is_string(v) && json_string_length(v) < sizeof name) {
        memcpy(name, json_string_value(v), json_string_length(v) + 1);
        out->weights = name;
        return REMAT_OK;
    }
    if (strcmp(key, "weights") == 0) return bad_value(path, key, "type of weights", err);
    out->weights = type_of_bits(json_is_number(v) ? json_number_value(v) : 0);
    return out->weights != NULL ? REMAT_OK : bad_value(path, key, "number of 2 to 32", err);
}

static int get_member(remat_shape *out, const char *path, const char *key, const json_t *v,
                      remat_error *err) {
    uint64_t count;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, key) != 0) continue;
        RM_TRY(get_count(&count, path, key, v, UINT32_MAX, err));
        const uint32_t n = (uint32_t)count;
        memcpy((char *)out + numbers[i].at, &n, sizeof n);
        return REMAT_OK;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(flags[i].name, key) != 0) continue;
        const bool b = json_is_true(v);
        if (!json_is_boolean(v)) return bad_value(path, key, "true or false", err);
        memcpy((char *)out + flags[i].at, &b, sizeof b);
        return REMAT_OK;
    }
    if (strcmp(key, "parameters") == 0)
        return get_count(&out->parameter_count, path, key, v, 1e15, err);
    if (strcmp(key, "weight_bits") == 0 || strcmp(key, "weights") == 0)
        return get_weights(out, path, key, v, err);
    if (strcmp(key, "attention") == 0) {
        const char *kind = json_is_string(v) ? json_string_value(v) : "";
        const bool known = strcmp(kind, "mla") == 0 || strcmp(kind, "mha") == 0 ||
                           strcmp(kind, "gqa") == 0 || strcmp(kind, "mqa") == 0;
        return known ? REMAT_OK : bad_value(path, key, "mha, gqa, mqa or mla", err);
    }
    if (strcmp(key, "name") == 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE, "%s: a shape has no \"%.40s\"; see remat plan --help",
                   rm_path_tail(path), key);
}

/* What the file leaves out: as many KV heads as heads, and heads that share the hidden size. */
static void complete(remat_shape *s) {
    if (s->kv_head_count == 0) s->kv_head_count = s->head_count;
    if (s->head_dim == 0 && s->head_count > 0) s->head_dim = s->dim / s->head_count;
}

static int from_file(remat_shape *out, const char *path, remat_error *err) {
    enum { BYTES_MAX = 64 << 10 };
    app_text text;
    json_error_t why;
    RM_TRY(app_read_file(&text, NULL, path, err));
    if (text.count > BYTES_MAX)
        return rm_fail(err, REMAT_E_USAGE, "%s: %zu bytes; a shape has at most %d",
                       rm_path_tail(path), text.count, BYTES_MAX);
    json_t *all = json_loadb(text.bytes, text.count, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(all)) {
        json_decref(all);
        return rm_fail(err, REMAT_E_USAGE, "%s: no JSON object of a shape: line %d: %.80s",
                       rm_path_tail(path), why.line, why.text);
    }
    int status = REMAT_OK;
    *out = (remat_shape){0};
    for (void *i = json_object_iter(all); i != NULL && status == REMAT_OK;
         i = json_object_iter_next(all, i))
        status = get_member(out, path, json_object_iter_key(i), json_object_iter_value(i), err);
    const char *kind = json_string_value(json_object_get(all, "attention"));
    const bool latent = kind != NULL && strcmp(kind, "mla") == 0;
    if (status == REMAT_OK && latent != (out->kv_rank > 0))
        status = bad_value(path, "attention",
                           latent ? "mla without a kv_rank" : "mla, but kv_rank is given", err);
    json_decref(all);
    complete(out);
    return status;
}

int app_shape(remat_shape *out, const app_args *args, remat_error *err) {
    const char *name = args->model_shape;
    const app_preset *p = app_preset_find(name);
    if (p != NULL) {
        *out = p->shape;
    } else if (strchr(name, '/') == NULL && strchr(name, '.') == NULL && access(name, R_OK) != 0) {
        return rm_fail(err, REMAT_E_USAGE,
                       "--model-shape: no file and no known model is called \"%.60s\"; "
                       "--list-shapes names them",
                       name);
    } else {
        RM_TRY(from_file(out, name, err));
    }
    if (args->weight_type != NULL) out->weights = args->weight_type;
    if (out->weights == NULL) out->weights = "q4_k";
    return REMAT_OK;
}
