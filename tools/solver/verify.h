#ifndef HS_TOOLS_SOLVER_VERIFY_H
#define HS_TOOLS_SOLVER_VERIFY_H

/* The answer checked against the problem's statement by code that shares nothing with the
 * optimiser: from the bytes of the file, the model, the counts and the limits alone. */

#include "formats/activation.h"
#include "formats/file.h"
#include "formats/placement.h"
#include "runtime/hotset.h"
#include "tools/solver/cost.h"

typedef struct hs_verify {
    const hs_model *model;
    const hs_activation *profile;
    const hs_placement *plan; /* what was meant to be written */
    uint32_t group;
    /* Of each of the plan's devices: */
    uint64_t budget[HS_PLACEMENT_DEVICES];
    const uint32_t *min_neurons[HS_PLACEMENT_DEVICES]; /* [n_layer] */
    const hs_cost *cost[HS_PLACEMENT_DEVICES];         /* of the latency objective; NULL: impact */
    bool plain; /* the file has no dense part: the plan's is taken */
} hs_verify;

/* HS_ERR_FAILED names the rule that p breaks. */
HS_NODISCARD hs_status hs_verify_placement(const hs_verify *v, const hs_placement *p, hs_err *err);
HS_NODISCARD hs_status hs_verify_file(const hs_verify *v, const hs_map *file, hs_err *err);

#endif
