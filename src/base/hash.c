/*
 * hash.c: see hash.h. The only file that includes xxHash: its one-shot functions are compiled in
 * here, its streaming half (which takes memory from the heap) is left out.
 */
#include "base/hash.h"

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#define XXH_NO_STDLIB
#include <xxhash.h>

uint64_t rm_hash(const void *bytes, size_t count, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, count, seed);
}
