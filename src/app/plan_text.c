/* plan_text.c: a plan for people: tables, with bars for shares of memory. Part: app. */
#include "app/output.h"
#include "app/plan_view.h"

#include <stdio.h>
#include <string.h>

enum { MIB = 1 << 20, BAR = 32 };

static double mib(uint64_t bytes) {
    return (double)bytes / MIB;
}

/* A size as people read it. */
static const char *size_of(char out[24], uint64_t bytes) {
    if (bytes >= 10240ull * MIB)
        snprintf(out, 24, "%.1f GiB", mib(bytes) / 1024);
    else
        snprintf(out, 24, "%.1f MiB", mib(bytes));
    return out;
}

static void part(const char *name, uint64_t bytes, uint64_t all) {
    char bar[BAR + 1], size[24];
    const double share = (double)bytes / (double)all;
    const int n = (int)(share * BAR + 0.5);
    memset(bar, '#', sizeof bar);
    bar[n < BAR ? n : BAR] = '\0';
    if (bytes > 0)
        app_printf("  %-22s %12s %5.1f %%%s%s\n", name, size_of(size, bytes), 100 * share,
                   n > 0 ? "  " : "", bar);
}

static void detail(const char *name, uint64_t bytes) {
    char size[24];
    if (bytes > 0) app_printf("    %-20s %12s\n", name, size_of(size, bytes));
}

static void weights(const app_plan_view *v) {
    char name[32];
    detail("embedding", v->embedding_bytes);
    detail("output", v->output_bytes);
    detail("attention", v->attention_bytes);
    detail("feed-forward", v->feed_forward_bytes);
    detail("experts", v->expert_bytes);
    for (uint32_t i = 0; i < v->type_count; i++) {
        snprintf(name, sizeof name, "as %s", v->types[i].type);
        detail(name, v->types[i].bytes);
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t l = 0; l < v->info.layer_count && l < APP_PLAN_LAYERS; l++) {
        least = v->layer_bytes[l] < least ? v->layer_bytes[l] : least;
        most = v->layer_bytes[l] > most ? v->layer_bytes[l] : most;
    }
    if (least == most)
        app_printf("    %u layers of %.2f MiB\n", v->info.layer_count, mib(most));
    else
        app_printf("    %u layers of %.2f to %.2f MiB\n", v->info.layer_count, mib(least),
                   mib(most));
}

static void memory(const app_plan_view *v) {
    const remat_plan *p = &v->plan;
    char size[24];
    app_printf("memory: %s\n", size_of(size, p->predicted_peak_bytes));
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++) {
        const char *name = remat_account_name(i);
        part(name, p->account_bytes[i], p->predicted_peak_bytes);
        if (strcmp(name, "weights") == 0) weights(v);
        if (strcmp(name, "kv") == 0)
            app_printf("    %llu bytes a token, %.2f MiB for %u x %u tokens\n",
                       (unsigned long long)p->kv_token_bytes, mib(p->kv_bytes),
                       v->limits.sequence_count, v->limits.context_count);
    }
    app_printf("  activations: %.2f MiB for a chunk of %u rows of prompt, %.2f MiB for an answer\n",
               mib(p->prefill_bytes), p->chunk_rows, mib(p->decode_bytes));
    if (p->streamed_weight_bytes > 0)
        app_printf("  weights: %.1f MiB stay, %.1f MiB are read from the file for every token\n",
                   mib(p->resident_weight_bytes), mib(p->streamed_weight_bytes));
    if (p->spill_file_bytes > 0)
        app_printf("  spill file: up to %.1f MiB\n", mib(p->spill_file_bytes));
}

static void budgets(const app_plan_view *v) {
    app_printf("\nbudget                         tokens in memory   prompt tok/s   answer tok/s\n");
    for (uint32_t i = 0; i < v->row_count; i++) {
        const app_plan_point *r = &v->rows[i];
        char size[24];
        app_printf("  %-12s %14s %18u %14.4g %14.3g\n", r->name, size_of(size, r->budget_bytes),
                   r->plan.resident_count,
                   (double)v->limits.context_count * v->limits.sequence_count / r->plan.prefill_s,
                   v->limits.sequence_count / r->plan.token_s);
    }
}

static void limits(const app_plan_view *v) {
    const uint64_t budget = v->budget_bytes > 0 ? v->budget_bytes : v->free_bytes;
    char size[24];
    app_printf("\nin %s%s:\n", size_of(size, budget),
               v->budget_bytes > 0 ? "" : " (what this machine can give now)");
    app_printf("  largest context         %10u tokens in memory, %u with the rest on disk or "
               "computed again (made for %u)\n",
               v->context_resident, v->context_most, v->info.context_count);
    app_printf("  sequences of %-10u %10u in memory, %u at all\n", v->limits.context_count,
               v->sequences_resident, v->sequences_most);
}

static void savings(const app_plan_view *v) {
    const uint64_t full = v->full.predicted_peak_bytes;
    char size[24];
    app_printf("\nof %s with everything in memory would be left:\n", size_of(size, full));
    for (uint32_t i = 0; i < v->saving_count; i++) {
        const app_plan_saving *s = &v->savings[i];
        app_printf("  %-50s %12s  %3.0f %%  costs %s", s->measure, size_of(size, s->full_bytes),
                   100 * (double)s->full_bytes / (double)full, s->cost);
        if (s->token_s > 0) app_printf(": %.3g tok/s", v->limits.sequence_count / s->token_s);
        app_printf("\n");
    }
}

void app_plan_text(const app_plan_view *v) {
    char size[24];
    const bool file = v->info.file_bytes > 0;
    app_printf("%s: %s%s%.4g M parameters, mostly %s%s%s; %u x %u tokens, cache %s\n\n", v->name,
               file ? v->info.architecture : "", file ? ", " : "",
               (double)v->info.parameter_count / 1e6, v->info.quantization, file ? ", file " : "",
               file ? size_of(size, v->info.file_bytes) : "", v->limits.sequence_count,
               v->limits.context_count, v->limits.kv == REMAT_KV_F32 ? "f32" : "f16");
    memory(v);
    budgets(v);
    limits(v);
    savings(v);
    if (v->sequences_most == 0)
        app_printf("\nthis does not run here: not even the smallest budget is free; "
                   "a smaller model, or fewer tokens (-c), would\n");
    else if (v->row_count > 0 && v->rows[v->row_count - 1].plan.token_s > 1)
        app_printf("\nless than a token a second even with everything in memory: this machine is "
                   "too slow for the model; a smaller one, or one with fewer active parameters\n");
    else if (v->plan.token_s > 1)
        app_printf("\nless than a token a second in this budget: most of the work is reading or "
                   "computing again what does not fit; see the budgets above\n");
}
