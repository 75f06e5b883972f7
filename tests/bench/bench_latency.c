/* The latency objective on the 70B shape (80 layers of 28,672 neurons, Q4_0, predictors) and on
 * a 7B one, for the machines of data/machines: what solving takes, and the mean time of tokens
 * whose activations are drawn by lot under the plan, the impact plan, a layer split, neurons at
 * random and the greedy plan with the same memory. */
#include "tests/unit/latency_util.h"

#include "tools/solver/core.h"

static const sim_shape shapes[] = {
    {32, 4096, 11008, 32, 32, 32000, 1024, 0.1},
    {80, 8192, 28672, 64, 8, 32000, 1024, 0.1},
};
static const char *const machines[] = {"rtx4090-ddr5", "rtx3060-ddr4", "rtx2080ti-ddr4"};
static const int percent[] = {5, 10, 25, 50, 80};

enum { N_PLANS = 5, TOKENS = 5 };

static hs_machine machine;

static int row(const sim_case *c, const char *name, int share, const uint8_t *active)
{
    const uint64_t budget = c->total / 100 * (uint64_t)share;
    const hs_latency_problem x = sim_latency(c, budget);
    const hs_baseline_problem base = {&c->bytes, sim_neurons, c->m,    budget,
                                      64,        c->profile,  c->order};
    const hs_solve_params q = {.time_limit = 30};
    hs_placement *p[N_PLANS];
    hs_latency_result r;
    hs_err err = {0};
    double mean[N_PLANS] = {0};
    for (int k = 0; k < N_PLANS; k++)
        p[k] = k == 1 ? sim_impact(c, budget) : sim_placement(c);
    if (hs_latency_solve(&x, &q, p[0], &r, &err) != HS_OK ||
        hs_baseline_make(&base, HS_BASE_LAYERS, p[2], &err) != HS_OK ||
        hs_baseline_make(&base, HS_BASE_RANDOM, p[3], &err) != HS_OK ||
        hs_baseline_make(&base, HS_BASE_GREEDY, p[4], &err) != HS_OK) {
        printf("%s\n", err.msg);
        return 1;
    }
    const size_t n = (size_t)c->m->n_layer * c->m->n_ff;
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < N_PLANS; k++)
            mean[k] += 1e3 * sim_step(c, p[k], active + (size_t)t * n) / TOKENS;
    printf("%-15s %3d %% %6.3f s  %7.1e %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f\n", name, share,
           r.solve.seconds, r.gap, 1e3 * r.step_s, mean[0], mean[1], mean[2], mean[3], mean[4],
           1e3 * r.cpu_s);
    for (int k = 0; k < N_PLANS; k++)
        hs_placement_free(p[k]);
    return r.gap > 1e-6;
}

int main(void)
{
    int bad = 0;
    for (size_t s = 0; s < 2; s++) {
        sim_case c;
        sim_rng r = {0x9e3779b97f4a7c15u};
        sim_case_init(&c, &shapes[s], 42);
        const size_t n = (size_t)shapes[s].n_layer * shapes[s].n_ff;
        uint8_t *active = malloc(TOKENS * n);
        if (!active)
            return 1;
        for (int t = 0; t < TOKENS; t++)
            sim_token(&c, &r, active + (size_t)t * n);
        printf("\n%u layers x %u neurons, %.1f GiB; ms a token, mean of %d drawn by lot\n"
               "machine        budget  solving      gap predicted   latency    impact    layers"
               "    random    greedy       CPU\n",
               shapes[s].n_layer, shapes[s].n_ff, (double)c.total / (1 << 30), TOKENS);
        for (size_t i = 0; i < 3; i++) {
            char path[96];
            hs_err err = {0};
            snprintf(path, sizeof path, "data/machines/%s.json", machines[i]);
            if (hs_machine_read(&machine, path, &err) != HS_OK) {
                printf("%s\n", err.msg);
                return 1;
            }
            sim_case_machine(&c, &machine, 1);
            for (size_t k = 0; k < sizeof percent / sizeof *percent; k++)
                bad |= row(&c, machines[i], percent[k], active);
        }
        free(active);
        sim_case_fini(&c);
    }
    return bad;
}
