/* A build without MPI: one process. */
#include "tools/profile/ranks.h"

#include <stddef.h>

hs_status hs_ranks_open(hs_ranks **out, hs_err *err)
{
    (void)err;
    *out = NULL;
    return HS_OK;
}

void hs_ranks_close(hs_ranks *r) { (void)r; }

int hs_ranks_index(const hs_ranks *r)
{
    (void)r;
    return 0;
}

int hs_ranks_count(const hs_ranks *r)
{
    (void)r;
    return 1;
}

hs_status hs_ranks_agree(hs_ranks *r, hs_status mine, hs_err *err)
{
    (void)r;
    (void)err;
    return mine;
}

bool hs_ranks_same(hs_ranks *r, bool mine)
{
    (void)r;
    return mine;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): with MPI the sum is written there */
hs_status hs_ranks_sum(hs_ranks *r, int64_t *v, uint64_t n, hs_err *err)
{
    (void)r;
    (void)v;
    (void)n;
    (void)err;
    return HS_OK;
}

bool hs_ranks_built(void) { return false; }
