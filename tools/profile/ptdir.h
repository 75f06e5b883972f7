#ifndef HS_PROFILE_PTDIR_H
#define HS_PROFILE_PTDIR_H

/* PowerInfer's form of a profile: a folder of activation_<layer>.pt, one 1-D tensor each. */

#include "formats/activation.h"

/* What an import must look like; zeros mean "whatever is there". */
typedef struct hs_pt_expect {
    uint32_t n_layer, n_ff;
    uint64_t positions; /* number of positions behind the counts; 0: the largest count */
} hs_pt_expect;

/* Read every activation_<number>.pt of `dir` (other names are ignored); layers are taken by
 * number and must be complete.  Messages name the file, the layer and what was expected. */
HS_NODISCARD hs_status hs_pt_import(hs_activation **out, const char *dir,
                                    const hs_pt_expect *expect, hs_err *err);
/* What would stop an export, before long work is done for it: a file in the way without
 * `force`, or a layer's file that the profile does not have and a reader would take. */
HS_NODISCARD hs_status hs_pt_export_check(const char *dir, uint32_t n_layer, bool force,
                                          hs_err *err);
/* Write all layers, each under its name only when all are complete; `dir` is created. */
HS_NODISCARD hs_status hs_pt_export(const hs_activation *a, const char *dir, bool force,
                                    hs_err *err);

#endif
