/* Machine files: what is read, what is refused and how, and that writing is reading's inverse. */
#include "formats/machine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static hs_machine m, n;

static void must_parse(hs_machine *out, const char *text)
{
    hs_err err = {0};
    if (hs_machine_parse(out, text, strlen(text), &err) != HS_OK)
        fail_msg("%s", err.msg);
}

static void test_least(void **state)
{
    (void)state;
    must_parse(&m,
               "{\"version\":1,\"cpu\":{\"bandwidth\":60e9},\"devices\":[{\"bandwidth\":9e11}]}");
    assert_true(hs_machine_cpu_rate(&m.cpu, HS_Q4_0, true, 0) == 60e9);
    assert_true(hs_machine_cpu_rate(&m.cpu, HS_Q4_0, true, 3) == 60e9);
    assert_int_equal(m.n_devices, 1);
    assert_true(hs_machine_device_rate(&m.device[0], HS_F16, false) == 9e11);
    assert_true(m.device[0].sync_s == 20e-6);
    assert_true(fabs(hs_machine_upload_s(&m.device[0], 12000) - 11e-6) < 1e-12);
    must_parse(&m, "{\"version\":1,\"cpu\":{\"bandwidth\":60e9}}");
    assert_int_equal(m.n_devices, 0);
}

static const char full[] =
    "{\"version\":1,\"note\":\"n\",\"cpu\":{\"name\":\"c\",\"memory\":1000,"
    "\"bandwidth\":[{\"threads\":1,\"rate\":1e10,\"spread\":0.5},{\"threads\":3,\"rate\":3e10},"
    "{\"threads\":8,\"rate\":2e10}],"
    "\"types\":{\"Q4_0\":{\"dense\":2e10,\"sparse\":1e10,\"sparse_spread\":0.25},"
    "\"F16\":{\"dense\":15e9}}},"
    "\"devices\":[{\"name\":\"d\",\"memory\":77,\"context_bytes\":5,\"bandwidth\":1e12,"
    "\"spread\":0.125,\"latency_s\":1e-6,\"sync_s\":0,"
    "\"upload\":[{\"bytes\":100,\"rate\":1e6},{\"bytes\":200,\"rate\":2e6}],\"download\":4e9,"
    "\"types\":{\"Q4_0\":{\"sparse\":1e11}}},{\"bandwidth\":1e11}]}";

static void test_full(void **state)
{
    (void)state;
    must_parse(&m, full);
    assert_string_equal(m.note, "n");
    assert_string_equal(m.cpu.name, "c");
    assert_int_equal(m.cpu.memory, 1000);
    assert_int_equal(m.cpu.bandwidth.n, 3);
    assert_true(m.cpu.bandwidth.point[0].spread == 0.5);
    /* Threads: interpolated, and the type's figure scaled from the fastest number. */
    assert_true(hs_machine_at(&m.cpu.bandwidth, 2) == 2e10);
    assert_true(hs_machine_at(&m.cpu.bandwidth, 100) == 2e10);
    assert_true(fabs(hs_machine_cpu_rate(&m.cpu, HS_Q4_0, true, 1) / 1e10 - 1 / 3.0) < 1e-12);
    assert_true(hs_machine_cpu_rate(&m.cpu, HS_Q4_0, false, 3) == 2e10);
    assert_true(hs_machine_cpu_rate(&m.cpu, HS_F16, true, 0) == 15e9); /* as dense */
    assert_true(hs_machine_cpu_rate(&m.cpu, HS_F32, true, 0) == 3e10); /* as memory */
    assert_int_equal(m.n_devices, 2);
    const hs_machine_device *d = &m.device[0];
    assert_int_equal(d->context_bytes, 5);
    assert_true(d->spread == 0.125 && d->sync_s == 0 && d->latency_s == 1e-6);
    assert_true(hs_machine_device_rate(d, HS_Q4_0, false) == 1e11);
    assert_true(fabs(hs_machine_upload_s(d, 150) - 101e-6) < 1e-12);
    assert_true(fabs(hs_machine_download_s(d, 4000) - 2e-6) < 1e-12);
}

static const struct {
    const char *text, *expected;
} refused[] = {
    {"{}", "version: expected 1"},
    {"{\"version\":2,\"cpu\":{\"bandwidth\":1e9}}", "version: expected 1"},
    {"{\"version\":1}", "cpu: missing"},
    {"{\"version\":1,\"cpu\":{}}", "cpu.bandwidth: missing"},
    {"{\"version\":1,\"cpu\":[]}", "cpu: expected an object"},
    {"{\"version\":1,\"cpus\":{\"bandwidth\":1e9}}",
     "machine: unknown key 'cpus'; did you mean 'cpu'?"},
    {"{\"version\":1,\"cpu\":{\"bandwidht\":1e9}}",
     "cpu: unknown key 'bandwidht'; did you mean 'bandwidth'?"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":60}}",
     "cpu.bandwidth: expected a number from 1000 to 1e+16"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":-6e9}}",
     "cpu.bandwidth: expected a number from 1000 to 1e+16"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":\"6e9\"}}",
     "cpu.bandwidth: expected a number or a list of 1 to 64 points"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":[]}}",
     "cpu.bandwidth: expected a number or a list of 1 to 64 points"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":[{\"threads\":1}]}}",
     "cpu.bandwidth[0]: expected \"threads\" of at least 1 and a \"rate\""},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":[{\"bytes\":1,\"rate\":1e9}]}}",
     "cpu.bandwidth[0]: unknown key 'bytes'; did you mean 'rate'?"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":[{\"threads\":2,\"rate\":1e9},{\"threads\":2,\"rate\":"
     "1e9}]}}",
     "cpu.bandwidth[1].threads: expected more than the 2 before it"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9,\"memory\":-1}}",
     "cpu.memory: expected a whole number from 0 to 2^56"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9,\"memory\":1.5}}",
     "cpu.memory: expected a whole number from 0 to 2^56"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9,\"name\":3}}",
     "cpu.name: expected a text of at most 511 bytes"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9,\"types\":{\"Q9\":{}}}}",
     "cpu.types: 'Q9' is no tensor type"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9,\"types\":{\"q4_0\":{\"dens\":1e9}}}}",
     "cpu.types.Q4_0: unknown key 'dens'; did you mean 'dense'?"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9,\"types\":{\"q4_0\":{\"dense\":0}}}}",
     "cpu.types.Q4_0.dense: expected a number from 1000 to 1e+16"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9},\"devices\":{}}",
     "devices: expected a list of at most 8"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9},\"devices\":[{}]}",
     "devices[0].bandwidth: missing"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9},\"devices\":[{\"bandwidth\":1e9,\"sync_s\":11}]}",
     "devices[0].sync_s: expected a number from 0 to 10"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e9},\"devices\":[{\"bandwidth\":1e9,\"syncs\":1}]}",
     "devices[0]: unknown key 'syncs'; did you mean 'sync_s'?"},
    {"{\"version\":1,\"cpu\":{\"bandwidth\":1e400}}", "line 1, column"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        hs_err err = {0};
        assert_int_equal(hs_machine_parse(&m, refused[i].text, strlen(refused[i].text), &err),
                         HS_ERR_FORMAT);
        if (strncmp(err.msg, refused[i].expected, strlen(refused[i].expected)) != 0)
            fail_msg("%s: '%s'", refused[i].text, err.msg);
    }
}

static char *path_of(char *buf, size_t cap, const char *name)
{
    snprintf(buf, cap, "/tmp/hotset-test-machine-%ld-%s", (long)getpid(), name);
    return buf;
}

static void write_file(const hs_machine *x, const char *path)
{
    hs_out *out;
    hs_err err = {0};
    if (hs_out_open(&out, path, true, &err) != HS_OK || hs_machine_write(x, out, &err) != HS_OK ||
        hs_out_commit(out, false, &err) != HS_OK)
        fail_msg("%s", err.msg);
}

static void test_round_trip(void **state)
{
    (void)state;
    char a[96], b[96];
    path_of(a, sizeof a, "a");
    path_of(b, sizeof b, "b");
    hs_err err = {0};
    must_parse(&m, full);
    write_file(&m, a);
    if (hs_machine_read(&n, a, &err) != HS_OK)
        fail_msg("%s", err.msg);
    assert_memory_equal(&m.cpu.bandwidth, &n.cpu.bandwidth, sizeof m.cpu.bandwidth);
    assert_memory_equal(m.cpu.type, n.cpu.type, sizeof m.cpu.type);
    for (size_t i = 0; i < 2; i++) {
        assert_memory_equal(m.device[i].type, n.device[i].type, sizeof m.device[i].type);
        assert_memory_equal(&m.device[i].upload, &n.device[i].upload, sizeof m.device[i].upload);
        assert_true(m.device[i].bandwidth == n.device[i].bandwidth);
        assert_true(m.device[i].latency_s == n.device[i].latency_s);
        assert_true(m.device[i].sync_s == n.device[i].sync_s);
        assert_true(m.device[i].memory == n.device[i].memory);
        assert_true(m.device[i].context_bytes == n.device[i].context_bytes);
        assert_string_equal(m.device[i].name, n.device[i].name);
    }
    write_file(&n, b);
    assert_true(!hs_same_file(a, b));
    hs_map x, y;
    assert_int_equal(hs_map_open(&x, a, &err), HS_OK);
    assert_int_equal(hs_map_open(&y, b, &err), HS_OK);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    hs_map_close(&x);
    hs_map_close(&y);
    unlink(a);
    unlink(b);
}

/* What could not be read back is not written. */
static void test_bad_figures(void **state)
{
    (void)state;
    char path[96];
    hs_out *out;
    hs_err err = {0};
    path_of(path, sizeof path, "c");
    for (int i = 0; i < 3; i++) {
        must_parse(&m, full);
        if (i == 0)
            m.cpu.bandwidth.point[1].rate = (double)NAN;
        else if (i == 1)
            m.device[1].sync_s = 99;
        else
            memcpy(m.note, "\xff", 2);
        assert_int_equal(hs_out_open(&out, path, true, &err), HS_OK);
        assert_int_not_equal(hs_machine_write(&m, out, &err), HS_OK);
        hs_out_abort(out);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    assert_int_equal(hs_machine_read(&m, path, &err), HS_ERR_INPUT);
}

/* The files that come with us say where their figures are from. */
static void test_shipped(void **state)
{
    (void)state;
    static const char *const files[] = {"rtx4090-ddr5", "rtx3060-ddr4", "rtx2080ti-ddr4"};
    for (size_t i = 0; i < 3; i++) {
        char path[96];
        hs_err err = {0};
        snprintf(path, sizeof path, "data/machines/%s.json", files[i]);
        if (hs_machine_read(&m, path, &err) != HS_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(m.n_devices, 1);
        assert_non_null(strstr(m.note, "specification"));
        assert_true(m.device[0].bandwidth > 3 * hs_machine_cpu_rate(&m.cpu, HS_F16, false, 0));
        assert_true(m.device[0].memory > m.device[0].context_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least),       cmocka_unit_test(test_full),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_bad_figures), cmocka_unit_test(test_shipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
