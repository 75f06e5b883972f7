#ifndef HS_TOOLS_BENCH_LIST_H
#define HS_TOOLS_BENCH_LIST_H

/* Lists and ranges of numbers in options: "1,2,8", "1-4", "16-64+16", "1-8*2". */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { HS_BENCH_MAX_LIST = 64 };

typedef struct hs_bench_list {
    int64_t v[HS_BENCH_MAX_LIST];
    size_t n;
} hs_bench_list;

/* False when `s` is none, a number is outside [min, max] or there are too many. */
bool hs_bench_list_parse(hs_bench_list *out, const char *s, int64_t min, int64_t max);

/* Sorts v. */
double hs_bench_median(double *v, size_t n);
double hs_bench_mean(const double *v, size_t n);
/* Of a sample; 0 for one value. */
double hs_bench_deviation(const double *v, size_t n);

#ifdef __cplusplus
}
#endif

#endif
