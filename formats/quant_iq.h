#ifndef HS_FORMATS_QUANT_IQ_H
#define HS_FORMATS_QUANT_IQ_H

/* Encoders of IQ4_NL and IQ4_XS, whose levels are out of a table, closer together near zero;
 * static inline for the reason given in quant_search.h.  Bytes: quant_iq.c. */

#include "formats/quant_search.h"

enum { hs_iq4_nl_bytes = 2 + 16, hs_iq4_xs_bytes = 2 + 2 + 4 + 128 };

static const float hs_iq4_value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
static const float hs_iq4_index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* The middles between values i and i + 1; the search for the level nearest to v looks at one of
 * the first, then at one of two, four and eight. */
static const float hs_iq4_above[16] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                       7,       19,     31.5f, 45.5f, 61,  79,     101, HUGE_VALF};

#if !defined(__AVX2__)
HS_SEARCH float hs_iq4_one(float v, const float *table)
{
    const float *above = hs_iq4_above;
    unsigned i = v > above[7] ? 8 : 0;
    i += v > above[i + 3] ? 4 : 0;
    i += v > above[i + 1] ? 2 : 0;
    return table[i + (v > above[i] ? 1 : 0)];
}
#endif

#if defined(__AVX2__) && !defined(__AVX512F__)
HS_SEARCH __m256i hs_iq4_bit(__m256 v, __m256 middle, int bit)
{
    const __m256i above = _mm256_castps_si256(_mm256_cmp_ps(v, middle, _CMP_GT_OQ));
    return _mm256_and_si256(above, _mm256_set1_epi32(bit));
}

HS_SEARCH __m256 hs_iq4_part(__m256 v, const float *t)
{
    const float *m = hs_iq4_above;
    const __m256 second = _mm256_setr_ps(m[3], m[11], 0, 0, 0, 0, 0, 0);
    const __m256 third = _mm256_setr_ps(m[1], m[5], m[9], m[13], 0, 0, 0, 0);
    const __m256 fourth = _mm256_setr_ps(m[0], m[2], m[4], m[6], m[8], m[10], m[12], m[14]);
    const __m256 even = _mm256_setr_ps(t[0], t[2], t[4], t[6], t[8], t[10], t[12], t[14]);
    const __m256 odd = _mm256_setr_ps(t[1], t[3], t[5], t[7], t[9], t[11], t[13], t[15]);
    __m256i i = hs_iq4_bit(v, _mm256_set1_ps(m[7]), 1);
    __m256i more = hs_iq4_bit(v, _mm256_permutevar8x32_ps(second, i), 1);
    i = _mm256_or_si256(_mm256_add_epi32(i, i), more);
    more = hs_iq4_bit(v, _mm256_permutevar8x32_ps(third, i), 1);
    i = _mm256_or_si256(_mm256_add_epi32(i, i), more);
    const __m256 last = _mm256_cmp_ps(v, _mm256_permutevar8x32_ps(fourth, i), _CMP_GT_OQ);
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(even, i), _mm256_permutevar8x32_ps(odd, i),
                            last);
}
#endif

/* table[the level nearest to v] in every lane; NaN gives the lowest. */
HS_SEARCH hs_vec hs_iq4_nearest(hs_vec v, const float *table)
{
    hs_vec r;
#if defined(__AVX512F__)
    const __m512 above = _mm512_loadu_ps(hs_iq4_above), x = v.v[0];
    __m512i i = _mm512_set1_epi32(7);
    for (int half = 8; half; half /= 2) {
        const __m512 middle = _mm512_permutexvar_ps(i, above);
        const __mmask16 m = _mm512_cmp_ps_mask(x, middle, _CMP_GT_OQ);
        /* on to the middle of the upper or of the lower half; at last to the level itself */
        const int quarter = half / 2;
        i = _mm512_mask_add_epi32(_mm512_sub_epi32(i, _mm512_set1_epi32(quarter)), m, i,
                                  _mm512_set1_epi32(half > 1 ? quarter : 1));
    }
    r.v[0] = _mm512_permutexvar_ps(i, _mm512_loadu_ps(table));
#elif defined(__AVX2__)
    HS_EACH(r.v[k] = hs_iq4_part(v.v[k], table));
#else
    float f[hs_lanes];
    hs_vstore(f, v);
    for (int k = 0; k < hs_lanes; k++)
        f[k] = hs_iq4_one(f[k], table);
    r = hs_vload(f);
#endif
    return r;
}

/* Of 16 places where the largest magnitude may come to lie, on either side, the best after two
 * refinements. */
HS_SEARCH float hs_iq4_search(const float *x, const float *w)
{
    static const float place[hs_lanes] = {-132, -127, -122, -117, -112, -107, -102, -97,
                                          121,  116,  111,  106,  101,  96,   91,   86};
    const float m = hs_peak(x, 32);
    if (m == 0)
        return 0;
    const hs_vec zero = hs_vsplat(0);
    hs_vec inverse = hs_vinverse(hs_vdiv(hs_vsplat(m), hs_vload(place)));
    hs_vec best = hs_vsplat(m / -127), most = zero;
    for (int pass = 0; pass < 3; pass++) {
        hs_vec qx = zero, qq = zero;
        for (size_t i = 0; i < 32; i++) {
            const hs_vec vx = hs_vsplat(x[i]);
            const hs_vec q = hs_iq4_nearest(hs_vmul(vx, inverse), hs_iq4_value);
            const hs_vec wq = w ? hs_vmul(hs_vsplat(w[i]), q) : q;
            qx = hs_vadd(qx, hs_vmul(wq, vx));
            qq = hs_vadd(qq, hs_vmul(wq, q));
        }
        const hs_vec s = hs_vif_less(zero, qq, hs_vdiv(qx, qq), zero), g = hs_vmul(s, qx);
        best = hs_vif_less(most, g, s, best);
        most = hs_vif_less(most, g, g, most);
        inverse = hs_vinverse(s);
    }
    float scale[hs_lanes];
    hs_vstore(scale, best);
    return scale[hs_vleast_lane(hs_vsub(zero, most), 0)];
}

/* 32 elements: low nibble element j, high nibble element j + 16. */
HS_SEARCH void hs_iq4_put(uint8_t *p, const float *x, float step)
{
    const hs_vec inverse = hs_vsplat(hs_inverse(step));
    uint8_t low[16], high[16];
    hs_vstore_bytes(low, hs_iq4_nearest(hs_vmul(hs_vload(x), inverse), hs_iq4_index));
    hs_vstore_bytes(high, hs_iq4_nearest(hs_vmul(hs_vload(x + 16), inverse), hs_iq4_index));
    for (size_t j = 0; j < 16; j++)
        p[j] = (uint8_t)(low[j] | high[j] << 4);
}

HS_SEARCH void hs_iq4_nl_block(uint8_t *p, const float *x, const float *w)
{
    hs_put_f16(p, hs_iq4_search(x, w));
    hs_iq4_put(p + 2, x, hs_get_f16(p));
}

/* ---- IQ4_XS: 8 sub-blocks of 32, scale -32..31 -------------------------------------------- */

typedef struct hs_iq4_try {
    float d, scale[8], error;
} hs_iq4_try;

/* The best integers next to what sub-blocks s and s + 1 ask for. */
HS_SEARCH void hs_iq4_choose(hs_iq4_try *t, size_t s, const hs_two *two, const float *fit)
{
    static const float off[hs_lanes] = {-3, -2, -1, 0, 1, 2, 3, 4, -3, -2, -1, 0, 1, 2, 3, 4};
    const hs_vec few = hs_vsplat(-32), many = hs_vsplat(31);
    const float id = hs_inverse(t->d);
    const hs_vec near =
        hs_vpair(hs_nearest(fit[0] * id, -32, 31), hs_nearest(fit[1] * id, -32, 31));
    const hs_vec scale = hs_vround(hs_vadd(near, hs_vload(off)), few, many);
    const hs_vec step = hs_vmul(hs_vsplat(t->d), scale), inverse = hs_vinverse(step);
    hs_vec sum = hs_vsplat(0);
    for (size_t i = 0; i < 32; i++) {
        const hs_vec vx = hs_two_x(two, i);
        const hs_vec q = hs_iq4_nearest(hs_vmul(vx, inverse), hs_iq4_value);
        const hs_vec e = hs_vsub(vx, hs_vmul(step, q));
        sum = hs_vadd(sum, hs_two_weigh(two, i, hs_vmul(e, e)));
    }
    float error[hs_lanes], scales[hs_lanes];
    hs_vstore(error, sum);
    hs_vstore(scales, scale);
    for (size_t h = 0; h < 2; h++) { /* the nearest in the middle */
        const size_t best = hs_vleast_lane_half(sum, h, hs_half * h + 3);
        t->scale[s + h] = scales[best];
        t->error += error[best];
    }
}

HS_SEARCH float hs_iq4_refit(const hs_iq4_try *t, const float *x, const float *w)
{
    hs_vec vux = hs_vsplat(0), vuu = vux;
    for (size_t i = 0; i < 256; i += hs_lanes) {
        const float s = t->scale[i / 32];
        const hs_vec vx = hs_vload(x + i), inverse = hs_vsplat(hs_inverse(t->d * s));
        const hs_vec q = hs_iq4_nearest(hs_vmul(vx, inverse), hs_iq4_value);
        const hs_vec u = hs_vmul(hs_vsplat(s), q), wu = w ? hs_vmul(hs_vload(w + i), u) : u;
        vux = hs_vadd(vux, hs_vmul(wu, vx));
        vuu = hs_vadd(vuu, hs_vmul(wu, u));
    }
    const float ux = hs_vsum(vux), uu = hs_vsum(vuu);
    return uu > 0 ? hs_as_f16(ux / uu) : t->d;
}

HS_SEARCH hs_iq4_try hs_iq4_scales(const float *x, const float *w)
{
    float fit[hs_lanes] = {0};
    for (size_t s = 0; s < 8; s++)
        fit[s] = hs_iq4_search(x + 32 * s, w ? w + 32 * s : NULL);
    hs_iq4_try best = {.error = HUGE_VALF}, t = {0};
    best.d = t.d = hs_as_f16(hs_peak(fit, hs_lanes) / -32);
    for (int round = 0; round < 2; round++) {
        t.error = 0;
        for (size_t s = 0; s < 8; s += 2) {
            const hs_two two = hs_two_of(x, w, s, 32);
            hs_iq4_choose(&t, s, &two, fit + s);
        }
        if (!(t.error < best.error))
            break;
        best = t;
        if (round == 0)
            t.d = hs_iq4_refit(&t, x, w);
    }
    return best;
}

HS_SEARCH void hs_iq4_xs_block(uint8_t *p, const float *x, const float *w)
{
    const hs_iq4_try t = hs_iq4_scales(x, w);
    unsigned high = 0;
    memset(p, 0, 8);
    hs_put_f16(p, t.d);
    for (size_t s = 0; s < 8; s++) {
        const unsigned scale = (unsigned)(t.scale[s] + 32);
        p[4 + s / 2] = (uint8_t)(p[4 + s / 2] | (scale & 15) << (s % 2 * 4));
        high |= scale >> 4 << (2 * s);
        hs_iq4_put(p + 8 + 16 * s, x + 32 * s, t.d * t.scale[s]);
    }
    p[2] = (uint8_t)high;
    p[3] = (uint8_t)(high >> 8);
}

#endif
