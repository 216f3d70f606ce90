/*
 * haystack.h: a fact to be found again, and text to hide it in. Part: app.
 *
 * The text is that of a file, sentence by sentence, or is made up: plain sentences drawn by chance
 * from lists of words, so that none is a copy of the others, a few thousand tokens do not repeat
 * themselves, and a seed gives the same text everywhere. There is no figure in made-up text: the
 * needle has the only ones.
 */
#ifndef RM_APP_HAYSTACK_H
#define RM_APP_HAYSTACK_H

#include "base/random.h"

#include <stddef.h>

enum { APP_SENTENCE_BYTES = 400 };

typedef struct app_haystack {
    const char *text; /* of the file; NULL: sentences are made up */
    size_t bytes, at;
    rm_random random;
    char made[APP_SENTENCE_BYTES];
} app_haystack;

/* A text of a file is begun somewhere, and goes on from its beginning after its end. */
void app_haystack_start(app_haystack *h, const char *text, size_t bytes, uint64_t seed);

/* The next sentence, with the blanks behind it, of at most APP_SENTENCE_BYTES bytes, which cut no
 * character of UTF-8. Valid until the next call; never empty. */
size_t app_haystack_next(const char **out, app_haystack *h);

typedef struct app_needle {
    char fact[160];     /* "The secret number of Lisbon is 4817263. " */
    char question[160]; /* "What is the secret number of Lisbon?" */
    char prefix[96];    /* of the answer: "The secret number of Lisbon is" */
    char number[16];    /* "4817263" */
} app_needle;

void app_needle_make(app_needle *out, rm_random *r);

#endif /* RM_APP_HAYSTACK_H */
