#ifndef HS_FORMATS_LANES_H
#define HS_FORMATS_LANES_H

/* Eight floats side by side, in whatever registers the including file may use: the same results
 * with each.  No operation crosses lanes. */

#include <stddef.h>

#define HS_INLINE static inline __attribute__((always_inline))

enum { hs_width = 8 };

#if defined(__AVX__)
#include <immintrin.h>
typedef struct hs_vec {
    __m256 v;
} hs_vec;
#define HS_VEC_OP(name, call)                       \
    HS_INLINE hs_vec hs_v##name(hs_vec a, hs_vec b) \
    {                                               \
        a.v = _mm256_##call##_ps(a.v, b.v);         \
        return a;                                   \
    }
HS_INLINE hs_vec hs_vsplat(float f) { return (hs_vec){_mm256_set1_ps(f)}; }
HS_INLINE hs_vec hs_vload(const float *p) { return (hs_vec){_mm256_loadu_ps(p)}; }
HS_INLINE void hs_vstore(float *p, hs_vec a) { _mm256_storeu_ps(p, a.v); }
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef struct hs_vec {
    __m128 v[2];
} hs_vec;
#define HS_VEC_OP(name, call)                       \
    HS_INLINE hs_vec hs_v##name(hs_vec a, hs_vec b) \
    {                                               \
        a.v[0] = _mm_##call##_ps(a.v[0], b.v[0]);   \
        a.v[1] = _mm_##call##_ps(a.v[1], b.v[1]);   \
        return a;                                   \
    }
HS_INLINE hs_vec hs_vsplat(float f) { return (hs_vec){{_mm_set1_ps(f), _mm_set1_ps(f)}}; }
HS_INLINE hs_vec hs_vload(const float *p)
{
    return (hs_vec){{_mm_loadu_ps(p), _mm_loadu_ps(p + 4)}};
}
HS_INLINE void hs_vstore(float *p, hs_vec a)
{
    _mm_storeu_ps(p, a.v[0]);
    _mm_storeu_ps(p + 4, a.v[1]);
}
#else
typedef struct hs_vec {
    float v[hs_width];
} hs_vec;
#define hs_lane_add(a, b) ((a) + (b))
#define hs_lane_sub(a, b) ((a) - (b))
#define hs_lane_mul(a, b) ((a) * (b))
#define hs_lane_max(a, b) ((a) > (b) ? (a) : (b))
#define hs_lane_min(a, b) ((a) < (b) ? (a) : (b))
#define HS_VEC_OP(name, call)                        \
    HS_INLINE hs_vec hs_v##name(hs_vec a, hs_vec b)  \
    {                                                \
        for (int k = 0; k < hs_width; k++)           \
            a.v[k] = hs_lane_##call(a.v[k], b.v[k]); \
        return a;                                    \
    }
HS_INLINE hs_vec hs_vsplat(float f)
{
    hs_vec a;
    for (int k = 0; k < hs_width; k++)
        a.v[k] = f;
    return a;
}
HS_INLINE hs_vec hs_vload(const float *p)
{
    hs_vec a;
    for (int k = 0; k < hs_width; k++)
        a.v[k] = p[k];
    return a;
}
HS_INLINE void hs_vstore(float *p, hs_vec a)
{
    for (int k = 0; k < hs_width; k++)
        p[k] = a.v[k];
}
#endif

HS_VEC_OP(add, add)
HS_VEC_OP(sub, sub)
HS_VEC_OP(mul, mul)
HS_VEC_OP(min, min) /* a < b ? a : b, as the instruction does it: a NaN gives b */
HS_VEC_OP(max, max)

/* hs_nearest of quant_search.h in every lane. */
HS_INLINE hs_vec hs_vround(hs_vec v, hs_vec lo, hs_vec hi)
{
    const hs_vec magic = hs_vsplat(12582912.0f);
    return hs_vsub(hs_vadd(hs_vmin(hs_vmax(v, lo), hi), magic), magic);
}

#endif
