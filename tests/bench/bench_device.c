/* Time per token of the emulated device (or a real one) with the whole of a model of the
 * demonstration model's shape on it: what a test of the hybrid path pays. */

#include "formats/dtype.h"
#include "runtime/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    N_LAYER = 6,
    N_EMBD = 256,
    N_FF = 1024,
    N_HEAD = 8,
    N_HEAD_KV = 4,
    HEAD_DIM = 32,
    N_VOCAB = 2048,
    RANK = 64,
    N_CTX = 256,
    TOKENS = 32,
};

typedef struct bench {
    const hs_device_ops *ops;
    hs_device *dev;
    hs_dev_scratch s;
    hs_dev_attn attn[N_LAYER];
    hs_dev_ffn ffn[N_LAYER];
    hs_dev_head head;
    uint32_t rng;
} bench;

static void need(hs_status st, const hs_err *err)
{
    if (st) {
        fprintf(stderr, "bench_device: %s\n", err->msg);
        exit(1);
    }
}

static float rndf(bench *b)
{
    b->rng = b->rng * 1664525u + 1013904223u;
    return (float)(int32_t)b->rng * 0x1p-31f;
}

static hs_buf take(bench *b, uint64_t bytes)
{
    hs_err err;
    hs_buf buf;
    need(b->ops->alloc(b->dev, bytes, &buf, &err), &err);
    return buf;
}

static hs_buf put(bench *b, const void *data, uint64_t bytes)
{
    hs_err err;
    const hs_buf buf = take(b, bytes);
    need(b->ops->upload(b->dev, buf, 0, data, bytes, &err), &err);
    return buf;
}

static hs_buf ones(bench *b)
{
    float one[N_EMBD];
    for (int i = 0; i < N_EMBD; i++)
        one[i] = 1;
    return put(b, one, sizeof one);
}

static hs_dev_mat mat(bench *b, hs_dtype t, uint32_t rows, uint32_t cols)
{
    hs_dev_mat m = {.dtype = t, .cols = cols, .rows = rows};
    if (!hs_dtype_row_bytes(t, cols, &m.row_bytes))
        exit(1);
    const size_t n = (size_t)rows * cols;
    float *f = malloc(4 * n);
    void *q = malloc(rows * m.row_bytes);
    if (!f || !q)
        exit(1);
    for (size_t i = 0; i < n; i++)
        f[i] = rndf(b) / sqrtf((float)cols);
    hs_dtype_get(t)->encode(q, f, n);
    m.buf = put(b, q, rows * m.row_bytes);
    free(f);
    free(q);
    return m;
}

static void scratch(bench *b)
{
    b->s = (hs_dev_scratch){
        .x = take(b, 4 * N_EMBD),
        .xn = take(b, 4 * N_EMBD),
        .y = take(b, 4 * N_EMBD),
        .sum = take(b, 8 * N_EMBD),
        .q = take(b, 4 * N_EMBD),
        .k = take(b, 4 * N_EMBD),
        .v = take(b, 4 * N_EMBD),
        .o = take(b, 4 * N_EMBD),
        .att = take(b, 4 * N_HEAD * N_CTX),
        .rope = take(b, 4 * HEAD_DIM),
        .hid = take(b, 4 * RANK),
        .score = take(b, 4 * N_FF),
        .z = take(b, 4 * N_FF),
        .count = take(b, 4),
        .logits = take(b, 4 * N_VOCAB),
        .act_q = take(b, N_FF),
        .act_d = take(b, 4 * N_FF / 32),
    };
}

static void model(bench *b, hs_dtype t)
{
    int32_t id[N_FF];
    for (int i = 0; i < N_FF; i++)
        id[i] = i;
    for (int l = 0; l < N_LAYER; l++) {
        b->attn[l] = (hs_dev_attn){.scratch = &b->s,
                                   .norm = ones(b),
                                   .wq = mat(b, t, N_HEAD * HEAD_DIM, N_EMBD),
                                   .wk = mat(b, t, N_HEAD_KV * HEAD_DIM, N_EMBD),
                                   .wv = mat(b, t, N_HEAD_KV * HEAD_DIM, N_EMBD),
                                   .wo = mat(b, t, N_EMBD, N_HEAD * HEAD_DIM),
                                   .eps = 1e-5f,
                                   .n_embd = N_EMBD,
                                   .n_head = N_HEAD,
                                   .n_head_kv = N_HEAD_KV,
                                   .head_dim = HEAD_DIM,
                                   .rope_dim = HEAD_DIM,
                                   .k_cache = take(b, 2 * N_CTX * N_HEAD_KV * HEAD_DIM),
                                   .v_cache = take(b, 2 * N_CTX * N_HEAD_KV * HEAD_DIM),
                                   .kv_type = HS_F16,
                                   .n_ctx = N_CTX,
                                   .stage = HS_DEV_ATTN_ALL};
        b->ffn[l] = (hs_dev_ffn){.scratch = &b->s,
                                 .norm = ones(b),
                                 .has_norm = true,
                                 .has_gate = true,
                                 .fc1 = mat(b, t, RANK, N_EMBD),
                                 .fc2 = mat(b, t, N_FF, RANK),
                                 .gate = mat(b, t, N_FF, N_EMBD),
                                 .up = mat(b, t, N_FF, N_EMBD),
                                 .down = mat(b, t, N_FF, N_EMBD),
                                 .id = put(b, id, sizeof id),
                                 .n = N_FF,
                                 .n_embd = N_EMBD,
                                 .n_ff = N_FF,
                                 .eps = 1e-5f,
                                 .fn = HS_FN_RELU};
    }
    b->head = (hs_dev_head){.scratch = &b->s,
                            .norm = ones(b),
                            .w = mat(b, t, N_VOCAB, N_EMBD),
                            .eps = 1e-5f,
                            .n_embd = N_EMBD};
}

/* The emulation is one busy thread: its own time, whatever else the machine does. */
static double now(const bench *b)
{
    struct timespec ts;
    clock_gettime(b->ops == hs_device_emu() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* The round trips of a session: two a layer, one for the head. */
static void token(bench *b, uint32_t pos, bool predicted)
{
    hs_err err;
    float x[N_EMBD], y[N_EMBD], rope[HEAD_DIM], logits[N_VOCAB];
    double sum[N_EMBD];
    for (int i = 0; i < N_EMBD; i++)
        x[i] = rndf(b);
    for (int i = 0; i < HEAD_DIM; i++)
        rope[i] = rndf(b);
    for (int l = 0; l < N_LAYER; l++) {
        b->attn[l].pos = pos;
        b->ffn[l].masked = b->ffn[l].has_predictor = predicted;
        b->ops->send(b->dev, b->s.x, x, sizeof x);
        b->ops->send(b->dev, b->s.rope, rope, sizeof rope);
        b->ops->attn(b->dev, &b->attn[l]);
        b->ops->recv(b->dev, y, b->s.y, sizeof y);
        need(b->ops->sync(b->dev, &err), &err);
        b->ops->send(b->dev, b->s.x, x, sizeof x);
        b->ops->ffn(b->dev, &b->ffn[l]);
        b->ops->recv(b->dev, sum, b->s.sum, sizeof sum);
        need(b->ops->sync(b->dev, &err), &err);
    }
    b->ops->send(b->dev, b->s.x, x, sizeof x);
    b->ops->head(b->dev, &b->head);
    b->ops->recv(b->dev, logits, b->s.logits, sizeof logits);
    need(b->ops->sync(b->dev, &err), &err);
}

static void run(const hs_device_ops *ops, hs_dtype t)
{
    hs_err err;
    bench b = {.ops = ops, .rng = 1};
    need(ops->open(&b.dev, 0, 64u << 20, &err), &err);
    scratch(&b);
    model(&b, t);
    double ms[2];
    for (int predicted = 0; predicted < 2; predicted++) {
        token(&b, 0, predicted);
        const double start = now(&b);
        for (uint32_t i = 0; i < TOKENS; i++)
            token(&b, 1 + i, predicted);
        ms[predicted] = (now(&b) - start) / TOKENS * 1e3;
    }
    printf("%-5s %-5s %8.2f ms/token exact %8.2f ms/token predicted\n", ops->name, hs_dtype_name(t),
           ms[0], ms[1]);
    ops->close(b.dev);
}

int main(void)
{
    static const hs_dtype types[] = {HS_F32, HS_F16, HS_Q8_0, HS_Q4_0};
    const hs_device_ops *cuda = hs_device_cuda();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        run(hs_device_emu(), types[i]);
        if (cuda && cuda->count(NULL) > 0)
            run(cuda, types[i]);
    }
    return 0;
}
