/* The latency objective as a problem of choices.  The working buffers depend on all of the plan
 * (is the head on the device, is any KV cache), so there are four problems; one whose bound is no
 * more than the best plan so far is left at that. */
#include "tools/solver/latency.h"

#include "tools/solver/core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where an FFN's dense blocks are. */
enum { V_HOST, V_PREDICTOR, V_PREDICTOR_NORM, N_VARIANTS };
/* Where attention is. */
enum { A_HOST, A_ATTN, A_KV, N_ATTN };

/* Class l is layer l's attention, class n_layer + l its FFN; an FFN's choices are named
 * groups * N_VARIANTS + variant. */
typedef struct builder {
    const hs_latency_problem *x;
    hs_choices c;
    double *share;  /* [n_groups + 1]: of a layer's hottest groups together */
    hs_choice *run; /* [N_VARIANTS][n_groups + 1] */
    uint32_t n_groups;
    double cpu_s;
    int64_t head; /* saved by the head on the device */
    int64_t most; /* saved when memory is no object */
} builder;

static const double picos = 1e12;

static int64_t saved(double before, double after)
{
    return (int64_t)llround((before - after) * picos);
}

static int64_t at_most(int64_t known, int64_t bound) { return bound > known ? bound : known; }

static void add(builder *b, size_t *at, uint64_t cost, int64_t value, uint32_t name)
{
    b->c.choice[(*at)++] = (hs_choice){cost, value, name};
}

static void add_attention(builder *b, uint32_t l, size_t *at)
{
    const hs_latency_problem *x = b->x;
    const double host = hs_cost_attn(x->cost, l, false, false);
    b->cpu_s += host;
    add(b, at, 0, 0, A_HOST);
    if (!hs_plan_mine(x->bytes, l))
        return;
    add(b, at, x->bytes->attn[l], saved(host, hs_cost_attn(x->cost, l, true, false)), A_ATTN);
    add(b, at, x->bytes->attn[l] + x->bytes->kv, saved(host, hs_cost_attn(x->cost, l, true, true)),
        A_KV);
}

static void sum_shares(builder *b, uint32_t l)
{
    const hs_latency_problem *x = b->x;
    const float *share = x->cost->layer[l].share;
    double sum = 0;
    b->share[0] = 0;
    for (uint32_t i = 0; i < x->cost->n_ff; i++) {
        sum += (double)share[x->order[l][i]];
        b->share[i / x->group + 1] = sum;
    }
}

static uint32_t neurons_of(const builder *b, uint32_t k)
{
    const uint64_t n = (uint64_t)k * b->x->group;
    return n < b->x->cost->n_ff ? (uint32_t)n : b->x->cost->n_ff;
}

static double ffn_s(const builder *b, uint32_t l, uint32_t k, int variant)
{
    const hs_cost *c = b->x->cost;
    const hs_cost_layer *y = &c->layer[l];
    const uint32_t n = neurons_of(b, k);
    const double here = n * y->always[HS_ON_DEVICE] + b->share[k] * y->active[HS_ON_DEVICE];
    const double there = (c->n_ff - n) * y->always[HS_ON_CPU] +
                         (b->share[b->n_groups] - b->share[k]) * y->active[HS_ON_CPU];
    return hs_cost_ffn(c, l, variant != V_HOST, variant == V_PREDICTOR_NORM, k > 0, here, there);
}

static int cheapest_first(const hs_choice *x, const hs_choice *y)
{
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return (x->k > y->k) - (x->k < y->k);
}

/* One variant's choices, rising in cost; `run` has room for n_groups + 1. */
static size_t list_variant(const builder *b, uint32_t l, int variant, double host, hs_choice *run)
{
    const hs_latency_problem *x = b->x;
    const uint64_t dense = (variant != V_HOST ? x->bytes->predictor[l] : 0) +
                           (variant == V_PREDICTOR_NORM ? x->bytes->ffn_norm[l] : 0);
    size_t n = 0;
    for (uint32_t k = variant == V_HOST; k <= b->n_groups; k++) {
        const uint32_t neurons = neurons_of(b, k);
        if (k && (x->no_neurons || neurons < x->min_neurons))
            continue;
        const uint64_t bytes = dense + (k ? x->neurons(x->neurons_ud, l, neurons) : 0);
        run[n++] = (hs_choice){bytes, saved(host, ffn_s(b, l, k, variant)),
                               k * N_VARIANTS + (uint32_t)variant};
    }
    return n;
}

/* The variants' lists as one, cheapest first; the four problems share it, so what no plan takes is
 * left out once. */
static void add_ffn(builder *b, uint32_t l, size_t *at)
{
    const hs_latency_problem *x = b->x;
    const bool predictor = x->bytes->predictor[l] > 0 && x->cost->layer[l].predictor[HS_ON_CPU] > 0;
    const int n_variants = !hs_plan_mine(x->bytes, l) ? 0 : predictor ? N_VARIANTS : 1;
    const hs_choice *head[N_VARIANTS], *end[N_VARIANTS];
    sum_shares(b, l);
    const double host = ffn_s(b, l, 0, V_HOST);
    b->cpu_s += host;
    for (int v = 0; v < n_variants; v++) {
        hs_choice *run = b->run + (size_t)v * ((size_t)b->n_groups + 1);
        head[v] = run;
        end[v] = run + list_variant(b, l, v, host, run);
    }
    const size_t start = *at;
    add(b, at, 0, 0, 0);
    for (;;) {
        int first = -1;
        for (int v = 0; v < n_variants; v++)
            if (head[v] < end[v] && (first < 0 || cheapest_first(head[v], head[first]) < 0))
                first = v;
        if (first < 0)
            return;
        const hs_choice *o = head[first]++;
        if (o->value <= b->c.choice[*at - 1].value)
            continue;
        /* More for the same bytes, by alignment, takes the place; nothing stays. */
        if (*at - 1 > start && b->c.choice[*at - 1].cost == o->cost)
            --*at;
        b->c.choice[(*at)++] = *o;
    }
}

static hs_status build(builder *b, hs_err *err)
{
    const hs_latency_problem *x = b->x;
    const uint32_t n_layer = x->cost->n_layer;
    b->n_groups = x->cost->n_ff / x->group + (x->cost->n_ff % x->group != 0);
    b->c.n_class = 2 * n_layer;
    b->c.first = calloc((size_t)b->c.n_class + 1, sizeof *b->c.first);
    b->c.choice = calloc((size_t)n_layer * (N_ATTN + N_VARIANTS * ((size_t)b->n_groups + 1)) + 1,
                         sizeof *b->c.choice);
    b->share = calloc((size_t)b->n_groups + 1, sizeof *b->share);
    b->run = calloc(N_VARIANTS * ((size_t)b->n_groups + 1), sizeof *b->run);
    if (!b->c.first || !b->c.choice || !b->share || !b->run)
        return hs_fail(err, HS_ERR_NOMEM, "latency problem: out of memory");
    b->cpu_s = hs_cost_output(x->cost, false);
    b->head = x->bytes->no_output ? 0 : saved(b->cpu_s, hs_cost_output(x->cost, true));
    size_t at = 0;
    for (uint32_t l = 0; l < n_layer; l++) {
        add_attention(b, l, &at);
        b->c.first[l + 1] = at;
    }
    for (uint32_t l = 0; l < n_layer; l++) {
        add_ffn(b, l, &at);
        b->c.first[n_layer + l + 1] = at;
    }
    b->most = b->head > 0 ? b->head : 0;
    for (uint32_t l = 0; l < b->c.n_class; l++) {
        int64_t most = 0;
        for (size_t i = b->c.first[l]; i < b->c.first[l + 1]; i++)
            most = at_most(most, b->c.choice[i].value);
        b->most += most;
    }
    if (!isfinite(b->cpu_s) || b->cpu_s > 1e6)
        return hs_fail(err, HS_ERR_FAILED, "the predicted time of a step is %g s", b->cpu_s);
    return HS_OK;
}

hs_status hs_latency_choices(const hs_latency_problem *x, hs_choices *out, int64_t *head,
                             hs_err *err)
{
    builder b = {.x = x};
    const hs_status s = build(&b, err);
    free(b.share);
    free(b.run);
    if (s != HS_OK) {
        free(b.c.first);
        free(b.c.choice);
        b.c = (hs_choices){0};
    }
    *out = b.c;
    *head = b.head;
    return s;
}

/* ---- the four problems ------------------------------------------------------------------------
 */

typedef struct variant {
    bool output, kv;
} variant;

/* The choices as variant v allows them; false when not even its head and buffers fit. */
static bool restrict_to(builder *b, const variant *v)
{
    const hs_latency_problem *x = b->x;
    const uint64_t fixed = x->bytes->scratch[v->output][v->kv] + (v->output ? x->bytes->output : 0);
    if (fixed > x->budget || (v->output && x->bytes->no_output))
        return false;
    b->c.capacity = x->budget - fixed;
    for (uint32_t l = 0; l < x->cost->n_layer; l++) {
        if (!hs_plan_mine(x->bytes, l))
            continue;
        hs_choice *o = &b->c.choice[b->c.first[l] + A_KV];
        o->value = v->kv ? saved(hs_cost_attn(x->cost, l, false, false),
                                 hs_cost_attn(x->cost, l, true, true))
                         : -1;
    }
    return true;
}

static hs_status apply(const builder *b, const variant *v, const uint32_t *name, hs_placement *p,
                       hs_err *err)
{
    const uint32_t n_layer = b->x->cost->n_layer;
    p->output = v->output;
    for (uint32_t l = 0; l < n_layer; l++) {
        hs_placement_layer *y = &p->layer[l];
        const uint32_t ffn = name[n_layer + l], where = ffn % N_VARIANTS;
        y->attn = name[l] != A_HOST;
        y->kv = name[l] == A_KV;
        y->predictor = where != V_HOST;
        y->ffn_norm = where == V_PREDICTOR_NORM;
        const hs_status s =
            hs_placement_set(p, l, b->x->order[l], neurons_of(b, ffn / N_VARIANTS), err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

/* `best` takes over r when it is better; what is known of the others stays. */
static void keep_better(hs_solve_result *best, hs_solve_result *r, int64_t extra)
{
    const int64_t value = r->value + extra;
    if (strcmp(r->status, "optimal") != 0 && strcmp(r->status, "beaten") != 0)
        best->status = r->status;
    if (r->note[0])
        memcpy(best->note, r->note, sizeof best->note);
    best->n_groups = r->n_groups;
    if (value > best->value) {
        best->value = value;
        best->bytes = r->bytes;
        best->source = r->source;
        best->undecided = r->undecided;
        best->glpk_bound = r->glpk_bound < 0 ? -1 : r->glpk_bound + extra;
    }
}

/* `name`: the best plan's choices, which begin as none; `where`: whose they are. */
static hs_status solve_variants(builder *b, const hs_solve_params *q, uint32_t *name,
                                variant *where, hs_solve_result *best, hs_err *err)
{
    const double until = hs_core_clock() + q->time_limit, cpu = b->cpu_s * picos;
    for (int i = 3; i >= 0; i--) {
        const variant v = {i / 2, i % 2};
        if (!restrict_to(b, &v))
            continue;
        const int64_t extra = v.output ? b->head : 0;
        hs_solve_params here = *q;
        /* The gap that is asked for is relative to the time, the solver's to the saving: at most
         * all of it, so that this is on the safe side. */
        here.gap = q->gap * fmax(cpu - (double)b->most, 0) / cpu;
        here.floor = best->value - extra;
        here.time_limit = fmax(until - hs_core_clock(), 1e-3);
        hs_solve_result r;
        const hs_status s = hs_solve_choices(&b->c, &here, &r, err);
        if (s != HS_OK)
            return s;
        if (r.value + extra > best->value) {
            memcpy(name, r.groups, b->c.n_class * sizeof *name);
            *where = v;
        }
        best->lagrange_bound = at_most(best->lagrange_bound, r.lagrange_bound + extra);
        best->bound = at_most(best->bound, r.bound + extra);
        keep_better(best, &r, extra);
        hs_solve_result_fini(&r);
    }
    best->bound = at_most(best->value, best->bound);
    return HS_OK;
}

hs_status hs_latency_solve(const hs_latency_problem *x, const hs_solve_params *q, hs_placement *p,
                           hs_latency_result *out, hs_err *err)
{
    const double start = hs_core_clock();
    builder b = {.x = x};
    variant where = {.output = false};
    uint32_t *name = calloc(2 * (size_t)x->cost->n_layer + 1, sizeof *name);
    *out = (hs_latency_result){.solve = {.source = "exact", .status = "optimal", .glpk_bound = -1}};
    hs_status s =
        name ? build(&b, err) : hs_fail(err, HS_ERR_NOMEM, "latency problem: out of memory");
    if (s == HS_OK)
        s = solve_variants(&b, q, name, &where, &out->solve, err);
    out->solve.seconds = hs_core_clock() - start;
    if (s == HS_OK)
        s = apply(&b, &where, name, p, err);
    free(name);
    free(b.c.first);
    free(b.c.choice);
    free(b.share);
    free(b.run);
    if (s != HS_OK)
        return s;
    hs_solve_result *r = &out->solve;
    out->cpu_s = b.cpu_s;
    out->step_s = b.cpu_s - (double)r->value / picos;
    out->bound_s = fmax(b.cpu_s - (double)r->bound / picos, 0);
    out->gap =
        r->bound > r->value && out->step_s > 0 ? (out->step_s - out->bound_s) / out->step_s : 0;
    r->gap = out->gap;
    if (r->value >= r->bound)
        r->status = "optimal";
    return HS_OK;
}
