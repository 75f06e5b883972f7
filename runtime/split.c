/* Putting a placement on the device.  Buffers are taken in a fixed order with the sizes that
 * budget.c adds up, and the arena has exactly that total: an allocation that fails here means
 * the two disagree, which the check at the end would also catch. */
#include "runtime/split.h"

#include "runtime/budget.h"

#include <stdlib.h>
#include <string.h>

typedef struct builder {
    hs_split *s;
    const hs_model *m;
    const hs_placement *p;
    const hs_mat *down_t;
    uint32_t n_ctx;
    hs_dtype kv_type;
    hs_err *err;
} builder;

static hs_status take(builder *b, uint64_t bytes, hs_buf *out)
{
    return b->s->ops->alloc(b->s->dev, bytes, out, b->err);
}

static hs_status put(builder *b, const void *data, uint64_t bytes, hs_buf *out)
{
    const hs_status s = take(b, bytes, out);
    return s != HS_OK ? s : b->s->ops->upload(b->s->dev, *out, 0, data, bytes, b->err);
}

static hs_status put_mat(builder *b, const hs_mat *w, hs_dev_mat *out)
{
    *out = (hs_dev_mat){
        .dtype = w->dtype, .cols = w->cols, .rows = w->rows, .row_bytes = w->row_bytes};
    return put(b, w->data, hs_mat_bytes(w), &out->buf);
}

static hs_status put_norm(builder *b, const float *w, hs_buf *out)
{
    return put(b, w, (uint64_t)b->m->n_embd * 4, out);
}

/* The rows of the placed neurons, packed in the order of their ids. */
static hs_status put_rows(builder *b, const hs_mat *w, const hs_placement_layer *pl,
                          hs_dev_mat *out)
{
    *out = (hs_dev_mat){
        .dtype = w->dtype, .cols = w->cols, .rows = pl->n_device, .row_bytes = w->row_bytes};
    hs_status s = take(b, pl->n_device * w->row_bytes, &out->buf);
    for (uint32_t i = 0; s == HS_OK && i < pl->n_device;) {
        uint32_t n = 1; /* neighbouring neurons go up in one piece */
        while (i + n < pl->n_device && pl->neuron[i + n] == pl->neuron[i] + (int32_t)n)
            n++;
        s = b->s->ops->upload(b->s->dev, out->buf, i * w->row_bytes,
                              hs_mat_row(w, (uint64_t)pl->neuron[i]), n * w->row_bytes, b->err);
        i += n;
    }
    return s;
}

static hs_status put_scratch(builder *b, bool output, bool kv)
{
    hs_scratch_size sizes[HS_N_SCRATCH];
    hs_scratch_sizes(b->m, b->n_ctx, output, kv, sizes);
    for (int i = 0; i < HS_N_SCRATCH; i++) {
        hs_buf *buf = (hs_buf *)(void *)((char *)&b->s->scratch + sizes[i].field);
        const hs_status s = take(b, sizes[i].bytes, buf);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

static hs_status put_attn(builder *b, uint32_t l)
{
    const hs_model *m = b->m;
    const hs_layer *y = &m->layer[l];
    hs_split_layer *sl = &b->s->layer[l];
    hs_dev_attn *a = &sl->dev_attn;
    *a = (hs_dev_attn){.scratch = &b->s->scratch,
                       .eps = m->eps,
                       .n_embd = m->n_embd,
                       .n_head = m->n_head,
                       .n_head_kv = m->n_head_kv,
                       .head_dim = m->head_dim,
                       .rope_dim = m->rope_dim,
                       .kv_type = b->kv_type,
                       .n_ctx = b->n_ctx};
    hs_status s;
    if ((s = put_norm(b, y->attn_norm, &a->norm)) != HS_OK ||
        (s = put_mat(b, &y->wq, &a->wq)) != HS_OK || (s = put_mat(b, &y->wk, &a->wk)) != HS_OK ||
        (s = put_mat(b, &y->wv, &a->wv)) != HS_OK || (s = put_mat(b, &y->wo, &a->wo)) != HS_OK)
        return s;
    if (!sl->kv)
        return HS_OK;
    const uint64_t half = hs_budget_kv(m, b->n_ctx, b->kv_type) / 2;
    if ((s = take(b, half, &a->k_cache)) == HS_OK)
        s = take(b, half, &a->v_cache);
    b->s->kv += 2 * half;
    return s;
}

static hs_status put_ffn(builder *b, uint32_t l)
{
    const hs_model *m = b->m;
    const hs_layer *y = &m->layer[l];
    const hs_placement_layer *pl = &b->p->layer[l];
    hs_split_layer *sl = &b->s->layer[l];
    hs_dev_ffn *f = &sl->dev_ffn;
    *f = (hs_dev_ffn){.scratch = &b->s->scratch,
                      .has_norm = pl->ffn_norm,
                      .has_predictor = pl->predictor,
                      .has_gate = true,
                      .n = pl->n_device,
                      .n_embd = m->n_embd,
                      .n_ff = m->n_ff,
                      .eps = m->eps,
                      .fn = m->fn,
                      .fn_param = m->fn_param};
    hs_status s = HS_OK;
    if (pl->ffn_norm && (s = put_norm(b, y->ffn_norm, &f->norm)) != HS_OK)
        return s;
    if (pl->predictor && ((s = put_mat(b, &y->fc1, &f->fc1)) != HS_OK ||
                          (s = put_mat(b, &y->fc2, &f->fc2)) != HS_OK))
        return s;
    if (pl->n_device && ((s = put_rows(b, &y->gate, pl, &f->gate)) != HS_OK ||
                         (s = put_rows(b, &y->up, pl, &f->up)) != HS_OK ||
                         (s = put_rows(b, &b->down_t[l], pl, &f->down)) != HS_OK ||
                         (s = put(b, pl->neuron, (uint64_t)pl->n_device * 4, &f->id)) != HS_OK))
        return s;
    return HS_OK;
}

/* What the CPU owns: the complement of the device's list. */
static void host_list(hs_split_layer *sl, const hs_placement_layer *pl, uint32_t n_ff)
{
    uint32_t k = 0, n = 0;
    for (uint32_t i = 0; i < n_ff; i++) {
        if (pl && k < pl->n_device && pl->neuron[k] == (int32_t)i)
            k++;
        else
            sl->host[n++] = (int32_t)i;
    }
    sl->n_host = n;
    sl->n_device = k;
}

static hs_status fill_device(builder *b, uint64_t budget)
{
    hs_split *s = b->s;
    s->budget = budget;
    s->planned = hs_budget_total(b->m, b->p);
    if (s->planned > budget)
        return hs_fail(b->err, HS_ERR_NOSPACE,
                       "the placement needs %llu bytes on the device at context %u, the budget "
                       "is %llu",
                       (unsigned long long)s->planned, b->n_ctx, (unsigned long long)budget);
    bool kv = false;
    for (uint32_t l = 0; l < b->m->n_layer; l++)
        kv = kv || b->p->layer[l].kv;
    hs_status st = s->ops->open(&s->dev, 0, s->planned, b->err);
    if (st != HS_OK || (st = put_scratch(b, b->p->output, kv)) != HS_OK)
        return st;
    s->scratch_bytes = s->ops->used(s->dev);
    for (uint32_t l = 0; st == HS_OK && l < b->m->n_layer; l++) {
        const hs_placement_layer *pl = &b->p->layer[l];
        hs_split_layer *sl = &s->layer[l];
        sl->attn = pl->attn;
        sl->kv = pl->kv;
        sl->predictor = pl->predictor;
        sl->ffn_norm = pl->ffn_norm;
        if (pl->attn)
            st = put_attn(b, l);
        if (st == HS_OK)
            st = put_ffn(b, l);
    }
    if (st == HS_OK && b->p->output) {
        s->output = true;
        s->head = (hs_dev_head){.scratch = &s->scratch, .eps = b->m->eps, .n_embd = b->m->n_embd};
        if ((st = put_norm(b, b->m->output_norm, &s->head.norm)) == HS_OK)
            st = put_mat(b, &b->m->output, &s->head.w);
    }
    if (st == HS_OK)
        st = s->ops->sync(s->dev, b->err);
    if (st != HS_OK)
        return st;
    const uint64_t used = s->ops->used(s->dev);
    s->weights = used - s->scratch_bytes - s->kv;
    if (used != s->planned)
        return hs_fail(b->err, HS_ERR_FAILED, "the device holds %llu bytes, planned were %llu",
                       (unsigned long long)used, (unsigned long long)s->planned);
    return HS_OK;
}

hs_status hs_split_new(hs_split **out, const hs_model *m, const hs_placement *p,
                       const hs_mat *down_t, const hs_device_ops *ops, uint64_t budget,
                       uint32_t n_ctx, hs_dtype kv_type, hs_err *err)
{
    *out = NULL;
    hs_split *s = calloc(1, sizeof *s);
    if (!s)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    s->layer = calloc(m->n_layer, sizeof *s->layer);
    s->host_ids = malloc((size_t)m->n_layer * m->n_ff * sizeof *s->host_ids);
    if (!s->layer || !s->host_ids) {
        hs_split_free(s);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    const bool device = p && ops && hs_budget_total(m, p) > 0;
    for (uint32_t l = 0; l < m->n_layer; l++) {
        s->layer[l].host = s->host_ids + (size_t)l * m->n_ff;
        host_list(&s->layer[l], device ? &p->layer[l] : NULL, m->n_ff);
    }
    hs_status st = HS_OK;
    if (device) {
        s->ops = ops;
        builder b = {s, m, p, down_t, n_ctx, kv_type, err};
        st = fill_device(&b, budget);
    }
    if (st != HS_OK) {
        hs_split_free(s);
        return st;
    }
    *out = s;
    return HS_OK;
}

void hs_split_free(hs_split *s)
{
    if (!s)
        return;
    if (s->dev)
        s->ops->close(s->dev);
    free(s->host_ids);
    free(s->layer);
    free(s);
}
