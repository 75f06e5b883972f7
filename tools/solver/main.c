/* hotset-solve: which neurons and dense blocks of a model go to the device. */
#include "formats/activation.h"
#include "formats/dtype.h"
#include "formats/fingerprint.h"
#include "formats/placement.h"
#include "runtime/budget.h"
#include "runtime/cli.h"
#include "runtime/model.h"
#include "tools/solver/plan.h"
#include "tools/solver/report.h"
#include "tools/solver/solve.h"
#include "tools/solver/verify.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    hs_cli cli;
    const char *model, *profile, *output, *kv_type, *objective, *solver;
    uint64_t budget;
    int64_t context, group, min_neurons;
    double gap, time_limit;
    bool has_budget, dry_run, plain;
} options;

typedef struct job {
    const options *o;
    hs_model *model;
    hs_model_info info;
    hs_activation *profile;
    hs_plan_costs costs;
    hs_placement *plan;
    hs_solve_result result;
} job;

/* ---- input ---------------------------------------------------------------------------------- */

static hs_status check_profile(const job *j, hs_err *err)
{
    const options *o = j->o;
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
                       "%s: made on another model: fingerprint %s, the model's is %s", o->profile,
                       a->fingerprint, j->info.fingerprint);
    return HS_OK;
}

static hs_status load(job *j, hs_err *err)
{
    const options *o = j->o;
    hs_status s = hs_model_load(&j->model, o->model, err);
    if (s != HS_OK)
        return s;
    hs_model_describe(j->model, &j->info);
    if (!j->info.relu_family)
        hs_cli_warn(&o->cli,
                    "%s: with %s no neuron is ever inactive; a placement saves memory, not work",
                    o->model, j->info.activation);
    s = hs_activation_read(&j->profile, o->profile, err);
    return s == HS_OK ? check_profile(j, err) : s;
}

static uint32_t context(const job *j)
{
    const uint32_t train = j->info.n_ctx_train;
    return j->o->context ? (uint32_t)j->o->context : train < 4096 ? train : 4096;
}

static hs_status new_plan(job *j, hs_err *err)
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

/* ---- solving ----------------------------------------------------------------------------------
 */

static uint64_t cost_of(void *model, uint32_t l, uint32_t n)
{
    return hs_budget_neurons(model, l, n);
}

static hs_status state_problem(const job *j, uint64_t capacity, int32_t *const *order,
                               hs_solve_problem **out, hs_err *err)
{
    hs_status s = hs_solve_problem_new(out, j->info.n_layer, capacity, err);
    for (uint32_t l = 0; s == HS_OK && l < j->info.n_layer; l++) {
        s = hs_solve_order(j->profile->count[l], j->info.n_ff, order[l], err);
        if (s == HS_OK)
            s = hs_solve_problem_layer(*out, l, j->info.n_ff, j->profile->count[l], order[l],
                                       (uint32_t)j->o->group, (uint32_t)j->o->min_neurons, cost_of,
                                       j->model, err);
        if (s == HS_ERR_FORMAT)
            hs_ctx(err, s, "%s: ", j->o->profile);
    }
    return s;
}

static hs_status solve_neurons(job *j, uint64_t capacity, int32_t *const *order, hs_err *err)
{
    const options *o = j->o;
    const hs_solve_params q = {
        .method = !strcmp(o->solver, "glpk")    ? HS_SOLVE_GLPK
                  : !strcmp(o->solver, "exact") ? HS_SOLVE_EXACT
                                                : HS_SOLVE_AUTO,
        .gap = o->gap,
        .time_limit = o->time_limit,
        .stop = hs_cli_interrupted,
    };
    hs_solve_problem *p = NULL;
    hs_status s = state_problem(j, capacity, order, &p, err);
    if (s == HS_OK) {
        hs_cli_debug(&o->cli, "%" PRIu64 " bytes for neurons; solver %s, time limit %g s, gap %g",
                     capacity, o->solver, q.time_limit, q.gap);
        s = hs_solve(p, &q, &j->result, err);
    }
    hs_solve_problem_free(p);
    for (uint32_t l = 0; s == HS_OK && l < j->info.n_layer; l++) {
        const uint64_t n = j->result.groups[l] * (uint64_t)o->group;
        s = hs_placement_set(j->plan, l, order[l], n < j->info.n_ff ? (uint32_t)n : j->info.n_ff,
                             err);
    }
    return s;
}

static hs_status solve_rest(job *j, uint64_t capacity, hs_err *err)
{
    const uint32_t n = j->info.n_layer, n_ff = j->info.n_ff;
    int32_t **order = calloc(n, sizeof *order);
    int32_t *all = calloc((size_t)n * n_ff, sizeof *all);
    hs_status s = HS_OK;
    if (order && all) {
        for (uint32_t l = 0; l < n; l++)
            order[l] = all + (size_t)l * n_ff;
        s = solve_neurons(j, capacity, order, err);
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "sorting neurons: out of memory");
    }
    free(order);
    free(all);
    return s;
}

/* A model that fits completely needs no choice. */
static hs_status try_everything(job *j, bool *done, hs_err *err)
{
    *done = false;
    if (j->o->min_neurons > (int64_t)j->info.n_ff)
        return HS_OK;
    const hs_status s = hs_plan_everything(&j->costs, j->plan, err);
    if (s != HS_OK || hs_budget_total(j->model, j->plan) > j->o->budget)
        return s;
    int64_t sum = 0;
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        for (uint32_t i = 0; i < j->info.n_ff; i++)
            if (__builtin_add_overflow(sum, j->profile->count[l][i], &sum))
                return hs_fail(err, HS_ERR_FORMAT, "%s: the counts add up to more than 2^63",
                               j->o->profile);
    j->result = (hs_solve_result){
        .value = sum, .bound = sum, .source = "exact", .status = "optimal", .glpk_bound = -1};
    *done = true;
    return HS_OK;
}

static void clear_neurons(job *j)
{
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        j->plan->layer[l].n_device = 0;
}

static hs_status make_plan(job *j, hs_err *err)
{
    bool done;
    hs_status s = new_plan(j, err);
    if (s == HS_OK)
        s = try_everything(j, &done, err);
    if (s == HS_OK && !done) {
        clear_neurons(j);
        s = solve_rest(j, hs_plan_dense(&j->costs, j->o->budget, j->plan), err);
    }
    if (s != HS_OK)
        return s;
    hs_placement *p = j->plan;
    p->objective_value = (double)j->result.value;
    p->bound = (double)j->result.bound;
    p->gap = j->result.gap;
    snprintf(p->method, sizeof p->method, "%s", j->result.source);
    return hs_plan_ledger(&j->costs, j->model, p, err);
}

/* ---- output --------------------------------------------------------------------------------- */

/* Nothing says "this made no difference" like an empty plan that looks like a success. */
static void warn(const job *j)
{
    const hs_cli *cli = &j->o->cli;
    bool any = false;
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        any = any || j->plan->layer[l].n_device > 0;
    const char *note = j->result.note;
    char scratch[24], budget[24];
    if (!any && !j->o->budget)
        hs_cli_warn(cli, "the budget is 0: nothing is placed on the device");
    else if (!any && !j->plan->plan_bytes)
        hs_cli_warn(cli,
                    "nothing is placed on the device: working buffers alone take %s of the %s"
                    " budget%s%s",
                    hs_format_bytes(scratch, sizeof scratch, j->costs.scratch[0][0]),
                    hs_format_bytes(budget, sizeof budget, j->o->budget), note[0] ? "; " : "",
                    note);
    else if (!any)
        hs_cli_warn(cli, "no neurons are placed on the device: %s",
                    note[0] ? note : "the budget ends with the dense part");
    else if (note[0])
        hs_cli_warn(cli, "%s", note);
    if (strcmp(j->result.status, "optimal") != 0)
        hs_cli_warn(cli, "%s: the best verified plan, by %s, is within %.3g %% of the optimum",
                    j->result.status, j->result.source, 100 * j->result.gap);
}

static hs_status write_plan(job *j, const hs_verify *v, hs_err *err)
{
    const options *o = j->o;
    hs_out *out;
    hs_status s = hs_out_open(&out, o->output, o->cli.force, err);
    if (s != HS_OK)
        return s;
    hs_map map = {0};
    s = hs_placement_write(j->plan, out, o->plain, err);
    if (s == HS_OK)
        s = hs_out_map(out, &map, err);
    if (s == HS_OK)
        s = hs_verify_file(v, &map, err);
    hs_map_close(&map);
    if (s == HS_OK && hs_cli_interrupted())
        s = hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    if (s == HS_OK)
        return hs_out_commit(out, true, err);
    hs_out_abort(out);
    return s;
}

/* PowerInfer compares this figure with what its own dense part leaves free. */
static hs_status set_plain_capacity(job *j, hs_err *err)
{
    hs_placement bare = *j->plan;
    hs_placement_layer *layer = malloc(bare.n_layer * sizeof *layer);
    if (!layer)
        return hs_fail(err, HS_ERR_NOMEM, "placement: out of memory");
    for (uint32_t l = 0; l < bare.n_layer; l++)
        layer[l] =
            (hs_placement_layer){.n_ff = bare.layer[l].n_ff, .n_device = bare.layer[l].n_device};
    bare.layer = layer;
    bare.output = false;
    j->plan->vram_capacity = hs_budget_total(j->model, &bare);
    free(layer);
    return HS_OK;
}

static hs_status run(job *j, hs_err *err)
{
    const options *o = j->o;
    hs_status s = load(j, err);
    if (s == HS_OK)
        s = make_plan(j, err);
    if (s != HS_OK)
        return s;
    const hs_verify v = {.model = j->model,
                         .profile = j->profile,
                         .plan = j->plan,
                         .budget = o->budget,
                         .group = (uint32_t)o->group,
                         .min_neurons = (uint32_t)o->min_neurons,
                         .plain = o->plain};
    if (o->plain)
        s = set_plain_capacity(j, err);
    if (s == HS_OK)
        s = o->dry_run ? hs_verify_placement(&v, j->plan, err) : write_plan(j, &v, err);
    if (s != HS_OK)
        return s;
    warn(j);
    const hs_solve_report r = {.plan = j->plan,
                               .profile = j->profile,
                               .result = &j->result,
                               .budget = o->budget,
                               .output = o->dry_run ? NULL : o->output};
    if (o->cli.json)
        return hs_report_json(&r, err);
    hs_report_text(&r);
    return HS_OK;
}

static void finish(job *j)
{
    hs_solve_result_fini(&j->result);
    hs_plan_costs_fini(&j->costs);
    hs_placement_free(j->plan);
    hs_activation_free(j->profile);
    hs_model_free(j->model);
}

/* ---- options -------------------------------------------------------------------------------- */

static int check_options(const options *o)
{
    if (!o->model || !o->profile)
        return hs_cli_usage(&o->cli, "expected a model (-m) and its activation profile (-a)");
    if (!o->has_budget)
        return hs_cli_usage(&o->cli, "expected --vram-budget SIZE, such as 20G (0: CPU only)");
    if (!o->output && !o->dry_run)
        return hs_cli_usage(&o->cli, "expected -o OUT.gpuidx, or --dry-run");
    if (o->output && (hs_same_file(o->output, o->model) || hs_same_file(o->output, o->profile)))
        return hs_cli_usage(&o->cli, "%s: the output is one of the inputs", o->output);
    return -1;
}

int main(int argc, char **argv)
{
    options o = {
        .kv_type = "f16", .objective = "impact", .solver = "auto", .group = 64, .time_limit = 30};
    const hs_opt opts[] = {
        {.type = HS_OPT_GROUP, .help = "Files"},
        {HS_OPT_STRING, "model", 'm', &o.model, "FILE", "the model the placement is for", 0, 0,
         NULL, NULL},
        {HS_OPT_STRING, "activation", 'a', &o.profile, "FILE",
         "its activation profile, from hotset-profile", 0, 0, NULL, NULL},
        {HS_OPT_STRING, "output", 'o', &o.output, "FILE", "write the placement to FILE", 0, 0, NULL,
         NULL},
        {HS_OPT_FLAG, "plain", 0, &o.plain, NULL,
         "write PowerInfer's own keys only, nothing of ours", 0, 0, NULL, NULL},
        {HS_OPT_FLAG, "dry-run", 0, &o.dry_run, NULL, "solve and report, write nothing", 0, 0, NULL,
         NULL},
        {.type = HS_OPT_GROUP, .help = "Device"},
        {HS_OPT_SIZE, "vram-budget", 0, &o.budget, "SIZE",
         "device memory for everything, such as 20G; 0 is CPU only", 0, 0, NULL, &o.has_budget},
        {HS_OPT_INT, "ctx", 'c', &o.context, "N",
         "context the KV cache is planned for (default: the model's, at most 4096)", 1, 1 << 24,
         NULL, NULL},
        {HS_OPT_CHOICE, "kv-type", 0, &o.kv_type, "TYPE", "KV cache in f16 or f32 (default: f16)",
         0, 0, "f16|f32", NULL},
        {.type = HS_OPT_GROUP, .help = "Problem"},
        {HS_OPT_CHOICE, "objective", 0, &o.objective, "NAME",
         "impact: activations served by the device (default)", 0, 0, "impact", NULL},
        {HS_OPT_INT, "group", 0, &o.group, "N",
         "neurons chosen together (default: 64; PowerInfer's CUDA kernels need 256)", 1, 1 << 30,
         NULL, NULL},
        {HS_OPT_INT, "min-neurons", 0, &o.min_neurons, "N",
         "per layer, none or at least N neurons (default: 0)", 0, 1 << 30, NULL, NULL},
        {.type = HS_OPT_GROUP, .help = "Solver"},
        {HS_OPT_CHOICE, "solver", 0, &o.solver, "NAME",
         "auto, glpk or exact (default: auto, GLPK where exact has no proof)", 0, 0, "auto|glpk|exact",
         NULL},
        {HS_OPT_REAL, "gap", 0, &o.gap, "X",
         "stop at this proven relative gap (default: 0, the optimum)", 0, 1, NULL, NULL},
        {HS_OPT_REAL, "time-limit", 0, &o.time_limit, "S",
         "seconds for the solver; then its best plan is used (default: 30)", 0.001, 1e6, NULL,
         NULL},
        {.type = HS_OPT_END},
    };
    o.cli = (hs_cli){
        .program = "hotset-solve",
        .synopsis = "-m M.gguf -a PROFILE --vram-budget SIZE -o OUT.gpuidx [OPTION...]",
        .summary = "Choose the neurons and dense blocks of a model that go to the device, so that"
                   " the device serves as many activations as its memory allows.",
        .example = "-m model.q4_0.gguf -a model.activation.gguf --vram-budget 8G -o model.gpuidx",
        .opts = opts,
        .has_output = true,
    };
    int status = hs_cli_parse(&o.cli, argc, argv);
    if (status < 0)
        status = check_options(&o);
    if (status < 0) {
        job j = {.o = &o};
        hs_err err = {0};
        status = run(&j, &err) == HS_OK ? 0 : hs_cli_fail(&o.cli, &err);
        finish(&j);
        status = hs_cli_finish(&o.cli, status);
    }
    hs_cli_fini(&o.cli);
    return status;
}
