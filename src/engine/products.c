/* products.c: matrix products of a phase, spread over threads by strips. Part: engine. */
#include "engine/layer.h"

enum {
    /* Activations of a row block should stay in half of a core's second-level cache. */
    BLOCK_BYTES = 1 << 20,
};

void rm_inputs_put(const rm_kernels *kernels, rm_inputs *in, uint32_t row, uint32_t k_first,
                   uint32_t k_count, const float *f) {
    for (int i = 0; i < RM_ACT_COUNT; i++) {
        if (in->mask >> i & 1) kernels->act_put(&in->kind[i], row, k_first, k_count, f);
    }
}

typedef struct phase {
    const rm_kernels *kernels;
    const rm_work *work;
    const rm_inputs *in;
    const rm_product *products;
    uint32_t count;
    uint32_t row_first, row_count;
} phase;

static void strip_item(void *user, uint32_t item, uint32_t thread) {
    const phase *p = user;
    const rm_product *product = p->products;
    while (item >= product->y.strips) {
        item -= product->y.strips;
        product++;
    }
    const rm_matrix *w = product->w;
    const rm_acts x =
        rm_acts_rows(&p->in->kind[rm_formats[w->format].act], p->row_first, p->row_count);
    const rm_out y = {.at = product->y.at + (size_t)p->row_first * product->y.strips * RM_LANES,
                      .row_count = p->row_count,
                      .strips = product->y.strips};
    p->kernels->matmul[w->format](&y, item, w->strips + (size_t)item * w->strip_bytes, &x,
                                  p->work->threads[thread].matmul);
}

void rm_products_run(const rm_kernels *kernels, rm_threads *threads, const rm_work *work,
                     const rm_inputs *in, const rm_product *products, uint32_t count) {
    phase p = {.kernels = kernels, .work = work, .in = in, .products = products, .count = count};
    const uint32_t rows = products[0].y.row_count, k = rm_pad_k(products[0].w->k);
    uint32_t strips = 0, block = BLOCK_BYTES / k / RM_GROUP * RM_GROUP;
    if (block < RM_GROUP) block = RM_GROUP;
    for (uint32_t i = 0; i < count; i++)
        strips += products[i].y.strips;
    for (uint32_t first = 0; first < rows; first += block) {
        p.row_first = first;
        p.row_count = rows - first < block ? rows - first : block;
        rm_threads_for(threads, strips, 0, strip_item, &p);
    }
}
