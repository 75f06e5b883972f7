/* IQ4_NL and IQ4_XS: levels out of a table, closer together near zero. */
#include "formats/quant.h"
#include "formats/quant_search.h"

enum {
    BLOCK = 32,
    SUPER = 256,
    IQ4_NL_BYTES = 2 + BLOCK / 2,
    IQ4_XS_BYTES = 2 + 2 + SUPER / 64 + SUPER / 2,
    TRIES = 7,
};
_Static_assert(IQ4_NL_BYTES == 18 && IQ4_XS_BYTES == 136, "block sizes");

static const int8_t value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

/* The level nearest to v: above[i] is the middle between values i and i + 1. */
static unsigned level(float v)
{
    static const float above[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                    7,       19,     31.5f, 45.5f, 61,  79,     101};
    unsigned i = v > above[7] ? 8 : 0;
    i += v > above[i + 3] ? 4 : 0;
    i += v > above[i + 1] ? 2 : 0;
    return i + (v > above[i] ? 1 : 0);
}

/* ---- the scale of 32 elements ------------------------------------------------------------ */

typedef struct sums {
    float qx, qq;
} sums;

static sums add_up(const float *x, const float *w, float inverse)
{
    sums s = {0, 0};
    for (size_t i = 0; i < BLOCK; i++) {
        const float q = (float)value[level(x[i] * inverse)], wq = w[i] * q;
        s.qx += wq * x[i];
        s.qq += wq * q;
    }
    return s;
}

/* Of several places where the largest magnitude may come to lie, on either side, the best two
 * times refined. */
static float search(const float *x, const float *w)
{
    const float m = hs_extreme(x, BLOCK);
    if (m == 0)
        return 0;
    float best = m / -127, most = 0;
    for (int k = 0; k < 2 * TRIES + 2; k++) {
        const float at = k < TRIES       ? -(132 - 5 * (float)k)
                         : k < 2 * TRIES ? 121 - 5 * (float)(k - TRIES)
                                         : m / best;
        const sums s = add_up(x, w, hs_inverse(m / at));
        const float scale = s.qq > 0 ? s.qx / s.qq : 0;
        if (scale * s.qx > most) {
            most = scale * s.qx;
            best = scale;
        }
    }
    return best;
}

static float error(const float *x, const float *w, float step)
{
    const float inverse = hs_inverse(step);
    float sum = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        const float e = x[i] - step * (float)value[level(x[i] * inverse)];
        sum += w[i] * (e * e);
    }
    return sum;
}

static void put_levels(uint8_t *p, const float *x, float step)
{
    const float inverse = hs_inverse(step);
    for (size_t j = 0; j < BLOCK / 2; j++)
        p[j] = (uint8_t)(level(x[j] * inverse) | level(x[j + BLOCK / 2] * inverse) << 4);
}

static void get_values(float *y, const uint8_t *p, float step)
{
    for (size_t j = 0; j < BLOCK / 2; j++) {
        y[j] = step * (float)value[p[j] & 15];
        y[j + BLOCK / 2] = step * (float)value[p[j] >> 4];
    }
}

/* ---- IQ4_NL: | f16 d | 16 bytes: low nibble element j, high nibble element j + 16 | -------- */

void hs_iq4_nl_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= BLOCK, p += IQ4_NL_BYTES, dst += BLOCK)
        get_values(dst, p + 2, hs_get_f16(p));
}

static void iq4_nl_encode(uint8_t *p, const float *x, const float *weight, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK, p += IQ4_NL_BYTES) {
        float w[BLOCK];
        hs_importance(w, weight ? weight + i : NULL, BLOCK);
        hs_put_f16(p, search(x + i, w));
        put_levels(p + 2, x + i, hs_get_f16(p));
    }
}

void hs_iq4_nl_encode(void *dst, const float *src, size_t n) { iq4_nl_encode(dst, src, NULL, n); }

void hs_iq4_nl_encode_weighted(void *dst, const float *src, const float *weight, size_t n)
{
    iq4_nl_encode(dst, src, weight, n);
}

/* ---- IQ4_XS: | f16 d | u16 high | 4 bytes low | 8 x 16 bytes as in IQ4_NL | ----------------
 *
 * d (scale - 32) for 8 sub-blocks of 32.  Scale s has its low four bits in byte s / 2 of low
 * (odd: the upper nibble), the high two in bits 2 s, 2 s + 1 of high. */

void hs_iq4_xs_decode(float *dst, const void *src, size_t n)
{
    const uint8_t *p = src;
    for (; n; n -= SUPER, p += IQ4_XS_BYTES, dst += SUPER) {
        const float d = hs_get_f16(p);
        const unsigned high = hs_get_u16(p + 2);
        for (size_t s = 0; s < 8; s++) {
            const unsigned low = p[4 + s / 2], upper = high >> (2 * s) & 3;
            const unsigned scale = (low >> (s % 2 * 4) & 15) | upper << 4;
            get_values(dst + BLOCK * s, p + 8 + BLOCK / 2 * s, d * (float)((int)scale - 32));
        }
    }
}

typedef struct choice {
    float d, scale[8], error;
} choice;

/* The best integers next to what the sub-blocks ask for. */
static void choose(choice *c, const float *x, const float *w, const float *fit)
{
    c->error = 0;
    for (size_t s = 0; s < 8; s++, x += BLOCK, w += BLOCK) {
        const float middle = hs_nearest(fit[s] * hs_inverse(c->d), -32, 31);
        c->scale[s] = middle;
        float least = error(x, w, c->d * middle);
        for (int k = -1; k <= 1; k += 2) {
            const float scale = hs_nearest(middle + (float)k, -32, 31);
            const float e = error(x, w, c->d * scale);
            if (e < least) {
                least = e;
                c->scale[s] = scale;
            }
        }
        c->error += least;
    }
}

static float refit(const choice *c, const float *x, const float *w)
{
    float ux = 0, uu = 0;
    for (size_t s = 0; s < 8; s++) {
        const sums a = add_up(x + BLOCK * s, w + BLOCK * s, hs_inverse(c->d * c->scale[s]));
        ux += c->scale[s] * a.qx;
        uu += c->scale[s] * c->scale[s] * a.qq;
    }
    return uu > 0 ? hs_as_f16(ux / uu) : c->d;
}

static choice encode_super(const float *x, const float *w)
{
    float fit[8];
    for (size_t s = 0; s < 8; s++)
        fit[s] = search(x + BLOCK * s, w + BLOCK * s);
    choice best, c = {.d = hs_as_f16(hs_extreme(fit, 8) / -32)};
    choose(&c, x, w, fit);
    best = c;
    c.d = refit(&c, x, w);
    choose(&c, x, w, fit);
    return c.error < best.error ? c : best;
}

static void iq4_xs_encode(uint8_t *p, const float *x, const float *weight, size_t n)
{
    for (size_t i = 0; i < n; i += SUPER, p += IQ4_XS_BYTES) {
        float w[SUPER];
        hs_importance(w, weight ? weight + i : NULL, SUPER);
        const choice c = encode_super(x + i, w);
        unsigned high = 0;
        memset(p, 0, 8);
        hs_put_f16(p, c.d);
        for (size_t s = 0; s < 8; s++) {
            const unsigned scale = (unsigned)(c.scale[s] + 32);
            p[4 + s / 2] = (uint8_t)(p[4 + s / 2] | (scale & 15) << (s % 2 * 4));
            high |= scale >> 4 << (2 * s);
            put_levels(p + 8 + BLOCK / 2 * s, x + i + BLOCK * s, c.d * c.scale[s]);
        }
        p[2] = (uint8_t)high;
        p[3] = (uint8_t)(high >> 8);
    }
}

void hs_iq4_xs_encode(void *dst, const float *src, size_t n) { iq4_xs_encode(dst, src, NULL, n); }

void hs_iq4_xs_encode_weighted(void *dst, const float *src, const float *weight, size_t n)
{
    iq4_xs_encode(dst, src, weight, n);
}
