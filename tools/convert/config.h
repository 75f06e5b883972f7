#ifndef HS_TOOLS_CONVERT_CONFIG_H
#define HS_TOOLS_CONVERT_CONFIG_H

/* config.json: the hyper-parameters of a Hugging Face folder, checked. */

#include "formats/err.h"
#include "tools/convert/arch.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    HS_SPECIAL_BOS,
    HS_SPECIAL_EOS,
    HS_SPECIAL_UNK,
    HS_SPECIAL_SEP,
    HS_SPECIAL_PAD,
    HS_N_SPECIAL
};
/* "bos", "eos"… as the configuration files spell them. */
extern const char *const hs_special_names[HS_N_SPECIAL];

typedef struct hs_conv_config {
    const hs_conv_arch *arch;
    uint32_t n_vocab, n_embd, n_layer, n_ff, n_head, n_head_kv, head_dim, n_ctx;
    float eps;
    float rope_base;   /* 0: not stated */
    char rope_type[8]; /* "linear", "yarn"; "" without scaling */
    float rope_factor;
    uint32_t rope_ctx;  /* original context length; 0: not stated */
    int rope_finetuned; /* -1: not stated */
    char act[12];       /* GGUF's name: "relu", "fatrelu"…; "" where config.json is silent */
    float fatrelu_threshold;
    bool tied;                     /* the head is the embedding */
    int64_t special[HS_N_SPECIAL]; /* ids, -1 where there is none */
} hs_conv_config;

/* DIR/config.json; messages start with its path. */
HS_NODISCARD hs_status hs_conv_config_read(hs_conv_config *c, const char *dir, hs_err *err);
bool hs_conv_is_relu(const char *act);
/* What a checkpoint that needs other tools first is, from one of its tensor names; else NULL. */
const char *hs_conv_advice(const char *tensor_name);

#ifdef __cplusplus
}
#endif

#endif
