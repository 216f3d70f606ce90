/* cmd_run.c: remat run: one prompt, one answer. Part: app. */
#include "app/app.h"
#include "app/resume.h"
#include "app/think.h"
#include "base/check.h"
#include "base/io.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PREDICT_DEFAULT = 1024 };

typedef struct answer {
    const app_args *args;
    remat_sampling sampling; /* with the seed that is used */
    uint32_t vocabulary, prompt_count;
    app_session session;
    int logits_fd;
    remat_error logits_error;
    uint32_t *ids;
    uint32_t id_count;
    char *text; /* with --json; else it is printed as it comes */
    size_t text_bytes, text_cap;
    app_reasoning reasoning;
    bool opened; /* the prompt ends with an open <think> */
    bool output_failed;
} answer;

static bool on_text(void *user, const char *text, size_t bytes) {
    answer *a = user;
    if (!a->args->json) {
        rm_buf_put(app_out(), text, bytes);
        rm_buf_flush(app_out());
        a->output_failed = app_out()->failed;
        return !a->output_failed;
    }
    RM_ASSERT(bytes <= a->text_cap - a->text_bytes);
    memcpy(a->text + a->text_bytes, text, bytes);
    a->text_bytes += bytes;
    return true;
}

static bool on_token(void *user, uint32_t id, const float *logits) {
    answer *a = user;
    a->ids[a->id_count++] = id;
    app_progress_end();
    return a->logits_fd < 0 || rm_write_all(a->logits_fd, logits, a->vocabulary * sizeof *logits,
                                            &a->logits_error) == REMAT_OK;
}

static bool to_text(void *user, const char *bytes, size_t count) {
    app_text *t = user;
    memcpy(t->bytes + t->count, bytes, count);
    t->count += count;
    return true;
}

typedef struct message {
    const char *role, *text;
    size_t bytes;
} message;

/* The template's variables: {"messages": [..], "add_generation_prompt": true}. In a conversation
 * that goes on, the user's message has others before it: see app_session_cut(). */
static int variables(app_text *out, remat_engine *e, const answer *a, const app_text *user,
                     remat_error *err) {
    const app_args *args = a->args;
    const bool more = a->session.info.token_count > 0;
    const size_t system = args->system != NULL ? strlen(args->system) : 0;
    const message messages[] = {
        {"system", args->system, system},
        {"user", APP_RESUME_USER, strlen(APP_RESUME_USER)},
        {"assistant", APP_RESUME_REPLY, strlen(APP_RESUME_REPLY)},
        {"user", user->bytes, user->count},
    };
    const bool used[] = {args->system != NULL && !more, more, more, true};
    char window[512];
    rm_buf b;
    rm_json j;
    /* A byte takes at most six in JSON (\u0000). */
    RM_TRY(app_alloc(&out->bytes, e, 6 * (user->count + system) + 256, 1, err));
    out->count = 0;
    rm_buf_start(&b, window, sizeof window, to_text, out);
    rm_json_start(&j, &b);
    rm_json_open(&j, NULL, '{');
    rm_json_open(&j, "messages", '[');
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        if (!used[i]) continue;
        rm_json_open(&j, NULL, '{');
        rm_json_string(&j, "role", messages[i].role);
        rm_json_text(&j, "content", messages[i].text, messages[i].bytes);
        rm_json_close(&j, '}');
    }
    rm_json_close(&j, ']');
    rm_json_bool(&j, "add_generation_prompt", true);
    if (a->reasoning != APP_REASONING_AUTO)
        rm_json_bool(&j, "enable_thinking", a->reasoning == APP_REASONING_ON);
    rm_json_close(&j, '}');
    rm_buf_flush(&b);
    return REMAT_OK;
}

/* The prompt's ids: as they are, or as the model's chat template has them. */
static int prompt_tokens(app_tokens *out, remat_engine *e, const answer *a, remat_error *err) {
    const app_args *args = a->args;
    const bool more = a->session.info.token_count > 0;
    if (args->raw || args->tokens != NULL) {
        if (args->system != NULL)
            return rm_fail(err, REMAT_E_USAGE, "--system: a raw prompt has no system message");
        return app_input_tokens(out, e, args, REMAT_SPECIAL | (more ? 0 : REMAT_ONE_BOS), err);
    }
    app_text text, json, source;
    RM_TRY(app_read_text(&text, e, args, err));
    RM_TRY(variables(&json, e, a, &text, err));
    RM_TRY(app_template_source(&source, e, args, err));
    const remat_chat chat = {.variables = json.bytes,
                             .variable_bytes = json.count,
                             .source = source.bytes,
                             .source_bytes = source.count,
                             .now = (int64_t)time(NULL)};
    const size_t cap = app_context_cap(e, args, SIZE_MAX);
    RM_TRY(app_alloc(&out->ids, e, cap, sizeof *out->ids, err));
    RM_TRY(remat_tokenize_chat(out->ids, cap, &out->count, e, &chat, err));
    return more ? app_session_cut(out, &a->session, e, err) : REMAT_OK;
}

static int too_long(size_t session, size_t prompt, uint32_t context, remat_error *err) {
    if (session == 0) {
        return rm_fail(err, REMAT_E_CONTEXT,
                       "prompt: %zu tokens and an answer do not fit the "
                       "context of %u; give a larger -c or a shorter text",
                       prompt, context);
    }
    return rm_fail(err, REMAT_E_CONTEXT,
                   "session: its %zu tokens, a prompt of %zu and an answer do not fit the context "
                   "of %u; give a larger -c or begin another session",
                   session, prompt, context);
}

/* -c, or what session, prompt and answer need, at most the model's. */
static int choose_context(uint32_t *out, const app_args *args, const remat_model_info *info,
                          size_t session_count, size_t prompt_count, uint32_t predict,
                          remat_error *err) {
    const uint64_t all = (uint64_t)session_count + prompt_count, need = all + predict;
    uint32_t context = need < info->context_count ? (uint32_t)need : info->context_count;
    if (args->context != APP_UNSET_U32 && args->context > 0) context = args->context;
    if (context > info->context_count)
        app_warn("context of %u tokens: the model was made for %u; answers beyond may be poor",
                 context, info->context_count);
    if (all == 0)
        return rm_fail(err, REMAT_E_USAGE, "prompt: it is empty; give at least one token");
    if (all >= context && predict > 0 && !(all == context && predict == 1))
        return too_long(session_count, prompt_count, context, err);
    if (all > context) return too_long(session_count, prompt_count, context, err);
    *out = context;
    return REMAT_OK;
}

static int prepare(answer *a, remat_engine *e, const remat_limits *limits, size_t prompt_count,
                   uint32_t predict, remat_error *err) {
    const uint32_t left = limits->context_count - (uint32_t)prompt_count + 1;
    const uint32_t most = predict < left ? predict : left;
    RM_TRY(app_alloc(&a->ids, e, most, sizeof *a->ids, err));
    if (a->args->json) {
        size_t piece = 0;
        for (uint32_t id = 0; id < a->vocabulary; id++) {
            const size_t bytes = remat_token_text(NULL, 0, e, id, false, false);
            piece = bytes > piece ? bytes : piece;
        }
        a->text_cap = (size_t)most * piece + 64;
        RM_TRY(app_alloc(&a->text, e, a->text_cap, 1, err));
    }
    if (a->args->logits == NULL) return REMAT_OK;
    a->logits_fd = open(a->args->logits, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (a->logits_fd >= 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED, "%s: %s; choose another place for --logits",
                   rm_path_tail(a->args->logits), strerror(errno));
}

/* What the model thinks and what it answers; a raw prompt's answer is what it is. */
static void print_text(rm_json *j, const answer *a) {
    app_piece p, parts[2] = {{.bytes = a->text}, {.bytes = a->text}};
    app_think t;
    const bool raw = a->args->raw || a->args->tokens != NULL;
    app_think_start(&t, !raw && a->reasoning != APP_REASONING_OFF, a->opened);
    while (app_think_next(&p, &t, a->text, a->text_bytes, true))
        parts[p.reasoning] = p;
    app_piece *r = &parts[1];
    while (r->count > 0 && strchr(" \t\r\n", r->bytes[r->count - 1]) != NULL)
        r->count--;
    rm_json_text(j, "text", parts[0].bytes, parts[0].count);
    if (r->count > 0) rm_json_text(j, "reasoning", r->bytes, r->count);
}

static void print_json(const answer *a, const remat_engine *e, const remat_sequence *s,
                       const remat_result *r) {
    static const char *const finish[] = {"stop", "length", "context", "interrupted"};
    remat_model_info info;
    remat_stats st;
    rm_json j;
    remat_info(&info, e);
    remat_stats_get(&st, e);
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_open(&j, "model", '{');
    rm_json_string(&j, "file", a->args->model);
    rm_json_string(&j, "architecture", info.architecture);
    rm_json_string(&j, "quantization", info.quantization);
    rm_json_u64(&j, "parameters", info.parameter_count);
    rm_json_close(&j, '}');
    print_text(&j, a);
    rm_json_u64(&j, "prompt_tokens", a->prompt_count);
    rm_json_open(&j, "tokens", '[');
    for (uint32_t i = 0; i < a->id_count; i++)
        rm_json_u64(&j, NULL, a->ids[i]);
    rm_json_close(&j, ']');
    rm_json_string(&j, "finish_reason", finish[r->finish]);
    rm_json_open(&j, "timings", '{');
    rm_json_f64(&j, "load_s", st.load_s, 6);
    rm_json_f64(&j, "prefill_s", r->prefill_s, 6);
    rm_json_f64(&j, "prefill_tok_s", r->prompt_count / r->prefill_s, 6);
    rm_json_f64(&j, "decode_s", r->decode_s, 6);
    /* The first token comes out of the prefill. */
    const uint32_t sweeps = r->token_count > 1 ? r->token_count - 1 : 0;
    rm_json_f64(&j, "decode_tok_s", sweeps > 0 ? sweeps / r->decode_s : 0, 6);
    rm_json_close(&j, '}');
    app_json_memory(&j, e, s);
    if (a->args->session != NULL) {
        const app_session *x = &a->session;
        rm_json_open(&j, "session", '{');
        rm_json_u64(&j, "loaded_tokens", x->info.token_count);
        rm_json_u64(&j, "loaded_pages", x->info.loaded_pages);
        rm_json_u64(&j, "lost_pages", x->info.lost_pages);
        rm_json_u64(&j, "saved_bytes", x->save_size);
        rm_json_close(&j, '}');
    }
    rm_json_open(&j, "speculation", '{');
    rm_json_u64(&j, "drafted", 0);
    rm_json_u64(&j, "accepted", 0);
    rm_json_u64(&j, "sweeps", 0);
    rm_json_close(&j, '}');
    rm_json_string(&j, "kernels", st.kernels);
    rm_json_u64(&j, "threads", st.thread_count);
    rm_json_u64(&j, "seed", a->sampling.seed);
    rm_json_close(&j, '}');
    app_printf("\n");
}

/* Generates, and saves what has come of it, also when something went wrong on the way. */
static int answer_and_save(remat_result *result, answer *a, remat_sequence *s, uint32_t predict,
                           remat_error *err) {
    const app_session *x = &a->session;
    const remat_generation how = {.token_count = predict,
                                  .ignore_end = a->args->ignore_eos,
                                  .sampling = a->sampling,
                                  .stops = a->args->stops,
                                  .stop_count = a->args->stop_count,
                                  .on_text = on_text,
                                  .on_token = on_token,
                                  .user = a};
    remat_error not_saved = {0};
    int status = remat_generate(result, s, x->all.ids + x->have, (uint32_t)x->all.count - x->have,
                                &how, err);
    app_progress_end();
    if (status == REMAT_OK && a->logits_error.status != REMAT_OK) {
        *err = a->logits_error;
        status = err->status;
    }
    if (status == REMAT_OK && a->output_failed) status = app_flush(err);
    if (app_session_save(&a->session, s, a->ids, a->id_count, &not_saved) == REMAT_OK)
        return status;
    if (status != REMAT_OK) {
        app_warn("%s", not_saved.message);
        return status;
    }
    if (!a->args->json) {
        app_printf("\n");
        rm_buf_flush(app_out()); /* the answer first, then what is wrong */
    }
    *err = not_saved;
    return err->status;
}

static int generate(answer *a, remat_engine *e, uint32_t predict, remat_error *err) {
    remat_sequence *s = NULL;
    remat_result result;
    RM_TRY(remat_sequence_open(&s, e, err));
    RM_TRY(app_session_load(&a->session, s, err));
    RM_TRY(answer_and_save(&result, a, s, predict, err));
    if (a->args->json) {
        print_json(a, e, s, &result);
    } else {
        app_printf("\n");
    }
    if (!a->args->stats) return REMAT_OK;
    fprintf(stderr, "\nspeed    prompt %u tokens at %.1f a second, answer %u tokens at %.1f\n",
            result.prompt_count, result.prompt_count / result.prefill_s, result.token_count,
            result.token_count > 1 ? (result.token_count - 1) / result.decode_s : 0.0);
    app_print_stats(e);
    return REMAT_OK;
}

static int run_engine(answer *a, remat_engine *e, remat_error *err) {
    const app_args *args = a->args;
    app_tokens prompt = {0};
    remat_limits limits;
    remat_model_info info;
    const uint32_t predict = args->predict == APP_UNSET_U32 ? PREDICT_DEFAULT : args->predict;
    RM_TRY(app_args_limits(&limits, args, err));
    RM_TRY(remat_sampling_check(e, &a->sampling, err));
    remat_info(&info, e);
    RM_TRY(app_session_open(&a->session, e, args, err));
    RM_TRY(prompt_tokens(&prompt, e, a, err));
    RM_TRY(choose_context(&limits.context_count, args, &info, a->session.info.token_count,
                          prompt.count, predict, err));
    RM_TRY(app_session_join(&a->session, e, &prompt, err));
    a->prompt_count = (uint32_t)prompt.count;
    a->vocabulary = info.vocabulary_count;
    a->opened = app_think_opened(e, prompt.ids, prompt.count);
    RM_TRY(prepare(a, e, &limits, a->session.all.count, predict, err));
    RM_TRY(remat_start(e, &limits, err));
    return generate(a, e, predict, err);
}

/* A terminal, and nobody has said what to answer or in what form. */
static bool is_chat(const app_args *args) {
    return args->prompt == NULL && args->file == NULL && args->tokens == NULL &&
           !args->from_stdin && !args->raw && !args->json && args->logits == NULL &&
           isatty(STDIN_FILENO);
}

int app_run(const app_args *args, remat_error *err) {
    if (is_chat(args)) {
        if (args->session != NULL)
            return rm_fail(err, REMAT_E_USAGE,
                           "--session: a chat keeps its conversation by /save and /load; give a "
                           "prompt with -p, -f or -");
        return app_chat_run(args, err);
    }
    answer a = {.args = args, .sampling = args->sampling, .logits_fd = -1};
    remat_engine *e = NULL;
    if (!args->seed_given) a.sampling.seed = rm_random_system() >> 11; /* JSON's whole numbers */
    RM_TRY(app_reasoning_parse(&a.reasoning, args->reasoning, err));
    RM_TRY(app_open(&e, args, false, err));
    int status = run_engine(&a, e, err);
    if (a.logits_fd >= 0 && close(a.logits_fd) != 0 && status == REMAT_OK)
        status =
            rm_fail(err, REMAT_E_FAILED, "%s: %s", rm_path_tail(args->logits), strerror(errno));
    app_close(&e);
    return status;
}
