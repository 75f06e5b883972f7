#ifndef HS_FORMATS_PLACEMENT_H
#define HS_FORMATS_PLACEMENT_H

/* The placement: which neurons of each layer, and which dense blocks, live on the device.
 * The file has PowerInfer's .gpuidx layout with our facts in extra KVs; formats/placement.md
 * has the keys. */

#include "formats/err.h"
#include "formats/fingerprint.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_placement_layer {
    uint32_t n_ff;
    uint32_t n_device;
    int32_t *neuron; /* [n_device], ascending, all on the device */
    /* Dense blocks of this layer on the device.  `kv` needs `attn`. */
    bool attn;      /* attn_norm, q, k, v, output projections */
    bool predictor; /* fc1, fc2 */
    bool ffn_norm;
    bool kv; /* the layer's KV cache, n_ctx positions */
} hs_placement_layer;

typedef struct hs_ledger_line {
    char what[48];  /* "attention", "predictor", "ffn norm", "output", "kv cache",
                       "neurons", "scratch" */
    int32_t layer;  /* -1: not of one layer */
    uint64_t bytes; /* on the device, alignment included; 0: stays on the CPU */
} hs_ledger_line;

typedef struct hs_placement {
    uint32_t n_layer;
    hs_placement_layer *layer; /* [n_layer] */
    uint64_t vram_capacity;    /* split.vram_capacity: the budget it was made for, bytes */
    bool has_plan;             /* our keys are present: fingerprint, dense blocks, context */
    char fingerprint[HS_FINGERPRINT_CHARS + 1]; /* "" in a file of PowerInfer's own */
    bool output;                                /* output norm and head on the device */
    uint32_t n_ctx;                 /* context the KV cache was planned for; 0 without a plan */
    uint32_t kv_type;               /* hs_dtype of the planned KV cache */
    uint64_t plan_bytes;            /* what the device will allocate for this placement */
    char objective[16], method[16]; /* "impact"; "glpk", "exact", "greedy" */
    double objective_value, bound, gap;
    uint32_t group; /* neurons per group */
    size_t n_ledger;
    hs_ledger_line *ledger;
} hs_placement;

/* All layers empty.  Owned by the caller. */
HS_NODISCARD hs_status hs_placement_new(hs_placement **out, uint32_t n_layer, const uint32_t *n_ff,
                                        hs_err *err);
void hs_placement_free(hs_placement *p);
/* Set layer l's neurons from `id` (copied, sorted; duplicates or ids out of range fail). */
HS_NODISCARD hs_status hs_placement_set(hs_placement *p, uint32_t l, const int32_t *id, uint32_t n,
                                        hs_err *err);
HS_NODISCARD hs_status hs_placement_add_ledger(hs_placement *p, const char *what, int32_t layer,
                                               uint64_t bytes, hs_err *err);
/* Tensors are found by name and cross-checked: gpu_idx only 0 and 1, gpu_bucket its ascending
 * list of ones, every layer present, nothing else in the file. */
HS_NODISCARD hs_status hs_placement_read(hs_placement **out, const char *path, hs_err *err);
HS_NODISCARD hs_status hs_placement_parse(hs_placement **out, const hs_gguf *g, hs_err *err);
/* The file's bytes into `out`, which the caller commits (after verifying what it wrote) or
 * aborts.  With `plain` only PowerInfer's own three KVs are written. */
HS_NODISCARD hs_status hs_placement_write(const hs_placement *p, hs_out *out, bool plain,
                                          hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
