#include "runtime/act.h"
#include "runtime/mathx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static float from_bits(uint32_t u)
{
    const hs_f32_bits v = {.u = u};
    return v.f;
}

static uint32_t bits(float f)
{
    const hs_f32_bits v = {.f = f};
    return v.u;
}

static void check_exp(float x)
{
    const double want = exp((double)x), got = (double)hs_expf(x);
    assert_true(fabs(got - want) <= 0x1p-22 * want);
}

/* The stated accuracy, over the whole range and densely where softmax lives. */
static void exp_accuracy(void **state)
{
    (void)state;
    for (double x = -87.29; x < 88.69; x += 0.00137)
        check_exp((float)x);
    for (double x = 1e-30; x < 80; x *= 1.003) {
        check_exp((float)x);
        check_exp((float)-x);
    }
    /* Half-way between two k, where r is largest. */
    for (int k = -125; k < 127; k++)
        for (int ulps = -3; ulps <= 3; ulps++)
            check_exp(from_bits(bits((float)((k + 0.5) * 0.6931471805599453)) + (uint32_t)ulps));
}

static void exp_edges(void **state)
{
    (void)state;
    assert_true(hs_expf(0.0f) == 1.0f);
    assert_true(hs_expf(-0.0f) == 1.0f);
    assert_true(hs_expf(from_bits(1)) == 1.0f);
    assert_int_equal(bits(hs_expf(-87.3f)), 0);
    assert_int_equal(bits(hs_expf(-INFINITY)), 0);
    assert_int_equal(bits(hs_expf(-3e38f)), 0);
    assert_true(hs_expf(-87.29f) > 0);
    assert_true(isfinite(hs_expf(88.7f)));
    assert_true(isinf(hs_expf(from_bits(bits(88.7f) + 1))));
    assert_true(isinf(hs_expf(INFINITY)));
    assert_int_equal(bits(hs_expf(NAN)), 0x7fc00000);
    assert_int_equal(bits(hs_expf(-NAN)), 0x7fc00000);
}

static void exp_never_falls(void **state)
{
    (void)state;
    float last = 0;
    for (double x = -90; x < 90; x += 0.01) {
        const float e = hs_expf((float)x);
        assert_true(e >= last);
        last = e;
    }
}

/* act.h rests on it: the gate functions against libm in double. */
static void activations(void **state)
{
    (void)state;
    for (double g = -30; g < 30; g += 0.0173) {
        const float x = (float)g;
        const double gd = (double)x;
        const double silu = gd / (1 + exp(-gd));
        const double gelu = 0.5 * gd * (1 + erf(gd * 0.70710678118654752));
        const double a = 0.7978845608028654 * (gd + 0.044715 * gd * gd * gd);
        const double gelu_tanh = 0.5 * gd * (1 + tanh(a));
        const double tolerance = 1e-6 * (1 + fabs(gd));
        assert_true(fabs((double)hs_act_gate(HS_FN_SILU, 0, x) - silu) < tolerance);
        assert_true(fabs((double)hs_act_gate(HS_FN_GELU, 0, x) - gelu) < tolerance);
        assert_true(fabs((double)hs_act_gate(HS_FN_GELU_TANH, 0, x) - gelu_tanh) < tolerance);
        assert_true(hs_act_gate(HS_FN_RELU, 0, x) == (x > 0 ? x : 0));
        assert_true(hs_act_gate(HS_FN_FATRELU, 0.5f, x) == (x > 0.5f ? x : 0));
        assert_true(hs_act_up(HS_FN_DRELU, x) == (x > 0 ? x : 0));
        assert_true(hs_act_up(HS_FN_RELU, x) == x);
    }
    for (int fn = HS_FN_RELU; fn <= HS_FN_GELU_TANH; fn++)
        assert_true(isnan(hs_act_gate((hs_act_fn)fn, 0, NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_accuracy),
        cmocka_unit_test(exp_edges),
        cmocka_unit_test(exp_never_falls),
        cmocka_unit_test(activations),
    };
    return cmocka_run_group_tests_name("mathx", tests, NULL, NULL);
}
