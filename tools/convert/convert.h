#ifndef HS_TOOLS_CONVERT_CONVERT_H
#define HS_TOOLS_CONVERT_CONVERT_H

/* One conversion, as hotset-convert and its tests run it. */

#include "runtime/cli.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_conv_options {
    const char *model_dir, *output;
    const char *predictor; /* folder or file; NULL: none */
    const char *outtype;   /* "auto", "f32", "f16", "bf16", "q8_0" */
    const char *layout;    /* "auto", "powerinfer", "dense" */
    bool has_threshold;
    double threshold;
    bool vocab_only, dry_run, force;
} hs_conv_options;

typedef struct hs_conv_report {
    const char *layout, *architecture, *dtype; /* static strings */
    char activation[12];
    uint64_t tensors, bytes;                 /* of the output file */
    uint64_t too_large, flushed, not_finite; /* values, see write.h */
    bool predictors;
} hs_conv_report;

/* Talk goes through `cli`; with dry_run the table of tensors is printed on stdout (not with
 * cli->json) and nothing is written. */
HS_NODISCARD hs_status hs_convert(const hs_conv_options *o, const hs_cli *cli, hs_conv_report *r,
                                  hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
