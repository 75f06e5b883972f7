#ifndef HS_PROFILE_TALLY_H
#define HS_PROFILE_TALLY_H

/* What the positions of one chunk add to a profile.  Kept apart until the chunk is complete. */

#include "formats/activation.h"

typedef struct hs_tally hs_tally;

/* For a profile of this shape, with its statistics, neurons and thresholds (borrowed). */
HS_NODISCARD hs_status hs_tally_new(hs_tally **out, const hs_activation *shape, hs_err *err);
void hs_tally_free(hs_tally *t);
void hs_tally_clear(hs_tally *t);
/* From now on positions count as generated, or as given. */
void hs_tally_generated(hs_tally *t, bool generated);
/* An hs_observe_fn; `tally` is the hs_tally. */
void hs_tally_observe(void *tally, uint32_t layer, size_t pos, const float *z);
/* Add everything to `a`, whose shape it has, as part of text number `text`.  A sum that does
 * not fit is refused, `a` is then of no further use. */
HS_NODISCARD hs_status hs_tally_take(hs_tally *t, hs_activation *a, size_t text, hs_err *err);

/* An activation and its square as integers: rounded to nearest, magnitude at most
 * HS_ACTIVATION_CLAMP. */
int64_t hs_tally_fixed(float z);
int64_t hs_tally_square(float z);

#endif
