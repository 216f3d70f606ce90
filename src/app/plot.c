/* plot.c: see plot.h. Both files appear whole, by rename, or not at all. */
#include "app/plot.h"
#include "app/child.h"
#include "app/plot_script.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 2048, ENDING_BYTES = 4 };

/* A file that takes its name when it is whole. */
typedef struct fresh {
    int fd;
    char name[PATH_BYTES]; /* until then */
} fresh;

static int failed(const char *path, int why, remat_error *err) {
    return rm_fail(err, REMAT_E_FAILED, "%s: %s; choose another place for the plot",
                   rm_path_tail(path), strerror(why));
}

static int fresh_open(fresh *f, const char *path, remat_error *err) {
    struct stat st;
    f->fd = -1;
    /* A rename would replace a device or a pipe by a file. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return failed(path, S_ISDIR(st.st_mode) ? EISDIR : EEXIST, err);
    const int n = snprintf(f->name, sizeof f->name, "%s.%ld", path, (long)getpid());
    if (n < 0 || n >= PATH_BYTES) return failed(path, ENAMETOOLONG, err);
    f->fd = open(f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return f->fd >= 0 ? REMAT_OK : failed(path, errno, err);
}

static void fresh_drop(fresh *f) {
    close(f->fd);
    unlink(f->name);
}

static int fresh_keep(fresh *f, const char *path, remat_error *err) {
    int why = close(f->fd) != 0 ? errno : 0;
    if (why == 0 && rename(f->name, path) != 0) why = errno;
    if (why == 0) return REMAT_OK;
    unlink(f->name);
    return failed(path, why, err);
}

static bool to_file(void *user, const char *bytes, size_t count) {
    const int *fd = user;
    return rm_write_all(*fd, bytes, count, NULL) == REMAT_OK;
}

/* --- the numbers ------------------------------------------------------------------------------ */

static void put_number(rm_buf *out, double v) {
    if (isfinite(v)) {
        rm_buf_format(out, "%.10g", v);
    } else {
        rm_buf_text(out, "-");
    }
}

static const char *name_at(const char *const *names, size_t count, size_t i) {
    return names != NULL && i < count ? names[i] : "";
}

static void put_point(rm_buf *out, const app_plot_panel *p, const app_plot_series *s, size_t i) {
    const bool heat = p->kind == APP_PLOT_HEAT;
    const size_t columns = p->name_count > 0 ? p->name_count : 1;
    app_plot_text(out, p->title);
    rm_buf_text(out, "\t");
    app_plot_text(out, s->name);
    rm_buf_text(out, "\t");
    app_plot_text(out, p->x_label);
    rm_buf_text(out, "\t");
    if (p->kind == APP_PLOT_LINES) {
        put_number(out, s->x[i]);
    } else {
        app_plot_text(out, name_at(p->names, p->name_count, heat ? i % columns : i));
    }
    rm_buf_text(out, "\t");
    app_plot_text(out, p->y_label);
    rm_buf_text(out, "\t");
    if (heat) {
        app_plot_text(out, name_at(p->y_names, p->y_name_count, i / columns));
        rm_buf_text(out, "\t");
    }
    put_number(out, s->y[i]);
    rm_buf_text(out, heat ? "\n" : "\t-\n");
}

/* A row for each point. value: the colour of a heat map, else "-". */
static void put_table(rm_buf *out, const app_plot_panel *panels, size_t panel_count) {
    rm_buf_text(out, "panel\tseries\tx_label\tx\ty_label\ty\tvalue\n");
    for (size_t k = 0; k < panel_count; k++) {
        for (size_t s = 0; s < panels[k].series_count; s++) {
            for (size_t i = 0; i < panels[k].series[s].count; i++)
                put_point(out, &panels[k], &panels[k].series[s], i);
        }
    }
}

static int write_table(const char *path, const app_plot_panel *panels, size_t panel_count,
                       remat_error *err) {
    char table[PATH_BYTES], window[1024];
    fresh f;
    const int stem = (int)strlen(path) - ENDING_BYTES;
    if (snprintf(table, sizeof table, "%.*s.tsv", stem, path) >= PATH_BYTES)
        return failed(path, ENAMETOOLONG, err);
    RM_TRY(fresh_open(&f, table, err));
    rm_buf b;
    rm_buf_start(&b, window, sizeof window, to_file, &f.fd);
    put_table(&b, panels, panel_count);
    rm_buf_flush(&b);
    if (!b.failed) return fresh_keep(&f, table, err);
    const int why = errno;
    fresh_drop(&f);
    return failed(table, why, err);
}

/* --- the picture ------------------------------------------------------------------------------ */

/* The first line of what gnuplot complains about that is not blank or a mark of where. */
static void first_line(char *out, size_t cap, const char *text) {
    const char *best = strstr(text, "line ");
    if (best == NULL) best = text + strspn(text, " \t\r\n");
    const size_t n = strcspn(best, "\r\n");
    snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), best);
}

static int draw_to(int picture, int script, remat_error *err) {
    static const char *const argv[] = {"gnuplot", NULL};
    char why[120];
    app_child c = {.argv = argv, .in = script, .out = picture, .also = {-1, -1}};
    const int status = app_child_run(&c, err);
    if (status != REMAT_OK && c.missing)
        return rm_fail(err, REMAT_E_FAILED,
                       "plot: there is no gnuplot (the numbers are written); apt-get install "
                       "gnuplot-nox");
    RM_TRY(status);
    first_line(why, sizeof why, c.complained);
    app_child_free(&c);
    if (c.exit_code == 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED,
                   "plot: gnuplot failed (the numbers are written): exit %d, %s", c.exit_code, why);
}

/* A file, not a pipe: gnuplot may complain at length before it has read all. */
static int write_script(int fd, bool png, const char *caption, const app_plot_panel *panels,
                        size_t panel_count, remat_error *err) {
    char window[4096];
    rm_buf b;
    rm_buf_start(&b, window, sizeof window, to_file, &fd);
    app_plot_script(&b, png, caption, panels, panel_count);
    rm_buf_flush(&b);
    if (!b.failed && lseek(fd, 0, SEEK_SET) == 0) return REMAT_OK;
    return rm_fail(err, REMAT_E_FAILED, "plot: its script could not be written: %s",
                   strerror(errno));
}

static int draw(const char *path, const char *caption, const app_plot_panel *panels,
                size_t panel_count, remat_error *err) {
    fresh f;
    int script;
    RM_TRY(app_scratch_file(&script, err));
    int status = fresh_open(&f, path, err);
    if (status == REMAT_OK) {
        const bool png = strcmp(path + strlen(path) - ENDING_BYTES, ".png") == 0;
        status = write_script(script, png, caption, panels, panel_count, err);
        if (status == REMAT_OK) status = draw_to(f.fd, script, err);
        if (status == REMAT_OK) {
            status = fresh_keep(&f, path, err);
        } else {
            fresh_drop(&f);
        }
    }
    close(script);
    return status;
}

int app_plot_check(const char *path, remat_error *err) {
    const size_t n = strlen(path);
    fresh f;
    if (n <= ENDING_BYTES || (strcmp(path + n - ENDING_BYTES, ".svg") != 0 &&
                              strcmp(path + n - ENDING_BYTES, ".png") != 0))
        return rm_fail(err, REMAT_E_USAGE, "--plot: \"%.60s\" ends neither with .svg nor with .png",
                       rm_path_tail(path));
    RM_TRY(fresh_open(&f, path, err));
    fresh_drop(&f);
    return REMAT_OK;
}

int app_plot_write(const char *path, const char *caption, const app_plot_panel *panels,
                   size_t panel_count, remat_error *err) {
    RM_ASSERT(panel_count >= 1 && panel_count <= APP_PLOT_PANELS);
    RM_TRY(app_plot_check(path, err));
    RM_TRY(write_table(path, panels, panel_count, err));
    return draw(path, caption, panels, panel_count, err);
}
