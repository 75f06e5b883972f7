/* Q4_0 and Q8_0 from f32, bytes as formats/quant.c makes them.  A block that needs care, for
 * an element that is no number or two of equal magnitude and different sign, is left to it. */
#include "runtime/encode.h"

#if defined(__x86_64__)
#include "runtime/kernels_avx2.h"

INLINE __m256 absolute(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

INLINE float max8(__m256 v)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

/* Are all 32 finite?  (x - x is 0 for those and NaN for others.) */
INLINE int all_finite(const __m256 *x)
{
    __m256 sum = _mm256_setzero_ps();
    for (size_t i = 0; i < 4; i++)
        sum = _mm256_add_ps(sum, _mm256_sub_ps(x[i], x[i]));
    return _mm256_movemask_ps(_mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)) == 0;
}

/* Bytes of 32 integers in order: packing works within halves, the permutation puts fours back. */
INLINE __m256i pack32(const __m256i *q)
{
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void put_d(uint8_t *p, float d)
{
    const uint16_t h = hs_f32_to_f16(d);
    memcpy(p, &h, 2);
}

static void encode_q4_0(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= hs_block_elems, p += hs_q4_0_bytes, src += hs_block_elems) {
        __m256 x[4];
        for (size_t i = 0; i < 4; i++)
            x[i] = _mm256_loadu_ps(src + 8 * i);
        const __m256 most = _mm256_max_ps(_mm256_max_ps(x[0], x[1]), _mm256_max_ps(x[2], x[3]));
        const __m256 least = _mm256_min_ps(_mm256_min_ps(x[0], x[1]), _mm256_min_ps(x[2], x[3]));
        const float max = max8(most), min = -max8(_mm256_sub_ps(_mm256_setzero_ps(), least));
        const float d = (max > -min ? max : min) / -8, id = 1.0f / d;
        if (max == -min || !(id > -3e38f && id < 3e38f) || !all_finite(x)) {
            hs_dtype_get(HS_Q4_0)->encode(p, src, hs_block_elems);
            continue;
        }
        put_d(p, d);
        __m256i q[4];
        for (size_t i = 0; i < 4; i++) {
            const __m256 v =
                _mm256_add_ps(_mm256_mul_ps(x[i], _mm256_set1_ps(id)), _mm256_set1_ps(8.5f));
            q[i] = _mm256_min_epi32(_mm256_cvttps_epi32(v), _mm256_set1_epi32(15));
        }
        const __m256i bytes = pack32(q);
        const __m128i low = _mm256_castsi256_si128(bytes);
        const __m128i high = _mm256_extracti128_si256(bytes, 1);
        _mm_storeu_si128((__m128i *)(p + 2), _mm_or_si128(low, _mm_slli_epi16(high, 4)));
    }
}

/* roundf: half away from zero. */
INLINE __m256i round_away(__m256 v)
{
    const __m256 t = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __m256 rest = absolute(_mm256_sub_ps(v, t));
    const __m256 up = _mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ);
    const __m256 sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0f));
    const __m256 one = _mm256_or_ps(_mm256_and_ps(up, _mm256_set1_ps(1)), sign);
    return _mm256_cvttps_epi32(_mm256_add_ps(t, one));
}

static void encode_q8_0(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= hs_block_elems, p += hs_q8_0_bytes, src += hs_block_elems) {
        __m256 x[4];
        for (size_t i = 0; i < 4; i++)
            x[i] = _mm256_loadu_ps(src + 8 * i);
        const float max = max8(_mm256_max_ps(_mm256_max_ps(absolute(x[0]), absolute(x[1])),
                                             _mm256_max_ps(absolute(x[2]), absolute(x[3]))));
        const float d = max / 127, id = 1.0f / d;
        if (!(id < 3e38f) || !all_finite(x)) {
            hs_dtype_get(HS_Q8_0)->encode(p, src, hs_block_elems);
            continue;
        }
        put_d(p, d);
        __m256i q[4];
        for (size_t i = 0; i < 4; i++)
            q[i] = round_away(_mm256_mul_ps(x[i], _mm256_set1_ps(id)));
        _mm256_storeu_si256((__m256i *)(p + 2), pack32(q));
    }
}

hs_encode_fn *hs_encoder_avx2(hs_dtype type)
{
    return type == HS_Q4_0 ? encode_q4_0 : type == HS_Q8_0 ? encode_q8_0 : NULL;
}
#endif
