#include "runtime/kernels.h"

#include <string.h>

void hs_kernels_init(hs_kernels *k, hs_cpu_level level)
{
    memset(k, 0, sizeof *k);
    hs_kernels_scalar(k);
#if defined(__x86_64__)
    if ((level == HS_CPU_AVX2 || level == HS_CPU_AVX512) && hs_cpu_detect() != HS_CPU_SCALAR)
        hs_kernels_avx2(k);
#else
    (void)level;
#endif
}
