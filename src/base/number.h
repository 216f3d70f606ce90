/* number.h: the smaller and the larger of two counts. Part: base. */
#ifndef RM_BASE_NUMBER_H
#define RM_BASE_NUMBER_H

#include <stdint.h>

static inline uint32_t rm_least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static inline uint32_t rm_most(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

#endif /* RM_BASE_NUMBER_H */
