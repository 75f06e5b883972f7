/* The processor's rates.  Rows are read in turn through more memory than caches hold, each
 * repetition going on where the one before stopped. */
#include "tools/profile/measure.h"

#include "runtime/kernels.h"
#include "runtime/pool.h"

#include <gsl/gsl_statistics_double.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS = 4096, SPARSE_STEP = 13, MAX_REPETITIONS = 64 };

hs_measure hs_measure_defaults(void)
{
    return (hs_measure){.level = hs_cpu_detect(),
                        .threads = hs_cpu_count(),
                        .repetitions = 5,
                        .seconds = 0.04,
                        .bytes = (uint64_t)256 << 20};
}

void hs_measure_mean(double *mean, double *spread, const double *v, size_t n)
{
    *mean = gsl_stats_mean(v, 1, n);
    *spread = n > 1 && *mean > 0 ? gsl_stats_sd(v, 1, n) / *mean : 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct reader {
    const hs_measure *p;
    const hs_kernel_type *k;
    hs_pool *pool;
    uint8_t *data;
    size_t row_bytes, rows; /* of the whole memory */
    size_t at, n, step;     /* rows at, at + step, … : n of them, round and round */
    const float *x;
    hs_q8 q;
    float *y;  /* [COLUMNS] */
    float *to; /* [rows] results of the dot products */
} reader;

static const uint8_t *row(const reader *r, size_t i)
{
    return r->data + (r->at + i * r->step) % r->rows * r->row_bytes;
}

static void dots(void *ud, int64_t begin, int64_t end)
{
    const reader *r = ud;
    for (int64_t i = begin; i < end; i++)
        r->to[i] = r->k->dot(row(r, (size_t)i), r->x, r->q, COLUMNS);
}

/* As in the runtime, a thread has some columns of all rows. */
static void axpys(void *ud, int64_t begin, int64_t end)
{
    const reader *r = ud;
    for (size_t i = 0; i < r->n; i++)
        r->k->axpy(r->y, 0x1p-20f, row(r, i), (size_t)begin, (size_t)end);
}

static int64_t columns_each(const reader *r)
{
    const int64_t share = (int64_t)COLUMNS / hs_pool_size(r->pool) / 256 * 256;
    return share > 256 ? share : 256;
}

/* Seconds for n rows. */
static double pass(reader *r, bool sparse)
{
    const double start = now();
    hs_pool_run(r->pool, (int64_t)r->n, 16, dots, r);
    if (sparse)
        hs_pool_run(r->pool, COLUMNS, columns_each(r), axpys, r);
    r->at = (r->at + r->n * r->step) % r->rows;
    const double took = now() - start;
    return took > 1e-9 ? took : 1e-9;
}

static void rate(reader *r, bool sparse, double *mean, double *spread)
{
    double v[MAX_REPETITIONS];
    const int reps = r->p->repetitions < MAX_REPETITIONS ? r->p->repetitions : MAX_REPETITIONS;
    r->step = sparse ? SPARSE_STEP : 1;
    r->n = r->rows < 512 ? r->rows : 512;
    const double rows = (double)r->n / pass(r, sparse) * r->p->seconds;
    r->n = rows < 64 ? 64 : rows < (double)r->rows ? (size_t)rows : r->rows;
    r->n = r->n < r->rows ? r->n : r->rows;
    for (int i = 0; i < reps; i++)
        v[i] = (double)(r->n * r->row_bytes) * (sparse ? 2 : 1) / pass(r, sparse);
    hs_measure_mean(mean, spread, v, (size_t)reps);
}

static bool step(const hs_measure *p, uint64_t done, uint64_t total)
{
    return !p->progress || p->progress(p->progress_ud, done, total);
}

/* One row of the type, everywhere. */
static void fill(reader *r, hs_dtype type, const float *x, uint64_t bytes)
{
    uint64_t row_bytes = 0;
    (void)hs_dtype_row_bytes(type, COLUMNS, &row_bytes);
    r->row_bytes = row_bytes;
    r->rows = bytes / row_bytes;
    hs_dtype_get(type)->encode(r->data, x, COLUMNS);
    for (size_t i = 1; i < r->rows; i++)
        memcpy(r->data + i * row_bytes, r->data, row_bytes);
}

/* 1, 2, 4, … and the most. */
static size_t thread_counts(int *count, int most)
{
    size_t n = 0;
    for (int t = 1; t < most; t *= 2)
        count[n++] = t;
    count[n++] = most;
    return n;
}

static hs_status bandwidth(hs_machine_cpu *out, reader *r, const hs_kernels *k, int *best,
                           hs_err *err)
{
    int count[32];
    const size_t n = thread_counts(count, r->p->threads);
    double most = 0;
    fill(r, HS_F32, r->x, r->p->bytes);
    r->k = &k->type[HS_F32];
    for (size_t i = 0; i < n; i++) {
        if (!step(r->p, i, n + HS_DTYPE_LIMIT))
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted; nothing was written");
        const hs_status s = hs_pool_new(&r->pool, count[i], err);
        if (s != HS_OK)
            return s;
        hs_machine_point *p = &out->bandwidth.point[out->bandwidth.n++];
        p->at = (uint64_t)count[i];
        rate(r, false, &p->rate, &p->spread);
        hs_pool_free(r->pool);
        if (p->rate > most) {
            most = p->rate;
            *best = count[i];
        }
    }
    return HS_OK;
}

static hs_status types(hs_machine_cpu *out, reader *r, const hs_kernels *k, int threads,
                       hs_err *err)
{
    hs_status s = hs_pool_new(&r->pool, threads, err);
    if (s != HS_OK)
        return s;
    for (uint32_t t = 0; s == HS_OK && t < HS_DTYPE_LIMIT; t++) {
        const hs_dtype_info *info = hs_dtype_get(t);
        if (!info || k->type[t].act == HS_ACT_NONE || !info->encode)
            continue;
        if (!step(r->p, t, HS_DTYPE_LIMIT + 4))
            s = hs_fail(err, HS_ERR_INTERRUPTED, "interrupted; nothing was written");
        fill(r, info->id, r->x, r->p->bytes);
        r->k = &k->type[t];
        hs_machine_rate *rates = &out->type[t];
        rate(r, false, &rates->dense, &rates->dense_spread);
        if (r->k->axpy)
            rate(r, true, &rates->sparse, &rates->sparse_spread);
    }
    hs_pool_free(r->pool);
    return s;
}

static void describe(hs_machine_cpu *out)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        colon += strspn(colon, ": \t");
        snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (f)
        fclose(f);
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0)
        out->memory = (uint64_t)pages * (uint64_t)page;
}

hs_status hs_measure_cpu(hs_machine_cpu *out, const hs_measure *p, hs_err *err)
{
    hs_kernels k;
    hs_kernels_init(&k, p->level);
    float *x = malloc((2 * COLUMNS + COLUMNS / 32) * sizeof *x);
    int8_t *q = malloc(COLUMNS);
    reader r = {.p = p, .x = x};
    r.data = malloc(p->bytes);
    r.to = malloc((p->bytes / COLUMNS * 4 + 1) * sizeof *r.to);
    hs_status s = x && q && r.data && r.to
                      ? HS_OK
                      : hs_fail(err, HS_ERR_NOMEM, "measuring needs %llu bytes of memory",
                                (unsigned long long)p->bytes);
    if (s == HS_OK) {
        for (int i = 0; i < COLUMNS; i++) {
            x[i] = (float)(i * 37 % 101 - 50) / 64;
            x[COLUMNS + i] = 0;
        }
        r.y = x + COLUMNS;
        r.q = (hs_q8){q, x + (size_t)2 * COLUMNS};
        k.quantize_q8(r.q, x, COLUMNS);
        describe(out);
        int best = 1;
        s = bandwidth(out, &r, &k, &best, err);
        if (s == HS_OK)
            s = types(out, &r, &k, best, err);
    }
    free(r.to);
    free(r.data);
    free(q);
    free(x);
    return s;
}
