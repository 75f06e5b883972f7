/* The processes of an mpirun.  MPI is started only where one of the usual launchers left its
 * mark in the environment: a program run by hand should not pay for it, nor fail with it. */
#include "tools/profile/ranks.h"

#include <inttypes.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* Counts are summed in pieces: MPI's own counts are ints. */
enum { PIECE = 1 << 24 };

struct hs_ranks {
    int index, count;
};

static bool launched(void)
{
    static const char *const mark[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof mark / sizeof *mark; i++)
        if (getenv(mark[i]))
            return true;
    return false;
}

hs_status hs_ranks_open(hs_ranks **out, hs_err *err)
{
    *out = NULL;
    if (!launched())
        return HS_OK;
    hs_ranks *r = calloc(1, sizeof *r);
    if (!r)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS ||
        MPI_Comm_rank(MPI_COMM_WORLD, &r->index) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, &r->count) != MPI_SUCCESS) {
        free(r);
        return hs_fail(err, HS_ERR_FAILED, "MPI cannot be started");
    }
    *out = r;
    return HS_OK;
}

void hs_ranks_close(hs_ranks *r)
{
    if (!r)
        return;
    MPI_Finalize();
    free(r);
}

int hs_ranks_index(const hs_ranks *r) { return r ? r->index : 0; }

int hs_ranks_count(const hs_ranks *r) { return r ? r->count : 1; }

hs_status hs_ranks_agree(hs_ranks *r, hs_status mine, hs_err *err)
{
    if (!r || r->count == 1)
        return mine;
    int first = mine == HS_OK ? r->count : r->index;
    MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == r->count)
        return HS_OK;
    hs_err told = {mine, ""};
    if (first == r->index && err)
        memcpy(told.msg, err->msg, sizeof told.msg);
    int code = (int)mine;
    MPI_Bcast(&code, 1, MPI_INT, first, MPI_COMM_WORLD);
    MPI_Bcast(told.msg, (int)sizeof told.msg, MPI_CHAR, first, MPI_COMM_WORLD);
    if (first != r->index)
        (void)hs_fail(err, (hs_status)code, "rank %d: %s", first, told.msg);
    return (hs_status)code;
}

bool hs_ranks_same(hs_ranks *r, bool mine)
{
    int v = mine;
    if (r)
        MPI_Bcast(&v, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return v != 0;
}

/* No addend is above its share of what fits, so that no sum can wrap. */
static hs_status check(hs_ranks *r, const int64_t *v, uint64_t n, hs_err *err)
{
    const int64_t most = INT64_MAX / r->count;
    hs_status s = HS_OK;
    for (uint64_t i = 0; s == HS_OK && i < n; i++)
        if (v[i] > most || v[i] < -most)
            s = hs_fail(err, HS_ERR_FAILED, "the sums of %d processes may not fit 63 bits",
                        r->count);
    return hs_ranks_agree(r, s, err);
}

hs_status hs_ranks_sum(hs_ranks *r, int64_t *v, uint64_t n, hs_err *err)
{
    if (!r || r->count == 1)
        return HS_OK;
    const hs_status s = check(r, v, n, err);
    for (uint64_t at = 0; s == HS_OK && at < n; at += PIECE) {
        const int k = (int)(n - at < PIECE ? n - at : PIECE);
        if (r->index == 0) {
            MPI_Reduce(MPI_IN_PLACE, v + at, k, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
        } else {
            MPI_Reduce(v + at, NULL, k, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
            memset(v + at, 0, (size_t)k * sizeof *v);
        }
    }
    return s;
}

bool hs_ranks_built(void) { return true; }
