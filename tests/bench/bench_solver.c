/* A 70B-sized placement problem, made from a seed: 80 layers of 28,672 neurons with lognormal
 * activation counts, groups of 64, two tensor types.  The combination of methods that
 * hotset-solve uses, then the exact method and GLPK alone. */
#include "tools/solver/solve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_LAYER = 80, N_FF = 28672, GROUP = 64, N_EMBD = 8192 };

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

/* Three rows of 8,192 values and an index entry.  Q4_0: 18 bytes for 32; Q6_K: 210 for 256. */
static uint64_t bytes(void *mixed, uint32_t l, uint32_t n)
{
    const uint64_t q4 = N_EMBD / 32 * 18, q6 = N_EMBD / 256 * 210;
    const bool six = *(bool *)mixed && l % 8 == 0;
    return n * (2 * q4 + (six ? q6 : q4) + 4);
}

static hs_solve_problem *make(uint32_t min_neurons, double share, bool mixed)
{
    hs_solve_problem *p;
    int64_t *count = malloc(N_FF * sizeof *count);
    int32_t *order = malloc(N_FF * sizeof *order);
    if (!count || !order || hs_solve_problem_new(&p, N_LAYER, 0, NULL) != HS_OK)
        exit(1);
    uint64_t all = 0;
    for (uint32_t l = 0; l < N_LAYER; l++) {
        const double centre = 7 + 0.6 * normal();
        for (uint32_t i = 0; i < N_FF; i++)
            count[i] = (int64_t)fmin(1e6, exp(centre + 1.5 * normal()));
        if (hs_solve_order(count, N_FF, order, NULL) != HS_OK ||
            hs_solve_problem_layer(p, l, N_FF, count, order, GROUP, min_neurons, bytes, &mixed,
                                   NULL) != HS_OK)
            exit(1);
        all += bytes(&mixed, l, N_FF);
    }
    p->capacity = (uint64_t)(share * (double)all);
    free(count);
    free(order);
    return p;
}

static int run(const hs_solve_problem *p, const char *name, hs_solve_method m, double limit)
{
    const hs_solve_params q = {.method = m, .time_limit = limit};
    hs_solve_result r;
    hs_err err = {0};
    if (hs_solve(p, &q, &r, &err) != HS_OK) {
        printf("%-6s %s\n", name, err.msg);
        return 1;
    }
    printf("  %-6s %8.3f s  value %" PRId64 "  bound %" PRId64 "  gap %.2e  %s by %s", name,
           r.seconds, r.value, r.bound, r.gap, r.status, r.source);
    if (m == HS_SOLVE_AUTO)
        printf("  (%" PRIu32 " of %" PRIu32 " groups undecided)", r.undecided, r.n_groups);
    printf("\n");
    hs_solve_result_fini(&r);
    return 0;
}

int main(void)
{
    static const struct {
        uint32_t min_neurons;
        double share;
        bool mixed;
    } cases[] = {{0, 0.3, false}, {0, 0.3, true}, {8192, 0.3, false}, {8192, 0.3, true}};
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hs_solve_problem *p = make(cases[i].min_neurons, cases[i].share, cases[i].mixed);
        printf("%d layers x %d neurons, groups of %d, minimum %u, budget %.1f GiB (%.0f %%)%s\n",
               N_LAYER, N_FF, GROUP, cases[i].min_neurons, (double)p->capacity / (1 << 30),
               100 * cases[i].share, cases[i].mixed ? ", two types" : "");
        bad |= run(p, "auto", HS_SOLVE_AUTO, 30);
        bad |= run(p, "exact", HS_SOLVE_EXACT, 30);
        bad |= run(p, "glpk", HS_SOLVE_GLPK, 5);
        hs_solve_problem_free(p);
    }
    return bad;
}
