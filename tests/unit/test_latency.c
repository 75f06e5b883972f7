/* The latency objective: against trying everything, against what it means (a simulator), and the
 * least number of neurons that pays for its synchronisation. */
#include "tests/unit/latency_util.h"

#include "tools/solver/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static sim_rng rng = {20240607};

static uint32_t below(uint32_t n) { return (uint32_t)((sim_next(&rng) >> 20) % n); }

/* ---- the truth, by trying everything ------------------------------------------------------------
 */

enum { LAYERS = 4, MOST_FF = 24 };

typedef struct tiny {
    hs_latency_problem x;
    hs_cost cost;
    hs_plan_costs bytes;
    hs_cost_layer layer[LAYERS];
    float share[LAYERS * MOST_FF];
    uint64_t block[3 * LAYERS], each[LAYERS], round;
    int32_t ids[LAYERS * MOST_FF], *order[LAYERS];
} tiny;

static uint64_t tiny_neurons(void *ud, uint32_t l, uint32_t n)
{
    const tiny *t = ud;
    return (n * t->each[l] + t->round - 1) / t->round * t->round;
}

static double seconds(double most) { return most * sim_uniform(&rng); }

/* Times of all kinds: devices that are faster, slower, far away; predictors or none. */
static void random_tiny(tiny *t, uint32_t n_layer)
{
    memset(t, 0, sizeof *t);
    t->x = (hs_latency_problem){.cost = &t->cost,
                                .bytes = &t->bytes,
                                .neurons = tiny_neurons,
                                .neurons_ud = t,
                                .group = 1 + below(4),
                                .order = t->order};
    const uint32_t groups = 1 + below(6), n_ff = groups * t->x.group - below(t->x.group);
    const double far = seconds(0.3), faster = below(4) ? 0.2 : 1.5;
    const bool predictors = n_layer < LAYERS && below(2), every = below(2);
    t->cost = (hs_cost){.n_layer = n_layer, .n_ff = n_ff, .batch = 1, .layer = t->layer};
    t->bytes = (hs_plan_costs){.n_layer = n_layer, .attn = t->block};
    t->bytes.predictor = t->block + LAYERS;
    t->bytes.ffn_norm = t->block + 2 * (size_t)LAYERS;
    t->bytes.output = 1 + below(60);
    t->bytes.kv = 1 + below(20);
    t->bytes.scratch[0][0] = 1 + below(5);
    t->bytes.scratch[0][1] = t->bytes.scratch[0][0] + below(9);
    t->bytes.scratch[1][0] = t->bytes.scratch[0][0] + below(9);
    t->bytes.scratch[1][1] = t->bytes.scratch[0][1] + t->bytes.scratch[1][0];
    t->round = below(3) ? 1 : 8;
    uint64_t all = t->bytes.output;
    for (uint32_t l = 0; l < n_layer; l++) {
        hs_cost_layer *y = &t->layer[l];
        *y = (hs_cost_layer){.attn = {seconds(1), seconds(faster)},
                             .kv = {seconds(0.3), seconds(faster / 3)},
                             .active = {seconds(0.5), seconds(faster / 2)},
                             .share = t->share + (size_t)l * MOST_FF};
        if (predictors) {
            y->predictor[HS_ON_CPU] = seconds(1);
            y->predictor[HS_ON_DEVICE] = seconds(faster);
        } else if (every) {
            y->always[HS_ON_CPU] = seconds(0.2);
            y->always[HS_ON_DEVICE] = seconds(faster / 5);
        }
        t->block[l] = 1 + below(60);
        t->block[LAYERS + l] = predictors ? 1 + below(20) : 0;
        t->block[2 * LAYERS + l] = 1 + below(2);
        t->each[l] = 1 + below(9);
        t->order[l] = t->ids + (size_t)l * MOST_FF;
        double f = 1;
        for (uint32_t i = 0; i < n_ff; i++) {
            f *= sim_uniform(&rng);
            t->order[l][i] = (int32_t)(n_ff - 1 - i);
            y->share[n_ff - 1 - i] = (float)f;
        }
        all += t->block[l] + t->block[LAYERS + l] + t->bytes.kv + n_ff * t->each[l];
    }
    t->cost.output[HS_ON_CPU] = seconds(1);
    t->cost.output[HS_ON_DEVICE] = seconds(faster);
    t->cost.sync = seconds(far);
    t->cost.copy_attn = seconds(far);
    t->cost.copy_qkv = seconds(far);
    t->cost.copy_ffn = seconds(far);
    t->cost.copy_predictor = seconds(far);
    t->cost.copy_norm = seconds(far);
    t->cost.copy_output = seconds(far);
    t->x.min_neurons = below(2) ? 0 : below(n_ff + 2);
    t->x.budget = below((uint32_t)all + 20);
}

/* Every choice of layers l and on; `ffn`: the layer's attention is chosen. */
static double try_all(const tiny *t, uint32_t l, bool ffn, uint64_t left, bool kv)
{
    const hs_cost *c = &t->cost;
    if (l == c->n_layer)
        return 0;
    double best = HUGE_VAL;
    if (!ffn) {
        for (int a = 0; a < (kv ? 3 : 2); a++) {
            const uint64_t bytes = (a ? t->bytes.attn[l] : 0) + (a == 2 ? t->bytes.kv : 0);
            if (bytes <= left)
                best = fmin(best, hs_cost_attn(c, l, a > 0, a == 2) +
                                      try_all(t, l, true, left - bytes, kv));
        }
        return best;
    }
    const hs_cost_layer *y = &c->layer[l];
    double here = 0, there = 0;
    for (uint32_t i = 0; i < c->n_ff; i++)
        there += (double)y->share[i];
    for (uint32_t n = 0; n <= c->n_ff; n++) {
        if (n) {
            const double f = (double)y->share[t->order[l][n - 1]];
            here += f;
            there -= f;
        }
        if ((n % t->x.group && n != c->n_ff) || (n && n < t->x.min_neurons))
            continue;
        for (int v = 0; v < (t->bytes.predictor[l] ? 4 : 2); v++) {
            const bool predictor = v / 2, norm = v % 2;
            const uint64_t bytes = (n ? tiny_neurons((void *)(uintptr_t)t, l, n) : 0) +
                                   (predictor ? t->bytes.predictor[l] : 0) +
                                   (norm ? t->bytes.ffn_norm[l] : 0);
            if (bytes > left)
                continue;
            const double s =
                hs_cost_ffn(c, l, predictor, norm, n > 0,
                            n * y->always[HS_ON_DEVICE] + here * y->active[HS_ON_DEVICE],
                            (c->n_ff - n) * y->always[HS_ON_CPU] + there * y->active[HS_ON_CPU]);
            best = fmin(best, s + try_all(t, l + 1, false, left - bytes, kv));
        }
    }
    return best;
}

static double truth(const tiny *t)
{
    double best = HUGE_VAL, cpu = hs_cost_output(&t->cost, false);
    for (int i = 0; i < 4; i++) {
        const bool output = i / 2, kv = i % 2;
        const uint64_t fixed = t->bytes.scratch[output][kv] + (output ? t->bytes.output : 0);
        if (fixed <= t->x.budget)
            best = fmin(best, hs_cost_output(&t->cost, output) +
                                  try_all(t, 0, false, t->x.budget - fixed, kv));
    }
    /* Nothing needs no buffers. */
    for (uint32_t l = 0; l < t->cost.n_layer; l++) {
        double share = 0;
        for (uint32_t i = 0; i < t->cost.n_ff; i++)
            share += (double)t->layer[l].share[i];
        cpu += hs_cost_attn(&t->cost, l, false, false) +
               hs_cost_ffn(&t->cost, l, false, false, false, 0,
                           t->cost.n_ff * t->layer[l].always[HS_ON_CPU] +
                               share * t->layer[l].active[HS_ON_CPU]);
    }
    return fmin(best, cpu);
}

static uint64_t bytes_of(const tiny *t, const hs_placement *p)
{
    bool kv = false, any = p->output;
    uint64_t sum = p->output ? t->bytes.output : 0;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        sum += (y->attn ? t->bytes.attn[l] : 0) + (y->kv ? t->bytes.kv : 0) +
               (y->predictor ? t->bytes.predictor[l] : 0) +
               (y->ffn_norm ? t->bytes.ffn_norm[l] : 0) +
               (y->n_device ? tiny_neurons((void *)(uintptr_t)t, l, y->n_device) : 0);
        assert_true(!y->kv || y->attn);
        assert_true(!y->n_device || y->n_device >= t->x.min_neurons);
        kv = kv || y->kv;
        any = any || y->attn || y->predictor || y->ffn_norm || y->n_device;
    }
    return any ? sum + t->bytes.scratch[p->output][kv] : 0;
}

static void check_tiny(const tiny *t, hs_solve_method m, double best, int instance)
{
    const uint32_t n_ff[LAYERS] = {t->cost.n_ff, t->cost.n_ff, t->cost.n_ff, t->cost.n_ff};
    const hs_solve_params q = {.method = m, .time_limit = 30};
    hs_placement *p;
    hs_latency_result r;
    hs_err err = {0};
    assert_int_equal(hs_placement_new(&p, t->cost.n_layer, n_ff, &err), HS_OK);
    if (hs_latency_solve(&t->x, &q, p, &r, &err) != HS_OK)
        fail_msg("instance %d: %s", instance, err.msg);
    /* GLPK proves to a relative 1e-7, picoseconds are rounded. */
    const double off = 1e-11 + (m == HS_SOLVE_GLPK ? 1e-6 * r.cpu_s : 0);
    if (fabs(r.step_s - best) > off || r.bound_s > best + 1e-11)
        fail_msg("instance %d, method %d: %.15g s, bound %.15g, truth %.15g", instance, m, r.step_s,
                 r.bound_s, best);
    if (m != HS_SOLVE_GLPK)
        assert_true(r.gap == 0);
    assert_string_equal(r.solve.status, "optimal");
    assert_true(fabs(hs_cost_step(&t->cost, p) - r.step_s) < 1e-10);
    const uint64_t bytes = bytes_of(t, p);
    assert_true(bytes <= t->x.budget || !bytes);
    hs_placement_free(p);
}

static void test_brute_force(void **state)
{
    (void)state;
    tiny t;
    for (int i = 0; i < 2200; i++) {
        random_tiny(&t, i < 2000 ? 1 + below(2) : i < 2100 ? 3 : 4);
        const double best = truth(&t);
        check_tiny(&t, HS_SOLVE_EXACT, best, i);
        if (i % 10 == 0) {
            check_tiny(&t, HS_SOLVE_AUTO, best, i);
            check_tiny(&t, HS_SOLVE_GLPK, best, i);
        }
    }
}

/* ---- larger ones ------------------------------------------------------------------------------
 */

static hs_machine machine;

static void read_machine(const char *name)
{
    char path[96];
    hs_err err = {0};
    snprintf(path, sizeof path, "data/machines/%s.json", name);
    if (hs_machine_read(&machine, path, &err) != HS_OK)
        fail_msg("%s", err.msg);
}

static const char *const machines[] = {"rtx4090-ddr5", "rtx3060-ddr4", "rtx2080ti-ddr4"};
static const sim_shape seven_b = {.n_layer = 32,
                                  .n_embd = 4096,
                                  .n_ff = 11008,
                                  .n_head = 32,
                                  .n_head_kv = 32,
                                  .n_vocab = 32000,
                                  .rank = 1024,
                                  .active = 0.1};

/* C_l by its definition, neuron by neuron. */
static void test_least(void **state)
{
    (void)state;
    sim_shape shape = seven_b;
    shape.n_layer = 2;
    sim_case c;
    sim_case_init(&c, &shape, 7);
    read_machine(machines[0]);
    uint32_t last = 0;
    for (int i = 0; i < 4; i++) {
        machine.device[0].sync_s = 1e-6 * pow(5, i);
        sim_case_machine(&c, &machine, 1);
        const hs_cost_layer *y = &c.cost.layer[1];
        const uint32_t k = hs_cost_least(&c.cost, 1, c.order[1]);
        double cpu = 0, device = 0;
        for (uint32_t n = 0; n < k && n < shape.n_ff; n++) {
            assert_true(device + c.cost.copy_ffn + c.cost.sync > cpu || !n);
            cpu += (double)y->share[c.order[1][n]] * y->active[HS_ON_CPU];
            device += (double)y->share[c.order[1][n]] * y->active[HS_ON_DEVICE];
        }
        if (k <= shape.n_ff)
            assert_true(device + c.cost.copy_ffn + c.cost.sync <= cpu);
        assert_true(k > last);
        last = k;
    }
    assert_int_equal(last, shape.n_ff + 1); /* 125 us are never earned */
    sim_case_fini(&c);
}

/* A batch reads the union of its tokens' neurons, weights once. */
static void test_batch(void **state)
{
    (void)state;
    sim_shape shape = seven_b;
    shape.n_layer = 1;
    sim_case c;
    sim_case_init(&c, &shape, 7);
    read_machine(machines[1]);
    hs_placement *p = sim_placement(&c);
    double last = HUGE_VAL, share = 0;
    for (uint32_t b = 1; b <= 64; b *= 4) {
        sim_case_machine(&c, &machine, b);
        const double f = (double)c.profile->count[0][5] / 1e6, want = 1 - pow(1 - f, b);
        assert_true(fabs((double)c.cost.layer[0].share[5] - want) < 1e-6);
        assert_true((double)c.cost.layer[0].share[5] > share);
        share = (double)c.cost.layer[0].share[5];
        const double token = hs_cost_step(&c.cost, p) / b;
        assert_true(token < last);
        last = token;
    }
    hs_placement_free(p);
    sim_case_fini(&c);
}

/* What a neuron is by kind of model: with predictors its three rows when it is active; without, the
 * gate always; from a dense file the down row is F32 after its transposition, and a model that is
 * always active reads all. */
static void test_kinds(void **state)
{
    (void)state;
    sim_shape shape = seven_b;
    shape.n_layer = 1;
    sim_case c;
    sim_case_init(&c, &shape, 7);
    read_machine(machines[1]);
    const double row = 4096 / 32 * 18, f32 = 4096 * 4, cpu = 41e9, device = 324e9;
    const hs_cost_layer *y;
    hs_layer *l = &c.m->layer[0];

    sim_case_machine(&c, &machine, 1);
    y = c.cost.layer;
    assert_true(y->always[HS_ON_CPU] == 0 && y->always[HS_ON_DEVICE] == 0);
    assert_true(fabs(y->active[HS_ON_CPU] * cpu - 3 * row) < 1e-6);
    assert_true(fabs(y->active[HS_ON_DEVICE] * device - 3 * row) < 1e-6);
    assert_true(y->predictor[HS_ON_DEVICE] > 0);

    c.m->has_predictors = false;
    sim_case_machine(&c, &machine, 1);
    y = c.cost.layer;
    assert_true(fabs(y->always[HS_ON_CPU] * cpu - row) < 1e-6);
    assert_true(fabs(y->active[HS_ON_DEVICE] * device - 2 * row) < 1e-6);
    assert_true(y->predictor[HS_ON_CPU] == 0);

    l->down = sim_mat(4096, shape.n_ff);
    l->down_t = (hs_mat){0};
    sim_case_machine(&c, &machine, 1);
    y = c.cost.layer;
    assert_true(fabs(y->active[HS_ON_CPU] * cpu - row - f32) < 1e-6);
    assert_true(fabs(y->active[HS_ON_DEVICE] * device - row - f32) < 1e-6);

    c.m->fn = HS_FN_SILU;
    sim_case_machine(&c, &machine, 1);
    y = c.cost.layer;
    assert_true(y->active[HS_ON_CPU] == 0 && y->active[HS_ON_DEVICE] == 0);
    assert_true(fabs(y->always[HS_ON_CPU] * cpu - 3 * row) < 1e-6);
    assert_true(fabs(y->always[HS_ON_DEVICE] * device - 2 * row - f32) < 1e-6);
    sim_case_fini(&c);
}

/* More memory is never slower, the plan is never slower than anybody else's with the same memory,
 * and both methods see the same optimum. */
static void test_plans(void **state)
{
    (void)state;
    sim_shape shape = seven_b;
    shape.n_layer = 8;
    sim_case c;
    sim_case_init(&c, &shape, 11);
    read_machine(machines[2]);
    sim_case_machine(&c, &machine, 1);
    double last = HUGE_VAL;
    for (int i = 0; i <= 10; i++) {
        const uint64_t budget = c.total / 10 * (uint64_t)i;
        const hs_latency_problem x = sim_latency(&c, budget);
        const hs_solve_params q = {.time_limit = 30};
        hs_placement *p = sim_placement(&c), *other = sim_placement(&c);
        hs_latency_result r;
        hs_err err = {0};
        if (hs_latency_solve(&x, &q, p, &r, &err) != HS_OK)
            fail_msg("%s", err.msg);
        assert_true(hs_budget_total(c.m, p) <= budget);
        assert_true(fabs(hs_cost_step(&c.cost, p) - r.step_s) < 1e-10);
        assert_true(r.gap == 0 && r.step_s <= last);
        last = r.step_s;
        const hs_baseline_problem base = {&c.bytes, sim_neurons, c.m,    budget,
                                          64,       c.profile,   c.order};
        for (int k = 0; k < HS_N_BASELINES; k++) {
            assert_int_equal(hs_baseline_make(&base, (hs_baseline)k, other, &err), HS_OK);
            assert_true(hs_budget_total(c.m, other) <= budget);
            const double step = hs_cost_step(&c.cost, other);
            /* Groups are whole; the others' neurons need not be. */
            if (k != HS_BASE_RANDOM)
                assert_true(r.step_s <= step * (1 + 1e-9));
            if (i == 0 || k == HS_BASE_CPU)
                assert_true(fabs(step - r.cpu_s) < 1e-9);
        }
        hs_placement_free(p);
        hs_placement_free(other);
    }
    sim_case_fini(&c);
}

/* ---- the simulator ----------------------------------------------------------------------------
 */

enum { P_LATENCY, P_IMPACT, P_LAYERS, P_RANDOM, N_PLANS, TOKENS = 10, N_CASES = 9 };

static void make_plans(const sim_case *c, uint64_t budget, hs_placement *p[N_PLANS])
{
    const hs_latency_problem x = sim_latency(c, budget);
    const hs_baseline_problem base = {&c->bytes, sim_neurons, c->m,    budget,
                                      64,        c->profile,  c->order};
    const hs_solve_params q = {.time_limit = 30};
    hs_latency_result r;
    hs_err err = {0};
    p[P_LATENCY] = sim_placement(c);
    p[P_IMPACT] = sim_impact(c, budget);
    p[P_LAYERS] = sim_placement(c);
    p[P_RANDOM] = sim_placement(c);
    if (hs_latency_solve(&x, &q, p[P_LATENCY], &r, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(hs_baseline_make(&base, HS_BASE_LAYERS, p[P_LAYERS], &err), HS_OK);
    assert_int_equal(hs_baseline_make(&base, HS_BASE_RANDOM, p[P_RANDOM], &err), HS_OK);
}

static void test_simulator(void **state)
{
    (void)state;
    static const uint64_t percent[] = {20, 50, 80};
    sim_case c;
    sim_case_init(&c, &seven_b, 42);
    uint8_t *active = malloc((size_t)seven_b.n_layer * seven_b.n_ff);
    assert_non_null(active);
    bool layers[3] = {false}, random[3] = {false}; /* clearly beaten on the machine */
    for (int i = 0; i < N_CASES; i++) {
        hs_placement *p[N_PLANS];
        double mean[N_PLANS] = {0};
        sim_rng r = {0x9e3779b97f4a7c15u};
        read_machine(machines[i / 3]);
        sim_case_machine(&c, &machine, 1);
        make_plans(&c, c.total / 100 * percent[i % 3], p);
        for (int t = 0; t < TOKENS; t++) {
            sim_token(&c, &r, active);
            for (int k = 0; k < N_PLANS; k++)
                mean[k] += sim_step(&c, p[k], active) / TOKENS;
        }
        const double best = fmin(mean[P_IMPACT], fmin(mean[P_LAYERS], mean[P_RANDOM]));
        printf("%-15s %2d %%: latency %7.3f ms, impact %7.3f, layers %7.3f, random %7.3f\n",
               machines[i / 3], (int)percent[i % 3], 1e3 * mean[P_LATENCY], 1e3 * mean[P_IMPACT],
               1e3 * mean[P_LAYERS], 1e3 * mean[P_RANDOM]);
        if (mean[P_LATENCY] > 1.005 * best)
            fail_msg("the latency plan takes %.4f of the best of the others",
                     mean[P_LATENCY] / best);
        layers[i / 3] |= mean[P_LATENCY] < 0.5 * mean[P_LAYERS];
        random[i / 3] |= mean[P_LATENCY] < 0.9 * mean[P_RANDOM];
        /* What is predicted is what comes of it. */
        for (int k = 0; k < N_PLANS; k++) {
            const double said = hs_cost_step(&c.cost, p[k]);
            assert_true(fabs(said - mean[k]) < 0.05 * said);
            hs_placement_free(p[k]);
        }
    }
    for (int i = 0; i < 3; i++)
        assert_true(layers[i] && random[i]);
    free(active);
    sim_case_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force), cmocka_unit_test(test_least),
        cmocka_unit_test(test_batch),       cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_plans),       cmocka_unit_test(test_simulator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
