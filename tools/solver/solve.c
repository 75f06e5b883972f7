/* Building a placement problem, and choosing who solves it. */
#include "tools/solver/solve.h"

#include "formats/cursor.h"
#include "tools/solver/core.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Twice this still fits, and so does its product with a 62-bit cost in 128 bits. */
#define LARGEST (INT64_C(1) << 62)

/* ---- the problem ---------------------------------------------------------------------------- */

/* A stable radix sort by how far a count is below the largest: the hottest first, and the lower
 * index first among equals.  It takes as many rounds as the counts have digits. */
enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

typedef struct ranked {
    uint64_t below;
    int32_t id;
} ranked;

static void sort_digit(const ranked *from, ranked *to, uint32_t n, unsigned shift)
{
    uint32_t at[DIGITS] = {0};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        at[from[i].below >> shift & (DIGITS - 1)]++;
    for (uint32_t d = 0; d < DIGITS; d++) {
        const uint32_t n_here = at[d];
        at[d] = sum;
        sum += n_here;
    }
    for (uint32_t i = 0; i < n; i++)
        to[at[from[i].below >> shift & (DIGITS - 1)]++] = from[i];
}

hs_status hs_solve_order(const int64_t *count, uint32_t n, int32_t *order, hs_err *err)
{
    if (n > INT32_MAX)
        return hs_fail(err, HS_ERR_FORMAT, "%u neurons: expected at most %d", n, INT32_MAX);
    ranked *r = calloc(2 * ((size_t)n + 1), sizeof *r);
    if (!r)
        return hs_fail(err, HS_ERR_NOMEM, "sorting %u neurons: out of memory", n);
    int64_t most = INT64_MIN;
    uint64_t range = 0;
    for (uint32_t i = 0; i < n; i++)
        most = count[i] > most ? count[i] : most;
    for (uint32_t i = 0; i < n; i++) {
        r[i] = (ranked){(uint64_t)most - (uint64_t)count[i], (int32_t)i};
        range |= r[i].below;
    }
    ranked *from = r, *to = r + n;
    for (unsigned shift = 0; shift < 64 && range >> shift; shift += DIGIT_BITS) {
        sort_digit(from, to, n, shift);
        ranked *t = from;
        from = to;
        to = t;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = from[i].id;
    free(r);
    return HS_OK;
}

hs_status hs_solve_problem_new(hs_solve_problem **out, uint32_t n_layer, uint64_t capacity,
                               hs_err *err)
{
    *out = NULL;
    hs_solve_problem *p = calloc(1, sizeof *p);
    if (!p || !(p->layer = calloc(n_layer ? n_layer : 1, sizeof *p->layer))) {
        free(p);
        return hs_fail(err, HS_ERR_NOMEM, "placement problem: out of memory");
    }
    p->n_layer = n_layer;
    p->capacity = capacity;
    *out = p;
    return HS_OK;
}

void hs_solve_problem_free(hs_solve_problem *p)
{
    if (!p)
        return;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        free(p->layer[l].value);
        free(p->layer[l].bytes);
    }
    free(p->layer);
    free(p);
}

static hs_status group_values(hs_solve_layer *y, uint32_t l, uint32_t n_ff, const int64_t *count,
                              const int32_t *order, uint32_t group, hs_err *err)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < n_ff; i++) {
        const int64_t c = count[order[i]];
        if (c < 0)
            return hs_fail(err, HS_ERR_FORMAT, "layer %u: neuron %d: count %" PRId64 " is negative",
                           l, order[i], c);
        if (c > LARGEST - sum)
            return hs_fail(err, HS_ERR_FORMAT, "layer %u: the counts add up to more than 2^62", l);
        sum += c;
        y->value[i / group + 1] = sum;
    }
    return HS_OK;
}

hs_status hs_solve_problem_layer(hs_solve_problem *p, uint32_t l, uint32_t n_ff,
                                 const int64_t *count, const int32_t *order, uint32_t group,
                                 uint32_t min_neurons, hs_solve_cost_fn cost, void *ud, hs_err *err)
{
    hs_solve_layer *y = &p->layer[l];
    if (!group)
        return hs_fail(err, HS_ERR_USAGE, "layer %u: groups of 0 neurons", l);
    y->n_groups = n_ff / group + (n_ff % group != 0);
    /* The last group may be short, so the minimum is all groups only when n_ff reaches it. */
    y->min_groups =
        min_neurons > n_ff ? y->n_groups + 1 : min_neurons / group + (min_neurons % group != 0);
    y->value = calloc((size_t)y->n_groups + 1, sizeof *y->value);
    y->bytes = calloc((size_t)y->n_groups + 1, sizeof *y->bytes);
    if (!y->value || !y->bytes)
        return hs_fail(err, HS_ERR_NOMEM, "placement problem: out of memory");
    for (uint32_t k = 1; k <= y->n_groups; k++)
        y->bytes[k] = cost(ud, l, k < y->n_groups ? k * group : n_ff);
    return group_values(y, l, n_ff, count, order, group, err);
}

/* What the solvers take for granted; the caller may have built the problem by hand. */
static hs_status screen(const hs_solve_problem *p, hs_err *err)
{
    int64_t value = 0;
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_solve_layer *y = &p->layer[l];
        if (!y->value || !y->bytes || y->value[0] || y->bytes[0])
            return hs_fail(err, HS_ERR_FAILED, "layer %u: nothing must cost nothing", l);
        int64_t last = INT64_MAX;
        for (uint32_t k = 1; k <= y->n_groups; k++) {
            if (y->value[k] < y->value[k - 1] || y->value[k] > LARGEST)
                return hs_fail(err, HS_ERR_FAILED, "layer %u: group %u has the value %" PRId64, l,
                               k - 1, y->value[k] - y->value[k - 1]);
            if (y->value[k] - y->value[k - 1] > last)
                return hs_fail(err, HS_ERR_FAILED,
                               "layer %u: group %u is hotter than the one "
                               "before it",
                               l, k - 1);
            if (y->bytes[k] < y->bytes[k - 1])
                return hs_fail(err, HS_ERR_FAILED, "layer %u: %u groups cost less than %u", l, k,
                               k - 1);
            last = y->value[k] - y->value[k - 1];
        }
        if (y->value[y->n_groups] > LARGEST - value ||
            !hs_add(bytes, y->bytes[y->n_groups], &bytes) || bytes > LARGEST)
            return hs_fail(err, HS_ERR_FAILED, "layer %u: the sums exceed 2^62", l);
        value += y->value[y->n_groups];
    }
    return HS_OK;
}

/* ---- solving -------------------------------------------------------------------------------- */

/* Everything that may be chosen fits: zero counts are then no reason to leave a neuron out. */
static bool all_fits(const hs_solve_problem *p, uint32_t *groups)
{
    uint64_t bytes = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_solve_layer *y = &p->layer[l];
        groups[l] = y->min_groups <= y->n_groups ? y->n_groups : 0;
        bytes += y->bytes[groups[l]];
    }
    return bytes <= p->capacity;
}

static uint32_t least_groups(const hs_solve_layer *y) { return y->min_groups ? y->min_groups : 1; }

/* Why a plan is empty, for the warning. */
static void explain_nothing(const hs_solve_problem *p, hs_solve_result *r)
{
    uint64_t least = UINT64_MAX;
    bool counted = false;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_solve_layer *y = &p->layer[l];
        counted = counted || y->value[y->n_groups] > 0;
        if (least_groups(y) <= y->n_groups && y->bytes[least_groups(y)] < least)
            least = y->bytes[least_groups(y)];
    }
    if (!counted)
        snprintf(r->note, sizeof r->note, "no neuron was ever active in the profile");
    else if (least == UINT64_MAX)
        snprintf(r->note, sizeof r->note,
                 "the minimum per layer is more neurons than any layer has");
    else
        snprintf(r->note, sizeof r->note,
                 "the smallest choice of neurons needs %" PRIu64 " bytes, %" PRIu64 " are left",
                 least, p->capacity);
}

static const char *end_name(hs_core_end end)
{
    switch (end) {
    case HS_END_OPTIMAL: return "optimal";
    case HS_END_GAP: return "gap reached";
    case HS_END_TIME: return "time limit";
    case HS_END_MEMORY: return "memory limit";
    }
    return "?";
}

static hs_status run_auto(hs_core *c, const hs_solve_params *q, hs_core_end *end,
                          hs_solve_result *r, hs_err *err)
{
    const double limit = c->deadline;
    /* Half of the time for the exact method, so that GLPK has its turn if that is not enough. */
    c->deadline = (hs_core_clock() + limit) / 2;
    hs_status s = hs_core_exact(c, q->gap, end, err);
    c->deadline = limit;
    if (s != HS_OK || *end == HS_END_GAP || *end == HS_END_OPTIMAL)
        return s;
    const double left = limit - hs_core_clock();
    if (left <= 0)
        return HS_OK;
    hs_core_end again;
    hs_err why = {0};
    s = hs_core_glpk(c, true, q->gap, left, &again, &why);
    if (s == HS_ERR_INTERRUPTED)
        return hs_fail(err, s, "%s", why.msg);
    if (s != HS_OK)
        snprintf(r->note, sizeof r->note, "not proven optimal, and GLPK could not help: %.180s",
                 why.msg);
    else
        *end = again;
    return HS_OK;
}

static hs_status run(hs_core *c, const hs_solve_params *q, hs_solve_result *r, hs_err *err)
{
    hs_core_end end = HS_END_OPTIMAL;
    hs_status s = HS_OK;
    r->lagrange_bound = c->bound;
    const bool beaten = c->bound <= q->floor && c->bound > c->value;
    switch (beaten ? HS_SOLVE_AUTO : q->method) {
    case HS_SOLVE_EXACT: s = hs_core_exact(c, q->gap, &end, err); break;
    case HS_SOLVE_GLPK:
        s = hs_core_glpk(c, false, q->gap, c->deadline - hs_core_clock(), &end, err);
        break;
    case HS_SOLVE_AUTO: s = beaten ? HS_OK : run_auto(c, q, &end, r, err); break;
    }
    if (s != HS_OK)
        return s;
    r->status = beaten ? "beaten" : end_name(c->value >= c->bound ? HS_END_OPTIMAL : end);
    r->source = c->source;
    r->bound = c->bound;
    r->glpk_bound = c->glpk_bound;
    r->undecided = c->undecided;
    for (uint32_t l = 0; l < c->n_class; l++)
        r->groups[l] = c->choice[c->first[l] + c->pick[l]].k;
    return HS_OK;
}

/* Value, bytes and rules of the plan, recomputed from the problem alone. */
static hs_status account(const hs_solve_problem *p, hs_solve_result *r, hs_err *err)
{
    bool any = false;
    r->value = 0;
    r->bytes = 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_solve_layer *y = &p->layer[l];
        const uint32_t k = r->groups[l];
        if (k > y->n_groups || (k && k < y->min_groups))
            return hs_fail(err, HS_ERR_FAILED, "%s: layer %u: %u groups break the limits %u..%u",
                           r->source, l, k, y->min_groups, y->n_groups);
        r->value += y->value[k];
        r->bytes += y->bytes[k];
        r->n_groups += y->n_groups;
        any = any || k;
    }
    if (r->bytes > p->capacity || r->value > r->bound)
        return hs_fail(err, HS_ERR_FAILED,
                       "%s: the plan takes %" PRIu64 " of %" PRIu64 " bytes and is worth %" PRId64
                       ", proven to be at most %" PRId64,
                       r->source, r->bytes, p->capacity, r->value, r->bound);
    r->gap = hs_core_gap(r->value, r->bound);
    if (!any)
        explain_nothing(p, r);
    return HS_OK;
}

static hs_status check_params(const hs_solve_params *q, hs_err *err)
{
    if (!(q->time_limit > 0) || !(q->gap >= 0) || !isfinite(q->gap))
        return hs_fail(err, HS_ERR_USAGE, "time limit %g, gap %g: expected > 0 and >= 0",
                       q->time_limit, q->gap);
    return HS_OK;
}

/* `origin`: the problem whose layers the classes are, or NULL. */
static hs_status search(const hs_choices *ch, const hs_solve_problem *origin, double start,
                        const hs_solve_params *q, hs_solve_result *r, hs_err *err)
{
    hs_core *c;
    hs_status s = hs_core_new(&c, ch, err);
    if (s != HS_OK)
        return s;
    c->problem = origin;
    c->deadline = start + q->time_limit;
    c->stop = q->stop;
    s = run(c, q, r, err);
    hs_core_free(c);
    return s;
}

/* A problem's layers as classes: none, or at least the minimum of groups. */
static hs_status list_groups(const hs_solve_problem *p, hs_choices *ch, hs_err *err)
{
    size_t n = 0;
    for (uint32_t l = 0; l < p->n_layer; l++)
        n += (size_t)p->layer[l].n_groups + 1;
    *ch = (hs_choices){.n_class = p->n_layer, .capacity = p->capacity};
    ch->first = calloc((size_t)p->n_layer + 1, sizeof *ch->first);
    ch->choice = malloc((n + 1) * sizeof *ch->choice);
    if (!ch->first || !ch->choice)
        return hs_fail(err, HS_ERR_NOMEM, "solver: out of memory");
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_solve_layer *y = &p->layer[l];
        size_t at = ch->first[l];
        ch->choice[at++] = (hs_choice){0};
        for (uint32_t k = least_groups(y); k <= y->n_groups; k++)
            ch->choice[at++] = (hs_choice){y->bytes[k], y->value[k], k};
        ch->first[l + 1] = at;
    }
    return HS_OK;
}

static hs_status solve_groups(const hs_solve_problem *p, double start, const hs_solve_params *q,
                              hs_solve_result *r, hs_err *err)
{
    hs_choices ch;
    hs_status s = list_groups(p, &ch, err);
    if (s == HS_OK)
        s = search(&ch, p, start, q, r, err);
    free(ch.first);
    free(ch.choice);
    return s;
}

hs_status hs_solve(const hs_solve_problem *p, const hs_solve_params *q, hs_solve_result *r,
                   hs_err *err)
{
    const double start = hs_core_clock();
    *r = (hs_solve_result){.source = "exact", .status = "optimal", .glpk_bound = -1};
    hs_status s = check_params(q, err);
    if (s == HS_OK)
        s = screen(p, err);
    if (s != HS_OK)
        return s;
    r->groups = calloc(p->n_layer ? p->n_layer : 1, sizeof *r->groups);
    if (!r->groups)
        return hs_fail(err, HS_ERR_NOMEM, "solver: out of memory");
    if (all_fits(p, r->groups)) {
        for (uint32_t l = 0; l < p->n_layer; l++)
            r->bound += p->layer[l].value[r->groups[l]];
        r->lagrange_bound = r->bound;
    } else {
        s = solve_groups(p, start, q, r, err);
    }
    if (s == HS_OK)
        s = account(p, r, err);
    if (s != HS_OK)
        hs_solve_result_fini(r);
    r->seconds = hs_core_clock() - start;
    return s;
}

/* ---- choices -------------------------------------------------------------------------------- */

static hs_status screen_choices(const hs_choices *p, hs_err *err)
{
    int64_t value = 0;
    uint64_t cost = 0;
    for (uint32_t l = 0; l < p->n_class; l++) {
        if (p->first[l] >= p->first[l + 1] || p->choice[p->first[l]].cost ||
            p->choice[p->first[l]].value)
            return hs_fail(err, HS_ERR_FAILED, "class %u: nothing must cost nothing", l);
        int64_t most_value = 0;
        uint64_t most_cost = 0;
        for (size_t i = p->first[l]; i < p->first[l + 1]; i++) {
            most_value = p->choice[i].value > most_value ? p->choice[i].value : most_value;
            most_cost = p->choice[i].cost > most_cost ? p->choice[i].cost : most_cost;
        }
        if (most_value > LARGEST - value || !hs_add(cost, most_cost, &cost) || cost > LARGEST)
            return hs_fail(err, HS_ERR_FAILED, "class %u: the sums exceed 2^62", l);
        value += most_value;
    }
    return HS_OK;
}

/* The plan's value and bytes, looked up in the problem as it was given. */
static hs_status account_choices(const hs_choices *p, hs_solve_result *r, hs_err *err)
{
    r->n_groups = (uint32_t)(p->first[p->n_class] - p->n_class);
    for (uint32_t l = 0; l < p->n_class; l++) {
        size_t i = p->first[l];
        while (i < p->first[l + 1] && p->choice[i].k != r->groups[l])
            i++;
        if (i == p->first[l + 1])
            return hs_fail(err, HS_ERR_FAILED, "%s: class %u has no choice %u", r->source, l,
                           r->groups[l]);
        r->value += p->choice[i].value;
        r->bytes += p->choice[i].cost;
    }
    if (r->bytes > p->capacity || r->value > r->bound)
        return hs_fail(err, HS_ERR_FAILED,
                       "%s: the plan takes %" PRIu64 " of %" PRIu64 " bytes and is worth %" PRId64
                       ", proven to be at most %" PRId64,
                       r->source, r->bytes, p->capacity, r->value, r->bound);
    r->gap = hs_core_gap(r->value, r->bound);
    return HS_OK;
}

hs_status hs_solve_choices(const hs_choices *p, const hs_solve_params *q, hs_solve_result *r,
                           hs_err *err)
{
    const double start = hs_core_clock();
    *r = (hs_solve_result){.source = "exact", .status = "optimal", .glpk_bound = -1};
    hs_status s = check_params(q, err);
    if (s == HS_OK)
        s = screen_choices(p, err);
    if (s != HS_OK)
        return s;
    r->groups = calloc((size_t)p->n_class + 1, sizeof *r->groups);
    if (!r->groups)
        return hs_fail(err, HS_ERR_NOMEM, "solver: out of memory");
    s = search(p, NULL, start, q, r, err);
    if (s == HS_OK)
        s = account_choices(p, r, err);
    if (s != HS_OK)
        hs_solve_result_fini(r);
    r->seconds = hs_core_clock() - start;
    return s;
}

void hs_solve_result_fini(hs_solve_result *r)
{
    free(r->groups);
    r->groups = NULL;
}
