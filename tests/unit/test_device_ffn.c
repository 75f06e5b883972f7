/* The device's feed-forward layer, as compiled for the CPU, against the scalar kernels: equal to
 * the bit, for all weight types and for sizes around the widths of warps and blocks. */

#include "tests/unit/device_rig.h"

#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif

typedef struct ffn_case {
    hs_dtype gate, up, down, fc;
    uint32_t n, n_embd;
    bool has_norm, has_predictor, masked, has_gate;
    hs_act_fn fn;
} ffn_case;

enum { N_FF = 300, RANK = 32 };

typedef struct ffn_data {
    mat gate, up, down, fc1, fc2;
    float *norm, score[N_FF];
    int32_t id[N_FF];
} ffn_data;

static hs_dev_ffn ffn_args(rig *r, const ffn_case *c, ffn_data *d)
{
    const uint32_t rank = is_super(c->fc) ? 256 : RANK;
    for (uint32_t i = 0, id = 0; i < c->n; i++)
        d->id[i] = (int32_t)(id += i && id + 1 + c->n - i < N_FF ? 1 + rnd(r) % 2 : i ? 1 : 0);
    for (uint32_t i = 0; i < N_FF; i++)
        d->score[i] = rndf(r);
    hs_dev_ffn f = {.scratch = &r->s,
                    .norm = random_floats(r, &d->norm, c->n_embd),
                    .has_norm = c->has_norm,
                    .has_predictor = c->has_predictor,
                    .masked = c->masked,
                    .has_gate = c->has_gate,
                    .n = c->n,
                    .n_embd = c->n_embd,
                    .n_ff = N_FF,
                    .eps = 1e-6f,
                    .threshold = c->has_predictor ? -0.5f : 0.125f,
                    .fn = c->fn,
                    .fn_param = 0.01f};
    if (c->has_predictor) {
        d->fc1 = random_mat(r, c->fc, rank, c->n_embd);
        d->fc2 = random_mat(r, c->fc, N_FF, rank);
        f.fc1 = d->fc1.dev;
        f.fc2 = d->fc2.dev;
    }
    if (c->n) {
        d->gate = random_mat(r, c->gate, c->n, c->n_embd);
        d->up = random_mat(r, c->up, c->n, c->n_embd);
        d->down = random_mat(r, c->down, c->n, c->n_embd);
        f.gate = c->has_gate ? d->gate.dev : (hs_dev_mat){.dtype = HS_F32};
        f.up = d->up.dev;
        f.down = d->down.dev;
        f.id = put(r, d->id, 4 * c->n);
    }
    return f;
}

/* sum and score are filled, the count is returned. */
static uint32_t ffn_ref(const rig *r, const hs_dev_ffn *f, ffn_data *d, const float *xn,
                        double *sum)
{
    uint32_t count = 0;
    if (f->has_predictor) {
        float hid[512];
        ref_matvec(r, &d->fc1, r->x, hid);
        for (uint32_t i = 0; i < f->fc1.rows; i++)
            hid[i] = hid[i] > 0 ? hid[i] : 0;
        ref_matvec(r, &d->fc2, hid, d->score);
    }
    memset(sum, 0, 8 * f->n_embd);
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->masked && d->score[d->id[i]] < f->threshold)
            continue;
        float z;
        bool active;
        if (f->has_gate) {
            const float g = hs_act_gate(f->fn, f->fn_param, ref_dot(r, &d->gate, i, xn));
            if (g == 0)
                continue;
            const float u = hs_act_up(f->fn, ref_dot(r, &d->up, i, xn));
            active = f->fn != HS_FN_DRELU || u != 0;
            z = g * u;
        } else {
            z = hs_act_gate(f->fn, f->fn_param, ref_dot(r, &d->up, i, xn));
            active = z != 0;
        }
        count += active;
        if (z != 0)
            hs_kernel_sum_rows(&r->k, d->down.dev.dtype,
                               &(hs_sum_rows){.y = sum,
                                              .a = &z,
                                              .row = d->down.host + i * d->down.dev.row_bytes,
                                              .n = 1,
                                              .end = f->n_embd});
    }
    return count;
}

/* Returns the number of active neurons. */
static uint32_t run_ffn(const ffn_case *c, uint64_t seed)
{
    rig r;
    rig_open(&r, seed);
    ffn_data d;
    const hs_dev_ffn f = ffn_args(&r, c, &d);
    float xn[MAX_EMBD], score[N_FF];
    double got[MAX_EMBD], want[MAX_EMBD];
    uint32_t count = 77;
    ref_norm(&r, xn, r.x, d.norm, c->n_embd, f.eps);
    if (c->has_norm || c->has_predictor)
        r.ops->send(r.dev, r.s.x, r.x, 4 * c->n_embd);
    if (!c->has_norm)
        r.ops->send(r.dev, r.s.xn, xn, 4 * c->n_embd);
    if (!c->has_predictor)
        r.ops->send(r.dev, r.s.score, d.score, sizeof d.score);
    r.ops->ffn(r.dev, &f);
    r.ops->recv(r.dev, got, r.s.sum, 8 * c->n_embd);
    r.ops->recv(r.dev, score, r.s.score, sizeof score);
    r.ops->recv(r.dev, &count, r.s.count, 4);
    sync_good(&r);
    const uint32_t want_count = ffn_ref(&r, &f, &d, xn, want);
    assert_int_equal(count, want_count);
    check_floats("score", score, d.score, N_FF);
    for (uint32_t i = 0; i < c->n_embd; i++)
        if (got[i] != want[i])
            fail_msg("%s: sum[%u] is %a, expected %a", hs_dtype_name(c->down), i, got[i], want[i]);
    rig_close(&r);
    return count;
}

static void test_ffn_types(void **state)
{
    (void)state;
    static const uint32_t ns[] = {0, 1, 31, 33, 255, 257};
    for (int k = 0; k < N_TYPES; k++)
        for (int i = 0; i < 6; i++) {
            const hs_dtype t = all_types[k];
            const ffn_case c = {t,         t,
                                t,         t,
                                ns[i],     is_super(t) || i == 5 ? 256 : 96,
                                i & 1,     i == 0 || i & 2,
                                i != 3,    true,
                                HS_FN_RELU};
            const uint32_t n = run_ffn(&c, 100 * (uint64_t)k + (uint64_t)i);
            assert_true(n <= ns[i] && (ns[i] < 30 || (n > 0 && n < ns[i])));
        }
}

static void test_ffn_shapes(void **state)
{
    (void)state;
    static const uint32_t embd[] = {32, 1, 33, 127, 129, 320};
    for (int i = 0; i < 6; i++)
        for (int gate = 0; gate < 2; gate++)
            for (int mask = 0; mask < 2; mask++) {
                const ffn_case c = {HS_F32, HS_F32, HS_F32, HS_F32,    65,        embd[i],
                                    true,   false,  mask,   gate != 0, HS_FN_RELU};
                run_ffn(&c, 7 + (uint64_t)i);
            }
}

static void test_ffn_mixed(void **state)
{
    (void)state;
    for (int k = 0; k < N_TYPES; k++) { /* gate, up, down and predictor of different types */
        const ffn_case c = {all_types[k],
                            all_types[(k + 3) % N_TYPES],
                            all_types[(k + 5) % N_TYPES],
                            all_types[(k + 2) % N_TYPES],
                            129,
                            256,
                            true,
                            true,
                            true,
                            true,
                            k & 1 ? HS_FN_RELU : HS_FN_DRELU};
        assert_true(run_ffn(&c, 1000 + (uint64_t)k) > 0);
    }
}

static void test_ffn_functions(void **state)
{
    (void)state;
    for (int fn = HS_FN_RELU; fn <= HS_FN_GELU_TANH; fn++)
        for (int gate = 0; gate < 2; gate++)
            for (int q = 0; q < 2; q++) {
                const hs_dtype t = q ? HS_Q8_0 : HS_F16;
                const ffn_case c = {t,    t,     t,     t,         100,          64,
                                    true, false, false, gate != 0, (hs_act_fn)fn};
                const uint32_t n = run_ffn(&c, 2000 + (uint64_t)fn);
                if (hs_act_is_sparse((hs_act_fn)fn) ? n == 0 || n == 100 : n < 50)
                    fail_msg("function %d, gate %d, %s: %u of 100 active", fn, gate,
                             hs_dtype_name(t), n);
            }
}

#ifdef ASAN
/* A wrong neuron number, which no size check can see: the kernel's read is caught. */
static void test_bounds(void **state)
{
    (void)state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(2); /* the report is expected */
        rig r;
        rig_open(&r, 6);
        ffn_data d;
        const ffn_case c = {HS_F32, HS_F32, HS_F32, HS_F32, 1,         32,
                            true,   false,  true,   true,   HS_FN_RELU};
        const hs_dev_ffn f = ffn_args(&r, &c, &d);
        const int32_t id = 4 << 20; /* 16 MiB further: in the arena, in no buffer */
        hs_err err;
        r.ops->send(r.dev, r.s.x, r.x, 4 * 32);
        if (r.ops->upload(r.dev, f.id, 0, &id, 4, &err) != HS_OK)
            _exit(2);
        r.ops->ffn(r.dev, &f);
        _exit(r.ops->sync(r.dev, &err) == HS_OK ? 0 : 2);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ffn_types), cmocka_unit_test(test_ffn_shapes),
        cmocka_unit_test(test_ffn_mixed), cmocka_unit_test(test_ffn_functions),
#ifdef ASAN
        cmocka_unit_test(test_bounds),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
