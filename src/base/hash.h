/* hash.h: 64-bit hashes of bytes (XXH3, through xxHash). Part: base. */
#ifndef RM_BASE_HASH_H
#define RM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t rm_hash(const void *bytes, size_t count, uint64_t seed);

#endif /* RM_BASE_HASH_H */
