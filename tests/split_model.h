/* split_model.h: a model cut into parts, as gguf-split does it. */
#ifndef RM_TESTS_SPLIT_MODEL_H
#define RM_TESTS_SPLIT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/* Writes STEM-00001-of-0000N.gguf and so on from the model at path. The first part has all metadata
 * and no tensor, the others their share. */
bool split_model(const char *stem, const char *path, uint32_t part_count);

/* The path of a part; number counts from 1. */
void split_path(char out[256], const char *stem, uint32_t number, uint32_t part_count);

/* Writes `value` over that of the number `key`, of `bytes` bytes, in the file at path. */
bool split_patch(const char *path, const char *key, uint32_t value, uint32_t bytes);

#endif /* RM_TESTS_SPLIT_MODEL_H */
