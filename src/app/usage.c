/* usage.c: help and version, for people. Part: app. */
#include "app/app.h"
#include "app/options.h"

#include <stdio.h>
#include <string.h>

enum { LINE = 80, HELP_AT = 28 };

/* The words of text, wrapped; `at` is where the line stands. */
static void put_wrapped(const char *text, size_t at) {
    if (at + 1 > HELP_AT) {
        app_printf("\n");
        at = 0;
    }
    app_printf("%*s", (int)(HELP_AT - at), "");
    at = HELP_AT;
    while (*text != '\0') {
        const size_t word = strcspn(text, " ");
        if (at > HELP_AT && at + 1 + word > LINE) {
            app_printf("\n%*s", HELP_AT, "");
            at = HELP_AT;
        }
        if (at > HELP_AT) {
            app_printf(" ");
            at++;
        }
        app_printf("%.*s", (int)word, text);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    app_printf("\n");
}

/* The short help has two names of each, the long one all, and the variable. */
static void put_option(const app_option *o, bool all) {
    char left[128] = "  ";
    size_t n = 2;
    for (int i = 0; i < (all ? APP_NAMES_MAX : 2) && o->names[i] != NULL; i++)
        n += (size_t)snprintf(left + n, sizeof left - n, "%s%s", i > 0 ? ", " : "", o->names[i]);
    if (o->value != NULL) n += (size_t)snprintf(left + n, sizeof left - n, " %s", o->value);
    app_printf("%s", left);
    char help[256], name[48] = "";
    const bool env = all && (o->commands & APP_ENV) != 0;
    if (env) app_environment_name(name, o);
    snprintf(help, sizeof help, "%s%s%s%s", o->help, env ? " [" : "", name, env ? "]" : "");
    put_wrapped(help, n);
}

static void put_program(void) {
    uint32_t count;
    const app_command_row *commands = app_commands(&count);
    app_printf("usage: remat COMMAND [OPTIONS]\n\n");
    for (uint32_t i = 0; i < count; i++)
        app_printf("  %-11s %s\n", commands[i].name, commands[i].does);
    app_printf("\nRuns a language model inside a memory budget that it never exceeds, with the\n"
               "answer it would give with unlimited memory. The options of a command: remat\n"
               "COMMAND --help. The version: remat --version [--json].\n");
}

void app_args_help(app_command command, bool all) {
    uint32_t command_count, count, rare = 0;
    const app_command_row *commands = app_commands(&command_count);
    const app_option *options = app_options(&count);
    const char *name = "";
    if (command == 0) {
        put_program();
        return;
    }
    for (uint32_t i = 0; i < command_count; i++) {
        if (commands[i].command != command) continue;
        name = commands[i].name;
        app_printf("usage: remat %s %s\n%s\n\n", name, commands[i].use, commands[i].does);
    }
    for (uint32_t i = 0; i < count; i++) {
        if ((options[i].commands & command) == 0) continue;
        if ((options[i].commands & APP_RARE) != 0) rare++;
        if (all || (options[i].commands & APP_RARE) == 0) put_option(&options[i], all);
    }
    if (!all && rare > 0) app_printf("%u more, and all names: remat %s --help all\n", rare, name);
}

int app_version(const app_args *args, remat_error *err) {
    (void)err;
    if (!args->json) {
        app_printf("remat %s\n", remat_version());
        return REMAT_OK;
    }
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_string(&j, "name", "remat");
    rm_json_string(&j, "version", remat_version());
    rm_json_close(&j, '}');
    app_printf("\n");
    return REMAT_OK;
}
