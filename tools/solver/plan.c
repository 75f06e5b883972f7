/* The dense part of a placement, in order of priority, and the ledger. */
#include "tools/solver/plan.h"

#include "runtime/budget.h"

#include <inttypes.h>
#include <stdlib.h>

hs_status hs_plan_costs_init(hs_plan_costs *c, const hs_model *m, uint32_t n_ctx, uint32_t kv_type,
                             hs_err *err)
{
    hs_model_info info;
    hs_model_describe(m, &info);
    *c = (hs_plan_costs){.n_layer = info.n_layer};
    c->attn = calloc(3 * (size_t)info.n_layer + 1, sizeof *c->attn);
    if (!c->attn)
        return hs_fail(err, HS_ERR_NOMEM, "costs of %u layers: out of memory", info.n_layer);
    c->predictor = c->attn + info.n_layer;
    c->ffn_norm = c->predictor + info.n_layer;
    for (uint32_t l = 0; l < info.n_layer; l++) {
        c->attn[l] = hs_budget_attn(m, l);
        c->predictor[l] = hs_budget_predictor(m, l);
        c->ffn_norm[l] = hs_budget_ffn_norm(m, l);
    }
    c->output = hs_budget_output(m);
    c->kv = hs_budget_kv(m, n_ctx, kv_type);
    for (int i = 0; i < 4; i++)
        c->scratch[i / 2][i % 2] = hs_budget_scratch(m, n_ctx, i / 2, i % 2);
    return HS_OK;
}

void hs_plan_costs_fini(hs_plan_costs *c)
{
    free(c->attn);
    *c = (hs_plan_costs){0};
}

typedef struct ladder {
    const hs_plan_costs *c;
    uint64_t budget, used; /* used: without scratch */
    bool output, kv;
} ladder;

static bool place(ladder *d, uint64_t bytes, bool output, bool kv)
{
    output = output || d->output;
    kv = kv || d->kv;
    if (d->used + bytes + d->c->scratch[output][kv] > d->budget)
        return false;
    d->used += bytes;
    d->output = output;
    d->kv = kv;
    return true;
}

uint64_t hs_plan_dense(const hs_plan_costs *c, uint64_t budget, hs_placement *p)
{
    ladder d = {.c = c, .budget = budget};
    for (uint32_t l = 0; l < c->n_layer; l++)
        p->layer[l].attn = hs_plan_mine(c, l) && place(&d, c->attn[l], false, false);
    for (uint32_t l = 0; l < c->n_layer; l++)
        p->layer[l].predictor =
            hs_plan_mine(c, l) && c->predictor[l] && place(&d, c->predictor[l], false, false);
    for (uint32_t l = 0; l < c->n_layer; l++)
        p->layer[l].ffn_norm = hs_plan_mine(c, l) && place(&d, c->ffn_norm[l], false, false);
    p->output = !c->no_output && place(&d, c->output, true, false);
    for (uint32_t l = 0; l < c->n_layer; l++)
        p->layer[l].kv = p->layer[l].attn && place(&d, c->kv, false, true);
    const uint64_t taken = d.used + c->scratch[d.output][d.kv];
    return taken < budget ? budget - taken : 0;
}

hs_status hs_plan_everything(const hs_plan_costs *c, hs_placement *p, hs_err *err)
{
    p->output = !c->no_output;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        hs_placement_layer *y = &p->layer[l];
        if (!hs_plan_mine(c, l))
            continue;
        y->attn = y->ffn_norm = y->kv = true;
        y->predictor = c->predictor[l] > 0;
        int32_t *id = malloc(((size_t)y->n_ff + 1) * sizeof *id);
        if (!id)
            return hs_fail(err, HS_ERR_NOMEM, "layer %u: out of memory", l);
        for (uint32_t i = 0; i < y->n_ff; i++)
            id[i] = (int32_t)i;
        const hs_status s = hs_placement_set(p, l, id, y->n_ff, err);
        free(id);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status line(hs_placement *p, const char *what, int32_t layer, uint64_t bytes,
                      uint64_t *sum, hs_err *err)
{
    *sum += bytes;
    return hs_placement_add_ledger(p, what, layer, bytes, err);
}

hs_status hs_plan_ledger(const hs_plan_costs *c, const hs_model *m, hs_placement *p, hs_err *err)
{
    uint64_t sum = 0;
    bool kv = false, any = p->output;
    hs_status s = HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < p->n_layer; l++) {
        const hs_placement_layer y = p->layer[l];
        const int32_t at = (int32_t)l;
        s = line(p, "attention", at, y.attn ? c->attn[l] : 0, &sum, err);
        if (s == HS_OK && c->predictor[l])
            s = line(p, "predictor", at, y.predictor ? c->predictor[l] : 0, &sum, err);
        if (s == HS_OK)
            s = line(p, "ffn norm", at, y.ffn_norm ? c->ffn_norm[l] : 0, &sum, err);
        if (s == HS_OK)
            s = line(p, "kv cache", at, y.kv ? c->kv : 0, &sum, err);
        if (s == HS_OK)
            s = line(p, "neurons", at, y.n_device ? hs_budget_neurons(m, l, y.n_device) : 0, &sum,
                     err);
        kv = kv || y.kv;
        any = any || y.attn || y.predictor || y.ffn_norm || y.n_device;
    }
    if (s == HS_OK)
        s = line(p, "output", -1, p->output ? c->output : 0, &sum, err);
    if (s == HS_OK)
        s = line(p, "scratch", -1, any ? c->scratch[p->output][kv] : 0, &sum, err);
    if (s != HS_OK)
        return s;
    p->plan_bytes = sum;
    const uint64_t total = hs_budget_total(m, p);
    if (sum != total)
        return hs_fail(err, HS_ERR_FAILED,
                       "the ledger adds up to %" PRIu64 " bytes, the runtime would take %" PRIu64,
                       sum, total);
    if (sum > p->vram_capacity)
        return hs_fail(err, HS_ERR_FAILED,
                       "the plan takes %" PRIu64 " bytes, the budget is %" PRIu64, sum,
                       p->vram_capacity);
    return HS_OK;
}
