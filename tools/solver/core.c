/* The problem reduced to sensible choices, the Lagrangian bound, and a first plan. */
#include "tools/solver/core.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

double hs_core_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

hs_status hs_core_tick(const hs_core *c, hs_err *err)
{
    if (c->stop && c->stop())
        return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    if (hs_core_clock() >= c->deadline)
        return hs_fail(err, HS_ERR_NOSPACE, "out of time");
    return HS_OK;
}

double hs_core_gap(int64_t value, int64_t bound)
{
    return bound > value ? (double)(bound - value) / (double)bound : 0;
}

hs_wide hs_core_loss(const hs_core *c, uint32_t l, const hs_choice *o)
{
    return c->peak[l] - ((hs_wide)o->value * c->price_q - (hs_wide)c->price_p * o->cost);
}

/* ---- choices -------------------------------------------------------------------------------- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

static void find_unit(hs_core *c, const hs_choices *p)
{
    uint64_t total = 0;
    c->unit = 0;
    for (uint32_t l = 0; l < p->n_class; l++) {
        uint64_t most = 0;
        for (size_t i = p->first[l]; i < p->first[l + 1]; i++) {
            const uint64_t cost = p->choice[i].cost;
            c->unit = c->unit && cost % c->unit == 0 ? c->unit : gcd(cost, c->unit);
            most = cost > most ? cost : most;
        }
        total += most;
    }
    c->unit = c->unit ? c->unit : 1;
    c->cap = (p->capacity < total ? p->capacity : total) / c->unit;
}

static int cheapest_first(const void *a, const void *b)
{
    const hs_choice *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return (x->k > y->k) - (x->k < y->k);
}

/* The sensible ones of n choices, into `out`. */
static size_t list_choices(const hs_core *c, const hs_choice *in, size_t n, hs_choice *out)
{
    size_t m = 0;
    bool sorted = true;
    for (size_t i = 0; i < n; i++) {
        out[m] = (hs_choice){in[i].cost / c->unit, in[i].value, in[i].k};
        if (i && out[m].cost > c->cap)
            continue;
        sorted = sorted && (!m || cheapest_first(&out[m - 1], &out[m]) < 0);
        m++;
    }
    if (!sorted)
        qsort(out + 1, m - 1, sizeof *out, cheapest_first);
    size_t kept = 1;
    for (size_t i = 1; i < m; i++) {
        if (out[i].value <= out[kept - 1].value)
            continue;
        /* More value for the same bytes (a padded group) replaces; the empty choice stays. */
        if (kept > 1 && out[i].cost == out[kept - 1].cost)
            kept--;
        out[kept++] = out[i];
    }
    return kept;
}

/* ---- the price ------------------------------------------------------------------------------ */

/* A step along the concave hull of one class's choices. */
typedef struct step {
    long double rate; /* value per cost */
    int64_t value;
    uint64_t cost;
    uint32_t class;
    uint32_t to; /* index of the choice it leads to, within the class */
} step;

/* Rounding keeps the order of rates or makes them equal, so two steps of a class stay in order;
 * between classes any order gives a valid bound. */
static int best_step_first(const void *a, const void *b)
{
    const step *x = a, *y = b;
    if (x->rate != y->rate)
        return x->rate < y->rate ? 1 : -1;
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Two sorted runs as one. */
static void merge(const step *a, size_t n, const step *b, size_t m, step *out)
{
    size_t i = 0, j = 0;
    while (i < n && j < m)
        *out++ = best_step_first(&a[i], &b[j]) <= 0 ? a[i++] : b[j++];
    memcpy(out, i < n ? &a[i] : &b[j], (n - i + m - j) * sizeof *out);
}

/* The classes' steps, each sorted and `end` where it ends, as one sorted run: it is in the result,
 * which is s or tmp.  Merging sorted runs takes a third of what sorting takes. */
static step *merge_all(step *s, step *tmp, size_t *end, uint32_t n_runs)
{
    while (n_runs > 1) {
        size_t at = 0;
        uint32_t to = 0;
        for (uint32_t r = 0; r < n_runs; r += 2) {
            const size_t mid = end[r], last = r + 1 < n_runs ? end[r + 1] : mid;
            merge(s + at, mid - at, s + mid, last - mid, tmp + at);
            end[to++] = at = last;
        }
        n_runs = to;
        step *t = s;
        s = tmp;
        tmp = t;
    }
    return s;
}

static bool below_hull(const hs_choice *a, const hs_choice *mid, const hs_choice *b)
{
    return (hs_wide)(mid->value - a->value) * (b->cost - a->cost) <=
           (hs_wide)(b->value - a->value) * (mid->cost - a->cost);
}

static size_t hull_steps(const hs_choice *o, size_t n, uint32_t class, uint32_t *hull, step *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        while (m >= 2 && below_hull(&o[hull[m - 2]], &o[hull[m - 1]], &o[i]))
            m--;
        hull[m++] = (uint32_t)i;
    }
    for (size_t i = 1; i < m; i++) {
        const hs_choice *a = &o[hull[i - 1]], *b = &o[hull[i]];
        const int64_t value = b->value - a->value;
        const uint64_t cost = b->cost - a->cost;
        out[i - 1] = (step){(long double)value / (long double)cost, value, cost, class, hull[i]};
    }
    return m - 1;
}

static void price_and_bound(hs_core *c, const step *critical)
{
    c->price_p = critical ? critical->value : 0;
    c->price_q = critical ? critical->cost : 1;
    c->upper = (hs_wide)c->price_p * c->cap;
    for (uint32_t l = 0; l < c->n_class; l++) {
        hs_wide peak = 0;
        for (size_t i = c->first[l]; i < c->first[l + 1]; i++) {
            const hs_wide v =
                (hs_wide)c->choice[i].value * c->price_q - (hs_wide)c->price_p * c->choice[i].cost;
            peak = v > peak ? v : peak;
        }
        c->peak[l] = peak;
        c->upper += peak;
    }
    c->bound = (int64_t)(c->upper / c->price_q);
}

/* ---- the first plan ---------------------------------------------------------------------------
 */

/* Take steps while they fit; the first that does not sets the price and shuts its layer. */
static const step *walk(const step *s, size_t n, uint32_t *at, bool *shut, uint64_t *left)
{
    const step *critical = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!shut[s[i].class] && s[i].cost <= *left) {
            *left -= s[i].cost;
            at[s[i].class] = s[i].to;
        } else {
            critical = critical ? critical : &s[i];
            shut[s[i].class] = true;
        }
    }
    return critical;
}

/* Spend what is left on whatever choice adds most. */
static void fill_up(const hs_core *c, uint32_t *at, uint64_t left)
{
    for (;;) {
        int64_t most = 0;
        uint32_t class = 0, to = 0;
        for (uint32_t l = 0; l < c->n_class; l++) {
            const hs_choice *o = &c->choice[c->first[l]];
            const uint32_t n = (uint32_t)(c->first[l + 1] - c->first[l]);
            for (uint32_t i = at[l] + 1; i < n && o[i].cost - o[at[l]].cost <= left; i++)
                if (o[i].value - o[at[l]].value > most) {
                    most = o[i].value - o[at[l]].value;
                    class = l;
                    to = i;
                }
        }
        if (!most)
            return;
        const hs_choice *o = &c->choice[c->first[class]];
        left -= o[to].cost - o[at[class]].cost;
        at[class] = to;
    }
}

bool hs_core_offer(hs_core *c, const uint32_t *pick, const char *source)
{
    uint64_t cost = 0;
    int64_t value = 0;
    for (uint32_t l = 0; l < c->n_class; l++) {
        if (pick[l] >= c->first[l + 1] - c->first[l])
            return false;
        cost += c->choice[c->first[l] + pick[l]].cost;
        value += c->choice[c->first[l] + pick[l]].value;
    }
    if (cost > c->cap)
        return false;
    if (value > c->value || !c->source) {
        memcpy(c->pick, pick, c->n_class * sizeof *pick);
        c->value = value;
        c->source = source;
    }
    return true;
}

/* Price, bound and first plan from the hull's steps. */
static hs_status start(hs_core *c, hs_err *err)
{
    const uint32_t n_class = c->n_class;
    const size_t n = c->first[n_class];
    step *s = calloc(n + 1, sizeof *s), *tmp = calloc(n + 1, sizeof *tmp);
    size_t *end = malloc(((size_t)n_class + 1) * sizeof *end);
    uint32_t *hull = malloc((n + 1) * sizeof *hull), *at = calloc((size_t)n_class + 1, sizeof *at);
    bool *shut = calloc((size_t)n_class + 1, sizeof *shut);
    hs_status st = HS_OK;
    if (s && tmp && end && hull && at && shut) {
        size_t m = 0;
        for (uint32_t l = 0; l < n_class; l++) {
            m += hull_steps(&c->choice[c->first[l]], c->first[l + 1] - c->first[l], l, hull, s + m);
            end[l] = m;
        }
        const step *sorted = merge_all(s, tmp, end, n_class);
        uint64_t left = c->cap;
        price_and_bound(c, walk(sorted, m, at, shut, &left));
        fill_up(c, at, left);
        if (!hs_core_offer(c, at, "greedy"))
            st = hs_fail(err, HS_ERR_FAILED, "greedy: the plan breaks the limits");
    } else {
        st = hs_fail(err, HS_ERR_NOMEM, "solver: out of memory");
    }
    free(s);
    free(tmp);
    free(end);
    free(hull);
    free(at);
    free(shut);
    return st;
}

hs_status hs_core_new(hs_core **out, const hs_choices *p, hs_err *err)
{
    *out = NULL;
    hs_core *c = calloc(1, sizeof *c);
    if (!c)
        return hs_fail(err, HS_ERR_NOMEM, "solver: out of memory");
    const size_t n = (size_t)p->n_class + 1;
    c->n_class = p->n_class;
    c->glpk_bound = -1;
    c->choice = calloc(p->first[p->n_class] + 1, sizeof *c->choice);
    c->first = calloc(n, sizeof *c->first);
    c->peak = calloc(n, sizeof *c->peak);
    c->pick = calloc(n, sizeof *c->pick);
    hs_status s = HS_OK;
    if (c->choice && c->first && c->peak && c->pick) {
        find_unit(c, p);
        for (uint32_t l = 0; l < p->n_class; l++)
            c->first[l + 1] =
                c->first[l] + list_choices(c, &p->choice[p->first[l]],
                                           p->first[l + 1] - p->first[l], &c->choice[c->first[l]]);
        s = start(c, err);
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "solver: out of memory");
    }
    if (s != HS_OK) {
        hs_core_free(c);
        return s;
    }
    *out = c;
    return HS_OK;
}

void hs_core_free(hs_core *c)
{
    if (!c)
        return;
    free(c->choice);
    free(c->first);
    free(c->peak);
    free(c->pick);
    free(c);
}
