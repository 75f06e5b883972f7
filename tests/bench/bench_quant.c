/* The quantizer's kernels: weights per second on one core, and what they lose.
 *
 *   bench_quant [speed | error]
 *
 * Where HS_PEER_GGML names a libggml-base.so, the same is
 * measured of its ggml_quantize_chunk, in alternation: speed in medians, error as a ratio, below
 * 1 where ours is the smaller.  Errors are root mean squares relative to the weights' own, on
 * bell-shaped and heavy-tailed weights and, where HS_BENCH_MODEL names a GGUF file, on all its
 * matrices; "weighted" is the same under importances that differ by channel. */
#include "formats/gguf.h"
#include "runtime/encode.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { row = 1024, rows = 96, size = row * rows, turns = 9, real_rows = 24 };

typedef size_t quantize_fn(int type, const float *src, void *dst, int64_t start, int64_t n_rows,
                           int64_t per_row, const float *imatrix);

static const hs_dtype types[] = {HS_Q8_0, HS_Q4_0, HS_Q4_1, HS_Q5_0, HS_Q5_1,   HS_Q2_K,
                                 HS_Q3_K, HS_Q4_K, HS_Q5_K, HS_Q6_K, HS_IQ4_NL, HS_IQ4_XS};
enum { n_types = sizeof types / sizeof *types };

static uint64_t seed = 1;

static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(seed >> 40) * 0x1p-24f;
}

static float normal(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

/* Student's t with three degrees of freedom. */
static float heavy(void)
{
    const float a = normal(), b = normal(), c = normal();
    return normal() / sqrtf((a * a + b * b + c * c) / 3 + 1e-6f);
}

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

static double median(double *v)
{
    qsort(v, turns, sizeof *v, by_value);
    return v[turns / 2];
}

/* --- speed -------------------------------------------------------------- */

/* The quick types several times: a measurement of microseconds says nothing. */
static double seconds(hs_encode_fn *encode, quantize_fn *peer, const hs_dtype_info *t,
                      const float *x, uint8_t *out)
{
    const int repeats = t->block_elems == 32 && t->id != HS_IQ4_NL ? 40 : 1;
    const double start = now();
    for (int r = 0; r < repeats; r++) {
        if (peer)
            peer((int)t->id, x, out, 0, rows, row, NULL);
        else
            encode(out, x, size);
    }
    return (now() - start) / repeats;
}

static void speed(quantize_fn *peer, const float *x, uint8_t *out)
{
    printf("one core, million weights per second, medians of %d\ntype   ", turns);
    for (int level = HS_CPU_SCALAR; level <= (int)hs_cpu_detect(); level++)
        printf(" %9s", hs_cpu_name((hs_cpu_level)level));
    printf(" %9s\n", peer ? "reference" : "");
    for (size_t k = 0; k < n_types; k++) {
        const hs_dtype_info *t = hs_dtype_get(types[k]);
        double v[4][turns];
        for (int r = 0; r < turns; r++) {
            for (int level = HS_CPU_SCALAR; level <= (int)hs_cpu_detect(); level++)
                v[level][r] = seconds(hs_encoder(t, (hs_cpu_level)level), NULL, t, x, out);
            v[3][r] = peer ? seconds(NULL, peer, t, x, out) : 1;
        }
        printf("%-7s", t->name);
        for (int level = HS_CPU_SCALAR; level <= (int)hs_cpu_detect(); level++)
            printf(" %9.1f", size / median(v[level]) / 1e6);
        if (peer)
            printf(" %9.1f", size / median(v[3]) / 1e6);
        putchar('\n');
    }
}

/* --- error -------------------------------------------------------------- */

typedef struct sums {
    double lost, all;
} sums;

static void add(sums *s, const hs_dtype_info *t, const uint8_t *raw, const float *x, const float *w,
                size_t n)
{
    static float y[size];
    t->decode(y, raw, n);
    for (size_t i = 0; i < n; i++) {
        const double e = (double)x[i] - (double)y[i], c = w ? (double)w[i % row] : 1;
        s->lost += c * e * e;
        s->all += c * (double)x[i] * (double)x[i];
    }
}

/* What ours (or the peer) loses of n elements in rows of `cols`. */
static void encode(sums *s, quantize_fn *peer, const hs_dtype_info *t, const float *x,
                   const float *w, size_t n, size_t cols, uint8_t *out)
{
    if (peer) {
        peer((int)t->id, x, out, 0, (int64_t)(n / cols), (int64_t)cols, w);
    } else if (w && t->encode_weighted) {
        for (size_t i = 0; i < n; i += cols)
            t->encode_weighted(out + i / t->block_elems * t->block_bytes, x + i, w, cols);
    } else {
        t->encode(out, x, n);
    }
    add(s, t, out, x, w, n);
}

static void show(const sums *ours, const sums *theirs)
{
    const double e = sqrt(ours->lost / ours->all);
    printf(" %8.3f%%", 100 * e);
    if (theirs->all > 0)
        printf(" %6.3f", e / sqrt(theirs->lost / theirs->all));
    else
        printf(" %6s", "");
}

/* A few rows of every matrix of the model whose rows divide. */
static void real(const hs_gguf *g, quantize_fn *peer, const hs_dtype_info *t, uint8_t *out)
{
    static float x[size];
    sums ours = {0, 0}, theirs = {0, 0};
    for (size_t i = 0; i < g->n_tensors; i++) {
        const hs_gguf_tensor *m = &g->tensors[i];
        const hs_dtype_info *from = hs_dtype_get(m->dtype);
        if (m->n_dims != 2 || m->ne[0] % 256 || m->ne[0] > row || !from->decode ||
            m->ne[1] < real_rows)
            continue;
        const size_t n = (size_t)m->ne[0] * real_rows;
        from->decode(x, m->data, n);
        encode(&ours, NULL, t, x, NULL, n, (size_t)m->ne[0], out);
        if (peer)
            encode(&theirs, peer, t, x, NULL, n, (size_t)m->ne[0], out);
    }
    show(&ours, &theirs);
}

static void error(quantize_fn *peer, float *const *x, const float *w, const hs_gguf *g,
                  uint8_t *out)
{
    printf("\nerror relative to the weights%s\n%-7s%16s%16s%16s%16s%16s\n",
           peer ? ", and its ratio to the reference's" : "", "type", "bell-shaped", "weighted",
           "heavy-tailed", "weighted", g ? "model" : "");
    for (size_t k = 0; k < n_types; k++) {
        const hs_dtype_info *t = hs_dtype_get(types[k]);
        printf("%-7s", t->name);
        for (size_t i = 0; i < 4; i++) {
            sums ours = {0, 0}, theirs = {0, 0};
            encode(&ours, NULL, t, x[i / 2], i % 2 ? w : NULL, size, row, out);
            if (peer)
                encode(&theirs, peer, t, x[i / 2], i % 2 ? w : NULL, size, row, out);
            show(&ours, &theirs);
        }
        if (g)
            real(g, peer, t, out);
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    static float bell[size], tail[size], w[row];
    static uint8_t out[4 * size];
    const char *lib = getenv("HS_PEER_GGML"), *model = getenv("HS_BENCH_MODEL");
    void *so = lib ? dlopen(lib, RTLD_NOW) : NULL;
    void *symbol = so ? dlsym(so, "ggml_quantize_chunk") : NULL;
    quantize_fn *peer = NULL;
    memcpy(&peer, &symbol, sizeof peer);
    if (lib && !peer)
        fprintf(stderr, "bench_quant: no ggml_quantize_chunk in %s\n", lib);
    for (size_t i = 0; i < size; i++) {
        bell[i] = 0.02f * normal();
        tail[i] = 0.01f * heavy();
    }
    for (size_t i = 0; i < row; i++) { /* squares of a channel's activations, spread log-normally */
        const float a = normal();
        w[i] = a * a * expf(normal());
    }
    hs_gguf *g = NULL;
    hs_err err;
    if (model && hs_gguf_open(&g, model, &err) != HS_OK) {
        fprintf(stderr, "bench_quant: %s\n", err.msg);
        return 3;
    }
    if (argc < 2 || strcmp(argv[1], "speed") == 0)
        speed(peer, bell, out);
    if (argc < 2 || strcmp(argv[1], "error") == 0)
        error(peer, (float *const[]){bell, tail}, w, g, out);
    hs_gguf_free(g);
    return 0;
}
