/* The placement file.  The one surprise: gpu_idx and gpu_bucket say the same thing twice, as
 * PowerInfer wants it, and a file in which they disagree is refused. */
#include "formats/placement.h"

#include "formats/cursor.h"
#include "formats/gguf_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARCHITECTURE "generic.gpu_index"
#define KEY_LAYERS   "generic.gpu_index.block_count"
#define KEY_CAPACITY "split.vram_capacity"
#define KEY_PRINT    "hotset.model_fingerprint"

enum { MAX_N_FF = INT32_MAX };

/* ---- the object ------------------------------------------------------------------------- */

hs_status hs_placement_new(hs_placement **out, uint32_t n_layer, const uint32_t *n_ff, hs_err *err)
{
    *out = NULL;
    hs_placement *p = calloc(1, sizeof *p);
    if (!p || !(p->layer = calloc(n_layer ? n_layer : 1, sizeof *p->layer))) {
        free(p);
        return hs_fail(err, HS_ERR_NOMEM, "placement of %u layers: out of memory", n_layer);
    }
    p->n_layer = n_layer;
    for (uint32_t l = 0; l < n_layer; l++)
        p->layer[l].n_ff = n_ff[l];
    *out = p;
    return HS_OK;
}

void hs_placement_free(hs_placement *p)
{
    if (!p)
        return;
    for (uint32_t l = 0; l < p->n_layer; l++)
        free(p->layer[l].neuron);
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
        y->neuron = copy;
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

/* ---- reading: the two tensors of a layer -------------------------------------------------- */

/* NULL when the file has no such list; what is wrong is recorded, a fault of the format. */
static const hs_gguf_tensor *find_list(const hs_gguf *g, uint32_t l, const char *what, hs_err *err)
{
    char name[HS_GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "blk.%u.%s", l, what);
    const hs_gguf_tensor *t = hs_gguf_tensor_find(g, name);
    if (!t)
        hs_fail(err, HS_ERR_FORMAT, "%s: missing", name);
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
    const hs_gguf_tensor *idx = find_list(g, l, "gpu_idx", err);
    const hs_gguf_tensor *bucket = idx ? find_list(g, l, "gpu_bucket", err) : NULL;
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

/* ---- reading: our keys ---------------------------------------------------------------------- */

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

static hs_status read_ledger(hs_placement *p, const hs_gguf *g, hs_err *err)
{
    const hs_kv *what, *layer, *bytes;
    hs_status s = hs_gguf_array(g, "hotset.plan.ledger_what", HS_KV_STRING, &what, err);
    if (s != HS_OK)
        return s;
    const uint64_t n = what ? what->count : 0;
    if (!n && !hs_gguf_find(g, "hotset.plan.ledger_layer") &&
        !hs_gguf_find(g, "hotset.plan.ledger_bytes"))
        return HS_OK;
    s = want_array(g, "hotset.plan.ledger_layer", HS_KV_I32, n, &layer, err);
    if (s == HS_OK)
        s = want_array(g, "hotset.plan.ledger_bytes", HS_KV_U64, n, &bytes, err);
    uint64_t sum = 0;
    size_t pos = 0;
    for (uint64_t i = 0; s == HS_OK && i < n; i++) {
        const hs_str w = hs_kv_next_str(what, &pos);
        const int64_t l = hs_kv_int(layer, i);
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
        memcpy(name, w.p, w.n);
        name[w.n] = 0;
        const uint64_t b = hs_get_u64(bytes->raw + 8 * i);
        if (!hs_add(sum, b, &sum))
            return hs_fail(err, HS_ERR_FORMAT, "hotset.plan.ledger_bytes: the sum wraps");
        s = hs_placement_add_ledger(p, name, (int32_t)l, b, err);
    }
    if (s == HS_OK && n && sum != p->plan_bytes)
        s = hs_fail(err, HS_ERR_FORMAT,
                    "hotset.plan.ledger_bytes: expected a sum of %" PRIu64
                    " (hotset.plan.bytes), got %" PRIu64,
                    p->plan_bytes, sum);
    return s;
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
    if (p->plan_bytes > p->vram_capacity)
        return hs_fail(err, HS_ERR_FORMAT,
                       "hotset.plan.bytes: expected at most %s, %" PRIu64 ", got %" PRIu64,
                       KEY_CAPACITY, p->vram_capacity, p->plan_bytes);
    for (uint32_t l = 0; l < p->n_layer; l++)
        if (p->layer[l].kv && !p->layer[l].attn)
            return hs_fail(err, HS_ERR_FORMAT,
                           "hotset.plan.kv_layers: layer %u: its attention is not on the device",
                           l);
    return HS_OK;
}

static hs_status read_plan(hs_placement *p, const hs_gguf *g, hs_err *err)
{
    static const struct {
        const char *key;
        size_t field;
    } flags[] = {
        {"hotset.plan.attn_layers", offsetof(hs_placement_layer, attn)},
        {"hotset.plan.predictor_layers", offsetof(hs_placement_layer, predictor)},
        {"hotset.plan.ffn_norm_layers", offsetof(hs_placement_layer, ffn_norm)},
        {"hotset.plan.kv_layers", offsetof(hs_placement_layer, kv)},
    };
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
    for (size_t i = 0; s == HS_OK && i < sizeof flags / sizeof *flags; i++)
        s = read_flags(p, g, flags[i].key, flags[i].field, err);
    if (s == HS_OK)
        s = want(g, "hotset.plan.output", err);
    if (s == HS_OK)
        s = hs_gguf_bool(g, "hotset.plan.output", &p->output, err);
    if (s == HS_OK)
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

static hs_status read_header(const hs_gguf *g, uint32_t *n_layer, uint64_t *capacity, hs_err *err)
{
    hs_str arch = {0};
    hs_status s = want(g, "general.architecture", err);
    if (s == HS_OK)
        s = hs_gguf_str(g, "general.architecture", &arch, err);
    if (s == HS_OK && !hs_str_eq(arch, ARCHITECTURE))
        s = hs_fail(err, HS_ERR_FORMAT,
                    "general.architecture: expected '" ARCHITECTURE "', got '%.*s'",
                    (int)(arch.n < 64 ? arch.n : 64), arch.p);
    if (s == HS_OK && !g->pwri)
        s = hs_fail(err, HS_ERR_FORMAT, "magic: expected PWRI, got GGUF");
    if (s == HS_OK)
        s = want_u32(g, KEY_LAYERS, n_layer, err);
    if (s == HS_OK)
        s = want_u64(g, KEY_CAPACITY, capacity, err);
    if (s == HS_OK && !*n_layer)
        s = hs_fail(err, HS_ERR_FORMAT, KEY_LAYERS ": expected at least 1, got 0");
    if (s == HS_OK && g->n_tensors != 2 * (uint64_t)*n_layer)
        s = hs_fail(err, HS_ERR_FORMAT,
                    "expected %" PRIu64 " tensors, two for each of %u layers, got %zu",
                    2 * (uint64_t)*n_layer, *n_layer, g->n_tensors);
    return s;
}

hs_status hs_placement_parse(hs_placement **out, const hs_gguf *g, hs_err *err)
{
    *out = NULL;
    uint32_t n_layer = 0;
    uint64_t capacity = 0;
    hs_status s = read_header(g, &n_layer, &capacity, err);
    if (s != HS_OK)
        return s;
    hs_placement *p = calloc(1, sizeof *p);
    if (!p || !(p->layer = calloc(n_layer, sizeof *p->layer))) {
        free(p);
        return hs_fail(err, HS_ERR_NOMEM, "placement of %u layers: out of memory", n_layer);
    }
    p->n_layer = n_layer;
    p->vram_capacity = capacity;
    for (uint32_t l = 0; s == HS_OK && l < n_layer; l++)
        s = read_layer(&p->layer[l], g, l, err);
    if (s == HS_OK && has_our_keys(g))
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

/* ---- writing -------------------------------------------------------------------------------- */

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

static hs_status set_ledger(hs_gguf_writer *w, const hs_placement *p, hs_err *err)
{
    const size_t n = p->n_ledger;
    if (!n)
        return HS_OK;
    hs_str *what = malloc(n * sizeof *what);
    int32_t *layer = malloc(n * sizeof *layer);
    uint64_t *bytes = malloc(n * sizeof *bytes);
    hs_status s = HS_OK;
    if (what && layer && bytes) {
        for (size_t i = 0; i < n; i++) {
            what[i] = (hs_str){p->ledger[i].what, strlen(p->ledger[i].what)};
            layer[i] = p->ledger[i].layer;
            bytes[i] = p->ledger[i].bytes;
        }
        hs_gguf_set_str_array(w, "hotset.plan.ledger_what", what, n);
        hs_gguf_set_array(w, "hotset.plan.ledger_layer", HS_KV_I32, layer, n);
        hs_gguf_set_array(w, "hotset.plan.ledger_bytes", HS_KV_U64, bytes, n);
    } else {
        s = hs_fail(err, HS_ERR_NOMEM, "ledger: out of memory");
    }
    free(what);
    free(layer);
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
    hs_status s =
        set_flags(w, p, "hotset.plan.attn_layers", offsetof(hs_placement_layer, attn), err);
    if (s == HS_OK)
        s = set_flags(w, p, "hotset.plan.predictor_layers", offsetof(hs_placement_layer, predictor),
                      err);
    if (s == HS_OK)
        s = set_flags(w, p, "hotset.plan.ffn_norm_layers", offsetof(hs_placement_layer, ffn_norm),
                      err);
    if (s == HS_OK)
        s = set_flags(w, p, "hotset.plan.kv_layers", offsetof(hs_placement_layer, kv), err);
    hs_gguf_set_bool(w, "hotset.plan.output", p->output);
    hs_gguf_set_u64(w, "hotset.plan.bytes", p->plan_bytes);
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

hs_status hs_placement_write(const hs_placement *p, hs_out *out, bool plain, hs_err *err)
{
    hs_gguf_writer *w = hs_gguf_writer_new(true, 32);
    if (!w)
        return hs_fail(err, HS_ERR_NOMEM, "placement: out of memory");
    hs_gguf_set_str(w, "general.architecture", ARCHITECTURE);
    hs_gguf_set_u32(w, KEY_LAYERS, p->n_layer);
    hs_gguf_set_u64(w, KEY_CAPACITY, p->vram_capacity);
    hs_status s = plain || !p->has_plan ? HS_OK : set_plan(w, p, err);
    for (uint32_t l = 0; l < p->n_layer; l++) {
        char name[HS_GGUF_MAX_NAME + 1];
        const uint64_t n_ff = p->layer[l].n_ff, k = p->layer[l].n_device;
        snprintf(name, sizeof name, "blk.%u.gpu_idx", l);
        hs_gguf_add_tensor(w, name, HS_I32, 1, &n_ff);
        snprintf(name, sizeof name, "blk.%u.gpu_bucket", l);
        hs_gguf_add_tensor(w, name, HS_I32, 1, &k);
    }
    if (s == HS_OK)
        s = hs_gguf_writer_begin(w, out, err);
    for (uint32_t l = 0; s == HS_OK && l < p->n_layer; l++)
        s = write_layer(w, &p->layer[l], err);
    if (s == HS_OK)
        s = hs_gguf_writer_end(w, err);
    hs_gguf_writer_free(w);
    return s;
}
