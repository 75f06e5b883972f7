/* Putting a placement on the device.  Buffers are taken in a fixed order with the sizes that
 * budget.c adds up, and the arena has exactly that total: an allocation that fails here means
 * the two disagree, which the check at the end would also catch. */
#include "runtime/split.h"

#include "runtime/budget.h"

#include <stdlib.h>
#include <string.h>

typedef struct builder {
    hs_split *s;
    hs_split_device *d;
    int number; /* d's */
    const hs_model *m;
    const hs_placement *p; /* what this device has */
    const hs_mat *down_t;
    uint32_t n_ctx;
    hs_dtype kv_type;
    hs_err *err;
} builder;

static hs_status take(builder *b, uint64_t bytes, hs_buf *out)
{
    return b->s->ops->alloc(b->d->dev, bytes, out, b->err);
}

static hs_status upload(builder *b, hs_buf dst, uint64_t at, const void *data, uint64_t bytes)
{
    return b->s->ops->upload(b->d->dev, dst, at, data, bytes, b->err);
}

static hs_status put(builder *b, const void *data, uint64_t bytes, hs_buf *out)
{
    const hs_status s = take(b, bytes, out);
    return s != HS_OK ? s : upload(b, *out, 0, data, bytes);
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
        s = upload(b, out->buf, i * w->row_bytes, hs_mat_row(w, (uint64_t)pl->neuron[i]),
                   n * w->row_bytes);
        i += n;
    }
    return s;
}

static hs_status put_scratch(builder *b, bool output, bool kv)
{
    hs_scratch_size sizes[HS_N_SCRATCH];
    hs_scratch_sizes(b->m, b->n_ctx, output, kv, sizes);
    for (int i = 0; i < HS_N_SCRATCH; i++) {
        hs_buf *buf = (hs_buf *)(void *)((char *)&b->d->scratch + sizes[i].field);
        const hs_status s = take(b, sizes[i].bytes, buf);
        if (s != HS_OK)
            return s;
    }
    b->d->scratch_bytes = b->s->ops->used(b->d->dev);
    /* The counters start at 0; nothing else of it is read before it is written. */
    void *zero = calloc(b->m->n_layer, 16);
    const hs_status s = zero ? upload(b, b->d->scratch.stats, 0, zero, 16ull * b->m->n_layer)
                             : hs_fail(b->err, HS_ERR_NOMEM, "out of memory");
    free(zero);
    return s;
}

static hs_status put_attn(builder *b, uint32_t l)
{
    const hs_model *m = b->m;
    const hs_layer *y = &m->layer[l];
    hs_split_layer *sl = &b->s->layer[l];
    hs_dev_attn *a = &sl->part[b->number].attn;
    *a = (hs_dev_attn){.scratch = &b->d->scratch,
                       .eps = m->eps,
                       .n_embd = m->n_embd,
                       .n_head = m->n_head,
                       .n_head_kv = m->n_head_kv,
                       .head_dim = m->head_dim,
                       .rope_dim = m->rope_dim,
                       .kv_type = b->kv_type,
                       .n_ctx = b->n_ctx};
    sl->attn = b->number;
    sl->kv = b->p->layer[l].kv;
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
    b->d->kv += 2 * half;
    return s;
}

static hs_status put_ffn(builder *b, uint32_t l)
{
    const hs_model *m = b->m;
    const hs_layer *y = &m->layer[l];
    const hs_placement_layer *pl = &b->p->layer[l];
    hs_split_layer *sl = &b->s->layer[l];
    hs_dev_ffn *f = &sl->part[b->number].ffn;
    *f = (hs_dev_ffn){.scratch = &b->d->scratch,
                      .has_norm = pl->ffn_norm,
                      .has_predictor = pl->predictor,
                      .has_gate = true,
                      .n = pl->n_device,
                      .n_embd = m->n_embd,
                      .n_ff = m->n_ff,
                      .layer = l,
                      .eps = m->eps,
                      .fn = m->fn,
                      .fn_param = m->fn_param};
    hs_status s = HS_OK;
    if (pl->ffn_norm) {
        sl->ffn_norm = b->number;
        if ((s = put_norm(b, y->ffn_norm, &f->norm)) != HS_OK)
            return s;
    }
    if (pl->predictor) {
        sl->predictor = b->number;
        if ((s = put_mat(b, &y->fc1, &f->fc1)) != HS_OK ||
            (s = put_mat(b, &y->fc2, &f->fc2)) != HS_OK)
            return s;
    }
    if (pl->n_device && ((s = put_rows(b, &y->gate, pl, &f->gate)) != HS_OK ||
                         (s = put_rows(b, &y->up, pl, &f->up)) != HS_OK ||
                         (s = put_rows(b, &b->down_t[l], pl, &f->down)) != HS_OK ||
                         (s = put(b, pl->neuron, (uint64_t)pl->n_device * 4, &f->id)) != HS_OK))
        return s;
    return HS_OK;
}

/* What the CPU owns: the complement of the devices' list. */
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
    sl->attn = sl->predictor = sl->ffn_norm = HS_NOWHERE;
}

static hs_status fill(builder *b, int ordinal)
{
    hs_split *s = b->s;
    hs_split_device *d = b->d;
    const uint64_t planned = d->planned;
    bool kv = false;
    for (uint32_t l = 0; l < b->m->n_layer; l++)
        kv = kv || b->p->layer[l].kv;
    hs_status st = s->ops->open(&d->dev, ordinal, planned, b->err);
    if (st != HS_OK || (st = put_scratch(b, b->p->output, kv)) != HS_OK)
        return st;
    for (uint32_t l = 0; st == HS_OK && l < b->m->n_layer; l++) {
        if (b->p->layer[l].attn)
            st = put_attn(b, l);
        if (st == HS_OK)
            st = put_ffn(b, l);
    }
    if (st == HS_OK && b->p->output) {
        s->output = b->number;
        s->head = (hs_dev_head){.scratch = &d->scratch, .eps = b->m->eps, .n_embd = b->m->n_embd};
        if ((st = put_norm(b, b->m->output_norm, &s->head.norm)) == HS_OK)
            st = put_mat(b, &b->m->output, &s->head.w);
    }
    if (st == HS_OK)
        st = s->ops->sync(d->dev, b->err);
    if (st != HS_OK)
        return st;
    const uint64_t used = s->ops->used(d->dev);
    d->weights = used - d->scratch_bytes - d->kv;
    if (used != planned)
        return hs_fail(b->err, HS_ERR_FAILED, "the device holds %llu bytes, planned were %llu",
                       (unsigned long long)used, (unsigned long long)planned);
    return HS_OK;
}

/* Run twice: with block NULL it only adds up. */
static uint64_t lay_out_pins(hs_split *s, const hs_model *m, uint8_t *block)
{
    enum { N_PINS = 7 };
    const uint64_t b = HS_DEV_BATCH, q = (uint64_t)m->n_head * m->head_dim,
                   kv = (uint64_t)m->n_head_kv * m->head_dim;
    struct {
        void *slot; /* address of the pointer to set */
        uint64_t bytes;
    } parts[N_PINS + 2 * HS_PLACEMENT_DEVICES] = {
        {&s->pin.x, 4 * b * m->n_embd},
        {&s->pin.rec, 4 * b * hs_dev_record_words(m->n_embd, m->n_ff)},
        {&s->pin.far, 8 * b * m->n_embd},
        {&s->pin.qkv, 4 * b * (q + 2 * kv)},
        {&s->pin.o, 4 * b * q},
        {&s->pin.step, 16 + 4 * b * m->rope_dim},
        {&s->pin.logits, 4ull * m->n_vocab},
    };
    for (int i = 0; i < s->n_dev; i++) {
        parts[N_PINS + 2 * i].slot = &s->device[i].sum;
        parts[N_PINS + 2 * i].bytes = 8 * b * m->n_embd;
        parts[N_PINS + 2 * i + 1].slot = &s->device[i].stats;
        parts[N_PINS + 2 * i + 1].bytes = 16ull * m->n_layer;
    }
    uint64_t at = 0;
    for (int i = 0; i < N_PINS + 2 * s->n_dev; i++) {
        uint8_t *p = block ? block + at : NULL;
        memcpy(parts[i].slot, &p, sizeof p);
        at += (parts[i].bytes + 63) / 64 * 64;
    }
    return at;
}

static hs_status make_pins(hs_split *s, const hs_model *m, hs_err *err)
{
    const hs_status st = s->ops->pin(s->device[0].dev, lay_out_pins(s, m, NULL), &s->pinned, err);
    if (st == HS_OK)
        lay_out_pins(s, m, s->pinned);
    return st;
}

/* Devices that hold nothing are not opened. */
static hs_status fill_devices(hs_split *s, builder *b, const hs_placement *p, const int *ordinal,
                              uint64_t budget)
{
    s->budget = budget;
    s->planned = hs_budget_total(b->m, p);
    if (s->planned > budget)
        return hs_fail(b->err, HS_ERR_NOSPACE,
                       "the placement needs %llu bytes on the device at context %u, the budget "
                       "is %llu",
                       (unsigned long long)s->planned, b->n_ctx, (unsigned long long)budget);
    for (uint32_t d = 0; d < p->n_devices; d++) {
        hs_split_device *sd = &s->device[s->n_dev];
        hs_placement *view;
        sd->planned = hs_budget_device(b->m, p, d);
        if (!sd->planned)
            continue;
        sd->graph = calloc(b->m->n_layer, sizeof(hs_dev_graph *));
        b->d = sd;
        b->number = s->n_dev++;
        if (!sd->graph)
            return hs_fail(b->err, HS_ERR_NOMEM, "out of memory");
        hs_status st = hs_placement_view(&view, p, d, b->err);
        if (st != HS_OK)
            return st;
        b->p = view;
        st = fill(b, ordinal[d]);
        hs_placement_free(view);
        if (st != HS_OK)
            return st;
    }
    return make_pins(s, b->m, b->err);
}

hs_status hs_split_new(hs_split **out, const hs_model *m, const hs_placement *p,
                       const hs_mat *down_t, const hs_device_ops *ops, const int *ordinal,
                       uint64_t budget, uint32_t n_ctx, hs_dtype kv_type, hs_err *err)
{
    *out = NULL;
    hs_split *s = calloc(1, sizeof *s);
    if (!s)
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    const bool device = p && ops && hs_budget_total(m, p) > 0;
    const uint32_t n_parts = device ? p->n_devices : 1;
    s->at = s->output = HS_NOWHERE;
    s->n_layer = m->n_layer;
    s->layer = calloc(m->n_layer, sizeof *s->layer);
    s->parts = calloc((size_t)m->n_layer * n_parts, sizeof *s->parts);
    s->host_ids = malloc((size_t)m->n_layer * m->n_ff * sizeof *s->host_ids);
    if (!s->layer || !s->host_ids || !s->parts) {
        hs_split_free(s);
        return hs_fail(err, HS_ERR_NOMEM, "out of memory");
    }
    for (uint32_t l = 0; l < m->n_layer; l++) {
        s->layer[l].host = s->host_ids + (size_t)l * m->n_ff;
        s->layer[l].part = s->parts + (size_t)l * n_parts;
        host_list(&s->layer[l], device ? &p->layer[l] : NULL, m->n_ff);
    }
    hs_status st = HS_OK;
    if (device) {
        s->ops = ops;
        builder b = {
            .s = s, .m = m, .down_t = down_t, .n_ctx = n_ctx, .kv_type = kv_type, .err = err};
        st = fill_devices(s, &b, p, ordinal, budget);
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
    if (s->pinned) {
        for (int i = 0; i < s->n_dev; i++) /* copies may still use it */
            if (s->ops->sync(s->device[i].dev, NULL) != HS_OK)
                continue;
        s->ops->unpin(s->device[0].dev, s->pinned);
    }
    for (int i = 0; i < s->n_dev; i++) {
        hs_split_device *d = &s->device[i];
        for (uint32_t l = 0; d->dev && d->graph && l < s->n_layer; l++)
            s->ops->graph_free(d->dev, d->graph[l]);
        if (d->dev)
            s->ops->close(d->dev);
        free(d->graph);
    }
    free(s->host_ids);
    free(s->parts);
    free(s->layer);
    free(s);
}

hs_status hs_split_choose(const hs_device_ops *ops, int n, int *ordinal, hs_err *err)
{
    uint64_t best[HS_PLACEMENT_DEVICES] = {0};
    int found = 0;
    const int there = ops->count(err);
    if (there <= 0)
        return HS_ERR_DEVICE;
    if (there < n)
        return hs_fail(err, HS_ERR_NOSPACE, "planned for %d devices, this machine has %d", n,
                       there);
    for (int i = 0; i < there; i++) {
        uint64_t avail, total;
        const hs_status st = ops->probe(i, &avail, &total, err);
        if (st != HS_OK)
            return st;
        int k = found < n ? found++ : n; /* insertion: those after it have less */
        for (; k > 0 && avail > best[k - 1]; k--)
            if (k < n) {
                best[k] = best[k - 1];
                ordinal[k] = ordinal[k - 1];
            }
        if (k < n) {
            best[k] = avail;
            ordinal[k] = i;
        }
    }
    return HS_OK;
}
