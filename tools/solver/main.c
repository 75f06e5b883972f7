/* hotset-solve: which neurons and dense blocks of a model go to the device. */
#include "formats/cursor.h"
#include "runtime/budget.h"
#include "tools/solver/job.h"
#include "tools/solver/report.h"
#include "tools/solver/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- output --------------------------------------------------------------------------------- */

/* Why no neurons are on the device. */
static const char *reason(const hs_job *j)
{
    if (j->latency)
        return "the machine file predicts no time saved by any";
    bool pays = !j->machine;
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        pays = pays || j->min_neurons[l] <= j->info.n_ff;
    if (!pays && j->o->min_neurons <= (int64_t)j->info.n_ff)
        return "by the machine file no layer's neurons save as much time as waiting for the device"
               " takes";
    return j->result.note[0] ? j->result.note : "the budget ends with the dense part";
}

static bool any_neurons(const hs_job *j)
{
    for (uint32_t l = 0; l < j->info.n_layer; l++)
        if (j->plan->layer[l].n_device)
            return true;
    return false;
}

/* With --strict a plan that makes no difference to the FFNs is no success. */
static hs_status check_strict(const hs_job *j, hs_err *err)
{
    if (!j->o->strict || !j->o->budget || any_neurons(j))
        return HS_OK;
    return hs_fail(err, HS_ERR_INFEASIBLE, "--strict: no neurons are placed on the device: %s",
                   reason(j));
}

/* Nothing says "this made no difference" like an empty plan that looks like a success. */
static void warn(const hs_job *j)
{
    const hs_cli *cli = &j->o->cli;
    const bool any = any_neurons(j);
    const char *note = j->result.note;
    char scratch[24], budget[24];
    if (!any && !j->o->budget)
        hs_cli_warn(cli, "the budget is 0: nothing is placed on the device");
    else if (!any && !j->plan->plan_bytes &&
             (!j->latency || j->costs.scratch[0][0] >= j->o->budget))
        hs_cli_warn(cli,
                    "nothing is placed on the device: working buffers alone take %s of the %s"
                    " budget%s%s",
                    hs_format_bytes(scratch, sizeof scratch, j->costs.scratch[0][0]),
                    hs_format_bytes(budget, sizeof budget, j->o->budget), note[0] ? "; " : "",
                    note);
    else if (!any)
        hs_cli_warn(cli, "no neurons are placed on the device: %s", reason(j));
    else if (note[0])
        hs_cli_warn(cli, "%s", note);
    if (!strcmp(j->result.status, "everything fits"))
        hs_cli_warn(cli,
                    "the whole model fits and goes to the device, though the machine file predicts"
                    " %.3g ms a token for that and %.3g ms for the fastest placement",
                    1e3 * j->plan->objective_value / (double)j->o->batch,
                    1e3 * j->plan->bound / (double)j->o->batch);
    else if (strcmp(j->result.status, "optimal") != 0)
        hs_cli_warn(cli, "%s: the best verified plan, by %s, is within %.3g %% of the optimum",
                    j->result.status, j->result.source, 100 * j->result.gap);
}

static hs_status write_plan(hs_job *j, const hs_verify *v, hs_err *err)
{
    const hs_job_options *o = j->o;
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
static hs_status set_plain_capacity(hs_job *j, hs_err *err)
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

static hs_verify to_verify(const hs_job *j)
{
    hs_verify v = {.model = j->model,
                   .profile = j->profile,
                   .plan = j->plan,
                   .group = (uint32_t)j->o->group,
                   .plain = j->o->plain};
    for (uint32_t d = 0; d < j->plan->n_devices; d++) {
        const hs_job *y = j->of ? &j->of[d] : j;
        v.budget[d] = j->of ? j->o->device_budget[d] : j->o->budget;
        v.min_neurons[d] = y->min_neurons;
        v.cost[d] = j->latency ? &y->cost : NULL;
    }
    return v;
}

static hs_status run(hs_job *j, hs_err *err)
{
    const hs_job_options *o = j->o;
    hs_status s = o->report ? hs_plan_report_check(o, err) : HS_OK;
    if (s == HS_OK)
        s = hs_job_load(j, err);
    if (s == HS_OK)
        s = hs_job_plan(j, err);
    if (s != HS_OK)
        return s;
    const hs_verify v = to_verify(j);
    s = check_strict(j, err);
    if (s == HS_OK && o->plain)
        s = set_plain_capacity(j, err);
    if (s == HS_OK)
        s = o->dry_run ? hs_verify_placement(&v, j->plan, err) : write_plan(j, &v, err);
    if (s != HS_OK)
        return s;
    warn(j);
    if (o->report)
        s = hs_plan_report(j, err);
    if (s != HS_OK)
        return s;
    if (o->cli.json)
        return hs_report_json(j, stdout, err);
    hs_report_text(j);
    return HS_OK;
}

/* ---- options -------------------------------------------------------------------------------- */

static int check_options(const hs_job_options *o)
{
    if (!o->model)
        return hs_cli_usage(&o->cli, "expected a model (-m) and its activation profile (-a)");
    if (!o->has_budget)
        return hs_cli_usage(&o->cli, "expected --vram-budget SIZE, such as 20G (0: CPU only), or "
                                     "--device-memory LIST");
    if (o->n_devices > 1 && o->plain)
        return hs_cli_usage(&o->cli, "--plain: PowerInfer's own file knows one device");
    if (!o->output && !o->dry_run)
        return hs_cli_usage(&o->cli, "expected -o OUT.gpuidx, or --dry-run");
    if (!o->machine && !strcmp(o->objective, "latency"))
        return hs_cli_usage(&o->cli, "--objective latency needs the machine's speeds (--machine)");
    if (!o->machine && o->batch > 1)
        return hs_cli_usage(&o->cli, "--batch needs the machine's speeds (--machine)");
    return -1;
}

static int check_output(const hs_job_options *o)
{
    if (o->output && o->machine && hs_same_file(o->output, o->machine))
        return hs_cli_usage(&o->cli, "%s: the output is one of the inputs", o->output);
    if (o->output && (hs_same_file(o->output, o->model) || hs_same_file(o->output, o->profile)))
        return hs_cli_usage(&o->cli, "%s: the output is one of the inputs", o->output);
    return -1;
}

/* Without -a: model.q4_0.gguf's profile is model.q4_0.activation.gguf or model.activation.gguf
 * beside it. */
static int find_profile(hs_job_options *o)
{
    char place[2][sizeof o->found];
    int n_places = 0;
    if (!o->model || o->profile)
        return -1;
    size_t n = strlen(o->model);
    const char *slash = strrchr(o->model, '/');
    const size_t dir = slash ? (size_t)(slash - o->model) + 1 : 0;
    if (n > dir + 5 && !strcmp(o->model + n - 5, ".gguf"))
        n -= 5;
    while (n > dir && n_places < 2) {
        const int len =
            snprintf(place[n_places], sizeof place[0], "%.*s.activation.gguf", (int)n, o->model);
        if (len < 0 || (size_t)len >= sizeof place[0])
            break;
        if (access(place[n_places++], R_OK) == 0) {
            memcpy(o->found, place[n_places - 1], sizeof o->found);
            o->profile = o->found;
            hs_cli_note(&o->cli, "profile: %s", o->found);
            return -1;
        }
        do
            n--;
        while (n > dir && o->model[n] != '.');
    }
    hs_err err = {0};
    hs_fail(&err, HS_ERR_INPUT, "no profile: none is given with -a, and there is no %.200s%s%.200s",
            n_places ? place[0] : "file beside the model", n_places > 1 ? " and no " : "",
            n_places > 1 ? place[1] : "");
    return hs_cli_fail(&o->cli, &err);
}

/* "24G,12G" into budgets; one entry is a --vram-budget. */
static int parse_devices(hs_job_options *o)
{
    const char *at = o->device_memory;
    if (!at)
        return -1;
    if (o->has_budget)
        return hs_cli_usage(&o->cli, "--device-memory: the budget is given by --vram-budget");
    o->budget = 0;
    for (;;) {
        char one[32];
        const size_t n = strcspn(at, ",");
        if (o->n_devices == HS_PLACEMENT_DEVICES)
            return hs_cli_usage(&o->cli, "--device-memory: expected at most %d devices",
                                HS_PLACEMENT_DEVICES);
        snprintf(one, sizeof one, "%.*s", n < sizeof one ? (int)n : 0, at);
        uint64_t *to = &o->device_budget[o->n_devices];
        if (!hs_parse_size(one, to) || !hs_add(o->budget, *to, &o->budget))
            return hs_cli_usage(&o->cli, "--device-memory: expected sizes like 24G,12G, got '%.*s'",
                                n < 40 ? (int)n : 40, at);
        o->n_devices++;
        at += n;
        if (!*at)
            break;
        at++;
    }
    o->has_budget = true;
    return -1;
}

int main(int argc, char **argv)
{
    hs_job_options o = {.kv_type = "f16",
                        .objective = "impact",
                        .solver = "auto",
                        .group = 64,
                        .batch = 1,
                        .time_limit = 30};
    const hs_opt opts[] = {
        {.type = HS_OPT_GROUP, .help = "Files"},
        {HS_OPT_STRING, "model", 'm', &o.model, "FILE", "the model the placement is for", 0, 0,
         NULL, NULL},
        {HS_OPT_STRING, "activation", 'a', &o.profile, "FILE",
         "its activation profile, from hotset-profile (default: beside the model)", 0, 0, NULL,
         NULL},
        {HS_OPT_STRING, "output", 'o', &o.output, "FILE", "write the placement to FILE", 0, 0, NULL,
         NULL},
        {HS_OPT_FLAG, "plain", 0, &o.plain, NULL,
         "write PowerInfer's own keys only, nothing of ours", 0, 0, NULL, NULL},
        {HS_OPT_STRING, "report", 0, &o.report, "DIR",
         "write a report with plots into the folder DIR", 0, 0, NULL, NULL},
        {HS_OPT_FLAG, "strict", 0, &o.strict, NULL,
         "fail, exit 4, when a budget above 0 places no neurons", 0, 0, NULL, NULL},
        {HS_OPT_FLAG, "dry-run", 0, &o.dry_run, NULL, "solve and report, write no placement", 0, 0,
         NULL, NULL},
        {.type = HS_OPT_GROUP, .help = "Device"},
        {HS_OPT_SIZE, "vram-budget", 0, &o.budget, "SIZE",
         "device memory for everything, such as 20G; 0 is CPU only", 0, 0, NULL, &o.has_budget},
        {HS_OPT_STRING, "device-memory", 0, &o.device_memory, "LIST",
         "the same for several devices, such as 24G,12G", 0, 0, NULL, NULL},
        {HS_OPT_INT, "ctx", 'c', &o.context, "N",
         "context the KV cache is planned for (default: the model's, at most 4096)", 1, 1 << 24,
         NULL, NULL},
        {HS_OPT_CHOICE, "kv-type", 0, &o.kv_type, "TYPE", "KV cache in f16 or f32 (default: f16)",
         0, 0, "f16|f32", NULL},
        {.type = HS_OPT_GROUP, .help = "Problem"},
        {HS_OPT_CHOICE, "objective", 0, &o.objective, "NAME",
         "impact: activations served by the device (default); latency: time of a token", 0, 0,
         "impact|latency", NULL},
        {HS_OPT_STRING, "machine", 0, &o.machine, "FILE",
         "the machine's speeds, from hotset-profile --machine or data/machines", 0, 0, NULL, NULL},
        {HS_OPT_INT, "batch", 0, &o.batch, "N",
         "tokens evaluated together in the predicted times (default: 1)", 1, 4096, NULL, NULL},
        {HS_OPT_INT, "group", 0, &o.group, "N",
         "neurons chosen together (default: 64; PowerInfer's CUDA kernels need 256)", 1, 1 << 30,
         NULL, NULL},
        {HS_OPT_INT, "min-neurons", 0, &o.min_neurons, "N",
         "per layer, none or at least N neurons (default: 0)", 0, 1 << 30, NULL, NULL},
        {.type = HS_OPT_GROUP, .help = "Solver"},
        {HS_OPT_CHOICE, "solver", 0, &o.solver, "NAME",
         "auto, glpk or exact (default: auto, GLPK where exact has no proof)", 0, 0,
         "auto|glpk|exact", NULL},
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
        status = parse_devices(&o);
    if (status < 0)
        status = check_options(&o);
    if (status < 0)
        status = find_profile(&o);
    if (status < 0)
        status = check_output(&o);
    if (status < 0) {
        hs_job j = {.o = &o};
        hs_err err = {0};
        status = run(&j, &err) == HS_OK ? 0 : hs_cli_fail(&o.cli, &err);
        hs_job_fini(&j);
        status = hs_cli_finish(&o.cli, status);
    }
    hs_cli_fini(&o.cli);
    return status;
}
