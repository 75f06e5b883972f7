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
