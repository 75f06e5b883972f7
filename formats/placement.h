#ifndef HS_FORMATS_PLACEMENT_H
#define HS_FORMATS_PLACEMENT_H

/* The placement: which neurons of each layer, and which dense blocks, live on the device.
 * The file has PowerInfer's .gpuidx layout with our facts in extra KVs; formats/placement.md
 * has the keys.
 *
 * A placement for several devices says in addition which of them; its file is one of ours.
 * hs_placement_view() gives what one of the devices has as a placement for one device. */

#include "formats/err.h"
#include "formats/fingerprint.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HS_PLACEMENT_DEVICES = 8, HS_PLACEMENT_HOST = -1 };

typedef struct hs_placement_layer {
    uint32_t n_ff;
    uint32_t n_device;
    int32_t *neuron;   /* [n_device], ascending, all on a device */
    uint8_t *on_which; /* [n_device]: on which one; NULL: all on device 0 */
    /* Dense blocks of this layer on a device.  `kv` needs `attn`, on the same device. */
    bool attn;      /* attn_norm, q, k, v, output projections */
    bool predictor; /* fc1, fc2 */
    bool ffn_norm;
    bool kv; /* the layer's KV cache, n_ctx positions */
    /* The number of that device; 0 for a block that stays on the host. */
    uint8_t attn_device, predictor_device, ffn_norm_device, kv_device;
} hs_placement_layer;

typedef struct hs_ledger_line {
    char what[48];  /* "attention", "predictor", "ffn norm", "output", "kv cache",
                       "neurons", "scratch" */
    int32_t layer;  /* -1: not of one layer */
    int32_t device; /* whose memory */
    uint64_t bytes; /* on the device, alignment included; 0: stays on the CPU */
} hs_ledger_line;

typedef struct hs_placement {
    uint32_t n_layer;
    hs_placement_layer *layer; /* [n_layer] */
    uint32_t n_devices;        /* 1, or up to HS_PLACEMENT_DEVICES */
    uint64_t vram_capacity;    /* the budget it was made for, bytes; of all devices */
    bool has_plan;             /* our keys are present: fingerprint, dense blocks, context */
    char fingerprint[HS_FINGERPRINT_CHARS + 1]; /* "" in a file of PowerInfer's own */
    bool output;                                /* output norm and head on a device … */
    uint8_t output_device;                      /* … this one */
    uint32_t n_ctx;      /* context the KV cache was planned for; 0 without a plan */
    uint32_t kv_type;    /* hs_dtype of the planned KV cache */
    uint64_t plan_bytes; /* what the devices will allocate for this placement */
    /* Of several devices, each one's part of vram_capacity and plan_bytes; unused for one. */
    uint64_t device_capacity[HS_PLACEMENT_DEVICES], device_bytes[HS_PLACEMENT_DEVICES];
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
/* Make an empty placement one for n_devices = 2 to HS_PLACEMENT_DEVICES. */
HS_NODISCARD hs_status hs_placement_devices(hs_placement *p, uint32_t n_devices,
                                            const uint64_t *capacity, hs_err *err);
/* Set layer l's neurons: device[i] is neuron i's, HS_PLACEMENT_HOST or less than n_devices. */
HS_NODISCARD hs_status hs_placement_spread(hs_placement *p, uint32_t l, const int32_t *device,
                                           hs_err *err);
/* What device d of p has, as a placement for one device with its capacity, bytes and ledger; of
 * a placement for one device, d = 0 is a copy. */
HS_NODISCARD hs_status hs_placement_view(hs_placement **out, const hs_placement *p, uint32_t d,
                                         hs_err *err);
/* Every tensor at its place in the file and cross-checked: gpu_idx only 0 and 1, gpu_bucket its
 * ascending list of ones, every layer present, nothing else in the file; of several devices,
 * numbers of devices that there are. */
HS_NODISCARD hs_status hs_placement_read(hs_placement **out, const char *path, hs_err *err);
HS_NODISCARD hs_status hs_placement_parse(hs_placement **out, const hs_gguf *g, hs_err *err);
/* The file's bytes into `out`, which the caller commits (after verifying what it wrote) or
 * aborts.  With `plain` only PowerInfer's own three KVs are written; for one device only. */
HS_NODISCARD hs_status hs_placement_write(const hs_placement *p, hs_out *out, bool plain,
                                          hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
