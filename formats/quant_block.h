#ifndef HS_FORMATS_QUANT_BLOCK_H
#define HS_FORMATS_QUANT_BLOCK_H

/* Weighted encoders of Q4_0, Q4_1, Q5_0 and Q5_1: the scale (and minimum) of least error, levels
 * by the scale as f16.  Static inline for the reason given in quant_search.h. */

#include "formats/quant_search.h"

enum { hs_q4_0_size = 18, hs_q4_1_size = 20, hs_q5_0_size = 22, hs_q5_1_size = 24 };

/* Levels trunc((x - shift) id + add), in 0..15 or, with fifth bits, 0..31, of 32 elements. */
HS_SEARCH void hs_block_levels(uint8_t *low, uint8_t *high, const float *x, float shift, float id,
                               float add)
{
    const hs_vec zero = hs_vsplat(0), top = hs_vsplat(high ? 31 : 15);
    uint8_t q[32];
    for (size_t i = 0; i < 32; i += hs_lanes) {
        const hs_vec v = hs_vmul(hs_vsub(hs_vload(x + i), hs_vsplat(shift)), hs_vsplat(id));
        hs_vstore_bytes(q + i, hs_vmin(hs_vmax(hs_vadd(v, hs_vsplat(add)), zero), top));
    }
    for (size_t j = 0; j < 16; j++)
        low[j] = (uint8_t)((q[j] & 15) | q[j + 16] << 4);
    if (high) {
        uint32_t bits = 0;
        for (uint32_t j = 0; j < 32; j++)
            bits |= (uint32_t)(q[j] >> 4) << j;
        memcpy(high, &bits, 4);
    }
}

HS_SEARCH void hs_symmetric_block(uint8_t *p, uint8_t *high, uint8_t *low, const float *x,
                                  const float *w)
{
    const float half = high ? 16 : 8;
    const hs_two twice = {{x, x}, {w, w}};
    float scale[2];
    hs_scale_search(&twice, 32, half, 3, scale);
    hs_put_f16(p, scale[0]);
    hs_block_levels(low, high, x, 0, hs_inverse(hs_get_f16(p)), half + 0.5f);
}

HS_SEARCH void hs_affine_block(uint8_t *p, uint8_t *high, uint8_t *low, const float *x,
                               const float *w)
{
    const hs_two twice = {{x, x}, {w, w}};
    hs_affine fit[2];
    hs_affine_search(&twice, 32, high ? 31 : 15, true, 4, fit);
    hs_put_f16(p, fit[0].scale);
    hs_put_f16(p + 2, fit[0].low);
    hs_block_levels(low, high, x, hs_get_f16(p + 2), hs_inverse(hs_get_f16(p)), 0.5f);
}

HS_SEARCH void hs_q4_0_block(uint8_t *p, const float *x, const float *w)
{
    hs_symmetric_block(p, NULL, p + 2, x, w);
}

HS_SEARCH void hs_q5_0_block(uint8_t *p, const float *x, const float *w)
{
    hs_symmetric_block(p, p + 2, p + 6, x, w);
}

HS_SEARCH void hs_q4_1_block(uint8_t *p, const float *x, const float *w)
{
    hs_affine_block(p, NULL, p + 4, x, w);
}

HS_SEARCH void hs_q5_1_block(uint8_t *p, const float *x, const float *w)
{
    hs_affine_block(p, p + 4, p + 8, x, w);
}

#endif
