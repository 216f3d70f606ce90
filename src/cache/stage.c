/*
 * stage.c: spilled pages on their way through memory. See page.h. Part: cache.
 *
 * Attention uses pages in an order that is known beforehand, so reads form a queue, and the slots
 * they go to a ring. What is asked for next is nearly always the head of what was read ahead; when
 * it is not (a page left the pool after the look ahead), the rest is given up and read again.
 */
#include "cache/page.h"

uint32_t rm_stage_band(const rm_cache *c) {
    return c->shape.stage_count / 2;
}

static rm_page_read *read_at(const rm_stage *s, uint32_t i) {
    return &s->reads[(s->read_first + i) % RM_STAGE_READS];
}

/* Begins one read of at most count pages: as many as lie in one piece of the ring. */
static uint32_t begin(rm_cache *c, uint64_t page, uint32_t count) {
    rm_stage *s = &c->stage;
    const uint32_t slots = c->shape.stage_count;
    if (s->read_count == RM_STAGE_READS || s->slot_used == slots) return 0;
    const uint32_t slot = (s->slot_first + s->slot_used) % slots;
    uint32_t room = slots - s->slot_used;
    if (room > slots - slot) room = slots - slot;
    if (count > room) count = room;
    rm_page_read *r = read_at(s, s->read_count);
    rm_cache_settle_pages(c, page, count);
    *r = (rm_page_read){.page = page, .count = count, .slot = slot};
    r->failed = !rm_spill_read(c->spill, &r->op, RM_SPILL_PAGES, page, count,
                               s->slots + slot * c->page_bytes);
    s->read_count++;
    s->slot_used += count;
    return count;
}

uint32_t rm_stage_ahead(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                        uint32_t count) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    uint32_t done = 0;
    while (done < count) {
        const uint32_t n = begin(c, page + done, count - done);
        if (n == 0) break;
        done += n;
    }
    return done;
}

/* Waits; false when the pages are not what was written. */
static bool finish(const rm_cache *c, rm_page_read *r) {
    if (!r->done && !r->failed) r->failed = !rm_spill_finish(c->spill, &r->op);
    r->done = true;
    return !r->failed;
}

/* Gives up the newest read. */
static void cancel_last(rm_cache *c) {
    rm_stage *s = &c->stage;
    rm_page_read *r = read_at(s, s->read_count - 1);
    (void)finish(c, r);
    s->slot_used -= r->count;
    s->read_count--;
}

void rm_stage_forget(rm_cache *c) {
    while (c->stage.read_count > c->stage.opened)
        cancel_last(c);
}

void rm_stage_open(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                   uint32_t count) {
    rm_stage *s = &c->stage;
    const uint64_t first = rm_cache_index(c, sequence, layer, column), end = first + count;
    for (uint64_t page = first; page < end;) {
        if (s->opened == s->read_count) {
            const uint32_t n = begin(c, page, (uint32_t)(end - page));
            RM_ASSERT(n > 0); /* the band is at most half of the stage */
        }
        const rm_page_read *r = read_at(s, s->opened);
        if (r->page != page || r->page + r->count > end) {
            rm_stage_forget(c);
            continue;
        }
        s->opened++;
        page += r->count;
    }
}

bool rm_stage_settle(rm_cache *c) {
    rm_stage *s = &c->stage;
    bool sound = true;
    for (uint32_t i = 0; i < s->opened; i++) {
        rm_page_read *r = read_at(s, i);
        if (!finish(c, r)) {
            c->lost_pages++;
            sound = false;
        }
        for (uint32_t k = 0; k < r->count; k++) {
            if (c->table[r->page + k] == RM_POOL_NONE)
                c->table[r->page + k] = (int32_t)(c->pool.count + r->slot + k);
        }
    }
    return sound;
}

void rm_stage_close(rm_cache *c) {
    rm_stage *s = &c->stage;
    for (; s->opened > 0; s->opened--) {
        const rm_page_read *r = read_at(s, 0);
        for (uint32_t k = 0; k < r->count; k++) {
            if (c->table[r->page + k] == (int32_t)(c->pool.count + r->slot + k))
                c->table[r->page + k] = RM_POOL_NONE;
        }
        s->slot_first = (s->slot_first + r->count) % c->shape.stage_count;
        s->slot_used -= r->count;
        s->read_first = (s->read_first + 1) % RM_STAGE_READS;
        s->read_count--;
    }
}
