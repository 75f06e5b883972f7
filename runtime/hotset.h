#ifndef HS_HOTSET_H
#define HS_HOTSET_H

/* hotset: the runtime library's public interface.
 *
 * A model is loaded once and immutable; a session is one sequence of tokens over it.  Several
 * sessions may share a model; one session is used by one thread at a time.  No function prints,
 * exits or reads the environment. */

#include "formats/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HS_VERSION "0.1.0"

typedef struct hs_model hs_model;
typedef struct hs_session hs_session;

/* ---- model ---------------------------------------------------------------------------- */

/* Map and validate a GGUF or PWRI file; every tensor, shape, type and key is checked here.
 * Messages start with the path. */
HS_NODISCARD hs_status hs_model_load(hs_model **out, const char *path, hs_err *err);
void hs_model_free(hs_model *m);

typedef struct hs_model_info {
    const char *arch;       /* "llama", "bamboo" */
    const char *activation; /* "relu", "silu", … */
    uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_ctx_train;
    bool relu_family; /* inactive neurons exist */
    bool has_predictors;
    bool sparse_layout; /* PWRI */
    float threshold;    /* of the file's predictors */
    int32_t bos, eos;   /* -1: none */
    bool add_bos;
    uint64_t weight_bytes;
    char fingerprint[33];
} hs_model_info;

void hs_model_describe(const hs_model *m, hs_model_info *out);

/* ---- text ----------------------------------------------------------------------------- */

/* Plain text to ids, without BOS.  Special tokens are recognised in the text only when `special`.
 * *ids is malloc'd, the caller frees it (NULL for an empty text). */
HS_NODISCARD hs_status hs_tokenize(const hs_model *m, const char *text, size_t n, bool special,
                                   int32_t **ids, size_t *n_ids, hs_err *err);
/* The bytes a token stands for (control tokens: none), at most `cap` of them into out; returns
 * their full number.  Bytes of one character may be spread over tokens. */
size_t hs_token_bytes(const hs_model *m, int32_t id, char *out, size_t cap);
/* Length of the longest prefix of p[0..n) that does not end inside a UTF-8 character; bytes
 * that can never become one are let through.  For streaming: print that much, keep the rest. */
size_t hs_utf8_complete(const char *p, size_t n);
/* Bytes of the UTF-8 character at the start of p[0..n), n > 0; 0 when there is none. */
size_t hs_utf8_char(const char *p, size_t n);
bool hs_token_is_eog(const hs_model *m, int32_t id); /* end of generation: EOS, EOT… */

/* ---- session -------------------------------------------------------------------------- */

typedef enum hs_sparsity {
    HS_SPARSITY_AUTO,
    HS_SPARSITY_OFF,
    HS_SPARSITY_EXACT,
    HS_SPARSITY_PREDICTED
} hs_sparsity;

typedef struct hs_session_params {
    uint32_t n_ctx;  /* 0: min(the model's context, 4096) */
    bool kv_f32;     /* KV cache in f32 instead of f16 */
    int n_threads;   /* 0: as many as the affinity mask and quota allow */
    const char *cpu; /* "scalar", "avx2"…; NULL: the best this machine has */
    hs_sparsity sparsity;
    bool has_threshold;
    float threshold;       /* overrides the file's */
    const char *placement; /* path of a .gpuidx file, or NULL */
    const char *device;    /* "auto", "none", "emu", "cuda"; NULL is "auto" */
    bool has_budget;
    uint64_t vram_budget; /* bytes; without has_budget the placement's own */
} hs_session_params;

HS_NODISCARD hs_status hs_session_new(hs_session **out, const hs_model *m,
                                      const hs_session_params *p, hs_err *err);
void hs_session_free(hs_session *s);

/* Called with the logits (f32 [n_vocab], valid during the call) of position `pos`; returning
 * false ends the evaluation with HS_ERR_INTERRUPTED. */
typedef bool (*hs_logits_fn)(void *ud, size_t pos, const float *logits);

/* Append n tokens to the sequence.  With `each`, it is called for every one of them in order;
 * otherwise only the last one's logits are computed.  Tokens past the context are
 * HS_ERR_NOSPACE, ids out of range HS_ERR_USAGE, and the session is unchanged.  Values that are
 * not finite are HS_ERR_FORMAT naming the tensor whose weights are not, or HS_ERR_FAILED naming
 * the layer where finite weights overflow. */
HS_NODISCARD hs_status hs_session_eval(hs_session *s, const int32_t *ids, size_t n,
                                       hs_logits_fn each, void *ud, hs_err *err);
/* Logits of the last token evaluated, f32 [n_vocab]; borrowed, valid until the next eval. */
const float *hs_session_logits(const hs_session *s);
size_t hs_session_pos(const hs_session *s); /* tokens so far */
size_t hs_session_n_ctx(const hs_session *s);
/* Forget every token; statistics go on. */
void hs_session_reset(hs_session *s);
/* Evaluate prompts in batches of at most n tokens (1..64, default 64); results do not depend
 * on it. */
void hs_session_set_batch(hs_session *s, size_t n);

/* Called per layer and token, after the FFN activation: z[i] != 0 exactly for active neurons
 * (z of length n_ff).  With an observer every neuron is computed and predictors are ignored. */
typedef void (*hs_observe_fn)(void *ud, uint32_t layer, size_t pos, const float *z);
void hs_session_observe(hs_session *s, hs_observe_fn fn, void *ud);

/* What the matrices of a model are multiplied with. */
typedef enum hs_input {
    HS_INPUT_ATTN,     /* attn_q, attn_k, attn_v */
    HS_INPUT_ATTN_OUT, /* attn_output */
    HS_INPUT_FFN,      /* ffn_gate, ffn_up */
    HS_INPUT_DOWN,     /* ffn_down: 0 where a neuron is inactive */
    HS_INPUT_HEAD,     /* output; of every token, whether its logits are computed or not */
} hs_input;
/* Called with the inputs of n tokens, x[n][len].  As with an observer, every neuron is computed.
 * Nothing of what the device computes is seen. */
typedef void (*hs_input_fn)(void *ud, hs_input input, uint32_t layer, const float *x, size_t len,
                            size_t n);
void hs_session_watch(hs_session *s, hs_input_fn fn, void *ud);

typedef struct hs_layer_stats {
    hs_sparsity mode;       /* what the layer really runs: OFF, EXACT or PREDICTED */
    double predicted_share; /* of neurons, mean over tokens; 1 without a predictor */
    double active_share;
    uint64_t cpu_neurons, device_neurons; /* active ones computed there, over all tokens */
} hs_layer_stats;
void hs_session_layer_stats(const hs_session *s, uint32_t layer, hs_layer_stats *out);

typedef struct hs_memory {
    uint64_t budget, planned, used, weights, kv, scratch; /* bytes */
} hs_memory;
/* `device` is zeroed and false returned when the session has none. */
bool hs_session_memory(const hs_session *s, hs_memory *host, hs_memory *device);

typedef struct hs_session_info {
    const char *device; /* "none", "emu", "cuda" */
    const char *cpu;    /* level in use */
    int n_threads;
    hs_sparsity sparsity; /* resolved, never AUTO */
    float threshold;
    uint32_t n_ctx;
    /* Sentences for stderr that the user should see, NULL-terminated, owned by the session; one
     * that starts with "warning: " is for quiet runs too:
     * "runs dense: silu is not ReLU-family", "placement has no fingerprint", … */
    const char *const *notes;
} hs_session_info;
void hs_session_describe(const hs_session *s, hs_session_info *out);

/* Where the logits of two sessions differ. */
typedef struct hs_difference {
    size_t n_tokens; /* compared */
    float largest;   /* |a - b| of one logit; 0: not at all */
    size_t pos;      /* where: position, token id, and the two values */
    int32_t id;
    float a, b;
    size_t choices; /* tokens where b's largest logit leads by more than 1e-2 and a's is another */
} hs_difference;
/* Evaluate the same n tokens in two sessions of one model, which start over: the ids given, then
 * what b would choose at temperature 0.  n is at most either's context. */
HS_NODISCARD hs_status hs_session_compare(hs_session *a, hs_session *b, const int32_t *ids,
                                          size_t n_ids, size_t n, hs_difference *out, hs_err *err);

/* ---- sampling ------------------------------------------------------------------------- */

typedef struct hs_sampler hs_sampler;

typedef struct hs_sampler_params {
    float temp;           /* 0: argmax of the raw logits, lowest id on ties */
    int32_t top_k;        /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off; divides positive, multiplies negative logits */
    float frequency_penalty, presence_penalty; /* 0: off */
    int32_t penalty_last_n;                    /* tokens looked back; -1: all */
    uint64_t seed;
} hs_sampler_params;

/* temp 0.8, top_k 40, top_p 0.95, min_p 0.05, penalties off over the last 64, seed 0. */
hs_sampler_params hs_sampler_defaults(void);
HS_NODISCARD hs_status hs_sampler_new(hs_sampler **out, const hs_sampler_params *p,
                                      uint32_t n_vocab, hs_err *err);
void hs_sampler_free(hs_sampler *s);
/* Tell the sampler about a token of the text so far (prompt included). */
void hs_sampler_accept(hs_sampler *s, int32_t id);
/* Choose from f32 [n_vocab]; order: penalties, top-k, top-p, min-p, temperature. */
int32_t hs_sampler_next(hs_sampler *s, const float *logits);
/* Never choose this id (an end token under --ignore-eos). */
void hs_sampler_ban(hs_sampler *s, int32_t id);

#ifdef __cplusplus
}
#endif

#endif
