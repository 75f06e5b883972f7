/* The lists of hotset-bench's options, and its statistics. */
#include "tools/bench/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void is(const char *text, size_t n, const int64_t *want)
{
    hs_bench_list l;
    if (!hs_bench_list_parse(&l, text, 0, 1000))
        fail_msg("'%s' is a list", text);
    assert_int_equal(l.n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(l.v[i], want[i]);
}
#define IS(text, ...) \
    is(text, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static void lists(void **state)
{
    (void)state;
    IS("7", 7);
    IS("0", 0);
    IS("1,2,8", 1, 2, 8);
    IS("1-4", 1, 2, 3, 4);
    IS("16-64+16", 16, 32, 48, 64);
    IS("16-63+16", 16, 32, 48);
    IS("1-8*2", 1, 2, 4, 8);
    IS("1-9*3,5", 1, 3, 9, 5);
    IS("990-1000+7", 990, 997);
    IS("5-5", 5);
}

static void no_lists(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       ",",     "1,",    ",1",     "1,,2",
                                      "x",      "1x",    "-1",    "4-2",    "1-",
                                      "1-4+0",  "1-4*1", "0-4*2", "1-4/2",  "1001",
                                      "1-1001", "1 ",    " 1",    "0-1000", "99999999999999999999"};
    hs_bench_list l;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (hs_bench_list_parse(&l, bad[i], 0, 1000))
            fail_msg("'%s' is no list", bad[i]);
    assert_false(hs_bench_list_parse(&l, "0", 1, 8));
    assert_true(hs_bench_list_parse(&l, "9223372036854775807", 0, INT64_MAX));
    assert_false(hs_bench_list_parse(&l, "1-9223372036854775807", 0, INT64_MAX));
    assert_true(hs_bench_list_parse(&l, "9223372036854775806-9223372036854775807", 0, INT64_MAX));
}

static void statistics(void **state)
{
    (void)state;
    double v[] = {4, 1, 3, 2};
    assert_true(hs_bench_mean(v, 4) == 2.5);
    assert_true(hs_bench_median(v, 4) == 2.5);
    assert_true(hs_bench_median(v, 3) == 2);
    const double d = hs_bench_deviation((double[]){1, 3}, 2);
    assert_true(d > 1.41421 && d < 1.41422);
    assert_true(hs_bench_deviation(v, 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(no_lists),
        cmocka_unit_test(statistics),
    };
    return cmocka_run_group_tests_name("bench", tests, NULL, NULL);
}
