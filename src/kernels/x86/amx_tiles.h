/*
 * amx_tiles.h: what the products by tiles share. Part: kernels; included by amx*.c only.
 *
 * A tile of activations is 16 rows x 64 k as they lie in memory, a tile of weights 16 vectors of
 * the strip's layout: 64 k x 16 outputs; its products are 16 x 16 sums of 32 bits. A product takes
 * 16 cycles, for fewer k as well.
 *
 * gcc 12 tells its optimizer that _tile_loadconfig() reads 8 bytes of the 64, and that
 * _tile_loadd() reads none: hence tiles_written() between stores to memory and tiles read from it.
 */
#ifndef RM_KERNELS_AMX_TILES_H
#define RM_KERNELS_AMX_TILES_H

#include "kernels/kernels_impl.h"

#include <immintrin.h>

enum { TILE = 16 }; /* rows of a tile; each has up to 64 bytes */

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

_Static_assert(sizeof(tile_config) == 64, "ldtilecfg reads 64 bytes");

/* All stores before it have happened for the tile instructions after it. */
INLINE void tiles_written(void) {
    __asm__ volatile("" ::: "memory");
}

/* Tiles 0 .. 3: sums; from 4 on activations and weights of k k in turn. A call owns the tiles until
 * tiles_release(); nothing else in the program uses them. */
INLINE void tiles_configure(unsigned k) {
    tile_config c = {.palette = 1};
    for (unsigned i = 0; i < 8; i++) {
        const bool sums = i < 4, weights = i % 2 != 0;
        c.row_bytes[i] = (uint16_t)(sums || weights ? 64 : k);
        c.rows[i] = (uint8_t)(sums || !weights ? TILE : k / 4);
    }
    __asm__ volatile("" ::"r"(&c) : "memory");
    _tile_loadconfig(&c);
}

INLINE void tiles_release(void) {
    _tile_release();
}

/* Rows from row `first` on, a multiple of 16. */
static inline rm_out rows_from(const rm_out *y, uint32_t first) {
    return (rm_out){.at = y->at + (size_t)first * y->strips * RM_LANES,
                    .row_count = y->row_count - first,
                    .strips = y->strips};
}

#endif /* RM_KERNELS_AMX_TILES_H */
