/* The exact method: dynamic programming over the classes (of an impact problem:
 * its layers), on losses.
 *
 * Round by round it looks for the best plan whose loss (see core.h) is at most delta.  A plan
 * found that way is the optimum, since every better one has a smaller loss; a round that finds
 * none proves that no plan loses less, and delta grows.  A small delta leaves few choices per
 * layer and few partial plans, which is what makes this fast. */
#include "tools/solver/core.h"

#include <stdlib.h>
#include <string.h>

/* Partial plans kept over all layers, and in one list while a layer is merged; 24 bytes each. */
enum { MAX_STATES = 1 << 22, MAX_LISTS = 64 };

/* A plan of the first layers. */
typedef struct state {
    uint64_t cost;
    int64_t value;
    uint32_t parent; /* in the list of one layer less */
    uint32_t choice; /* index in core->choice */
} state;

/* Rising in cost and in value: partial plans that cost no less for no more value are dropped. */
typedef struct list {
    state *s;
    size_t n;
} list;

typedef struct search {
    hs_core *core;
    uint32_t n_class;
    hs_wide delta;
    uint64_t *least, *most; /* [n_class + 1]: cost of the layers from l on, within delta */
    list *layer;            /* [n_class + 1]: the plans of the first l layers, for tracing back */
    size_t n_states;
} search;

static void drop_lists(search *x)
{
    for (uint32_t l = 0; l <= x->n_class; l++) {
        free(x->layer[l].s);
        x->layer[l] = (list){0};
    }
    x->n_states = 0;
}

/* The least and most that the layers from l on can still cost. */
static void cost_ranges(search *x)
{
    const hs_core *c = x->core;
    const uint32_t n = c->n_class;
    x->least[n] = x->most[n] = 0;
    for (uint32_t l = n; l-- > 0;) {
        uint64_t lo = UINT64_MAX, hi = 0;
        for (size_t i = c->first[l]; i < c->first[l + 1]; i++) {
            if (hs_core_loss(c, l, &c->choice[i]) > x->delta)
                continue;
            lo = c->choice[i].cost < lo ? c->choice[i].cost : lo;
            hi = c->choice[i].cost > hi ? c->choice[i].cost : hi;
        }
        x->least[l] = x->least[l + 1] + lo;
        x->most[l] = x->most[l + 1] + hi;
    }
}

/* Extend every partial plan by choice i of layer l; those that cannot end within capacity and
 * delta are left out.  `peaks`: of layers 0..l. */
static hs_status extend(const search *x, const list *in, uint32_t l, size_t i, hs_wide peaks,
                        list *out, hs_err *err)
{
    const hs_core *c = x->core;
    const hs_choice *o = &c->choice[i];
    const uint64_t rest_least = x->least[l + 1], rest_most = x->most[l + 1];
    out->n = 0;
    out->s = malloc((in->n ? in->n : 1) * sizeof *out->s);
    if (!out->s)
        return hs_fail(err, HS_ERR_NOMEM, "exact solver: out of memory");
    for (size_t j = 0; j < in->n; j++) {
        const uint64_t cost = in->s[j].cost + o->cost;
        const int64_t value = in->s[j].value + o->value;
        if (cost + rest_least > c->cap)
            break;
        hs_wide loss = peaks - ((hs_wide)value * c->price_q - (hs_wide)c->price_p * cost);
        if (cost + rest_most < c->cap)
            loss += (hs_wide)c->price_p * (c->cap - cost - rest_most);
        if (loss <= x->delta)
            out->s[out->n++] = (state){cost, value, (uint32_t)j, (uint32_t)i};
    }
    return HS_OK;
}

static void push(list *to, state s)
{
    if (to->n && to->s[to->n - 1].value >= s.value)
        return;
    if (to->n && to->s[to->n - 1].cost == s.cost)
        to->n--;
    to->s[to->n++] = s;
}

static hs_status too_many(hs_err *err)
{
    return hs_fail(err, HS_ERR_NOMEM, "exact solver: more than %d partial plans", MAX_STATES);
}

/* Both lists are consumed. */
static hs_status merge(list *a, list *b, list *out, hs_err *err)
{
    if (a->n + b->n > MAX_STATES)
        return too_many(err);
    out->n = 0;
    out->s = malloc((a->n + b->n + 1) * sizeof *out->s);
    if (!out->s)
        return hs_fail(err, HS_ERR_NOMEM, "exact solver: out of memory");
    size_t i = 0, j = 0;
    while (i < a->n || j < b->n) {
        const bool left = j == b->n || (i < a->n && a->s[i].cost <= b->s[j].cost);
        push(out, left ? a->s[i++] : b->s[j++]);
    }
    free(a->s);
    free(b->s);
    *a = *b = (list){0};
    return HS_OK;
}

/* Lists of one layer, merged like the digits of a binary counter, so that each partial plan is
 * copied a logarithmic number of times. */
typedef struct stack {
    list at[MAX_LISTS];
    uint32_t rank[MAX_LISTS];
    size_t n;
} stack;

static hs_status collapse(stack *t, bool all, hs_err *err)
{
    hs_status s = HS_OK;
    while (s == HS_OK && t->n > 1 && (all || t->rank[t->n - 1] == t->rank[t->n - 2])) {
        list m = {0};
        s = merge(&t->at[t->n - 2], &t->at[t->n - 1], &m, err);
        if (s == HS_OK) {
            t->at[--t->n - 1] = m;
            t->rank[t->n - 1]++;
        }
    }
    return s;
}

static hs_status add_layer(search *x, uint32_t l, hs_wide peaks, hs_err *err)
{
    const hs_core *c = x->core;
    stack t = {.n = 0};
    hs_status s = HS_OK;
    for (size_t i = c->first[l]; s == HS_OK && i < c->first[l + 1]; i++) {
        if (hs_core_loss(c, l, &c->choice[i]) > x->delta)
            continue;
        s = hs_core_tick(c, err);
        if (s == HS_OK)
            s = extend(x, &x->layer[l], l, i, peaks, &t.at[t.n], err);
        if (s != HS_OK)
            break;
        t.rank[t.n++] = 0;
        s = collapse(&t, false, err);
    }
    if (s == HS_OK)
        s = collapse(&t, true, err);
    if (s == HS_OK && t.n) {
        x->layer[l + 1] = t.at[0];
        t.n = 0;
    }
    for (size_t i = 0; i < t.n; i++)
        free(t.at[i].s);
    return s;
}

/* The best plan is the last of the last list. */
static hs_status trace(search *x, hs_err *err)
{
    hs_core *c = x->core;
    const uint32_t n = c->n_class;
    uint32_t *pick = calloc((size_t)n + 1, sizeof *pick);
    if (!pick)
        return hs_fail(err, HS_ERR_NOMEM, "exact solver: out of memory");
    size_t j = x->layer[n].n - 1;
    for (uint32_t l = n; l-- > 0;) {
        const state *s = &x->layer[l + 1].s[j];
        pick[l] = s->choice - (uint32_t)c->first[l];
        j = s->parent;
    }
    const bool ok = hs_core_offer(c, pick, "exact");
    free(pick);
    return ok ? HS_OK : hs_fail(err, HS_ERR_FAILED, "exact solver: the plan breaks the limits");
}

/* The best plan with a loss of at most delta, if there is one. */
static hs_status search_within(search *x, bool *found, hs_err *err)
{
    const uint32_t n = x->n_class;
    hs_wide peaks = 0;
    hs_status s = HS_OK;
    *found = false;
    cost_ranges(x);
    x->layer[0].s = calloc(1, sizeof *x->layer[0].s);
    if (!x->layer[0].s)
        return hs_fail(err, HS_ERR_NOMEM, "exact solver: out of memory");
    x->layer[0].n = 1;
    for (uint32_t l = 0; s == HS_OK && l < n && x->layer[l].n; l++) {
        peaks += x->core->peak[l];
        s = add_layer(x, l, peaks, err);
        x->n_states += x->layer[l + 1].n;
        if (s == HS_OK && x->n_states > MAX_STATES)
            s = too_many(err);
    }
    if (s == HS_OK && x->layer[n].n) {
        s = trace(x, err);
        *found = true;
    }
    drop_lists(x);
    return s;
}

/* q * (what a plan better than the best one may lose), negative when there can be none. */
static hs_wide slack(const hs_core *c) { return c->upper - ((hs_wide)c->value + 1) * c->price_q; }

static hs_status rounds(search *x, double gap, hs_core_end *end, hs_err *err)
{
    hs_core *c = x->core;
    hs_status s = HS_OK;
    x->delta = slack(c) / 1024;
    for (;;) {
        const hs_wide most = slack(c);
        if (most < 0 || c->value >= c->bound) {
            c->bound = c->value;
            *end = HS_END_OPTIMAL;
            return s;
        }
        if (hs_core_gap(c->value, c->bound) <= gap) {
            *end = HS_END_GAP;
            return s;
        }
        x->delta = x->delta < most ? x->delta : most;
        bool found;
        s = search_within(x, &found, err);
        if (s != HS_OK)
            return s;
        if (found || x->delta == most) {
            c->bound = c->value;
            *end = HS_END_OPTIMAL;
            return s;
        }
        /* No plan loses as little as delta. */
        const int64_t bound = (int64_t)((c->upper - x->delta - 1) / c->price_q);
        c->bound = bound < c->bound ? bound : c->bound;
        x->delta = 4 * x->delta + (hs_wide)c->price_q;
    }
}

hs_status hs_core_exact(hs_core *c, double gap, hs_core_end *end, hs_err *err)
{
    const size_t n = (size_t)c->n_class + 1;
    search x = {.core = c, .n_class = c->n_class};
    hs_err why = {0};
    *end = HS_END_OPTIMAL;
    x.least = calloc(n, sizeof *x.least);
    x.most = calloc(n, sizeof *x.most);
    x.layer = calloc(n, sizeof *x.layer);
    hs_status s = HS_OK;
    if (x.least && x.most && x.layer)
        s = rounds(&x, gap, end, &why);
    else
        s = hs_fail(&why, HS_ERR_NOMEM, "exact solver: out of memory");
    free(x.least);
    free(x.most);
    free(x.layer);
    /* Out of time or memory: the plan and the bound so far stand. */
    if (s == HS_OK)
        c->source = "exact"; /* also of a first plan that it proved */
    if (s == HS_ERR_NOSPACE || s == HS_ERR_NOMEM) {
        *end = s == HS_ERR_NOMEM ? HS_END_MEMORY : HS_END_TIME;
        return HS_OK;
    }
    return s == HS_OK ? s : hs_fail(err, s, "%s", why.msg);
}
