/* divergence.c: see divergence.h. */
#include "app/divergence.h"
#include "base/sort.h"

#include <math.h>

const double app_divergence_ranks[APP_DIVERGENCE_RANKS] = {1, 0.999, 0.99, 0.95, 0.9, 0.5};

double app_divergence_add(app_divergence *d, const float *base, const float *logits, float log_sum,
                          uint32_t vocabulary, uint32_t token) {
    double kld = 0;
    float best = -INFINITY;
    uint32_t top = 0, base_top = 0;
    bool same = true;
    for (uint32_t i = 0; i < vocabulary; i++) {
        /* The same step as when the reference was written: same bits are a difference of 0. */
        const float q = logits[i] - log_sum;
        same = same && q == base[i];
        kld += exp((double)base[i]) * ((double)base[i] - (double)q);
        if (base[i] > base[base_top]) base_top = i;
        if (q > best) top = i;
        if (q > best) best = q;
    }
    const double p = (double)base[token], q = (double)(logits[token] - log_sum);
    const double change = exp(q) - exp(p);
    d->each[d->count++] = kld;
    d->sum += kld;
    d->squares += kld * kld;
    d->base_nll -= p;
    d->base_squares += p * p;
    d->ratio += p - q;
    d->ratio_squares += (p - q) * (p - q);
    d->change += change;
    d->change_squares += change * change;
    d->same_top += top == base_top;
    d->same_bits += same;
    return kld;
}

app_mean app_mean_of(double sum, double squares, uint64_t count) {
    const double n = (double)count, mean = sum / n;
    const double variance = squares / n - mean * mean; /* rounding may leave it below 0 */
    return (app_mean){.value = mean,
                      .error = count > 1 && variance > 0 ? sqrt(variance / (n - 1)) : 0};
}

static bool smaller(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b;
}

/* Between two places in proportion. */
static double at_rank(const app_divergence *d, double rank) {
    const double at = rank * (double)(d->count - 1);
    const uint64_t below = (uint64_t)at;
    if (below + 1 >= d->count) return d->each[d->count - 1];
    const double part = at - (double)below;
    return (1 - part) * d->each[below] + part * d->each[below + 1];
}

app_divergence_result app_divergence_end(app_divergence *d) {
    const double n = (double)d->count, same = (double)d->same_top;
    app_divergence_result r = {.divergence = app_mean_of(d->sum, d->squares, d->count),
                               .base_nll = app_mean_of(d->base_nll, d->base_squares, d->count),
                               .ln_ratio = app_mean_of(d->ratio, d->ratio_squares, d->count),
                               .change = app_mean_of(d->change, d->change_squares, d->count),
                               .change_rms = sqrt(d->change_squares / n),
                               .same_top = app_mean_of(same, same, d->count),
                               .same_bits = d->same_bits,
                               .count = d->count};
    rm_sort(d->each, d->count, sizeof *d->each, smaller);
    for (int i = 0; i < APP_DIVERGENCE_RANKS; i++)
        r.rank[i] = at_rank(d, app_divergence_ranks[i]);
    return r;
}
