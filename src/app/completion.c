/*
 * completion.c: remat completion: scripts for shells, made from the tables of options. Part: app.
 *
 * All three know the same: the commands, the options of each, which values are paths, and the words
 * that an option takes.
 */
#include "app/app.h"
#include "app/options.h"
#include "base/check.h"

#include <string.h>

bool app_choice_next(char out[32], const char **value) {
    const char *p = *value != NULL ? *value : "";
    p += strspn(p, "[|");
    /* Words in small letters are choices; FILE, N, ID+X|ID-X are not. */
    const size_t n = strcspn(p, "|]");
    if (n == 0 || n >= 32 || p[0] < 'a' || p[0] > 'z') return false;
    memcpy(out, p, n);
    out[n] = '\0';
    *value = p + n;
    return true;
}

static bool is_path(const app_option *o) {
    return o->value != NULL && (strcmp(o->value, "FILE") == 0 || strcmp(o->value, "DIR") == 0);
}

static void put_choices(const char *value) {
    char word[32];
    for (int n = 0; app_choice_next(word, &value); n++)
        app_printf("%s%s", n > 0 ? " " : "", word);
}

static bool has_choices(const app_option *o) {
    char word[32];
    const char *value = o->value;
    return app_choice_next(word, &value);
}

static void put_commands(void) {
    uint32_t count;
    const app_command_row *c = app_commands(&count);
    for (uint32_t i = 0; i < count; i++)
        app_printf("%s%s", i > 0 ? " " : "", c[i].name);
}

/* Text between single quotes of a shell; bracket: what zsh takes for a sign is escaped too. */
static void put_quoted(const char *text, bool zsh) {
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            app_printf("'\\''");
        } else if (zsh && strchr("[]:\\", *text) != NULL) {
            app_printf("\\%c", *text);
        } else {
            app_printf("%c", *text);
        }
    }
}

/* --- bash ------------------------------------------------------------------------------------- */

static void bash_names(const app_option *o, const char *between) {
    for (int j = 0; j < APP_NAMES_MAX && o->names[j] != NULL; j++)
        app_printf("%s%s", j > 0 ? between : "", o->names[j]);
}

static void bash(void) {
    uint32_t count, command_count;
    const app_option *o = app_options(&count);
    const app_command_row *c = app_commands(&command_count);
    app_printf("# bash completion of remat; to load it: source <(remat completion bash)\n"
               "_remat() {\n"
               "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=\n"
               "    COMPREPLY=()\n"
               "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
               "        words='");
    put_commands();
    app_printf(" --help --version'\n"
               "    else\n"
               "        case $prev in\n");
    for (uint32_t i = 0; i < count; i++) {
        if (o[i].value == NULL) continue;
        app_printf("        ");
        bash_names(&o[i], "|");
        if (is_path(&o[i])) {
            app_printf(")\n            compopt -o filenames 2>/dev/null\n"
                       "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
                       "            return ;;\n");
        } else if (has_choices(&o[i])) {
            app_printf(") words='");
            put_choices(o[i].value);
            app_printf("' ;;\n");
        } else {
            app_printf(") return ;;\n");
        }
    }
    app_printf("        *)\n            case ${COMP_WORDS[1]} in\n");
    for (uint32_t k = 0; k < command_count; k++) {
        app_printf("            %s) words='%s", c[k].name,
                   c[k].command == APP_COMPLETION ? "bash zsh fish " : "");
        for (uint32_t i = 0; i < count; i++) {
            if ((o[i].commands & c[k].command) == 0) continue;
            bash_names(&o[i], " ");
            app_printf(" ");
        }
        app_printf("' ;;\n");
    }
    app_printf("            esac ;;\n"
               "        esac\n"
               "    fi\n"
               "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
               "}\n"
               "complete -F _remat remat\n");
}

/* --- zsh -------------------------------------------------------------------------------------- */

static void zsh_option(const app_option *o) {
    for (int j = 0; j < APP_NAMES_MAX && o->names[j] != NULL; j++) {
        app_printf(" \\\n            '%s[", o->names[j]);
        put_quoted(o->help, true);
        app_printf("]");
        if (o->value != NULL) {
            app_printf("%s", o->value[0] == '[' ? "::" : ":");
            put_quoted(has_choices(o) ? "value" : o->value, true);
            app_printf(":");
        }
        if (is_path(o)) app_printf("_files");
        if (has_choices(o)) {
            app_printf("(");
            put_choices(o->value);
            app_printf(")");
        }
        app_printf("'");
    }
}

static void zsh(void) {
    uint32_t count, command_count;
    const app_option *o = app_options(&count);
    const app_command_row *c = app_commands(&command_count);
    app_printf("#compdef remat\n"
               "# zsh completion of remat; to load it: source <(remat completion zsh)\n"
               "_remat() {\n"
               "    local -a commands\n"
               "    commands=(");
    for (uint32_t k = 0; k < command_count; k++) {
        app_printf("\n        '%s:", c[k].name);
        put_quoted(c[k].does, true);
        app_printf("'");
    }
    app_printf("\n    )\n"
               "    if (( CURRENT == 2 )); then\n"
               "        _describe command commands\n"
               "        return\n"
               "    fi\n"
               "    local command=$words[2]\n"
               "    shift words\n"
               "    (( CURRENT-- ))\n"
               "    case $command in\n");
    for (uint32_t k = 0; k < command_count; k++) {
        app_printf("    %s)\n        _arguments", c[k].name);
        if (c[k].command == APP_COMPLETION) app_printf(" '1:shell:(bash zsh fish)'");
        for (uint32_t i = 0; i < count; i++) {
            if ((o[i].commands & c[k].command) != 0) zsh_option(&o[i]);
        }
        app_printf(" ;;\n");
    }
    /* In a folder of fpath the file is the function's body; sourced, it has to be registered. */
    app_printf("    esac\n"
               "}\n"
               "if [ \"$funcstack[1]\" = _remat ]; then\n"
               "    _remat \"$@\"\n"
               "else\n"
               "    compdef _remat remat\n"
               "fi\n");
}

/* --- fish ------------------------------------------------------------------------------------- */

static void fish_option(const app_option *o, unsigned in) {
    uint32_t count;
    const app_command_row *c = app_commands(&count);
    app_printf("complete -c remat -n '__fish_seen_subcommand_from");
    for (uint32_t k = 0; k < count; k++) {
        if ((c[k].command & in) != 0) app_printf(" %s", c[k].name);
    }
    app_printf("'");
    for (int j = 0; j < APP_NAMES_MAX && o->names[j] != NULL; j++) {
        const char *name = o->names[j];
        if (name[1] == '-') {
            app_printf(" -l %s", name + 2);
        } else {
            app_printf(" -%c %s", name[2] == '\0' ? 's' : 'o', name + 1);
        }
    }
    if (has_choices(o)) {
        app_printf(" -xa '");
        put_choices(o->value);
        app_printf("'");
    } else if (o->value != NULL) {
        app_printf(is_path(o) ? " -rF" : " -x");
    }
    app_printf(" -d '");
    /* Between fish's single quotes a backslash escapes a backslash and a quote. */
    for (const char *p = o->help; *p != '\0'; p++)
        app_printf(*p == '\'' || *p == '\\' ? "\\%c" : "%c", *p);
    app_printf("'\n");
}

static void fish(void) {
    uint32_t count, command_count;
    const app_option *o = app_options(&count);
    const app_command_row *c = app_commands(&command_count);
    app_printf("# fish completion of remat; to load it: remat completion fish | source\n"
               "complete -c remat -f\n");
    for (uint32_t k = 0; k < command_count; k++) {
        app_printf("complete -c remat -n __fish_use_subcommand -a %s -d '", c[k].name);
        put_quoted(c[k].does, false);
        app_printf("'\n");
    }
    app_printf(
        "complete -c remat -n __fish_use_subcommand -l help -d 'this help'\n"
        "complete -c remat -n __fish_use_subcommand -l version -d 'the version'\n"
        "complete -c remat -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n");
    for (uint32_t i = 0; i < count; i++)
        fish_option(&o[i], o[i].commands);
}

int app_completion(const app_args *args, remat_error *err) {
    const char *shell = args->shell != NULL ? args->shell : "";
    if (strcmp(shell, "bash") == 0) {
        bash();
    } else if (strcmp(shell, "zsh") == 0) {
        zsh();
    } else if (strcmp(shell, "fish") == 0) {
        fish();
    } else {
        return rm_fail(err, REMAT_E_USAGE,
                       "completion: \"%.40s\" is no shell it knows; give bash, "
                       "zsh or fish",
                       shell);
    }
    return REMAT_OK;
}
