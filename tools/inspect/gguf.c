/* GGUF and PWRI files: models, vocabularies, activation profiles, placements. */
#include "formats/gguf.h"

#include "formats/activation.h"
#include "formats/cursor.h"
#include "formats/placement.h"
#include "runtime/budget.h"
#include "runtime/hotset.h"
#include "runtime/token.h"
#include "tools/inspect/inspect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_SHOWN = 6, STRING_MAX = 65536 };

static const char *const profile_type = "activation-profile";
static const char *const placement_arch = "generic.gpu_index";
static const char *const devices_arch = "hotset.placement";

/* ---- keys ---------------------------------------------------------------------------------- */

static json_t *scalar(const hs_kv *kv, uint64_t i, hs_kv_type type)
{
    switch (type) {
    case HS_KV_F32:
    case HS_KV_F64: return inspect_number(hs_kv_real(kv, i));
    case HS_KV_BOOL: return json_boolean(hs_kv_int(kv, i) != 0);
    case HS_KV_U64: return inspect_count((uint64_t)hs_kv_int(kv, i));
    default: return json_integer((json_int_t)hs_kv_int(kv, i));
    }
}

static json_t *value(const hs_kv *kv)
{
    if (kv->type == HS_KV_STRING)
        return inspect_string((const char *)kv->raw, kv->raw_bytes, STRING_MAX);
    if (kv->type != HS_KV_ARRAY)
        return scalar(kv, 0, kv->type);
    json_t *list = json_array();
    size_t pos = 0;
    for (uint64_t i = 0; i < kv->count && i < LIST_SHOWN; i++) {
        if (kv->elem == HS_KV_STRING) {
            const hs_str s = hs_kv_next_str(kv, &pos);
            json_array_append_new(list, inspect_string(s.p, s.n, 256));
        } else {
            json_array_append_new(list, scalar(kv, i, kv->elem));
        }
    }
    if (kv->count > LIST_SHOWN)
        json_array_append_new(list, json_string("\xe2\x80\xa6"));
    return list;
}

static json_t *list_keys(const hs_gguf *g)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < g->n_kv; i++) {
        const hs_kv *kv = &g->kv[i];
        char type[64];
        if (kv->type == HS_KV_ARRAY)
            snprintf(type, sizeof type, "%s[%llu]", hs_kv_type_name(kv->elem),
                     (unsigned long long)kv->count);
        else
            snprintf(type, sizeof type, "%s", hs_kv_type_name(kv->type));
        json_array_append_new(rows, json_pack("{s:o,s:s,s:o}", "key",
                                              inspect_string(kv->key.p, kv->key.n, 256), "type",
                                              type, "value", value(kv)));
    }
    return rows;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static uint64_t elements(const hs_gguf_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

static json_t *list_tensors(const hs_gguf *g)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *t = &g->tensors[i];
        json_t *ne = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(ne, inspect_count(t->ne[d]));
        json_array_append_new(rows, json_pack("{s:o,s:s,s:o,s:o,s:o}", "name",
                                              inspect_string(t->name, strlen(t->name), 256), "type",
                                              hs_dtype_name(t->dtype), "ne", ne, "offset",
                                              inspect_count(t->offset), "bytes",
                                              inspect_count(t->bytes)));
    }
    return rows;
}

static void add_types(const hs_gguf *g, json_t *report)
{
    uint64_t n[HS_DTYPE_LIMIT] = {0}, elems[HS_DTYPE_LIMIT] = {0}, bytes[HS_DTYPE_LIMIT] = {0};
    uint64_t all = 0, all_bytes = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *t = &g->tensors[i];
        n[t->dtype]++;
        elems[t->dtype] += elements(t);
        bytes[t->dtype] += t->bytes;
        all += elements(t);
        all_bytes += t->bytes;
    }
    json_object_set_new(report, "tensors", inspect_count(g->n_tensors));
    json_object_set_new(report, "weights", inspect_count(all));
    json_object_set_new(report, "data_bytes", inspect_count(all_bytes));
    if (all)
        json_object_set_new(report, "bits_per_weight",
                            inspect_number((double)all_bytes * 8 / (double)all));
    json_t *rows = json_array();
    for (int t = 0; t < HS_DTYPE_LIMIT; t++)
        if (n[t])
            json_array_append_new(
                rows,
                json_pack("{s:s,s:o,s:o,s:o,s:f,s:f}", "type", hs_dtype_name((uint32_t)t),
                          "tensors", inspect_count(n[t]), "weights", inspect_count(elems[t]),
                          "bytes", inspect_count(bytes[t]), "share",
                          all_bytes ? (double)bytes[t] / (double)all_bytes : 0.0, "bits_per_weight",
                          elems[t] ? (double)bytes[t] * 8 / (double)elems[t] : 0.0));
    json_object_set_new(report, "types", rows);
}

/* The first element of a row that is no finite number; n when there is none. */
static uint64_t first_bad(const float *v, uint64_t n)
{
    uint64_t i = 0;
    while (i < n && isfinite(v[i]))
        i++;
    return i;
}

static hs_status bad_element(const hs_gguf_tensor *t, uint64_t i, double v, hs_err *err)
{
    return hs_fail(err, HS_ERR_FORMAT, "tensor %s: element %llu is %s", t->name,
                   (unsigned long long)i,
                   isnan(v) ? "nan"
                   : v > 0  ? "inf"
                            : "-inf");
}

/* Blocks are checked through their values: a scale that is not finite makes one that is not. */
static hs_status check_tensor(const hs_gguf_tensor *t, bool *checked, hs_err *err)
{
    const hs_dtype_info *ti = hs_dtype_get(t->dtype);
    const uint64_t n = elements(t);
    *checked = true;
    if (t->dtype == HS_F64) {
        for (uint64_t i = 0; i < n; i++)
            if (!isfinite(hs_get_f64(t->data + i * 8)))
                return bad_element(t, i, hs_get_f64(t->data + i * 8), err);
        return HS_OK;
    }
    if (!ti->decode) {
        *checked = t->dtype >= HS_I8 && t->dtype <= HS_I64; /* any integer is fine */
        return HS_OK;
    }
    enum { STEP = 4096 };
    float v[STEP];
    const uint64_t step = (uint64_t)STEP / ti->block_elems * ti->block_elems;
    for (uint64_t i = 0; i < n; i += step) {
        const uint64_t k = n - i < step ? n - i : step;
        ti->decode(v, t->data + i / ti->block_elems * ti->block_bytes, (size_t)k);
        const uint64_t bad = first_bad(v, k);
        if (bad < k)
            return bad_element(t, i + bad, (double)v[bad], err);
    }
    return HS_OK;
}

static hs_status check_tensors(const hs_gguf *g, json_t *report, hs_err *err)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        bool checked;
        const hs_status s = check_tensor(&g->tensors[i], &checked, err);
        if (s != HS_OK)
            return s;
        n += checked;
        if (!checked)
            inspect_warn(report, "%s: values of type %s are not checked", g->tensors[i].name,
                         hs_dtype_name(g->tensors[i].dtype));
    }
    json_object_set_new(report, "tensors_checked", inspect_count(n));
    return HS_OK;
}

/* ---- models -------------------------------------------------------------------------------- */

static void add_str(const hs_gguf *g, json_t *report, const char *name, const char *key)
{
    hs_str s = {0};
    if (hs_gguf_str(g, key, &s, NULL) == HS_OK && s.p)
        json_object_set_new(report, name, inspect_string(s.p, s.n, 1024));
}

static void add_key(const hs_gguf *g, json_t *report, const char *name, const char *key)
{
    const hs_kv *kv = hs_gguf_find(g, key);
    if (kv && kv->type != HS_KV_ARRAY && kv->type != HS_KV_STRING)
        json_object_set_new(report, name, scalar(kv, 0, kv->type));
}

static void add_hparams(const hs_gguf *g, json_t *report)
{
    static const struct {
        const char *name, *key;
    } keys[] = {
        {"layers", "block_count"},
        {"embedding", "embedding_length"},
        {"neurons", "feed_forward_length"},
        {"heads", "attention.head_count"},
        {"kv_heads", "attention.head_count_kv"},
        {"context", "context_length"},
    };
    hs_str arch = {0};
    if (hs_gguf_str(g, "general.architecture", &arch, NULL) != HS_OK || !arch.p || arch.n > 64)
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[128];
        snprintf(key, sizeof key, "%.*s.%s", (int)arch.n, arch.p, keys[i].key);
        add_key(g, report, keys[i].name, key);
    }
}

/* Our key, else what the architecture and the magic imply. */
static void add_activation(const hs_gguf *g, json_t *report)
{
    hs_str act = {0}, arch = {0};
    if (hs_gguf_str(g, "hotset.activation", &act, NULL) == HS_OK && act.p) {
        json_object_set_new(report, "activation", inspect_string(act.p, act.n, 64));
        json_object_set_new(report, "activation_from", json_string("the file"));
        add_key(g, report, "fatrelu_threshold", "hotset.fatrelu_threshold");
        return;
    }
    if (hs_gguf_str(g, "general.architecture", &arch, NULL) != HS_OK || !arch.p)
        return;
    const char *rule = NULL;
    if (hs_str_eq(arch, "bamboo"))
        rule = "drelu";
    else if (hs_str_eq(arch, "falcon") || hs_str_eq(arch, "opt"))
        rule = "relu";
    else if (hs_str_eq(arch, "llama"))
        rule = g->pwri ? "relu" : "silu";
    if (!rule)
        return;
    json_object_set_new(report, "activation", json_string(rule));
    json_object_set_new(report, "activation_from", json_string("architecture and layout"));
}

static void add_predictors(const hs_gguf *g, json_t *report)
{
    uint64_t n = 0, lo = UINT64_MAX, hi = 0, bytes = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *t = &g->tensors[i];
        const char *dot = strrchr(t->name, '.');
        const size_t k = dot ? (size_t)(dot - t->name) : 0;
        if (k < 4 || strncmp(t->name, "blk.", 4) != 0 || strcmp(dot, ".weight") != 0)
            continue;
        const bool fc1 = !strncmp(dot - 4, ".fc1", 4), fc2 = !strncmp(dot - 4, ".fc2", 4);
        if (fc1 || fc2)
            bytes += t->bytes;
        if (!fc1)
            continue;
        n++;
        lo = t->ne[1] < lo ? t->ne[1] : lo;
        hi = t->ne[1] > hi ? t->ne[1] : hi;
    }
    json_object_set_new(report, "predictors", inspect_count(n));
    if (!n)
        return;
    char width[64];
    snprintf(width, sizeof width, lo == hi ? "%llu" : "%llu to %llu", (unsigned long long)lo,
             (unsigned long long)hi);
    json_object_set_new(report, "predictor_width", json_string(width));
    json_object_set_new(report, "predictor_bytes", inspect_count(bytes));
    add_key(g, report, "sparse_threshold", "powerinfer.sparse_threshold");
}

static hs_status add_vocabulary(const hs_gguf *g, json_t *report, hs_err *err)
{
    const hs_kv *tokens = hs_gguf_find(g, "tokenizer.ggml.tokens");
    if (!tokens && !hs_gguf_find(g, "tokenizer.ggml.model"))
        return HS_OK;
    add_str(g, report, "tokenizer", "tokenizer.ggml.model");
    if (tokens && tokens->type == HS_KV_ARRAY)
        json_object_set_new(report, "vocabulary", inspect_count(tokens->count));
    hs_vocab *v;
    const hs_status s = hs_vocab_new(&v, g, err);
    if (s == HS_ERR_UNSUPPORTED) {
        inspect_warn(report, "%s", err ? err->msg : "the tokenizer is not supported");
        return HS_OK;
    }
    if (s != HS_OK)
        return s;
    json_object_set_new(report, "bos", json_integer(hs_vocab_bos(v)));
    json_object_set_new(report, "eos", json_integer(hs_vocab_eos(v)));
    json_object_set_new(report, "add_bos", json_boolean(hs_vocab_add_bos(v)));
    hs_vocab_free(v);
    return HS_OK;
}

/* What no supported or future model has. */
static hs_status check_names(const hs_gguf *g, hs_err *err)
{
    hs_str arch = {0};
    uint32_t layers = UINT32_MAX;
    char key[96];
    hs_status s = hs_gguf_str(g, "general.architecture", &arch, err);
    if (s != HS_OK || !arch.p)
        return s;
    bool name = arch.n > 0 && arch.n < 64;
    for (size_t i = 0; name && i < arch.n; i++)
        name = arch.p[i] > 0x20 && arch.p[i] < 0x7f;
    if (!name)
        return hs_fail(err, HS_ERR_FORMAT, "general.architecture: expected a name, got '%.*s'",
                       (int)(arch.n < 64 ? arch.n : 64), arch.p);
    snprintf(key, sizeof key, "%.*s.block_count", (int)arch.n, arch.p);
    if ((s = hs_gguf_u32(g, key, &layers, err)) != HS_OK)
        return s;
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *t = &g->tensors[i];
        if (!strncmp(t->name, "blk.", 4) && strtoull(t->name + 4, NULL, 10) >= layers)
            return hs_fail(err, HS_ERR_FORMAT, "tensor %s: %s is %u", t->name, key, layers);
        if (t->dtype >= HS_I8 && t->dtype <= HS_I64 && hs_str_eq(arch, "llama"))
            return hs_fail(err, HS_ERR_FORMAT, "tensor %s: type %s, expected a float or block type",
                           t->name, hs_dtype_name(t->dtype));
    }
    return HS_OK;
}

/* Whether the runtime takes it; a fault of the file is one of the inspection too. */
static hs_status add_runnable(const inspect_options *o, json_t *report, hs_err *err)
{
    hs_model *m;
    hs_err why = {0};
    const hs_status s = hs_model_load(&m, o->path, &why);
    json_object_set_new(report, "runs_here", json_boolean(s == HS_OK));
    if (s == HS_OK) {
        hs_model_free(m);
        return HS_OK;
    }
    if (s != HS_ERR_UNSUPPORTED)
        return hs_fail(err, s, "%s", why.msg);
    const size_t n = strlen(o->path);
    const bool prefixed = !strncmp(why.msg, o->path, n) && !strncmp(why.msg + n, ": ", 2);
    inspect_warn(report, "does not run here: %s", why.msg + (prefixed ? n + 2 : 0));
    return HS_OK;
}

static hs_status inspect_model(const inspect_options *o, const hs_gguf *g, json_t *report,
                               hs_err *err)
{
    const bool vocab_only = !g->n_tensors;
    add_str(g, report, "architecture", "general.architecture");
    add_str(g, report, "name", "general.name");
    add_hparams(g, report);
    if (!vocab_only) {
        add_activation(g, report);
        add_predictors(g, report);
    }
    hs_status s = check_names(g, err);
    if (s == HS_OK)
        s = add_vocabulary(g, report, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", o->path);
    if (vocab_only)
        return HS_OK;
    add_types(g, report);
    char print[HS_FINGERPRINT_CHARS + 1];
    hs_fingerprint(g, print);
    json_object_set_new(report, "fingerprint", json_string(print));
    add_str(g, report, "source_fingerprint", "hotset.source_fingerprint");
    s = add_runnable(o, report, err);
    if (s == HS_OK && o->check && (s = check_tensors(g, report, err)) != HS_OK)
        s = hs_ctx(err, s, "%s: ", o->path);
    return s;
}

/* ---- profiles ------------------------------------------------------------------------------ */

static hs_status profile_belongs(const inspect_options *o, const hs_activation *a, json_t *report,
                                 hs_err *err)
{
    hs_gguf *m;
    hs_status s = hs_gguf_open(&m, o->model, err);
    if (s != HS_OK)
        return s;
    uint32_t layers = 0;
    for (uint32_t l = 0;; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.ffn_up.weight", l);
        const hs_gguf_tensor *t = hs_gguf_tensor_find(m, name);
        if (!t)
            break;
        layers++;
        if (s == HS_OK && l < a->n_layer && t->ne[1] != a->n_ff[l])
            s = hs_fail(err, HS_ERR_FORMAT, "%s: layer %u has %u neurons, in %s %llu", o->path, l,
                        a->n_ff[l], o->model, (unsigned long long)t->ne[1]);
    }
    if (s == HS_OK && layers != a->n_layer)
        s = hs_fail(err, HS_ERR_FORMAT, "%s: %u layers, %s has %u", o->path, a->n_layer, o->model,
                    layers);
    if (s == HS_OK && a->fingerprint[0] && !hs_fingerprint_matches(m, a->fingerprint, true))
        s = hs_fail(err, HS_ERR_FORMAT, "%s: made for another model (fingerprint %s), not %s",
                    o->path, a->fingerprint, o->model);
    if (s == HS_OK && !a->fingerprint[0])
        inspect_warn(report, "no fingerprint: only the shapes tell that it belongs to the model");
    hs_gguf_free(m);
    return s;
}

static void add_profile(const hs_activation *a, json_t *report)
{
    json_object_set_new(report, "layers", json_integer(a->n_layer));
    json_object_set_new(report, "tokens", inspect_count(a->tokens));
    json_object_set_new(report, "fingerprint",
                        a->fingerprint[0] ? json_string(a->fingerprint) : json_null());
    if (a->n_ctx)
        json_object_set_new(report, "context", json_integer(a->n_ctx));
    if (a->chunks_done)
        json_object_set_new(report, "chunks", inspect_count(a->chunks_done));
    json_t *sources = json_array(), *layers = json_array();
    for (size_t i = 0; i < a->n_source; i++)
        json_array_append_new(
            sources, json_pack("{s:o,s:s}", "name",
                               inspect_string(a->source[i].name, strlen(a->source[i].name), 256),
                               "hash", a->source[i].hash));
    for (uint32_t l = 0; l < a->n_layer; l++) {
        double sum = 0;
        int64_t most = 0;
        uint32_t dead = 0;
        for (uint32_t i = 0; i < a->n_ff[l]; i++) {
            sum += (double)a->count[l][i];
            most = a->count[l][i] > most ? a->count[l][i] : most;
            dead += a->count[l][i] == 0;
        }
        const double cells = (double)a->tokens * a->n_ff[l];
        json_array_append_new(layers, json_pack("{s:i,s:i,s:f,s:f,s:i}", "layer", (int)l, "neurons",
                                                (int)a->n_ff[l], "active_share",
                                                cells > 0 ? sum / cells : 0.0, "hottest_share",
                                                a->tokens ? (double)most / (double)a->tokens : 0.0,
                                                "never_active", (int)dead));
    }
    json_object_set_new(report, "sources", sources);
    json_object_set_new(report, "activity", layers);
}

static hs_status inspect_profile(const inspect_options *o, const hs_gguf *g, json_t *report,
                                 hs_err *err)
{
    hs_activation *a;
    hs_status s = hs_activation_parse(&a, g, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", o->path);
    add_profile(a, report);
    if (o->model && (s = profile_belongs(o, a, report, err)) == HS_OK)
        json_object_set_new(report, "belongs_to", json_string(o->model));
    hs_activation_free(a);
    return s;
}

/* ---- placements ---------------------------------------------------------------------------- */

static void add_plan(const hs_placement *p, json_t *report)
{
    json_object_set_new(report, "made_by",
                        json_string(p->has_plan ? "hotset" : "PowerInfer (no plan inside)"));
    if (!p->has_plan)
        return;
    json_object_set_new(report, "fingerprint",
                        p->fingerprint[0] ? json_string(p->fingerprint) : json_null());
    json_object_set_new(report, "plan_bytes", inspect_count(p->plan_bytes));
    json_object_set_new(report, "output_on_device", json_boolean(p->output));
    json_object_set_new(report, "context", json_integer(p->n_ctx));
    json_object_set_new(report, "kv_type", json_string(hs_dtype_name(p->kv_type)));
    json_object_set_new(report, "objective",
                        inspect_string(p->objective, strlen(p->objective), 32));
    json_object_set_new(report, "method", inspect_string(p->method, strlen(p->method), 32));
    json_object_set_new(report, "objective_value", inspect_number(p->objective_value));
    json_object_set_new(report, "bound", inspect_number(p->bound));
    json_object_set_new(report, "gap", inspect_number(p->gap));
    json_object_set_new(report, "group", json_integer(p->group));
}

/* "attention predictor", of several devices "attention:0 predictor:1". */
static void name_blocks(const hs_placement *p, const hs_placement_layer *y, char *out, size_t cap)
{
    const struct {
        const char *name;
        bool on;
        uint8_t device;
    } block[] = {{"attention", y->attn, y->attn_device},
                 {"predictor", y->predictor, y->predictor_device},
                 {"ffn-norm", y->ffn_norm, y->ffn_norm_device},
                 {"kv-cache", y->kv, y->kv_device}};
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < sizeof block / sizeof *block; i++) {
        if (!block[i].on || n >= cap)
            continue;
        const char *gap = n ? " " : "";
        n += (size_t)(p->n_devices > 1 ? snprintf(out + n, cap - n, "%s%s:%u", gap, block[i].name,
                                                  block[i].device)
                                       : snprintf(out + n, cap - n, "%s%s", gap, block[i].name));
    }
    if (!n)
        snprintf(out, cap, "none");
}

static json_t *placement_row(const hs_placement *p, uint32_t l)
{
    const hs_placement_layer *y = &p->layer[l];
    char blocks[80];
    name_blocks(p, y, blocks, sizeof blocks);
    json_t *row =
        json_pack("{s:i,s:i,s:i,s:f,s:s}", "layer", (int)l, "neurons", (int)y->n_ff, "on_device",
                  (int)y->n_device, "share", y->n_ff ? (double)y->n_device / y->n_ff : 0.0,
                  "blocks_on_device", blocks);
    for (uint32_t d = 0; p->n_devices > 1 && d < p->n_devices; d++) {
        char name[24];
        int n = 0;
        for (uint32_t i = 0; i < y->n_device; i++)
            n += (y->on_which ? y->on_which[i] : 0) == d;
        snprintf(name, sizeof name, "on_device_%u", d);
        json_object_set_new(row, name, json_integer(n));
    }
    return row;
}

static json_t *device_list(const hs_placement *p)
{
    json_t *a = json_array();
    for (uint32_t d = 0; d < p->n_devices; d++)
        json_array_append_new(a, json_pack("{s:i,s:o,s:o,s:b}", "device", (int)d, "budget_bytes",
                                           inspect_count(p->device_capacity[d]), "plan_bytes",
                                           inspect_count(p->device_bytes[d]), "output",
                                           p->output && p->output_device == d));
    return a;
}

static void add_placement(const hs_placement *p, json_t *report)
{
    json_object_set_new(report, "layers", json_integer(p->n_layer));
    json_object_set_new(report, "budget_bytes", inspect_count(p->vram_capacity));
    if (p->n_devices > 1)
        json_object_set_new(report, "devices", device_list(p));
    add_plan(p, report);
    json_t *rows = json_array(), *ledger = json_array();
    for (uint32_t l = 0; l < p->n_layer; l++)
        json_array_append_new(rows, placement_row(p, l));
    for (size_t i = 0; i < p->n_ledger; i++) {
        const hs_ledger_line *x = &p->ledger[i];
        json_t *line = json_pack(
            "{s:o,s:o,s:o}", "use", inspect_string(x->what, strlen(x->what), 64), "layer",
            x->layer < 0 ? json_null() : json_integer(x->layer), "bytes", inspect_count(x->bytes));
        if (p->n_devices > 1)
            json_object_set_new(line, "device", json_integer(x->device));
        json_array_append_new(ledger, line);
    }
    json_object_set_new(report, "placement", rows);
    json_object_set_new(report, "ledger", ledger);
}

static hs_status placement_belongs(const inspect_options *o, const hs_placement *p, json_t *report,
                                   hs_err *err)
{
    hs_model *m;
    hs_status s = hs_model_load(&m, o->model, err);
    if (s != HS_OK)
        return s;
    s = hs_placement_check(p, m, err);
    hs_model_free(m);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", o->path);
    if (!p->fingerprint[0])
        inspect_warn(report, "no fingerprint: only the shapes tell that it belongs to the model");
    json_object_set_new(report, "belongs_to", json_string(o->model));
    return HS_OK;
}

static hs_status inspect_placement(const inspect_options *o, const hs_gguf *g, json_t *report,
                                   hs_err *err)
{
    hs_placement *p;
    hs_status s = hs_placement_parse(&p, g, err);
    if (s != HS_OK)
        return hs_ctx(err, s, "%s: ", o->path);
    add_placement(p, report);
    if (o->model)
        s = placement_belongs(o, p, report, err);
    hs_placement_free(p);
    return s;
}

/* ---- which of them ------------------------------------------------------------------------- */

hs_status inspect_gguf(const inspect_options *o, json_t *report, hs_err *err)
{
    hs_gguf *g;
    hs_status s = hs_gguf_open(&g, o->path, err);
    if (s != HS_OK)
        return s;
    hs_str type = {0}, arch = {0};
    const bool typed = hs_gguf_str(g, "general.type", &type, NULL) == HS_OK && type.p;
    const bool named = hs_gguf_str(g, "general.architecture", &arch, NULL) == HS_OK && arch.p;
    const bool profile = typed && hs_str_eq(type, profile_type);
    const bool several = named && hs_str_eq(arch, devices_arch);
    const bool placement = several || (named && hs_str_eq(arch, placement_arch));
    json_object_set_new(report, "kind",
                        json_string(profile         ? "activation profile"
                                    : several       ? "placement (several devices)"
                                    : placement     ? "placement (gpuidx)"
                                    : !g->n_tensors ? "vocabulary"
                                    : g->pwri       ? "model, PowerInfer layout (PWRI)"
                                                    : "model (GGUF)"));
    json_object_set_new(report, "file_bytes", inspect_count(g->map.size));
    json_object_set_new(report, "gguf_version", json_integer(g->version));
    json_object_set_new(report, "keys", inspect_count(g->n_kv));
    if (profile)
        s = inspect_profile(o, g, report, err);
    else if (placement)
        s = inspect_placement(o, g, report, err);
    else if (o->model)
        s = hs_fail(err, HS_ERR_FORMAT, "%s: is neither a profile nor a placement, which -m needs",
                    o->path);
    else
        s = inspect_model(o, g, report, err);
    if (o->kv)
        json_object_set_new(report, "key_values", list_keys(g));
    if (o->tensors)
        json_object_set_new(report, "tensor_list", list_tensors(g));
    if (s == HS_OK && o->check && (profile || placement)) {
        s = check_tensors(g, report, err);
        if (s != HS_OK)
            s = hs_ctx(err, s, "%s: ", o->path);
    }
    hs_gguf_free(g);
    return s;
}
