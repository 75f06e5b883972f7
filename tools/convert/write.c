/* The data.  The one surprise: the transposed down projection is gathered in blocks of neurons,
 * so that each source row is read a cache line at a time and no whole matrix is ever held. */
#include "tools/convert/write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_FLOATS = 1 << 20, /* about 4 MiB of rows at a time */
    GATHER_ROWS = 64,       /* neurons of a transposed block: two cache lines of BF16 */
};

typedef struct stream {
    hs_gguf_writer *w;
    float *rows;  /* [BLOCK_FLOATS or one row] */
    float *piece; /* [GATHER_ROWS] */
    uint8_t *out; /* the encoded block; BLOCK_FLOATS * 4 bytes or one row */
    size_t cap;   /* floats in `rows` */
    hs_progress_fn progress;
    void *progress_ud;
    uint64_t done, total;
    hs_err *err;
} stream;

/* Row r of the output is this row of the source.  Rotary embedding pairs rows p and p + d/2 of
 * a head in Hugging Face's files, rows 2p and 2p + 1 in GGUF. */
static uint64_t source_row(const hs_conv_item *it, uint64_t r)
{
    if (!it->heads)
        return r;
    const uint64_t d = it->ne[1] / it->heads, head = r / d, i = r % d;
    return head * d + i % 2 * (d / 2) + i / 2;
}

static hs_status load_rows(stream *st, const hs_conv_item *it, uint64_t r, uint64_t n)
{
    const uint64_t cols = it->ne[0];
    for (uint64_t k = 0; k < n; k++) {
        const hs_status s =
            hs_ckpt_row_f32(it->src, source_row(it, r + k), st->rows + k * cols, st->err);
        if (s != HS_OK)
            return s;
    }
    return HS_OK;
}

/* Output rows r to r + n are columns of the source: read them as short rows of a narrower view. */
static hs_status load_columns(stream *st, const hs_conv_item *it, uint64_t r, uint64_t n)
{
    const uint64_t cols = it->ne[0];
    hs_ckpt_tensor view = *it->src;
    for (uint64_t b = 0; b < n; b += GATHER_ROWS) {
        const uint64_t width = n - b < GATHER_ROWS ? n - b : GATHER_ROWS;
        view.shape[1] = width;
        view.data =
            it->src->data + (r + b) * (uint64_t)view.stride[1] * hs_elem_bytes(it->src->elem);
        for (uint64_t c = 0; c < cols; c++) {
            const hs_status s = hs_ckpt_row_f32(&view, c, st->piece, st->err);
            if (s != HS_OK)
                return s;
            for (uint64_t k = 0; k < width; k++)
                st->rows[(b + k) * cols + c] = st->piece[k];
        }
    }
    return HS_OK;
}

/* What the encoding to 16 bits lost.  F32 and Q8_0 lose no range worth a warning. */
static void count_losses(const stream *st, hs_dtype dtype, uint64_t n, hs_conv_stats *of)
{
    for (uint64_t i = 0; i < n; i++) {
        const float x = st->rows[i];
        of->not_finite += isfinite(x) ? 0 : 1;
        if (dtype != HS_F16 && dtype != HS_BF16)
            continue;
        uint16_t h;
        memcpy(&h, st->out + 2 * i, 2);
        const uint16_t magnitude = h & 0x7fff;
        of->too_large += isfinite(x) && magnitude == (dtype == HS_F16 ? 0x7c00 : 0x7f80);
        of->flushed += x != 0 && magnitude == 0;
    }
}

static hs_status write_item(stream *st, const hs_conv_item *it, hs_conv_stats *of)
{
    const uint64_t cols = it->ne[0], rows = it->ne[1];
    uint64_t per_block = st->cap / cols, row_bytes = 0;
    if (it->transpose && per_block > GATHER_ROWS)
        per_block -= per_block % GATHER_ROWS;
    if (!hs_dtype_row_bytes(it->dtype, cols, &row_bytes))
        return hs_fail(st->err, HS_ERR_FAILED, "%s: rows do not divide into blocks", it->name);
    for (uint64_t r = 0; r < rows; r += per_block) {
        const uint64_t n = rows - r < per_block ? rows - r : per_block;
        hs_status s = it->transpose ? load_columns(st, it, r, n) : load_rows(st, it, r, n);
        if (s != HS_OK)
            return s;
        hs_dtype_get(it->dtype)->encode(st->out, st->rows, (size_t)(n * cols));
        count_losses(st, it->dtype, n * cols, of);
        s = hs_gguf_writer_data(st->w, st->out, n * row_bytes, st->err);
        if (s != HS_OK)
            return s;
        st->done += n * row_bytes;
        if (st->progress && !st->progress(st->progress_ud, st->done, st->total))
            return hs_fail(st->err, HS_ERR_INTERRUPTED, "interrupted");
    }
    return HS_OK;
}

static void warn_losses(const hs_conv_item *it, const hs_conv_stats *of, const hs_cli *cli)
{
    if (of->too_large)
        hs_cli_warn(cli,
                    "%s: %" PRIu64 " values are beyond the range of %s and became infinite; "
                    "--outtype %s keeps them",
                    it->name, of->too_large, hs_dtype_name(it->dtype),
                    it->dtype == HS_F16 ? "bf16" : "f32");
    if (of->not_finite)
        hs_cli_warn(cli, "%s: %" PRIu64 " values of the checkpoint are infinite or no numbers",
                    it->name, of->not_finite);
}

static hs_status start(stream *st, const hs_conv_plan *p)
{
    st->cap = BLOCK_FLOATS;
    for (size_t i = 0; i < p->n; i++) {
        uint64_t row;
        if (p->item[i].ne[0] > st->cap)
            st->cap = (size_t)p->item[i].ne[0];
        if (hs_dtype_row_bytes(p->item[i].dtype, p->item[i].ne[0], &row))
            st->total += row * p->item[i].ne[1];
    }
    st->rows = malloc(st->cap * sizeof *st->rows);
    st->piece = malloc(GATHER_ROWS * sizeof *st->piece);
    st->out = malloc(4 * st->cap);
    if (!st->rows || !st->piece || !st->out)
        return hs_fail(st->err, HS_ERR_NOMEM, "out of memory");
    return HS_OK;
}

hs_status hs_conv_write_data(hs_gguf_writer *w, const hs_conv_plan *p, hs_conv_stats *stats,
                             const hs_cli *cli, hs_progress_fn progress, void *progress_ud,
                             hs_err *err)
{
    stream st = {.w = w, .progress = progress, .progress_ud = progress_ud, .err = err};
    *stats = (hs_conv_stats){0};
    hs_status s = start(&st, p);
    for (size_t i = 0; i < p->n && s == HS_OK; i++) {
        const hs_conv_item *it = &p->item[i];
        hs_conv_stats of = {0};
        hs_cli_debug(cli, "%s: %s -> %s", it->name, it->src->elem_name, hs_dtype_name(it->dtype));
        s = write_item(&st, it, &of);
        warn_losses(it, &of, cli);
        stats->too_large += of.too_large;
        stats->flushed += of.flushed;
        stats->not_finite += of.not_finite;
    }
    free(st.rows);
    free(st.piece);
    free(st.out);
    return s;
}
