#ifndef HS_TOOLS_SOLVER_PLAN_H
#define HS_TOOLS_SOLVER_PLAN_H

/* The dense part of a placement, and the ledger of all of it.
 *
 * Under the impact objective the dense blocks go to the device first: attention with its norm
 * layer by layer, predictors, FFN norms, output norm and head, KV caches of the layers whose
 * attention is there; each block where it fits, the rest of the budget is for those after it.
 * Working buffers are part of the price of the first block, and grow with output and KV cache. */

#include "formats/placement.h"
#include "runtime/hotset.h"

typedef struct hs_plan_costs {
    uint32_t n_layer;
    uint64_t *attn, *predictor, *ffn_norm; /* [n_layer]; owned, one allocation at attn */
    uint64_t output, kv;                   /* kv: of one layer */
    uint64_t scratch[2][2];                /* [output on the device][some kv on the device] */
    /* Of one device among several: the layers that belong to it, NULL for all, and that the head
     * does not; what is not its own stays where it is. */
    const bool *mine; /* [n_layer], borrowed */
    bool no_output;
} hs_plan_costs;

static inline bool hs_plan_mine(const hs_plan_costs *c, uint32_t l)
{
    return !c->mine || c->mine[l];
}

HS_NODISCARD hs_status hs_plan_costs_init(hs_plan_costs *c, const hs_model *m, uint32_t n_ctx,
                                          uint32_t kv_type, hs_err *err);
void hs_plan_costs_fini(hs_plan_costs *c);

/* Set the dense blocks of p that fit; the result is what remains for neurons. */
uint64_t hs_plan_dense(const hs_plan_costs *c, uint64_t budget, hs_placement *p);
/* Everything on the device, dense blocks and neurons. */
HS_NODISCARD hs_status hs_plan_everything(const hs_plan_costs *c, hs_placement *p, hs_err *err);
/* Write p's ledger and plan_bytes.  HS_ERR_FAILED when the lines do not add up to what the
 * runtime will allocate, or to more than the budget. */
HS_NODISCARD hs_status hs_plan_ledger(const hs_plan_costs *c, const hs_model *m, hs_placement *p,
                                      hs_err *err);

#endif
