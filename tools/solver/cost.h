#ifndef HS_TOOLS_SOLVER_COST_H
#define HS_TOOLS_SOLVER_COST_H

/* How long a step takes: the bytes of each part over what the machine reads in a second, copies
 * and waiting.  A step is one token, or `batch` tokens evaluated together, for which weights are
 * read once: a neuron that is active for a share f of the tokens is read in 1 - (1 - f)^batch of
 * the steps.  docs/placement.md has the formulas. */

#include "formats/activation.h"
#include "formats/machine.h"
#include "formats/placement.h"
#include "runtime/model.h"

enum { HS_ON_CPU, HS_ON_DEVICE, HS_PLACES };

/* Seconds a step, on the CPU and on the device. */
typedef struct hs_cost_layer {
    double attn[HS_PLACES];      /* weights */
    double kv[HS_PLACES];        /* reading the cache */
    double predictor[HS_PLACES]; /* 0: not used */
    double always[HS_PLACES];    /* a neuron, whether active or not */
    double active[HS_PLACES];    /* what an active one takes beyond that */
    float *share;                /* [n_ff]: of the steps in which the neuron is active */
} hs_cost_layer;

typedef struct hs_cost {
    uint32_t n_layer, n_ff, batch;
    hs_cost_layer *layer; /* [n_layer]; owned, as the shares behind layer[0].share */
    double output[HS_PLACES];
    double sync;      /* waiting for the device once */
    double copy_attn; /* copies of an attention block with its KV cache, in one step … */
    double copy_qkv;  /* … and of one whose cache stays with the CPU; it waits twice */
    double copy_ffn;  /* of an FFN whose scores the CPU has made, if any … */
    double copy_predictor, copy_norm; /* … or the device; and without the FFN norm there */
    double copy_output;
} hs_cost;

typedef struct hs_cost_params {
    const hs_machine *machine;
    uint32_t device;         /* which of its devices */
    uint32_t n_ctx, kv_type; /* half of the context is taken to be filled */
    uint32_t threads;        /* 0: as many as read fastest */
    uint32_t batch;          /* at least 1 */
} hs_cost_params;

/* The model runs as `--sparsity auto` decides. */
HS_NODISCARD hs_status hs_cost_init(hs_cost *c, const hs_model *m, const hs_activation *profile,
                                    const hs_cost_params *p, hs_err *err);
void hs_cost_fini(hs_cost *c);

/* Seconds of a step under placement p, added up neuron by neuron. */
double hs_cost_step(const hs_cost *c, const hs_placement *p);
/* The least number of layer l's hottest neurons for which the device's time plus copies and one
 * synchronisation is no more than the CPU's; n_ff + 1 when there is none. */
uint32_t hs_cost_least(const hs_cost *c, uint32_t l, const int32_t *order);

/* Of an FFN: seconds for the device's and the CPU's neurons given, with copies and waiting. */
double hs_cost_ffn(const hs_cost *c, uint32_t l, bool predictor, bool norm, bool any, double device,
                   double cpu);
/* Of an attention block. */
double hs_cost_attn(const hs_cost *c, uint32_t l, bool attn, bool kv);
double hs_cost_output(const hs_cost *c, bool device);

#endif
