/*
 * poison.h: tells AddressSanitizer which bytes of our own memory nobody may touch; an own arena
 * would blind it. Without it, and under the other sanitizers, nothing happens. Part: base.
 */
#ifndef RM_BASE_POISON_H
#define RM_BASE_POISON_H

/* gcc and clang each have their own way to say that it is there. */
#ifdef __has_feature
#define RM_HAS_FEATURE(x) __has_feature(x)
#else
#define RM_HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || RM_HAS_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
enum { RM_RED_ZONE = 64 }; /* poisoned bytes between two sections of the ledger */
#define rm_poison(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define rm_unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
enum { RM_RED_ZONE = 0 };
#define rm_poison(p, n)   ((void)(p), (void)(n))
#define rm_unpoison(p, n) ((void)(p), (void)(n))
#endif

#endif /* RM_BASE_POISON_H */
