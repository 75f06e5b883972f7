#ifndef HS_RUNTIME_MODEL_H
#define HS_RUNTIME_MODEL_H

/* A bound model: every tensor of the file in its place, shapes checked.  Internal to the
 * library and to tools that look at tensors (the solver's budget, the tests). */

#include "formats/gguf.h"
#include "runtime/act.h"
#include "runtime/hotset.h"
#include "runtime/token.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weight matrix, rows of `cols` elements; borrowed from the file's map. */
typedef struct hs_mat {
    const uint8_t *data; /* NULL: the model has no such matrix */
    hs_dtype dtype;
    uint32_t cols, rows;
    uint64_t row_bytes;
} hs_mat;

static inline const uint8_t *hs_mat_row(const hs_mat *w, uint64_t r)
{
    return w->data + r * w->row_bytes;
}

static inline uint64_t hs_mat_bytes(const hs_mat *w)
{
    return w->data ? w->rows * w->row_bytes : 0;
}

/* The one table of architectures: a row here, a name map in tools/convert. */
typedef struct hs_arch {
    const char *name;
    hs_act_fn sparse_fn, dense_fn; /* without hotset.activation: by the file's magic */
} hs_arch;

typedef struct hs_layer {
    const float *attn_norm, *ffn_norm; /* f32 [n_embd] */
    hs_mat wq, wk, wv, wo; /* [n_head*head_dim | n_head_kv*head_dim][n_embd], wo transposed */
    hs_mat gate, up;       /* [n_ff][n_embd] */
    hs_mat down;           /* [n_embd][n_ff]: dense layout, else absent */
    hs_mat down_t;         /* [n_ff][n_embd]: sparse layout, else absent */
    hs_mat fc1, fc2;       /* [R][n_embd], [n_ff][R]: predictor, or absent */
} hs_layer;

struct hs_model {
    hs_gguf *gguf;
    char *path; /* as given, for messages */
    hs_vocab *vocab;
    const hs_arch *arch;
    hs_act_fn fn;
    float fn_param;
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, rope_dim, n_vocab, n_ctx_train;
    float eps, rope_base, rope_scale; /* angles are multiplied by rope_scale */
    float threshold;
    bool has_predictors;
    hs_mat token_embd, output; /* [n_vocab][n_embd]; output may alias token_embd (tied) */
    const float *output_norm;
    hs_layer *layer; /* [n_layer] */
    char fingerprint[33];
};

/* The first tensor of the layer (of layer 0: of what enters it too; of n_layer: outside of layers)
 * with a value that is not finite, for an error message; NULL if none. */
const char *hs_model_find_nonfinite(const hs_model *m, uint32_t layer);

#ifdef __cplusplus
}
#endif

#endif
