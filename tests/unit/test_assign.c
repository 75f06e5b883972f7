/* Layers to devices: against trying everything, and the bound against what it bounds. */
#include "tools/solver/assign.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 8, GROUPS = 6, DEVICES = 3 };

static uint64_t seed = 20240607;

static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 20) % n);
}

/* Layers of uneven sizes with falling counts; a device wants a minimum of groups of its own, and
 * every layer takes some bytes of whichever device has it. */
typedef struct tiny {
    uint32_t n_layer, n_device, n_group[LAYERS], least[DEVICES];
    uint64_t each[LAYERS], fixed[LAYERS], capacity[DEVICES];
    int64_t value[LAYERS][GROUPS + 1];
} tiny;

static void random_tiny(tiny *t, uint32_t layers, uint32_t devices)
{
    uint64_t all = 0;
    *t = (tiny){.n_layer = layers, .n_device = devices};
    for (uint32_t l = 0; l < layers; l++) {
        t->n_group[l] = 1 + below(GROUPS);
        t->each[l] = 1 + below(9);
        t->fixed[l] = below(3) ? 0 : below(6);
        int64_t count = 1 + below(1000);
        for (uint32_t k = 0; k < t->n_group[l]; k++) {
            t->value[l][k + 1] = t->value[l][k] + count;
            count = below((uint32_t)count + 1);
        }
        all += t->each[l] * t->n_group[l];
    }
    for (uint32_t d = 0; d < devices; d++) {
        t->least[d] = below(2) ? 0 : below(4);
        t->capacity[d] = below((uint32_t)all + 10);
    }
}

static hs_status solve_device(const tiny *t, const uint8_t *device, uint32_t d, int64_t *value,
                              hs_err *err)
{
    hs_solve_problem p = {.n_layer = t->n_layer, .capacity = t->capacity[d]};
    hs_solve_layer layer[LAYERS] = {{0}};
    uint64_t bytes[LAYERS][GROUPS + 1] = {{0}};
    hs_solve_result r;
    const hs_solve_params how = {.method = HS_SOLVE_EXACT, .time_limit = 30};
    p.layer = layer;
    for (uint32_t l = 0; l < t->n_layer; l++) {
        const bool mine = device[l] == d;
        for (uint32_t k = 0; k <= t->n_group[l]; k++)
            bytes[l][k] = k * t->each[l];
        if (mine)
            p.capacity = p.capacity > t->fixed[l] ? p.capacity - t->fixed[l] : 0;
        layer[l] = (hs_solve_layer){.n_groups = t->n_group[l],
                                    .min_groups = mine ? t->least[d] : t->n_group[l] + 1,
                                    .value = (int64_t *)(uintptr_t)t->value[l],
                                    .bytes = bytes[l]};
    }
    const hs_status s = hs_solve(&p, &how, &r, err);
    if (s == HS_OK)
        *value += r.value;
    hs_solve_result_fini(&r);
    return s;
}

static uint32_t asked;

static hs_status exact(void *ud, const uint8_t *device, int64_t *value, hs_err *err)
{
    const tiny *t = ud;
    hs_status s = HS_OK;
    *value = 0;
    asked++;
    for (uint32_t d = 0; s == HS_OK && d < t->n_device; d++)
        s = solve_device(t, device, d, value, err);
    return s;
}

/* What layers l and on can be worth with that much left, by trying every device and number. */
static int64_t try_all(const tiny *t, uint32_t l, const uint64_t *left)
{
    int64_t best = 0;
    if (l == t->n_layer)
        return 0;
    for (uint32_t d = 0; d < t->n_device; d++) {
        uint64_t rest[DEVICES];
        memcpy(rest, left, sizeof rest);
        const uint64_t room = left[d] > t->fixed[l] ? left[d] - t->fixed[l] : 0;
        for (uint32_t k = 0; k <= t->n_group[l]; k++) {
            if ((k && k < t->least[d]) || k * t->each[l] > room)
                continue;
            rest[d] = room - k * t->each[l];
            const int64_t v = t->value[l][k] + try_all(t, l + 1, rest);
            best = v > best ? v : best;
        }
    }
    return best;
}

static void state(const tiny *t, hs_assign_problem *p)
{
    hs_err err = {0};
    assert_int_equal(hs_assign_new(p, t->n_layer, t->n_device, &err), HS_OK);
    for (uint32_t l = 0; l < t->n_layer; l++)
        p->fixed[l] = (double)t->fixed[l];
    for (uint32_t d = 0; d < t->n_device; d++) {
        p->capacity[d] = (double)t->capacity[d];
        for (uint32_t l = 0; l < t->n_layer; l++) {
            hs_choice o[GROUPS + 1] = {{0}};
            size_t first[2] = {0, 1};
            for (uint32_t k = t->least[d] ? t->least[d] : 1; k <= t->n_group[l]; k++)
                o[first[1]++] = (hs_choice){k * t->each[l], t->value[l][k], k};
            assert_int_equal(hs_assign_item(p, d, l, o, first, 1, &err), HS_OK);
        }
    }
}

/* So few layers that all assignments are tried: the optimum, with proof.  Where fixed parts do not
 * fit the order in which layers come decides, so those are left to the other test. */
static void test_brute_force(void **state_)
{
    (void)state_;
    for (int i = 0; i < 3000; i++) {
        tiny t;
        random_tiny(&t, 1 + below(3), 2 + below(2));
        memset(t.fixed, 0, sizeof t.fixed);
        hs_assign_problem p;
        hs_assign_result r;
        uint8_t device[LAYERS] = {0};
        hs_err err = {0};
        int64_t value;
        state(&t, &p);
        assert_int_equal(hs_assign_solve(&p, exact, &t, device, &r, &err), HS_OK);
        assert_int_equal(exact(&t, device, &value, &err), HS_OK);
        const int64_t truth = try_all(&t, 0, t.capacity);
        assert_true(r.proven);
        if (value != truth || r.bound != (double)truth)
            fail_msg("instance %d: %lld, bound %.17g, truth %lld", i, (long long)value, r.bound,
                     (long long)truth);
        hs_assign_fini(&p);
    }
}

/* More layers than are tried: never more than the truth, never a bound below it, and close. */
static void test_search(void **state_)
{
    (void)state_;
    double worst = 1, sum = 0;
    enum { N = 150 };
    for (int i = 0; i < N; i++) {
        tiny t;
        random_tiny(&t, 6, 3);
        for (uint32_t l = 0; l < t.n_layer; l++)
            t.n_group[l] = t.n_group[l] > 3 ? 3 : t.n_group[l];
        memset(t.fixed, 0, sizeof t.fixed);
        hs_assign_problem p;
        hs_assign_result r;
        uint8_t device[LAYERS] = {0};
        hs_err err = {0};
        int64_t value;
        state(&t, &p);
        asked = 0;
        assert_int_equal(hs_assign_solve(&p, exact, &t, device, &r, &err), HS_OK);
        assert_int_equal(asked, 0);
        assert_false(r.proven);
        assert_int_equal(exact(&t, device, &value, &err), HS_OK);
        const int64_t truth = try_all(&t, 0, t.capacity);
        assert_true(value <= truth);
        assert_true(r.bound >= (double)truth);
        for (uint32_t l = 0; l < t.n_layer; l++)
            assert_true(device[l] < t.n_device);
        const double part = truth ? (double)value / (double)truth : 1;
        worst = part < worst ? part : worst;
        sum += part;
        hs_assign_fini(&p);
    }
    /* Six layers are few for a method made for eighty. */
    print_message("search: %.4f of the optimum in the mean, %.4f at worst\n", sum / N, worst);
    assert_true(sum / N > 0.95);
}

/* Eighty layers on two devices: the bound and the plan are close, and the same twice. */
static void test_large(void **state_)
{
    (void)state_;
    enum { N = 80, K = 100 };
    static hs_choice o[K + 1];
    hs_assign_problem p;
    hs_assign_result r;
    hs_err err = {0};
    uint8_t device[N] = {0}, again[N] = {0};
    assert_int_equal(hs_assign_new(&p, N, 2, &err), HS_OK);
    p.capacity[0] = 2.4e6;
    p.capacity[1] = 1.2e6;
    for (uint32_t l = 0; l < N; l++) {
        const double hot = 1e6 * (0.5 + below(1000) / 1000.0);
        for (uint32_t k = 1; k <= K; k++)
            o[k] = (hs_choice){1000 * k, (int64_t)(hot * sqrt(k)), k};
        p.fixed[l] = 5000;
        for (uint32_t d = 0; d < 2; d++)
            assert_int_equal(hs_assign_item(&p, d, l, o, (size_t[]){0, K + 1}, 1, &err), HS_OK);
    }
    assert_int_equal(hs_assign_solve(&p, exact, NULL, device, &r, &err), HS_OK);
    double taken[2] = {0};
    for (uint32_t l = 0; l < N; l++)
        taken[device[l]] += 1;
    assert_true(taken[0] > taken[1] && taken[1] > 0);
    /* One memory of both sizes is worth no less than two: its optimum by its price. */
    const double bound = r.bound;
    assert_int_equal(hs_assign_solve(&p, exact, NULL, again, &r, &err), HS_OK);
    assert_memory_equal(device, again, N);
    assert_true(bound == r.bound);
    p.capacity[0] = p.capacity[0] + p.capacity[1];
    p.capacity[1] = 0;
    for (uint32_t l = 0; l < N; l++)
        again[l] = 0;
    assert_int_equal(hs_assign_solve(&p, exact, NULL, again, &r, &err), HS_OK);
    assert_true(fabs(bound - r.bound) < 2e-3 * bound);
    hs_assign_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
