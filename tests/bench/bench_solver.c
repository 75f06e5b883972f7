/* The 70B shape, made from a seed: 80 layers of 28,672 neurons, lognormal activation counts whose
 * hottest 26 % give 80 % of all activations, Q4_0.  For budgets of 5, 10, 25 and 50 % of the FFN
 * and minimums of 0 to 4,096 neurons a layer: what hotset-solve does (groups of 64), what GLPK
 * alone reaches in a second, and PowerInfer's formulation (groups of
 * 256, no minimum), whose plan is then held against the minimum. */
#include "tools/solver/core.h"
#include "tools/solver/solve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_LAYER = 80, N_FF = 28672, N_EMBD = 8192 };

/* The share of the hottest 26 % of a lognormal distribution is Phi(sigma - 0.6433). */
static const double sigma = 1.4849, glpk_seconds = 1;

static uint64_t seed = 20240607;

/* Uniform in (0, 1]. */
static double uniform(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((double)(seed >> 11) + 1) / 9007199254740993.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

typedef struct shape {
    int64_t *count; /* [N_LAYER][N_FF] */
    int32_t *order; /* [N_LAYER][N_FF] */
    double sort_s;
    bool mixed; /* every eighth layer's down projection is Q6_K */
} shape;

/* Three rows of 8,192 values and an index entry.  Q4_0: 18 bytes for 32; Q6_K: 210 for 256. */
static uint64_t bytes(void *s, uint32_t l, uint32_t n)
{
    const uint64_t q4 = N_EMBD / 32 * 18, q6 = N_EMBD / 256 * 210;
    const bool six = ((shape *)s)->mixed && l % 8 == 0;
    return n * (2 * q4 + (six ? q6 : q4) + 4);
}

static void make(shape *s)
{
    const size_t n = (size_t)N_LAYER * N_FF;
    s->count = malloc(n * sizeof *s->count);
    s->order = malloc(n * sizeof *s->order);
    if (!s->count || !s->order)
        exit(1);
    for (size_t i = 0; i < n; i++)
        s->count[i] = (int64_t)fmin(1e6, exp(9 + sigma * normal()));
    const double start = hs_core_clock();
    for (uint32_t l = 0; l < N_LAYER; l++)
        if (hs_solve_order(s->count + (size_t)l * N_FF, N_FF, s->order + (size_t)l * N_FF, NULL))
            exit(1);
    s->sort_s = hs_core_clock() - start;
}

static hs_solve_problem *state(shape *s, uint32_t group, uint32_t min_neurons, double share)
{
    hs_solve_problem *p;
    uint64_t all = 0;
    if (hs_solve_problem_new(&p, N_LAYER, 0, NULL) != HS_OK)
        exit(1);
    for (uint32_t l = 0; l < N_LAYER; l++) {
        if (hs_solve_problem_layer(p, l, N_FF, s->count + (size_t)l * N_FF,
                                   s->order + (size_t)l * N_FF, group, min_neurons, bytes, s,
                                   NULL) != HS_OK)
            exit(1);
        all += bytes(s, l, N_FF);
    }
    p->capacity = (uint64_t)(share * (double)all);
    return p;
}

static hs_solve_result solve(const hs_solve_problem *p, hs_solve_method m, double limit)
{
    const hs_solve_params q = {.method = m, .time_limit = limit};
    hs_solve_result r;
    hs_err err = {0};
    if (hs_solve(p, &q, &r, &err) != HS_OK) {
        printf("%s\n", err.msg);
        exit(1);
    }
    return r;
}

static int64_t total(const shape *s)
{
    int64_t sum = 0;
    for (size_t i = 0; i < (size_t)N_LAYER * N_FF; i++)
        sum += s->count[i];
    return sum;
}

/* Layers of the plan without a minimum that have some neurons, but fewer than the minimum. */
static uint32_t below(const hs_solve_result *r, uint32_t group, uint32_t min_neurons)
{
    uint32_t n = 0;
    for (uint32_t l = 0; l < N_LAYER; l++)
        n += r->groups[l] && r->groups[l] * group < min_neurons;
    return n;
}

static int row(shape *s, uint32_t min_neurons, double share, double all)
{
    hs_solve_problem *p = state(s, 64, min_neurons, share);
    hs_solve_problem *pi = state(s, 256, 0, share);
    hs_solve_result a = solve(p, HS_SOLVE_AUTO, 30), g = solve(p, HS_SOLVE_GLPK, glpk_seconds),
                    b = solve(pi, HS_SOLVE_AUTO, 30);
    printf("%5.0f %% %6" PRIu32 "  %7.3f  %8.4f %%  %8.1e  %-8s %7.2f  %8.1e  %8.4f %%  %" PRIu32
           "\n",
           100 * share, min_neurons, a.seconds, 100 * (double)a.value / all, a.gap, a.source,
           g.seconds, (double)(a.value - g.value) / (double)a.value, 100 * (double)b.value / all,
           below(&b, 256, min_neurons));
    const int bad = a.gap > 1e-6 || g.value > a.value;
    hs_solve_result_fini(&a);
    hs_solve_result_fini(&g);
    hs_solve_result_fini(&b);
    hs_solve_problem_free(p);
    hs_solve_problem_free(pi);
    return bad;
}

int main(void)
{
    static const double shares[] = {0.05, 0.10, 0.25, 0.50};
    static const uint32_t minimums[] = {0, 256, 2048, 4096};
    shape s = {.mixed = false};
    int bad = 0;
    make(&s);
    const double all = (double)total(&s);
    printf("%d layers x %d neurons; sorting %.3f s\n", N_LAYER, N_FF, s.sort_s);
    for (int mixed = 0; mixed < 2; mixed++) {
        s.mixed = mixed;
        printf("\n%s\n                 hotset-solve, groups of 64                   GLPK alone"
               "          PowerInfer, groups of 256\n"
               "budget minimum  seconds      served       gap  by        seconds    behind"
               "      served  layers below the minimum\n",
               mixed ? "every eighth layer with a Q6_K down projection" : "all layers alike");
        for (size_t i = 0; i < 4; i++)
            for (size_t j = 0; j < 4; j++)
                bad |= row(&s, minimums[j], shares[i], all);
    }
    free(s.count);
    free(s.order);
    return bad;
}
