/* ppl_report.c: what perplexity.c has found, in JSON and for people. See eval.h. Part: app. */
#include "app/eval.h"

#include <math.h>

static void put_mean(rm_json *j, const char *name, app_mean m) {
    rm_json_open(j, name, '{');
    rm_json_f64(j, "value", m.value, 12);
    rm_json_f64(j, "error", m.error, 6);
    rm_json_close(j, '}');
}

static void print_divergence_json(rm_json *j, const app_divergence_result *d) {
    static const char *const names[] = {"max", "p99.9", "p99", "p95", "p90", "median"};
    rm_json_open(j, "divergence", '{');
    put_mean(j, "kld", d->divergence);
    for (int i = 0; i < APP_DIVERGENCE_RANKS; i++)
        rm_json_f64(j, names[i], d->rank[i], 12);
    rm_json_f64(j, "base_perplexity", exp(d->base_nll.value), 12);
    put_mean(j, "ln_ppl_ratio", d->ln_ratio);
    put_mean(j, "same_top", d->same_top);
    put_mean(j, "change_of_p", d->change);
    rm_json_f64(j, "change_of_p_rms", d->change_rms, 12);
    rm_json_u64(j, "same_bits", d->same_bits);
    rm_json_close(j, '}');
}

static void print_json(const app_ppl *p, app_mean nll, const app_divergence_result *d) {
    const app_logprobs_shape *s = &p->windows.shape;
    const double each = s->window - s->first;
    remat_stats st;
    rm_json j;
    remat_stats_get(&st, p->engine);
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_f64(&j, "perplexity", exp(nll.value), 12);
    rm_json_f64(&j, "uncertainty", exp(nll.value) * nll.error, 6);
    rm_json_f64(&j, "nll", nll.value, 12);
    rm_json_u64(&j, "tokens_scored", p->scored);
    rm_json_u64(&j, "windows", s->window_count);
    rm_json_u64(&j, "window", s->window);
    rm_json_u64(&j, "stride", s->stride);
    rm_json_u64(&j, "text_tokens", p->windows.text.count);
    rm_json_open(&j, "nll_by_window", '[');
    for (uint32_t i = 0; i < s->window_count; i++)
        rm_json_f64(&j, NULL, p->of_window[i] / each, 12);
    rm_json_close(&j, ']');
    if (d != NULL) print_divergence_json(&j, d);
    app_json_memory(&j, p->engine, p->sequence);
    rm_json_string(&j, "kernels", st.kernels);
    rm_json_u64(&j, "threads", st.thread_count);
    rm_json_close(&j, '}');
    app_printf("\n");
}

static void print_divergence(const app_divergence_result *d) {
    static const char *const names[] = {"most", "99.9 %", "99 %", "95 %", "90 %", "median"};
    app_printf("\nagainst the reference (perplexity %.4f):\n", exp(d->base_nll.value));
    app_printf("  KL divergence      %.6f \u00b1 %.6f nats\n", d->divergence.value,
               d->divergence.error);
    for (int i = 0; i < APP_DIVERGENCE_RANKS; i++)
        app_printf("    %-16s %.6f\n", names[i], d->rank[i]);
    app_printf("  ln(PPL / base)     %.6f \u00b1 %.6f\n", d->ln_ratio.value, d->ln_ratio.error);
    app_printf("  same best token    %.3f \u00b1 %.3f %%\n", 100 * d->same_top.value,
               100 * d->same_top.error);
    app_printf("  change of p        %.3f \u00b1 %.3f %%, %.3f %% root mean square\n",
               100 * d->change.value, 100 * d->change.error, 100 * d->change_rms);
    app_printf("  equal in all bits  %llu of %llu rows\n", (unsigned long long)d->same_bits,
               (unsigned long long)d->count);
}

static void print_text(const app_ppl *p, app_mean nll, const app_divergence_result *d) {
    const app_logprobs_shape *s = &p->windows.shape;
    app_printf("perplexity %.4f \u00b1 %.4f\n", exp(nll.value), exp(nll.value) * nll.error);
    app_printf("%llu tokens scored in %u windows of %u, mean negative log-likelihood %.6f nats\n",
               (unsigned long long)p->scored, s->window_count, s->window, nll.value);
    if (d != NULL) print_divergence(d);
}

void app_ppl_print(app_ppl *p) {
    const app_mean nll = app_mean_of(p->nll, p->squares, p->scored);
    app_divergence_result d;
    if (p->windows.compared) d = app_divergence_end(&p->divergence);
    (p->args->json ? print_json : print_text)(p, nll, p->windows.compared ? &d : NULL);
}
