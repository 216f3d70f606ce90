/* plot_script.c: see plot_script.h. Part: app. */
#include "app/plot_script.h"
#include "app/plot_axis.h"
#include "app/plot_layout.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TIC_HIGH_PX = 40, /* between tics */
    TIC_WIDE_PX = 62,
    CELL_WIDE_PX = 38, /* a cell that has room for its number */
    PNG_SCALE = 2,
};
static const double BAR_SHARE = 0.8; /* of a category; the rest is between */

/* Contrast of 3.3 to 4.7 on white, of 4 to 5.8 on nearly black. */
static const char *const colours[APP_PLOT_SERIES] = {
    "0x2f81f7", "0xd9730d", "0x2e9e5b", "0xa371f7", "0xe5534b", "0x1b9aaa", "0xc2409b", "0x8a8a1f"};
static const int shapes[APP_PLOT_SERIES] = {7, 5, 9, 11, 13, 6, 4, 8};
static const char ink[] = "0x767676";

typedef struct canvas {
    rm_buf *out;
    app_plot_size size;
    const char *title_font, *number_font;
} canvas;

/* --- text ------------------------------------------------------------------------------------- */

/* Bytes of the character at s; 0 when it is not UTF-8. */
static size_t character(const char *s) {
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) return 1;
    const size_t n = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    if (u[0] < 0xc2 || u[0] > 0xf4) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
    }
    /* Overlong forms, surrogates, beyond U+10FFFF. */
    const bool wrong = (u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ||
                       (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f);
    return wrong ? 0 : n;
}

/* Characters of text, at most so many: one that is longer ends with two dots. escaped: what could
 * mean something to gnuplot is an octal number. */
static void put_text(rm_buf *out, const char *text, size_t most, bool escaped) {
    static const char harmless[] = " .,:;/()+-_=";
    size_t length = 0;
    bool number = false; /* gnuplot takes a digit behind an octal number for a part of it */
    for (const char *p = text; *p != '\0'; p += character(p) > 0 ? character(p) : 1)
        length++;
    for (size_t i = 0; *text != '\0' && (length <= most || i + 2 < most); i++) {
        const size_t n = character(text);
        const unsigned char c = (unsigned char)*text;
        if (n == 0 || c < ' ' || c == 127) {
            rm_buf_text(out, n == 0 ? "?" : " ");
        } else if (escaped && n == 1 &&
                   (isalnum(c) ? number && isdigit(c) : strchr(harmless, c) == NULL)) {
            rm_buf_format(out, "\\%03o", c);
            number = true;
            text++;
            continue;
        } else {
            rm_buf_put(out, text, n);
        }
        number = false;
        text += n > 0 ? n : 1;
    }
    if (length > most) rm_buf_text(out, "..");
}

void app_plot_text(rm_buf *out, const char *text) {
    put_text(out, text != NULL ? text : "", SIZE_MAX, false);
}

/* Between double quotes, where escapes work. Single ones would need none but for their own, and of
 * several of those gnuplot 5.4 makes an error. */
static void put_quoted(rm_buf *out, const char *text, size_t most) {
    rm_buf_text(out, "\"");
    put_text(out, text != NULL ? text : "", most, true);
    rm_buf_text(out, "\"");
}

/* About three digits. */
static void format_value(char out[32], double v) {
    const double size = fabs(v);
    snprintf(out, 32, size >= 1e6 || size < 10 ? "%.3g" : size >= 100 ? "%.0f" : "%.1f", v);
}

/* --- what all panels have --------------------------------------------------------------------- */

/* room: pixels that it may take. how: options of gnuplot. */
static void put_label(const canvas *c, const char *text, double x, double y, double room,
                      const char *how) {
    if (text == NULL || text[0] == '\0') return;
    rm_buf_text(c->out, "set label ");
    put_quoted(c->out, text, (size_t)(room / (APP_PLOT_CHAR_PX - 1)));
    rm_buf_format(c->out, " at screen %.5f,%.5f center %s textcolor rgb %s\n", x / c->size.width,
                  y / c->size.height, how, ink);
}

static void put_frame(const canvas *c, const app_plot_panel *p, const app_plot_area *a) {
    rm_buf *out = c->out;
    const double middle = (a->left + a->right) / 2;
    rm_buf_format(out,
                  "reset\nset border 3 lc rgb %s lw 1\nset tics nomirror textcolor rgb %s\n"
                  "set format '%%.10g'\n",
                  ink, ink);
    rm_buf_format(out, "set lmargin at screen %.5f\nset rmargin at screen %.5f\n",
                  a->left / c->size.width, a->right / c->size.width);
    rm_buf_format(out, "set bmargin at screen %.5f\nset tmargin at screen %.5f\n",
                  a->bottom / c->size.height, a->top / c->size.height);
    put_label(c, p->title, middle, a->title_y, c->size.panel_width, c->title_font);
    put_label(c, a->lying ? p->y_label : p->x_label, middle,
              a->bottom - APP_PLOT_TICS_PX - APP_PLOT_LABEL_PX / 2.0 - 4, c->size.panel_width, "");
    put_label(c, a->lying ? p->x_label : p->y_label, a->edge, (a->bottom + a->top) / 2,
              c->size.panel_height, "rotate");
    if (a->key_columns == 0) {
        rm_buf_text(out, "unset key\n");
        return;
    }
    rm_buf_format(out,
                  "set key at screen %.5f,%.5f center top horizontal maxcols %zu samplen 1.5 "
                  "Left reverse textcolor rgb %s\n",
                  middle / c->size.width, a->key_y / c->size.height, a->key_columns, ink);
}

static void put_grid(rm_buf *out, const char *axes) {
    rm_buf_format(out, "set grid %s lc rgb %s lw 0.5 dt (1,4)\n", axes, ink);
}

/* A label of a tic is a format to gnuplot. */
static void put_tic(rm_buf *out, const char *name) {
    char text[4 * APP_PLOT_NAME_CHARS + 1];
    size_t n = 0, signs = 0;
    for (; *name != '\0' && n + 3 < sizeof text; name++) {
        text[n++] = *name;
        if (*name != '%') continue;
        text[n++] = '%';
        signs++;
    }
    text[n] = '\0';
    put_quoted(out, text, APP_PLOT_NAME_CHARS + signs);
}

/* Categories at 0, 1, 2, ..; where there are many, only those that have room are named. */
static void put_names(rm_buf *out, char axis, const char *const *names, size_t count, double length,
                      double need_px, bool down) {
    const double ends[2] = {-0.5, (double)(count > 0 ? count : 1) - 0.5};
    size_t every = 1;
    while (every < count && length / (double)count * (double)every < need_px)
        every++;
    rm_buf_format(out, "set %crange [%.1f:%.1f]\n", axis, ends[down], ends[!down]);
    rm_buf_format(out, count > 0 ? "set %ctics scale 0 (" : "unset %ctics\n", axis);
    for (size_t i = 0; i < count; i += every) {
        if (i > 0) rm_buf_text(out, ", ");
        put_tic(out, names[i]);
        rm_buf_format(out, " %zu", i);
    }
    if (count > 0) rm_buf_text(out, ")\n");
}

/* What stands before an element of the plot command. gnuplot fails without any point: a panel that
 * has none draws one that cannot be seen. */
static const char *between(size_t *elements) {
    return (*elements)++ == 0 ? "plot " : ", ";
}

static void end_plot(rm_buf *out, size_t elements, double x, double y) {
    if (elements == 0) {
        rm_buf_format(out, "$none << EOD\n%.10g %.10g\nEOD\n", x, y);
        rm_buf_text(out, "plot $none using 1:2 with dots lc rgb 0xff000000 notitle");
    }
    rm_buf_text(out, "\n");
}

/* --- lines ------------------------------------------------------------------------------------ */

static void put_lines(const canvas *c, const app_plot_panel *p, const app_plot_area *a,
                      size_t index) {
    rm_buf *out = c->out;
    size_t drawn[APP_PLOT_SERIES] = {0}, elements = 0;
    app_plot_range x = app_plot_range_empty(p->x_log ? 2 : 0),
                   y = app_plot_range_empty(p->y_log ? 10 : 0);
    for (size_t s = 0; s < p->series_count; s++) {
        rm_buf_format(out, "$p%zus%zu << EOD\n", index, s);
        for (size_t i = 0; i < p->series[s].count; i++) {
            const double vx = p->series[s].x[i], vy = p->series[s].y[i];
            if (!app_plot_has_place(vx, x.log) || !app_plot_has_place(vy, y.log)) {
                rm_buf_text(out, "\n"); /* the line has a gap */
                continue;
            }
            drawn[s]++;
            app_plot_widen(&x, vx);
            app_plot_widen(&y, vy);
            rm_buf_format(out, "%.10g %.10g\n", vx, vy);
        }
        rm_buf_text(out, "EOD\n");
    }
    app_plot_finish(&x, false, 0);
    app_plot_finish(&y, !p->y_log, 0);
    app_plot_axis(out, 'x', &x, a->right - a->left, TIC_WIDE_PX);
    app_plot_axis(out, 'y', &y, a->top - a->bottom, TIC_HIGH_PX);
    put_grid(out, "y");
    for (size_t s = 0; s < p->series_count; s++) {
        if (drawn[s] == 0) continue;
        rm_buf_format(out,
                      "%s$p%zus%zu using 1:2 with linespoints lc rgb %s lw 2 pt %d ps 0.8 title ",
                      between(&elements), index, s, colours[s], shapes[s]);
        put_quoted(out, p->series[s].name, APP_PLOT_NAME_CHARS);
    }
    end_plot(out, elements, x.low, y.low);
}

/* --- bars ------------------------------------------------------------------------------------- */

/* A row for gnuplot's boxxyerror: a place, two corners; and where the number is, and the number. */
static bool put_bar(rm_buf *out, const app_plot_range *r, double at, double half, double v,
                    bool lying) {
    char number[32];
    const bool none = !app_plot_has_place(v, r->log);
    const double base = r->low > 0 ? r->low : 0, end = none ? base : v;
    if (!app_plot_has_place(v, 0)) return false;
    format_value(number, v);
    if (lying) {
        rm_buf_format(out, "%.10g %.10g %.10g %.10g %.10g %.10g %s\n", end, at, base, end,
                      at - half, at + half, number);
    } else {
        rm_buf_format(out, "%.10g %.10g %.10g %.10g %.10g %.10g %s\n", at, end, at - half,
                      at + half, base, end, number);
    }
    return true;
}

static void put_bars(const canvas *c, const app_plot_panel *p, const app_plot_area *a,
                     size_t index) {
    rm_buf *out = c->out;
    size_t drawn[APP_PLOT_SERIES] = {0}, elements = 0;
    const double wide = a->right - a->left, high = a->top - a->bottom;
    const double width = BAR_SHARE / (double)(p->series_count > 0 ? p->series_count : 1);
    app_plot_range r = app_plot_range_empty(p->y_log ? 10 : 0);
    for (size_t s = 0; s < p->series_count; s++) {
        for (size_t i = 0; i < p->series[s].count; i++)
            app_plot_widen(&r, p->series[s].y[i]);
    }
    app_plot_finish(&r, true, a->lying ? 45 / wide : 18 / high);
    for (size_t s = 0; s < p->series_count; s++) {
        const double first = -BAR_SHARE / 2 + width * ((double)s + 0.5);
        rm_buf_format(out, "$p%zus%zu << EOD\n", index, s);
        for (size_t i = 0; i < p->series[s].count && i < p->name_count; i++)
            drawn[s] +=
                put_bar(out, &r, (double)i + first, 0.46 * width, p->series[s].y[i], a->lying);
        rm_buf_text(out, "EOD\n");
    }
    put_names(out, a->lying ? 'y' : 'x', p->names, p->name_count, a->lying ? high : wide,
              a->lying ? 14 : 1, a->lying);
    app_plot_axis(out, a->lying ? 'x' : 'y', &r, a->lying ? wide : high,
                  a->lying ? TIC_WIDE_PX : TIC_HIGH_PX);
    put_grid(out, a->lying ? "x" : "y");
    for (size_t s = 0; s < p->series_count; s++) {
        if (drawn[s] == 0) continue;
        rm_buf_format(out,
                      "%s$p%zus%zu using 1:2:3:4:5:6 with boxxyerror fs solid noborder lc rgb %s "
                      "title ",
                      between(&elements), index, s, colours[s]);
        put_quoted(out, p->series[s].name, APP_PLOT_NAME_CHARS);
        rm_buf_format(
            out, ", $p%zus%zu using 1:2:(strcol(7)) with labels %s %s textcolor rgb %s notitle",
            index, s, a->lying ? "left offset 0.5,0" : "center offset 0,0.5", c->number_font, ink);
    }
    end_plot(out, elements, a->lying ? r.low : 0, a->lying ? 0 : r.low);
}

/* --- heat maps -------------------------------------------------------------------------------- */

/* Orange, sand, blue: told apart by whoever does not tell red from green, and light enough for a
 * black number. */
static void put_scale(const canvas *c, const app_plot_panel *p, const app_plot_area *a) {
    rm_buf *out = c->out;
    const double from = p->heat_from, to = p->heat_to > from ? p->heat_to : from + 1;
    const char *name = p->series_count > 0 ? p->series[0].name : NULL;
    rm_buf_format(out,
                  "set palette defined (0 '#d9730d', 1 '#e9e2d0', 2 '#4a92f8')\n"
                  "set cbrange [%.10g:%.10g]\nset cbtics scale 0 textcolor rgb %s\n",
                  from, to, ink);
    rm_buf_format(out, "set colorbox user origin screen %.5f,%.5f size screen %.5f,%.5f noborder\n",
                  (a->right + 12) / c->size.width, a->bottom / c->size.height, 12 / c->size.width,
                  (a->top - a->bottom) / c->size.height);
    put_label(c, name, a->right + 78, (a->bottom + a->top) / 2, c->size.panel_height, "rotate");
}

static void put_heat(const canvas *c, const app_plot_panel *p, const app_plot_area *a,
                     size_t index) {
    rm_buf *out = c->out;
    const double wide = a->right - a->left, high = a->top - a->bottom;
    const size_t columns = p->name_count, count = p->series_count > 0 ? p->series[0].count : 0;
    size_t drawn = 0;
    const bool numbers = columns > 0 && wide / (double)columns >= CELL_WIDE_PX;
    rm_buf_format(out, "$p%zu << EOD\n", index);
    for (size_t i = 0; i < count && i < columns * p->y_name_count; i++) {
        char number[32];
        const double v = p->series[0].y[i];
        const double x = (double)(i % columns), y = (double)(i / columns);
        if (!app_plot_has_place(v, 0)) continue;
        drawn++;
        format_value(number, v);
        rm_buf_format(out, "%g %g %g %g %g %g %.10g %s\n", x, y, x - 0.49, x + 0.49, y - 0.48,
                      y + 0.48, v, number);
    }
    rm_buf_text(out, "EOD\n");
    put_scale(c, p, a);
    put_names(out, 'x', p->names, columns, wide,
              (double)(app_plot_longest(p->names, columns) + 1) * APP_PLOT_CHAR_PX, false);
    put_names(out, 'y', p->y_names, p->y_name_count, high, 14, false);
    rm_buf_text(out, "unset border\n");
    if (drawn > 0)
        rm_buf_format(
            out,
            "plot $p%zu using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc palette notitle",
            index);
    if (drawn > 0 && numbers)
        rm_buf_format(out, ", $p%zu using 1:2:(strcol(8)) with labels %s notitle", index,
                      c->number_font);
    end_plot(out, drawn, 0, 0);
}

void app_plot_script(rm_buf *out, bool png, const char *caption, const app_plot_panel *panels,
                     size_t panel_count) {
    const bool captioned = caption != NULL && caption[0] != '\0';
    const app_plot_size size = app_plot_measure(panels, panel_count, captioned);
    /* Sizes are pixels in SVG and points in PNG. */
    const canvas c = {.out = out,
                      .size = size,
                      .title_font = png ? "font ',11.5'" : "font ',15'",
                      .number_font = png ? "font ',8.5'" : "font ',11'"};
    if (png) {
        rm_buf_format(out,
                      "set terminal pngcairo transparent noenhanced size %.0f,%.0f "
                      "font 'sans,10' fontscale %d linewidth %d pointscale %d\n",
                      size.width * PNG_SCALE, size.height * PNG_SCALE, PNG_SCALE, PNG_SCALE,
                      PNG_SCALE);
    } else {
        rm_buf_format(out,
                      "set terminal svg noenhanced size %.0f,%.0f dynamic font 'sans-serif,13'\n",
                      size.width, size.height);
    }
    rm_buf_text(out, "set encoding utf8\nset multiplot\n");
    for (size_t i = 0; i < panel_count; i++) {
        const app_plot_panel *p = &panels[i];
        const app_plot_area a = app_plot_place(&size, p, i);
        put_frame(&c, p, &a);
        if (captioned && i == 0) put_label(&c, caption, size.width / 2, 12, size.width, "");
        switch (p->kind) {
        case APP_PLOT_LINES:
            put_lines(&c, p, &a, i);
            break;
        case APP_PLOT_BARS:
            put_bars(&c, p, &a, i);
            break;
        case APP_PLOT_HEAT:
            put_heat(&c, p, &a, i);
            break;
        }
    }
    rm_buf_text(out, "unset multiplot\n");
}
