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
    float threshold; /* 0: some */
} ffn_case;

enum { N_FF = 300, RANK = 32 };

typedef struct ffn_data {
    mat gate, up, down, fc1, fc2;
    float *norm, score[HS_DEV_BATCH][N_FF];
    int32_t id[N_FF];
} ffn_data;

static hs_dev_ffn ffn_args(rig *r, const ffn_case *c, ffn_data *d)
{
    const uint32_t rank = is_super(c->fc) ? 256 : RANK;
    for (uint32_t i = 0, id = 0; i < c->n; i++)
        d->id[i] = (int32_t)(id += i && id + 1 + c->n - i < N_FF ? 1 + rnd(r) % 2 : i ? 1 : 0);
    for (uint32_t i = 0; i < HS_DEV_BATCH * N_FF; i++)
        d->score[i / N_FF][i % N_FF] = rndf(r);
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
                    .threshold = c->threshold != 0  ? c->threshold
                                 : c->has_predictor ? -0.5f
                                                    : 0.125f,
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

/* sum and score of token t are filled, the count is returned. */
static uint32_t ffn_ref(const rig *r, const hs_dev_ffn *f, ffn_data *d, uint32_t t, const float *xn,
                        double *sum)
{
    uint32_t count = 0;
    float *score = d->score[t];
    if (f->has_predictor) {
        float hid[512];
        ref_matvec(r, &d->fc1, r->x + t * f->n_embd, hid);
        for (uint32_t i = 0; i < f->fc1.rows; i++)
            hid[i] = hid[i] > 0 ? hid[i] : 0;
        ref_matvec(r, &d->fc2, hid, score);
    }
    memset(sum, 0, 8 * f->n_embd);
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->masked && score[d->id[i]] < f->threshold)
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

static bool is_candidate(const hs_dev_ffn *f, const ffn_data *d, uint32_t t, uint32_t i)
{
    return !(d->score[t][i] < f->threshold);
}

/* Normalised inputs and, without a predictor, candidates, as the host sends them. */
static void make_records(const rig *r, const hs_dev_ffn *f, const ffn_data *d, uint32_t *rec)
{
    const uint32_t words = hs_dev_record_words(f->n_embd, f->n_ff);
    memset(rec, 0, 4 * (size_t)words * f->n_tokens);
    for (uint32_t t = 0; t < f->n_tokens; t++) {
        float *xn = (float *)(void *)(rec + t * words);
        ref_norm(r, xn, r->x + t * f->n_embd, d->norm, f->n_embd, f->eps);
        for (uint32_t i = 0; i < f->n_ff; i++)
            rec[t * words + f->n_embd + i / 32] |= (uint32_t)is_candidate(f, d, t, i) << i % 32;
    }
}

typedef struct ffn_out {
    uint32_t rec[HS_DEV_BATCH * (MAX_EMBD + MAX_FF / 32)];
    double sum[HS_DEV_BATCH * MAX_EMBD], far[HS_DEV_BATCH * MAX_EMBD];
    float x[HS_DEV_BATCH * MAX_EMBD];
    uint64_t stats[4];
} ffn_out;

/* The stages one by one with the host's part between them (apart), or all at once. */
static void ffn_on_device(rig *r, hs_dev_ffn f, const uint32_t *rec, const double *host, bool apart,
                          ffn_out *out)
{
    const uint64_t x_bytes = 4ull * f.n_tokens * f.n_embd,
                   rec_bytes = 4ull * f.n_tokens * hs_dev_record_words(f.n_embd, f.n_ff);
    r->ops->send(r->dev, r->s.x, r->x, x_bytes);
    r->ops->send(r->dev, r->s.rec, rec, rec_bytes);
    f.has_far = apart;
    if (apart) {
        f.stages = HS_DEV_FFN_PREPARE;
        r->ops->ffn(r->dev, &f);
        r->ops->recv(r->dev, out->rec, r->s.rec, rec_bytes);
        f.stages = HS_DEV_FFN_NEURONS | HS_DEV_FFN_COLLECT;
        f.prepared = true;
        r->ops->ffn(r->dev, &f);
        r->ops->recv(r->dev, out->sum, r->s.far, 2 * x_bytes);
        r->ops->send(r->dev, r->s.far, host, 2 * x_bytes);
        f.stages = HS_DEV_FFN_FINISH;
        r->ops->ffn(r->dev, &f);
    } else {
        f.stages = HS_DEV_FFN_PREPARE | HS_DEV_FFN_NEURONS | HS_DEV_FFN_COLLECT | HS_DEV_FFN_FINISH;
        r->ops->ffn(r->dev, &f);
        r->ops->recv(r->dev, out->rec, r->s.rec, rec_bytes);
        r->ops->recv(r->dev, out->sum, r->s.far, 2 * x_bytes);
    }
    r->ops->recv(r->dev, out->x, r->s.x, x_bytes);
    r->ops->recv(r->dev, out->stats, r->s.stats, sizeof out->stats);
    sync_good(r);
}

/* Returns the number of active neurons. */
static uint32_t run_ffn_tokens(const ffn_case *c, uint64_t seed, uint32_t n_tokens, bool apart)
{
    rig r;
    rig_open(&r, seed);
    ffn_data d;
    hs_dev_ffn f = ffn_args(&r, c, &d);
    f.n_tokens = n_tokens;
    f.layer = 1;
    const uint32_t words = hs_dev_record_words(c->n_embd, N_FF);
    ffn_out *out = own(&r, sizeof *out);
    uint32_t *rec = own(&r, 4 * (size_t)words * n_tokens), count = 0, predicted = 0;
    double *want = own(&r, 8ull * n_tokens * c->n_embd),
           *host = own(&r, 8ull * n_tokens * c->n_embd);
    for (uint32_t i = 0; i < n_tokens * c->n_embd; i++)
        host[i] = hs_grid_product(rndf(&r), rndf(&r));
    make_records(&r, &f, &d, rec);
    ffn_on_device(&r, f, rec, host, apart, out);
    for (uint32_t t = 0; t < n_tokens; t++)
        count += ffn_ref(&r, &f, &d, t, (const float *)(const void *)(rec + t * words),
                         want + t * c->n_embd);
    make_records(&r, &f, &d, rec); /* the reference's scores are there now */
    assert_memory_equal(out->rec, rec, 4 * (size_t)words * n_tokens);
    for (uint32_t i = 0; i < n_tokens * N_FF; i++)
        predicted += c->has_predictor && is_candidate(&f, &d, i / N_FF, i % N_FF);
    assert_int_equal(out->stats[2], count);
    assert_int_equal(out->stats[3], predicted);
    assert_int_equal(out->stats[0] | out->stats[1], 0);
    for (uint32_t i = 0; i < n_tokens * c->n_embd; i++) {
        if (out->sum[i] != want[i])
            fail_msg("%s: sum[%u] is %a, expected %a", hs_dtype_name(c->down), i, out->sum[i],
                     want[i]);
        const float x = r.x[i] + (float)(want[i] + (apart ? host[i] : 0));
        check_floats("x", &out->x[i], &x, 1);
    }
    rig_close(&r);
    return count;
}

/* One token in stages, then a batch at once and a larger one in stages. */
static uint32_t run_ffn(const ffn_case *c, uint64_t seed)
{
    run_ffn_tokens(c, seed, 3, false);
    run_ffn_tokens(c, seed, HS_DEV_BATCH, true);
    run_ffn_tokens(c, seed, 1, false);
    return run_ffn_tokens(c, seed, 1, true);
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

/* All neurons are candidates, or none is: of the host's masks and of the predictor's. */
static void test_ffn_all_or_none(void **state)
{
    (void)state;
    for (int k = 0; k < N_TYPES; k++)
        for (int i = 0; i < 4; i++) {
            const hs_dtype t = all_types[k];
            const ffn_case c = {t,    t,     t,    t,    65,         256,
                                true, i < 2, true, true, HS_FN_RELU, i & 1 ? INFINITY : -INFINITY};
            const uint32_t n = run_ffn(&c, 300 + 10 * (uint64_t)k + (uint64_t)i);
            assert_true(i & 1 ? n == 0 : n > 0);
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
        const int32_t id = 256 << 20; /* 32 MiB further: in the arena, in no buffer */
        hs_err err;
        hs_dev_ffn g = f;
        g.n_tokens = 1;
        g.stages = HS_DEV_FFN_PREPARE | HS_DEV_FFN_NEURONS;
        r.ops->send(r.dev, r.s.x, r.x, 4 * 32);
        if (r.ops->upload(r.dev, f.id, 0, &id, 4, &err) != HS_OK)
            _exit(2);
        r.ops->ffn(r.dev, &g);
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
        cmocka_unit_test(test_ffn_types),       cmocka_unit_test(test_ffn_shapes),
        cmocka_unit_test(test_ffn_all_or_none), cmocka_unit_test(test_ffn_mixed),
        cmocka_unit_test(test_ffn_functions),
#ifdef ASAN
        cmocka_unit_test(test_bounds),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
