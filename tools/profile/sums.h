#ifndef HS_PROFILE_SUMS_H
#define HS_PROFILE_SUMS_H

/* The importance matrix of a model on the profiled texts: for every matrix, the squares of what
 * each of its input channels is multiplied with, summed over all tokens.  A neuron that is not
 * active adds nothing to its channel of ffn_down. */

#include "runtime/hotset.h"
#include "tools/profile/texts.h"

typedef struct hs_sums hs_sums;

HS_NODISCARD hs_status hs_sums_new(hs_sums **out, const hs_model *m, hs_err *err);
void hs_sums_free(hs_sums *s);
/* An hs_input_fn; ud is an hs_sums. */
void hs_sums_watch(void *ud, hs_input input, uint32_t layer, const float *x, size_t len, size_t n);
/* What was seen, of `n_chunks` chunks of `t`. */
HS_NODISCARD hs_status hs_sums_write(const hs_sums *s, const char *path, bool replace,
                                     const hs_texts *t, uint64_t n_chunks, hs_err *err);

#endif
