/*
 * template.h: renders a chat template (Jinja) with the variables of a JSON object. Part: text.
 *
 * The language is Jinja2's as chat templates use it, set up as their authors expect: trim_blocks,
 * lstrip_blocks, no trailing newline, loop controls, no autoescape, lenient undefined values. Not
 * there: include, import, extends, block, recursive loops. Templates come from model files that
 * nobody has read, so a rendering is bounded in memory, steps, depth and output; it uses no heap
 * and keeps no state.
 *
 *     rm_template_limits limits = rm_template_limits_default();
 *     rm_template_output out;
 *     RM_TRY(rm_template_render(&out, source, source_bytes, json, json_bytes, extra, 2, &limits,
 *                               memory, memory_bytes, err));
 */
#ifndef RM_TEXT_TEMPLATE_H
#define RM_TEXT_TEMPLATE_H

#include "base/check.h"

#include <stddef.h>

typedef struct rm_template_limits {
    uint32_t depth_max; /* nesting of template, evaluation and variables; a level takes stack */
    uint64_t steps_max; /* work: a step for each node evaluated and for every 16 bytes touched */
    size_t output_max;  /* bytes */
    int64_t now;        /* strftime_now(): seconds since 1970, UTC */
} rm_template_limits;

/* Depth 400 (under 256 KiB of stack), 10 million steps (under 2 s), 16 MiB, 1970. */
rm_template_limits rm_template_limits_default(void);

/* A variable that counts as the template's own text: bos_token, eos_token. The JSON object's
 * variable of the same name comes before it. */
typedef struct rm_template_extra {
    const char *name, *text;
    size_t text_bytes;
} rm_template_extra;

/* marks: one byte for each byte of text. 1: it is the template's own (or an extra's). 0: it comes
 * from the variables or is computed from them, so that control tokens a user types stay text. */
typedef struct rm_template_output {
    const char *text;
    const uint8_t *marks;
    size_t bytes;
    size_t memory_used; /* of memory_bytes */
} rm_template_output;

/* Renders source. Everything, the output too, comes from memory, which is never given back in
 * parts: out stays valid as long as memory, source, json and extra do. As a rule of thumb memory
 * takes 64 KiB, 12 times the source, 16 times the JSON (3 times when it is long texts) and 4 times
 * the output; what is not needed is not touched.
 * Errors: REMAT_E_FAILED. The message is one line; that of raise_exception() is the template's own
 * text and nothing else. */
int rm_template_render(rm_template_output *out, const char *source, size_t source_bytes,
                       const char *json, size_t json_bytes, const rm_template_extra *extra,
                       uint32_t extra_count, const rm_template_limits *limits, void *memory,
                       size_t memory_bytes, remat_error *err);

#endif /* RM_TEXT_TEMPLATE_H */
