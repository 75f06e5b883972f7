/* The cost model.  Every block on the device is fed and waited for by itself, and a predictor on
 * the device makes the CPU wait for the scores, so that the two halves of that layer run one after
 * the other: an upper estimate, since the runtime saves waits where a layer's blocks are all on the
 * device (docs/placement.md). */
#include "tools/solver/cost.h"

#include "runtime/split.h"

#include <math.h>
#include <stdlib.h>

typedef struct maker {
    hs_cost *c;
    const hs_model *m;
    const hs_activation *profile;
    const hs_cost_params *p;
    const hs_machine_device *device;
} maker;

static double rate(const maker *k, int place, uint32_t dtype, bool sparse)
{
    return place == HS_ON_CPU
               ? hs_machine_cpu_rate(&k->p->machine->cpu, dtype, sparse, k->p->threads)
               : hs_machine_device_rate(k->device, dtype, sparse);
}

static double whole(const maker *k, int place, const hs_mat *w)
{
    return (double)hs_mat_bytes(w) / rate(k, place, w->dtype, false);
}

static double one_row(const maker *k, int place, const hs_mat *w, bool sparse)
{
    return (double)w->row_bytes / rate(k, place, w->dtype, sparse);
}

/* The down projection by neuron.  A dense file's is transposed at load for the neuron path, and
 * block types become F32 by that; only a CPU that skips nothing reads it as it is. */
static double one_down(const maker *k, int place, const hs_layer *y, bool sparse)
{
    if (y->down_t.data)
        return one_row(k, place, &y->down_t, sparse);
    if (!sparse && place == HS_ON_CPU)
        return (double)hs_mat_bytes(&y->down) / k->m->n_ff / rate(k, place, y->down.dtype, false);
    const hs_dtype t = hs_transposed_type(y->down.dtype);
    uint64_t bytes = 0;
    if (!hs_dtype_row_bytes(t, k->m->n_embd, &bytes))
        bytes = (uint64_t)k->m->n_embd * 4;
    return (double)bytes / rate(k, place, t, sparse);
}

/* What `--sparsity auto` makes of layer l. */
static hs_sparsity mode(const hs_model *m, uint32_t l)
{
    const hs_layer *y = &m->layer[l];
    if (!hs_act_is_sparse(m->fn))
        return HS_SPARSITY_OFF;
    if (!m->has_predictors)
        return HS_SPARSITY_EXACT;
    const uint64_t ffn = hs_mat_bytes(&y->gate) + hs_mat_bytes(&y->up) +
                         hs_mat_bytes(y->down.data ? &y->down : &y->down_t);
    return hs_mat_bytes(&y->fc1) + hs_mat_bytes(&y->fc2) < ffn ? HS_SPARSITY_PREDICTED
                                                               : HS_SPARSITY_OFF;
}

static void layer_times(const maker *k, uint32_t l)
{
    const hs_model *m = k->m;
    const hs_layer *y = &m->layer[l];
    hs_cost_layer *c = &k->c->layer[l];
    const uint64_t cache = (uint64_t)k->p->n_ctx * m->n_head_kv * m->head_dim *
                           (k->p->kv_type == HS_F32 ? 4 : 2); /* K and V, half filled */
    const hs_sparsity how = mode(m, l);
    const bool sparse = how != HS_SPARSITY_OFF;
    for (int at = 0; at < HS_PLACES; at++) {
        c->attn[at] = whole(k, at, &y->wq) + whole(k, at, &y->wk) + whole(k, at, &y->wv) +
                      whole(k, at, &y->wo);
        c->kv[at] = k->p->batch * (double)cache / rate(k, at, k->p->kv_type, false);
        if (how == HS_SPARSITY_PREDICTED)
            c->predictor[at] = whole(k, at, &y->fc1) + whole(k, at, &y->fc2);
        /* Without a predictor every gate is computed. */
        const double gate = one_row(k, at, &y->gate, how == HS_SPARSITY_PREDICTED);
        const double rest = one_row(k, at, &y->up, sparse) + one_down(k, at, y, sparse);
        c->always[at] = how == HS_SPARSITY_PREDICTED ? 0 : sparse ? gate : gate + rest;
        c->active[at] = how == HS_SPARSITY_PREDICTED ? gate + rest : sparse ? rest : 0;
    }
    for (uint32_t i = 0; i < m->n_ff; i++) {
        const double tokens = k->profile->tokens ? (double)k->profile->tokens : 1;
        const double f = fmin(1, (double)k->profile->count[l][i] / tokens);
        c->share[i] = (float)(k->p->batch == 1 ? f : -expm1(k->p->batch * log1p(-f)));
    }
}

static double up(const maker *k, uint64_t floats)
{
    return hs_machine_upload_s(k->device, 4 * floats * k->p->batch);
}

static double down(const maker *k, uint64_t floats)
{
    return hs_machine_download_s(k->device, 4 * floats * k->p->batch);
}

static void copies(const maker *k)
{
    const hs_model *m = k->m;
    hs_cost *c = k->c;
    const uint64_t q = (uint64_t)m->n_head * m->head_dim, kv = (uint64_t)m->n_head_kv * m->head_dim;
    const double x_up = up(k, m->n_embd), y_down = down(k, m->n_embd);
    c->sync = k->device->sync_s;
    c->copy_attn = x_up + up(k, m->rope_dim) + y_down;
    c->copy_qkv = x_up + down(k, q) + 2 * down(k, kv) + up(k, q) + y_down;
    c->copy_ffn = x_up + y_down + down(k, 1);
    c->copy_norm = x_up;
    /* Scores go to the device, or come from it. */
    c->copy_predictor = c->copy_ffn + down(k, m->n_ff);
    if (m->has_predictors)
        c->copy_ffn += up(k, m->n_ff);
    c->copy_output = x_up + down(k, m->n_vocab);
}

hs_status hs_cost_init(hs_cost *c, const hs_model *m, const hs_activation *profile,
                       const hs_cost_params *p, hs_err *err)
{
    *c = (hs_cost){.n_layer = m->n_layer, .n_ff = m->n_ff, .batch = p->batch};
    if (p->device >= p->machine->n_devices)
        return hs_fail(err, HS_ERR_FORMAT, "devices: expected at least %u, the machine has %zu",
                       p->device + 1, p->machine->n_devices);
    const maker k = {c, m, profile, p, &p->machine->device[p->device]};
    c->layer = calloc((size_t)m->n_layer + 1, sizeof *c->layer);
    float *share = calloc((size_t)m->n_layer * m->n_ff + 1, sizeof *share);
    if (!c->layer || !share) {
        free(share);
        hs_cost_fini(c);
        return hs_fail(err, HS_ERR_NOMEM, "cost model: out of memory");
    }
    c->layer[0].share = share;
    for (uint32_t l = 0; l < m->n_layer; l++) {
        c->layer[l].share = share + (size_t)l * m->n_ff;
        layer_times(&k, l);
    }
    for (int at = 0; at < HS_PLACES; at++)
        c->output[at] = whole(&k, at, &m->output);
    copies(&k);
    return HS_OK;
}

void hs_cost_fini(hs_cost *c)
{
    if (c->layer)
        free(c->layer[0].share);
    free(c->layer);
    *c = (hs_cost){0};
}

/* ---- times ---------------------------------------------------------------------------------- */

double hs_cost_attn(const hs_cost *c, uint32_t l, bool attn, bool kv)
{
    const hs_cost_layer *y = &c->layer[l];
    if (!attn)
        return y->attn[HS_ON_CPU] + y->kv[HS_ON_CPU];
    if (kv)
        return y->attn[HS_ON_DEVICE] + y->kv[HS_ON_DEVICE] + c->copy_attn + c->sync;
    return y->attn[HS_ON_DEVICE] + y->kv[HS_ON_CPU] + c->copy_qkv + 2 * c->sync;
}

double hs_cost_output(const hs_cost *c, bool device)
{
    return device ? c->output[HS_ON_DEVICE] + c->copy_output + c->sync : c->output[HS_ON_CPU];
}

double hs_cost_ffn(const hs_cost *c, uint32_t l, bool predictor, bool norm, bool any, double device,
                   double cpu)
{
    const double *t = c->layer[l].predictor;
    if (predictor && t[HS_ON_DEVICE] > 0)
        return t[HS_ON_DEVICE] + device + c->copy_predictor + (norm ? 0 : c->copy_norm) + c->sync +
               cpu;
    return t[HS_ON_CPU] + (any ? fmax(cpu, device + c->copy_ffn) + c->sync : cpu);
}

double hs_cost_step(const hs_cost *c, const hs_placement *p)
{
    double sum = hs_cost_output(c, p->output);
    for (uint32_t l = 0; l < c->n_layer; l++) {
        const hs_placement_layer *y = &p->layer[l];
        const hs_cost_layer *t = &c->layer[l];
        double active[HS_PLACES] = {0};
        for (uint32_t i = 0, at = 0; i < c->n_ff; i++) {
            const bool here = at < y->n_device && (uint32_t)y->neuron[at] == i;
            active[here ? HS_ON_DEVICE : HS_ON_CPU] += (double)t->share[i];
            at += here;
        }
        const double device =
            y->n_device * t->always[HS_ON_DEVICE] + active[HS_ON_DEVICE] * t->active[HS_ON_DEVICE];
        const double cpu = (c->n_ff - y->n_device) * t->always[HS_ON_CPU] +
                           active[HS_ON_CPU] * t->active[HS_ON_CPU];
        sum += hs_cost_attn(c, l, y->attn, y->kv);
        sum += hs_cost_ffn(c, l, y->predictor, y->ffn_norm, y->n_device > 0, device, cpu);
    }
    return sum;
}

uint32_t hs_cost_least(const hs_cost *c, uint32_t l, const int32_t *order)
{
    const hs_cost_layer *y = &c->layer[l];
    const double always = y->always[HS_ON_CPU] - y->always[HS_ON_DEVICE],
                 active = y->active[HS_ON_CPU] - y->active[HS_ON_DEVICE];
    double gain = -(c->sync + c->copy_ffn);
    for (uint32_t k = 0; k < c->n_ff; k++) {
        gain += always + active * (double)y->share[order[k]];
        if (gain >= 0)
            return k + 1;
    }
    return c->n_ff + 1;
}
