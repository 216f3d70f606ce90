/* layout.c: all memory of a started engine, section by section. Part: engine. */
#include "engine/engine.h"
#include "text/detok.h"

static int layout_sequences(remat_engine *e, rm_ledger *l, const rm_setup *setup,
                            remat_error *err) {
    const uint64_t vocabulary = e->model.shape.vocabulary, n = setup->sequence_count;
    const uint64_t columns = setup->column_count;
    uint32_t *tokens;
    float *logits;
    uint16_t *cold;
    RM_TRY(rm_ledger_carve(&e->sequences, l, RM_ACCOUNT_KV, n, sizeof *e->sequences, err));
    RM_TRY(
        rm_ledger_carve(&tokens, l, RM_ACCOUNT_KV, n * setup->context_count, sizeof *tokens, err));
    RM_TRY(rm_ledger_carve(&logits, l, RM_ACCOUNT_LOGITS, n * vocabulary, sizeof *logits, err));
    RM_TRY(rm_ledger_carve(&cold, l, RM_ACCOUNT_KV, n * columns, sizeof *cold, err));
    /* Only what is dropped selectively asks how often a page is used. */
    e->sweep.uses = NULL;
    if (setup->recompute == REMAT_RECOMPUTE_SELECTIVE)
        RM_TRY(rm_ledger_carve(&e->sweep.uses, l, RM_ACCOUNT_KV,
                               n * columns * e->model.shape.layer_count, sizeof *e->sweep.uses,
                               err));
    RM_TRY(
        rm_ledger_carve(&e->route.enter, l, RM_ACCOUNT_KV, columns, sizeof *e->route.enter, err));
    RM_TRY(
        rm_ledger_carve(&e->route.leave, l, RM_ACCOUNT_KV, columns, sizeof *e->route.leave, err));
    e->sweep.cold = cold;
    for (uint32_t i = 0; e->sequences != NULL && i < n; i++) {
        e->sequences[i] = (remat_sequence){.engine = e,
                                           .index = i,
                                           .tokens = tokens + (size_t)i * setup->context_count,
                                           .logits = logits + i * vocabulary,
                                           .cold = cold + i * columns};
    }
    return REMAT_OK;
}

/* Chooses the units that stay. */
static void choose_units(remat_engine *e, const rm_setup *setup) {
    for (uint32_t i = 0; i < rm_unit_count(&e->model); i++)
        e->units[rm_plan_unit(&e->model, i)] = i < setup->unit_count;
}

/* Tokens are drawn between sweeps, where the memory of a sweep's products is free. */
static int layout_sampling(remat_engine *e, rm_ledger *l, remat_error *err) {
    const uint64_t vocabulary = e->model.shape.vocabulary;
    const rm_work *work = &e->sweep.work;
    rm_sample_space *s = &e->sample_space;
    const uint64_t bytes = vocabulary * (sizeof *s->candidates + sizeof *s->counts);
    void *memory = work->heads;
    if (work->heads_bytes < bytes)
        RM_TRY(rm_ledger_carve(&memory, l, RM_ACCOUNT_LOGITS, 1, bytes, err));
    s->candidates = memory;
    s->counts = memory == NULL ? NULL : (uint32_t *)(void *)(s->candidates + vocabulary);
    return REMAT_OK;
}

int rm_engine_layout(remat_engine *e, rm_ledger *l, const rm_setup *setup, remat_error *err) {
    const rm_cache_shape cache = rm_setup_cache(setup, &e->model);
    const rm_spill_shape spill = rm_setup_spill(setup, &e->model);
    const rm_stream_shape stream = {.raw_bytes = setup->raw_bytes,
                                    .output_strips = setup->output_strips};
    const rm_sweep_shape sweep = {.run_max = setup->run_max,
                                  .row_max = setup->row_max,
                                  .chunk_rows = setup->chunk_rows,
                                  .thread_count = e->thread_count,
                                  .context_count = setup->context_count,
                                  .logits_rows = setup->logits_rows,
                                  .staged = setup->stage_count > 0};
    choose_units(e, setup);
    RM_TRY(rm_model_layout(&e->model, l, e->units, err));
    RM_TRY(rm_stream_layout(&e->stream, l, &e->model, &stream, err));
    RM_TRY(rm_cache_layout(&e->cache, l, &cache, err));
    if (rm_setup_spills(setup)) RM_TRY(rm_spill_layout(&e->spill, l, &spill, err));
    RM_TRY(rm_sweep_layout(&e->sweep, l, &e->model, &sweep, err));
    uint64_t block_bytes;
    const uint64_t places = rm_setup_kept(&block_bytes, setup, &e->model);
    RM_TRY(rm_kept_layout(&e->sweep.kept, l, places, setup->kept_count, block_bytes, err));
    RM_TRY(layout_sequences(e, l, setup, err));
    RM_TRY(layout_sampling(e, l, err));
    const uint64_t detok_bytes = e->tokenizer != NULL ? rm_detok_bytes(e->tokenizer) : 0;
    RM_TRY(rm_ledger_carve(&e->detok_memory, l, RM_ACCOUNT_TEXT, detok_bytes, 1, err));
    RM_TRY(rm_ledger_carve(&e->text_work, l, RM_ACCOUNT_TEXT, setup->text_bytes, 1, err));
    RM_TRY(rm_ledger_carve(&e->stage, l, RM_ACCOUNT_IO, e->thread_count,
                           rm_model_stage_bytes(&e->model), err));
    RM_TRY(rm_session_layout(&e->session, l, rm_cache_page_bytes(&cache), err));
    return rm_ledger_carve(&e->thread_memory, l, RM_ACCOUNT_WORK, 1,
                           rm_threads_bytes(e->thread_count), err);
}
