/*
 * twins.h: two engines of one model that get the same tokens: one with all memory in the world, one
 * with a setup that is to be proved. After every step their logits must be the same bits, and so
 * must every hidden state that both have computed, also the ones that ran again.
 *
 * Steps are several sequences at once; sequences go back (truncate) and begin again (reopen), and
 * may be idle. A step of the second one may be disturbed: canceled, or by faults of its disk. What
 * fails must leave its sequences as they were; then it is done again, without the disturbance.
 */
#ifndef RM_TESTS_TWINS_H
#define RM_TESTS_TWINS_H

#include "engine_fixture.h"

enum { TWINS = 3 }; /* sequences at most */

typedef struct twins {
    const tiny_spec *spec;
    char path[64];
    int fd;
    remat_engine *free, *tight; /* the one without limits; the one to be proved */
    remat_sequence *a[TWINS], *b[TWINS];
    record of_a[TWINS], of_b[TWINS]; /* of what the sequences have now */
    recorder ra, rb;
    uint32_t sequences, context;
    uint64_t stream; /* of the next tokens */

    /* Set by the caller; they count for one step. */
    uint64_t cancel_at; /* the n-th call of progress in the step; 0: never */
    uint64_t fault_at;  /* the n-th transfer that `fault` is about; 0: none */
    rm_io_fault fault;
    bool no_disk; /* all that is written is refused, all that is read is wrong */

    uint64_t calls;                /* of progress, in the last disturbed step */
    uint32_t canceled, failed;     /* steps of the tight one that ended like this */
    uint32_t warnings;             /* calls of options.warning */
    uint64_t compared;             /* cells, in all */
    char last_error[256];          /* of the last step that failed */
    char why[WHY_MAX];             /* the first thing that was not as it must be, or empty */
    char config[CONFIG_TEXT + 64]; /* the tight one's, for `why` */
} twins;

/* Opens the model and its free engine. */
bool twins_open(twins *t, const tiny_spec *spec, uint32_t sequences, uint32_t context, remat_kv kv);
void twins_close(twins *t);

/* Starts (again) with a tight engine, which has the same sequences and context; all are empty. */
bool twins_start(twins *t, const run_config *c);

/* Appends counts[i] new tokens to sequence i, in one step; as many as fit the context. */
bool twins_step(twins *t, const uint32_t counts[TWINS]);

/* Goes back to count tokens, if there are more. */
void twins_truncate(twins *t, uint32_t sequence, uint32_t count);

/* Closes a sequence and opens it again. */
bool twins_reopen(twins *t, uint32_t sequence);

/* Scores count tokens with sequence i, which is emptied for it: every logit, each once and in
 * order. */
bool twins_score(twins *t, uint32_t sequence, uint32_t count);

/* A setup with little of everything: pages over the least, layers whose weights stay. */
run_config tight_config(uint32_t context, remat_cold cold, given_rows rows, uint32_t units,
                        uint32_t pages);

/* A model whose cache is large for its weights. */
tiny_spec wide_spec(void);

uint32_t twins_count(const twins *t, uint32_t sequence);
remat_stats twins_stats(const twins *t);

#endif /* RM_TESTS_TWINS_H */
