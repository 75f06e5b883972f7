#include "formats/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void the_table_is_whole(void **state)
{
    (void)state;
    size_t known = 0;
    for (uint32_t id = 0; id < HS_DTYPE_LIMIT + 10; id++) {
        const hs_dtype_info *t = hs_dtype_get(id);
        if (!t) {
            assert_string_equal(hs_dtype_name(id), "?");
            continue;
        }
        known++;
        assert_int_equal(t->id, id);
        assert_ptr_equal(hs_dtype_by_name(t->name), t);
        assert_string_equal(hs_dtype_name(id), t->name);
        assert_true(t->block_elems == 1 || t->block_elems == 32 || t->block_elems == 256);
        assert_true((t->decode == NULL) == (t->encode == NULL));
    }
    assert_int_equal(known, 20);
    assert_null(hs_dtype_get(UINT32_MAX));
    assert_ptr_equal(hs_dtype_by_name("q4_0"), hs_dtype_get(HS_Q4_0));
    assert_null(hs_dtype_by_name("Q4_K_M"));
    assert_null(hs_dtype_by_name(""));
    static const hs_dtype computed[] = {HS_F32,  HS_F16,  HS_BF16, HS_Q8_0,   HS_Q5_0,
                                        HS_Q4_0, HS_Q6_K, HS_Q4_1, HS_Q5_1,   HS_Q2_K,
                                        HS_Q3_K, HS_Q4_K, HS_Q5_K, HS_IQ4_NL, HS_IQ4_XS};
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        assert_non_null(hs_dtype_get(computed[i])->decode);
    assert_null(hs_dtype_get(HS_I32)->decode);
}

static void rows_have_sizes(void **state)
{
    (void)state;
    uint64_t n;
    assert_true(hs_dtype_row_bytes(HS_F32, 3, &n) && n == 12);
    assert_true(hs_dtype_row_bytes(HS_Q4_0, 64, &n) && n == 36);
    assert_true(hs_dtype_row_bytes(HS_Q6_K, 512, &n) && n == 420);
    assert_true(hs_dtype_row_bytes(HS_Q6_K, 0, &n) && n == 0);
    assert_false(hs_dtype_row_bytes(HS_Q6_K, 255, &n));
    assert_false(hs_dtype_row_bytes(HS_Q4_0, 33, &n));
    assert_false(hs_dtype_row_bytes(99, 32, &n));
    assert_false(hs_dtype_row_bytes(HS_F32, UINT64_MAX / 2, &n));
    assert_false(hs_dtype_row_bytes(HS_Q8_0, UINT64_MAX / 32 * 32, &n));
}

/* The value of a half from its definition. */
static double half_value(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e == 0    ? ldexp(m, -24)
                     : e == 31 ? (double)(m ? NAN : INFINITY)
                               : ldexp(1024 + m, e - 25);
    return h & 0x8000 ? -v : v;
}

static void decodes_every_half(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const double want = half_value((uint16_t)h);
        const float got = hs_f16_to_f32((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            const uint16_t back = hs_f32_to_f16(got);
            assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff));
            assert_int_equal(back & 0x8000, h & 0x8000);
            continue;
        }
        assert_true((double)got == want && !signbit(got) == !(h & 0x8000));
        assert_int_equal(hs_f32_to_f16(got), h);
    }
}

/* Between each half and the next: below, at and above the middle. */
static void rounds_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7c00; h++) {
        const double lo = half_value(h);
        const double hi = h == 0x7bff ? 65536 : half_value((uint16_t)(h + 1));
        const float mid = (float)((lo + hi) / 2); /* exact */
        const uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        assert_int_equal(hs_f32_to_f16(mid), even);
        assert_int_equal(hs_f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(hs_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(hs_f32_to_f16(-nextafterf(mid, INFINITY)), 0x8000 | (h + 1));
    }
    assert_int_equal(hs_f32_to_f16(0x1p-26f), 0);
    assert_int_equal(hs_f32_to_f16(0x1p-140f), 0);
    assert_int_equal(hs_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(hs_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(hs_f32_to_f16(65520), 0x7c00);
    assert_int_equal(hs_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(hs_f32_to_f16(-INFINITY), 0xfc00);
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void rounds_to_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        assert_int_equal(hs_f32_to_bf16(hs_bf16_to_f32((uint16_t)h)), h);
        assert_int_equal(hs_f32_to_bf16(from_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(hs_f32_to_bf16(from_bits(h << 16 | 0x8000)), h + (h & 1));
        assert_int_equal(hs_f32_to_bf16(from_bits(h << 16 | 0x8001)), h + 1);
        assert_int_equal(hs_f32_to_bf16(from_bits(h << 16 | 0x80008001)), 0x8000 | (h + 1));
    }
    assert_int_equal(hs_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(hs_f32_to_bf16(from_bits(0x7f800001)), 0x7fc0);
    assert_int_equal(hs_f32_to_bf16(from_bits(0xffffffff)), 0xffff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_whole), cmocka_unit_test(rows_have_sizes),
        cmocka_unit_test(decodes_every_half), cmocka_unit_test(rounds_to_the_nearest_half),
        cmocka_unit_test(rounds_to_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
