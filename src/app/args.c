/* args.c: see args.h. */
#include "app/args.h"
#include "app/output.h"
#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { FLAG, TEXT, U32, I32, U64, F32, SIZE, STOP, BIAS, PREDICT } kind;

typedef struct option {
    const char *names[4]; /* the first is shown first */
    unsigned commands;
    kind kind;
    size_t at; /* in app_args */
    const char *value, *help;
} option;

#define AT(field) offsetof(app_args, field)

enum {
    ENGINE = APP_RUN | APP_SCORE,
    ALL = APP_RUN | APP_SCORE | APP_INFO | APP_TOKENIZE | APP_DETOKENIZE | APP_PLAN | APP_TEMPLATE,
    VOCABULARY = APP_RUN | APP_SCORE | APP_TOKENIZE | APP_DETOKENIZE,
    INPUT = APP_RUN | APP_SCORE | APP_TOKENIZE,
};

static const option options[] = {
    {{"-m", "--model"}, ALL, TEXT, AT(model), "FILE", "model (GGUF)"},
    {{"-p", "--prompt"}, INPUT, TEXT, AT(prompt), "TEXT", "text"},
    {{"-f", "--file"},
     INPUT | APP_TEMPLATE,
     TEXT,
     AT(file),
     "FILE",
     "text (or variables) from a file (- : standard input)"},
    {{"--tokens"}, ENGINE | APP_DETOKENIZE, TEXT, AT(tokens), "FILE", "token ids from a file"},
    {{"--system", "-sys"}, APP_RUN, TEXT, AT(system), "TEXT", "system message"},
    {{"--template", "--chat-template-file"},
     APP_RUN | APP_TEMPLATE,
     TEXT,
     AT(template_file),
     "FILE",
     "chat template (Jinja) in place of the model's"},
    {{"--chat-template"},
     APP_RUN | APP_TEMPLATE,
     TEXT,
     AT(template_name),
     "NAME",
     "a built-in one: chatml llama2 llama3 gemma phi3 mistral plain"},
    {{"--raw"}, APP_RUN, FLAG, AT(raw), NULL, "the prompt as it is, no chat format"},
    {{"-n", "--predict", "--n-predict"},
     APP_RUN,
     PREDICT,
     AT(predict),
     "N",
     "most new tokens (-1: until the end; default 1024)"},
    {{"-c", "--ctx-size"},
     ENGINE | APP_PLAN,
     U32,
     AT(context),
     "N",
     "context (default: what the work needs)"},
    {{"--memory"},
     ALL,
     SIZE,
     AT(memory_bytes),
     "SIZE",
     "ceiling on memory, as 128M or 1.5G (default auto: what is free)"},
    {{"-t", "--threads"}, ENGINE | APP_PLAN, U32, AT(threads), "N", "threads"},
    {{"--kv"}, ENGINE | APP_PLAN, TEXT, AT(kv), "f16|f32", "format of cached keys and values"},
    {{"-ctk", "--cache-type-k"}, ENGINE, TEXT, AT(kv_k), "TYPE", "the same, as llama.cpp has it"},
    {{"-ctv", "--cache-type-v"}, ENGINE, TEXT, AT(kv_v), "TYPE", "must equal -ctk"},
    {{"--cold"}, APP_RUN, TEXT, AT(cold), "auto|drop", "what happens to cache that does not fit"},
    {{"--recompute"},
     APP_RUN,
     TEXT,
     AT(recompute),
     "auto|full|block",
     "dropped tokens: as few as must be, or all"},
    {{"--resident"}, APP_RUN | APP_PLAN, U32, AT(resident), "N", "tokens cached at most"},
    {{"-ub", "--ubatch-size"},
     ENGINE | APP_PLAN,
     U32,
     AT(chunk_rows),
     "N",
     "rows that pass a layer together (at most 512)"},
    {{"--batch"}, APP_PLAN, U32, AT(batch), "N", "sequences at once"},
    {{"--temp", "--temperature"},
     APP_RUN,
     F32,
     AT(sampling.temperature),
     "X",
     "temperature (default 0.8; 0: greedy)"},
    {{"--top-k"}, APP_RUN, I32, AT(sampling.top_k), "N", "default 40; 0: off"},
    {{"--top-p"}, APP_RUN, F32, AT(sampling.top_p), "X", "default 0.95; 1: off"},
    {{"--min-p"}, APP_RUN, F32, AT(sampling.min_p), "X", "default 0.05; 0: off"},
    {{"--repeat-penalty"}, APP_RUN, F32, AT(sampling.repeat_penalty), "X", "default 1: off"},
    {{"--repeat-last-n"},
     APP_RUN,
     I32,
     AT(sampling.penalty_last),
     "N",
     "tokens that penalties see, prompt included (default 64, -1: all)"},
    {{"--frequency-penalty"}, APP_RUN, F32, AT(sampling.frequency_penalty), "X", "default 0: off"},
    {{"--presence-penalty"}, APP_RUN, F32, AT(sampling.presence_penalty), "X", "default 0: off"},
    {{"-l", "--logit-bias"}, APP_RUN, BIAS, 0, "ID+X|ID-X", "added to a token's logit; repeatable"},
    {{"-s", "--seed"}, APP_RUN, U64, AT(sampling.seed), "N", "seed (default: from the system)"},
    {{"--stop"}, APP_RUN, STOP, 0, "TEXT", "text that ends the answer; repeatable"},
    {{"--ignore-eos"}, APP_RUN, FLAG, AT(ignore_eos), NULL, "go on after an end token"},
    {{"--logits"}, APP_RUN, TEXT, AT(logits), "FILE", "write each token's row of logits (f32)"},
    {{"--top"}, APP_SCORE, U32, AT(top), "K", "the K most likely tokens of each place"},
    {{"--no-special"},
     APP_TOKENIZE | APP_SCORE,
     FLAG,
     AT(no_special),
     NULL,
     "control tokens in the text stay text"},
    {{"--no-bos"}, APP_TOKENIZE | APP_SCORE, FLAG, AT(no_bos), NULL, "no begin-of-text token"},
    {{"--pre"},
     VOCABULARY,
     TEXT,
     AT(pre),
     "NAME",
     "how the tokenizer cuts text, if the file is wrong"},
    {{"--kernels"}, ENGINE | APP_PLAN, TEXT, AT(kernels), "SET", "ref, avx2 or avx512"},
    {{"--stats"}, ENGINE, FLAG, AT(stats), NULL, "where the bytes and seconds went, on stderr"},
    {{"--json"}, ALL, FLAG, AT(json), NULL, "one JSON document on standard output"},
    {{"-h", "--help"}, ALL, FLAG, AT(help), NULL, "this help"},
};

enum { OPTION_COUNT = sizeof options / sizeof *options };

static const struct {
    const char *name;
    app_command command;
    const char *use, *does;
} commands[] = {
    {"run", APP_RUN, "-m MODEL [-p TEXT | -f FILE | -]", "answer one prompt"},
    {"score", APP_SCORE, "-m MODEL (-p TEXT | -f FILE | --tokens FILE)",
     "log-probabilities of a text"},
    {"plan", APP_PLAN, "-m MODEL [-c N] [--memory SIZE]", "what a context will take"},
    {"info", APP_INFO, "-m MODEL", "metadata and tensors of a file"},
    {"tokenize", APP_TOKENIZE, "-m MODEL (-p TEXT | -f FILE)", "token ids of a text"},
    {"template", APP_TEMPLATE, "(-m MODEL | --template FILE) [-f VARIABLES.json]",
     "what a chat template makes"},
    {"detokenize", APP_DETOKENIZE, "-m MODEL --tokens FILE", "text of token ids"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

/* --- values ----------------------------------------------------------------------------------- */

static int bad(remat_error *err, const char *name, const char *text, const char *what) {
    return rm_fail(err, REMAT_E_USAGE, "%s: \"%.60s\" is no %s; see remat --help", name, text,
                   what);
}

/* Decimal digits with an optional minus; the whole text, inside [low, high]. */
static int integer(int64_t *out, const char *name, const char *text, int64_t low, int64_t high,
                   remat_error *err) {
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    const bool digits = (text[0] >= '0' && text[0] <= '9') || text[0] == '-';
    if (!digits || *end != '\0' || end == text || errno != 0 || v < low || v > high)
        return bad(err, name, text, "number in range");
    *out = v;
    return REMAT_OK;
}

static int real(double *out, const char *name, const char *text, remat_error *err) {
    char *end;
    const double v = strtod(text, &end);
    const bool decimal = strspn(text, "0123456789.eE+-") == strlen(text);
    if (end == text || *end != '\0' || !decimal || !isfinite((float)v))
        return bad(err, name, text, "number");
    *out = v;
    return REMAT_OK;
}

/* Digits with at most one point, then nothing or one of K, M, G, T. */
static int size(uint64_t *out, const char *name, const char *text, remat_error *err) {
    static const char units[] = "KMGT", lower[] = "kmgt";
    if (strcmp(text, "auto") == 0) {
        *out = 0;
        return REMAT_OK;
    }
    char *end;
    double v = strtod(text, &end);
    const size_t digits = strspn(text, "0123456789.");
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit == NULL && *end != '\0' && strchr(lower, *end) != NULL)
        unit = units + (strchr(lower, *end) - lower);
    for (const char *u = units; unit != NULL && u <= unit; u++)
        v *= 1024;
    const bool whole = end == text + digits && end[unit != NULL ? 1 : 0] == '\0';
    if (text[0] < '0' || text[0] > '9' || !whole || !(v >= 1) || !(v < 0x1p62))
        return bad(err, name, text, "size such as 128M or 1.5G");
    *out = (uint64_t)v;
    return REMAT_OK;
}

/* ID+X or ID-X. */
static int bias(app_args *args, const char *name, const char *text, remat_error *err) {
    const char *sign = text + strspn(text, "0123456789");
    char id[16];
    int64_t v;
    double x;
    const size_t n = (size_t)(sign - text);
    if (n == 0 || n >= sizeof id || (*sign != '+' && *sign != '-'))
        return bad(err, name, text, "bias such as 42+1.5");
    memcpy(id, text, n);
    id[n] = '\0';
    RM_TRY(integer(&v, name, id, 0, INT32_MAX, err));
    RM_TRY(real(&x, name, sign, err));
    if (args->sampling.bias_count == REMAT_BIAS_MAX)
        return rm_fail(err, REMAT_E_USAGE, "%s: at most %d", name, REMAT_BIAS_MAX);
    args->bias[args->sampling.bias_count++] = (remat_bias){.id = (uint32_t)v, .bias = (float)x};
    return REMAT_OK;
}

static int set(app_args *args, const option *o, const char *text, remat_error *err) {
    void *at = (char *)args + o->at;
    const char *name = o->names[0];
    int64_t v = 0;
    double x = 0;
    switch (o->kind) {
    case FLAG:
        *(bool *)at = true;
        return REMAT_OK;
    case TEXT:
        *(const char **)at = text;
        return REMAT_OK;
    case U32:
        RM_TRY(integer(&v, name, text, 0, INT32_MAX, err));
        *(uint32_t *)at = (uint32_t)v;
        return REMAT_OK;
    case PREDICT: /* -1 and -2 are llama.cpp's words for "until it ends" */
        RM_TRY(integer(&v, name, text, -2, INT32_MAX, err));
        *(uint32_t *)at = v < 0 ? REMAT_ALL : (uint32_t)v;
        return REMAT_OK;
    case I32:
        RM_TRY(integer(&v, name, text, INT32_MIN, INT32_MAX, err));
        *(int32_t *)at = (int32_t)v;
        return REMAT_OK;
    case U64:
        RM_TRY(integer(&v, name, text, -1, INT64_MAX, err));
        args->seed_given = v >= 0; /* -1: llama.cpp's word for any */
        *(uint64_t *)at = (uint64_t)v;
        return REMAT_OK;
    case F32:
        RM_TRY(real(&x, name, text, err));
        *(float *)at = (float)x;
        return REMAT_OK;
    case SIZE:
        return size(at, name, text, err);
    case STOP:
        if (args->stop_count == REMAT_STOPS_MAX || text[0] == '\0' ||
            strlen(text) > REMAT_STOP_BYTES_MAX)
            return rm_fail(err, REMAT_E_USAGE, "--stop: at most %d texts of 1 to %d bytes",
                           REMAT_STOPS_MAX, REMAT_STOP_BYTES_MAX);
        args->stops[args->stop_count++] = text;
        return REMAT_OK;
    case BIAS:
        return bias(args, name, text, err);
    }
    return REMAT_OK;
}

/* --- parsing ---------------------------------------------------------------------------------- */

static const option *find(const char *name, unsigned command) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if ((options[i].commands & command) == 0) continue;
        for (int j = 0; j < 4 && options[i].names[j] != NULL; j++) {
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
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, argv[1]) == 0) args->command = commands[i].command;
    }
    if (args->command != 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE, "command: there is no \"%.40s\"; see remat --help", argv[1]);
}

static int check(const app_args *args, remat_error *err) {
    if (args->help) return REMAT_OK;
    const bool needs_model = args->command != APP_TEMPLATE ||
                             (args->template_file == NULL && args->template_name == NULL);
    if (args->model == NULL && needs_model)
        return rm_fail(err, REMAT_E_USAGE, "-m: no model given; name a GGUF file");
    const int inputs =
        (args->prompt != NULL) + (args->file != NULL) + (args->tokens != NULL) + args->from_stdin;
    if (inputs > 1) return rm_fail(err, REMAT_E_USAGE, "input: give one of -p, -f, --tokens and -");
    if (args->command == APP_DETOKENIZE && args->tokens == NULL)
        return rm_fail(err, REMAT_E_USAGE, "--tokens: no file of token ids given");
    return REMAT_OK;
}

static int parse_options(app_args *args, int argc, char **argv, remat_error *err) {
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "-") == 0 && (args->command & (INPUT | APP_TEMPLATE))) {
            args->from_stdin = true;
            continue;
        }
        const option *o = find(argv[i], args->command);
        if (o == NULL) {
            return rm_fail(err, REMAT_E_USAGE, "%.60s: %s does not know this; see remat %s --help",
                           argv[i], argv[1], argv[1]);
        }
        const bool flag = o->kind == FLAG;
        if (!flag && i + 1 == argc)
            return rm_fail(err, REMAT_E_USAGE, "%s: its value is missing (%s)", argv[i], o->value);
        RM_TRY(set(args, o, flag ? NULL : argv[++i], err));
    }
    if (args->file != NULL && strcmp(args->file, "-") == 0) {
        args->file = NULL;
        args->from_stdin = true;
    }
    return check(args, err);
}

int app_args_parse(app_args *args, int argc, char **argv, remat_error *err) {
    /* Not a compound literal: clang puts one of this size on the stack. */
    memset(args, 0, sizeof *args);
    args->sampling = remat_sampling_default();
    args->context = APP_UNSET_U32;
    args->predict = APP_UNSET_U32;
    args->resident = REMAT_ALL;
    args->batch = 1;
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

int app_args_limits(remat_limits *out, const app_args *args, remat_error *err) {
    static const char *const kv[] = {"f16", "f32", NULL}, *const cold[] = {"auto", "drop", NULL};
    static const char *const recompute[] = {"auto", "full", "block", NULL};
    const char *k = args->kv_k != NULL ? args->kv_k : args->kv;
    const char *v = args->kv_v != NULL ? args->kv_v : args->kv;
    *out = remat_limits_default();
    RM_TRY(one_of("--kv", k, kv, err));
    RM_TRY(one_of("--kv", v, kv, err));
    RM_TRY(one_of("--cold", args->cold, cold, err));
    RM_TRY(one_of("--recompute", args->recompute, recompute, err));
    const bool k32 = k != NULL && strcmp(k, "f32") == 0, v32 = v != NULL && strcmp(v, "f32") == 0;
    if (k32 != v32)
        return rm_fail(err, REMAT_E_USAGE,
                       "-ctk, -ctv: keys and values have one format; give both");
    if (args->chunk_rows > 512)
        return rm_fail(err, REMAT_E_USAGE, "-ub: %u rows; at most 512", args->chunk_rows);
    if (args->batch == 0) return rm_fail(err, REMAT_E_USAGE, "--batch: at least 1");
    out->kv = k32 ? REMAT_KV_F32 : REMAT_KV_F16;
    out->chunk_rows = args->chunk_rows;
    out->resident_count = args->resident;
    out->sequence_count = args->batch;
    if (args->recompute != NULL && strcmp(args->recompute, "full") == 0) out->resident_count = 0;
    return REMAT_OK;
}

/* --- help ------------------------------------------------------------------------------------- */

void app_args_help(app_command command) {
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (command != 0 && commands[i].command != command) continue;
        app_printf("%s remat %s %s%s%s\n", command != 0 || i == 0 ? "usage:" : "      ",
                   commands[i].name, commands[i].use, command == 0 ? "   " : "",
                   command == 0 ? commands[i].does : "");
    }
    if (command == 0) {
        app_printf("\nRuns a language model inside a memory budget that it never exceeds, with the "
                   "answer\nit would give with unlimited memory. remat COMMAND --help: the options."
                   "\n");
        return;
    }
    app_printf("\n");
    for (int i = 0; i < OPTION_COUNT; i++) {
        const option *o = &options[i];
        char left[64];
        if ((o->commands & command) == 0) continue;
        snprintf(left, sizeof left, "%s%s%s%s%s", o->names[0], o->names[1] ? ", " : "",
                 o->names[1] ? o->names[1] : "", o->value ? " " : "", o->value ? o->value : "");
        app_printf("  %-32s %s\n", left, o->help);
    }
}
