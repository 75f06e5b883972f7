#include "runtime/encode.h"

hs_encode_fn *hs_encoder(const hs_dtype_info *type, hs_cpu_level level)
{
#if defined(__x86_64__)
    if ((level == HS_CPU_AVX2 || level == HS_CPU_AVX512) && hs_cpu_detect() != HS_CPU_SCALAR &&
        hs_encoder_avx2(type->id))
        return hs_encoder_avx2(type->id);
#else
    (void)level;
#endif
    return type->encode;
}
