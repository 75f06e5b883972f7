/* An answer is never trusted: what goes wrong in a solver goes wrong quietly. */
#include "tools/solver/verify.h"

#include "formats/gguf.h"
#include "runtime/budget.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Count, minimum and group of one layer, and that no neuron left behind is hotter than one
 * taken; *value is raised by what the neurons are worth. */
static hs_status check_layer(const hs_verify *v, const hs_placement *p, uint32_t d, uint32_t l,
                             double *value, hs_err *err)
{
    const hs_placement_layer *y = &p->layer[l];
    const int64_t *count = v->profile->count[l];
    if (y->n_device && y->n_device < v->min_neurons[d][l])
        return hs_fail(err, HS_ERR_FAILED, "verification: layer %u: %u neurons, the minimum is %u",
                       l, y->n_device, v->min_neurons[d][l]);
    if (y->n_device % v->group && y->n_device != y->n_ff)
        return hs_fail(err, HS_ERR_FAILED,
                       "verification: layer %u: %u neurons are no whole groups of %u", l,
                       y->n_device, v->group);
    int64_t taken = INT64_MAX, left = -1;
    uint32_t at = 0;
    for (uint32_t i = 0; i < y->n_ff; i++) {
        if (at < y->n_device && (uint32_t)y->neuron[at] == i) {
            taken = count[i] < taken ? count[i] : taken;
            *value += (double)count[i];
            at++;
        } else {
            left = count[i] > left ? count[i] : left;
        }
    }
    if (at != y->n_device)
        return hs_fail(err, HS_ERR_FAILED, "verification: layer %u: neurons are not ascending", l);
    if (left > taken)
        return hs_fail(err, HS_ERR_FAILED,
                       "verification: layer %u: a neuron with count %" PRId64
                       " stays on the CPU, one with %" PRId64 " is on the device",
                       l, left, taken);
    return HS_OK;
}

/* Neurons of one device, `p` and `plan` being its views; *value is raised by what they serve. */
static hs_status check_neurons(const hs_verify *v, const hs_placement *p, const hs_placement *plan,
                               uint32_t d, double *value, hs_err *err)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *a = &p->layer[l], *b = &plan->layer[l];
        if (a->n_device != b->n_device ||
            memcmp(a->neuron, b->neuron, a->n_device * sizeof *a->neuron) != 0)
            return hs_fail(err, HS_ERR_FAILED,
                           "verification: layer %u: the file has other neurons than the plan", l);
        const hs_status s = check_layer(v, p, d, l, value, err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status check_bytes(const hs_verify *v, const hs_placement *p, const hs_placement *plan,
                             uint32_t d, hs_err *err)
{
    const uint64_t total = hs_budget_total(v->model, p);
    if (total > v->budget[d])
        return hs_fail(err, HS_ERR_FAILED,
                       "verification: the placement takes %" PRIu64
                       " bytes of device %u, the budget is %" PRIu64,
                       total, d, v->budget[d]);
    if (total != plan->plan_bytes)
        return hs_fail(err, HS_ERR_FAILED,
                       "verification: the placement takes %" PRIu64
                       " bytes of device %u, the plan says %" PRIu64,
                       total, d, plan->plan_bytes);
    return HS_OK;
}

/* One device's part; *value is raised by activations served or seconds saved. */
static hs_status check_device(const hs_verify *v, const hs_placement *p, uint32_t d, double *value,
                              hs_err *err)
{
    hs_placement *part = NULL, *plan = NULL;
    double served = 0;
    hs_status s = hs_placement_view(&part, p, d, err);
    if (s == HS_OK)
        s = hs_placement_view(&plan, v->plan, d, err);
    if (s == HS_OK)
        s = check_neurons(v, part, plan, d, &served, err);
    if (s == HS_OK)
        s = check_bytes(v, part, plan, d, err);
    if (s == HS_OK && v->cost[d]) {
        hs_placement empty = *part;
        hs_placement_layer *layer = calloc((size_t)part->n_layer + 1, sizeof *layer);
        empty.layer = layer;
        empty.output = false;
        if (layer)
            served = hs_cost_step(v->cost[d], &empty) - hs_cost_step(v->cost[d], part);
        else
            s = hs_fail(err, HS_ERR_NOMEM, "verification: out of memory");
        free(layer);
    }
    *value += served;
    hs_placement_free(part);
    hs_placement_free(plan);
    return s;
}

/* Times of several devices only add up when no layer is on two of them. */
static hs_status check_owners(const hs_placement *p, hs_err *err)
{
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        uint32_t owners = 0;
        for (uint32_t i = 0; i < y->n_device; i++)
            owners |= UINT32_C(1) << (y->on_which ? y->on_which[i] : 0);
        owners |= (uint32_t)y->attn << y->attn_device | (uint32_t)y->kv << y->kv_device |
                  (uint32_t)y->predictor << y->predictor_device |
                  (uint32_t)y->ffn_norm << y->ffn_norm_device;
        if (owners & (owners - 1))
            return hs_fail(err, HS_ERR_FAILED, "verification: layer %u is on two devices", l);
    }
    return HS_OK;
}

/* What a step takes with nothing on any device; any of them tells. */
static hs_status cpu_step(const hs_verify *v, const hs_placement *p, double *out, hs_err *err)
{
    hs_placement empty = *p;
    empty.layer = calloc((size_t)p->n_layer + 1, sizeof *empty.layer);
    empty.output = false;
    if (!empty.layer)
        return hs_fail(err, HS_ERR_NOMEM, "verification: out of memory");
    *out = hs_cost_step(v->cost[0], &empty);
    free(empty.layer);
    return HS_OK;
}

static hs_status check_value(const hs_verify *v, const hs_placement *p, double value, hs_err *err)
{
    double cpu = 0;
    const hs_status s = v->cost[0] ? cpu_step(v, p, &cpu, err) : HS_OK;
    if (s != HS_OK)
        return s;
    value = v->cost[0] ? cpu - value : value;
    /* The solver counts picoseconds, so that it is off by up to one for every choice. */
    const double claim = v->plan->objective_value;
    const double most = 1e-9 * value + (v->cost[0] ? 1e-12 * (2 * p->n_layer + 1) : 0);
    if (!(claim - value <= most && value - claim <= most))
        return hs_fail(err, HS_ERR_FAILED,
                       "verification: the placement is worth %.17g, the solver said %.17g", value,
                       claim);
    return HS_OK;
}

hs_status hs_verify_placement(const hs_verify *v, const hs_placement *p, hs_err *err)
{
    hs_err why = {0};
    double value = 0;
    if (hs_placement_check(p, v->model, &why) != HS_OK)
        return hs_fail(err, HS_ERR_FAILED, "verification: %.400s", why.msg);
    if (!v->plain && strcmp(p->fingerprint, v->plan->fingerprint) != 0)
        return hs_fail(err, HS_ERR_FAILED, "verification: the model's fingerprint is missing");
    if (p->n_devices != v->plan->n_devices)
        return hs_fail(err, HS_ERR_FAILED, "verification: %u devices were written, not %u",
                       p->n_devices, v->plan->n_devices);
    hs_status s = check_owners(p, err);
    for (uint32_t d = 0; s == HS_OK && d < p->n_devices; d++)
        s = check_device(v, p, d, &value, err);
    return s == HS_OK ? check_value(v, p, value, err) : s;
}

/* A plain file has neurons only; the budget is still that of all the plan. */
static void take_dense(hs_placement *p, const hs_placement *plan)
{
    for (uint32_t l = 0; l < p->n_layer && l < plan->n_layer; l++) {
        p->layer[l].attn = plan->layer[l].attn;
        p->layer[l].predictor = plan->layer[l].predictor;
        p->layer[l].ffn_norm = plan->layer[l].ffn_norm;
        p->layer[l].kv = plan->layer[l].kv;
    }
    p->output = plan->output;
    p->n_ctx = plan->n_ctx;
    p->kv_type = plan->kv_type;
}

hs_status hs_verify_file(const hs_verify *v, const hs_map *file, hs_err *err)
{
    hs_gguf *g;
    hs_placement *p;
    hs_err why = {0};
    hs_status s = hs_gguf_parse(&g, file->data, file->size, &why);
    if (s == HS_OK) {
        s = hs_placement_parse(&p, g, &why);
        hs_gguf_free(g);
    }
    if (s != HS_OK)
        return hs_fail(err, HS_ERR_FAILED, "verification: what was written does not read: %.400s",
                       why.msg);
    if (p->n_layer != v->plan->n_layer)
        s = hs_fail(err, HS_ERR_FAILED, "verification: %u layers were written, not %u", p->n_layer,
                    v->plan->n_layer);
    if (s == HS_OK && v->plain)
        take_dense(p, v->plan);
    if (s == HS_OK)
        s = hs_verify_placement(v, p, err);
    hs_placement_free(p);
    return s;
}
