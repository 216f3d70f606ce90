/*
 * plan_cost.c: what running here costs, beside an API's price. Part: app.
 *
 * A day's tokens take so many busy seconds at the planned speeds; they cost electricity, and the
 * machine is paid off over its life. Input that an API takes from its cache is in the cache here,
 * too. Numbers that are not given are examples with a date; they are printed, so that nobody takes
 * them for their own.
 */
#include "app/plan_view.h"
#include "app/plot.h"
#include "base/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DAY_S = 86400, YEAR_DAYS = 365, PLOT_POINTS = 13 };

static const char SOURCES[] =
    "examples where nothing was given: 0.17 USD a kWh (US households, EIA, 2025); 600 USD and 65 W "
    "for a small PC (2025); 0.15, 0.075, 0.60 USD for a million input, cached, output tokens "
    "(OpenAI's list, gpt-4o-mini, 2025)";

/* A number of the command line, or its example. */
static double given(double value, double example) {
    return value >= 0 ? value : example;
}

typedef struct costs {
    double price, watts, idle_watts, kwh, hours, years;
    double in, cached, out;             /* tokens a day; cached ones are part of in */
    double api_in, api_cached, api_out; /* a million */
    double busy_s;                      /* a day */
    double energy, own, api;            /* a day: electricity, all of it here, the API */
    double even_days;                   /* until the machine has paid for itself; infinite: never */
} costs;

static costs costs_of(const app_plan_view *v, const app_costs *a) {
    costs c = {.price = given(a->hardware_price, 600),
               .watts = given(a->watts, 65),
               .kwh = given(a->electricity_price, 0.17),
               .hours = given(a->hours, 24),
               .years = given(a->years, 4),
               .in = given(a->tokens_in, 1e6),
               .out = given(a->tokens_out, 1e5),
               .api_in = given(a->api_in, 0.15),
               .api_cached = given(a->api_cached, 0.075),
               .api_out = given(a->api_out, 0.60)};
    const double n = v->limits.sequence_count;
    c.cached = c.in * given(a->cached, 0);
    c.idle_watts = given(a->idle_watts, c.watts / 5);
    c.busy_s = (c.in - c.cached) * v->plan.prefill_s / (v->limits.context_count * n) +
               c.out * v->plan.token_s / n;
    const double on_s = c.busy_s > c.hours * 3600 ? c.busy_s : c.hours * 3600;
    c.energy = (c.watts * c.busy_s + c.idle_watts * (on_s - c.busy_s)) / 3.6e6 * c.kwh;
    c.own = c.energy + (c.years > 0 ? c.price / (c.years * YEAR_DAYS) : 0);
    c.api = ((c.in - c.cached) * c.api_in + c.cached * c.api_cached + c.out * c.api_out) / 1e6;
    c.even_days = c.api > c.energy ? c.price / (c.api - c.energy) : INFINITY;
    return c;
}

int app_plan_cost_check(const app_costs *a, remat_error *err) {
    if (a->hours > 24 || a->hours == 0)
        return rm_fail(err, REMAT_E_USAGE, "--hours: more than 0, at most 24 a day");
    if (a->cached > 1) return rm_fail(err, REMAT_E_USAGE, "--cached: a share of the input, 0 to 1");
    return REMAT_OK;
}

static void print_json(rm_json *j, const costs *c) {
    rm_json_open(j, "cost", '{');
    rm_json_f64(j, "busy_hours_a_day", c->busy_s / 3600, 6);
    rm_json_bool(j, "fits_the_hours", c->busy_s <= c->hours * 3600);
    rm_json_f64(j, "electricity_a_day", c->energy, 6);
    rm_json_f64(j, "here_a_day", c->own, 6);
    rm_json_f64(j, "api_a_day", c->api, 6);
    if (isfinite(c->even_days))
        rm_json_f64(j, "break_even_days", c->even_days, 6);
    else
        rm_json_null(j, "break_even_days");
    rm_json_string(j, "examples", SOURCES);
    rm_json_close(j, '}');
}

static void print_text(const costs *c) {
    app_printf("\ncost of %.4g input (%.4g cached) and %.4g output tokens a day:\n", c->in,
               c->cached, c->out);
    app_printf("  here   %.3f a day: electricity %.3f (busy %.1f h of %.0f), the machine %.3f "
               "(%.0f over %.1f years)\n",
               c->own, c->energy, c->busy_s / 3600, c->hours, c->own - c->energy, c->price,
               c->years);
    app_printf("  API    %.3f a day: %.3g, %.3g and %.3g a million\n", c->api, c->api_in,
               c->api_cached, c->api_out);
    if (c->busy_s > c->hours * 3600)
        app_printf("  so much does not fit %.0f hours: %.1f such machines, or a smaller model\n",
                   c->hours, c->busy_s / (c->hours * 3600));
    else if (isfinite(c->even_days))
        app_printf("  the machine has paid for itself after %.0f days (%.1f years)\n", c->even_days,
                   c->even_days / YEAR_DAYS);
    else
        app_printf("  the machine never pays for itself: its electricity alone costs more\n");
    app_printf("  %s\n", SOURCES);
}

int app_plan_cost_plot(const app_plan_view *v, const app_costs *how, const char *path,
                       remat_error *err) {
    const costs all = costs_of(v, how), *c = &all;
    double x[PLOT_POINTS], own[PLOT_POINTS], api[PLOT_POINTS];
    double days = c->years * YEAR_DAYS;
    if (isfinite(c->even_days) && 2 * c->even_days < 10 * days && 2 * c->even_days > days)
        days = 2 * c->even_days;
    for (int i = 0; i < PLOT_POINTS; i++) {
        x[i] = days / 30.4 * i / (PLOT_POINTS - 1);
        own[i] = c->price + c->energy * days * i / (PLOT_POINTS - 1);
        api[i] = c->api * days * i / (PLOT_POINTS - 1);
    }
    const app_plot_panel panel = {
        .kind = APP_PLOT_LINES,
        .title = "spent since the start",
        .x_label = "months",
        .y_label = "price (USD, or whatever was given)",
        .series = {{"here", x, own, PLOT_POINTS}, {"API", x, api, PLOT_POINTS}},
        .series_count = 2};
    char caption[160];
    snprintf(caption, sizeof caption, "%.4g input, %.4g output tokens a day", c->in, c->out);
    return app_plot_write(path, caption, &panel, 1, err);
}

void app_plan_cost(rm_json *j, const app_plan_view *v, const app_costs *how) {
    const costs c = costs_of(v, how);
    if (j != NULL)
        print_json(j, &c);
    else
        print_text(&c);
}
