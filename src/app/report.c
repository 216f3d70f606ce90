/* report.c: what commands say about memory, in JSON and for people; their input, their start. */
#include "app/app.h"
#include "base/check.h"

#include <stdio.h>

enum { MIB = 1 << 20 };

size_t app_context_cap(const remat_engine *e, const app_args *args, size_t most) {
    remat_model_info info;
    remat_info(&info, e);
    const bool given = args->context != APP_UNSET_U32 && args->context > 0;
    const size_t cap = given ? args->context : info.context_count;
    return cap < most ? cap : most;
}

int app_input_tokens(app_tokens *out, remat_engine *e, const app_args *args, unsigned flags,
                     remat_error *err) {
    app_text text;
    if (args->tokens != NULL) return app_read_tokens(out, e, args->tokens, err);
    RM_TRY(app_read_text(&text, e, args, err));
    const size_t cap = app_context_cap(e, args, text.count + 2);
    RM_TRY(app_alloc(&out->ids, e, cap, sizeof *out->ids, err));
    return remat_tokenize(out->ids, cap, &out->count, e, text.bytes, text.count, flags, err);
}

static int fits(bool *out, remat_engine *e, const remat_limits *limits, remat_error *err) {
    remat_plan plan;
    RM_TRY(remat_plan_make(&plan, e, limits, err));
    *out = plan.predicted_peak_bytes > 0;
    return REMAT_OK;
}

int app_start_scoring(remat_engine *e, remat_limits *limits, bool keep, remat_error *err) {
    bool good = false;
    limits->logits_rows = 16;
    if (!keep) {
        limits->resident_count = 0;
        /* Whoever will not come back to a page need not write it to disk. */
        const remat_cold cold = limits->cold;
        if (cold == REMAT_COLD_AUTO) limits->cold = REMAT_COLD_DROP;
        RM_TRY(fits(&good, e, limits, err));
        if (!good) limits->cold = cold;
    }
    while (!good && limits->logits_rows > 1) {
        RM_TRY(fits(&good, e, limits, err));
        if (!good) limits->logits_rows /= 2;
    }
    return remat_start(e, limits, err);
}

static void interval(void *user, uint32_t first, uint32_t last, const char *state,
                     uint32_t layer_first, uint32_t layer_last) {
    rm_json *j = user;
    rm_json_open(j, NULL, '{');
    rm_json_u64(j, "first", first);
    rm_json_u64(j, "last", last);
    rm_json_string(j, "state", state);
    rm_json_open(j, "layers", '[');
    rm_json_u64(j, NULL, layer_first);
    rm_json_u64(j, NULL, layer_last);
    rm_json_close(j, ']');
    rm_json_close(j, '}');
}

void app_json_memory(rm_json *j, const remat_engine *e, const remat_sequence *s) {
    remat_stats st;
    remat_stats_get(&st, e);
    rm_json_open(j, "memory", '{');
    rm_json_u64(j, "budget_bytes", st.budget_bytes);
    rm_json_u64(j, "peak_bytes", st.peak_bytes);
    rm_json_u64(j, "predicted_peak_bytes", st.predicted_peak_bytes);
    rm_json_u64(j, "limit_bytes", st.limit_bytes);
    rm_json_u64(j, "shrunk", st.shrunk_count);
    rm_json_u64(j, "grown", st.grown_count);
    rm_json_open(j, "ledger_peak", '{');
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++)
        rm_json_u64(j, remat_account_name(i), st.account_bytes[i]);
    rm_json_close(j, '}');
    rm_json_close(j, '}');
    if (s == NULL) return;
    rm_json_open(j, "cache", '{');
    rm_json_u64(j, "tokens", remat_sequence_count(s));
    rm_json_u64(j, "resident_bytes", st.kv_resident_bytes);
    rm_json_u64(j, "packed_bytes", 0);
    rm_json_u64(j, "spilled_bytes", st.kv_spilled_bytes);
    rm_json_u64(j, "kept_bytes", st.kept_bytes);
    rm_json_u64(j, "dropped_tokens", st.dropped_tokens);
    rm_json_u64(j, "recomputed_tokens", st.recomputed_tokens);
    rm_json_u64(j, "spill_read_bytes", st.spill_read_bytes);
    rm_json_u64(j, "spill_written_bytes", st.spill_written_bytes);
    rm_json_u64(j, "weight_read_bytes", st.weight_read_bytes);
    rm_json_u64(j, "healed", st.healed_count);
    rm_json_open(j, "intervals", '[');
    remat_each_interval(s, interval, j);
    rm_json_close(j, ']');
    rm_json_close(j, '}');
}

void app_print_stats(const remat_engine *e) {
    remat_stats s;
    remat_stats_get(&s, e);
    fprintf(stderr,
            "memory   peak %.1f MiB of %.1f MiB, predicted %.1f MiB:", (double)s.peak_bytes / MIB,
            (double)s.budget_bytes / MIB, (double)s.predicted_peak_bytes / MIB);
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++) {
        if (s.account_bytes[i] > 0)
            fprintf(stderr, " %s %.1f", remat_account_name(i), (double)s.account_bytes[i] / MIB);
    }
    fprintf(
        stderr,
        "\ncache    %.1f MiB resident, %.1f MiB spilled, %llu tokens dropped, %llu recomputed\n",
        (double)s.kv_resident_bytes / MIB, (double)s.kv_spilled_bytes / MIB,
        (unsigned long long)s.dropped_tokens, (unsigned long long)s.recomputed_tokens);
    fprintf(stderr, "disk     %.1f MiB spilled and %.1f MiB read back, %.1f MiB of weights read\n",
            (double)s.spill_written_bytes / MIB, (double)s.spill_read_bytes / MIB,
            (double)s.weight_read_bytes / MIB);
    fprintf(stderr, "engine   %s, %u threads, load %.2f s, %llu sweeps of %.1f rows\n", s.kernels,
            s.thread_count, s.load_s, (unsigned long long)s.sweep_count,
            s.sweep_count > 0 ? (double)s.row_count / (double)s.sweep_count : 0.0);
}
