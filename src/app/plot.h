/*
 * plot.h: charts, drawn by gnuplot, with their numbers in a file beside them. Part: app.
 *
 * A picture is one or more panels side by side (or in two rows from four on). Colours can be read
 * on white and on black. The numbers of out.svg are in out.tsv: everything that is drawn, to be
 * drawn again with any tool.
 */
#ifndef RM_APP_PLOT_H
#define RM_APP_PLOT_H

#include "remat.h"

typedef enum app_plot_kind {
    APP_PLOT_LINES, /* y over x, a line with points for each series */
    APP_PLOT_BARS,  /* y of each category, the series side by side */
    APP_PLOT_HEAT,  /* colour over a grid: x and y are categories, one series of values */
} app_plot_kind;

enum { APP_PLOT_PANELS = 4, APP_PLOT_SERIES = 8 };

typedef struct app_plot_series {
    const char *name;
    const double *x; /* LINES: count of them; else NULL */
    const double *y; /* count; NaN: no value there. HEAT: row by row, y_names x names */
    size_t count;
} app_plot_series;

typedef struct app_plot_panel {
    app_plot_kind kind;
    bool x_log, y_log;                     /* base 2 and 10 */
    const char *title, *x_label, *y_label; /* labels name their unit */
    app_plot_series series[APP_PLOT_SERIES];
    size_t series_count;
    const char *const *names;   /* BARS, HEAT: of the categories along x */
    const char *const *y_names; /* HEAT: along y, from the bottom up */
    size_t name_count, y_name_count;
    double heat_from, heat_to; /* HEAT: values of the ends of the colours */
} app_plot_panel;

/* Whether path ends with .svg or .png (else REMAT_E_USAGE), and a file can be made there (else
 * REMAT_E_FAILED). Called before long work. */
int app_plot_check(const char *path, remat_error *err);

/* Writes the numbers to path with .tsv for its ending, and then the picture. caption: a line below
 * (model, machine). Errors: REMAT_E_FAILED: a file that cannot be written; no gnuplot, or it
 * failed: the numbers are there even so. */
int app_plot_write(const char *path, const char *caption, const app_plot_panel *panels,
                   size_t panel_count, remat_error *err);

#endif /* RM_APP_PLOT_H */
