#ifndef HS_TOOLS_BENCH_REPORT_H
#define HS_TOOLS_BENCH_REPORT_H

/* The rows that hotset-bench prints. */

#include "tools/bench/measure.h"

#include <jansson.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hs_bench_row {
    const char *file;
    const char *type; /* "llama 0.9B Q4_0": architecture, size, most frequent tensor type */
    uint64_t n_params, size, reps;
    const hs_bench_test *test;
} hs_bench_row;

typedef enum hs_bench_format {
    HS_BENCH_MD,
    HS_BENCH_CSV,
    HS_BENCH_JSON,
    HS_BENCH_JSONL
} hs_bench_format;

/* A new object with every figure of a row; NULL when out of memory. */
json_t *hs_bench_row_json(const hs_bench_row *r);
void hs_bench_head(hs_bench_format f);
void hs_bench_print(hs_bench_format f, const hs_bench_row *r, bool first, const json_t *o);

#ifdef __cplusplus
}
#endif

#endif
