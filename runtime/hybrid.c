/* Layers of which devices have a part.
 *
 * The residual of the batch is in one place at a time: on the host, or on the device that has the
 * attention at work.  A layer whose attention, norm and predictor are on one device keeps it there:
 * the device tells the host the normalised input and the candidates, in one copy, and goes on with
 * its own neurons while the host, which has waited just for that copy, computes the others; the
 * host's sum is sent and the device adds both to the residual.  Where the residual is on the host,
 * it is the device's sum that is sent, and the host adds.  What a second device has of a layer goes
 * through the host.  Sums over neurons do not depend on their order (mathx.h), so that none of this
 * changes a bit.
 *
 * Pinned memory is never overwritten too early: a place is written again only after the host has
 * waited for something that its last reader's stream did later.  x, far and rec are sent and the
 * next time written after a later record, sum or residual of that device was waited for; x, step
 * and logits of a batch after begin() has waited for whatever the last one left. */
#include "runtime/session.h"

#include <math.h>
#include <string.h>

static size_t record_words(const hs_session *s)
{
    return hs_dev_record_words(s->m->n_embd, s->m->n_ff);
}

static bool is_masked(const hs_session *s, uint32_t layer)
{
    return s->mode[layer] == HS_SPARSITY_PREDICTED;
}

static hs_status wait_for(hs_split *sp, int d, hs_err *err)
{
    return sp->ops->wait(sp->device[d].dev, err);
}

/* ---- where the residual is ------------------------------------------------------------- */

hs_status hs_hybrid_begin(hs_session *s, size_t n, hs_err *err)
{
    hs_split *sp = s->split;
    for (int d = 0; d < sp->n_dev; d++) {
        hs_split_device *sd = &sp->device[d];
        sd->step_sent = false;
        if (sd->dirty) {
            sd->dirty = false;
            const hs_status st = sp->ops->sync(sd->dev, err);
            if (st != HS_OK)
                return st;
        }
    }
    sp->at = HS_NOWHERE;
    if (sp->n_dev) {
        const uint32_t rope = s->m->rope_dim;
        memcpy(sp->pin.step, (uint32_t[4]){s->pos}, 16);
        memcpy(sp->pin.step + 4, hs_rope_at(s, s->pos), n * rope * sizeof(float));
    }
    return HS_OK;
}

hs_status hs_hybrid_home(hs_session *s, size_t n, hs_err *err)
{
    hs_split *sp = s->split;
    if (sp->at == HS_NOWHERE)
        return HS_OK;
    const int d = sp->at;
    hs_split_device *sd = &sp->device[d];
    const uint64_t bytes = 4ull * n * s->m->n_embd;
    sp->ops->recv(sd->dev, sp->pin.x, sd->scratch.x, bytes);
    sp->ops->mark(sd->dev);
    const hs_status st = wait_for(sp, d, err);
    if (st != HS_OK)
        return st;
    sd->dirty = false;
    memcpy(s->x, sp->pin.x, bytes);
    sp->at = HS_NOWHERE;
    return HS_OK;
}

static void send_x(hs_session *s, int d, size_t n)
{
    hs_split *sp = s->split;
    const uint64_t bytes = 4ull * n * s->m->n_embd;
    memcpy(sp->pin.x, s->x, bytes);
    sp->ops->send(sp->device[d].dev, sp->device[d].scratch.x, sp->pin.x, bytes);
    sp->device[d].dirty = true;
}

/* The residual onto device d. */
static hs_status move_to(hs_session *s, int d, size_t n, hs_err *err)
{
    if (s->split->at == d)
        return HS_OK;
    const hs_status st = hs_hybrid_home(s, n, err);
    if (st == HS_OK) {
        send_x(s, d, n);
        s->split->at = d;
    }
    return st;
}

void hs_hybrid_abandon(hs_session *s)
{
    hs_split *sp = s->split;
    for (int d = 0; d < sp->n_dev; d++) {
        /* What fails now has failed because of what was reported. */
        if (sp->ops->sync(sp->device[d].dev, NULL) != HS_OK)
            continue;
        sp->device[d].dirty = false;
    }
    sp->at = HS_NOWHERE;
}

/* ---- attention ------------------------------------------------------------------------- */

static void send_step(hs_session *s, int d, size_t n)
{
    hs_split *sp = s->split;
    hs_split_device *sd = &sp->device[d];
    if (sd->step_sent)
        return;
    sp->ops->send(sd->dev, sd->scratch.step, sp->pin.step, 16 + 4ull * n * s->m->rope_dim);
    sd->step_sent = sd->dirty = true;
}

static void queue_attn(hs_session *s, uint32_t layer, size_t n, hs_dev_attn_stage stage)
{
    hs_split *sp = s->split;
    const int d = sp->layer[layer].attn;
    hs_dev_attn a = sp->layer[layer].part[d].attn;
    a.n_tokens = (uint32_t)n;
    a.stage = stage;
    sp->ops->attn(sp->device[d].dev, &a);
}

/* Projections on the device, cache and attention on the host. */
static hs_status attn_apart(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    hs_split *sp = s->split;
    const hs_model *m = s->m;
    const int d = sp->layer[layer].attn;
    hs_split_device *sd = &sp->device[d];
    const size_t q = (size_t)m->n_head * m->head_dim, kv = (size_t)m->n_head_kv * m->head_dim;
    queue_attn(s, layer, n, HS_DEV_ATTN_QKV);
    sp->ops->recv(sd->dev, sp->pin.qkv, sd->scratch.qkv, 4 * n * (q + 2 * kv));
    sp->ops->mark(sd->dev);
    const hs_status st = wait_for(sp, d, err);
    if (st != HS_OK)
        return st;
    for (size_t t = 0; t < n; t++) {
        const float *from = sp->pin.qkv + t * (q + 2 * kv);
        memcpy(s->q + t * q, from, q * sizeof *from);
        memcpy(s->kx + t * kv, from + q, kv * sizeof *from);
        memcpy(s->vx + t * kv, from + q + kv, kv * sizeof *from);
    }
    hs_attend_host(s, layer, n);
    memcpy(sp->pin.o, s->o, n * q * sizeof *s->o);
    sp->ops->send(sd->dev, sd->scratch.o, sp->pin.o, 4 * n * q);
    queue_attn(s, layer, n, HS_DEV_ATTN_OUT);
    sd->dirty = true;
    return HS_OK;
}

hs_status hs_hybrid_attn(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    const hs_status st = move_to(s, sl->attn, n, err);
    if (st != HS_OK)
        return st;
    if (!sl->kv)
        return attn_apart(s, layer, n, err);
    send_step(s, sl->attn, n);
    queue_attn(s, layer, n, HS_DEV_ATTN_ALL);
    return HS_OK;
}

/* ---- feed-forward ---------------------------------------------------------------------- */

/* The device that can go on with the residual it has, or HS_NOWHERE. */
static int ffn_home(const hs_session *s, uint32_t layer, int at)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    return at != HS_NOWHERE && sl->ffn_norm == at && (!is_masked(s, layer) || sl->predictor == at)
               ? at
               : HS_NOWHERE;
}

bool hs_hybrid_has_ffn(const hs_session *s, uint32_t layer)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    if (s->observe || s->watch || (s->mode[layer] == HS_SPARSITY_OFF && !sl->n_device))
        return false;
    return sl->n_device || (is_masked(s, layer) && sl->predictor != HS_NOWHERE) ||
           ffn_home(s, layer, s->split->at) != HS_NOWHERE;
}

static hs_dev_ffn ffn_of(const hs_session *s, uint32_t layer, int d, size_t n, unsigned stages)
{
    hs_dev_ffn f = s->split->layer[layer].part[d].ffn;
    f.masked = is_masked(s, layer);
    f.has_predictor = f.has_predictor && f.masked;
    f.threshold = s->threshold;
    f.n_tokens = (uint32_t)n;
    f.stages = stages;
    return f;
}

static void queue_ffn(hs_session *s, int d, const hs_dev_ffn *f)
{
    s->split->ops->ffn(s->split->device[d].dev, f);
    s->split->device[d].dirty = true;
}

static void send_records(hs_session *s, int d, size_t n)
{
    hs_split *sp = s->split;
    sp->ops->send(sp->device[d].dev, sp->device[d].scratch.rec, sp->pin.rec,
                  4 * n * record_words(s));
}

static void recv_records(hs_session *s, int d, size_t n)
{
    hs_split *sp = s->split;
    sp->ops->recv(sp->device[d].dev, sp->pin.rec, sp->device[d].scratch.rec,
                  4 * n * record_words(s));
}

/* Its neurons from its records, its sum for the host. */
static void queue_far(hs_session *s, uint32_t layer, int d, size_t n)
{
    hs_split *sp = s->split;
    hs_split_device *sd = &sp->device[d];
    hs_dev_ffn f = ffn_of(s, layer, d, n, HS_DEV_FFN_NEURONS | HS_DEV_FFN_COLLECT);
    f.has_norm = f.has_predictor = false; /* both are in the record */
    queue_ffn(s, d, &f);
    sp->ops->recv(sd->dev, sd->sum, sd->scratch.far, 8ull * n * s->m->n_embd);
    sp->ops->mark(sd->dev);
}

/* The same on all devices but `but`, which the records have not reached yet. */
static void queue_others(hs_session *s, uint32_t layer, int but, size_t n)
{
    for (int d = 0; d < s->split->n_dev; d++)
        if (d != but && s->split->layer[layer].part[d].ffn.n) {
            send_records(s, d, n);
            queue_far(s, layer, d, n);
        }
}

static hs_status add_far(hs_session *s, int d, size_t n, hs_err *err)
{
    const hs_split_device *sd = &s->split->device[d];
    const hs_status st = wait_for(s->split, d, err);
    for (size_t i = 0; st == HS_OK && i < n * s->m->n_embd; i++)
        s->sum[i] += sd->sum[i];
    s->split->device[d].dirty = false;
    return st;
}

static hs_status add_others(hs_session *s, uint32_t layer, int but, size_t n, hs_err *err)
{
    hs_status st = HS_OK;
    for (int d = 0; st == HS_OK && d < s->split->n_dev; d++)
        if (d != but && s->split->layer[layer].part[d].ffn.n)
            st = add_far(s, d, n, err);
    return st;
}

/* Records -> s->xn, and scores that say candidate or not. */
static void unpack(hs_session *s, uint32_t layer, size_t n)
{
    const hs_model *m = s->m;
    for (size_t t = 0; t < n; t++) {
        const uint32_t *rec = s->split->pin.rec + t * record_words(s), *bits = rec + m->n_embd;
        float *score = s->score + t * m->n_ff;
        memcpy(s->xn + t * m->n_embd, rec, m->n_embd * sizeof *s->xn);
        for (uint32_t i = 0; is_masked(s, layer) && i < m->n_ff; i++)
            score[i] = bits[i / 32] >> (i % 32) & 1 ? INFINITY : -INFINITY;
    }
}

/* s->xn and, with `scores`, s->score -> records. */
static void pack(hs_session *s, size_t n, bool scores)
{
    const hs_model *m = s->m;
    for (size_t t = 0; t < n; t++) {
        uint32_t *rec = s->split->pin.rec + t * record_words(s), *bits = rec + m->n_embd;
        const float *score = s->score + t * m->n_ff;
        memcpy(rec, s->xn + t * m->n_embd, m->n_embd * sizeof *s->xn);
        memset(bits, 0, (record_words(s) - m->n_embd) * sizeof *bits);
        for (uint32_t i = 0; scores && i < m->n_ff; i++)
            bits[i / 32] |= (uint32_t) !(score[i] < s->threshold) << (i % 32);
    }
}

/* Tokens, and candidates where neither hs_neurons_host nor a device has counted them. */
static void count(hs_session *s, uint32_t layer, size_t n)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    hs_layer_counts *c = &s->count[layer];
    c->tokens += n;
    if (!sl->n_device)
        return;
    if (!is_masked(s, layer))
        c->predicted += n * s->m->n_ff;
    for (size_t i = 0; is_masked(s, layer) && sl->predictor == HS_NOWHERE && i < n * s->m->n_ff;
         i++)
        c->predicted += !(s->score[i] < s->threshold);
}

static void host_neurons(hs_session *s, uint32_t layer, size_t n)
{
    hs_neurons_host(s, layer, s->xn, is_masked(s, layer) ? s->score : NULL, n);
}

/* The residual stays on device d. */
static hs_status ffn_on_device(hs_session *s, uint32_t layer, int d, size_t n, hs_err *err)
{
    hs_split *sp = s->split;
    hs_split_device *sd = &sp->device[d];
    const uint64_t bytes = 8ull * n * s->m->n_embd;
    hs_dev_ffn f = ffn_of(s, layer, d, n, HS_DEV_FFN_PREPARE);
    if (f.n == s->m->n_ff) {
        f.stages |= HS_DEV_FFN_NEURONS | HS_DEV_FFN_FINISH;
        queue_ffn(s, d, &f);
        return HS_OK;
    }
    queue_ffn(s, d, &f);
    recv_records(s, d, n);
    sp->ops->mark(sd->dev);
    f.stages = HS_DEV_FFN_NEURONS;
    f.prepared = true;
    queue_ffn(s, d, &f);
    hs_status st = wait_for(sp, d, err);
    if (st != HS_OK)
        return st;
    queue_others(s, layer, d, n);
    unpack(s, layer, n);
    host_neurons(s, layer, n);
    if ((st = add_others(s, layer, d, n, err)) != HS_OK)
        return st;
    memcpy(sp->pin.far, s->sum, bytes);
    sp->ops->send(sd->dev, sd->scratch.far, sp->pin.far, bytes);
    f.stages = HS_DEV_FFN_FINISH;
    f.has_far = true;
    queue_ffn(s, d, &f);
    return HS_OK;
}

/* Scores by device p, whose answer the host needs before it can begin: it gets the sum of p's own
 * neurons with it. */
static hs_status predict_far(hs_session *s, uint32_t layer, int p, size_t n, hs_err *err)
{
    hs_split *sp = s->split;
    hs_dev_ffn f = ffn_of(s, layer, p, n, HS_DEV_FFN_PREPARE);
    f.has_norm = false;
    send_x(s, p, n);
    send_records(s, p, n);
    queue_ffn(s, p, &f);
    recv_records(s, p, n);
    if (f.n)
        queue_far(s, layer, p, n);
    else
        sp->ops->mark(sp->device[p].dev);
    const hs_status st = wait_for(sp, p, err);
    sp->device[p].dirty = false;
    if (st == HS_OK)
        unpack(s, layer, n);
    return st;
}

/* The residual is on the host. */
static hs_status ffn_on_host(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    const hs_model *m = s->m;
    const hs_split_layer *sl = &s->split->layer[layer];
    const int p = is_masked(s, layer) ? sl->predictor : HS_NOWHERE;
    hs_status st = hs_hybrid_home(s, n, err);
    if (st != HS_OK)
        return st;
    for (size_t t = 0; t < n; t++)
        hs_rmsnorm(s, s->xn + t * m->n_embd, s->x + t * m->n_embd, m->layer[layer].ffn_norm);
    if (is_masked(s, layer) && p == HS_NOWHERE)
        hs_predict_host(s, layer, n);
    pack(s, n, is_masked(s, layer) && p == HS_NOWHERE);
    if (p != HS_NOWHERE && (st = predict_far(s, layer, p, n, err)) != HS_OK)
        return st;
    queue_others(s, layer, p, n);
    host_neurons(s, layer, n);
    if (p != HS_NOWHERE && sl->part[p].ffn.n)
        for (size_t i = 0; i < n * m->n_embd; i++)
            s->sum[i] += s->split->device[p].sum[i];
    if ((st = add_others(s, layer, p, n, err)) != HS_OK)
        return st;
    for (size_t i = 0; i < n * m->n_embd; i++)
        s->x[i] += (float)s->sum[i];
    return HS_OK;
}

hs_status hs_hybrid_ffn(hs_session *s, uint32_t layer, size_t n, hs_err *err)
{
    const int d = ffn_home(s, layer, s->split->at);
    const hs_status st =
        d == HS_NOWHERE ? ffn_on_host(s, layer, n, err) : ffn_on_device(s, layer, d, n, err);
    if (st == HS_OK)
        count(s, layer, n);
    return st;
}

/* ---- layers wholly on one device ------------------------------------------------------- */

static bool is_whole(const hs_session *s, uint32_t layer, int d)
{
    const hs_split_layer *sl = &s->split->layer[layer];
    return sl->attn == d && sl->kv && ffn_home(s, layer, d) == d && sl->part[d].ffn.n == s->m->n_ff;
}

static void queue_layers(hs_session *s, uint32_t from, uint32_t to, size_t n)
{
    for (uint32_t l = from; l < to; l++) {
        const int d = s->split->layer[l].attn;
        const hs_dev_ffn f =
            ffn_of(s, l, d, n, HS_DEV_FFN_PREPARE | HS_DEV_FFN_NEURONS | HS_DEV_FFN_FINISH);
        queue_attn(s, l, n, HS_DEV_ATTN_ALL);
        queue_ffn(s, d, &f);
    }
}

/* One token at a time the run is the same calls each time: captured once, then launched at once. */
static void launch_layers(hs_session *s, uint32_t from, uint32_t to, int d)
{
    hs_split *sp = s->split;
    hs_split_device *sd = &sp->device[d];
    if (!sd->graph[from]) {
        sp->ops->graph_begin(sd->dev);
        queue_layers(s, from, to, 1);
        sd->graph[from] = sp->ops->graph_end(sd->dev);
    }
    if (sd->graph[from])
        sp->ops->graph_launch(sd->dev, sd->graph[from]);
}

hs_status hs_hybrid_run(hs_session *s, uint32_t layer, size_t n, uint32_t *done, hs_err *err)
{
    const int d = s->split->layer[layer].attn;
    uint32_t to = layer;
    *done = 0;
    while (d != HS_NOWHERE && !s->observe && !s->watch && to < s->m->n_layer && is_whole(s, to, d))
        to++;
    if (to == layer)
        return HS_OK;
    const hs_status st = move_to(s, d, n, err);
    if (st != HS_OK)
        return st;
    send_step(s, d, n);
    if (n == 1)
        launch_layers(s, layer, to, d);
    else
        queue_layers(s, layer, to, n);
    s->split->device[d].dirty = true;
    for (uint32_t l = layer; l < to; l++)
        count(s, l, n);
    *done = to - layer;
    return HS_OK;
}

/* ---- the head, counters ---------------------------------------------------------------- */

hs_status hs_hybrid_head(hs_session *s, size_t token, size_t n, hs_err *err)
{
    hs_split *sp = s->split;
    hs_split_device *sd = &sp->device[sp->output];
    hs_dev_head h = sp->head;
    hs_status st = move_to(s, sp->output, n, err);
    if (st != HS_OK)
        return st;
    h.token = (uint32_t)token;
    sp->ops->head(sd->dev, &h);
    sp->ops->recv(sd->dev, sp->pin.logits, sd->scratch.logits, 4ull * s->m->n_vocab);
    sp->ops->mark(sd->dev);
    if ((st = wait_for(sp, sp->output, err)) != HS_OK)
        return st;
    sd->dirty = false;
    memcpy(s->logits, sp->pin.logits, s->m->n_vocab * sizeof *s->logits);
    return HS_OK;
}

void hs_hybrid_stats(const hs_session *s, uint32_t layer, uint64_t *active, uint64_t *predicted)
{
    const hs_split *sp = s->split;
    *active = *predicted = 0;
    for (int d = 0; d < sp->n_dev; d++) {
        const hs_split_device *sd = &sp->device[d];
        sp->ops->recv(sd->dev, sd->stats, sd->scratch.stats, 16ull * s->m->n_layer);
        if (sp->ops->sync(sd->dev, NULL) != HS_OK)
            continue; /* a lost device has counted nothing that can be known */
        const uint64_t *stats = sd->stats + (size_t)2 * layer;
        *active += stats[0];
        if (sp->layer[layer].n_device) /* else the host has counted */
            *predicted += stats[1];
    }
}
