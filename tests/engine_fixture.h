/*
 * engine_fixture.h: engines for tests, and the recorder that proves "one answer".
 *
 * A record keeps a hash of every row's hidden state after every layer, by position, and of the
 * logits after every position that had any. Two runs that saw the same tokens must agree wherever
 * both know something; the first difference, in the order of cause (layer, then position), says
 * where to look. A row that runs again must also repeat itself: that is checked while recording.
 */
#ifndef RM_TESTS_ENGINE_FIXTURE_H
#define RM_TESTS_ENGINE_FIXTURE_H

#include "engine/engine.h"
#include "tiny_model.h"

/* Where hidden states of a prompt are. */
typedef enum given_rows { GIVEN_CHUNK, GIVEN_MEMORY, GIVEN_DISK } given_rows;

/*
 * A setup that is given instead of planned: the smallest one of a small spill disk's limits, with
 * these changes. So a test reaches, with a few thousand tokens of a small model, what a planner
 * takes for a large one. limits.cold is not AUTO.
 */
typedef struct given_setup {
    bool given;
    given_rows rows;     /* GIVEN_CHUNK: only with SPILL */
    uint32_t more_pages; /* of the pool, over the least */
    uint32_t units;      /* of weights that are resident, in eighths of all; of blocks kept, too */
    uint32_t drop_columns; /* with SPILL: dropped all the same */
    bool roomy;            /* not the smallest stage and rings */
} given_setup;

/* How an engine is opened and started. */
typedef struct run_config {
    const char *kernels; /* NULL: the best */
    uint32_t threads;
    uint64_t memory; /* 0: 1 GiB */
    remat_limits limits;
    given_setup setup;
    remat_warning_fn *warning;   /* or NULL */
    remat_progress_fn *progress; /* or NULL */
    void *user;                  /* of both */
} run_config;

/* One thread, one sequence, defaults otherwise. */
run_config run_config_default(uint32_t context_count);

/* One line for messages. */
enum { CONFIG_TEXT = 256 };
void run_config_text(char out[CONFIG_TEXT], const run_config *c);

/* Test engines spill into a directory of their own, and measure no machine. Called by what opens
 * engines here; who calls remat_open() itself calls it first. At exit the directory has to be
 * empty: else the program ends with status 1. */
const char *engine_spill_dir(void);

/* Opens and starts. On failure everything is closed again and err says why. */
int engine_start(remat_engine **out, const char *path, const run_config *c, remat_error *err);

/* Opens and plans only, under 1 GiB or c->memory. */
int engine_plan(remat_plan *out, const char *path, const run_config *c, remat_error *err);

/* Sets that this CPU can run, best first; NULL ends the list. */
const char *const *kernel_sets(void);

/* --- recording -------------------------------------------------------------------------------- */

typedef struct record {
    uint32_t layer_count, position_count;
    uint64_t *hidden; /* [layer][position]; 0: not known */
    uint64_t *logits; /* [position]; 0: not known */
    bool repeated_differently;
    uint32_t repeated_layer, repeated_position; /* layer_count: the logits */
} record;

void record_open(record *r, uint32_t layer_count, uint32_t position_count);
void record_close(record *r);
void record_logits(record *r, uint32_t position, const float *logits, uint32_t vocabulary);

/* One hash over the logits after positions first .. last - 1, all of them known (else 0). */
uint64_t record_hash(const record *r, uint32_t first, uint32_t last);

enum { RECORDED_SEQUENCES_MAX = 8 };

/* What an engine's sweeps write to. Outlives the engine's use of it. */
typedef struct recorder {
    remat_engine *engine;
    record *of_sequence[RECORDED_SEQUENCES_MAX]; /* by the sequence's index; NULL: nothing */
} recorder;

void recorder_attach(recorder *r, remat_engine *e);
void recorder_follow(recorder *r, const remat_sequence *s, record *to);

typedef struct difference {
    bool found;
    uint32_t layer, position; /* layer == layer_count: only the logits differ */
    uint64_t compared;        /* cells that both runs know */
    char text[160];           /* "layer 2, position 100: ..." */
} difference;

/* The first difference between two records, or one that a record had with itself. */
difference record_compare(const record *a, const record *b);

/* --- feeding ---------------------------------------------------------------------------------- */

/* Appends tokens first .. last - 1 to s in pieces of the given sizes, over and over (0 ends the
 * list; an empty list: one piece). Logits after each piece are recorded. */
int feed(remat_engine *e, remat_sequence *s, record *to, const uint32_t *tokens, uint32_t first,
         uint32_t last, const uint32_t *pieces, remat_error *err);

/* Logits of all of tokens by one scoring call; s is empty and stays so. */
int feed_scored(remat_engine *e, remat_sequence *s, record *to, const uint32_t *tokens,
                uint32_t count, remat_error *err);

/* --- one answer ------------------------------------------------------------------------------- */

/* A model, its tokens, and the record of the run that all others are compared with. */
typedef struct subject {
    const tiny_spec *spec;
    char path[64];
    int fd;
    uint32_t *tokens;
    uint32_t count, alone; /* of tokens; the last `alone` are appended one at a time */
    record first;
    uint32_t runs;
} subject;

/* tokens: count of them, of that stream (tiny_tokens). */
bool subject_open(subject *s, const tiny_spec *spec, uint32_t count, uint32_t alone,
                  uint64_t stream);
void subject_close(subject *s);

/* Ways to cut a prompt into pieces; see feed(). 0: one piece. */
enum { CUT_ONE_PIECE, CUT_ODD, CUT_SMALL, CUT_ONE_BY_ONE, CUT_COUNT };
extern const uint32_t *const cuts[CUT_COUNT];

/* Ways of tokens and weights that did not stay. */
enum { BY_DROPPING = 1, BY_SPILLING = 2, BY_STREAMING = 4, BY_ANY = 7 };

/* One engine and one sequence that gets a subject's tokens. */
typedef struct same_run {
    run_config config;
    uint32_t cut;   /* of the tokens that are not appended alone */
    uint32_t count; /* of the subject's tokens; 0: all */
    bool score;     /* then all logits once more, by scoring */
    unsigned saves; /* memory, by one of these: it has to show that it did */
} same_run;

/* These return false when something was not as it must be, and say what. */
enum { WHY_MAX = 512 };

/* The run that others are compared with: alone, one thread, all in one piece, and scored, so that
 * it knows the logits of every position; no two neighbours may have the same. */
bool same_first(char why[WHY_MAX], subject *s, remat_kv kv);

/* Another run, compared with the first. */
bool same_check(char why[WHY_MAX], subject *s, const same_run *run);

/* The first run's settings. */
run_config same_config(const subject *s, remat_kv kv);

/* The index-th way to run with one setting moved away from the first run's: threads, chunks, kernel
 * sets but `ref`, dropping, spilling, streaming, pieces, rows of logits, budgets. False behind the
 * last. */
bool same_way(same_run *out, const subject *s, remat_kv kv, uint32_t index);

/* A budget that is so many quarters of the way from the smallest that works to the one that holds
 * everything. */
void give_budget(run_config *c, const subject *s, uint32_t quarter);

enum { BATCH_STREAMS = 4 };

/* Sequences of the same model side by side, each of which must be as it is alone. */
typedef struct batch {
    subject s[BATCH_STREAMS];
    record now[BATCH_STREAMS];
    remat_engine *e;
    recorder r;
    remat_sequence *q[BATCH_STREAMS];
    uint32_t done[BATCH_STREAMS]; /* tokens appended */
    remat_error err;
    char why[WHY_MAX]; /* the first thing that was not as it must be; else empty */
} batch;

/* Stream i has counts[i] tokens, at most those of stream 0. To be closed in any case. */
bool batch_open(batch *b, const tiny_spec *spec, const run_config *c,
                const uint32_t counts[BATCH_STREAMS]);

/* Opens the stream's sequence. */
void batch_sequence(batch *b, int stream);

/* Up to n[i] tokens more for each stream that is open, in one call. False when nothing was left to
 * do, or after an error. */
bool batch_step(batch *b, const uint32_t n[BATCH_STREAMS]);

/* Compares each stream with its run alone. */
bool batch_compare(batch *b);
void batch_close(batch *b);

/* --- the process ------------------------------------------------------------------------------ */

/* Open descriptors of this process. */
unsigned open_descriptors(void);

/* The SmolLM2 file under models/ (98362432 bytes), or NULL. Needs the repository as the working
 * directory. */
const char *smollm2_path(void);

#endif /* RM_TESTS_ENGINE_FIXTURE_H */
