/*
 * plan.h: what fits, and what of it is fastest. Part: engine.
 *
 * A SETUP is every number that sizes a section. The planner tries setups on a measuring ledger with
 * the same layout code that later takes the memory, so the two cannot drift apart; of those that
 * fit the budget it takes the one that the cost model (cost.c) finds fastest.
 *
 *     weights   all resident, or none but what the budget leaves room for: the others are streamed
 *     cache     whole, or a pool: what does not fit goes to disk, or is dropped
 *     rows      hidden states of a chunk (when no token ever runs again and no weight is streamed),
 *               of all tokens, or of three chunks with the others in the spill file
 *     chunk     rows that pass a layer together
 *     tight     small buffers for what is read ahead, or comfortable ones
 */
#ifndef RM_ENGINE_PLAN_H
#define RM_ENGINE_PLAN_H

#include "cache/page.h"
#include "engine/rates.h"
#include "model/model.h"
#include "remat.h"

typedef struct rm_setup {
    uint32_t context_count, sequence_count;
    uint32_t column_count;     /* pages of a sequence's context, in one layer */
    uint32_t page_count;       /* blocks of the pool */
    uint32_t stage_count;      /* slots for spilled pages; 0: pages are never spilled */
    uint32_t resident_columns; /* of a sequence at most: limits.resident_count */
    uint32_t keep_count;
    uint32_t run_max, row_max; /* row_max 0: hidden states are spilled */
    uint32_t chunk_rows, logits_rows;
    uint32_t unit_count; /* resident units of weights: the first of rm_plan_unit() */
    uint64_t raw_bytes;  /* of the ring for streamed weights */
    uint32_t output_strips;
    remat_cold cold;           /* not AUTO */
    uint32_t drop_columns;     /* with SPILL: of a sequence, the first ones, which are dropped */
    uint32_t checkpoint_layer; /* with CHECKPOINT; else 0 */
    uint32_t kept_count;       /* blocks of inputs or checkpoints */
    bool spill_reserved;       /* the file's blocks are there from the start */
    bool elastic;              /* pages may have to be given up later: `auto` */
    remat_recompute recompute;
    remat_kv kv;
    uint64_t text_bytes, spill_bytes;
} rm_setup;

/* Rates by format of weights; what does not depend on it is the same in all. */
typedef struct rm_rate_table {
    rm_rates of[RM_FORMAT_COUNT];
} rm_rate_table;

/* What the spill directory is good for. */
typedef enum rm_disk {
    RM_DISK_NONE,
    RM_DISK_SMALL, /* it may run full: memory has to be enough without it */
    RM_DISK_WHOLE, /* all that can be spilled has its place reserved */
} rm_disk;

/* The resident size of the program differs by this much from run to run. */
enum { RM_PLAN_MARGIN_BYTES = 896 << 10 };

typedef struct rm_planned {
    rm_setup setup;
    uint64_t minimum_bytes; /* with a margin: another process may be a little larger */
    uint64_t full_bytes;    /* without one */
    /* Of setup; 0 when the budget is too small. What is carved for hard times only is left out. */
    uint64_t total_bytes;
    uint64_t account_bytes[REMAT_ACCOUNTS];
    double prefill_s, token_s; /* estimates with setup */
} rm_planned;

/* What there is to plan with. */
typedef struct rm_means {
    rm_disk disk;
    const rm_rate_table *rates;
    uint64_t budget_bytes, program_bytes;
    bool follows; /* memory may have to be given back later */
} rm_means;

/* Chooses a setup for the budget. Errors: REMAT_E_USAGE (a limit out of range). A budget that is
 * too small is no error here: total_bytes is 0 and minimum_bytes says what would do. */
int rm_plan(rm_planned *out, remat_engine *e, const remat_limits *limits, const rm_means *means,
            remat_error *err);

/* What a setup takes by account, what is carved already included. */
int rm_plan_measure(uint64_t *out, rm_ledger *l, remat_engine *e, const rm_setup *s,
                    remat_error *err);

/* The unit of weights that is made resident as number `index` (0: the first): layers spread over
 * the whole model, so that streamed ones are read while resident ones compute; the output; and an
 * embedding of its own last, of which a sweep reads few rows. */
uint32_t rm_plan_unit(const rm_model *m, uint32_t index);

/* Whether a setup uses the spill file, and what is reserved in it. */
bool rm_setup_spills(const rm_setup *s);

/* Whether nothing has to leave memory: all weights are resident, and the cache is whole. */
bool rm_setup_whole(const rm_setup *s, const rm_model *m);

/* Whether all rows of a context fit one sweep, so that dropped tokens can run again. */
bool rm_setup_holds_rows(const rm_setup *s);

rm_spill_shape rm_setup_spill(const rm_setup *s, const rm_model *m);
rm_cache_shape rm_setup_cache(const rm_setup *s, const rm_model *m);

/* What is kept in place of cold pages: places, and bytes of a block; 0 places: nothing. */
uint64_t rm_setup_kept(uint64_t *block_bytes, const rm_setup *s, const rm_model *m);

/* --- the cost model (cost.c) ------------------------------------------------------------------ */

typedef struct rm_cost {
    double prefill_s; /* a prompt that fills the context */
    double token_s;   /* a token at the end of it */
    bool again;       /* for which tokens of the past run again */
} rm_cost;

/* Seconds with a setup: what arithmetic, memory and disk take, of which what runs side by side
 * counts once. */
rm_cost rm_cost_of(const rm_setup *s, const rm_model *m, const rm_rate_table *rates);

/* The formats that a model has much of, those with most bytes first; returns how many. */
enum { RM_MAIN_FORMATS = 4 };
uint32_t rm_main_formats(rm_format out[RM_MAIN_FORMATS], const rm_model *m);

/* Rates of a middling machine, where none could be measured. */
rm_rate_table rm_rates_guess(void);

#endif /* RM_ENGINE_PLAN_H */
