/*
 * engine.h: the engine's insides, shared by the files of this folder. Part: engine.
 *
 * remat_open() makes the engine inside its own ledger and fills it up to the tokenizer;
 * remat_start() plans (plan.c), carves the rest, starts threads and reads the weights.
 */
#ifndef RM_ENGINE_ENGINE_H
#define RM_ENGINE_ENGINE_H

#include "engine/allowance.h"
#include "engine/plan.h"
#include "engine/route.h"
#include "engine/sample.h"
#include "engine/session.h"
#include "engine/sweep.h"
#include "text/tokenizer.h"

#include <signal.h>
#include <stdatomic.h>

struct remat_sequence {
    remat_engine *engine;
    uint32_t index;
    bool open;
    uint32_t count;   /* tokens */
    uint32_t *tokens; /* context_count ids */
    float *logits;    /* after the last token; vocabulary */
    uint16_t *cold;   /* of each column: so many lowest layers are not kept in memory (policy.h) */
};

enum {
    /* What the process will still touch after the measurement at start: code not yet run, the
     * command's output, stacks. Measured: under 0.5 MiB, and 40 KiB a thread. */
    RM_GROWTH_BYTES = 768 << 10,
    RM_GROWTH_THREAD_BYTES = 64 << 10,
    RM_NOISE_BYTES = 256 << 10, /* differences between two measurements that mean nothing */
};

struct remat_engine {
    remat_options options;
    rm_ledger ledger;
    rm_file file;
    rm_gguf gguf;
    rm_model model;
    rm_tokenizer *tokenizer;  /* NULL with index_only, and of a described model */
    uint64_t parameter_count; /* of a described model; else 0 */
    const rm_kernels *kernels;
    uint32_t thread_count;
    char path[128];               /* the end of it: file.path, for messages */
    uint64_t program_bytes;       /* measured once: a plan and the start after it agree */
    uint64_t claimed_bytes;       /* of the caller: remat_claim() */
    uint64_t open_resident_bytes; /* of the process, before anything was carved */
    atomic_bool cancel;
    /* From remat_start() on: */
    bool started;
    bool ready; /* the weights are there */
    rm_setup setup;
    rm_threads *threads;
    void *thread_memory;
    uint8_t *stage;
    rm_cache cache;
    rm_spill spill;
    rm_stream stream;
    rm_sweep sweep;
    rm_route route;
    uint64_t page_limit; /* blocks of the pool that may be used now */
    rm_allowance allowance;
    uint8_t *units;      /* of the model: is it resident? (rm_unit_count() flags) */
    char spill_dir[512]; /* "": nothing is spilled */
    bool spill_dir_make; /* it is the default one */
    bool spill_warned;
    rm_rate_table rates; /* measured, when rates_known */
    bool rates_known;
    remat_sequence *sequences;
    rm_sample_space sample_space;
    rm_session session;
    char *detok_memory;
    uint8_t *text_work; /* setup.text_bytes */
    uint64_t predicted_peak_bytes;
    double load_s;
    uint64_t sweep_count, row_count, recomputed_tokens, healed_count;
};

/* Memory for text: the ledger's free end before remat_start(), text_work after it. `most` bytes of
 * it at most; *bytes says how many. Errors: REMAT_E_BUDGET (under `least`), REMAT_E_USAGE. */
int rm_engine_text_memory(uint8_t **out, uint64_t *bytes, remat_engine *e, uint64_t least,
                          uint64_t most, remat_error *err);
void rm_engine_text_return(remat_engine *e);

/* Tells the caller. */
void rm_engine_warn(const remat_engine *e, const char *message);

/* Tells the caller of the first trouble with the spill file, once. */
void rm_engine_warn_spill(remat_engine *e);

/* Gives up all pages behind the sequence's tokens, and what is kept in their place. */
void rm_sequence_empty(remat_sequence *s);

/* What a plan is made for. follows: memory may have to be given back later; start: the spill file
 * is going to be made. */
typedef struct rm_want {
    uint64_t budget_bytes;
    bool follows, start;
} rm_want;

/* Plans with the disk that there is. Errors: REMAT_E_USAGE. */
int rm_engine_plan(rm_planned *out, remat_engine *e, const remat_limits *limits,
                   const rm_want *want, remat_error *err);

/* Everything that remat_start() takes, carved in the order of use (layout.c). */
int rm_engine_layout(remat_engine *e, rm_ledger *l, const rm_setup *setup, remat_error *err);

/* remat_start() from a plan on: takes the memory and reads the weights. Tests have setups of their
 * own. */
int rm_engine_start(remat_engine *e, const rm_planned *plan, remat_error *err);

/* Who gets logits of a step's tokens, from its first-th on. */
typedef struct rm_rows_wanted {
    rm_logits_fn *fn;
    void *user;
    uint32_t first;
    bool forget; /* not those of the last token; and the tokens are taken back afterwards */
} rm_rows_wanted;

/* Appends the tokens of the steps (sequence.c). rows: NULL when those of remat_logits() will do. */
int rm_engine_advance(remat_engine *e, const remat_step *steps, uint32_t step_count,
                      const rm_rows_wanted *rows, remat_error *err);

#endif /* RM_ENGINE_ENGINE_H */
