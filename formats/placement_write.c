/* Writing the placement file. */
#include "formats/gguf_write.h"
#include "formats/placement.h"
#include "formats/placement_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hs_status set_flags(hs_gguf_writer *w, const hs_placement *p, const char *key, size_t field,
                           hs_err *err)
{
    uint8_t *v = malloc(p->n_layer ? p->n_layer : 1);
    if (!v)
        return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", key);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        bool on;
        memcpy(&on, (const char *)&p->layer[l] + field, sizeof on);
        v[l] = on;
    }
    hs_gguf_set_array(w, key, HS_KV_BOOL, v, p->n_layer);
    free(v);
    return HS_OK;
}

static hs_status set_where(hs_gguf_writer *w, const hs_placement *p, const placement_block *b,
                           hs_err *err)
{
    int32_t *v = malloc(((size_t)p->n_layer + 1) * sizeof *v);
    if (!v)
        return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", b->devices);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        bool on;
        uint8_t device;
        memcpy(&on, (const char *)&p->layer[l] + b->on, sizeof on);
        memcpy(&device, (const char *)&p->layer[l] + b->device, sizeof device);
        v[l] = on ? device : HS_PLACEMENT_HOST;
    }
    hs_gguf_set_array(w, b->devices, HS_KV_I32, v, p->n_layer);
    free(v);
    return HS_OK;
}

static hs_status set_ledger(hs_gguf_writer *w, const hs_placement *p, hs_err *err)
{
    const size_t n = p->n_ledger;
    if (!n)
        return HS_OK;
    hs_str *what = malloc(n * sizeof *what);
    int32_t *layer = malloc(n * sizeof *layer), *device = malloc(n * sizeof *device);
    uint64_t *bytes = malloc(n * sizeof *bytes);
    hs_status s = HS_OK;
    if (what && layer && device && bytes) {
        for (size_t i = 0; i < n; i++) {
            what[i] = (hs_str){p->ledger[i].what, strlen(p->ledger[i].what)};
            layer[i] = p->ledger[i].layer;
            device[i] = p->ledger[i].device;
            bytes[i] = p->ledger[i].bytes;
        }
        hs_gguf_set_str_array(w, "hotset.plan.ledger_what", what, n);
        hs_gguf_set_array(w, "hotset.plan.ledger_layer", HS_KV_I32, layer, n);
        hs_gguf_set_array(w, "hotset.plan.ledger_bytes", HS_KV_U64, bytes, n);
        if (p->n_devices > 1)
            hs_gguf_set_array(w, "hotset.plan.ledger_device", HS_KV_I32, device, n);
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "ledger: out of memory");
    }
    free(what);
    free(layer);
    free(device);
    free(bytes);
    return s;
}

static hs_status set_plan(hs_gguf_writer *w, const hs_placement *p, hs_err *err)
{
    hs_gguf_set_str(w, KEY_PRINT, p->fingerprint);
    hs_gguf_set_str(w, "hotset.solver.objective", p->objective);
    hs_gguf_set_str(w, "hotset.solver.method", p->method);
    hs_gguf_set_f64(w, "hotset.solver.value", p->objective_value);
    hs_gguf_set_f64(w, "hotset.solver.bound", p->bound);
    hs_gguf_set_f64(w, "hotset.solver.gap", p->gap);
    hs_gguf_set_u32(w, "hotset.solver.group", p->group);
    hs_gguf_set_u32(w, "hotset.plan.context", p->n_ctx);
    hs_gguf_set_u32(w, "hotset.plan.kv_type", p->kv_type);
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < PLACEMENT_BLOCKS; i++) {
        const placement_block *b = &placement_block_of[i];
        s = p->n_devices > 1 ? set_where(w, p, b, err) : set_flags(w, p, b->flags, b->on, err);
    }
    if (p->n_devices == 1) {
        hs_gguf_set_bool(w, "hotset.plan.output", p->output);
        hs_gguf_set_u64(w, "hotset.plan.bytes", p->plan_bytes);
    } else if (p->output) {
        hs_gguf_set_u32(w, MULTI_OUTPUT, p->output_device);
    }
    return s == HS_OK ? set_ledger(w, p, err) : s;
}

static void put_i32(uint8_t *dst, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        dst[i] = (uint8_t)(v >> (8 * i));
}

static hs_status write_layer(hs_gguf_writer *w, const hs_placement_layer *y, hs_err *err)
{
    uint8_t *idx = calloc(y->n_ff ? y->n_ff : 1, 4), *bucket = malloc(4 * (size_t)y->n_device + 1);
    hs_status s = HS_OK;
    if (idx && bucket) {
        for (uint32_t i = 0; i < y->n_device; i++) {
            put_i32(idx + 4 * (size_t)y->neuron[i], 1);
            put_i32(bucket + 4 * (size_t)i, (uint32_t)y->neuron[i]);
        }
        s = hs_gguf_writer_data(w, idx, 4 * (uint64_t)y->n_ff, err);
        if (s == HS_OK)
            s = hs_gguf_writer_data(w, bucket, 4 * (uint64_t)y->n_device, err);
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "placement: out of memory");
    }
    free(idx);
    free(bucket);
    return s;
}

static hs_status write_spread(hs_gguf_writer *w, const hs_placement_layer *y, hs_err *err)
{
    uint8_t *device = malloc(4 * (size_t)y->n_ff + 1);
    if (!device)
        return hs_fail(err, HS_ERR_NOMEM, "placement: out of memory");
    memset(device, 0xff, 4 * (size_t)y->n_ff);
    for (uint32_t i = 0; i < y->n_device; i++)
        put_i32(device + 4 * (size_t)y->neuron[i], y->on_which ? y->on_which[i] : 0);
    const hs_status s = hs_gguf_writer_data(w, device, 4 * (uint64_t)y->n_ff, err);
    free(device);
    return s;
}

static void declare_layer(hs_gguf_writer *w, const hs_placement *p, uint32_t l)
{
    char name[HS_GGUF_MAX_NAME + 1];
    const uint64_t n_ff = p->layer[l].n_ff, k = p->layer[l].n_device;
    if (p->n_devices > 1) {
        snprintf(name, sizeof name, "blk.%u.device", l);
        hs_gguf_add_tensor(w, name, HS_I32, 1, &n_ff);
        return;
    }
    snprintf(name, sizeof name, "blk.%u.gpu_idx", l);
    hs_gguf_add_tensor(w, name, HS_I32, 1, &n_ff);
    snprintf(name, sizeof name, "blk.%u.gpu_bucket", l);
    hs_gguf_add_tensor(w, name, HS_I32, 1, &k);
}

hs_status hs_placement_write(const hs_placement *p, hs_out *out, bool plain, hs_err *err)
{
    const bool several = p->n_devices > 1;
    if (several && (plain || !p->has_plan))
        return hs_fail(err, HS_ERR_USAGE, "PowerInfer's own file knows one device, the plan has %u",
                       p->n_devices);
    hs_gguf_writer *w = hs_gguf_writer_new(!several, 32);
    if (!w)
        return hs_fail(err, HS_ERR_NOMEM, "placement: out of memory");
    hs_gguf_set_str(w, "general.architecture", several ? MULTI_ARCHITECTURE : ARCHITECTURE);
    hs_gguf_set_u32(w, several ? MULTI_LAYERS : KEY_LAYERS, p->n_layer);
    if (several) {
        hs_gguf_set_array(w, MULTI_CAPACITY, HS_KV_U64, p->device_capacity, p->n_devices);
        hs_gguf_set_array(w, MULTI_BYTES, HS_KV_U64, p->device_bytes, p->n_devices);
    } else {
        hs_gguf_set_u64(w, KEY_CAPACITY, p->vram_capacity);
    }
    hs_status s = plain || !p->has_plan ? HS_OK : set_plan(w, p, err);
    for (uint32_t l = 0; l < p->n_layer; l++)
        declare_layer(w, p, l);
    if (s == HS_OK)
        s = hs_gguf_writer_begin(w, out, err);
    for (uint32_t l = 0; s == HS_OK && l < p->n_layer; l++)
        s = several ? write_spread(w, &p->layer[l], err) : write_layer(w, &p->layer[l], err);
    if (s == HS_OK)
        s = hs_gguf_writer_end(w, err);
    hs_gguf_writer_free(w);
    return s;
}
