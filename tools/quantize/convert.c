/* A tensor is a run of 256-element pieces: every block divides 256, and no piece crosses a row,
 * so the end of a row is a shorter piece.  Pieces need no memory but the stack; what is summed
 * (the error) is kept per row and added up in order, so that threads change nothing.  While the
 * threads convert a chunk of rows, one of them writes the chunk before it. */
#include "tools/quantize/convert.h"

#include "formats/fingerprint.h"
#include "runtime/encode.h"
#include "runtime/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256, CHUNK_BYTES = 1 << 20, ITEM_ELEMS = 16384 };

/* --- KVs ---------------------------------------------------------------- */

static bool is_ours(hs_str key)
{
    static const char prefix[] = "hotset.";
    return key.n >= sizeof prefix - 1 && memcmp(key.p, prefix, sizeof prefix - 1) == 0;
}

hs_gguf_writer *hs_quant_declare(const hs_gguf *in, const hs_quant_options *o,
                                 const hs_quant_plan *plan)
{
    hs_gguf_writer *w = hs_gguf_writer_new(in->pwri, in->alignment);
    if (!w)
        return NULL;
    for (size_t i = 0; i < in->n_kv; i++)
        if (!o->compat || !is_ours(in->kv[i].key))
            hs_gguf_copy_kv(w, &in->kv[i]);
    /* PowerInfer's order: the version first, when both are new. */
    if (o->compat || plan->n_changed)
        hs_gguf_set_u32(w, "general.quantization_version", 2);
    if (o->type && (o->compat || plan->n_changed))
        hs_gguf_set_u32(w, "general.file_type",
                        (uint32_t)(o->mixture ? o->mixture->file_type : o->type->file_type));
    static const char parent_key[] = "hotset.source_fingerprint";
    if (!o->compat && plan->n_changed && !hs_gguf_find(in, parent_key)) {
        char parent[HS_FINGERPRINT_CHARS + 1];
        hs_fingerprint(in, parent);
        hs_gguf_set_str(w, parent_key, parent);
    }
    for (size_t i = 0; i < plan->n; i++)
        hs_gguf_add_tensor(w, plan->steps[i].tensor->name, plan->steps[i].to->id,
                           plan->steps[i].tensor->n_dims, plan->steps[i].tensor->ne);
    return w;
}

/* --- a chunk of rows ---------------------------------------------------- */

typedef struct row_result {
    double error2, sum2; /* squares of what was lost, and of what there was */
    uint64_t bad;        /* the first element that is or becomes no number; UINT64_MAX */
    float bad_value;     /* as it was */
} row_result;

typedef struct chunk {
    const hs_quant_step *step;
    uint64_t ne0, from_bytes, to_bytes; /* of a row */
    const uint8_t *src;
    uint8_t *dst;  /* NULL: only check */
    float *weight; /* [ne0]; NULL: all elements alike */
    hs_encode_fn *encode;
    hs_encode_weighted_fn *encode_weighted;
    hs_decode_fn *read, *read_back;
    hs_loss_fn *loss;
    const hs_kernels *k;
    row_result *rows; /* one per row of the chunk */
} chunk;

/* What a row holds, by the kernels where they have the type and nothing faster is known: they add
 * it to -0, which changes nothing, and are several times faster than the plain decoders. */
static void decode(const chunk *c, const hs_dtype_info *t, hs_decode_fn *fn, float *x,
                   const uint8_t *row, size_t n)
{
    if (fn != t->decode || c->k->type[t->id].act == HS_ACT_NONE) {
        fn(x, row, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        x[i] = -0.0f;
    c->k->type[t->id].axpy(x, 1, row, 0, n);
}

static void check_piece(const chunk *c, const float *before, const float *after, uint64_t at,
                        size_t n, row_result *r)
{
    const hs_loss loss = c->loss(before, after, n);
    /* Small squares vanish in f32. */
    if (isfinite(loss.lost2) && isfinite(loss.sum2) && loss.sum2 > 1e-20) {
        r->error2 += loss.lost2;
        r->sum2 += loss.sum2;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float there = isfinite(before[i]) ? after[i] : before[i]; /* some types hide one */
        /* One bad weight spoils its block: rather name that one than its neighbour. */
        if (!isfinite(there) &&
            (r->bad == UINT64_MAX || (isfinite(r->bad_value) && !isfinite(before[i])))) {
            r->bad = at + i;
            r->bad_value = before[i];
        }
        const double x = (double)before[i], e = x - (double)there;
        r->error2 += e * e;
        r->sum2 += x * x;
    }
}

static void encode(const chunk *c, uint8_t *out, const float *x, uint64_t at, size_t n)
{
    const hs_dtype_info *to = c->step->to;
    if (c->step->compat && to->encode_powerinfer)
        to->encode_powerinfer(out, x, n);
    else if (c->weight)
        c->encode_weighted(out, x, c->weight + at, n);
    else
        c->encode(out, x, n);
}

static void convert_row(const chunk *c, const uint8_t *src, uint8_t *dst, row_result *r)
{
    const hs_dtype_info *from = c->step->from, *to = c->step->to;
    float before[PIECE], after[PIECE];
    *r = (row_result){.bad = UINT64_MAX};
    for (uint64_t at = 0; at < c->ne0; at += PIECE) {
        const size_t n = (size_t)(c->ne0 - at < PIECE ? c->ne0 - at : PIECE);
        decode(c, from, c->read, before, src + at / from->block_elems * from->block_bytes, n);
        if (!dst) {
            check_piece(c, before, before, at, n, r);
            continue;
        }
        uint8_t *out = dst + at / to->block_elems * to->block_bytes;
        encode(c, out, before, at, n);
        decode(c, to, c->read_back, after, out, n);
        check_piece(c, before, after, at, n, r);
    }
}

/* --- tensors ------------------------------------------------------------ */

typedef struct work {
    hs_gguf_writer *w;
    hs_pool *pool;
    hs_kernels k;
    const hs_quant_hooks *hooks;
    uint64_t done, total; /* bytes of input */
} work;

static hs_status advance(work *w, uint64_t bytes, hs_err *err)
{
    w->done += bytes;
    if (w->hooks->progress && !w->hooks->progress(w->hooks->progress_ud, w->done, w->total))
        return hs_fail(err, HS_ERR_INTERRUPTED, "interrupted");
    return HS_OK;
}

static hs_status bad_element(const hs_quant_step *s, uint64_t row, const row_result *r, hs_err *err)
{
    const char *name = s->tensor->name;
    if (!isfinite(r->bad_value))
        return hs_fail(err, HS_ERR_FORMAT,
                       "%s: element %" PRIu64 " of row %" PRIu64 " is %s, expected a finite number",
                       name, r->bad, row,
                       isnan(r->bad_value) ? "NaN"
                       : r->bad_value > 0  ? "infinite"
                                           : "-infinite");
    /* The block's scale overflowed, whichever of its elements did it. */
    return hs_fail(err, HS_ERR_FORMAT,
                   "%s: values about element %" PRIu64 " of row %" PRIu64 " are too large for %s",
                   name, r->bad, row, s->to->name);
}

/* What the threads do at once: item 0 writes what is finished, the others convert rows of the next
 * chunk. */
typedef struct batch {
    work *w;
    const chunk *c;
    uint64_t n_rows, item_rows;
    const uint8_t *finished;
    uint64_t finished_bytes;
    hs_status written;
    hs_err *err;
} batch;

static void do_items(void *ud, int64_t begin, int64_t end)
{
    batch *b = ud;
    for (int64_t i = begin; i < end; i++) {
        if (i == 0) {
            if (b->finished_bytes)
                b->written = hs_gguf_writer_data(b->w->w, b->finished, b->finished_bytes, b->err);
            continue;
        }
        const chunk *c = b->c;
        const uint64_t first = (uint64_t)(i - 1) * b->item_rows;
        const uint64_t rest = b->n_rows - first;
        const uint64_t last = first + (rest < b->item_rows ? rest : b->item_rows);
        for (uint64_t k = first; k < last; k++)
            convert_row(c, c->src + k * c->from_bytes, c->dst ? c->dst + k * c->to_bytes : NULL,
                        &c->rows[k]);
    }
}

/* Convert n_rows from c->src on, number `first` of the tensor, and hand them on to the next call.
 */
static hs_status convert_chunk(batch *b, chunk *c, uint64_t first, row_result *total, hs_err *err)
{
    b->item_rows = ITEM_ELEMS / c->ne0 + 1;
    const uint64_t items = c->rows ? (b->n_rows + b->item_rows - 1) / b->item_rows : 0;
    hs_pool_run(b->w->pool, (int64_t)items + 1, 1, do_items, b);
    if (b->written != HS_OK)
        return b->written;
    for (uint64_t i = 0; c->rows && i < b->n_rows; i++) {
        if (c->rows[i].bad != UINT64_MAX)
            return bad_element(c->step, first + i, &c->rows[i], err);
        total->error2 += c->rows[i].error2;
        total->sum2 += c->rows[i].sum2;
    }
    b->finished = c->dst ? c->dst : c->src;
    b->finished_bytes = b->n_rows * c->to_bytes;
    return advance(b->w, b->n_rows * c->from_bytes, err);
}

/* `dst` has room for two chunks of `rows` rows: one is written, one filled. */
static hs_status convert_chunks(work *w, chunk *c, uint64_t n_rows, uint64_t rows, hs_err *err,
                                row_result *total)
{
    uint8_t *const dst = c->dst;
    batch b = {.w = w, .c = c, .err = err};
    hs_status status = HS_OK;
    for (uint64_t i = 0, turn = 0; status == HS_OK && i < n_rows; i += rows, turn ^= 1) {
        b.n_rows = n_rows - i < rows ? n_rows - i : rows;
        c->dst = dst ? dst + turn * rows * c->to_bytes : NULL;
        status = convert_chunk(&b, c, i, total, err);
        c->src += b.n_rows * c->from_bytes;
    }
    c->dst = dst;
    return status == HS_OK ? hs_gguf_writer_data(w->w, b.finished, b.finished_bytes, err) : status;
}

static hs_status convert_tensor(work *w, hs_quant_step *s, hs_err *err)
{
    const hs_gguf_tensor *t = s->tensor;
    if (!s->elems)
        return HS_OK;
    const uint64_t n_rows = s->elems / t->ne[0];
    chunk c = {.step = s,
               .ne0 = t->ne[0],
               .from_bytes = t->bytes / n_rows,
               .to_bytes = s->bytes / n_rows,
               .src = t->data,
               .encode = hs_encoder(s->to, w->k.level),
               .encode_weighted = hs_weighted_encoder(s->to, w->k.level),
               .read = hs_decoder(s->from, w->k.level),
               .read_back = hs_decoder(s->to, w->k.level),
               .loss = hs_loss_of(w->k.level),
               .k = &w->k};
    const uint64_t widest = c.from_bytes > c.to_bytes ? c.from_bytes : c.to_bytes;
    uint64_t rows = CHUNK_BYTES / widest;
    rows = rows < 1 ? 1 : rows > n_rows ? n_rows : rows;
    const bool known = s->from->decode != NULL; /* else it is copied unseen */
    c.rows = known ? malloc((size_t)rows * sizeof *c.rows) : NULL;
    c.dst = s->to != s->from ? malloc((size_t)(2 * rows * c.to_bytes)) : NULL;
    c.weight = s->weight ? malloc((size_t)t->ne[0] * sizeof *c.weight) : NULL;
    if (c.weight)
        memcpy(c.weight, s->weight, (size_t)t->ne[0] * sizeof *c.weight);
    hs_status status = HS_OK;
    if ((s->weight && !c.weight) || (known && !c.rows) || (s->to != s->from && !c.dst))
        status = hs_fail(err, HS_ERR_NOMEM, "%s: out of memory", t->name);
    row_result total = {0};
    if (status == HS_OK)
        status = convert_chunks(w, &c, n_rows, rows, err, &total);
    s->rms_error = total.sum2 > 0 ? sqrt(total.error2 / total.sum2) : 0;
    free(c.weight);
    free(c.dst);
    free(c.rows);
    return status;
}

hs_status hs_quant_convert(hs_quant_plan *plan, hs_gguf_writer *w, hs_pool *pool,
                           const hs_quant_hooks *hooks, hs_err *err)
{
    work all = {.w = w, .pool = pool, .hooks = hooks, .total = plan->bytes_before};
    hs_kernels_init(&all.k, hs_cpu_detect());
    for (size_t i = 0; i < plan->n; i++) {
        const hs_status s = convert_tensor(&all, &plan->steps[i], err);
        if (s != HS_OK)
            return s;
        if (hooks->done)
            hooks->done(hooks->done_ud, i, &plan->steps[i]);
    }
    return HS_OK;
}
