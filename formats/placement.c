/* The placement as an object: what may be set, and one device's part of it. */
#include "formats/placement.h"

#include "formats/cursor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

hs_status hs_placement_new(hs_placement **out, uint32_t n_layer, const uint32_t *n_ff, hs_err *err)
{
    *out = NULL;
    hs_placement *p = calloc(1, sizeof *p);
    if (!p || !(p->layer = calloc(n_layer ? n_layer : 1, sizeof *p->layer))) {
        free(p);
        return hs_fail(err, HS_ERR_NOMEM, "placement of %u layers: out of memory", n_layer);
    }
    p->n_layer = n_layer;
    p->n_devices = 1;
    for (uint32_t l = 0; l < n_layer; l++)
        p->layer[l].n_ff = n_ff[l];
    *out = p;
    return HS_OK;
}

void hs_placement_free(hs_placement *p)
{
    if (!p)
        return;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        free(p->layer[l].neuron);
        free(p->layer[l].on_which);
    }
    free(p->layer);
    free(p->ledger);
    free(p);
}

/* Sorting by marking: the neurons of large models would take qsort as long as solving takes. */
hs_status hs_placement_set(hs_placement *p, uint32_t l, const int32_t *id, uint32_t n, hs_err *err)
{
    if (l >= p->n_layer)
        return hs_fail(err, HS_ERR_FORMAT, "layer %u of %u", l, p->n_layer);
    hs_placement_layer *y = &p->layer[l];
    int32_t *copy = malloc((n ? n : 1) * sizeof *copy);
    bool *here = calloc((size_t)y->n_ff + 1, sizeof *here);
    hs_status s = copy && here ? HS_OK : hs_fail(err, HS_ERR_NOMEM, "layer %u: out of memory", l);
    for (uint32_t i = 0; s == HS_OK && i < n; i++) {
        if (id[i] < 0 || (uint32_t)id[i] >= y->n_ff)
            s = hs_fail(err, HS_ERR_FORMAT, "layer %u: neuron %d is outside 0..%" PRId64, l, id[i],
                        (int64_t)y->n_ff - 1);
        else if (here[id[i]])
            s = hs_fail(err, HS_ERR_FORMAT, "layer %u: neuron %d twice", l, id[i]);
        else
            here[id[i]] = true;
    }
    if (s == HS_OK) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < y->n_ff; i++)
            if (here[i])
                copy[at++] = (int32_t)i;
        free(y->neuron);
        free(y->on_which);
        y->neuron = copy;
        y->on_which = NULL;
        y->n_device = n;
        copy = NULL;
    }
    free(copy);
    free(here);
    return s;
}

hs_status hs_placement_add_ledger(hs_placement *p, const char *what, int32_t layer, uint64_t bytes,
                                  hs_err *err)
{
    if (strlen(what) >= sizeof p->ledger->what)
        return hs_fail(err, HS_ERR_FORMAT, "ledger entry '%s' is longer than %zu bytes", what,
                       sizeof p->ledger->what - 1);
    hs_ledger_line *more = realloc(p->ledger, (p->n_ledger + 1) * sizeof *more);
    if (!more)
        return hs_fail(err, HS_ERR_NOMEM, "ledger: out of memory");
    p->ledger = more;
    hs_ledger_line *e = &more[p->n_ledger++];
    *e = (hs_ledger_line){.layer = layer, .bytes = bytes};
    memcpy(e->what, what, strlen(what));
    return HS_OK;
}

/* ---- several devices ------------------------------------------------------------------------ */

hs_status hs_placement_devices(hs_placement *p, uint32_t n_devices, const uint64_t *capacity,
                               hs_err *err)
{
    uint64_t sum = 0;
    if (n_devices < 2 || n_devices > HS_PLACEMENT_DEVICES)
        return hs_fail(err, HS_ERR_FORMAT, "placement: expected 2 to %d devices, got %u",
                       HS_PLACEMENT_DEVICES, n_devices);
    for (uint32_t d = 0; d < n_devices; d++)
        if (!hs_add(sum, capacity[d], &sum))
            return hs_fail(err, HS_ERR_FORMAT,
                           "placement: the devices' capacities add up to more "
                           "than 2^64 bytes");
    p->n_devices = n_devices;
    memcpy(p->device_capacity, capacity, n_devices * sizeof *capacity);
    p->vram_capacity = sum;
    return HS_OK;
}

hs_status hs_placement_spread(hs_placement *p, uint32_t l, const int32_t *device, hs_err *err)
{
    if (l >= p->n_layer)
        return hs_fail(err, HS_ERR_FORMAT, "layer %u of %u", l, p->n_layer);
    hs_placement_layer *y = &p->layer[l];
    uint32_t n = 0;
    for (uint32_t i = 0; i < y->n_ff; i++) {
        if (device[i] < HS_PLACEMENT_HOST || device[i] >= (int32_t)p->n_devices)
            return hs_fail(err, HS_ERR_FORMAT,
                           "layer %u: neuron %u: expected a device from -1 to %u, got %d", l, i,
                           p->n_devices - 1, device[i]);
        n += device[i] != HS_PLACEMENT_HOST;
    }
    int32_t *neuron = malloc(((size_t)n + 1) * sizeof *neuron);
    uint8_t *which = malloc((size_t)n + 1);
    if (!neuron || !which) {
        free(neuron);
        free(which);
        return hs_fail(err, HS_ERR_NOMEM, "layer %u: out of memory", l);
    }
    free(y->neuron);
    free(y->on_which);
    y->neuron = neuron;
    y->on_which = which;
    y->n_device = n;
    for (uint32_t i = 0, at = 0; i < y->n_ff; i++)
        if (device[i] != HS_PLACEMENT_HOST) {
            neuron[at] = (int32_t)i;
            which[at++] = (uint8_t)device[i];
        }
    return HS_OK;
}

static hs_status view_layer(hs_placement *v, const hs_placement *p, uint32_t l, uint32_t d,
                            hs_err *err)
{
    const hs_placement_layer *from = &p->layer[l];
    hs_placement_layer *y = &v->layer[l];
    y->neuron = malloc(((size_t)from->n_device + 1) * sizeof *y->neuron);
    if (!y->neuron)
        return hs_fail(err, HS_ERR_NOMEM, "layer %u: out of memory", l);
    for (uint32_t i = 0; i < from->n_device; i++)
        if ((from->on_which ? from->on_which[i] : 0) == d)
            y->neuron[y->n_device++] = from->neuron[i];
    y->attn = from->attn && from->attn_device == d;
    y->predictor = from->predictor && from->predictor_device == d;
    y->ffn_norm = from->ffn_norm && from->ffn_norm_device == d;
    y->kv = from->kv && from->kv_device == d;
    return HS_OK;
}

hs_status hs_placement_view(hs_placement **out, const hs_placement *p, uint32_t d, hs_err *err)
{
    *out = NULL;
    if (d >= p->n_devices)
        return hs_fail(err, HS_ERR_FORMAT, "device %u of %u", d, p->n_devices);
    hs_placement *v = malloc(sizeof *v);
    hs_placement_layer *layer = calloc((size_t)p->n_layer + 1, sizeof *layer);
    if (!v || !layer) {
        free(v);
        free(layer);
        return hs_fail(err, HS_ERR_NOMEM, "placement of %u layers: out of memory", p->n_layer);
    }
    *v = *p;
    v->layer = layer;
    v->ledger = NULL;
    v->n_ledger = 0;
    v->n_devices = 1;
    v->output = p->output && p->output_device == d;
    v->output_device = 0;
    if (p->n_devices > 1) {
        v->vram_capacity = p->device_capacity[d];
        v->plan_bytes = p->device_bytes[d];
    }
    memset(v->device_capacity, 0, sizeof v->device_capacity);
    memset(v->device_bytes, 0, sizeof v->device_bytes);
    hs_status s = HS_OK;
    for (uint32_t l = 0; s == HS_OK && l < p->n_layer; l++) {
        layer[l].n_ff = p->layer[l].n_ff;
        s = view_layer(v, p, l, d, err);
    }
    for (size_t i = 0; s == HS_OK && i < p->n_ledger; i++) {
        const hs_ledger_line *e = &p->ledger[i];
        if (e->device == (int32_t)d)
            s = hs_placement_add_ledger(v, e->what, e->layer, e->bytes, err);
    }
    if (s != HS_OK) {
        hs_placement_free(v);
        return s;
    }
    *out = v;
    return HS_OK;
}
