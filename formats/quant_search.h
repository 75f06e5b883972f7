#ifndef HS_FORMATS_QUANT_SEARCH_H
#define HS_FORMATS_QUANT_SEARCH_H

/* Searches for the scales of blocks, shared by the encoders; all static inline, so that a file
 * built for another instruction set can include them and give the same bits.
 *
 * They minimise sum w (x - y)^2, y the decoded value, w an importance per element (all one
 * without an importance matrix).  Candidates are tried side by side, one in each lane of plain
 * arrays: compilers turn those loops into vectors, and as no sum crosses lanes, the order of the
 * sums is the same whatever their width. */

#include "formats/cursor.h"
#include "formats/dtype.h"
#include "formats/lanes.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define HS_SEARCH HS_INLINE

enum { hs_lanes = 8 };

/* Nearest integer in lo..hi, halves to even; NaN gives lo.  1.5 * 2^23 leaves no fraction. */
HS_SEARCH float hs_nearest(float v, float lo, float hi)
{
    const float magic = 12582912.0f;
    v = v > lo ? v < hi ? v : hi : lo;
    return (v + magic) - magic;
}

HS_SEARCH float hs_get_f16(const uint8_t *p) { return hs_f16_to_f32(hs_get_u16(p)); }

HS_SEARCH void hs_put_f16(uint8_t *p, float f)
{
    const uint16_t h = hs_f32_to_f16(f);
    memcpy(p, &h, 2);
}

/* f as the f16 that a block will hold. */
HS_SEARCH float hs_as_f16(float f) { return hs_f16_to_f32(hs_f32_to_f16(f)); }

/* The element of largest magnitude, with its sign; the first of equals. */
HS_SEARCH float hs_extreme(const float *x, size_t n)
{
    float amax = 0, max = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > amax) {
            amax = fabsf(x[i]);
            max = x[i];
        }
    return max;
}

/* 1/v, or 0 where that is of no use. */
HS_SEARCH float hs_inverse(float v)
{
    const float inverse = 1.0f / v;
    return inverse > -3e38f && inverse < 3e38f ? inverse : 0;
}

/* Importances of n elements: `given` where it is a positive number somewhere, else all one. */
HS_SEARCH void hs_importance(float *w, const float *given, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        w[i] = given && given[i] > 0 && given[i] < 1e30f ? given[i] : 0;
        sum += w[i];
    }
    for (size_t i = 0; i < n; i++)
        w[i] = sum > 0 ? w[i] : 1;
}

/* ---- x = scale * q + low, q in 0..top --------------------------------------------------- */

typedef struct hs_affine {
    float scale, low;
} hs_affine;

/* What the fit of given levels needs: sums of w, w x, w x x, w q, w q q and w q x. */
typedef struct hs_affine_sums {
    float w, x, xx, q[hs_lanes], qq[hs_lanes], qx[hs_lanes];
} hs_affine_sums;

HS_SEARCH void hs_affine_add(hs_affine_sums *s, const float *x, const float *w, size_t n, float top,
                             const float *inverse, const float *low)
{
    const hs_vec zero = hs_vsplat(0), vtop = hs_vsplat(top), vlow = hs_vload(low);
    const hs_vec vinverse = hs_vload(inverse);
    hs_vec sq = zero, sqq = zero, sqx = zero;
    for (size_t i = 0; i < n; i++) {
        const hs_vec vx = hs_vsplat(x[i]);
        const hs_vec q = hs_vround(hs_vmul(hs_vsub(vx, vlow), vinverse), zero, vtop);
        const hs_vec wq = hs_vmul(hs_vsplat(w[i]), q);
        sq = hs_vadd(sq, wq);
        sqq = hs_vadd(sqq, hs_vmul(wq, q));
        sqx = hs_vadd(sqx, hs_vmul(wq, vx));
    }
    hs_vstore(s->q, sq);
    hs_vstore(s->qq, sqq);
    hs_vstore(s->qx, sqx);
}

/* The best line through lane k's levels, and its error. */
HS_SEARCH float hs_affine_solve(const hs_affine_sums *s, size_t k, float most_low, hs_affine *fit)
{
    const float det = s->w * s->qq[k] - s->q[k] * s->q[k];
    fit->scale = det > 0 ? (s->w * s->qx[k] - s->q[k] * s->x) / det : 0;
    fit->low = (s->x - fit->scale * s->q[k]) / s->w;
    if (fit->low > most_low) {
        fit->low = most_low;
        fit->scale = s->qq[k] > 0 ? (s->qx[k] - most_low * s->q[k]) / s->qq[k] : 0;
    }
    const float a = fit->scale, b = fit->low;
    return s->xx + a * (a * s->qq[k] - 2 * s->qx[k]) + b * (2 * a * s->q[k] - 2 * s->x + b * s->w);
}

/* From the lanes' scales and lows to better ones, `passes` times; keeps the best. */
HS_SEARCH void hs_affine_improve(hs_affine_sums *s, const float *x, const float *w, size_t n,
                                 float top, float most_low, float *inverse, float *low, int passes,
                                 hs_affine *best, float *least)
{
    while (passes-- > 0) {
        hs_affine_add(s, x, w, n, top, inverse, low);
        for (size_t k = 0; k < hs_lanes; k++) {
            hs_affine fit;
            const float error = hs_affine_solve(s, k, most_low, &fit);
            if (error < *least && fit.scale > 0) {
                *least = error;
                *best = fit;
            }
            inverse[k] = hs_inverse(fit.scale);
            low[k] = fit.low;
        }
    }
}

/* low may not exceed most_low: 0 for types that store -low without a sign, else HUGE_VALF.
 * More rounds look again, each time closer, around the best so far. */
HS_SEARCH hs_affine hs_affine_search(const float *x, const float *w, size_t n, float top,
                                     float most_low, int rounds)
{
    hs_affine_sums s;
    s.w = s.x = s.xx = 0;
    float min = x[0], max = x[0];
    for (size_t i = 0; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        s.w += w[i];
        s.x += w[i] * x[i];
        s.xx += w[i] * x[i] * x[i];
    }
    min = min > most_low ? most_low : min;
    hs_affine best = {(max - min) / top, min};
    if (!(max > min))
        return best;
    float inverse[hs_lanes], low[hs_lanes], least = HUGE_VALF;
    for (size_t k = 0; k < hs_lanes; k++) { /* cut off up to two levels, or add half of one */
        const float cut = ((float)k * 0.3125f - 0.5f) * (top < 8 ? 0.5f : 1.0f);
        const float scale = (max - min) / (top + cut);
        inverse[k] = hs_inverse(scale);
        low[k] = 0.5f * (min + max) - 0.5f * scale * top;
        low[k] = low[k] > most_low ? most_low : low[k];
    }
    hs_affine_improve(&s, x, w, n, top, most_low, inverse, low, 3, &best, &least);
    float spread = 0.02f;
    while (--rounds > 0) {
        for (size_t k = 0; k < hs_lanes; k++) {
            const float scale = best.scale * (1 + spread * ((float)k - 3.5f));
            inverse[k] = hs_inverse(scale);
            low[k] = best.low + 0.5f * top * (best.scale - scale);
            low[k] = low[k] > most_low ? most_low : low[k];
        }
        spread *= 0.5f;
        hs_affine_improve(&s, x, w, n, top, most_low, inverse, low, 2, &best, &least);
    }
    return best;
}

/* ---- x = scale * q, q in lo..hi ---------------------------------------------------------- */

HS_SEARCH void hs_scale_add(const float *x, const float *w, size_t n, float lo, float hi,
                            const float *inverse, float *sum_qx, float *sum_qq)
{
    const hs_vec vinverse = hs_vload(inverse), vlo = hs_vsplat(lo), vhi = hs_vsplat(hi);
    hs_vec qx = hs_vsplat(0), qq = qx;
    for (size_t i = 0; i < n; i++) {
        const hs_vec vx = hs_vsplat(x[i]), q = hs_vround(hs_vmul(vx, vinverse), vlo, vhi);
        const hs_vec wq = hs_vmul(hs_vsplat(w[i]), q);
        qx = hs_vadd(qx, hs_vmul(wq, vx));
        qq = hs_vadd(qq, hs_vmul(wq, q));
    }
    hs_vstore(sum_qx, qx);
    hs_vstore(sum_qq, qq);
}

/* Levels -half..half-1.  The scale may be negative: the longer side goes where it serves. */
HS_SEARCH float hs_scale_search(const float *x, const float *w, size_t n, float half, int passes)
{
    const float m = hs_extreme(x, n);
    float best = m / -half, most = 0;
    if (m == 0)
        return 0;
    float inverse[hs_lanes], qx[hs_lanes], qq[hs_lanes];
    for (size_t k = 0; k < hs_lanes; k++) { /* where the extreme comes to lie */
        const float step = (float)(k / 2) * (half > 8 ? 0.6f : 0.4f);
        inverse[k] = hs_inverse(m / (k % 2 ? half - 0.4f - step : step - half - 0.6f));
    }
    while (passes-- > 0) {
        hs_scale_add(x, w, n, -half, half - 1, inverse, qx, qq);
        for (size_t k = 0; k < hs_lanes; k++) {
            const float scale = qq[k] > 0 ? qx[k] / qq[k] : 0;
            if (scale * qx[k] > most) {
                most = scale * qx[k];
                best = scale;
            }
            inverse[k] = hs_inverse(scale);
        }
    }
    return best;
}

#endif
