/* Attention: projections for the whole batch, then one head per task, token by token.  A head
 * is computed from first to last position by one thread, so nothing depends on the thread
 * count.  Formulas: powerinfer-format.md 5.1 (RoPE on interleaved pairs, K stored after RoPE). */
#include "runtime/session.h"

#include <math.h>
#include <string.h>

typedef struct attend_job {
    hs_session *s;
    const uint8_t *k, *v; /* this layer's caches */
    const float *q;       /* [n][n_head][head_dim], after RoPE */
    float *spare;         /* the same memory: a head's q is not needed after its scores */
    float *o;
    uint32_t first_len; /* what the first token sees; each later one sees one more */
    size_t n;
} attend_job;

static void attend(const attend_job *j, size_t t, uint32_t h)
{
    const hs_session *s = j->s;
    const hs_model *m = s->m;
    const hs_kernel_type *kt = &s->k.type[s->kv_type];
    const uint32_t d = m->head_dim, group = m->n_head / m->n_head_kv;
    const uint64_t at = (uint64_t)(h / group) * (s->kv_row_bytes / m->n_head_kv);
    const uint64_t qo = ((uint64_t)t * m->n_head + h) * d;
    const float scale = 1.0f / sqrtf((float)d);
    const uint32_t len = j->first_len + (uint32_t)t;
    float *att = s->att + (uint64_t)h * s->n_ctx, *o = j->o + qo;
    hs_kernel_tile(kt, &(hs_tile){.row = j->k + at,
                                  .row_bytes = s->kv_row_bytes,
                                  .n_rows = len,
                                  .x = j->q + qo,
                                  .n = 1,
                                  .cols = d,
                                  .y = att});
    for (uint32_t i = 0; i < len; i++)
        att[i] *= scale;
    const float sum = s->k.exp_sum(att, att, s->k.max(att, len), len);
    for (uint32_t from = 0; from < len; from += HS_ATT_BLOCK) {
        float *y = from ? j->spare + qo : o;
        memset(y, 0, d * sizeof *y);
        hs_kernel_axpy_rows(
            kt, &(hs_axpy_rows){.y = y,
                                .a = att + from,
                                .row = j->v + at + from * s->kv_row_bytes,
                                .row_bytes = s->kv_row_bytes,
                                .n = len - from < HS_ATT_BLOCK ? len - from : HS_ATT_BLOCK,
                                .end = d});
        for (uint32_t c = 0; from && c < d; c++)
            o[c] += y[c];
    }
    const float inv = 1.0f / sum;
    for (uint32_t c = 0; c < d; c++)
        o[c] *= inv;
}

static void attend_heads(void *ud, int64_t begin, int64_t end)
{
    const attend_job *j = ud;
    for (int64_t h = begin; h < end; h++)
        for (size_t t = 0; t < j->n; t++)
            attend(j, t, (uint32_t)h);
}

/* cs: cos and sin of each pair at this position. */
static void rope(const hs_model *m, float *v, uint32_t n_head, const float *cs)
{
    for (uint32_t h = 0; h < n_head; h++) {
        float *p = v + (uint64_t)h * m->head_dim;
        for (uint32_t i = 0; i < m->rope_dim; i += 2) {
            const float a = p[i], b = p[i + 1];
            p[i] = a * cs[i] - b * cs[i + 1];
            p[i + 1] = a * cs[i + 1] + b * cs[i];
        }
    }
}

static void store(const hs_session *s, uint8_t *cache, uint32_t pos, const float *v)
{
    uint8_t *row = cache + pos * s->kv_row_bytes;
    if (s->kv_type == HS_F32)
        memcpy(row, v, s->kv_row_bytes);
    else
        hs_dtype_get(HS_F16)->encode(row, v, s->kv_row_bytes / 2);
}

const float *hs_rope_at(const hs_session *s, uint32_t pos)
{
    return s->rope + (uint64_t)pos * s->m->rope_dim;
}

void hs_attend_host(hs_session *s, uint32_t layer, size_t n)
{
    const hs_model *m = s->m;
    const size_t qn = (size_t)m->n_head * m->head_dim, kn = (size_t)m->n_head_kv * m->head_dim;
    const uint64_t slot = (uint64_t)s->kv_slot[layer] * s->n_ctx * s->kv_row_bytes;
    for (size_t t = 0; t < n; t++) {
        const uint32_t pos = s->pos + (uint32_t)t;
        float *k = s->kx + t * kn;
        rope(m, s->q + t * qn, m->n_head, hs_rope_at(s, pos));
        rope(m, k, m->n_head_kv, hs_rope_at(s, pos));
        store(s, s->k_cache + slot, pos, k);
        store(s, s->v_cache + slot, pos, s->vx + t * kn);
    }
    attend_job j = {s, s->k_cache + slot, s->v_cache + slot, s->q, s->q, s->o, s->pos + 1, n};
    hs_pool_run(s->pool, m->n_head, 1, attend_heads, &j);
}

static void attn_host(hs_session *s, uint32_t layer, size_t n)
{
    const hs_model *m = s->m;
    const hs_layer *y = &m->layer[layer];
    const size_t qn = (size_t)m->n_head * m->head_dim, kn = (size_t)m->n_head_kv * m->head_dim;
    for (size_t t = 0; t < n; t++)
        hs_rmsnorm(s, s->xn + t * m->n_embd, s->x + t * m->n_embd, y->attn_norm);
    hs_watched(s, HS_INPUT_ATTN, layer, s->xn, m->n_embd, n);
    const hs_product p[] = {{&y->wq, s->q, qn}, {&y->wk, s->kx, kn}, {&y->wv, s->vx, kn}};
    hs_matmuls(s, p, 3, s->xn, m->n_embd, n);
    hs_attend_host(s, layer, n);
    hs_watched(s, HS_INPUT_ATTN_OUT, layer, s->o, qn, n);
    hs_matmul(s, &y->wo, s->o, qn, s->y, m->n_embd, n);
}

hs_status hs_attn_forward(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    if (s->split->layer[layer].attn != HS_NOWHERE)
        return hs_hybrid_attn(s, layer, n, err);
    const hs_status st = hs_hybrid_home(s, n, err);
    if (st != HS_OK)
        return st;
    attn_host(s, layer, n);
    for (size_t i = 0; i < n * s->m->n_embd; i++)
        s->x[i] += s->y[i];
    return HS_OK;
}
