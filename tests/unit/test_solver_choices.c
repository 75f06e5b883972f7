/* Classes of arbitrary choices, values that rise and fall with cost: every method against trying
 * everything, and the order in which neurons are sorted. */
#include "tools/solver/solve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t rng_state = 88172645463325252u;

static uint32_t below(uint32_t n)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)((rng_state >> 20) % n);
}

enum { CLASSES = 6, MOST = 8 };

typedef struct instance {
    hs_choices c;
    size_t first[CLASSES + 1];
    hs_choice choice[CLASSES * MOST];
} instance;

static void random_instance(instance *x)
{
    uint64_t all = 0;
    memset(x, 0, sizeof *x);
    x->c = (hs_choices){.n_class = below(CLASSES + 1), .first = x->first, .choice = x->choice};
    const uint32_t step = below(3) ? 1 : 64;
    for (uint32_t l = 0; l < x->c.n_class; l++) {
        size_t at = x->first[l];
        x->choice[at++] = (hs_choice){0, 0, 77};
        for (uint32_t i = below(MOST); i; i--)
            x->choice[at++] = (hs_choice){step * below(40), (int64_t)below(100) - 20, i};
        x->first[l + 1] = at;
        all += x->choice[at - 1].cost;
    }
    x->c.capacity = below((uint32_t)all + 30);
}

static int64_t try_all(const hs_choices *c, uint32_t l, uint64_t left)
{
    int64_t best = INT64_MIN;
    if (l == c->n_class)
        return 0;
    for (size_t i = c->first[l]; i < c->first[l + 1]; i++) {
        if (c->choice[i].cost > left)
            continue;
        const int64_t v = c->choice[i].value + try_all(c, l + 1, left - c->choice[i].cost);
        best = v > best ? v : best;
    }
    return best;
}

static void check(const instance *x, const hs_solve_result *r, int64_t truth)
{
    uint64_t cost = 0;
    int64_t value = 0;
    for (uint32_t l = 0; l < x->c.n_class; l++) {
        size_t i = x->first[l];
        while (i < x->first[l + 1] && x->choice[i].k != r->groups[l])
            i++;
        assert_true(i < x->first[l + 1]);
        cost += x->choice[i].cost;
        value += x->choice[i].value;
    }
    assert_true(cost <= x->c.capacity);
    assert_int_equal(cost, r->bytes);
    assert_int_equal(value, r->value);
    assert_int_equal(value, truth);
    assert_int_equal(r->bound, truth);
    assert_true(r->gap == 0);
    assert_string_equal(r->status, "optimal");
}

static void test_brute_force(void **state)
{
    (void)state;
    instance x;
    for (int i = 0; i < 3000; i++) {
        random_instance(&x);
        const int64_t truth = try_all(&x.c, 0, x.c.capacity);
        hs_err err = {0};
        for (int m = 0; m < 3; m++) {
            if (m == HS_SOLVE_GLPK && i % 8)
                continue;
            const hs_solve_params q = {.method = (hs_solve_method)m, .time_limit = 30};
            hs_solve_result r;
            if (hs_solve_choices(&x.c, &q, &r, &err) != HS_OK)
                fail_msg("instance %d: %s", i, err.msg);
            check(&x, &r, truth);
            /* With a floor it ends early only when the floor is not beaten. */
            hs_solve_result f;
            hs_solve_params low = q;
            low.floor = (int64_t)below(200);
            assert_int_equal(hs_solve_choices(&x.c, &low, &f, &err), HS_OK);
            assert_true(f.bound >= truth);
            if (strcmp(f.status, "beaten") == 0)
                assert_true(truth <= low.floor && f.value <= truth);
            else
                assert_true(f.value == truth && f.bound == truth);
            hs_solve_result_fini(&f);
            /* A proof needs no second one. */
            assert_true(m == HS_SOLVE_GLPK || r.glpk_bound == -1);
            hs_solve_result_fini(&r);
        }
    }
}

static void test_screening(void **state)
{
    (void)state;
    size_t first[] = {0, 2};
    hs_choice choice[] = {{0, 0, 0}, {1, 1, 1}};
    const hs_choices c = {1, 9, first, choice};
    const hs_solve_params q = {.time_limit = 30};
    hs_solve_result r;
    hs_err err = {0};
    assert_int_equal(hs_solve_choices(&c, &q, &r, &err), HS_OK);
    assert_int_equal(r.groups[0], 1);
    hs_solve_result_fini(&r);
    choice[0].cost = 1;
    assert_int_equal(hs_solve_choices(&c, &q, &r, &err), HS_ERR_FAILED);
    assert_string_equal(err.msg, "class 0: nothing must cost nothing");
    choice[0].cost = 0;
    choice[1].value = INT64_MAX;
    assert_int_equal(hs_solve_choices(&c, &q, &r, &err), HS_ERR_FAILED);
    choice[1].value = 1;
    choice[1].cost = UINT64_MAX;
    assert_int_equal(hs_solve_choices(&c, &q, &r, &err), HS_ERR_FAILED);
    first[1] = 0;
    assert_int_equal(hs_solve_choices(&c, &q, &r, &err), HS_ERR_FAILED);
}

static uint64_t each_one(void *ud, uint32_t l, uint32_t n)
{
    (void)ud;
    (void)l;
    return n * UINT64_C(384);
}

/* The sort against its definition. */
static void test_order(void **state)
{
    (void)state;
    enum { N = 700 };
    int64_t count[N];
    int32_t order[N];
    for (int round = 0; round < 40; round++) {
        for (uint32_t i = 0; i < N; i++) {
            count[i] = (int64_t)below(round % 3 ? 1u << (round % 30) : 5);
            if (round % 5 == 0)
                count[i] = (int64_t)((uint64_t)count[i] * 0x9e3779b97f4a7c15u); /* any sign */
        }
        count[N / 2] = round % 2 ? INT64_MAX : INT64_MIN;
        assert_int_equal(hs_solve_order(count, N, order, NULL), HS_OK);
        bool seen[N] = {false};
        for (uint32_t i = 0; i < N; i++) {
            assert_false(seen[order[i]]);
            seen[order[i]] = true;
            if (i)
                assert_true(count[order[i - 1]] > count[order[i]] ||
                            (count[order[i - 1]] == count[order[i]] && order[i - 1] < order[i]));
        }
    }
    assert_int_equal(hs_solve_order(count, 0, order, NULL), HS_OK);
}

/* Reports E01, 28: twelve layers with one hot neuron each, whose number is the layer's; each comes
 * back in its own layer, also where layer 10 sorts before layer 2 by name. */
static void test_hot_neuron_of_each_layer(void **state)
{
    (void)state;
    enum { LAYERS = 12, FF = 96, ONE = 384 };
    int64_t count[LAYERS][FF] = {{0}};
    int32_t order[LAYERS][FF];
    hs_solve_problem *p;
    hs_solve_result r;
    hs_err err = {0};
    for (int m = 0; m < 3; m++) {
        assert_int_equal(hs_solve_problem_new(&p, LAYERS, LAYERS * ONE, &err), HS_OK);
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t i = 0; i < FF; i++)
                count[l][i] = 1;
            count[l][l] = 1000 + l;
            assert_int_equal(hs_solve_order(count[l], FF, order[l], &err), HS_OK);
            assert_int_equal(
                hs_solve_problem_layer(p, l, FF, count[l], order[l], 1, 0, each_one, NULL, &err),
                HS_OK);
        }
        const hs_solve_params q = {.method = (hs_solve_method)m, .time_limit = 30};
        assert_int_equal(hs_solve(p, &q, &r, &err), HS_OK);
        for (uint32_t l = 0; l < LAYERS; l++) {
            assert_int_equal(r.groups[l], 1);
            assert_int_equal(order[l][0], l);
        }
        hs_solve_result_fini(&r);
        hs_solve_problem_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_screening),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_hot_neuron_of_each_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
