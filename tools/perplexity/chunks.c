#include "tools/perplexity/chunks.h"

#include <string.h>

/* Index of the first token that `once` predicts. */
static size_t first_target(const hs_ppl_chunks *c) { return c->bos >= 0 ? 0 : 1; }

hs_status hs_ppl_chunks_count(hs_ppl_chunks *c, uint64_t max_chunks, hs_err *err)
{
    /* llama.cpp refuses a text that makes fewer than two chunks. */
    const size_t least = c->protocol == HS_PPL_LLAMA ? 2 * c->n_ctx : first_target(c) + 1;
    if (c->n_ids < least)
        return hs_fail(err, HS_ERR_INPUT, "needs at least %zu token%s, got %zu", least,
                       least == 1 ? "" : "s", c->n_ids);
    const size_t step = c->n_ctx - 1;
    c->n_chunks = c->protocol == HS_PPL_LLAMA ? c->n_ids / c->n_ctx
                                              : (c->n_ids - first_target(c) - 1) / step + 1;
    if (max_chunks && c->n_chunks > max_chunks)
        c->n_chunks = max_chunks;
    return HS_OK;
}

static size_t n_targets(const hs_ppl_chunks *c, uint64_t k)
{
    const size_t step = c->n_ctx - 1, left = c->n_ids - first_target(c) - (size_t)k * step;
    return left < step ? left : step;
}

uint64_t hs_ppl_chunks_scored(const hs_ppl_chunks *c)
{
    if (c->protocol == HS_PPL_LLAMA)
        return c->n_chunks * (c->n_ctx - 1 - c->n_ctx / 2);
    return (c->n_chunks - 1) * (c->n_ctx - 1) + n_targets(c, c->n_chunks - 1);
}

hs_ppl_chunk hs_ppl_chunks_get(const hs_ppl_chunks *c, uint64_t k, int32_t *inputs)
{
    hs_ppl_chunk out;
    if (c->protocol == HS_PPL_LLAMA) {
        const int32_t *from = c->ids + (size_t)k * c->n_ctx;
        out = (hs_ppl_chunk){c->n_ctx - 1, c->n_ctx / 2, from + 1};
        memcpy(inputs, from, out.n_inputs * sizeof *inputs);
        if (c->bos >= 0)
            inputs[0] = c->bos;
        return out;
    }
    const int32_t *from = c->ids + first_target(c) + (size_t)k * (c->n_ctx - 1);
    out = (hs_ppl_chunk){n_targets(c, k), 0, from};
    inputs[0] = c->bos >= 0 ? c->bos : from[-1];
    memcpy(inputs + 1, from, (out.n_inputs - 1) * sizeof *inputs);
    return out;
}
