#ifndef HS_TOOLS_CONVERT_WRITE_H
#define HS_TOOLS_CONVERT_WRITE_H

/* The output file: metadata, then the planned tensors, a block of rows at a time. */

#include "formats/gguf_write.h"
#include "tools/convert/plan.h"
#include "tools/convert/vocab.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_conv_meta {
    const char *name;        /* general.name */
    const hs_conv_config *c; /* its `act` is stated by now */
    const hs_conv_vocab *v;
    const hs_conv_plan *plan; /* NULL: vocabulary only */
    bool predictors;
    bool has_threshold;
    float threshold;
} hs_conv_meta;

/* KVs (powerinfer-format.md 2.5, then ours) and tensors. */
void hs_conv_declare(hs_gguf_writer *w, const hs_conv_meta *m);

typedef struct hs_conv_stats {
    uint64_t too_large;  /* finite values that became infinite */
    uint64_t flushed;    /* values that became 0 */
    uint64_t not_finite; /* of the source */
} hs_conv_stats;

/* The data of every planned tensor; tensors that lose values are named in warnings. */
HS_NODISCARD hs_status hs_conv_write_data(hs_gguf_writer *w, const hs_conv_plan *p,
                                          hs_conv_stats *stats, const hs_cli *cli,
                                          hs_progress_fn progress, void *progress_ud, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
