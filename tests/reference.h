/*
 * reference.h: what a model's logits are by definition, in double precision.
 *
 * A second, slow implementation that shares nothing with src: it reads the GGUF file itself, undoes
 * quantization by each format's definition, and follows the authors' papers: one position after
 * the other, no pages, no chunks, no online softmax, libm's functions.
 *
 *     llama       Touvron et al., 2023; Mistral's window and Mixtral's experts: Jiang et al., 2023
 *                 and 2024
 *     qwen2       Yang et al., 2024: biases of Q, K and V
 *     qwen3(moe)  Yang et al., 2025: norms of heads; softmax over all experts, the best normalized
 *     gemma3      Gemma Team, 2025: norms before and after, windows, two rotary bases, GELU
 *     phi3        Abdin et al., 2024: fused matrices, rotation of a part of each head
 *
 * A file that asks for anything else (rotation that is scaled, but not linearly, say) is refused.
 */
#ifndef RM_TESTS_REFERENCE_H
#define RM_TESTS_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct reference reference;

/* NULL when the file cannot be understood; says why on stderr. Needs the heap. */
reference *reference_open(const char *path);
void reference_close(reference *r);

uint32_t reference_vocabulary(const reference *r);

/* Logits after each of count tokens: count x vocabulary. */
void reference_logits(double *out, const reference *r, const uint32_t *tokens, uint32_t count);

#endif /* RM_TESTS_REFERENCE_H */
