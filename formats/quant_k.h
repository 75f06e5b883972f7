#ifndef HS_FORMATS_QUANT_K_H
#define HS_FORMATS_QUANT_K_H

/* Encoders of the types with blocks of 256 that have a minimum (Q2_K, Q4_K, Q5_K) or a signed
 * scale (Q3_K) per sub-block; static inline for the reason given in quant_search.h.
 *
 * First every sub-block gets the scale and the minimum that suit it best.  Then the scales of the
 * block decide which few-bit numbers the sub-blocks really get, chosen by the error that they
 * cause, and in turn the block's scales are fitted to those. */

#include "formats/quant_search.h"

enum { hs_super = 256, hs_max_sub = 16, hs_rounds = 2, hs_tries = 16 };

/* How a type divides its 256 elements: sub-blocks of `sub`, levels 0..top (signed types:
 * lo..hi), numbers 0..most for scales and minima. */
typedef struct hs_k_shape {
    size_t sub;
    float top, most;
} hs_k_shape;

typedef struct hs_k_affine {
    float d, dmin;
    float scale[hs_max_sub], min[hs_max_sub]; /* integers */
    float error;
} hs_k_affine;

/* Sums for the fit of d and dmin to given integers. */
typedef struct hs_k_fit {
    float uu, uv, vv, ux, vx;
} hs_k_fit;

/* Errors of n elements under each lane's step and low. */
HS_SEARCH void hs_k_errors(const float *x, const float *w, size_t n, float top, const float *step,
                           const float *low, float *error)
{
    float inverse[hs_lanes];
    for (size_t k = 0; k < hs_lanes; k++)
        inverse[k] = hs_inverse(step[k]);
    const hs_vec vinverse = hs_vload(inverse), vstep = hs_vload(step), vlow = hs_vload(low);
    const hs_vec zero = hs_vsplat(0), vtop = hs_vsplat(top);
    hs_vec sum = zero;
    for (size_t i = 0; i < n; i++) {
        const hs_vec vx = hs_vsplat(x[i]);
        const hs_vec q = hs_vround(hs_vmul(hs_vsub(vx, vlow), vinverse), zero, vtop);
        const hs_vec e = hs_vsub(vx, hs_vadd(hs_vmul(vstep, q), vlow));
        sum = hs_vadd(sum, hs_vmul(hs_vsplat(w[i]), hs_vmul(e, e)));
    }
    hs_vstore(error, sum);
}

/* The integers for sub-block b, next to what `fit` asks for; adds their error. */
HS_SEARCH void hs_k_choose(hs_k_affine *a, const hs_k_shape *shape, size_t b, const float *x,
                           const float *w, hs_affine fit)
{
    const float is = hs_nearest(fit.scale * hs_inverse(a->d), 0, shape->most);
    const float im = hs_nearest(-fit.low * hs_inverse(a->dmin), 0, shape->most);
    float scale[hs_tries], min[hs_tries], step[hs_tries], low[hs_tries], error[hs_tries];
    for (size_t k = 0; k < hs_tries; k++) { /* four scales times four minima */
        scale[k] = hs_nearest(is + (float)(k % 4) - 1, 0, shape->most);
        min[k] = hs_nearest(im + (float)(k / 4) - 1, 0, shape->most);
        step[k] = a->d * scale[k];
        low[k] = -(a->dmin * min[k]);
    }
    for (size_t k = 0; k < hs_tries; k += hs_lanes)
        hs_k_errors(x, w, shape->sub, shape->top, step + k, low + k, error + k);
    size_t best = 5; /* the nearest */
    for (size_t k = 0; k < hs_tries; k++)
        best = error[k] < error[best] ? k : best;
    a->scale[b] = scale[best];
    a->min[b] = min[best];
    a->error += error[best];
}

/* Levels of sub-block b under its integers. */
HS_SEARCH void hs_k_levels(const hs_k_affine *a, const hs_k_shape *shape, size_t b, const float *x,
                           float *q)
{
    const float inverse = hs_inverse(a->d * a->scale[b]), low = -(a->dmin * a->min[b]);
    for (size_t i = 0; i < shape->sub; i++)
        q[i] = hs_nearest((x[i] - low) * inverse, 0, shape->top);
}

HS_SEARCH void hs_k_fit_add(hs_k_fit *f, const hs_k_affine *a, const hs_k_shape *shape, size_t b,
                            const float *x, const float *w)
{
    float q[32], sw = 0, sx = 0, sq = 0, sqq = 0, sqx = 0;
    hs_k_levels(a, shape, b, x, q);
    for (size_t i = 0; i < shape->sub; i++) {
        const float wq = w[i] * q[i];
        sw += w[i];
        sx += w[i] * x[i];
        sq += wq;
        sqq += wq * q[i];
        sqx += wq * x[i];
    }
    const float s = a->scale[b], m = a->min[b];
    f->uu += s * s * sqq;
    f->uv -= s * m * sq;
    f->vv += m * m * sw;
    f->ux += s * sqx;
    f->vx -= m * sx;
}

/* d and dmin that suit the integers of `a` best. */
HS_SEARCH void hs_k_refit(hs_k_affine *a, const hs_k_shape *shape, const float *x, const float *w)
{
    hs_k_fit f = {0};
    for (size_t b = 0; b < hs_super / shape->sub; b++)
        hs_k_fit_add(&f, a, shape, b, x + b * shape->sub, w + b * shape->sub);
    const float det = f.uu * f.vv - f.uv * f.uv;
    if (det > 1e-6f * f.uu * f.vv) {
        a->d = hs_as_f16((f.vv * f.ux - f.uv * f.vx) / det);
        a->dmin = hs_as_f16((f.uu * f.vx - f.uv * f.ux) / det);
    } else if (f.uu > 0) {
        a->d = hs_as_f16((f.ux - a->dmin * f.uv) / f.uu);
    }
}

HS_SEARCH hs_k_affine hs_k_affine_encode(const float *x, const float *w, const hs_k_shape *shape)
{
    const size_t n = hs_super / shape->sub;
    hs_affine fit[hs_max_sub];
    float scale = 0, min = 0;
    for (size_t b = 0; b < n; b++) {
        fit[b] =
            hs_affine_search(x + b * shape->sub, w + b * shape->sub, shape->sub, shape->top, 0, 1);
        scale = fit[b].scale > scale ? fit[b].scale : scale;
        min = -fit[b].low > min ? -fit[b].low : min;
    }
    hs_k_affine best = {.error = HUGE_VALF}, a = {0};
    a.d = hs_as_f16(scale / shape->most);
    a.dmin = hs_as_f16(min / shape->most);
    best.d = a.d;
    best.dmin = a.dmin;
    for (int round = 0; round < hs_rounds; round++) {
        a.error = 0;
        for (size_t b = 0; b < n; b++)
            hs_k_choose(&a, shape, b, x + b * shape->sub, w + b * shape->sub, fit[b]);
        if (!(a.error < best.error))
            break;
        best = a;
        if (round + 1 < hs_rounds)
            hs_k_refit(&a, shape, x, w);
    }
    return best;
}

/* ---- Q3_K: 16 sub-blocks of 16, value d * scale * q, scale -32..31, q -4..3 -------------- */

typedef struct hs_q3_k_try {
    float d, scale[16], error;
} hs_q3_k_try;

HS_SEARCH void hs_q3_k_errors(const float *x, const float *w, const float *step,
                              const float *inverse, float *error)
{
    const hs_vec vstep = hs_vload(step), vinverse = hs_vload(inverse);
    const hs_vec lo = hs_vsplat(-4), hi = hs_vsplat(3);
    hs_vec sum = hs_vsplat(0);
    for (size_t i = 0; i < 16; i++) {
        const hs_vec vx = hs_vsplat(x[i]);
        const hs_vec e = hs_vsub(vx, hs_vmul(vstep, hs_vround(hs_vmul(vx, vinverse), lo, hi)));
        sum = hs_vadd(sum, hs_vmul(hs_vsplat(w[i]), hs_vmul(e, e)));
    }
    hs_vstore(error, sum);
}

HS_SEARCH void hs_q3_k_choose(hs_q3_k_try *t, size_t b, const float *x, const float *w, float fit)
{
    const float is = hs_nearest(fit * hs_inverse(t->d), -32, 31);
    float scale[hs_lanes], step[hs_lanes], inverse[hs_lanes], error[hs_lanes];
    for (size_t k = 0; k < hs_lanes; k++) { /* the nearest in the middle */
        scale[k] = hs_nearest(is + (float)k - 3, -32, 31);
        step[k] = t->d * scale[k];
        inverse[k] = hs_inverse(step[k]);
    }
    hs_q3_k_errors(x, w, step, inverse, error);
    size_t best = 3;
    for (size_t k = 0; k < hs_lanes; k++)
        best = error[k] < error[best] ? k : best;
    t->scale[b] = scale[best];
    t->error += error[best];
}

HS_SEARCH float hs_q3_k_refit(const hs_q3_k_try *t, const float *x, const float *w)
{
    float ux = 0, uu = 0;
    for (size_t i = 0; i < hs_super; i++) {
        const float s = t->scale[i / 16];
        const float u = s * hs_nearest(x[i] * hs_inverse(t->d * s), -4, 3);
        ux += w[i] * x[i] * u;
        uu += w[i] * u * u;
    }
    return uu > 0 ? hs_as_f16(ux / uu) : t->d;
}

HS_SEARCH hs_q3_k_try hs_q3_k_search(const float *x, const float *w)
{
    float fit[16];
    for (size_t b = 0; b < 16; b++)
        fit[b] = hs_scale_search(x + 16 * b, w + 16 * b, 16, 4, 3);
    hs_q3_k_try best = {.error = HUGE_VALF}, t = {0};
    best.d = t.d = hs_as_f16(hs_extreme(fit, 16) / -32);
    for (int round = 0; round < hs_rounds; round++) {
        t.error = 0;
        for (size_t b = 0; b < 16; b++)
            hs_q3_k_choose(&t, b, x + 16 * b, w + 16 * b, fit[b]);
        if (!(t.error < best.error))
            break;
        best = t;
        t.d = hs_q3_k_refit(&t, x, w);
    }
    return best;
}

#endif
