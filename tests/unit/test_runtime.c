/* The forward pass against logits that the original tools computed, and against itself: threads,
 * batches, CPU levels and layouts must not change a bit. */
#include "tests/unit/runtime_util.h"

#include "formats/gguf_write.h"

static const int32_t golden_ids[] = {1, 5, 9, 300, 17, 44};
enum { N_IDS = 6 };

static float *read_f32(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    assert_int_equal(fread(x, sizeof *x, n, f), n);
    fclose(f);
    return x;
}

static float max_diff(const float *a, const float *b, size_t n)
{
    float d = 0;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= d))
            d = fabsf(a[i] - b[i]);
    return d;
}

static void golden_logits(void **state)
{
    (void)state;
    const struct {
        const char *model, *logits;
        float threshold; /* NAN: the file's own */
        float bound;
    } cases[] = {
        {"m1.gguf", "m1.thr-1e30.logits.f32", -1e30f, 5e-2f},
        {"m1.gguf", "m1.thr1e30.logits.f32", 1e30f, 5e-2f},
        {"mmask.gguf", "mmask.logits.f32", NAN, 5e-2f},
        {"f512_small.gguf", "f512_small.fixed.logits.f32", NAN, 5e-2f},
        /* The original rounds the products that enter the down projection to int8, we do not:
         * that moves logits by up to 0.3, where a wrong mask or decoder moves them by 10. */
        {"m256.q4_0.gguf", "m256.q4_0.thr-1e30.logits.f32", -1e30f, 0.5f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[128];
        snprintf(path, sizeof path, "tests/golden/%s", cases[i].model);
        hs_model *m = load(path);
        hs_session *s = session(m, (hs_session_params){.n_threads = 2,
                                                       .sparsity = HS_SPARSITY_PREDICTED,
                                                       .has_threshold = !isnan(cases[i].threshold),
                                                       .threshold = cases[i].threshold});
        float *x = logits_of(s, m, golden_ids, N_IDS);
        snprintf(path, sizeof path, "tests/golden/%s", cases[i].logits);
        float *ref = read_f32(path, (size_t)N_IDS * m->n_vocab);
        const float d = max_diff(x, ref, (size_t)N_IDS * m->n_vocab);
        print_message("%s: largest difference %.4f\n", cases[i].logits, (double)d);
        assert_true(d <= cases[i].bound);
        free(ref);
        free(x);
        hs_session_free(s);
        hs_model_free(m);
    }
}

static void same_bits_for(const hs_model *m, hs_session_params a, size_t batch_a,
                          hs_session_params b, size_t batch_b)
{
    enum { N = 40 };
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = 1 + i * 7 % 300;
    hs_session *sa = session(m, a), *sb = session(m, b);
    hs_session_set_batch(sa, batch_a);
    hs_session_set_batch(sb, batch_b);
    float *xa = logits_of(sa, m, ids, N), *xb = logits_of(sb, m, ids, N);
    assert_memory_equal(xa, xb, (size_t)N * m->n_vocab * sizeof *xa);
    free(xa);
    free(xb);
    hs_session_free(sa);
    hs_session_free(sb);
}

static void threads_batches_and_levels_change_nothing(void **state)
{
    (void)state;
    const char *const models[] = {"tests/golden/mmask.gguf", "tests/golden/m256.q4_0.gguf"};
    const int threads[] = {2, 3, 8};
    const size_t batches[] = {1, 2, 7, 64};
    for (size_t i = 0; i < 2; i++) {
        hs_model *m = load(models[i]);
        for (int sp = HS_SPARSITY_OFF; sp <= HS_SPARSITY_PREDICTED; sp++) {
            const hs_session_params one = {.n_threads = 1, .sparsity = (hs_sparsity)sp};
            hs_session_params other = one;
            for (int t = 0; t < 3; t++) {
                other.n_threads = threads[t];
                same_bits_for(m, one, 32, other, 32);
            }
            for (int b = 0; b < 4; b++)
                same_bits_for(m, one, 32, one, batches[b]);
            other = one;
            other.cpu = "scalar";
            same_bits_for(m, one, 32, other, 32);
        }
        hs_model_free(m);
    }
}

/* off and exact differ in nothing but the skipped zeros. */
static void exact_equals_dense(void **state)
{
    (void)state;
    hs_model *m = load("tests/golden/mmask.gguf");
    same_bits_for(m, (hs_session_params){.n_threads = 1, .sparsity = HS_SPARSITY_OFF}, 32,
                  (hs_session_params){.n_threads = 1, .sparsity = HS_SPARSITY_EXACT}, 32);
    hs_model_free(m);
}

/* The golden dense file with an activation of our choice. */
static void write_dense(const char *path, const char *activation)
{
    hs_err err = {0};
    hs_gguf *g = NULL;
    must(hs_gguf_open(&g, "tests/golden/m1.dense.gguf", &err), &err);
    hs_gguf_writer *w = hs_gguf_writer_new(false, 32);
    assert_non_null(w);
    for (size_t i = 0; i < g->n_kv; i++)
        hs_gguf_copy_kv(w, &g->kv[i]);
    hs_gguf_set_str(w, "hotset.activation", activation);
    for (size_t i = 0; i < g->n_tensors; i++)
        hs_gguf_add_tensor(w, g->tensors[i].name, g->tensors[i].dtype, g->tensors[i].n_dims,
                           g->tensors[i].ne);
    hs_out *out = NULL;
    must(hs_out_open(&out, path, true, &err), &err);
    must(hs_gguf_writer_begin(w, out, &err), &err);
    for (size_t i = 0; i < g->n_tensors; i++)
        must(hs_gguf_writer_data(w, g->tensors[i].data, g->tensors[i].bytes, &err), &err);
    must(hs_gguf_writer_end(w, &err), &err);
    must(hs_out_commit(out, false, &err), &err);
    hs_gguf_writer_free(w);
    hs_gguf_free(g);
}

static float *logits_with(const hs_model *m, hs_sparsity sp, const float *threshold,
                          const char *expected_note)
{
    hs_session *s = session(m, (hs_session_params){.n_threads = 1,
                                                   .sparsity = sp,
                                                   .has_threshold = threshold != NULL,
                                                   .threshold = threshold ? *threshold : 0});
    hs_session_info info;
    hs_session_describe(s, &info);
    if (expected_note) {
        assert_non_null(info.notes[0]);
        assert_non_null(strstr(info.notes[0], expected_note));
    }
    float *x = logits_of(s, m, golden_ids, N_IDS);
    hs_session_free(s);
    return x;
}

static void dense_layout_runs_every_mode(void **state)
{
    (void)state;
    char path[] = "/tmp/hotset-test-XXXXXX";
    temp_path(path);
    write_dense(path, "relu");
    hs_model *sparse = load("tests/golden/m1.gguf"), *dense = load(path);
    const size_t n = (size_t)N_IDS * dense->n_vocab;
    const float all = -1e30f; /* every neuron of the sparse file is computed: the same network */
    float *a = logits_with(sparse, HS_SPARSITY_PREDICTED, &all, NULL);
    float *b = logits_with(dense, HS_SPARSITY_OFF, NULL, "transposed ffn_down of 3 layers");
    float *c = logits_with(dense, HS_SPARSITY_EXACT, NULL, "transposed ffn_down of 3 layers");
    assert_memory_equal(a, b, n * sizeof *a);
    assert_memory_equal(a, c, n * sizeof *a);

    write_dense(path, "silu");
    hs_model *silu = load(path);
    float *d = logits_with(silu, HS_SPARSITY_AUTO, NULL, "runs dense: activation silu");
    assert_true(max_diff(b, d, n) > 0.1f); /* the wrong activation is another model */
    free(a);
    free(b);
    free(c);
    free(d);
    hs_model_free(silu);
    hs_model_free(dense);
    hs_model_free(sparse);
    unlink(path);
}

static void context_ends_where_it_ends(void **state)
{
    (void)state;
    hs_model *m = load("tests/golden/mmask.gguf");
    hs_session *s = session(m, (hs_session_params){.n_threads = 1, .n_ctx = 8});
    hs_err err = {0};
    int32_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_int_equal(hs_session_eval(s, ids, 9, NULL, NULL, &err), HS_ERR_NOSPACE);
    assert_string_equal(err.msg, "9 tokens do not fit the context of 8");
    assert_int_equal(hs_session_pos(s), 0);
    assert_int_equal(hs_session_eval(s, ids, 0, NULL, NULL, &err), HS_OK);
    assert_int_equal(hs_session_eval(s, ids, 8, NULL, NULL, &err), HS_OK);
    assert_int_equal(hs_session_eval(s, ids, 1, NULL, NULL, &err), HS_ERR_NOSPACE);
    hs_session_reset(s);
    ids[0] = -1;
    assert_int_equal(hs_session_eval(s, ids, 1, NULL, NULL, &err), HS_ERR_USAGE);
    ids[0] = (int32_t)m->n_vocab;
    assert_int_equal(hs_session_eval(s, ids, 1, NULL, NULL, &err), HS_ERR_USAGE);
    assert_int_equal(hs_session_pos(s), 0);
    hs_session_free(s);
    hs_model_free(m);
}

typedef struct seen {
    const hs_model *m;
    uint64_t active[64]; /* [n_layer] */
} seen;

static void observe(void *ud, uint32_t layer, size_t pos, const float *z)
{
    (void)pos;
    seen *o = ud;
    for (uint32_t i = 0; i < o->m->n_ff; i++)
        o->active[layer] += z[i] != 0;
}

static void observer_sees_the_active_neurons(void **state)
{
    (void)state;
    hs_model *m = load("tests/golden/mmask.gguf");
    hs_session *a = session(m, (hs_session_params){.n_threads = 2, .sparsity = HS_SPARSITY_EXACT});
    hs_session *b = session(m, (hs_session_params){.n_threads = 2});
    seen o = {.m = m};
    hs_session_observe(b, observe, &o);
    free(logits_of(a, m, golden_ids, N_IDS));
    free(logits_of(b, m, golden_ids, N_IDS));
    for (uint32_t l = 0; l < m->n_layer; l++) {
        hs_layer_stats st;
        hs_session_layer_stats(a, l, &st);
        assert_true(o.active[l] > 0);
        assert_int_equal(o.active[l], st.cpu_neurons);
    }
    hs_session_free(a);
    hs_session_free(b);
    hs_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_logits),
        cmocka_unit_test(threads_batches_and_levels_change_nothing),
        cmocka_unit_test(exact_equals_dense),
        cmocka_unit_test(dense_layout_runs_every_mode),
        cmocka_unit_test(context_ends_where_it_ends),
        cmocka_unit_test(observer_sees_the_active_neurons),
    };
    return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
