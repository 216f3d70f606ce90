/* cost.c: how long a setup takes. See plan.h. Part: engine. */
#include "engine/engine.h"
#include "engine/policy.h"

/* What a whole layer reaches of the rates of its products and its attention alone: norms, gates,
 * 8-bit inputs, rotary, barriers take the rest (docs/speed.md). */
static const double PRODUCTS_SHARE = 0.3, ATTENTION_SHARE = 0.6;

rm_rates rm_rates_guess(void) {
    return (rm_rates){.products_s = 6e11,
                      .weights_s = 1e10,
                      .attention_s = 8e10,
                      .pages_s = 1e10,
                      .pack_s = 3e9,
                      .disk_read_s = 1e9,
                      .spill_read_s = 1e9,
                      .disk_write_s = 5e8};
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* What the model asks for. */
typedef struct sizes {
    double linear;         /* multiply-adds of a row in all layers */
    double attention;      /* of a row, for each token that it sees in all layers */
    double streamed_raw;   /* bytes of streamed weights in the file, for a sweep */
    double weights;        /* packed bytes of all weights that a token goes through */
    double page_bytes;     /* of one layer */
    double seen, layers;   /* layer-columns that a token at the end sees; layers */
    double columns;        /* of all sequences */
    double resident_pages; /* that may stay while a token is decoded */
} sizes;

static double raw_bytes(const rm_matrix *w) {
    return (double)w->count * w->outputs * (double)rm_gguf_row_bytes(w->format, w->k);
}

static void add_unit(sizes *z, const rm_setup *s, const rm_model *m, uint32_t index) {
    rm_matrix *w[RM_UNIT_MATRICES];
    rm_model copy = *m; /* nothing is written */
    const uint32_t unit = rm_plan_unit(m, index);
    const bool tied = m->output.source == m->embedding.source;
    if (unit == RM_UNIT_EMBEDDING && !tied) return;
    const uint32_t count = rm_unit_matrices(w, &copy, unit);
    for (uint32_t i = 0; i < count; i++) {
        const rm_shape *p = &m->shape;
        const double used = w[i]->count > 1 ? (double)p->expert_used / w[i]->count : 1;
        if (index >= s->unit_count) z->streamed_raw += raw_bytes(w[i]);
        z->weights += raw_bytes(w[i]) * used;
        if (unit >= RM_UNIT_LAYERS)
            z->linear += (double)w[i]->count * w[i]->outputs * w[i]->k * used;
    }
}

static sizes sizes_of(const rm_setup *s, const rm_model *m) {
    const rm_shape *p = &m->shape;
    const rm_cache_shape cache = rm_setup_cache(s, m);
    sizes z = {.page_bytes = (double)rm_cache_page_bytes(&cache),
               .layers = p->layer_count,
               .columns = (double)s->column_count * s->sequence_count};
    for (uint32_t i = 0; i < rm_unit_count(m); i++)
        add_unit(&z, s, m, i);
    z.seen = (double)rm_policy_pages(m, s->context_count) * s->sequence_count;
    z.attention = 2.0 * p->head_count * p->head_dim * z.seen / z.columns;
    const bool spill = s->cold == REMAT_COLD_SPILL;
    const double passing =
        spill ? (double)rm_policy_passing(m, s->column_count, 1, s->sequence_count, true) : 0;
    z.resident_pages = larger(0, s->page_count - passing);
    const double most = (double)s->resident_columns * s->sequence_count * z.layers;
    if (z.resident_pages > most) z.resident_pages = most;
    if (s->recompute == REMAT_RECOMPUTE_FULL) z.resident_pages = 0;
    return z;
}

/* A chunk of few rows leaves arithmetic units idle, and wakes the threads more often. */
static double efficiency(double rows) {
    return rows / (rows + 12);
}

/* Columns that run again for a token. While a layer is in work, a dropped one takes a page. */
static double dropped_columns(const rm_setup *s, const sizes *z) {
    if (s->page_count >= z->seen) return 0;
    const double cold = larger(0, z->seen - z->resident_pages) / z->layers;
    if (s->cold == REMAT_COLD_SPILL)
        return cold < (double)s->drop_columns * s->sequence_count
                   ? cold
                   : (double)s->drop_columns * s->sequence_count;
    if (s->recompute == REMAT_RECOMPUTE_FULL) return z->columns;
    const double hot = larger(0, (z->resident_pages - z->columns) / (z->layers - 1 + 1e-9));
    return larger(0, z->columns - hot);
}

static double rows_s(const sizes *z, const rm_rates *r, double rows, double chunk, double past) {
    return rows *
           (z->linear / (PRODUCTS_SHARE * r->products_s) +
            past * z->attention / (ATTENTION_SHARE * r->attention_s)) /
           efficiency(chunk);
}

/* Reading spilled pages of earlier chunks again for every chunk, where the pool does not hold the
 * layer. */
static double reread_bytes(const rm_setup *s, const sizes *z, double chunk) {
    if (s->cold != REMAT_COLD_SPILL || s->page_count >= z->seen) return 0;
    const double columns = s->column_count, held = s->page_count;
    const double over = larger(0, columns - held);
    return z->seen / columns * over * over / 2 / (chunk / RM_PAGE_TOKENS) * z->page_bytes;
}

/* What a disk gives when so much is asked for ahead (docs/speed.md). */
static double ring_share(double bytes) {
    return (bytes + 1) / (bytes + (1 << 20));
}

static double beside(double a, double b) {
    return larger(a, b) + 0.1 * (a < b ? a : b);
}

rm_cost rm_cost_of(const rm_setup *s, const rm_model *m, const rm_rates *r) {
    const sizes z = sizes_of(s, m);
    const double n = (double)s->context_count * s->sequence_count, chunk = s->chunk_rows;
    const double sweeps = s->row_max > 0 ? larger(1, n / s->row_max) : 1;
    const double disk = larger(r->disk_read_s, 1e6) * ring_share((double)s->raw_bytes);
    const double spill =
        larger(r->spill_read_s, 1e6) * ring_share((double)s->stage_count * z.page_bytes);
    const double write = larger(r->disk_write_s, 1e6);
    const double stream_s = z.streamed_raw / disk, pack_s = z.streamed_raw / r->pack_s;
    const double again = dropped_columns(s, &z) * RM_PAGE_TOKENS;
    /* Pages that come back from disk, or from their inputs. */
    const double missing =
        larger(0, z.seen - z.resident_pages -
                      (s->cold == REMAT_COLD_SPILL ? again / RM_PAGE_TOKENS * z.layers : 0));
    /* Hidden rows come in requests of a chunk. */
    const double hidden = s->row_max > 0 ? 0 : (double)m->shape.dim * sizeof(float);
    rm_cost c;
    double cpu = rows_s(&z, r, n, chunk, s->context_count / 2.0) + sweeps * pack_s;
    double io = sweeps * stream_s + reread_bytes(s, &z, chunk) / spill +
                n * hidden * (z.layers - 1) * (1 / larger(r->spill_read_s, 1e6) + 1 / write);
    if (s->cold == REMAT_COLD_SPILL) io += missing * z.page_bytes / write;
    c.prefill_s = beside(cpu, io);

    double again_s = rows_s(&z, r, again, chunk, again / 2);
    if (s->cold == REMAT_COLD_CHECKPOINT) again_s *= 1 - s->checkpoint_layer / z.layers;
    if (s->cold == REMAT_COLD_INPUTS) {
        const double kv = (double)m->shape.kv_head_count * m->shape.head_dim;
        const double share = missing > s->kept_count ? s->kept_count / missing : 1;
        const double product =
            4.0 * m->shape.dim * kv * RM_PAGE_TOKENS; /* fine: two rows for one */
        again_s = again_s * (1 - share) + share * missing * product /
                                              (PRODUCTS_SHARE * r->products_s) /
                                              efficiency(RM_PAGE_TOKENS);
    }
    cpu = z.weights / r->weights_s + z.seen * z.page_bytes / r->pages_s + pack_s + again_s;
    io =
        stream_s + again * hidden * (z.layers - 1) * (1 / larger(r->spill_read_s, 1e6) + 1 / write);
    if (s->cold == REMAT_COLD_SPILL) io += missing * z.page_bytes / spill;
    c.token_s = beside(cpu, io);
    return c;
}
