/*
 * plot_layout.h: where the parts of charts are, in pixels. Part: app. See plot.h.
 *
 * gnuplot's own margins do not know how long the names of bars are, so that it cuts them. Bars lie
 * down when their names would not fit side by side.
 */
#ifndef RM_APP_PLOT_LAYOUT_H
#define RM_APP_PLOT_LAYOUT_H

#include "app/plot.h"

enum {
    APP_PLOT_CHAR_PX = 8, /* of the font, on average */
    APP_PLOT_TICS_PX = 22,
    APP_PLOT_LABEL_PX = 24,   /* of an axis */
    APP_PLOT_NAME_CHARS = 30, /* what is longer is cut */
};

typedef struct app_plot_size {
    double width, height; /* of all; the caption is below the panels */
    double panel_width, panel_height;
    size_t columns;
} app_plot_size;

typedef struct app_plot_area {
    double left, right, bottom, top; /* of the axes, from the lower left of the picture */
    double title_y, key_y, edge;     /* edge: where the label of the upright axis is */
    size_t key_columns;              /* 0: no key */
    bool lying;                      /* bars lie: the categories are on the upright axis */
} app_plot_area;

app_plot_size app_plot_measure(const app_plot_panel *panels, size_t count, bool caption);
app_plot_area app_plot_place(const app_plot_size *size, const app_plot_panel *p, size_t index);

/* Characters that are shown of the longest name. */
size_t app_plot_longest(const char *const *names, size_t count);

#endif /* RM_APP_PLOT_LAYOUT_H */
