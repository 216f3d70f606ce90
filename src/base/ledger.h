/*
 * ledger.h: the only place memory comes from. Part: base.
 *
 * One range of addresses is reserved at start and carved into sections. Every byte has an owner.
 *
 *     [ text .. | weights .. | kv .. | work .. |      free      ]   + program, held back
 *
 * `program` is what is not ours to hand out: the binary, libc, thread stacks. It is measured, then
 * held back from the budget.
 *
 * Life:  MEASURE --carve*--> (sum)            the same layout code predicts ...
 *        BUILD   --carve*--> freeze --> FROZEN ... and then takes the memory
 *
 * After rm_ledger_freeze() a carve is a bug and aborts. What still moves moves inside a section:
 * rm_pool (equal blocks: pages), rm_scratch (a stack). Before it, work that needs memory for a
 * moment (tokenizing a prompt) borrows the free end and gives it back.
 */
#ifndef RM_BASE_LEDGER_H
#define RM_BASE_LEDGER_H

#include "base/check.h"

#include <stdbool.h>

/* One row per owner: the enum, the JSON name and the order of the report come from this list. */
#define RM_ACCOUNTS(X)                                                                             \
    X(PROGRAM, "program")             /* binary, libraries, stacks: measured, not carved */        \
    X(WEIGHTS, "weights")             /* resident weights, interleaved for the kernels */          \
    X(WEIGHT_STREAM, "weight_stream") /* buffers of layers that pass through */                    \
    X(KV, "kv")                       /* the page pool and its tables */                           \
    X(KV_STAGE, "kv_stage")           /* pages on their way from or to disk */                     \
    X(ROWS, "rows")                   /* hidden states and row lists of a sweep */                 \
    X(WORK, "work")                   /* one chunk's activations, per-thread scratch */            \
    X(LOGITS, "logits")               /* logits and sampling */                                    \
    X(IO, "io")                       /* file buffers */                                           \
    X(TEXT, "text")                   /* file index and tokenizer */                               \
    X(SERVER, "server")               /* connections */

typedef enum rm_account {
#define X(id, name) RM_ACCOUNT_##id,
    RM_ACCOUNTS(X)
#undef X
        RM_ACCOUNT_COUNT
} rm_account;

typedef struct rm_ledger {
    enum { RM_LEDGER_MEASURE, RM_LEDGER_BUILD, RM_LEDGER_FROZEN } phase;
    uint8_t *base;        /* NULL while measuring */
    uint64_t reserved;    /* bytes of address space at base */
    uint64_t budget;      /* bytes of the whole process, program included */
    uint64_t carved;      /* sum of owned[] without program */
    uint64_t carve_count; /* carves so far; tests fail the n-th one */
    uint64_t fail_at;     /* 0 = never */
    bool borrowed;
    uint64_t owned[RM_ACCOUNT_COUNT];
} rm_ledger;

/* Counts only: every carve succeeds, returns NULL and adds to the sum. */
void rm_ledger_measure(rm_ledger *l);

/* Reserves budget bytes of addresses, of which program_bytes are held back from carving.
 * Errors: REMAT_E_BUDGET. */
int rm_ledger_open(rm_ledger *l, uint64_t budget, uint64_t program_bytes, remat_error *err);

/* Corrects what the program takes, once that is better known. Only before the freeze.
 * Errors: REMAT_E_BUDGET when it no longer fits beside what is carved. */
int rm_ledger_set_program(rm_ledger *l, uint64_t program_bytes, remat_error *err);

/* Takes count * size bytes, 64-byte aligned, zeroed, for the account. *out is NULL while measuring.
 * Fails with REMAT_E_BUDGET when it does not fit; the message names the account. */
int rm_ledger_carve(void *out, rm_ledger *l, rm_account account, uint64_t count, uint64_t size,
                    remat_error *err);

/* The same, aligned to 4096 bytes: memory that the disk reads into and writes from. */
int rm_ledger_carve_pages(void *out, rm_ledger *l, rm_account account, uint64_t count,
                          uint64_t size, remat_error *err);

/* Bytes that rm_ledger_borrow() could lend now. */
uint64_t rm_ledger_room(const rm_ledger *l);

/* Lends the free end for a moment: page-aligned, contents undefined. One loan at a time, no carve
 * while it is out; the memory goes back to the system when it is returned.
 * Errors: REMAT_E_BUDGET, with what would have been enough in minimum_bytes. */
int rm_ledger_borrow(void *out, rm_ledger *l, uint64_t bytes, remat_error *err);
void rm_ledger_return(rm_ledger *l);

/* Asks for huge pages (2 MiB) where they lie wholly inside carved memory that will be written from
 * end to end: fewer translations for weights, and not a byte more resident. */
void rm_ledger_huge_pages(const rm_ledger *l, void *first, uint64_t bytes);

/* Gives whole pages (4096 bytes) inside carved memory back to the system: they read as zeros until
 * they are written again. The account keeps the addresses. */
void rm_ledger_discard(const rm_ledger *l, void *first, uint64_t bytes);

/* Makes all that is carved resident now: what was promised is then what is taken, and no step meets
 * a page that is not there. */
void rm_ledger_populate(const rm_ledger *l);

/* Ends the building phase. */
void rm_ledger_freeze(rm_ledger *l);
void rm_ledger_close(rm_ledger *l);

/* Program and all sections. */
uint64_t rm_ledger_total(const rm_ledger *l);

const char *rm_account_name(rm_account account);

/* Test hook: the n-th carve from now on fails (1 = the next one, 0 = none). */
void rm_ledger_fail_at(rm_ledger *l, uint64_t n);

#endif /* RM_BASE_LEDGER_H */
