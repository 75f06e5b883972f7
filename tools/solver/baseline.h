#ifndef HS_TOOLS_SOLVER_BASELINE_H
#define HS_TOOLS_SOLVER_BASELINE_H

/* What others would do with the same memory, to hold a plan against: placements of their own. */

#include "formats/activation.h"
#include "tools/solver/plan.h"
#include "tools/solver/solve.h"

typedef enum hs_baseline {
    HS_BASE_CPU,    /* nothing on the device */
    HS_BASE_LAYERS, /* whole layers, the last ones first, then the head: a layer split */
    HS_BASE_RANDOM, /* dense blocks first, then the same share of every layer, drawn by lot */
    HS_BASE_GREEDY, /* dense blocks first, then the groups with most activations per byte */
    HS_N_BASELINES,
} hs_baseline;

typedef struct hs_baseline_problem {
    const hs_plan_costs *bytes;
    hs_solve_cost_fn neurons; /* bytes of n neurons of layer l */
    void *neurons_ud;
    uint64_t budget;
    uint32_t group;
    const hs_activation *profile;
    int32_t *const *order; /* [n_layer]: neurons, the hottest first */
} hs_baseline_problem;

extern const char *const hs_baseline_name[HS_N_BASELINES];
/* Sets dense blocks and neurons of the empty placement p.  The lot is a fixed one. */
HS_NODISCARD hs_status hs_baseline_make(const hs_baseline_problem *x, hs_baseline which,
                                        hs_placement *p, hs_err *err);

#endif
