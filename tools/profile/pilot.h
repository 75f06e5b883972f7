#ifndef HS_PROFILE_PILOT_H
#define HS_PROFILE_PILOT_H

/* What must be known before counting starts: the neurons whose pairs are counted and the
 * magnitudes that count as active.  If they came from the texts, profiles of different texts
 * would not add up; they come from a short text that the model writes itself, always the same
 * one, and so are facts of the model. */

#include "formats/activation.h"
#include "runtime/hotset.h"

enum { HS_PILOT_TOKENS = 128 };

/* Fill a->top (a->n_top of each layer, when it has HS_STAT_COACTIVE) and a->threshold (when
 * a->magnitude).  `params` are the session's, its context is set here. */
HS_NODISCARD hs_status hs_pilot_run(hs_activation *a, const hs_model *m, hs_session_params params,
                                    hs_err *err);

/* The magnitudes below which 50, 70, 80, 90 and 95 % of the n samples lie; sorts them. */
void hs_pilot_quantiles(float threshold[HS_MAGNITUDE_LEVELS], float *sample, size_t n);
/* Numbers of the n_top largest counts, the lower number first among equals, rising. */
HS_NODISCARD hs_status hs_pilot_hottest(int32_t *top, uint32_t n_top, const int64_t *count,
                                        uint32_t n, hs_err *err);

#endif
