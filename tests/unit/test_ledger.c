/* test_ledger.c: the budget's own promises. */
#include "base/ledger.h"
#include "harness.h"
#ifndef RM_SANITIZED
#include "no_malloc.h"
#endif

enum { MIB = 1 << 20 };

/* Stands for a part: one layout function, used to predict and to build. */
typedef struct {
    float *work;
    uint8_t *pages;
} part;

static int part_layout(part *p, rm_ledger *l, uint64_t page_count, remat_error *err) {
    RM_TRY(rm_ledger_carve(&p->work, l, RM_ACCOUNT_WORK, 1000, sizeof(float), err));
    RM_TRY(rm_ledger_carve(&p->pages, l, RM_ACCOUNT_KV, page_count, 4096, err));
    return REMAT_OK;
}

static void measured_is_what_is_taken(void) {
    rm_ledger plan, real = {0};
    part p;
    remat_error err = {0};
    rm_ledger_measure(&plan);
    REQUIRE(part_layout(&p, &plan, 100, &err) == REMAT_OK);
    EXPECT(p.work == NULL && p.pages == NULL);
    REQUIRE(rm_ledger_open(&real, 4 * MIB, MIB, &err) == REMAT_OK);
    REQUIRE(part_layout(&p, &real, 100, &err) == REMAT_OK);
    for (int a = RM_ACCOUNT_PROGRAM + 1; a < RM_ACCOUNT_COUNT; a++) {
        EXPECT_EQ_U64(real.owned[a], plan.owned[a]);
    }
    EXPECT_EQ_U64(rm_ledger_total(&real), rm_ledger_total(&plan) + MIB);
    EXPECT(((uintptr_t)p.work & 63) == 0 && p.pages[4096 * 100 - 1] == 0);
    rm_ledger_close(&real);
}

static void too_much_is_refused_and_named(void) {
    rm_ledger l = {0};
    part p;
    remat_error err = {0};
    REQUIRE(rm_ledger_open(&l, 2 * MIB, MIB, &err) == REMAT_OK);
    EXPECT(part_layout(&p, &l, 1000, &err) == REMAT_E_BUDGET);
    EXPECT(strstr(err.message, "kv") != NULL);
    err.message[0] = '\0';
    EXPECT(part_layout(&p, &l, UINT64_MAX / 8, &err) == REMAT_E_BUDGET); /* the product wraps */
    EXPECT(strstr(err.message, "kv") != NULL);
    EXPECT(rm_ledger_total(&l) <= l.budget);
    rm_ledger_close(&l);
}

/* Fails carve 1, 2, 3 .. until the layout succeeds: every error path has run once. */
static void every_carve_may_fail(void) {
    for (uint64_t n = 1;; n++) {
        rm_ledger l = {0};
        part p;
        remat_error err = {0};
        REQUIRE(rm_ledger_open(&l, 4 * MIB, MIB, &err) == REMAT_OK);
        rm_ledger_fail_at(&l, n);
        const int status = part_layout(&p, &l, 100, &err);
        rm_ledger_close(&l);
        if (status == REMAT_OK) {
            EXPECT_EQ_U64(n, 3); /* 2 carves, so the third run is the clean one */
            return;
        }
        REQUIRE(status == REMAT_E_BUDGET && err.message[0] != '\0');
    }
}

static void a_loan_uses_the_free_end_and_comes_back(void) {
    rm_ledger l = {0};
    part p;
    remat_error err = {0};
    uint8_t *loan = NULL, *again = NULL;
    REQUIRE(rm_ledger_open(&l, 4 * MIB, MIB, &err) == REMAT_OK);
    REQUIRE(part_layout(&p, &l, 100, &err) == REMAT_OK);
    const uint64_t before = rm_ledger_total(&l);
    REQUIRE(rm_ledger_borrow(&loan, &l, MIB, &err) == REMAT_OK);
    EXPECT(((uintptr_t)loan & 4095) == 0);
    EXPECT(loan >= p.pages + 100 * 4096);
    memset(loan, 0xa5, MIB);
    rm_ledger_return(&l);
    EXPECT_EQ_U64(rm_ledger_total(&l), before);

    /* A section carved where the loan was is zeroed as any other. */
    uint8_t *section = NULL;
    REQUIRE(rm_ledger_carve(&section, &l, RM_ACCOUNT_WORK, 8192, 1, &err) == REMAT_OK);
    for (int i = 0; i < 8192; i++)
        REQUIRE(section[i] == 0);
    REQUIRE(rm_ledger_borrow(&again, &l, 4096, &err) == REMAT_OK);
    EXPECT(again >= section + 8192);
    rm_ledger_return(&l);
    rm_ledger_close(&l);
}

static void a_loan_too_large_says_what_would_do(void) {
    rm_ledger l = {0};
    part p;
    remat_error err = {0};
    uint8_t *loan = NULL;
    REQUIRE(rm_ledger_open(&l, 2 * MIB, MIB, &err) == REMAT_OK);
    REQUIRE(part_layout(&p, &l, 100, &err) == REMAT_OK);
    EXPECT(rm_ledger_borrow(&loan, &l, MIB, &err) == REMAT_E_BUDGET);
    EXPECT(err.message[0] != '\0' && loan == NULL);
    const uint64_t minimum = err.minimum_bytes;
    EXPECT(minimum > 2 * MIB);
    rm_ledger_close(&l);

    REQUIRE(rm_ledger_open(&l, minimum, MIB, &err) == REMAT_OK);
    REQUIRE(part_layout(&p, &l, 100, &err) == REMAT_OK);
    EXPECT(rm_ledger_borrow(&loan, &l, MIB, &err) == REMAT_OK);
    loan[MIB - 1] = 1;
    rm_ledger_return(&l);
    rm_ledger_fail_at(&l, 1);
    EXPECT(rm_ledger_borrow(&loan, &l, 1, &err) == REMAT_E_BUDGET); /* a loan can be failed too */
    rm_ledger_close(&l);
}

static void program_can_be_corrected(void) {
    rm_ledger l = {0};
    part p;
    remat_error err = {0};
    REQUIRE(rm_ledger_open(&l, 2 * MIB, MIB, &err) == REMAT_OK);
    REQUIRE(part_layout(&p, &l, 100, &err) == REMAT_OK);
    EXPECT(rm_ledger_set_program(&l, MIB / 2, &err) == REMAT_OK);
    EXPECT_EQ_U64(l.owned[RM_ACCOUNT_PROGRAM], MIB / 2);
    EXPECT(rm_ledger_set_program(&l, 2 * MIB - l.carved, &err) == REMAT_OK); /* exactly full */
    EXPECT_EQ_U64(rm_ledger_total(&l), 2 * MIB);
    EXPECT(rm_ledger_set_program(&l, 2 * MIB - l.carved + 1, &err) == REMAT_E_BUDGET);
    EXPECT_EQ_U64(err.minimum_bytes, 2 * MIB + 1);
    EXPECT_EQ_U64(rm_ledger_total(&l), 2 * MIB); /* a refused correction changes nothing */
    rm_ledger_freeze(&l);
    rm_ledger_close(&l);
    EXPECT(rm_ledger_open(&l, MIB, 2 * MIB, &err) == REMAT_E_BUDGET);
    rm_ledger_close(&l);
}

#ifndef RM_SANITIZED
static int order(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void hidden_heap_use_is_seen(void) {
    static int small[64], large[4096];
    no_malloc_begin();
    qsort(small, 64, sizeof *small, order);
    EXPECT_EQ_U64(no_malloc_end(), 0);
    no_malloc_begin();
    qsort(large, 4096, sizeof *large, order); /* glibc 2.36 takes a buffer from the heap */
    EXPECT(no_malloc_end() > 0);
}
#endif

int main(int argc, char **argv) {
    return RM_RUN(argc, argv, T(measured_is_what_is_taken), T(too_much_is_refused_and_named),
                  T(every_carve_may_fail), T(a_loan_uses_the_free_end_and_comes_back),
                  T(a_loan_too_large_says_what_would_do), T(program_can_be_corrected),
#ifndef RM_SANITIZED
                  T(hidden_heap_use_is_seen),
#endif
    );
}
