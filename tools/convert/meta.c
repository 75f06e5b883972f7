/* The KVs.  Order and spelling are PowerInfer's; "seperator" is how every reader spells it. */
#include "tools/convert/write.h"

#include <stdio.h>
#include <string.h>

static const char *key(char *buf, size_t cap, const hs_conv_meta *m, const char *name)
{
    snprintf(buf, cap, "%s.%s", m->c->arch->name, name);
    return buf;
}

static void set_u32(hs_gguf_writer *w, const hs_conv_meta *m, const char *name, uint32_t v)
{
    char buf[96];
    hs_gguf_set_u32(w, key(buf, sizeof buf, m, name), v);
}

static void set_f32(hs_gguf_writer *w, const hs_conv_meta *m, const char *name, float v)
{
    char buf[96];
    hs_gguf_set_f32(w, key(buf, sizeof buf, m, name), v);
}

static void declare_shape(hs_gguf_writer *w, const hs_conv_meta *m)
{
    const hs_conv_config *c = m->c;
    char buf[96];
    set_u32(w, m, "context_length", c->n_ctx);
    set_u32(w, m, "embedding_length", c->n_embd);
    set_u32(w, m, "block_count", c->n_layer);
    set_u32(w, m, "feed_forward_length", c->n_ff);
    set_u32(w, m, "rope.dimension_count", c->head_dim);
    set_u32(w, m, "attention.head_count", c->n_head);
    set_u32(w, m, "attention.head_count_kv", c->n_head_kv);
    set_f32(w, m, "attention.layer_norm_rms_epsilon", c->eps);
    if (c->rope_base > 0)
        set_f32(w, m, "rope.freq_base", c->rope_base);
    if (*c->rope_type) {
        hs_gguf_set_str(w, key(buf, sizeof buf, m, "rope.scaling.type"), c->rope_type);
        set_f32(w, m, "rope.scaling.factor", c->rope_factor);
        if (c->rope_ctx)
            set_u32(w, m, "rope.scaling.original_context_length", c->rope_ctx);
        if (c->rope_finetuned >= 0)
            hs_gguf_set_bool(w, key(buf, sizeof buf, m, "rope.scaling.finetuned"),
                             c->rope_finetuned != 0);
    }
    if ((uint64_t)c->head_dim * c->n_head != c->n_embd) {
        set_u32(w, m, "attention.key_length", c->head_dim);
        set_u32(w, m, "attention.value_length", c->head_dim);
    }
}

static void declare_vocab(hs_gguf_writer *w, const hs_conv_vocab *v)
{
    static const char *const ids[HS_N_SPECIAL] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id",
        "tokenizer.ggml.padding_token_id",
    };
    hs_gguf_set_str(w, "tokenizer.ggml.model", "llama");
    hs_gguf_set_str_array(w, "tokenizer.ggml.tokens", v->piece, v->n);
    hs_gguf_set_array(w, "tokenizer.ggml.scores", HS_KV_F32, v->score, v->n);
    hs_gguf_set_array(w, "tokenizer.ggml.token_type", HS_KV_I32, v->type, v->n);
    for (int i = 0; i < HS_N_SPECIAL; i++)
        if (v->special[i] >= 0)
            hs_gguf_set_u32(w, ids[i], (uint32_t)v->special[i]);
    if (v->add_bos >= 0)
        hs_gguf_set_bool(w, "tokenizer.ggml.add_bos_token", v->add_bos != 0);
    if (v->add_eos >= 0)
        hs_gguf_set_bool(w, "tokenizer.ggml.add_eos_token", v->add_eos != 0);
    if (!v->spm->add_dummy_prefix)
        hs_gguf_set_bool(w, "tokenizer.ggml.add_space_prefix", false);
}

static void declare_ours(hs_gguf_writer *w, const hs_conv_meta *m)
{
    hs_gguf_set_str(w, "hotset.activation", m->c->act);
    if (strcmp(m->c->act, "fatrelu") == 0)
        hs_gguf_set_f32(w, "hotset.fatrelu_threshold", m->c->fatrelu_threshold);
    if (m->predictors) {
        hs_gguf_set_str(w, "hotset.predictor.input", "residual");
        hs_gguf_set_str(w, "hotset.predictor.activation", "relu");
    } else if (m->plan->pwri) {
        hs_gguf_set_bool(w, "hotset.sparse.predictors", false);
    }
}

void hs_conv_declare(hs_gguf_writer *w, const hs_conv_meta *m)
{
    hs_gguf_set_str(w, "general.architecture", m->c->arch->name);
    hs_gguf_set_str(w, "general.name", m->name);
    if (m->plan) {
        declare_shape(w, m);
        hs_gguf_set_u32(w, "general.file_type", (uint32_t)hs_dtype_get(m->plan->dtype)->file_type);
        if (m->has_threshold)
            hs_gguf_set_f32(w, "powerinfer.sparse_threshold", m->threshold);
    }
    declare_vocab(w, m->v);
    if (!m->plan)
        return;
    declare_ours(w, m);
    for (size_t i = 0; i < m->plan->n; i++) {
        const hs_conv_item *it = &m->plan->item[i];
        hs_gguf_add_tensor(w, it->name, it->dtype, it->n_dims, it->ne);
    }
}
