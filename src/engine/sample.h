/*
 * sample.h: one token from a row of logits. Part: engine.
 *
 * In this order, as the field does: logit bias, penalties (repeat: Keskar et al., 2019; frequency
 * and presence), top-k, top-p (Holtzman et al., 2019), min-p (Nguyen et al., 2024), temperature,
 * draw. The vocabulary is not sorted: each filter keeps a run of the best, so as many as are needed
 * are selected. Ties go to the lowest id everywhere, so that a seed gives one text on any machine.
 */
#ifndef RM_ENGINE_SAMPLE_H
#define RM_ENGINE_SAMPLE_H

#include "base/random.h"
#include "kernels/kernels.h"

typedef struct rm_candidate {
    uint32_t id;
    float logit; /* later: a weight relative to the best */
} rm_candidate;

/* Errors: REMAT_E_USAGE naming the number that is out of range. */
int rm_sampling_check(const remat_sampling *s, uint32_t vocabulary, remat_error *err);

/* Work memory: vocabulary entries each, whatever they hold. */
typedef struct rm_sample_space {
    const rm_kernels *kernels;
    rm_candidate *candidates;
    uint32_t *counts;
} rm_sample_space;

/* Draws a token. logits are finite. recent: the sequence's tokens, the newest last. */
uint32_t rm_sample(const float *logits, uint32_t vocabulary, const remat_sampling *s,
                   const uint32_t *recent, uint32_t recent_count, const rm_sample_space *space,
                   rm_random *random);

#endif /* RM_ENGINE_SAMPLE_H */
