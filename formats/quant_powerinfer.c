/* What PowerInfer's quantizer makes of Q4_0, Q5_0 and Q6_K, bit for bit: its build fused some
 * products and sums, so the order of the sums and fmaf matter here. */
#include "formats/quant.h"
#include "formats/quant_k.h"

enum {
    BLOCK = 32,
    Q4_0_BYTES = 18,
    Q5_0_BYTES = 22,
    SUPER = 256,
    Q6_K_BYTES = 210,
    SCALES = 192,
    SUPER_SCALE = 208,
};

/* min(top, trunc(v)) for v >= 0; NaN gives 0. */
static uint8_t level(float v, uint8_t top) { return v > 0 ? v < (float)top ? (uint8_t)v : top : 0; }

void hs_q4_0_encode_powerinfer(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q4_0_BYTES, src += BLOCK) {
        const float d = hs_extreme(src, BLOCK) / -8, id = hs_inverse(d);
        hs_put_f16(p, d);
        for (size_t j = 0; j < BLOCK / 2; j++) {
            const uint8_t lo = level(fmaf(src[j], id, 8.5f), 15);
            const uint8_t hi = level(fmaf(src[j + BLOCK / 2], id, 8.5f), 15);
            p[2 + j] = (uint8_t)(lo | hi << 4);
        }
    }
}

void hs_q5_0_encode_powerinfer(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= BLOCK, p += Q5_0_BYTES, src += BLOCK) {
        const float d = hs_extreme(src, BLOCK) / -16, id = hs_inverse(d);
        uint32_t qh = 0;
        hs_put_f16(p, d);
        for (uint32_t j = 0; j < BLOCK / 2; j++) {
            const uint32_t lo = level(fmaf(src[j], id, 16.5f), 31);
            const uint32_t hi = level(fmaf(src[j + BLOCK / 2], id, 16.5f), 31);
            p[6 + j] = (uint8_t)((lo & 15) | (hi & 15) << 4);
            qh |= lo >> 4 << j | hi >> 4 << (j + BLOCK / 2);
        }
        memcpy(p + 2, &qh, 4);
    }
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
            const float l = hs_nearest(iscale[k] * x[i], -32, 31);
            sumlx[k] = fused(wx, l, sumlx[k]);
            suml2[k] = fused(w * l, l, suml2[k]);
        }
    }
}

/* The scale for 16 elements that minimises the error weighted by x^2, among 19 candidates; q
 * gets that candidate's levels, which stay where the scale itself later rounds to 0. */
static float q6_k_scale(const float *x, uint8_t *q)
{
    const float m = hs_extreme(x, 16);
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
        q[i] = (uint8_t)(hs_nearest(iscale[chosen] * x[i], -32, 31) + 32);
    return scale;
}

static void q6_k_encode_super(uint8_t *p, const float *x)
{
    float scale[SUPER / 16];
    uint8_t q[SUPER];
    for (size_t b = 0; b < SUPER / 16; b++)
        scale[b] = q6_k_scale(x + 16 * b, q + 16 * b);
    const float m = hs_extreme(scale, SUPER / 16), iscale = -128 / m;
    memset(p, 0, Q6_K_BYTES);
    if (m == 0 || !isfinite(iscale))
        return;
    hs_put_f16(p + SUPER_SCALE, 1 / iscale);
    const float d = hs_get_f16(p + SUPER_SCALE);
    for (size_t b = 0; b < SUPER / 16; b++) {
        const int8_t sc = (int8_t)hs_nearest(iscale * scale[b], -128, 127);
        p[SCALES + b] = (uint8_t)sc;
        const float step = d * (float)sc;
        for (size_t i = 16 * b; step != 0 && i < 16 * b + 16; i++)
            q[i] = (uint8_t)(hs_nearest(x[i] / step, -32, 31) + 32);
    }
    hs_q6_k_pack(p, q);
}

void hs_q6_k_encode_powerinfer(void *dst, const float *src, size_t n)
{
    uint8_t *p = dst;
    for (; n; n -= SUPER, p += Q6_K_BYTES, src += SUPER)
        q6_k_encode_super(p, src);
}
