/* plot_axis.c: see plot_axis.h. */
#include "app/plot_axis.h"

#include <math.h>

static const double LARGEST = 1e100; /* of a value; ranges beyond it still have their numbers */

app_plot_range app_plot_range_empty(int log) {
    return (app_plot_range){.low = INFINITY, .high = -INFINITY, .log = log};
}

bool app_plot_has_place(double v, int log) {
    return fabs(v) <= LARGEST && (log == 0 || v >= 1 / LARGEST);
}

void app_plot_widen(app_plot_range *r, double v) {
    if (!app_plot_has_place(v, r->log)) return;
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
}

void app_plot_finish(app_plot_range *r, bool amounts, double room) {
    if (r->low > r->high) {
        r->low = r->log != 0 ? 1 : 0;
        r->high = r->log != 0 ? 10 : 1;
    }
    if (r->log != 0) {
        if (amounts) r->low /= 2.5; /* the smallest is a bar too */
        const double decades = log10(r->high / r->low);
        r->low /= amounts ? 1 : pow(10, 0.05 * decades + 0.02);
        r->high *= pow(10, 0.02 + (0.05 + room) * decades);
        return;
    }
    if (amounts && r->low > 0) r->low = 0;
    if (amounts && r->high < 0) r->high = 0;
    double span = r->high - r->low;
    if (span <= 0) span = r->high != 0 ? fabs(r->high) : 1;
    if (!amounts || r->low < 0) r->low -= 0.05 * span;
    r->high += (0.05 + room) * span;
}

/* 1, 2 or 5 times a power of ten. */
static double step(double span, double most) {
    const double rough = span / (most < 1 ? 1 : most), power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

/* 1, 2, 5, 10, ..; the powers of ten alone where the range is long, and not all of very many. */
static void log_tics(rm_buf *out, const app_plot_range *r, double most) {
    static const double digits[] = {1, 2, 5};
    const double decades = log10(r->high / r->low);
    const int count = 3 * decades <= most ? 3 : 1;
    const int every = decades > most ? (int)ceil(decades / most) : 1;
    const char *between = "";
    for (int p = (int)floor(log10(r->low)); pow(10, p) <= r->high; p++) {
        for (int i = 0; i < count && p % every == 0; i++) {
            const double v = pow(10, p) * digits[i];
            if (v < r->low || v > r->high) continue;
            rm_buf_format(out, "%s'%.10g' %.10g", between, v, v);
            between = ", ";
        }
    }
}

/* 1, 2, 4, ..: what lengths are. */
static void double_tics(rm_buf *out, const app_plot_range *r, double most) {
    const double doublings = log2(r->high / r->low);
    const int every = doublings > most ? (int)ceil(doublings / most) : 1;
    const char *between = "";
    for (int p = (int)ceil(log2(r->low)); pow(2, p) <= r->high; p += every) {
        rm_buf_format(out, "%s'%.10g' %.10g", between, pow(2, p), pow(2, p));
        between = ", ";
    }
}

void app_plot_axis(rm_buf *out, char axis, const app_plot_range *r, double length, double tic_px) {
    const double most = length / tic_px;
    if (r->log != 0) rm_buf_format(out, "set logscale %c\n", axis);
    rm_buf_format(out, "set %crange [%.10g:%.10g]\nset %ctics ", axis, r->low, r->high, axis);
    if (r->log == 0) {
        rm_buf_format(out, "%.10g\n", step(r->high - r->low, most));
        return;
    }
    rm_buf_text(out, "(");
    if (r->log == 2) {
        double_tics(out, r, most);
    } else {
        log_tics(out, r, most);
    }
    rm_buf_text(out, ")\n");
}
