/*
 * rope.c: the frequencies of rotary position embedding, and its ways to reach a longer context.
 *
 *   linear   positions divided by a factor (Chen et al., position interpolation, 2023)
 *   yarn     interpolated below, untouched above, a ramp between; cos and sin grow a little
 *            (Peng et al., YaRN, 2023)
 *   llama3   the ramp of Llama 3.1, by wavelength. Files usually carry its result as the tensor
 *            rope_freqs.weight, which divides each frequency and is applied with any type.
 *
 * Frequencies are doubles and pow is our own, so that they do not depend on the system's libm.
 */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double PI = 3.14159265358979323846;
static const double LN2 = 0.693147180559945309417;

/* ln(x), x > 0: x = 2^e * f with f in [0.75, 1.5), then the series of atanh. Error near 1e-16. */
static double ln(double x) {
    int e;
    double f = frexp(x, &e); /* exact */
    if (f < 0.75) {
        f *= 2;
        e--;
    }
    const double t = (f - 1) / (f + 1), t2 = t * t;
    double sum = 0;
    for (int i = 41; i >= 1; i -= 2)
        sum = sum * t2 + 1.0 / i;
    return (double)e * LN2 + 2 * t * sum;
}

static double exponential(double x) {
    const double n = floor(x / LN2 + 0.5), r = x - n * LN2;
    double sum = 1;
    for (int i = 22; i >= 1; i--)
        sum = 1 + r / i * sum;
    return ldexp(sum, (int)n); /* exact */
}

typedef struct scaling {
    enum { NONE, LINEAR, YARN, LLAMA3 } type;
    double factor, base, original;
    double beta_fast, beta_slow, attention; /* yarn */
    double low, high;                       /* llama3 */
} scaling;

static int read_f(double *out, const rm_model *m, const rm_gguf *g, const char *name,
                  double fallback, remat_error *err) {
    char key[RM_GGUF_NAME_MAX];
    float v;
    snprintf(key, sizeof key, "%s.rope.%s", m->shape.architecture, name);
    RM_TRY(rm_gguf_f32_or(&v, g, key, (float)fallback, err));
    if (!isfinite(v) || v < 0) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is %g; the file is damaged", g->file->path, key,
                       (double)v);
    }
    *out = (double)v;
    return REMAT_OK;
}

static int read_scaling(scaling *s, const rm_model *m, const rm_gguf *g, remat_error *err) {
    char key[RM_GGUF_NAME_MAX], type[32];
    const char *arch = m->shape.architecture;
    RM_TRY(read_f(&s->base, m, g, "freq_base", 10000, err));
    if (!(s->base > 1)) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s.rope.freq_base is %g; the file is damaged",
                       g->file->path, arch, s->base);
    }
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    RM_TRY(rm_gguf_text_or(type, sizeof type, g, key, "", err));
    RM_TRY(read_f(&s->factor, m, g, "scaling.factor", 0, err));
    if (type[0] == '\0') { /* older files: a factor without a type means linear */
        double old;
        RM_TRY(read_f(&old, m, g, "scale_linear", 0, err));
        if (s->factor == 0) s->factor = old;
        s->type = s->factor > 0 ? LINEAR : NONE;
    } else if (strcmp(type, "none") == 0) {
        s->type = NONE;
    } else if (strcmp(type, "linear") == 0) {
        s->type = LINEAR;
    } else if (strcmp(type, "yarn") == 0) {
        s->type = YARN;
    } else if (strcmp(type, "llama3") == 0) {
        s->type = LLAMA3;
    } else {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: %s \"%s\" is not supported; this version knows "
                       "none, linear, yarn and llama3",
                       g->file->path, key, type);
    }
    if (s->factor == 0) s->factor = 1;
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", arch);
    uint32_t original;
    RM_TRY(rm_gguf_u32_or(&original, g, key, m->shape.context_count, err));
    if (original == 0) {
        return rm_fail(err, REMAT_E_MODEL, "%s: %s is 0; the file is damaged", g->file->path, key);
    }
    s->original = (double)original;
    RM_TRY(read_f(&s->beta_fast, m, g, "scaling.yarn_beta_fast", 32, err));
    RM_TRY(read_f(&s->beta_slow, m, g, "scaling.yarn_beta_slow", 1, err));
    RM_TRY(read_f(&s->attention, m, g, "scaling.attn_factor", 1, err));
    RM_TRY(read_f(&s->low, m, g, "scaling.low_freq_factor", 1, err));
    RM_TRY(read_f(&s->high, m, g, "scaling.high_freq_factor", 4, err));
    if (s->low <= 0 || s->high <= s->low || s->beta_fast <= 0 || s->beta_slow <= 0) {
        return rm_fail(err, REMAT_E_MODEL,
                       "%s: the numbers under %s.rope.scaling contradict each "
                       "other; the file is damaged",
                       g->file->path, arch);
    }
    return REMAT_OK;
}

/* The channel pair whose wavelength makes so many turns over the original context. */
static double yarn_pair(const scaling *s, uint32_t rope_dim, double turns) {
    return (double)rope_dim * ln(s->original / (turns * 2 * PI)) / (2 * ln(s->base));
}

static double scaled(const scaling *s, uint32_t rope_dim, uint32_t pair, double frequency) {
    if (s->type == LINEAR) return frequency / s->factor;
    if (s->type == YARN) {
        double low = floor(yarn_pair(s, rope_dim, s->beta_fast));
        double high = ceil(yarn_pair(s, rope_dim, s->beta_slow));
        if (low < 0) low = 0;
        if (high > rope_dim - 1) high = rope_dim - 1;
        const double width = high - low > 0.001 ? high - low : 0.001;
        double ramp = ((double)pair - low) / width;
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        return frequency / s->factor * ramp + frequency * (1 - ramp);
    }
    if (s->type == LLAMA3) {
        const double turns = s->original * frequency / (2 * PI);
        if (turns > s->high) return frequency;
        if (turns < s->low) return frequency / s->factor;
        const double smooth = (turns - s->low) / (s->high - s->low);
        return (1 - smooth) * frequency / s->factor + smooth * frequency;
    }
    return frequency;
}

static int fill(rm_rope *out, const rm_model *m, const rm_gguf *g, const scaling *s, bool factors,
                remat_error *err) {
    const uint32_t dim = m->shape.rope_dim;
    for (uint32_t i = 0; i < dim / 2; i++) {
        double f = exponential(-2.0 * i / dim * ln(s->base));
        if (factors && m->rope_factors.source != NULL) {
            const float factor = m->rope_factors.at[i];
            if (!(factor > 0)) {
                return rm_fail(err, REMAT_E_MODEL,
                               "%s: rope_freqs.weight holds %g; the file is "
                               "damaged",
                               g->file->path, (double)factor);
            }
            f /= (double)factor;
        }
        out->frequency[i] = scaled(s, dim, i, f);
    }
    out->scale = (float)s->attention;
    if (s->type == YARN) /* the paper's sqrt(1/t), on queries and keys alike */
        out->scale = (float)(s->attention * (1 + 0.1 * ln(s->factor)));
    return REMAT_OK;
}

int rm_rope_load(rm_model *m, const rm_gguf *g, remat_error *err) {
    scaling s = {0};
    RM_TRY(read_scaling(&s, m, g, err));
    RM_TRY(fill(&m->rope[RM_ROPE_MAIN], m, g, &s, true, err));
    if (m->shape.rope_local_base == 0) return REMAT_OK;
    const scaling local = {.type = NONE, .base = m->shape.rope_local_base, .attention = 1};
    return fill(&m->rope[RM_ROPE_LOCAL], m, g, &local, false, err);
}
