/* needle_prompt.c: see needle_prompt.h. */
#include "app/needle_prompt.h"
#include "app/talk.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* English has 4 to 5 bytes a token. Text with more of them gives shorter prompts. */
enum { BYTES_A_TOKEN = 12, PROMPT_SPARE = 1024 };

#define INTRO                                                                                      \
    "There is a fact in the following text. Remember it: a question about it comes after the "     \
    "text.\n\n"
#define OUTRO " Answer with the number.\n"

int app_needle_maker_open(app_needle_maker *m, remat_engine *e, const app_args *args,
                          uint32_t length_max, remat_error *err) {
    *m = (app_needle_maker){.engine = e, .args = args, .length_max = length_max};
    m->hay_cap = (size_t)length_max * BYTES_A_TOKEN + APP_SENTENCE_BYTES;
    m->prompt_cap = m->hay_cap + PROMPT_SPARE;
    m->json_cap = 6 * m->prompt_cap + 256; /* a byte takes at most six in JSON (\u0000) */
    m->ids_cap = (size_t)length_max + APP_SENTENCE_BYTES + PROMPT_SPARE;
    if (args->file != NULL || args->prompt != NULL || args->from_stdin) {
        RM_TRY(app_read_text(&m->text, e, args, err));
        if (m->text.count == 0)
            return rm_fail(err, REMAT_E_USAGE,
                           "--needle: the text is empty; leave -f out for one "
                           "that is made up");
    }
    RM_TRY(app_template_source(&m->source, e, args, err));
    RM_TRY(app_alloc(&m->hay, e, m->hay_cap, 1, err));
    RM_TRY(app_alloc(&m->prompt, e, m->prompt_cap, 1, err));
    if (!args->raw) RM_TRY(app_alloc(&m->json, e, m->json_cap, 1, err));
    RM_TRY(app_alloc(&m->ends, e, length_max, sizeof *m->ends, err));
    return app_alloc(&m->ids, e, m->ids_cap, sizeof *m->ids, err);
}

static void add(app_needle_maker *m, const char *bytes, size_t count) {
    RM_ASSERT(count <= m->prompt_cap - m->prompt_bytes);
    memcpy(m->prompt + m->prompt_bytes, bytes, count);
    m->prompt_bytes += count;
}

/* What the user says: `end` bytes of the text, the fact behind the first `at` of them. */
static void compose(app_needle_maker *m, const app_needle *needle, size_t at, size_t end) {
    m->prompt_bytes = 0;
    add(m, INTRO, strlen(INTRO));
    add(m, m->hay, at);
    add(m, needle->fact, strlen(needle->fact));
    add(m, m->hay + at, end - at);
    add(m, "\n\n", 2);
    add(m, needle->question, strlen(needle->question));
    add(m, OUTRO, strlen(OUTRO));
    if (m->args->raw) add(m, "\n", 1);
}

/* Tokens of what the user says, up to where the model answers. */
static int user_tokens(size_t *count, app_needle_maker *m, remat_error *err) {
    rm_buf b;
    rm_json j;
    app_message message = {.role = APP_USER, .bytes = m->prompt_bytes};
    const app_talk talk = {.text = m->prompt, .messages = &message, .count = 1};
    if (m->args->raw)
        return remat_tokenize(m->ids, m->ids_cap, count, m->engine, m->prompt, m->prompt_bytes,
                              REMAT_BOS, err);
    rm_buf_start(&b, m->json, m->json_cap, NULL, NULL);
    rm_json_start(&j, &b);
    rm_json_open(&j, NULL, '{');
    app_talk_json(&talk, &j);
    rm_json_bool(&j, "add_generation_prompt", true);
    rm_json_bool(&j, "enable_thinking", false); /* the answer is begun already */
    rm_json_close(&j, '}');
    RM_ASSERT(!b.truncated);
    const remat_chat chat = {.variables = m->json,
                             .variable_bytes = b.used,
                             .source = m->source.bytes,
                             .source_bytes = m->source.count,
                             .now = (int64_t)time(NULL)};
    return remat_tokenize_chat(m->ids, m->ids_cap, count, m->engine, &chat, err);
}

/* Puts the begin of the answer and the right answer behind `used` ids; *count: of the prompt,
 * *all: with the answer. Where one ends and the other begins, their tokens may depend on both. */
static int add_answer(uint32_t *count, uint32_t *all, app_needle_maker *m, size_t used,
                      const app_needle *needle, remat_error *err) {
    char whole[sizeof needle->prefix + sizeof needle->number + 1];
    uint32_t begin[128], *answer = m->ids + used;
    size_t begin_count, answer_count, same = 0;
    const size_t prefix = strlen(needle->prefix);
    const int bytes = snprintf(whole, sizeof whole, "%s %s", needle->prefix, needle->number);
    RM_TRY(remat_tokenize(begin, 128, &begin_count, m->engine, whole, prefix, 0, err));
    RM_TRY(remat_tokenize(answer, m->ids_cap - used, &answer_count, m->engine, whole, (size_t)bytes,
                          0, err));
    while (same < begin_count && same < answer_count && begin[same] == answer[same])
        same++;
    *count = (uint32_t)(used + same);
    *all = (uint32_t)(used + answer_count);
    return REMAT_OK;
}

/* Fills m->hay with sentences of about so many tokens; returns how many sentences. */
static int fill(uint32_t *out, app_needle_maker *m, uint32_t tokens, uint64_t seed,
                remat_error *err) {
    app_haystack h;
    size_t used = 0, count;
    uint32_t sentences = 0, have = 0, ids[APP_SENTENCE_BYTES + 8];
    app_haystack_start(&h, m->text.bytes, m->text.count, seed);
    for (;;) {
        const char *s;
        const size_t n = app_haystack_next(&s, &h);
        RM_TRY(remat_tokenize(ids, APP_SENTENCE_BYTES + 8, &count, m->engine, s, n, 0, err));
        have += (uint32_t)count;
        if (have > tokens || n > m->hay_cap - used || sentences == m->length_max) break;
        memcpy(m->hay + used, s, n);
        used += n;
        m->ends[sentences++] = (uint32_t)used;
    }
    *out = sentences;
    return REMAT_OK;
}

static int too_short(uint32_t length, uint32_t least, remat_error *err) {
    return rm_fail(err, REMAT_E_USAGE,
                   "--lengths: %u tokens are no more than the fact and the question (%u) and a "
                   "sentence around them; give more",
                   length, least);
}

int app_needle_prompt_make(app_needle_prompt *out, app_needle_maker *m, uint32_t length,
                           uint32_t depth, uint64_t seed, remat_error *err) {
    app_needle needle;
    rm_random r;
    size_t used;
    uint32_t count, all, least, sentences;
    rm_random_seed(&r, seed ^ (uint64_t)length << 32);
    app_needle_make(&needle, &r);
    compose(m, &needle, 0, 0);
    RM_TRY(user_tokens(&used, m, err));
    RM_TRY(add_answer(&least, &all, m, used, &needle, err));
    if (least >= length) return too_short(length, least, err);
    RM_TRY(fill(&sentences, m, length - least, rm_random_u64(&r), err));
    /* Tokens of sentences apart are about those of sentences together; what is too much goes. */
    for (;; sentences--) {
        if (sentences == 0) return too_short(length, least, err);
        const uint32_t before = (uint32_t)(((uint64_t)sentences * depth + 50) / 100);
        compose(m, &needle, before > 0 ? m->ends[before - 1] : 0, m->ends[sentences - 1]);
        RM_TRY(user_tokens(&used, m, err));
        RM_TRY(add_answer(&count, &all, m, used, &needle, err));
        if (count <= length) break;
    }
    *out = (app_needle_prompt){.count = count, .answer_count = all - count};
    memcpy(out->number, needle.number, sizeof out->number);
    RM_TRY(app_alloc(&out->ids, m->engine, all, sizeof *out->ids, err));
    memcpy(out->ids, m->ids, all * sizeof *out->ids);
    return REMAT_OK;
}
