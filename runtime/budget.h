#ifndef HS_RUNTIME_BUDGET_H
#define HS_RUNTIME_BUDGET_H

/* What each placeable part of a model costs on the device, in bytes, alignment included: the
 * one source for the solver's ledger and for what the runtime allocates, so both agree to the
 * byte.  A session's arena on a device is hs_budget_device() of its placement. */

#include "formats/placement.h"
#include "runtime/hotset.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t hs_budget_attn(const hs_model *m, uint32_t layer);      /* attn_norm, q, k, v, output */
uint64_t hs_budget_predictor(const hs_model *m, uint32_t layer); /* fc1, fc2; 0: has none */
uint64_t hs_budget_ffn_norm(const hs_model *m, uint32_t layer);
uint64_t hs_budget_output(const hs_model *m); /* output_norm, output */
uint64_t hs_budget_kv(const hs_model *m, uint32_t n_ctx, uint32_t kv_type); /* of one layer */
/* k neurons of the layer: gate, up and down rows and the index table, each rounded up to
 * HS_DEVICE_ALIGN; exactly linear in k when k is a multiple of 64. */
uint64_t hs_budget_neurons(const hs_model *m, uint32_t layer, uint32_t k);
/* One neuron's own bytes: its rows in the file's types and its index entry, no alignment. */
uint64_t hs_budget_neuron_bytes(const hs_model *m, uint32_t layer);
/* Working buffers; needed once as soon as anything is on the device.  `output` and `kv` say
 * whether the head's logits and attention scores are there too. */
uint64_t hs_budget_scratch(const hs_model *m, uint32_t n_ctx, bool output, bool kv);
/* All of the above for what the placement puts on device d; 0: nothing. */
uint64_t hs_budget_device(const hs_model *m, const hs_placement *p, uint32_t d);
/* The same of all its devices. */
uint64_t hs_budget_total(const hs_model *m, const hs_placement *p);

/* HS_OK when p was made for a model of this shape and these weights; HS_ERR_FORMAT says what
 * differs.  A placement without a fingerprint is accepted when shapes agree. */
HS_NODISCARD hs_status hs_placement_check(const hs_placement *p, const hs_model *m, hs_err *err);

#ifdef __cplusplus
}
#endif

#endif
