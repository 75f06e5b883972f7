#ifndef HS_TESTS_UNIT_DEVICE_RIG_H
#define HS_TESTS_UNIT_DEVICE_RIG_H

/* What the tests of the device share: an open device with scratch memory, random matrices that
 * lie on both sides, and the scalar reference. */

#include "runtime/device.h"
#include "runtime/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const hs_dtype all_types[] = {HS_F32,  HS_F16,  HS_BF16, HS_Q8_0,   HS_Q5_0,
                                     HS_Q4_0, HS_Q6_K, HS_Q4_1, HS_Q5_1,   HS_Q2_K,
                                     HS_Q3_K, HS_Q4_K, HS_Q5_K, HS_IQ4_NL, HS_IQ4_XS};
enum { N_TYPES = sizeof all_types / sizeof *all_types };

/* --- one device with scratch, and random matrices on both sides ---------------------- */

typedef struct rig {
    const hs_device_ops *ops;
    hs_device *dev;
    hs_dev_scratch s;
    hs_kernels k;
    uint64_t rng;
    void *owned[64];
    size_t n_owned;
    float *x; /* [HS_DEV_BATCH][MAX_EMBD] */
} rig;

typedef struct mat {
    hs_dev_mat dev;
    uint8_t *host;
} mat;

/* The emulation, or with HS_DEVICE=cuda (scripts/check-gpu) the first GPU. */
static inline const hs_device_ops *tested_device(void)
{
    const char *name = getenv("HS_DEVICE");
    const hs_device_ops *ops =
        name && strcmp(name, "cuda") == 0 ? hs_device_cuda() : hs_device_emu();
    assert_non_null(ops);
    return ops;
}

static inline bool is_emulated(const hs_device_ops *ops) { return ops == hs_device_emu(); }

static inline void *own(rig *r, size_t bytes)
{
    void *p = calloc(1, bytes ? bytes : 1);
    assert_non_null(p);
    assert_true(r->n_owned < sizeof r->owned / sizeof *r->owned);
    r->owned[r->n_owned++] = p;
    return p;
}

static inline uint32_t rnd(rig *r)
{
    r->rng = r->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->rng >> 33);
}

/* In (-1, 1). */
static inline float rndf(rig *r) { return ((float)(rnd(r) & 0xffff) - 32767.5f) / 32768.0f; }

static inline void good(hs_status st, const hs_err *err)
{
    if (st)
        fail_msg("%s", err->msg);
}

static inline hs_buf take(rig *r, uint64_t bytes)
{
    hs_buf b;
    hs_err err;
    good(r->ops->alloc(r->dev, bytes, &b, &err), &err);
    return b;
}

static inline hs_buf put(rig *r, const void *data, uint64_t bytes)
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

static inline void sync_good(rig *r)
{
    hs_err err = {.code = HS_OK};
    good(r->ops->sync(r->dev, &err), &err);
}

enum { MAX_EMBD = 1024, MAX_FF = 512, MAX_CTX = 600, MAX_HEADS = 8 };

static inline void rig_open(rig *r, uint64_t seed)
{
    *r = (rig){.ops = tested_device(), .rng = seed};
    hs_kernels_init(&r->k, HS_CPU_SCALAR);
    hs_err err;
    good(r->ops->open(&r->dev, 0, 48u << 20, &err), &err);
    hs_dev_scratch *s = &r->s;
    const uint64_t b = HS_DEV_BATCH, blocks = (MAX_CTX + HS_ATT_BLOCK - 1) / HS_ATT_BLOCK;
    s->x = take(r, 4 * b * MAX_EMBD);
    s->step = take(r, 16 + 4 * b * 128);
    s->rec = take(r, 4 * b * hs_dev_record_words(MAX_EMBD, MAX_FF));
    s->sum = take(r, 8ull * HS_DEV_SUMS * MAX_EMBD);
    s->far = take(r, 8 * b * MAX_EMBD);
    s->qkv = take(r, 4 * b * 2 * MAX_EMBD);
    s->o = take(r, 4 * b * MAX_EMBD);
    s->att = take(r, 4 * b * MAX_HEADS * MAX_CTX);
    s->top = take(r, 4 * b * MAX_HEADS * blocks);
    s->part = take(r, 4 * b * MAX_EMBD * blocks);
    s->hid = take(r, 4 * b * 512);
    s->z = take(r, 4 * b * MAX_FF);
    s->stats = take(r, 16 * 2);
    s->logits = take(r, 4 * 512);
    s->act_q = take(r, b * MAX_EMBD);
    s->act_d = take(r, b * 4 * MAX_EMBD / 32);
    const uint64_t zero[4] = {0};
    good(r->ops->upload(r->dev, s->stats, 0, zero, 32, &err), &err);
    r->x = own(r, 4 * HS_DEV_BATCH * MAX_EMBD);
    for (int i = 0; i < HS_DEV_BATCH * MAX_EMBD; i++)
        r->x[i] = rndf(r);
}

static inline void rig_close(rig *r)
{
    r->ops->close(r->dev);
    for (size_t i = 0; i < r->n_owned; i++)
        free(r->owned[i]);
}

/* Where a block has its scale; a minimum's follows. */
static inline size_t d_at(hs_dtype t)
{
    return t == HS_Q6_K ? 208 : t == HS_Q2_K ? 80 : t == HS_Q3_K ? 108 : 0;
}

static inline bool is_super(hs_dtype t) { return hs_dtype_get(t)->block_elems == 256; }

/* Random bits for the integers, so that every bit position counts; moderate scales: the sums of a
 * layer stay where they do not depend on their order (mathx.h). */
static inline void random_rows(rig *r, hs_dtype t, uint8_t *p, size_t bytes)
{
    const hs_dtype_info *info = hs_dtype_get(t);
    for (size_t at = 0; at < bytes; at += info->block_bytes) {
        const float f = rndf(r);
        const float small = is_super(t) ? 4096 : 16;
        const uint16_t half = hs_f32_to_f16(f / small), brain = hs_f32_to_bf16(f);
        for (size_t i = 0; i < info->block_bytes; i++)
            p[at + i] = (uint8_t)rnd(r);
        if (t == HS_F32)
            memcpy(p + at, &f, 4);
        else if (t == HS_BF16)
            memcpy(p + at, &brain, 2);
        else
            memcpy(p + at + d_at(t), &half, 2);
        const uint16_t min = hs_f32_to_f16(rndf(r) / small);
        if (t == HS_Q4_1 || t == HS_Q5_1 || t == HS_Q2_K || t == HS_Q4_K || t == HS_Q5_K)
            memcpy(p + at + d_at(t) + 2, &min, 2);
    }
}

static inline mat random_mat(rig *r, hs_dtype t, uint32_t rows, uint32_t cols)
{
    mat m = {.dev = {.dtype = t, .cols = cols, .rows = rows}};
    assert_true(hs_dtype_row_bytes(t, cols, &m.dev.row_bytes));
    m.host = own(r, rows * m.dev.row_bytes);
    random_rows(r, t, m.host, rows * m.dev.row_bytes);
    m.dev.buf = put(r, m.host, rows * m.dev.row_bytes);
    return m;
}

static inline hs_buf random_floats(rig *r, float **host, size_t n)
{
    *host = own(r, 4 * n);
    for (size_t i = 0; i < n; i++)
        (*host)[i] = rndf(r);
    return put(r, *host, 4 * n);
}

static inline void check_floats(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s[%zu]: got %a, expected %a", what, i, (double)got[i], (double)want[i]);
}

/* --- the reference ------------------------------------------------------------------- */

static inline float ref_dot(const rig *r, const mat *m, uint32_t row, const float *x)
{
    const hs_kernel_type *kt = &r->k.type[m->dev.dtype];
    int8_t q[MAX_EMBD];
    float d[MAX_EMBD / 32];
    const hs_q8 act = {q, d};
    if (kt->act == HS_ACT_Q8)
        r->k.quantize_q8(act, x, m->dev.cols);
    return kt->dot(m->host + row * m->dev.row_bytes, x, act, m->dev.cols);
}

static inline void ref_matvec(const rig *r, const mat *m, const float *x, float *y)
{
    for (uint32_t i = 0; i < m->dev.rows; i++)
        y[i] = ref_dot(r, m, i, x);
}

static inline void ref_norm(const rig *r, float *y, const float *x, const float *w, uint32_t n,
                            float eps)
{
    const float s = r->k.type[HS_F32].dot(x, x, (hs_q8){0}, n);
    r->k.scale_mul(y, x, 1.0f / sqrtf(s / (float)n + eps), w, n);
}

#endif
