#ifndef HS_TOOLS_BENCH_MEASURE_H
#define HS_TOOLS_BENCH_MEASURE_H

/* What hotset-bench measures: tests of a model in alternation, and the memory they read. */

#include "formats/err.h"
#include "runtime/hotset.h"
#include "tools/bench/list.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row of the table. */
typedef struct hs_bench_test {
    int64_t n_threads, n_prompt, n_gen; /* one of the last two is 0 */
    const char *sparsity;               /* as asked for */
    hs_session *session;                /* borrowed; tests of one mode and thread count share it */
    double *ts;                         /* [reps] tokens per second */
    double *read;                       /* [reps] bytes per second that a plain read reached */
    double *ratio; /* [reps] speed by that of the base in the same round; NULL: this is a base */
    double bytes_per_token; /* generation only; 0: unknown (a device has a share) */
    double predicted_share, active_share, device_share;
} hs_bench_test;

/* One run of `t`: its tokens per second. */
HS_NODISCARD hs_status hs_bench_run(const hs_bench_test *t, const hs_model *m, double *ts,
                                    hs_err *err);

/* Fill in the shares and the bytes that one token of generation reads, from the statistics. */
void hs_bench_account(hs_bench_test *t, const hs_model *m, bool kv_f32);

/* Read bandwidth of n threads over a buffer larger than the caches. */
typedef struct hs_bench_probe hs_bench_probe;
HS_NODISCARD hs_status hs_bench_probe_new(hs_bench_probe **out, int n_threads, hs_err *err);
double hs_bench_probe_run(hs_bench_probe *p); /* bytes per second */
void hs_bench_probe_free(hs_bench_probe *p);

#ifdef __cplusplus
}
#endif

#endif
