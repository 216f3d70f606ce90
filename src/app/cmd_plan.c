/* cmd_plan.c: remat plan: what a context will take, before it takes it. Part: app. */
#include "app/app.h"
#include "base/check.h"

enum { MIB = 1 << 20 };

static double mib(uint64_t bytes) {
    return (double)bytes / MIB;
}

static const char *cold_name(const remat_plan *plan) {
    static const char *const names[] = {"auto", "spill", "drop", "inputs", "checkpoint"};
    return names[plan->cold];
}

static void print_text(const remat_plan *plan, const remat_limits *limits) {
    app_printf("%u tokens: smallest budget %.1f MiB, everything cached %.1f MiB\n",
               limits->context_count, mib(plan->minimum_bytes), mib(plan->full_bytes));
    app_printf("predicted peak %.1f MiB, %u of %u tokens in memory%s, chunks of %u rows\n",
               mib(plan->predicted_peak_bytes), plan->resident_count, limits->context_count,
               plan->resident_count >= limits->context_count ? ""
               : plan->cold == REMAT_COLD_SPILL              ? ", the others on disk"
                                                             : ", the others computed again",
               plan->chunk_rows);
    if (plan->streamed_weight_bytes > 0)
        app_printf(
            "weights: %.1f MiB stay, %.1f MiB are read from the file again for every token\n",
            mib(plan->resident_weight_bytes), mib(plan->streamed_weight_bytes));
    if (plan->spill_file_bytes > 0)
        app_printf("spill file: up to %.1f MiB\n", mib(plan->spill_file_bytes));
    app_printf("estimated: prompt %.0f tokens/s, answer %.1f tokens/s\n",
               limits->context_count / plan->prefill_s, 1 / plan->token_s);
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++) {
        if (plan->account_bytes[i] > 0)
            app_printf("  %-14s %9.2f MiB\n", remat_account_name(i), mib(plan->account_bytes[i]));
    }
}

static void print_json(const remat_plan *plan, const remat_limits *limits) {
    rm_json j;
    rm_json_start(&j, app_out());
    rm_json_open(&j, NULL, '{');
    rm_json_u64(&j, "context", limits->context_count);
    rm_json_u64(&j, "minimum_bytes", plan->minimum_bytes);
    rm_json_u64(&j, "full_bytes", plan->full_bytes);
    rm_json_u64(&j, "predicted_peak_bytes", plan->predicted_peak_bytes);
    rm_json_u64(&j, "resident_tokens", plan->resident_count);
    rm_json_u64(&j, "chunk_rows", plan->chunk_rows);
    rm_json_u64(&j, "resident_weight_bytes", plan->resident_weight_bytes);
    rm_json_u64(&j, "streamed_weight_bytes", plan->streamed_weight_bytes);
    rm_json_string(&j, "cold", cold_name(plan));
    rm_json_bool(&j, "rows_spilled", plan->rows_spilled);
    rm_json_u64(&j, "spill_file_bytes", plan->spill_file_bytes);
    rm_json_open(&j, "predicted", '{');
    rm_json_f64(&j, "prefill_tok_s", limits->context_count / plan->prefill_s, 6);
    rm_json_f64(&j, "decode_tok_s", 1 / plan->token_s, 6);
    rm_json_close(&j, '}');
    rm_json_open(&j, "parts", '{');
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++)
        rm_json_u64(&j, remat_account_name(i), plan->account_bytes[i]);
    rm_json_close(&j, '}');
    rm_json_close(&j, '}');
    app_printf("\n");
}

static int plan_of(remat_engine *e, const app_args *args, remat_error *err) {
    remat_limits limits;
    remat_model_info info;
    remat_plan plan;
    remat_info(&info, e);
    RM_TRY(app_args_limits(&limits, args, err));
    const bool given = args->context != APP_UNSET_U32 && args->context > 0;
    limits.context_count = given ? args->context : info.context_count;
    RM_TRY(remat_plan_make(&plan, e, &limits, err));
    if (plan.predicted_peak_bytes == 0) {
        remat_stats stats;
        remat_stats_get(&stats, e);
        err->minimum_bytes = plan.minimum_bytes;
        return rm_fail(err, REMAT_E_BUDGET,
                       "budget: %.1f MiB are too little for a context of %u "
                       "tokens; the smallest that works is %.1f MiB",
                       mib(stats.budget_bytes), limits.context_count,
                       mib(plan.minimum_bytes + MIB / 10));
    }
    if (args->json) {
        print_json(&plan, &limits);
    } else {
        print_text(&plan, &limits);
    }
    return REMAT_OK;
}

int app_plan(const app_args *args, remat_error *err) {
    remat_engine *e = NULL;
    RM_TRY(app_open(&e, args, false, err));
    const int status = plan_of(e, args, err);
    app_close(&e);
    return status;
}
