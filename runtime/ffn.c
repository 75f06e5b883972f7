/* The feed-forward block, dense or by neuron.
 *
 * The neuron path works on a list: candidates (the CPU's neurons, under a predictor only those
 * whose score reaches the threshold), then gate, activation, up for the active ones, then the
 * down rows of the active ones, added in rising order with the columns split over threads.
 * Which neurons are in the list does not depend on where they are computed, so any placement
 * gives the same set. */
#include "runtime/session.h"

#include <string.h>

/* ---- the neuron path ------------------------------------------------------------------- */

typedef struct neuron_job {
    hs_session *s;
    const hs_layer *y;
    const float *xn;
    const int32_t *cand;
    float *z; /* [candidates] */
    uint8_t *active;
} neuron_job;

/* Activation output and product of one neuron; the activation output is 0 when inactive. */
static float neuron(const hs_session *s, const hs_layer *y, const float *xn, int32_t id,
                    bool *active)
{
    const hs_model *m = s->m;
    const float g = s->k.type[y->gate.dtype].dot(hs_mat_row(&y->gate, (uint64_t)id), xn,
                                                 hs_q8_at(s, 0), m->n_embd);
    const float a = hs_act_gate(m->fn, m->fn_param, g);
    *active = a != 0;
    if (!*active)
        return 0;
    const float u = hs_act_up(m->fn, s->k.type[y->up.dtype].dot(hs_mat_row(&y->up, (uint64_t)id),
                                                                xn, hs_q8_at(s, 0), m->n_embd));
    if (m->fn == HS_FN_DRELU)
        *active = u != 0;
    return a * u;
}

static void neuron_range(void *ud, int64_t begin, int64_t end)
{
    const neuron_job *j = ud;
    for (int64_t i = begin; i < end; i++) {
        bool active;
        j->z[i] = neuron(j->s, j->y, j->xn, j->cand[i], &active);
        j->active[i] = active;
    }
}

typedef struct down_job {
    const hs_session *s;
    const hs_mat *d;
    const int32_t *id;
    const float *z;
    uint32_t n;
    float *out;
} down_job;

static void down_columns(void *ud, int64_t begin, int64_t end)
{
    const down_job *j = ud;
    const hs_kernel_type *kt = &j->s->k.type[j->d->dtype];
    memset(j->out + begin, 0, (size_t)(end - begin) * sizeof *j->out);
    for (uint32_t i = 0; i < j->n; i++)
        kt->axpy(j->out, j->z[i], hs_mat_row(j->d, (uint64_t)j->id[i]), (size_t)begin, (size_t)end);
}

/* out[n_embd] = sum of z[i] * down row id[i], ids rising. */
static void down_rows(hs_session *s, const hs_mat *d, const int32_t *id, const float *z, uint32_t n,
                      float *out)
{
    const uint32_t block = hs_dtype_get(d->dtype)->block_elems;
    int64_t step = s->m->n_embd / (2 * hs_pool_size(s->pool));
    const int64_t unit = block > 64 ? block : 64;
    step = step / unit * unit;
    down_job j = {s, d, id, z, n, out};
    hs_pool_run(s->pool, s->m->n_embd, step < unit ? unit : step, down_columns, &j);
}

static bool needs_q8(const hs_session *s, const hs_layer *y)
{
    return s->k.type[y->gate.dtype].act == HS_ACT_Q8 || s->k.type[y->up.dtype].act == HS_ACT_Q8;
}

/* The CPU's neurons for one token: xn -> out; score is NULL without a predictor. */
static void neurons_host(hs_session *s, uint32_t layer, const float *xn, const float *score,
                         float *out)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    const hs_layer *y = &s->m->layer[layer];
    uint32_t n = 0;
    for (uint32_t i = 0; i < sl->n_host; i++)
        /* Not (score < threshold): a NaN score counts as active, as everywhere in the field. */
        if (!score || !(score[sl->host[i]] < s->threshold))
            s->cand[n++] = sl->host[i];
    if (n && needs_q8(s, y))
        hs_quantize_batch(s, xn, 0, s->m->n_embd, 1);
    uint8_t *flags = (uint8_t *)s->u; /* the dense path's buffer is free here */
    neuron_job j = {s, y, xn, s->cand, s->zc, flags};
    const int64_t step = n / (4 * (uint32_t)hs_pool_size(s->pool)) + 1;
    hs_pool_run(s->pool, n, step < 8 ? 8 : step, neuron_range, &j);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->count[layer].cpu_active += flags[i];
        if (s->zc[i] != 0) {
            s->act[k] = s->cand[i];
            s->zc[k++] = s->zc[i];
        }
    }
    down_rows(s, &s->down_t[layer], s->act, s->zc, k, out);
}

/* The device's share of one token is queued; what the host needs back arrives with sync. */
static void queue_device(hs_session *s, uint32_t layer, const float *x, const float *xn,
                         float *score, bool masked, uint32_t *count)
{
    const hs_split *sp = s->split;
    hs_dev_ffn f = sp->layer[layer].dev_ffn;
    const uint64_t bytes = 4ull * s->m->n_embd, score_bytes = 4ull * s->m->n_ff;
    f.masked = masked;
    f.has_predictor = f.has_predictor && masked;
    f.threshold = s->threshold;
    if (f.has_norm || f.has_predictor)
        sp->ops->send(sp->dev, sp->scratch.x, x, bytes);
    if (!f.has_norm)
        sp->ops->send(sp->dev, sp->scratch.xn, xn, bytes);
    if (masked && !f.has_predictor)
        sp->ops->send(sp->dev, sp->scratch.score, score, score_bytes);
    sp->ops->ffn(sp->dev, &f);
    if (f.has_predictor)
        sp->ops->recv(sp->dev, score, sp->scratch.score, score_bytes);
    sp->ops->recv(sp->dev, s->ydev, sp->scratch.y, bytes);
    sp->ops->recv(sp->dev, count, sp->scratch.count, 4);
}

/* One token through the neuron path.  x: residual; xn: its norm; score: filled already unless
 * the predictor is on the device. */
static hs_status neurons_token(hs_session *s, uint32_t layer, const float *x, const float *xn,
                               float *score, float *out, hs_err *err)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    const bool masked = s->mode[layer] == HS_SPARSITY_PREDICTED;
    const bool remote_score = masked && sl->predictor;
    const bool device = sl->n_device || remote_score;
    uint32_t device_active = 0;
    hs_status st = HS_OK;
    if (device)
        queue_device(s, layer, x, xn, score, masked, &device_active);
    if (remote_score && (st = s->split->ops->sync(s->split->dev, err)) != HS_OK)
        return st;
    neurons_host(s, layer, xn, masked ? score : NULL, out);
    if (device && !remote_score && (st = s->split->ops->sync(s->split->dev, err)) != HS_OK)
        return st;
    if (sl->n_device)
        for (uint32_t i = 0; i < s->m->n_embd; i++)
            out[i] += s->ydev[i];
    hs_layer_counts *c = &s->count[layer];
    c->tokens++;
    c->device_active += device_active;
    for (uint32_t i = 0; i < s->m->n_ff; i++)
        c->predicted += !masked || !(score[i] < s->threshold);
    return HS_OK;
}

static hs_status ffn_neurons(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    const hs_model *m = s->m;
    const hs_layer *y = &m->layer[layer];
    const bool masked = s->mode[layer] == HS_SPARSITY_PREDICTED;
    if (masked && !s->split->layer[layer].predictor) {
        /* Predictor source: the residual before the FFN norm. */
        hs_matmul(s, &y->fc1, s->x, m->n_embd, s->hid, y->fc1.rows, n);
        for (size_t i = 0; i < n * y->fc1.rows; i++)
            s->hid[i] = hs_act_gate(HS_FN_RELU, 0, s->hid[i]);
        hs_matmul(s, &y->fc2, s->hid, y->fc1.rows, s->score, m->n_ff, n);
    }
    for (size_t t = 0; t < n; t++) {
        const hs_status st = neurons_token(s, layer, s->x + t * m->n_embd, s->xn + t * m->n_embd,
                                           s->score + t * m->n_ff, s->y + t * m->n_embd, err);
        if (st != HS_OK)
            return st;
    }
    return HS_OK;
}

/* ---- the dense path -------------------------------------------------------------------- */

/* g becomes z = act(g) * act(u); u becomes the activation output, for counting and observers. */
static uint64_t activate(const hs_model *m, float *g, float *u, size_t n)
{
    uint64_t active = 0;
    for (size_t i = 0; i < n; i++) {
        float a = hs_act_gate(m->fn, m->fn_param, g[i]);
        const float v = hs_act_up(m->fn, u[i]);
        g[i] = a * v;
        if (m->fn == HS_FN_DRELU && v == 0)
            a = 0;
        u[i] = a;
        active += a != 0;
    }
    return active;
}

static void down_dense(hs_session *s, uint32_t layer, const float *z, float *out)
{
    uint32_t k = 0;
    for (uint32_t i = 0; i < s->m->n_ff; i++)
        if (z[i] != 0) {
            s->act[k] = (int32_t)i;
            s->zc[k++] = z[i];
        }
    down_rows(s, &s->down_t[layer], s->act, s->zc, k, out);
}

static void ffn_dense(hs_session *s, uint32_t layer, size_t n)
{
    const hs_model *m = s->m;
    const hs_layer *y = &m->layer[layer];
    hs_matmul(s, &y->gate, s->xn, m->n_embd, s->g, m->n_ff, n);
    hs_matmul(s, &y->up, s->xn, m->n_embd, s->u, m->n_ff, n);
    for (size_t t = 0; t < n; t++) {
        float *g = s->g + t * m->n_ff, *u = s->u + t * m->n_ff;
        s->count[layer].cpu_active += activate(m, g, u, m->n_ff);
        s->count[layer].predicted += m->n_ff;
        s->count[layer].tokens++;
        if (s->observe)
            s->observe(s->observe_ud, layer, s->pos + t, u);
        if (!y->down.data)
            down_dense(s, layer, g, s->y + t * m->n_embd);
    }
    if (y->down.data)
        hs_matmul(s, &y->down, s->g, m->n_ff, s->y, m->n_embd, n);
}

hs_status hs_ffn_forward(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    const hs_model *m = s->m;
    for (size_t t = 0; t < n; t++)
        hs_rmsnorm(s, s->xn + t * m->n_embd, s->x + t * m->n_embd, m->layer[layer].ffn_norm);
    const bool dense =
        s->observe || (s->mode[layer] == HS_SPARSITY_OFF && s->split->layer[layer].n_device == 0);
    if (dense) {
        ffn_dense(s, layer, n);
    } else {
        const hs_status st = ffn_neurons(s, layer, n, err);
        if (st != HS_OK)
            return st;
    }
    for (size_t i = 0; i < n * m->n_embd; i++)
        s->x[i] += s->y[i];
    return HS_OK;
}
