/* plot_axis.h: the range of an axis of a chart, and its tics. Part: app. See plot.h. */
#ifndef RM_APP_PLOT_AXIS_H
#define RM_APP_PLOT_AXIS_H

#include "base/buf.h"

typedef struct app_plot_range {
    double low, high; /* high < low: nothing is there yet */
    int log;          /* its base: 2 or 10; 0: a linear axis */
} app_plot_range;

app_plot_range app_plot_range_empty(int log);

/* Whether a value has a place: it is finite (up to 1e100), and above 0 on a logarithmic axis. */
bool app_plot_has_place(double v, int log);
void app_plot_widen(app_plot_range *r, double v);

/* Makes room around what is there. amounts: 0 belongs to the picture. room: a share that stays free
 * at the upper end, for the numbers of bars. */
void app_plot_finish(app_plot_range *r, bool amounts, double room);

/* Writes range, scale and tics of the axis ('x' or 'y'), of which each takes tic_px of length. */
void app_plot_axis(rm_buf *out, char axis, const app_plot_range *r, double length, double tic_px);

#endif /* RM_APP_PLOT_AXIS_H */
