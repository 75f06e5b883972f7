/* A device's rates, through nothing but the operations that a session uses. */
#include "tools/profile/measure.h"

#include "runtime/kernels.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 4096, COPIES = 4 };

static const uint64_t copy_bytes[COPIES] = {4096, 65536, 1 << 20, 8 << 20};

typedef struct probe {
    const hs_device_ops *ops;
    hs_device *dev;
    const hs_measure *p;
    hs_dev_scratch scratch;
    hs_buf norm, weights, copy;
    uint8_t *host; /* [largest copy] */
} probe;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef enum action { NOTHING, SEND, RECV } action;

/* Seconds of one copy and the wait for it. */
static hs_status copy_s(const probe *b, action what, uint64_t bytes, double *s, hs_err *err)
{
    hs_buf part = b->copy;
    part.bytes = bytes;
    const double start = now();
    if (what == SEND)
        b->ops->send(b->dev, part, b->host, bytes);
    else if (what == RECV)
        b->ops->recv(b->dev, b->host, part, bytes);
    const hs_status st = b->ops->sync(b->dev, err);
    *s = now() - start;
    return st;
}

/* The mean over the repetitions, and as rates. */
static hs_status repeat(const probe *b, action what, uint64_t bytes, double *mean, double *spread,
                        hs_err *err)
{
    enum { MOST = 64 };
    double v[MOST];
    const int n = b->p->repetitions < MOST ? b->p->repetitions : MOST;
    hs_status s = copy_s(b, what, bytes, &v[0], err); /* the first one warms up */
    for (int i = 0; s == HS_OK && i < n; i++)
        s = copy_s(b, what, bytes, &v[i], err);
    if (s == HS_OK)
        hs_measure_mean(mean, spread, v, (size_t)n);
    return s;
}

static hs_status copies(hs_machine_device *out, const probe *b, hs_err *err)
{
    double idle, small, spread;
    hs_status s = repeat(b, NOTHING, 0, &idle, &spread, err);
    if (s == HS_OK)
        s = repeat(b, SEND, 64, &small, &spread, err);
    if (s != HS_OK)
        return s;
    out->sync_s = small;
    out->latency_s = small > idle ? small - idle : 0;
    out->upload.n = out->download.n = 0;
    for (int i = 0; s == HS_OK && i < 2 * COPIES; i++) {
        hs_machine_curve *c = i < COPIES ? &out->upload : &out->download;
        hs_machine_point *p = &c->point[c->n++];
        double took = 0;
        p->at = copy_bytes[i % COPIES];
        s = repeat(b, i < COPIES ? SEND : RECV, p->at, &took, &p->spread, err);
        /* Starting it and waiting are counted on their own. */
        took = took > small ? took - small : 0;
        p->rate = took > 1e-9 ? (double)p->at / took : (double)p->at * 1e9;
    }
    return s;
}

static hs_status alloc(const probe *b, uint64_t bytes, hs_buf *out, hs_err *err)
{
    return b->ops->alloc(b->dev, bytes, out, err);
}

static hs_status take_memory(probe *b, uint64_t rows, hs_err *err)
{
    const struct {
        hs_buf *to;
        uint64_t bytes;
    } want[] = {
        {&b->scratch.x, 4ull * COLUMNS},    {&b->scratch.rec, 4ull * COLUMNS},
        {&b->scratch.act_q, COLUMNS},       {&b->scratch.act_d, COLUMNS / 8},
        {&b->scratch.logits, 4 * rows},     {&b->norm, 4ull * COLUMNS},
        {&b->copy, copy_bytes[COPIES - 1]}, {&b->weights, b->p->bytes},
    };
    hs_status s = HS_OK;
    for (size_t i = 0; s == HS_OK && i < sizeof want / sizeof *want; i++)
        s = alloc(b, want[i].bytes, want[i].to, err);
    return s;
}

/* Rows of a type that fit, all the same; the kernels do not look at what they multiply. */
static hs_status load(const probe *b, const hs_dtype_info *t, hs_dev_mat *w, hs_err *err)
{
    float x[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 64;
    uint64_t row_bytes = 0;
    (void)hs_dtype_row_bytes(t->id, COLUMNS, &row_bytes);
    const uint64_t rows = b->p->bytes / row_bytes, chunk = copy_bytes[COPIES - 1] / row_bytes;
    *w = (hs_dev_mat){b->weights, t->id, COLUMNS, (uint32_t)rows, row_bytes};
    t->encode(b->host, x, COLUMNS);
    for (uint64_t i = 1; i < chunk && i < rows; i++)
        memcpy(b->host + i * row_bytes, b->host, row_bytes);
    hs_status s = HS_OK;
    for (uint64_t at = 0; s == HS_OK && at < rows; at += chunk) {
        const uint64_t n = rows - at < chunk ? rows - at : chunk;
        s = b->ops->upload(b->dev, b->weights, at * row_bytes, b->host, n * row_bytes, err);
    }
    if (s == HS_OK)
        s = b->ops->upload(b->dev, b->norm, 0, x, sizeof x, err);
    return s == HS_OK ? b->ops->upload(b->dev, b->scratch.x, 0, x, sizeof x, err) : s;
}

/* The head is the operation that reads one whole matrix. */
static hs_status dense(const probe *b, const hs_dev_mat *w, double *mean, double *spread,
                       hs_err *err)
{
    enum { MOST = 64 };
    double v[MOST];
    const hs_dev_head head = {&b->scratch, b->norm, *w, 1e-5f, COLUMNS};
    const int n = b->p->repetitions < MOST ? b->p->repetitions : MOST;
    hs_status s = HS_OK;
    for (int i = -1; s == HS_OK && i < n; i++) {
        const double start = now();
        b->ops->head(b->dev, &head);
        s = b->ops->sync(b->dev, err);
        const double took = now() - start;
        if (i >= 0)
            v[i] = (double)(w->row_bytes * w->rows) / (took > 1e-9 ? took : 1e-9);
    }
    if (s == HS_OK)
        hs_measure_mean(mean, spread, v, (size_t)n);
    return s;
}

static hs_status types(hs_machine_device *out, const probe *b, hs_err *err)
{
    hs_kernels k;
    hs_kernels_init(&k, HS_CPU_SCALAR);
    hs_status s = HS_OK;
    for (uint32_t t = 0; s == HS_OK && t < HS_DTYPE_LIMIT; t++) {
        const hs_dtype_info *info = hs_dtype_get(t);
        hs_dev_mat w;
        if (!info || k.type[t].act == HS_ACT_NONE || !info->encode)
            continue;
        if (b->p->progress && !b->p->progress(b->p->progress_ud, t, HS_DTYPE_LIMIT))
            return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted; nothing was written");
        hs_machine_rate *rates = &out->type[t];
        s = load(b, info, &w, err);
        if (s == HS_OK)
            s = dense(b, &w, &rates->dense, &rates->dense_spread, err);
        /* The type that reads fastest shows what the memory can do. */
        if (s == HS_OK && rates->dense > out->bandwidth) {
            out->bandwidth = rates->dense;
            out->spread = rates->dense_spread;
        }
    }
    return s;
}

hs_status hs_measure_device(hs_machine_device *out, const hs_device_ops *ops, int ordinal,
                            const hs_measure *p, hs_err *err)
{
    hs_machine_device_init(out);
    probe b = {.ops = ops, .p = p};
    /* The narrowest type has the most rows: 2 bits a weight and its scales. */
    const uint64_t rows = p->bytes / (COLUMNS / 4) + 1;
    const uint64_t arena = p->bytes + copy_bytes[COPIES - 1] + 4 * rows + 16ull * COLUMNS + 4096;
    hs_status s = ops->open(&b.dev, ordinal, arena, err);
    if (s != HS_OK)
        return s;
    uint64_t avail, total = 0;
    void *host = NULL;
    s = ops->pin(b.dev, copy_bytes[COPIES - 1], &host, err);
    if (s == HS_OK)
        s = ops->probe(ordinal, &avail, &total, err);
    b.host = host;
    out->memory = total;
    if (s == HS_OK)
        s = take_memory(&b, rows, err);
    if (s == HS_OK)
        s = copies(out, &b, err);
    if (s == HS_OK)
        s = types(out, &b, err);
    ops->unpin(b.dev, host);
    ops->close(b.dev);
    return s;
}
