#ifndef HS_RUNTIME_DEVICE_H
#define HS_RUNTIME_DEVICE_H

/* The seam between a session and a device that holds part of the model.
 *
 * One arena, sized when the device is opened from the placement's plan; nothing is ever
 * allocated outside it, so used <= budget by construction.  Calls after `upload` are queued in
 * order on one stream; host pointers passed to send and recv stay valid until sync(), which
 * waits and reports the first failure since the last sync.  All arithmetic follows the
 * canonical order of kernels.h: scores, projections, norms and attention have the bits the CPU
 * would produce. */

#include "formats/dtype.h"
#include "formats/err.h"
#include "runtime/act.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HS_DEVICE_ALIGN = 64 }; /* every allocation is rounded up to this */

typedef struct hs_device hs_device;

/* A range of the arena; bytes 0 is a valid, empty buffer. */
typedef struct hs_buf {
    uint64_t offset, bytes;
} hs_buf;

/* A resident matrix, rows packed tightly: row r starts at buf.offset + r * row_bytes. */
typedef struct hs_dev_mat {
    hs_buf buf;
    hs_dtype dtype;
    uint32_t cols, rows;
    uint64_t row_bytes;
} hs_dev_mat;

/* Working memory of one session, allocated by it from the arena. */
typedef struct hs_dev_scratch {
    hs_buf x;     /* f32 [n_embd]   layer input / residual, sent by the host */
    hs_buf xn;    /* f32 [n_embd]   normalised input */
    hs_buf y;     /* f32 [n_embd]   result of attn, before the residual */
    hs_buf sum;   /* f64 [n_embd]   result of ffn: an order-free sum (mathx.h) */
    hs_buf q;     /* f32 [n_head * head_dim] */
    hs_buf k, v;  /* f32 [n_head_kv * head_dim] */
    hs_buf o;     /* f32 [n_head * head_dim]   attention output before wo */
    hs_buf att;   /* f32 [n_head][n_ctx]   scores, then probabilities; empty without a KV cache */
    hs_buf rope;  /* f32 [head_dim]   cos, sin pairs of this position: cos[p], sin[p] at 2p, 2p+1 */
    hs_buf hid;   /* f32 [max predictor width] */
    hs_buf score; /* f32 [n_ff]   predictor scores of all neurons */
    hs_buf z;     /* f32 [n_ff] */
    hs_buf count; /* u32 [1]   active device neurons of the last ffn */
    hs_buf logits; /* f32 [n_vocab]; empty when the head is on the host */
    hs_buf act_q;  /* i8 [max cols]   quantized activation */
    hs_buf act_d;  /* f32 [max cols / 32] */
} hs_dev_scratch;

typedef enum hs_dev_attn_stage {
    HS_DEV_ATTN_ALL, /* x -> y, KV cache on the device */
    HS_DEV_ATTN_QKV, /* x -> q, k, v before RoPE; the host attends with its own KV cache … */
    HS_DEV_ATTN_OUT, /* … and sends o -> y */
} hs_dev_attn_stage;

typedef struct hs_dev_attn {
    const hs_dev_scratch *scratch;
    hs_buf norm; /* f32 [n_embd] */
    hs_dev_mat wq, wk, wv, wo;
    float eps;
    uint32_t n_embd, n_head, n_head_kv, head_dim, rope_dim;
    hs_buf k_cache, v_cache; /* kv_type [n_ctx][n_head_kv * head_dim] */
    hs_dtype kv_type;        /* HS_F16 or HS_F32 */
    uint32_t n_ctx, pos;
    hs_dev_attn_stage stage;
} hs_dev_attn;

/* The device's part of one FFN for one token:
 *   xn  = has_norm ? rmsnorm(x, norm) : as sent
 *   score = has_predictor ? fc2 * relu(fc1 * x) : as sent (read only when masked)
 *   z[r] = active ? act_gate(gate[r].xn) * act_up(up[r].xn) : 0 for the n packed neurons,
 *          active: !(masked && score[id[r]] < threshold) and the gate's output is non-zero
 *   sum = sum over r of hs_grid_product(z[r], down[r]), in any order
 *   count = number of neurons whose activation output is non-zero
 * With n == 0 only the predictor runs and sum is zeroed. */
typedef struct hs_dev_ffn {
    const hs_dev_scratch *scratch;
    hs_buf norm;
    bool has_norm, has_predictor, masked, has_gate;
    hs_dev_mat fc1, fc2;       /* [R][n_embd], [n_ff][R] */
    hs_dev_mat gate, up, down; /* [n][n_embd] each, packed in order of id */
    hs_buf id;                 /* i32 [n], ascending neuron numbers */
    uint32_t n, n_embd, n_ff;
    float eps, threshold;
    hs_act_fn fn;
    float fn_param;
} hs_dev_ffn;

typedef struct hs_dev_head {
    const hs_dev_scratch *scratch; /* x -> logits */
    hs_buf norm;
    hs_dev_mat w;
    float eps;
    uint32_t n_embd;
} hs_dev_head;

typedef struct hs_device_ops {
    const char *name; /* "emu", "cuda" */
    /* Number of devices; 0 with the reason in err when there is none. */
    int (*count)(hs_err *err);
    /* Reserve `arena_bytes` once; HS_ERR_NOSPACE names wanted and free memory. */
    HS_NODISCARD hs_status (*open)(hs_device **out, int ordinal, uint64_t arena_bytes, hs_err *err);
    void (*close)(hs_device *dev);
    HS_NODISCARD hs_status (*memory)(hs_device *dev, uint64_t *avail, uint64_t *total, hs_err *err);
    HS_NODISCARD hs_status (*alloc)(hs_device *dev, uint64_t bytes, hs_buf *out, hs_err *err);
    uint64_t (*used)(const hs_device *dev); /* bytes allocated from the arena */
    HS_NODISCARD hs_status (*upload)(hs_device *dev, hs_buf dst, uint64_t at, const void *src,
                                     uint64_t bytes, hs_err *err);
    void (*send)(hs_device *dev, hs_buf dst, const void *src, uint64_t bytes);
    void (*recv)(hs_device *dev, void *dst, hs_buf src, uint64_t bytes);
    void (*attn)(hs_device *dev, const hs_dev_attn *a);
    void (*ffn)(hs_device *dev, const hs_dev_ffn *a);
    void (*head)(hs_device *dev, const hs_dev_head *a);
    HS_NODISCARD hs_status (*sync)(hs_device *dev, hs_err *err);
} hs_device_ops;

/* The same source compiled for the CPU; always there. */
const hs_device_ops *hs_device_emu(void);
/* NULL when this build has no CUDA. */
const hs_device_ops *hs_device_cuda(void);

#ifdef __cplusplus
}
#endif

#endif
