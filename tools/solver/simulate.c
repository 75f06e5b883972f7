/* Activations by lot. */
#include "tools/solver/simulate.h"

#include <stdlib.h>

/* xorshift; the seed is part of the definition. */
typedef struct lot {
    uint64_t s;
} lot;

static double uniform(lot *r)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return ((double)(r->s >> 12) + 0.5) / 4503599627370496.0;
}

static double layer_s(const hs_cost *c, uint32_t l, const hs_placement_layer *y,
                      const uint8_t *active, uint32_t all)
{
    const hs_cost_layer *t = &c->layer[l];
    uint32_t here = 0;
    for (uint32_t i = 0; i < y->n_device; i++)
        here += active[y->neuron[i]];
    const double device = y->n_device * t->always[HS_ON_DEVICE] + here * t->active[HS_ON_DEVICE];
    const double cpu =
        (c->n_ff - y->n_device) * t->always[HS_ON_CPU] + (all - here) * t->active[HS_ON_CPU];
    return hs_cost_attn(c, l, y->attn, y->kv) +
           hs_cost_ffn(c, l, y->predictor, y->ffn_norm, y->n_device > 0, device, cpu);
}

hs_status hs_simulate(const hs_cost *c, const hs_placement *const *p, size_t n, uint32_t steps,
                      hs_simulated *out, hs_err *err)
{
    uint8_t *active = malloc((size_t)c->n_ff + 1);
    lot r = {UINT64_C(0x9e3779b97f4a7c15)};
    if (!active)
        return hs_fail(err, HS_ERR_NOMEM, "simulation: out of memory");
    for (size_t k = 0; k < n; k++)
        out[k] = (hs_simulated){0};
    for (uint32_t s = 0; s < steps; s++) {
        double step[HS_SIMULATE_MOST] = {0};
        for (size_t k = 0; k < n; k++)
            step[k] = hs_cost_output(c, p[k]->output);
        for (uint32_t l = 0; l < c->n_layer; l++) {
            const double lively = 0.7 + 0.6 * uniform(&r);
            uint32_t all = 0;
            for (uint32_t i = 0; i < c->n_ff; i++)
                all += active[i] = uniform(&r) < lively * (double)c->layer[l].share[i];
            for (size_t k = 0; k < n; k++)
                step[k] += layer_s(c, l, &p[k]->layer[l], active, all);
        }
        for (size_t k = 0; k < n; k++) {
            out[k].mean += step[k] / steps;
            out[k].worst = step[k] > out[k].worst ? step[k] : out[k].worst;
        }
    }
    free(active);
    return HS_OK;
}
