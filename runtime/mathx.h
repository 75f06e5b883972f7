#ifndef HS_RUNTIME_MATHX_H
#define HS_RUNTIME_MATHX_H

/* exp in f32 from additions, multiplications and bit moves only, so that every CPU level, the
 * device and its emulation give the same bits.
 *
 * exp(x) = 2^k * exp(r), k = round(x / ln 2), r = x - k ln 2 in |r| <= ln 2 / 2; ln 2 is split
 * so that k * hi is exact (Cody and Waite), exp(r) is its Taylor polynomial of degree 7, whose
 * remainder r^8/8! is below 2^-27.  Relative error under 2^-22; 0 below -87.3, +inf above 88.7. */

#include <stdint.h>

#ifdef __CUDACC__
#define HS_MATHX static __host__ __device__ __forceinline__
#else
#define HS_MATHX static inline
#endif

typedef union hs_f32_bits {
    float f;
    uint32_t u;
} hs_f32_bits;

HS_MATHX float hs_mulf(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b); /* never contracted */
#else
    return a * b;
#endif
}

HS_MATHX float hs_addf(float a, float b)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

/* Sums that do not depend on their order.
 *
 * The down projection adds one product per active neuron, and a placement decides which of them
 * are added here and which on a device.  So that no placement can change a bit, every product is
 * rounded to a multiple of 2^-36 before it is added, in double: a * w has at most 48 bits and is
 * exact, adding and taking away 1.5 * 2^16 leaves it at the nearest multiple, and sums of such
 * multiples are exact below 2^17, whatever their order (the pre-rounding of reproducible
 * summation, Rump 2009, Demmel and Nguyen 2013).  Beyond that magnitude they are rounded like any
 * double sum.  The error, 2^-37 a product, is far below that of a sum in f32. */
#define HS_GRID 98304.0

HS_MATHX double hs_grid_product(float a, float w)
{
#ifdef __CUDA_ARCH__
    return __dadd_rn(__dadd_rn(__dmul_rn((double)a, (double)w), HS_GRID), -HS_GRID);
#else
    return (double)a * (double)w + HS_GRID - HS_GRID;
#endif
}

HS_MATHX float hs_expf(float x)
{
    hs_f32_bits s;
    if (!(x > -87.3f)) { /* also NaN, handled by the caller's finiteness checks */
        s.u = x != x ? 0x7fc00000u : 0;
        return s.f;
    }
    if (x > 88.7f) {
        s.u = 0x7f800000u;
        return s.f;
    }
    /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, half to even. */
    const float magic = 12582912.0f;
    const float t = hs_addf(hs_mulf(x, 1.44269504f), magic);
    const float k = hs_addf(t, -magic);
    float r = hs_addf(x, hs_mulf(k, -0.693359375f));
    r = hs_addf(r, hs_mulf(k, 2.12194440e-4f));
    float p = 1.0f / 5040.0f;
    p = hs_addf(hs_mulf(p, r), 1.0f / 720.0f);
    p = hs_addf(hs_mulf(p, r), 1.0f / 120.0f);
    p = hs_addf(hs_mulf(p, r), 1.0f / 24.0f);
    p = hs_addf(hs_mulf(p, r), 1.0f / 6.0f);
    p = hs_addf(hs_mulf(p, r), 0.5f);
    p = hs_addf(hs_mulf(p, r), 1.0f);
    p = hs_addf(hs_mulf(p, r), 1.0f);
    /* 2^k in two steps, so that neither factor leaves the range of normal numbers. */
    const int32_t e = (int32_t)k, half = e / 2;
    s.u = (uint32_t)(half + 127) << 23;
    p = hs_mulf(p, s.f);
    s.u = (uint32_t)(e - half + 127) << 23;
    return hs_mulf(p, s.f);
}

#endif
