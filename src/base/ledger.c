/* ledger.c: see ledger.h. The only file that calls mmap for memory. */
#include "base/ledger.h"
#include "base/poison.h"

#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { ALIGN = 64, PAGE = 4096, HUGE_PAGE = 2 << 20 };

void rm_ledger_measure(rm_ledger *l) {
    memset(l, 0, sizeof *l);
    l->phase = RM_LEDGER_MEASURE;
    l->budget = UINT64_MAX;
}

int rm_ledger_open(rm_ledger *l, uint64_t budget, uint64_t program_bytes, remat_error *err) {
    RM_ASSERT(l->base == NULL);
    memset(l, 0, sizeof *l);
    l->budget = budget;
    l->phase = RM_LEDGER_BUILD;
    RM_TRY(rm_ledger_set_program(l, program_bytes, err));
    /* Reserved, not touched: a page costs memory only once it is written. */
    void *p = mmap(NULL, budget, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return rm_fail(err, REMAT_E_BUDGET,
                       "budget: the system refuses to reserve %llu bytes; "
                       "give less",
                       (unsigned long long)budget);
    }
    /* Where the system's setting is `always`, one touched byte could make 2 MiB resident. */
    (void)madvise(p, budget, MADV_NOHUGEPAGE);
    l->base = p;
    l->reserved = budget;
    rm_poison(l->base, l->reserved);
    return REMAT_OK;
}

int rm_ledger_set_program(rm_ledger *l, uint64_t program_bytes, remat_error *err) {
    RM_ASSERT(l->phase == RM_LEDGER_BUILD);
    if (program_bytes > l->budget || l->carved > l->budget - program_bytes) {
        if (err != NULL) err->minimum_bytes = program_bytes + l->carved;
        return rm_fail(err, REMAT_E_BUDGET,
                       "budget: the program itself takes %llu bytes; give more",
                       (unsigned long long)program_bytes);
    }
    l->owned[RM_ACCOUNT_PROGRAM] = program_bytes;
    return REMAT_OK;
}

static uint64_t room(const rm_ledger *l) {
    return l->budget - l->owned[RM_ACCOUNT_PROGRAM] - l->carved;
}

int rm_ledger_carve(void *out, rm_ledger *l, rm_account account, uint64_t count, uint64_t size,
                    remat_error *err) {
    RM_ASSERT(l->phase != RM_LEDGER_FROZEN);
    RM_ASSERT(!l->borrowed);
    RM_ASSERT(account > RM_ACCOUNT_PROGRAM && account < RM_ACCOUNT_COUNT);
    RM_ASSERT(size > 0);

    uint64_t bytes, whole = 0;
    bool bad = __builtin_mul_overflow(count, size, &bytes) || bytes > UINT64_MAX - 2 * ALIGN;
    if (!bad && bytes > 0) whole = ((bytes + ALIGN - 1) & ~(uint64_t)(ALIGN - 1)) + RM_RED_ZONE;
    const bool injected = ++l->carve_count == l->fail_at;
    if (bad || injected || whole > room(l)) {
        return rm_fail(err, REMAT_E_BUDGET, "budget: no room for %llu x %llu bytes of %s",
                       (unsigned long long)count, (unsigned long long)size,
                       rm_account_name(account));
    }
    uint8_t *p = l->phase == RM_LEDGER_MEASURE ? NULL : l->base + l->carved;
    if (p != NULL) rm_unpoison(p, bytes);
    l->carved += whole;
    l->owned[account] += whole;
    RM_ASSERT(l->carved <= l->budget);
    memcpy(out, &p, sizeof p);
    return REMAT_OK;
}

/* A page more than is asked for, so that the sum does not depend on where the section begins. */
int rm_ledger_carve_pages(void *out, rm_ledger *l, rm_account account, uint64_t count,
                          uint64_t size, remat_error *err) {
    uint8_t *p;
    uint64_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > UINT64_MAX / 2)
        bytes = UINT64_MAX / 2;
    RM_TRY(rm_ledger_carve(&p, l, account, bytes > 0 ? bytes + PAGE : 0, 1, err));
    if (p != NULL) p += -(uintptr_t)p % PAGE;
    memcpy(out, &p, sizeof p);
    return REMAT_OK;
}

uint64_t rm_ledger_room(const rm_ledger *l) {
    const uint64_t at = (l->carved + PAGE - 1) & ~(uint64_t)(PAGE - 1), gap = at - l->carved;
    return room(l) > gap ? room(l) - gap : 0;
}

int rm_ledger_borrow(void *out, rm_ledger *l, uint64_t bytes, remat_error *err) {
    RM_ASSERT(l->phase == RM_LEDGER_BUILD);
    RM_ASSERT(!l->borrowed);
    const uint64_t at = (l->carved + PAGE - 1) & ~(uint64_t)(PAGE - 1), gap = at - l->carved;
    const bool injected = ++l->carve_count == l->fail_at;
    if (injected || gap > room(l) || bytes > room(l) - gap) {
        if (err != NULL) err->minimum_bytes = rm_ledger_total(l) + gap + bytes;
        return rm_fail(err, REMAT_E_BUDGET, "budget: no room to work on %llu bytes; give more",
                       (unsigned long long)bytes);
    }
    uint8_t *p = l->base + at;
    rm_unpoison(p, bytes);
    l->borrowed = true;
    memcpy(out, &p, sizeof p);
    return REMAT_OK;
}

void rm_ledger_return(rm_ledger *l) {
    RM_ASSERT(l->borrowed);
    const uint64_t at = (l->carved + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    (void)madvise(l->base + at, l->reserved - at, MADV_DONTNEED);
    rm_poison(l->base + l->carved, l->reserved - l->carved);
    l->borrowed = false;
}

void rm_ledger_huge_pages(const rm_ledger *l, void *first, uint64_t bytes) {
    const uint64_t at = (uint64_t)((uint8_t *)first - l->base), end = at + bytes;
    RM_ASSERT(end <= l->carved);
    const uint64_t skew = (uintptr_t)l->base % HUGE_PAGE;
    const uint64_t low = (at + skew + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE - skew;
    const uint64_t high = (end + skew) / HUGE_PAGE * HUGE_PAGE - skew;
    if (low < high) (void)madvise(l->base + low, high - low, MADV_HUGEPAGE);
}

void rm_ledger_discard(const rm_ledger *l, void *first, uint64_t bytes) {
    const uint64_t at = (uint64_t)((uint8_t *)first - l->base), end = at + bytes;
    RM_ASSERT(end <= l->carved);
    /* The base is a page's. */
    const uint64_t low = (at + PAGE - 1) / PAGE * PAGE, high = end / PAGE * PAGE;
    if (low < high) (void)madvise(l->base + low, high - low, MADV_DONTNEED);
}

/* An older kernel does not know the call: then pages come when they are touched. */
void rm_ledger_populate(const rm_ledger *l) {
    const uint64_t bytes = (l->carved + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    if (bytes > 0) (void)madvise(l->base, bytes, MADV_POPULATE_WRITE);
}

void rm_ledger_freeze(rm_ledger *l) {
    RM_ASSERT(l->phase == RM_LEDGER_BUILD);
    RM_ASSERT(!l->borrowed);
    l->phase = RM_LEDGER_FROZEN;
}

void rm_ledger_close(rm_ledger *l) {
    if (l->base != NULL) {
        rm_unpoison(l->base, l->reserved);
        munmap(l->base, l->reserved);
    }
    memset(l, 0, sizeof *l);
}

uint64_t rm_ledger_total(const rm_ledger *l) {
    return l->owned[RM_ACCOUNT_PROGRAM] + l->carved;
}

const char *rm_account_name(rm_account account) {
    static const char *const names[RM_ACCOUNT_COUNT] = {
#define X(id, name) [RM_ACCOUNT_##id] = (name),
        RM_ACCOUNTS(X)
#undef X
    };
    RM_ASSERT(account < RM_ACCOUNT_COUNT);
    return names[account];
}

void rm_ledger_fail_at(rm_ledger *l, uint64_t n) {
    l->fail_at = n == 0 ? 0 : l->carve_count + n;
}
