/* cost.c: how long a setup takes. See plan.h. Part: engine. */
#include "engine/engine.h"
#include "engine/policy.h"

/* What products and attention reach of their rates alone (attention more than its loop, whose spans
 * are shorter); what the steps between them take, of a value of a row and of a barrier between two
 * phases. Fitted to three models, 512 to 8,000 tokens, one machine: all rows within 25 %
 * (docs/speed.md). */
static const double PRODUCTS_SHARE = 0.8, ATTENTION_SHARE = 1.15;
static const double VALUE_S = 2e-10, PHASE_S = 1e-6;
enum { PHASES = 7 }; /* of a layer */

rm_rate_table rm_rates_guess(void) {
    rm_rate_table t;
    for (int f = 0; f < RM_FORMAT_COUNT; f++) {
        t.of[f] = (rm_rates){.products_s = 6e11,
                             .weights_s = 1e10,
                             .attention_s = 8e10,
                             .pages_s = 1e10,
                             .pack_s = 3e9,
                             .disk_read_s = 1e9,
                             .spill_read_s = 1e9,
                             .disk_write_s = 5e8};
    }
    return t;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* What the model asks for. */
typedef struct sizes {
    double row_s;          /* products of a row among many, in all layers */
    double token_s;        /* weights that a token alone goes through */
    double pack_s;         /* packing of streamed weights, for a sweep */
    double streamed_raw;   /* their bytes in the file */
    double values;         /* of a row in all layers, that are read or written between products */
    double attention;      /* multiply-adds of a row, for each token that it sees in all layers */
    double page_bytes;     /* of one layer */
    double seen, layers;   /* layer-columns that a token at the end sees; layers */
    double columns;        /* of all sequences */
    double resident_pages; /* that may stay while a token is decoded */
} sizes;

static double raw_bytes(const rm_matrix *w) {
    return (double)w->count * w->outputs * (double)rm_gguf_row_bytes(w->format, w->k);
}

/* Fine inputs are two rows for one (work.h). */
static bool is_fine(const rm_matrix *w, uint32_t unit, const rm_matrix *router) {
    return (unit < RM_UNIT_LAYERS || unit % 2 == 0 || w == router) &&
           rm_formats[w->format].act != RM_ACT_F32;
}

static void add_unit(sizes *z, const rm_setup *s, const rm_model *m, uint32_t index,
                     const rm_rate_table *rates) {
    rm_matrix *w[RM_UNIT_MATRICES];
    rm_model copy = *m; /* nothing is written */
    const uint32_t unit = rm_plan_unit(m, index);
    const bool tied = m->output.source == m->embedding.source, layer = unit >= RM_UNIT_LAYERS;
    if (unit == RM_UNIT_EMBEDDING && !tied) return;
    const rm_matrix *router = layer ? &m->layers[(unit - RM_UNIT_LAYERS) / 2].router : NULL;
    const uint32_t count = rm_unit_matrices(w, &copy, unit);
    for (uint32_t i = 0; i < count; i++) {
        const rm_rates *r = &rates->of[w[i]->format];
        const double used = w[i]->count > 1 ? (double)m->shape.expert_used / w[i]->count : 1;
        const double rows = is_fine(w[i], unit, router) ? 2 : 1;
        const double bytes = raw_bytes(w[i]);
        if (index >= s->unit_count) z->streamed_raw += bytes;
        if (index >= s->unit_count) z->pack_s += bytes / r->pack_s;
        z->token_s += bytes * used / r->weights_s;
        if (!layer) continue;
        z->row_s += (double)w[i]->count * w[i]->outputs * w[i]->k * used * rows / r->products_s;
        z->values += rows * w[i]->k + w[i]->outputs * used * w[i]->count;
    }
}

static sizes sizes_of(const rm_setup *s, const rm_model *m, const rm_rate_table *rates) {
    const rm_shape *p = &m->shape;
    const rm_cache_shape cache = rm_setup_cache(s, m);
    sizes z = {.page_bytes = (double)rm_cache_page_bytes(&cache),
               .layers = p->layer_count,
               .columns = (double)s->column_count * s->sequence_count};
    for (uint32_t i = 0; i < rm_unit_count(m); i++)
        add_unit(&z, s, m, i, rates);
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
           (z->row_s / PRODUCTS_SHARE + z->values * VALUE_S +
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
    return (bytes + 1) / (bytes + (1 << 18));
}

/* What runs side by side waits for each other now and then. */
static double beside(double a, double b) {
    return larger(a, b) + 0.1 * (a < b ? a : b);
}

rm_cost rm_cost_of(const rm_setup *s, const rm_model *m, const rm_rate_table *rates) {
    const rm_rates *r = &rates->of[m->layers[0].wk.format]; /* what is not of a format */
    const sizes z = sizes_of(s, m, rates);
    const double n = (double)s->context_count * s->sequence_count, chunk = s->chunk_rows;
    const double sweeps = s->row_max > 0 ? larger(1, n / s->row_max) : 1;
    const double disk = larger(r->disk_read_s, 1e6) * ring_share((double)s->raw_bytes);
    const double spill =
        larger(r->spill_read_s, 1e6) * ring_share((double)s->stage_count * z.page_bytes);
    const double write = larger(r->disk_write_s, 1e6);
    const double stream_s = z.streamed_raw / disk;
    const double again = dropped_columns(s, &z) * RM_PAGE_TOKENS;
    /* Pages that come back from disk, or from their inputs. */
    const double missing =
        larger(0, z.seen - z.resident_pages -
                      (s->cold == REMAT_COLD_SPILL ? again / RM_PAGE_TOKENS * z.layers : 0));
    /* Hidden rows come in requests of a chunk. */
    const double hidden = s->row_max > 0 ? 0 : (double)m->shape.dim * sizeof(float);
    rm_cost c;
    double cpu = rows_s(&z, r, n, chunk, s->context_count / 2.0) + sweeps * z.pack_s;
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
    cpu = z.token_s + z.seen * z.page_bytes / r->pages_s + z.pack_s + again_s +
          z.layers * PHASES * PHASE_S;
    io =
        stream_s + again * hidden * (z.layers - 1) * (1 / larger(r->spill_read_s, 1e6) + 1 / write);
    if (s->cold == REMAT_COLD_SPILL) io += missing * z.page_bytes / spill;
    c.token_s = beside(cpu, io);
    c.again = again > 0 && s->cold != REMAT_COLD_INPUTS;
    return c;
}

/* --- formats ---------------------------------------------------------------------------------- */

static int weigh_one(void *user, rm_matrix *w, rm_vector *v, remat_error *err) {
    double *bytes = user;
    (void)v;
    (void)err;
    if (w != NULL) bytes[w->format] += raw_bytes(w);
    return REMAT_OK;
}

uint32_t rm_main_formats(rm_format out[RM_MAIN_FORMATS], const rm_model *m) {
    enum { SHARE = 32 }; /* less of all bytes does not matter */
    rm_model copy = *m;  /* visiting writes nothing */
    double bytes[RM_FORMAT_COUNT] = {0}, all = 0;
    uint32_t count = 0;
    (void)rm_model_visit(&copy, weigh_one, bytes, NULL);
    for (int f = 0; f < RM_FORMAT_COUNT; f++)
        all += bytes[f];
    for (; count < RM_MAIN_FORMATS; count++) {
        int most = 0;
        for (int f = 1; f < RM_FORMAT_COUNT; f++)
            most = bytes[f] > bytes[most] ? f : most;
        if (bytes[most] * SHARE < all || !(bytes[most] > 0)) break;
        out[count] = (rm_format)most;
        bytes[most] = 0;
    }
    return count;
}
