/*
 * avx2_vnni.c: matrix products by blocks of 32 with AVX-VNNI, for CPUs that have vpdpbusd on 256
 * bits and no AVX-512. Part: kernels.
 */
#include "kernels/x86/avx2_blocks.h"

void rm_kernels_init_avx2_vnni(rm_kernels *t) {
    t->name = "avxvnni";
    set_blocks(t);
}
