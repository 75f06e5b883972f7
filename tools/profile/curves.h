#ifndef HS_PROFILE_CURVES_H
#define HS_PROFILE_CURVES_H

/* The series of the report's plots.  Pure: a profile in, numbers out. */

#include "formats/activation.h"

enum { HS_CURVE_POINTS = 101, HS_RANK_BINS = 128, HS_ACTIVE_BINS = 101 };

typedef struct hs_curves {
    uint32_t n_layer;
    /* [n_layer + 1][HS_CURVE_POINTS]: share of activations made by the hottest i % of the
     * neurons; the last row is the whole model's. */
    double *cumulative;
    /* [n_layer][HS_RANK_BINS]: mean frequency of the neurons of each rank, hottest first. */
    double *rank;
    /* [n_layer][HS_ACTIVE_BINS]: share of the positions at which i to i + 1 % of the layer's
     * neurons are active; NULL without the histogram. */
    double *active;
    /* Between the texts, NULL unless there are counts of at least two:
     * [n_text][n_text] Jaccard index of their hot sets (per layer the hottest neurons that make
     * 80 % of its activations), and the share of text j's activations that the hot set of text i
     * serves. */
    size_t n_text;
    double *jaccard, *served;
} hs_curves;

HS_NODISCARD hs_status hs_curves_new(hs_curves **out, const hs_activation *a, hs_err *err);
void hs_curves_free(hs_curves *c);

/* Marks in hot[n] the hottest neurons that make `percent` of the counts, the lower number first
 * among equals. */
HS_NODISCARD hs_status hs_curves_hot(bool *hot, const int64_t *count, size_t n, int percent,
                                     hs_err *err);

#endif
