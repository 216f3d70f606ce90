/* reason.h: what every failure of a parser has to have, for fuzz targets. */
#ifndef RM_FUZZ_REASON_H
#define RM_FUZZ_REASON_H

#include "base/check.h"

/* Each failure has a reason, in one line that a terminal survives. */
static inline void checked(int status, const remat_error *err) {
    RM_ASSERT(status == REMAT_OK || status == REMAT_E_FAILED);
    RM_ASSERT((err->message[0] != '\0') == (status != REMAT_OK));
    for (const char *p = err->message; *p != '\0'; p++)
        RM_ASSERT(*p >= 0x20 && *p < 0x7f);
}

#endif /* RM_FUZZ_REASON_H */
