/* policy.c: see policy.h. */
#include "engine/policy.h"

/* --- counting --------------------------------------------------------------------------------- */

static uint32_t widest_window(const rm_model *m) {
    uint32_t widest = 0;
    for (uint32_t l = 0; l < m->shape.layer_count; l++)
        widest = m->layers[l].window > widest ? m->layers[l].window : widest;
    return widest;
}

static bool has_windows(const rm_model *m) {
    return widest_window(m) > 0;
}

uint64_t rm_policy_pages(const rm_model *m, uint32_t tokens) {
    uint64_t n = 0;
    for (uint32_t l = 0; l < m->shape.layer_count; l++) {
        /* A window is somewhere in the past: it may begin in the last token of a column. */
        const uint32_t window = m->layers[l].window;
        const uint32_t most = window > 0 ? (window + RM_PAGE_TOKENS - 2) / RM_PAGE_TOKENS + 1 : 0;
        n += window > 0 && most < rm_columns(tokens) ? most : rm_columns(tokens);
    }
    return n;
}

uint64_t rm_policy_passing(const rm_model *m, uint64_t cold_columns, uint64_t chunk_rows,
                           uint32_t sequences, bool spill) {
    const uint64_t chunk = chunk_rows / RM_PAGE_TOKENS + 1 + sequences;
    uint64_t most = cold_columns;
    if (spill && most > 2 * chunk) most = 2 * chunk; /* one chunk, and one on its way to disk */
    /* A window moves through the rows of the chunk; with tokens that run again it is another than
     * the newest tokens' one, which is in memory too. */
    return most + (has_windows(m) ? chunk + 1 + rm_columns(widest_window(m)) : 0);
}

typedef struct policy {
    remat_engine *e;
    const remat_step *steps;
    uint32_t step_count;
    bool healing;
    bool spill;
} policy;

static const remat_step *step_of(const policy *p, const remat_sequence *s) {
    for (uint32_t i = 0; i < p->step_count; i++) {
        if (p->steps[i].sequence == s) return &p->steps[i];
    }
    return NULL;
}

static uint32_t total_of(const policy *p, const remat_sequence *s) {
    const remat_step *step = step_of(p, s);
    return s->count + (step != NULL ? step->count : 0);
}

/* Cold layers of a column: from the checkpoint's layer on, where there is one. */
static uint32_t cold_layers(const policy *p, const remat_sequence *s, uint32_t column) {
    const uint32_t from = p->e->setup.checkpoint_layer;
    return s->cold[column] > from ? s->cold[column] - from : 0;
}

/* Layers that keep the page of a column: all that are not cold and have it in their window, which
 * is when one of the tokens from position `next` on sees it. */
static uint32_t hot_layers(const policy *p, const remat_sequence *s, uint32_t column,
                           uint32_t next) {
    const rm_model *m = &p->e->model;
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->shape.layer_count; l++) {
        const bool cold = l >= p->e->setup.checkpoint_layer && l < s->cold[column];
        n += !cold && column >= rm_first_column(&m->layers[l], next);
    }
    return n;
}

/* Hot pages of a sequence after the step. */
static uint64_t hot(const policy *p, const remat_sequence *s) {
    const rm_model *m = &p->e->model;
    const uint32_t total = total_of(p, s), layers = m->shape.layer_count;
    const bool windows = has_windows(m);
    uint64_t n = 0;
    for (uint32_t c = 0; c < rm_columns(total); c++)
        n += windows ? hot_layers(p, s, c, total) : layers - cold_layers(p, s, c);
    return n;
}

static uint32_t cold_columns(const policy *p, const remat_sequence *s) {
    uint32_t n = 0;
    for (uint32_t c = 0; c < rm_columns(total_of(p, s)); c++)
        n += cold_layers(p, s, c) > 0;
    return n;
}

/* Pages that the step needs beside hot ones, with so many cold columns. */
static uint64_t passing_with(const policy *p, uint64_t cold, bool spill) {
    uint64_t rows = 0;
    for (uint32_t i = 0; i < p->step_count; i++)
        rows += p->steps[i].count;
    const uint32_t chunk = p->e->setup.chunk_rows;
    if (p->healing || !p->spill || rows > chunk) rows = chunk;
    return rm_policy_passing(&p->e->model, cold, rows, p->step_count, spill);
}

static uint64_t step_columns(const policy *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->step_count; i++)
        n += rm_columns(total_of(p, p->steps[i].sequence));
    return n;
}

/* Whether cold pages can go to disk while a sweep is in their layer. A disk that may run full is
 * not counted on. */
static bool leaves_meanwhile(const policy *p) {
    return p->e->cache.spill != NULL && p->e->setup.spill_reserved;
}

static uint64_t passing(const policy *p) {
    uint64_t cold = 0;
    for (uint32_t i = 0; i < p->step_count; i++)
        cold += cold_columns(p, p->steps[i].sequence);
    /* Tokens that run again may need pages that a window has left behind. */
    const bool spill = leaves_meanwhile(p);
    if (p->healing && (spill || has_windows(&p->e->model))) cold = step_columns(p);
    return passing_with(p, cold, spill);
}

/* Pages of the pool that may be used: a step needs so many with all that can be cold being cold. */
static uint64_t limit_of(const policy *p) {
    const remat_engine *e = p->e;
    const uint64_t least = passing_with(p, step_columns(p), leaves_meanwhile(p));
    const uint64_t pages = e->allowance.pages > least ? e->allowance.pages : least;
    return pages < e->setup.page_count ? pages : e->setup.page_count;
}

static uint64_t wanted(const policy *p) {
    uint64_t sum = passing(p);
    for (uint32_t i = 0; i < p->e->setup.sequence_count; i++) {
        if (p->e->sequences[i].open) sum += hot(p, &p->e->sequences[i]);
    }
    return sum;
}

/* --- what a page is worth --------------------------------------------------------------------- */

/* Multiply-adds that computing one layer of a column again takes. */
static double column_cost(const remat_engine *e, uint32_t column) {
    const rm_shape *s = &e->model.shape;
    const double q = (double)s->head_count * s->head_dim,
                 kv = (double)s->kv_head_count * s->head_dim;
    const double experts = s->expert_count > 0 ? s->expert_used : 1;
    const double linear = s->dim * (2 * q + 2 * kv) + 3.0 * s->dim * s->feed_forward * experts;
    return RM_PAGE_TOKENS * (linear + 2 * q * RM_PAGE_TOKENS * (column + 0.5));
}

/* The next number of cold layers that frees a page of the column; 0: there is none. */
static uint32_t next_cold(const policy *p, const remat_sequence *s, uint32_t column) {
    const rm_model *m = &p->e->model;
    for (uint32_t l = s->cold[column]; l < m->shape.layer_count; l++) {
        if (column >= rm_first_column(&m->layers[l], total_of(p, s))) return l + 1;
    }
    return 0;
}

/* How often the page is read. One that no step has read yet is going to be. */
static double uses_of(const policy *p, const remat_sequence *s, uint32_t layer, uint32_t column) {
    const double uses =
        (double)p->e->sweep.uses[rm_cache_index(&p->e->cache, s->index, layer, column)];
    return uses > 0 ? uses : 1;
}

/* --- giving up -------------------------------------------------------------------------------- */

/* Columns below it may become cold first: the newest tokens are kept as long as others can go. */
static uint32_t free_columns(const policy *p, const remat_sequence *s) {
    const uint32_t total = total_of(p, s), keep = p->e->setup.keep_count;
    return keep >= total ? 0 : (total - keep) / RM_PAGE_TOKENS;
}

/* Lowest number of cold layers in columns first .. end - 1; the layer count when there is none. */
static uint32_t least_cold(const remat_sequence *s, uint32_t first, uint32_t end) {
    uint32_t least = s->engine->model.shape.layer_count;
    for (uint32_t c = first; c < end; c++)
        least = s->cold[c] < least ? s->cold[c] : least;
    return least;
}

/* Gives up something of columns first .. end - 1; false when all of it is cold. */
static bool demote_in(const policy *p, remat_sequence *s, uint32_t first, uint32_t end) {
    const uint32_t layers = p->e->model.shape.layer_count;
    const uint32_t least = least_cold(s, first, end);
    if (least == layers) return false;
    if (p->e->setup.recompute == REMAT_RECOMPUTE_LAYER) {
        for (uint32_t c = first; c < end; c++) {
            if (s->cold[c] == least) s->cold[c]++;
        }
        return true;
    }
    while (s->cold[first] == layers)
        first++;
    s->cold[first] = (uint16_t)layers; /* the oldest */
    return true;
}

static bool demote(const policy *p, remat_sequence *s) {
    const uint32_t free = free_columns(p, s), all = rm_columns(total_of(p, s));
    return demote_in(p, s, 0, free) || demote_in(p, s, free, all);
}

/* Of all sequences' pages, those that are to be kept or the others, gives up the one that costs
 * least to bring back for how often it is used. False: there is none. */
static bool demote_cheapest(const policy *p, bool kept) {
    remat_sequence *best = NULL;
    uint32_t best_column = 0;
    double least_cost = 0;
    for (uint32_t i = 0; i < p->e->setup.sequence_count; i++) {
        remat_sequence *s = &p->e->sequences[i];
        if (!s->open) continue;
        const uint32_t free = free_columns(p, s), all = rm_columns(total_of(p, s));
        for (uint32_t c = kept ? free : 0; c < (kept ? all : free); c++) {
            const uint32_t next = next_cold(p, s, c);
            if (next == 0) continue;
            const double cost =
                uses_of(p, s, next - 1, c) * column_cost(p->e, c) * (next - s->cold[c]);
            if (best != NULL && cost >= least_cost) continue;
            best = s;
            best_column = c;
            least_cost = cost;
        }
    }
    if (best != NULL) best->cold[best_column] = (uint16_t)next_cold(p, best, best_column);
    return best != NULL;
}

/* Has it something to give up? Below a checkpoint pages stay. */
static bool gives(const policy *p, const remat_sequence *s) {
    return s->open && hot(p, s) > 0 &&
           least_cold(s, 0, rm_columns(total_of(p, s))) < p->e->model.shape.layer_count;
}

/* Idle sequences give way first, the largest of them; then those of the step. */
static remat_sequence *victim(const policy *p) {
    remat_sequence *best = NULL;
    uint64_t best_hot = 0;
    for (uint32_t i = 0; i < p->e->setup.sequence_count; i++) {
        remat_sequence *s = &p->e->sequences[i];
        if (!gives(p, s)) continue;
        const uint64_t pages = hot(p, s);
        const bool idle = step_of(p, s) == NULL, best_idle = best && step_of(p, best) == NULL;
        if (best == NULL || idle > best_idle || (idle == best_idle && pages > best_hot)) {
            best = s;
            best_hot = pages;
        }
    }
    return best;
}

static bool give_up(const policy *p) {
    if (p->e->setup.recompute == REMAT_RECOMPUTE_SELECTIVE)
        return demote_cheapest(p, false) || demote_cheapest(p, true);
    remat_sequence *s = victim(p);
    return s != NULL && demote(p, s);
}

/* --- coming back ------------------------------------------------------------------------------ */

/* The newest column that is cold, if it may be hot. */
static bool promote(const policy *p, remat_sequence *s) {
    const rm_setup *setup = &p->e->setup;
    const uint32_t all = rm_columns(total_of(p, s)), layers = p->e->model.shape.layer_count;
    uint32_t c = all;
    while (c > 0 && s->cold[c - 1] == 0)
        c--;
    if (c == 0 || all - (c - 1) > setup->resident_columns) return false;
    const uint16_t before = s->cold[--c];
    s->cold[c] = 0;
    /* Room for another column, too: else the next one would send this one back. */
    if (wanted(p) + layers <= p->e->page_limit) return true;
    s->cold[c] = before;
    return false;
}

/* --- the pages themselves --------------------------------------------------------------------- */

static void send_away(const policy *p, const remat_sequence *s, uint32_t layer, uint32_t column) {
    rm_cache *cache = &p->e->cache;
    if (p->e->setup.cold == REMAT_COLD_INPUTS) {
        rm_cache_release(cache, s->index, layer, column);
    } else if (!p->spill || column < p->e->sweep.spill_from) {
        rm_cache_drop_page(cache, s->index, layer, column);
    } else if (rm_cache_in_pool(cache, s->index, layer, column)) {
        (void)rm_cache_save(cache, s->index, layer, column);
        rm_cache_release(cache, s->index, layer, column);
    }
}

static void apply(const policy *p, const remat_sequence *s) {
    const uint32_t all = rm_columns(s->count), layers = p->e->model.shape.layer_count;
    for (uint32_t c = 0; c < rm_columns(total_of(p, s)); c++) {
        for (uint32_t l = p->e->setup.checkpoint_layer; l < s->cold[c]; l++)
            send_away(p, s, l, c);
    }
    for (uint32_t c = p->e->cache.spill != NULL ? all : 0; c-- > 0;) {
        for (uint32_t l = s->cold[c]; l < layers; l++) {
            if (rm_cache_spilled(&p->e->cache, s->index, l, c))
                (void)rm_cache_hold(&p->e->cache, s->index, l, c, false);
        }
    }
}

int rm_policy_make_room(remat_engine *e, const remat_step *steps, uint32_t step_count, bool healing,
                        remat_error *err) {
    policy p = {.e = e, .steps = steps, .step_count = step_count, .healing = healing};
    const uint32_t layers = e->model.shape.layer_count;
    p.spill = e->setup.cold == REMAT_COLD_SPILL && e->cache.spill != NULL;
    e->page_limit = limit_of(&p);
    for (uint32_t i = 0; i < step_count; i++) {
        remat_sequence *s = steps[i].sequence;
        const uint32_t all = rm_columns(total_of(&p, s)), most = e->setup.resident_columns;
        for (uint32_t c = 0; all > most && c < all - most; c++)
            s->cold[c] = (uint16_t)layers;
    }
    bool fits = wanted(&p) <= e->page_limit;
    for (uint32_t i = 0; fits && i < step_count; i++) {
        while (promote(&p, steps[i].sequence)) {
        }
    }
    for (; !fits; fits = wanted(&p) <= e->page_limit) {
        if (!give_up(&p)) {
            return rm_fail(err, REMAT_E_FAILED,
                           "cache: without a spill file the budget has no room for a layer of %u "
                           "tokens; give more memory, or another --spill directory",
                           steps[0].sequence->count + steps[0].count);
        }
    }
    if (e->page_limit > e->cache.pool.limit)
        rm_cache_limit(&e->cache, &e->ledger, (uint32_t)e->page_limit);
    for (uint32_t i = 0; i < e->setup.sequence_count; i++) {
        if (e->sequences[i].open) apply(&p, &e->sequences[i]);
    }
    rm_cache_limit(&e->cache, &e->ledger, (uint32_t)e->page_limit);
    return REMAT_OK;
}

void rm_policy_age(remat_engine *e) {
    const uint64_t pages = e->sweep.uses != NULL ? rm_cache_entries(&e->cache.shape) : 0;
    for (uint64_t i = 0; i < pages; i++)
        e->sweep.uses[i] *= 0.9375f;
}

void rm_policy_forget(const remat_sequence *s, uint32_t first, uint32_t end) {
    remat_engine *e = s->engine;
    for (uint32_t l = 0; e->sweep.uses != NULL && l < e->model.shape.layer_count; l++) {
        for (uint32_t c = first; c < end; c++)
            e->sweep.uses[rm_cache_index(&e->cache, s->index, l, c)] = 0;
    }
}
