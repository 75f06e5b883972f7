/* Placements: wherever a neuron is computed, every bit of the logits is the same, every active
 * neuron is counted once, and the device holds exactly what was planned.
 *
 * With an argument the same is checked on that model file (tests/cli gives the demonstration
 * model); without one on golden models. */
#include "tests/unit/runtime_util.h"

static const char *given;
enum { N_IDS = 24, N_CTX = 64 };

/* Every active neuron is counted exactly once, on the side that owns it. */
static void compare_counts(const hs_model *m, const hs_placement *p, const hs_session *a,
                           const hs_session *b)
{
    for (uint32_t l = 0; l < m->n_layer; l++) {
        hs_layer_stats sa, sb;
        hs_session_layer_stats(a, l, &sa);
        hs_session_layer_stats(b, l, &sb);
        assert_int_equal(sa.cpu_neurons, sb.cpu_neurons + sb.device_neurons);
        assert_true(sa.predicted_share == sb.predicted_share);
        if (p->layer[l].n_device == 0)
            assert_int_equal(sb.device_neurons, 0);
        if (p->layer[l].n_device == m->n_ff)
            assert_int_equal(sb.cpu_neurons, 0);
    }
}

static void compare(const hs_model *m, const hs_placement *p, const char *path, hs_sparsity sp,
                    bool kv_f32)
{
    const hs_session_params base = {
        .n_threads = 2, .sparsity = sp, .n_ctx = N_CTX, .kv_f32 = kv_f32};
    hs_session_params split = base;
    split.device = "emu";
    split.placement = path;
    hs_session *a = session(m, base), *b = session(m, split);
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = 1 + i * 53 % 300;
    float *xa = logits_of(a, m, ids, N_IDS), *xb = logits_of(b, m, ids, N_IDS);
    assert_memory_equal(xa, xb, (size_t)N_IDS * m->n_vocab * sizeof *xa);
    free(xa);
    free(xb);
    hs_memory host, dev;
    const bool has = hs_session_memory(b, &host, &dev);
    assert_int_equal(has, hs_budget_total(m, p) > 0);
    assert_int_equal(dev.used, hs_budget_total(m, p));
    assert_int_equal(dev.used, dev.weights + dev.kv + dev.scratch);
    assert_true(dev.used <= dev.budget);
    compare_counts(m, p, a, b);
    hs_session_free(a);
    hs_session_free(b);
}

static void check_model(const char *file)
{
    char path[] = "/tmp/hotset-test-XXXXXX";
    temp_path(path);
    hs_model *m = load(file);
    const struct {
        place_kind kind;
        unsigned dense;
        uint32_t kv;
    } cases[] = {
        {PLACE_NONE, 0, HS_F16},
        {PLACE_NONE, DENSE_PREDICTOR, HS_F16},
        {PLACE_NONE, DENSE_ALL, HS_F32},
        {PLACE_ALL, 0, HS_F16},
        {PLACE_ALL, DENSE_ALL, HS_F16},
        {PLACE_ALL, DENSE_ALL, HS_F32},
        {PLACE_ALTERNATING, DENSE_PREDICTOR | DENSE_NORM, HS_F16},
        {PLACE_ALTERNATING, DENSE_ATTN, HS_F16},
        {PLACE_RANDOM, 0, HS_F32},
        {PLACE_RANDOM, DENSE_ATTN | DENSE_KV, HS_F16},
        {PLACE_ONE, DENSE_HEAD, HS_F16},
        {PLACE_ONE, DENSE_NORM, HS_F16},
        {PLACE_HALF_LAYERS, DENSE_ALL, HS_F16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hs_placement *p = make_placement(m, cases[i].kind, cases[i].dense, N_CTX, cases[i].kv);
        write_placement(p, path);
        for (int sp = HS_SPARSITY_OFF; sp <= HS_SPARSITY_PREDICTED; sp++)
            if (sp != HS_SPARSITY_PREDICTED || m->has_predictors)
                compare(m, p, path, (hs_sparsity)sp, cases[i].kv == HS_F32);
        hs_placement_free(p);
    }
    hs_model_free(m);
    unlink(path);
}

static void any_placement_gives_the_same_bits(void **state)
{
    (void)state;
    if (given) {
        check_model(given);
        return;
    }
    check_model("tests/golden/mmask.gguf");
    check_model("tests/golden/m256.q4_0.gguf");
}

static hs_status open_with(const hs_model *m, const char *path, uint64_t budget, hs_memory *dev,
                           hs_err *err)
{
    hs_session *s = NULL;
    hs_memory host;
    const hs_session_params p = {.n_threads = 1,
                                 .n_ctx = N_CTX,
                                 .device = "emu",
                                 .placement = path,
                                 .has_budget = true,
                                 .vram_budget = budget};
    const hs_status st = hs_session_new(&s, m, &p, err);
    if (st == HS_OK)
        hs_session_memory(s, &host, dev);
    hs_session_free(s);
    return st;
}

static void budget_is_a_limit_to_the_byte(void **state)
{
    (void)state;
    char path[] = "/tmp/hotset-test-XXXXXX";
    temp_path(path);
    hs_model *m = load(given ? given : "tests/golden/mmask.gguf");
    hs_placement *p = make_placement(m, PLACE_RANDOM, DENSE_ALL, N_CTX, HS_F16);
    write_placement(p, path);
    const uint64_t plan = hs_budget_total(m, p);
    hs_err err = {0};
    hs_memory dev = {0};
    assert_int_equal(open_with(m, path, plan, &dev, &err), HS_OK);
    assert_int_equal(dev.used, plan);
    assert_int_equal(open_with(m, path, UINT64_MAX, &dev, &err), HS_OK);
    assert_int_equal(dev.used, plan);
    const uint64_t too_small[] = {0, 1, plan - 1};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_with(m, path, too_small[i], &dev, &err), HS_ERR_NOSPACE);
        assert_non_null(strstr(err.msg, "bytes on the device"));
    }
    hs_placement_free(p);
    p = make_placement(m, PLACE_NONE, 0, N_CTX, HS_F16);
    write_placement(p, path);
    assert_int_equal(open_with(m, path, 0, &dev, &err), HS_OK);
    assert_int_equal(dev.used, 0);
    hs_placement_free(p);
    hs_model_free(m);
    unlink(path);
}

static void another_models_placement_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/hotset-test-XXXXXX";
    temp_path(path);
    hs_model *m = load("tests/golden/mmask.gguf"), *other = load("tests/golden/m256.gguf");
    hs_placement *p = make_placement(m, PLACE_ONE, 0, N_CTX, HS_F16);
    p->fingerprint[0] = p->fingerprint[0] == '0' ? '1' : '0';
    write_placement(p, path);
    hs_err err = {0};
    hs_memory dev;
    assert_int_equal(open_with(m, path, UINT64_MAX, &dev, &err), HS_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "made for another model"));
    memcpy(p->fingerprint, m->fingerprint, sizeof p->fingerprint);
    write_placement(p, path);
    assert_int_equal(open_with(m, path, UINT64_MAX, &dev, &err), HS_OK);
    assert_int_equal(open_with(other, path, UINT64_MAX, &dev, &err), HS_ERR_FORMAT);
    hs_placement_free(p);
    hs_model_free(m);
    hs_model_free(other);
    unlink(path);
}

int main(int argc, char **argv)
{
    given = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_placement_gives_the_same_bits),
        cmocka_unit_test(budget_is_a_limit_to_the_byte),
        cmocka_unit_test(another_models_placement_is_refused),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
