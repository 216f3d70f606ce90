/*
 * preset.h: models described by their numbers: well-known ones by name, others from a file. Part:
 * app.
 */
#ifndef RM_APP_PRESET_H
#define RM_APP_PRESET_H

#include "app/args.h"

typedef struct app_preset {
    const char *name;
    remat_shape shape; /* weights: NULL, but where the model comes in one type only */
    /* As its authors count them, for the tests; 0: not known exactly. */
    uint64_t parameters;
} app_preset;

/* In order of name; *count of them. */
const app_preset *app_presets(size_t *count);

/* The one of this name, in any case, or NULL. */
const app_preset *app_preset_find(const char *name);

/* The shape that --model-shape names: a preset, or a JSON file (remat(1)). --weight-type says its
 * type of weights where it has none. Errors: REMAT_E_USAGE, REMAT_E_FAILED (no such file). */
int app_shape(remat_shape *out, const app_args *args, remat_error *err);

#endif /* RM_APP_PRESET_H */
