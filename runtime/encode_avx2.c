/* The types with blocks of 32 from f32, bytes as formats/quant.c makes them, eight blocks at a
 * time.  Blocks that need care, for a scale of no use or two largest elements of different sign,
 * are left to it, and so are eight blocks with an element that is no number. */
#include "runtime/encode.h"

#if defined(__x86_64__)
#include "formats/lanes.h"

#include <immintrin.h>
#include <string.h>

enum { block = 32, group = 8, group_elems = block * group };

HS_INLINE __m256 absolute(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

/* Bytes of 32 integers in order: packing works within halves, the permutation puts fours back. */
HS_INLINE __m256i pack32(const __m256i *q)
{
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Lane b is the largest, or smallest, lane of v[b]. */
#define FOLD(name, op)                                                                       \
    HS_INLINE __m256 name##_of_4(const __m256 *v)                                            \
    {                                                                                        \
        const __m256 a = op(_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1])); \
        const __m256 b = op(_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3])); \
        const __m256d c = _mm256_castps_pd(a), d = _mm256_castps_pd(b);                      \
        return op(_mm256_castpd_ps(_mm256_unpacklo_pd(c, d)),                                \
                  _mm256_castpd_ps(_mm256_unpackhi_pd(c, d)));                               \
    }                                                                                        \
    HS_INLINE __m256 name##_of_8(const __m256 *v)                                            \
    {                                                                                        \
        const __m256 a = name##_of_4(v), b = name##_of_4(v + 4);                             \
        return op(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));   \
    }
FOLD(greatest, _mm256_max_ps)
FOLD(least, _mm256_min_ps)

typedef struct scales {
    float id[group], shift[group];
    uint16_t d[group], m[group];
    unsigned odd; /* bit b: block b is left to the plain encoder */
} scales;

/* The largest and the smallest element of each block; false where one is no number. */
HS_INLINE int extremes(const float *x, __m256 *max, __m256 *min)
{
    __m256 most[group], low[group];
    __m256i bits = _mm256_setzero_si256();
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    for (size_t b = 0; b < group; b++) {
        __m256 v[4];
        for (size_t i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + block * b + 8 * i);
            bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(v[i]), magnitude));
        }
        most[b] = _mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3]));
        low[b] = _mm256_min_ps(_mm256_min_ps(v[0], v[1]), _mm256_min_ps(v[2], v[3]));
    }
    *max = greatest_of_8(most);
    *min = least_of_8(low);
    const __m256i bad = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x7f7fffff));
    return _mm256_movemask_ps(_mm256_castsi256_ps(bad)) == 0;
}

HS_INLINE unsigned where(__m256 mask) { return (unsigned)_mm256_movemask_ps(mask); }

/* 1/d where it is of use, and else bits in `odd`. */
HS_INLINE void put_scales(scales *s, __m256 d)
{
    const __m256 most = _mm256_set1_ps(3e38f), id = _mm256_div_ps(_mm256_set1_ps(1), d);
    s->odd |= where(_mm256_cmp_ps(absolute(id), most, _CMP_NLT_UQ));
    s->odd |= where(_mm256_cmp_ps(absolute(d), most, _CMP_NLT_UQ));
    _mm256_storeu_ps(s->id, id);
    _mm_storeu_si128((__m128i *)s->d, _mm256_cvtps_ph(d, 0));
}

/* Half of the levels on either side of zero, the last of them for the extreme. */
HS_INLINE void symmetric(scales *s, __m256 max, __m256 min, float half)
{
    const __m256 below = _mm256_sub_ps(_mm256_setzero_ps(), min);
    s->odd = where(_mm256_cmp_ps(max, below, _CMP_EQ_OQ));
    const __m256 peak = _mm256_blendv_ps(min, max, _mm256_cmp_ps(max, below, _CMP_GT_OQ));
    put_scales(s, _mm256_div_ps(peak, _mm256_set1_ps(-half)));
    memset(s->shift, 0, sizeof s->shift);
}

/* From the smallest element up.  A smallest of zero has a sign that only the plain encoder sees. */
HS_INLINE void affine(scales *s, __m256 max, __m256 min, float top)
{
    s->odd = where(_mm256_cmp_ps(min, _mm256_setzero_ps(), _CMP_EQ_OQ));
    put_scales(s, _mm256_div_ps(_mm256_sub_ps(max, min), _mm256_set1_ps(top)));
    _mm256_storeu_ps(s->shift, min);
    _mm_storeu_si128((__m128i *)s->m, _mm256_cvtps_ph(min, 0));
}

/* Levels trunc((x - shift) id + add), at most top, of one block. */
HS_INLINE __m256i levels(const float *x, float shift, float id, float add, int top)
{
    __m256i q[4];
    for (size_t i = 0; i < 4; i++) {
        const __m256 v = _mm256_sub_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(shift));
        const __m256 u = _mm256_add_ps(_mm256_mul_ps(v, _mm256_set1_ps(id)), _mm256_set1_ps(add));
        q[i] = _mm256_min_epi32(_mm256_cvttps_epi32(u), _mm256_set1_epi32(top));
    }
    return pack32(q);
}

typedef struct layout {
    size_t bytes;
    int bits, minimum; /* 4 or 5 a level; is there a minimum? */
} layout;

HS_INLINE void put_block(uint8_t *p, const float *x, const scales *s, size_t b, layout l)
{
    const int top = (1 << l.bits) - 1;
    const float add = l.minimum ? 0.5f : l.bits == 5 ? 16.5f : 8.5f;
    const __m256i q = levels(x, l.minimum ? s->shift[b] : 0, s->id[b], add, top);
    memcpy(p, &s->d[b], 2);
    if (l.minimum)
        memcpy(p + 2, &s->m[b], 2);
    p += l.minimum ? 4 : 2;
    if (l.bits == 5) {
        const int high = _mm256_movemask_epi8(_mm256_slli_epi16(q, 3));
        memcpy(p, &high, 4);
        p += 4;
    }
    const __m256i low = _mm256_and_si256(q, _mm256_set1_epi8(15));
    const __m128i upper = _mm_slli_epi16(_mm256_extracti128_si256(low, 1), 4);
    _mm_storeu_si128((__m128i *)p, _mm_or_si128(_mm256_castsi256_si128(low), upper));
}

/* roundf: half away from zero. */
HS_INLINE __m256i round_away(__m256 v)
{
    const __m256 t = _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __m256 rest = absolute(_mm256_sub_ps(v, t));
    const __m256 up = _mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ);
    const __m256 sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0f));
    const __m256 one = _mm256_or_ps(_mm256_and_ps(up, _mm256_set1_ps(1)), sign);
    return _mm256_cvttps_epi32(_mm256_add_ps(t, one));
}

HS_INLINE void put_q8_0(uint8_t *p, const float *x, const scales *s, size_t b)
{
    __m256i q[4];
    for (size_t i = 0; i < 4; i++)
        q[i] = round_away(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(s->id[b])));
    memcpy(p, &s->d[b], 2);
    _mm256_storeu_si256((__m256i *)(p + 2), pack32(q));
}

HS_INLINE void group_of(uint8_t *p, const float *x, hs_dtype type, layout l)
{
    __m256 max, min;
    scales s = {.odd = 0};
    if (!extremes(x, &max, &min)) {
        hs_dtype_get(type)->encode(p, x, group_elems);
        return;
    }
    if (type == HS_Q8_0) {
        const __m256 peak = _mm256_max_ps(max, _mm256_sub_ps(_mm256_setzero_ps(), min));
        put_scales(&s, _mm256_div_ps(peak, _mm256_set1_ps(127)));
    } else if (l.minimum) {
        affine(&s, max, min, l.bits == 5 ? 31 : 15);
    } else {
        symmetric(&s, max, min, l.bits == 5 ? 16 : 8);
    }
    for (size_t b = 0; b < group; b++)
        if (type == HS_Q8_0)
            put_q8_0(p + b * l.bytes, x + block * b, &s, b);
        else
            put_block(p + b * l.bytes, x + block * b, &s, b, l);
    for (; s.odd; s.odd &= s.odd - 1) {
        const size_t b = (size_t)__builtin_ctz(s.odd);
        hs_dtype_get(type)->encode(p + b * l.bytes, x + block * b, block);
    }
}

HS_INLINE void encode(uint8_t *p, const float *x, size_t n, hs_dtype type, layout l)
{
    for (; n >= group_elems; n -= group_elems, x += group_elems, p += group * l.bytes)
        group_of(p, x, type, l);
    if (n) {
        float rest[group_elems] = {0};
        uint8_t out[group_elems * 2];
        memcpy(rest, x, n * sizeof *x);
        group_of(out, rest, type, l);
        memcpy(p, out, n / block * l.bytes);
    }
}

#define ENCODE(name, type, ...)                                      \
    static void encode_##name(void *dst, const float *src, size_t n) \
    {                                                                \
        encode(dst, src, n, type, (layout){__VA_ARGS__});            \
    }
ENCODE(q4_0, HS_Q4_0, 18, 4, 0)
ENCODE(q4_1, HS_Q4_1, 20, 4, 1)
ENCODE(q5_0, HS_Q5_0, 22, 5, 0)
ENCODE(q5_1, HS_Q5_1, 24, 5, 1)
ENCODE(q8_0, HS_Q8_0, 34, 8, 0)

/* --- what is read most -------------------------------------------------- */

static void decode_f16(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 2 * i))));
    if (i < n)
        hs_dtype_get(HS_F16)->decode(dst + i, p + 2 * i, n - i);
}

static void decode_bf16(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 2 * i)));
        _mm256_storeu_ps(dst + i, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
    if (i < n)
        hs_dtype_get(HS_BF16)->decode(dst + i, p + 2 * i, n - i);
}

static void encode_f16(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(p + 2 * i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), 0));
    if (i < n)
        hs_dtype_get(HS_F16)->encode(p + 2 * i, src + i, n - i);
}

HS_INLINE float scale_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}

/* d (q - bias) of 8 bytes. */
HS_INLINE void put_floats(float *y, __m128i bytes, float d, int bias)
{
    const __m256i q = _mm256_sub_epi32(_mm256_cvtepi8_epi32(bytes), _mm256_set1_epi32(bias));
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(d)));
}

static void decode_q4_0(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= block, p += 18, dst += block) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(p + 2)), mask = _mm_set1_epi8(15);
        const __m128i low = _mm_and_si128(v, mask),
                      high = _mm_and_si128(_mm_srli_epi16(v, 4), mask);
        const float d = scale_at(p);
        put_floats(dst, low, d, 8);
        put_floats(dst + 8, _mm_unpackhi_epi64(low, low), d, 8);
        put_floats(dst + 16, high, d, 8);
        put_floats(dst + 24, _mm_unpackhi_epi64(high, high), d, 8);
    }
}

static void decode_q8_0(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= block, p += 34, dst += block)
        for (size_t i = 0; i < block; i += 8)
            put_floats(dst + i, _mm_loadl_epi64((const __m128i *)(p + 2 + i)), scale_at(p), 0);
}

hs_encode_set hs_encode_avx2(hs_dtype type)
{
    switch (type) {
    case HS_F16: return (hs_encode_set){encode_f16, NULL, decode_f16};
    case HS_BF16: return (hs_encode_set){NULL, NULL, decode_bf16};
    case HS_Q4_0: return (hs_encode_set){encode_q4_0, NULL, decode_q4_0};
    case HS_Q4_1: return (hs_encode_set){encode_q4_1, NULL, NULL};
    case HS_Q5_0: return (hs_encode_set){encode_q5_0, NULL, NULL};
    case HS_Q5_1: return (hs_encode_set){encode_q5_1, NULL, NULL};
    case HS_Q8_0: return (hs_encode_set){encode_q8_0, NULL, decode_q8_0};
    default: return (hs_encode_set){NULL, NULL, NULL};
    }
}
#endif
