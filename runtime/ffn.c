/* The feed-forward block, dense or by neuron.
 *
 * The neuron path works on a list: candidates (the CPU's neurons, under a predictor only those
 * whose score reaches the threshold), then gate, activation, up for the active ones, then the
 * down rows of the active ones, with the columns split over threads.  Which neurons are in the
 * list does not depend on where they are computed, and the sum of their rows does not depend on
 * its order (mathx.h): a placement changes no bit. */
#include "runtime/session.h"

#include <string.h>

/* ---- the neuron path ------------------------------------------------------------------- */

/* A chunk is `step` of the layer's neurons on this side; its lists start at its first neuron's
 * place in s->act and s->zc.  With several tokens chunks are small: their rows are then read from
 * memory once and from a near cache for the other tokens. */
typedef struct neuron_job {
    hs_session *s;
    const hs_layer *y;
    const hs_mat *down;
    const int32_t *host; /* this side's neurons, rising */
    uint32_t n_host, step, n_chunks;
    const float *xn;    /* [n][n_embd] */
    const float *score; /* [n][n_ff], or NULL: all neurons are candidates */
    size_t n;
    double *sum; /* [n][n_embd] */
    /* [n][n_chunks] each: list lengths; activation output not 0; candidates. */
    uint32_t *live, *active, *proposed;
} neuron_job;

static void list_dots(const neuron_job *j, const hs_mat *w, size_t t, const int32_t *id, size_t n,
                      float *y)
{
    hs_kernel_tile(&j->s->k.type[w->dtype], &(hs_tile){.row = w->data,
                                                       .row_bytes = w->row_bytes,
                                                       .n_rows = n,
                                                       .id = id,
                                                       .x = j->xn + t * j->s->m->n_embd,
                                                       .q = hs_q8_at(j->s, t),
                                                       .n = 1,
                                                       .cols = w->cols,
                                                       .y = y});
}

/* Without a predictor every token needs every gate: all at once, into z. */
static void chunk_gates(const neuron_job *j, uint32_t begin, uint32_t n)
{
    const hs_session *s = j->s;
    const hs_mat *w = &j->y->gate;
    hs_kernel_tile(&s->k.type[w->dtype], &(hs_tile){.row = w->data,
                                                    .row_bytes = w->row_bytes,
                                                    .n_rows = n,
                                                    .id = j->host + begin,
                                                    .x = j->xn,
                                                    .q = hs_q8_at(s, 0),
                                                    .ldx = s->m->n_embd,
                                                    .ldq = s->q8_cols,
                                                    .n = j->n,
                                                    .cols = w->cols,
                                                    .y = s->zc + begin,
                                                    .ldy = s->m->n_ff});
}

/* The list of one chunk and token: candidates, then those with a gate, then those with a product.
 * It shrinks in place. */
static void neuron_list(const neuron_job *j, size_t t, uint32_t chunk, uint32_t begin, uint32_t end)
{
    const hs_session *s = j->s;
    const hs_model *m = s->m;
    const size_t at = t * m->n_ff + begin, slot = t * j->n_chunks + chunk;
    int32_t *id = s->act + at;
    float *z = s->zc + at, *u = s->g + at; /* g is the dense path's */
    uint32_t n = 0, k = 0, live = 0, active = 0;
    for (uint32_t i = begin; i < end; i++)
        /* Not (score < threshold): a NaN score counts as active, as everywhere in the field. */
        if (!j->score || !(j->score[t * m->n_ff + (size_t)j->host[i]] < s->threshold))
            id[n++] = j->host[i];
    if (j->score)
        list_dots(j, &j->y->gate, t, id, n, z);
    for (uint32_t i = 0; i < n; i++) {
        const float a = hs_act_gate(m->fn, m->fn_param, z[i]);
        if (a != 0) {
            id[k] = id[i];
            z[k++] = a;
        }
    }
    list_dots(j, &j->y->up, t, id, k, u);
    for (uint32_t i = 0; i < k; i++) {
        const float v = hs_act_up(m->fn, u[i]), product = z[i] * v;
        active += m->fn != HS_FN_DRELU || v != 0;
        if (product != 0) {
            id[live] = id[i];
            z[live++] = product;
        }
    }
    j->proposed[slot] = n;
    j->active[slot] = active;
    j->live[slot] = live;
}

static void neuron_chunks(void *ud, int64_t begin, int64_t end)
{
    const neuron_job *j = ud;
    for (int64_t c = begin; c < end; c++) {
        const uint32_t from = (uint32_t)c * j->step;
        const uint32_t n = j->n_host - from < j->step ? j->n_host - from : j->step;
        if (!j->score)
            chunk_gates(j, from, n);
        for (size_t t = 0; t < j->n; t++)
            neuron_list(j, t, (uint32_t)c, from, from + n);
    }
}

/* sum += z * down row over all lists. */
static void down_chunks(void *ud, int64_t begin, int64_t end)
{
    const neuron_job *j = ud;
    const hs_session *s = j->s;
    for (size_t t = 0; t < j->n; t++)
        memset(j->sum + t * s->m->n_embd + begin, 0, (size_t)(end - begin) * sizeof *j->sum);
    for (uint32_t c = 0; c < j->n_chunks; c++)
        for (size_t t = 0; t < j->n; t++) {
            const size_t at = t * s->m->n_ff + (size_t)c * j->step;
            hs_kernel_sum_rows(&s->k, j->down->dtype,
                               &(hs_sum_rows){.y = j->sum + t * s->m->n_embd,
                                              .a = s->zc + at,
                                              .row = j->down->data,
                                              .row_bytes = j->down->row_bytes,
                                              .id = s->act + at,
                                              .n = j->live[t * j->n_chunks + c],
                                              .begin = (size_t)begin,
                                              .end = (size_t)end});
        }
}

/* Columns of the down product that one task takes. */
static int64_t down_step(const hs_session *s, const hs_mat *d)
{
    const uint32_t block = hs_dtype_get(d->dtype)->block_elems;
    const int64_t unit = block > 64 ? block : 64;
    const int64_t step = s->m->n_embd / (2 * hs_pool_size(s->pool)) / unit * unit;
    return step < unit ? unit : step;
}

static void round_sums(hs_session *s, size_t n)
{
    for (size_t i = 0; i < n * s->m->n_embd; i++)
        s->y[i] = (float)s->sum[i];
}

static bool needs_q8(const hs_session *s, const hs_layer *y)
{
    return s->k.type[y->gate.dtype].act == HS_ACT_Q8 || s->k.type[y->up.dtype].act == HS_ACT_Q8;
}

void hs_neurons_host(hs_session *s, uint32_t layer, const float *xn, const float *score, size_t n)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    const hs_layer *y = &s->m->layer[layer];
    if (sl->n_host && needs_q8(s, y))
        hs_quantize_batch(s, xn, s->m->n_embd, s->m->n_embd, n);
    /* One token: few chunks, of whole rows in flight.  The numbers do not depend on it. */
    uint32_t step = sl->n_host / (4 * (uint32_t)hs_pool_size(s->pool)) + 1;
    if (n > 1 || step < HS_FFN_CHUNK)
        step = HS_FFN_CHUNK;
    const uint32_t n_chunks = sl->n_host / step + (sl->n_host % step != 0);
    neuron_job j = {.s = s,
                    .y = y,
                    .down = &s->down_t[layer],
                    .host = sl->host,
                    .n_host = sl->n_host,
                    .step = step,
                    .n_chunks = n_chunks,
                    .xn = xn,
                    .score = score,
                    .n = n,
                    .sum = s->sum,
                    .live = s->chunk,
                    .active = s->chunk + n * n_chunks,
                    .proposed = s->chunk + 2 * n * n_chunks};
    hs_pool_run(s->pool, n_chunks, 1, neuron_chunks, &j);
    hs_pool_run(s->pool, s->m->n_embd, down_step(s, j.down), down_chunks, &j);
    for (size_t i = 0; i < n * n_chunks; i++) {
        s->count[layer].cpu_active += j.active[i];
        if (sl->n_host == s->m->n_ff)
            s->count[layer].predicted += j.proposed[i];
    }
}

/* Predictor source: the residual before the FFN norm. */
void hs_predict_host(hs_session *s, uint32_t layer, size_t n)
{
    const hs_model *m = s->m;
    const hs_layer *y = &m->layer[layer];
    hs_matmul(s, &y->fc1, s->x, m->n_embd, s->hid, y->fc1.rows, n);
    for (size_t i = 0; i < n * y->fc1.rows; i++)
        s->hid[i] = hs_act_gate(HS_FN_RELU, 0, s->hid[i]);
    hs_matmul(s, &y->fc2, s->hid, y->fc1.rows, s->score, m->n_ff, n);
}

static void ffn_neurons(hs_session *s, uint32_t layer, size_t n)
{
    const bool masked = s->mode[layer] == HS_SPARSITY_PREDICTED;
    if (masked)
        hs_predict_host(s, layer, n);
    hs_neurons_host(s, layer, s->xn, masked ? s->score : NULL, n);
    round_sums(s, n);
    s->count[layer].tokens += n;
}

/* ---- the dense path -------------------------------------------------------------------- */

/* g becomes z = act(g) * act(u); u becomes the activation output, for counting and observers. */
static uint32_t activate(const hs_model *m, float *g, float *u, size_t n)
{
    uint32_t active = 0;
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

/* Elements of one task: a multiple of HS_FFN_CHUNK, so that s->chunk has room for the counts. */
enum { activate_step = 2048 };

static void activate_part(void *ud, int64_t begin, int64_t end)
{
    const hs_session *s = ud;
    s->chunk[begin / activate_step] =
        activate(s->m, s->g + begin, s->u + begin, (size_t)(end - begin));
}

/* The down product of n tokens through rows by neuron: one chunk that is the whole list. */
static void down_dense(hs_session *s, uint32_t layer, size_t n)
{
    const uint32_t n_ff = s->m->n_ff;
    for (size_t t = 0; t < n; t++) {
        const float *z = s->g + t * n_ff;
        uint32_t k = 0;
        for (uint32_t i = 0; i < n_ff; i++)
            if (z[i] != 0) {
                s->act[t * n_ff + k] = (int32_t)i;
                s->zc[t * n_ff + k++] = z[i];
            }
        s->chunk[t] = k;
    }
    neuron_job j = {.s = s,
                    .down = &s->down_t[layer],
                    .step = n_ff,
                    .n_chunks = 1,
                    .n = n,
                    .sum = s->sum,
                    .live = s->chunk};
    hs_pool_run(s->pool, s->m->n_embd, down_step(s, j.down), down_chunks, &j);
    round_sums(s, n);
}

static void ffn_dense(hs_session *s, uint32_t layer, size_t n)
{
    const hs_model *m = s->m;
    const hs_layer *y = &m->layer[layer];
    const hs_product p[] = {{&y->gate, s->g, m->n_ff}, {&y->up, s->u, m->n_ff}};
    hs_watched(s, HS_INPUT_FFN, layer, s->xn, m->n_embd, n);
    hs_matmuls(s, p, 2, s->xn, m->n_embd, n);
    const size_t cells = n * m->n_ff;
    hs_pool_run(s->pool, (int64_t)cells, activate_step, activate_part, s);
    for (size_t i = 0; i * activate_step < cells; i++)
        s->count[layer].cpu_active += s->chunk[i];
    s->count[layer].predicted += cells;
    s->count[layer].tokens += n;
    for (size_t t = 0; s->observe && t < n; t++)
        s->observe(s->observe_ud, layer, s->pos + t, s->u + t * m->n_ff);
    hs_watched(s, HS_INPUT_DOWN, layer, s->g, m->n_ff, n);
    if (s->down_t[layer].data)
        down_dense(s, layer, n);
    else
        hs_matmul(s, &y->down, s->g, m->n_ff, s->y, m->n_embd, n);
}

hs_status hs_ffn_forward(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    const hs_model *m = s->m;
    if (hs_hybrid_has_ffn(s, layer))
        return hs_hybrid_ffn(s, layer, n, err);
    const hs_status st = hs_hybrid_home(s, n, err);
    if (st != HS_OK)
        return st;
    for (size_t t = 0; t < n; t++)
        hs_rmsnorm(s, s->xn + t * m->n_embd, s->x + t * m->n_embd, m->layer[layer].ffn_norm);
    if (s->observe || s->watch || s->mode[layer] == HS_SPARSITY_OFF)
        ffn_dense(s, layer, n);
    else
        ffn_neurons(s, layer, n);
    for (size_t i = 0; i < n * m->n_embd; i++)
        s->x[i] += s->y[i];
    return HS_OK;
}
