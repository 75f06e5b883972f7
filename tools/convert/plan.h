#ifndef HS_TOOLS_CONVERT_PLAN_H
#define HS_TOOLS_CONVERT_PLAN_H

/* Which source tensor becomes which tensor of the output, checked, in the output's order. */

#include "formats/checkpoint.h"
#include "formats/dtype.h"
#include "runtime/cli.h"
#include "tools/convert/predictor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_conv_item {
    char name[64];
    hs_dtype dtype;
    uint32_t n_dims;
    uint64_t ne[2]; /* ne[0] varies fastest */
    const hs_ckpt_tensor *src;
    bool transpose;
    uint32_t heads; /* to permute the rows of; 0: none */
} hs_conv_item;

typedef struct hs_conv_plan {
    hs_conv_item *item;
    size_t n;
    hs_dtype dtype; /* of the matrices; what general.file_type says */
    bool pwri;
} hs_conv_plan;

/* `outtype` is "auto", "f32", "f16", "bf16" or "q8_0"; `pred` is NULL without predictors.
 * Missing, surplus and wrongly shaped tensors are errors naming file and tensor. */
HS_NODISCARD hs_status hs_conv_plan_make(hs_conv_plan *p, const hs_checkpoint *ckpt,
                                         const hs_conv_predictor *pred, const hs_conv_config *c,
                                         const char *outtype, bool pwri, const char *dir,
                                         const hs_cli *cli, hs_err *err);
void hs_conv_plan_fini(hs_conv_plan *p);

#ifdef __cplusplus
}
#endif

#endif
