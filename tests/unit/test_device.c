/* Every operation of the device, as compiled for the CPU, against the scalar kernels: equal to
 * the bit, for all weight types and for sizes around the widths of warps and blocks. */

#include "runtime/device.h"
#include "runtime/kernels.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif

static const hs_dtype all_types[] = {HS_F32, HS_F16, HS_BF16, HS_Q8_0, HS_Q5_0, HS_Q4_0, HS_Q6_K};
enum { N_TYPES = sizeof all_types / sizeof *all_types };

/* --- one device with scratch, and random matrices on both sides ------------------------------- */

typedef struct rig {
    const hs_device_ops *ops;
    hs_device *dev;
    hs_dev_scratch s;
    hs_kernels k;
    uint64_t rng;
    void *owned[64];
    size_t n_owned;
    float *x; /* [1024] */
} rig;

typedef struct mat {
    hs_dev_mat dev;
    uint8_t *host;
} mat;

static void *own(rig *r, size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    assert_non_null(p);
    assert_true(r->n_owned < sizeof r->owned / sizeof *r->owned);
    r->owned[r->n_owned++] = p;
    return p;
}

static uint32_t rnd(rig *r)
{
    r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->rng >> 33);
}

/* In (-1, 1). */
static float rndf(rig *r) { return ((float)(rnd(r) & 0xffff) - 32767.5f) / 32768.0f; }

static void good(hs_status st, const hs_err *err)
{
    if (st)
        fail_msg("%s", err->msg);
}

static hs_buf take(rig *r, uint64_t bytes)
{
    hs_buf b;
    hs_err err;
    good(r->ops->alloc(r->dev, bytes, &b, &err), &err);
    return b;
}

static hs_buf put(rig *r, const void *data, uint64_t bytes)
{
    const hs_buf b = take(r, bytes);
    hs_err err;
    /* In two pieces, the second of them at an offset. */
    good(r->ops->upload(r->dev, b, 0, data, bytes / 2, &err), &err);
    good(r->ops->upload(r->dev, b, bytes / 2, (const uint8_t *)data + bytes / 2, bytes - bytes / 2,
                        &err),
         &err);
    return b;
}

static void sync_good(rig *r)
{
    hs_err err = {.code = HS_OK};
    good(r->ops->sync(r->dev, &err), &err);
}

enum { MAX_EMBD = 1024, MAX_FF = 512, MAX_CTX = 48, MAX_HEADS = 8 };

static void rig_open(rig *r, uint64_t seed)
{
    *r = (rig){.ops = hs_device_emu(), .rng = seed};
    hs_kernels_init(&r->k, HS_CPU_SCALAR);
    hs_err err;
    good(r->ops->open(&r->dev, 0, 32u << 20, &err), &err);
    hs_dev_scratch *s = &r->s;
    s->x = take(r, 4 * MAX_EMBD);
    s->xn = take(r, 4 * MAX_EMBD);
    s->y = take(r, 4 * MAX_EMBD);
    s->q = take(r, 4 * MAX_EMBD);
    s->k = take(r, 4 * MAX_EMBD);
    s->v = take(r, 4 * MAX_EMBD);
    s->o = take(r, 4 * MAX_EMBD);
    s->att = take(r, 4 * MAX_HEADS * MAX_CTX);
    s->rope = take(r, 4 * 128);
    s->hid = take(r, 4 * 512);
    s->score = take(r, 4 * MAX_FF);
    s->z = take(r, 4 * MAX_FF);
    s->count = take(r, 4);
    s->logits = take(r, 4 * 512);
    s->act_q = take(r, MAX_EMBD);
    s->act_d = take(r, 4 * MAX_EMBD / 32);
    r->x = own(r, 4 * MAX_EMBD);
    for (int i = 0; i < MAX_EMBD; i++)
        r->x[i] = rndf(r);
}

static void rig_close(rig *r)
{
    r->ops->close(r->dev);
    for (size_t i = 0; i < r->n_owned; i++)
        free(r->owned[i]);
}

/* Random bits for the integers, so that every bit position counts; moderate scales. */
static void random_rows(rig *r, hs_dtype t, uint8_t *p, size_t bytes)
{
    const hs_dtype_info *info = hs_dtype_get(t);
    for (size_t at = 0; at < bytes; at += info->block_bytes) {
        const float f = rndf(r);
        const uint16_t half = hs_f32_to_f16(f / 16), brain = hs_f32_to_bf16(f);
        for (size_t i = 0; i < info->block_bytes; i++)
            p[at + i] = (uint8_t)rnd(r);
        if (t == HS_F32)
            memcpy(p + at, &f, 4);
        else if (t == HS_BF16)
            memcpy(p + at, &brain, 2);
        else
            memcpy(p + at + (t == HS_Q6_K ? 208 : 0), &half, 2);
    }
}

static mat random_mat(rig *r, hs_dtype t, uint32_t rows, uint32_t cols)
{
    mat m = {.dev = {.dtype = t, .cols = cols, .rows = rows}};
    assert_true(hs_dtype_row_bytes(t, cols, &m.dev.row_bytes));
    m.host = own(r, rows * m.dev.row_bytes);
    random_rows(r, t, m.host, rows * m.dev.row_bytes);
    m.dev.buf = put(r, m.host, rows * m.dev.row_bytes);
    return m;
}

static hs_buf random_floats(rig *r, float **host, size_t n)
{
    *host = own(r, 4 * n);
    for (size_t i = 0; i < n; i++)
        (*host)[i] = rndf(r);
    return put(r, *host, 4 * n);
}

static void check_floats(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s[%zu]: got %a, expected %a", what, i, (double)got[i], (double)want[i]);
}

/* --- the reference ---------------------------------------------------------------------------- */

static float ref_dot(const rig *r, const mat *m, uint32_t row, const float *x)
{
    const hs_kernel_type *kt = &r->k.type[m->dev.dtype];
    int8_t q[MAX_EMBD];
    float d[MAX_EMBD / 32];
    const hs_q8 act = {q, d};
    if (kt->act == HS_ACT_Q8)
        r->k.quantize_q8(act, x, m->dev.cols);
    return kt->dot(m->host + row * m->dev.row_bytes, x, act, m->dev.cols);
}

static void ref_matvec(const rig *r, const mat *m, const float *x, float *y)
{
    for (uint32_t i = 0; i < m->dev.rows; i++)
        y[i] = ref_dot(r, m, i, x);
}

static void ref_norm(const rig *r, float *y, const float *x, const float *w, uint32_t n, float eps)
{
    const float s = r->k.type[HS_F32].dot(x, x, (hs_q8){0}, n);
    r->k.scale_mul(y, x, 1.0f / sqrtf(s / (float)n + eps), w, n);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void test_arena(void **state)
{
    (void)state;
    const hs_device_ops *ops = hs_device_emu();
    assert_string_equal(ops->name, "emu");
    hs_err err;
    assert_int_equal(ops->count(&err), 1);
    hs_device *dev;
    good(ops->open(&dev, 0, 256, &err), &err);
    uint64_t avail, total;
    good(ops->memory(dev, &avail, &total, &err), &err);
    assert_true(avail > 0 && avail <= total);
    hs_buf a, b, c, none;
    good(ops->alloc(dev, 1, &a, &err), &err);
    good(ops->alloc(dev, 65, &b, &err), &err);
    assert_int_equal(a.offset, 0);
    assert_int_equal(b.offset, 64);
    assert_int_equal(b.bytes, 65);
    assert_int_equal(ops->used(dev), 192);
    assert_int_equal(ops->alloc(dev, 65, &c, &err), HS_ERR_NOSPACE);
    assert_string_equal(err.msg, "device emu: wanted 65 bytes, 64 of its budget of 256 are free");
    assert_int_equal(ops->alloc(dev, UINT64_MAX, &c, &err), HS_ERR_NOSPACE);
    assert_int_equal(ops->used(dev), 192);
    good(ops->alloc(dev, 64, &c, &err), &err);
    assert_int_equal(ops->used(dev), 256);
    good(ops->alloc(dev, 0, &none, &err), &err);
    assert_int_equal(none.bytes, 0);
    good(ops->upload(dev, none, 0, NULL, 0, &err), &err);
    const char data[65] = "neurons";
    assert_int_equal(ops->upload(dev, a, 0, data, 2, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: upload of 2 bytes at 0 into a buffer of 1");
    assert_int_equal(ops->upload(dev, b, 66, data, 0, &err), HS_ERR_DEVICE);
    assert_int_equal(ops->upload(dev, (hs_buf){0, 257}, 0, data, 1, &err), HS_ERR_DEVICE);
    char back[65] = "";
    good(ops->upload(dev, b, 0, data, 65, &err), &err);
    ops->recv(dev, back, b, 65);
    good(ops->sync(dev, &err), &err);
    assert_memory_equal(data, back, 65);
    ops->close(dev);
    ops->close(NULL);
}

static void test_open(void **state)
{
    (void)state;
    const hs_device_ops *ops = hs_device_emu();
    hs_device *dev;
    hs_buf b;
    hs_err err;
    assert_int_equal(ops->open(&dev, 1, 64, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: no device 1, there are 1");
    assert_int_equal(ops->open(&dev, -1, 64, &err), HS_ERR_DEVICE);
    assert_int_equal(ops->open(&dev, 0, 1ull << 60, &err), HS_ERR_NOSPACE);
    assert_non_null(strstr(err.msg, "device emu: wanted 1152921504606846976 bytes, "));
    assert_non_null(strstr(err.msg, " are free"));
    good(ops->open(&dev, 0, 0, &err), &err);
    good(ops->alloc(dev, 0, &b, &err), &err);
    assert_int_equal(ops->alloc(dev, 1, &b, &err), HS_ERR_NOSPACE);
    good(ops->sync(dev, &err), &err);
    ops->close(dev);
}

/* Received bytes are there after sync; more than pinned memory holds goes round it. */
static void test_copies(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 1);
    const uint64_t big = 5u << 20;
    uint8_t *a = own(&r, big), *b = own(&r, big);
    for (uint64_t i = 0; i < big; i++)
        a[i] = (uint8_t)rnd(&r);
    const hs_buf buf = take(&r, big);
    r.ops->send(r.dev, buf, a, big);
    r.ops->recv(r.dev, b, buf, big);
    sync_good(&r);
    assert_memory_equal(a, b, big);
    memset(b, 0, big);
    for (uint32_t i = 0; i < 40; i++) { /* in order, more of them than wait for sync */
        r.ops->send(r.dev, (hs_buf){buf.offset, 4}, a + 4 * i, 4);
        r.ops->recv(r.dev, b + 4 * i, (hs_buf){buf.offset, 4}, 4);
    }
    sync_good(&r);
    assert_memory_equal(a, b, 160);
    rig_close(&r);
}

static void test_failures(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 2);
    float y[4] = {1, 2, 3, 4};
    hs_err err;
    r.ops->send(r.dev, r.s.count, y, 16);
    r.ops->recv(r.dev, y, r.s.x, 16); /* not done: a failure is pending */
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    assert_non_null(strstr(err.msg, "device emu: send: buffer of 4 bytes at "));
    assert_true(y[0] == 1 && y[3] == 4);
    sync_good(&r);

    const mat w = random_mat(&r, HS_F32, 8, 32);
    hs_dev_head h = {.scratch = &r.s, .norm = r.s.x, .w = w.dev, .n_embd = 64};
    r.ops->head(r.dev, &h);
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: head: weight: expected {64, 8}, got {32, 8}");
    h.n_embd = 32;
    h.w.dtype = HS_Q4_1;
    r.ops->head(r.dev, &h);
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: head: weight: no kernel for rows of 32 Q4_1");
    assert_int_equal(r.ops->sync(r.dev, NULL), HS_OK);
    rig_close(&r);
}

/* --- head: norm and matrix product ------------------------------------------------------------ */

static void head_case(rig *r, hs_dtype t, uint32_t rows, uint32_t cols, float magnitude)
{
    float *norm, x[MAX_EMBD], xn[MAX_EMBD], want[512], got[512];
    const mat w = random_mat(r, t, rows, cols);
    const hs_dev_head h = {.scratch = &r->s,
                           .norm = random_floats(r, &norm, cols),
                           .w = w.dev,
                           .eps = 1e-5f,
                           .n_embd = cols};
    for (uint32_t i = 0; i < cols; i++)
        x[i] = r->x[i] * magnitude;
    r->ops->send(r->dev, r->s.x, x, 4 * cols);
    r->ops->head(r->dev, &h);
    r->ops->recv(r->dev, got, r->s.logits, 4 * rows);
    sync_good(r);
    ref_norm(r, xn, x, norm, cols, 1e-5f);
    ref_matvec(r, &w, xn, want);
    check_floats(hs_dtype_name(t), got, want, rows);
}

static void test_head(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 7, 33, 130}, floats[] = {32, 1, 100, 513, 1024},
                          blocks[] = {32, 96, 256, 1024}, supers[] = {256, 768};
    for (int k = 0; k < N_TYPES; k++) {
        const hs_dtype t = all_types[k];
        const uint32_t unit = hs_dtype_get(t)->block_elems;
        const uint32_t *cols = unit == 1 ? floats : unit == 32 ? blocks : supers;
        const int n_cols = unit == 1 ? 5 : unit == 32 ? 4 : 2;
        for (int c = 0; c < n_cols; c++) {
            rig r;
            rig_open(&r, 10 + (uint64_t)k);
            for (int i = 0; i < 4; i++)
                head_case(&r, t, rows[i], cols[c], 1);
            head_case(&r, t, 5, cols[c], 0);      /* scale 1 / sqrt(eps), all zero */
            head_case(&r, t, 5, cols[c], 1e-30f); /* quantization of tiny values */
            head_case(&r, t, 5, cols[c], 1e15f);
            rig_close(&r);
        }
    }
}

/* --- feed-forward ------------------------------------------------------------------------------
 */

typedef struct ffn_case {
    hs_dtype gate, up, down, fc;
    uint32_t n, n_embd;
    bool has_norm, has_predictor, masked, has_gate;
    hs_act_fn fn;
} ffn_case;

enum { N_FF = 300, RANK = 32 };

typedef struct ffn_data {
    mat gate, up, down, fc1, fc2;
    float *norm, score[N_FF];
    int32_t id[N_FF];
} ffn_data;

static hs_dev_ffn ffn_args(rig *r, const ffn_case *c, ffn_data *d)
{
    const uint32_t rank = c->fc == HS_Q6_K ? 256 : RANK;
    for (uint32_t i = 0, id = 0; i < c->n; i++)
        d->id[i] = (int32_t)(id += i && id + 1 + c->n - i < N_FF ? 1 + rnd(r) % 2 : i ? 1 : 0);
    for (uint32_t i = 0; i < N_FF; i++)
        d->score[i] = rndf(r);
    hs_dev_ffn f = {.scratch = &r->s,
                    .norm = random_floats(r, &d->norm, c->n_embd),
                    .has_norm = c->has_norm,
                    .has_predictor = c->has_predictor,
                    .masked = c->masked,
                    .has_gate = c->has_gate,
                    .n = c->n,
                    .n_embd = c->n_embd,
                    .n_ff = N_FF,
                    .eps = 1e-6f,
                    .threshold = c->has_predictor ? -0.5f : 0.125f,
                    .fn = c->fn,
                    .fn_param = 0.01f};
    if (c->has_predictor) {
        d->fc1 = random_mat(r, c->fc, rank, c->n_embd);
        d->fc2 = random_mat(r, c->fc, N_FF, rank);
        f.fc1 = d->fc1.dev;
        f.fc2 = d->fc2.dev;
    }
    if (c->n) {
        d->gate = random_mat(r, c->gate, c->n, c->n_embd);
        d->up = random_mat(r, c->up, c->n, c->n_embd);
        d->down = random_mat(r, c->down, c->n, c->n_embd);
        f.gate = c->has_gate ? d->gate.dev : (hs_dev_mat){.dtype = HS_F32};
        f.up = d->up.dev;
        f.down = d->down.dev;
        f.id = put(r, d->id, 4 * c->n);
    }
    return f;
}

/* y and score are filled, the count is returned. */
static uint32_t ffn_ref(const rig *r, const hs_dev_ffn *f, ffn_data *d, const float *xn, float *y)
{
    uint32_t count = 0;
    if (f->has_predictor) {
        float hid[512];
        ref_matvec(r, &d->fc1, r->x, hid);
        for (uint32_t i = 0; i < f->fc1.rows; i++)
            hid[i] = hid[i] > 0 ? hid[i] : 0;
        ref_matvec(r, &d->fc2, hid, d->score);
    }
    memset(y, 0, 4 * f->n_embd);
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->masked && d->score[d->id[i]] < f->threshold)
            continue;
        float z;
        bool active;
        if (f->has_gate) {
            const float g = hs_act_gate(f->fn, f->fn_param, ref_dot(r, &d->gate, i, xn));
            if (g == 0)
                continue;
            const float u = hs_act_up(f->fn, ref_dot(r, &d->up, i, xn));
            active = f->fn != HS_FN_DRELU || u != 0;
            z = g * u;
        } else {
            z = hs_act_gate(f->fn, f->fn_param, ref_dot(r, &d->up, i, xn));
            active = z != 0;
        }
        count += active;
        if (z != 0)
            r->k.type[d->down.dev.dtype].axpy(y, z, d->down.host + i * d->down.dev.row_bytes, 0,
                                              f->n_embd);
    }
    return count;
}

/* Returns the number of active neurons. */
static uint32_t run_ffn(const ffn_case *c, uint64_t seed)
{
    rig r;
    rig_open(&r, seed);
    ffn_data d;
    const hs_dev_ffn f = ffn_args(&r, c, &d);
    float xn[MAX_EMBD], got[MAX_EMBD], want[MAX_EMBD], score[N_FF];
    uint32_t count = 77;
    ref_norm(&r, xn, r.x, d.norm, c->n_embd, f.eps);
    if (c->has_norm || c->has_predictor)
        r.ops->send(r.dev, r.s.x, r.x, 4 * c->n_embd);
    if (!c->has_norm)
        r.ops->send(r.dev, r.s.xn, xn, 4 * c->n_embd);
    if (!c->has_predictor)
        r.ops->send(r.dev, r.s.score, d.score, sizeof d.score);
    r.ops->ffn(r.dev, &f);
    r.ops->recv(r.dev, got, r.s.y, 4 * c->n_embd);
    r.ops->recv(r.dev, score, r.s.score, sizeof score);
    r.ops->recv(r.dev, &count, r.s.count, 4);
    sync_good(&r);
    const uint32_t want_count = ffn_ref(&r, &f, &d, xn, want);
    assert_int_equal(count, want_count);
    check_floats("score", score, d.score, N_FF);
    check_floats(hs_dtype_name(c->down), got, want, c->n_embd);
    rig_close(&r);
    return count;
}

static void test_ffn_types(void **state)
{
    (void)state;
    static const uint32_t ns[] = {0, 1, 31, 33, 255, 257};
    for (int k = 0; k < N_TYPES; k++)
        for (int i = 0; i < 6; i++) {
            const hs_dtype t = all_types[k];
            const ffn_case c = {t,         t,
                                t,         t,
                                ns[i],     t == HS_Q6_K || i == 5 ? 256 : 96,
                                i & 1,     i == 0 || i & 2,
                                i != 3,    true,
                                HS_FN_RELU};
            const uint32_t n = run_ffn(&c, 100 * (uint64_t)k + (uint64_t)i);
            assert_true(n <= ns[i] && (ns[i] < 30 || (n > 0 && n < ns[i])));
        }
}

static void test_ffn_shapes(void **state)
{
    (void)state;
    static const uint32_t embd[] = {32, 1, 33, 127, 129, 320};
    for (int i = 0; i < 6; i++)
        for (int gate = 0; gate < 2; gate++)
            for (int mask = 0; mask < 2; mask++) {
                const ffn_case c = {HS_F32, HS_F32, HS_F32, HS_F32,    65,        embd[i],
                                    true,   false,  mask,   gate != 0, HS_FN_RELU};
                run_ffn(&c, 7 + (uint64_t)i);
            }
}

static void test_ffn_mixed(void **state)
{
    (void)state;
    for (int k = 0; k < N_TYPES; k++) { /* gate, up, down and predictor of different types */
        const ffn_case c = {all_types[k],
                            all_types[(k + 3) % N_TYPES],
                            all_types[(k + 5) % N_TYPES],
                            all_types[(k + 2) % N_TYPES],
                            129,
                            256,
                            true,
                            true,
                            true,
                            true,
                            k & 1 ? HS_FN_RELU : HS_FN_DRELU};
        assert_true(run_ffn(&c, 1000 + (uint64_t)k) > 0);
    }
}

static void test_ffn_functions(void **state)
{
    (void)state;
    for (int fn = HS_FN_RELU; fn <= HS_FN_GELU_TANH; fn++)
        for (int gate = 0; gate < 2; gate++)
            for (int q = 0; q < 2; q++) {
                const hs_dtype t = q ? HS_Q8_0 : HS_F16;
                const ffn_case c = {t,    t,     t,     t,         100,          64,
                                    true, false, false, gate != 0, (hs_act_fn)fn};
                const uint32_t n = run_ffn(&c, 2000 + (uint64_t)fn);
                if (hs_act_is_sparse((hs_act_fn)fn) ? n == 0 || n == 100 : n < 50)
                    fail_msg("function %d, gate %d, %s: %u of 100 active", fn, gate,
                             hs_dtype_name(t), n);
            }
}

/* --- attention ----------------------------------------------------------------------------------
 */

typedef struct attn_ref {
    float q[MAX_EMBD], k[MAX_EMBD], v[MAX_EMBD], o[MAX_EMBD], y[MAX_EMBD];
    uint8_t *kc, *vc; /* caches */
} attn_ref;

static void ref_rope(const hs_dev_attn *a, float *v, uint32_t heads, const float *cs)
{
    for (uint32_t h = 0; h < heads; h++)
        for (uint32_t p = 0; p < a->rope_dim / 2; p++) {
            float *x = v + h * a->head_dim + 2 * p;
            const float x0 = x[0], x1 = x[1], c = cs[2 * p], s = cs[2 * p + 1];
            x[0] = x0 * c - x1 * s;
            x[1] = x0 * s + x1 * c;
        }
}

static void ref_attend(const rig *r, const hs_dev_attn *a, attn_ref *t)
{
    const hs_kernel_type *kt = &r->k.type[a->kv_type];
    const uint32_t hd = a->head_dim, kn = a->n_head_kv * hd, size = a->kv_type == HS_F16 ? 2 : 4;
    uint8_t *kc = t->kc + (size_t)a->pos * kn * size, *vc = t->vc + (size_t)a->pos * kn * size;
    hs_dtype_get(a->kv_type)->encode(kc, t->k, kn);
    hs_dtype_get(a->kv_type)->encode(vc, t->v, kn);
    memset(t->o, 0, sizeof t->o);
    for (uint32_t h = 0; h < a->n_head; h++) {
        const size_t head = (size_t)(h / (a->n_head / a->n_head_kv)) * hd * size;
        float e[MAX_CTX], *o = t->o + h * hd;
        for (uint32_t i = 0; i <= a->pos; i++)
            e[i] = kt->dot(t->kc + (size_t)i * kn * size + head, t->q + h * hd, (hs_q8){0}, hd) *
                   (1.0f / sqrtf((float)hd));
        const float sum = r->k.exp_sum(e, e, r->k.max(e, a->pos + 1), a->pos + 1);
        for (uint32_t i = 0; i <= a->pos; i++)
            kt->axpy(o, e[i], t->vc + (size_t)i * kn * size + head, 0, hd);
        for (uint32_t c = 0; c < hd; c++)
            o[c] *= 1.0f / sum;
    }
}

typedef struct attn_case {
    hs_dtype type, kv_type;
    uint32_t n_embd, n_head, n_head_kv, head_dim, rope_dim, n_pos;
} attn_case;

/* Positions 0, 1, … through the device's cache, and each also in two stages with the host's. */
static void run_attn(const attn_case *c, uint64_t seed)
{
    rig r;
    rig_open(&r, seed);
    const uint32_t qn = c->n_head * c->head_dim, kn = c->n_head_kv * c->head_dim;
    float *norm;
    mat wq = random_mat(&r, c->type, qn, c->n_embd), wk = random_mat(&r, c->type, kn, c->n_embd),
        wv = random_mat(&r, c->type, kn, c->n_embd), wo = random_mat(&r, c->type, c->n_embd, qn);
    const uint64_t cache = (uint64_t)MAX_CTX * kn * (c->kv_type == HS_F16 ? 2 : 4);
    hs_dev_attn a = {.scratch = &r.s,
                     .norm = random_floats(&r, &norm, c->n_embd),
                     .wq = wq.dev,
                     .wk = wk.dev,
                     .wv = wv.dev,
                     .wo = wo.dev,
                     .eps = 1e-5f,
                     .n_embd = c->n_embd,
                     .n_head = c->n_head,
                     .n_head_kv = c->n_head_kv,
                     .head_dim = c->head_dim,
                     .rope_dim = c->rope_dim,
                     .k_cache = take(&r, cache),
                     .v_cache = take(&r, cache),
                     .kv_type = c->kv_type,
                     .n_ctx = MAX_CTX};
    attn_ref t = {.kc = own(&r, cache), .vc = own(&r, cache)};
    for (a.pos = 0; a.pos < c->n_pos; a.pos++) {
        float x[MAX_EMBD], xn[MAX_EMBD], cs[128], y[MAX_EMBD], q[MAX_EMBD], k[MAX_EMBD],
            v[MAX_EMBD];
        for (uint32_t i = 0; i < c->n_embd; i++)
            x[i] = rndf(&r);
        for (uint32_t p = 0; p < c->rope_dim / 2; p++) {
            cs[2 * p] = cosf((float)a.pos / (float)(p + 1));
            cs[2 * p + 1] = sinf((float)a.pos / (float)(p + 1));
        }
        ref_norm(&r, xn, x, norm, c->n_embd, a.eps);
        ref_matvec(&r, &wq, xn, t.q);
        ref_matvec(&r, &wk, xn, t.k);
        ref_matvec(&r, &wv, xn, t.v);

        r.ops->send(r.dev, r.s.x, x, 4 * c->n_embd);
        a.stage = HS_DEV_ATTN_QKV;
        r.ops->attn(r.dev, &a);
        r.ops->recv(r.dev, q, r.s.q, 4 * qn);
        r.ops->recv(r.dev, k, r.s.k, 4 * kn);
        r.ops->recv(r.dev, v, r.s.v, 4 * kn);
        sync_good(&r);
        check_floats("q", q, t.q, qn);
        check_floats("k", k, t.k, kn);
        check_floats("v", v, t.v, kn);

        ref_rope(&a, t.q, c->n_head, cs);
        ref_rope(&a, t.k, c->n_head_kv, cs);
        ref_attend(&r, &a, &t);
        ref_matvec(&r, &wo, t.o, t.y);
        r.ops->send(r.dev, r.s.o, t.o, 4 * qn);
        a.stage = HS_DEV_ATTN_OUT;
        r.ops->attn(r.dev, &a);
        r.ops->recv(r.dev, y, r.s.y, 4 * c->n_embd);
        sync_good(&r);
        check_floats("out", y, t.y, c->n_embd);

        r.ops->send(r.dev, r.s.rope, cs, 4 * c->rope_dim);
        a.stage = HS_DEV_ATTN_ALL;
        r.ops->attn(r.dev, &a);
        r.ops->recv(r.dev, q, r.s.o, 4 * qn);
        r.ops->recv(r.dev, y, r.s.y, 4 * c->n_embd);
        sync_good(&r);
        check_floats("o", q, t.o, qn);
        check_floats("y", y, t.y, c->n_embd);
    }
    a.stage = HS_DEV_ATTN_ALL;
    a.pos = MAX_CTX;
    r.ops->attn(r.dev, &a);
    hs_err err;
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    rig_close(&r);
}

static void test_attn(void **state)
{
    (void)state;
    static const attn_case cases[] = {
        {HS_F32, HS_F32, 64, 2, 2, 32, 32, 41},  {HS_F16, HS_F16, 96, 4, 2, 32, 32, 41},
        {HS_BF16, HS_F16, 64, 2, 1, 64, 32, 5},  {HS_F32, HS_F16, 33, 3, 1, 96, 96, 6},
        {HS_F32, HS_F32, 40, 2, 2, 7, 6, 34},    {HS_Q8_0, HS_F16, 64, 4, 4, 32, 32, 4},
        {HS_Q5_0, HS_F16, 96, 2, 1, 96, 64, 4},  {HS_Q4_0, HS_F32, 128, 8, 2, 32, 32, 4},
        {HS_Q6_K, HS_F16, 256, 4, 2, 64, 64, 3}, {HS_F16, HS_F16, 16, 1, 1, 160, 0, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attn(&cases[i], 3000 + i);
}

/* --- host threads, bounds ------------------------------------------------------------------------
 */

static void *head_on_thread(void *ud)
{
    head_case(ud, HS_Q4_0, 40, 64, 1);
    return ud;
}

/* One host thread at a time, always another one. */
static void test_host_threads(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 5);
    for (int i = 0; i < 4; i++) {
        pthread_t th;
        void *ok;
        assert_int_equal(pthread_create(&th, NULL, head_on_thread, &r), 0);
        assert_int_equal(pthread_join(th, &ok), 0);
        assert_ptr_equal(ok, &r);
    }
    rig_close(&r);
}

#ifdef ASAN
/* A wrong neuron number, which no size check can see: the kernel's read is caught. */
static void test_bounds(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(2); /* the report is expected */
        rig r;
        rig_open(&r, 6);
        ffn_data d;
        const ffn_case c = {HS_F32, HS_F32, HS_F32, HS_F32, 1,         32,
                            true,   false,  true,   true,   HS_FN_RELU};
        const hs_dev_ffn f = ffn_args(&r, &c, &d);
        const int32_t id = 4 << 20; /* 16 MiB further: in the arena, in no buffer */
        hs_err err;
        r.ops->send(r.dev, r.s.x, r.x, 4 * 32);
        if (r.ops->upload(r.dev, f.id, 0, &id, 4, &err) != HS_OK)
            _exit(2);
        r.ops->ffn(r.dev, &f);
        _exit(r.ops->sync(r.dev, &err) == HS_OK ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),         cmocka_unit_test(test_open),
        cmocka_unit_test(test_copies),        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_head),          cmocka_unit_test(test_ffn_types),
        cmocka_unit_test(test_ffn_shapes),    cmocka_unit_test(test_ffn_mixed),
        cmocka_unit_test(test_ffn_functions), cmocka_unit_test(test_attn),
        cmocka_unit_test(test_host_threads),
#ifdef ASAN
        cmocka_unit_test(test_bounds),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
