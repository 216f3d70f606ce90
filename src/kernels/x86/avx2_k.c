/* avx2_k.c: products by blocks of 256 with AVX2; see avx2_k_blocks.h. Part: kernels. */
#include "kernels/x86/avx2_k_blocks.h"

void rm_kernels_init_avx2_k(rm_kernels *t) {
    set_k_blocks(t);
}
