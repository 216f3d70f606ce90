/* args.c: see args.h. */
#include "app/args.h"
#include "app/escape.h"
#include "app/options.h"
#include "app/output.h"
#include "base/check.h"

#include <stdio.h>
#include <string.h>

/* --- parsing ---------------------------------------------------------------------------------- */

static const app_option *find(const char *name, unsigned command) {
    uint32_t count;
    const app_option *options = app_options(&count);
    for (uint32_t i = 0; i < count; i++) {
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
    uint32_t count;
    const app_command_row *commands = app_commands(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(commands[i].name, argv[1]) == 0) args->command = commands[i].command;
    }
    if (args->command != 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_USAGE, "command: there is no \"%.40s\"; see remat --help", argv[1]);
}

static int check(const app_args *args, remat_error *err) {
    const bool needs_model =
        (args->command & APP_ALL) != 0 &&
        (args->command != APP_TEMPLATE ||
         (args->template_file == NULL && args->template_name == NULL)) &&
        (args->command != APP_PLAN || (args->model_shape == NULL && !args->list_shapes));
    if (args->model != NULL && args->model_shape != NULL)
        return rm_fail(err, REMAT_E_USAGE, "--model-shape: give it or -m, not both");
    if (args->model == NULL && needs_model)
        return rm_fail(err, REMAT_E_USAGE, "-m: no model given; name a GGUF file");
    if (args->weight_type != NULL && args->model_shape == NULL)
        return rm_fail(err, REMAT_E_USAGE,
                       "--weight-type: a file has its own types; give --model-shape with it");
    const double *const costs = &args->costs.hardware_price;
    for (size_t i = 0; !args->cost && i < sizeof args->costs / sizeof *costs; i++) {
        if (costs[i] >= 0)
            return rm_fail(err, REMAT_E_USAGE,
                           "prices, watts and tokens a day: give --cost with them");
    }
    const int inputs = (args->prompt != NULL) + (args->file != NULL) + (args->tokens != NULL) +
                       args->from_stdin + (args->ppl != NULL);
    if (inputs > 1)
        return rm_fail(err, REMAT_E_USAGE, "input: give one of -p, -f, --tokens%s and -",
                       args->command == APP_EVAL ? ", --ppl" : "");
    if (args->session_tokens_only && args->session == NULL)
        return rm_fail(err, REMAT_E_USAGE, "--session-tokens-only: give --session FILE with it");
    if (args->command == APP_DETOKENIZE && args->tokens == NULL)
        return rm_fail(err, REMAT_E_USAGE, "--tokens: no file of token ids given");
    return REMAT_OK;
}

/* What stands alone: -, and the shell of completion. */
static bool positional(app_args *args, const char *text) {
    if (strcmp(text, "-") == 0 && (args->command & (APP_INPUT | APP_TEMPLATE | APP_BENCH)) != 0) {
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
    uint32_t count;
    const app_option *options = app_options(&count);
    bool given[APP_OPTIONS_MAX] = {false};
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
    RM_TRY(app_environment(args, given, err));
    RM_TRY(check(args, err));
    if (args->ppl != NULL) args->file = args->ppl;
    if (args->file != NULL && strcmp(args->file, "-") == 0) {
        args->file = NULL;
        args->from_stdin = true;
    }
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
    double *const costs = &args->costs.hardware_price;
    for (size_t i = 0; i < sizeof args->costs / sizeof *costs; i++)
        costs[i] = -1;
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
