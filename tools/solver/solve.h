#ifndef HS_TOOLS_SOLVER_SOLVE_H
#define HS_TOOLS_SOLVER_SOLVE_H

/* The placement problem and its solvers; no file is touched here.
 *
 * A layer's neurons are sorted by activation count and cut into groups, the hottest first; the
 * last group may be smaller.  A plan says how many groups of each layer go to the device: none,
 * or at least the layer's minimum.  It may cost at most `capacity` bytes, and its value, the
 * summed counts of the chosen neurons, is to be as large as possible.  Costs are given per layer
 * and number of groups, so layers may differ in type and shape. */

#include "formats/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hs_solve_layer {
    uint32_t n_groups;
    uint32_t min_groups; /* more than n_groups: nothing of this layer can be chosen */
    int64_t *value;      /* [n_groups + 1]: counts of the k hottest groups */
    uint64_t *bytes;     /* [n_groups + 1]: what they cost */
} hs_solve_layer;

typedef struct hs_solve_problem {
    uint32_t n_layer;
    uint64_t capacity;
    hs_solve_layer *layer; /* [n_layer] */
} hs_solve_problem;

/* The same problem without its origin: of every class one choice is taken.  The first choice of
 * each class is nothing, for nothing; the others come in any order. */
typedef struct hs_choice {
    uint64_t cost; /* bytes */
    int64_t value; /* less than 1: never taken */
    uint32_t k;    /* the caller's name for it */
} hs_choice;

typedef struct hs_choices {
    uint32_t n_class;
    uint64_t capacity;
    size_t *first; /* [n_class + 1]: class l has choice[first[l] .. first[l + 1]) */
    hs_choice *choice;
} hs_choices;

/* `order`: the neurons by falling count, the lower index first among equals. */
HS_NODISCARD hs_status hs_solve_order(const int64_t *count, uint32_t n, int32_t *order,
                                      hs_err *err);
HS_NODISCARD hs_status hs_solve_problem_new(hs_solve_problem **out, uint32_t n_layer,
                                            uint64_t capacity, hs_err *err);
void hs_solve_problem_free(hs_solve_problem *p);
/* Bytes of n neurons of layer l, called for whole groups and for all of them. */
typedef uint64_t (*hs_solve_cost_fn)(void *ud, uint32_t l, uint32_t n);
/* Fill layer l.  Negative counts and sums that wrap are HS_ERR_FORMAT. */
HS_NODISCARD hs_status hs_solve_problem_layer(hs_solve_problem *p, uint32_t l, uint32_t n_ff,
                                              const int64_t *count, const int32_t *order,
                                              uint32_t group, uint32_t min_neurons,
                                              hs_solve_cost_fn cost, void *ud, hs_err *err);

typedef enum hs_solve_method { HS_SOLVE_AUTO, HS_SOLVE_EXACT, HS_SOLVE_GLPK } hs_solve_method;

typedef struct hs_solve_params {
    hs_solve_method method;
    double gap;         /* stop when this relative gap is proven; 0: go for the optimum */
    double time_limit;  /* seconds, > 0 */
    int64_t floor;      /* once no plan is proven to be worth more, it ends as "beaten" */
    bool (*stop)(void); /* NULL, or asked often: true ends it with HS_ERR_INTERRUPTED */
} hs_solve_params;

typedef struct hs_solve_result {
    uint32_t *groups; /* [n_layer] groups, or [n_class] the choices' names; owned */
    int64_t value;    /* of the plan */
    int64_t bound;    /* no plan is worth more */
    double gap;       /* (bound - value) / bound; 0 when bound is 0 */
    uint64_t bytes;
    double seconds;
    const char *source;     /* who found the plan: "exact", "glpk", "greedy" */
    const char *status;     /* "optimal", "gap reached", "time limit", "memory limit", "beaten" */
    int64_t lagrange_bound; /* proven before any search */
    int64_t glpk_bound;     /* -1: GLPK was not asked or proved nothing */
    uint32_t n_groups, undecided; /* groups (choices) in all, and those left to GLPK */
    char note[256];               /* "", or a sentence the user should see */
} hs_solve_result;

/* HS_ERR_FAILED: the solver broke down or its answer broke a rule.  A capacity too small for
 * any group is a plan of nothing, value 0, gap 0, and a note that says why. */
HS_NODISCARD hs_status hs_solve(const hs_solve_problem *p, const hs_solve_params *params,
                                hs_solve_result *out, hs_err *err);
/* As hs_solve. */
HS_NODISCARD hs_status hs_solve_choices(const hs_choices *p, const hs_solve_params *params,
                                        hs_solve_result *out, hs_err *err);
void hs_solve_result_fini(hs_solve_result *r);

#endif
