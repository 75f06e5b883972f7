#ifndef HS_FORMATS_LANES_H
#define HS_FORMATS_LANES_H

/* Sixteen floats side by side, in whatever registers the including file may use: the same results
 * with each.  Only folds cross lanes, in a fixed order. */

#include <stddef.h>
#include <stdint.h>

#define HS_INLINE static inline __attribute__((always_inline))

enum { hs_lanes = 16, hs_half = 8 };

#if defined(__AVX512F__)
#include <immintrin.h>
enum { hs_parts = 1 };
typedef __m512 hs_part;
#define HS_PART(name) _mm512_##name
#elif defined(__AVX__)
#include <immintrin.h>
enum { hs_parts = 2 };
typedef __m256 hs_part;
#define HS_PART(name) _mm256_##name
#elif defined(__SSE2__)
#include <emmintrin.h>
enum { hs_parts = 4 };
typedef __m128 hs_part;
#define HS_PART(name) _mm_##name
#else
enum { hs_parts = hs_lanes };
typedef float hs_part;
#define HS_PART(name) hs_one_##name
HS_INLINE float hs_one_set1_ps(float f) { return f; }
HS_INLINE float hs_one_loadu_ps(const float *p) { return *p; }
HS_INLINE void hs_one_storeu_ps(float *p, float f) { *p = f; }
HS_INLINE float hs_one_add_ps(float a, float b) { return a + b; }
HS_INLINE float hs_one_sub_ps(float a, float b) { return a - b; }
HS_INLINE float hs_one_mul_ps(float a, float b) { return a * b; }
HS_INLINE float hs_one_div_ps(float a, float b) { return a / b; }
HS_INLINE float hs_one_max_ps(float a, float b) { return a > b ? a : b; }
HS_INLINE float hs_one_min_ps(float a, float b) { return a < b ? a : b; }
#endif

/* For each part k; written out, as compilers keep an array that a loop indexes in memory. */
#define HS_PART_DO(n, ...) \
    do {                   \
        enum { k = n };    \
        __VA_ARGS__;       \
    } while (0)
#if defined(__AVX512F__)
#define HS_EACH(...) HS_PART_DO(0, __VA_ARGS__)
#elif defined(__AVX__)
#define HS_EACH(...)            \
    HS_PART_DO(0, __VA_ARGS__); \
    HS_PART_DO(1, __VA_ARGS__)
#elif defined(__SSE2__)
#define HS_EACH(...)            \
    HS_PART_DO(0, __VA_ARGS__); \
    HS_PART_DO(1, __VA_ARGS__); \
    HS_PART_DO(2, __VA_ARGS__); \
    HS_PART_DO(3, __VA_ARGS__)
#else
#define HS_EACH(...)                     \
    for (int k = 0; k < hs_parts; k++) { \
        __VA_ARGS__;                     \
    }                                    \
    (void)0
#endif

typedef struct hs_vec {
    hs_part v[hs_parts];
} hs_vec;

enum { hs_part_lanes = hs_lanes / hs_parts };

HS_INLINE hs_vec hs_vsplat(float f)
{
    hs_vec a;
    HS_EACH(a.v[k] = HS_PART(set1_ps)(f));
    return a;
}

/* a in the lower half of the lanes, b in the upper. */
HS_INLINE hs_vec hs_vpair(float a, float b)
{
    hs_vec r;
#if defined(__AVX512F__)
    r.v[0] = _mm512_mask_broadcastss_ps(_mm512_set1_ps(a), 0xff00, _mm_set_ss(b));
#else
    HS_EACH(r.v[k] = HS_PART(set1_ps)(2 * k < hs_parts ? a : b));
#endif
    return r;
}

HS_INLINE hs_vec hs_vload(const float *p)
{
    hs_vec a;
    HS_EACH(a.v[k] = HS_PART(loadu_ps)(p + (size_t)hs_part_lanes * k));
    return a;
}

HS_INLINE void hs_vstore(float *p, hs_vec a)
{
    HS_EACH(HS_PART(storeu_ps)(p + (size_t)hs_part_lanes * k, a.v[k]));
}

#define HS_VEC_OP(name)                                       \
    HS_INLINE hs_vec hs_v##name(hs_vec a, hs_vec b)           \
    {                                                         \
        HS_EACH(a.v[k] = HS_PART(name##_ps)(a.v[k], b.v[k])); \
        return a;                                             \
    }
HS_VEC_OP(add)
HS_VEC_OP(sub)
HS_VEC_OP(mul)
HS_VEC_OP(div)
HS_VEC_OP(min) /* a < b ? a : b, as the instruction does it: a NaN gives b */
HS_VEC_OP(max)

/* a < b ? yes : no; NaN is less than nothing. */
HS_INLINE hs_part hs_part_if_less(hs_part a, hs_part b, hs_part yes, hs_part no)
{
#if defined(__AVX512F__)
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
#elif defined(__AVX__)
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
#elif defined(__SSE2__)
    const __m128 m = _mm_cmplt_ps(a, b);
    return _mm_or_ps(_mm_and_ps(m, yes), _mm_andnot_ps(m, no));
#else
    return a < b ? yes : no;
#endif
}

HS_INLINE hs_vec hs_vif_less(hs_vec a, hs_vec b, hs_vec yes, hs_vec no)
{
    HS_EACH(no.v[k] = hs_part_if_less(a.v[k], b.v[k], yes.v[k], no.v[k]));
    return no;
}

/* hs_nearest of quant_search.h in every lane. */
HS_INLINE hs_vec hs_vround(hs_vec v, hs_vec lo, hs_vec hi)
{
    const hs_vec magic = hs_vsplat(12582912.0f);
    return hs_vsub(hs_vadd(hs_vmin(hs_vmax(v, lo), hi), magic), magic);
}

/* hs_inverse of quant_search.h in every lane. */
HS_INLINE hs_vec hs_vinverse(hs_vec v)
{
    const hs_vec inverse = hs_vdiv(hs_vsplat(1), v), zero = hs_vsplat(0);
    const hs_vec below = hs_vif_less(inverse, hs_vsplat(3e38f), inverse, zero);
    return hs_vif_less(hs_vsplat(-3e38f), inverse, below, zero);
}

/* The lanes, integers in 0..255, as bytes. */
HS_INLINE void hs_vstore_bytes(uint8_t *p, hs_vec a)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a.v[0])));
#elif defined(__SSE2__)
#if defined(__AVX__)
    const __m128 f[4] = {_mm256_castps256_ps128(a.v[0]), _mm256_extractf128_ps(a.v[0], 1),
                         _mm256_castps256_ps128(a.v[1]), _mm256_extractf128_ps(a.v[1], 1)};
#else
    const __m128 *f = a.v;
#endif
    const __m128i q[4] = {_mm_cvttps_epi32(f[0]), _mm_cvttps_epi32(f[1]), _mm_cvttps_epi32(f[2]),
                          _mm_cvttps_epi32(f[3])};
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi16(_mm_packs_epi32(q[0], q[1]), _mm_packs_epi32(q[2], q[3])));
#else
    for (int k = 0; k < hs_lanes; k++)
        p[k] = (uint8_t)a.v[k];
#endif
}

/* Folds go on until one lane is left: lane k with lane k + 8, then with k + 4, k + 2, k + 1. */
#if defined(__AVX512F__)
HS_INLINE __m256 hs_vhalf(hs_vec a, size_t h)
{
    return h ? _mm512_extractf32x8_ps(a.v[0], 1) : _mm512_castps512_ps256(a.v[0]);
}
#elif defined(__AVX__)
HS_INLINE __m256 hs_vhalf(hs_vec a, size_t h) { return a.v[h]; }
#endif
#if defined(__AVX__)
#define HS_VEC_FOLD(name, op)                                                             \
    HS_INLINE float hs_vfold_##name(__m256 a)                                             \
    {                                                                                     \
        __m128 v = _mm_##op##_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); \
        v = _mm_##op##_ps(v, _mm_movehl_ps(v, v));                                        \
        return _mm_cvtss_f32(_mm_##op##_ss(v, _mm_shuffle_ps(v, v, 1)));                  \
    }                                                                                     \
    HS_INLINE float hs_v##name##_half(hs_vec a, size_t h)                                 \
    {                                                                                     \
        return hs_vfold_##name(hs_vhalf(a, h));                                           \
    }                                                                                     \
    HS_INLINE float hs_v##name(hs_vec a)                                                  \
    {                                                                                     \
        return hs_vfold_##name(_mm256_##op##_ps(hs_vhalf(a, 0), hs_vhalf(a, 1)));         \
    }
#elif defined(__SSE2__)
#define HS_VEC_FOLD(name, op)                                                                 \
    HS_INLINE float hs_vfold_##name(__m128 a, __m128 b)                                       \
    {                                                                                         \
        __m128 v = _mm_##op##_ps(a, b);                                                       \
        v = _mm_##op##_ps(v, _mm_movehl_ps(v, v));                                            \
        return _mm_cvtss_f32(_mm_##op##_ss(v, _mm_shuffle_ps(v, v, 1)));                      \
    }                                                                                         \
    HS_INLINE float hs_v##name##_half(hs_vec a, size_t h)                                     \
    {                                                                                         \
        return hs_vfold_##name(a.v[2 * h], a.v[2 * h + 1]);                                   \
    }                                                                                         \
    HS_INLINE float hs_v##name(hs_vec a)                                                      \
    {                                                                                         \
        return hs_vfold_##name(_mm_##op##_ps(a.v[0], a.v[2]), _mm_##op##_ps(a.v[1], a.v[3])); \
    }
#else
#define HS_VEC_FOLD(name, op)                                   \
    HS_INLINE float hs_vfold_##name(float *f, int n)            \
    {                                                           \
        for (; n; n /= 2)                                       \
            for (int k = 0; k < n; k++)                         \
                f[k] = hs_one_##op##_ps(f[k], f[k + n]);        \
        return f[0];                                            \
    }                                                           \
    HS_INLINE float hs_v##name##_half(hs_vec a, size_t h)       \
    {                                                           \
        return hs_vfold_##name(a.v + hs_half * h, hs_half / 2); \
    }                                                           \
    HS_INLINE float hs_v##name(hs_vec a) { return hs_vfold_##name(a.v, hs_half); }
#endif
HS_VEC_FOLD(greatest, max)
HS_VEC_FOLD(least, min)
HS_VEC_FOLD(sum, add)

/* Bit k: lane k is f. */
HS_INLINE unsigned hs_vequal(hs_vec a, float f)
{
    const hs_vec b = hs_vsplat(f);
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a.v[0], b.v[0], _CMP_EQ_OQ);
#elif defined(__SSE2__)
    unsigned bits = 0;
#if defined(__AVX__)
    HS_EACH(bits |= (unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a.v[k], b.v[k], _CMP_EQ_OQ))
                    << (k * hs_part_lanes));
#else
    HS_EACH(bits |= (unsigned)_mm_movemask_ps(_mm_cmpeq_ps(a.v[k], b.v[k])) << (k * hs_part_lanes));
#endif
    return bits;
#else
    unsigned bits = 0;
    for (int k = 0; k < hs_lanes; k++)
        bits |= (unsigned)(a.v[k] == b.v[k]) << k;
    return bits;
#endif
}

/* Of the lanes in `bits` the first, or `best` where it is one of them or there is none. */
HS_INLINE size_t hs_lane_of(unsigned bits, size_t best)
{
    return bits == 0 || (bits >> best & 1) ? best : (size_t)__builtin_ctz(bits);
}

/* The lane of the least number; of equals `best`, or the first. */
HS_INLINE size_t hs_vleast_lane(hs_vec a, size_t best)
{
    return hs_lane_of(hs_vequal(a, hs_vleast(a)), best);
}

/* The same of half h. */
HS_INLINE size_t hs_vleast_lane_half(hs_vec a, size_t h, size_t best)
{
    const unsigned bits = hs_vequal(a, hs_vleast_half(a, h)) & (h ? 0xff00u : 0x00ffu);
    return hs_lane_of(bits, best);
}

#endif
