/* A plan for several devices.  Every layer belongs to one of them, as does the head; what a device
 * makes of its layers is planned as if it were alone, so the one surprise is that all of a plan for
 * one device is used again here.  Which layer belongs to whom: assign.h. */
#include "runtime/budget.h"
#include "tools/solver/assign.h"
#include "tools/solver/core.h"
#include "tools/solver/job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double picos = 1e12;

/* ---- one device's job --------------------------------------------------------------------------
 */

typedef struct parts {
    hs_job *j;
    hs_job_options o[HS_PLACEMENT_DEVICES];
    bool *mine; /* [n_devices][n_layer] */
    double until;
    bool talk; /* the plan that is kept: its notes are shown */
} parts;

static hs_status prepare(parts *x, hs_err *err)
{
    hs_job *j = x->j;
    const uint32_t n = j->info.n_layer;
    hs_status s = HS_OK;
    for (uint32_t d = 0; s == HS_OK && d < j->o->n_devices; d++) {
        hs_job *y = &j->of[d];
        *y = (hs_job){.o = &x->o[d],
                      .model = j->model,
                      .info = j->info,
                      .profile = j->profile,
                      .machine = j->machine,
                      .order = j->order,
                      .latency = j->latency,
                      .device = d};
        x->o[d] = *j->o;
        x->o[d].budget = j->o->device_budget[d];
        x->o[d].n_devices = 0;
        y->min_neurons = calloc((size_t)n + 1, sizeof *y->min_neurons);
        if (!y->min_neurons)
            return hs_fail(err, HS_ERR_NOMEM, "device %u: out of memory", d);
        for (uint32_t l = 0; l < n; l++)
            y->min_neurons[l] = (uint32_t)j->o->min_neurons;
        s = hs_job_prepare(y, err);
        y->costs.mine = x->mine + (size_t)d * n;
    }
    return s;
}

/* Who owns what, and all of the devices' plans for it. */
static hs_status solve_parts(parts *x, const uint8_t *device, hs_err *err)
{
    hs_job *j = x->j;
    const uint32_t n = j->info.n_layer;
    hs_status s = HS_OK;
    for (uint32_t d = 0; s == HS_OK && d < j->o->n_devices; d++) {
        hs_job *y = &j->of[d];
        for (uint32_t l = 0; l < n; l++)
            x->mine[(size_t)d * n + l] = device[l] == d;
        y->costs.no_output = device[n] != d;
        x->o[d].cli.quiet = j->o->cli.quiet || !x->talk;
        x->o[d].time_limit = fmax(x->until - hs_core_clock(), 1e-3);
        hs_solve_result_fini(&y->result);
        hs_placement *old = y->plan, *p;
        s = hs_placement_new(&p, n, j->profile->n_ff, err);
        if (s != HS_OK)
            return s;
        p->has_plan = true;
        p->vram_capacity = old->vram_capacity;
        p->n_ctx = old->n_ctx;
        p->kv_type = old->kv_type;
        p->group = old->group;
        memcpy(p->objective, old->objective, sizeof p->objective);
        memcpy(p->fingerprint, old->fingerprint, sizeof p->fingerprint);
        hs_placement_free(old);
        y->plan = p;
        s = hs_job_solve(y, err);
        if (s != HS_OK)
            hs_ctx(err, s, "device %u: ", d);
    }
    return s;
}

/* Activations on a device, or picoseconds that it saves. */
static int64_t worth(const hs_job *y)
{
    if (!y->latency)
        return y->result.value;
    return (int64_t)llround((y->step_s[HS_BASE_CPU] - y->plan_s) * picos);
}

static hs_status exact(void *ud, const uint8_t *device, int64_t *value, hs_err *err)
{
    parts *x = ud;
    const hs_status s = solve_parts(x, device, err);
    *value = 0;
    for (uint32_t d = 0; s == HS_OK && d < x->j->o->n_devices; d++)
        *value += worth(&x->j->of[d]);
    return s;
}

/* ---- the problem of who owns what --------------------------------------------------------------
 */

/* Impact: dense blocks wherever the layer is, then its groups. */
static hs_status impact_items(hs_assign_problem *p, hs_job *y, uint32_t d, hs_err *err)
{
    const hs_plan_costs *c = &y->costs;
    hs_solve_problem *q;
    hs_status s = hs_job_state(y, 0, &q, err);
    for (uint32_t l = 0; s == HS_OK && l < q->n_layer; l++) {
        const hs_solve_layer *g = &q->layer[l];
        hs_choice *o = calloc((size_t)g->n_groups + 1, sizeof *o);
        size_t first[2] = {0, 1};
        if (!o) {
            s = hs_fail(err, HS_ERR_NOMEM, "layer %u: out of memory", l);
            break;
        }
        for (uint32_t k = g->min_groups ? g->min_groups : 1; k <= g->n_groups; k++)
            o[first[1]++] = (hs_choice){g->bytes[k], g->value[k], k};
        s = hs_assign_item(p, d, l, o, first, 1, err);
        free(o);
        p->fixed[l] = (double)(c->attn[l] + c->predictor[l] + c->ffn_norm[l] + c->kv);
    }
    p->fixed[y->info.n_layer] = (double)(c->output + c->scratch[1][1] - c->scratch[0][1]);
    p->capacity[d] = (double)y->o->budget - (double)c->scratch[0][1];
    hs_solve_problem_free(q);
    return s;
}

static hs_status latency_items(hs_assign_problem *p, hs_job *y, uint32_t d, hs_err *err)
{
    const hs_latency_problem x = hs_job_latency(y);
    const uint32_t n = y->info.n_layer;
    hs_choices c;
    int64_t head;
    hs_status s = hs_latency_choices(&x, &c, &head, err);
    for (uint32_t l = 0; s == HS_OK && l < n; l++) {
        /* The two classes of the layer, one behind the other. */
        const size_t a = c.first[l + 1] - c.first[l], f = c.first[n + l + 1] - c.first[n + l];
        hs_choice *o = malloc((a + f) * sizeof *o);
        const size_t first[3] = {0, a, a + f};
        if (!o) {
            s = hs_fail(err, HS_ERR_NOMEM, "layer %u: out of memory", l);
            break;
        }
        memcpy(o, &c.choice[c.first[l]], a * sizeof *o);
        memcpy(o + a, &c.choice[c.first[n + l]], f * sizeof *o);
        s = hs_assign_item(p, d, l, o, first, 2, err);
        free(o);
    }
    const hs_choice h[2] = {{0}, {y->costs.output, head, 1}};
    const size_t first[2] = {0, 2};
    if (s == HS_OK)
        s = hs_assign_item(p, d, n, h, first, 1, err);
    /* No plan with anything on the device has less of it for working buffers. */
    p->capacity[d] = (double)y->o->budget - (double)y->costs.scratch[0][0];
    p->capacity[d] = fmax(p->capacity[d], 0);
    free(c.first);
    free(c.choice);
    return s;
}

/* For stating the problem every layer is everybody's. */
static hs_status state(parts *x, hs_assign_problem *p, hs_err *err)
{
    hs_job *j = x->j;
    const uint32_t n = j->info.n_layer;
    hs_status s = hs_assign_new(p, n + 1, j->o->n_devices, err);
    memset(x->mine, 1, (size_t)n * j->o->n_devices * sizeof *x->mine);
    for (uint32_t d = 0; s == HS_OK && d < j->o->n_devices; d++)
        s = (j->latency ? latency_items : impact_items)(p, &j->of[d], d, err);
    return s;
}

/* ---- bounds -------------------------------------------------------------------------------------
 */

/* Impact: the dense blocks as they are, and what they leave as one memory for all neurons. */
static hs_status impact_bound(parts *x, int64_t *bound, hs_err *err)
{
    hs_job *j = x->j;
    uint64_t left = 0;
    hs_solve_problem *q = NULL;
    hs_solve_result r = {0};
    for (uint32_t d = 0; d < j->o->n_devices; d++) {
        const hs_job *y = &j->of[d];
        uint64_t taken = 0;
        for (size_t i = 0; i < y->plan->n_ledger; i++)
            if (strcmp(y->plan->ledger[i].what, "neurons") != 0)
                taken += y->plan->ledger[i].bytes;
        taken = taken ? taken : y->costs.scratch[0][0];
        left += taken < y->o->budget ? y->o->budget - taken : 0;
        for (uint32_t l = 0; l < j->info.n_layer; l++)
            if (!d || y->min_neurons[l] < j->min_neurons[l])
                j->min_neurons[l] = y->min_neurons[l];
    }
    hs_status s = hs_job_state(j, left, &q, err);
    hs_solve_params how = hs_job_params(j);
    how.time_limit = fmax(x->until - hs_core_clock(), 1e-3);
    if (s == HS_OK)
        s = hs_solve(q, &how, &r, err);
    if (s == HS_OK) {
        *bound = r.bound;
        j->result.n_groups = r.n_groups;
    }
    hs_solve_result_fini(&r);
    hs_solve_problem_free(q);
    return s;
}

/* ---- the plans as one ---------------------------------------------------------------------------
 */

static hs_status take_layer(hs_placement *p, const hs_placement *from, uint32_t l, uint32_t d,
                            int32_t *device, hs_err *err)
{
    const hs_placement_layer *a = &from->layer[l];
    hs_placement_layer *y = &p->layer[l];
    for (uint32_t i = 0; i < a->n_ff; i++)
        device[i] = HS_PLACEMENT_HOST;
    for (uint32_t i = 0; i < a->n_device; i++)
        device[a->neuron[i]] = (int32_t)d;
    y->attn = a->attn;
    y->predictor = a->predictor;
    y->ffn_norm = a->ffn_norm;
    y->kv = a->kv;
    y->attn_device = a->attn ? (uint8_t)d : 0;
    y->predictor_device = a->predictor ? (uint8_t)d : 0;
    y->ffn_norm_device = a->ffn_norm ? (uint8_t)d : 0;
    y->kv_device = a->kv ? (uint8_t)d : 0;
    return hs_placement_spread(p, l, device, err);
}

/* A line of a layer comes from the device that owns it, the head's from the head's. */
static hs_status take_ledger(hs_job *j, uint32_t d, hs_err *err)
{
    const hs_placement *from = j->of[d].plan;
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < from->n_ledger; i++) {
        const hs_ledger_line *e = &from->ledger[i];
        const uint32_t owner = e->layer >= 0                ? j->belongs[e->layer]
                               : !strcmp(e->what, "output") ? j->belongs[j->info.n_layer]
                                                            : d;
        if (owner != d)
            continue;
        s = hs_placement_add_ledger(j->plan, e->what, e->layer, e->bytes, err);
        if (s == HS_OK)
            j->plan->ledger[j->plan->n_ledger - 1].device = (int32_t)d;
    }
    return s;
}

static hs_status merge(hs_job *j, hs_err *err)
{
    hs_placement *p = j->plan;
    const uint32_t n = j->info.n_layer;
    int32_t *device = malloc(((size_t)j->info.n_ff + 1) * sizeof *device);
    if (!device)
        return hs_fail(err, HS_ERR_NOMEM, "placement: out of memory");
    hs_status s = hs_placement_devices(p, j->o->n_devices, j->o->device_budget, err);
    for (uint32_t l = 0; s == HS_OK && l < n; l++)
        s = take_layer(p, j->of[j->belongs[l]].plan, l, j->belongs[l], device, err);
    free(device);
    p->output = j->of[j->belongs[n]].plan->output;
    p->output_device = p->output ? j->belongs[n] : 0;
    p->plan_bytes = 0;
    for (uint32_t d = 0; s == HS_OK && d < j->o->n_devices; d++) {
        p->device_bytes[d] = j->of[d].plan->plan_bytes;
        p->plan_bytes += p->device_bytes[d];
        s = take_ledger(j, d, err);
    }
    return s;
}

/* Times add up, because each layer is on one device at most. */
static void predict(hs_job *j)
{
    if (!j->machine)
        return;
    const double cpu = j->of[0].step_s[HS_BASE_CPU];
    j->plan_s = cpu;
    for (int i = 0; i < HS_N_BASELINES; i++)
        j->step_s[i] = cpu;
    for (uint32_t d = 0; d < j->o->n_devices; d++) {
        const hs_job *y = &j->of[d];
        j->plan_s -= cpu - y->plan_s;
        for (int i = 0; i < HS_N_BASELINES; i++)
            j->step_s[i] -= cpu - y->step_s[i];
    }
}

static hs_status conclude(parts *x, const hs_assign_result *a, hs_err *err)
{
    hs_job *j = x->j;
    hs_solve_result *r = &j->result;
    int64_t value = 0, bound = (int64_t)fmin(ceil(a->bound), 9e18);
    *r = (hs_solve_result){.source = "exact", .status = "optimal", .glpk_bound = -1};
    for (uint32_t d = 0; d < j->o->n_devices; d++) {
        const hs_solve_result *y = &j->of[d].result;
        value += worth(&j->of[d]);
        if (strcmp(y->source, "exact") != 0)
            r->source = y->source;
        if (strcmp(y->status, "optimal") != 0)
            r->status = y->status;
        if (y->note[0])
            memcpy(r->note, y->note, sizeof r->note);
    }
    hs_status s = HS_OK;
    if (!j->latency && !a->proven)
        s = impact_bound(x, &bound, err);
    if (s != HS_OK)
        return s;
    hs_placement *p = j->plan;
    r->value = value;
    r->bound = r->lagrange_bound = bound > value ? bound : value;
    predict(j);
    if (j->latency) {
        /* Rounding to picoseconds is no gap. */
        const double cpu = j->step_s[HS_BASE_CPU];
        p->objective_value = j->plan_s;
        p->bound = fmin(fmax(cpu - (double)r->bound / picos, 0), j->plan_s);
        p->gap = j->plan_s > 0 ? (j->plan_s - p->bound) / j->plan_s : 0;
        p->gap = p->gap > 1e-9 ? p->gap : 0;
    } else {
        p->objective_value = (double)value;
        p->bound = (double)r->bound;
        p->gap = hs_core_gap(value, r->bound);
    }
    r->gap = p->gap;
    if (r->gap > 0 && !strcmp(r->status, "optimal"))
        r->status = "layers to devices by search";
    snprintf(p->method, sizeof p->method, "%s", r->source);
    return merge(j, err);
}

hs_status hs_job_devices(hs_job *j, hs_err *err)
{
    const double start = hs_core_clock();
    const uint32_t n = j->info.n_layer;
    parts x = {.j = j, .until = start + j->o->time_limit};
    hs_assign_problem p = {0};
    hs_assign_result a;
    int64_t value;
    j->of = calloc(j->o->n_devices, sizeof *j->of);
    j->belongs = calloc((size_t)n + 1, sizeof *j->belongs);
    x.mine = calloc((size_t)n * j->o->n_devices + 1, sizeof *x.mine);
    hs_status s = HS_OK;
    if (!j->of || !j->belongs || !x.mine)
        s = hs_fail(err, HS_ERR_NOMEM, "plan of %u devices: out of memory", j->o->n_devices);
    if (s == HS_OK)
        s = prepare(&x, err);
    if (s == HS_OK)
        s = state(&x, &p, err);
    if (s == HS_OK)
        s = hs_assign_solve(&p, exact, &x, j->belongs, &a, err);
    x.talk = true;
    if (s == HS_OK)
        s = exact(&x, j->belongs, &value, err);
    if (s == HS_OK)
        s = conclude(&x, &a, err);
    j->result.seconds = hs_core_clock() - start;
    hs_assign_fini(&p);
    /* Not needed any more, and the caller's frame ends. */
    for (uint32_t d = 0; j->of && d < j->o->n_devices; d++) {
        j->of[d].costs.mine = NULL;
        j->of[d].o = j->o;
    }
    free(x.mine);
    return s;
}
