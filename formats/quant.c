/* Scalar encoders and decoders.  Encoders reproduce PowerInfer's files bit for bit, which is
 * why some products are explicitly fused (fmaf) and the order of the sums matters. */
#include "formats/quant.h"

#include "formats/cursor.h"
#include "formats/dtype.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = 32,
    Q4_0_BYTES = 2 + BLOCK / 2,
    Q5_0_BYTES = 2 + 4 + BLOCK / 2,
    Q8_0_BYTES = 2 + BLOCK,
    SUPER = 256,
    Q6_K_BYTES = SUPER / 2 + SUPER / 4 + SUPER / 16 + 2,
};
_Static_assert(Q4_0_BYTES == 18 && Q5_0_BYTES == 22, "block sizes");
_Static_assert(Q8_0_BYTES == 34 && Q6_K_BYTES == 210, "block sizes");

static float get_f16(const uint8_t *p) { return hs_f16_to_f32(hs_get_u16(p)); }

static void put_f16(uint8_t *p, float f)
{
    const uint16_t h = hs_f32_to_f16(f);
    memcpy(p, &h, 2);
}

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
        dst[i] = get_f16(p + 2 * i);
}

void hs_f16_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++)
        put_f16(p + 2 * i, src[i]);
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

/* The element of largest magnitude, with its sign; the first of equals. */
static float extreme(const float *x, size_t n)
{
    float amax = 0, max = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            max = x[i];
        }
    return max;
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
        const float d = get_f16(p);
        for (size_t j = 0; j < BLOCK / 2; j++) {
            dst[j] = (float)((p[2 + j] & 15) - 8) * d;
            dst[j + BLOCK / 2] = (float)((p[2 + j] >> 4) - 8) * d;
        }
    }
}

void hs_q4_0_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q4_0_BYTES, src += BLOCK) {
        const float d = extreme(src, BLOCK) / -8, id = inverse(d);
        put_f16(p, d);
        for (size_t j = 0; j < BLOCK / 2; j++) {
            const uint8_t lo = level(fmaf(src[j], id, 8.5f), 15);
            const uint8_t hi = level(fmaf(src[j + BLOCK / 2], id, 8.5f), 15);
            p[2 + j] = (uint8_t)(lo | hi << 4);
        }
    }
}

/* Q5_0: | f16 d | u32: bit j is the fifth bit of element j | nibbles as Q4_0 |, (q - 16) d */
void hs_q5_0_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q5_0_BYTES, dst += BLOCK) {
        const float d = get_f16(p);
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
        const float d = extreme(src, BLOCK) / -16, id = inverse(d);
        uint32_t qh = 0;
        put_f16(p, d);
        for (uint32_t j = 0; j < BLOCK / 2; j++) {
            const uint32_t lo = level(fmaf(src[j], id, 16.5f), 31);
            const uint32_t hi = level(fmaf(src[j + BLOCK / 2], id, 16.5f), 31);
            p[6 + j] = (uint8_t)((lo & 15) | (hi & 15) << 4);
            qh |= lo >> 4 << j | hi >> 4 << (j + BLOCK / 2);
        }
        memcpy(p + 2, &qh, 4);
    }
}

/* Q8_0: | f16 d | 32 i8 |, q d */
void hs_q8_0_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += Q8_0_BYTES, dst += BLOCK) {
        const float d = get_f16(p);
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
        const float d = fabsf(extreme(src, BLOCK)) / 127, id = inverse(d);
        put_f16(p, d);
        for (size_t j = 0; j < BLOCK; j++)
            p[2 + j] = (uint8_t)round_away(src[j] * id);
    }
}

/* Q6_K: | ql 128 | qh 64 | 16 i8 scales | f16 d |, d scale[j / 16] (q - 32).  Per half of 128
 * elements and l in 0..31:
 *   ql[l]      = q[l]      low 4 bits | q[l + 64] low 4 bits << 4
 *   ql[l + 32] = q[l + 32] low 4 bits | q[l + 96] low 4 bits << 4
 *   qh[l]      = the upper 2 bits of q[l], q[l + 32], q[l + 64], q[l + 96], from bit 0 up */
enum { QH = SUPER / 2, SCALES = QH + SUPER / 4, SUPER_SCALE = SCALES + SUPER / 16 };

void hs_q6_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += Q6_K_BYTES, dst += SUPER) {
        const float d = get_f16(p + SUPER_SCALE);
        for (size_t j = 0; j < SUPER; j++) {
            const size_t half = j / 128, l = j % 32, quarter = j % 128 / 32;
            const uint8_t ql = p[half * 64 + quarter % 2 * 32 + l];
            const int low = quarter < 2 ? ql & 15 : ql >> 4;
            const int high = p[QH + half * 32 + l] >> (2 * quarter) & 3;
            dst[j] = d * (float)(int8_t)p[SCALES + j / 16] * (float)((low | high << 4) - 32);
        }
    }
}

/* Nearest integer in lo..hi, halves to even; NaN gives lo.  1.5 * 2^23 leaves no fraction. */
static float nearest(float v, float lo, float hi)
{
    const float magic = 12582912.0f;
    v = v > lo ? v < hi ? v : hi : lo;
    return (v + magic) - magic;
}

enum { CANDIDATES = 19, LANES = 20 }; /* a whole number of vectors */

/* fmaf(a, l, c) where l has few bits: a * l is exact in f64, and so is the sum, unless its terms
 * are so far apart that only a product within 2^-53 of half a unit of c could round otherwise.
 * This is several times faster, most of all where fmaf is a library function. */
static float fused(float a, float l, float c) { return (float)((double)a * (double)l + (double)c); }

/* Sums of w x l and of w l l over 16 elements for all candidates at once, w = x^2. */
static void q6_k_sums(const float *x, const float *iscale, float *sumlx, float *suml2)
{
    for (size_t i = 0; i < 16; i++) {
        const float w = x[i] * x[i], wx = w * x[i];
        for (size_t k = 0; k < LANES; k++) {
            const float l = nearest(iscale[k] * x[i], -32, 31);
            sumlx[k] = fused(wx, l, sumlx[k]);
            suml2[k] = fused(w * l, l, suml2[k]);
        }
    }
}

/* The scale for 16 elements that minimises the error weighted by x^2, among 19 candidates; q
 * gets that candidate's levels, which stay where the scale itself later rounds to 0. */
static float q6_k_scale(const float *x, uint8_t *q)
{
    const float m = extreme(x, 16);
    memset(q, 0, 16);
    if (m == 0)
        return 0;
    float iscale[LANES] = {0}, sumlx[LANES] = {0}, suml2[LANES] = {0};
    for (int k = 0; k < CANDIDATES; k++) { /* 0 first, then -9..9 without 0 */
        const int s = k == 0 ? 0 : k <= 9 ? k - 10 : k - 9;
        iscale[k] = -(32 + 0.1f * (float)s) / m;
    }
    q6_k_sums(x, iscale, sumlx, suml2);
    float scale = suml2[0] > 0 ? sumlx[0] / suml2[0] : 0, best = scale * sumlx[0];
    size_t chosen = 0;
    for (size_t k = 1; k < CANDIDATES; k++)
        if (suml2[k] > 0 && sumlx[k] * sumlx[k] > best * suml2[k]) {
            scale = sumlx[k] / suml2[k];
            best = scale * sumlx[k];
            chosen = k;
        }
    for (size_t i = 0; i < 16; i++)
        q[i] = (uint8_t)(nearest(iscale[chosen] * x[i], -32, 31) + 32);
    return scale;
}

static void q6_k_pack(uint8_t *p, const uint8_t *q)
{
    for (size_t half = 0; half < 2; half++, q += 128)
        for (size_t l = 0; l < 32; l++) {
            p[half * 64 + l] = (uint8_t)((q[l] & 15) | (q[l + 64] & 15) << 4);
            p[half * 64 + l + 32] = (uint8_t)((q[l + 32] & 15) | (q[l + 96] & 15) << 4);
            p[QH + half * 32 + l] = (uint8_t)(q[l] >> 4 | q[l + 32] >> 4 << 2 |
                                              q[l + 64] >> 4 << 4 | q[l + 96] >> 4 << 6);
        }
}

static void q6_k_encode_super(uint8_t *p, const float *x)
{
    float scale[SUPER / 16];
    uint8_t q[SUPER];
    for (size_t b = 0; b < SUPER / 16; b++)
        scale[b] = q6_k_scale(x + 16 * b, q + 16 * b);
    const float m = extreme(scale, SUPER / 16), iscale = -128 / m;
    memset(p, 0, Q6_K_BYTES);
    if (m == 0 || !isfinite(iscale))
        return;
    put_f16(p + SUPER_SCALE, 1 / iscale);
    const float d = get_f16(p + SUPER_SCALE);
    for (size_t b = 0; b < SUPER / 16; b++) {
        const int8_t sc = (int8_t)nearest(iscale * scale[b], -128, 127);
        p[SCALES + b] = (uint8_t)sc;
        const float step = d * (float)sc;
        for (size_t i = 16 * b; step != 0 && i < 16 * b + 16; i++)
            q[i] = (uint8_t)(nearest(x[i] / step, -32, 31) + 32);
    }
    q6_k_pack(p, q);
}

void hs_q6_k_encode(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= SUPER, p += Q6_K_BYTES, src += SUPER)
        q6_k_encode_super(p, src);
}
