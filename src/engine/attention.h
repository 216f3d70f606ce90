/*
 * attention.h: a chunk's queries over the pages of their sequences. Part: engine.
 *
 * Spans of 1,024 tokens are combined in order, so it makes no difference who computes them:
 *
 *     many rows    an item is a tile of rows of one KV head; it walks the spans itself
 *     few rows     an item is one span of one KV head; states are kept and merged by
 *                  rm_attention_finish(), in the same order
 *
 * Where pages are spilled and do not fit the stage, the past comes in BANDS of whole spans: one is
 * attended while the next is read, and each row's state waits in work->totals between them.
 */
#ifndef RM_ENGINE_ATTENTION_H
#define RM_ENGINE_ATTENTION_H

#include "engine/layer.h"

/* What queries are multiplied by: log2(e) / sqrt(head_dim), since the softmax works with 2^x. */
float rm_attention_scale(uint32_t head_dim);

/* Reads work->query, and pages; after rm_attention_finish() of a row its output is complete. False:
 * a spilled page could not be read back. */
bool rm_attention_run(const rm_layer_job *job);
void rm_attention_finish(const rm_layer_job *job, uint32_t row, uint32_t thread);

/* A row's output: head_count * head_dim floats. */
float *rm_attention_out(const rm_layer_job *job, uint32_t row);

#endif /* RM_ENGINE_ATTENTION_H */
