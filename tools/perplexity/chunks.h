#ifndef HS_PERPLEXITY_CHUNKS_H
#define HS_PERPLEXITY_CHUNKS_H

/* How a text is cut into sequences, and which of their positions are scored.
 *
 * once   chunk k is BOS and the n_ctx - 1 tokens from (n_ctx - 1) * k on, the last one shorter:
 *        every token is predicted exactly once.  Without BOS the token before takes its place,
 *        and the text's first token is not predicted.
 * llama  as llama.cpp's tool: BOS (where the model asks for it) goes before the text, chunk k is
 *        tokens [n_ctx * k, n_ctx * (k + 1)) with BOS in place of its first, only the second
 *        half is scored, and a rest shorter than n_ctx is left out. */

#include "formats/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hs_ppl_protocol { HS_PPL_ONCE, HS_PPL_LLAMA } hs_ppl_protocol;

typedef struct hs_ppl_chunks {
    const int32_t *ids; /* borrowed: the text, for `llama` with BOS before it */
    size_t n_ids;
    size_t n_ctx; /* at least 2, for `llama` 3 */
    int32_t bos;  /* -1: none */
    hs_ppl_protocol protocol;
    uint64_t n_chunks;
} hs_ppl_chunks;

/* Fill n_chunks from the rest, at most max_chunks (0: all).  A text too short is
 * HS_ERR_INPUT. */
HS_NODISCARD hs_status hs_ppl_chunks_count(hs_ppl_chunks *c, uint64_t max_chunks, hs_err *err);
/* Tokens scored in all chunks. */
uint64_t hs_ppl_chunks_scored(const hs_ppl_chunks *c);

typedef struct hs_ppl_chunk {
    size_t n_inputs;       /* tokens to evaluate, at most n_ctx - 1 */
    size_t first;          /* position of the first scored one; the rest all are */
    const int32_t *target; /* target[p] is what position p should predict */
} hs_ppl_chunk;

/* Chunk k < n_chunks, its tokens into inputs[n_ctx]. */
hs_ppl_chunk hs_ppl_chunks_get(const hs_ppl_chunks *c, uint64_t k, int32_t *inputs);

#endif
