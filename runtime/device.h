#ifndef HS_RUNTIME_DEVICE_H
#define HS_RUNTIME_DEVICE_H

/* The seam between a session and a device that holds part of the model.
 *
 * One arena, sized when the device is opened from the placement's plan; nothing that depends on
 * the model is allocated outside it, so used <= budget by construction.  Calls after `upload` are
 * queued in order on one stream and return at once; what they need from the host they read, and
 * what they give it they write, at any time until wait() or sync() says that they are done.  A
 * token changes only what lies in device memory (scratch.step), never an argument of a launch, so
 * that a captured run of calls can be launched again.  All arithmetic follows the canonical order
 * of kernels.h: scores, projections, norms and attention have the bits the CPU would produce. */

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

/* Tokens that calls may take at once (B); sums over neurons at once: one a token, or of one token
 * one for each of up to four parts of the neurons. */
enum { HS_DEV_BATCH = 8, HS_DEV_SUMS = 8 };

/* What a token's host and device parts tell each other: its normalised input and which neurons
 * are candidates, one after the other, so that one copy carries both. */
static inline uint32_t hs_dev_record_words(uint32_t n_embd, uint32_t n_ff)
{
    return n_embd + (n_ff + 31) / 32;
}

/* Working memory of one session, allocated by it from the arena. */
typedef struct hs_dev_scratch {
    hs_buf x;      /* f32 [B][n_embd]   the residual */
    hs_buf step;   /* u32 [4], then f32 [B][rope_dim]: position of the first token; cos, sin pairs
                      of each token's position: cos[p], sin[p] at 2p, 2p+1 */
    hs_buf rec;    /* [B] records: f32 [n_embd] normalised input, u32 [n_ff / 32] bit i: neuron i is
                      a candidate */
    hs_buf sum;    /* f64 [HS_DEV_SUMS][n_embd]   sums over neurons, order-free (mathx.h) */
    hs_buf far;    /* f64 [B][n_embd]   the same, of this device for the host or the other way */
    hs_buf qkv;    /* f32 [B][(n_head + 2 n_head_kv) * head_dim]   a token's q, k, v */
    hs_buf o;      /* f32 [B][n_head * head_dim]   attention output before wo */
    hs_buf att;    /* f32 [B][n_head][n_ctx]   scores, then their exponentials; without a KV cache
                      empty, as the next two */
    hs_buf top;    /* f32 [B][n_head][blocks of HS_ATT_BLOCK]   largest score */
    hs_buf part;   /* f32 [B][n_head][blocks][head_dim]   sums over a block's positions */
    hs_buf hid;    /* f32 [B][max predictor width] */
    hs_buf z;      /* f32 [B][n_ff]   the predictor's scores of all neurons, later what a neuron's
                      down row is multiplied with */
    hs_buf stats;  /* u64 [n_layer][2]   active neurons here, candidates of the predictor; rising */
    hs_buf logits; /* f32 [n_vocab]; empty when the head is elsewhere */
    hs_buf act_q;  /* i8 [B][max cols]   quantized activation */
    hs_buf act_d;  /* f32 [B][max cols / 32] */
} hs_dev_scratch;

typedef enum hs_dev_attn_stage {
    HS_DEV_ATTN_ALL, /* x += attention(x), KV cache on the device */
    HS_DEV_ATTN_QKV, /* x -> qkv before RoPE; the host attends with its own KV cache … */
    HS_DEV_ATTN_OUT, /* … and sends o: x += wo o */
} hs_dev_attn_stage;

typedef struct hs_dev_attn {
    const hs_dev_scratch *scratch;
    hs_buf norm; /* f32 [n_embd] */
    hs_dev_mat wq, wk, wv, wo;
    float eps;
    uint32_t n_embd, n_head, n_head_kv, head_dim, rope_dim;
    hs_buf k_cache, v_cache; /* kv_type [n_ctx][n_head_kv * head_dim] */
    hs_dtype kv_type;        /* HS_F16 or HS_F32 */
    uint32_t n_ctx, n_tokens;
    hs_dev_attn_stage stage;
} hs_dev_attn;

/* The device's part of one FFN.  Stages, in this order, any of them:
 *   PREPARE  with a norm:      rec.xn = rmsnorm(x, norm)
 *            with a predictor: score = fc2 * relu(fc1 * x), candidates = !(score < threshold)
 *   NEURONS  z[r] = active ? act_gate(gate[r].xn) * act_up(up[r].xn) : 0 for the n packed
 *            neurons; active: (!masked or candidate id[r]) and the gate's output is non-zero;
 *            sum = sum over r of hs_grid_product(z[r], down[r]), in any order;
 *            stats: neurons whose activation output is non-zero
 *   COLLECT  far = sum, for the host
 *   FINISH   x += (float)(sum + far), far only with has_far: the host's sum
 * Without neurons the sum is 0. */
typedef enum hs_dev_ffn_stage {
    HS_DEV_FFN_PREPARE = 1,
    HS_DEV_FFN_NEURONS = 2,
    HS_DEV_FFN_COLLECT = 4,
    HS_DEV_FFN_FINISH = 8,
} hs_dev_ffn_stage;

typedef struct hs_dev_ffn {
    const hs_dev_scratch *scratch;
    hs_buf norm;
    bool has_norm, has_predictor, masked, has_gate, has_far;
    bool prepared;             /* PREPARE was the last call before this one */
    hs_dev_mat fc1, fc2;       /* [R][n_embd], [n_ff][R] */
    hs_dev_mat gate, up, down; /* [n][n_embd] each, packed in order of id */
    hs_buf id;                 /* i32 [n], ascending neuron numbers */
    uint32_t n, n_embd, n_ff, layer, n_tokens;
    unsigned stages;
    float eps, threshold;
    hs_act_fn fn;
    float fn_param;
} hs_dev_ffn;

typedef struct hs_dev_head {
    const hs_dev_scratch *scratch; /* x of one token -> logits */
    hs_buf norm;
    hs_dev_mat w;
    float eps;
    uint32_t n_embd, token;
} hs_dev_head;

/* What a device was asked for since it was opened. */
typedef struct hs_dev_counts {
    uint64_t syncs; /* times the host waited */
    uint64_t sends, recvs, bytes_sent, bytes_received;
    uint64_t launches, graphs; /* of kernels one by one; of captured runs */
} hs_dev_counts;

/* A captured run of attn and ffn calls. */
typedef struct hs_dev_graph hs_dev_graph;

typedef struct hs_device_ops {
    const char *name; /* "emu", "cuda" */
    /* Number of devices; 0 with the reason in err when there is none. */
    int (*count)(hs_err *err);
    /* Memory of a device that need not be open. */
    HS_NODISCARD hs_status (*probe)(int ordinal, uint64_t *avail, uint64_t *total, hs_err *err);
    /* Reserve `arena_bytes` once; HS_ERR_NOSPACE names wanted and free memory. */
    HS_NODISCARD hs_status (*open)(hs_device **out, int ordinal, uint64_t arena_bytes, hs_err *err);
    void (*close)(hs_device *dev);
    HS_NODISCARD hs_status (*alloc)(hs_device *dev, uint64_t bytes, hs_buf *out, hs_err *err);
    uint64_t (*used)(const hs_device *dev); /* bytes allocated from the arena */
    HS_NODISCARD hs_status (*upload)(hs_device *dev, hs_buf dst, uint64_t at, const void *src,
                                     uint64_t bytes, hs_err *err);
    /* Pinned host memory, which copies need to run beside the host; every device can use it. */
    HS_NODISCARD hs_status (*pin)(hs_device *dev, uint64_t bytes, void **out, hs_err *err);
    void (*unpin)(hs_device *dev, void *p);
    void (*send)(hs_device *dev, hs_buf dst, const void *src, uint64_t bytes);
    void (*recv)(hs_device *dev, void *dst, hs_buf src, uint64_t bytes);
    /* Within the device: dst.bytes from src. */
    void (*copy)(hs_device *dev, hs_buf dst, hs_buf src);
    void (*attn)(hs_device *dev, const hs_dev_attn *a);
    void (*ffn)(hs_device *dev, const hs_dev_ffn *a);
    void (*head)(hs_device *dev, const hs_dev_head *a);
    /* Calls of attn and ffn from begin to end are recorded instead of done; end gives NULL on a
     * failure, which sync reports.  Graphs are freed before their device is closed. */
    void (*graph_begin)(hs_device *dev);
    hs_dev_graph *(*graph_end)(hs_device *dev);
    void (*graph_launch)(hs_device *dev, hs_dev_graph *g);
    void (*graph_free)(hs_device *dev, hs_dev_graph *g);
    /* wait() sleeps until everything queued before the last mark() is done, sync() until
     * everything is; both report the first failure since the last report. */
    void (*mark)(hs_device *dev);
    HS_NODISCARD hs_status (*wait)(hs_device *dev, hs_err *err);
    HS_NODISCARD hs_status (*sync)(hs_device *dev, hs_err *err);
    void (*counts)(const hs_device *dev, hs_dev_counts *out);
} hs_device_ops;

/* The same source compiled for the CPU; always there. */
const hs_device_ops *hs_device_emu(void);
/* NULL when this build has no CUDA. */
const hs_device_ops *hs_device_cuda(void);

#ifdef __cplusplus
}
#endif

#endif
