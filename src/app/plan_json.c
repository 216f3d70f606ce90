/* plan_json.c: a plan for programs. Part: app. */
#include "app/output.h"
#include "app/plan_view.h"

static const char *cold_name(const remat_plan *plan) {
    static const char *const names[] = {"auto", "spill", "drop", "inputs", "checkpoint"};
    return names[plan->cold];
}

/* Tokens a second of a prompt that fills the context, and of an answer: all sequences together. */
static void speeds(rm_json *j, const app_plan_view *v, const remat_plan *p) {
    const double n = v->limits.sequence_count;
    rm_json_f64(j, "prefill_tok_s", v->limits.context_count * n / p->prefill_s, 6);
    rm_json_f64(j, "decode_tok_s", n / p->token_s, 6);
}

static void weights(rm_json *j, const app_plan_view *v) {
    rm_json_open(j, "weights", '{');
    rm_json_open(j, "types", '{');
    for (uint32_t i = 0; i < v->type_count; i++)
        rm_json_u64(j, v->types[i].type, v->types[i].bytes);
    rm_json_close(j, '}');
    rm_json_u64(j, "embedding", v->embedding_bytes);
    rm_json_u64(j, "output", v->output_bytes);
    rm_json_u64(j, "attention", v->attention_bytes);
    rm_json_u64(j, "feed_forward", v->feed_forward_bytes);
    rm_json_u64(j, "experts", v->expert_bytes);
    rm_json_u64(j, "norms", v->norm_bytes);
    rm_json_open(j, "layers", '[');
    for (uint32_t l = 0; l < v->info.layer_count && l < APP_PLAN_LAYERS; l++)
        rm_json_u64(j, NULL, v->layer_bytes[l]);
    rm_json_close(j, ']');
    rm_json_close(j, '}');
}

static void point(rm_json *j, const app_plan_view *v, const app_plan_point *p) {
    rm_json_open(j, NULL, '{');
    if (p->name != NULL) rm_json_string(j, "name", p->name);
    rm_json_u64(j, "budget_bytes", p->budget_bytes);
    rm_json_u64(j, "predicted_peak_bytes", p->plan.predicted_peak_bytes);
    rm_json_u64(j, "resident_tokens", p->plan.resident_count);
    rm_json_u64(j, "resident_weight_bytes", p->plan.resident_weight_bytes);
    rm_json_string(j, "cold", cold_name(&p->plan));
    speeds(j, v, &p->plan);
    rm_json_close(j, '}');
}

static void points(rm_json *j, const char *name, const app_plan_view *v, const app_plan_point *p,
                   uint32_t count) {
    rm_json_open(j, name, '[');
    for (uint32_t i = 0; i < count; i++)
        point(j, v, &p[i]);
    rm_json_close(j, ']');
}

static void savings(rm_json *j, const app_plan_view *v) {
    rm_json_open(j, "savings", '[');
    for (uint32_t i = 0; i < v->saving_count; i++) {
        const app_plan_saving *s = &v->savings[i];
        rm_json_open(j, NULL, '{');
        rm_json_string(j, "measure", s->measure);
        rm_json_u64(j, "full_bytes", s->full_bytes);
        if (s->token_s > 0)
            rm_json_f64(j, "decode_tok_s", v->limits.sequence_count / s->token_s, 6);
        rm_json_string(j, "costs", s->cost);
        rm_json_close(j, '}');
    }
    rm_json_close(j, ']');
}

static void limits(rm_json *j, const app_plan_view *v) {
    rm_json_open(j, "limits", '{');
    rm_json_u64(j, "budget_bytes", v->budget_bytes > 0 ? v->budget_bytes : v->free_bytes);
    rm_json_u64(j, "context_in_memory", v->context_resident);
    rm_json_u64(j, "context_at_all", v->context_most);
    rm_json_u64(j, "sequences_in_memory", v->sequences_resident);
    rm_json_u64(j, "sequences_at_all", v->sequences_most);
    rm_json_close(j, '}');
}

static void model(rm_json *j, const app_plan_view *v) {
    rm_json_open(j, "model", '{');
    rm_json_string(j, "name", v->name);
    rm_json_string(j, "architecture", v->info.architecture);
    rm_json_string(j, "quantization", v->info.quantization);
    rm_json_u64(j, "parameters", v->info.parameter_count);
    rm_json_u64(j, "layers", v->info.layer_count);
    rm_json_close(j, '}');
}

void app_plan_json(rm_json *j, const app_plan_view *v) {
    const remat_plan *plan = &v->plan;
    model(j, v);
    rm_json_u64(j, "context", v->limits.context_count);
    rm_json_u64(j, "sequences", v->limits.sequence_count);
    rm_json_u64(j, "minimum_bytes", plan->minimum_bytes);
    rm_json_u64(j, "full_bytes", plan->full_bytes);
    rm_json_u64(j, "predicted_peak_bytes", plan->predicted_peak_bytes);
    rm_json_u64(j, "resident_tokens", plan->resident_count);
    rm_json_u64(j, "chunk_rows", plan->chunk_rows);
    rm_json_u64(j, "resident_weight_bytes", plan->resident_weight_bytes);
    rm_json_u64(j, "streamed_weight_bytes", plan->streamed_weight_bytes);
    rm_json_string(j, "cold", cold_name(plan));
    rm_json_bool(j, "rows_spilled", plan->rows_spilled);
    rm_json_u64(j, "spill_file_bytes", plan->spill_file_bytes);
    rm_json_open(j, "predicted", '{');
    speeds(j, v, plan);
    rm_json_close(j, '}');
    rm_json_open(j, "parts", '{');
    for (uint32_t i = 0; i < REMAT_ACCOUNTS; i++)
        rm_json_u64(j, remat_account_name(i), plan->account_bytes[i]);
    rm_json_close(j, '}');
    weights(j, v);
    rm_json_u64(j, "kv_token_bytes", plan->kv_token_bytes);
    rm_json_u64(j, "kv_bytes", plan->kv_bytes);
    rm_json_u64(j, "prefill_bytes", plan->prefill_bytes);
    rm_json_u64(j, "decode_bytes", plan->decode_bytes);
    points(j, "budgets", v, v->rows, v->row_count);
    points(j, "frontier", v, v->frontier, v->point_count);
    limits(j, v);
    savings(j, v);
}
