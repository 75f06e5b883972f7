/* Dot products and axpy as a share of this machine's read bandwidth.
 *
 * Rows come from a buffer far larger than the last-level cache, one thread reads them once per
 * round, and a plain read of the same bytes is measured in alternation, so that a busy or
 * throttled machine slows both.  Medians over the rounds. */
#include "formats/dtype.h"
#include "runtime/kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { row_elems = 4096, rounds = 7, buffer_mib = 128, tokens = 64 };

typedef struct bench {
    uint8_t *rows;
    size_t bytes; /* of the buffer that is used */
    float *x, *y; /* [tokens][row_elems], [row_elems] */
    float *out;   /* a value for every row of the smallest type */
    hs_q8 q;
    double sink; /* keeps results alive */
} bench;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* not what other programs take */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* One word of every cache line: the whole line comes, and nothing else takes time. */
static double read_gbs(bench *b)
{
    enum { line = 64 };
    uint64_t sum[4] = {0}, v;
    const double t = now();
    for (size_t i = 0; i + 4 * line <= b->bytes; i += 4 * line)
        for (size_t j = 0; j < 4; j++) {
            memcpy(&v, b->rows + i + j * line, sizeof v);
            sum[j] += v;
        }
    const double seconds = now() - t;
    b->sink += (double)(sum[0] + sum[1] + sum[2] + sum[3]);
    return (double)b->bytes / seconds / 1e9;
}

/* All rows for one token, as a decoded token reads them. */
static double dot_gbs(bench *b, const hs_kernel_type *k, size_t row_bytes)
{
    const size_t n_rows = b->bytes / row_bytes;
    const double t = now();
    hs_kernel_tile(k, &(hs_tile){.row = b->rows,
                                 .row_bytes = row_bytes,
                                 .n_rows = n_rows,
                                 .x = b->x,
                                 .q = b->q,
                                 .n = 1,
                                 .cols = row_elems,
                                 .y = b->out});
    b->sink += (double)b->out[n_rows - 1];
    return (double)(n_rows * row_bytes) / (now() - t) / 1e9;
}

static double axpy_gbs(bench *b, const hs_kernel_type *k, size_t row_bytes)
{
    const size_t n_rows = b->bytes / row_bytes;
    const double t = now();
    hs_kernel_axpy_rows(k, &(hs_axpy_rows){.y = b->y,
                                           .a = b->out,
                                           .row = b->rows,
                                           .row_bytes = row_bytes,
                                           .n = n_rows,
                                           .end = row_elems});
    return (double)(n_rows * row_bytes) / (now() - t) / 1e9;
}

/* A few rows for a batch of tokens, from the near caches: weights per second and token. */
static double prompt_rate(bench *b, const hs_kernel_type *k, size_t row_bytes)
{
    enum { rows = 64, repeats = 4 };
    const double t = now();
    for (int i = 0; i < repeats; i++)
        hs_kernel_tile(k, &(hs_tile){.row = b->rows,
                                     .row_bytes = row_bytes,
                                     .n_rows = rows,
                                     .x = b->x,
                                     .q = b->q,
                                     .ldx = row_elems,
                                     .ldq = row_elems,
                                     .n = tokens,
                                     .cols = row_elems,
                                     .y = b->out,
                                     .ldy = rows});
    return (double)repeats * rows * tokens * row_elems / (now() - t) / 1e9;
}

static void measure(bench *b, const hs_kernels *k, const hs_dtype_info *info)
{
    const hs_kernel_type *type = &k->type[info->id];
    uint64_t row_bytes;
    if (!hs_dtype_row_bytes(info->id, row_elems, &row_bytes))
        return;
    double read[rounds], dot[rounds], axpy[rounds], prompt[rounds];
    for (int r = 0; r < rounds; r++) {
        read[r] = read_gbs(b);
        dot[r] = dot_gbs(b, type, row_bytes);
        memset(b->out, 0, b->bytes / row_bytes * sizeof *b->out);
        axpy[r] = axpy_gbs(b, type, row_bytes);
        prompt[r] = prompt_rate(b, type, row_bytes);
    }
    const double base = median(read, rounds), d = median(dot, rounds), a = median(axpy, rounds);
    printf("%-7s %-5s %8.2f %8.2f %5.0f%% %8.2f %5.0f%% %9.2f %9.2f\n", hs_cpu_name(k->level),
           info->name, base, d, 100 * d / base, a, 100 * a / base,
           d / (double)row_bytes * row_elems, median(prompt, rounds));
}

/* Every byte of a weight is 0x30 to 0x3b: small numbers in every type, no NaN, no denormal. */
static bool setup(bench *b)
{
    b->bytes = (size_t)buffer_mib << 20;
    b->rows = malloc(b->bytes);
    b->x = calloc((size_t)tokens * row_elems, sizeof *b->x);
    b->out = calloc(b->bytes / (row_elems / 32 * 8), sizeof *b->out);
    b->y = calloc(row_elems, sizeof *b->y);
    b->q.q = malloc((size_t)tokens * row_elems);
    b->q.d = calloc((size_t)tokens * row_elems / 32, sizeof *b->q.d);
    if (!b->rows || !b->x || !b->y || !b->out || !b->q.q || !b->q.d)
        return false;
    for (size_t i = 0; i < b->bytes; i++)
        b->rows[i] = (uint8_t)(0x30 + i % 12);
    for (size_t i = 0; i < (size_t)tokens * row_elems; i++) {
        b->x[i] = (float)(i % 7) - 3;
        b->q.q[i] = (int8_t)(i % 255 - 127);
        b->q.d[i / 32] = 0.01f;
    }
    return true;
}

int main(void)
{
    static const hs_dtype types[] = {HS_F32,  HS_F16,  HS_BF16, HS_Q8_0,   HS_Q5_0,
                                     HS_Q4_0, HS_Q6_K, HS_Q4_1, HS_Q5_1,   HS_Q2_K,
                                     HS_Q3_K, HS_Q4_K, HS_Q5_K, HS_IQ4_NL, HS_IQ4_XS};
    bench b = {0};
    if (!setup(&b)) {
        fputs("bench_kernels: out of memory\n", stderr);
        return 4;
    }
    printf("one thread, rows of %d elements from %d MiB, GB/s, medians of %d\n", row_elems,
           buffer_mib, rounds);
    printf("level   type      read      dot  share     axpy  share dot Gelem/s, %d tokens\n",
           (int)tokens);
    hs_kernels k;
    hs_cpu_level last = HS_CPU_NEON;
    for (int level = (int)hs_cpu_detect(); level >= HS_CPU_SCALAR; level--) {
        hs_kernels_init(&k, (hs_cpu_level)level);
        if (k.level == last)
            continue; /* a level without kernels of its own */
        last = k.level;
        if (k.level == HS_CPU_SCALAR)
            b.bytes /= 16; /* far from bandwidth: a smaller buffer tells the same sooner */
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
            measure(&b, &k, hs_dtype_get(types[t]));
    }
    free(b.rows);
    free(b.x);
    free(b.out);
    free(b.y);
    free(b.q.q);
    free(b.q.d);
    return b.sink == 0.5; /* never: uses the results */
}
