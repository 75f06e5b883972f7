#ifndef HS_RUNTIME_KERNELS_Q_AVX512_H
#define HS_RUNTIME_KERNELS_Q_AVX512_H

/* Quantized rows in 512-bit registers: how the integers and scales of sixteen groups
 * (kernels.h), a step, come out of each type's bytes.  Steps are 512 elements, or 256 of the
 * types with groups of 16.  Integers are made unsigned by adding the kind's bias: what is left of
 * it is taken off each group's sum by the sum of its activations. */

#if defined(__AVX512F__)
#include "runtime/kernels_block.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* How a step's integers lie in its vectors of 64 bytes, as the bytes come out most cheaply. */
typedef enum q_layout {
    Q_PAIRS, /* eight vectors in order: each two groups of 32 */
    Q_QUADS, /* four times two vectors: the first halves of four groups of 32, then the second */
    Q_FOURS, /* four vectors in order: each four groups of 16 */
} q_layout;

/* Step p's integers with the bias. */
typedef void q_quants_fn(const uint8_t *p, __m512i *w);
/* The scales of its sixteen groups, and the minima (of types that have them). */
typedef void q_scales_fn(const uint8_t *p, __m512 *d, __m512 *m);

typedef struct q_kind {
    q_layout layout;
    int bias;
    int min;      /* whether there are minima */
    size_t bytes; /* of a step */
    q_quants_fn *quants;
    q_scales_fn *scales;
} q_kind;

enum { q_groups = 16 };

INLINE size_t q_step_elems(q_kind k) { return k.layout == Q_FOURS ? 256 : 512; }
INLINE size_t q_group_elems(q_kind k) { return k.layout == Q_FOURS ? 16 : 32; }

/* ---- blocks of 32 ------------------------------------------------------------------------ */

/* Sixteen bytes of each of four blocks, `stride` apart. */
INLINE __m512i q_gather4(const uint8_t *p, size_t stride)
{
    const __m128i *a = (const __m128i *)p, *b = (const __m128i *)(p + stride);
    const __m128i *c = (const __m128i *)(p + 2 * stride), *d = (const __m128i *)(p + 3 * stride);
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128(a));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128(b));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128(c));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128(d));
}

INLINE __m512i q_low(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
INLINE __m512i q_high(__m512i v) { return q_low(_mm512_srli_epi16(v, 4)); }

/* The first four bytes of sixteen blocks. */
INLINE __m512i q_heads(const uint8_t *p, int stride)
{
    const __m512i n = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(n, _mm512_set1_epi32(stride)), p, 1);
}

INLINE __m512 q_f16(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }

INLINE void q_scales_32(const uint8_t *p, int stride, __m512 *d, __m512 *m)
{
    const __m512i v = q_heads(p, stride);
    *d = q_f16(v);
    *m = q_f16(_mm512_srli_epi32(v, 16));
}

/* Four blocks of 18 bytes are 36 words: all but the last block's eight in one register. */
INLINE __m512i q_quad_18(const uint8_t *p)
{
    const __m512i pick = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 26, 25, 24, 23, 22, 21, 20, 19,
                                          17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1);
    const __m512i v = _mm512_permutexvar_epi16(pick, _mm512_loadu_si512(p));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const __m128i *)(p + 56)));
}

/* Their four scales are words 0, 9, 18 and 27. */
INLINE __m512 q_scales_18(const uint8_t *p)
{
    const __m512i pick = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 27, 18, 9,
                                          0, 27, 18, 9, 0, 27, 18, 9, 0, 27, 18, 9, 0);
    __m512i v = _mm512_permutexvar_epi16(pick, _mm512_loadu_si512(p));
    v = _mm512_mask_permutexvar_epi16(v, 0x00f0, pick, _mm512_loadu_si512(p + 72));
    v = _mm512_mask_permutexvar_epi16(v, 0x0f00, pick, _mm512_loadu_si512(p + 144));
    v = _mm512_mask_permutexvar_epi16(v, 0xf000, pick, _mm512_loadu_si512(p + 216));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(v));
}

INLINE void q_quants_q4_0(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const __m512i v = q_quad_18(p + 72 * i);
        w[2 * i] = q_low(v);
        w[2 * i + 1] = q_high(v);
    }
}

INLINE void q_scales_q4_0(const uint8_t *p, __m512 *d, __m512 *m)
{
    *d = q_scales_18(p);
    *m = _mm512_setzero_ps();
}

INLINE void q_quants_q4_1(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const __m512i v = q_gather4(p + 4 * hs_q4_1_bytes * i + 4, hs_q4_1_bytes);
        w[2 * i] = q_low(v);
        w[2 * i + 1] = q_high(v);
    }
}

INLINE void q_scales_q4_1(const uint8_t *p, __m512 *d, __m512 *m)
{
    q_scales_32(p, hs_q4_1_bytes, d, m);
}

/* Four blocks with fifth bits at `high`. */
INLINE void q_five(const uint8_t *p, size_t stride, size_t high, __m512i *w)
{
    const __m512i v = q_gather4(p + high + 4, stride), sixteen = _mm512_set1_epi8(16);
    uint64_t first = 0, second = 0;
#pragma GCC unroll 4
    for (size_t b = 0; b < 4; b++) {
        const uint32_t bits = hs_load_u32(p + b * stride + high);
        first |= (uint64_t)(bits & 0xffff) << 16 * b;
        second |= (uint64_t)(bits >> 16) << 16 * b;
    }
    w[0] = _mm512_mask_add_epi8(q_low(v), first, q_low(v), sixteen);
    w[1] = _mm512_mask_add_epi8(q_high(v), second, q_high(v), sixteen);
}

INLINE void q_quants_q5_0(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        q_five(p + 4 * hs_q5_0_bytes * i, hs_q5_0_bytes, 2, w + 2 * i);
}

INLINE void q_scales_q5_0(const uint8_t *p, __m512 *d, __m512 *m)
{
    *d = q_f16(q_heads(p, hs_q5_0_bytes));
    *m = _mm512_setzero_ps();
}

INLINE void q_quants_q5_1(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        q_five(p + 4 * hs_q5_1_bytes * i, hs_q5_1_bytes, 4, w + 2 * i);
}

INLINE void q_scales_q5_1(const uint8_t *p, __m512 *d, __m512 *m)
{
    q_scales_32(p, hs_q5_1_bytes, d, m);
}

INLINE void q_quants_q8_0(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++, p += 2 * hs_q8_0_bytes) {
        const __m256i low = _mm256_loadu_si256((const __m256i *)(p + 2));
        const __m256i high = _mm256_loadu_si256((const __m256i *)(p + hs_q8_0_bytes + 2));
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        w[i] = _mm512_xor_si512(both, _mm512_set1_epi8(-128));
    }
}

INLINE void q_scales_q8_0(const uint8_t *p, __m512 *d, __m512 *m)
{
    *d = q_f16(q_heads(p, hs_q8_0_bytes));
    *m = _mm512_setzero_ps();
}

/* IQ4's levels plus 128. */
INLINE __m512i q_levels(__m512i nibbles)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)hs_iq4_values);
    const __m128i biased = _mm_xor_si128(table, _mm_set1_epi8(-128));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(biased), nibbles);
}

INLINE void q_quants_iq4_nl(const uint8_t *p, __m512i *w)
{
    q_quants_q4_0(p, w);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        w[i] = q_levels(w[i]);
}

INLINE void q_scales_iq4_nl(const uint8_t *p, __m512 *d, __m512 *m) { q_scales_q4_0(p, d, m); }

/* ---- blocks of 256 ------------------------------------------------------------------------ */

/* d times sixteen signed bytes. */
INLINE __m512 q_times16(float d, __m128i bytes)
{
    return _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

INLINE float q_half(const uint8_t *p) { return _cvtsh_ss(hs_load_u16(p)); }
INLINE __m512 q_negated(__m512 v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }

/* 32 bytes twice, shifted right by one count in the lower half and another in the upper. */
INLINE __m512i q_twice(const uint8_t *p, int low, int high)
{
    const __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_srlv_epi64(v, _mm512_setr_epi64(low, low, low, low, high, high, high, high));
}

INLINE __m512i q_bits(__m512i v, char mask) { return _mm512_and_si512(v, _mm512_set1_epi8(mask)); }

/* 64 of a block's 256 integers: pair 0…3 (kernels_block.h has the bits). */
INLINE void q_quants_q6_k(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const __m512i l = _mm512_loadu_si512(p + i / 2 * 64);
        const __m512i h = q_twice(p + hs_q6_k_qh + i / 2 * 32, i % 2 ? 4 : 0, i % 2 ? 6 : 2);
        w[i] = _mm512_or_si512(q_low(i % 2 ? _mm512_srli_epi16(l, 4) : l),
                               _mm512_slli_epi16(q_bits(h, 3), 4));
    }
}

INLINE void q_scales_q6_k(const uint8_t *p, __m512 *d, __m512 *m)
{
    *d = q_times16(q_half(p + hs_q6_k_d), _mm_loadu_si128((const __m128i *)(p + hs_q6_k_scale)));
    *m = _mm512_setzero_ps();
}

INLINE void q_quants_q2_k(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        w[i] = q_bits(q_twice(p + hs_q2_k_q + i / 2 * 32, i % 2 ? 4 : 0, i % 2 ? 6 : 2), 3);
}

INLINE void q_scales_q2_k(const uint8_t *p, __m512 *d, __m512 *m)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)p), low = _mm_set1_epi8(15);
    *d = q_times16(q_half(p + hs_q2_k_d), _mm_and_si128(v, low));
    *m = q_negated(q_times16(q_half(p + hs_q2_k_d + 2), _mm_and_si128(_mm_srli_epi16(v, 4), low)));
}

INLINE void q_quants_q3_k(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const __m512i low = q_twice(p + hs_q3_k_q + i / 2 * 32, i % 2 ? 4 : 0, i % 2 ? 6 : 2);
        const __m512i third = q_twice(p, (int)(2 * i), (int)(2 * i + 1));
        w[i] = _mm512_or_si512(q_bits(low, 3), _mm512_slli_epi16(q_bits(third, 1), 2));
    }
}

INLINE void q_scales_q3_k(const uint8_t *p, __m512 *d, __m512 *m)
{
    int8_t scale[16];
    hs_unpack_k3(p + hs_q3_k_scale, scale);
    *d = q_times16(q_half(p + hs_q3_k_d), _mm_loadu_si128((const __m128i *)scale));
    *m = _mm512_setzero_ps();
}

INLINE void q_quants_q4_k(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        w[i] = q_bits(q_twice(p + i / 4 * hs_q4_k_bytes + hs_q4_k_q + i % 4 * 32, 0, 4), 15);
}

INLINE void q_quants_q5_k(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        const uint8_t *b = p + i / 4 * hs_q5_k_bytes;
        const int first = (int)(i % 4 * 2);
        const __m512i fifth = q_bits(q_twice(b + hs_q5_k_high, first, first + 1), 1);
        w[i] = _mm512_or_si512(q_bits(q_twice(b + hs_q5_k_q + i % 4 * 32, 0, 4), 15),
                               _mm512_slli_epi16(fifth, 4));
    }
}

/* One number for the first eight groups, another for the rest. */
INLINE __m512 q_eight(float first, float second)
{
    return _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(first), _mm512_set1_ps(second));
}

INLINE void q_scales_k4(const uint8_t *p, size_t bytes, __m512 *d, __m512 *m)
{
    uint8_t scale[16], min[16];
    hs_unpack_k4(p + 4, scale, min);
    hs_unpack_k4(p + bytes + 4, scale + 8, min + 8);
    const __m512i s = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)scale));
    const __m512i n = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)min));
    *d = _mm512_mul_ps(q_eight(q_half(p), q_half(p + bytes)), _mm512_cvtepi32_ps(s));
    *m = q_negated(
        _mm512_mul_ps(q_eight(q_half(p + 2), q_half(p + bytes + 2)), _mm512_cvtepi32_ps(n)));
}

INLINE void q_scales_q4_k(const uint8_t *p, __m512 *d, __m512 *m)
{
    q_scales_k4(p, hs_q4_k_bytes, d, m);
}

INLINE void q_scales_q5_k(const uint8_t *p, __m512 *d, __m512 *m)
{
    q_scales_k4(p, hs_q5_k_bytes, d, m);
}

INLINE void q_quants_iq4_xs(const uint8_t *p, __m512i *w)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        const __m512i v =
            _mm512_loadu_si512(p + i / 2 * hs_iq4_xs_bytes + hs_iq4_xs_q + i % 2 * 64);
        w[2 * i] = q_levels(q_low(v));
        w[2 * i + 1] = q_levels(q_high(v));
    }
}

INLINE void q_scales_iq4_xs(const uint8_t *p, __m512 *d, __m512 *m)
{
    const __m512i nibble =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i pair = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
    const uint8_t *q = p + hs_iq4_xs_bytes;
    const __m512i low = _mm512_mask_blend_epi32(0xff00, _mm512_set1_epi32((int)hs_load_u32(p + 4)),
                                                _mm512_set1_epi32((int)hs_load_u32(q + 4)));
    const __m512i high = _mm512_mask_blend_epi32(0xff00, _mm512_set1_epi32(hs_load_u16(p + 2)),
                                                 _mm512_set1_epi32(hs_load_u16(q + 2)));
    const __m512i four = _mm512_and_si512(_mm512_srlv_epi32(low, nibble), _mm512_set1_epi32(15));
    const __m512i two = _mm512_and_si512(_mm512_srlv_epi32(high, pair), _mm512_set1_epi32(3));
    const __m512i s =
        _mm512_sub_epi32(_mm512_or_si512(four, _mm512_slli_epi32(two, 4)), _mm512_set1_epi32(32));
    *d = _mm512_mul_ps(q_eight(q_half(p), q_half(q)), _mm512_cvtepi32_ps(s));
    *m = _mm512_setzero_ps();
}

#endif
#endif
