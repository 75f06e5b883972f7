#ifndef HS_RUNTIME_SESSION_H
#define HS_RUNTIME_SESSION_H

/* A session's insides, shared by session.c (life, evaluation), attn.c and ffn.c. */

#include "runtime/kernels.h"
#include "runtime/pool.h"
#include "runtime/split.h"

#ifdef __cplusplus
extern "C" {
#endif

/* HS_FFN_CHUNK: the fewest neurons that one task of the sparse path takes. */
enum { HS_MAX_BATCH = 64, HS_MAX_NOTES = 16, HS_FFN_CHUNK = 64 };

typedef struct hs_layer_counts {
    uint64_t tokens, predicted, cpu_active;
} hs_layer_counts;

struct hs_session {
    const hs_model *m;
    hs_kernels k;
    hs_pool *pool;
    uint32_t n_ctx, pos, batch;
    hs_dtype kv_type;
    hs_sparsity sparsity; /* resolved */
    float threshold;
    hs_observe_fn observe;
    void *observe_ud;
    hs_input_fn watch;
    void *watch_ud;

    hs_mat *down_t;      /* [n_layer] rows of down by neuron; the file's or transposed here */
    uint8_t *transposed; /* owned backing of transposed matrices, or NULL */
    uint64_t transposed_bytes;
    hs_sparsity *mode; /* [n_layer] what each layer runs */
    hs_split *split;
    hs_layer_counts *count; /* [n_layer] */

    uint8_t *k_cache, *v_cache; /* kv_type [layers with a host cache][n_ctx][n_head_kv*head_dim] */
    int32_t *kv_slot;           /* [n_layer] index in the caches, -1: on the device */
    uint64_t kv_row_bytes, host_kv_bytes;
    float *rope; /* f32 [n_ctx][rope_dim/2][cos, sin] */

    /* Scratch, all in one block; B = HS_MAX_BATCH. */
    void *block;
    uint64_t block_bytes;
    float *x, *xn, *y; /* [B][n_embd] */
    float *q, *o;      /* [B][n_head*head_dim] */
    float *kx, *vx;    /* [B][n_head_kv*head_dim] */
    float *g, *u;      /* [B][n_ff]   gate and up products, dense path */
    float *hid;        /* [B][max predictor width] */
    float *score;      /* [B][n_ff] */
    float *att;        /* [n_head][n_ctx] */
    float *zc;         /* [B][n_ff]   values of the active lists, at the place of their chunk */
    int32_t *act;      /* [B][n_ff]   active neurons, likewise */
    uint32_t *chunk;   /* [B][chunks] lengths of the lists */
    double *sum;       /* [B][n_embd] down projection, the CPU's part */
    int8_t *q8;        /* [B][max cols] */
    float *q8d;        /* [B][max cols / 32] */
    uint64_t q8_cols;
    float *logits; /* [n_vocab] */

    char note_text[HS_MAX_NOTES][256];
    const char *notes[HS_MAX_NOTES + 1];
    int n_notes;
    const char *device_name;
    uint64_t budget;
};

/* y[t][r] = W row r . x[t] for n tokens; x is [n][ldx], y is [n][ldy]. */
void hs_matmul(hs_session *s, const hs_mat *w, const float *x, size_t ldx, float *y, size_t ldy,
               size_t n);
/* Products of the same activations with several matrices, in one go of the thread pool. */
typedef struct hs_product {
    const hs_mat *w;
    float *y;
    size_t ldy;
} hs_product;
enum { HS_MAX_PRODUCTS = 3 };
void hs_matmuls(hs_session *s, const hs_product *p, size_t n_products, const float *x, size_t ldx,
                size_t n);
/* RMSNorm of one vector; returns the mean square, which is not finite when x is not. */
float hs_rmsnorm(const hs_session *s, float *out, const float *x, const float *w);
/* Quantize x[n][ldx] (cols elements each) into the session's q8 buffers. */
void hs_quantize_batch(hs_session *s, const float *x, size_t ldx, size_t cols, size_t n);
static inline hs_q8 hs_q8_at(const hs_session *s, size_t t)
{
    return (hs_q8){s->q8 + t * s->q8_cols, s->q8d + t * (s->q8_cols / 32)};
}

static inline void hs_watched(const hs_session *s, hs_input input, uint32_t layer, const float *x,
                              size_t len, size_t n)
{
    if (s->watch)
        s->watch(s->watch_ud, input, layer, x, len, n);
}

/* The host's halves, for layers that are split: positions' angles; RoPE, cache and attention of n
 * tokens (q, kx, vx -> o); predictor (x -> score); the CPU's neurons (xn -> sum, score NULL: all
 * are candidates). */
const float *hs_rope_at(const hs_session *s, uint32_t pos);
void hs_attend_host(hs_session *s, uint32_t layer, size_t n);
void hs_predict_host(hs_session *s, uint32_t layer, size_t n);
void hs_neurons_host(hs_session *s, uint32_t layer, const float *xn, const float *score, size_t n);

/* hybrid.c: layers of which devices have a part, n <= HS_DEV_BATCH tokens at a time.  begin comes
 * before a batch's first layer and takes its tokens' residual to be on the host; home brings it
 * there; run does all layers from `layer` on that one device has wholly and returns their number.
 * attn and ffn add to the residual.  abandon forgets a batch that failed. */
static inline bool hs_is_hybrid(const hs_session *s) { return s->split->n_dev > 0; }
HS_NODISCARD hs_status hs_hybrid_begin(hs_session *s, size_t n, hs_err *err);
HS_NODISCARD hs_status hs_hybrid_home(hs_session *s, size_t n, hs_err *err);
HS_NODISCARD hs_status hs_hybrid_run(hs_session *s, uint32_t layer, size_t n, uint32_t *done,
                                     hs_err *err);
HS_NODISCARD hs_status hs_hybrid_attn(hs_session *s, uint32_t layer, size_t n, hs_err *err);
/* False: the host does all of this layer's FFN. */
bool hs_hybrid_has_ffn(const hs_session *s, uint32_t layer);
HS_NODISCARD hs_status hs_hybrid_ffn(hs_session *s, uint32_t layer, size_t n, hs_err *err);
HS_NODISCARD hs_status hs_hybrid_head(hs_session *s, size_t token, size_t n, hs_err *err);
void hs_hybrid_abandon(hs_session *s);
/* Active neurons on devices, and candidates that predictors there have found, of one layer. */
void hs_hybrid_stats(const hs_session *s, uint32_t layer, uint64_t *active, uint64_t *predicted);

/* One layer's attention for n tokens at positions pos…: x += attention(x). */
HS_NODISCARD hs_status hs_attn_forward(hs_session *s, uint32_t layer, size_t n, hs_err *err);
/* One layer's FFN: x += ffn(x). */
HS_NODISCARD hs_status hs_ffn_forward(hs_session *s, uint32_t layer, size_t n, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
