#ifndef HS_RUNTIME_ACT_H
#define HS_RUNTIME_ACT_H

/* The FFN activation functions, shared by the CPU and the device source.  With a gate,
 * z = hs_act_gate(g) * hs_act_up(u); without one, z = hs_act_gate(u).  A neuron is active when
 * both factors are non-zero as activation outputs: hs_act_gate != 0, for dReLU also
 * relu(u) != 0. */

#include "runtime/mathx.h"

#include <stdbool.h>

typedef enum hs_act_fn {
    HS_FN_RELU,
    HS_FN_DRELU,   /* relu(gate) * relu(up): bamboo */
    HS_FN_FATRELU, /* gate where gate > param, else 0 */
    HS_FN_SILU,
    HS_FN_GELU,
    HS_FN_GELU_TANH,
} hs_act_fn;

/* True when inactive neurons exist: the output is exactly zero on a half-line. */
HS_MATHX bool hs_act_is_sparse(hs_act_fn fn) { return fn <= HS_FN_FATRELU; }

/* erf from the same few operations as hs_expf, so that it has the same bits everywhere, which
 * erff of different libraries has not.  Abramowitz and Stegun 7.1.26; with f32 rounding the error
 * is below 6e-7, absolute. */
HS_MATHX float hs_erff(float x)
{
    const float a = x < 0 ? -x : x;
    const float t = 1.0f / hs_addf(1.0f, hs_mulf(0.3275911f, a));
    float p = 1.061405429f;
    p = hs_addf(hs_mulf(p, t), -1.453152027f);
    p = hs_addf(hs_mulf(p, t), 1.421413741f);
    p = hs_addf(hs_mulf(p, t), -0.284496736f);
    p = hs_addf(hs_mulf(p, t), 0.254829592f);
    const float y = hs_addf(1.0f, -hs_mulf(hs_mulf(p, t), hs_expf(-hs_mulf(a, a))));
    return x < 0 ? -y : y;
}

HS_MATHX float hs_act_gate(hs_act_fn fn, float param, float g)
{
    switch (fn) {
    case HS_FN_RELU:
    case HS_FN_DRELU: return g > 0 ? g : g != g ? g : 0;
    case HS_FN_FATRELU: return g > param ? g : g != g ? g : 0;
    case HS_FN_SILU: return g / hs_addf(1.0f, hs_expf(-g));
    case HS_FN_GELU:
        return hs_mulf(hs_mulf(0.5f, g), hs_addf(1.0f, hs_erff(hs_mulf(g, 0.70710678f))));
    case HS_FN_GELU_TANH: {
        /* 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))), tanh(a) = 1 - 2 / (exp(2a) + 1) */
        const float g3 = hs_mulf(hs_mulf(g, g), g);
        const float a = hs_mulf(0.79788456f, hs_addf(g, hs_mulf(0.044715f, g3)));
        const float t = hs_addf(1.0f, -2.0f / hs_addf(hs_expf(hs_mulf(2.0f, a)), 1.0f));
        return hs_mulf(hs_mulf(0.5f, g), hs_addf(1.0f, t));
    }
    }
    return 0;
}

HS_MATHX float hs_act_up(hs_act_fn fn, float u) { return fn == HS_FN_DRELU && u <= 0 ? 0 : u; }

#endif
