/* plot_layout.c: see plot_layout.h. */
#include "app/plot_layout.h"

enum {
    LINE_PX = 19,
    TITLE_PX = 30,
    CAPTION_PX = 26,
    VALUES_PX = 52, /* tics of an axis of values that stands up */
    EDGE_PX = 14,
    BAR_PX = 17,    /* one that lies, with its number */
    NUMBER_PX = 36, /* above a bar that stands */
    CELL_PX = 24,   /* of a heat map, at least */
    SCALE_PX = 96,  /* its colours, with their numbers */
    SAMPLE_PX = 44, /* what the key has beside a name */
    CHAR_PX = APP_PLOT_CHAR_PX,
};

static size_t characters(const char *text) {
    size_t n = 0;
    for (; text != NULL && *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n < APP_PLOT_NAME_CHARS ? n : APP_PLOT_NAME_CHARS;
}

size_t app_plot_longest(const char *const *names, size_t count) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n = characters(names[i]) > n ? characters(names[i]) : n;
    return n;
}

static bool any(const char *text) {
    return text != NULL && text[0] != '\0';
}

static bool lies(const app_plot_panel *p, double panel_width) {
    if (p->kind != APP_PLOT_BARS || p->name_count == 0) return false;
    const double axes = panel_width - VALUES_PX - APP_PLOT_LABEL_PX - 2 * EDGE_PX;
    const double slot = axes / (double)p->name_count;
    return (double)(app_plot_longest(p->names, p->name_count) + 1) * CHAR_PX > slot ||
           (double)p->series_count * NUMBER_PX > slot;
}

static size_t key_columns(const app_plot_panel *p, double axes_width) {
    size_t most = 1;
    if (p->kind == APP_PLOT_HEAT || p->series_count < 2) return 0;
    for (size_t i = 0; i < p->series_count; i++)
        most = characters(p->series[i].name) > most ? characters(p->series[i].name) : most;
    const size_t n = (size_t)(axes_width / (double)(most * CHAR_PX + SAMPLE_PX));
    return n > p->series_count ? p->series_count : n > 0 ? n : 1;
}

/* What is left of the axes. */
static double beside(const app_plot_panel *p, bool lying) {
    const double label = any(lying ? p->x_label : p->y_label) ? APP_PLOT_LABEL_PX : 0;
    double tics = VALUES_PX;
    if (lying) tics = (double)app_plot_longest(p->names, p->name_count) * CHAR_PX;
    if (p->kind == APP_PLOT_HEAT)
        tics = (double)app_plot_longest(p->y_names, p->y_name_count) * CHAR_PX;
    return EDGE_PX + label + tics;
}

static double axes_width(const app_plot_panel *p, double panel_width) {
    const double right = p->kind == APP_PLOT_HEAT ? SCALE_PX : 2 * EDGE_PX;
    return panel_width - beside(p, lies(p, panel_width)) - right;
}

static double above(const app_plot_panel *p, double panel_width) {
    const size_t columns = key_columns(p, axes_width(p, panel_width));
    const size_t rows = columns > 0 ? (p->series_count + columns - 1) / columns : 0;
    return (any(p->title) ? TITLE_PX : EDGE_PX) + (double)rows * LINE_PX + EDGE_PX;
}

static double below(void) {
    return APP_PLOT_TICS_PX + APP_PLOT_LABEL_PX + EDGE_PX;
}

/* The height that bars need to have their numbers beside them, and cells to have them inside. */
static double need(const app_plot_panel *p, double panel_width) {
    const double slot = (double)p->series_count * BAR_PX + 8;
    double inside = 0;
    if (p->kind == APP_PLOT_HEAT) inside = (double)p->y_name_count * CELL_PX;
    if (lies(p, panel_width)) inside = slot * (double)p->name_count;
    return above(p, panel_width) + below() + inside;
}

app_plot_size app_plot_measure(const app_plot_panel *panels, size_t count, bool caption) {
    static const struct {
        size_t columns, rows;
        double width, height;
    } usual[APP_PLOT_PANELS + 1] = {
        {1, 1, 0, 0}, {1, 1, 760, 400}, {2, 1, 540, 370}, {3, 1, 440, 370}, {2, 2, 540, 330}};
    app_plot_size s = {.panel_width = usual[count].width,
                       .panel_height = usual[count].height,
                       .columns = usual[count].columns};
    for (size_t i = 0; i < count; i++) {
        const double h = need(&panels[i], s.panel_width);
        if (h > s.panel_height) s.panel_height = h;
    }
    s.width = s.panel_width * (double)s.columns;
    s.height = s.panel_height * (double)usual[count].rows + (caption ? CAPTION_PX : 0);
    return s;
}

app_plot_area app_plot_place(const app_plot_size *size, const app_plot_panel *p, size_t index) {
    const double width = size->panel_width, x = (double)(index % size->columns) * width;
    const double top = size->height - (double)(index / size->columns) * size->panel_height;
    const double left = x + beside(p, lies(p, width));
    return (app_plot_area){
        .left = left,
        .right = left + axes_width(p, width),
        .bottom = top - size->panel_height + below(),
        .top = top - above(p, width),
        .title_y = top - TITLE_PX / 2.0 - 2,
        .key_y = top - (any(p->title) ? TITLE_PX : EDGE_PX / 2.0),
        .edge = x + EDGE_PX,
        .key_columns = key_columns(p, axes_width(p, width)),
        .lying = lies(p, width),
    };
}
