/*
 * kernels.c: what the machine can run, and the list of sets. Part: kernels. Baseline CPU.
 *
 * The tables are built once, on the first call, and constant afterwards.
 */
#include "kernels/kernels.h"
#include "kernels/kernels_impl.h"

#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

/* asm/prctl.h has them since Linux 5.16. */
enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };

/* Not __builtin_cpu_supports(): clang 14 rejects some names. XCR0 says what the system saves when
 * it switches threads: without that, the CPU's own flag is of no use. */
unsigned rm_cpu_features(void) {
    unsigned features = 0, a, b, c, d, b7, c7, d7, xcr0, xcr0_high;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
    const bool ymm = (xcr0 & 0x06) == 0x06, zmm = (xcr0 & 0xe6) == 0xe6;
    const bool avx2 = b >> 5 & 1;
    const bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
    const bool vnni = c >> 11 & 1, tiles = d >> 24 & 1, tiles_int8 = d >> 25 & 1;
    if (ymm && avx2 && fma && f16c) features |= RM_CPU_AVX2;
    if ((features & RM_CPU_AVX2) && __get_cpuid_count(7, 1, &a, &b7, &c7, &d7) && (a >> 4 & 1))
        features |= RM_CPU_AVX_VNNI;
    if ((features & RM_CPU_AVX2) && zmm && f && dq && bw && vl && vnni) features |= RM_CPU_AVX512;
    const bool tile_state = (xcr0 & 0x60000) == 0x60000;
    if ((features & RM_CPU_AVX512) && tiles && tiles_int8 && tile_state &&
        syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0)
        features |= RM_CPU_AMX;
    return features;
}

enum { REF, AVX2, AVX_VNNI, AVX512, AMX, SET_COUNT };

static const unsigned needs[SET_COUNT] = {[AVX2] = RM_CPU_AVX2,
                                          [AVX_VNNI] = RM_CPU_AVX2 | RM_CPU_AVX_VNNI,
                                          [AVX512] = RM_CPU_AVX2 | RM_CPU_AVX512,
                                          [AMX] = RM_CPU_AVX2 | RM_CPU_AVX512 | RM_CPU_AMX};
static rm_kernels tables[SET_COUNT];
static const rm_kernels *const list[SET_COUNT + 1] = {
    &tables[REF], &tables[AVX2], &tables[AVX_VNNI], &tables[AVX512], &tables[AMX], NULL};

static void build(void) {
    rm_kernels_init_ref(&tables[REF]);
    rm_kernels_init_ref_attn(&tables[REF]);
    tables[AVX2] = tables[REF];
    rm_kernels_init_avx2(&tables[AVX2]);
    rm_kernels_init_avx2_k(&tables[AVX2]);
    rm_kernels_init_avx2_rows(&tables[AVX2]);
    rm_kernels_init_avx2_attn(&tables[AVX2]);
    tables[AVX_VNNI] = tables[AVX2];
    rm_kernels_init_avx2_vnni(&tables[AVX_VNNI]);
    rm_kernels_init_avx2_vnni_k(&tables[AVX_VNNI]);
    tables[AVX512] = tables[AVX2]; /* not every CPU with AVX-512 has AVX-VNNI */
    rm_kernels_init_avx512(&tables[AVX512]);
    rm_kernels_init_avx512_k(&tables[AVX512]);
    rm_kernels_init_avx512_rows(&tables[AVX512]);
    rm_kernels_init_avx512_attn(&tables[AVX512]);
    tables[AMX] = tables[AVX512];
    rm_kernels_init_amx(&tables[AMX]);
    rm_kernels_init_amx_k(&tables[AMX]);
}

const rm_kernels *const *rm_kernels_all(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
    return list;
}

const rm_kernels *rm_kernels_select(const char *name, unsigned features) {
    const rm_kernels *const *all = rm_kernels_all();
    const rm_kernels *best = NULL;
    for (int i = 0; i < SET_COUNT; i++) {
        const bool runs = (needs[i] & ~features) == 0;
        if (runs && (name == NULL || strcmp(name, all[i]->name) == 0)) best = all[i];
    }
    return best;
}
