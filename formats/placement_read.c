/* Reading the placement file.  The one surprise: gpu_idx and gpu_bucket say the same thing twice,
 * as PowerInfer wants it, and a file in which they disagree is refused. */
#include "formats/placement.h"

#include "formats/cursor.h"
#include "formats/dtype.h"
#include "formats/gguf.h"
#include "formats/placement_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_N_FF = INT32_MAX };

/* ---- the tensors of a layer ------------------------------------------------------------------ */

/* NULL when the file has no such list as its tensor number `at`: PowerInfer reads by position, so
 * in another order the same file would be another placement there.  What is wrong is recorded, a
 * fault of the format. */
static const hs_gguf_tensor *find_list(const hs_gguf *g, uint32_t l, const char *what, uint64_t at,
                                       hs_err *err)
{
    char name[HS_GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "blk.%u.%s", l, what);
    const hs_gguf_tensor *t = hs_gguf_tensor_find(g, name);
    if (!t)
        hs_fail(err, HS_ERR_FORMAT, "%s: missing", name);
    else if ((uint64_t)(t - g->tensors) != at)
        hs_fail(err, HS_ERR_FORMAT, "%s: expected as tensor %" PRIu64 " of the file, got it as %td",
                name, at, t - g->tensors);
    else if (t->dtype != HS_I32)
        hs_fail(err, HS_ERR_FORMAT, "%s: expected type I32, got %s", name, hs_dtype_name(t->dtype));
    else if (t->n_dims != 1)
        hs_fail(err, HS_ERR_FORMAT, "%s: expected 1 dimension, got %u", name, t->n_dims);
    else if (t->ne[0] > MAX_N_FF)
        hs_fail(err, HS_ERR_FORMAT, "%s: expected at most %d entries, got %" PRIu64, name, MAX_N_FF,
                t->ne[0]);
    else
        return t;
    return NULL;
}

/* The bucket against the index: both must name the same neurons, in ascending order. */
static hs_status read_bucket(const hs_gguf_tensor *idx, const hs_gguf_tensor *bucket,
                             uint32_t n_ones, int32_t *neuron, hs_err *err)
{
    if (bucket->ne[0] != n_ones)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected %u entries, the ones of %s, got %" PRIu64,
                       bucket->name, n_ones, idx->name, bucket->ne[0]);
    int64_t last = -1;
    for (uint32_t i = 0; i < n_ones; i++) {
        const int32_t id = (int32_t)hs_get_u32(bucket->data + 4 * (size_t)i);
        if (id < 0 || (uint64_t)id >= idx->ne[0])
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: entry %u: expected a neuron below %" PRIu64 ", got %d",
                           bucket->name, i, idx->ne[0], id);
        if (id <= last)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: entry %u: expected ascending neurons, got %d after %" PRId64,
                           bucket->name, i, id, last);
        if (hs_get_u32(idx->data + 4 * (size_t)id) != 1)
            return hs_fail(err, HS_ERR_FORMAT, "%s: entry %u: neuron %d is 0 in %s", bucket->name,
                           i, id, idx->name);
        neuron[i] = id;
        last = id;
    }
    return HS_OK;
}

static hs_status read_layer(hs_placement_layer *y, const hs_gguf *g, uint32_t l, hs_err *err)
{
    const hs_gguf_tensor *idx = find_list(g, l, "gpu_idx", 2 * (uint64_t)l, err);
    const hs_gguf_tensor *bucket =
        idx ? find_list(g, l, "gpu_bucket", 2 * (uint64_t)l + 1, err) : NULL;
    if (!bucket)
        return HS_ERR_FORMAT;
    if (!idx->ne[0])
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected at least one neuron", idx->name);
    uint32_t ones = 0;
    for (uint64_t i = 0; i < idx->ne[0]; i++) {
        const uint32_t v = hs_get_u32(idx->data + 4 * i);
        if (v > 1)
            return hs_fail(err, HS_ERR_FORMAT, "%s: entry %" PRIu64 ": expected 0 or 1, got %d",
                           idx->name, i, (int32_t)v);
        ones += v;
    }
    y->n_ff = (uint32_t)idx->ne[0];
    y->neuron = malloc((ones ? ones : 1) * sizeof *y->neuron);
    if (!y->neuron)
        return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", bucket->name);
    y->n_device = ones;
    return read_bucket(idx, bucket, ones, y->neuron, err);
}

/* Of several devices: every neuron's. */
static hs_status read_spread(hs_placement *p, const hs_gguf *g, uint32_t l, hs_err *err)
{
    const hs_gguf_tensor *t = find_list(g, l, "device", l, err);
    if (!t)
        return HS_ERR_FORMAT;
    if (!t->ne[0])
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected at least one neuron", t->name);
    int32_t *device = malloc((size_t)t->ne[0] * sizeof *device);
    if (!device)
        return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", t->name);
    hs_status s = HS_OK;
    for (uint64_t i = 0; s == HS_OK && i < t->ne[0]; i++) {
        device[i] = (int32_t)hs_get_u32(t->data + 4 * i);
        if (device[i] < HS_PLACEMENT_HOST || device[i] >= (int32_t)p->n_devices)
            s = hs_fail(err, HS_ERR_FORMAT,
                        "%s: entry %" PRIu64 ": expected a device from -1 to %u, got %d", t->name,
                        i, p->n_devices - 1, device[i]);
    }
    p->layer[l].n_ff = (uint32_t)t->ne[0];
    if (s == HS_OK)
        s = hs_placement_spread(p, l, device, err);
    free(device);
    return s;
}

/* ---- our keys -------------------------------------------------------------------------------- */

static hs_status want(const hs_gguf *g, const char *key, hs_err *err)
{
    if (!hs_gguf_find(g, key))
        return hs_fail(err, HS_ERR_FORMAT, "%s: missing", key);
    return HS_OK;
}

static hs_status want_u32(const hs_gguf *g, const char *key, uint32_t *out, hs_err *err)
{
    const hs_status s = want(g, key, err);
    return s != HS_OK ? s : hs_gguf_u32(g, key, out, err);
}

static hs_status want_u64(const hs_gguf *g, const char *key, uint64_t *out, hs_err *err)
{
    const hs_status s = want(g, key, err);
    return s != HS_OK ? s : hs_gguf_u64(g, key, out, err);
}

/* A finite number that is not negative: anything else would surface as nonsense in a report. */
static hs_status want_amount(const hs_gguf *g, const char *key, double *out, hs_err *err)
{
    hs_status s = want(g, key, err);
    if (s == HS_OK)
        s = hs_gguf_f64(g, key, out, err);
    if (s == HS_OK && !(isfinite(*out) && *out >= 0))
        s = hs_fail(err, HS_ERR_FORMAT, "%s: expected a finite number >= 0, got %g", key, *out);
    return s;
}

static hs_status want_word(const hs_gguf *g, const char *key, char *out, size_t cap, hs_err *err)
{
    hs_str v = {0};
    hs_status s = want(g, key, err);
    if (s == HS_OK)
        s = hs_gguf_str(g, key, &v, err);
    if (s != HS_OK)
        return s;
    if (!v.n || v.n >= cap || memchr(v.p, 0, v.n))
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected 1 to %zu characters, got %zu", key,
                       cap - 1, v.n);
    memcpy(out, v.p, v.n);
    out[v.n] = 0;
    return HS_OK;
}

static hs_status want_array(const hs_gguf *g, const char *key, hs_kv_type elem, uint64_t count,
                            const hs_kv **out, hs_err *err)
{
    hs_status s = want(g, key, err);
    if (s == HS_OK)
        s = hs_gguf_array(g, key, elem, out, err);
    if (s == HS_OK && (*out)->count != count)
        s = hs_fail(err, HS_ERR_FORMAT, "%s: expected %" PRIu64 " entries, got %" PRIu64, key,
                    count, (*out)->count);
    return s;
}

static hs_status read_flags(hs_placement *p, const hs_gguf *g, const char *key, size_t field,
                            hs_err *err)
{
    const hs_kv *kv;
    const hs_status s = want_array(g, key, HS_KV_BOOL, p->n_layer, &kv, err);
    if (s != HS_OK)
        return s;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const bool on = kv->raw[l] == 1;
        memcpy((char *)&p->layer[l] + field, &on, sizeof on);
    }
    return HS_OK;
}

static hs_status read_where(hs_placement *p, const hs_gguf *g, const placement_block *b,
                            hs_err *err)
{
    const hs_kv *kv;
    const hs_status s = want_array(g, b->devices, HS_KV_I32, p->n_layer, &kv, err);
    if (s != HS_OK)
        return s;
    for (uint32_t l = 0; l < p->n_layer; l++) {
        const int64_t d = hs_kv_int(kv, l);
        if (d < HS_PLACEMENT_HOST || d >= p->n_devices)
            return hs_fail(err, HS_ERR_FORMAT,
                           "%s: layer %u: expected a device from -1 to %u, got %" PRId64,
                           b->devices, l, p->n_devices - 1, d);
        const bool on = d != HS_PLACEMENT_HOST;
        const uint8_t device = on ? (uint8_t)d : 0;
        memcpy((char *)&p->layer[l] + b->on, &on, sizeof on);
        memcpy((char *)&p->layer[l] + b->device, &device, sizeof device);
    }
    return HS_OK;
}

static hs_status read_block(hs_placement *p, const hs_gguf *g, const placement_block *b,
                            hs_err *err)
{
    return p->n_devices > 1 ? read_where(p, g, b, err) : read_flags(p, g, b->flags, b->on, err);
}

/* Where the head is. */
static hs_status read_output(hs_placement *p, const hs_gguf *g, hs_err *err)
{
    if (p->n_devices == 1) {
        const hs_status s = want(g, "hotset.plan.output", err);
        return s == HS_OK ? hs_gguf_bool(g, "hotset.plan.output", &p->output, err) : s;
    }
    uint32_t d = 0;
    p->output = hs_gguf_find(g, MULTI_OUTPUT) != NULL;
    const hs_status s = hs_gguf_u32(g, MULTI_OUTPUT, &d, err);
    if (s == HS_OK && d >= p->n_devices)
        return hs_fail(err, HS_ERR_FORMAT, MULTI_OUTPUT ": expected a device from 0 to %u, got %u",
                       p->n_devices - 1, d);
    p->output_device = (uint8_t)d;
    return s;
}

typedef struct ledger_arrays {
    const hs_kv *what, *layer, *bytes, *device; /* device: of several */
} ledger_arrays;

static hs_status read_line(hs_placement *p, const ledger_arrays *a, uint64_t i, size_t *pos,
                           hs_err *err)
{
    const hs_str w = hs_kv_next_str(a->what, pos);
    const int64_t l = hs_kv_int(a->layer, i), d = a->device ? hs_kv_int(a->device, i) : 0;
    char name[sizeof p->ledger->what];
    if (!w.n || w.n >= sizeof name || memchr(w.p, 0, w.n))
        return hs_fail(err, HS_ERR_FORMAT,
                       "hotset.plan.ledger_what: entry %" PRIu64
                       ": expected 1 to %zu characters, got %zu",
                       i, sizeof name - 1, w.n);
    if (l < -1 || l >= p->n_layer)
        return hs_fail(err, HS_ERR_FORMAT,
                       "hotset.plan.ledger_layer: entry %" PRIu64
                       ": expected -1 to %u, got %" PRId64,
                       i, p->n_layer - 1, l);
    if (d < 0 || d >= p->n_devices)
        return hs_fail(err, HS_ERR_FORMAT,
                       "hotset.plan.ledger_device: entry %" PRIu64
                       ": expected a device from 0 to %u, got %" PRId64,
                       i, p->n_devices - 1, d);
    memcpy(name, w.p, w.n);
    name[w.n] = 0;
    const hs_status s =
        hs_placement_add_ledger(p, name, (int32_t)l, hs_get_u64(a->bytes->raw + 8 * i), err);
    if (s == HS_OK)
        p->ledger[p->n_ledger - 1].device = (int32_t)d;
    return s;
}

static hs_status check_sums(const hs_placement *p, hs_err *err)
{
    uint64_t sum[HS_PLACEMENT_DEVICES] = {0};
    for (size_t i = 0; i < p->n_ledger; i++) {
        uint64_t *of = &sum[p->ledger[i].device];
        if (!hs_add(*of, p->ledger[i].bytes, of))
            return hs_fail(err, HS_ERR_FORMAT, "hotset.plan.ledger_bytes: the sum wraps");
    }
    for (uint32_t d = 0; d < p->n_devices; d++) {
        const uint64_t want_sum = p->n_devices > 1 ? p->device_bytes[d] : p->plan_bytes;
        if (sum[d] != want_sum)
            return hs_fail(err, HS_ERR_FORMAT,
                           "hotset.plan.ledger_bytes: expected a sum of %" PRIu64
                           " (%s), got %" PRIu64,
                           want_sum, p->n_devices > 1 ? MULTI_BYTES : "hotset.plan.bytes", sum[d]);
    }
    return HS_OK;
}

static hs_status read_ledger(hs_placement *p, const hs_gguf *g, hs_err *err)
{
    ledger_arrays a = {0};
    hs_status s = hs_gguf_array(g, "hotset.plan.ledger_what", HS_KV_STRING, &a.what, err);
    if (s != HS_OK)
        return s;
    const uint64_t n = a.what ? a.what->count : 0;
    if (!n && !hs_gguf_find(g, "hotset.plan.ledger_layer") &&
        !hs_gguf_find(g, "hotset.plan.ledger_bytes"))
        return HS_OK;
    s = want_array(g, "hotset.plan.ledger_layer", HS_KV_I32, n, &a.layer, err);
    if (s == HS_OK)
        s = want_array(g, "hotset.plan.ledger_bytes", HS_KV_U64, n, &a.bytes, err);
    if (s == HS_OK && p->n_devices > 1)
        s = want_array(g, "hotset.plan.ledger_device", HS_KV_I32, n, &a.device, err);
    size_t pos = 0;
    for (uint64_t i = 0; s == HS_OK && i < n; i++)
        s = read_line(p, &a, i, &pos, err);
    return s == HS_OK && n ? check_sums(p, err) : s;
}

static hs_status check_plan(const hs_placement *p, hs_err *err)
{
    for (size_t i = 0; i < HS_FINGERPRINT_CHARS; i++)
        if (!strchr("0123456789abcdef", p->fingerprint[i]) || !p->fingerprint[i])
            return hs_fail(err, HS_ERR_FORMAT, "%s: expected %d hex digits, got '%s'", KEY_PRINT,
                           HS_FINGERPRINT_CHARS, p->fingerprint);
    if (p->kv_type != HS_F16 && p->kv_type != HS_F32)
        return hs_fail(err, HS_ERR_FORMAT,
                       "hotset.plan.kv_type: expected 0 (F32) or 1 (F16), got %u", p->kv_type);
    if (!p->n_ctx)
        return hs_fail(err, HS_ERR_FORMAT, "hotset.plan.context: expected at least 1, got 0");
    if (!p->group)
        return hs_fail(err, HS_ERR_FORMAT, "hotset.solver.group: expected at least 1, got 0");
    for (uint32_t d = 0; p->n_devices > 1 && d < p->n_devices; d++)
        if (p->device_bytes[d] > p->device_capacity[d])
            return hs_fail(err, HS_ERR_FORMAT,
                           MULTI_BYTES ": device %u: expected at most %" PRIu64 ", got %" PRIu64, d,
                           p->device_capacity[d], p->device_bytes[d]);
    if (p->n_devices == 1 && p->plan_bytes > p->vram_capacity)
        return hs_fail(err, HS_ERR_FORMAT,
                       "hotset.plan.bytes: expected at most %s, %" PRIu64 ", got %" PRIu64,
                       KEY_CAPACITY, p->vram_capacity, p->plan_bytes);
    for (uint32_t l = 0; l < p->n_layer; l++)
        if (p->layer[l].kv &&
            !(p->layer[l].attn && p->layer[l].attn_device == p->layer[l].kv_device))
            return hs_fail(err, HS_ERR_FORMAT, "%s: layer %u: its attention is not on the device",
                           p->n_devices > 1 ? placement_block_of[PLACEMENT_KV].devices
                                            : placement_block_of[PLACEMENT_KV].flags,
                           l);
    return HS_OK;
}

static hs_status read_plan(hs_placement *p, const hs_gguf *g, hs_err *err)
{
    hs_status s = want_word(g, KEY_PRINT, p->fingerprint, sizeof p->fingerprint, err);
    if (s == HS_OK)
        s = want_word(g, "hotset.solver.objective", p->objective, sizeof p->objective, err);
    if (s == HS_OK)
        s = want_word(g, "hotset.solver.method", p->method, sizeof p->method, err);
    if (s == HS_OK)
        s = want_amount(g, "hotset.solver.value", &p->objective_value, err);
    if (s == HS_OK)
        s = want_amount(g, "hotset.solver.bound", &p->bound, err);
    if (s == HS_OK)
        s = want_amount(g, "hotset.solver.gap", &p->gap, err);
    if (s == HS_OK)
        s = want_u32(g, "hotset.solver.group", &p->group, err);
    if (s == HS_OK)
        s = want_u32(g, "hotset.plan.context", &p->n_ctx, err);
    if (s == HS_OK)
        s = want_u32(g, "hotset.plan.kv_type", &p->kv_type, err);
    for (size_t i = 0; s == HS_OK && i < PLACEMENT_BLOCKS; i++)
        s = read_block(p, g, &placement_block_of[i], err);
    if (s == HS_OK)
        s = read_output(p, g, err);
    if (s == HS_OK && p->n_devices == 1)
        s = want_u64(g, "hotset.plan.bytes", &p->plan_bytes, err);
    if (s == HS_OK)
        s = read_ledger(p, g, err);
    p->has_plan = true;
    return s == HS_OK ? check_plan(p, err) : s;
}

/* Ours or PowerInfer's own: one key of ours promises all of them. */
static bool has_our_keys(const hs_gguf *g)
{
    for (size_t i = 0; i < g->n_kv; i++)
        if (g->kv[i].key.n > 7 && !memcmp(g->kv[i].key.p, "hotset.", 7))
            return true;
    return false;
}

/* Capacities and bytes of several devices. */
static hs_status read_devices(const hs_gguf *g, hs_placement *p, hs_err *err)
{
    const hs_kv *capacity, *bytes;
    hs_status s = want(g, MULTI_CAPACITY, err);
    if (s == HS_OK)
        s = hs_gguf_array(g, MULTI_CAPACITY, HS_KV_U64, &capacity, err);
    if (s == HS_OK && (capacity->count < 2 || capacity->count > HS_PLACEMENT_DEVICES))
        s = hs_fail(err, HS_ERR_FORMAT, MULTI_CAPACITY ": expected 2 to %d devices, got %" PRIu64,
                    HS_PLACEMENT_DEVICES, capacity->count);
    if (s == HS_OK)
        s = want_array(g, MULTI_BYTES, HS_KV_U64, capacity->count, &bytes, err);
    if (s != HS_OK)
        return s;
    p->n_devices = (uint32_t)capacity->count;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        p->device_capacity[d] = hs_get_u64(capacity->raw + 8 * (size_t)d);
        p->device_bytes[d] = hs_get_u64(bytes->raw + 8 * (size_t)d);
        if (!hs_add(p->vram_capacity, p->device_capacity[d], &p->vram_capacity) ||
            !hs_add(p->plan_bytes, p->device_bytes[d], &p->plan_bytes))
            return hs_fail(err, HS_ERR_FORMAT, MULTI_CAPACITY ": the sum wraps");
    }
    return HS_OK;
}

/* What the file begins with; `file->layer` is the caller's to make. */
static hs_status read_header(const hs_gguf *g, hs_placement *file, hs_err *err)
{
    hs_str arch = {0};
    hs_status s = want(g, "general.architecture", err);
    if (s == HS_OK)
        s = hs_gguf_str(g, "general.architecture", &arch, err);
    const bool several = s == HS_OK && hs_str_eq(arch, MULTI_ARCHITECTURE);
    if (s == HS_OK && !several && !hs_str_eq(arch, ARCHITECTURE))
        s = hs_fail(err, HS_ERR_FORMAT,
                    "general.architecture: expected '" ARCHITECTURE "', got '%.*s'",
                    (int)(arch.n < 64 ? arch.n : 64), arch.p);
    if (s == HS_OK && g->pwri == several)
        s = hs_fail(err, HS_ERR_FORMAT, "magic: expected %s, got %s", several ? "GGUF" : "PWRI",
                    several ? "PWRI" : "GGUF");
    const char *key = several ? MULTI_LAYERS : KEY_LAYERS;
    if (s == HS_OK)
        s = want_u32(g, key, &file->n_layer, err);
    file->n_devices = 1;
    if (s == HS_OK)
        s = several ? read_devices(g, file, err)
                    : want_u64(g, KEY_CAPACITY, &file->vram_capacity, err);
    if (s == HS_OK && !file->n_layer)
        s = hs_fail(err, HS_ERR_FORMAT, "%s: expected at least 1, got 0", key);
    const uint64_t n = (several ? 1 : 2) * (uint64_t)file->n_layer;
    if (s == HS_OK && g->n_tensors != n)
        s = hs_fail(err, HS_ERR_FORMAT,
                    "expected %" PRIu64 " tensors, %s for each of %u layers, got %zu", n,
                    several ? "one" : "two", file->n_layer, g->n_tensors);
    return s;
}

hs_status hs_placement_parse(hs_placement **out, const hs_gguf *g, hs_err *err)
{
    *out = NULL;
    hs_placement head = {0};
    hs_status s = read_header(g, &head, err);
    if (s != HS_OK)
        return s;
    hs_placement *p = malloc(sizeof *p);
    if (!p || !(head.layer = calloc(head.n_layer, sizeof *head.layer))) {
        free(p);
        return hs_fail(err, HS_ERR_NOMEM, "placement of %u layers: out of memory", head.n_layer);
    }
    *p = head;
    for (uint32_t l = 0; s == HS_OK && l < p->n_layer; l++)
        s = p->n_devices > 1 ? read_spread(p, g, l, err) : read_layer(&p->layer[l], g, l, err);
    if (s == HS_OK && (p->n_devices > 1 || has_our_keys(g)))
        s = read_plan(p, g, err);
    if (s != HS_OK) {
        hs_placement_free(p);
        return s;
    }
    *out = p;
    return HS_OK;
}

hs_status hs_placement_read(hs_placement **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_gguf *g;
    hs_status s = hs_gguf_open(&g, path, err);
    if (s != HS_OK)
        return s;
    s = hs_placement_parse(out, g, err);
    hs_gguf_free(g);
    return s == HS_OK ? s : hs_ctx(err, s, "%s: ", path);
}
