#ifndef HS_FORMATS_PLACEMENT_IMPL_H
#define HS_FORMATS_PLACEMENT_IMPL_H

/* Names that reading and writing placements share. */

#include "formats/placement.h"

#include <stddef.h>

#define ARCHITECTURE       "generic.gpu_index"
#define KEY_LAYERS         "generic.gpu_index.block_count"
#define KEY_CAPACITY       "split.vram_capacity"
#define KEY_PRINT          "hotset.model_fingerprint"
#define MULTI_ARCHITECTURE "hotset.placement"
#define MULTI_LAYERS       "hotset.placement.block_count"
#define MULTI_CAPACITY     "hotset.placement.device_capacity"
#define MULTI_BYTES        "hotset.placement.device_bytes"
#define MULTI_OUTPUT       "hotset.plan.output_device"

/* A dense block of a layer: where hs_placement_layer has it, and the keys of a file for one
 * device (bool) and for several (the device's number, -1: host). */
typedef struct placement_block {
    size_t on, device;
    const char *flags, *devices;
} placement_block;

enum { PLACEMENT_BLOCKS = 4, PLACEMENT_KV = 3 };
static const placement_block placement_block_of[PLACEMENT_BLOCKS] = {
    {offsetof(hs_placement_layer, attn), offsetof(hs_placement_layer, attn_device),
     "hotset.plan.attn_layers", "hotset.plan.attn_device"},
    {offsetof(hs_placement_layer, predictor), offsetof(hs_placement_layer, predictor_device),
     "hotset.plan.predictor_layers", "hotset.plan.predictor_device"},
    {offsetof(hs_placement_layer, ffn_norm), offsetof(hs_placement_layer, ffn_norm_device),
     "hotset.plan.ffn_norm_layers", "hotset.plan.ffn_norm_device"},
    {offsetof(hs_placement_layer, kv), offsetof(hs_placement_layer, kv_device),
     "hotset.plan.kv_layers", "hotset.plan.kv_device"},
};

#endif
