#ifndef HS_RUNTIME_KERNELS_AVX2_H
#define HS_RUNTIME_KERNELS_AVX2_H

/* What the files of AVX2 kernels share. */

#if defined(__AVX2__)
#include "runtime/kernels_block.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { width = 8 };

/* lane[j] += lane[j + h] for h = 4, 2, 1. */
INLINE float halve8(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

INLINE float halve16(const __m256 *lane) { return halve8(_mm256_add_ps(lane[0], lane[1])); }

/* Fetch the `bytes` that come 1 KiB later.  The hardware stops at every page and cannot know
 * where rows go on: measured on rows in memory, this makes dot products a quarter faster.
 * Further ahead is better still for dense products (2 KiB: another tenth), but sparse ones skip
 * most rows, and what is fetched past the end of a row is then wasted bandwidth. */
INLINE void fetch_ahead(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        /* The address may lie outside of every object, where p + … is not defined. */
        /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
        _mm_prefetch((const char *)((uintptr_t)p + 1024 + i), _MM_HINT_T0);
}

INLINE void axpy8(float *y, __m256 a, __m256 w)
{
    _mm256_storeu_ps(y, _mm256_add_ps(_mm256_loadu_ps(y), _mm256_mul_ps(a, w)));
}

INLINE float load_d(const uint8_t *p) { return _cvtsh_ss(hs_load_u16(p)); }

/* Sums of four neighbours, from products of two: the pairs fit int16 (kernels_block.h). */
INLINE __m256 partials(__m256i pairs)
{
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Weights in 0…63 whose zero is `bias`, as pairs of (q - bias) * a. */
INLINE __m256i biased_pairs(__m256i q, __m256i a, char bias)
{
    return _mm256_sub_epi16(_mm256_maddubs_epi16(q, a),
                            _mm256_maddubs_epi16(_mm256_set1_epi8(bias), a));
}

/* A byte's two nibbles are 16 elements apart: low nibbles below, high ones above. */
INLINE __m256i nibbles(const uint8_t *p)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)p);
    const __m256i both =
        _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
}

/* Byte j becomes 16 where bit j of `bits` is set, else 0. */
INLINE __m256i fifth_bits(uint32_t bits)
{
    const __m256i spread =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)bits), spread);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

/* Of eight scales, those of 32-block k: the first in the low lanes, the second in the high. */
INLINE __m256 scale_pair(__m256 scales, size_t k)
{
    const int first = (int)(k % 4 * 2);
    return _mm256_permutevar8x32_ps(scales, _mm256_setr_epi32(first, first, first, first, first + 1,
                                                              first + 1, first + 1, first + 1));
}

/* y[0…15] += a * (d * q) */
INLINE void axpy16(float *y, __m256 a, __m256 d, __m128i q)
{
    const __m256 w0 = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)));
    const __m256 w1 =
        _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(q, q))));
    axpy8(y, a, w0);
    axpy8(y + width, a, w1);
}

INLINE void axpy32(float *y, __m256 a, __m256 d0, __m256 d1, __m256i q)
{
    axpy16(y, a, d0, _mm256_castsi256_si128(q));
    axpy16(y + 16, a, d1, _mm256_extracti128_si256(q, 1));
}

#endif
#endif
