#include "runtime/kernels.h"

#include <string.h>

void hs_kernels_init(hs_kernels *k, hs_cpu_level level)
{
    memset(k, 0, sizeof *k);
    hs_kernels_scalar(k);
#if defined(__x86_64__)
    const hs_cpu_level best = hs_cpu_detect();
    if ((level == HS_CPU_AVX2 || level == HS_CPU_AVX512) && best != HS_CPU_SCALAR)
        hs_kernels_avx2(k);
    if (level == HS_CPU_AVX512 && best == HS_CPU_AVX512)
        hs_kernels_avx512(k);
#else
    (void)level;
#endif
}

void hs_kernel_tile(const hs_kernel_type *k, const hs_tile *t)
{
    if (k->tile) {
        k->tile(t);
        return;
    }
    for (size_t r = 0; r < t->n_rows; r++)
        for (size_t i = 0; i < t->n; i++) {
            const hs_q8 q = {t->q.q + i * t->ldq, t->q.d + i * (t->ldq / 32)};
            t->y[i * t->ldy + r] = k->dot(hs_tile_row(t, r), t->x + i * t->ldx, q, t->cols);
        }
}

void hs_kernel_axpy_rows(const hs_kernel_type *k, const hs_axpy_rows *p)
{
    if (k->axpy_rows) {
        k->axpy_rows(p);
        return;
    }
    for (size_t r = 0; r < p->n; r++)
        k->axpy(p->y, p->a[r], hs_axpy_row(p, r), p->begin, p->end);
}

/* One row, decoded to f32 piece by piece. */
static void sum_row(const hs_kernels *k, hs_dtype type, double *y, float a, const void *row,
                    size_t begin, size_t end)
{
    if (type == HS_F32) {
        k->accumulate(y + begin, a, (const float *)row + begin, end - begin);
        return;
    }
    enum { CHUNK = 256 }; /* a multiple of every block */
    const hs_dtype_info *ti = hs_dtype_get(type);
    const uint8_t *p = (const uint8_t *)row + begin / ti->block_elems * ti->block_bytes;
    for (size_t i = begin; i < end; i += CHUNK) {
        const size_t n = end - i < CHUNK ? end - i : CHUNK;
        float w[CHUNK] = {0};
        k->type[type].axpy(w, 1.0f, p, 0, n); /* 0 + 1 * w: the decoded weight itself */
        k->accumulate(y + i, a, w, n);
        p += n / ti->block_elems * ti->block_bytes;
    }
}

void hs_kernel_sum_rows(const hs_kernels *k, hs_dtype type, const hs_sum_rows *p)
{
    hs_sum_rows whole = *p;
    whole.end = p->begin;
    if (k->type[type].sum_rows) {
        whole.end += (p->end - p->begin) / 32 * 32;
        k->type[type].sum_rows(&whole);
    }
    for (size_t r = 0; whole.end < p->end && r < p->n; r++)
        sum_row(k, type, p->y, p->a[r], hs_sum_row(p, r), whole.end, p->end);
}
