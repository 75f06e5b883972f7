/* The two dense operations every block uses.  Each output element is one canonical dot product
 * whatever the batch or the number of threads. */
#include "runtime/session.h"

#include <math.h>

typedef struct matmul_job {
    const hs_session *s;
    const hs_kernel_type *kt;
    const hs_mat *w;
    const float *x;
    float *y;
    size_t ldx, ldy, n;
} matmul_job;

/* What the rows of one tile may take: they are read once for every few tokens and should come
 * from a near cache. */
enum { tile_bytes = 32 * 1024 };

static void matmul_rows(void *ud, int64_t begin, int64_t end)
{
    const matmul_job *j = ud;
    const uint64_t row_bytes = j->w->row_bytes;
    const int64_t step = j->n == 1                    ? end - begin
                         : row_bytes < tile_bytes / 4 ? tile_bytes / (int64_t)row_bytes
                                                      : 4;
    hs_tile t = {.row_bytes = row_bytes,
                 .x = j->x,
                 .q = hs_q8_at(j->s, 0),
                 .ldx = j->ldx,
                 .ldq = j->s->q8_cols,
                 .n = j->n,
                 .cols = j->w->cols,
                 .ldy = j->ldy};
    for (int64_t r = begin; r < end; r += step) {
        t.row = hs_mat_row(j->w, (uint64_t)r);
        t.n_rows = (size_t)(end - r < step ? end - r : step);
        t.y = j->y + r;
        hs_kernel_tile(j->kt, &t);
    }
}

void hs_quantize_batch(hs_session *s, const float *x, size_t ldx, size_t cols, size_t n)
{
    for (size_t t = 0; t < n; t++)
        s->k.quantize_q8(hs_q8_at(s, t), x + t * ldx, cols);
}

void hs_matmul(hs_session *s, const hs_mat *w, const float *x, size_t ldx, float *y, size_t ldy,
               size_t n)
{
    const hs_kernel_type *kt = &s->k.type[w->dtype];
    if (kt->act == HS_ACT_Q8)
        hs_quantize_batch(s, x, ldx, w->cols, n);
    matmul_job j = {s, kt, w, x, NULL, ldx, ldy, n};
    j.y = y;
    /* Ranges of at least 16 rows: fewer would cost more in hand-over than in arithmetic. */
    const int64_t step = w->rows / (4 * hs_pool_size(s->pool)) + 1;
    hs_pool_run(s->pool, w->rows, step < 16 ? 16 : step, matmul_rows, &j);
}

float hs_rmsnorm(const hs_session *s, float *out, const float *x, const float *w)
{
    const uint32_t n = s->m->n_embd;
    const float ss = s->k.type[HS_F32].dot(x, x, (hs_q8){0}, n);
    const float mean = ss / (float)n;
    s->k.scale_mul(out, x, 1.0f / sqrtf(mean + s->m->eps), w, n);
    return mean;
}
