/* products.c: matrix products of a phase, spread over threads by strips. Part: engine. */
#include "engine/layer.h"

enum {
    /* Activations of a row block should stay in half of a core's second-level cache. */
    BLOCK_BYTES = 1 << 20,
};

void rm_inputs_put(const rm_kernels *kernels, rm_inputs *in, uint32_t row, uint32_t k_first,
                   uint32_t k_count, const float *f, float *space) {
    for (int i = 0; i < RM_INPUT_COUNT; i++) {
        if (!(in->mask >> i & 1)) continue;
        rm_acts *x = &in->kind[i];
        const uint32_t each = rm_input_rows((rm_input_kind)i);
        kernels->act_put(x, each * row, k_first, k_count, f);
        if (each == 1) continue;
        kernels->act_rest(space, x, 2 * row, k_first, k_count, f);
        kernels->act_put(x, 2 * row + 1, k_first, k_count, space);
    }
}

rm_product rm_product_make(const rm_matrix *w, bool fine, uint32_t row_count, float **at) {
    rm_product p = {.w = w, .input = rm_input_of(w, fine)};
    p.y = (rm_out){.at = *at,
                   .row_count = row_count * rm_input_rows(p.input),
                   .strips = rm_strips(w->outputs)};
    *at += (size_t)p.y.row_count * p.y.strips * RM_LANES;
    return p;
}

void rm_product_row(float *out, const rm_kernels *kernels, const rm_product *p, uint32_t row,
                    float *space) {
    const uint32_t n = rm_input_rows(p->input);
    kernels->out_row(out, &p->y, n * row, 0, p->y.strips);
    if (n == 1) return;
    kernels->out_row(space, &p->y, n * row + 1, 0, p->y.strips);
    kernels->add(out, space, (size_t)p->y.strips * RM_LANES);
}

typedef struct phase {
    const rm_kernels *kernels;
    const rm_work *work;
    const rm_inputs *in;
    const rm_product *products;
    uint32_t row_first, row_count; /* of the chunk */
} phase;

uint32_t rm_batch_of(const rm_threads *threads, uint32_t items, uint32_t rows) {
    const uint32_t shares = 2 * rm_threads_count(threads);
    if (rows > RM_SPLIT_ROWS) return 1 + items / (8 * shares);
    return (items + shares - 1) / shares;
}

/* Rows first .. first + count - 1 of a phase are these rows of the product. */
static void strip_item(void *user, uint32_t item, uint32_t thread) {
    const phase *p = user;
    const rm_product *product = p->products;
    while (item >= product->y.strips) {
        item -= product->y.strips;
        product++;
    }
    const rm_matrix *w = product->w;
    const uint32_t each = rm_input_rows(product->input);
    const uint32_t first = p->row_first * each, count = p->row_count * each;
    const rm_acts x = rm_acts_rows(&p->in->kind[product->input], first, count);
    const rm_out y = {.at = product->y.at + (size_t)first * product->y.strips * RM_LANES,
                      .row_count = count,
                      .strips = product->y.strips};
    p->kernels->matmul[w->format](&y, item, w->strips + (size_t)item * w->strip_bytes, &x,
                                  p->work->threads[thread].matmul);
}

void rm_products_run(const rm_kernels *kernels, rm_threads *threads, const rm_work *work,
                     const rm_inputs *in, const rm_product *products, uint32_t count) {
    phase p = {.kernels = kernels, .work = work, .in = in, .products = products};
    const uint32_t rows = products[0].y.row_count / rm_input_rows(products[0].input);
    uint32_t strips = 0, each = 1;
    for (uint32_t i = 0; i < count; i++) {
        strips += products[i].y.strips;
        if (rm_input_rows(products[i].input) > each) each = rm_input_rows(products[i].input);
    }
    uint32_t block = BLOCK_BYTES / rm_pad_k_of(rm_input_act(products[0].input), products[0].w->k);
    if (block > RM_CHUNK_ROWS_MAX) block = RM_CHUNK_ROWS_MAX;
    block = block / each / RM_GROUP * RM_GROUP;
    if (block < RM_GROUP) block = RM_GROUP;
    for (uint32_t first = 0; first < rows; first += block) {
        p.row_first = first;
        p.row_count = rows - first < block ? rows - first : block;
        rm_threads_for(threads, strips, rm_batch_of(threads, strips, rows), strip_item, &p);
    }
}
