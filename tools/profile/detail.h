#ifndef HS_PROFILE_DETAIL_H
#define HS_PROFILE_DETAIL_H

/* What the further statistics of a profile say about one layer.  Pure: numbers in, numbers out;
 * what the profile does not have is NaN. */

#include "formats/activation.h"

typedef struct hs_detail {
    double low, median, high; /* share of neurons active at a position: 5, 50, 95 % of them
                                 have no more */
    double mean;              /* of all activations, inactive ones included */
    double mean_square;
    double given, generated; /* share active at positions of the texts, of the model's own */
    /* Of a model whose activation is never zero, per level: the threshold, the share of
     * activations at or above it on these texts, the share of the sum of squares they hold. */
    double threshold[HS_MAGNITUDE_LEVELS], active[HS_MAGNITUDE_LEVELS], kept[HS_MAGNITUDE_LEVELS];
} hs_detail;

void hs_detail_layer(hs_detail *d, const hs_activation *a, uint32_t layer);
/* Share of a layer's neurons that at most `percent` of the positions exceed; NaN without the
 * histogram. */
double hs_detail_quantile(const hs_activation *a, uint32_t layer, int percent);
/* Share of an FFN's bytes that a token reads when `active` of its neurons have up and down
 * read, and all of them gate. */
double hs_detail_bytes(double active);

#endif
