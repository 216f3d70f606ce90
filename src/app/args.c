/* args.c: see args.h. */
#include "app/args.h"
#include "app/escape.h"
#include "app/options.h"
#include "app/output.h"
#include "base/check.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(field) offsetof(app_args, field)

enum {
    ENGINE = APP_RUN | APP_SCORE,
    ALL = APP_RUN | APP_SCORE | APP_INFO | APP_TOKENIZE | APP_DETOKENIZE | APP_PLAN | APP_TEMPLATE |
          APP_BENCH,
    VOCABULARY = APP_RUN | APP_SCORE | APP_TOKENIZE | APP_DETOKENIZE,
    INPUT = APP_RUN | APP_SCORE | APP_TOKENIZE,
    EVERY = ALL | APP_COMPLETION | APP_VERSION,
    RARE = APP_RARE,
    ENV = APP_ENV,
    IGNORES = ENGINE | APP_PLAN | APP_RARE, /* what llama.cpp users type: done anyway, or never */
};

static const app_option options[] = {
    {{"-m", "--model"},
     ALL | ENV,
     TEXT,
     AT(model),
     "FILE",
     "model (GGUF; of several files the first)"},
    {{"-p", "--prompt"}, INPUT, TEXT, AT(prompt), "TEXT", "text"},
    {{"-f", "--file"},
     INPUT | APP_TEMPLATE | APP_BENCH,
     TEXT,
     AT(file),
     "FILE",
     "text (or variables) from a file (- : standard input)"},
    {{"--tokens"},
     ENGINE | APP_DETOKENIZE | APP_BENCH,
     TEXT,
     AT(tokens),
     "FILE",
     "token ids from a file"},
    {{"--system", "-sys", "--system-prompt"}, APP_RUN, TEXT, AT(system), "TEXT", "system message"},
    {{"-e", "--escape"},
     INPUT | RARE,
     FLAG,
     AT(escape),
     NULL,
     "\\n \\r \\t \\' \\\" \\\\ \\xHH in -p, --system and --stop are escapes (default: text as it "
     "is)"},
    {{"--no-escape"}, INPUT | RARE, OFF, AT(escape), NULL, "the default"},
    {{"--template", "--chat-template-file"},
     APP_RUN | APP_TEMPLATE | RARE | ENV,
     TEXT,
     AT(template_file),
     "FILE",
     "chat template (Jinja) in place of the model's"},
    {{"--chat-template"},
     APP_RUN | APP_TEMPLATE | RARE | ENV,
     TEXT,
     AT(template_name),
     "chatml|llama2|llama3|gemma|phi3|mistral|plain",
     "a built-in chat template"},
    {{"--reasoning"},
     APP_RUN | ENV,
     TEXT,
     AT(reasoning),
     "auto|on|off",
     "thoughts apart, asked for, or not"},
    {{"--no-history"},
     APP_RUN | RARE,
     FLAG,
     AT(no_history),
     NULL,
     "a chat leaves no history of lines"},
    {{"--raw", "-no-cnv", "--no-conversation"},
     APP_RUN,
     FLAG,
     AT(raw),
     NULL,
     "the prompt as it is, no chat format"},
    {{"-n", "--predict", "--n-predict"},
     APP_RUN | ENV,
     PREDICT,
     AT(predict),
     "N",
     "most new tokens (-1: until the end; default 1024)"},
    {{"-c", "--ctx-size"},
     ENGINE | APP_PLAN | ENV,
     U32,
     AT(context),
     "N",
     "context (default: what the work needs)"},
    {{"--memory"},
     (ALL & ~APP_BENCH) | ENV,
     SIZE,
     AT(memory_bytes),
     "SIZE",
     "ceiling: 128M, 1.5G, auto (default: what is free)"},
    {{"-t", "--threads", "-tb", "--threads-batch"},
     ENGINE | APP_PLAN | ENV,
     U32,
     AT(threads),
     "N",
     "threads, for prompt and answer"},
    {{"--kv"},
     ENGINE | APP_PLAN | ENV,
     TEXT,
     AT(kv),
     "f16|f32",
     "format of cached keys and values"},
    {{"-ctk", "--cache-type-k"},
     ENGINE | RARE,
     TEXT,
     AT(kv_k),
     "f16|f32",
     "the same, as llama.cpp has it"},
    {{"-ctv", "--cache-type-v"}, ENGINE | RARE, TEXT, AT(kv_v), "f16|f32", "must equal -ctk"},
    {{"--cold"},
     ENGINE | APP_PLAN | RARE | ENV,
     TEXT,
     AT(cold),
     "auto|spill|drop|inputs|checkpoint",
     "cache that does not fit: to disk, or computed again"},
    {{"--recompute"},
     ENGINE | APP_PLAN | RARE | ENV,
     TEXT,
     AT(recompute),
     "auto|full|block|layer|selective",
     "what is dropped first; full: all"},
    {{"--keep"},
     ENGINE | APP_PLAN | APP_BENCH | RARE | ENV,
     U32,
     AT(keep),
     "N",
     "newest tokens that stay in memory as long as any do"},
    {{"--resident"},
     APP_RUN | APP_PLAN | APP_BENCH | RARE | ENV,
     U32,
     AT(resident),
     "N",
     "tokens that stay in memory at most"},
    {{"--weights"},
     ENGINE | APP_PLAN | APP_BENCH | RARE | ENV,
     TEXT,
     AT(weights),
     "auto|resident|stream",
     "weights in memory, or read again for every token"},
    {{"--spill"},
     ENGINE | APP_PLAN | APP_BENCH | RARE | ENV,
     TEXT,
     AT(spill),
     "DIR",
     "where the spill file lies (default: the cache directory; off: no disk)"},
    {{"--spill-limit"},
     ENGINE | APP_PLAN | RARE | ENV,
     SIZE,
     AT(spill_bytes),
     "SIZE",
     "most bytes of the spill file"},
    {{"--session"},
     APP_RUN,
     TEXT,
     AT(session),
     "FILE",
     "go on from it if it exists, save to it at the end"},
    {{"--session-tokens-only"},
     APP_RUN | RARE,
     FLAG,
     AT(session_tokens_only),
     NULL,
     "save no keys and values: a small file, computed again when loaded"},
    {{"-ub", "--ubatch-size"},
     ENGINE | APP_PLAN | APP_BENCH | RARE | ENV,
     U32,
     AT(chunk_rows),
     "N",
     "rows that pass a layer together (at most 512)"},
    {{"-b", "--batch-size"},
     ENGINE | APP_PLAN | RARE,
     U32,
     AT(batch_rows),
     "N",
     "an upper bound for -ub (llama.cpp)"},
    {{"--batch"}, APP_PLAN, U32, AT(batch), "N", "sequences at once"},
    {{"--temp", "--temperature"},
     APP_RUN | ENV,
     F32,
     AT(sampling.temperature),
     "X",
     "temperature (default 0.8; 0: greedy)"},
    {{"--top-k"}, APP_RUN | ENV, I32, AT(sampling.top_k), "N", "default 40; 0: off"},
    {{"--top-p"}, APP_RUN | ENV, F32, AT(sampling.top_p), "X", "default 0.95; 1: off"},
    {{"--min-p"}, APP_RUN | ENV, F32, AT(sampling.min_p), "X", "default 0.05; 0: off"},
    {{"--repeat-penalty"},
     APP_RUN | RARE | ENV,
     F32,
     AT(sampling.repeat_penalty),
     "X",
     "default 1: off"},
    {{"--repeat-last-n"},
     APP_RUN | RARE,
     I32,
     AT(sampling.penalty_last),
     "N",
     "tokens that penalties see, prompt included (default 64, -1: all)"},
    {{"--frequency-penalty"},
     APP_RUN | RARE,
     F32,
     AT(sampling.frequency_penalty),
     "X",
     "default 0: off"},
    {{"--presence-penalty"},
     APP_RUN | RARE,
     F32,
     AT(sampling.presence_penalty),
     "X",
     "default 0: off"},
    {{"-l", "--logit-bias"},
     APP_RUN | RARE,
     BIAS,
     0,
     "ID+X|ID-X",
     "added to a token's logit; repeatable"},
    {{"-s", "--seed"},
     APP_RUN | ENV,
     U64,
     AT(sampling.seed),
     "N",
     "seed (default: from the system)"},
    {{"--stop", "-r", "--reverse-prompt"},
     APP_RUN,
     STOP,
     0,
     "TEXT",
     "text that ends the answer; repeatable"},
    {{"--ignore-eos"}, APP_RUN | RARE, FLAG, AT(ignore_eos), NULL, "go on after an end token"},
    {{"--logits"},
     APP_RUN | RARE,
     TEXT,
     AT(logits),
     "FILE",
     "write each token's row of logits (f32)"},
    {{"--top"}, APP_SCORE, U32, AT(top), "K", "the K most likely tokens of each place"},
    {{"--no-special"},
     APP_TOKENIZE | APP_SCORE,
     FLAG,
     AT(no_special),
     NULL,
     "control tokens in the text stay text"},
    {{"--no-bos"}, APP_TOKENIZE | APP_SCORE, FLAG, AT(no_bos), NULL, "no begin-of-text token"},
    {{"--pre"},
     VOCABULARY | RARE,
     TEXT,
     AT(pre),
     "NAME",
     "how the tokenizer cuts text, if the file is wrong"},
    {{"--kernels"},
     ENGINE | APP_PLAN | APP_BENCH | RARE | ENV,
     TEXT,
     AT(kernels),
     "ref|avx2|avxvnni|avx512|amx",
     "the instructions to use (default: the widest)"},
    {{"--budgets"},
     APP_BENCH,
     TEXT,
     AT(budgets),
     "LIST",
     "sizes, auto, max (everything stays), half and quarter of that, min (the smallest that "
     "works); "
     "default max,half,min"},
    {{"--recompute"},
     APP_BENCH | ENV,
     TEXT,
     AT(recompute),
     "LIST",
     "auto, off (nothing), full, block, layer, selective"},
    {{"--cold"}, APP_BENCH | ENV, TEXT, AT(cold), "LIST", "auto, spill, drop, inputs, checkpoint"},
    {{"--kv"}, APP_BENCH | ENV, TEXT, AT(kv), "LIST", "f16, f32"},
    {{"-t", "--threads"}, APP_BENCH | ENV, TEXT, AT(thread_counts), "LIST", "threads"},
    {{"--prompt-tokens"},
     APP_BENCH,
     TEXT,
     AT(prompt_counts),
     "LIST",
     "lengths of the prompt (default 512)"},
    {{"-n", "--new-tokens"},
     APP_BENCH,
     TEXT,
     AT(answer_counts),
     "LIST",
     "lengths of the answer behind it (default 32)"},
    {{"-r", "--repetitions"}, APP_BENCH, U32, AT(repetitions), "N", "runs of a row (default 3)"},
    {{"--experiment"},
     APP_BENCH,
     FLAG,
     AT(experiment),
     NULL,
     "the same work with everything kept, parts of the cache dropped and computed again, or on "
     "disk"},
    {{"--plot"}, APP_BENCH, TEXT, AT(plot), "FILE", "draw it (.svg or .png); numbers in .tsv"},
    {{"--csv"}, APP_BENCH, FLAG, AT(csv), NULL, "a table of commas"},
    {{"--stats"}, ENGINE, FLAG, AT(stats), NULL, "where the bytes and seconds went, on stderr"},
    {{"-fa", "--flash-attn"}, IGNORES, IGNORED, 0, "[on|off|auto]", "no effect"},
    {{"-cb", "--cont-batching", "--no-warmup"}, IGNORES, IGNORED, 0, NULL, "no effect"},
    {{"--mlock", "--mmap", "--no-mmap"}, IGNORES, IGNORED, 0, NULL, "no effect"},
    {{"-ngl", "--gpu-layers", "--n-gpu-layers"}, IGNORES, IGNORED, 0, "N", "no effect"},
    {{"--jinja", "--no-display-prompt"}, IGNORES, IGNORED, 0, NULL, "no effect"},
    {{"--json"}, ALL | APP_VERSION, FLAG, AT(json), NULL, "one JSON document on standard output"},
    {{"-h", "--help"}, EVERY, FLAG, AT(help), NULL, "this help; --help all: every option"},
};

enum { OPTION_COUNT = sizeof options / sizeof *options };

static const app_command_row commands[] = {
    {"run", APP_RUN, "-m MODEL [-p TEXT | -f FILE | -]", "answer one prompt, or chat"},
    {"score", APP_SCORE, "-m MODEL (-p TEXT | -f FILE | --tokens FILE)",
     "log-probabilities of a text"},
    {"plan", APP_PLAN, "-m MODEL [-c N] [--memory SIZE]", "what a context will take"},
    {"bench", APP_BENCH, "-m MODEL [--budgets LIST] [--recompute LIST]",
     "memory and speed of the same work in several ways"},
    {"info", APP_INFO, "-m MODEL", "metadata and tensors of a file"},
    {"tokenize", APP_TOKENIZE, "-m MODEL (-p TEXT | -f FILE)", "token ids of a text"},
    {"template", APP_TEMPLATE, "(-m MODEL | --template FILE) [-f VARIABLES.json]",
     "what a chat template makes"},
    {"detokenize", APP_DETOKENIZE, "-m MODEL --tokens FILE", "text of token ids"},
    {"completion", APP_COMPLETION, "bash|zsh|fish", "a script that completes commands and options"},
    {"version", APP_VERSION, "[--json]", "the version"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

const app_option *app_options(uint32_t *count) {
    *count = OPTION_COUNT;
    return options;
}

const app_command_row *app_commands(uint32_t *count) {
    *count = COMMAND_COUNT;
    return commands;
}

/* --- parsing ---------------------------------------------------------------------------------- */

static const app_option *find(const char *name, unsigned command) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].commands & command) == 0) continue;
        for (int j = 0; j < APP_NAMES_MAX && options[i].names[j] != NULL; j++) {
            if (strcmp(options[i].names[j], name) == 0) return &options[i];
        }
    }
    return NULL;
}

static int find_command(app_args *args, int argc, char **argv, remat_error *err) {
    if (argc < 2 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "help") == 0) {
        args->help = true;
        return argc < 2 ? rm_fail(err, REMAT_E_USAGE, "command: none given; see remat --help")
                        : REMAT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) args->command = APP_VERSION;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, argv[1]) == 0) args->command = commands[i].command;
    }
    if (args->command != 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE, "command: there is no \"%.40s\"; see remat --help", argv[1]);
}

static int check(const app_args *args, remat_error *err) {
    const bool needs_model = (args->command & ALL) != 0 &&
                             (args->command != APP_TEMPLATE ||
                              (args->template_file == NULL && args->template_name == NULL));
    if (args->model == NULL && needs_model)
        return rm_fail(err, REMAT_E_USAGE, "-m: no model given; name a GGUF file");
    const int inputs =
        (args->prompt != NULL) + (args->file != NULL) + (args->tokens != NULL) + args->from_stdin;
    if (inputs > 1) return rm_fail(err, REMAT_E_USAGE, "input: give one of -p, -f, --tokens and -");
    if (args->session_tokens_only && args->session == NULL)
        return rm_fail(err, REMAT_E_USAGE, "--session-tokens-only: give --session FILE with it");
    if (args->command == APP_DETOKENIZE && args->tokens == NULL)
        return rm_fail(err, REMAT_E_USAGE, "--tokens: no file of token ids given");
    return REMAT_OK;
}

/* What stands alone: -, and the shell of completion. */
static bool positional(app_args *args, const char *text) {
    if (strcmp(text, "-") == 0 && (args->command & (INPUT | APP_TEMPLATE | APP_BENCH)) != 0) {
        args->from_stdin = true;
        return true;
    }
    if (args->command != APP_COMPLETION || text[0] == '-' || args->shell != NULL) return false;
    args->shell = text;
    return true;
}

/* The value behind argv[i], which moves on; NULL for a flag. One in brackets is taken when it is
 * one of the words there. */
static int take_value(const char **out, const app_option *o, int *i, int argc, char **argv,
                      remat_error *err) {
    const char *words = o->value, *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    char word[32];
    *out = NULL;
    if (o->value == NULL) return REMAT_OK;
    if (o->value[0] == '[') {
        while (next != NULL && *out == NULL && app_choice_next(word, &words))
            *out = strcmp(word, next) == 0 ? next : NULL;
    } else {
        if (next == NULL)
            return rm_fail(err, REMAT_E_USAGE, "%s: its value is missing (%s)", argv[*i], o->value);
        *out = next;
    }
    *i += *out != NULL;
    return REMAT_OK;
}

/* One warning for all options of other programs that do nothing here. */
static void note_ignored(char *list, size_t cap, const char *name) {
    const size_t n = strlen(list);
    snprintf(list + n, cap - n, "%s%s", n > 0 ? ", " : "", name);
}

static int parse_options(app_args *args, int argc, char **argv, remat_error *err) {
    bool given[OPTION_COUNT] = {false};
    char ignored[160] = "";
    for (int i = 2; i < argc; i++) {
        if (positional(args, argv[i])) continue;
        const char *text, *name = argv[i];
        const app_option *o = find(name, args->command);
        if (o == NULL) {
            return rm_fail(err, REMAT_E_USAGE, "%.60s: %s does not know this; see remat %s --help",
                           name, argv[1], argv[1]);
        }
        RM_TRY(take_value(&text, o, &i, argc, argv, err));
        RM_TRY(app_option_set(args, o, o->names[0], text, err));
        given[o - options] = true;
        if (o->kind == IGNORED) note_ignored(ignored, sizeof ignored, name);
        if (args->help && !args->help_all && i + 1 < argc && strcmp(argv[i + 1], "all") == 0) {
            args->help_all = true;
            i++;
        }
    }
    if (args->help) return REMAT_OK;
    if (args->file != NULL && strcmp(args->file, "-") == 0) {
        args->file = NULL;
        args->from_stdin = true;
    }
    RM_TRY(app_environment(args, given, err));
    RM_TRY(check(args, err));
    if (args->escape) app_unescape_all(args);
    if (ignored[0] != '\0') app_warn("%s: no effect here", ignored);
    return REMAT_OK;
}

int app_args_parse(app_args *args, int argc, char **argv, remat_error *err) {
    /* Not a compound literal: clang puts one of this size on the stack. */
    memset(args, 0, sizeof *args);
    args->sampling = remat_sampling_default();
    args->context = APP_UNSET_U32;
    args->predict = APP_UNSET_U32;
    args->resident = REMAT_ALL;
    args->batch = 1;
    args->repetitions = APP_UNSET_U32;
    args->sampling.bias = args->bias;
    int status = find_command(args, argc, argv, err);
    if (status == REMAT_OK) status = parse_options(args, argc, argv, err);
    /* Whoever asked for JSON gets the error in JSON, also one that came before the flag. */
    for (int i = 1; status != REMAT_OK && i < argc; i++)
        args->json = args->json || strcmp(argv[i], "--json") == 0;
    return status;
}

/* --- cache options ---------------------------------------------------------------------------- */

static int one_of(const char *name, const char *value, const char *const *known, remat_error *err) {
    if (value == NULL) return REMAT_OK;
    for (int i = 0; known[i] != NULL; i++) {
        if (strcmp(value, known[i]) == 0) return REMAT_OK;
    }
    return rm_fail(err, REMAT_E_USAGE, "%s: this version has no \"%.40s\"; see remat --help", name,
                   value);
}

/* Index of a word in the list that ends with NULL; 0 when it is not given. */
static int word_of(int *out, const char *name, const char *text, const char *const *words,
                   remat_error *err) {
    RM_TRY(one_of(name, text, words, err));
    *out = 0;
    while (text != NULL && strcmp(text, words[*out]) != 0)
        ++*out;
    return REMAT_OK;
}

/* How the cache and the weights use memory and disk. */
static int memory_limits(remat_limits *out, const app_args *args, remat_error *err) {
    static const char *const cold[] = {"auto", "spill", "drop", "inputs", "checkpoint", NULL};
    static const char *const recompute[] = {"auto", "full", "block", "layer", "selective", NULL};
    static const char *const weights[] = {"auto", "resident", "stream", NULL};
    int word;
    RM_TRY(word_of(&word, "--cold", args->cold, cold, err));
    out->cold = (remat_cold)word;
    RM_TRY(word_of(&word, "--recompute", args->recompute, recompute, err));
    out->recompute = (remat_recompute)word;
    RM_TRY(word_of(&word, "--weights", args->weights, weights, err));
    out->weights = (remat_weights)word;
    out->resident_count = args->resident;
    out->keep_count = args->keep;
    out->spill_bytes = args->spill_bytes;
    out->no_spill = args->spill != NULL && strcmp(args->spill, "off") == 0;
    if (args->spill != NULL && !out->no_spill) out->spill_dir = args->spill;
    if (out->cold == REMAT_COLD_SPILL && out->no_spill)
        return rm_fail(err, REMAT_E_USAGE, "--cold spill: not with --spill off");
    return REMAT_OK;
}

int app_args_limits(remat_limits *out, const app_args *args, remat_error *err) {
    static const char *const kv[] = {"f16", "f32", NULL};
    const char *k = args->kv_k != NULL ? args->kv_k : args->kv;
    const char *v = args->kv_v != NULL ? args->kv_v : args->kv;
    *out = remat_limits_default();
    RM_TRY(one_of("--kv", k, kv, err));
    RM_TRY(one_of("--kv", v, kv, err));
    RM_TRY(memory_limits(out, args, err));
    const bool k32 = k != NULL && strcmp(k, "f32") == 0, v32 = v != NULL && strcmp(v, "f32") == 0;
    if (k32 != v32)
        return rm_fail(err, REMAT_E_USAGE,
                       "-ctk, -ctv: keys and values have one format; give both");
    if (args->chunk_rows > 512)
        return rm_fail(err, REMAT_E_USAGE, "-ub: %u rows; at most 512", args->chunk_rows);
    const uint32_t most = args->batch_rows; /* 0: no bound; one above 512 bounds nothing */
    const uint32_t chunk_rows = most > 0 && most < (args->chunk_rows > 0 ? args->chunk_rows : 512)
                                    ? most
                                    : args->chunk_rows;
    if (args->batch == 0) return rm_fail(err, REMAT_E_USAGE, "--batch: at least 1");
    out->kv = k32 ? REMAT_KV_F32 : REMAT_KV_F16;
    out->chunk_rows = chunk_rows;
    out->sequence_count = args->batch;
    return REMAT_OK;
}
