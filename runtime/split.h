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
enum { HS_N_SCRATCH = 16 };
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

enum { HS_NOWHERE = -1 }; /* in place of a device's number: the host */

/* What one device has of one layer. */
typedef struct hs_split_part {
    hs_dev_attn attn; /* only where hs_split_layer.attn is this device, … */
    hs_dev_ffn ffn;   /* … likewise norm and predictor; n may be 0 */
} hs_split_part;

typedef struct hs_split_layer {
    int attn, predictor, ffn_norm; /* which device has it, or HS_NOWHERE */
    bool kv;                       /* the KV cache is where attn is */
    uint32_t n_device;             /* neurons on devices */
    uint32_t n_host;               /* neurons the CPU owns: n_ff - n_device */
    int32_t *host;                 /* [n_host] ascending; owned by the split */
    hs_split_part *part;           /* [n_dev] */
} hs_split_layer;

/* One device in use. */
typedef struct hs_split_device {
    hs_device *dev;
    hs_dev_scratch scratch;
    uint64_t planned, weights, kv, scratch_bytes;
    double *sum;           /* pinned, f64 [B][n_embd]   its sums, for the host */
    uint64_t *stats;       /* pinned, u64 [n_layer][2]   as in hs_dev_scratch */
    hs_dev_graph **graph;  /* [n_layer]   the run of layers from there on, once captured */
    bool step_sent, dirty; /* this batch's positions are there; it may be at work */
} hs_split_device;

/* Pinned memory that the devices' copies go to and come from, B tokens each.  Nothing is
 * overwritten before the copy that reads it is known to be done (hybrid.c says why). */
typedef struct hs_split_pins {
    float *x;      /* f32 [B][n_embd] */
    uint32_t *rec; /* records of hs_dev_scratch.rec */
    double *far;   /* f64 [B][n_embd]   the host's sums */
    float *qkv, *o;
    uint32_t *step;
    float *logits; /* [n_vocab] */
} hs_split_pins;

typedef struct hs_split {
    const hs_device_ops *ops; /* NULL: everything on the CPU */
    int n_dev;
    hs_split_device device[HS_PLACEMENT_DEVICES];
    uint32_t n_layer;
    hs_split_layer *layer; /* [n_layer] */
    hs_split_part *parts;  /* backing store of every layer's parts */
    int32_t *host_ids;     /* and of every layer's list */
    int output;            /* which device has the head, or HS_NOWHERE */
    hs_dev_head head;
    int at; /* where the residual is: a device, or HS_NOWHERE */
    void *pinned;
    hs_split_pins pin;
    uint64_t budget, planned;
} hs_split;

/* Lists for `p` (NULL: all on the CPU) and, when `ops` is given and p is not empty, its devices
 * opened with exactly the plan's bytes and everything uploaded; ordinal[d] is the machine's number
 * of the plan's device d.  down_t[l] is the layer's transposed down matrix. */
HS_NODISCARD hs_status hs_split_new(hs_split **out, const hs_model *m, const hs_placement *p,
                                    const hs_mat *down_t, const hs_device_ops *ops,
                                    const int *ordinal, uint64_t budget, uint32_t n_ctx,
                                    hs_dtype kv_type, hs_err *err);
void hs_split_free(hs_split *s);

/* The n devices of this machine with the most free memory, most first (the lower number when they
 * are equal); HS_ERR_NOSPACE when there are fewer. */
HS_NODISCARD hs_status hs_split_choose(const hs_device_ops *ops, int n, int *ordinal, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
