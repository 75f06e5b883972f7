/* The sampler against distributions worked out by hand. */
#include "runtime/hotset.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Everything off: temperature 1 over all tokens. */
static hs_sampler_params plain(void)
{
    hs_sampler_params p = hs_sampler_defaults();
    p.temp = 1;
    p.top_k = 0;
    p.top_p = 1;
    p.min_p = 0;
    p.seed = 42;
    return p;
}

static hs_sampler *make(const hs_sampler_params *p, uint32_t n)
{
    hs_sampler *s;
    hs_err err;
    if (hs_sampler_new(&s, p, n, &err) != HS_OK)
        fail_msg("%s", err.msg);
    return s;
}

enum { DRAWS = 20000 };

/* Chi-square of DRAWS draws against `want` (probabilities); an id of probability 0 must never
 * come.  The limits are the 99.9 % points, and the seed is fixed: no chance is involved. */
static void expect_distribution(const hs_sampler_params *p, const float *logits, uint32_t n,
                                const double *want)
{
    static const double limit[] = {0, 10.83, 13.82, 16.27, 18.47, 20.52, 22.46, 24.32};
    uint32_t seen[16] = {0};
    assert_true(n <= 16);
    hs_sampler *s = make(p, n);
    for (int i = 0; i < DRAWS; i++) {
        const int32_t id = hs_sampler_next(s, logits);
        assert_true(id >= 0 && (uint32_t)id < n);
        seen[id]++;
    }
    hs_sampler_free(s);
    double chi = 0;
    size_t freedom = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (want[i] <= 0) {
            assert_int_equal(seen[i], 0);
            continue;
        }
        const double d = seen[i] - want[i] * DRAWS;
        chi += d * d / (want[i] * DRAWS);
        freedom++;
    }
    assert_true(freedom >= 1 && freedom - 1 < sizeof limit / sizeof *limit);
    if (freedom > 1 && chi > limit[freedom - 1])
        fail_msg("chi-square %g with %zu degrees of freedom", chi, freedom - 1);
}

/* Probabilities 8/15, 4/15, 2/15, 1/15, in another order of ids. */
static const float four[] = {0.6931472f, 2.0794415f, 0.0f, 1.3862944f}; /* ln 2, 8, 1, 4 */

static void test_softmax(void **state)
{
    (void)state;
    hs_sampler_params p = plain();
    expect_distribution(&p, four, 4, (double[]){2 / 15.0, 8 / 15.0, 1 / 15.0, 4 / 15.0});
    p.temp = 0.5f; /* weights squared: 4 64 1 16 */
    expect_distribution(&p, four, 4, (double[]){4 / 85.0, 64 / 85.0, 1 / 85.0, 16 / 85.0});
    p.temp = 1e-6f;
    expect_distribution(&p, four, 4, (double[]){0, 1, 0, 0});
}

static void test_top_k(void **state)
{
    (void)state;
    hs_sampler_params p = plain();
    p.top_k = 2;
    expect_distribution(&p, four, 4, (double[]){0, 8 / 12.0, 0, 4 / 12.0});
    p.top_k = 1;
    expect_distribution(&p, four, 4, (double[]){0, 1, 0, 0});
    p.top_k = 4;
    expect_distribution(&p, four, 4, (double[]){2 / 15.0, 8 / 15.0, 1 / 15.0, 4 / 15.0});
    p.top_k = 1000;
    expect_distribution(&p, four, 4, (double[]){2 / 15.0, 8 / 15.0, 1 / 15.0, 4 / 15.0});
    const float ties[] = {1, 2, 2, 2}; /* the lowest ids stay */
    p.top_k = 2;
    expect_distribution(&p, ties, 4, (double[]){0, 0.5, 0.5, 0});
}

static void test_top_p(void **state)
{
    (void)state;
    hs_sampler_params p = plain();
    p.top_p = 0.5f; /* 8/15 is enough */
    expect_distribution(&p, four, 4, (double[]){0, 1, 0, 0});
    p.top_p = 0.6f; /* 8/15 is not, 12/15 is */
    expect_distribution(&p, four, 4, (double[]){0, 8 / 12.0, 0, 4 / 12.0});
    p.top_p = 0.9f; /* 14/15 */
    expect_distribution(&p, four, 4, (double[]){2 / 14.0, 8 / 14.0, 0, 4 / 14.0});
    p.top_p = 0; /* one always stays */
    expect_distribution(&p, four, 4, (double[]){0, 1, 0, 0});
    /* Of what top-k leaves (8/14, 4/14, 2/14): 0.84 needs two where 12/15 would not do. */
    p.top_p = 0.84f;
    p.top_k = 3;
    expect_distribution(&p, four, 4, (double[]){0, 8 / 12.0, 0, 4 / 12.0});
    /* The temperature comes last: top-p looks at the plain probabilities. */
    p.top_k = 0;
    p.top_p = 0.6f;
    p.temp = 0.5f;
    expect_distribution(&p, four, 4, (double[]){0, 64 / 80.0, 0, 16 / 80.0});
}

static void test_min_p(void **state)
{
    (void)state;
    hs_sampler_params p = plain();
    p.min_p = 0.3f; /* of the largest probability: 8 and 4 stay */
    expect_distribution(&p, four, 4, (double[]){0, 8 / 12.0, 0, 4 / 12.0});
    p.min_p = 0.2f;
    expect_distribution(&p, four, 4, (double[]){2 / 14.0, 8 / 14.0, 0, 4 / 14.0});
    p.top_p = 0.99f; /* the same through the sorted path */
    expect_distribution(&p, four, 4, (double[]){2 / 14.0, 8 / 14.0, 0, 4 / 14.0});
    p.min_p = 1;
    p.top_k = 3;
    expect_distribution(&p, four, 4, (double[]){0, 1, 0, 0});
}

static void test_penalties(void **state)
{
    (void)state;
    const float logits[] = {2, -1, 0.5f, 0};
    hs_sampler_params p = plain();
    p.repeat_penalty = 2;
    p.frequency_penalty = 0.25f;
    p.presence_penalty = 0.5f;
    /* Seen: 0 twice, 1 once.  0: 2/2 - 2*0.25 - 0.5 = 0; 1: -1*2 - 0.25 - 0.5 = -2.75. */
    double w[4] = {1, exp(-2.75), exp(0.5), 1}, sum = 0;
    for (int i = 0; i < 4; i++)
        sum += w[i];
    for (int i = 0; i < 4; i++)
        w[i] /= sum;
    uint32_t seen[4] = {0};
    hs_sampler *s = make(&p, 4);
    hs_sampler_accept(s, 0);
    hs_sampler_accept(s, 1);
    hs_sampler_accept(s, 0);
    hs_sampler_accept(s, 77); /* no such token: ignored */
    for (int i = 0; i < DRAWS; i++)
        seen[hs_sampler_next(s, logits)]++;
    hs_sampler_free(s);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(seen[i] / (double)DRAWS - w[i]) < 0.015);
}

/* With a penalty that settles the choice, the window decides what is penalised. */
static void test_penalty_window(void **state)
{
    (void)state;
    const float logits[] = {3, 2, 1};
    hs_sampler_params p = plain();
    p.top_k = 1;
    p.presence_penalty = 10;
    p.penalty_last_n = 2;
    hs_sampler *s = make(&p, 3);
    assert_int_equal(hs_sampler_next(s, logits), 0);
    hs_sampler_accept(s, 0);
    assert_int_equal(hs_sampler_next(s, logits), 1);
    hs_sampler_accept(s, 1);
    assert_int_equal(hs_sampler_next(s, logits), 2);
    hs_sampler_accept(s, 2); /* 0 leaves the window */
    assert_int_equal(hs_sampler_next(s, logits), 0);
    hs_sampler_accept(s, 2);
    hs_sampler_accept(s, 2);
    assert_int_equal(hs_sampler_next(s, logits), 0);
    hs_sampler_free(s);
    p.penalty_last_n = 0;
    s = make(&p, 3);
    hs_sampler_accept(s, 0);
    assert_int_equal(hs_sampler_next(s, logits), 0);
    hs_sampler_free(s);
    p.penalty_last_n = -1;
    s = make(&p, 3);
    hs_sampler_accept(s, 0);
    for (int i = 0; i < 1000; i++)
        hs_sampler_accept(s, 1);
    assert_int_equal(hs_sampler_next(s, logits), 2);
    hs_sampler_free(s);
}

static void test_greedy(void **state)
{
    (void)state;
    hs_sampler_params p = hs_sampler_defaults();
    p.temp = 0;
    p.repeat_penalty = 100; /* the raw logits decide */
    hs_sampler *s = make(&p, 5);
    hs_sampler_accept(s, 1);
    assert_int_equal(hs_sampler_next(s, (float[]){1, 3, 2, 3, 0}), 1);
    assert_int_equal(hs_sampler_next(s, (float[]){-4, -3, -2, -2, -5}), 2);
    assert_int_equal(hs_sampler_next(s, (float[]){0, 0, 0, 0, 0}), 0);
    assert_int_equal(hs_sampler_next(s, (float[]){NAN, NAN, 1, 2, NAN}), 3);
    hs_sampler_ban(s, 1);
    hs_sampler_ban(s, -1);
    hs_sampler_ban(s, 5);
    assert_int_equal(hs_sampler_next(s, (float[]){1, 3, 2, 3, 0}), 3);
    hs_sampler_free(s);
}

static void test_ban(void **state)
{
    (void)state;
    hs_sampler_params p = plain();
    const double want[] = {2 / 7.0, 0, 1 / 7.0, 4 / 7.0};
    for (int round = 0; round < 2; round++) {
        hs_sampler *s = make(&p, 4);
        hs_sampler_ban(s, 1);
        uint32_t seen[4] = {0};
        for (int i = 0; i < DRAWS; i++)
            seen[hs_sampler_next(s, four)]++;
        hs_sampler_free(s);
        assert_int_equal(seen[1], 0);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(seen[i] / (double)DRAWS - want[i]) < 0.015);
        p.top_p = 0.9999f; /* the same through the sorted path */
    }
    hs_sampler *s = make(&p, 2);
    hs_sampler_ban(s, 0);
    hs_sampler_ban(s, 1);
    assert_int_equal(hs_sampler_next(s, four), -1);
    hs_sampler_free(s);
}

static void test_odd_logits(void **state)
{
    (void)state;
    hs_sampler_params p = hs_sampler_defaults();
    p.temp = 1;
    for (int round = 0; round < 3; round++) {
        hs_sampler *s = make(&p, 4);
        const int32_t a = hs_sampler_next(s, (float[]){NAN, -INFINITY, 1, NAN});
        const int32_t b = hs_sampler_next(s, (float[]){1, 2, INFINITY, 3});
        const int32_t c = hs_sampler_next(s, (float[]){-1e38f, 1e38f, -1e38f, 0});
        assert_int_equal(a, 2);
        assert_int_equal(b, 2);
        assert_int_equal(c, 1);
        assert_int_equal(hs_sampler_next(s, (float[]){NAN, NAN, NAN, NAN}), -1);
        hs_sampler_free(s);
        p.top_k = round == 0 ? 0 : 1;
        p.top_p = round == 0 ? 1 : 0.5f;
    }
}

static uint32_t next_random(uint32_t *x) { return *x = *x * 1664525 + 1013904223; }

/* A large vocabulary: the same seed gives the same tokens, another seed other ones, and top-k
 * with a heap keeps what sorting would. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 50000, K = 37 };
    float *logits = malloc(N * sizeof *logits);
    assert_non_null(logits);
    uint32_t rng = 7;
    for (int i = 0; i < N; i++)
        logits[i] = (float)(next_random(&rng) >> 8) * 0x1p-24f * 10;
    hs_sampler_params p = plain();
    p.top_k = K;
    p.temp = 100; /* nearly uniform over the kept ones */
    hs_sampler *a = make(&p, N), *b = make(&p, N);
    p.seed = 43;
    hs_sampler *c = make(&p, N);
    int32_t kept[K];
    size_t n_kept = 0, differ = 0;
    for (int i = 0; i < 500; i++) {
        const int32_t id = hs_sampler_next(a, logits);
        assert_int_equal(id, hs_sampler_next(b, logits));
        differ += id != hs_sampler_next(c, logits);
        size_t k = 0;
        while (k < n_kept && kept[k] != id)
            k++;
        if (k < n_kept)
            continue;
        assert_true(n_kept < K);
        kept[n_kept++] = id;
        size_t above = 0;
        for (int j = 0; j < N; j++)
            above += logits[j] > logits[id];
        assert_true(above < K);
    }
    assert_int_equal(n_kept, K);
    assert_true(differ > 400);
    hs_sampler_free(a);
    hs_sampler_free(b);
    hs_sampler_free(c);
    free(logits);
}

/* xoshiro256** seeded by splitmix64(0): its first output is 0x99ec5f36cb75f2b4, and u < 1/2
 * means the first of two equal tokens. */
static void test_generator(void **state)
{
    (void)state;
    static const uint64_t published[] = {
        UINT64_C(0x99ec5f36cb75f2b4), UINT64_C(0xbf6e1f784956452a), UINT64_C(0x1a5f849d4933e6e0),
        UINT64_C(0x6aa594f1262d2d2c), UINT64_C(0xbba5ad4a1f842e59), UINT64_C(0xffef8375d9ebcaca),
        UINT64_C(0x6c160deed2f54c98), UINT64_C(0x8920ad648fc30a3f),
    };
    hs_sampler_params p = plain();
    p.seed = 0;
    hs_sampler *s = make(&p, 2);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        assert_int_equal(hs_sampler_next(s, (float[]){0, 0}), (int)(published[i] >> 63));
    hs_sampler_free(s);
}

static void test_refused(void **state)
{
    (void)state;
    struct {
        hs_sampler_params p;
        const char *part;
    } c[10];
    for (int i = 0; i < 10; i++)
        c[i].p = plain();
    c[0].p.temp = -1, c[0].part = "temperature -1";
    c[1].p.temp = NAN, c[1].part = "temperature";
    c[2].p.top_k = -1, c[2].part = "top-k -1";
    c[3].p.top_p = 1.5f, c[3].part = "top-p 1.5";
    c[4].p.top_p = NAN, c[4].part = "top-p";
    c[5].p.min_p = -0.5f, c[5].part = "min-p -0.5";
    c[6].p.repeat_penalty = 0, c[6].part = "repeat penalty 0";
    c[7].p.frequency_penalty = INFINITY, c[7].part = "penalties";
    c[8].p.presence_penalty = NAN, c[8].part = "penalties";
    c[9].p.penalty_last_n = -2, c[9].part = "-2 tokens";
    for (int i = 0; i < 10; i++) {
        hs_sampler *s = (hs_sampler *)&c[i];
        hs_err err;
        assert_int_equal(hs_sampler_new(&s, &c[i].p, 4, &err), HS_ERR_USAGE);
        assert_null(s);
        assert_non_null(strstr(err.msg, c[i].part));
    }
    hs_sampler *s;
    const hs_sampler_params p = plain();
    assert_int_equal(hs_sampler_new(&s, &p, 0, NULL), HS_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),    cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),      cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_penalties),  cmocka_unit_test(test_penalty_window),
        cmocka_unit_test(test_greedy),     cmocka_unit_test(test_ban),
        cmocka_unit_test(test_odd_logits), cmocka_unit_test(test_large),
        cmocka_unit_test(test_generator),  cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
