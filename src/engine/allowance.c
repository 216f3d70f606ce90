/* allowance.c: see allowance.h. */
#include "engine/allowance.h"
#include "base/clock.h"
#include "engine/policy.h"

enum { FALLBACK_MIB = 4096 }; /* where the system says nothing */

uint64_t rm_allowance_budget(uint64_t resident_bytes) {
    rm_pressure p;
    rm_pressure_start(&p, UINT64_MAX);
    const uint64_t bytes = rm_pressure_poll(&p, resident_bytes, rm_clock_s());
    return bytes == UINT64_MAX ? (uint64_t)FALLBACK_MIB << 20 : bytes;
}

void rm_allowance_start(remat_engine *e) {
    rm_allowance *a = &e->allowance;
    a->bytes = e->options.memory_bytes;
    a->pages = e->setup.page_count;
    rm_pressure_start(&a->pressure, e->options.memory_bytes);
}

bool rm_allowance_can_give(const remat_engine *e) {
    const rm_setup *s = &e->setup;
    /* Dropped tokens run again in one sweep, with those that need them. */
    return e->cache.spill != NULL || rm_setup_holds_rows(s);
}

/* True when there is a new answer. */
static bool look(remat_engine *e) {
    rm_allowance *a = &e->allowance;
    if (!a->follows) return false;
    if (a->source != NULL) {
        a->bytes = a->source(a->source_user);
    } else {
        const double now = rm_clock_s();
        if (!rm_pressure_due(&a->pressure, now)) return false;
        a->bytes = rm_pressure_poll(&a->pressure, rm_machine_resident_bytes(), now);
    }
    const uint64_t page = e->cache.page_bytes, most = e->setup.page_count;
    const uint64_t others = rm_ledger_total(&e->ledger) - most * page;
    uint64_t pages = a->bytes > others ? (a->bytes - others) / page : 0;
    if (pages > most || !rm_allowance_can_give(e)) pages = most;
    if (pages == a->pages) return false;
    ++*(pages < a->pages ? &a->shrunk : &a->grown);
    a->pages = (uint32_t)pages;
    return true;
}

void rm_allowance_begin(remat_engine *e, const remat_step *steps, uint32_t step_count,
                        bool healing) {
    rm_allowance *a = &e->allowance;
    (void)look(e);
    /* The disk has failed since: what is dropped now might not come back. */
    if (!rm_allowance_can_give(e)) a->pages = e->setup.page_count;
    a->steps = steps;
    a->step_count = step_count;
    a->healing = healing;
}

void rm_allowance_end(remat_engine *e) {
    e->allowance.steps = NULL;
}

void rm_allowance_in_sweep(remat_engine *e) {
    const rm_allowance *a = &e->allowance;
    if (a->steps == NULL || e->cache.spill == NULL || e->setup.cold != REMAT_COLD_SPILL) return;
    if (!look(e) || a->pages >= e->page_limit) return;
    /* It can only fail where there is no spill file. */
    (void)rm_policy_make_room(e, a->steps, a->step_count, a->healing, NULL);
}
