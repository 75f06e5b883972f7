/* Q2_K, Q3_K, Q4_K and Q5_K: bytes.  The choice of scales is in quant_k.h. */
#include "formats/quant_k.h"

#include "formats/quant.h"

enum {
    SUPER = 256,
    Q2_K_BYTES = 16 + SUPER / 4 + 4,
    Q3_K_BYTES = SUPER / 8 + SUPER / 4 + 12 + 2,
    Q4_K_BYTES = 4 + 12 + SUPER / 2,
    Q5_K_BYTES = 4 + 12 + SUPER / 8 + SUPER / 2,
};
_Static_assert(Q2_K_BYTES == 84 && Q3_K_BYTES == 110, "block sizes");
_Static_assert(Q4_K_BYTES == 144 && Q5_K_BYTES == 176, "block sizes");

/* ---- Q2_K: | 16 x (scale | min << 4) | 64 bytes of levels | f16 d | f16 dmin | ------------
 *
 * (d scale) q - (dmin min) for 16 sub-blocks of 16.  Level j of half h (128 elements) lies in
 * bits 2 (j / 32), 2 (j / 32) + 1 of byte 32 h + j % 32. */

void hs_q2_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += Q2_K_BYTES, dst += SUPER) {
        const float d = hs_get_f16(p + 80), dmin = hs_get_f16(p + 82);
        for (size_t i = 0; i < SUPER; i++) {
            const uint8_t q = p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            const uint8_t s = p[i / 16];
            dst[i] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
        }
    }
}

static void q2_k_encode_super(uint8_t *p, const float *x, const float *w)
{
    static const hs_k_shape shape = {16, 3, 15};
    const hs_k_affine a = hs_k_affine_encode(x, w, &shape);
    memset(p, 0, Q2_K_BYTES);
    hs_put_f16(p + 80, a.d);
    hs_put_f16(p + 82, a.dmin);
    for (size_t b = 0; b < 16; b++) {
        float q[16];
        hs_k_levels(&a, &shape, b, x + 16 * b, q);
        p[b] = (uint8_t)((unsigned)a.scale[b] | (unsigned)a.min[b] << 4);
        for (size_t j = 0; j < 16; j++) {
            const size_t i = 16 * b + j;
            uint8_t *byte = p + 16 + i / 128 * 32 + i % 32;
            *byte = (uint8_t)(*byte | (unsigned)q[j] << (i % 128 / 32 * 2));
        }
    }
}

/* ---- Q3_K: | 32 bytes of high bits | 64 of low ones | 12 of scales | f16 d | ---------------
 *
 * d (scale - 32) (q - 4) for 16 sub-blocks of 16.  The low two bits of q lie as Q2_K's levels;
 * bit i / 32 of byte i % 32 is the third.  Of scale s, byte s % 8 has the low four bits (upper
 * nibble from 8 on), byte 8 + s % 4 the high two in bits 2 (s / 4), 2 (s / 4) + 1. */
enum { Q3_LOW = 32, Q3_SCALES = 96, Q3_D = 108 };

static int q3_k_scale(const uint8_t *s, size_t i)
{
    const int low = s[i % 8] >> (i / 8 * 4) & 15, high = s[8 + i % 4] >> (i / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

void hs_q3_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += Q3_K_BYTES, dst += SUPER) {
        const float d = hs_get_f16(p + Q3_D);
        for (size_t i = 0; i < SUPER; i++) {
            const int low = p[Q3_LOW + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            const int high = p[i % 32] >> (i / 32) & 1;
            dst[i] = d * (float)q3_k_scale(p + Q3_SCALES, i / 16) * (float)((low | high << 2) - 4);
        }
    }
}

static void q3_k_encode_super(uint8_t *p, const float *x, const float *w)
{
    const hs_q3_k_try t = hs_q3_k_search(x, w);
    memset(p, 0, Q3_K_BYTES);
    hs_put_f16(p + Q3_D, t.d);
    for (size_t b = 0; b < 16; b++) {
        const unsigned s = (unsigned)(t.scale[b] + 32);
        uint8_t *low = p + Q3_SCALES + b % 8, *high = p + Q3_SCALES + 8 + b % 4;
        *low = (uint8_t)(*low | (s & 15) << (b / 8 * 4));
        *high = (uint8_t)(*high | s >> 4 << (b / 4 * 2));
        const float inverse = hs_inverse(t.d * t.scale[b]);
        for (size_t i = 16 * b; i < 16 * b + 16; i++) {
            const unsigned q = (unsigned)(hs_nearest(x[i] * inverse, -4, 3) + 4);
            uint8_t *byte = p + Q3_LOW + i / 128 * 32 + i % 32;
            *byte = (uint8_t)(*byte | (q & 3) << (i % 128 / 32 * 2));
            p[i % 32] = (uint8_t)(p[i % 32] | q >> 2 << (i / 32));
        }
    }
}

/* ---- Q4_K, Q5_K: | f16 d | f16 dmin | 12 bytes | Q5_K: 32 of high bits | 128 of nibbles | ---
 *
 * (d scale) q - (dmin min) for 8 sub-blocks of 32.  Sub-block b is the low (b even) or high
 * nibbles of bytes 32 (b / 2) …; bit b of byte j of the high bits belongs to its element j.
 * Of scale and min s < 4, bytes s and s + 4 have all six bits; from 4 on, byte s + 4 has both low
 * four (the min's above), and the top bits of bytes s - 4 and s the high two. */

static void k_scale_min(const uint8_t *p, size_t s, float *scale, float *min)
{
    if (s < 4) {
        *scale = (float)(p[s] & 63);
        *min = (float)(p[s + 4] & 63);
    } else {
        *scale = (float)((p[s + 4] & 15) | p[s - 4] >> 6 << 4);
        *min = (float)(p[s + 4] >> 4 | p[s] >> 6 << 4);
    }
}

static void put_k_scale_min(uint8_t *p, size_t s, unsigned scale, unsigned min)
{
    if (s < 4) {
        p[s] = (uint8_t)scale;
        p[s + 4] = (uint8_t)min;
    } else {
        p[s + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
        p[s - 4] = (uint8_t)(p[s - 4] | scale >> 4 << 6);
        p[s] = (uint8_t)(p[s] | min >> 4 << 6);
    }
}

static void k_decode_super(float *dst, const uint8_t *p, const uint8_t *high, const uint8_t *low)
{
    const float d = hs_get_f16(p), dmin = hs_get_f16(p + 2);
    for (size_t b = 0; b < 8; b++) {
        float scale, min;
        k_scale_min(p + 4, b, &scale, &min);
        scale *= d;
        min *= dmin;
        for (size_t j = 0; j < 32; j++) {
            unsigned q = low[b / 2 * 32 + j] >> (b % 2 * 4) & 15;
            if (high)
                q |= (high[j] >> b & 1u) << 4;
            dst[32 * b + j] = scale * (float)q - min;
        }
    }
}

void hs_q4_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += Q4_K_BYTES, dst += SUPER)
        k_decode_super(dst, p, NULL, p + 16);
}

void hs_q5_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += Q5_K_BYTES, dst += SUPER)
        k_decode_super(dst, p, p + 16, p + 48);
}

static void k_encode_super(uint8_t *p, uint8_t *high, uint8_t *low, const float *x, const float *w)
{
    const hs_k_shape shape = {32, high ? 31 : 15, 63};
    const hs_k_affine a = hs_k_affine_encode(x, w, &shape);
    hs_put_f16(p, a.d);
    hs_put_f16(p + 2, a.dmin);
    for (size_t b = 0; b < 8; b++) {
        float q[32];
        hs_k_levels(&a, &shape, b, x + 32 * b, q);
        put_k_scale_min(p + 4, b, (unsigned)a.scale[b], (unsigned)a.min[b]);
        for (size_t j = 0; j < 32; j++) {
            const unsigned v = (unsigned)q[j];
            uint8_t *byte = low + b / 2 * 32 + j;
            *byte = (uint8_t)(*byte | (v & 15) << (b % 2 * 4));
            if (high)
                high[j] = (uint8_t)(high[j] | v >> 4 << b);
        }
    }
}

static void q4_k_encode_super(uint8_t *p, const float *x, const float *w)
{
    memset(p, 0, Q4_K_BYTES);
    k_encode_super(p, NULL, p + 16, x, w);
}

static void q5_k_encode_super(uint8_t *p, const float *x, const float *w)
{
    memset(p, 0, Q5_K_BYTES);
    k_encode_super(p, p + 16, p + 48, x, w);
}

#define ENCODE(type, bytes)                                                                      \
    static void type##_encode_all(uint8_t *p, const float *x, const float *weight, size_t n)     \
    {                                                                                            \
        for (size_t i = 0; i < n; i += SUPER, p += (bytes)) {                                    \
            float w[SUPER];                                                                      \
            hs_importance(w, weight ? weight + i : NULL, SUPER);                                 \
            type##_encode_super(p, x + i, w);                                                    \
        }                                                                                        \
    }                                                                                            \
    void hs_##type##_encode(void *dst, const float *src, size_t n)                               \
    {                                                                                            \
        type##_encode_all(dst, src, NULL, n);                                                    \
    }                                                                                            \
    void hs_##type##_encode_weighted(void *dst, const float *src, const float *weight, size_t n) \
    {                                                                                            \
        type##_encode_all(dst, src, weight, n);                                                  \
    }
ENCODE(q2_k, Q2_K_BYTES)
ENCODE(q3_k, Q3_K_BYTES)
ENCODE(q4_k, Q4_K_BYTES)
ENCODE(q5_k, Q5_K_BYTES)
