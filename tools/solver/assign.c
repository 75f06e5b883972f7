/* Layers to devices: local search on fractional optima, and the bound with a price a device. */
#include "tools/solver/assign.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- curves --------------------------------------------------------------------------------- */

hs_status hs_assign_new(hs_assign_problem *p, uint32_t n_item, uint32_t n_device, hs_err *err)
{
    *p = (hs_assign_problem){.n_item = n_item, .n_device = n_device};
    p->fixed = calloc((size_t)n_item + 1, sizeof *p->fixed);
    p->curve = calloc((size_t)n_item * n_device + 1, sizeof *p->curve);
    if (p->fixed && p->curve)
        return HS_OK;
    hs_assign_fini(p);
    return hs_fail(err, HS_ERR_NOMEM, "layers to devices: out of memory");
}

void hs_assign_fini(hs_assign_problem *p)
{
    for (size_t i = 0; p->curve && i < (size_t)p->n_item * p->n_device; i++)
        free(p->curve[i].cost);
    free(p->curve);
    free(p->fixed);
    *p = (hs_assign_problem){0};
}

static int cheapest_first(const void *a, const void *b)
{
    const hs_choice *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return (x->value < y->value) - (x->value > y->value);
}

static bool below(const hs_choice *a, const hs_choice *mid, const hs_choice *b)
{
    return (double)(mid->value - a->value) * (double)(b->cost - a->cost) <=
           (double)(b->value - a->value) * (double)(mid->cost - a->cost);
}

/* The rising part of the concave hull of n choices, of which the first is the origin; in place. */
static size_t hull(hs_choice *o, size_t n)
{
    size_t m = 1;
    qsort(o + 1, n - 1, sizeof *o, cheapest_first);
    for (size_t i = 1; i < n; i++) {
        if (o[i].value <= o[m - 1].value)
            continue;
        while (m >= 2 && below(&o[m - 2], &o[m - 1], &o[i]))
            m--;
        /* What costs nothing and is worth something moves the origin, and would be no curve. */
        if (o[i].cost > o[m - 1].cost)
            o[m++] = o[i];
    }
    return m;
}

typedef struct step {
    double rate, cost, value;
} step;

static int best_first(const void *a, const void *b)
{
    const step *x = a, *y = b;
    return (x->rate < y->rate) - (x->rate > y->rate);
}

static hs_status lay_curve(hs_assign_curve *c, step *s, size_t n, hs_err *err)
{
    qsort(s, n, sizeof *s, best_first);
    c->cost = malloc((3 * n + 1) * sizeof *c->cost);
    if (!c->cost)
        return hs_fail(err, HS_ERR_NOMEM, "layers to devices: out of memory");
    c->n = n;
    c->value = c->cost + n;
    c->rate = c->value + n;
    double cost = 0, value = 0;
    for (size_t i = 0; i < n; i++) {
        c->cost[i] = cost += s[i].cost;
        c->value[i] = value += s[i].value;
        c->rate[i] = s[i].rate;
    }
    return HS_OK;
}

hs_status hs_assign_item(hs_assign_problem *p, uint32_t d, uint32_t i, const hs_choice *choice,
                         const size_t *first, uint32_t n_class, hs_err *err)
{
    const size_t n = first[n_class] - first[0];
    hs_choice *o = malloc((n + 1) * sizeof *o);
    step *s = malloc((n + 1) * sizeof *s);
    size_t steps = 0;
    hs_status st = HS_OK;
    if (o && s) {
        for (uint32_t c = 0; c < n_class; c++) {
            const size_t of = first[c + 1] - first[c];
            memcpy(o, &choice[first[c]], of * sizeof *o);
            const size_t m = of ? hull(o, of) : 0;
            for (size_t k = 1; k < m; k++) {
                const double cost = (double)(o[k].cost - o[k - 1].cost);
                const double value = (double)(o[k].value - o[k - 1].value);
                s[steps++] = (step){value / cost, cost, value};
            }
        }
        st = lay_curve(&p->curve[(size_t)d * p->n_item + i], s, steps, err);
    } else {
        st = hs_fail(err, HS_ERR_NOMEM, "layers to devices: out of memory");
    }
    free(o);
    free(s);
    return st;
}

/* ---- what a device makes of its items ----------------------------------------------------------
 */

static const hs_assign_curve *curve(const hs_assign_problem *p, uint32_t d, uint32_t i)
{
    return &p->curve[(size_t)d * p->n_item + i];
}

/* max over the curve of value - price * cost; *cost: where. */
static double conjugate(const hs_assign_curve *c, double price, double *cost)
{
    size_t lo = 0, hi = c->n; /* the steps before lo are worth more than the price */
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (c->rate[mid] > price)
            lo = mid + 1;
        else
            hi = mid;
    }
    *cost = lo ? c->cost[lo - 1] : 0;
    return lo ? c->value[lo - 1] - price * *cost : 0;
}

typedef struct shelf {
    double value, price; /* the fractional optimum and its price per byte */
} shelf;

static double lagrange(const hs_assign_problem *p, const uint8_t *device, uint32_t d, double price,
                       double *used, double *room)
{
    double sum = 0;
    *used = 0;
    *room = p->capacity[d];
    for (uint32_t i = 0; i < p->n_item; i++)
        if (device[i] == d) {
            double cost;
            sum += conjugate(curve(p, d, i), price, &cost);
            *used += cost;
            *room -= p->fixed[i];
        }
    return sum + price * *room;
}

static shelf fill(const hs_assign_problem *p, const uint8_t *device, uint32_t d)
{
    double lo = 0, hi = 0, used, room;
    shelf s = {.value = lagrange(p, device, d, 0, &used, &room)};
    if (room < 0) /* fixed parts that do not fit: better than nothing only if all are so */
        return (shelf){1e12 * room, 0};
    if (used <= room)
        return s;
    for (uint32_t i = 0; i < p->n_item; i++)
        if (device[i] == d && curve(p, d, i)->n)
            hi = fmax(hi, curve(p, d, i)->rate[0]);
    for (int k = 0; k < 60 && hi - lo > 1e-13 * hi; k++) {
        const double mid = (lo + hi) / 2;
        lagrange(p, device, d, mid, &used, &room);
        if (used > room)
            lo = mid;
        else
            hi = mid;
    }
    return (shelf){lagrange(p, device, d, hi, &used, &room), hi};
}

/* ---- searching --------------------------------------------------------------------------------
 */

typedef struct search {
    const hs_assign_problem *p;
    uint8_t *device;
    shelf at[HS_ASSIGN_DEVICES];
    uint32_t improved;
} search;

/* Layers in order, each device its share of them by capacity. */
static void contiguous(search *s)
{
    const hs_assign_problem *p = s->p;
    double all = 0, before = 0;
    for (uint32_t d = 0; d < p->n_device; d++)
        all += p->capacity[d];
    for (uint32_t i = 0, d = 0; i < p->n_item; i++) {
        while (d + 1 < p->n_device && (i + 0.5) / p->n_item * all >= before + p->capacity[d])
            before += p->capacity[d++];
        s->device[i] = (uint8_t)d;
    }
    for (uint32_t d = 0; d < p->n_device; d++)
        s->at[d] = fill(p, s->device, d);
}

/* With its price kept a device's value after giving `out` away and taking `in` (or none, n_item)
 * is at least its new optimum. */
static double most(const search *s, uint32_t d, uint32_t out, uint32_t in)
{
    const hs_assign_problem *p = s->p;
    double cost, v = s->at[d].value;
    if (v < 0)
        return HUGE_VAL;
    if (out < p->n_item)
        v -= conjugate(curve(p, d, out), s->at[d].price, &cost) - s->at[d].price * p->fixed[out];
    if (in < p->n_item)
        v += conjugate(curve(p, d, in), s->at[d].price, &cost) - s->at[d].price * p->fixed[in];
    return v;
}

/* Exchange i for j (n_item: for nothing) with device b's, if that is better. */
static bool exchange(search *s, uint32_t i, uint32_t j, uint32_t b)
{
    const uint32_t a = s->device[i];
    const double now = s->at[a].value + s->at[b].value, least = now + 1e-9 * fabs(now);
    if (most(s, a, i, j) + most(s, b, j, i) <= least)
        return false;
    s->device[i] = (uint8_t)b;
    if (j < s->p->n_item)
        s->device[j] = (uint8_t)a;
    const shelf na = fill(s->p, s->device, a), nb = fill(s->p, s->device, b);
    if (na.value + nb.value > least) {
        s->at[a] = na;
        s->at[b] = nb;
        s->improved++;
        return true;
    }
    s->device[i] = (uint8_t)a;
    if (j < s->p->n_item)
        s->device[j] = (uint8_t)b;
    return false;
}

static void improve(search *s)
{
    enum { PASSES = 20 };
    const uint32_t n = s->p->n_item;
    bool more = true;
    for (int pass = 0; more && pass < PASSES; pass++) {
        more = false;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t b = 0; b < s->p->n_device; b++)
                more |= b != s->device[i] && exchange(s, i, n, b);
        for (uint32_t i = 0; !more && i < n; i++)
            for (uint32_t j = i + 1; j < n; j++)
                more |= s->device[i] != s->device[j] && exchange(s, i, j, s->device[j]);
    }
}

/* ---- the bound ---------------------------------------------------------------------------------
 */

/* The bound for prices; slope[d]: what a higher price of d changes it by. */
static double bound_at(const hs_assign_problem *p, const double *price, double *slope)
{
    double sum = 0;
    for (uint32_t d = 0; d < p->n_device; d++) {
        sum += price[d] * p->capacity[d];
        slope[d] = p->capacity[d];
    }
    for (uint32_t i = 0; i < p->n_item; i++) {
        double top = -HUGE_VAL, taken = 0;
        uint32_t at = 0;
        for (uint32_t d = 0; d < p->n_device; d++) {
            double cost;
            const double v = conjugate(curve(p, d, i), price[d], &cost) - price[d] * p->fixed[i];
            if (v > top) {
                top = v;
                at = d;
                taken = cost + p->fixed[i];
            }
        }
        sum += top;
        slope[at] -= taken;
    }
    return sum;
}

/* Subgradient steps from the prices of the plan that was found; any prices give a bound. */
static double least_bound(const search *s, double target)
{
    enum { STEPS = 3000 };
    const hs_assign_problem *p = s->p;
    double price[HS_ASSIGN_DEVICES], slope[HS_ASSIGN_DEVICES];
    for (uint32_t d = 0; d < p->n_device; d++)
        price[d] = s->at[d].price;
    double best = bound_at(p, price, slope), shrink = 1;
    for (int k = 0; k < STEPS && best - target > 1e-12 * fabs(best); k++) {
        const double v = bound_at(p, price, slope);
        double norm = 0;
        for (uint32_t d = 0; d < p->n_device; d++)
            norm += slope[d] * slope[d];
        shrink = v < best ? shrink : shrink * 0.99;
        best = fmin(best, v);
        if (norm <= 0)
            break;
        /* Polyak's step towards the value of the plan. */
        const double by = shrink * (v - target) / norm;
        for (uint32_t d = 0; d < p->n_device; d++)
            price[d] = fmax(0, price[d] - by * slope[d]);
    }
    return best + 1e-11 * fabs(best);
}

/* ---- all of them --------------------------------------------------------------------------------
 */

static bool few(const hs_assign_problem *p)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < p->n_item && n <= HS_ASSIGN_TRY_ALL; i++)
        n *= p->n_device;
    return n <= HS_ASSIGN_TRY_ALL;
}

static bool next(const hs_assign_problem *p, uint8_t *device)
{
    uint32_t i = 0;
    while (i < p->n_item && ++device[i] == p->n_device)
        device[i++] = 0;
    return i < p->n_item;
}

static hs_status try_all(const hs_assign_problem *p, hs_assign_fn exact, void *ud, uint8_t *best,
                         hs_assign_result *r, hs_err *err)
{
    uint8_t *device = calloc((size_t)p->n_item + 1, sizeof *device);
    if (!device)
        return hs_fail(err, HS_ERR_NOMEM, "layers to devices: out of memory");
    int64_t top = 0;
    hs_status s = exact(ud, best, &top, err);
    r->tried = 1;
    do {
        double upper = 0;
        bool fits = true;
        for (uint32_t d = 0; d < p->n_device; d++) {
            const shelf f = fill(p, device, d);
            fits = fits && f.value >= 0;
            upper += f.value;
        }
        int64_t v = 0;
        if (s != HS_OK || (fits && upper * (1 + 1e-12) < (double)top + 0.5))
            continue;
        s = exact(ud, device, &v, err);
        r->tried++;
        if (s == HS_OK && v > top) {
            top = v;
            memcpy(best, device, p->n_item * sizeof *best);
        }
    } while (next(p, device));
    free(device);
    r->proven = true;
    r->bound = (double)top;
    return s;
}

hs_status hs_assign_solve(const hs_assign_problem *p, hs_assign_fn exact, void *ud, uint8_t *device,
                          hs_assign_result *r, hs_err *err)
{
    search s = {.p = p, .device = device};
    *r = (hs_assign_result){.bound = 0};
    contiguous(&s);
    improve(&s);
    r->improved = s.improved;
    if (few(p))
        return try_all(p, exact, ud, device, r, err);
    double sum = 0;
    for (uint32_t d = 0; d < p->n_device; d++)
        sum += s.at[d].value;
    r->bound = least_bound(&s, sum);
    return HS_OK;
}
