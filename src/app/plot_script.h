/* plot_script.h: charts as a script for gnuplot. Part: app. See plot.h. */
#ifndef RM_APP_PLOT_SCRIPT_H
#define RM_APP_PLOT_SCRIPT_H

#include "app/plot.h"
#include "base/buf.h"

/* Writes the script; gnuplot's standard output is then the picture. */
void app_plot_script(rm_buf *out, bool png, const char *caption, const app_plot_panel *panels,
                     size_t panel_count);

/* Writes text as it can stand in a table: no tab, no line break, no byte that is not UTF-8. */
void app_plot_text(rm_buf *out, const char *text);

#endif /* RM_APP_PLOT_SCRIPT_H */
