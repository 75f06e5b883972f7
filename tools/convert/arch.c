#include "tools/convert/arch.h"

#include <string.h>

static const hs_conv_name llama_head[] = {
    {"token_embd.weight", "model.embed_tokens.weight", {HS_DIM_VOCAB, HS_DIM_EMBD}, HS_CONV_COPY},
    {0},
};

/* clang-format off */
#define L "model.layers.%u."
static const hs_conv_name llama_layer[] = {
    {"blk.%u.attn_q.weight", L "self_attn.q_proj.weight", {HS_DIM_Q, HS_DIM_EMBD}, HS_CONV_PERMUTE_Q},
    {"blk.%u.attn_k.weight", L "self_attn.k_proj.weight", {HS_DIM_KV, HS_DIM_EMBD}, HS_CONV_PERMUTE_K},
    {"blk.%u.attn_v.weight", L "self_attn.v_proj.weight", {HS_DIM_KV, HS_DIM_EMBD}, HS_CONV_COPY},
    {"blk.%u.attn_output.weight", L "self_attn.o_proj.weight", {HS_DIM_EMBD, HS_DIM_Q}, HS_CONV_COPY},
    {"blk.%u.ffn_gate.weight", L "mlp.gate_proj.weight", {HS_DIM_FF, HS_DIM_EMBD}, HS_CONV_COPY},
    {"blk.%u.ffn_up.weight", L "mlp.up_proj.weight", {HS_DIM_FF, HS_DIM_EMBD}, HS_CONV_COPY},
    {"blk.%u.ffn_down.weight", L "mlp.down_proj.weight", {HS_DIM_EMBD, HS_DIM_FF}, HS_CONV_DOWN},
    {"blk.%u.attn_norm.weight", L "input_layernorm.weight", {HS_DIM_EMBD, HS_DIM_NONE}, HS_CONV_COPY},
    {"blk.%u.ffn_norm.weight", L "post_attention_layernorm.weight", {HS_DIM_EMBD, HS_DIM_NONE}, HS_CONV_COPY},
    {0},
};
#undef L
/* clang-format on */

static const hs_conv_name llama_tail[] = {
    {"output_norm.weight", "model.norm.weight", {HS_DIM_EMBD, HS_DIM_NONE}, HS_CONV_COPY},
    {"output.weight", "lm_head.weight", {HS_DIM_VOCAB, HS_DIM_EMBD}, HS_CONV_OUTPUT},
    {0},
};

static const char *const llama_skip[] = {".rotary_emb.inv_freq", "rope.freqs", NULL};

static const hs_conv_arch archs[] = {
    {"LlamaForCausalLM", "llama", "llama", "relu", "relu", "silu", llama_head, llama_layer,
     llama_tail, llama_skip},
    {"BambooForCausalLM", "bamboo", "bamboo", "drelu", "drelu", "drelu", llama_head, llama_layer,
     llama_tail, llama_skip},
};

const hs_conv_arch *hs_conv_arch_find(const char *class_name, const char *model_type)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (class_name ? strcmp(archs[i].class_name, class_name) == 0
                       : model_type && strcmp(archs[i].model_type, model_type) == 0)
            return &archs[i];
    return NULL;
}

const char *hs_conv_arch_list(void) { return "LlamaForCausalLM, BambooForCausalLM"; }
