/* From files to a plan. */
#include "tools/solver/job.h"

#include "formats/dtype.h"
#include "formats/fingerprint.h"
#include "runtime/budget.h"
#include "tools/solver/latency.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- input ---------------------------------------------------------------------------------- */

static hs_status check_profile(const hs_job *j, hs_err *err)
{
    const hs_job_options *o = j->o;
    const hs_activation *a = j->profile;
    if (a->n_layer != j->info.n_layer)
        return hs_fail(err, HS_ERR_FORMAT, "%s: has %u layers, the model %u", o->profile,
                       a->n_layer, j->info.n_layer);
    for (uint32_t l = 0; l < a->n_layer; l++)
        if (a->n_ff[l] != j->info.n_ff)
            return hs_fail(err, HS_ERR_FORMAT, "%s: layer %u has %u neurons, the model's %u",
                           o->profile, l, a->n_ff[l], j->info.n_ff);
    if (!a->fingerprint[0])
        hs_cli_warn(&o->cli, "%s has no model fingerprint; its shape fits, so it is used",
                    o->profile);
    else if (!hs_fingerprint_matches(j->model->gguf, a->fingerprint, true))
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: made on another model: fingerprint %s, the model's is %s (a profile "
                       "fits its model and what hotset-quantize makes of it)",
                       o->profile, a->fingerprint, j->info.fingerprint);
    return HS_OK;
}

static hs_status sort_neurons(hs_job *j, hs_err *err)
{
    const uint32_t n = j->info.n_layer, n_ff = j->info.n_ff;
    j->order = calloc((size_t)n + 1, sizeof *j->order);
    j->min_neurons = calloc((size_t)n + 1, sizeof *j->min_neurons);
    int32_t *all = calloc((size_t)n * n_ff + 1, sizeof *all);
    if (!j->order || !j->min_neurons || !all) {
        free(all);
        return hs_fail(err, HS_ERR_NOMEM, "sorting neurons: out of memory");
    }
    j->order[0] = all;
    hs_status s = HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < n; l++) {
        j->order[l] = all + (size_t)l * n_ff;
        j->min_neurons[l] = (uint32_t)j->o->min_neurons;
        s = hs_solve_order(j->profile->count[l], n_ff, j->order[l], err);
    }
    return s;
}

hs_status hs_job_load(hs_job *j, hs_err *err)
{
    const hs_job_options *o = j->o;
    hs_status s = HS_OK;
    j->latency = !strcmp(o->objective, "latency");
    if (o->machine) {
        j->machine = malloc(sizeof *j->machine);
        if (!j->machine)
            return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", o->machine);
        s = hs_machine_read(j->machine, o->machine, err);
        if (s == HS_OK && !j->machine->n_devices)
            s = hs_fail(err, HS_ERR_FORMAT, "%s: devices: expected at least one", o->machine);
        if (s == HS_OK && j->machine->n_devices < o->n_devices)
            s = hs_fail(err, HS_ERR_FORMAT,
                        "%s: devices: expected %u, one for each of --device-memory, got %zu",
                        o->machine, o->n_devices, j->machine->n_devices);
    }
    if (s == HS_OK)
        s = hs_model_load(&j->model, o->model, err);
    if (s != HS_OK)
        return s;
    hs_model_describe(j->model, &j->info);
    if (!j->info.relu_family)
        hs_cli_warn(&o->cli,
                    "%s: with %s no neuron is ever inactive; a placement saves memory, not work",
                    o->model, j->info.activation);
    s = hs_activation_read(&j->profile, o->profile, err);
    if (s == HS_OK)
        s = check_profile(j, err);
    return s == HS_OK ? sort_neurons(j, err) : s;
}

static uint32_t context(const hs_job *j)
{
    const uint32_t train = j->info.n_ctx_train;
    return j->o->context ? (uint32_t)j->o->context : train < 4096 ? train : 4096;
}

static hs_status new_plan(hs_job *j, hs_err *err)
{
    hs_placement *p;
    const hs_status s = hs_placement_new(&p, j->info.n_layer, j->profile->n_ff, err);
    if (s != HS_OK)
        return s;
    j->plan = p;
    p->has_plan = true;
    p->vram_capacity = j->o->budget;
    p->n_ctx = context(j);
    p->kv_type = strcmp(j->o->kv_type, "f32") ? HS_F16 : HS_F32;
    p->group = (uint32_t)j->o->group;
    snprintf(p->objective, sizeof p->objective, "%s", j->o->objective);
    memcpy(p->fingerprint, j->info.fingerprint, sizeof p->fingerprint);
    return hs_plan_costs_init(&j->costs, j->model, p->n_ctx, p->kv_type, err);
}

/* Times, and under the impact objective the least number of neurons that pays for its
 * synchronisation (the latency objective knows that by itself). */
static hs_status use_machine(hs_job *j, hs_err *err)
{
    if (!j->machine)
        return HS_OK;
    const hs_cost_params q = {.machine = j->machine,
                              .device = j->device,
                              .n_ctx = j->plan->n_ctx,
                              .kv_type = j->plan->kv_type,
                              .threads = (uint32_t)j->o->cli.threads,
                              .batch = (uint32_t)j->o->batch};
    const hs_status s = hs_cost_init(&j->cost, j->model, j->profile, &q, err);
    for (uint32_t l = 0; s == HS_OK && !j->latency && l < j->info.n_layer; l++) {
        const uint32_t least = hs_cost_least(&j->cost, l, j->order[l]);
        j->min_neurons[l] = least > j->min_neurons[l] ? least : j->min_neurons[l];
    }
    return s;
}

/* ---- solving ----------------------------------------------------------------------------------
 */

uint64_t hs_job_neurons(void *model, uint32_t l, uint32_t n)
{
    return hs_budget_neurons(model, l, n);
}

hs_solve_params hs_job_params(const hs_job *j)
{
    const hs_job_options *o = j->o;
    return (hs_solve_params){
        .method = !strcmp(o->solver, "glpk")    ? HS_SOLVE_GLPK
                  : !strcmp(o->solver, "exact") ? HS_SOLVE_EXACT
                                                : HS_SOLVE_AUTO,
        .gap = o->gap,
        .time_limit = o->time_limit,
        .stop = hs_cli_interrupted,
    };
}

hs_status hs_job_state(const hs_job *j, uint64_t capacity, hs_solve_problem **out, hs_err *err)
{
    const uint32_t none = j->info.n_ff + 1;
    hs_status s = hs_solve_problem_new(out, j->info.n_layer, capacity, err);
    for (uint32_t l = 0; s == HS_OK && l < j->info.n_layer; l++) {
        s = hs_solve_problem_layer(
            *out, l, j->info.n_ff, j->profile->count[l], j->order[l], (uint32_t)j->o->group,
            hs_plan_mine(&j->costs, l) ? j->min_neurons[l] : none, hs_job_neurons, j->model, err);
        if (s == HS_ERR_FORMAT)
            hs_ctx(err, s, "%s: ", j->o->profile);
    }
    return s;
}

static hs_status solve_impact(hs_job *j, uint64_t capacity, hs_err *err)
{
    const hs_job_options *o = j->o;
    const hs_solve_params q = hs_job_params(j);
    hs_solve_problem *p = NULL;
    hs_status s = hs_job_state(j, capacity, &p, err);
    if (s == HS_OK) {
        hs_cli_debug(&o->cli, "%" PRIu64 " bytes for neurons; solver %s, time limit %g s, gap %g",
                     capacity, o->solver, q.time_limit, q.gap);
        s = hs_solve(p, &q, &j->result, err);
    }
    hs_solve_problem_free(p);
    for (uint32_t l = 0; s == HS_OK && l < j->info.n_layer; l++) {
        const uint64_t n = j->result.groups[l] * (uint64_t)o->group;
        s = hs_placement_set(j->plan, l, j->order[l], n < j->info.n_ff ? (uint32_t)n : j->info.n_ff,
                             err);
    }
    if (s != HS_OK)
        return s;
    j->plan->objective_value = (double)j->result.value;
    j->plan->bound = (double)j->result.bound;
    j->plan->gap = j->result.gap;
    return HS_OK;
}

hs_latency_problem hs_job_latency(const hs_job *j)
{
    return (hs_latency_problem){.cost = &j->cost,
                                .bytes = &j->costs,
                                .neurons = hs_job_neurons,
                                .neurons_ud = j->model,
                                .budget = j->o->budget,
                                .group = (uint32_t)j->o->group,
                                .min_neurons = (uint32_t)j->o->min_neurons,
                                .order = j->order};
}

static hs_status solve_latency(hs_job *j, hs_err *err)
{
    const hs_latency_problem x = hs_job_latency(j);
    const hs_solve_params q = hs_job_params(j);
    hs_latency_result r;
    const hs_status s = hs_latency_solve(&x, &q, j->plan, &r, err);
    if (s != HS_OK)
        return s;
    j->result = r.solve;
    j->cpu_s = r.cpu_s;
    j->plan->objective_value = r.step_s;
    j->plan->bound = r.bound_s;
    j->plan->gap = r.gap;
    return HS_OK;
}

/* The dense part does not fit: which of its blocks do most for the time, and what they leave. */
static hs_status spill(hs_job *j, uint64_t *left, hs_err *err)
{
    hs_latency_problem x = hs_job_latency(j);
    const hs_solve_params q = hs_job_params(j);
    hs_latency_result r;
    x.no_neurons = true;
    hs_status s = hs_latency_solve(&x, &q, j->plan, &r, err);
    if (s != HS_OK)
        return s;
    hs_cli_note(&j->o->cli, "the dense part does not fit the budget: its blocks are chosen by the"
                            " time they save");
    const hs_placement *p = j->plan;
    uint64_t used = hs_budget_total(j->model, p);
    if (!used)
        used = j->costs.scratch[0][0];
    *left = used < j->o->budget ? j->o->budget - used : 0;
    return s;
}

static bool dense_fits(const hs_placement *p, const hs_plan_costs *c)
{
    bool all = p->output || c->no_output;
    for (uint32_t l = 0; l < p->n_layer; l++)
        all = all &&
              (!hs_plan_mine(c, l) || (p->layer[l].attn && p->layer[l].kv && p->layer[l].ffn_norm &&
                                       (p->layer[l].predictor || !c->predictor[l])));
    return all;
}

/* ---- everything fits ------------------------------------------------------------------------ */

static hs_status sum_counts(hs_job *j, hs_err *err)
{
    int64_t sum = 0;
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        for (uint32_t i = 0; hs_plan_mine(&j->costs, l) && i < j->info.n_ff; i++)
            if (__builtin_add_overflow(sum, j->profile->count[l][i], &sum))
                return hs_fail(err, HS_ERR_FORMAT, "%s: the counts add up to more than 2^63",
                               j->o->profile);
    j->result.value = j->result.bound = j->result.lagrange_bound = sum;
    j->plan->objective_value = j->plan->bound = (double)sum;
    return HS_OK;
}

/* A model that fits completely needs no choice. */
static hs_status try_everything(hs_job *j, bool *done, hs_err *err)
{
    *done = false;
    if (j->o->min_neurons > (int64_t)j->info.n_ff)
        return HS_OK;
    hs_status s = hs_plan_everything(&j->costs, j->plan, err);
    if (s != HS_OK || hs_budget_total(j->model, j->plan) > j->o->budget)
        return s;
    *done = true;
    j->result = (hs_solve_result){.source = "exact", .status = "optimal", .glpk_bound = -1};
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        j->min_neurons[l] = (uint32_t)j->o->min_neurons;
    if (!j->latency)
        return sum_counts(j, err);
    /* It goes there whether or not that is fastest; what is, is solved for the bound. */
    const double all = hs_cost_step(&j->cost, j->plan);
    s = solve_latency(j, err);
    if (s == HS_OK)
        s = hs_plan_everything(&j->costs, j->plan, err);
    hs_placement *p = j->plan;
    p->objective_value = all;
    p->bound = p->bound < all ? p->bound : all;
    /* What rounding to picoseconds makes of equal times is no gap. */
    p->gap = all > 0 && (all - p->bound) / all > 1e-9 ? (all - p->bound) / all : 0;
    j->result.gap = p->gap;
    j->result.source = "exact";
    j->result.status = p->gap > 0 ? "everything fits" : "optimal";
    return s;
}

static void clear(hs_placement *p)
{
    p->output = false;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        hs_placement_layer *y = &p->layer[l];
        y->n_device = 0;
        y->attn = y->kv = y->predictor = y->ffn_norm = false;
    }
}

static hs_status solve_some(hs_job *j, hs_err *err)
{
    clear(j->plan);
    if (j->latency)
        return solve_latency(j, err);
    uint64_t left = hs_plan_dense(&j->costs, j->o->budget, j->plan);
    hs_status s = HS_OK;
    if (j->machine && !dense_fits(j->plan, &j->costs))
        s = spill(j, &left, err);
    return s == HS_OK ? solve_impact(j, left, err) : s;
}

/* ---- predictions ---------------------------------------------------------------------------- */

static hs_status predict(hs_job *j, hs_err *err)
{
    if (!j->machine)
        return HS_OK;
    const hs_baseline_problem x = {.bytes = &j->costs,
                                   .neurons = hs_job_neurons,
                                   .neurons_ud = j->model,
                                   .budget = j->o->budget,
                                   .group = (uint32_t)j->o->group,
                                   .profile = j->profile,
                                   .order = j->order};
    hs_status s = HS_OK;
    for (int i = 0; s == HS_OK && i < HS_N_BASELINES; i++) {
        hs_placement *p;
        s = hs_placement_new(&p, j->info.n_layer, j->profile->n_ff, err);
        if (s != HS_OK)
            break;
        s = hs_baseline_make(&x, (hs_baseline)i, p, err);
        j->step_s[i] = hs_cost_step(&j->cost, p);
        hs_placement_free(j->base[i]);
        j->base[i] = j->o->report ? p : NULL;
        if (!j->o->report)
            hs_placement_free(p);
    }
    j->plan_s = hs_cost_step(&j->cost, j->plan);
    return s;
}

hs_status hs_job_prepare(hs_job *j, hs_err *err)
{
    const hs_status s = new_plan(j, err);
    return s == HS_OK ? use_machine(j, err) : s;
}

hs_status hs_job_solve(hs_job *j, hs_err *err)
{
    bool done = false;
    hs_status s = try_everything(j, &done, err);
    if (s == HS_OK && !done)
        s = solve_some(j, err);
    if (s != HS_OK)
        return s;
    snprintf(j->plan->method, sizeof j->plan->method, "%s", j->result.source);
    s = hs_plan_ledger(&j->costs, j->model, j->plan, err);
    return s == HS_OK ? predict(j, err) : s;
}

hs_status hs_job_plan(hs_job *j, hs_err *err)
{
    hs_status s = hs_job_prepare(j, err);
    if (s == HS_OK)
        s = j->o->n_devices > 1 ? hs_job_devices(j, err) : hs_job_solve(j, err);
    return s;
}

/* What a job for one of several devices has of its own. */
void hs_job_part_fini(hs_job *j)
{
    hs_solve_result_fini(&j->result);
    hs_plan_costs_fini(&j->costs);
    hs_cost_fini(&j->cost);
    hs_placement_free(j->plan);
    for (int i = 0; i < HS_N_BASELINES; i++)
        hs_placement_free(j->base[i]);
    free(j->min_neurons);
}

void hs_job_fini(hs_job *j)
{
    for (uint32_t d = 0; j->of && d < j->o->n_devices; d++)
        hs_job_part_fini(&j->of[d]);
    free(j->of);
    free(j->belongs);
    hs_job_part_fini(j);
    hs_activation_free(j->profile);
    hs_model_free(j->model);
    if (j->order)
        free(j->order[0]);
    free(j->order);
    free(j->machine);
}
