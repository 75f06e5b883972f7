/* The two dense operations every block uses.  Each output element is one canonical dot product
 * whatever the batch or the number of threads. */
#include "runtime/session.h"

#include <math.h>

typedef struct matmul_job {
    const hs_session *s;
    const hs_product *p;
    size_t n_products;
    const float *x;
    size_t ldx, n;
} matmul_job;

/* What the float rows of one tile may take: they are read once for every few tokens and should
 * come from a near cache.  Quantized ones are taken row by row, or sixteen at a time. */
enum { tile_bytes = 32 * 1024 };

static void product_rows(const matmul_job *j, const hs_product *p, uint64_t begin, uint64_t end)
{
    const uint64_t row_bytes = p->w->row_bytes;
    const bool whole = j->n == 1 || j->s->k.type[p->w->dtype].act == HS_ACT_Q8;
    const uint64_t step = whole                        ? end - begin
                          : row_bytes < tile_bytes / 4 ? tile_bytes / row_bytes
                                                       : 4;
    hs_tile t = {.row_bytes = row_bytes,
                 .x = j->x,
                 .q = hs_q8_at(j->s, 0),
                 .ldx = j->ldx,
                 .ldq = j->s->q8_cols,
                 .n = j->n,
                 .cols = p->w->cols,
                 .ldy = p->ldy};
    for (uint64_t r = begin; r < end; r += step) {
        t.row = hs_mat_row(p->w, r);
        t.n_rows = end - r < step ? end - r : step;
        t.y = p->y + r;
        hs_kernel_tile(&j->s->k.type[p->w->dtype], &t);
    }
}

/* The rows of all products count as one range. */
static void matmul_rows(void *ud, int64_t begin, int64_t end)
{
    const matmul_job *j = ud;
    uint64_t first = 0;
    for (size_t i = 0; i < j->n_products; i++) {
        const uint64_t rows = j->p[i].w->rows;
        const uint64_t b = (uint64_t)begin > first ? (uint64_t)begin - first : 0;
        const uint64_t e = (uint64_t)end > first ? (uint64_t)end - first : 0;
        if (b < rows && e > b)
            product_rows(j, &j->p[i], b, e < rows ? e : rows);
        first += rows;
    }
}

typedef struct quantize_job {
    hs_session *s;
    const float *x;
    size_t ldx, cols;
} quantize_job;

static void quantize_tokens(void *ud, int64_t begin, int64_t end)
{
    const quantize_job *j = ud;
    for (size_t t = (size_t)begin; t < (size_t)end; t++)
        j->s->k.quantize_q8(hs_q8_at(j->s, t), j->x + t * j->ldx, j->cols);
}

void hs_quantize_batch(hs_session *s, const float *x, size_t ldx, size_t cols, size_t n)
{
    quantize_job j = {s, x, ldx, cols};
    hs_pool_run(s->pool, (int64_t)n, 4, quantize_tokens, &j);
}

void hs_matmuls(hs_session *s, const hs_product *p, size_t n_products, const float *x, size_t ldx,
                size_t n)
{
    bool q8 = false;
    int64_t rows = 0;
    for (size_t i = 0; i < n_products; i++) {
        q8 = q8 || s->k.type[p[i].w->dtype].act == HS_ACT_Q8;
        rows += p[i].w->rows;
    }
    if (q8)
        hs_quantize_batch(s, x, ldx, p[0].w->cols, n);
    matmul_job j = {s, p, n_products, x, ldx, n};
    /* Ranges of at least 16 rows: fewer would cost more in hand-over than in arithmetic, and
     * kernels take so many together. */
    const int64_t step = rows / (4 * (int64_t)hs_pool_size(s->pool)) + 1;
    hs_pool_run(s->pool, rows, (step + 15) / 16 * 16, matmul_rows, &j);
}

void hs_matmul(hs_session *s, const hs_mat *w, const float *x, size_t ldx, float *y, size_t ldy,
               size_t n)
{
    hs_product p = {w, NULL, ldy};
    p.y = y;
    hs_matmuls(s, &p, 1, x, ldx, n);
}

float hs_rmsnorm(const hs_session *s, float *out, const float *x, const float *w)
{
    const uint32_t n = s->m->n_embd;
    const float ss = s->k.type[HS_F32].dot(x, x, (hs_q8){0}, n);
    const float mean = ss / (float)n;
    s->k.scale_mul(out, x, 1.0f / sqrtf(mean + s->m->eps), w, n);
    return mean;
}
