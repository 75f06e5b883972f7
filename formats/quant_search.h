#ifndef HS_FORMATS_QUANT_SEARCH_H
#define HS_FORMATS_QUANT_SEARCH_H

/* Searches for the scales of blocks, shared by the encoders; all static inline, so that a file
 * built for another instruction set can include them and give the same bits.
 *
 * They minimise sum w (x - y)^2, y the decoded value, w an importance per element; a NULL w, which
 * callers pass as a constant, means ones and saves the products.  Candidates are tried side by
 * side, one in each lane, eight for each of two sub-blocks; sums have one order whatever the
 * width of the registers. */

#include "formats/cursor.h"
#include "formats/dtype.h"
#include "formats/lanes.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define HS_SEARCH HS_INLINE

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

/* Importances of n elements; false where none is a positive number: all alike then. */
HS_SEARCH bool hs_importance(float *w, const float *given, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++) {
        w[i] = given[i] > 0 && given[i] < 1e30f ? given[i] : 0;
        sum += w[i];
    }
    return sum > 0;
}

HS_SEARCH float hs_largest(const float *x, size_t n, float *least)
{
    hs_vec most = hs_vload(x), min = most;
    for (size_t i = hs_lanes; i < n; i += hs_lanes) {
        most = hs_vmax(most, hs_vload(x + i));
        min = hs_vmin(min, hs_vload(x + i));
    }
    *least = hs_vleast(min);
    return hs_vgreatest(most);
}

/* Of n elements, a multiple of 16, one of largest magnitude, the positive of equals. */
HS_SEARCH float hs_peak(const float *x, size_t n)
{
    float min;
    const float max = hs_largest(x, n, &min);
    return max >= -min ? max : min;
}

/* Two sub-blocks of n elements; `w` both NULL or neither. */
typedef struct hs_two {
    const float *x[2], *w[2];
} hs_two;

HS_SEARCH hs_two hs_two_of(const float *x, const float *w, size_t b, size_t n)
{
    return (hs_two){{x + b * n, x + (b + 1) * n},
                    {w ? w + b * n : NULL, w ? w + (b + 1) * n : NULL}};
}

HS_SEARCH hs_vec hs_two_x(const hs_two *t, size_t i) { return hs_vpair(t->x[0][i], t->x[1][i]); }

/* w v */
HS_SEARCH hs_vec hs_two_weigh(const hs_two *t, size_t i, hs_vec v)
{
    return t->w[0] ? hs_vmul(hs_vpair(t->w[0][i], t->w[1][i]), v) : v;
}

/* ---- x = scale * q + low, q in 0..top --------------------------------------------------- */

typedef struct hs_affine {
    float scale, low;
} hs_affine;

/* What the fit of given levels needs: sums of w, w x, w q, w q q and w q x. */
typedef struct hs_affine_sums {
    hs_vec w, x, q, qq, qx;
} hs_affine_sums;

typedef struct hs_affine_lanes {
    hs_vec scale, low, inverse; /* a try in each lane */
    hs_vec best_scale, best_low, least;
} hs_affine_lanes;

HS_SEARCH void hs_affine_totals(hs_affine_sums *s, const hs_two *t, size_t n)
{
    s->w = s->x = hs_vsplat(0);
    for (size_t i = 0; i < n; i++) {
        s->w = hs_vadd(s->w, hs_two_weigh(t, i, hs_vsplat(1)));
        s->x = hs_vadd(s->x, hs_two_weigh(t, i, hs_two_x(t, i)));
    }
}

HS_SEARCH void hs_affine_add(hs_affine_sums *s, const hs_two *t, size_t n, float top,
                             const hs_affine_lanes *a)
{
    const hs_vec zero = hs_vsplat(0), vtop = hs_vsplat(top);
    hs_vec sq = zero, sqq = zero, sqx = zero;
    for (size_t i = 0; i < n; i++) {
        const hs_vec vx = hs_two_x(t, i);
        const hs_vec q = hs_vround(hs_vmul(hs_vsub(vx, a->low), a->inverse), zero, vtop);
        const hs_vec wq = hs_two_weigh(t, i, q);
        sq = hs_vadd(sq, wq);
        sqq = hs_vadd(sqq, hs_vmul(wq, q));
        sqx = hs_vadd(sqx, hs_vmul(wq, vx));
    }
    s->q = sq;
    s->qq = sqq;
    s->qx = sqx;
}

/* The best line through each lane's levels becomes its next try; the best of all is kept.  Errors
 * lack the sum of w x x, which is the same for all. */
HS_SEARCH void hs_affine_solve(const hs_affine_sums *s, bool signed_low, hs_affine_lanes *a)
{
    const hs_vec zero = hs_vsplat(0), two = hs_vsplat(2);
    const hs_vec det = hs_vsub(hs_vmul(s->w, s->qq), hs_vmul(s->q, s->q));
    const hs_vec up = hs_vsub(hs_vmul(s->w, s->qx), hs_vmul(s->q, s->x));
    hs_vec scale = hs_vif_less(zero, det, hs_vdiv(up, det), zero);
    hs_vec low = hs_vdiv(hs_vsub(s->x, hs_vmul(scale, s->q)), s->w);
    if (!signed_low) {
        const hs_vec alone = hs_vif_less(zero, s->qq, hs_vdiv(s->qx, s->qq), zero);
        scale = hs_vif_less(zero, low, alone, scale);
        low = hs_vif_less(zero, low, zero, low);
    }
    const hs_vec quadratic = hs_vmul(scale, hs_vsub(hs_vmul(scale, s->qq), hs_vmul(two, s->qx)));
    const hs_vec mixed = hs_vmul(two, hs_vsub(hs_vmul(scale, s->q), s->x));
    const hs_vec error = hs_vadd(quadratic, hs_vmul(low, hs_vadd(mixed, hs_vmul(low, s->w))));
    const hs_vec valid = hs_vif_less(zero, scale, error, hs_vsplat(HUGE_VALF));
    a->best_scale = hs_vif_less(valid, a->least, scale, a->best_scale);
    a->best_low = hs_vif_less(valid, a->least, low, a->best_low);
    a->least = hs_vif_less(valid, a->least, valid, a->least);
    a->scale = scale;
    a->low = low;
    a->inverse = hs_vinverse(scale);
}

/* The best lane of each half, where one is better than what `best` had. */
HS_SEARCH void hs_affine_pick(const hs_affine_lanes *a, hs_affine *best)
{
    float error[hs_lanes], scale[hs_lanes], low[hs_lanes];
    hs_vstore(error, a->least);
    hs_vstore(scale, a->best_scale);
    hs_vstore(low, a->best_low);
    for (size_t h = 0; h < 2; h++) {
        const size_t k = hs_vleast_lane_half(a->least, h, h * hs_half);
        if (error[k] < HUGE_VALF)
            best[h] = (hs_affine){scale[k], low[k]};
    }
}

HS_SEARCH void hs_affine_from(hs_affine_lanes *a, hs_vec scale, hs_vec low, bool signed_low)
{
    a->scale = scale;
    a->low = signed_low ? low : hs_vmin(low, hs_vsplat(0));
    a->inverse = hs_vinverse(scale);
}

/* First tries: the range less up to two levels, or half of one more. */
HS_SEARCH void hs_affine_start(hs_affine_lanes *a, const hs_two *t, size_t n, float top,
                               bool signed_low, hs_affine *best)
{
    static const float cut[hs_lanes] = {-0.5f,  -0.1875f, 0.125f, 0.4375f,  0.75f,  1.0625f,
                                        1.375f, 1.6875f,  -0.5f,  -0.1875f, 0.125f, 0.4375f,
                                        0.75f,  1.0625f,  1.375f, 1.6875f};
    float range[2], middle[2];
    for (size_t h = 0; h < 2; h++) {
        float min, max = hs_largest(t->x[h], n, &min);
        min = min > 0 && !signed_low ? 0 : min;
        range[h] = max > min ? max - min : 0;
        middle[h] = 0.5f * (min + max);
        best[h] = (hs_affine){range[h] / top, min};
    }
    const hs_vec cuts = hs_vmul(hs_vload(cut), hs_vsplat(top < 8 ? 0.5f : 1));
    const hs_vec scale = hs_vdiv(hs_vpair(range[0], range[1]), hs_vadd(hs_vsplat(top), cuts));
    const hs_vec reach = hs_vmul(hs_vsplat(0.5f * top), scale);
    hs_affine_from(a, scale, hs_vsub(hs_vpair(middle[0], middle[1]), reach), signed_low);
    a->best_scale = a->best_low = hs_vsplat(0);
    a->least = hs_vsplat(HUGE_VALF);
}

/* Tries close around the best of each half. */
HS_SEARCH void hs_affine_narrow(hs_affine_lanes *a, float top, bool signed_low,
                                const hs_affine *best, float spread)
{
    static const float off[hs_lanes] = {-3.5f, -2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 3.5f,
                                        -3.5f, -2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 3.5f};
    const hs_vec middle = hs_vpair(best[0].scale, best[1].scale);
    const hs_vec low = hs_vpair(best[0].low, best[1].low);
    const hs_vec more = hs_vmul(middle, hs_vmul(hs_vload(off), hs_vsplat(spread)));
    hs_affine_from(a, hs_vadd(middle, more), hs_vsub(low, hs_vmul(hs_vsplat(0.5f * top), more)),
                   signed_low);
}

/* The scale and low of two sub-blocks.  Without `signed_low`, low is not above 0, for types that
 * store -low without a sign.  More rounds look again, each time closer, around the best so far. */
HS_SEARCH void hs_affine_search(const hs_two *t, size_t n, float top, bool signed_low, int rounds,
                                hs_affine *best)
{
    hs_affine_sums s;
    hs_affine_lanes a;
    hs_affine_start(&a, t, n, top, signed_low, best);
    hs_affine_totals(&s, t, n);
    for (int pass = 0; pass < 3; pass++) {
        hs_affine_add(&s, t, n, top, &a);
        hs_affine_solve(&s, signed_low, &a);
    }
    hs_affine_pick(&a, best);
    for (float spread = 0.02f; --rounds > 0; spread *= 0.5f) {
        hs_affine_narrow(&a, top, signed_low, best, spread);
        for (int pass = 0; pass < 2; pass++) {
            hs_affine_add(&s, t, n, top, &a);
            hs_affine_solve(&s, signed_low, &a);
        }
        hs_affine_pick(&a, best);
    }
}

/* ---- x = scale * q, q in -half..half-1 ---------------------------------------------------- */

/* Scales of two sub-blocks.  They may be negative: the longer side goes where it serves. */
HS_SEARCH void hs_scale_search(const hs_two *t, size_t n, float half, int passes, float *best)
{
    static const float side[hs_lanes] = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
    static const float steps[hs_lanes] = {0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3};
    static const float off[hs_lanes] = {-0.6f, -0.4f, -0.6f, -0.4f, -0.6f, -0.4f, -0.6f, -0.4f,
                                        -0.6f, -0.4f, -0.6f, -0.4f, -0.6f, -0.4f, -0.6f, -0.4f};
    /* where the extreme comes to lie */
    const hs_vec step = hs_vmul(hs_vload(steps), hs_vsplat(half > 8 ? 0.6f : 0.4f));
    const hs_vec start =
        hs_vadd(hs_vmul(hs_vload(side), hs_vsub(hs_vsplat(half), step)), hs_vload(off));
    float scale[hs_lanes];
    const float m[2] = {hs_peak(t->x[0], n), hs_peak(t->x[1], n)};
    const hs_vec zero = hs_vsplat(0), lo = hs_vsplat(-half), hi = hs_vsplat(half - 1);
    hs_vec inverse = hs_vinverse(hs_vdiv(hs_vpair(m[0], m[1]), start));
    hs_vec most = zero, chosen = hs_vpair(m[0] / -half, m[1] / -half);
    while (passes-- > 0) {
        hs_vec qx = zero, qq = zero;
        for (size_t i = 0; i < n; i++) {
            const hs_vec vx = hs_two_x(t, i), q = hs_vround(hs_vmul(vx, inverse), lo, hi);
            const hs_vec wq = hs_two_weigh(t, i, q);
            qx = hs_vadd(qx, hs_vmul(wq, vx));
            qq = hs_vadd(qq, hs_vmul(wq, q));
        }
        const hs_vec s = hs_vif_less(zero, qq, hs_vdiv(qx, qq), zero), g = hs_vmul(s, qx);
        chosen = hs_vif_less(most, g, s, chosen);
        most = hs_vif_less(most, g, g, most);
        inverse = hs_vinverse(s);
    }
    hs_vstore(scale, chosen);
    const hs_vec loss = hs_vsub(zero, most);
    for (size_t h = 0; h < 2; h++)
        best[h] = m[h] == 0 ? 0 : scale[hs_vleast_lane_half(loss, h, h * hs_half)];
}

/* ---- encoders ----------------------------------------------------------------------------- */

/* Encoders out of `block`(p, x, w) for one block, w NULL or `elems` numbers. */
#define HS_ENCODE_WEIGHTED(linkage, name, elems, bytes, block)                                   \
    linkage void name(void *dst, const float *src, const float *weight, size_t n)                \
    {                                                                                            \
        float w[elems];                                                                          \
        for (uint8_t *p = dst; n; n -= (elems), src += (elems), weight += (elems), p += (bytes)) \
            if (hs_importance(w, weight, elems))                                                 \
                block(p, src, w);                                                                \
            else                                                                                 \
                block(p, src, NULL);                                                             \
    }
#define HS_ENCODE_ROWS(linkage, name, elems, bytes, block)                    \
    linkage void name(void *dst, const float *src, size_t n)                  \
    {                                                                         \
        for (uint8_t *p = dst; n; n -= (elems), src += (elems), p += (bytes)) \
            block(p, src, NULL);                                              \
    }                                                                         \
    HS_ENCODE_WEIGHTED(linkage, name##_weighted, elems, bytes, block)

#endif
