/* Q2_K to Q6_K: what the bytes mean.  Encoding is in quant_k.h. */
#include "formats/quant_k.h"

#include "formats/quant.h"

enum { SUPER = hs_super };
_Static_assert(hs_q2_k_bytes == 84 && hs_q3_k_bytes == 110, "block sizes");
_Static_assert(hs_q4_k_bytes == 144 && hs_q5_k_bytes == 176, "block sizes");
_Static_assert(hs_q6_k_bytes == 210, "block sizes");

/* ---- Q2_K: | 16 x (scale | min << 4) | 64 bytes of levels | f16 d | f16 dmin | ------------
 *
 * (d scale) q - (dmin min) for 16 sub-blocks of 16.  Level j of half h (128 elements) lies in
 * bits 2 (j / 32), 2 (j / 32) + 1 of byte 32 h + j % 32. */

void hs_q2_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += hs_q2_k_bytes, dst += SUPER) {
        const float d = hs_get_f16(p + 80), dmin = hs_get_f16(p + 82);
        for (size_t i = 0; i < SUPER; i++) {
            const uint8_t q = p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            const uint8_t s = p[i / 16];
            dst[i] = d * (float)(s & 15) * (float)q - dmin * (float)(s >> 4);
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
    for (; n; n -= SUPER, p += hs_q3_k_bytes, dst += SUPER) {
        const float d = hs_get_f16(p + Q3_D);
        for (size_t i = 0; i < SUPER; i++) {
            const int low = p[Q3_LOW + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
            const int high = p[i % 32] >> (i / 32) & 1;
            dst[i] = d * (float)q3_k_scale(p + Q3_SCALES, i / 16) * (float)((low | high << 2) - 4);
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
    for (; n; n -= SUPER, p += hs_q4_k_bytes, dst += SUPER)
        k_decode_super(dst, p, NULL, p + 16);
}

void hs_q5_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += hs_q5_k_bytes, dst += SUPER)
        k_decode_super(dst, p, p + 16, p + 48);
}

/* ---- Q6_K: | ql 128 | qh 64 | 16 i8 scales | f16 d |, d scale[j / 16] (q - 32).  Per half of 128
 * elements and l in 0..31:
 *   ql[l]      = q[l]      low 4 bits | q[l + 64] low 4 bits << 4
 *   ql[l + 32] = q[l + 32] low 4 bits | q[l + 96] low 4 bits << 4
 *   qh[l]      = the upper 2 bits of q[l], q[l + 32], q[l + 64], q[l + 96], from bit 0 up */
enum { QH = SUPER / 2, SCALES = QH + SUPER / 4, SUPER_SCALE = SCALES + SUPER / 16 };

void hs_q6_k_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += hs_q6_k_bytes, dst += SUPER) {
        const float d = hs_get_f16(p + SUPER_SCALE);
        for (size_t j = 0; j < SUPER; j++) {
            const size_t half = j / 128, l = j % 32, quarter = j % 128 / 32;
            const uint8_t ql = p[half * 64 + quarter % 2 * 32 + l];
            const int low = quarter < 2 ? ql & 15 : ql >> 4;
            const int high = p[QH + half * 32 + l] >> (2 * quarter) & 3;
            dst[j] = d * (float)(int8_t)p[SCALES + j / 16] * (float)((low | high << 4) - 32);
        }
    }
}

HS_ENCODE_ROWS(, hs_q2_k_encode, SUPER, hs_q2_k_bytes, hs_q2_k_block)
HS_ENCODE_ROWS(, hs_q3_k_encode, SUPER, hs_q3_k_bytes, hs_q3_k_block)
HS_ENCODE_ROWS(, hs_q4_k_encode, SUPER, hs_q4_k_bytes, hs_q4_k_block)
HS_ENCODE_ROWS(, hs_q5_k_encode, SUPER, hs_q5_k_bytes, hs_q5_k_block)
HS_ENCODE_ROWS(, hs_q6_k_encode, SUPER, hs_q6_k_bytes, hs_q6_k_block)
