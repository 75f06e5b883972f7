/* Time per token of the emulated device (or a real one) with the whole of a model of the
 * demonstration model's shape on it: what a test of the hybrid path pays.
 *
 *   device kernels NAME MIB   (make bench-gpu)
 * how fast device NAME reads matrices of MIB mebibytes of each type, all rows or the rows of a
 * tenth of the neurons, beside what a copy within the device moves. */

#include "formats/dtype.h"
#include "runtime/device.h"
#include "runtime/kernels.h"

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
    const uint64_t n = HS_DEV_BATCH;
    b->s = (hs_dev_scratch){
        .x = take(b, 4 * n * N_EMBD),
        .step = take(b, 16 + 4 * n * HEAD_DIM),
        .rec = take(b, 4 * n * hs_dev_record_words(N_EMBD, N_FF)),
        .sum = take(b, 8 * HS_DEV_SUMS * N_EMBD),
        .far = take(b, 8 * n * N_EMBD),
        .qkv = take(b, 4 * n * (N_HEAD + 2 * N_HEAD_KV) * HEAD_DIM),
        .o = take(b, 4 * n * N_EMBD),
        .att = take(b, 4 * n * N_HEAD * N_CTX),
        .top = take(b, 4 * n * N_HEAD * N_CTX / HS_ATT_BLOCK),
        .part = take(b, 4 * n * N_EMBD * N_CTX / HS_ATT_BLOCK),
        .hid = take(b, 4 * n * RANK),
        .z = take(b, 4 * n * N_FF),
        .stats = take(b, 16 * N_LAYER),
        .logits = take(b, 4 * N_VOCAB),
        .act_q = take(b, n * N_FF),
        .act_d = take(b, 4 * n * N_FF / 32),
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

/* A token as a session evaluates it: all layers, the head, one wait. */
static void token(bench *b, uint32_t pos, bool predicted)
{
    hs_err err;
    float x[N_EMBD], logits[N_VOCAB];
    uint32_t step[4 + HEAD_DIM] = {pos};
    for (int i = 0; i < N_EMBD; i++)
        x[i] = rndf(b);
    for (int i = 0; i < HEAD_DIM; i++) {
        const float angle = rndf(b);
        memcpy(step + 4 + i, &angle, 4);
    }
    b->ops->send(b->dev, b->s.x, x, sizeof x);
    b->ops->send(b->dev, b->s.step, step, sizeof step);
    for (int l = 0; l < N_LAYER; l++) {
        b->attn[l].n_tokens = b->ffn[l].n_tokens = 1;
        b->ffn[l].masked = b->ffn[l].has_predictor = predicted;
        b->ffn[l].stages = HS_DEV_FFN_PREPARE | HS_DEV_FFN_NEURONS | HS_DEV_FFN_FINISH;
        b->ops->attn(b->dev, &b->attn[l]);
        b->ops->ffn(b->dev, &b->ffn[l]);
    }
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

/* --- kernels ----------------------------------------------------------------------------- */

enum { COLUMNS = 4096, ROUNDS = 10 };

typedef struct kernels {
    bench b;
    hs_buf data;
    double copy; /* bytes a second, read and written */
} kernels;

static double timed(bench *b, void (*queue)(bench *b, const void *ud), const void *ud)
{
    hs_err err;
    queue(b, ud);
    need(b->ops->sync(b->dev, &err), &err);
    const double start = now(b);
    for (int i = 0; i < ROUNDS; i++)
        queue(b, ud);
    need(b->ops->sync(b->dev, &err), &err);
    return (now(b) - start) / ROUNDS;
}

static void queue_copy(bench *b, const void *ud)
{
    const hs_buf *half = ud;
    b->ops->copy(b->dev, half[0], half[1]);
}

static void queue_head(bench *b, const void *ud) { b->ops->head(b->dev, ud); }
static void queue_ffn(bench *b, const void *ud) { b->ops->ffn(b->dev, ud); }

static void kernel_scratch(bench *b, uint32_t rows)
{
    b->s = (hs_dev_scratch){
        .x = take(b, 4 * COLUMNS),
        .rec = take(b, 4 * hs_dev_record_words(COLUMNS, rows)),
        .sum = take(b, 8 * HS_DEV_SUMS * COLUMNS),
        .far = take(b, 8 * COLUMNS),
        .z = take(b, 4ull * rows),
        .stats = take(b, 16),
        .logits = take(b, 4ull * rows),
        .act_q = take(b, COLUMNS),
        .act_d = take(b, COLUMNS / 8),
    };
}

/* One type: rows of equal bytes, whose products cost what any cost.  SiLU opens every gate, so that
 * the candidates alone decide which rows are read. */
static void kernel_type(kernels *k, hs_dtype t)
{
    bench *b = &k->b;
    hs_dev_mat w = {.buf = k->data, .dtype = t, .cols = COLUMNS};
    if (!hs_dtype_row_bytes(t, COLUMNS, &w.row_bytes))
        exit(1);
    w.rows = (uint32_t)(k->data.bytes / w.row_bytes);
    const hs_dev_head head = {&b->s, b->head.norm, w, 1e-5f, COLUMNS, 0};
    const double dense = timed(b, queue_head, &head);
    hs_dev_ffn f = {.scratch = &b->s,
                    .masked = true,
                    .has_gate = true,
                    .gate = w,
                    .up = w,
                    .down = w,
                    .id = b->ffn[0].id,
                    .n = w.rows,
                    .n_embd = COLUMNS,
                    .n_ff = w.rows,
                    .n_tokens = 1,
                    .stages = HS_DEV_FFN_NEURONS,
                    .fn = HS_FN_SILU};
    const double sparse = timed(b, queue_ffn, &f);
    const double bytes = (double)w.row_bytes * w.rows;
    printf("| %s | %.1f | %.0f %% | %.1f | %.0f %% |\n", hs_dtype_name(t), bytes / dense * 1e-9,
           100 * bytes / dense / k->copy, 0.2 * bytes / sparse * 1e-9,
           100 * 0.2 * bytes / sparse / k->copy);
}

static int run_kernels(const char *name, uint64_t bytes)
{
    static const hs_dtype types[] = {HS_F32,  HS_F16,  HS_Q8_0, HS_Q5_0, HS_Q4_0,  HS_Q6_K,
                                     HS_Q4_K, HS_Q5_K, HS_Q2_K, HS_Q3_K, HS_IQ4_XS};
    hs_err err;
    kernels k = {.b = {.ops = strcmp(name, "emu") == 0 ? hs_device_emu() : hs_device_cuda()}};
    bench *b = &k.b;
    const uint32_t most = (uint32_t)(bytes / (COLUMNS / 4));
    if (!b->ops) {
        fprintf(stderr, "bench_device: this build has no CUDA\n");
        return 1;
    }
    need(b->ops->open(&b->dev, 0, bytes + 64ull * most + (8u << 20), &err), &err);
    kernel_scratch(b, most);
    k.data = take(b, bytes);
    void *fill = malloc(bytes);
    uint32_t *rec = calloc(hs_dev_record_words(COLUMNS, most), 4);
    int32_t *id = malloc(4ull * most);
    if (!fill || !rec || !id)
        return 1;
    memset(fill, 0x3e, bytes); /* 0.19 as F32, 1.6 as F16, integers of either sign */
    for (int i = 0; i < COLUMNS; i++)
        memcpy(rec + i, &(float){0.01f}, 4);
    need(b->ops->upload(b->dev, k.data, 0, fill, bytes, &err), &err);
    for (uint32_t i = 0; i < most; i++) {
        id[i] = (int32_t)i;
        rec[COLUMNS + i / 32] |= (uint32_t)(i * 2654435761u % 10 == 0) << i % 32;
    }
    b->ffn[0].id = put(b, id, 4ull * most);
    b->head.norm = put(b, fill, 4 * COLUMNS);
    need(b->ops->upload(b->dev, b->s.x, 0, fill, 4 * COLUMNS, &err), &err);
    need(b->ops->upload(b->dev, b->s.rec, 0, rec, b->s.rec.bytes, &err), &err);
    const hs_buf half[] = {{k.data.offset, bytes / 2}, {k.data.offset + bytes / 2, bytes / 2}};
    k.copy = (double)bytes / timed(b, queue_copy, half);
    printf("device %s, copy within it: %.1f GB/s\n\n| type | all rows, GB/s | of the copy | "
           "a tenth of the neurons, GB/s of gate and up rows | of the copy "
           "|\n|---|---:|---:|---:|---:|\n",
           name, k.copy * 1e-9);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        kernel_type(&k, types[i]);
    b->ops->close(b->dev);
    free(fill);
    free(rec);
    free(id);
    return 0;
}

int main(int argc, char **argv)
{
    static const hs_dtype types[] = {HS_F32, HS_F16, HS_Q8_0, HS_Q4_0};
    const hs_device_ops *cuda = hs_device_cuda();
    if (argc == 4 && strcmp(argv[1], "kernels") == 0)
        return run_kernels(argv[2], strtoull(argv[3], NULL, 10) << 20);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        run(hs_device_emu(), types[i]);
        if (cuda && cuda->count(NULL) > 0)
            run(cuda, types[i]);
    }
    return 0;
}
