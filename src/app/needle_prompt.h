/*
 * needle_prompt.h: the prompts of remat eval --needle. Part: app.
 *
 *     chat template ( intro | text, the fact in it at a depth | question ) | begin of the answer
 *
 * The answer is begun for the model, "The secret number of Lisbon is": so the figure is the next
 * thing to say, a model that was never taught to chat can be asked as well, and the probability of
 * the right answer means the same everywhere.
 */
#ifndef RM_APP_NEEDLE_PROMPT_H
#define RM_APP_NEEDLE_PROMPT_H

#include "app/app.h"
#include "app/haystack.h"

/* What all prompts are made in. */
typedef struct app_needle_maker {
    remat_engine *engine;
    const app_args *args;
    app_text text, source; /* of -f; a template in place of the model's */
    uint32_t length_max;
    char *hay, *prompt, *json;
    size_t hay_cap, prompt_cap, json_cap, prompt_bytes;
    uint32_t *ends; /* of the sentences in hay, length_max of them */
    uint32_t *ids;
    size_t ids_cap;
} app_needle_maker;

/* A prompt, and the right answer behind it. */
typedef struct app_needle_prompt {
    uint32_t *ids;
    uint32_t count, answer_count; /* of the prompt; behind it */
    char number[16];
} app_needle_prompt;

enum { APP_NEEDLE_ANSWER = 24 }; /* tokens that an answer has room for */

/* For prompts of at most so many tokens. Errors: REMAT_E_BUDGET, and of the files. */
int app_needle_maker_open(app_needle_maker *m, remat_engine *e, const app_args *args,
                          uint32_t length_max, remat_error *err);

/* A prompt of at most `length` tokens, by less than a sentence, the fact behind `depth` percent of
 * the text. The same seed and length give the same text and fact at every depth.
 * Errors: REMAT_E_USAGE: too few tokens for a sentence; as remat_tokenize_chat(). */
int app_needle_prompt_make(app_needle_prompt *out, app_needle_maker *m, uint32_t length,
                           uint32_t depth, uint64_t seed, remat_error *err);

#endif /* RM_APP_NEEDLE_PROMPT_H */
