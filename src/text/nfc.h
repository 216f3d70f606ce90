/*
 * nfc.h: Unicode's normal form C, for vocabularies whose authors normalize the text. Part: text.
 *
 * Unicode's tables are utf8proc's; of that library only functions that take no memory are called.
 * Order and buffers are ours, so that time stays linear: a text may be one long row of accents.
 */
#ifndef RM_TEXT_NFC_H
#define RM_TEXT_NFC_H

#include "base/check.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether rm_nfc() would give the text back, as far as can be told a character at a time: false
 * says no more than that it is worth trying. */
bool rm_nfc_is_plain(const char *text, size_t bytes);

/* The most that a text grows to here. Three times are possible in theory, for a text of nothing
 * but a few musical signs. */
static inline size_t rm_nfc_most(size_t bytes) {
    return 2 * bytes + 64;
}

/* Work memory of rm_nfc(), aligned to 4. */
size_t rm_nfc_work_bytes(size_t bytes);

/* text is valid UTF-8; out has room for rm_nfc_most(bytes). Errors: REMAT_E_FAILED. */
int rm_nfc(char *out, size_t *out_bytes, const char *text, size_t bytes, void *work,
           remat_error *err);

#endif /* RM_TEXT_NFC_H */
