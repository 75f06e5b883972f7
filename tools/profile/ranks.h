#ifndef HS_PROFILE_RANKS_H
#define HS_PROFILE_RANKS_H

/* The processes that profile together: under mpirun, when built with MPI, as many as it started,
 * else this one alone.  Every function is called by all of them, at the same place. */

#include "formats/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct hs_ranks hs_ranks;

/* NULL where MPI is not in this build or not at work; every function accepts that. */
HS_NODISCARD hs_status hs_ranks_open(hs_ranks **out, hs_err *err);
void hs_ranks_close(hs_ranks *r);
int hs_ranks_index(const hs_ranks *r);
int hs_ranks_count(const hs_ranks *r);
/* The status of the lowest rank that did not succeed, and its message, for all of them. */
hs_status hs_ranks_agree(hs_ranks *r, hs_status mine, hs_err *err);
/* What rank 0 says. */
bool hs_ranks_same(hs_ranks *r, bool mine);
/* v of rank 0 becomes the sum over all ranks, v of the others zeros. */
HS_NODISCARD hs_status hs_ranks_sum(hs_ranks *r, int64_t *v, uint64_t n, hs_err *err);
/* Whether this build has MPI. */
bool hs_ranks_built(void);

#endif
