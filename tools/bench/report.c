#include "tools/bench/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *samples(const double *v, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < n; i++)
        if (json_array_append_new(a, json_real(v[i]))) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static double median_of(const double *v, size_t n)
{
    double *copy = malloc(n * sizeof *copy);
    if (!copy)
        return (double)NAN;
    memcpy(copy, v, n * sizeof *copy);
    const double m = hs_bench_median(copy, n);
    free(copy);
    return m;
}

static json_t *real_or_null(double v) { return isfinite(v) && v > 0 ? json_real(v) : json_null(); }

static bool add_ratio(json_t *o, const hs_bench_test *t, size_t n)
{
    if (!t->ratio)
        return !json_object_set_new(o, "ratio", json_null());
    double low = t->ratio[0], high = t->ratio[0];
    for (size_t i = 1; i < n; i++) {
        low = t->ratio[i] < low ? t->ratio[i] : low;
        high = t->ratio[i] > high ? t->ratio[i] : high;
    }
    return !json_object_set_new(o, "ratio", json_real(median_of(t->ratio, n))) &&
           !json_object_set_new(o, "ratio_min", json_real(low)) &&
           !json_object_set_new(o, "ratio_max", json_real(high));
}

json_t *hs_bench_row_json(const hs_bench_row *r)
{
    const hs_bench_test *t = r->test;
    const size_t n = r->reps;
    const double mean = hs_bench_mean(t->ts, n), median = median_of(t->ts, n);
    const double read = t->read ? median_of(t->read, n) : 0;
    const double rate = t->bytes_per_token * median;
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:f, "
        "s:f, s:f}",
        "model_filename", r->file, "model_type", r->type, "model_size", (json_int_t)r->size,
        "model_n_params", (json_int_t)r->n_params, "n_threads", (json_int_t)t->n_threads,
        "n_prompt", (json_int_t)t->n_prompt, "n_gen", (json_int_t)t->n_gen, "sparsity", t->sparsity,
        "avg_ts", mean, "stddev_ts", hs_bench_deviation(t->ts, n), "median_ts", median,
        "samples_ts", samples(t->ts, n), "bytes_per_token", real_or_null(t->bytes_per_token),
        "gb_per_s", real_or_null(rate / 1e9), "read_gb_per_s", real_or_null(read / 1e9),
        "read_share", real_or_null(rate / read), "predicted_share", t->predicted_share,
        "active_share", t->active_share, "device_share", t->device_share);
    if (o && !add_ratio(o, t, n)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

void hs_bench_head(hs_bench_format f)
{
    if (f == HS_BENCH_MD)
        puts(
            "| model                    |        size | params | threads | sparsity  |   test |    "
            "     "
            "       t/s | MiB/token |  GB/s | of read | active | device |            ratio |\n"
            "| ------------------------ | ----------: | -----: | ------: | --------- | -----: | "
            "-----------------: | --------: | ----: | ------: | -----: | -----: | "
            "---------------: |");
    if (f == HS_BENCH_CSV)
        puts(
            "model_filename,model_type,model_size,model_n_params,n_threads,n_prompt,n_gen,sparsity,"
            "avg_ts,stddev_ts,median_ts,bytes_per_token,gb_per_s,read_gb_per_s,read_share,"
            "predicted_share,active_share,device_share,ratio,ratio_min,ratio_max");
}

static double get(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* A figure, or a dash where there is none. */
static void cell(const json_t *o, const char *key, double scale, int width, int digits)
{
    if (json_is_number(json_object_get(o, key)))
        printf(" %*.*f |", width, digits, get(o, key) * scale);
    else
        printf(" %*s |", width, "-");
}

static void print_md(const hs_bench_row *r, const json_t *o)
{
    const hs_bench_test *t = r->test;
    char test[32], speed[48], ratio[48] = "-";
    snprintf(test, sizeof test, "%s%lld", t->n_prompt ? "pp" : "tg",
             (long long)(t->n_prompt ? t->n_prompt : t->n_gen));
    snprintf(speed, sizeof speed, "%.2f ± %.2f", get(o, "avg_ts"), get(o, "stddev_ts"));
    if (t->ratio)
        snprintf(ratio, sizeof ratio, "%.2f (%.2f–%.2f)", get(o, "ratio"), get(o, "ratio_min"),
                 get(o, "ratio_max"));
    /* ± and – are two and three bytes of one column each. */
    printf("| %-24s | %7.1f MiB | %5.2fB | %7lld | %-9s | %6s | %*s |", r->type,
           (double)r->size / 1048576.0, (double)r->n_params / 1e9, (long long)t->n_threads,
           t->sparsity, test, 19, speed);
    cell(o, "bytes_per_token", 1 / 1048576.0, 9, 1);
    cell(o, "gb_per_s", 1, 5, 2);
    cell(o, "read_share", 100, 6, 1);
    cell(o, "active_share", 100, 5, 1);
    cell(o, "device_share", 100, 5, 1);
    printf(" %*s |\n", t->ratio ? 18 : 16, ratio);
}

static void print_csv(const json_t *o)
{
    static const char *const keys[] = {
        "model_filename",  "model_type",      "model_size",   "model_n_params", "n_threads",
        "n_prompt",        "n_gen",           "sparsity",     "avg_ts",         "stddev_ts",
        "median_ts",       "bytes_per_token", "gb_per_s",     "read_gb_per_s",  "read_share",
        "predicted_share", "active_share",    "device_share", "ratio",          "ratio_min",
        "ratio_max"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *v = json_object_get(o, keys[i]);
        if (i)
            putchar(',');
        if (json_is_string(v)) { /* RFC 4180: quotes are doubled */
            putchar('"');
            for (const char *c = json_string_value(v); *c; c++)
                printf(*c == '"' ? "\"\"" : "%c", *c);
            putchar('"');
        } else if (json_is_integer(v)) {
            printf("%lld", (long long)json_integer_value(v));
        } else if (json_is_real(v)) {
            printf("%.9g", json_real_value(v));
        }
    }
    putchar('\n');
}

void hs_bench_print(hs_bench_format f, const hs_bench_row *r, bool first, const json_t *o)
{
    if (f == HS_BENCH_MD)
        print_md(r, o);
    else if (f == HS_BENCH_CSV)
        print_csv(o);
    else {
        if (f == HS_BENCH_JSON)
            fputs(first ? "[\n" : ",\n", stdout);
        json_dumpf(o, stdout, JSON_REAL_PRECISION(9));
        if (f == HS_BENCH_JSONL)
            putchar('\n');
    }
    fflush(stdout);
}
