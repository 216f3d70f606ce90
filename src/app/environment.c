/* environment.c: options from the environment. See options.h. Part: app. */
#include "app/options.h"
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void app_environment_name(char out[48], const app_option *o) {
    int i = 0;
    while (i < APP_NAMES_MAX - 1 && o->names[i + 1] != NULL && strncmp(o->names[i], "--", 2) != 0)
        i++;
    const int n = snprintf(out, 48, "REMAT_%s", o->names[i] + 2);
    RM_ASSERT(n < 48);
    for (char *p = out; *p != '\0'; p++) {
        if (*p == '-') *p = '_';
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    }
}

int app_environment(app_args *args, const bool *given, remat_error *err) {
    uint32_t count;
    char name[48];
    const app_option *options = app_options(&count);
    for (uint32_t i = 0; i < count; i++) {
        const app_option *o = &options[i];
        if ((o->commands & APP_ENV) == 0 || (o->commands & args->command) == 0 || given[i])
            continue;
        app_environment_name(name, o);
        const char *text = getenv(name);
        if (text == NULL || text[0] == '\0') continue;
        /* A template that is given needs no model, so none is opened for it. */
        if (args->command == APP_TEMPLATE && strcmp(name, "REMAT_MODEL") == 0 &&
            (args->template_file != NULL || args->template_name != NULL))
            continue;
        RM_TRY(app_option_set(args, o, name, text, err));
    }
    return REMAT_OK;
}
