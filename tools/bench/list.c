#include "tools/bench/list.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static bool number(const char **p, int64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**p))
        return false;
    errno = 0;
    *out = strtoll(*p, &end, 10);
    *p = end;
    return errno == 0;
}

static bool add(hs_bench_list *l, int64_t v, int64_t min, int64_t max)
{
    if (v < min || v > max || l->n == HS_BENCH_MAX_LIST)
        return false;
    l->v[l->n++] = v;
    return true;
}

/* One entry: a number, or first-last with +step or *factor. */
static bool entry(hs_bench_list *l, const char **p, int64_t min, int64_t max)
{
    int64_t first, last, by = 1;
    char how = '+';
    if (!number(p, &first))
        return false;
    if (**p != '-')
        return add(l, first, min, max);
    ++*p;
    if (!number(p, &last) || last < first || last > max)
        return false;
    if (**p == '+' || **p == '*') {
        how = *(*p)++;
        if (!number(p, &by) || by < (how == '*' ? 2 : 1) || (how == '*' && first == 0))
            return false;
    }
    for (int64_t v = first; v <= last;) {
        if (!add(l, v, min, max))
            return false;
        if (how == '+' ? by > last - v : v > last / by)
            break;
        v = how == '+' ? v + by : v * by;
    }
    return true;
}

bool hs_bench_list_parse(hs_bench_list *out, const char *s, int64_t min, int64_t max)
{
    out->n = 0;
    for (;;) {
        if (!entry(out, &s, min, max))
            return false;
        if (*s == '\0')
            return true;
        if (*s++ != ',')
            return false;
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double hs_bench_median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double hs_bench_mean(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    return sum / (double)n;
}

double hs_bench_deviation(const double *v, size_t n)
{
    const double mean = hs_bench_mean(v, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (v[i] - mean) * (v[i] - mean);
    return n > 1 ? sqrt(sum / (double)(n - 1)) : 0;
}
