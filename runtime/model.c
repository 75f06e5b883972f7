/* Loading: hyper-parameters first, then every tensor by name, then nothing may be left over.
 * The one surprise: the activation function decides between models that look the same, so it
 * is a key of ours, and only a file without that key falls back to the field's convention. */
#include "runtime/model.h"

#include "formats/fingerprint.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const hs_arch archs[] = {
    {"llama", HS_FN_RELU, HS_FN_SILU},
    {"bamboo", HS_FN_DRELU, HS_FN_DRELU},
};

static const struct {
    const char *name;
    hs_act_fn fn;
} activations[] = {
    {"relu", HS_FN_RELU}, {"drelu", HS_FN_DRELU}, {"fatrelu", HS_FN_FATRELU},
    {"silu", HS_FN_SILU}, {"gelu", HS_FN_GELU},   {"gelu_tanh", HS_FN_GELU_TANH},
};

enum {
    N_ARCH = sizeof archs / sizeof archs[0],
    N_ACT = sizeof activations / sizeof activations[0],
    /* Bounds far above any published model; they keep every later product inside 64 bits. */
    MAX_LAYERS = 4096,
    MAX_WIDTH = 1 << 24,
    MAX_CONTEXT = 1 << 24,
};

/* ---- hyper-parameters ------------------------------------------------------------------ */

typedef struct loader {
    hs_model *m;
    const hs_gguf *g;
    hs_err *err;
    bool *used; /* [n_tensors] */
    char key[128];
} loader;

static const char *arch_key(loader *ld, const char *name)
{
    snprintf(ld->key, sizeof ld->key, "%s.%s", ld->m->arch->name, name);
    return ld->key;
}

static hs_status find_arch(loader *ld)
{
    hs_str a = {0};
    const hs_status s = hs_gguf_str(ld->g, "general.architecture", &a, ld->err);
    if (s != HS_OK)
        return s;
    if (!a.p)
        return hs_fail(ld->err, HS_ERR_FORMAT, "no general.architecture: not a model file");
    for (int i = 0; i < N_ARCH; i++)
        if (hs_str_eq(a, archs[i].name)) {
            ld->m->arch = &archs[i];
            return HS_OK;
        }
    if (hs_str_eq(a, "generic.gpu_index"))
        return hs_fail(ld->err, HS_ERR_FORMAT, "is a placement, expected a model");
    return hs_fail(ld->err, HS_ERR_UNSUPPORTED,
                   "architecture '%.*s' is not supported (supported: llama, bamboo)",
                   (int)(a.n < 64 ? a.n : 64), a.p);
}

/* A u32 key in [min, max]; *out keeps its default when absent, unless that is outside too. */
static hs_status get_u32(loader *ld, const char *name, uint32_t min, uint32_t max, uint32_t *out)
{
    const char *key = arch_key(ld, name);
    const hs_status s = hs_gguf_u32(ld->g, key, out, ld->err);
    if (s != HS_OK)
        return s;
    if (*out < min || *out > max) {
        if (!hs_gguf_find(ld->g, key))
            return hs_fail(ld->err, HS_ERR_FORMAT, "%s is missing", key);
        return hs_fail(ld->err, HS_ERR_FORMAT, "%s is %u, expected %u to %u", key, *out, min, max);
    }
    return HS_OK;
}

static hs_status get_f32(loader *ld, const char *name, float *out)
{
    const char *key = arch_key(ld, name);
    const hs_status s = hs_gguf_f32(ld->g, key, out, ld->err);
    if (s != HS_OK)
        return s;
    if (!(*out > 0) || !isfinite(*out)) {
        if (!hs_gguf_find(ld->g, key))
            return hs_fail(ld->err, HS_ERR_FORMAT, "%s is missing", key);
        return hs_fail(ld->err, HS_ERR_FORMAT, "%s is %g, expected a positive number", key,
                       (double)*out);
    }
    return HS_OK;
}

static hs_status read_rope(loader *ld)
{
    hs_model *m = ld->m;
    m->rope_dim = m->head_dim;
    m->rope_base = 10000.0f;
    m->rope_scale = 1.0f;
    hs_status s;
    if ((s = get_u32(ld, "rope.dimension_count", 2, m->head_dim, &m->rope_dim)) != HS_OK ||
        (s = get_f32(ld, "rope.freq_base", &m->rope_base)) != HS_OK)
        return s;
    if (m->rope_dim % 2)
        return hs_fail(ld->err, HS_ERR_FORMAT,
                       "%s.rope.dimension_count is %u, expected an even number", m->arch->name,
                       m->rope_dim);
    hs_str type = {0};
    float factor = 1.0f;
    if ((s = hs_gguf_str(ld->g, arch_key(ld, "rope.scaling.type"), &type, ld->err)) != HS_OK ||
        (s = get_f32(ld, "rope.scaling.factor", &factor)) != HS_OK ||
        (s = get_f32(ld, "rope.scale_linear", &factor)) != HS_OK)
        return s;
    if (type.p && !hs_str_eq(type, "none") && !hs_str_eq(type, "linear"))
        return hs_fail(ld->err, HS_ERR_UNSUPPORTED,
                       "%s.rope.scaling.type '%.*s' is not supported (supported: none, linear)",
                       m->arch->name, (int)(type.n < 32 ? type.n : 32), type.p);
    if (!type.p || hs_str_eq(type, "linear"))
        m->rope_scale = 1.0f / factor;
    return HS_OK;
}

static hs_status read_activation(loader *ld)
{
    hs_model *m = ld->m;
    hs_str a = {0};
    hs_status s = hs_gguf_str(ld->g, "hotset.activation", &a, ld->err);
    if (s != HS_OK)
        return s;
    m->fn = ld->g->pwri ? m->arch->sparse_fn : m->arch->dense_fn;
    if (!a.p)
        return HS_OK;
    for (int i = 0; i < N_ACT; i++)
        if (hs_str_eq(a, activations[i].name)) {
            m->fn = activations[i].fn;
            if (m->fn != HS_FN_FATRELU)
                return HS_OK;
            m->fn_param = NAN;
            s = hs_gguf_f32(ld->g, "hotset.fatrelu_threshold", &m->fn_param, ld->err);
            if (s == HS_OK && (!isfinite(m->fn_param) || m->fn_param < 0))
                s = hs_fail(ld->err, HS_ERR_FORMAT,
                            "hotset.fatrelu_threshold is missing or not a number from 0");
            return s;
        }
    return hs_fail(ld->err, HS_ERR_UNSUPPORTED, "hotset.activation '%.*s' is not known",
                   (int)(a.n < 32 ? a.n : 32), a.p);
}

static hs_status read_hparams(loader *ld)
{
    hs_model *m = ld->m;
    hs_status s;
    if ((s = get_u32(ld, "block_count", 1, MAX_LAYERS, &m->n_layer)) != HS_OK ||
        (s = get_u32(ld, "embedding_length", 1, MAX_WIDTH, &m->n_embd)) != HS_OK ||
        (s = get_u32(ld, "feed_forward_length", 1, MAX_WIDTH, &m->n_ff)) != HS_OK ||
        (s = get_u32(ld, "attention.head_count", 1, m->n_embd, &m->n_head)) != HS_OK ||
        (s = get_u32(ld, "context_length", 1, MAX_CONTEXT, &m->n_ctx_train)) != HS_OK)
        return s;
    m->n_head_kv = m->n_head;
    if ((s = get_u32(ld, "attention.head_count_kv", 1, m->n_head, &m->n_head_kv)) != HS_OK)
        return s;
    if (m->n_head % m->n_head_kv)
        return hs_fail(ld->err, HS_ERR_FORMAT,
                       "%s.attention.head_count_kv is %u, expected a divisor of head_count %u",
                       m->arch->name, m->n_head_kv, m->n_head);
    m->head_dim = m->n_embd % m->n_head ? 0 : m->n_embd / m->n_head;
    uint32_t value_len = 0;
    if ((s = get_u32(ld, "attention.key_length", 2, MAX_WIDTH / m->n_head, &m->head_dim)) != HS_OK)
        return m->n_embd % m->n_head
                   ? hs_fail(ld->err, HS_ERR_FORMAT,
                             "%s.embedding_length %u is no multiple of attention.head_count %u",
                             m->arch->name, m->n_embd, m->n_head)
                   : s;
    value_len = m->head_dim;
    if ((s = get_u32(ld, "attention.value_length", m->head_dim, m->head_dim, &value_len)) !=
            HS_OK ||
        (s = get_f32(ld, "attention.layer_norm_rms_epsilon", &m->eps)) != HS_OK ||
        (s = read_rope(ld)) != HS_OK || (s = read_activation(ld)) != HS_OK)
        return s;
    s = hs_gguf_f32(ld->g, "powerinfer.sparse_threshold", &m->threshold, ld->err);
    if (s == HS_OK && isnan(m->threshold))
        s = hs_fail(ld->err, HS_ERR_FORMAT, "powerinfer.sparse_threshold is not a number");
    return s;
}

/* ---- tensors --------------------------------------------------------------------------- */

static const hs_gguf_tensor *take(loader *ld, const char *name)
{
    const hs_gguf_tensor *t = hs_gguf_tensor_find(ld->g, name);
    if (t)
        ld->used[t - ld->g->tensors] = true;
    return t;
}

static hs_status missing(loader *ld, const char *name)
{
    return hs_fail(ld->err, HS_ERR_FORMAT, "tensor %s is missing", name);
}

/* A matrix of `rows` rows and `cols` columns; 0 takes the file's number.  Absent is left to
 * the caller. */
static hs_status bind_mat(loader *ld, const char *name, uint32_t cols, uint32_t rows, hs_mat *out)
{
    const hs_gguf_tensor *t = take(ld, name);
    if (!t)
        return HS_OK;
    const uint64_t c = cols ? cols : t->ne[0], r = rows ? rows : t->ne[1];
    if (t->n_dims != 2 || t->ne[0] != c || t->ne[1] != r || c > MAX_WIDTH || r > MAX_WIDTH)
        return hs_fail(ld->err, HS_ERR_FORMAT,
                       "tensor %s: expected ne {%llu, %llu}, got {%llu, %llu}", name,
                       (unsigned long long)c, (unsigned long long)r, (unsigned long long)t->ne[0],
                       (unsigned long long)t->ne[1]);
    const hs_dtype_info *ti = hs_dtype_get(t->dtype);
    if (!ti->decode)
        return hs_fail(ld->err, HS_ERR_UNSUPPORTED, "tensor %s: type %s has no kernel here", name,
                       ti->name);
    *out = (hs_mat){t->data, t->dtype, (uint32_t)c, (uint32_t)r, t->bytes / r};
    return HS_OK;
}

static hs_status bind_norm(loader *ld, const char *name, const float **out)
{
    const hs_gguf_tensor *t = take(ld, name);
    if (!t)
        return missing(ld, name);
    if (t->n_dims != 1 || t->ne[0] != ld->m->n_embd || t->dtype != HS_F32)
        return hs_fail(ld->err, HS_ERR_FORMAT, "tensor %s: expected F32 ne {%u}, got %s {%llu}",
                       name, ld->m->n_embd, hs_dtype_name(t->dtype), (unsigned long long)t->ne[0]);
    *out = (const float *)(const void *)t->data;
    return HS_OK;
}

static hs_status bind_layer(loader *ld, uint32_t l)
{
    hs_model *m = ld->m;
    hs_layer *y = &m->layer[l];
    const uint32_t q = m->n_head * m->head_dim, kv = m->n_head_kv * m->head_dim;
    const struct {
        const char *name;
        uint32_t cols, rows;
        hs_mat *out;
        bool required;
    } mats[] = {
        {"attn_q", m->n_embd, q, &y->wq, true},
        {"attn_k", m->n_embd, kv, &y->wk, true},
        {"attn_v", m->n_embd, kv, &y->wv, true},
        {"attn_output", q, m->n_embd, &y->wo, true},
        {"ffn_gate", m->n_embd, m->n_ff, &y->gate, true},
        {"ffn_up", m->n_embd, m->n_ff, &y->up, true},
        {"ffn_down", m->n_ff, m->n_embd, &y->down, !ld->g->pwri},
        {"ffn_down_t", m->n_embd, m->n_ff, &y->down_t, ld->g->pwri},
        {"fc1", m->n_embd, 0, &y->fc1, false},
        {"fc2", 0, m->n_ff, &y->fc2, false},
    };
    char name[64];
    for (size_t i = 0; i < sizeof mats / sizeof mats[0]; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", l, mats[i].name);
        const hs_status s = bind_mat(ld, name, mats[i].cols, mats[i].rows, mats[i].out);
        if (s != HS_OK)
            return s;
        if (!mats[i].out->data && mats[i].required)
            return missing(ld, name);
    }
    if (y->down.data && y->down_t.data)
        return hs_fail(ld->err, HS_ERR_FORMAT, "layer %u has both ffn_down and ffn_down_t", l);
    if (!y->fc1.data != !y->fc2.data)
        return hs_fail(ld->err, HS_ERR_FORMAT, "layer %u has only one of fc1 and fc2", l);
    if (y->fc1.data && y->fc1.rows != y->fc2.cols)
        return hs_fail(ld->err, HS_ERR_FORMAT,
                       "tensor blk.%u.fc2.weight: expected ne {%u, %u}, got {%u, %u}", l,
                       y->fc1.rows, m->n_ff, y->fc2.cols, y->fc2.rows);
    hs_status s;
    snprintf(name, sizeof name, "blk.%u.attn_norm.weight", l);
    if ((s = bind_norm(ld, name, &y->attn_norm)) != HS_OK)
        return s;
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", l);
    return bind_norm(ld, name, &y->ffn_norm);
}

static hs_status bind_all(loader *ld)
{
    hs_model *m = ld->m;
    m->n_vocab = hs_vocab_size(m->vocab);
    hs_status s;
    if ((s = bind_mat(ld, "token_embd.weight", m->n_embd, 0, &m->token_embd)) != HS_OK)
        return s;
    if (!m->token_embd.data)
        return missing(ld, "token_embd.weight");
    if (m->token_embd.rows != m->n_vocab)
        return hs_fail(ld->err, HS_ERR_FORMAT,
                       "tensor token_embd.weight has %u rows, the tokenizer %u tokens",
                       m->token_embd.rows, m->n_vocab);
    if ((s = bind_mat(ld, "output.weight", m->n_embd, m->n_vocab, &m->output)) != HS_OK ||
        (s = bind_norm(ld, "output_norm.weight", &m->output_norm)) != HS_OK)
        return s;
    if (!m->output.data) {
        if (ld->g->pwri)
            return missing(ld, "output.weight");
        m->output = m->token_embd;
    }
    for (uint32_t l = 0; l < m->n_layer; l++)
        if ((s = bind_layer(ld, l)) != HS_OK)
            return s;
    for (size_t i = 0; i < ld->g->n_tensors; i++)
        if (!ld->used[i])
            return hs_fail(ld->err, HS_ERR_UNSUPPORTED,
                           "tensor %s is not part of the %s architecture as supported here",
                           ld->g->tensors[i].name, m->arch->name);
    uint32_t with = 0;
    for (uint32_t l = 0; l < m->n_layer; l++)
        with += m->layer[l].fc1.data != NULL;
    if (with && with != m->n_layer)
        return hs_fail(ld->err, HS_ERR_FORMAT, "only %u of %u layers have a predictor", with,
                       m->n_layer);
    m->has_predictors = with > 0;
    return HS_OK;
}

hs_status hs_model_load(hs_model **out, const char *path, hs_err *err)
{
    *out = NULL;
    hs_model *m = calloc(1, sizeof *m);
    if (!m)
        return hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", path);
    m->path = strdup(path);
    hs_status s = m->path ? hs_gguf_open(&m->gguf, path, err)
                          : hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", path);
    if (s != HS_OK) {
        hs_model_free(m);
        return s;
    }
    loader ld = {.m = m, .g = m->gguf, .err = err};
    ld.used = calloc(m->gguf->n_tensors + 1, sizeof *ld.used);
    if (!ld.used)
        s = hs_fail(err, HS_ERR_NOMEM, "out of memory");
    else if ((s = find_arch(&ld)) == HS_OK && (s = read_hparams(&ld)) == HS_OK &&
             (s = hs_vocab_new(&m->vocab, m->gguf, err)) == HS_OK) {
        m->layer = calloc(m->n_layer, sizeof *m->layer);
        s = m->layer ? bind_all(&ld) : hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    free(ld.used);
    if (s != HS_OK) {
        hs_model_free(m);
        return hs_ctx(err, s, "%s: ", path);
    }
    hs_fingerprint(m->gguf, m->fingerprint);
    *out = m;
    return HS_OK;
}

void hs_model_free(hs_model *m)
{
    if (!m)
        return;
    free(m->path);
    free(m->layer);
    hs_vocab_free(m->vocab);
    hs_gguf_free(m->gguf);
    free(m);
}

/* ---- questions ------------------------------------------------------------------------- */

void hs_model_describe(const hs_model *m, hs_model_info *out)
{
    const char *act = "?";
    for (int i = 0; i < N_ACT; i++)
        if (activations[i].fn == m->fn)
            act = activations[i].name;
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->gguf->n_tensors; i++)
        bytes += m->gguf->tensors[i].bytes;
    *out = (hs_model_info){
        .arch = m->arch->name,
        .activation = act,
        .n_layer = m->n_layer,
        .n_embd = m->n_embd,
        .n_ff = m->n_ff,
        .n_head = m->n_head,
        .n_head_kv = m->n_head_kv,
        .head_dim = m->head_dim,
        .n_vocab = m->n_vocab,
        .n_ctx_train = m->n_ctx_train,
        .relu_family = hs_act_is_sparse(m->fn),
        .has_predictors = m->has_predictors,
        .sparse_layout = m->gguf->pwri,
        .threshold = m->threshold,
        .bos = hs_vocab_bos(m->vocab),
        .eos = hs_vocab_eos(m->vocab),
        .add_bos = hs_vocab_add_bos(m->vocab),
        .weight_bytes = bytes,
    };
    memcpy(out->fingerprint, m->fingerprint, sizeof out->fingerprint);
}

hs_status hs_tokenize(const hs_model *m, const char *text, size_t n, bool special, int32_t **ids,
                      size_t *n_ids, hs_err *err)
{
    return hs_vocab_encode(m->vocab, text, n, special, ids, n_ids, err);
}

size_t hs_token_bytes(const hs_model *m, int32_t id, char *out, size_t cap)
{
    return hs_vocab_bytes(m->vocab, id, out, cap);
}

bool hs_token_is_eog(const hs_model *m, int32_t id) { return hs_vocab_is_eog(m->vocab, id); }

static bool finite_tensor(const hs_gguf_tensor *t, float *row)
{
    const hs_dtype_info *ti = hs_dtype_get(t->dtype);
    const uint64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
    for (uint64_t r = 0; r < rows; r++) {
        ti->decode(row, t->data + r * (t->bytes / rows), (size_t)t->ne[0]);
        for (uint64_t i = 0; i < t->ne[0]; i++)
            if (!isfinite(row[i]))
                return false;
    }
    return true;
}

const char *hs_model_find_nonfinite(const hs_model *m, uint32_t layer)
{
    char prefix[32];
    const int n = layer < m->n_layer ? snprintf(prefix, sizeof prefix, "blk.%u.", layer) : 0;
    for (size_t i = 0; i < m->gguf->n_tensors; i++) {
        const hs_gguf_tensor *t = &m->gguf->tensors[i];
        const bool mine = n ? !strncmp(t->name, prefix, (size_t)n) ||
                                  (layer == 0 && !strncmp(t->name, "token_embd.", 11))
                            : strncmp(t->name, "blk.", 4) != 0;
        if (!mine || !hs_dtype_get(t->dtype)->decode)
            continue;
        float *row = malloc((size_t)t->ne[0] * sizeof *row);
        const bool ok = !row || finite_tensor(t, row);
        free(row);
        if (!ok)
            return t->name;
    }
    return NULL;
}
