/* hotset-profile's statistics against numbers worked out by hand: one chunk's tally, the pilot's
 * quantiles and neurons, what the tables say. */
#include "tools/profile/curves.h"
#include "tools/profile/detail.h"
#include "tools/profile/pilot.h"
#include "tools/profile/tally.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HASH "fedcba9876543210fedcba9876543210"

static void near(double got, double want)
{
    if (!(fabs(got - want) < 1e-9))
        fail_msg("got %.17g, expected %.17g", got, want);
}

/* 2^24 and 2^20 units; halves go to the even neighbour; magnitudes above 32768 are 32768. */
static void fixed_point(void **state)
{
    (void)state;
    assert_int_equal(hs_tally_fixed(0), 0);
    assert_int_equal(hs_tally_fixed(1), 1 << 24);
    assert_int_equal(hs_tally_fixed(-0.75f), -3 * (1 << 22));
    assert_int_equal(hs_tally_fixed(0x1p-25f), 0);
    assert_int_equal(hs_tally_fixed(0x1.8p-24f), 2);
    assert_int_equal(hs_tally_fixed(1e30f), (int64_t)32768 << 24);
    assert_int_equal(hs_tally_fixed(-INFINITY), -((int64_t)32768 << 24));
    assert_int_equal(hs_tally_square(-3), 9 << 20);
    assert_int_equal(hs_tally_square(0.0625f), 1 << 12);
    assert_int_equal(hs_tally_square(-1e30f), (int64_t)1 << 50);
}

static hs_activation *shape(bool magnitude)
{
    const uint32_t n_ff[1] = {4};
    hs_activation *a;
    assert_int_equal(hs_activation_new(&a, 1, n_ff, NULL), HS_OK);
    assert_int_equal(hs_activation_add_source(a, "a", HASH, NULL), HS_OK);
    assert_int_equal(hs_activation_add_source(a, "b", HASH, NULL), HS_OK);
    a->n_top = 3;
    a->magnitude = magnitude ? 70 : 0;
    for (int i = 0; i < HS_STATS; i++)
        if (magnitude || (i != HS_STAT_MAGNITUDE && i != HS_STAT_KEPT))
            assert_int_equal(hs_activation_stat_add(a, (hs_activation_stat)i, NULL), HS_OK);
    const int32_t top[3] = {0, 2, 3};
    memcpy(a->top, top, sizeof top);
    return a;
}

static void counts_are(const int64_t *got, size_t n, const int64_t *want)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("entry %zu: got %lld, expected %lld", i, (long long)got[i],
                     (long long)want[i]);
}

static void tally_of_a_relu_layer(void **state)
{
    (void)state;
    hs_activation *a = shape(false);
    hs_tally *t;
    assert_int_equal(hs_tally_new(&t, a, NULL), HS_OK);
    const float z[3][4] = {{1, 0, 2, 0}, {0, 0, 0.5f, 0}, {3, 0, 0, 0x1p-149f}};
    hs_tally_observe(t, 0, 0, z[0]);
    hs_tally_observe(t, 0, 1, z[1]);
    hs_tally_generated(t, true);
    hs_tally_observe(t, 0, 2, z[2]);
    assert_int_equal(hs_tally_take(t, a, 1, NULL), HS_OK);
    assert_int_equal(a->tokens, 3);
    assert_int_equal(a->tokens_generated, 1);
    const int64_t sum[] = {4 << 24, 0, 5 << 23, 0}, squares[] = {10 << 20, 0, 17 << 18, 0};
    counts_are(a->count[0], 4, (const int64_t[]){2, 0, 2, 1});
    counts_are(a->stat[HS_STAT_SUM][0], 4, sum);
    counts_are(a->stat[HS_STAT_SQUARES][0], 4, squares);
    counts_are(a->stat[HS_STAT_HISTOGRAM][0], 5, (const int64_t[]){0, 1, 2, 0, 0});
    counts_are(a->stat[HS_STAT_GENERATED][0], 4, (const int64_t[]){1, 0, 0, 1});
    counts_are(a->stat[HS_STAT_BY_TEXT][0], 8, (const int64_t[]){0, 0, 0, 0, 2, 0, 2, 1});
    counts_are(a->stat[HS_STAT_COACTIVE][0], 9, (const int64_t[]){2, 1, 1, 1, 2, 0, 1, 0, 1});
    /* Cleared, the next chunk starts at zero and its positions are the text's again. */
    hs_tally_clear(t);
    hs_tally_observe(t, 0, 0, z[0]);
    assert_int_equal(hs_tally_take(t, a, 0, NULL), HS_OK);
    assert_int_equal(a->tokens, 4);
    assert_int_equal(a->tokens_generated, 1);
    counts_are(a->count[0], 4, (const int64_t[]){3, 0, 3, 1});
    hs_tally_free(t);
    hs_activation_free(a);
}

/* Level 70 % (threshold 2) counts: -3 and 2 do, 1 and -0.5 do not. */
static void tally_of_a_layer_without_zeros(void **state)
{
    (void)state;
    hs_activation *a = shape(true);
    const float threshold[HS_MAGNITUDE_LEVELS] = {1, 2, 3, 4, 5};
    memcpy(a->threshold, threshold, sizeof threshold);
    hs_tally *t;
    assert_int_equal(hs_tally_new(&t, a, NULL), HS_OK);
    const float z[4] = {-3, 2, 1, -0.5f};
    hs_tally_observe(t, 0, 0, z);
    assert_int_equal(hs_tally_take(t, a, 0, NULL), HS_OK);
    counts_are(a->count[0], 4, (const int64_t[]){1, 1, 0, 0});
    const int64_t sum[] = {-(3 << 24), 2 << 24, 1 << 24, -(1 << 23)};
    counts_are(a->stat[HS_STAT_SUM][0], 4, sum);
    counts_are(a->stat[HS_STAT_MAGNITUDE][0], 20,
               (const int64_t[]){1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    const int64_t kept[] = {14 << 20, 13 << 20, 9 << 20, 0, 0};
    counts_are(a->stat[HS_STAT_KEPT][0], 5, kept);
    counts_are(a->stat[HS_STAT_HISTOGRAM][0], 5, (const int64_t[]){0, 0, 1, 0, 0});
    hs_detail d;
    hs_detail_layer(&d, a, 0);
    near(d.mean, -0.125);
    near(d.kept[1], 13 / 14.25);
    near(d.active[0], 0.75);
    hs_tally_free(t);
    hs_activation_free(a);
}

static void a_sum_that_does_not_fit(void **state)
{
    (void)state;
    hs_activation *a = shape(false);
    a->stat[HS_STAT_SUM][0][1] = INT64_MAX - 5;
    hs_tally *t;
    assert_int_equal(hs_tally_new(&t, a, NULL), HS_OK);
    const float z[4] = {0, 1, 0, 0};
    hs_tally_observe(t, 0, 0, z);
    hs_err err = {0};
    assert_int_equal(hs_tally_take(t, a, 0, &err), HS_ERR_FAILED);
    assert_non_null(strstr(err.msg, "no longer fit"));
    hs_tally_free(t);
    hs_activation_free(a);
}

/* 0, 1, … 100 in any order: the quantile of p % is p. */
static void quantiles(void **state)
{
    (void)state;
    float v[101], threshold[HS_MAGNITUDE_LEVELS];
    for (int i = 0; i < 101; i++)
        v[i] = (float)(i * 37 % 101);
    hs_pilot_quantiles(threshold, v, 101);
    for (int i = 0; i < HS_MAGNITUDE_LEVELS; i++)
        near((double)threshold[i], hs_magnitude_level[i]);
}

static void hottest_neurons(void **state)
{
    (void)state;
    const int64_t count[6] = {5, 9, 5, 0, 9, 5};
    int32_t top[4];
    assert_int_equal(hs_pilot_hottest(top, 4, count, 6, NULL), HS_OK);
    const int32_t want[4] = {0, 1, 2, 4}; /* 1, 4, then the first two of 0, 2, 5 */
    assert_memory_equal(top, want, sizeof want);
}

/* Ten positions: 1 with none active, 8 with one, 1 with all four. */
static void details(void **state)
{
    (void)state;
    hs_activation *a = shape(false);
    a->tokens = 10;
    const int64_t h[5] = {1, 8, 0, 0, 1};
    memcpy(a->stat[HS_STAT_HISTOGRAM][0], h, sizeof h);
    near(hs_detail_quantile(a, 0, 5), 0);
    near(hs_detail_quantile(a, 0, 10), 0);
    near(hs_detail_quantile(a, 0, 50), 0.25);
    near(hs_detail_quantile(a, 0, 90), 0.25);
    near(hs_detail_quantile(a, 0, 95), 1);
    const int64_t count[4] = {9, 1, 1, 1}, generated[4] = {1, 0, 0, 1};
    memcpy(a->count[0], count, sizeof count);
    memcpy(a->stat[HS_STAT_GENERATED][0], generated, sizeof generated);
    a->tokens_generated = 2;
    a->stat[HS_STAT_SUM][0][0] = 20 << 24;
    a->stat[HS_STAT_SQUARES][0][1] = 30 << 20;
    hs_detail d;
    hs_detail_layer(&d, a, 0);
    near(d.given, 10.0 / 32);
    near(d.generated, 2.0 / 8);
    near(d.mean, 0.5);
    near(d.mean_square, 0.75);
    assert_true(isnan(d.threshold[0]));
    near(hs_detail_bytes(0), 1.0 / 3);
    near(hs_detail_bytes(0.25), 0.5);
    near(hs_detail_bytes(1), 1);
    hs_activation_free(a);
}

/* ---- curves ---------------------------------------------------------------------------- */

/* 6 3 1 0 of ten: the hottest quarter has 60 %, half 90 %, three quarters everything. */
static void curves_of_a_layer(void **state)
{
    (void)state;
    hs_activation *a = shape(false);
    a->tokens = 10;
    const int64_t count[4] = {0, 6, 1, 3}, text[8] = {0, 5, 0, 1, 0, 1, 1, 2},
                  h[5] = {2, 6, 2, 0, 0};
    memcpy(a->count[0], count, sizeof count);
    memcpy(a->stat[HS_STAT_BY_TEXT][0], text, sizeof text);
    memcpy(a->stat[HS_STAT_HISTOGRAM][0], h, sizeof h);
    hs_curves *c;
    assert_int_equal(hs_curves_new(&c, a, NULL), HS_OK);
    for (int row = 0; row < 2; row++) { /* the layer's and the model's: it is the only layer */
        const double *v = c->cumulative + row * HS_CURVE_POINTS;
        near(v[0], 0);
        near(v[25], 0.6);
        near(v[50], 0.9);
        near(v[75], 1);
        near(v[100], 1);
    }
    near(c->rank[0], 0.6);
    near(c->rank[31], 0.6);
    near(c->rank[32], 0.3);
    near(c->rank[127], 0);
    near(c->active[0], 0.2);
    near(c->active[25], 0.6);
    near(c->active[50], 0.2);
    /* 80 % of text a is neuron 1 alone (5 of 6); of text b, 3 and then 1, the lower of two (3 of
     * 4 are not enough), and 2: all three. */
    assert_int_equal(c->n_text, 2);
    near(c->jaccard[0], 1);
    near(c->jaccard[1], 1.0 / 3);
    near(c->jaccard[2], 1.0 / 3);
    near(c->served[0], 5.0 / 6);
    near(c->served[1], 0.25);
    near(c->served[2], 1);
    near(c->served[3], 1);
    hs_curves_free(c);
    hs_activation_free(a);
}

static void hot_sets(void **state)
{
    (void)state;
    const int64_t count[5] = {2, 4, 0, 4, 0};
    bool hot[5];
    assert_int_equal(hs_curves_hot(hot, count, 5, 80, NULL), HS_OK);
    assert_true(!hot[0] && hot[1] && !hot[2] && hot[3] && !hot[4]);
    assert_int_equal(hs_curves_hot(hot, count, 5, 40, NULL), HS_OK);
    assert_true(!hot[0] && hot[1] && !hot[3]);
    const int64_t none[2] = {0, 0};
    assert_int_equal(hs_curves_hot(hot, none, 2, 80, NULL), HS_OK);
    assert_true(!hot[0] && !hot[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_point),
        cmocka_unit_test(tally_of_a_relu_layer),
        cmocka_unit_test(tally_of_a_layer_without_zeros),
        cmocka_unit_test(a_sum_that_does_not_fit),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(hottest_neurons),
        cmocka_unit_test(details),
        cmocka_unit_test(curves_of_a_layer),
        cmocka_unit_test(hot_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
