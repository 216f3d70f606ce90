/* app.h: the commands, one file each, and what they share. Part: app. */
#ifndef RM_APP_APP_H
#define RM_APP_APP_H

#include "app/args.h"
#include "app/input.h"
#include "app/output.h"

/* A chat: app_run() at a terminal without a prompt. */
int app_chat_run(const app_args *args, remat_error *err);

int app_run(const app_args *args, remat_error *err);
int app_score(const app_args *args, remat_error *err);
int app_eval(const app_args *args, remat_error *err);
int app_bench(const app_args *args, remat_error *err);
int app_plan(const app_args *args, remat_error *err);
int app_info(const app_args *args, remat_error *err);
int app_tokenize(const app_args *args, remat_error *err);
int app_template(const app_args *args, remat_error *err);
int app_detokenize(const app_args *args, remat_error *err);
int app_completion(const app_args *args, remat_error *err);
int app_version(const app_args *args, remat_error *err);

/* Opens the model of the command; Ctrl-C cancels it from now on. One engine at a time. */
int app_open(remat_engine **out, const app_args *args, bool index_only, remat_error *err);
int app_open_shape(remat_engine **out, const remat_shape *shape, const app_args *args,
                   remat_error *err);
void app_close(remat_engine **e);

/* Tokens that an input may have: the context of -c or of the model, at most `most`. */
size_t app_context_cap(const remat_engine *e, const app_args *args, size_t most);

/* Token ids of the command's input: --tokens, or its text with these flags. At most the model's
 * context, or -c. */
int app_input_tokens(app_tokens *out, remat_engine *e, const app_args *args, unsigned flags,
                     remat_error *err);

/* Bytes of the file of --template, or the name of --chat-template; NULL without either. */
int app_template_source(app_text *out, remat_engine *e, const app_args *args, remat_error *err);

/* remat_start() for logits of many tokens: with as many rows of them at once as fit the budget, at
 * most 16, since they share the output matrix. keep: as *limits has it; else nothing of a sweep is
 * needed after it. */
int app_start_scoring(remat_engine *e, remat_limits *limits, bool keep, remat_error *err);

/* The members "memory" and "cache" of a JSON document; s may be NULL. */
void app_json_memory(rm_json *j, const remat_engine *e, const remat_sequence *s);

/* The same for people, on stderr. */
void app_print_stats(const remat_engine *e);

#endif /* RM_APP_APP_H */
