#ifndef HS_TOOLS_CONVERT_PREDICTOR_H
#define HS_TOOLS_CONVERT_PREDICTOR_H

/* Activation predictors: model_<layer>.pt or .safetensors in a folder, or one file with all. */

#include "formats/checkpoint.h"
#include "tools/convert/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_conv_predictor {
    uint32_t n_layer;
    hs_checkpoint **file; /* owned */
    size_t n_file;
    const hs_ckpt_tensor **fc1, **fc2; /* [n_layer]; {R, n_embd} and {n_ff, R}, R per layer */
    bool has_threshold;                /* the folder's config.json has sparse_threshold */
    float threshold;
} hs_conv_predictor;

/* Every layer of the model has both matrices in the right shape, and there is nothing else;
 * messages name the file. */
HS_NODISCARD hs_status hs_conv_predictor_open(hs_conv_predictor *p, const char *path,
                                              const hs_conv_config *c, hs_err *err);
void hs_conv_predictor_fini(hs_conv_predictor *p);

#ifdef __cplusplus
}
#endif

#endif
