/* Measuring: every figure is there and sane, on the CPU and on the device compiled for it. */
#include "tools/profile/measure.h"

#include "runtime/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static hs_measure quick(void)
{
    hs_measure p = hs_measure_defaults();
    assert_int_equal(p.threads, hs_cpu_count());
    p.threads = 3;
    p.repetitions = 2;
    p.seconds = 1e-4;
    p.bytes = 1 << 20;
    return p;
}

static void rates_of_the_cpu(void **state)
{
    (void)state;
    const hs_measure p = quick();
    hs_machine m;
    hs_machine_init(&m);
    hs_err err = {0};
    if (hs_measure_cpu(&m.cpu, &p, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(m.cpu.bandwidth.n, 3);
    const uint64_t threads[3] = {1, 2, 3};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(m.cpu.bandwidth.point[i].at, threads[i]);
        assert_true(m.cpu.bandwidth.point[i].rate > 1e3);
        assert_true(m.cpu.bandwidth.point[i].spread >= 0);
    }
    const hs_dtype type[] = {HS_F32, HS_F16, HS_BF16, HS_Q8_0, HS_Q6_K, HS_Q4_0};
    for (size_t i = 0; i < sizeof type / sizeof *type; i++) {
        assert_true(m.cpu.type[type[i]].dense > 1e3);
        assert_true(m.cpu.type[type[i]].sparse > 1e3);
    }
    assert_true(m.cpu.memory > 1 << 20);
}

static void rates_of_a_device(void **state)
{
    (void)state;
    hs_measure p = quick();
    p.repetitions = 1;
    p.bytes = 1 << 14;
    hs_machine_device d;
    hs_err err = {0};
    if (hs_measure_device(&d, hs_device_emu(), 0, &p, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_true(d.bandwidth > 1e3);
    assert_int_equal(d.upload.n, 4);
    assert_int_equal(d.download.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_true(d.upload.point[i].rate > 1e3);
        assert_true(d.download.point[i].rate > 1e3);
    }
    assert_true(d.sync_s >= 0 && d.sync_s < 10 && d.latency_s >= 0 && d.latency_s < 10);
    assert_true(d.type[HS_Q4_0].dense > 1e3);
}

static bool stop(void *ud, uint64_t done, uint64_t total)
{
    (void)ud;
    (void)done;
    (void)total;
    return false;
}

static void can_be_interrupted(void **state)
{
    (void)state;
    hs_measure p = quick();
    p.progress = stop;
    hs_machine m;
    hs_machine_init(&m);
    assert_int_equal(hs_measure_cpu(&m.cpu, &p, NULL), HS_ERR_INTERRUPTED);
    assert_int_equal(hs_measure_device(&m.device[0], hs_device_emu(), 0, &p, NULL),
                     HS_ERR_INTERRUPTED);
}

/* 1, 2, 3: mean 2, standard deviation 1. */
static void means(void **state)
{
    (void)state;
    const double v[3] = {1, 2, 3};
    double mean, spread;
    hs_measure_mean(&mean, &spread, v, 3);
    assert_true(mean > 1.999999 && mean < 2.000001);
    assert_true(spread > 0.499999 && spread < 0.500001);
    hs_measure_mean(&mean, &spread, v, 1);
    assert_true(spread >= 0 && spread <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_of_the_cpu),
        cmocka_unit_test(rates_of_a_device),
        cmocka_unit_test(can_be_interrupted),
        cmocka_unit_test(means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
