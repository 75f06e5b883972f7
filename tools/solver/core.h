#ifndef HS_TOOLS_SOLVER_CORE_H
#define HS_TOOLS_SOLVER_CORE_H

/* What the solvers share: the problem reduced to its sensible choices, the Lagrangian bound, and
 * the best plan so far.
 *
 * The bound.  For a price lambda = p/q per unit of cost,
 *     U(lambda) = lambda * cap + sum over classes of max over choices (value - lambda * cost)
 * is at least the value of any plan.  A plan's loss, U - value, is the sum over classes of what
 * its choice stays below the class's maximum plus lambda for every unit left unused; so a choice
 * whose own share exceeds U - (best value so far) is in no better plan.  Everything is kept times
 * q, in 128-bit integers, and is exact. */

#include "tools/solver/solve.h"

#include <stddef.h>

__extension__ typedef __int128 hs_wide;

typedef struct hs_core {
    uint32_t n_class;
    const hs_solve_problem *problem; /* whose layers the classes are, or NULL */
    double deadline;                 /* of hs_core_clock */
    bool (*stop)(void);
    uint64_t unit; /* bytes; divides every cost */
    uint64_t cap;  /* units */
    /* Class l's choices are choice[first[l] .. first[l + 1]): the empty one, then rising cost
     * and value; those that cost more for no more value are left out.  Costs are in units. */
    hs_choice *choice;
    size_t *first;
    int64_t price_p; /* lambda */
    uint64_t price_q;
    hs_wide upper; /* q * U(lambda) */
    hs_wide *peak; /* [n_class]: the class's max of q * value - p * cost */
    /* The best plan so far: which of its choices each class takes. */
    uint32_t *pick;
    int64_t value;
    const char *source;
    int64_t bound;
    int64_t glpk_bound;
    uint32_t undecided;
} hs_core;

typedef enum hs_core_end { HS_END_OPTIMAL, HS_END_GAP, HS_END_TIME, HS_END_MEMORY } hs_core_end;

double hs_core_clock(void);
/* HS_OK, HS_ERR_INTERRUPTED, or HS_ERR_NOSPACE when the time is up. */
HS_NODISCARD hs_status hs_core_tick(const hs_core *c, hs_err *err);
HS_NODISCARD hs_status hs_core_new(hs_core **out, const hs_choices *p, hs_err *err);
void hs_core_free(hs_core *c);
/* What choice o of class l stays below the class's maximum. */
hs_wide hs_core_loss(const hs_core *c, uint32_t l, const hs_choice *o);
double hs_core_gap(int64_t value, int64_t bound);
/* Take over a plan if it is better; false when it breaks a rule of the problem. */
bool hs_core_offer(hs_core *c, const uint32_t *pick, const char *source);

/* Dynamic programming over the classes, exact: raises the plan and lowers the bound. */
HS_NODISCARD hs_status hs_core_exact(hs_core *c, double gap, hs_core_end *end, hs_err *err);

/* GLPK on the program that the bound leaves (`reduce`) or on all of it: over groups when the
 * classes are a problem's layers, else over choices. */
HS_NODISCARD hs_status hs_core_glpk(hs_core *c, bool reduce, double gap, double seconds,
                                    hs_core_end *end, hs_err *err);
/* Run `body` so that an abort inside GLPK comes back as HS_ERR_FAILED. */
HS_NODISCARD hs_status hs_glpk_guard(void (*body)(void *ud), void *ud, hs_err *err);

#endif
