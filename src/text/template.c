/* template.c: see template.h. Memory first, then the JSON, the template, and what it writes. */
#include "text/template.h"
#include "text/template_impl.h"

rm_template_limits rm_template_limits_default(void) {
    return (rm_template_limits){
        .depth_max = 400, .steps_max = 10000000, .output_max = (size_t)16 << 20};
}

static int read_variables(rm_tpl *t, const char *json, size_t bytes) {
    rm_tpl_value v;
    const rm_tpl_string *text;
    RM_TRY(rm_tpl_string_of(&v, t, json, bytes, false));
    text = v.s;
    RM_TRY(rm_tpl_json_read(&v, t, text, "the variables"));
    if (v.type != RM_TPL_DICT) return rm_tpl_fail(t, "the variables: they are no JSON object");
    t->variables = v.dict;
    return REMAT_OK;
}

static int render(rm_tpl_value *out, rm_tpl *t, const char *source, size_t source_bytes) {
    rm_tpl_node *body;
    rm_tpl_sink sink = {0};
    rm_tpl_scope root = {0};
    RM_TRY(rm_tpl_parse(&body, t, source, source_bytes));
    t->sink = &sink;
    t->scope = &root;
    RM_TRY(rm_tpl_exec(t, body));
    t->line = 0;
    return rm_tpl_sink_text(out, t, &sink);
}

/* Text with one mark for all bytes gets one for each. */
static int marks_of(const uint8_t **out, rm_tpl *t, const rm_tpl_string *s) {
    uint8_t *marks;
    *out = s->marks;
    if (s->marks != NULL) return REMAT_OK;
    RM_TRY(rm_tpl_take_bytes(&marks, t, s->count));
    memset(marks, s->mark, s->count);
    *out = marks;
    return REMAT_OK;
}

int rm_template_render(rm_template_output *out, const char *source, size_t source_bytes,
                       const char *json, size_t json_bytes, const rm_template_extra *extra,
                       uint32_t extra_count, const rm_template_limits *limits, void *memory,
                       size_t memory_bytes, remat_error *err) {
    rm_tpl_value text;
    const uint8_t *marks;
    RM_ASSERT(memory != NULL || memory_bytes == 0);
    rm_tpl t = {.low = memory, .limits = *limits, .err = err, .memory_bytes = memory_bytes};
    t.high = t.low + memory_bytes;
    if (source_bytes == 0) source = "";
    if (json_bytes == 0) json = "";
    t.extra = extra;
    t.extra_count = extra_count;
    RM_TRY(read_variables(&t, json, json_bytes));
    RM_TRY(render(&text, &t, source, source_bytes));
    RM_TRY(marks_of(&marks, &t, text.s));
    *out = (rm_template_output){.text = text.s->bytes, .marks = marks, .bytes = text.s->count};
    out->memory_used = (size_t)(t.low - (uint8_t *)memory);
    return REMAT_OK;
}
