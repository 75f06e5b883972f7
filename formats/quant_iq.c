/* IQ4_NL and IQ4_XS: what the bytes mean.  Encoding is in quant_iq.h. */
#include "formats/quant_iq.h"

#include "formats/quant.h"

enum { BLOCK = 32, SUPER = 256 };
_Static_assert(hs_iq4_nl_bytes == 18 && hs_iq4_xs_bytes == 136, "block sizes");

static void get_values(float *y, const uint8_t *p, float step)
{
    for (size_t j = 0; j < BLOCK / 2; j++) {
        y[j] = step * hs_iq4_value[p[j] & 15];
        y[j + BLOCK / 2] = step * hs_iq4_value[p[j] >> 4];
    }
}

/* ---- IQ4_NL: | f16 d | 16 bytes: low nibble element j, high nibble element j + 16 | -------- */

void hs_iq4_nl_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += hs_iq4_nl_bytes, dst += BLOCK)
        get_values(dst, p + 2, hs_get_f16(p));
}

/* ---- IQ4_XS: | f16 d | u16 high | 4 bytes low | 8 x 16 bytes as in IQ4_NL | ----------------
 *
 * d (scale - 32) for 8 sub-blocks of 32.  Scale s has its low four bits in byte s / 2 of low
 * (odd: the upper nibble), the high two in bits 2 s, 2 s + 1 of high. */

void hs_iq4_xs_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += hs_iq4_xs_bytes, dst += SUPER) {
        const float d = hs_get_f16(p);
        const unsigned high = hs_get_u16(p + 2);
        for (size_t s = 0; s < 8; s++) {
            const unsigned low = p[4 + s / 2], upper = high >> (2 * s) & 3;
            const unsigned scale = (low >> (s % 2 * 4) & 15) | upper << 4;
            get_values(dst + BLOCK * s, p + 8 + BLOCK / 2 * s, d * (float)((int)scale - 32));
        }
    }
}

HS_ENCODE_ROWS(, hs_iq4_nl_encode, BLOCK, hs_iq4_nl_bytes, hs_iq4_nl_block)
HS_ENCODE_ROWS(, hs_iq4_xs_encode, SUPER, hs_iq4_xs_bytes, hs_iq4_xs_block)
