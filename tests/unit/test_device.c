/* The device's memory, copies and failures, and its matrix product, as compiled for the CPU,
 * against the scalar kernels: equal to the bit, for all weight types and for sizes around the
 * widths of warps and blocks. */

#include "tests/unit/device_rig.h"

#include <pthread.h>

/* --- memory -------------------------------------------------------------------------- */

static void test_arena(void **state)
{
    (void)state;
    const hs_device_ops *ops = hs_device_emu();
    assert_string_equal(ops->name, "emu");
    hs_err err;
    assert_int_equal(ops->count(&err), 8);
    hs_device *dev;
    good(ops->open(&dev, 0, 256, &err), &err);
    uint64_t avail, total;
    good(ops->probe(0, &avail, &total, &err), &err);
    assert_true(avail > 0 && avail <= total);
    hs_buf a, b, c, none;
    good(ops->alloc(dev, 1, &a, &err), &err);
    good(ops->alloc(dev, 65, &b, &err), &err);
    assert_int_equal(a.offset, 0);
    assert_int_equal(b.offset, 64);
    assert_int_equal(b.bytes, 65);
    assert_int_equal(ops->used(dev), 192);
    assert_int_equal(ops->alloc(dev, 65, &c, &err), HS_ERR_NOSPACE);
    assert_string_equal(err.msg, "device emu: wanted 65 bytes, 64 of its budget of 256 are free");
    assert_int_equal(ops->alloc(dev, UINT64_MAX, &c, &err), HS_ERR_NOSPACE);
    assert_int_equal(ops->used(dev), 192);
    good(ops->alloc(dev, 64, &c, &err), &err);
    assert_int_equal(ops->used(dev), 256);
    good(ops->alloc(dev, 0, &none, &err), &err);
    assert_int_equal(none.bytes, 0);
    good(ops->upload(dev, none, 0, NULL, 0, &err), &err);
    const char data[65] = "neurons";
    assert_int_equal(ops->upload(dev, a, 0, data, 2, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: upload of 2 bytes at 0 into a buffer of 1");
    assert_int_equal(ops->upload(dev, b, 66, data, 0, &err), HS_ERR_DEVICE);
    assert_int_equal(ops->upload(dev, (hs_buf){0, 257}, 0, data, 1, &err), HS_ERR_DEVICE);
    char back[65] = "";
    good(ops->upload(dev, b, 0, data, 65, &err), &err);
    ops->recv(dev, back, b, 65);
    good(ops->sync(dev, &err), &err);
    assert_memory_equal(data, back, 65);
    ops->close(dev);
    ops->close(NULL);
}

static void test_open(void **state)
{
    (void)state;
    const hs_device_ops *ops = hs_device_emu();
    hs_device *dev;
    hs_buf b;
    hs_err err;
    assert_int_equal(ops->open(&dev, 8, 64, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: no device 8, there are 8");
    assert_int_equal(ops->open(&dev, -1, 64, &err), HS_ERR_DEVICE);
    assert_int_equal(ops->open(&dev, 0, 1ull << 60, &err), HS_ERR_NOSPACE);
    assert_non_null(strstr(err.msg, "device emu: the plan needs 1152921504606846976 bytes, "));
    assert_non_null(strstr(err.msg, " are free"));
    good(ops->open(&dev, 0, 0, &err), &err);
    good(ops->alloc(dev, 0, &b, &err), &err);
    assert_int_equal(ops->alloc(dev, 1, &b, &err), HS_ERR_NOSPACE);
    good(ops->sync(dev, &err), &err);
    ops->close(dev);
}

/* Received bytes are there after sync, and not before; what is sent is read then. */
static void test_copies(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 1);
    const uint64_t big = 5u << 20;
    uint8_t *a = own(&r, big), *b = own(&r, big);
    for (uint64_t i = 0; i < big; i++)
        a[i] = (uint8_t)rnd(&r);
    const hs_buf buf = take(&r, big);
    r.ops->send(r.dev, buf, a, big);
    r.ops->recv(r.dev, b, buf, big);
    if (is_emulated(r.ops))
        assert_int_equal(b[0] | b[1] | b[2] | b[3], 0);
    sync_good(&r);
    assert_memory_equal(a, b, big);
    memset(b, 0, big);
    /* Only what was queued before the mark is done by wait. */
    r.ops->recv(r.dev, b, buf, 64);
    r.ops->mark(r.dev);
    r.ops->recv(r.dev, b + 64, (hs_buf){buf.offset + 64, 64}, 64);
    hs_err err = {.code = HS_OK};
    good(r.ops->wait(r.dev, &err), &err);
    assert_memory_equal(a, b, 64);
    for (int i = 64; is_emulated(r.ops) && i < 128; i++)
        assert_int_equal(b[i], 0);
    sync_good(&r);
    assert_memory_equal(a, b, 128);
    hs_dev_counts n;
    r.ops->counts(r.dev, &n);
    assert_int_equal(n.sends, 1);
    assert_int_equal(n.bytes_sent, big);
    assert_int_equal(n.recvs, 3);
    assert_int_equal(n.bytes_received, big + 128);
    assert_int_equal(n.syncs, 3);
    assert_int_equal(n.launches + n.graphs, 0);
    const hs_buf other = take(&r, 100);
    r.ops->copy(r.dev, other, buf);
    r.ops->recv(r.dev, b, other, 100);
    sync_good(&r);
    assert_memory_equal(a, b, 100);
    r.ops->copy(r.dev, buf, other); /* more than there is */
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    memset(b, 0, big);
    for (uint32_t i = 0; i < 40; i++) { /* in order, more of them than wait for sync */
        r.ops->send(r.dev, (hs_buf){buf.offset, 4}, a + 4 * i, 4);
        r.ops->recv(r.dev, b + 4 * i, (hs_buf){buf.offset, 4}, 4);
    }
    sync_good(&r);
    assert_memory_equal(a, b, 160);
    rig_close(&r);
}

static void test_failures(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 2);
    float y[4] = {1, 2, 3, 4};
    hs_err err;
    const hs_buf small = take(&r, 4);
    r.ops->send(r.dev, small, y, 16);
    r.ops->recv(r.dev, y, r.s.x, 16); /* not done: a failure is pending */
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    assert_non_null(strstr(err.msg, "device emu: send: buffer of 4 bytes at "));
    assert_true(y[0] == 1 && y[3] == 4);
    sync_good(&r);

    const mat w = random_mat(&r, HS_F32, 8, 32);
    hs_dev_head h = {.scratch = &r.s, .norm = r.s.x, .w = w.dev, .n_embd = 64};
    r.ops->head(r.dev, &h);
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: head: weight: expected {64, 8}, got {32, 8}");
    h.n_embd = 32;
    h.w.dtype = HS_I8;
    r.ops->head(r.dev, &h);
    assert_int_equal(r.ops->sync(r.dev, &err), HS_ERR_DEVICE);
    assert_string_equal(err.msg, "device emu: head: weight: no kernel for rows of 32 I8");
    assert_int_equal(r.ops->sync(r.dev, NULL), HS_OK);
    rig_close(&r);
}

/* --- head: norm and matrix product --------------------------------------------------- */

static void head_case(rig *r, hs_dtype t, uint32_t rows, uint32_t cols, float magnitude)
{
    float *norm, x[MAX_EMBD], xn[MAX_EMBD], want[512], got[512];
    const mat w = random_mat(r, t, rows, cols);
    const hs_dev_head h = {.scratch = &r->s,
                           .norm = random_floats(r, &norm, cols),
                           .w = w.dev,
                           .eps = 1e-5f,
                           .n_embd = cols};
    for (uint32_t i = 0; i < cols; i++)
        x[i] = r->x[i] * magnitude;
    r->ops->send(r->dev, r->s.x, x, 4 * cols);
    r->ops->head(r->dev, &h);
    r->ops->recv(r->dev, got, r->s.logits, 4 * rows);
    sync_good(r);
    ref_norm(r, xn, x, norm, cols, 1e-5f);
    ref_matvec(r, &w, xn, want);
    check_floats(hs_dtype_name(t), got, want, rows);
}

static void test_head(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 7, 33, 130}, floats[] = {32, 1, 100, 513, 1024},
                          blocks[] = {32, 96, 256, 1024}, supers[] = {256, 768};
    for (int k = 0; k < N_TYPES; k++) {
        const hs_dtype t = all_types[k];
        const uint32_t unit = hs_dtype_get(t)->block_elems;
        const uint32_t *cols = unit == 1 ? floats : unit == 32 ? blocks : supers;
        const int n_cols = unit == 1 ? 5 : unit == 32 ? 4 : 2;
        for (int c = 0; c < n_cols; c++) {
            rig r;
            rig_open(&r, 10 + (uint64_t)k);
            for (int i = 0; i < 4; i++)
                head_case(&r, t, rows[i], cols[c], 1);
            head_case(&r, t, 5, cols[c], 0);      /* scale 1 / sqrt(eps), all zero */
            head_case(&r, t, 5, cols[c], 1e-30f); /* quantization of tiny values */
            head_case(&r, t, 5, cols[c], 1e15f);
            rig_close(&r);
        }
    }
}

/* --- host threads, bounds ------------------------------------------------------------ */

static void *head_on_thread(void *ud)
{
    head_case(ud, HS_Q4_0, 40, 64, 1);
    return ud;
}

/* One host thread at a time, always another one. */
static void test_host_threads(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 5);
    for (int i = 0; i < 4; i++) {
        pthread_t th;
        void *ok;
        assert_int_equal(pthread_create(&th, NULL, head_on_thread, &r), 0);
        assert_int_equal(pthread_join(th, &ok), 0);
        assert_ptr_equal(ok, &r);
    }
    rig_close(&r);
}

int main(void)
{
    /* The first ones know what the emulation offers and says. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena),    cmocka_unit_test(test_open),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_head),     cmocka_unit_test(test_host_threads),
    };
    const struct CMUnitTest any[] = {cmocka_unit_test(test_copies), cmocka_unit_test(test_head),
                                     cmocka_unit_test(test_host_threads)};
    return is_emulated(tested_device()) ? cmocka_run_group_tests(tests, NULL, NULL)
                                        : cmocka_run_group_tests(any, NULL, NULL);
}
