#ifndef HS_RUNTIME_SPLIT_H
#define HS_RUNTIME_SPLIT_H

/* The device half of a session: what a placement puts there, and where it lies. */

#include "formats/placement.h"
#include "runtime/device.h"
#include "runtime/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every buffer of hs_dev_scratch with its size, in the order they are allocated. */
enum { HS_N_SCRATCH = 17 };
typedef struct hs_scratch_size {
    size_t field; /* offset of the hs_buf in hs_dev_scratch */
    uint64_t bytes;
} hs_scratch_size;
void hs_scratch_sizes(const hs_model *m, uint32_t n_ctx, bool output, bool kv,
                      hs_scratch_size out[HS_N_SCRATCH]);

/* The type of a dense ffn_down after transposition: block types lose their blocks and become
 * F32, plain ones stay, so that nothing is rounded. */
static inline hs_dtype hs_transposed_type(hs_dtype t)
{
    return t == HS_F16 || t == HS_BF16 ? t : HS_F32;
}

typedef struct hs_split_layer {
    bool attn, kv, predictor, ffn_norm;
    uint32_t n_device; /* neurons on the device */
    uint32_t n_host;   /* neurons the CPU owns: n_ff - n_device */
    int32_t *host;     /* [n_host] ascending; owned by the split */
    hs_dev_attn dev_attn;
    hs_dev_ffn dev_ffn;
} hs_split_layer;

typedef struct hs_split {
    const hs_device_ops *ops; /* NULL: everything on the CPU */
    hs_device *dev;
    hs_dev_scratch scratch;
    hs_split_layer *layer; /* [n_layer] */
    int32_t *host_ids;     /* backing store of every layer's list */
    bool output;
    hs_dev_head head;
    uint64_t budget, planned, weights, kv, scratch_bytes;
} hs_split;

/* Lists for `p` (NULL: all on the CPU) and, when `ops` is given and p is not empty, the device
 * opened with exactly the plan's bytes and everything uploaded.  down_t[l] is the layer's
 * transposed down matrix. */
HS_NODISCARD hs_status hs_split_new(hs_split **out, const hs_model *m, const hs_placement *p,
                                    const hs_mat *down_t, const hs_device_ops *ops, uint64_t budget,
                                    uint32_t n_ctx, hs_dtype kv_type, hs_err *err);
void hs_split_free(hs_split *s);

#ifdef __cplusplus
}
#endif

#endif
