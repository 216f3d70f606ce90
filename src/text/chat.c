/* chat.c: see chat.h. */
#include "text/chat.h"

#include <string.h>

/* In order of trial: the first whose mark is one token of the vocabulary. No system role of its
 * own: the system text opens the first user turn, as the families' authors do. */
static const struct {
    const char *name, *mark, *source;
} builtins[] = {
    {"chatml", "<|im_start|>",
     "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor "
     "%}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"llama3", "<|start_header_id|>",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
     "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"gemma", "<start_of_turn>",
     "{{ bos_token }}{% set ns = namespace(s='') %}{% for m in messages %}"
     "{% if m['role'] == 'system' %}{% set ns.s = m['content'] + '\n\n' %}{% else %}"
     "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
     "{{ ns.s }}{{ m['content'] | trim }}<end_of_turn>\n{% set ns.s = '' %}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
    {"phi3", "<|end|>",
     "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"mistral", "[INST]",
     "{{ bos_token }}{% set ns = namespace(s='') %}{% for m in messages %}"
     "{% if m['role'] == 'system' %}{% set ns.s = m['content'] + '\n\n' %}"
     "{% elif m['role'] == 'user' %}[INST] {{ ns.s }}{{ m['content'] }} [/INST]{% set ns.s = '' %}"
     "{% else %} {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"},
    {"llama2", NULL,
     "{% set ns = namespace(s='') %}{% for m in messages %}"
     "{% if m['role'] == 'system' %}{% set ns.s = '<<SYS>>\n' + m['content'] + '\n<</SYS>>\n\n' %}"
     "{% elif m['role'] == 'user' %}{{ bos_token }}[INST] {{ ns.s }}{{ m['content'] }} [/INST]"
     "{% set ns.s = '' %}{% else %} {{ m['content'] }} {{ eos_token }}{% endif %}{% endfor %}"},
    {"plain", NULL,
     "{{ bos_token }}{% for m in messages %}{{ m['content'] }}"
     "{% if not loop.last %}\n\n{% endif %}{% endfor %}"},
};

enum { BUILTIN_COUNT = sizeof builtins / sizeof *builtins };

const char *rm_chat_builtin(const char *name, size_t name_bytes) {
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        if (strlen(builtins[i].name) == name_bytes &&
            memcmp(builtins[i].name, name, name_bytes) == 0)
            return builtins[i].source;
    }
    return NULL;
}

const char *rm_chat_fitting(const rm_tokenizer *t) {
    for (int i = 0; i < BUILTIN_COUNT; i++) {
        const char *mark = builtins[i].mark;
        if (mark == NULL) continue;
        const int32_t id = rm_token_find(t, mark, strlen(mark));
        if (id == RM_TOKEN_NONE) continue;
        const rm_token_type type = rm_token_type_of(t, (uint32_t)id);
        if (type == RM_TOKEN_CONTROL || type == RM_TOKEN_USER) return builtins[i].source;
    }
    return builtins[BUILTIN_COUNT - 1].source;
}
