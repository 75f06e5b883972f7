#ifndef HS_TOOLS_CONVERT_ARCH_H
#define HS_TOOLS_CONVERT_ARCH_H

/* The architectures we convert: one row each, and the names their tensors have on both sides. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A dimension of a tensor, in terms of the configuration. */
typedef enum hs_conv_dim {
    HS_DIM_NONE,
    HS_DIM_EMBD,
    HS_DIM_VOCAB,
    HS_DIM_FF,
    HS_DIM_Q,  /* heads times head size */
    HS_DIM_KV, /* key-value heads times head size */
} hs_conv_dim;

typedef enum hs_conv_transform {
    HS_CONV_COPY,
    HS_CONV_PERMUTE_Q, /* rotate-half rows to interleaved pairs, per query head */
    HS_CONV_PERMUTE_K, /* the same per key-value head */
    HS_CONV_DOWN,      /* transposed and renamed in the PowerInfer layout */
    HS_CONV_OUTPUT,    /* may be tied to the embedding */
} hs_conv_transform;

/* One tensor, or one per layer when the names contain %u.  The order of the rows is the order
 * of the output file. */
typedef struct hs_conv_name {
    const char *gguf, *source;
    hs_conv_dim dim[2]; /* as torch writes them: rows, columns; or one and NONE */
    hs_conv_transform transform;
} hs_conv_name;

typedef struct hs_conv_arch {
    const char *class_name;                  /* config.json architectures[0] */
    const char *model_type;                  /* where that is absent */
    const char *name;                        /* general.architecture */
    const char *relu;                        /* the activation that "relu" means here */
    const char *sparse_act;                  /* for a config that does not say, PowerInfer layout */
    const char *dense_act;                   /* the same, dense layout */
    const hs_conv_name *head, *layer, *tail; /* each ends with a row without names */
    const char *const *skip; /* suffixes of source tensors that carry no weights; NULL at the end */
} hs_conv_arch;

/* NULL when there is none; either name may be NULL. */
const hs_conv_arch *hs_conv_arch_find(const char *class_name, const char *model_type);
/* "LlamaForCausalLM, BambooForCausalLM" */
const char *hs_conv_arch_list(void);

#ifdef __cplusplus
}
#endif

#endif
