/* F32, F16, BF16 and the blocks of 32.  What PowerInfer's own quantizer makes of Q4_0, Q5_0
 * and Q6_K is in quant_powerinfer.c. */
#include "formats/quant.h"

#include "formats/quant_block.h"

enum {
    BLOCK = 32,
    Q4_0_BYTES = 2 + BLOCK / 2,
    Q4_1_BYTES = 4 + BLOCK / 2,
    Q5_0_BYTES = 2 + 4 + BLOCK / 2,
    Q5_1_BYTES = 4 + 4 + BLOCK / 2,
    Q8_0_BYTES = 2 + BLOCK,
};
_Static_assert(Q4_0_BYTES == 18 && Q5_0_BYTES == 22, "block sizes");
_Static_assert(Q4_1_BYTES == 20 && Q5_1_BYTES == 24, "block sizes");
_Static_assert(Q8_0_BYTES == 34, "block size");

void hs_f32_decode(float *dst, const void *src, size_t n)
{
    if (n)
        memcpy(dst, src, n * 4);
}

void hs_f32_encode(void *dst, const float *src, size_t n)
{
    if (n)
        memcpy(dst, src, n * 4);
}

void hs_f16_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = hs_get_f16(p + 2 * i);
}

void hs_f16_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++)
        hs_put_f16(p + 2 * i, src[i]);
}

void hs_bf16_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++)
        dst[i] = hs_bf16_to_f32(hs_get_u16(p + 2 * i));
}

void hs_bf16_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) {
        const uint16_t h = hs_f32_to_bf16(src[i]);
        memcpy(p + 2 * i, &h, 2);
    }
}

/* 1/d, or 0 where that is not finite: the f16 scale of such a block is 0 too. */
static float inverse(float d)
{
    const float id = d != 0 ? 1.0f / d : 0;
    return isfinite(id) ? id : 0;
}

/* min(top, trunc(v)) for v >= 0; NaN gives 0. */
static uint8_t level(float v, uint8_t top) { return v > 0 ? v < (float)top ? (uint8_t)v : top : 0; }

/* Q4_0: | f16 d | 16 bytes: low nibble element j, high nibble element j + 16 |, (q - 8) d */
void hs_q4_0_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q4_0_BYTES, dst += BLOCK) {
        const float d = hs_get_f16(p);
        for (size_t j = 0; j < BLOCK / 2; j++) {
            dst[j] = (float)((p[2 + j] & 15) - 8) * d;
            dst[j + BLOCK / 2] = (float)((p[2 + j] >> 4) - 8) * d;
        }
    }
}

/* Levels floor(x * id + add), at most `top`, as nibbles and, for 32 levels, fifth bits. */
static void put_nibbles(uint8_t *p, uint8_t *high, const float *x, float shift, float id, float add)
{
    const uint8_t top = high ? 31 : 15;
    uint32_t qh = 0;
    for (uint32_t j = 0; j < BLOCK / 2; j++) {
        const uint32_t lo = level((x[j] - shift) * id + add, top);
        const uint32_t hi = level((x[j + BLOCK / 2] - shift) * id + add, top);
        p[j] = (uint8_t)((lo & 15) | (hi & 15) << 4);
        qh |= lo >> 4 << j | hi >> 4 << (j + BLOCK / 2);
    }
    if (high)
        memcpy(high, &qh, 4);
}

void hs_q4_0_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q4_0_BYTES, src += BLOCK) {
        const float d = hs_extreme(src, BLOCK) / -8;
        hs_put_f16(p, d);
        put_nibbles(p + 2, NULL, src, 0, inverse(d), 8.5f);
    }
}

/* Q4_1: | f16 d | f16 m | nibbles as Q4_0 |, q d + m */
void hs_q4_1_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q4_1_BYTES, dst += BLOCK) {
        const float d = hs_get_f16(p), m = hs_get_f16(p + 2);
        for (size_t j = 0; j < BLOCK / 2; j++) {
            dst[j] = (float)(p[4 + j] & 15) * d + m;
            dst[j + BLOCK / 2] = (float)(p[4 + j] >> 4) * d + m;
        }
    }
}

static float least(const float *x, size_t n)
{
    float min = x[0];
    for (size_t i = 1; i < n; i++)
        min = x[i] < min ? x[i] : min;
    return min;
}

static float greatest(const float *x, size_t n)
{
    float max = x[0];
    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

void hs_q4_1_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q4_1_BYTES, src += BLOCK) {
        const float m = least(src, BLOCK), d = (greatest(src, BLOCK) - m) / 15;
        hs_put_f16(p, d);
        hs_put_f16(p + 2, m);
        put_nibbles(p + 4, NULL, src, m, inverse(d), 0.5f);
    }
}

/* Q5_0: | f16 d | u32: bit j is the fifth bit of element j | nibbles as Q4_0 |, (q - 16) d */
void hs_q5_0_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q5_0_BYTES, dst += BLOCK) {
        const float d = hs_get_f16(p);
        const uint32_t qh = hs_get_u32(p + 2);
        for (uint32_t j = 0; j < BLOCK / 2; j++) {
            const int lo = (p[6 + j] & 15) | (int)(qh >> j & 1) << 4;
            const int hi = p[6 + j] >> 4 | (int)(qh >> (j + BLOCK / 2) & 1) << 4;
            dst[j] = (float)(lo - 16) * d;
            dst[j + BLOCK / 2] = (float)(hi - 16) * d;
        }
    }
}

void hs_q5_0_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q5_0_BYTES, src += BLOCK) {
        const float d = hs_extreme(src, BLOCK) / -16;
        hs_put_f16(p, d);
        put_nibbles(p + 6, p + 2, src, 0, inverse(d), 16.5f);
    }
}

/* Q5_1: | f16 d | f16 m | fifth bits and nibbles as Q5_0 |, q d + m */
void hs_q5_1_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q5_1_BYTES, dst += BLOCK) {
        const float d = hs_get_f16(p), m = hs_get_f16(p + 2);
        const uint32_t qh = hs_get_u32(p + 4);
        for (uint32_t j = 0; j < BLOCK / 2; j++) {
            const int lo = (p[8 + j] & 15) | (int)(qh >> j & 1) << 4;
            const int hi = p[8 + j] >> 4 | (int)(qh >> (j + BLOCK / 2) & 1) << 4;
            dst[j] = (float)lo * d + m;
            dst[j + BLOCK / 2] = (float)hi * d + m;
        }
    }
}

void hs_q5_1_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q5_1_BYTES, src += BLOCK) {
        const float m = least(src, BLOCK), d = (greatest(src, BLOCK) - m) / 31;
        hs_put_f16(p, d);
        hs_put_f16(p + 2, m);
        put_nibbles(p + 8, p + 4, src, m, inverse(d), 0.5f);
    }
}

HS_ENCODE_WEIGHTED(, hs_q4_0_encode_weighted, 32, Q4_0_BYTES, hs_q4_0_block)
HS_ENCODE_WEIGHTED(, hs_q4_1_encode_weighted, 32, Q4_1_BYTES, hs_q4_1_block)
HS_ENCODE_WEIGHTED(, hs_q5_0_encode_weighted, 32, Q5_0_BYTES, hs_q5_0_block)
HS_ENCODE_WEIGHTED(, hs_q5_1_encode_weighted, 32, Q5_1_BYTES, hs_q5_1_block)

/* Q8_0: | f16 d | 32 i8 |, q d */
void hs_q8_0_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q8_0_BYTES, dst += BLOCK) {
        const float d = hs_get_f16(p);
        for (size_t j = 0; j < BLOCK; j++)
            dst[j] = (float)(int8_t)p[2 + j] * d;
    }
}

/* roundf (halves away from zero) for |v| <= 127; what is no number gives 0. */
static int round_away(float v)
{
    if (!(v > -127.5f && v < 127.5f))
        return v > 0 ? 127 : v < 0 ? -127 : 0;
    const int t = (int)v;
    const float rest = v - (float)t;
    return t + (rest >= 0.5f) - (rest <= -0.5f);
}

void hs_q8_0_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q8_0_BYTES, src += BLOCK) {
        const float d = fabsf(hs_extreme(src, BLOCK)) / 127, id = inverse(d);
        hs_put_f16(p, d);
        for (size_t j = 0; j < BLOCK; j++)
            p[2 + j] = (uint8_t)round_away(src[j] * id);
    }
}
