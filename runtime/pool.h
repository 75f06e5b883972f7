#ifndef HS_RUNTIME_POOL_H
#define HS_RUNTIME_POOL_H

/* One explicit thread pool.  The caller is worker 0; workers spin briefly, then sleep. */

#include "formats/err.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_pool hs_pool;

/* CPUs this process may use: the affinity mask's count, and no more than the quota. */
int hs_cpu_count(void);
/* CPUs' worth of time, rounded up, that the control groups listed in `groups` (as
 * /proc/self/cgroup) and mounted at `root` and those above them allow; 0: as many as there are. */
int hs_cpu_quota(const char *groups, const char *root);

/* n_threads in 1..1024, the caller included. */
HS_NODISCARD hs_status hs_pool_new(hs_pool **out, int n_threads, hs_err *err);
void hs_pool_free(hs_pool *pool);
int hs_pool_size(const hs_pool *pool);

/* for (b = 0; b < n; b += step) fn(ud, b, min(b + step, n)), in parallel; returns when all are
 * done.  pool == NULL runs it serially.  Not reentrant.  Which thread runs which range is not
 * defined, so fn writes only what its range owns. */
void hs_pool_run(hs_pool *pool, int64_t n, int64_t step,
                 void (*fn)(void *ud, int64_t begin, int64_t end), void *ud);

#ifdef __cplusplus
}
#endif

#endif
