#ifndef HS_TESTS_UNIT_LATENCY_UTIL_H
#define HS_TESTS_UNIT_LATENCY_UTIL_H

/* Models that have a shape and no weights, profiles made from a seed, and a simulator with the
 * solver's cost model but activations drawn by lot for every token. */

#include "runtime/budget.h"
#include "tools/solver/baseline.h"
#include "tools/solver/latency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sim_rng {
    uint64_t s;
} sim_rng;

static inline uint64_t sim_next(sim_rng *r)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return r->s;
}

/* Uniform in (0, 1). */
static inline double sim_uniform(sim_rng *r)
{
    return ((double)(sim_next(r) >> 12) + 0.5) / 4503599627370496.0;
}

static inline double sim_normal(sim_rng *r)
{
    const double u = sim_uniform(r);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * sim_uniform(r));
}

typedef struct sim_shape {
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, n_vocab, rank; /* rank: of predictors */
    double active; /* mean share of neurons that are active */
} sim_shape;

static inline hs_mat sim_mat(uint32_t rows, uint32_t cols)
{
    static const uint8_t nothing[1] = {0};
    uint64_t bytes = 0;
    if (!rows || !hs_dtype_row_bytes(HS_Q4_0, cols, &bytes))
        return (hs_mat){0};
    return (hs_mat){nothing, HS_Q4_0, cols, rows, bytes};
}

static inline hs_model *sim_model(const sim_shape *s)
{
    hs_model *m = calloc(1, sizeof *m);
    hs_layer *layer = calloc(s->n_layer, sizeof *layer);
    if (!m || !layer)
        exit(1);
    const uint32_t head_dim = s->n_embd / s->n_head;
    *m = (hs_model){.fn = HS_FN_RELU,
                    .n_layer = s->n_layer,
                    .n_embd = s->n_embd,
                    .n_ff = s->n_ff,
                    .n_head = s->n_head,
                    .n_head_kv = s->n_head_kv,
                    .head_dim = head_dim,
                    .rope_dim = head_dim,
                    .n_vocab = s->n_vocab,
                    .has_predictors = s->rank > 0,
                    .output = sim_mat(s->n_vocab, s->n_embd),
                    .layer = layer};
    for (uint32_t l = 0; l < s->n_layer; l++)
        layer[l] = (hs_layer){.wq = sim_mat(s->n_embd, s->n_embd),
                              .wk = sim_mat(s->n_head_kv * head_dim, s->n_embd),
                              .wv = sim_mat(s->n_head_kv * head_dim, s->n_embd),
                              .wo = sim_mat(s->n_embd, s->n_embd),
                              .gate = sim_mat(s->n_ff, s->n_embd),
                              .up = sim_mat(s->n_ff, s->n_embd),
                              .down_t = sim_mat(s->n_ff, s->n_embd),
                              .fc1 = sim_mat(s->rank, s->n_embd),
                              .fc2 = sim_mat(s->rank ? s->n_ff : 0, s->rank)};
    return m;
}

static inline void sim_model_free(hs_model *m)
{
    free(m->layer);
    free(m);
}

/* Lognormal frequencies whose hottest 26 % give 80 % of the activations. */
static inline hs_activation *sim_profile(const sim_shape *s, uint64_t seed)
{
    hs_activation *a;
    uint32_t *n_ff = malloc(s->n_layer * sizeof *n_ff);
    sim_rng r = {seed};
    if (!n_ff)
        exit(1);
    for (uint32_t l = 0; l < s->n_layer; l++)
        n_ff[l] = s->n_ff;
    if (hs_activation_new(&a, s->n_layer, n_ff, NULL) != HS_OK)
        exit(1);
    free(n_ff);
    a->tokens = 1000000;
    const double sigma = 1.4849, centre = log(s->active) - sigma * sigma / 2;
    for (uint32_t l = 0; l < s->n_layer; l++)
        for (uint32_t i = 0; i < s->n_ff; i++)
            a->count[l][i] = (int64_t)(1e6 * fmin(1, exp(centre + sigma * sim_normal(&r))));
    return a;
}

/* All that a plan is made from. */
typedef struct sim_case {
    hs_model *m;
    hs_activation *profile;
    hs_plan_costs bytes;
    hs_cost cost;
    int32_t **order;
    uint64_t total; /* bytes of everything on the device */
} sim_case;

enum { SIM_CTX = 2048 };

static inline uint64_t sim_neurons(void *m, uint32_t l, uint32_t n)
{
    return hs_budget_neurons(m, l, n);
}

static inline void sim_case_init(sim_case *c, const sim_shape *s, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->m = sim_model(s);
    c->profile = sim_profile(s, seed);
    hs_plan_costs *b = &c->bytes;
    b->n_layer = s->n_layer;
    b->attn = calloc(3 * (size_t)s->n_layer, sizeof *b->attn);
    c->order = calloc(s->n_layer, sizeof *c->order);
    if (!b->attn || !c->order)
        exit(1);
    b->predictor = b->attn + s->n_layer;
    b->ffn_norm = b->predictor + s->n_layer;
    b->output = hs_budget_output(c->m);
    b->kv = hs_budget_kv(c->m, SIM_CTX, HS_F16);
    for (int i = 0; i < 4; i++)
        b->scratch[i / 2][i % 2] = hs_budget_scratch(c->m, SIM_CTX, i / 2, i % 2);
    c->total = b->output + b->scratch[1][1];
    for (uint32_t l = 0; l < s->n_layer; l++) {
        b->attn[l] = hs_budget_attn(c->m, l);
        b->predictor[l] = hs_budget_predictor(c->m, l);
        b->ffn_norm[l] = hs_budget_ffn_norm(c->m, l);
        c->total += b->attn[l] + b->predictor[l] + b->ffn_norm[l] + b->kv +
                    hs_budget_neurons(c->m, l, s->n_ff);
        c->order[l] = malloc(s->n_ff * sizeof **c->order);
        if (!c->order[l] ||
            hs_solve_order(c->profile->count[l], s->n_ff, c->order[l], NULL) != HS_OK)
            exit(1);
    }
}

static inline void sim_case_machine(sim_case *c, const hs_machine *machine, uint32_t batch)
{
    const hs_cost_params p = {
        .machine = machine, .n_ctx = SIM_CTX, .kv_type = HS_F16, .batch = batch};
    hs_err err = {0};
    hs_cost_fini(&c->cost);
    if (hs_cost_init(&c->cost, c->m, c->profile, &p, &err) != HS_OK) {
        printf("%s\n", err.msg);
        exit(1);
    }
}

static inline void sim_case_fini(sim_case *c)
{
    for (uint32_t l = 0; l < c->m->n_layer; l++)
        free(c->order[l]);
    free(c->order);
    hs_cost_fini(&c->cost);
    hs_plan_costs_fini(&c->bytes);
    hs_activation_free(c->profile);
    sim_model_free(c->m);
}

static inline hs_latency_problem sim_latency(const sim_case *c, uint64_t budget)
{
    return (hs_latency_problem){.cost = &c->cost,
                                .bytes = &c->bytes,
                                .neurons = sim_neurons,
                                .neurons_ud = c->m,
                                .budget = budget,
                                .group = 64,
                                .order = c->order};
}

static inline hs_placement *sim_placement(const sim_case *c)
{
    hs_placement *p;
    if (hs_placement_new(&p, c->m->n_layer, c->profile->n_ff, NULL) != HS_OK)
        exit(1);
    p->n_ctx = SIM_CTX;
    p->kv_type = HS_F16;
    return p;
}

/* The impact plan for this machine: dense blocks first, and of every layer no neurons or as many
 * as pay for their synchronisation. */
static inline hs_placement *sim_impact(const sim_case *c, uint64_t budget)
{
    hs_placement *p = sim_placement(c);
    hs_solve_problem *q;
    hs_solve_result r;
    const hs_solve_params how = {.time_limit = 30};
    const uint64_t left = hs_plan_dense(&c->bytes, budget, p);
    if (hs_solve_problem_new(&q, c->m->n_layer, left, NULL) != HS_OK)
        exit(1);
    for (uint32_t l = 0; l < c->m->n_layer; l++)
        if (hs_solve_problem_layer(q, l, c->m->n_ff, c->profile->count[l], c->order[l], 64,
                                   hs_cost_least(&c->cost, l, c->order[l]), sim_neurons, c->m,
                                   NULL) != HS_OK)
            exit(1);
    if (hs_solve(q, &how, &r, NULL) != HS_OK)
        exit(1);
    for (uint32_t l = 0; l < c->m->n_layer; l++) {
        const uint32_t n = r.groups[l] * 64;
        if (hs_placement_set(p, l, c->order[l], n < c->m->n_ff ? n : c->m->n_ff, NULL) != HS_OK)
            exit(1);
    }
    hs_solve_result_fini(&r);
    hs_solve_problem_free(q);
    return p;
}

/* One token's activations: a neuron is active by its frequency times its layer's liveliness for
 * this token, 0.7 to 1.3. */
static inline void sim_token(const sim_case *c, sim_rng *r, uint8_t *active)
{
    for (uint32_t l = 0; l < c->m->n_layer; l++) {
        const double lively = (0.7 + 0.6 * sim_uniform(r)) / (double)c->profile->tokens;
        for (uint32_t i = 0; i < c->m->n_ff; i++)
            active[(size_t)l * c->m->n_ff + i] =
                sim_uniform(r) < lively * (double)c->profile->count[l][i];
    }
}

/* Seconds of that token under a placement. */
static inline double sim_step(const sim_case *c, const hs_placement *p, const uint8_t *active)
{
    double sum = hs_cost_output(&c->cost, p->output);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        const hs_cost_layer *t = &c->cost.layer[l];
        const uint8_t *a = active + (size_t)l * y->n_ff;
        uint32_t all = 0, here = 0;
        for (uint32_t i = 0; i < y->n_ff; i++)
            all += a[i];
        for (uint32_t i = 0; i < y->n_device; i++)
            here += a[y->neuron[i]];
        sum += hs_cost_attn(&c->cost, l, y->attn, y->kv);
        sum += hs_cost_ffn(&c->cost, l, y->predictor, y->ffn_norm, y->n_device > 0,
                           y->n_device * t->always[HS_ON_DEVICE] + here * t->active[HS_ON_DEVICE],
                           (y->n_ff - y->n_device) * t->always[HS_ON_CPU] +
                               (all - here) * t->active[HS_ON_CPU]);
    }
    return sum;
}

#endif
