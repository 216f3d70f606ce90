/* page.c: see page.h. The stage is in stage.c. */
#include "cache/page.h"

#include <string.h>

uint64_t rm_cache_page_bytes(const rm_cache_shape *s) {
    /* A latent is key and value in one. */
    if (s->latent_dim > 0) return rm_page_bytes(s->format, s->latent_dim) / 2;
    return (uint64_t)s->kv_head_count * rm_page_bytes(s->format, s->head_dim);
}

uint64_t rm_cache_entries(const rm_cache_shape *s) {
    return (uint64_t)s->sequence_count * s->layer_count * s->column_count;
}

static int32_t *entry(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    return &c->table[rm_cache_index(c, sequence, layer, column)];
}

int rm_cache_layout(rm_cache *c, rm_ledger *l, const rm_cache_shape *s, remat_error *err) {
    *c = (rm_cache){.shape = *s, .head_bytes = rm_page_bytes(s->format, s->head_dim)};
    const rm_account stage = RM_ACCOUNT_KV_STAGE;
    const bool spills = s->stage_count > 0;
    c->page_bytes = rm_cache_page_bytes(s);
    RM_ASSERT(s->stage_count <= RM_STAGE_READS);
    RM_TRY(
        rm_ledger_carve(&c->table, l, RM_ACCOUNT_KV, rm_cache_entries(s), sizeof *c->table, err));
    RM_TRY(rm_pool_layout(&c->pool, l, RM_ACCOUNT_KV, s->page_count, c->page_bytes, err));
    RM_TRY(rm_ledger_carve_pages(&c->stage.slots, l, stage, s->stage_count, c->page_bytes, err));
    RM_TRY(rm_ledger_carve(&c->stage.reads, l, stage, spills ? RM_STAGE_READS : 0,
                           sizeof *c->stage.reads, err));
    return rm_ledger_carve(&c->writes, l, stage, spills ? RM_CACHE_WRITES : 0, sizeof *c->writes,
                           err);
}

void rm_cache_start(rm_cache *c, rm_spill *spill) {
    rm_pool_start(&c->pool);
    c->spill = c->shape.stage_count > 0 ? spill : NULL;
    for (uint64_t i = 0; i < rm_cache_entries(&c->shape); i++)
        c->table[i] = RM_POOL_NONE;
}

void *rm_cache_page(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const int32_t block = *entry(c, sequence, layer, column);
    if (block == RM_POOL_NONE) return NULL;
    if ((uint32_t)block < c->pool.count) return rm_pool_at(&c->pool, block);
    return c->stage.slots + ((uint32_t)block - c->pool.count) * c->page_bytes;
}

static bool in_pool(const rm_cache *c, int32_t block) {
    return block != RM_POOL_NONE && (uint32_t)block < c->pool.count;
}

static bool in_file(const rm_cache *c, uint64_t page) {
    return c->spill != NULL && rm_spill_has(c->spill, RM_SPILL_PAGES, page);
}

bool rm_cache_in_pool(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    return in_pool(c, *entry(c, sequence, layer, column));
}

bool rm_cache_known(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    return in_pool(c, c->table[page]) || in_file(c, page) ||
           (c->inputs != NULL && rm_kept_at(c->inputs, page) != NULL);
}

bool rm_cache_spilled(const rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    return !in_pool(c, c->table[page]) && in_file(c, page);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A failed write leaves the page where it is; without its block it is lost, which rm_spill_has()
 * says from then on. */
static void settle(rm_cache *c, rm_page_write *w) {
    if (!w->busy) return;
    const bool written = rm_spill_finish(c->spill, &w->op);
    if (!written && w->leaving) c->lost_pages++;
    if (w->leaving) rm_pool_give(&c->pool, w->block);
    w->busy = false;
}

bool rm_cache_settle_one(rm_cache *c) {
    if (c->spill == NULL) return false;
    for (uint32_t i = 0; i < RM_CACHE_WRITES; i++) {
        rm_page_write *w = &c->writes[(c->oldest_write + i) % RM_CACHE_WRITES];
        if (!w->busy) continue;
        settle(c, w);
        return true;
    }
    return false;
}

void rm_cache_settle(rm_cache *c) {
    while (rm_cache_settle_one(c)) {
    }
}

static rm_page_write *write_of(const rm_cache *c, uint64_t page, uint32_t count) {
    for (uint32_t i = 0; c->spill != NULL && i < RM_CACHE_WRITES; i++) {
        rm_page_write *w = &c->writes[i];
        if (w->busy && w->page >= page && w->page < page + count) return w;
    }
    return NULL;
}

void rm_cache_settle_pages(rm_cache *c, uint64_t page, uint32_t count) {
    for (rm_page_write *w; (w = write_of(c, page, count)) != NULL;)
        settle(c, w);
}

bool rm_cache_save(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    const int32_t block = c->table[page];
    RM_ASSERT(in_pool(c, block));
    if (c->spill == NULL) return false;
    if (in_file(c, page)) return true; /* written, or being written */
    rm_page_write *w = &c->writes[c->oldest_write];
    settle(c, w);
    c->oldest_write = (c->oldest_write + 1) % RM_CACHE_WRITES;
    if (!rm_spill_write(c->spill, &w->op, RM_SPILL_PAGES, page, 1, rm_pool_at(&c->pool, block)))
        return false;
    w->page = page;
    w->block = block;
    w->busy = true;
    w->leaving = false;
    return true;
}

void rm_cache_release(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    const int32_t block = c->table[page];
    if (!in_pool(c, block)) return;
    c->table[page] = RM_POOL_NONE;
    rm_page_write *w = write_of(c, page, 1);
    if (w != NULL) {
        w->leaving = true;
    } else {
        rm_pool_give(&c->pool, block);
    }
}

/* --- holding ---------------------------------------------------------------------------------- */

static int32_t take(rm_cache *c) {
    for (;;) {
        const int32_t block = rm_pool_take(&c->pool);
        if (block != RM_POOL_NONE || !rm_cache_settle_one(c)) return block;
    }
}

rm_hold rm_cache_hold(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                      bool to_write) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    const bool known = rm_cache_known(c, sequence, layer, column);
    rm_cache_settle_pages(c, page, 1);
    /* It was on its way to the file, and did not arrive. */
    if (known && !rm_cache_known(c, sequence, layer, column)) return RM_HOLD_LOST;
    if (!in_pool(c, c->table[page])) {
        RM_ASSERT(c->table[page] == RM_POOL_NONE);
        const int32_t block = take(c);
        if (block == RM_POOL_NONE) return RM_HOLD_FULL;
        if (in_file(c, page)) {
            rm_spill_op op;
            const bool begun =
                rm_spill_read(c->spill, &op, RM_SPILL_PAGES, page, 1, rm_pool_at(&c->pool, block));
            if (!begun || !rm_spill_finish(c->spill, &op)) {
                c->lost_pages++;
                rm_pool_give(&c->pool, block);
                return RM_HOLD_LOST;
            }
        }
        c->table[page] = block;
    }
    if (to_write && in_file(c, page)) rm_spill_forget(c->spill, RM_SPILL_PAGES, page, 1);
    return RM_HELD;
}

void rm_cache_drop_page(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    rm_cache_settle_pages(c, page, 1);
    rm_cache_release(c, sequence, layer, column);
    if (in_file(c, page)) rm_spill_forget(c->spill, RM_SPILL_PAGES, page, 1);
    if (c->inputs != NULL) rm_kept_give(c->inputs, page);
}

void rm_cache_drop(rm_cache *c, uint32_t sequence, uint32_t first, uint32_t last) {
    if (first >= last) return;
    for (uint32_t layer = 0; layer < c->shape.layer_count; layer++) {
        const uint64_t page = rm_cache_index(c, sequence, layer, first);
        rm_cache_settle_pages(c, page, last - first);
        for (uint32_t column = first; column < last; column++) {
            rm_cache_release(c, sequence, layer, column);
            if (c->inputs != NULL) rm_kept_give(c->inputs, page + (column - first));
        }
        if (c->spill != NULL) rm_spill_forget(c->spill, RM_SPILL_PAGES, page, last - first);
    }
}

void rm_cache_abandon_spill(rm_cache *c) {
    rm_cache_settle(c);
    rm_stage_close(c);
    rm_stage_forget(c);
    c->spill = NULL;
}

void rm_cache_resume_spill(rm_cache *c, rm_spill *spill) {
    if (c->shape.stage_count == 0) return;
    rm_cache_settle(c);
    rm_spill_forget(spill, RM_SPILL_PAGES, 0, rm_cache_entries(&c->shape));
    c->spill = spill;
}

void rm_cache_limit(rm_cache *c, const rm_ledger *l, uint32_t pages) {
    const bool less = pages < c->pool.limit;
    RM_ASSERT(pages <= c->pool.count);
    c->pool.limit = pages;
    if (!less) return;
    rm_cache_settle(c); /* blocks of pages that are leaving */
    rm_pool_trim(&c->pool, l);
}

/* --- account ---------------------------------------------------------------------------------- */

uint64_t rm_cache_pool_bytes(const rm_cache *c) {
    return c->pool.taken * c->page_bytes;
}

uint64_t rm_cache_file_bytes(const rm_cache *c) {
    uint64_t pages = 0;
    for (uint64_t i = 0; c->spill != NULL && i < rm_cache_entries(&c->shape); i++)
        pages += !in_pool(c, c->table[i]) && in_file(c, i);
    return pages * c->page_bytes;
}

/* --- copies in and out ------------------------------------------------------------------------ */

bool rm_cache_copy_out(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column, void *to) {
    const uint64_t page = rm_cache_index(c, sequence, layer, column);
    if (in_pool(c, c->table[page])) {
        memcpy(to, rm_pool_at(&c->pool, c->table[page]), c->page_bytes);
        return true;
    }
    rm_spill_op op;
    if (!in_file(c, page)) return false;
    rm_cache_settle_pages(c, page, 1);
    return rm_spill_read(c->spill, &op, RM_SPILL_PAGES, page, 1, to) &&
           rm_spill_finish(c->spill, &op);
}

bool rm_cache_put_in(rm_cache *c, uint32_t sequence, uint32_t layer, uint32_t column,
                     const void *from) {
    enum { FREE_SHARE = 4 }; /* a pool that is fuller than this passes pages on to the file */
    if (rm_cache_hold(c, sequence, layer, column, true) != RM_HELD) return false;
    memcpy(rm_cache_page(c, sequence, layer, column), from, c->page_bytes);
    if (c->spill != NULL && rm_cache_save(c, sequence, layer, column) &&
        rm_pool_free(&c->pool) < c->pool.count / FREE_SHARE)
        rm_cache_release(c, sequence, layer, column);
    return true;
}
