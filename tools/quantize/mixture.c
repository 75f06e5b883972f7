/* Rules as published with the types: attn_v and ffn_down gain most from finer types, and of the
 * layers the first, the last and every third between. */
#include "tools/quantize/mixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* clang-format off */
static const hs_quant_mixture table[] = {
    {"F32",    HS_TARGET_PLAIN,  HS_F32,    0},
    {"F16",    HS_TARGET_PLAIN,  HS_F16,    1},
    {"BF16",   HS_TARGET_PLAIN,  HS_BF16,   32},
    {"Q8_0",   HS_TARGET_PLAIN,  HS_Q8_0,   7},
    {"Q6_K",   HS_TARGET_PLAIN,  HS_Q6_K,   18},
    {"Q5_K_M", HS_TARGET_Q5_K_M, HS_Q5_K,   17},
    {"Q5_K_S", HS_TARGET_Q5_K_S, HS_Q5_K,   16},
    {"Q5_1",   HS_TARGET_PLAIN,  HS_Q5_1,   9},
    {"Q5_0",   HS_TARGET_PLAIN,  HS_Q5_0,   8},
    {"Q4_K_M", HS_TARGET_Q4_K_M, HS_Q4_K,   15},
    {"Q4_K_S", HS_TARGET_Q4_K_S, HS_Q4_K,   14},
    {"Q4_1",   HS_TARGET_PLAIN,  HS_Q4_1,   3},
    {"Q4_0",   HS_TARGET_PLAIN,  HS_Q4_0,   2},
    {"IQ4_NL", HS_TARGET_IQ4,    HS_IQ4_NL, 25},
    {"IQ4_XS", HS_TARGET_IQ4,    HS_IQ4_XS, 30},
    {"Q3_K_L", HS_TARGET_Q3_K_L, HS_Q3_K,   13},
    {"Q3_K_M", HS_TARGET_Q3_K_M, HS_Q3_K,   12},
    {"Q3_K_S", HS_TARGET_Q3_K_S, HS_Q3_K,   11},
    {"Q2_K",   HS_TARGET_Q2_K,   HS_Q2_K,   10},
};
/* clang-format on */

const char *hs_quant_mixture_names(void)
{
    return "F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS "
           "Q3_K_L Q3_K_M Q3_K_S Q2_K";
}

const hs_quant_mixture *hs_quant_mixture_find(const char *name)
{
    static const char *const alias[][2] = {
        {"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
    for (size_t i = 0; i < sizeof alias / sizeof *alias; i++)
        if (strcasecmp(name, alias[i][0]) == 0)
            name = alias[i][1];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcasecmp(name, table[i].name) == 0)
            return &table[i];
    return NULL;
}

/* A u32 of the architecture's keys, or `otherwise`. */
static uint32_t hyper(const hs_gguf *in, hs_str arch, const char *key, uint32_t otherwise)
{
    char name[128];
    uint64_t v;
    if (arch.n > 64)
        return otherwise;
    snprintf(name, sizeof name, "%.*s.%s", (int)arch.n, arch.p, key);
    return hs_gguf_u64(in, name, &v, NULL) == HS_OK && v <= UINT32_MAX ? (uint32_t)v : otherwise;
}

void hs_quant_model_read(hs_quant_model *m, const hs_gguf *in)
{
    hs_str arch = {"", 0};
    if (hs_gguf_str(in, "general.architecture", &arch, NULL) != HS_OK)
        arch.n = 0;
    m->falcon = hs_str_eq(arch, "falcon");
    m->n_layer = hyper(in, arch, "block_count", 0);
    const uint32_t heads = hyper(in, arch, "attention.head_count", 1);
    const uint32_t kv = hyper(in, arch, "attention.head_count_kv", heads);
    m->n_gqa = kv ? heads / kv : 1;
}

/* The first and the last eighth of the layers, and every third between. */
static bool more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static hs_dtype attn_v(const hs_quant_mixture *mix, const hs_quant_model *m, uint32_t layer)
{
    switch (mix->target) {
    case HS_TARGET_Q2_K: return m->n_gqa >= 4 ? HS_Q4_K : HS_Q3_K;
    case HS_TARGET_Q3_K_M: return layer < 2 ? HS_Q5_K : HS_Q4_K;
    case HS_TARGET_Q3_K_L: return HS_Q5_K;
    case HS_TARGET_Q4_K_S: return layer < 4 ? HS_Q5_K : HS_Q4_K;
    case HS_TARGET_Q4_K_M:
    case HS_TARGET_Q5_K_M: return more_bits(layer, m->n_layer) ? HS_Q6_K : mix->base;
    case HS_TARGET_IQ4: return m->n_gqa >= 4 ? HS_Q5_K : mix->base;
    default: return mix->base;
    }
}

static hs_dtype ffn_down(const hs_quant_mixture *mix, const hs_quant_model *m, uint32_t layer)
{
    const bool more = more_bits(layer, m->n_layer);
    switch (mix->target) {
    case HS_TARGET_Q2_K: return HS_Q3_K;
    case HS_TARGET_Q3_K_M:
        return layer < m->n_layer / 16 ? HS_Q5_K : !m->falcon || more ? HS_Q4_K : HS_Q3_K;
    case HS_TARGET_Q3_K_L: return m->falcon ? HS_Q4_K : HS_Q5_K;
    case HS_TARGET_Q4_K_S: return !m->falcon && layer < m->n_layer / 8 ? HS_Q5_K : HS_Q4_K;
    case HS_TARGET_Q4_K_M:
        if (m->falcon)
            return layer < m->n_layer / 16 ? HS_Q6_K : more ? HS_Q5_K : HS_Q4_K;
        return more ? HS_Q6_K : HS_Q4_K;
    case HS_TARGET_Q5_K_M: return more ? HS_Q6_K : HS_Q5_K;
    case HS_TARGET_IQ4: return layer < m->n_layer / 8 ? HS_Q5_K : mix->base;
    default: return mix->base;
    }
}

static hs_dtype attn_output(const hs_quant_mixture *mix, const hs_quant_model *m)
{
    switch (mix->target) {
    case HS_TARGET_Q2_K: return m->falcon ? HS_Q2_K : HS_Q3_K;
    case HS_TARGET_Q3_K_M: return m->falcon ? HS_Q3_K : HS_Q4_K;
    case HS_TARGET_Q3_K_L: return m->falcon ? HS_Q4_K : HS_Q5_K;
    default: return mix->base;
    }
}

static hs_dtype attn_qkv(const hs_quant_mixture *mix)
{
    switch (mix->target) {
    case HS_TARGET_Q3_K_M:
    case HS_TARGET_Q3_K_L: return HS_Q4_K;
    case HS_TARGET_Q4_K_M: return HS_Q5_K;
    case HS_TARGET_Q5_K_M: return HS_Q6_K;
    default: return mix->base;
    }
}

hs_dtype hs_quant_mixture_type(const hs_quant_mixture *mix, const hs_quant_model *m,
                               const char *tensor)
{
    if (mix->target == HS_TARGET_PLAIN || strncmp(tensor, "blk.", 4) != 0)
        return mix->base;
    char *part;
    const unsigned long layer = strtoul(tensor + 4, &part, 10);
    const uint32_t l = layer < UINT32_MAX ? (uint32_t)layer : UINT32_MAX;
    if (strcmp(part, ".attn_v.weight") == 0)
        return attn_v(mix, m, l);
    if (strcmp(part, ".ffn_down.weight") == 0 || strcmp(part, ".ffn_down_t.weight") == 0)
        return ffn_down(mix, m, l);
    if (strcmp(part, ".attn_output.weight") == 0)
        return attn_output(mix, m);
    return strcmp(part, ".attn_qkv.weight") == 0 ? attn_qkv(mix) : mix->base;
}
