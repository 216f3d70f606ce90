/* test_plot.c: charts, their numbers, and what is said when they cannot be drawn. */
#include "app/output.h"
#include "app/plot.h"
#include "app/plot_script.h"
#include "harness.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* main.c's: nobody presses Ctrl-C here. */
bool app_interrupted(void) {
    return false;
}

static char top[] = "/tmp/remat-plot-XXXXXX";

static const char *in_top(const char *name) {
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", top, name);
    return path[next];
}

/* What a file has; "" when there is none. */
static const char *content(const char *path) {
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    size_t n = 0;
    if (f != NULL) n = fread(text, 1, sizeof text - 1, f);
    if (f != NULL) fclose(f);
    text[n] = '\0';
    return text;
}

static int file_count(void) {
    int n = 0;
    DIR *d = opendir(top);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    if (d != NULL) closedir(d);
    return n;
}

static void empty_top(void) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf %s/*", top);
    EXPECT(system(command) == 0);
}

static bool have_gnuplot(void) {
    return system("command -v gnuplot >/dev/null") == 0;
}

static const double lengths[] = {512, 1024, 2048, 4096}, fast[] = {900.5, 850, NAN, 700},
                    slow[] = {9, 8, 7, 6.25};
static const char *const modes[] = {"everything kept", "drop block 1/2", "spill 1/2"};
static const double peaks[] = {294.9, 150.25, NAN}, planned[] = {295, 151, 152};
static const char *const depths[] = {"0", "50", "100"}, *const sizes[] = {"1024", "2048"};
static const double found[] = {1, 0.5, 0, NAN, 0.25, 1};

static app_plot_panel lines_panel(void) {
    return (app_plot_panel){.kind = APP_PLOT_LINES,
                            .title = "speed",
                            .x_label = "context, tokens",
                            .y_label = "tokens a second",
                            .series = {{"kept", lengths, fast, 4}, {"dropped", lengths, slow, 4}},
                            .series_count = 2,
                            .x_log = true,
                            .y_log = true};
}

static app_plot_panel bars_panel(void) {
    return (app_plot_panel){.kind = APP_PLOT_BARS,
                            .title = "peak memory",
                            .y_label = "MiB",
                            .series = {{"measured", NULL, peaks, 3}, {"planned", NULL, planned, 3}},
                            .series_count = 2,
                            .names = modes,
                            .name_count = 3};
}

static app_plot_panel heat_panel(void) {
    return (app_plot_panel){.kind = APP_PLOT_HEAT,
                            .title = "found",
                            .x_label = "length, tokens",
                            .y_label = "depth, %",
                            .series = {{"share found", NULL, found, 6}},
                            .series_count = 1,
                            .names = sizes,
                            .name_count = 2,
                            .y_names = depths,
                            .y_name_count = 3,
                            .heat_from = 0,
                            .heat_to = 1};
}

/* Whether a picture came of it, with these texts in it (SVG), and nothing else was left. */
static void expect_picture(const char *name, const app_plot_panel *panels, size_t count,
                           const char *caption, const char *const *texts) {
    remat_error err = {0};
    empty_top();
    EXPECT(app_plot_write(in_top(name), caption, panels, count, &err) == REMAT_OK);
    if (err.status != REMAT_OK) t_fail("%s", err.message);
    const char *svg = content(in_top(name));
    for (; texts != NULL && *texts != NULL; texts++) {
        if (strstr(svg, *texts) == NULL) t_fail("%s: \"%s\" is not in it", name, *texts);
    }
    EXPECT(strlen(svg) > 3);
    EXPECT_EQ_U64(file_count(), 2);
}

static void the_numbers(void) {
    app_plot_panel panels[3] = {lines_panel(), bars_panel(), heat_panel()};
    remat_error err = {0};
    empty_top();
    panels[0].series[0].name = "it's\ta \"name\"\n$(x)";
    panels[0].series_count = 1;
    (void)app_plot_write(in_top("all.svg"), "", panels, 3, &err);
    static const char want[] =
        "panel\tseries\tx_label\tx\ty_label\ty\tvalue\n"
#define L "speed\tit's a \"name\" $(x)\tcontext, tokens\t"
        L "512\ttokens a second\t900.5\t-\n" L "1024\ttokens a second\t850\t-\n" L
        "2048\ttokens a second\t-\t-\n" L "4096\ttokens a second\t700\t-\n"
        "peak memory\tmeasured\t\teverything kept\tMiB\t294.9\t-\n"
        "peak memory\tmeasured\t\tdrop block 1/2\tMiB\t150.25\t-\n"
        "peak memory\tmeasured\t\tspill 1/2\tMiB\t-\t-\n"
        "peak memory\tplanned\t\teverything kept\tMiB\t295\t-\n"
        "peak memory\tplanned\t\tdrop block 1/2\tMiB\t151\t-\n"
        "peak memory\tplanned\t\tspill 1/2\tMiB\t152\t-\n"
#define H "found\tshare found\tlength, tokens\t"
        H "1024\tdepth, %\t0\t1\n" H "2048\tdepth, %\t0\t0.5\n" H "1024\tdepth, %\t50\t0\n" H
        "2048\tdepth, %\t50\t-\n" H "1024\tdepth, %\t100\t0.25\n" H "2048\tdepth, %\t100\t1\n";
    const char *got = content(in_top("all.tsv"));
    if (strcmp(got, want) != 0) t_fail("the table is:\n%s", got);
}

static void endings(void) {
    static const char *const bad[] = {"out", ".svg", "out.pdf", "out.svg.gz", "out.SVG", ""};
    remat_error err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        EXPECT(app_plot_check(bad[i], &err) == REMAT_E_USAGE);
    empty_top();
    EXPECT(app_plot_check(in_top("a.svg"), &err) == REMAT_OK);
    EXPECT(app_plot_check(in_top("a.png"), &err) == REMAT_OK);
    EXPECT_EQ_U64(file_count(), 0);
}

static void no_place(void) {
    const app_plot_panel p = bars_panel();
    remat_error err = {0};
    empty_top();
    EXPECT(app_plot_check(in_top("none/a.svg"), &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "a.svg: No such file") != NULL);
    EXPECT(app_plot_check("/proc/a.svg", &err) == REMAT_E_FAILED);
    REQUIRE(mkdir(in_top("folder.svg"), 0700) == 0);
    EXPECT(app_plot_check(in_top("folder.svg"), &err) == REMAT_E_FAILED);
    REQUIRE(mkdir(in_top("b.tsv"), 0700) == 0);
    EXPECT(app_plot_write(in_top("b.svg"), "", &p, 1, &err) == REMAT_E_FAILED);
    EXPECT(strstr(err.message, "b.tsv") != NULL);
    EXPECT(app_plot_write(in_top("none/a.svg"), "", &p, 1, &err) == REMAT_E_FAILED);
    EXPECT_EQ_U64(file_count(), 2);
}

/* A file that takes its place in PATH. */
static void put_program(const char *text) {
    FILE *f = fopen(in_top("gnuplot"), "w");
    REQUIRE(f != NULL);
    fputs(text, f);
    fclose(f);
    REQUIRE(chmod(in_top("gnuplot"), 0755) == 0);
}

static void no_gnuplot(void) {
    const app_plot_panel p = bars_panel();
    remat_error err = {0};
    char before[4096];
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    empty_top();
    setenv("PATH", in_top("nothing"), 1);
    EXPECT(app_plot_write(in_top("a.svg"), "", &p, 1, &err) == REMAT_E_FAILED);
    setenv("PATH", before, 1);
    EXPECT(strstr(err.message, "gnuplot-nox") != NULL);
    EXPECT(strstr(content(in_top("a.tsv")), "294.9") != NULL);
    EXPECT_EQ_U64(file_count(), 1); /* no half of a picture */

    empty_top();
    put_program(
        "#!/bin/sh\necho half\n"
        "printf '\\nplot x\\n     ^\\n         line 7: it broke\\nand more\\n' >&2\nexit 3\n");
    setenv("PATH", top, 1);
    EXPECT(app_plot_write(in_top("a.svg"), "", &p, 1, &err) == REMAT_E_FAILED);
    setenv("PATH", before, 1);
    EXPECT(strstr(err.message, "line 7: it broke") != NULL);
    EXPECT(strchr(err.message, '\n') == NULL);
    EXPECT_EQ_U64(file_count(), 2); /* the numbers, and the program */
}

static void much_complaint(void) {
    const app_plot_panel p = bars_panel();
    remat_error err = {0};
    static char before[4096], path[4096 + 64];
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    empty_top();
    put_program("#!/bin/sh\ni=0\nwhile [ $i -lt 3000 ]; do\n"
                "echo \"a line of complaint that is as long as such lines are, or longer\" >&2\n"
                "i=$((i + 1))\ndone\nkill -9 $$\n");
    snprintf(path, sizeof path, "%s:%s", top, before);
    setenv("PATH", path, 1);
    EXPECT(app_plot_write(in_top("a.svg"), "", &p, 1, &err) == REMAT_E_FAILED);
    setenv("PATH", before, 1);
    EXPECT(strstr(err.message, "exit 137") != NULL);
}

static void pictures(void) {
    const app_plot_panel all[4] = {lines_panel(), bars_panel(), heat_panel(), lines_panel()};
    if (!have_gnuplot()) SKIP("no gnuplot");
    expect_picture("lines.svg", &all[0], 1, "below",
                   (const char *const[]){">speed<", ">kept<", ">512<", ">below<", NULL});
    expect_picture("bars.svg", &all[1], 1, NULL,
                   (const char *const[]){">everything kept<", ">295<", ">150<", NULL});
    expect_picture("heat.svg", &all[2], 1, "",
                   (const char *const[]){">found<", ">0.25<", ">depth, %<", NULL});
    for (size_t n = 2; n <= 4; n++)
        expect_picture("all.svg", all, n, "c", NULL);
    expect_picture("all.png", all, 4, "c", NULL);
    EXPECT(memcmp(content(in_top("all.png")), "\x89PNG", 4) == 0);
}

static void odd_values(void) {
    static const double none[] = {NAN, NAN, NAN, NAN}, zeros[] = {0, 0, 0, 0},
                        big[] = {-5, 1e300, INFINITY, 1e-300};
    static const double *const values[] = {none, zeros, big};
    if (!have_gnuplot()) SKIP("no gnuplot");
    for (size_t i = 0; i < 3; i++) {
        for (int log = 0; log < 2; log++) {
            app_plot_panel p[4] = {lines_panel(), bars_panel(), heat_panel(), bars_panel()};
            for (int k = 0; k < 4; k++) {
                p[k].x_log = p[k].y_log = log != 0;
                p[k].series_count = 1;
                p[k].series[0].y = values[i];
            }
            p[0].series[0].x = values[i];
            p[2].series[0].count = 4;
            p[3].name_count = p[3].series[0].count = 0;
            expect_picture("odd.svg", p, 4, "", NULL);
        }
    }
}

#define LONG_NAME                                                                                  \
    "a name that is so long that nobody would want to see all of it in a picture, and yet it "     \
    "must not break anything, wherever it stands"

/* Texts that would be commands, or markup, if one let them. */
static void odd_texts(void) {
    static const char *const odd[] = {"it's 'quoted' '' '",
                                      "'; set output '/tmp/remat-plot-made'; '",
                                      "a_b^c {/Bold x} \\n $1",
                                      "\xff\xfe broken \xc3",
                                      "`touch /tmp/remat-plot-made`",
                                      "@macro !echo # <b>&amp;</b>",
                                      "two\nlines\tand tabs",
                                      LONG_NAME,
                                      "50 % of %s, 100%",
                                      "%"};
    if (!have_gnuplot()) SKIP("no gnuplot");
    unlink("/tmp/remat-plot-made");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        app_plot_panel p[3] = {lines_panel(), bars_panel(), heat_panel()};
        const char *names[3] = {odd[i], odd[i], odd[i]};
        for (int k = 0; k < 3; k++) {
            p[k].title = p[k].x_label = p[k].y_label = p[k].series[0].name = odd[i];
            p[k].names = p[k].y_names = names;
        }
        expect_picture("odd.svg", p, 3, odd[i], NULL);
        const char *svg = content(in_top("odd.svg"));
        EXPECT(strstr(svg, "<b>") == NULL && strstr(svg, "\xff") == NULL);
        if (i == 0) EXPECT(strstr(svg, ">it's 'quoted' '' '<") != NULL);
        if (i == 8) EXPECT(strstr(svg, ">50 % of %s, 100%<") != NULL);
        if (i == 2) EXPECT(strstr(svg, ">a_b^c {/Bold x} \\n $1<") != NULL);
    }
    EXPECT(access("/tmp/remat-plot-made", F_OK) != 0);
}

int main(int argc, char **argv) {
    if (mkdtemp(top) == NULL) return 1;
    const int code = RM_RUN(argc, argv, T(the_numbers), T(endings), T(no_place), T(no_gnuplot),
                            T(much_complaint), T(pictures), T(odd_values), T(odd_texts));
    empty_top();
    rmdir(top);
    return code;
}
