#ifndef HS_FORMATS_QUANT_K_H
#define HS_FORMATS_QUANT_K_H

/* Encoders of the types with blocks of 256: with a minimum per sub-block (Q2_K, Q4_K, Q5_K) or a
 * signed scale (Q3_K, Q6_K); static inline for the reason given in quant_search.h.  The bytes are
 * described where they are decoded, in quant_k.c and quant.c.
 *
 * First every sub-block gets the scale and the minimum that suit it best.  Then the scales of the
 * block decide which few-bit numbers the sub-blocks really get, chosen by the error that they
 * cause, and in turn the block's scales are fitted to those. */

#include "formats/quant_search.h"

enum { hs_super = 256, hs_max_sub = 16, hs_rounds = 2 };
enum {
    hs_q2_k_bytes = 16 + hs_super / 4 + 4,
    hs_q3_k_bytes = hs_super / 8 + hs_super / 4 + 12 + 2,
    hs_q4_k_bytes = 4 + 12 + hs_super / 2,
    hs_q5_k_bytes = 4 + 12 + hs_super / 8 + hs_super / 2,
    hs_q6_k_bytes = hs_super / 2 + hs_super / 4 + hs_super / 16 + 2,
};

/* How a type divides its 256 elements: sub-blocks of `sub`, levels 0..top, numbers 0..most for
 * scales and minima. */
typedef struct hs_k_shape {
    size_t sub;
    float top, most;
} hs_k_shape;

typedef struct hs_k_affine {
    float d, dmin;
    float scale[hs_max_sub], min[hs_max_sub]; /* integers */
    float error;
} hs_k_affine;

/* w v, for 16 elements from i on. */
HS_SEARCH hs_vec hs_weigh(const float *w, size_t i, hs_vec v)
{
    return w ? hs_vmul(hs_vload(w + i), v) : v;
}

/* w[i] v, the same in all lanes. */
HS_SEARCH hs_vec hs_weigh_one(const float *w, size_t i, hs_vec v)
{
    return w ? hs_vmul(hs_vsplat(w[i]), v) : v;
}

/* The integers for sub-block b, next to what `fit` asks for; adds their error. */
HS_SEARCH void hs_k_choose(hs_k_affine *a, const hs_k_shape *shape, size_t b, const float *x,
                           const float *w, hs_affine fit)
{
    /* four scales times four minima */
    static const float ds[hs_lanes] = {-1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2};
    static const float dm[hs_lanes] = {-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    const float is = hs_nearest(fit.scale * hs_inverse(a->d), 0, shape->most);
    const float im = hs_nearest(-fit.low * hs_inverse(a->dmin), 0, shape->most);
    const hs_vec zero = hs_vsplat(0), most = hs_vsplat(shape->most), top = hs_vsplat(shape->top);
    const hs_vec scale = hs_vround(hs_vadd(hs_vsplat(is), hs_vload(ds)), zero, most);
    const hs_vec min = hs_vround(hs_vadd(hs_vsplat(im), hs_vload(dm)), zero, most);
    const hs_vec step = hs_vmul(hs_vsplat(a->d), scale), low = hs_vmul(hs_vsplat(-a->dmin), min);
    const hs_vec inverse = hs_vinverse(step);
    hs_vec sum = zero;
    for (size_t i = 0; i < shape->sub; i++) {
        const hs_vec u = hs_vsub(hs_vsplat(x[i]), low);
        const hs_vec e = hs_vsub(u, hs_vmul(step, hs_vround(hs_vmul(u, inverse), zero, top)));
        sum = hs_vadd(sum, hs_weigh_one(w, i, hs_vmul(e, e)));
    }
    float error[hs_lanes], scales[hs_lanes], mins[hs_lanes];
    hs_vstore(error, sum);
    hs_vstore(scales, scale);
    hs_vstore(mins, min);
    const size_t best = hs_vleast_lane(sum, 5); /* 5: the nearest */
    a->scale[b] = scales[best];
    a->min[b] = mins[best];
    a->error += error[best];
}

/* 16 levels of sub-block b under its integers. */
HS_SEARCH hs_vec hs_k_levels(const hs_k_affine *a, const hs_k_shape *shape, size_t b, hs_vec x)
{
    const hs_vec inverse = hs_vsplat(hs_inverse(a->d * a->scale[b]));
    const hs_vec above = hs_vadd(x, hs_vsplat(a->dmin * a->min[b]));
    return hs_vround(hs_vmul(above, inverse), hs_vsplat(0), hs_vsplat(shape->top));
}

/* d and dmin that suit the integers of `a` best: the fit of x by d u + dmin v. */
HS_SEARCH void hs_k_refit(hs_k_affine *a, const hs_k_shape *shape, const float *x, const float *w)
{
    hs_vec vuu = hs_vsplat(0), vuv = vuu, vvv = vuu, vux = vuu, vvx = vuu;
    for (size_t i = 0; i < hs_super; i += hs_lanes) {
        const size_t b = i / shape->sub;
        const hs_vec vx = hs_vload(x + i), v = hs_vsplat(-a->min[b]);
        const hs_vec u = hs_vmul(hs_vsplat(a->scale[b]), hs_k_levels(a, shape, b, vx));
        const hs_vec wu = hs_weigh(w, i, u), wv = hs_weigh(w, i, v);
        vuu = hs_vadd(vuu, hs_vmul(wu, u));
        vuv = hs_vadd(vuv, hs_vmul(wu, v));
        vvv = hs_vadd(vvv, hs_vmul(wv, v));
        vux = hs_vadd(vux, hs_vmul(wu, vx));
        vvx = hs_vadd(vvx, hs_vmul(wv, vx));
    }
    const float uu = hs_vsum(vuu), uv = hs_vsum(vuv), vv = hs_vsum(vvv);
    const float ux = hs_vsum(vux), vx = hs_vsum(vvx);
    const float det = uu * vv - uv * uv;
    if (det > 1e-6f * uu * vv) {
        a->d = hs_as_f16((vv * ux - uv * vx) / det);
        a->dmin = hs_as_f16((uu * vx - uv * ux) / det);
    } else if (uu > 0) {
        a->d = hs_as_f16((ux - a->dmin * uv) / uu);
    }
}

HS_SEARCH hs_k_affine hs_k_affine_encode(const float *x, const float *w, const hs_k_shape *shape)
{
    const size_t n = hs_super / shape->sub;
    hs_affine fit[hs_max_sub];
    float scale = 0, min = 0;
    for (size_t b = 0; b < n; b += 2) {
        const hs_two two = hs_two_of(x, w, b, shape->sub);
        hs_affine_search(&two, shape->sub, shape->top, false, 1, fit + b);
    }
    for (size_t b = 0; b < n; b++) {
        scale = fit[b].scale > scale ? fit[b].scale : scale;
        min = -fit[b].low > min ? -fit[b].low : min;
    }
    hs_k_affine best = {.error = HUGE_VALF}, a = {0};
    best.d = a.d = hs_as_f16(scale / shape->most);
    best.dmin = a.dmin = hs_as_f16(min / shape->most);
    for (int round = 0; round < hs_rounds; round++) {
        a.error = 0;
        for (size_t b = 0; b < n; b++)
            hs_k_choose(&a, shape, b, x + b * shape->sub, w ? w + b * shape->sub : NULL, fit[b]);
        if (!(a.error < best.error))
            break;
        best = a;
        if (round + 1 < hs_rounds)
            hs_k_refit(&a, shape, x, w);
    }
    return best;
}

/* All levels as bytes. */
HS_SEARCH void hs_k_bytes(const hs_k_affine *a, const hs_k_shape *shape, const float *x, uint8_t *q)
{
    for (size_t i = 0; i < hs_super; i += hs_lanes)
        hs_vstore_bytes(q + i, hs_k_levels(a, shape, i / shape->sub, hs_vload(x + i)));
}

/* Levels of two bits, as Q2_K and the low bits of Q3_K have them. */
HS_SEARCH void hs_k_pack_2(uint8_t *p, const uint8_t *q)
{
    for (size_t half = 0; half < 2; half++, p += 32, q += 128)
        for (size_t j = 0; j < 32; j++)
            p[j] = (uint8_t)((q[j] & 3) | (q[j + 32] & 3) << 2 | (q[j + 64] & 3) << 4 |
                             (q[j + 96] & 3) << 6);
}

HS_SEARCH void hs_q2_k_block(uint8_t *p, const float *x, const float *w)
{
    const hs_k_shape shape = {16, 3, 15};
    const hs_k_affine a = hs_k_affine_encode(x, w, &shape);
    uint8_t q[hs_super];
    hs_k_bytes(&a, &shape, x, q);
    for (size_t b = 0; b < 16; b++)
        p[b] = (uint8_t)((unsigned)a.scale[b] | (unsigned)a.min[b] << 4);
    hs_k_pack_2(p + 16, q);
    hs_put_f16(p + 80, a.d);
    hs_put_f16(p + 82, a.dmin);
}

HS_SEARCH void hs_put_k_scale_min(uint8_t *p, size_t s, unsigned scale, unsigned min)
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

HS_SEARCH void hs_k_nibbles(uint8_t *low, const uint8_t *q)
{
    for (size_t c = 0; c < 4; c++)
        for (size_t j = 0; j < 32; j++)
            low[32 * c + j] = (uint8_t)((q[64 * c + j] & 15) | q[64 * c + 32 + j] << 4);
}

HS_SEARCH void hs_k_encode(uint8_t *p, float top, const float *x, const float *w, uint8_t *q)
{
    const hs_k_shape shape = {32, top, 63};
    const hs_k_affine a = hs_k_affine_encode(x, w, &shape);
    hs_k_bytes(&a, &shape, x, q);
    hs_put_f16(p, a.d);
    hs_put_f16(p + 2, a.dmin);
    for (size_t b = 0; b < 8; b++)
        hs_put_k_scale_min(p + 4, b, (unsigned)a.scale[b], (unsigned)a.min[b]);
}

HS_SEARCH void hs_q4_k_block(uint8_t *p, const float *x, const float *w)
{
    uint8_t q[hs_super];
    hs_k_encode(p, 15, x, w, q);
    hs_k_nibbles(p + 16, q);
}

HS_SEARCH void hs_q5_k_block(uint8_t *p, const float *x, const float *w)
{
    uint8_t q[hs_super];
    hs_k_encode(p, 31, x, w, q);
    for (size_t j = 0; j < 32; j++) {
        unsigned high = 0;
        for (size_t b = 0; b < 8; b++)
            high |= (unsigned)(q[32 * b + j] >> 4) << b;
        p[16 + j] = (uint8_t)high;
    }
    hs_k_nibbles(p + 48, q);
}

/* ---- Q3_K: 16 sub-blocks of 16, value d * scale * q, scale -32..31, q -4..3 -------------- */

typedef struct hs_q3_k_try {
    float d, scale[16], error;
} hs_q3_k_try;

/* The integers of sub-blocks b and b + 1, out of eight each. */
HS_SEARCH void hs_q3_k_choose(hs_q3_k_try *t, size_t b, const hs_two *two, const float *fit)
{
    static const float off[hs_lanes] = {-3, -2, -1, 0, 1, 2, 3, 4, -3, -2, -1, 0, 1, 2, 3, 4};
    const hs_vec few = hs_vsplat(-32), many = hs_vsplat(31), lo = hs_vsplat(-4), hi = hs_vsplat(3);
    const float id = hs_inverse(t->d);
    const hs_vec near =
        hs_vpair(hs_nearest(fit[0] * id, -32, 31), hs_nearest(fit[1] * id, -32, 31));
    const hs_vec scale = hs_vround(hs_vadd(near, hs_vload(off)), few, many);
    const hs_vec step = hs_vmul(hs_vsplat(t->d), scale), inverse = hs_vinverse(step);
    hs_vec sum = hs_vsplat(0);
    for (size_t i = 0; i < 16; i++) {
        const hs_vec vx = hs_two_x(two, i);
        const hs_vec e = hs_vsub(vx, hs_vmul(step, hs_vround(hs_vmul(vx, inverse), lo, hi)));
        sum = hs_vadd(sum, hs_two_weigh(two, i, hs_vmul(e, e)));
    }
    float error[hs_lanes], scales[hs_lanes];
    hs_vstore(error, sum);
    hs_vstore(scales, scale);
    for (size_t h = 0; h < 2; h++) { /* the nearest in the middle */
        const size_t best = hs_vleast_lane_half(sum, h, hs_half * h + 3);
        t->scale[b + h] = scales[best];
        t->error += error[best];
    }
}

HS_SEARCH hs_vec hs_signed_levels(float step, hs_vec x, float half)
{
    return hs_vround(hs_vmul(x, hs_vsplat(hs_inverse(step))), hs_vsplat(-half),
                     hs_vsplat(half - 1));
}

HS_SEARCH float hs_q3_k_refit(const hs_q3_k_try *t, const float *x, const float *w)
{
    hs_vec vux = hs_vsplat(0), vuu = vux;
    for (size_t b = 0; b < 16; b++) {
        const float s = t->scale[b];
        const hs_vec vx = hs_vload(x + 16 * b);
        const hs_vec u = hs_vmul(hs_vsplat(s), hs_signed_levels(t->d * s, vx, 4));
        const hs_vec wu = hs_weigh(w, 16 * b, u);
        vux = hs_vadd(vux, hs_vmul(wu, vx));
        vuu = hs_vadd(vuu, hs_vmul(wu, u));
    }
    const float ux = hs_vsum(vux), uu = hs_vsum(vuu);
    return uu > 0 ? hs_as_f16(ux / uu) : t->d;
}

HS_SEARCH hs_q3_k_try hs_q3_k_search(const float *x, const float *w)
{
    float fit[16];
    for (size_t b = 0; b < 16; b += 2) {
        const hs_two two = hs_two_of(x, w, b, 16);
        hs_scale_search(&two, 16, 4, 3, fit + b);
    }
    hs_q3_k_try best = {.error = HUGE_VALF}, t = {0};
    best.d = t.d = hs_as_f16(hs_peak(fit, 16) / -32);
    for (int round = 0; round < hs_rounds; round++) {
        t.error = 0;
        for (size_t b = 0; b < 16; b += 2) {
            const hs_two two = hs_two_of(x, w, b, 16);
            hs_q3_k_choose(&t, b, &two, fit + b);
        }
        if (!(t.error < best.error))
            break;
        best = t;
        if (round + 1 < hs_rounds)
            t.d = hs_q3_k_refit(&t, x, w);
    }
    return best;
}

HS_SEARCH void hs_q3_k_block(uint8_t *p, const float *x, const float *w)
{
    const hs_q3_k_try t = hs_q3_k_search(x, w);
    uint8_t q[hs_super], *scales = p + 96;
    memset(scales, 0, 12);
    for (size_t b = 0; b < 16; b++) {
        const unsigned s = (unsigned)(t.scale[b] + 32);
        scales[b % 8] = (uint8_t)(scales[b % 8] | (s & 15) << (b / 8 * 4));
        scales[8 + b % 4] = (uint8_t)(scales[8 + b % 4] | s >> 4 << (b / 4 * 2));
        const hs_vec level = hs_signed_levels(t.d * t.scale[b], hs_vload(x + 16 * b), 4);
        hs_vstore_bytes(q + 16 * b, hs_vadd(level, hs_vsplat(4)));
    }
    for (size_t j = 0; j < 32; j++) {
        unsigned high = 0;
        for (size_t k = 0; k < 8; k++)
            high |= (unsigned)(q[32 * k + j] >> 2) << k;
        p[j] = (uint8_t)high;
    }
    hs_k_pack_2(p + 32, q);
    hs_put_f16(p + 108, t.d);
}

/* ---- Q6_K: 16 sub-blocks of 16, value d * scale * q, scale -128..127, q -32..31 ----------- */

HS_SEARCH void hs_q6_k_pack(uint8_t *p, const uint8_t *q)
{
    uint8_t *high = p + hs_super / 2;
    for (size_t half = 0; half < 2; half++, q += 128, p += 64, high += 32)
        for (size_t l = 0; l < 32; l++) {
            p[l] = (uint8_t)((q[l] & 15) | (q[l + 64] & 15) << 4);
            p[l + 32] = (uint8_t)((q[l + 32] & 15) | (q[l + 96] & 15) << 4);
            high[l] = (uint8_t)(q[l] >> 4 | q[l + 32] >> 4 << 2 | q[l + 64] >> 4 << 4 |
                                q[l + 96] >> 4 << 6);
        }
}

HS_SEARCH void hs_q6_k_block(uint8_t *p, const float *x, const float *w)
{
    float scale[16];
    uint8_t q[hs_super], *scales = p + 192;
    for (size_t b = 0; b < 16; b += 2) {
        const hs_two two = hs_two_of(x, w, b, 16);
        hs_scale_search(&two, 16, 32, 2, scale + b);
    }
    const float d = hs_as_f16(hs_peak(scale, 16) / -128), id = hs_inverse(d);
    for (size_t b = 0; b < 16; b++) {
        const float sc = hs_nearest(scale[b] * id, -128, 127);
        scales[b] = (uint8_t)(int8_t)sc;
        const hs_vec level = hs_signed_levels(d * sc, hs_vload(x + 16 * b), 32);
        hs_vstore_bytes(q + 16 * b, hs_vadd(level, hs_vsplat(32)));
    }
    hs_q6_k_pack(p, q);
    hs_put_f16(p + 208, d);
}

#endif
