#include "runtime/encode.h"

#include "runtime/encode_search.h"

static hs_loss loss_scalar(const float *before, const float *after, size_t n)
{
    return loss_in_lanes(before, after, n);
}

#if defined(__x86_64__)
static hs_cpu_level usable(hs_cpu_level level)
{
    const hs_cpu_level here = hs_cpu_detect();
    if (level != HS_CPU_AVX2 && level != HS_CPU_AVX512)
        return HS_CPU_SCALAR;
    return here == HS_CPU_AVX512 || level <= here ? level : here;
}

/* Of each kind the fastest. */
static hs_encode_set set_of(hs_dtype type, hs_cpu_level level)
{
    hs_encode_set s = {0};
    if (usable(level) == HS_CPU_SCALAR)
        return s;
    s = hs_encode_avx2(type);
    const hs_encode_set search = usable(level) == HS_CPU_AVX512 ? hs_encode_search_avx512(type)
                                                                : hs_encode_search_avx2(type);
    s.plain = s.plain ? s.plain : search.plain;
    s.weighted = search.weighted;
    return s;
}

hs_loss_fn *hs_loss_of(hs_cpu_level level)
{
    level = usable(level);
    return level == HS_CPU_AVX512 ? hs_loss_avx512
           : level == HS_CPU_AVX2 ? hs_loss_avx2
                                  : loss_scalar;
}
#else
static hs_encode_set set_of(hs_dtype type, hs_cpu_level level)
{
    (void)type;
    (void)level;
    return (hs_encode_set){0};
}

hs_loss_fn *hs_loss_of(hs_cpu_level level)
{
    (void)level;
    return loss_scalar;
}
#endif

hs_encode_fn *hs_encoder(const hs_dtype_info *type, hs_cpu_level level)
{
    hs_encode_fn *f = set_of(type->id, level).plain;
    return f ? f : type->encode;
}

hs_encode_weighted_fn *hs_weighted_encoder(const hs_dtype_info *type, hs_cpu_level level)
{
    hs_encode_weighted_fn *f = set_of(type->id, level).weighted;
    return f ? f : type->encode_weighted;
}

hs_decode_fn *hs_decoder(const hs_dtype_info *type, hs_cpu_level level)
{
    hs_decode_fn *f = set_of(type->id, level).decode;
    return f ? f : type->decode;
}
