/* AVX2 row updates of the types with minima, of Q3_K and of IQ4, bit for bit those of
 * kernels_scalar.c. */
#include "runtime/kernels.h"

#if defined(__x86_64__)
#include "runtime/kernels_avx2.h"

/* ---- integers of a block of 32 ----------------------------------------------------------- */

/* Bit k of each byte, moved to bit `to`. */
INLINE __m256i bit_at(__m256i v, int k, int to)
{
    const __m256i moved = k < to ? _mm256_slli_epi16(v, to - k) : _mm256_srli_epi16(v, k - to);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(1 << to)));
}

INLINE __m256i load32(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* The k-th 32 of Q2_K's and Q3_K's pairs of bits. */
INLINE __m256i two_bits(const uint8_t *ql, size_t k)
{
    const __m256i v = load32(ql + k / 4 * 32);
    return _mm256_and_si256(_mm256_srli_epi16(v, (int)(k % 4 * 2)), _mm256_set1_epi8(3));
}

INLINE __m256i quants_q3_k(const uint8_t *p, size_t k)
{
    return _mm256_or_si256(two_bits(p + hs_q3_k_q, k), bit_at(load32(p), (int)k, 2));
}

INLINE __m256i four_bits(const uint8_t *ql, size_t k)
{
    const __m256i v = load32(ql + k / 2 * 32);
    return _mm256_and_si256(k % 2 ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
}

INLINE __m256i quants_q5_k(const uint8_t *p, size_t k)
{
    return _mm256_or_si256(four_bits(p + hs_q5_k_q, k),
                           bit_at(load32(p + hs_q5_k_high), (int)k, 4));
}

INLINE __m256i quants_iq4(const uint8_t *p)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)hs_iq4_values);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(p));
}

/* ---- scales ------------------------------------------------------------------------------ */

INLINE __m256 times8(float d, __m128i bytes)
{
    return _mm256_mul_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

INLINE __m256 negated(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

/* Lane k of eight in all lanes. */
INLINE __m256 all_lanes(__m256 v, size_t k)
{
    return _mm256_permutevar8x32_ps(v, _mm256_set1_epi32((int)k));
}

typedef struct minima {
    __m256 d[2], m[2]; /* of the first and the last four blocks (Q2_K), of all eight in [0] else */
} minima;

INLINE minima scales_q2_k(const uint8_t *p)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)p), low = _mm_set1_epi8(15);
    const __m128i s = _mm_and_si128(v, low), m = _mm_and_si128(_mm_srli_epi16(v, 4), low);
    const float d = load_d(p + hs_q2_k_d), dmin = load_d(p + hs_q2_k_d + 2);
    const minima r = {{times8(d, s), times8(d, _mm_unpackhi_epi64(s, s))},
                      {negated(times8(dmin, m)), negated(times8(dmin, _mm_unpackhi_epi64(m, m)))}};
    return r;
}

INLINE minima scales_k4(const uint8_t *p)
{
    uint8_t v[16];
    hs_unpack_k4(p + 4, v, v + 8);
    minima r = {{_mm256_setzero_ps(), _mm256_setzero_ps()},
                {_mm256_setzero_ps(), _mm256_setzero_ps()}};
    r.d[0] = times8(load_d(p), _mm_loadl_epi64((const __m128i *)v));
    r.m[0] = negated(times8(load_d(p + 2), _mm_loadl_epi64((const __m128i *)(v + 8))));
    return r;
}

typedef struct scales {
    __m256 d[2];
} scales;

INLINE scales scales_q3_k(const uint8_t *p)
{
    int8_t v[16];
    hs_unpack_k3(p + hs_q3_k_scale, v);
    const float d = load_d(p + hs_q3_k_d);
    const scales r = {{times8(d, _mm_loadl_epi64((const __m128i *)v)),
                       times8(d, _mm_loadl_epi64((const __m128i *)(v + 8)))}};
    return r;
}

INLINE scales scales_iq4_xs(const uint8_t *p)
{
    int8_t v[8];
    for (size_t k = 0; k < 8; k++)
        v[k] = (int8_t)hs_iq4_xs_scale(p, k);
    const scales r = {
        {times8(load_d(p), _mm_loadl_epi64((const __m128i *)v)), _mm256_setzero_ps()}};
    return r;
}

/* ---- axpy -------------------------------------------------------------------------------- */

typedef __m256i quants_fn(const uint8_t *p, size_t k);

INLINE __m256i quants_q2_k(const uint8_t *p, size_t k) { return two_bits(p + hs_q2_k_q, k); }

INLINE __m256i quants_q4_k(const uint8_t *p, size_t k) { return four_bits(p + hs_q4_k_q, k); }

INLINE __m256i quants_iq4_xs(const uint8_t *p, size_t k)
{
    return quants_iq4(p + hs_iq4_xs_q + 16 * k);
}

INLINE __m256i centred_q3_k(const uint8_t *p, size_t k)
{
    return _mm256_sub_epi8(quants_q3_k(p, k), _mm256_set1_epi8(4));
}

INLINE __m256i quants_q5_1(const uint8_t *p)
{
    return _mm256_or_si256(nibbles(p + 8), fifth_bits(hs_load_u32(p + 4)));
}

/* y[0…31] += a * (d * q + m) */
INLINE void axpy32_min(float *y, __m256 a, const __m256 *d, const __m256 *m, __m256i q)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const __m128i half = i < 2 ? _mm256_castsi256_si128(q) : _mm256_extracti128_si256(q, 1);
        const __m128i eight = i % 2 ? _mm_unpackhi_epi64(half, half) : half;
        const __m256 v = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
        axpy8(y + width * i, a, _mm256_add_ps(_mm256_mul_ps(d[i / 2], v), m[i / 2]));
    }
}

INLINE void axpy_k_min(quants_fn *quants, minima (*get)(const uint8_t *), bool pairs, size_t bytes,
                       float *y, float a, const uint8_t *row, size_t begin, size_t end)
{
    const __m256 va = _mm256_set1_ps(a);
    for (size_t b = begin / hs_q6_k_elems; b < end / hs_q6_k_elems; b++) {
        const uint8_t *p = row + b * bytes;
        fetch_ahead(p, bytes);
        const minima s = get(p);
#pragma GCC unroll 8
        for (size_t k = 0; k < 8; k++) {
            const size_t of = pairs ? k / 4 : 0, i = pairs ? k % 4 * 2 : k;
            const __m256 d[2] = {all_lanes(s.d[of], i), all_lanes(s.d[of], pairs ? i + 1 : i)};
            const __m256 m[2] = {all_lanes(s.m[of], i), all_lanes(s.m[of], pairs ? i + 1 : i)};
            axpy32_min(y + b * hs_q6_k_elems + k * hs_block_elems, va, d, m, quants(p, k));
        }
    }
}

static void axpy_q2_k(float *y, float a, const void *row, size_t begin, size_t end)
{
    axpy_k_min(quants_q2_k, scales_q2_k, true, hs_q2_k_bytes, y, a, row, begin, end);
}

static void axpy_q4_k(float *y, float a, const void *row, size_t begin, size_t end)
{
    axpy_k_min(quants_q4_k, scales_k4, false, hs_q4_k_bytes, y, a, row, begin, end);
}

static void axpy_q5_k(float *y, float a, const void *row, size_t begin, size_t end)
{
    axpy_k_min(quants_q5_k, scales_k4, false, hs_q5_k_bytes, y, a, row, begin, end);
}

INLINE void axpy_k(quants_fn *quants, scales (*get)(const uint8_t *), bool pairs, size_t bytes,
                   float *y, float a, const uint8_t *row, size_t begin, size_t end)
{
    const __m256 va = _mm256_set1_ps(a);
    for (size_t b = begin / hs_q6_k_elems; b < end / hs_q6_k_elems; b++) {
        const uint8_t *p = row + b * bytes;
        fetch_ahead(p, bytes);
        const scales s = get(p);
#pragma GCC unroll 8
        for (size_t k = 0; k < 8; k++) {
            const size_t of = pairs ? k / 4 : 0, i = pairs ? k % 4 * 2 : k;
            axpy32(y + b * hs_q6_k_elems + k * hs_block_elems, va, all_lanes(s.d[of], i),
                   all_lanes(s.d[of], pairs ? i + 1 : i), quants(p, k));
        }
    }
}

static void axpy_q3_k(float *y, float a, const void *row, size_t begin, size_t end)
{
    axpy_k(centred_q3_k, scales_q3_k, true, hs_q3_k_bytes, y, a, row, begin, end);
}

static void axpy_iq4_xs(float *y, float a, const void *row, size_t begin, size_t end)
{
    axpy_k(quants_iq4_xs, scales_iq4_xs, false, hs_iq4_xs_bytes, y, a, row, begin, end);
}

typedef void axpy_fn(float *y, __m256 a, const uint8_t *p);

INLINE void axpy_min(float *y, __m256 a, const uint8_t *p, __m256i quants)
{
    const __m256 vd = _mm256_set1_ps(load_d(p)), vm = _mm256_set1_ps(load_d(p + 2));
    const __m256 d[2] = {vd, vd}, m[2] = {vm, vm};
    axpy32_min(y, a, d, m, quants);
}

INLINE void axpy_block_q4_1(float *y, __m256 a, const uint8_t *p)
{
    axpy_min(y, a, p, nibbles(p + 4));
}

INLINE void axpy_block_q5_1(float *y, __m256 a, const uint8_t *p)
{
    axpy_min(y, a, p, quants_q5_1(p));
}

INLINE void axpy_block_iq4_nl(float *y, __m256 a, const uint8_t *p)
{
    const __m256 d = _mm256_set1_ps(load_d(p));
    axpy32(y, a, d, d, quants_iq4(p + 2));
}

INLINE void axpy_32(axpy_fn *axpy, size_t bytes, float *y, float a, const uint8_t *row,
                    size_t begin, size_t end)
{
    const __m256 va = _mm256_set1_ps(a);
    for (size_t b = begin / hs_block_elems; b < end / hs_block_elems; b++) {
        fetch_ahead(row + b * bytes, 1);
        axpy(y + b * hs_block_elems, va, row + b * bytes);
    }
}

#define ROWS_32(type)                                                                     \
    static void axpy_##type(float *y, float a, const void *row, size_t begin, size_t end) \
    {                                                                                     \
        axpy_32(axpy_block_##type, hs_##type##_bytes, y, a, row, begin, end);             \
    }

ROWS_32(q4_1)
ROWS_32(q5_1)
ROWS_32(iq4_nl)

void hs_kernels_k_avx2(hs_kernels *k)
{
    k->type[HS_Q4_1].axpy = axpy_q4_1;
    k->type[HS_Q5_1].axpy = axpy_q5_1;
    k->type[HS_Q2_K].axpy = axpy_q2_k;
    k->type[HS_Q3_K].axpy = axpy_q3_k;
    k->type[HS_Q4_K].axpy = axpy_q4_k;
    k->type[HS_Q5_K].axpy = axpy_q5_k;
    k->type[HS_IQ4_NL].axpy = axpy_iq4_nl;
    k->type[HS_IQ4_XS].axpy = axpy_iq4_xs;
}
#endif
