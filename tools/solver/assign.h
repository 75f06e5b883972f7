#ifndef HS_TOOLS_SOLVER_ASSIGN_H
#define HS_TOOLS_SOLVER_ASSIGN_H

/* Which device each layer belongs to, when there are several.
 *
 * An item (a layer, or the head) belongs to one device, which may take from it whatever pays; what
 * an item is worth there for a number of bytes is a curve, the concave hull of its choices.  Given
 * an assignment each device is a problem of its own, which the solvers of solve.h solve exactly.
 * The assignment itself is searched: from contiguous shares of the layers, by moving and swapping
 * items while the sum of the devices' fractional optima rises.  Few enough assignments are all
 * tried instead, and the best is proven.  For all others there is a bound: for prices lambda_d per
 * byte,
 *     sum over devices of lambda_d * capacity_d
 *         + sum over items of the max over devices of (max over choices of value - lambda_d * cost)
 * is at least the value of any plan that keeps every item on one device. */

#include "tools/solver/solve.h"

enum { HS_ASSIGN_DEVICES = 8, HS_ASSIGN_TRY_ALL = 256 };

/* A concave curve through the origin: after step i, cost[i] bytes are worth value[i]. */
typedef struct hs_assign_curve {
    size_t n;
    double *cost, *value, *rate; /* [n]; rate: of step i, falling; owned, one block at cost */
} hs_assign_curve;

typedef struct hs_assign_problem {
    uint32_t n_item, n_device;
    double capacity[HS_ASSIGN_DEVICES];
    double *fixed;          /* [n_item]: bytes that an item takes on whichever device */
    hs_assign_curve *curve; /* [n_device][n_item] */
} hs_assign_problem;

HS_NODISCARD hs_status hs_assign_new(hs_assign_problem *p, uint32_t n_item, uint32_t n_device,
                                     hs_err *err);
void hs_assign_fini(hs_assign_problem *p);
/* Item i on device d: together what n_class classes offer; class c has the choices
 * choice[first[c] .. first[c + 1]), of which the first is nothing. */
HS_NODISCARD hs_status hs_assign_item(hs_assign_problem *p, uint32_t d, uint32_t i,
                                      const hs_choice *choice, const size_t *first,
                                      uint32_t n_class, hs_err *err);

/* The value of the best plan under an assignment, solved exactly. */
typedef hs_status (*hs_assign_fn)(void *ud, const uint8_t *device, int64_t *value, hs_err *err);

typedef struct hs_assign_result {
    bool proven;  /* all assignments were tried */
    double bound; /* no plan is worth more; without proof the Lagrangian one */
    uint32_t tried, improved;
} hs_assign_result;

/* device: [n_item]. */
HS_NODISCARD hs_status hs_assign_solve(const hs_assign_problem *p, hs_assign_fn exact, void *ud,
                                       uint8_t *device, hs_assign_result *r, hs_err *err);

#endif
