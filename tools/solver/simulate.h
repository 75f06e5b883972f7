#ifndef HS_TOOLS_SOLVER_SIMULATE_H
#define HS_TOOLS_SOLVER_SIMULATE_H

/* Steps whose activations are drawn by lot, under the cost model: what comes of placements when
 * tokens differ, which a prediction from mean shares does not show. */

#include "tools/solver/cost.h"

enum { HS_SIMULATE_MOST = 8 };

typedef struct hs_simulated {
    double mean, worst; /* seconds of a step */
} hs_simulated;

/* n placements, at most HS_SIMULATE_MOST, over the same `steps` steps.  In a step a neuron is
 * active by its share times its layer's liveliness for this step, 0.7 to 1.3.  The lot is fixed. */
HS_NODISCARD hs_status hs_simulate(const hs_cost *c, const hs_placement *const *p, size_t n,
                                   uint32_t steps, hs_simulated *out, hs_err *err);

#endif
