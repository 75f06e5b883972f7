#ifndef HS_PROFILE_SUMMARY_H
#define HS_PROFILE_SUMMARY_H

/* What a profile says about sparsity, per layer and for the whole model.  Pure: counts in,
 * numbers out. */

#include "formats/activation.h"

enum { HS_SUMMARY_SHARES = 3, HS_SUMMARY_EXTREMES = 4 };

/* Percent of all activations that the hottest neurons are to make: 80, 90, 95. */
extern const int hs_summary_percent[HS_SUMMARY_SHARES];

typedef struct hs_summary_neuron {
    uint32_t layer, neuron;
    int64_t count;
    double frequency; /* count / tokens */
} hs_summary_neuron;

typedef struct hs_summary_part {
    uint64_t neurons;
    uint64_t dead;       /* never active */
    double active_share; /* mean over neurons and tokens */
    double gini;         /* 0: all neurons equally often; near 1: few make everything */
    /* The smallest share of neurons that together make hs_summary_percent[i] of the
     * activations; 0 when there is no activation at all. */
    double share[HS_SUMMARY_SHARES];
    /* Most active first, and least active (but active at least once) first; the lower layer
     * and number first among equals. */
    uint32_t n_hot, n_cold;
    hs_summary_neuron hot[HS_SUMMARY_EXTREMES], cold[HS_SUMMARY_EXTREMES];
} hs_summary_part;

typedef struct hs_summary {
    uint32_t n_layer;
    hs_summary_part *layer; /* [n_layer] */
    hs_summary_part model;
} hs_summary;

HS_NODISCARD hs_status hs_summary_new(hs_summary **out, const hs_activation *a, hs_err *err);
void hs_summary_free(hs_summary *s);

#endif
