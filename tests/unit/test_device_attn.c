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

static void ref_attend(const rig *r, const hs_dev_attn *a, uint32_t pos, attn_ref *t)
{
    const hs_kernel_type *kt = &r->k.type[a->kv_type];
    const uint32_t hd = a->head_dim, kn = a->n_head_kv * hd, size = a->kv_type == HS_F16 ? 2 : 4;
    uint8_t *kc = t->kc + (size_t)pos * kn * size, *vc = t->vc + (size_t)pos * kn * size;
    hs_dtype_get(a->kv_type)->encode(kc, t->k, kn);
    hs_dtype_get(a->kv_type)->encode(vc, t->v, kn);
    memset(t->o, 0, sizeof t->o);
    for (uint32_t h = 0; h < a->n_head; h++) {
        const size_t head = (size_t)(h / (a->n_head / a->n_head_kv)) * hd * size;
        float e[MAX_CTX], *o = t->o + h * hd;
        for (uint32_t i = 0; i <= pos; i++)
            e[i] = kt->dot(t->kc + (size_t)i * kn * size + head, t->q + h * hd, (hs_q8){0}, hd) *
                   (1.0f / sqrtf((float)hd));
        const float sum = r->k.exp_sum(e, e, r->k.max(e, pos + 1), pos + 1);
        for (uint32_t from = 0; from <= pos; from += HS_ATT_BLOCK) {
            float part[256] = {0};
            for (uint32_t i = from; i <= pos && i < from + HS_ATT_BLOCK; i++)
                kt->axpy(part, e[i], t->vc + (size_t)i * kn * size + head, 0, hd);
            for (uint32_t c = 0; c < hd; c++)
                o[c] += part[c];
        }
        for (uint32_t c = 0; c < hd; c++)
            o[c] *= 1.0f / sum;
    }
}

typedef struct attn_case {
    hs_dtype type, kv_type;
    uint32_t n_embd, n_head, n_head_kv, head_dim, rope_dim, from, n_pos;
} attn_case;

typedef struct attn_rig {
    rig r;
    mat wq, wk, wv, wo;
    float *norm;
    hs_dev_attn a;
    attn_ref t;
} attn_rig;

static void attn_open(attn_rig *g, const attn_case *c, uint64_t seed)
{
    rig_open(&g->r, seed);
    rig *r = &g->r;
    const uint32_t qn = c->n_head * c->head_dim, kn = c->n_head_kv * c->head_dim;
    g->wq = random_mat(r, c->type, qn, c->n_embd);
    g->wk = random_mat(r, c->type, kn, c->n_embd);
    g->wv = random_mat(r, c->type, kn, c->n_embd);
    g->wo = random_mat(r, c->type, c->n_embd, qn);
    const uint64_t cache = (uint64_t)MAX_CTX * kn * (c->kv_type == HS_F16 ? 2 : 4);
    g->t = (attn_ref){.kc = own(r, cache), .vc = own(r, cache)};
    random_rows(r, c->kv_type, g->t.kc, cache);
    random_rows(r, c->kv_type, g->t.vc, cache);
    g->a = (hs_dev_attn){.scratch = &r->s,
                         .norm = random_floats(r, &g->norm, c->n_embd),
                         .wq = g->wq.dev,
                         .wk = g->wk.dev,
                         .wv = g->wv.dev,
                         .wo = g->wo.dev,
                         .eps = 1e-5f,
                         .n_embd = c->n_embd,
                         .n_head = c->n_head,
                         .n_head_kv = c->n_head_kv,
                         .head_dim = c->head_dim,
                         .rope_dim = c->rope_dim,
                         .k_cache = put(r, g->t.kc, cache),
                         .v_cache = put(r, g->t.vc, cache),
                         .kv_type = c->kv_type,
                         .n_ctx = MAX_CTX};
}

/* Of n tokens from position `pos` on: residuals into x, angles into step, and what attention makes
 * of them, q, k, v before RoPE and o. */
typedef struct attn_batch {
    uint32_t step[4 + HS_DEV_BATCH * 128];
    float x[HS_DEV_BATCH * MAX_EMBD], qkv[HS_DEV_BATCH * 2 * MAX_EMBD], o[HS_DEV_BATCH * MAX_EMBD],
        y[HS_DEV_BATCH * MAX_EMBD]; /* y: residual afterwards */
} attn_batch;

static void attn_reference(attn_rig *g, uint32_t pos, uint32_t n, attn_batch *b)
{
    const hs_dev_attn *a = &g->a;
    const uint32_t qn = a->n_head * a->head_dim, kn = a->n_head_kv * a->head_dim;
    float *angle = (float *)(void *)(b->step + 4);
    attn_ref *t = &g->t;
    b->step[0] = pos;
    for (uint32_t i = 0; i < n; i++) {
        float *x = b->x + i * a->n_embd, *cs = angle + i * a->rope_dim,
              *qkv = b->qkv + i * (qn + 2 * kn), xn[MAX_EMBD];
        for (uint32_t c = 0; c < a->n_embd; c++)
            x[c] = rndf(&g->r);
        for (uint32_t p = 0; p < a->rope_dim / 2; p++) {
            cs[2 * p] = cosf((float)(pos + i) / (float)(p + 1));
            cs[2 * p + 1] = sinf((float)(pos + i) / (float)(p + 1));
        }
        ref_norm(&g->r, xn, x, g->norm, a->n_embd, a->eps);
        ref_matvec(&g->r, &g->wq, xn, t->q);
        ref_matvec(&g->r, &g->wk, xn, t->k);
        ref_matvec(&g->r, &g->wv, xn, t->v);
        memcpy(qkv, t->q, 4 * qn);
        memcpy(qkv + qn, t->k, 4 * kn);
        memcpy(qkv + qn + kn, t->v, 4 * kn);
        ref_rope(a, t->q, a->n_head, cs);
        ref_rope(a, t->k, a->n_head_kv, cs);
        ref_attend(&g->r, a, pos + i, t);
        memcpy(b->o + i * qn, t->o, 4 * qn);
        ref_matvec(&g->r, &g->wo, t->o, t->y);
        for (uint32_t c = 0; c < a->n_embd; c++)
            b->y[i * a->n_embd + c] = x[c] + t->y[c];
    }
}

/* n tokens at `pos` through the device's cache, and in two stages as with the host's. */
static void attn_step(attn_rig *g, uint32_t pos, uint32_t n)
{
    rig *r = &g->r;
    hs_dev_attn a = g->a;
    attn_batch *want = own(r, sizeof *want), *got = own(r, sizeof *got);
    const uint32_t qn = a.n_head * a.head_dim, kn = a.n_head_kv * a.head_dim;
    attn_reference(g, pos, n, want);
    a.n_tokens = n;
    r->ops->send(r->dev, r->s.x, want->x, 4ull * n * a.n_embd);
    a.stage = HS_DEV_ATTN_QKV;
    r->ops->attn(r->dev, &a);
    r->ops->recv(r->dev, got->qkv, r->s.qkv, 4ull * n * (qn + 2 * kn));
    r->ops->send(r->dev, r->s.o, want->o, 4ull * n * qn);
    a.stage = HS_DEV_ATTN_OUT;
    r->ops->attn(r->dev, &a);
    r->ops->recv(r->dev, got->y, r->s.x, 4ull * n * a.n_embd);
    sync_good(r);
    check_floats("qkv", got->qkv, want->qkv, n * (qn + 2 * kn));
    check_floats("out", got->y, want->y, n * a.n_embd);

    r->ops->send(r->dev, r->s.x, want->x, 4ull * n * a.n_embd);
    r->ops->send(r->dev, r->s.step, want->step, 16 + 4ull * n * a.rope_dim);
    a.stage = HS_DEV_ATTN_ALL;
    r->ops->attn(r->dev, &a);
    r->ops->recv(r->dev, got->o, r->s.o, 4ull * n * qn);
    r->ops->recv(r->dev, got->y, r->s.x, 4ull * n * a.n_embd);
    sync_good(r);
    check_floats("o", got->o, want->o, n * qn);
    check_floats("y", got->y, want->y, n * a.n_embd);
    r->n_owned -= 2;
    free(want);
    free(got);
}

/* Positions one by one, then a batch of every size; the last batch again with one token and as a
 * captured run. */
static void run_attn(const attn_case *c, uint64_t seed)
{
    attn_rig g;
    attn_open(&g, c, seed);
    uint32_t pos = c->from;
    for (; pos < c->from + c->n_pos; pos++)
        attn_step(&g, pos, 1);
    for (uint32_t n = 2; n <= HS_DEV_BATCH; n += 3, pos += n)
        attn_step(&g, pos, n);
    hs_dev_attn a = g.a;
    hs_err err;
    a.n_tokens = HS_DEV_BATCH + 1;
    g.r.ops->attn(g.r.dev, &a);
    assert_int_equal(g.r.ops->sync(g.r.dev, &err), HS_ERR_DEVICE);
    rig_close(&g.r);
}

static void test_attn(void **state)
{
    (void)state;
    static const attn_case cases[] = {
        {HS_F32, HS_F32, 64, 2, 2, 32, 32, 0, 34},   {HS_F16, HS_F16, 96, 4, 2, 32, 32, 0, 4},
        {HS_BF16, HS_F16, 64, 2, 1, 64, 32, 0, 2},   {HS_F32, HS_F16, 33, 3, 1, 96, 96, 0, 3},
        {HS_F32, HS_F32, 40, 2, 2, 7, 6, 29, 5},     {HS_Q8_0, HS_F16, 64, 4, 4, 32, 32, 0, 2},
        {HS_Q5_0, HS_F16, 96, 2, 1, 96, 64, 0, 2},   {HS_Q4_0, HS_F32, 128, 8, 1, 32, 32, 0, 2},
        {HS_Q6_K, HS_F16, 256, 4, 2, 64, 64, 0, 1},  {HS_F16, HS_F16, 16, 1, 1, 160, 0, 0, 3},
        {HS_Q4_K, HS_F16, 256, 4, 1, 64, 64, 0, 1},  {HS_Q5_1, HS_F16, 64, 4, 4, 32, 32, 0, 2},
        {HS_F32, HS_F16, 32, 8, 2, 16, 16, 250, 10}, {HS_F32, HS_F32, 32, 4, 4, 16, 16, 508, 6},
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
