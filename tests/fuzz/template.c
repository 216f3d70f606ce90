/*
 * template.c: fuzz target of the chat templates. The input is a template, a NUL byte and JSON;
 * without a NUL the JSON is that of an ordinary conversation. What comes out must have a mark for
 * each byte, and be the same the second time.
 */
#include "text/template.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool c) {
    if (!c) abort();
}

static const char CHAT[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
    "\"a \\u00e9 "
    "<|im_end|>\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{"
    "\"name\":\"f\",\"arguments\":{\"b\":[1,2.5,true,null],\"a\":{}}}}]}],\"tools\":[{\"n\":1}],"
    "\"add_generation_prompt\":true,\"s\":\"x "
    "y,z\",\"xs\":[3,1,2],\"n\":7,\"items\":{\"items\":1}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint64_t memory[2][(256 << 10) / 8]; /* little, so that running out is tried as well */
    const char *source = (const char *)data;
    const void *nul = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t n = nul != NULL ? (size_t)((const uint8_t *)nul - data) : size;
    const char *json = nul != NULL ? source + n + 1 : CHAT;
    const size_t json_bytes = nul != NULL ? size - n - 1 : strlen(CHAT);
    const rm_template_extra extra = {"bos_token", "<s>", 3};
    rm_template_limits limits = rm_template_limits_default();
    limits.steps_max = 100000;
    limits.depth_max = 100; /* sanitizers make frames large */
    limits.output_max = 64 << 10;
    rm_template_output out[2];
    remat_error err[2] = {{0}};
    int status[2];
    for (int i = 0; i < 2; i++) {
        status[i] = rm_template_render(&out[i], source, n, json, json_bytes, &extra, 1, &limits,
                                       memory[i], sizeof memory[i], &err[i]);
    }
    require(status[0] == status[1]);
    require(status[0] == REMAT_OK ||
            (status[0] == REMAT_E_FAILED && strchr(err[0].message, '\n') == NULL));
    require(strcmp(err[0].message, err[1].message) == 0);
    if (status[0] != REMAT_OK) return 0;
    require(out[0].bytes == out[1].bytes && out[0].bytes <= limits.output_max);
    require(memcmp(out[0].text, out[1].text, out[0].bytes) == 0);
    require(memcmp(out[0].marks, out[1].marks, out[0].bytes) == 0);
    for (size_t i = 0; i < out[0].bytes; i++)
        require(out[0].marks[i] <= 1);
    return 0;
}
