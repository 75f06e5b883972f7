/* config.json.  The one surprise: its "quantization_config" is read first, because the names and
 * shapes of such a checkpoint fit nothing and would give a misleading message. */
#include "tools/convert/config.h"

#include "formats/file.h"
#include "formats/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const hs_special_names[HS_N_SPECIAL] = {"bos", "eos", "unk", "sep", "pad"};

/* The runtime's own bounds. */
enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 24, MAX_VOCAB = 1 << 24 };

bool hs_conv_is_relu(const char *act)
{
    return strcmp(act, "relu") == 0 || strcmp(act, "drelu") == 0 || strcmp(act, "fatrelu") == 0;
}

const char *hs_conv_advice(const char *name)
{
    static const struct {
        const char *part, *advice;
    } rows[] = {
        {".qweight", "a GPTQ or AWQ checkpoint (already quantized); convert the original weights"},
        {".qzeros", "a GPTQ or AWQ checkpoint (already quantized); convert the original weights"},
        {".g_idx", "a GPTQ checkpoint (already quantized); convert the original weights"},
        {".lora_", "a LoRA adapter; merge it into its base model first (merge_and_unload, then "
                   "save_pretrained)"},
        {".SCB", "a bitsandbytes checkpoint (already quantized); convert the original weights"},
        {".absmax", "a bitsandbytes checkpoint (already quantized); convert the original weights"},
        {".quant_map", "a bitsandbytes checkpoint (already quantized); convert the original "
                       "weights"},
        {".quant_state", "a bitsandbytes checkpoint (already quantized); convert the original "
                         "weights"},
        {".weight_scale", "an FP8 checkpoint (already quantized); convert the original weights"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strstr(name, rows[i].part))
            return rows[i].advice;
    return NULL;
}

static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return v && !json_is_null(v) ? v : NULL;
}

/* A whole number in [1, max] into *out, which keeps its value when the key is absent; 0 there
 * means that the key is required. */
static hs_status get_u32(const json_t *o, const char *key, uint32_t max, uint32_t *out, hs_err *err)
{
    const json_t *v = get(o, key);
    if (!v && *out)
        return HS_OK;
    if (!v)
        return hs_fail(err, HS_ERR_FORMAT, "%s is missing", key);
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > (json_int_t)max)
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected a whole number from 1 to %u", key, max);
    *out = (uint32_t)json_integer_value(v);
    return HS_OK;
}

static hs_status get_positive(const json_t *o, const char *key, float *out, hs_err *err)
{
    const json_t *v = get(o, key);
    if (!v)
        return HS_OK;
    const float f = (float)json_number_value(v);
    if (!json_is_number(v) || !(f > 0) || !isfinite(f))
        return hs_fail(err, HS_ERR_FORMAT, "%s: expected a positive number", key);
    *out = f;
    return HS_OK;
}

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static hs_status read_quantization(const json_t *root, hs_err *err)
{
    const json_t *q = get(root, "quantization_config");
    if (!q)
        return HS_OK;
    const char *method = text_of(q, "quant_method");
    return hs_fail(err, HS_ERR_UNSUPPORTED,
                   "an already quantized checkpoint (%.60s); convert the original weights",
                   method ? method : "quantization_config");
}

static hs_status read_arch(hs_conv_config *c, const json_t *root, hs_err *err)
{
    const json_t *classes = get(root, "architectures");
    const char *class_name = json_string_value(json_array_get(classes, 0));
    if (classes && !class_name)
        return hs_fail(err, HS_ERR_FORMAT, "architectures: expected a list of class names");
    const char *type = text_of(root, "model_type");
    c->arch = hs_conv_arch_find(class_name, type);
    if (!c->arch)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "architecture %.100s is not supported (supported: %s)",
                       class_name ? class_name
                       : type     ? type
                                  : "(none named)",
                       hs_conv_arch_list());
    return HS_OK;
}

static hs_status read_shape(hs_conv_config *c, const json_t *root, hs_err *err)
{
    hs_status s;
    c->n_ctx = 0;
    const char *ctx =
        get(root, "max_sequence_length") ? "max_sequence_length" : "max_position_embeddings";
    if ((s = get_u32(root, "vocab_size", MAX_VOCAB, &c->n_vocab, err)) != HS_OK ||
        (s = get_u32(root, "hidden_size", MAX_WIDTH, &c->n_embd, err)) != HS_OK ||
        (s = get_u32(root, "num_hidden_layers", MAX_LAYERS, &c->n_layer, err)) != HS_OK ||
        (s = get_u32(root, "intermediate_size", MAX_WIDTH, &c->n_ff, err)) != HS_OK ||
        (s = get_u32(root, "num_attention_heads", c->n_embd, &c->n_head, err)) != HS_OK ||
        (s = get_u32(root, ctx, MAX_WIDTH, &c->n_ctx, err)) != HS_OK)
        return s;
    c->n_head_kv = c->n_head;
    c->head_dim = c->n_embd % c->n_head ? 0 : c->n_embd / c->n_head;
    if (!c->head_dim && !get(root, "head_dim"))
        return hs_fail(err, HS_ERR_FORMAT,
                       "hidden_size %u is no multiple of num_attention_heads %u", c->n_embd,
                       c->n_head);
    if ((s = get_u32(root, "num_key_value_heads", c->n_head, &c->n_head_kv, err)) != HS_OK ||
        (s = get_u32(root, "head_dim", MAX_WIDTH / c->n_head, &c->head_dim, err)) != HS_OK)
        return s;
    if (c->n_head % c->n_head_kv)
        return hs_fail(err, HS_ERR_FORMAT,
                       "num_key_value_heads is %u, expected a divisor of num_attention_heads %u",
                       c->n_head_kv, c->n_head);
    if (c->head_dim % 2)
        return hs_fail(err, HS_ERR_FORMAT, "the head size is %u, expected an even number",
                       c->head_dim);
    s = get_positive(root, "rms_norm_eps", &c->eps, err);
    if (s == HS_OK && !(c->eps > 0))
        s = hs_fail(err, HS_ERR_FORMAT, "rms_norm_eps is missing");
    return s;
}

/* "rope_scaling", and the "rope_parameters" of newer files, which hold the base as well. */
static hs_status read_rope(hs_conv_config *c, const json_t *root, hs_err *err)
{
    c->rope_finetuned = -1;
    hs_status s = get_positive(root, "rope_theta", &c->rope_base, err);
    if (s != HS_OK)
        return s;
    const json_t *r = get(root, "rope_scaling");
    if (!r)
        r = get(root, "rope_parameters");
    if (!r)
        return HS_OK;
    if (!json_is_object(r))
        return hs_fail(err, HS_ERR_FORMAT, "rope_scaling: expected an object");
    if (!(c->rope_base > 0) && (s = get_positive(r, "rope_theta", &c->rope_base, err)) != HS_OK)
        return s;
    const char *type = text_of(r, "rope_type") ? text_of(r, "rope_type") : text_of(r, "type");
    if (!type || strcmp(type, "default") == 0)
        return HS_OK;
    if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "rope_scaling: type %.60s is not supported (supported: linear, yarn)", type);
    snprintf(c->rope_type, sizeof c->rope_type, "%s", type);
    s = get_positive(r, "factor", &c->rope_factor, err);
    if (s == HS_OK && !(c->rope_factor > 0))
        s = hs_fail(err, HS_ERR_FORMAT, "factor is missing");
    if (s == HS_OK && get(r, "original_max_position_embeddings"))
        s = get_u32(r, "original_max_position_embeddings", MAX_WIDTH, &c->rope_ctx, err);
    const json_t *tuned = get(r, "finetuned");
    if (s == HS_OK && tuned && !json_is_boolean(tuned))
        s = hs_fail(err, HS_ERR_FORMAT, "finetuned: expected true or false");
    if (s == HS_OK && tuned)
        c->rope_finetuned = json_is_true(tuned);
    return s == HS_OK ? s : hs_ctx(err, s, "rope_scaling: ");
}

static hs_status read_activation(hs_conv_config *c, const json_t *root, hs_err *err)
{
    static const struct {
        const char *hf, *gguf;
    } rows[] = {
        {"silu", "silu"},          {"swish", "silu"},          {"gelu", "gelu"},
        {"gelu_new", "gelu_tanh"}, {"gelu_fast", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
        {"fatrelu", "fatrelu"},    {"drelu", "drelu"},
    };
    const json_t *v = get(root, "hidden_act");
    if (!v)
        return HS_OK;
    const char *act = json_string_value(v), *name = NULL;
    if (!act)
        return hs_fail(err, HS_ERR_FORMAT, "hidden_act: expected a string");
    if (strcmp(act, "relu") == 0)
        name = c->arch->relu;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(act, rows[i].hf) == 0)
            name = rows[i].gguf;
    if (!name)
        return hs_fail(err, HS_ERR_UNSUPPORTED,
                       "hidden_act %.60s is not supported (supported: relu, fatrelu, drelu, silu, "
                       "gelu, gelu_new, gelu_pytorch_tanh)",
                       act);
    snprintf(c->act, sizeof c->act, "%s", name);
    if (strcmp(name, "fatrelu") != 0)
        return HS_OK;
    const json_t *t = get(root, "hidden_act_param");
    if (!t)
        t = get(root, "fatrelu_threshold");
    if (!json_is_number(t) || !(json_number_value(t) >= 0))
        return hs_fail(
            err, HS_ERR_FORMAT,
            "hidden_act fatrelu: hidden_act_param: expected its threshold, a number from "
            "0");
    c->fatrelu_threshold = (float)json_number_value(t);
    return HS_OK;
}

static hs_status read_special(hs_conv_config *c, const json_t *root, hs_err *err)
{
    for (int i = 0; i < HS_N_SPECIAL; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_token_id", hs_special_names[i]);
        const json_t *v = get(root, key);
        c->special[i] = -1;
        if (json_is_array(v)) /* several ends of text: the first is the one */
            v = json_array_get(v, 0);
        if (!v)
            continue;
        /* -1 is how some configurations say "none" */
        if (!json_is_integer(v) || json_integer_value(v) < -1)
            return hs_fail(err, HS_ERR_FORMAT, "%s: expected a token id", key);
        c->special[i] = json_integer_value(v);
    }
    return HS_OK;
}

static hs_status read_all(hs_conv_config *c, const json_t *root, hs_err *err)
{
    hs_status s;
    if ((s = read_arch(c, root, err)) != HS_OK || (s = read_quantization(root, err)) != HS_OK ||
        (s = read_shape(c, root, err)) != HS_OK || (s = read_rope(c, root, err)) != HS_OK ||
        (s = read_activation(c, root, err)) != HS_OK)
        return s;
    const json_t *tied = get(root, "tie_word_embeddings");
    if (tied && !json_is_boolean(tied))
        return hs_fail(err, HS_ERR_FORMAT, "tie_word_embeddings: expected true or false");
    c->tied = json_is_true(tied);
    return read_special(c, root, err);
}

static bool has_file(const char *dir, const char *name)
{
    char *path = hs_path_join(dir, name);
    const bool yes = path && access(path, F_OK) == 0;
    free(path);
    return yes;
}

hs_status hs_conv_config_read(hs_conv_config *c, const char *dir, hs_err *err)
{
    *c = (hs_conv_config){0};
    if (!has_file(dir, "config.json") && has_file(dir, "adapter_config.json"))
        return hs_fail(err, HS_ERR_UNSUPPORTED, "%s: %s", dir, hs_conv_advice(".lora_"));
    char *path = hs_path_join(dir, "config.json");
    if (!path)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    json_t *root;
    hs_status s = hs_json_read(&root, path, err);
    if (s == HS_OK) {
        s = read_all(c, root, err);
        if (s != HS_OK)
            s = hs_ctx(err, s, "%s: ", path);
        json_decref(root);
    }
    free(path);
    return s;
}
