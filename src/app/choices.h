/*
 * choices.h: remat score --choices: which of some texts is the likeliest to follow another. For
 * classification, and to rank. Part: app.
 *
 *     prompt | choice 0
 *            | choice 1 ...
 *
 * The prompt is computed once. A choice of one token is read off the logits behind it, so that a
 * sweep answers for all of them and no cache is kept; of a longer one its tokens pass as well, the
 * prompt's keys and values being there.
 */
#ifndef RM_APP_CHOICES_H
#define RM_APP_CHOICES_H

#include "app/app.h"

/* The prompt is the command's input; flags as for remat_tokenize(). */
int app_choices_run(remat_engine *e, const app_args *args, unsigned flags, remat_error *err);

#endif /* RM_APP_CHOICES_H */
