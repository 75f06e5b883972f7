/* The device's attention, as compiled for the CPU, against the scalar kernels: equal to the bit,
 * for all weight types and for sizes around the widths of warps and blocks. */

#include "tests/unit/device_rig.h"

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
        {HS_Q4_K, HS_F16, 256, 4, 2, 64, 64, 3}, {HS_Q5_1, HS_F16, 64, 4, 4, 32, 32, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attn(&cases[i], 3000 + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
