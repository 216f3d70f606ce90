/*
 * divergence.h: how far one distribution over the next token is from a reference, summed up over
 * the places of a text. Part: app.
 *
 * With p of the reference and q of what is measured, both over the whole vocabulary, a place has
 * the Kullback-Leibler divergence sum p (ln p - ln q), in nats: 0 where they are equal. Beside it:
 * what happened to the probability of the token that is really there, and whether the likeliest
 * token is the same. The figures and their errors are those of llama.cpp's --kl-divergence.
 */
#ifndef RM_APP_DIVERGENCE_H
#define RM_APP_DIVERGENCE_H

#include "remat.h"

typedef struct app_divergence {
    double *each;   /* of each place so far; the caller's, room for all */
    uint64_t count; /* places */
    double sum, squares;
    double base_nll, base_squares; /* of the tokens that are there, by the reference */
    double ratio, ratio_squares;   /* ln of the probability by q over that by p, of the same */
    double change, change_squares; /* their difference */
    uint64_t same_top, same_bits;  /* places; same_bits: every value is the same */
} app_divergence;

/* Adds a place: ln p, logits of q and the logarithm of the sum of their exponentials; token: the
 * one that is there. Returns the place's divergence. */
double app_divergence_add(app_divergence *d, const float *base, const float *logits, float log_sum,
                          uint32_t vocabulary, uint32_t token);

/* A mean and the standard error of it. */
typedef struct app_mean {
    double value, error;
} app_mean;

app_mean app_mean_of(double sum, double squares, uint64_t count);

enum { APP_DIVERGENCE_RANKS = 6 };
extern const double app_divergence_ranks[APP_DIVERGENCE_RANKS]; /* 1, .999, .99, ... */

typedef struct app_divergence_result {
    app_mean divergence;
    double rank[APP_DIVERGENCE_RANKS]; /* the divergence that so many places do not exceed */
    app_mean base_nll;                 /* mean negative log-likelihood by the reference */
    app_mean ln_ratio;                 /* of perplexities: of q over that of p */
    app_mean change;                   /* of the probability of the token that is there */
    double change_rms;
    app_mean same_top; /* the part of the places */
    uint64_t same_bits, count;
} app_divergence_result;

/* Sorts d->each; call it once. count is at least 1. */
app_divergence_result app_divergence_end(app_divergence *d);

#endif /* RM_APP_DIVERGENCE_H */
