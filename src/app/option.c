/* option.c: the value of one option, from text. See options.h. Part: app. */
#include "app/options.h"
#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int bad(remat_error *err, const char *name, const char *text, const char *what) {
    return rm_fail(err, REMAT_E_USAGE, "%s: \"%.60s\" is no %s; see remat --help", name, text,
                   what);
}

/* Decimal digits with an optional minus; the whole text, inside [low, high]. */
int app_parse_integer(int64_t *out, const char *name, const char *text, int64_t low, int64_t high,
                      remat_error *err) {
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    const bool digits = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
    if (!digits || *end != '\0' || end == text || errno != 0 || v < low || v > high)
        return bad(err, name, text, "number in range");
    *out = v;
    return REMAT_OK;
}

static int real(double *out, const char *name, const char *text, remat_error *err) {
    char *end;
    const double v = strtod(text, &end);
    const bool decimal = strspn(text, "0123456789.eE+-") == strlen(text);
    if (end == text || *end != '\0' || !decimal || !isfinite((float)v))
        return bad(err, name, text, "number");
    *out = v;
    return REMAT_OK;
}

/* Digits with at most one point, then nothing or one of K, M, G, T. */
int app_parse_size(uint64_t *out, const char *name, const char *text, remat_error *err) {
    static const char units[] = "KMGT", lower[] = "kmgt";
    if (strcmp(text, "auto") == 0) {
        *out = 0;
        return REMAT_OK;
    }
    char *end;
    double v = strtod(text, &end);
    const size_t digits = strspn(text, "0123456789.");
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit == NULL && *end != '\0' && strchr(lower, *end) != NULL)
        unit = units + (strchr(lower, *end) - lower);
    for (const char *u = units; unit != NULL && u <= unit; u++)
        v *= 1024;
    const bool whole = end == text + digits && end[unit != NULL ? 1 : 0] == '\0';
    if (text[0] < '0' || text[0] > '9' || !whole || !(v >= 1) || !(v < 0x1p62))
        return bad(err, name, text, "size such as 128M or 1.5G");
    *out = (uint64_t)v;
    return REMAT_OK;
}

/* N,N,..: at most APP_LIST_MAX of them. */
static int list(app_list *out, const char *name, const char *text, remat_error *err) {
    char word[16];
    int64_t v;
    out->count = 0;
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ",");
        if (n == 0 || n >= sizeof word || p[0] == '-')
            return bad(err, name, text, "list of numbers such as 512,1024");
        if (out->count == APP_LIST_MAX)
            return rm_fail(err, REMAT_E_USAGE, "%s: more than %d numbers; give fewer", name,
                           APP_LIST_MAX);
        memcpy(word, p, n);
        word[n] = '\0';
        RM_TRY(app_parse_integer(&v, name, word, 0, INT32_MAX, err));
        out->at[out->count++] = (uint32_t)v;
        p += n;
        if (*p == '\0') return REMAT_OK;
    }
}

/* ID+X or ID-X. */
static int bias(app_args *args, const char *name, const char *text, remat_error *err) {
    const char *sign = text + strspn(text, "0123456789");
    char id[16];
    int64_t v;
    double x;
    const size_t n = (size_t)(sign - text);
    if (n == 0 || n >= sizeof id || (*sign != '+' && *sign != '-'))
        return bad(err, name, text, "bias such as 42+1.5");
    memcpy(id, text, n);
    id[n] = '\0';
    RM_TRY(app_parse_integer(&v, name, id, 0, INT32_MAX, err));
    RM_TRY(real(&x, name, sign, err));
    if (args->sampling.bias_count == REMAT_BIAS_MAX)
        return rm_fail(err, REMAT_E_USAGE, "%s: at most %d", name, REMAT_BIAS_MAX);
    args->bias[args->sampling.bias_count++] = (remat_bias){.id = (uint32_t)v, .bias = (float)x};
    return REMAT_OK;
}

int app_option_set(app_args *args, const app_option *o, const char *name, const char *text,
                   remat_error *err) {
    void *at = (char *)args + o->at;
    int64_t v = 0;
    double x = 0;
    switch (o->kind) {
    case FLAG:
        *(bool *)at = true;
        return REMAT_OK;
    case OFF:
        *(bool *)at = false;
        return REMAT_OK;
    case IGNORED:
        return REMAT_OK;
    case TEXT:
        *(const char **)at = text;
        return REMAT_OK;
    case U32:
        RM_TRY(app_parse_integer(&v, name, text, 0, INT32_MAX, err));
        *(uint32_t *)at = (uint32_t)v;
        return REMAT_OK;
    case PREDICT: /* -1 and -2 are llama.cpp's words for "until it ends" */
        RM_TRY(app_parse_integer(&v, name, text, -2, INT32_MAX, err));
        *(uint32_t *)at = v < 0 ? REMAT_ALL : (uint32_t)v;
        return REMAT_OK;
    case I32:
        RM_TRY(app_parse_integer(&v, name, text, INT32_MIN, INT32_MAX, err));
        *(int32_t *)at = (int32_t)v;
        return REMAT_OK;
    case U64:
        RM_TRY(app_parse_integer(&v, name, text, -1, INT64_MAX, err));
        args->seed_given = v >= 0; /* -1: llama.cpp's word for any */
        *(uint64_t *)at = (uint64_t)v;
        return REMAT_OK;
    case F32:
        RM_TRY(real(&x, name, text, err));
        *(float *)at = (float)x;
        return REMAT_OK;
    case AMOUNT:
        RM_TRY(real(&x, name, text, err));
        if (x < 0 || x > 1e15) return bad(err, name, text, "number from 0 on");
        *(double *)at = x;
        return REMAT_OK;
    case SIZE:
        return app_parse_size(at, name, text, err);
    case LIST:
        return list(at, name, text, err);
    case STOP:
        if (args->stop_count == REMAT_STOPS_MAX || text[0] == '\0' ||
            strlen(text) > REMAT_STOP_BYTES_MAX)
            return rm_fail(err, REMAT_E_USAGE, "--stop: at most %d texts of 1 to %d bytes",
                           REMAT_STOPS_MAX, REMAT_STOP_BYTES_MAX);
        args->stops[args->stop_count++] = text;
        return REMAT_OK;
    case BIAS:
        return bias(args, name, text, err);
    }
    return REMAT_OK;
}
