/*
 * chat.h: which chat template a model has: its own, or a built-in one. Part: text.
 *
 * Files without a template are common (base models, old conversions). The built-in ones are the
 * public formats of model families, as Jinja source; the vocabulary says which one fits.
 */
#ifndef RM_TEXT_CHAT_H
#define RM_TEXT_CHAT_H

#include "text/tokenizer.h"

/* Source of a built-in template by name ("chatml", "llama2", "llama3", "gemma", "phi3", "mistral",
 * "plain"), or NULL. */
const char *rm_chat_builtin(const char *name, size_t name_bytes);

/* The built-in template whose turn marks this vocabulary has; "plain" when it has none of them. */
const char *rm_chat_fitting(const rm_tokenizer *t);

#endif /* RM_TEXT_CHAT_H */
