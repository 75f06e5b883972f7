#ifndef HS_TOOLS_SOLVER_LATENCY_H
#define HS_TOOLS_SOLVER_LATENCY_H

/* The plan with the least predicted time of a step: dense blocks and neurons together.
 *
 * Given which working buffers are needed (for the head, for KV caches), the time is a sum of what
 * each layer's attention, each layer's FFN and the head take, so it is a problem of choices: an
 * FFN's are the number of its hottest groups, with its predictor and norm here or there. */

#include "tools/solver/cost.h"
#include "tools/solver/plan.h"
#include "tools/solver/solve.h"

typedef struct hs_latency_problem {
    const hs_cost *cost;
    const hs_plan_costs *bytes;
    hs_solve_cost_fn neurons; /* bytes of n neurons of layer l */
    void *neurons_ud;
    uint64_t budget;
    uint32_t group;
    uint32_t min_neurons;  /* of every layer none, or at least so many */
    bool no_neurons;       /* dense blocks only */
    int32_t *const *order; /* [n_layer]: neurons, the hottest first */
} hs_latency_problem;

/* Picoseconds saved by a step, against everything on the CPU. */
typedef struct hs_latency_result {
    hs_solve_result solve;       /* value, bound and gap are of the saving; no groups */
    double cpu_s;                /* everything on the CPU */
    double step_s, bound_s, gap; /* of the plan; no plan is faster; (step - bound) / step */
} hs_latency_result;

/* The choices behind it, when every buffer there is has been paid for: of class l, layer l's
 * attention; of class n_layer + l, its FFN; values are picoseconds saved, *head is the head's.
 * The caller frees out->first and out->choice. */
HS_NODISCARD hs_status hs_latency_choices(const hs_latency_problem *x, hs_choices *out,
                                          int64_t *head, hs_err *err);

/* Sets p's dense blocks and neurons.  `params->gap` is relative to the time. */
HS_NODISCARD hs_status hs_latency_solve(const hs_latency_problem *x, const hs_solve_params *params,
                                        hs_placement *p, hs_latency_result *out, hs_err *err);

#endif
